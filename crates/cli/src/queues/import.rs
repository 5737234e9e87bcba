//! `tidegate queues import`: makes a queue from an export, which is checked before anything is written.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ::log::RealDisk;
use anyhow::{Context as _, Result, bail, ensure};
use gateway::moving::{importing, parts};
use serde_json::json;

use super::InData;
use super::carry::{Done, List, Listed, Pace, copy, put, sync_folder};

/// Make a queue of an export
///
/// The command verifies the checksums of all files before it writes the first one.
/// The same command continues an interrupted import; no gateway opens the queue
/// before the import is complete. The queue must not exist already.
///
/// Exit status: 0 done, 1 the export is damaged or not finished, or there is such
/// a queue, 2 wrong usage, 3 it could not be done.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    override_usage = "tidegate queues import [OPTIONS] --config <FILE> <EXPORT>"
)]
pub(super) struct Import {
    /// Folder of the export
    export: PathBuf,
    #[command(flatten)]
    to: InData,
    /// New name of the queue [default: the name that it had]
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// Bytes to copy per second at most, as in 50mb
    #[arg(long, value_name = "SIZE", value_parser = crate::diff::bytes)]
    rate: Option<u64>,
}

/// Runs the command.
pub(super) fn run(arguments: &Import, as_json: bool, out: &mut impl Write) -> Result<bool> {
    let data = arguments.to.data()?;
    let (list, sum) = match sound(&arguments.export) {
        Ok(sound) => sound,
        Err(error) => {
            writeln!(io::stderr(), "tidegate: {}", crate::output::why(&error))?;
            return Ok(false);
        }
    };
    let queue = arguments.name.as_ref().unwrap_or(&list.queue);
    ensure!(
        !queue.is_empty() && !queue.contains(['/', '\0']) && !queue.starts_with('.'),
        "`{queue}` is not a valid name of a queue"
    );
    let parts = parts(&data, queue);
    let mark = importing(&data, queue);
    match fs::read_to_string(&mark) {
        Ok(other) if other.trim() != sum => bail!(
            "an import of another export as {queue} is not finished: finish it, or remove what it has written and {}",
            mark.display()
        ),
        Ok(_) => {}
        Err(_) => {
            if let Some((_, there)) = parts.iter().find(|(_, path)| path.exists()) {
                writeln!(
                    io::stderr(),
                    "tidegate: a queue {queue} exists already: {}",
                    there.display()
                )?;
                return Ok(false);
            }
            put(&mark, sum.as_bytes())?;
        }
    }
    let (mut pace, mut done) = (Pace::new(arguments.rate), Done::default());
    for (name, listed) in &list.files {
        let to = place(&parts, name)?;
        carry(&arguments.export.join(name), &to, listed, &mut pace, &mut done)?;
    }
    let report = ::log::check(&parts[0].1, RealDisk::default())?;
    fs::remove_file(&mark)?;
    sync_folder(mark.parent().context("it is in a folder")?)?;
    let records: u64 = report.segments.iter().map(|segment| segment.records).sum();
    if as_json {
        let told = json!({
            "queue": queue,
            "files": done.copied + done.there,
            "were_there": done.there,
            "bytes": done.bytes,
            "records": records,
            "sound": report.is_sound(),
        });
        writeln!(out, "{told:#}")?;
    } else {
        let (files, below) = (done.copied + done.there, data.display());
        writeln!(
            out,
            "{queue}: {files} files, {} bytes, {records} records, of {}, below {below}",
            done.bytes, list.made
        )?;
        if !report.is_sound() {
            writeln!(
                out,
                "the log was already damaged when it was exported: `tidegate log check {}` says where",
                parts[0].1.display()
            )?;
        }
    }
    Ok(true)
}

/// Reads the list of an export, and checks that all files match it.
fn sound(export: &Path) -> Result<(List, String)> {
    let found = List::read(export)?;
    let (list, sum) = found.with_context(|| {
        format!(
            "{} is not an export, or is not finished: it has no file EXPORT",
            export.display()
        )
    })?;
    for (name, listed) in &list.files {
        let file = export.join(name);
        ensure!(
            file.exists(),
            "{} is missing: copy the export again",
            file.display()
        );
        ensure!(
            listed.is(&file)?,
            "{} is damaged: it differs from what was exported. Copy the export again",
            file.display()
        );
    }
    Ok((list, sum))
}

/// Returns where a file of an export belongs.
fn place(parts: &[(&str, PathBuf)], name: &str) -> Result<PathBuf> {
    let found = parts.iter().find_map(|(part, path)| {
        let rest = name.strip_prefix(part)?;
        match rest.strip_prefix('/') {
            Some(rest) => Some(path.join(rest)),
            None => rest.is_empty().then(|| path.clone()),
        }
    });
    found.with_context(|| format!("the export has a file that belongs to no queue: {name}"))
}

/// Copies a file, unless it is there already.
fn carry(from: &Path, to: &Path, listed: &Listed, pace: &mut Pace, done: &mut Done) -> Result<()> {
    if listed.is(to)? {
        done.there += 1;
    } else {
        copy(from, to, pace)?;
        ensure!(
            listed.is(to)?,
            "{} is not what was written to it: check the disk",
            to.display()
        );
        done.copied += 1;
    }
    done.bytes += listed.bytes;
    Ok(())
}
