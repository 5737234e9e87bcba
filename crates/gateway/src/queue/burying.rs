//! Between a parked operation's dead letter and the moment from which it counts as one.

use std::collections::BTreeSet;
use std::sync::Mutex;

use wire::lock;

/// Parked operations of a group whose letters are put and that count as parked still: their lanes have long
/// come past them, so nothing else tells that these letters do not count yet. An operation by its record
/// there and its number in it, as the letter's cause says.
#[derive(Debug, Default)]
pub(crate) struct Burying(Mutex<BTreeSet<(u64, u32)>>);

impl Burying {
    /// Letters of these are about to be put.
    pub(crate) fn begin(&self, operations: impl IntoIterator<Item = (u64, u32)>) {
        lock(&self.0).extend(operations);
    }

    /// These count as dead now, or were not put.
    pub(crate) fn end(&self, operations: impl IntoIterator<Item = (u64, u32)>) {
        let mut burying = lock(&self.0);
        for operation in operations {
            burying.remove(&operation);
        }
    }

    /// Whether this is one of them.
    pub(crate) fn has(&self, operation: (u64, u32)) -> bool {
        lock(&self.0).contains(&operation)
    }
}
