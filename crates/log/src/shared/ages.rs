//! How old segments are. What they say themselves is what the clock said that people and daemons set, which
//! is all that there is to go by after a restart. While a log is open its segments age by a clock that nobody
//! sets: one that is set forward by an hour must not make everything an hour older.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::Disk;

/// The ages of the segments of a log.
pub(crate) struct Ages {
    /// When the log was opened: by the clock that is set, and by the one that is not.
    opened_ms: u64,
    opened_elapsed_ms: u64,
    /// When segments were begun since then.
    begun: Mutex<BTreeMap<u64, u64>>,
}

// === impl Ages ===

impl Ages {
    /// Of a log that is opened now.
    pub(crate) fn new(disk: &dyn Disk) -> Self {
        Self {
            opened_ms: disk.now_ms(),
            opened_elapsed_ms: disk.elapsed_ms(),
            begun: Mutex::default(),
        }
    }

    /// A segment is begun.
    pub(crate) fn begun(&self, first: u64, elapsed_ms: u64) {
        self.begun.lock().insert(first, elapsed_ms);
    }

    /// How long ago a segment was begun, whose header says this time. Those before it are not asked about any
    /// more.
    pub(crate) fn of(&self, first: u64, header_ms: u64, elapsed_ms: u64) -> u64 {
        let mut begun = self.begun.lock();
        while begun.first_key_value().is_some_and(|(known, _)| *known < first) {
            begun.pop_first();
        }
        match begun.get(&first) {
            Some(since) => elapsed_ms.saturating_sub(*since),
            None => {
                let before = self.opened_ms.saturating_sub(header_ms);
                before + elapsed_ms.saturating_sub(self.opened_elapsed_ms)
            }
        }
    }
}
