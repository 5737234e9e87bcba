//! A backlog: what a document costs at its beginning and its end, and how much memory and time the gateway
//! needs to start with it.

use anyhow::{Context, Result};

use super::super::machine::peak_mib;
use super::super::proxy::Ready;
use super::QueuedCase;
use super::gateway::{Gateway, Progress};

/// The outcome of a backlog. CPU seconds are the gateway's, per million documents delivered.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct Drained {
    pub(super) docs: u64,
    pub(super) compression: &'static str,
    /// Cost of accepting the backlog.
    pub(super) accept: f64,
    /// Cost of delivering a short queue.
    pub(super) short: f64,
    pub(super) short_docs: u64,
    /// Cost of delivering the first tenth of the backlog.
    pub(super) first: f64,
    /// Cost of delivering all of the backlog.
    pub(super) all: f64,
    /// Cost of delivering the last tenth of the backlog.
    pub(super) last: f64,
    pub(super) docs_a_second: f64,
    /// Size on disk.
    pub(super) disk_gib: f64,
    /// Time from the start to the first answer, after a `kill -9` with the whole backlog.
    pub(super) start_ms: f64,
    /// Peak memory while the backlog grew, and while it was drained.
    pub(super) peak_mib: [f64; 2],
}

/// 30 shards, so that all 16 lanes get a share.
const SHARDS: u32 = 30;
const COMPRESSION: &str = "zstd";
const SHORT_DOCS: u64 = 1_000_000;

pub(super) fn measure(docs: u64) -> Result<Drained> {
    let case = QueuedCase::lines(5_000, 4, SHARDS, COMPRESSION);
    let mut gateway = Gateway::start(&case)?;
    let fill = |gateway: &Gateway, docs| {
        let ready = Ready::prepare(&case.load, gateway.address(), docs, &gateway.folder)?;
        ready.go().context("filling the queue")
    };
    // The first run warms up, the second one gives the figure.
    let mut short = Vec::new();
    for _ in 0..2 {
        gateway.reset()?;
        let sent = fill(&gateway, SHORT_DOCS.min(docs))?.docs;
        short = drain(&gateway, sent)?.0;
        gateway.stop_pipeline()?;
    }
    gateway.reset()?;
    let before = gateway.cpu()?;
    let sent = fill(&gateway, docs)?.docs;
    let accept = (gateway.cpu()? - before) * 1e6 / sent as f64;
    let disk_gib = gateway.queue()?["bytes"].as_f64().unwrap_or_default() / f64::from(1 << 30);
    let grown_mib = peak_mib(gateway.pid())?;
    let start_ms = gateway.kill_and_start()?.as_secs_f64() * 1e3;
    let (samples, seconds) = drain(&gateway, sent)?;
    let tenth = sent / 10;
    Ok(Drained {
        docs: sent,
        compression: COMPRESSION,
        accept,
        short: cost(&short, 0, SHORT_DOCS.min(docs)),
        short_docs: SHORT_DOCS.min(docs),
        first: cost(&samples, 0, tenth),
        all: cost(&samples, 0, sent),
        last: cost(&samples, sent - tenth, sent),
        docs_a_second: sent as f64 / seconds,
        disk_gib,
        start_ms,
        peak_mib: [grown_mib, peak_mib(gateway.pid())?],
    })
}

/// Delivers everything that is queued. Returns samples of the progress, and the number of seconds that it
/// took.
fn drain(gateway: &Gateway, docs: u64) -> Result<(Vec<Progress>, f64)> {
    let begun = std::time::Instant::now();
    let mut samples = vec![gateway.progress()?];
    gateway.start_pipeline()?;
    let last = gateway.drained(docs, |progress| samples.push(progress))?;
    samples.push(last);
    Ok((samples, begun.elapsed().as_secs_f64()))
}

/// Returns the CPU seconds per million documents between two positions, as exactly as the samples allow.
fn cost(samples: &[Progress], from: u64, to: u64) -> f64 {
    let cpu_at = |docs: u64| {
        let after = samples.partition_point(|sample| sample.docs < docs);
        let after = samples.get(after).or(samples.last());
        let before = samples.iter().rev().find(|sample| sample.docs < docs);
        match (before, after) {
            (Some(before), Some(after)) if after.docs > before.docs => {
                let share = (docs - before.docs) as f64 / (after.docs - before.docs) as f64;
                before.cpu + (after.cpu - before.cpu) * share
            }
            (_, Some(after)) => after.cpu,
            _ => 0.0,
        }
    };
    // The cost up to the end includes the last commits.
    let until = match samples.last() {
        Some(last) if last.docs <= to => last.cpu,
        _ => cpu_at(to),
    };
    (until - cpu_at(from)) * 1e6 / (to - from).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_stretch_is_read_between_the_samples() {
        let sample = |docs, cpu| Progress { docs, cpu };
        let samples = [
            sample(0, 1.0),
            sample(100, 2.0),
            sample(300, 3.0),
            sample(300, 3.5),
        ];
        assert_eq!(cost(&samples, 0, 100), 1e4);
        assert_eq!(cost(&samples, 100, 200), 5e3);
        assert_eq!(cost(&samples, 200, 300), 1e4);
        assert_eq!(cost(&samples, 0, 300), 2.5e6 / 300.0);
    }
}
