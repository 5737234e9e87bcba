//! `tidegate log`: shows what is in a durable log, what is damaged, and what can be repaired.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::log::{Browsed, CursorReport, Event, RealDisk, Repaired, Report, SegmentReport};
use anyhow::{Context as _, Result};
use clap::Subcommand;
use serde_json::{Value, json};

use crate::output::{is_broken_pipe, time, why};
use crate::queues::ground::Ground;

/// Check, print or repair a durable log
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Check(Check),
    Dump(Dump),
    Repair(Repair),
}

/// Read every byte of a log, and report damage
///
/// The command changes nothing, and may run while a gateway writes to the log. A
/// record that is being written then shows as torn.
///
/// Exit status: 0 everything acknowledged can be read, 1 some of it can't, 2 wrong
/// usage, 3 there is no log, or it can't be read at all.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct Check {
    /// Folder of the log
    #[arg(value_name = "FOLDER")]
    dir: PathBuf,
    /// Print the outcome as one JSON object
    #[arg(long)]
    json: bool,
}

/// Print the records of a log
///
/// The command prints one line per record. With --json, it prints one JSON object
/// per line, with the record's parameters and documents. It changes nothing, and
/// may run while a gateway writes to the log.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct Dump {
    /// Folder of the log
    #[arg(value_name = "FOLDER")]
    dir: PathBuf,
    /// Begin with the first record at or after this position
    #[arg(long, value_name = "POSITION", default_value_t = 0)]
    from: u64,
    /// Largest number of records to print
    #[arg(long, value_name = "RECORDS", default_value_t = u64::MAX, hide_default_value = true)]
    limit: u64,
    /// Print the documents too
    #[arg(long)]
    text: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Repair what can be repaired without losing more
///
/// The command cuts a torn end off, copies damage to quarantine/, writes damaged
/// indexes again, and sets unreadable cursors aside (their consumer groups begin
/// again). Damaged records stay in place: deliveries skip them and count them as
/// lost. Stop the gateway first. Root works as the owner of the folder, so that the
/// gateway can use the files.
///
/// Exit status: 0 everything acknowledged can be read now, 1 some of it is lost, 2
/// wrong usage, 3 there is no log, or a gateway uses it.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct Repair {
    /// Folder of the log
    #[arg(value_name = "FOLDER")]
    dir: PathBuf,
    /// Print the outcome as one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let done = match &arguments.verb {
        Verb::Check(check) => run_check(check),
        Verb::Dump(dump) => run_dump(dump),
        Verb::Repair(repair) => run_repair(repair),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // A reader that closed the pipe has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "tidegate: {}", why(&error));
            ExitCode::from(3)
        }
    }
}

/// Checks that the folder has the file `LOG`, which every log has.
fn is_log(folder: &Path) -> Result<()> {
    let there = folder.join("LOG").exists();
    anyhow::ensure!(
        there,
        "{} is not a log: it has no file LOG; name the folder of a queue, as in data/queue/NAME",
        folder.display()
    );
    Ok(())
}

fn run_check(arguments: &Check) -> Result<bool> {
    is_log(&arguments.dir)?;
    let report = ::log::check(&arguments.dir, RealDisk::default())?;
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{:#}", report_json(&report))?;
    } else {
        write_report(&mut out, &report)?;
    }
    Ok(report.is_sound())
}

