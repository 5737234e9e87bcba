//! Parked operations that were refused for good, and whose dead letters the disk does not take: they are not
//! sent again while they wait for it. After a restart they are sent once more.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::delivery::server_error::Error;

/// A parked operation: the number of its entry, and its number there.
pub(crate) type Id = (u64, u32);

/// The refusals of one group. Bounded: an operation whose refusal finds no room is sent again.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    refused: HashMap<Id, Refusal>,
    bytes: usize,
}

#[derive(Debug)]
struct Refusal {
    error: Arc<Error>,
    bytes: usize,
    /// When somebody last asked for it.
    asked: Instant,
}

// === impl Unwritten ===

impl Unwritten {
    /// Returns the refusal of an operation, if it is known.
    pub(crate) fn of(&mut self, id: Id, now: Instant) -> Option<Arc<Error>> {
        let refusal = self.refused.get_mut(&id)?;
        refusal.asked = now;
        Some(Arc::clone(&refusal.error))
    }

    /// Remembers the beginning of a refusal.
    pub(crate) fn keep(&mut self, id: Id, error: &Error, now: Instant) {
        self.forget(id);
        let error = Error::from(error.in_short());
        let bytes = size_of::<(Id, Refusal, Error)>() + error.kind.len() + error.reason.len();
        if self.bytes + bytes > BYTES_MAX {
            self.forget_strangers(now);
        }
        if self.bytes + bytes <= BYTES_MAX {
            self.bytes += bytes;
            let refusal = Refusal {
                error: Arc::new(error),
                bytes,
                asked: now,
            };
            self.refused.insert(id, refusal);
        }
    }

    /// Forgets an operation that is among the dead letters.
    pub(crate) fn forget(&mut self, id: Id) {
        if let Some(refusal) = self.refused.remove(&id) {
            self.bytes -= refusal.bytes;
        }
    }

    /// Forgets operations that nobody has asked about for long: another gateway has their lanes.
    fn forget_strangers(&mut self, now: Instant) {
        let lately = |one: &Refusal| now.saturating_duration_since(one.asked) < ASKED_WITHIN;
        self.refused.retain(|_, one| lately(one));
        self.bytes = self.refused.values().map(|one| one.bytes).sum();
    }
}

/// The memory for all of them.
const BYTES_MAX: usize = 256 << 10;
/// A key that waits for the disk comes to its next try in less than this.
const ASKED_WITHIN: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(reason: String) -> Error {
        Error {
            status: 400,
            kind: "mapper_parsing_exception".to_owned(),
            reason,
        }
    }

    #[test]
    fn refusals_are_bounded_and_those_that_nobody_asks_about_make_room() {
        let (mut unwritten, now) = (Unwritten::default(), Instant::now());
        for number in 0..10_000 {
            let error = refused(format!("{number}{}", "x".repeat(100_000)));
            unwritten.keep((number, 0), &error, now);
        }
        let kept = unwritten.refused.len();
        assert!(
            (200..300).contains(&kept) && unwritten.bytes <= BYTES_MAX,
            "{kept}"
        );
        assert!(unwritten.of((9_999, 0), now).is_none());

        let later = now + ASKED_WITHIN;
        let first = unwritten.of((0, 0), later);
        assert!(first.is_some_and(|error| error.reason.starts_with("0x") && error.reason.len() < 2_000));
        unwritten.keep((9_999, 0), &refused("y".repeat(100_000)), later);
        assert!(unwritten.of((9_999, 0), later).is_some());
        assert_eq!(
            unwritten.refused.len(),
            2,
            "the one that was asked about, and the last"
        );
        for number in [0, 9_999] {
            unwritten.forget((number, 0));
        }
        assert_eq!((unwritten.refused.len(), unwritten.bytes), (0, 0));
    }
}
