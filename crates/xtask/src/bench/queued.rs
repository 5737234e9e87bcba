//! `./dev bench --async`: measures what a document costs through the durable queue, with every request synced
//! before it is answered.
//!
//! Accepting and delivering are first measured separately (one with the pipeline stopped, the other without
//! load), and then together. A backlog is drained after the gateway was killed and started again, and its
//! first and last tenth are compared with a short queue.

mod backlog;
mod gateway;
mod latency;
mod phases;
mod table;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::case::{self, Case};
use super::machine;
use super::proxy::Contender;

/// One way to load the queue.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct QueuedCase {
    name: &'static str,
    about: &'static str,
    load: Case,
    /// Compression on disk: none, lz4 or zstd.
    compression: &'static str,
    /// `bulk.compress`.
    wire_gzip: bool,
    /// The most that accepting and delivering a million documents may cost together, in CPU seconds.
    target: Option<f64>,
    /// The most that accepting and delivering may cost together, as a fraction of what HAProxy costs when it
    /// passes the same load in the same run.
    of_haproxy: Option<f64>,
    /// The gateway to measure, if it is not this checkout's.
    before: Option<PathBuf>,
}

/// The measurements that were asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Selection<'a> {
    /// The names of the cases; none: all cases.
    pub(super) names: &'a [String],
    pub(super) rounds: usize,
    pub(super) docs: u64,
    /// A gateway that was built elsewhere, with which each case is measured too.
    pub(super) before: Option<&'a Path>,
    /// Number of documents in the backlog; 0: no backlog.
    pub(super) backlog: u64,
    pub(super) json: bool,
}

/// The most that accepting and delivering a million documents may cost together, in CPU seconds.
const CPU_MAX: f64 = 0.85;
const BACKLOG: &str = "backlog";
const LATENCY: &str = "latency";

fn cases() -> Vec<QueuedCase> {
    let load = Case {
        fresh_ids: true,
        target: None,
        of_haproxy: None,
        ..case::main_table().swap_remove(0)
    };
    let plain = QueuedCase {
        name: "queued",
        about: "5,000 access-log lines a request, with ids, 3 shards",
        load,
        compression: "none",
        wire_gzip: false,
        target: Some(CPU_MAX),
        of_haproxy: None,
        before: None,
    };
    let with = |name, about, change: fn(&mut Case)| {
        let mut case = QueuedCase {
            name,
            about,
            target: None,
            ..plain.clone()
        };
        change(&mut case.load);
        case
    };
    let packed = |name, about, compression| QueuedCase {
        name,
        about,
        compression,
        target: None,
        ..plain.clone()
    };
    vec![
        plain.clone(),
        QueuedCase {
            target: Some(CPU_MAX),
            ..with("queued-30", "the same, 30 shards: all 16 lanes", |load| {
                load.shards = 30
            })
        },
        with(
            "queued-100",
            "100 lines a request, 3 shards, 16 connections",
            |load| {
                load.bulk = 100;
                load.connections = 16;
            },
        ),
        with("gzip-in", "5,000 lines, gzipped by the client", |load| {
            load.gzip = true;
            load.fresh_ids = false;
        }),
        packed("lz4", "5,000 lines, `queue.compression: lz4`", "lz4"),
        packed("zstd", "5,000 lines, `queue.compression: zstd`", "zstd"),
        QueuedCase {
            wire_gzip: true,
            ..packed("gzip-out", "5,000 lines, `bulk.compress: true`", "none")
        },
    ]
}

/// Cases as load files and shippers send them, through the queue.
pub(super) fn guides() -> Vec<QueuedCase> {
    let case = |name, about, shards, style: &'static str| {
        let load = case::guides_table().swap_remove(0);
        QueuedCase {
            name,
            about,
            load: Case {
                fresh_ids: true,
                shards,
                style,
                of_haproxy: None,
                ..load
            },
            compression: "none",
            wire_gzip: false,
            target: None,
            of_haproxy: Some(1.4),
            before: None,
        }
    };
    vec![
        case("guides-queued", "guides by way of the queue", 6, "spaced"),
        case("guides-queued-30", "guides-30 by way of the queue", 30, "spaced"),
        case("typed-queued", "typed by way of the queue", 6, "typed"),
        case("python-queued", "python by way of the queue", 6, "python"),
    ]
}

