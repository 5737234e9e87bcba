//! `tidegate queues import`: makes a queue from an export, which is checked before anything is written.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ::log::{RealDisk, Report};
use anyhow::{Context as _, Result, bail, ensure};
use gateway::moving::{importing, parts};
use serde_json::json;

use super::InData;
use super::carry::{Done, List, Listed, Pace, copy, put, sync_folder};
use super::export::moved;
use super::ground::{Ground, open_file};

/// Make a queue of an export
///
/// The command verifies the checksums of all files before it writes the first one.
/// The same command continues an interrupted import; no gateway opens the queue
/// before the import is complete. The queue must not exist already. Root writes as
/// the owner of path.data, so that the gateway can use the files.
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
    let folder = arguments.to.data()?;
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
    let data = Ground::data(&folder)?;
    let parts = parts(data.path(), queue);
    let begun = data.act(|| begin(&data, queue, &parts, &sum));
    if let Some(refusal) = begun.map_err(|error| data.name(error))? {
        writeln!(io::stderr(), "tidegate: {refusal}")?;
        return Ok(false);
    }
    let (mut pace, mut done) = (Pace::new(arguments.rate), Done::default());
    let carried = list.files.iter().try_for_each(|(name, listed)| {
        let to = place(&parts, name)?;
        carry(
            &data,
            &arguments.export.join(name),
            &to,
            listed,
            &mut pace,
            &mut done,
        )
    });
    let report = carried.and_then(|()| {
        data.act(|| {
            let report = ::log::check(&parts[0].1, RealDisk::default())?;
            let mark = importing(data.path(), queue);
            fs::remove_file(&mark)?;
            sync_folder(mark.parent().context("it is in a folder")?)?;
            Ok(report)
        })
    });
    let report = report.map_err(|error| data.name(error))?;
    let log = data.named(&parts[0].1);
    tell(&report, queue, &list, &done, (&folder, &log), as_json, out)?;
    Ok(true)
}

/// Marks the import as begun, or finds the mark of an earlier attempt. Returns why there can be none.
fn begin(data: &Ground, queue: &str, parts: &[(&str, PathBuf)], sum: &str) -> Result<Option<String>> {
    let mark = importing(data.path(), queue);
    match fs::read_to_string(&mark) {
        Ok(other) if other.trim() != sum => bail!(
            "an import of another export as {queue} is not finished: finish it, or remove what it has written and {}",
            mark.display()
        ),
        Ok(_) => return Ok(None),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| mark.display().to_string());
        }
        Err(_) => {}
    }
    let there = parts.iter().filter(|(_, path)| path.exists());
    let there: Vec<String> = there
        .map(|(_, path)| data.named(path).display().to_string())
        .collect();
    let Some(first) = there.first() else {
        put(&mark, sum.as_bytes())?;
        return Ok(None);
    };
    Ok(Some(match moved(&parts[0].1)? {
        Some(told) => format!(
            "a queue {queue} exists already: {told}. If this export is to take its place, first move these out of \
             path.data: {}",
            there.join(", ")
        ),
        None => format!("a queue {queue} exists already: {first}"),
    }))
}

fn tell(
    report: &Report,
    queue: &str,
    list: &List,
    done: &Done,
    (data, log): (&Path, &Path),
    as_json: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let (files, bytes) = (done.copied + done.there, done.bytes);
    let records: u64 = report.segments.iter().map(|segment| segment.records).sum();
    if as_json {
        let told = json!({
            "queue": queue,
            "files": files,
            "were_there": done.there,
            "bytes": bytes,
            "records": records,
            "sound": report.is_sound(),
        });
        return writeln!(out, "{told:#}");
    }
    writeln!(
        out,
        "{queue}: {files} files, {bytes} bytes, {records} records, of {}, below {}",
        list.made,
        data.display()
    )?;
    if report.is_sound() {
        return Ok(());
    }
    writeln!(
        out,
        "the log was already damaged when it was exported: `tidegate log check {}` says where",
        log.display()
    )
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
fn carry(
    data: &Ground,
    from: &Path,
    to: &Path,
    listed: &Listed,
    pace: &mut Pace,
    done: &mut Done,
) -> Result<()> {
    // The export need not be readable for the owner of the data.
    let mut read = open_file(from)?;
    let copied = data.act(|| {
        if listed.is(to)? {
            return Ok(false);
        }
        copy(&mut read, to, pace).with_context(|| from.display().to_string())?;
        ensure!(
            listed.is(to)?,
            "{} is not what was written to it: check the disk",
            to.display()
        );
        Ok(true)
    });
    match copied? {
        true => done.copied += 1,
        false => done.there += 1,
    }
    done.bytes += listed.bytes;
    Ok(())
}
