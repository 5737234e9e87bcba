//! The places of bodies that wait for room.
//!
//! A body that waits has its first bytes in the read buffer of its connection, and no claim on that memory.
//! Nor has a body whose first bytes have not all come. Places bound the sum of such buffers, for all and for
//! each peer, and with it the number of such bodies.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::admission::{AdmissionQueue, FIRST_BYTES, LOOK_EVERY};
use crate::budget::{Budget, OverBudget};
use crate::claim::Claim;
use crate::holder::Holder;
use crate::waiters::Waiter;

/// A place in the queue, left when dropped. A drop also gives back the room that was granted, unless the room
/// is kept.
pub(crate) struct QueuePlace<'a> {
    budget: &'a Budget,
    pub(crate) waiter: Arc<Waiter>,
}

/// A body of which less has come than what room is given for. It counts, until this is dropped, if it stops
/// while memory is in use.
pub(crate) struct Beginning<'a> {
    budget: &'a Budget,
    peer: IpAddr,
    /// The bytes of its read buffer when it was counted.
    counted: Option<usize>,
}

/// The bytes that waiting bodies count for: those of their read buffers, and at least [`FIRST_BYTES`].
#[derive(Debug, Default)]
pub(crate) struct Places {
    all: usize,
    by_peer: HashMap<IpAddr, usize>,
}

/// What the bodies that wait may count for, in bytes.
#[derive(Debug, Clone, Copy)]
struct Most {
    /// All of them. A peer that has a quarter of this or less finds a place up to half as much again, and the
    /// first body of a peer up to twice as much, so that no peer takes the places of others.
    all: usize,
    /// Those of one peer.
    peer: usize,
}

// === impl AdmissionQueue ===

impl AdmissionQueue {
    /// Returns what bodies of `peer` that wait may count for: half of all while there are other peers.
    /// Without them, many clients behind one address are all who want memory.
    fn most_for(&self, budget: &Budget, peer: IpAddr, now: Instant) -> Most {
        let all = budget.limit() / ASIDE_SHARE;
        let peer = if self.others_than(Holder::Address(peer), now) {
            all / 2
        } else {
            all
        };
        Most { all, peer }
    }
}

// === impl QueuePlace ===

impl<'a> QueuePlace<'a> {
    /// Takes a place; `None` if too much memory is taken by bodies that wait.
    pub(crate) fn take(budget: &'a Budget, claim: &Claim, wanted: usize, wait: Duration) -> Option<Self> {
        let (record, since) = (claim.record(), Instant::now());
        let admission = &budget.admission;
        let is_small = budget.is_small((record.held(), wanted));
        let waiter = {
            let mut state = admission.state();
            state.see(record.sender, since);
            let peer = record.sender.address;
            let most = state.most_for(budget, peer, since);
            if !state.places.enter(peer, record.aside(), most) {
                return None;
            }
            admission.aside.fetch_add(record.aside(), Ordering::SeqCst);
            record.wait(true);
            let waiter = state.queue.push(record, (wanted, is_small), (since, wait));
            admission.counts(&state);
            admission.look_at(budget.room_of_use(&state, wanted));
            waiter
        };
        if budget.can_serve() || budget.idle_in_the_way() {
            budget.serve_waiting();
        }
        Some(QueuePlace { budget, waiter })
    }

    /// Returns when the waiter checks which bodies could make room. Where many wait, one in several does so
    /// often, since one check serves them all, and each wake-up costs.
    pub(crate) fn looks_after(&self) -> Duration {
        let every = (self.budget.admission.waiting() / LOOK_TOGETHER).clamp(1, LOOK_APART_MAX);
        match self.waiter.is_one_in(every) {
            true => LOOK_EVERY,
            false => LOOK_EVERY * every as u32,
        }
    }

    /// Passes the room to the caller, with the buffer that is kept for it, if one is.
    pub(crate) fn keep(self) -> Option<Vec<u8>> {
        self.waiter.passes_on();
        let mut state = self.budget.admission.state();
        state.promises.end(self.waiter.wanted)
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let (admission, record) = (&self.budget.admission, &self.waiter.record);
        record.wait(false);
        let mut state = admission.state();
        state.places.leave(record.sender.address, record.aside());
        admission.aside.fetch_sub(record.aside(), Ordering::SeqCst);
        if state.queue.remove(&self.waiter) {
            admission.counts(&state);
            admission.look_again();
        }
        if self.waiter.is_granted() {
            state.take_back(record, self.waiter.wanted);
            admission.let_on(&mut state, record.sender);
            let kept = state.promises.end(self.waiter.wanted);
            drop(state);
            drop(kept);
            self.budget.release(self.waiter.wanted);
        }
    }
}

// === impl Beginning ===

impl<'a> Beginning<'a> {
    pub(crate) fn new(budget: &'a Budget, peer: IpAddr) -> Self {
        Beginning {
            budget,
            peer,
            counted: None,
        }
    }

