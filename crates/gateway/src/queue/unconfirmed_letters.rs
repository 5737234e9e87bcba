//! Tracks parked operations from the moment when their dead letters are put to the moment when these count.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// Parked operations of a group whose letters are put while the operations still count as parked: their lanes
/// have long come past them, so nothing else tells that these letters do not count yet. An operation is named
/// by its record in the store and its number in that record, as the letter's cause names it.
#[derive(Debug, Default)]
pub(crate) struct UnconfirmedLetters(Mutex<BTreeSet<(u64, u32)>>);

impl UnconfirmedLetters {
    /// Adds operations whose letters are about to be put.
    pub(crate) fn begin(&self, operations: impl IntoIterator<Item = (u64, u32)>) {
        self.0.lock().extend(operations);
    }

    /// Removes operations that count as dead now, or whose letters were not put.
    pub(crate) fn end(&self, operations: impl IntoIterator<Item = (u64, u32)>) {
        let mut unconfirmed_letters = self.0.lock();
        for operation in operations {
            unconfirmed_letters.remove(&operation);
        }
    }

    /// Whether an operation is one of them.
    pub(crate) fn has(&self, operation: (u64, u32)) -> bool {
        self.0.lock().contains(&operation)
    }
}
