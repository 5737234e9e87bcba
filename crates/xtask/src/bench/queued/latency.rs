//! How long a client waits for its synced acknowledgement while delivery goes on.

use anyhow::{Context, Result};

use super::super::proxy::Ready;
use super::QueuedCase;
use super::gateway::Gateway;

/// Clients that each send one request at a time, as fast as they are answered.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct Latency {
    pub(super) clients: usize,
    pub(super) bulk: u64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
    pub(super) docs_a_second: f64,
}

const BULKS: [u64; 2] = [100, 1_000];
const CLIENTS: [usize; 3] = [1, 8, 64];
const SECONDS: u64 = 4;

pub(super) fn measure() -> Result<Vec<Latency>> {
    let mut measured = Vec::new();
    for bulk in BULKS {
        let gateway = Gateway::start(&QueuedCase::lines(bulk, 1, 3, "none"))?;
        gateway.start_pipeline()?;
        for clients in CLIENTS {
            let case = QueuedCase::lines(bulk, clients, 3, "none");
            let ready = |seconds| Ready::for_seconds(&case.load, gateway.address(), seconds, &gateway.folder);
            gateway.reset()?;
            let warm = ready(1)?.go().context("warming up")?;
            let report = ready(SECONDS)?
                .go()
                .with_context(|| format!("{clients} clients"))?;
            gateway.drained(warm.docs + report.docs, |_| ())?;
            measured.push(Latency {
                clients,
                bulk,
                p50_ms: report.p50_ms,
                p99_ms: report.p99_ms,
                max_ms: report.max_ms,
                docs_a_second: report.docs as f64 / report.seconds,
            });
        }
    }
    Ok(measured)
}
