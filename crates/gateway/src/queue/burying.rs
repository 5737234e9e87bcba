//! Between a parked operation's dead letter and the moment from which it counts as one.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// Parked operations of a group whose letters are put and that count as parked still: their lanes have long
/// come past them, so nothing else tells that these letters do not count yet. An operation by its record
/// there and its number in it, as the letter's cause says.
#[derive(Debug, Default)]
pub(crate) struct Burying(Mutex<BTreeSet<(u64, u32)>>);

impl Burying {
    /// Letters of these are about to be put.
    pub(crate) fn begin(&self, operations: impl IntoIterator<Item = (u64, u32)>) {
        self.0.lock().extend(operations);
    }

    /// These count as dead now, or were not put.
    pub(crate) fn end(&self, operations: impl IntoIterator<Item = (u64, u32)>) {
        let mut burying = self.0.lock();
        for operation in operations {
            burying.remove(&operation);
        }
    }

    /// Whether this is one of them.
    pub(crate) fn has(&self, operation: (u64, u32)) -> bool {
        self.0.lock().contains(&operation)
    }
}
