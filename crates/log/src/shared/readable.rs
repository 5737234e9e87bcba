//! The part of the log that readers may see.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::format::index::{Index, Totals};

/// The part of the log that readers may see: durable records only, unless [`crate::Fsync`] says otherwise.
pub(crate) struct Readable {
    /// The length of each segment's file, as far as readers may see it, by the position of its first byte.
    pub(crate) segments: BTreeMap<u64, u64>,
    /// The segment that is being written, if there is one; it is then the last.
    pub(crate) active: Option<u64>,
    /// The index of the active segment.
    pub(crate) index: Index,
    pub(crate) end: u64,
    pub(crate) totals: Totals,
    pub(crate) syncs: u64,
    /// The tasks that wait for records in each lane.
    pub(crate) wakers: Vec<Vec<Waker>>,
}

// === impl Readable ===

impl Readable {
    /// Returns the segment that holds a position, or else the next one.
    pub(crate) fn segment_at(&self, position: u64) -> Option<u64> {
        let at_or_before = self.segments.range(..=position).next_back();
        let holds = at_or_before
            .filter(|(first, bytes)| position < **first + **bytes || self.active == Some(**first));
        holds
            .or_else(|| self.segments.range(position..).next())
            .map(|(first, _)| *first)
    }

    pub(crate) fn start(&self) -> u64 {
        self.segments.keys().next().copied().unwrap_or(self.end)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.segments.values().sum()
    }
}