/// Returns the cases with these names, or all.
pub(super) fn chosen(mut cases: Vec<QueuedCase>, names: &[String]) -> Vec<QueuedCase> {
    cases.retain(|case| names.is_empty() || names.iter().any(|name| name == case.name));
    cases
}

/// Returns each case, followed by the same case with the earlier gateway, if there is one.
pub(super) fn paired(cases: Vec<QueuedCase>, before: Option<&Path>) -> Vec<QueuedCase> {
    let mut paired = Vec::new();
    for case in cases {
        let other = before.map(|before| case.of(before));
        paired.push(case);
        paired.extend(other);
    }
    paired
}

pub(super) fn list(cases: &[QueuedCase]) -> String {
    let lines = cases
        .iter()
        .map(|case| format!("{:<24}{}\n", case.name, case.about));
    lines.collect()
}

pub(super) fn list_all() -> String {
    let mut text = list(&cases());
    text += &format!("{LATENCY:<24}time to the acknowledgement, 1, 8 and 64 clients\n");
    text + &format!("{BACKLOG:<24}a backlog, drained after a kill -9")
}

/// Measures a case.
pub(super) fn measure(
    case: &QueuedCase,
    rounds: usize,
    docs: u64,
    with_haproxy: bool,
) -> Result<phases::Measured> {
    eprintln!("{} …", case.title());
    phases::measure(case, rounds, docs, with_haproxy).with_context(|| format!("case {}", case.title()))
}

/// Formats the figures as a table.
pub(super) fn table(measured: &[phases::Measured]) -> String {
    table::cases(measured)
}

/// Measures, and returns the tables.
pub(super) fn run(selection: Selection<'_>) -> Result<String> {
    let is_wanted = |name: &str| selection.names.is_empty() || selection.names.iter().any(|one| one == name);
    let cases = chosen(cases(), selection.names);
    let (with_latency, with_backlog) = (is_wanted(LATENCY), is_wanted(BACKLOG) && selection.backlog > 0);
    ensure!(
        !cases.is_empty() || with_latency || with_backlog,
        "no case of that name; see --list"
    );
    let before = machine::load_average();
    let mut measured = Vec::new();
    for case in &paired(cases, selection.before) {
        measured.push(measure(case, selection.rounds, selection.docs, false)?);
    }
    let latencies = if with_latency {
        eprintln!("{LATENCY} …");
        latency::measure()?
    } else {
        Vec::new()
    };
    let drained = if with_backlog {
        eprintln!("{BACKLOG} …");
        Some(backlog::measure(selection.backlog)?)
    } else {
        None
    };
    let machine = machine::describe(&before);
    if selection.json {
        return Ok(serde_json::to_string_pretty(&serde_json::json!({
            "machine": machine, "cases": measured, "latency": latencies, "backlog": drained,
        }))?);
    }
    Ok(table::print(&machine, &measured, &latencies, drained.as_ref()))
}

// === impl QueuedCase ===

impl QueuedCase {
    /// Returns the same case with another gateway.
    fn of(&self, before: &Path) -> QueuedCase {
        QueuedCase {
            before: Some(before.to_owned()),
            ..self.clone()
        }
    }

    /// Returns the case's name, and whether the earlier gateway was measured.
    fn title(&self) -> String {
        let before = if self.before.is_some() { ", before" } else { "" };
        format!("{}{before}", self.name)
    }

    /// The gateway to measure.
    fn gateway(&self) -> Contender {
        self.before
            .as_deref()
            .map_or_else(Contender::tidegate, Contender::before)
    }

    /// A case of access-log lines, with the given number of lines per request, clients and shards.
    fn lines(bulk: u64, connections: usize, shards: u32, compression: &'static str) -> QueuedCase {
        let mut case = cases().swap_remove(0);
        (case.load.bulk, case.load.connections, case.load.shards) = (bulk, connections, shards);
        case.compression = compression;
        case
    }
}
