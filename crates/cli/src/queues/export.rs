//! `tidegate queues export`: copies a queue of a stopped gateway, with everything that belongs to it, into a
//! folder that can be copied anywhere.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ::log::{Disk as _, Lock, RealDisk};
use anyhow::{Context as _, Result, bail, ensure};
use gateway::moving::{MOVED, parts};
use serde_json::json;

use super::InData;
use super::carry::{BEGUN, Done, LIST, List, Listed, Pace, copy, files_below, put, sync_folder};
use super::ground::{Ground, open_file};

/// Copy a queue of a stopped gateway into a folder, to back it up or move it
///
/// The folder contains the queue's records, the positions of its consumer groups,
/// dead letters, parked operations and idempotency keys. A list of the files with
/// checksums is written last. The same command continues an interrupted export.
/// `tidegate queues import` makes a queue from the folder, on any host.
///
/// With --move, the queue here is marked, and no gateway delivers from it any more.
/// Root works in the queue as the owner of path.data; files of an export are for
/// their owner alone.
///
/// Exit status: 0 done, 1 there is no such queue, it was moved before, or there is
/// an export already, 2 wrong usage, 3 it could not be done (for example, a gateway
/// uses the queue).
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    override_usage = "tidegate queues export [OPTIONS] --config <FILE> --to <FOLDER> <QUEUE>"
)]
pub(super) struct Export {
    /// Name of the queue
    queue: String,
    #[command(flatten)]
    from: InData,
    /// Folder to create
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// Mark the queue here, so that no gateway delivers it a second time
    #[arg(long = "move")]
    moves: bool,
    /// Bytes to copy per second at most, as in 50mb
    #[arg(long, value_name = "SIZE", value_parser = crate::diff::bytes)]
    rate: Option<u64>,
}

/// Runs the command.
pub(super) fn run(arguments: &Export, as_json: bool, out: &mut impl Write) -> Result<bool> {
    let folder = arguments.from.data()?;
    let (queue, to) = (&arguments.queue, &arguments.to);
    let log = &parts(&folder, queue)[0].1;
    if !log.join("LOG").exists() {
        writeln!(
            io::stderr(),
            "tidegate: there is no queue {queue} on the disk: {} contains none",
            log.display()
        )?;
        return Ok(false);
    }
    // One that is listed and marked as begun has yet to mark the queue.
    if to.join(LIST).exists() && !to.join(BEGUN).exists() {
        writeln!(
            io::stderr(),
            "tidegate: {} is already a complete export: name another folder",
            to.display()
        )?;
        return Ok(false);
    }
    let data = Ground::data(&folder)?;
    let done = Copies::run(arguments, &data).map_err(|error| data.name(error))?;
    match done {
        Outcome::Done(done) => tell(arguments, &done, as_json, out)?,
        Outcome::Moved(told) => {
            writeln!(
                io::stderr(),
                "tidegate: the queue {queue} is delivered elsewhere: {told}. If nobody delivers that export, \
                 remove {}",
                log.join(MOVED).display()
            )?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// What an attempt led to.
enum Outcome {
    Done(Done),
    /// Nothing was done, because the queue was moved before.
    Moved(String),
}

/// An export that is being made.
struct Copies<'a> {
    data: &'a Ground,
    to: &'a Ground,
    pace: Pace,
    done: Done,
    files: BTreeMap<String, Listed>,
}

// === impl Copies ===

impl Copies<'_> {
    fn run(arguments: &Export, data: &Ground) -> Result<Outcome> {
        let parts = parts(data.path(), &arguments.queue);
        let log = &parts[0].1;
        let _locked = data.act(|| locked(log, &arguments.queue))?;
        let place = std::path::absolute(&arguments.to)?;
        if let Some(told) = data.act(|| moved(log))?
            && !(arguments.to.join(BEGUN).exists() && told.starts_with(&exported_to(&place)))
        {
            return Ok(Outcome::Moved(told));
        }
        let to = Ground::made(&arguments.to)?;
        let mut copies = Copies {
            data,
            to: &to,
            pace: Pace::new(arguments.rate),
            done: Done::default(),
            files: BTreeMap::new(),
        };
        let finished = copies.finish(arguments, &parts, &place);
        finished.map_err(|error| to.name(error))?;
        Ok(Outcome::Done(copies.done))
    }

    fn finish(&mut self, arguments: &Export, parts: &[(&str, PathBuf)], place: &Path) -> Result<()> {
        let (data, to) = (self.data, self.to);
        to.act(|| begin(to))?;
        // The log, which is large, comes last.
        for (part, folder) in parts.iter().rev() {
            let found = data.act(|| files_below(folder))?;
            for file in found.iter().filter(|file| belongs(file)) {
                self.carry(&joined(folder, file), &joined(Path::new(part), file))?;
            }
        }
        let list = List::new(&arguments.queue, std::mem::take(&mut self.files));
        to.act(|| {
            // Files of an earlier attempt that the queue no longer has.
            for file in files_below(to.path())? {
                if file != Path::new(BEGUN) && !list.files.contains_key(&*file.to_string_lossy()) {
                    fs::remove_file(to.path().join(&file))?;
                }
            }
            list.write(to.path())
        })?;
        if arguments.moves {
            let told = format!("{}{}, to be delivered elsewhere\n", exported_to(place), list.made);
            let marked = data.act(|| put(&parts[0].1.join(MOVED), told.as_bytes()));
            marked.with_context(|| {
                format!(
                    "everything is in {}, but the queue here could not be marked as moved: run the same command again, or without --move, and let no gateway start with this queue",
                    arguments.to.display()
                )
            })?;
        }
        to.act(|| {
            fs::remove_file(to.path().join(BEGUN))?;
            sync_folder(to.path())
        })
    }

    /// Copies a file, unless it is there already.
    fn carry(&mut self, from: &Path, name: &Path) -> Result<()> {
        let to = self.to.path().join(name);
        let name = name
            .to_str()
            .with_context(|| format!("{} is not a name in UTF-8", from.display()))?;
        if to.exists() {
            let listed = self.data.act(|| Listed::of(from))?;
            if self.to.act(|| listed.is(&to))? {
                self.done.there += 1;
                self.done.bytes += listed.bytes;
                self.files.insert(name.to_owned(), listed);
                return Ok(());
            }
        }
        let mut read = self.data.act(|| open_file(from))?;
        let pace = &mut self.pace;
        let listed = self.to.act(|| copy(&mut read, &to, pace));
        let listed = listed.with_context(|| from.display().to_string())?;
        // Reading the copy back proves it, and that nobody wrote to the file meanwhile.
        ensure!(
            self.to.act(|| listed.is(&to))?,
            "{} is not what was written to it: check the disk",
            to.display()
        );
        self.done.copied += 1;
        self.done.bytes += listed.bytes;
        self.files.insert(name.to_owned(), listed);
        Ok(())
    }
}

/// Locks the queue, which no gateway may use meanwhile.
fn locked(log: &Path, queue: &str) -> Result<Lock> {
    let lock = log.join("LOCK");
    RealDisk::default()
        .lock(&lock)
        .map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => anyhow::anyhow!("a gateway uses the queue {queue}: stop it first"),
            _ => anyhow::Error::from(error).context(lock.display().to_string()),
        })
}

