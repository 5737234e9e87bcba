//! Compares writing to a cluster directly with writing to it through a gateway.
//!
//! Each round writes the same documents both ways, each way into an index of its own. The way that goes first
//! alternates (A B, B A, A B, …), so that a drift affects both. If documents have ids, the same documents are
//! then written once more, as updates. A run's time ends when the index *counts* the documents, not when they
//! were acknowledged (that time is reported too), and every item of every answer is checked. From the paired
//! differences of the rounds, the report computes what the gateway changes, with the 95 % confidence
//! interval, and says so if the change is within the noise.

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
pub use self::estimate::{ChangeVerdict, RelativeChange};
pub use self::event::CompareEvent;
pub use self::options::{CompareOptions, Phase, Way};
pub use self::outcome::{Averages, Compared, PhaseOutcome, Run};
use self::run::Runner;
use self::servers::Servers;
use crate::engine::Stop;

/// Compares the two ways. Indices that were made are removed in any case, unless they are to be kept.
///
/// # Errors
/// If nothing can be compared. The outcome says what was wrong with single runs.
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
