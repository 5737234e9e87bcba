//! Bodies that only their core knows of.
//!
//! Shares and reserves ([`admission`](crate::admission)) decide who gets memory when there is not enough for
//! all. While so little is in use that they could refuse nobody, the outcome is known without them, and cores
//! need not know of one another's bodies. A body that begins then is noted by its core alone, and takes
//! nothing that other cores write. Whoever needs the exact state afterwards ([`Admission::state`]) first
//! enters these bodies into it. From then on, they are like all others.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use crate::admission::{Admission, AdmissionQueue, Latest};
use crate::budget::Budget;
use crate::claim::{BodyRecord, Claim};
use crate::holder::Sender;

/// What one core knows of its bodies, and no other core.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct OwnBodies {
    /// Whether a body has begun since the last time that all was entered into the common state.
    has_news: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Debug)]
pub(crate) struct Known {
    next_id: u64,
    bodies: HashMap<u64, Arc<BodyRecord>>,
    latest: Latest,
}

// === impl OwnBodies ===

impl OwnBodies {
    /// Makes an empty list. `place` is another number for each.
    pub(crate) fn new(place: usize) -> Arc<Self> {
        Arc::new(Self {
            has_news: AtomicBool::new(false),
            known: Mutex::new(Known {
                next_id: (place as u64 + 1) << IDS_BITS,
                bodies: HashMap::new(),
                latest: Latest::default(),
            }),
        })
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    fn begin(self: &Arc<Self>, sender: Sender) -> Arc<BodyRecord> {
        let mut known = self.known();
        known.next_id += 1;
        let record = Arc::new(BodyRecord::new(known.next_id, sender, Some(Arc::clone(self))));
        known.bodies.insert(record.id, Arc::clone(&record));
        // Not written again and again: whoever enters all of it reads this for each core.
        if !self.has_news.load(Ordering::SeqCst) {
            self.has_news.store(true, Ordering::SeqCst);
        }
        record
    }

    /// Enters all bodies into the common state.
    fn enter_into(&self, state: &mut AdmissionQueue) {
        if !self.has_news.load(Ordering::SeqCst) {
            return;
        }
        let mut known = self.known();
        self.has_news.store(false, Ordering::SeqCst);
        for (_, record) in known.bodies.drain() {
            record.is_common();
            state.enter(record);
        }
        state.latest.add(std::mem::take(&mut known.latest));
    }
}

// === impl Known ===

impl Known {
    pub(crate) fn forget(&mut self, record: &BodyRecord) {
        self.bodies.remove(&record.id);
    }
}

// === impl Admission ===

impl Admission {
    /// Enters the bodies that only their cores know into the common state.
    pub(super) fn enter_own(&self, state: &mut AdmissionQueue) {
        for own in self.own.all() {
            own.enter_into(state);
        }
    }
}

// === impl Budget ===

impl Budget {
    /// Begins a body that holds nothing yet.
    pub(crate) fn begin_body(&self, sender: Sender) -> Arc<BodyRecord> {
        match self.has_plenty(0) {
            true => self.admission.own.own_or(OwnBodies::new).begin(sender),
            false => self.admission.state().begin(sender),
        }
    }

    /// Like [`Budget::room_now`], for a body that only its core knows; `None` if others have to be asked.
    pub(crate) fn own_room<T>(
        &self,
        record: &BodyRecord,
        bytes: usize,
        take: impl Fn() -> Option<T>,
    ) -> Option<Option<T>> {
        let room = |known: &mut Known| {
            known.latest.see(record.sender, Instant::now());
            if bytes > self.plenty() || !self.has_plenty(0) {
                return None;
            }
            let taken = take();
            if taken.is_none() {
                if !self.has_plenty(bytes) {
                    return None;
                }
                self.try_charge(bytes, self.plenty()).ok()?;
            }
            if self.is_small((record.held(), bytes)) {
                record.add_small(bytes);
            }
            record.add_held(bytes);
            Some(taken)
        };
        record.if_own(room)?
    }

    /// Returns how much may be in use before anything else has to be known: nobody's share is less than this,
    /// and it leaves the reserve of small bodies alone.
    fn plenty(&self) -> usize {
        self.peer_share().min(self.unreserved())
    }

