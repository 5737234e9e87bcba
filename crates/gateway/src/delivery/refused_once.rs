//! Requests with one operation that a node has refused once in its own words. Such a request may have been
//! damaged on the way, so the operation is sent once more before it dies.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};

use crate::delivery::server_error::Error;

/// The latest of such refusals, of one queue and consumer group.
#[derive(Default)]
pub(crate) struct RefusedOnce {
    latest: RefCell<VecDeque<u64>>,
    hasher: RandomState,
}

// === impl RefusedOnce ===

impl RefusedOnce {
    /// Returns whether this operation has been refused in this way before, which is then forgotten; otherwise
    /// it is remembered. Reasons are not compared, since they may quote what differs from try to try.
    pub(super) fn again(&self, operation: &[u8], error: &Error) -> bool {
        if self.forget(operation, error) {
            return true;
        }
        let mut latest = self.latest.borrow_mut();
        if latest.len() == KEPT {
            latest.pop_front();
        }
        latest.push_back(self.seen(operation, error));
        false
    }

    /// Forgets that this operation has been refused in this way; returns whether it was known.
    pub(super) fn forget(&self, operation: &[u8], error: &Error) -> bool {
        let seen = self.seen(operation, error);
        let mut latest = self.latest.borrow_mut();
        let at = latest.iter().position(|known| *known == seen);
        at.and_then(|at| latest.remove(at)).is_some()
    }

    fn seen(&self, operation: &[u8], error: &Error) -> u64 {
        self.hasher.hash_one((operation, error.status, &error.kind))
    }
}

/// An operation is sent again at once, so few are remembered at a time.
const KEPT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: u16, kind: &str, reason: &str) -> Error {
        Error {
            status,
            kind: kind.to_owned(),
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn a_refusal_counts_from_the_second_of_its_kind_on() {
        let refused = RefusedOnce::default();
        assert!(!refused.again(b"a", &error(400, "x", "at 1")));
        assert!(
            !refused.again(b"b", &error(400, "x", "at 1")),
            "another operation"
        );
        assert!(!refused.again(b"a", &error(400, "y", "at 1")), "another error");
        assert!(refused.again(b"a", &error(400, "x", "at 2")));
        assert!(!refused.again(b"a", &error(400, "x", "at 2")), "it was forgotten");
        assert!(refused.forget(b"a", &error(400, "x", "")) && !refused.forget(b"a", &error(400, "x", "")));
        for n in 0..KEPT {
            refused.again(&n.to_le_bytes(), &error(400, "x", ""));
        }
        assert!(!refused.again(b"b", &error(400, "x", "")), "few are remembered");
    }
}
