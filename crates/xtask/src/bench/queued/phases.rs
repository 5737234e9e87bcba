//! Measures accepting and delivering, separately and together.

use anyhow::{Context, Result};

use super::super::machine::{cpu_seconds, peak_mib};
use super::super::proxy::{Proxy, Ready};
use super::super::rounds::Figure;
use super::QueuedCase;
use super::gateway::Gateway;

/// A case and its measurements. CPU seconds are the gateway's, per million documents.
#[derive(Debug, Clone, serde::Serialize)]
pub(in crate::bench) struct Measured {
    pub(super) case: QueuedCase,
    /// Cost of accepting, with the pipeline stopped.
    pub(super) accept: Figure,
    /// Cost of delivering, without load.
    pub(super) deliver: Figure,
    /// The sum of the two.
    pub(super) sum: Figure,
    /// Cost of both at the same time.
    pub(super) together: Figure,
    /// Cost of HAProxy passing the same load to the same nodes, if that was measured too.
    pub(super) haproxy: Option<Figure>,
    pub(super) accepted_a_second: Figure,
    pub(super) delivered_a_second: Figure,
    pub(super) p50_ms: Figure,
    pub(super) p99_ms: Figure,
    /// Bytes that a document takes in the log.
    pub(super) disk_bytes: f64,
    /// Bytes that a document takes on the way to a node.
    pub(super) wire_bytes: f64,
    pub(super) peak_mib: f64,
    pub(super) misrouted: f64,
}

#[derive(Default)]
struct Samples {
    accept: Vec<f64>,
    deliver: Vec<f64>,
    sum: Vec<f64>,
    together: Vec<f64>,
    haproxy: Vec<f64>,
    accepted_a_second: Vec<f64>,
    delivered_a_second: Vec<f64>,
    p50_ms: Vec<f64>,
    p99_ms: Vec<f64>,
}

/// Starts everything, warms up, and measures this many rounds.
pub(super) fn measure(case: &QueuedCase, rounds: usize, docs: u64, with_haproxy: bool) -> Result<Measured> {
    let gateway = Gateway::start(case)?;
    let haproxy = (with_haproxy && case.of_haproxy.is_some()).then(|| gateway.haproxy());
    let haproxy = haproxy.transpose()?;
    let docs = case.load.docs(docs);
    let ready = |docs| Ready::prepare(&case.load, gateway.address(), docs, &gateway.folder);
    gateway.start_pipeline()?;
    let warm = ready(docs / 4)?.go().context("warming up")?;
    gateway.drained(warm.docs, |_| ())?;
    gateway.stop_pipeline()?;
    let by_haproxy = |proxy: &Proxy, docs| by_haproxy(case, proxy, docs, &gateway);
    if let Some(proxy) = &haproxy {
        by_haproxy(proxy, docs / 4).context("warming up")?;
    }
    let mut samples = Samples::default();
    let (mut disk_bytes, mut wire_bytes, mut misrouted) = (0.0, 0.0, 0.0);
    for _ in 0..rounds {
        let load = ready(docs)?;
        let (end, before) = (end(&gateway)?, gateway.cpu()?);
        let report = load.go().context("accepting")?;
        let accept = gateway.cpu()? - before;
        let docs = report.docs as f64;
        disk_bytes = (self::end(&gateway)? - end) / docs;
        samples.p50_ms.push(report.p50_ms);
        samples.p99_ms.push(report.p99_ms);
        samples.accepted_a_second.push(docs / report.seconds);

        gateway.reset()?;
        let (before, begun) = (gateway.cpu()?, std::time::Instant::now());
        gateway.start_pipeline()?;
        let deliver = gateway.drained(report.docs, |_| ())?.cpu - before;
        samples
            .delivered_a_second
            .push(docs / begun.elapsed().as_secs_f64());
        let counts = gateway.counts()?;
        let count = |name: &str| counts[name].as_f64().unwrap_or_default();
        (wire_bytes, misrouted) = (count("body_bytes") / docs, count("misrouted") / docs);

        gateway.reset()?;
        let together = together(&gateway, ready(report.docs)?)?;

        let million = |cpu: f64| cpu * 1e6 / docs;
        samples.accept.push(million(accept));
        samples.deliver.push(million(deliver));
        samples.sum.push(million(accept + deliver));
        samples.together.push(million(together));
        if let Some(proxy) = &haproxy {
            samples.haproxy.push(by_haproxy(proxy, report.docs)?);
            gateway.reset()?;
        }
    }
    Ok(Measured {
        case: case.clone(),
        accept: Figure::of(samples.accept),
        deliver: Figure::of(samples.deliver),
        sum: Figure::of(samples.sum),
        together: Figure::of(samples.together),
        haproxy: haproxy.map(|_| Figure::of(samples.haproxy)),
        accepted_a_second: Figure::of(samples.accepted_a_second),
        delivered_a_second: Figure::of(samples.delivered_a_second),
        p50_ms: Figure::of(samples.p50_ms),
        p99_ms: Figure::of(samples.p99_ms),
        disk_bytes,
        wire_bytes,
        peak_mib: peak_mib(gateway.pid())?,
        misrouted,
    })
}

/// Returns the CPU seconds for accepting and delivering at once; leaves the queue empty, and the pipeline
/// stopped.
fn together(gateway: &Gateway, load: Ready) -> Result<f64> {
    let before = gateway.cpu()?;
    let sent = load.go().context("accepting while delivering")?.docs;
    let together = gateway.drained(sent, |_| ())?.cpu - before;
    gateway.stop_pipeline()?;
    gateway.reset()?;
    Ok(together)
}

/// Returns the CPU seconds that a million documents cost HAProxy.
fn by_haproxy(case: &QueuedCase, proxy: &Proxy, docs: u64, gateway: &Gateway) -> Result<f64> {
    let load = Ready::prepare(&case.load, proxy.address, docs, &gateway.folder)?;
    let before = cpu_seconds(proxy.pid())?;
    let report = load.go().context("through HAProxy")?;
    Ok((cpu_seconds(proxy.pid())? - before) * 1e6 / report.docs as f64)
}

/// Returns the position at which the log ends.
fn end(gateway: &Gateway) -> Result<f64> {
    Ok(gateway.queue()?["end"].as_f64().unwrap_or_default())
}
