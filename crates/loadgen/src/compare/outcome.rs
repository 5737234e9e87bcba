//! The outcome of a comparison: for people ([`Compared`]'s `Display`) and for programs (it serialises).

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::estimate::{ChangeVerdict, RelativeChange};
use super::options::{CompareOptions, Phase, Way};
use crate::report::Report;
use crate::units::{decimal, number, time};

/// The outcome of a comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Compared {
    /// Product and version of the cluster.
    pub cluster: String,
    /// Number of documents in each run.
    pub documents: u64,
    /// Number of documents in each request.
    pub batch: u32,
    /// Whether documents had ids.
    pub ids: bool,
    /// Number of rounds.
    pub rounds: u32,
    /// Number of users that sent.
    pub clients: usize,
    /// Number of primaries of each index.
    pub shards: u32,
    /// Number of copies of each primary.
    pub replicas: u32,
    /// All runs, in the order in which they were made.
    pub runs: Vec<Run>,
    /// The joint result of the rounds, for new documents and for updates.
    pub phases: Vec<PhaseOutcome>,
}

/// One run: one way, one phase of one round.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// The round, from 1.
    pub round: u32,
    /// The way that the documents went.
    pub way: Way,
    /// The kind of documents that were written.
    pub phase: Phase,
    /// Documents sent.
    pub documents: u64,
    /// Documents whose items say that they were accepted.
    pub accepted: u64,
    /// Documents that were not accepted, or whose fate is unknown.
    pub lost: u64,
    /// Requests without an answer.
    pub errors: u64,
    /// Items by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Seconds from the first byte sent to the last answer read.
    pub acknowledged_s: f64,
    /// Seconds from the first byte sent until the index counted all accepted documents; none if that took
    /// longer than the time limit.
    pub counted_s: Option<f64>,
    /// The documents that the index counted in the end.
    pub counted: u64,
    /// Median latency of the requests, in milliseconds.
    pub p50_ms: Option<f64>,
    /// 99th percentile of the requests' latency, in milliseconds.
    pub p99_ms: Option<f64>,
    /// CPU seconds of all nodes during the run; none if they don't report it.
    pub cpu_s: Option<f64>,
    /// Why this run is not compared; none if all is well.
    pub flaw: Option<String>,
}

/// The joint result of the rounds for one phase.
#[derive(Debug, Clone, Serialize)]
pub struct PhaseOutcome {
    /// The phase.
    pub phase: Phase,
    /// Averages of the direct way.
    pub direct: Option<Averages>,
    /// Averages of the way through the gateway.
    pub gateway: Option<Averages>,
    /// Change of the documents per second until counted: more is better.
    pub counted: Option<RelativeChange>,
    /// Change of the documents per second until acknowledged: more is better.
    pub acknowledged: Option<RelativeChange>,
    /// Change of the CPU time of the nodes: less is better.
    pub cpu: Option<RelativeChange>,
}

/// Averages of the runs of one way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Averages {
    /// Number of runs.
    pub runs: usize,
    /// Seconds until counted.
    pub counted_s: f64,
    /// Documents per second until counted.
    pub counted_per_s: f64,
    /// Seconds until acknowledged.
    pub acknowledged_s: f64,
    /// Documents per second until acknowledged.
    pub acknowledged_per_s: f64,
    /// CPU seconds of the nodes.
    pub cpu_s: Option<f64>,
}

/// One line of what the rounds say together, in words.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) direct: String,
    pub(super) gateway: String,
    pub(super) change: String,
}

// === impl Run ===

impl Run {
    pub(super) fn new(round: u32, way: Way, phase: Phase, sent: u64, report: &Report) -> Run {
        let total = &report.total;
        let documents = total.documents.as_ref();
        let accepted = documents.map_or(0, |documents| documents.accepted);
        Run {
            round,
            way,
            phase,
            documents: sent,
            accepted,
            lost: sent.saturating_sub(accepted),
            errors: total.errors,
            statuses: documents.map_or_else(BTreeMap::new, |documents| documents.statuses.clone()),
            acknowledged_s: report.seconds,
            counted_s: None,
            counted: 0,
            p50_ms: total.latency_ms.as_ref().map(|latency| latency.p50),
            p99_ms: total.latency_ms.as_ref().map(|latency| latency.p99),
            cpu_s: None,
            flaw: None,
        }
    }

    /// Returns the documents per second until counted.
    pub fn counted_per_s(&self) -> Option<f64> {
        Some(self.accepted as f64 / self.counted_s.filter(|seconds| *seconds > 0.0)?)
    }

    /// Returns the documents per second until acknowledged.
    pub fn acknowledged_per_s(&self) -> f64 {
        self.accepted as f64 / self.acknowledged_s.max(1e-9)
    }
}

// === impl Compared ===

impl Compared {
    pub(super) fn new(options: &CompareOptions, cluster: String, runs: Vec<Run>) -> Compared {
        let phases = options.phases().iter();
        Compared {
            cluster,
            documents: options.requests(options.documents) * u64::from(options.batch),
            batch: options.batch,
            ids: options.ids,
            rounds: options.rounds,
            clients: options.clients,
            shards: options.shards,
            replicas: options.replicas,
            phases: phases.map(|phase| PhaseOutcome::of(*phase, &runs)).collect(),
            runs,
        }
    }

