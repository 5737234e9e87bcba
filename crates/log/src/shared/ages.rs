//! The ages of segments. Their headers hold the time of the wall clock, which people and daemons set; after a
//! restart there is nothing else to go by. While a log is open, its segments age by the monotonic clock:
//! setting the wall clock forward by an hour must not make every segment an hour older.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::Disk;

/// The ages of the segments of a log.
pub(crate) struct Ages {
    /// When the log was opened: by the wall clock, and by the monotonic one.
    opened_ms: u64,
    opened_elapsed_ms: u64,
    /// When segments were begun since then.
    begun: Mutex<BTreeMap<u64, u64>>,
}

// === impl Ages ===

impl Ages {
    /// Starts the ages of a log that is opened now.
    pub(crate) fn new(disk: &dyn Disk) -> Self {
        Self {
            opened_ms: disk.now_ms(),
            opened_elapsed_ms: disk.elapsed_ms(),
            begun: Mutex::default(),
        }
    }

    /// Notes that a segment is begun.
    pub(crate) fn begun(&self, first: u64, elapsed_ms: u64) {
        self.begun.lock().insert(first, elapsed_ms);
    }

    /// Returns how long ago a segment with this header time was begun. Segments before it are not asked about
    /// any more.
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
