//! Events of a comparison.

use super::options::{Phase, Way};
use super::outcome::Run;
use crate::progress::Progress;

/// Something that happens while a comparison runs.
#[derive(Debug)]
pub enum CompareEvent<'e> {
    /// Something worth a line.
    Note(&'e str),
    /// A run begins.
    Begun {
        /// The round, from 1; 0 is the warm-up.
        round: u32,
        /// The way that the documents go.
        way: Way,
        /// The kind of documents that are written.
        phase: Phase,
    },
    /// A second of a run has passed.
    Sending(&'e Progress),
    /// All documents were acknowledged, and the index counts this many.
    Counting(u64),
    /// A run is over.
    Ended(&'e Run),
}
