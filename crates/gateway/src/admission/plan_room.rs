//! How many large bulks for a queue are planned at once. A plan, and the items of the answer that are made
//! with it, take nearly as much as a body of short documents, and bodies come in by their own memory alone.
//! Once its record is made, a bulk needs its plan no more; so those that come together plan in turn.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use wire::{Budget, OverBudget};

use crate::turns::AT_ONCE_BYTES;

/// Room for the plans of large bodies.
#[derive(Debug)]
pub(crate) struct PlanRoom(Arc<Semaphore>);

/// The right to have a plan, until this is dropped.
#[derive(Debug)]
pub(crate) struct PlanTurn {
    _permit: Option<OwnedSemaphorePermit>,
}

// === impl PlanRoom ===

impl PlanRoom {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(PLANNED_BYTES_MAX)))
    }

    /// Returns whether a body of so many bytes may have to wait.
    pub(crate) fn is_limited(bytes: usize) -> bool {
        bytes > AT_ONCE_BYTES / ITEMS_TIMES_MAX
    }

    /// Waits until a body of so many bytes may be planned, whose answer has about as many bytes as `items`
    /// returns. Small ones never wait: they are planned and copied in one go. One that is larger than all
    /// that there is goes alone. If the memory for bodies and answers is used up, it also waits for that: the
    /// answer to a body of short documents is many times its size.
    ///
    /// # Errors
    /// Fails if neither memory nor its turn comes in time. Nothing was accepted.
    pub(crate) async fn enter(
        &self,
        bytes: usize,
        items: impl FnOnce() -> usize,
        budget: &Budget,
    ) -> Result<PlanTurn, OverBudget> {
        self.enter_within(TURN_WITHIN, bytes, items, budget).await
    }

    async fn enter_within(
        &self,
        within: Duration,
        bytes: usize,
        items: impl FnOnce() -> usize,
        budget: &Budget,
    ) -> Result<PlanTurn, OverBudget> {
        if !Self::is_limited(bytes) {
            return Ok(PlanTurn { _permit: None });
        }
        let bytes = bytes.max(items());
        if bytes <= AT_ONCE_BYTES {
            return Ok(PlanTurn { _permit: None });
        }
        budget.until_not_used_up(bytes, within.min(ROOM_WITHIN)).await?;
        let until = Instant::now() + within;
        let permits = u32::try_from(bytes.min(PLANNED_BYTES_MAX)).unwrap_or(u32::MAX);
        let permit = timeout_at(until, Arc::clone(&self.0).acquire_many_owned(permits)).await;
        // Nobody closes it.
        let Ok(Ok(permit)) = permit else {
            return Err(OverBudget {
                wanted: bytes,
                used: budget.used(),
                limit: budget.limit(),
            });
        };
        // Others that waited at the same time have taken it, perhaps.
        budget.until_not_used_up(bytes, within.min(ROOM_WITHIN)).await?;
        Ok(PlanTurn {
            _permit: Some(permit),
        })
    }
}

/// How long a large body waits for memory for its answer.
const ROOM_WITHIN: Duration = Duration::from_secs(5);

/// How long a large body waits for its turn. Others keep theirs while the cluster is asked for their rights,
/// which a node that hangs draws out.
const TURN_WITHIN: Duration = Duration::from_secs(20);

/// The items of an answer have fewer than this many times the bytes of the lines that they answer.
const ITEMS_TIMES_MAX: usize = 16;

/// Bytes of large bodies, or of their answers, that are planned at once. A core plans one at a time, so this
/// keeps many cores busy.
const PLANNED_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[tokio::test]
    async fn a_body_whose_turn_does_not_come_is_refused_in_time() {
        let (room, budget) = (PlanRoom::new(), Budget::new(1 << 20));
        let enter = |bytes| room.enter_within(Duration::from_millis(30), bytes, || 0, &budget);
        let held = enter(PLANNED_BYTES_MAX).await.unwrap();
        let began = Instant::now();
        assert!(enter(PLANNED_BYTES_MAX / 2).await.is_err());
        assert!(began.elapsed() >= Duration::from_millis(30));
        drop(held);
        assert!(enter(PLANNED_BYTES_MAX / 2).await.is_ok());
    }

    #[tokio::test]
    async fn large_bodies_wait_for_one_another_the_largest_goes_alone_and_small_ones_go_at_once() {
        let (room, budget) = (PlanRoom::new(), Budget::new(1 << 20));
        let now = |bytes| match pin!(room.enter(bytes, || 0, &budget))
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(turn) => turn.ok(),
            Poll::Pending => None,
        };
        let third = PLANNED_BYTES_MAX / 3;
        let held: Vec<_> = (0..3).filter_map(|_| now(third)).collect();
        assert_eq!(held.len(), 3);
        assert!(now(third).is_none() && now(AT_ONCE_BYTES).is_some());
        drop(held);
        let largest = now(100 * PLANNED_BYTES_MAX);
        assert!(largest.is_some() && now(third).is_none());
        drop(largest);
        assert!(now(third).is_some());
    }
}
