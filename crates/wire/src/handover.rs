//! Buffers on their way from bodies that are done to bodies that have waited for room.
//!
//! While somebody waits for room, the memory of a body that is done is needed at once. Unmapped and mapped
//! anew, each of its pages would have to be cleared before the next body is read into it, which costs more
//! than to read the body. So a buffer that is given back is kept for a body that has been granted room for
//! just such a buffer and has not taken it yet. The room of that body is charged, so what is kept here is
//! never more than what is charged for it.

use std::collections::HashMap;

/// The promises that have not been kept yet, by the bytes that were promised.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    by_bytes: HashMap<usize, Promised>,
}

/// Promises of one size.
#[derive(Debug, Default)]
struct Promised {
    /// The bodies that have been granted so many bytes and do not have them yet.
    bodies: usize,
    /// Buffers of that size for them, no more than there are bodies.
    buffers: Vec<Vec<u8>>,
}

// === impl Promises ===

impl Promises {
    /// Notes that a body is granted so many bytes.
    pub(crate) fn give(&mut self, bytes: usize) {
        self.by_bytes.entry(bytes).or_default().bodies += 1;
    }

    /// Keeps a buffer for a body that has been granted as much; gives it back if there is none.
    pub(crate) fn offer(&mut self, buffer: Vec<u8>) -> Option<Vec<u8>> {
        match self.by_bytes.get_mut(&buffer.capacity()) {
            Some(promised) if promised.buffers.len() < promised.bodies => {
                promised.buffers.push(buffer);
                None
            }
            _ => Some(buffer),
        }
    }

    /// The bodies that have been granted room and have not taken it, and the buffers that are kept for them.
    #[cfg(test)]
    fn open(&self) -> (usize, usize) {
        let all = self.by_bytes.values();
        all.fold((0, 0), |(bodies, buffers), one| {
            (bodies + one.bodies, buffers + one.buffers.len())
        })
    }

