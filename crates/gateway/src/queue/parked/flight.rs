//! A request under way with operations that were parked meanwhile, since its answer takes long.

use std::collections::HashSet;
use std::sync::OnceLock;

/// How far such a request is. Lines with an operation of one that is under way are not tried: two requests
/// with the same operation could be executed in any order.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    /// Whether it is of a try, and not of a lane.
    is_of_try: bool,
    /// What the answer said is done, as soon as the request has ended.
    done: OnceLock<HashSet<FlightOp>>,
}

/// An operation: its lane, the position of its client's request, and its place among those that the request
/// has for the lane.
pub(crate) type FlightOp = (u32, u64, u32);

// === impl Flight ===

impl Flight {
    /// Makes a request of a try: what goes behind its operations is not bounded, and waits in no lane.
    pub(crate) fn of_try() -> Self {
        Self {
            is_of_try: true,
            ..Self::default()
        }
    }

    pub(super) fn is_of_lane(&self) -> bool {
        !self.is_of_try
    }

    /// Records the end of the request, and the operations that are done for certain. The first word counts.
    pub(crate) fn lands(&self, done: HashSet<FlightOp>) {
        let _ = self.done.set(done);
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.done.get().is_none()
    }

    /// Whether the request has ended and has executed the operation.
    pub(crate) fn has_done(&self, operation: FlightOp) -> bool {
        self.done.get().is_some_and(|done| done.contains(&operation))
    }
}

/// Flights are the same only if they are one.
impl PartialEq for Flight {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Flight {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_about_a_flight_counts() {
        let (some, none) = (Flight::default(), Flight::default());
        assert!(some.is_under_way() && !some.has_done((0, 7, 1)));
        some.lands([(0, 7, 1)].into());
        some.lands(HashSet::new());
        assert!(!some.is_under_way() && some.has_done((0, 7, 1)) && !some.has_done((0, 7, 2)));
        none.lands(HashSet::new());
        none.lands([(0, 7, 1)].into());
        assert!(!none.is_under_way() && !none.has_done((0, 7, 1)));
        assert!(some != none && some == some, "each is itself alone");
    }
}