/// Returns what the mark of a queue that was moved says.
pub(super) fn moved(log: &Path) -> Result<Option<String>> {
    let mark = log.join(MOVED);
    match fs::read(&mark) {
        Ok(told) => Ok(Some(String::from_utf8_lossy(&told).trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| mark.display().to_string()),
    }
}

fn exported_to(place: &Path) -> String {
    format!("it was exported to {} at ", place.display())
}

/// Accepts a new folder, or one in which an export was begun.
fn begin(to: &Ground) -> Result<()> {
    let begun = to.path().join(BEGUN);
    let mut entries = fs::read_dir(to.path()).with_context(|| to.path().display().to_string())?;
    if entries.next().is_some() && !begun.exists() {
        bail!("{} contains other files: name a new folder", to.path().display());
    }
    put(&begun, b"")
}

/// Whether a file belongs to a queue: locks, spare files and unfinished files do not.
fn belongs(file: &Path) -> bool {
    let name = file.file_name().map(|name| name.to_string_lossy());
    name.is_none_or(|name| {
        let passes = ["LOCK", MOVED].contains(&&*name)
            || [".spare", ".new", ".part"].iter().any(|end| name.ends_with(end));
        !passes
    })
}

/// Joins the paths; an empty file path means the folder path itself.
fn joined(folder: &Path, file: &Path) -> PathBuf {
    match file.as_os_str().is_empty() {
        true => folder.to_owned(),
        false => folder.join(file),
    }
}

fn tell(arguments: &Export, done: &Done, as_json: bool, out: &mut impl Write) -> io::Result<()> {
    let files = done.copied + done.there;
    if as_json {
        let told = json!({
            "queue": arguments.queue,
            "files": files,
            "were_there": done.there,
            "bytes": done.bytes,
            "moved": arguments.moves,
        });
        return writeln!(out, "{told:#}");
    }
    let there = match done.there {
        0 => String::new(),
        there => format!(" ({there} were there already)"),
    };
    let queue = &arguments.queue;
    writeln!(
        out,
        "{queue}: {files} files{there}, {} bytes, in {}",
        done.bytes,
        arguments.to.display()
    )?;
    match arguments.moves {
        true => writeln!(out, "no gateway delivers from this queue any more"),
        false => writeln!(
            out,
            "this queue is unchanged: deliver it here or from the export, but not from both"
        ),
    }
}
