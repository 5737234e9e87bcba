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
    pub(super) lane: u32,
    /// Whether the lane's batch is committed, so that its operations are parked for certain.
    pub(super) is_committed: bool,
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

    /// Whether there are any for whose indices requests go apart.
    pub(crate) fn are_any(&self) -> bool {
        self.kept.borrow().iter().any(|kept| !kept.indices.is_empty())
    }

    /// Returns once there are none.
    pub(crate) async fn landed(&self) {
        self.none_left(|_| true).await;
    }

    /// Returns once there are none of a lane's batch that is not committed.
    pub(super) async fn landed_of_batch(&self, lane: u32) {
        self.none_left(|kept| kept.lane == lane && !kept.is_committed)
            .await;
    }

    async fn none_left(&self, is_meant: impl Fn(&Kept) -> bool) {
        loop {
            let ended = self.ended.notified();
            if !self.kept.borrow().iter().any(&is_meant) {
                return;
            }
            ended.await;
        }
    }

    /// Records that the batch of a lane is committed.
    pub(super) fn committed(&self, lane: u32) {
        let mut kept = self.kept.borrow_mut();
        let of_it = kept.iter_mut().filter(|kept| kept.lane == lane);
        of_it.for_each(|kept| kept.is_committed = true);
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
        self.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lane_waits_for_the_requests_of_its_batch_that_is_not_committed() {
        let flights = Flights::default();
        let add = |lane| {
            let flight = Arc::new(Flight::default());
            flights.add(Kept {
                flight: Arc::clone(&flight),
                lane,
                is_committed: false,
                sent: Instant::now(),
                indices: BTreeSet::new(),
            });
            flight
        };
        let is_over = async |lane| {
            let waits = flights.landed_of_batch(lane);
            tokio::time::timeout(std::time::Duration::ZERO, waits)
                .await
                .is_ok()
        };
        let before = add(1);
        flights.committed(1);
        let (of_batch, of_other) = (add(1), add(2));
        assert!(!is_over(1).await && is_over(3).await);
        tokio::join!(
            async { flights.landed_of_batch(1).await },
            async { flights.landed().await },
            async {
                for flight in [&of_batch, &of_other, &before] {
                    tokio::task::yield_now().await;
                    flights.remove(flight);
                }
            },
        );
        assert!(is_over(2).await && !flights.are_any());
    }
}