    /// Whether every run was without a flaw: all documents were accepted, and counted once.
    pub fn is_clean(&self) -> bool {
        self.runs.iter().all(|run| run.flaw.is_none())
    }
}

// === impl PhaseOutcome ===

impl PhaseOutcome {
    fn of(phase: Phase, runs: &[Run]) -> PhaseOutcome {
        let clean = |way: Way| {
            let runs = runs.iter();
            runs.filter(move |run| run.phase == phase && run.way == way && run.flaw.is_none())
        };
        // Only rounds in which both runs are without a flaw count.
        let pairs = |value: &dyn Fn(&Run) -> Option<f64>| {
            let pair = |direct: &Run| {
                let gateway = clean(Way::Gateway).find(|run| run.round == direct.round)?;
                Some((value(direct)?, value(gateway)?))
            };
            RelativeChange::of(&clean(Way::Direct).filter_map(pair).collect::<Vec<_>>())
        };
        PhaseOutcome {
            phase,
            direct: Averages::of(&clean(Way::Direct).collect::<Vec<_>>()),
            gateway: Averages::of(&clean(Way::Gateway).collect::<Vec<_>>()),
            counted: pairs(&Run::counted_per_s),
            acknowledged: pairs(&|run| Some(run.acknowledged_per_s())),
            cpu: pairs(&|run| run.cpu_s),
        }
    }

    /// Returns what the rounds say about the gateway, in a sentence.
    pub fn sentence(&self) -> String {
        let what = match self.phase {
            Phase::New => "New documents",
            Phase::Updates => "Updates",
        };
        let Some(change) = &self.counted else {
            return format!("{what}: nothing can be said, since in no round both runs were fine.");
        };
        let percent = format!("{:.1} %", change.percent.abs());
        let interval = change
            .interval
            .map_or(String::new(), |(low, high)| format!("{low:+.1} to {high:+.1} %"));
        match change.verdict {
            ChangeVerdict::More => format!(
                "{what}: through the gateway {percent} more documents a second (95 % confidence: {interval})."
            ),
            ChangeVerdict::Less => format!(
                "{what}: through the gateway {percent} fewer documents a second (95 % confidence: {interval})."
            ),
            ChangeVerdict::WithinNoise => format!(
                "{what}: no difference beyond the noise: {:+.1} % (95 % confidence: {interval}). More rounds or more \
                 documents narrow it.",
                change.percent
            ),
            ChangeVerdict::Unknown => format!(
                "{what}: {:+.1} % documents a second, in a single round, which says nothing about the noise: take three \
                 rounds or more.",
                change.percent
            ),
        }
    }
}

// === impl Averages ===

impl Averages {
    fn of(runs: &[&Run]) -> Option<Averages> {
        let mean = |values: Vec<f64>| {
            let count = values.len() as f64;
            (count > 0.0).then(|| values.into_iter().sum::<f64>() / count)
        };
        let all = |value: &dyn Fn(&Run) -> Option<f64>| -> Option<f64> {
            mean(runs.iter().map(|run| value(run)).collect::<Option<Vec<_>>>()?)
        };
        Some(Averages {
            runs: runs.len(),
            counted_s: all(&|run| run.counted_s)?,
            counted_per_s: all(&Run::counted_per_s)?,
            acknowledged_s: all(&|run| Some(run.acknowledged_s))?,
            acknowledged_per_s: all(&|run| Some(run.acknowledged_per_s()))?,
            cpu_s: all(&|run| run.cpu_s),
        })
    }
}

// === Display ===

impl fmt::Display for Compared {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "{}: {} rounds of {} documents {} ids, {} a request, {} clients; {} primaries, {} replicas",
            self.cluster,
            self.rounds,
            number(self.documents),
            if self.ids { "with" } else { "without" },
            number(u64::from(self.batch)),
            self.clients,
            self.shards,
            self.replicas
        )?;
        writeln!(out)?;
        writeln!(
            out,
            "{:>5}  {:<8} {:<8} {:>10} {:>11} {:>10} {:>11} {:>9} {:>9} {:>9}",
            "round", "phase", "way", "counted", "docs/s", "acked", "docs/s", "p50", "p99", "CPU"
        )?;
        for run in &self.runs {
            run.write(out)?;
        }
        for phase in &self.phases {
            writeln!(out)?;
            phase.write(out)?;
        }
        writeln!(out)?;
        for phase in &self.phases {
            writeln!(out, "{}", phase.sentence())?;
        }
        if let Some(shortest) = self.shortest()
            && shortest < SHORT_S
        {
            writeln!(
                out,
                "The shortest run took {shortest:.2} s: with more documents (--docs) a round says more."
            )?;
        }
        if !self.is_clean() {
            writeln!(
                out,
                "Some runs were not as they should be, and are left out of the averages."
            )?;
        }
        Ok(())
    }
}