    /// Notes that no more of the body has come for now, and that its read buffer takes so many bytes.
    ///
    /// # Errors
    /// If too much memory is taken by such bodies, and memory is scarce.
    pub(crate) fn stops(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let (budget, admission) = (self.budget, &self.budget.admission);
        if self.counted.is_some() || bytes == 0 || !budget.is_in_use() {
            return Ok(());
        }
        let entered = {
            let mut state = admission.state();
            let most = state.most_for(budget, self.peer, Instant::now());
            state.places.enter(self.peer, bytes, most)
        };
        if !entered {
            // Many clients may share an address. Nobody is refused for memory that lies idle, or that nobody
            // needs.
            if !budget.is_scarce() || budget.reclaim() > 0 && !budget.is_scarce() {
                return Ok(());
            }
            return Err(OverBudget {
                wanted: bytes,
                used: budget.used(),
                limit: budget.admission_limit(),
            });
        }
        admission.aside.fetch_add(bytes, Ordering::SeqCst);
        self.counted = Some(bytes);
        Ok(())
    }
}

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        if let Some(bytes) = self.counted {
            let admission = &self.budget.admission;
            admission.state().places.leave(self.peer, bytes);
            admission.aside.fetch_sub(bytes, Ordering::SeqCst);
        }
    }
}

// === impl Places ===

impl Places {
    /// Notes that a body begins to wait, and returns whether it may.
    fn enter(&mut self, peer: IpAddr, bytes: usize, most: Most) -> bool {
        let bytes = bytes.max(FIRST_BYTES);
        let own = self.by_peer.get(&peer).copied().unwrap_or_default();
        let all_most = match own {
            0 => 2 * most.all,
            own if own + bytes <= most.all / 4 => most.all / 2 * 3,
            own if own + bytes <= most.peer => most.all,
            _ => 0,
        };
        let may = self.all + bytes <= all_most;
        if may {
            self.all += bytes;
            self.by_peer.insert(peer, own + bytes);
        }
        may
    }

    /// Notes that a body waits no longer.
    fn leave(&mut self, peer: IpAddr, bytes: usize) {
        let bytes = bytes.max(FIRST_BYTES);
        self.all -= bytes;
        if let Some(own) = self.by_peer.get_mut(&peer) {
            *own -= bytes;
            if *own == 0 {
                self.by_peer.remove(&peer);
            }
        }
    }
}

