//! One way of one round: creates an index, writes the documents, and measures the time until the index counts
//! them.

use std::time::{Duration, Instant, SystemTime};

use super::documents::{index_body, load};
use super::error::CompareError;
use super::event::CompareEvent;
use super::options::{CompareOptions, Phase, Way};
use super::outcome::Run;
use super::servers::{CpuTimes, Servers};
use crate::engine::{self, Stop};
use crate::options::Options;
use crate::report::Report;
use crate::units::number;

/// Runs loads, and remembers the indices that it has made.
pub(super) struct Runner<'l> {
    options: &'l CompareOptions,
    servers: &'l Servers,
    stop: &'l Stop,
    /// Distinguishes this comparison's indices from those of others.
    stamp: String,
    made: Vec<String>,
}

// === impl Runner ===

impl<'l> Runner<'l> {
    pub(super) fn new(options: &'l CompareOptions, servers: &'l Servers, stop: &'l Stop) -> Self {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Runner {
            options,
            servers,
            stop,
            stamp: format!("{:x}{:04x}", now.as_secs(), fastrand::u16(..)),
            made: Vec::new(),
        }
    }

    /// Writes all phases of a round one way, into an index of its own, which is removed at the end.
    pub(super) fn run_round(
        &mut self,
        round: u32,
        way: Way,
        documents: u64,
        watch: &mut dyn FnMut(CompareEvent<'_>),
    ) -> Result<Vec<Run>, CompareError> {
        let index = format!("{}-{}-{round}-{}", self.options.index, self.stamp, way.name());
        // A creation that was not answered may have succeeded.
        self.made.push(index.clone());
        self.servers.create(&index, &index_body(self.options))?;
        self.servers.settle(&index)?;
        // The gateway has to learn of the index. The direct way waits just as long, so that both are treated
        // alike.
        self.pause(TOPOLOGY_PAUSE)?;
        let mut runs = Vec::new();
        let mut there = 0;
        for phase in self.options.phases() {
            watch(CompareEvent::Begun {
                round,
                way,
                phase: *phase,
            });
            let mut run = self.run(&index, round, way, *phase, documents, watch)?;
            if *phase == Phase::New {
                there = run.counted;
            } else {
                let now = self.servers.count(&index)?;
                if now != there {
                    let what = format!("the updates left {} documents of {}", number(now), number(there));
                    run.flaw.get_or_insert(what);
                }
            }
            watch(CompareEvent::Ended(&run));
            runs.push(run);
        }
        if !self.options.keep {
            self.servers.delete(&index)?;
            self.made.retain(|made| *made != index);
        }
        self.pause(self.options.rest)?;
        Ok(runs)
    }

    /// Removes the remaining indices. Returns those that can't be removed, with the reasons.
    pub(super) fn clean_up(&mut self) -> Vec<(String, CompareError)> {
        let made = std::mem::take(&mut self.made);
        made.into_iter()
            .filter_map(|index| {
                let error = self.servers.delete(&index).err()?;
                Some((index, error))
            })
            .collect()
    }

    fn run(
        &self,
        index: &str,
        round: u32,
        way: Way,
        phase: Phase,
        documents: u64,
        watch: &mut dyn FnMut(CompareEvent<'_>),
    ) -> Result<Run, CompareError> {
        let options = self.options;
        let load = load(options, way, phase, index)?;
        let requests = options.requests(documents);
        let how = Options {
            users: options.clients,
            duration: None,
            requests_max: Some(requests),
            gzip: options.gzip,
            timeout: options.timeout,
            ca_file: options.ca_file.clone(),
            insecure: options.insecure,
            ..Options::default()
        };
        let cpu_before = self.servers.cpu_times();
        let begun = Instant::now();
        let report = engine::run(&load, &how, self.stop, |now| watch(CompareEvent::Sending(now)))?;
        self.check_stop()?;
        let accepted = report
            .total
            .documents
            .as_ref()
            .map_or(0, |documents| documents.accepted);
        let mut see = |found| {
            watch(CompareEvent::Counting(found));
            !self.stop.is_asked()
        };
        let (counted, at) = self
            .servers
            .wait_for(index, phase, accepted, options.count_timeout, &mut see)?;
        self.check_stop()?;
        let cpu_after = self.servers.cpu_times();
        let sent = requests * u64::from(options.batch);
        let mut run = Run::new(round, way, phase, sent, &report);
        run.counted = counted;
        run.counted_s = (counted >= accepted).then(|| (at - begun).as_secs_f64());
        run.cpu_s = used(cpu_before.as_ref(), cpu_after.as_ref());
        run.flaw = flaw(&run, &report, options.count_timeout);
        Ok(run)
    }

    fn pause(&self, time: Duration) -> Result<(), CompareError> {
        let end = Instant::now() + time;
        loop {
            self.check_stop()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(STOP_LOOK));
        }
    }

    fn check_stop(&self) -> Result<(), CompareError> {
        if self.stop.is_asked() {
            return Err(CompareError::Stopped);
        }
        Ok(())
    }
}

/// Returns the flaw that makes a run useless for comparing: not every document was accepted and counted
/// exactly once.
fn flaw(run: &Run, report: &Report, patience: Duration) -> Option<String> {
    if run.accepted < run.documents {
        let lost = number(run.documents - run.accepted);
        let figures = &report.total;
        let kinds = figures
            .errors_by_kind
            .keys()
            .chain(figures.invalid_by_kind.keys());
        let of_items = figures
            .documents
            .iter()
            .flat_map(|documents| documents.errors.keys());
        let why = kinds
            .chain(of_items)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("; ");
        return Some(format!("{lost} documents were not accepted: {why}"));
    }
    if run.counted < run.accepted {
        let (counted, accepted) = (number(run.counted), number(run.accepted));
        let waited = patience.as_secs();
        return Some(format!(
            "only {counted} of {accepted} were counted within {waited} s"
        ));
    }
    (run.counted > run.accepted).then(|| {
        let (counted, accepted) = (number(run.counted), number(run.accepted));
        format!("{counted} documents are counted, and only {accepted} were sent: some are there twice")
    })
}

/// Returns the CPU seconds between two measurements, if they cover the same nodes.
fn used(before: Option<&CpuTimes>, after: Option<&CpuTimes>) -> Option<f64> {
    let (before, after) = (before?, after?);
    if !before.keys().eq(after.keys()) {
        return None;
    }
    let sum = |times: &CpuTimes| times.values().sum::<u64>();
    Some(sum(after).checked_sub(sum(before))? as f64 / 1e3)
}

/// A gateway looks at the cluster's state three times a second; a busy one may be late.
const TOPOLOGY_PAUSE: Duration = Duration::from_millis(1_500);
const STOP_LOOK: Duration = Duration::from_millis(100);