impl Compared {
    fn shortest(&self) -> Option<f64> {
        self.runs.iter().filter_map(|run| run.counted_s).reduce(f64::min)
    }
}

impl Run {
    fn write(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_dash = |text: Option<String>| text.unwrap_or("–".to_owned());
        writeln!(
            out,
            "{:>5}  {:<8} {:<8} {:>10} {:>11} {:>10} {:>11} {:>9} {:>9} {:>9}",
            self.round,
            self.phase.name(),
            self.way.name(),
            or_dash(self.counted_s.map(seconds)),
            or_dash(self.counted_per_s().map(decimal)),
            seconds(self.acknowledged_s),
            decimal(self.acknowledged_per_s()),
            or_dash(self.p50_ms.map(time)),
            or_dash(self.p99_ms.map(time)),
            or_dash(self.cpu_s.map(seconds)),
        )?;
        match &self.flaw {
            Some(flaw) => writeln!(out, "       left out: {flaw}"),
            None => Ok(()),
        }
    }
}

impl PhaseOutcome {
    fn write(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = match self.phase {
            Phase::New => "new documents",
            Phase::Updates => "updates",
        };
        writeln!(
            out,
            "{head:<28} {:>12} {:>12}   change (95 % confidence)",
            "direct", "gateway"
        )?;
        for Row {
            name,
            direct,
            gateway,
            change,
        } in self.rows()
        {
            writeln!(out, "  {name:<26} {direct:>12} {gateway:>12}   {change}")?;
        }
        Ok(())
    }

    /// Returns what is compared, as every page shows it.
    pub(super) fn rows(&self) -> [Row; 3] {
        let row = |name, value: fn(&Averages) -> Option<String>, change: &Option<RelativeChange>| {
            let of =
                |averages: &Option<Averages>| averages.as_ref().and_then(value).unwrap_or("–".to_owned());
            Row {
                name,
                direct: of(&self.direct),
                gateway: of(&self.gateway),
                change: change.as_ref().map_or(String::new(), ToString::to_string),
            }
        };
        [
            row(
                "docs/s until counted",
                |averages| Some(decimal(averages.counted_per_s)),
                &self.counted,
            ),
            row(
                "docs/s until acknowledged",
                |averages| Some(decimal(averages.acknowledged_per_s)),
                &self.acknowledged,
            ),
            row(
                "CPU of the nodes",
                |averages| averages.cpu_s.map(seconds),
                &self.cpu,
            ),
        ]
    }
}

pub(super) fn seconds(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

/// A run shorter than this is mostly beginning and end.
const SHORT_S: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(round: u32, way: Way, counted_s: f64, flaw: Option<&str>) -> Run {
        Run {
            round,
            way,
            phase: Phase::New,
            documents: 1_000,
            accepted: 1_000,
            lost: 0,
            errors: 0,
            statuses: BTreeMap::new(),
            acknowledged_s: counted_s / 2.0,
            counted_s: Some(counted_s),
            counted: 1_000,
            p50_ms: Some(1.0),
            p99_ms: None,
            cpu_s: Some(counted_s),
            flaw: flaw.map(str::to_owned),
        }
    }

    fn compared(runs: Vec<Run>) -> Compared {
        let options = CompareOptions {
            ids: false,
            ..CompareOptions::default()
        };
        Compared::new(&options, "OpenSearch 3.8.0".to_owned(), runs)
    }

    #[test]
    fn a_round_with_a_flaw_is_told_and_left_out() {
        let compared = compared(vec![
            run(1, Way::Direct, 10.0, None),
            run(1, Way::Gateway, 8.0, None),
            run(2, Way::Gateway, 8.0, Some("3 documents were not accepted")),
            run(2, Way::Direct, 10.0, None),
            run(3, Way::Direct, 10.2, None),
            run(3, Way::Gateway, 8.1, None),
        ]);
        assert!(!compared.is_clean());
        let change = compared.phases[0].counted.as_ref().unwrap();
        assert_eq!((change.rounds, change.verdict), (2, ChangeVerdict::More));
        assert_eq!(
            compared.phases[0].cpu.as_ref().unwrap().verdict,
            ChangeVerdict::Less
        );
        let text = compared.to_string();
        for wanted in [
            "left out: 3 documents",
            "more documents a second",
            "are left out of the averages",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }

    #[test]
    fn a_difference_within_the_noise_is_called_so_and_one_round_too_few() {
        let noisy = compared(vec![
            run(1, Way::Direct, 10.0, None),
            run(1, Way::Gateway, 8.0, None),
            run(2, Way::Gateway, 12.0, None),
            run(2, Way::Direct, 10.0, None),
        ]);
        assert!(
            noisy.to_string().contains("no difference beyond the noise"),
            "{noisy}"
        );
        let single = compared(vec![
            run(1, Way::Direct, 1.0, None),
            run(1, Way::Gateway, 0.5, None),
        ]);
        let text = single.to_string();
        assert!(
            text.contains("says nothing about the noise") && text.contains("took 0.50 s"),
            "{text}"
        );
    }
}