    /// Notes that a body takes the bytes that it was granted, or goes without them; returns the buffer that
    /// is kept for it, if one is.
    pub(crate) fn end(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let promised = self.by_bytes.get_mut(&bytes)?;
        let buffer = promised.buffers.pop();
        promised.bodies -= 1;
        if promised.bodies == 0 {
            self.by_bytes.remove(&bytes);
        }
        buffer
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::Poll;
    use std::time::Duration;

    use super::*;
    use crate::budget::Budget;
    use crate::claim::Claim;
    use crate::holder::Sender;
    use crate::pool::{Buffer, Pool};

    const MIB: usize = 1 << 20;

    /// A pool with room for 48 MiB of bodies, and a body that has nearly all of it.
    async fn full() -> (Pool, Buffer) {
        let pool = Pool::new(Arc::new(Budget::new(64 * MIB)));
        let first = admitted(&pool, 40 * MIB).await;
        (pool, first)
    }

    async fn admitted(pool: &Pool, bytes: usize) -> Buffer {
        let claim = Claim::begin(pool.budget(), Sender::unknown([127, 0, 0, 1].into()));
        let admitted = pool.admit(bytes, &claim, Duration::from_secs(60)).await;
        let mut body = pool.take(0);
        body.move_to(admitted.expect("there is time enough"), Some(claim));
        pool.tick(0); // frees what the body has moved from
        body
    }

    fn open(pool: &Pool) -> (usize, usize) {
        pool.budget().admission.state().promises.open()
    }

    /// Lets the other tasks run until so many bodies wait.
    async fn until_wait(pool: &Pool, bodies: usize) {
        while pool.budget().admission.waiting() != bodies {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn no_body_gets_idle_memory_while_more_is_in_use_than_bodies_may_have() {
        let (pool, first) = full().await;
        let budget = pool.budget();
        let claim = Claim::begin(budget, Sender::unknown([127, 0, 0, 1].into()));
        drop(first);
        budget.charge(24 * MIB); // what delivery has, and copies for a log
        let admitted = pool.admit(40 * MIB, &claim, Duration::ZERO).await;
        assert!(admitted.is_err(), "{} bytes are used", budget.used());
        assert_eq!((budget.used(), pool.idle_bytes()), (24 * MIB, 0));
        budget.release(20 * MIB);
        assert!(pool.admit(40 * MIB, &claim, Duration::ZERO).await.is_ok());
    }

    #[tokio::test]
    async fn a_body_that_waits_gets_the_buffer_of_one_that_is_done_on_whatever_core() {
        let (pool, first) = full().await;
        let elsewhere = Pool::new(Arc::clone(pool.budget()));
        let body = admitted(&pool, 5 * MIB).await;
        let address = body.as_ptr();
        let (second, third, ()) =
            tokio::join!(admitted(&elsewhere, 5 * MIB), admitted(&pool, 40 * MIB), async {
                until_wait(&pool, 2).await;
                drop(body);
                assert_eq!(open(&pool), (1, 1));
                assert_eq!(
                    pool.budget().used(),
                    45 * MIB,
                    "nothing is kept beside what is charged"
                );
                drop(first);
                assert_eq!(open(&pool), (2, 2));
            });
        assert_eq!(second.as_ptr(), address);
        assert_eq!(open(&pool), (0, 0));
        drop((second, third));
        assert_eq!(pool.idle_bytes() + elsewhere.idle_bytes(), pool.budget().used());
    }

    #[tokio::test]
    async fn a_body_that_goes_before_it_takes_its_buffer_leaves_nothing() {
        let (pool, first) = full().await;
        let body = admitted(&pool, 5 * MIB).await;
        {
            let mut second = pin!(admitted(&pool, 5 * MIB));
            let is_pending = poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_pending())).await;
            assert!(is_pending, "there is no room");
            drop(body);
            assert_eq!(open(&pool), (1, 1));
        }
        assert_eq!(open(&pool), (0, 0));
        drop(first);
        assert_eq!(pool.idle_bytes(), pool.budget().used());
    }

    #[tokio::test]
    async fn a_buffer_whose_room_goes_to_other_work_is_kept_for_the_body_that_waits() {
        let (pool, first) = full().await;
        let body = admitted(&pool, 5 * MIB).await;
        let address = body.as_ptr();
        let (second, ()) = tokio::join!(admitted(&pool, 5 * MIB), async {
            until_wait(&pool, 1).await;
            let chunks: Vec<_> = (0..16).map(|_| pool.take(256 << 10)).collect();
            drop(body);
            assert_eq!((open(&pool), pool.idle_bytes()), ((0, 0), 5 * MIB));
            assert_eq!(pool.budget().used_by_bodies(), 44 * MIB);
            drop(chunks);
        });
        assert_eq!(second.as_ptr(), address);
        assert_eq!(pool.budget().used(), 45 * MIB, "charged once");
        drop((first, second));
        assert_eq!(pool.idle_bytes(), pool.budget().used());
    }

    #[tokio::test]
    async fn what_work_needs_again_stays_while_bodies_wait_and_takes_no_room_from_them() {
        let (pool, first) = full().await;
        let chunks: Vec<_> = (0..36).map(|_| pool.take(256 << 10)).collect();
        let address = chunks[31].as_ptr();
        let (second, ()) = tokio::join!(admitted(&pool, 40 * MIB), async {
            until_wait(&pool, 1).await;
            drop(chunks);
            assert_eq!(pool.idle_bytes(), 8 * MIB, "an eighth of the budget");
            assert_eq!(pool.take(256 << 10).as_ptr(), address, "and is taken again");
            assert_eq!(pool.budget().used_by_bodies(), 40 * MIB);
            pool.tick(5);
            assert_eq!(pool.idle_bytes(), 8 * MIB, "as long as nobody else needs it");
            drop(first);
        });
        assert_eq!(pool.budget().used(), 40 * MIB);
        drop(second);
    }

    #[test]
    fn a_buffer_is_kept_for_a_body_that_was_granted_as_much_and_for_no_other() {
        let mut promises = Promises::default();
        let buffer = |bytes| Vec::with_capacity(bytes);
        assert!(
            promises.offer(buffer(100)).is_some(),
            "nobody was granted anything"
        );
        promises.give(100);
        promises.give(100);
        promises.give(200);
        assert!(promises.offer(buffer(300)).is_some(), "another size");
        assert!(promises.offer(buffer(100)).is_none());
        assert!(promises.offer(buffer(100)).is_none());
        assert!(promises.offer(buffer(100)).is_some(), "each has one");
        assert_eq!(promises.end(100).map(|buffer| buffer.capacity()), Some(100));
        assert_eq!(promises.end(200), None);
        assert!(promises.end(100).is_some());
        assert_eq!(promises.end(100), None);
        assert_eq!(promises.open(), (0, 0));
        assert!(promises.by_bytes.is_empty());
    }
}
