//! `tidegate queues export`: copies a queue of a stopped gateway, with everything that belongs to it, into a
//! folder that can be copied anywhere.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ::log::{Disk as _, RealDisk};
use anyhow::{Context as _, Result, bail, ensure};
use gateway::moving::{MOVED, parts};
use serde_json::json;

use super::InData;
use super::carry::{BEGUN, Done, LIST, List, Listed, Pace, copy, files_below, put, sync_folder};

/// Copy a queue of a stopped gateway into a folder, to back it up or move it
///
/// The folder contains the queue's records, the positions of its consumer groups,
/// dead letters, parked operations and idempotency keys. A list of the files with
/// checksums is written last. The same command continues an interrupted export.
/// `tidegate queues import` makes a queue from the folder, on any host.
///
/// With --move, the queue here is marked, and no gateway delivers from it any more.
///
/// Exit status: 0 done, 1 there is no such queue, or an export already, 2 wrong
/// usage, 3 it could not be done (for example, a gateway uses the queue).
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
    let data = arguments.from.data()?;
    let (queue, to) = (&arguments.queue, &arguments.to);
    let parts = parts(&data, queue);
    let log = &parts[0].1;
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
    let _locked = RealDisk::default()
        .lock(&log.join("LOCK"))
        .map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => anyhow::anyhow!("a gateway uses the queue {queue}: stop it first"),
            _ => error.into(),
        })?;
    begin(to)?;
    let mut pace = Pace::new(arguments.rate);
    let (mut files, mut done) = (BTreeMap::new(), Done::default());
    // The log, which is large, comes last.
    for (part, folder) in parts.iter().rev() {
        for file in files_below(folder)?.iter().filter(|file| belongs(file)) {
            let (from, name) = (joined(folder, file), joined(Path::new(part), file));
            let name = name
                .to_str()
                .with_context(|| format!("{} is not a name in UTF-8", from.display()))?;
            let listed = carry(&from, &to.join(name), &mut pace, &mut done)?;
            files.insert(name.to_owned(), listed);
        }
    }
    // Files of an earlier attempt that the queue no longer has.
    for file in files_below(to)? {
        if file != Path::new(BEGUN) && !files.contains_key(&*file.to_string_lossy()) {
            fs::remove_file(to.join(&file))?;
        }
    }
    let list = List::new(queue, files);
    list.write(to)?;
    if arguments.moves {
        let told = format!(
            "it was exported to {} at {}, to be delivered elsewhere\n",
            to.display(),
            list.made
        );
        put(&log.join(MOVED), told.as_bytes()).with_context(|| {
            format!(
                "everything is in {}, but the queue here could not be marked as moved: run the same command again, or without --move, and let no gateway start with this queue",
                to.display()
            )
        })?;
    }
    fs::remove_file(to.join(BEGUN))?;
    sync_folder(to)?;
    tell(arguments, &done, as_json, out)?;
    Ok(true)
}

/// Accepts a new folder, or one in which an export was begun.
fn begin(to: &Path) -> Result<()> {
    let begun = to.join(BEGUN);
    let is_empty = match fs::read_dir(to) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(error).with_context(|| to.display().to_string()),
    };
    if !is_empty && !begun.exists() {
        bail!("{} contains other files: name a new folder", to.display());
    }
    put(&begun, b"")
}

/// Copies a file, unless it is there already.
fn carry(from: &Path, to: &Path, pace: &mut Pace, done: &mut Done) -> Result<Listed> {
    if to.exists() {
        let listed = Listed::of(from)?;
        if listed.is(to)? {
            done.there += 1;
            done.bytes += listed.bytes;
            return Ok(listed);
        }
    }
    let listed = copy(from, to, pace)?;
    // Reading the copy back proves it, and that nobody wrote to the file meanwhile.
    ensure!(
        listed.is(to)?,
        "{} is not what was written to it: check the disk",
        to.display()
    );
    done.copied += 1;
    done.bytes += listed.bytes;
    Ok(listed)
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
