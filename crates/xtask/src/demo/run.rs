//! One turn: makes an index, sends its documents one way, and verifies each of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use testkit::client::Client;

use super::target::Target;
use crate::gateway::Gateway;
use crate::terminal::progress;

/// Number of documents in a bulk.
const BULK_DOCS: usize = 1_000;

/// Number of bulks in flight.
const CLIENTS: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Direct,
    Tidegate,
}

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Tidegate => "through Tidegate",
        }
    }
}

/// The figures of one turn.
pub(super) struct Figures {
    pub(super) side: Side,
    pub(super) took: Duration,
    pub(super) cluster_cpu_seconds: Option<f64>,
    pub(super) gateway_cpu_seconds: Option<f64>,
    /// The amount that the nodes passed on to one another, in the target's own unit.
    pub(super) passed_on: u64,
    /// Documents that were not sent to their primary's node at once, if that is known for each document.
    pub(super) misses: Option<u64>,
    pub(super) verified: u32,
}

/// Takes a turn, and returns its figures.
pub(super) fn take(side: Side, name: &str, docs: u32, target: &Target, gateway: &Gateway) -> Result<Figures> {
    let what = format!("{name}, {}", side.name());
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let index = format!("tidegate-demo-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    target.create(&index, docs)?;
    if side == Side::Tidegate {
        // The gateway learns of a new index within a second; a bulk before that is sent on unsplit.
        thread::sleep(Duration::from_millis(1_500));
    }
    let sources: Vec<&[u8]> = std::iter::repeat_with(testkit::nginx::sample)
        .flatten()
        .take(docs as usize)
        .collect();
    let expected: Vec<(String, &[u8])> = sources
        .iter()
        .enumerate()
        .map(|(at, source)| (format!("{index}-{at:07}"), *source))
        .collect();
    let origins = match side {
        Side::Direct => target.urls(),
        Side::Tidegate => vec![gateway.url().to_owned()],
    };

    let before = (target.cpu_seconds(), gateway.cpu_seconds(), target.passed_on()?);
    let begun = Instant::now();
    send(&index, &expected, &origins, &what)?;
    let took = begun.elapsed();
    let after = (target.cpu_seconds(), gateway.cpu_seconds(), target.passed_on()?);

    progress(&format!("{what}: verifying"));
    let passed_on = after.2 - before.2;
    let misses = misses(side, target, &index, &expected, passed_on)?;
    let verified = target.verify(&index, &expected)?;
    target.client()?.delete(&format!("/{index}"))?.ok()?;
    progress("");
    Ok(Figures {
        side,
        took,
        cluster_cpu_seconds: before.0.zip(after.0).map(|(before, after)| after - before),
        gateway_cpu_seconds: match side {
            Side::Direct => None,
            Side::Tidegate => before.1.zip(after.1).map(|(before, after)| after - before),
        },
        passed_on,
        misses,
        verified,
    })
}

/// Sends all documents in bulks, several in flight; bulk n goes to origin n modulo the number of origins.
fn send(index: &str, documents: &[(String, &[u8])], origins: &[String], what: &str) -> Result<()> {
    let bulks: Vec<Vec<u8>> = documents.chunks(BULK_DOCS).map(bulk).collect();
    let clients = origins
        .iter()
        .map(|origin| Client::new(origin))
        .collect::<Result<Vec<_>>>()?;
    let (next, sent) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || -> Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(body) = bulks.get(at) else { return Ok(()) };
            let answer = clients[at % clients.len()]
                .post_ndjson(&format!("/{index}/_bulk"), body)?
                .ok()?
                .json()?;
            ensure!(
                answer["errors"] == false,
                "a bulk was not taken whole: {:.500}",
                answer.to_string()
            );
            let sent = sent.fetch_add(1, Ordering::Relaxed) + 1;
            progress(&format!("{what}: {sent} of {} bulks", bulks.len()));
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| anyhow!("a client panicked"))?)
    })
}

fn bulk(documents: &[(String, &[u8])]) -> Vec<u8> {
    let mut body = Vec::with_capacity(documents.len() * 700);
    for (id, source) in documents {
        body.extend_from_slice(format!("{{\"index\":{{\"_id\":\"{id}\"}}}}\n").as_bytes());
        body.extend_from_slice(source);
        body.push(b'\n');
    }
    body
}

/// Returns how many documents went to another node than their primary's, if that can be known, and checks
/// that all ids are there.
fn misses(
    side: Side,
    target: &Target,
    index: &str,
    expected: &[(String, &[u8])],
    passed_on: u64,
) -> Result<Option<u64>> {
    if matches!(target, Target::Fake(_)) {
        return Ok(Some(passed_on)); // the fake cluster counts documents
    }
    let holders: HashMap<String, usize> = target
        .holders(index, u32::try_from(expected.len())?)?
        .into_iter()
        .collect();
    let nodes = target.urls().len();
    let mut misses = 0;
    for (at, (id, _)) in expected.iter().enumerate() {
        let holder = holders
            .get(id)
            .with_context(|| format!("no shard of {index} has the document {id}"))?;
        misses += u64::from(*holder != at / BULK_DOCS % nodes);
    }
    Ok((side == Side::Direct).then_some(misses))
}
