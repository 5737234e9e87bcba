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
        let seen = self.hasher.hash_one((operation, error.status, &error.kind));
        let mut latest = self.latest.borrow_mut();
        if let Some(at) = latest.iter().position(|known| *known == seen) {
            latest.remove(at);
            return true;
        }
        if latest.len() == KEPT {
            latest.pop_front();
        }
        latest.push_back(seen);
        false
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
        for n in 0..KEPT {
            refused.again(&n.to_le_bytes(), &error(400, "x", ""));
        }
        assert!(!refused.again(b"b", &error(400, "x", "")), "few are remembered");
    }
}