/// The part of the whole budget that waiting bodies may count for: an eighth.
const ASIDE_SHARE: usize = 8;
/// So many waiters look often, however many there are, or one in [`LOOK_APART_MAX`].
const LOOK_TOGETHER: usize = 8;
/// The most times [`LOOK_EVERY`] that a waiter goes without looking.
const LOOK_APART_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::UNFIT_MAX;
    use crate::holder::Sender;

    const MIB: usize = 1 << 20;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    fn sender(last: u8) -> Sender {
        Sender::unknown(peer(last))
    }

    async fn wait(budget: &Arc<Budget>, claim: &Claim, bytes: usize, seconds: u64) -> bool {
        let wait = Duration::from_secs(seconds);
        budget.wait_for_room(claim, bytes, wait).await.is_ok()
    }

    #[test]
    fn beginnings_of_one_peer_are_bounded_while_memory_is_scarce_and_not_counted_while_it_is_free() {
        let budget = Arc::new(Budget::new(64 * MIB)); // 48 for bodies, 8 for read buffers
        let mut begun: Vec<_> = (0..1_000).map(|_| Beginning::new(&budget, peer(1))).collect();
        assert!(begun.iter_mut().all(|one| one.stops(10_000).is_ok()));
        assert_eq!(budget.aside(), 0, "nobody needs the memory");
        budget.charge(20 * MIB);
        let mut stop = || begun.iter_mut().filter_map(|one| one.stops(10_000).ok()).count();
        assert_eq!(
            (stop(), budget.aside()),
            (1_000, 512 * 10_000),
            "it is not scarce"
        );
        budget.charge(20 * MIB);
        assert_eq!((stop(), budget.aside()), (512, 512 * 10_000), "each counts once");
        assert!(Beginning::new(&budget, peer(2)).stops(10_000).is_ok());
        drop(begun);
        assert_eq!(budget.aside(), 0);
        assert_eq!(budget.admission.state().places.all, 0);
    }

    /// Waiters that must not make a release dearer: of a peer that holds its share, and of others for whom
    /// there is no room.
    #[tokio::test]
    async fn a_release_looks_at_a_bounded_number_of_waiters_however_many_there_are() {
        let looks = [300, 3_000, 30_000].map(|many| {
            let budget = Arc::new(Budget::new(8 << 30)); // 6 GiB for bodies
            let holders: Vec<Claim> = [1, 2]
                .map(|last| Claim::begin(&budget, sender(last)))
                .into_iter()
                .collect();
            for holder in &holders {
                let room = budget.room_now(holder, 2_700 * MIB, || None::<()>);
                assert!(room.is_some());
            }
            let claims: Vec<Claim> = (0..many)
                .map(|n| Claim::begin(&budget, sender(1 + (n % 8) as u8)))
                .collect();
            let minute = Duration::from_secs(60);
            let waiting = claims
                .iter()
                .map(|claim| QueuePlace::take(&budget, claim, 400 * MIB, minute).expect("a place"));
            let waiting: Vec<_> = waiting.collect();
            assert_eq!(budget.admission.waiting(), many);
            let looked_at = || budget.admission.counters.looked_at.load(Ordering::Relaxed);
            let before = looked_at();
            for _ in 0..100 {
                // Small enough to help nobody; but the peer that is over its share gives something back.
                holders[0].give_back(1);
                budget.release(1);
            }
            let looked = looked_at() - before;
            drop(waiting);
            assert_eq!((budget.admission.waiting(), budget.aside()), (0, 0));
            looked
        });
        assert!(
            looks.iter().all(|looked| *looked <= 100 * 2 * UNFIT_MAX as u64),
            "{looks:?}"
        );
    }

    #[tokio::test]
    async fn nobody_is_looked_at_while_there_is_too_little_room_for_anybody() {
        let budget = Arc::new(Budget::new(64 * MIB)); // 48 for bodies, 3 of it for small ones
        let holder = Claim::begin(&budget, sender(1));
        assert!(wait(&budget, &holder, 40 * MIB, 1).await);
        let looked_at = || budget.admission.counters.looked_at.load(Ordering::Relaxed);
        let before = looked_at();
        let claims: Vec<Claim> = (0..200).map(|n| Claim::begin(&budget, sender(n + 2))).collect();
        let minute = Duration::from_secs(60);
        let waiting = claims
            .iter()
            .map(|claim| QueuePlace::take(&budget, claim, 9 * MIB, minute));
        let waiting: Vec<_> = waiting.map(|place| place.expect("a place")).collect();
        for bytes in [1, 5 * MIB - 1, 7 * MIB] {
            holder.give_back(bytes);
            budget.release(bytes);
        }
        let granted = waiting.iter().filter(|place| place.waiter.is_granted()).count();
        assert_eq!(
            (granted, looked_at() - before),
            (1, 1),
            "17 MiB are free at the end"
        );
    }

    #[tokio::test]
    async fn a_peer_waits_with_a_bounded_number_of_bodies_and_takes_no_place_from_another() {
        let budget = Arc::new(Budget::new(64 * MIB)); // 48 for bodies, 8 for the read buffers of those that wait
        let holder = Claim::begin(&budget, sender(9));
        assert!(wait(&budget, &holder, 40 * MIB, 1).await);
        let minute = Duration::from_secs(60);
        let claims: Vec<Claim> = (0..3_000).map(|_| Claim::begin(&budget, sender(1))).collect();
        let waiting: Vec<_> = claims
            .iter()
            .filter_map(|claim| {
                // Each has a read buffer.
                budget.charge(32 << 10);
                claim.record().set_aside(32 << 10);
                match QueuePlace::take(&budget, claim, 20 * MIB, minute) {
                    None => {
                        budget.forget(32 << 10);
                        None
                    }
                    place => place,
                }
            })
            .collect();
        assert_eq!(waiting.len(), 4 * MIB / (32 << 10), "half of the memory for them");
        let small = Claim::begin(&budget, sender(2));
        assert!(wait(&budget, &small, 200 << 10, 0).await, "its room is there");
        let other = Claim::begin(&budget, sender(3));
        let (served, ()) = tokio::join!(wait(&budget, &other, 20 * MIB, 5), async {
            tokio::task::yield_now().await;
            assert_eq!(budget.admission.waiting(), waiting.len() + 1);
            holder.give_back(40 * MIB);
            budget.release(40 * MIB);
        });
        assert!(served, "the one peer has its share, which is one of these bodies");
    }

    /// Many clients behind one address, and then a few at another.
    #[tokio::test]
    async fn a_peer_that_is_alone_takes_all_places_and_those_who_come_later_find_some() {
        let budget = Arc::new(Budget::new(64 * MIB)); // 48 for bodies, 8 for the read buffers of those that wait
        let holder = Claim::begin(&budget, sender(1));
        assert!(wait(&budget, &holder, 40 * MIB, 1).await);
        let minute = Duration::from_secs(60);
        let claims: Vec<Claim> = (0..1_000).map(|_| Claim::begin(&budget, sender(1))).collect();
        let place = |claim| QueuePlace::take(&budget, claim, 20 * MIB, minute);
        let mut waiting: Vec<_> = claims.iter().filter_map(place).collect();
        assert_eq!(waiting.len(), 8 * MIB / FIRST_BYTES, "all of the memory for them");
        let others: Vec<Claim> = (0..1_000).map(|_| Claim::begin(&budget, sender(2))).collect();
        let came: Vec<_> = others.iter().filter_map(place).collect();
        assert_eq!(came.len(), 2 * MIB / FIRST_BYTES, "a quarter of it");
        waiting.truncate(5 * MIB / FIRST_BYTES);
        let late: Vec<_> = claims.iter().filter_map(place).collect();
        assert_eq!(late.len(), 0, "it is not alone, and has more than half");
    }
}
