//! `./dev bench --async`: what a document costs by way of the durable queue, every request synced before it is answered.
//!
//! Accepting and delivering are measured apart, the one with the pipeline stopped, the other with nobody sending, and then
//! both together. A backlog is drained after the gateway was killed and started again, and its first and last tenth
//! compared with a short queue.

mod backlog;
mod gateway;
mod latency;
mod phases;
mod table;

use anyhow::{Result, ensure};

use super::case::{self, Case};
use super::machine;

/// One way to load the queue.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct QueuedCase {
    name: &'static str,
    about: &'static str,
    load: Case,
    /// On disk: none, lz4 or zstd.
    compression: &'static str,
    /// `bulk.compress`.
    wire_gzip: bool,
    /// The most that accepting and delivering a million documents may cost together, in CPU seconds.
    target: Option<f64>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// None: all cases.
    pub(super) names: &'a [String],
    pub(super) rounds: usize,
    pub(super) docs: u64,
    /// Documents of the backlog; 0: no backlog.
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
        below_haproxy: false,
        ..case::main_table().swap_remove(0)
    };
    let plain = QueuedCase {
        name: "queued",
        about: "5,000 access-log lines a request, with ids, 3 shards",
        load,
        compression: "none",
        wire_gzip: false,
        target: Some(CPU_MAX),
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

pub(super) fn list() -> String {
    let mut text: String = cases()
        .iter()
        .map(|case| format!("{:<22}{}\n", case.name, case.about))
        .collect();
    text += &format!("{LATENCY:<22}time to the acknowledgement, 1, 8 and 64 clients\n");
    text + &format!("{BACKLOG:<22}a backlog, drained after a kill -9")
}

/// Measures, and gives the tables.
pub(super) fn run(wanted: Wanted<'_>) -> Result<String> {
    let is_wanted = |name: &str| wanted.names.is_empty() || wanted.names.iter().any(|one| one == name);
    let cases: Vec<_> = cases().into_iter().filter(|case| is_wanted(case.name)).collect();
    let (with_latency, with_backlog) = (is_wanted(LATENCY), is_wanted(BACKLOG) && wanted.backlog > 0);
    ensure!(
        !cases.is_empty() || with_latency || with_backlog,
        "no case of that name; see --list"
    );
    let before = machine::load_average();
    let mut measured = Vec::new();
    for case in &cases {
        eprintln!("{} …", case.name);
        measured.push(phases::measure(case, wanted.rounds, wanted.docs)?);
    }
    let latencies = if with_latency {
        eprintln!("{LATENCY} …");
        latency::measure()?
    } else {
        Vec::new()
    };
    let drained = if with_backlog {
        eprintln!("{BACKLOG} …");
        Some(backlog::measure(wanted.backlog)?)
    } else {
        None
    };
    let machine = machine::describe(&before);
    if wanted.json {
        return Ok(serde_json::to_string_pretty(&serde_json::json!({
            "machine": machine, "cases": measured, "latency": latencies, "backlog": drained,
        }))?);
    }
    Ok(table::print(&machine, &measured, &latencies, drained.as_ref()))
}

// === impl QueuedCase ===

impl QueuedCase {
    /// Access-log lines, so many a request by so many clients, over so many shards.
    fn lines(bulk: u64, connections: usize, shards: u32, compression: &'static str) -> QueuedCase {
        let mut case = cases().swap_remove(0);
        (case.load.bulk, case.load.connections, case.load.shards) = (bulk, connections, shards);
        case.compression = compression;
        case
    }
}