    /// Returns whether a body that wants `bytes` more gets them whoever sends it. What all bodies hold is
    /// part of what is in use, so no peer can have more than that.
    fn has_plenty(&self, bytes: usize) -> bool {
        !self.somebody_waits() && self.used() + bytes <= self.plenty()
    }
}

impl Claim {
    /// Returns whether only this core knows of the body.
    #[cfg(test)]
    pub(crate) fn is_own(&self) -> bool {
        self.record().if_own(|_| ()).is_some()
    }
}

/// Ids of bodies that begin in the common state have no more bits.
const IDS_BITS: u32 = 48;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;
    use crate::holder::{Holder, Principal};
    use crate::pool::Pool;
    use crate::shared;

    const MIB: usize = 1 << 20;

    fn sender(last: u8) -> Sender {
        Sender {
            address: IpAddr::from([127, 0, 0, last]),
            principal: Principal::User(last.into()),
        }
    }

    fn room(budget: &Budget, claim: &Claim, bytes: usize) -> bool {
        budget.room_now(claim, bytes, || None::<()>).is_some()
    }

    fn touched() -> u64 {
        let touched = shared::by_this_thread();
        touched.get("room for bodies").copied().unwrap_or_default()
    }

    #[test]
    fn while_there_is_plenty_of_memory_bodies_come_and_go_without_a_look_at_the_common_state() {
        let budget = Arc::new(Budget::new(64 * MIB)); // 48 for bodies, half of it for one peer
        let before = touched();
        for round in 0..100 {
            let claims: Vec<Claim> = (0..4).map(|n| Claim::begin(&budget, sender(n))).collect();
            for claim in &claims {
                claim.arrives();
                assert!(room(&budget, claim, 5 * MIB), "round {round}");
                claim.give_back(MIB);
                claim.has_arrived();
            }
            drop(claims);
            budget.release(20 * MIB);
        }
        assert_eq!((touched(), budget.used()), (before, 0));
        assert!(budget.admission.state().is_empty());
    }

    #[test]
    fn a_body_counts_no_reference_that_other_cores_count() {
        let pool = Pool::new(Arc::new(Budget::new(64 * MIB)));
        let before = (
            Arc::strong_count(pool.budget()),
            Arc::strong_count(pool.own_budget()),
        );
        let claim = Claim::begin_in(&pool, sender(1));
        let meanwhile = (
            Arc::strong_count(pool.budget()),
            Arc::strong_count(pool.own_budget()),
        );
        assert_eq!((meanwhile.0, meanwhile.1), (before.0, before.1 + 1));
        drop(claim);
    }

    #[test]
    fn bodies_of_other_cores_count_as_soon_as_shares_matter() {
        let budget = Arc::new(Budget::new(64 * MIB));
        let other = Arc::clone(&budget);
        // Both are of one peer, and come to two cores.
        let theirs = std::thread::spawn(move || {
            let claim = Claim::begin(&other, sender(1));
            claim.arrives();
            assert!(room(&other, &claim, 20 * MIB) && claim.is_own());
            claim
        });
        let theirs = theirs.join().expect("a claim");
        let (own, third) = (Claim::begin(&budget, sender(1)), Claim::begin(&budget, sender(2)));
        assert!(own.is_own() && third.is_own());
        assert!(room(&budget, &third, MIB));
        assert!(
            !room(&budget, &own, 5 * MIB),
            "25 MiB of 24, and there are others"
        );
        assert!(!own.is_own() && !theirs.is_own() && !third.is_own());
        let state = budget.admission.state();
        assert_eq!(state.held_by(Holder::User(1)), 20 * MIB);
        assert_eq!(state.held_by(Holder::Address(sender(2).address)), MIB);
        assert_eq!(
            state.arriving.len(),
            1,
            "the one that arrives can be asked to make room"
        );
        assert!(state.others_than(Holder::User(1), Instant::now()));
        drop(state);
        // A claim may end on another core than its own.
        drop((theirs, third, own));
        assert!(budget.admission.state().is_empty());
    }

    #[tokio::test]
    async fn a_body_that_waits_gets_the_room_of_one_that_only_its_core_knew() {
        let budget = Arc::new(Budget::new(64 * MIB));
        let small = Claim::begin(&budget, sender(1));
        assert!(room(&budget, &small, 10 * MIB) && small.is_own());
        let large = Claim::begin(&budget, sender(2));
        let waits = budget.wait_for_room(&large, 40 * MIB, Duration::from_secs(20));
        let ((), granted) = tokio::join!(
            async {
                while budget.admission.waiting() == 0 {
                    tokio::task::yield_now().await;
                }
                assert!(!Claim::begin(&budget, sender(3)).is_own(), "somebody waits");
                assert!(!small.is_own());
                drop(small);
                budget.release(10 * MIB);
            },
            waits
        );
        assert!(granted.is_ok());
    }
}
