//! Runs a load: spreads users over cores, ends them in time, and adds up their counts.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use wire::{TlsError, Worker, Workers, WorkersConfig};

use crate::core::{Core, CoreInput, RunState};
use crate::file::Load;
use crate::ledger::Ledger;
use crate::options::Options;
use crate::progress::{Progress, Timeline};
use crate::report::Report;
use crate::schedule::Schedule;
use crate::tally::Tally;

/// Why a load can't be run at all.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The system could not create threads.
    #[error("no threads: {0}")]
    Threads(#[from] std::io::Error),
    /// The certificate authorities can't be used.
    #[error("authorities: {0}")]
    Tls(#[from] TlsError),
    /// A core's thread ended early; its figures are lost.
    #[error("a core ended before its time")]
    CoreEnded,
}

/// Ends a run early: no further request is begun, and those under way are finished.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// When the run was told to end.
    asked: Arc<OnceLock<Instant>>,
}

// === impl Stop ===

impl Stop {
    /// Ends the run.
    pub fn stop(&self) {
        // A second call changes nothing: the first moment counts.
        let _ = self.asked.set(Instant::now());
    }

    /// Whether the run was told to end.
    pub fn is_asked(&self) -> bool {
        self.at().is_some()
    }

    /// Returns when the run was told to end.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.asked.get().copied()
    }
}

/// Runs a load to its end. `watch` is called about once a second and at the end, on this thread.
///
/// # Errors
/// If the load can't be run at all. The report says what went wrong with requests.
pub fn run(
    load: &Arc<Load>,
    options: &Options,
    stop: &Stop,
    mut watch: impl FnMut(&Progress),
) -> Result<Report, RunError> {
    let tls = options.tls()?;
    let users = options.users.max(1);
    let cores = match options.cores {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        cores => cores,
    };
    let workers = Workers::start(WorkersConfig {
        count: cores.min(users),
        name: "load".to_owned(),
        budget_bytes: BUDGET_BYTES,
        ..WorkersConfig::default()
    })?;
    let shared = Arc::new(RunState {
        stop: stop.clone(),
        ..RunState::default()
    });
    let options = Arc::new(options.clone());
    let begun = Instant::now();
    let scheduled = options.schedule.as_ref().and_then(Schedule::duration);
    let until = options.duration.or(scheduled).map(|duration| begun + duration);
    let mut timeline = Timeline::new(begun, workers.count());
    let mut parts = Vec::new();
    for (at, interval) in timeline.intervals.iter().enumerate() {
        let part = CoreInput {
            load: Arc::clone(load),
            options: Arc::clone(&options),
            shared: Arc::clone(&shared),
            tls: tls.clone(),
            users: (at..users).step_by(workers.count()).count(),
            begun,
            interval: Arc::clone(interval),
        };
        parts.push(workers.ask(at, move |worker| run_core(worker, part, until)));
    }
    let ended = wait(parts, || watch(timeline.look()))?;
    watch(timeline.look());
    let last = ended.iter().map(|(_, _, ended)| *ended).max().unwrap_or(begun);
    let mut ledger = Ledger::default();
    let tallies: Vec<_> = ended
        .into_iter()
        .map(|(tallies, notes, _)| {
            ledger.add(notes);
            tallies
        })
        .collect();
    let mut report = Report::new(
        load,
        &sum(tallies.into_iter()),
        last - begun,
        users,
        timeline.seconds,
    );
    if let Some(schedule) = &options.schedule {
        // What a stop, an end or a limit kept from being sent was not due.
        let end = [until, stop.at()].into_iter().flatten().min().unwrap_or(last);
        let due = schedule.due(end.saturating_duration_since(begun));
        let wanted = wanted(load, &options, shared.skipped.load(Ordering::Relaxed));
        report.unsent = due
            .min(wanted)
            .saturating_sub(report.total.answers + report.total.errors);
    }
    report.ledger = options.ledger.then(|| Arc::new(ledger));
    Ok(report)
}

/// Returns how many requests the limits of a run allow. `skipped` were left out of rounds that an answer
/// ended early.
fn wanted(load: &Load, options: &Options, skipped: u64) -> u64 {
    let in_rounds = options.rounds_max.map_or(u64::MAX, |rounds| {
        rounds
            .saturating_mul(load.requests_per_round())
            .saturating_sub(skipped)
    });
    in_rounds.min(options.requests_max.unwrap_or(u64::MAX))
}

/// Runs the users of a core to their end.
async fn run_core(worker: Worker, part: CoreInput, until: Option<Instant>) -> Ended {
    let users = part.users;
    let core = Rc::new(Core::new(&worker, part));
    let tasks: Vec<_> = (0..users)
        .map(|_| tokio::task::spawn_local(Rc::clone(&core).user(until)))
        .collect();
    for task in tasks {
        // A user that panicked has counted what it did before the panic.
        let _ = task.await;
    }
    let (tallies, ledger) = core.take_counts();
    (tallies, ledger, Instant::now())
}

/// The counts of a core, and the time when it ended.
type Ended = (Vec<Tally>, Ledger, Instant);
type Counted = tokio::sync::oneshot::Receiver<Ended>;

/// Waits for all cores, and calls `look` about once a second.
fn wait(parts: Vec<Counted>, mut look: impl FnMut()) -> Result<Vec<Ended>, RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    runtime.block_on(async {
        let mut second = tokio::time::interval(Duration::from_secs(1));
        second.tick().await;
        let mut ended = Vec::new();
        for mut part in parts {
            let tallies = loop {
                tokio::select! {
                    tallies = &mut part => break tallies,
                    _ = second.tick() => look(),
                }
            };
            ended.push(tallies.map_err(|_| RunError::CoreEnded)?);
        }
        Ok(ended)
    })
}

/// Adds up the tallies of the cores, request by request.
fn sum(cores: impl Iterator<Item = Vec<Tally>>) -> Vec<Tally> {
    cores
        .reduce(|mut sum, tallies| {
            sum.iter_mut()
                .zip(&tallies)
                .for_each(|(sum, tally)| sum.add(tally));
            sum
        })
        .unwrap_or_default()
}

/// Memory for bodies and answers under way on all cores together.
const BUDGET_BYTES: usize = 4 << 30;
