//! What happens while a comparison runs.

use super::options::{Phase, Way};
use super::outcome::Run;
use crate::progress::Progress;

/// Something that happens.
#[derive(Debug)]
pub enum CompareEvent<'e> {
    /// Something worth a line.
    Note(&'e str),
    /// A run begins.
    Begun {
        /// From 1; 0 is the warm-up.
        round: u32,
        /// Which way.
        way: Way,
        /// What is written.
        phase: Phase,
    },
    /// A second of a run has passed.
    Sending(&'e Progress),
    /// All was acknowledged, and the index counts so many.
    Counting(u64),
    /// A run is over.
    Ended(&'e Run),
}