fn run_dump(arguments: &Dump) -> Result<bool> {
    is_log(&arguments.dir)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let (mut left, mut sound, mut written) = (arguments.limit, true, Ok(()));
    ::log::dump(&arguments.dir, RealDisk::default(), arguments.from, |record| {
        if left == 0 {
            return ControlFlow::Break(());
        }
        left -= 1;
        sound &= record.groups.iter().all(|group| group.bytes.is_some());
        written = write_record(&mut out, &record, arguments);
        if written.is_err() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    written.and_then(|()| out.flush())?;
    Ok(sound)
}

fn run_repair(arguments: &Repair) -> Result<bool> {
    let ground = Ground::of(&arguments.dir)?;
    let log = ground.enter()?;
    let repaired = ground.act(|| {
        let repaired = ::log::repair(&log, RealDisk::default())?;
        let report = ::log::check(&log, RealDisk::default()).context("after the repair")?;
        Ok((repaired, report))
    });
    let (repaired, report) = repaired.with_context(|| arguments.dir.display().to_string())?;
    let mut out = io::stdout().lock();
    if arguments.json {
        let done = json!({
            "indexes_written": repaired.indexes,
            "cursors_set_aside": repaired.cursors,
            "found": repaired.events.iter().map(told).collect::<Vec<_>>(),
            "now": report_json(&report),
        });
        writeln!(out, "{done:#}")?;
    } else {
        write_repaired(&mut out, &repaired)?;
        write_report(&mut out, &report)?;
    }
    Ok(report.is_sound())
}

fn write_report(out: &mut impl Write, report: &Report) -> io::Result<()> {
    writeln!(
        out,
        "{:>20} {:>12} {:>9} {:>11}  {:19}  state",
        "segment", "bytes", "records", "documents", "made"
    )?;
    for segment in &report.segments {
        writeln!(
            out,
            "{:>20} {:>12} {:>9} {:>11}  {:19}  {}",
            segment.first,
            segment.bytes,
            segment.records,
            segment.documents,
            time(segment.made_ms),
            state(segment)
        )?;
    }
    write_cursors(out, &report.cursors)?;
    writeln!(out)?;
    write_damage(out, report)?;
    let sound = if report.is_sound() { "sound" } else { "not sound" };
    writeln!(
        out,
        "{sound}: {} lanes, durable up to {}",
        report.lanes, report.synced
    )
}

/// Describes the state of a segment in a word or two.
fn state(segment: &SegmentReport) -> String {
    let mut state = Vec::new();
    if !segment.header {
        state.push("header damaged".to_owned());
    }
    match segment.index {
        Some(true) => {}
        Some(false) => state.push("index damaged".to_owned()),
        None => state.push("being written".to_owned()),
    }
    if !segment.damaged.is_empty() {
        state.push(format!("{} damaged", segment.damaged.len()));
    }
    match state.is_empty() {
        true => "full".to_owned(),
        false => state.join(", "),
    }
}

fn write_cursors(out: &mut impl Write, cursors: &[CursorReport]) -> io::Result<()> {
    if !cursors.is_empty() {
        writeln!(
            out,
            "\n{:>20} {:>20} {:>20} {:>12} {:>8} {:>8}",
            "consumer", "from", "to", "done", "dead", "lost"
        )?;
    }
    for cursor in cursors {
        if cursor.readable {
            let (least, most) = cursor.positions;
            let (done, dead, lost) = (cursor.done, cursor.dead, cursor.lost);
            writeln!(
                out,
                "{:>20} {least:>20} {most:>20} {done:>12} {dead:>8} {lost:>8}",
                cursor.name
            )?;
        } else {
            writeln!(out, "{:>20} cannot be read", cursor.name)?;
        }
    }
    Ok(())
}

/// Lists what is damaged, missing, put aside or cut off.
fn write_damage(out: &mut impl Write, report: &Report) -> io::Result<()> {
    for segment in &report.segments {
        for damage in &segment.damaged {
            let (start, end) = (damage.range.start, damage.range.end);
            match damage.documents {
                Some(documents) => writeln!(
                    out,
                    "damaged: {start} to {end}, in a record of {documents} documents"
                )?,
                None => writeln!(out, "damaged: {start} to {end}")?,
            }
        }
    }
    for gap in &report.gaps {
        writeln!(out, "missing: {} to {}", gap.start, gap.end)?;
    }
    if !report.spares.is_empty() {
        let bytes: u64 = report.spares.iter().map(|spare| spare.bytes).sum();
        writeln!(
            out,
            "spare files, to be reused: {}, {bytes} bytes",
            report.spares.len()
        )?;
    }
    for copy in &report.quarantined {
        writeln!(out, "quarantined: {}, {} bytes", copy.name, copy.bytes)?;
    }
    if let Some(torn) = &report.torn {
        writeln!(
            out,
            "torn: {} to {}, not acknowledged; cut off when the log is opened",
            torn.start, torn.end
        )?;
    }
    Ok(())
}

fn write_repaired(out: &mut impl Write, repaired: &Repaired) -> io::Result<()> {
    for event in &repaired.events {
        writeln!(out, "{}", told(event))?;
    }
    for segment in &repaired.indexes {
        writeln!(out, "index of segment {segment} was written again")?;
    }
    for cursor in &repaired.cursors {
        writeln!(out, "cursors of {cursor} were set aside: it begins again")?;
    }
    Ok(())
}

fn write_record(out: &mut impl Write, record: &Browsed, arguments: &Dump) -> io::Result<()> {
    if arguments.json {
        return writeln!(out, "{}", record_json(record, arguments.text));
    }
    let lanes: Vec<String> = record.groups.iter().map(|group| group.lane.to_string()).collect();
    writeln!(
        out,
        "{:>20} {:>10} bytes {:>7} documents  {}  kind {}  lanes {}  {}",
        record.receipt.position,
        record.receipt.bytes,
        record.receipt.documents,
        time(record.time_ms),
        record.kind,
        lanes.join(","),
        record.params.escape_ascii()
    )?;
    for group in record.groups.iter().filter(|_| arguments.text) {
        match &group.bytes {
            Some(bytes) => out.write_all(bytes)?,
            None => writeln!(out, "(damaged)")?,
        }
    }
    Ok(())
}

fn record_json(record: &Browsed, text: bool) -> Value {
    let groups = record.groups.iter().map(|group| {
        let mut shown = json!({
            "lane": group.lane,
            "documents": group.documents,
            "damaged": group.bytes.is_none(),
        });
        if text && let Some(bytes) = &group.bytes {
            shown["text"] = String::from_utf8_lossy(bytes).into();
        }
        shown
    });
    json!({
        "position": record.receipt.position,
        "bytes": record.receipt.bytes,
        "documents": record.receipt.documents,
        "time_ms": record.time_ms,
        "kind": record.kind,
        "params": String::from_utf8_lossy(&record.params),
        "groups": groups.collect::<Vec<_>>(),
    })
}

fn report_json(report: &Report) -> Value {
    let range = |range: &std::ops::Range<u64>| json!({"from": range.start, "to": range.end});
    let segments = report.segments.iter().map(|segment| {
        let damaged = segment.damaged.iter();
        let damaged = damaged.map(|one| json!({"range": range(&one.range), "documents": one.documents}));
        json!({
            "position": segment.first,
            "bytes": segment.bytes,
            "made_ms": segment.made_ms,
            "header": segment.header,
            "index": segment.index,
            "records": segment.records,
            "documents": segment.documents,
            "damaged": damaged.collect::<Vec<_>>(),
        })
    });
    let consumers = report.cursors.iter().map(|cursor| {
        json!({
            "name": cursor.name,
            "readable": cursor.readable,
            "from": cursor.positions.0,
            "to": cursor.positions.1,
            "done": cursor.done,
            "dead": cursor.dead,
            "lost": cursor.lost,
        })
    });
    let quarantined = report
        .quarantined
        .iter()
        .map(|copy| json!({"name": copy.name, "bytes": copy.bytes}));
    json!({
        "sound": report.is_sound(),
        "lanes": report.lanes,
        "synced": report.synced,
        "segments": segments.collect::<Vec<_>>(),
        "missing": report.gaps.iter().map(range).collect::<Vec<_>>(),
        "torn": report.torn.as_ref().map(range),
        "consumers": consumers.collect::<Vec<_>>(),
        "spares": report.spares.iter().map(|spare| json!({"name": spare.name, "bytes": spare.bytes})).collect::<Vec<_>>(),
        "quarantined": quarantined.collect::<Vec<_>>(),
    })
}

/// Describes an event.
fn told(event: &Event) -> String {
    match event {
        Event::TornTail { range } => format!("torn end cut off: {} to {}", range.start, range.end),
        Event::Lost(lost) => {
            let documents = lost
                .documents
                .map_or(String::new(), |documents| format!(", {documents} documents"));
            let copy = lost
                .quarantined
                .as_ref()
                .map_or(String::new(), |name| format!(", copied to {name}"));
            format!(
                "lost: {} to {}{documents}{copy}",
                lost.range.start, lost.range.end
            )
        }
        Event::CursorsAhead { consumer, documents } => {
            format!("{consumer} was {documents} documents ahead of the log, and is now at its end")
        }
        other => format!("{other:?}"),
    }
}
