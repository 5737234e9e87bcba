//! The requests under way for which no lane waits ([`super::late`]), and the indices for which they may be
//! kept.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Notify;

use crate::queue::parked::Flight;

/// The requests under way for which no lane waits.
#[derive(Default)]
pub(crate) struct Flights {
    kept: RefCell<Vec<Kept>>,
    /// Told whenever one of them has ended.
    ended: Notify,
}

/// A request that a node keeps.
pub(super) struct Kept {
    pub(super) flight: Arc<Flight>,
    pub(super) sent: Instant,
    /// The indices of its operations, unless they are known not to be why.
    pub(super) indices: BTreeSet<String>,
}

// === impl Flights ===

impl Flights {
    /// Returns how many there are.
    pub(super) fn count(&self) -> usize {
        self.kept.borrow().len()
    }

    pub(super) fn add(&self, kept: Kept) {
        self.kept.borrow_mut().push(kept);
    }

    pub(crate) fn are_any(&self) -> bool {
        !self.kept.borrow().is_empty()
    }

    /// Returns once there are none.
    pub(crate) async fn landed(&self) {
        while self.are_any() {
            self.ended.notified().await;
        }
    }

    /// Records that an index is not to blame for any of them.
    pub(crate) fn acquit(&self, index: &str) {
        for kept in self.kept.borrow_mut().iter_mut() {
            kept.indices.remove(index);
        }
    }

    /// Returns when the first request was sent that may be kept for any of these indices.
    pub(super) fn suspects(&self, indices: &BTreeSet<String>) -> Option<Instant> {
        let kept = self.kept.borrow();
        let of_them = kept.iter().filter(|kept| !kept.indices.is_disjoint(indices));
        of_them.map(|kept| kept.sent).min()
    }

    pub(super) fn suspects_one(&self, index: &str) -> bool {
        self.kept.borrow().iter().any(|kept| kept.indices.contains(index))
    }

    pub(super) fn remove(&self, flight: &Arc<Flight>) {
        self.kept.borrow_mut().retain(|kept| kept.flight != *flight);
        self.ended.notify_one();
    }
}
