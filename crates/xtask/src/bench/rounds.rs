//! Measures proxies in turn, round by round, and takes medians.

use anyhow::{Context, Result};

use super::case::Case;
use super::machine::{cpu_seconds, peak_mib};
use super::proxy::{Contender, Nodes, Proxy, ProxyKind, Ready, client};

/// A figure over all rounds.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(super) struct Figure {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// The figures of one proxy in a case.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct Row {
    pub(super) proxy: ProxyKind,
    /// CPU seconds of the proxy per million documents.
    pub(super) cpu: Figure,
    pub(super) docs_a_second: Figure,
    pub(super) p50_ms: Figure,
    pub(super) p99_ms: Figure,
    pub(super) max_ms: Figure,
    /// Peak resident memory, including the start and the warm-up, in MiB.
    pub(super) peak_mib: f64,
    /// Share of the documents with ids that reached a node that does not hold their primary.
    pub(super) misrouted: f64,
}

/// A case and its measurements.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct Measured {
    pub(super) case: Case,
    pub(super) rows: Vec<Row>,
}

#[derive(Default)]
struct Samples {
    cpu: Vec<f64>,
    docs_a_second: Vec<f64>,
    p50_ms: Vec<f64>,
    p99_ms: Vec<f64>,
    max_ms: Vec<f64>,
    docs: f64,
    misrouted: f64,
}

/// Starts everything, warms up, and measures the proxies in turn.
pub(super) fn measure(case: &Case, contenders: &[Contender], rounds: usize, docs: u64) -> Result<Measured> {
    let folder = std::env::temp_dir().join(format!("tidegate-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let nodes = Nodes::start(case, &folder)?;
    let docs = case.docs(docs);
    let mut proxies = Vec::new();
    for contender in contenders {
        let proxy = Proxy::start(contender, case, &nodes, &folder)?;
        Ready::prepare(case, proxy.address, docs / 4, &folder)?
            .go()
            .with_context(|| format!("warming up {:?}", contender.kind))?;
        proxies.push((proxy, Samples::default()));
    }
    let counter = client(&nodes.urls[0], case, &folder)?;
    for _ in 0..rounds {
        for (proxy, samples) in &mut proxies {
            let ready = Ready::prepare(case, proxy.address, docs, &folder)?;
            counter
                .post("/_fake/counts/reset", &serde_json::Value::Null)?
                .ok()?;
            let before = cpu_seconds(proxy.pid())?;
            let report = ready.go().with_context(|| format!("{:?}", proxy.kind))?;
            let cpu = cpu_seconds(proxy.pid())? - before;
            let counts = counter.get("/_fake/counts")?.ok()?.json()?;
            samples.cpu.push(cpu * 1e6 / report.docs as f64);
            samples.docs_a_second.push(report.docs as f64 / report.seconds);
            samples.p50_ms.push(report.p50_ms);
            samples.p99_ms.push(report.p99_ms);
            samples.max_ms.push(report.max_ms);
            samples.docs += counts["docs"].as_f64().unwrap_or_default();
            samples.misrouted += counts["misrouted"].as_f64().unwrap_or_default();
        }
    }
    let rows = proxies
        .into_iter()
        .map(|(proxy, samples)| Ok(samples.row(proxy.kind, peak_mib(proxy.pid())?)))
        .collect::<Result<_>>()?;
    // Remains in a temporary folder do no harm.
    let _ = std::fs::remove_dir_all(&folder);
    Ok(Measured {
        case: case.clone(),
        rows,
    })
}

// === impl Samples ===

impl Samples {
    fn row(self, proxy: ProxyKind, peak_mib: f64) -> Row {
        Row {
            proxy,
            cpu: Figure::of(self.cpu),
            docs_a_second: Figure::of(self.docs_a_second),
            p50_ms: Figure::of(self.p50_ms),
            p99_ms: Figure::of(self.p99_ms),
            max_ms: Figure::of(self.max_ms),
            peak_mib,
            misrouted: self.misrouted / self.docs.max(1.0),
        }
    }
}

// === impl Figure ===

impl Figure {
    pub(super) fn of(mut samples: Vec<f64>) -> Figure {
        samples.sort_by(f64::total_cmp);
        let at = |index: usize| samples.get(index).copied().unwrap_or_default();
        let last = samples.len().saturating_sub(1);
        Figure {
            median: (at(last / 2) + at(last.div_ceil(2))) / 2.0,
            min: at(0),
            max: at(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Figure;

    #[test]
    fn the_median_is_the_middle_or_between_the_two() {
        assert_eq!(Figure::of(vec![3.0, 1.0, 2.0]).median, 2.0);
        assert_eq!(Figure::of(vec![4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(
            (Figure::of(vec![4.0, 1.0]).min, Figure::of(vec![4.0, 1.0]).max),
            (1.0, 4.0)
        );
    }
}
