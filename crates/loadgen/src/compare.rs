//! A cluster written to directly against the same cluster through a gateway, done right.
//!
//! Each round writes the same documents into an index of its own each way; which way goes first alternates (A
//! B, B A, A B, …), so that what drifts meets both. Then, where documents have ids, the same documents once
//! more: updates. A run's time ends when the index *counts* the documents, not when they were acknowledged
//! (that time is told too), and every item of every answer is looked at. Of the rounds' paired differences
//! the report says what the gateway changes, with the interval in which the truth is with 95 % confidence,
//! and says so when that is within the noise.

mod documents;
mod error;
mod estimate;
mod event;
mod options;
mod outcome;
mod page;
mod run;
mod servers;

pub use self::error::CompareError;
pub use self::estimate::{Change, Verdict};
pub use self::event::CompareEvent;
pub use self::options::{CompareOptions, Phase, Way};
pub use self::outcome::{Averages, Compared, PhaseOutcome, Run};
use self::run::Runner;
use self::servers::Servers;
use crate::engine::Stop;

/// Compares. Indices that were made are removed whatever happens, unless they are to be kept.
///
/// # Errors
/// When nothing can be compared. What was wrong with single runs is in the outcome.
pub fn compare(
    options: &CompareOptions,
    stop: &Stop,
    mut watch: impl FnMut(CompareEvent<'_>),
) -> Result<Compared, CompareError> {
    let servers = Servers::new(options)?;
    let cluster = servers.cluster()?;
    let mut runner = Runner::new(options, &servers, stop);
    let measured = measure(options, &mut runner, &mut watch);
    if !options.keep {
        for (index, error) in runner.clean_up() {
            watch(CompareEvent::Note(&format!(
                "index {index} is still there: {error}"
            )));
        }
    }
    Ok(Compared::new(options, cluster, measured?))
}

fn measure(
    options: &CompareOptions,
    runner: &mut Runner<'_>,
    watch: &mut dyn FnMut(CompareEvent<'_>),
) -> Result<Vec<Run>, CompareError> {
    if options.warm_up_documents > 0 {
        watch(CompareEvent::Note("warming up both ways"));
        for way in Way::order(0) {
            runner.run_round(0, way, options.warm_up_documents, &mut |_| ())?;
        }
    }
    let mut runs = Vec::new();
    for round in 0..options.rounds {
        for way in Way::order(round) {
            runs.extend(runner.run_round(round + 1, way, options.documents, watch)?);
        }
    }
    Ok(runs)
}
