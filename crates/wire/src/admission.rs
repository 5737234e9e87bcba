//! Admission: which request bodies get memory, and in which order.
//!
//! Room is promised for a whole body once its first [`FIRST_BYTES`] have come. A body that then arrives
//! quickly is never copied or stopped, and bodies that wait hold next to nothing, so they cannot block one
//! another. A promise is not memory, though: while others wait for room, a slow body keeps only what has
//! arrived, and a slow body that holds much is cut off ([`relief`](crate::relief)).
//!
//! Waiting bodies are served in the order of their arrival, but no body waits for room that is there: a small
//! body passes a large one for which there is not yet enough room. For half of its wait, the first body in
//! the queue collects the room that becomes free and no other passes it, so a large body has a chance among
//! many small ones.
//!
//! A sixteenth of the room is the reserve of small bodies ([`Room`]). Large bodies leave it free, whatever
//! they declare, and a small body takes from it even while a large one collects. The reserve bounds what a
//! small body waits for: without it, one peer that declares a body as large as the room, and sends nothing,
//! would hold up everybody until it is asked to make room.
//!
//! A peer is an IPv4 address, or 64 bits of an IPv6 address. While others are there, a peer may hold its
//! share ([`Fairness::peer_share_percent`]) and one body.
//!
//! A body that waits has its first bytes in the read buffer of its connection. Those buffers are set aside
//! from the room for bodies: the part of the budget that is not for bodies bears them, and they are bounded,
//! for all and for each peer. A body that finds no place to wait is refused at once.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::budget::{Budget, OverBudget};
use crate::claim::{Claim, Record};
use crate::place::{Place, Places};
use crate::waiters::{Waiter, Waiters};

/// The rules between peers that want memory for bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fairness {
    /// The share of the memory for bodies that one peer may hold while there are others, in percent; one body
    /// is always allowed.
    pub peer_share_percent: u8,
    /// The rate in bytes per second below which a body is slow: a slow body makes room for those that wait.
    pub rate_min: u64,
}

/// Bodies below this size stay in the buffer that they were read into with their head, whoever sends them.
pub(crate) const FIRST_BYTES: usize = 16 << 10;

/// The queue, and the amount that each peer holds.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) fairness: Fairness,
    pub(crate) counters: Counters,
    waiting: AtomicUsize,
    /// The least room, in bytes, that is of use to anybody who waits, as of the last look at the queue.
    useful: AtomicUsize,
    /// The bytes in read buffers of waiting bodies.
    pub(crate) aside: AtomicUsize,
    state: Mutex<AdmissionQueue>,
}

/// Counts of the bodies that had to make room for others, since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Bodies that gave back room that was promised and not used.
    pub(crate) shrunk: AtomicU64,
    /// Bodies that were cut off.
    pub(crate) cut: AtomicU64,
    /// Waiters that were looked at to give room to them.
    pub(crate) looked_at: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct AdmissionQueue {
    peers: HashMap<IpAddr, Account>,
    /// The two peers that came last, with the moment: they show whether anybody else is there.
    latest: [Option<(IpAddr, Instant)>; 2],
    pub(crate) queue: Waiters,
    pub(crate) places: Places,
    /// Bodies that are arriving.
    pub(crate) arriving: HashMap<u64, Arc<Record>>,
    /// The bytes that small bodies hold.
    small_held: usize,
    next_id: u64,
    /// When the queue was last checked for bodies that could make room.
    looked: Option<Instant>,
}

#[derive(Debug, Default)]
struct Account {
    held: usize,
    claims: usize,
}

/// The room for bodies, and the part of it that is reserved for small ones, in bytes.
#[derive(Debug, Clone, Copy)]
struct Room {
    limit: usize,
    reserve: usize,
}

impl Default for Fairness {
    fn default() -> Self {
        Fairness {
            peer_share_percent: 50,
            rate_min: 64 << 10,
        }
    }
}

// === impl Room ===

impl Room {
    fn is_small(self, bytes: usize) -> bool {
        bytes <= self.reserve / SMALL_SHARE
    }

    /// Returns the limit for a body that holds `held` bytes and wants `more`, while small ones hold
    /// `small_held`. A body that does not fit beside the reserve gets all the room, once nobody else has any.
    fn limit_for(self, (held, more): (usize, usize), small_held: usize) -> usize {
        if self.is_small(held + more) || held + more > self.limit - self.reserve {
            return self.limit;
        }
        self.limit - self.reserve.saturating_sub(small_held)
    }
}

// === impl Admission ===

impl Admission {
    pub(crate) fn new(fairness: Fairness) -> Self {
        Admission {
            fairness,
            counters: Counters::default(),
            waiting: AtomicUsize::new(0),
            useful: AtomicUsize::new(0),
            aside: AtomicUsize::new(0),
            state: Mutex::default(),
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, AdmissionQueue> {
        self.state.lock()
    }

    /// Notes that a claim gives back `bytes` of what it holds.
    pub(crate) fn take_back(&self, record: &Record, bytes: usize) {
        let mut state = self.state();
        state.take_back(record, bytes);
        self.let_on(&mut state, record.peer);
    }

    /// Notes that a claim ends.
    pub(crate) fn end(&self, record: &Record) {
        let mut state = self.state();
        state.end(record);
        self.let_on(&mut state, record.peer);
    }

    /// Notes that the number of waiters is another one.
    pub(crate) fn counts(&self, state: &AdmissionQueue) {
        self.waiting.store(state.queue.len(), Ordering::SeqCst);
    }

    /// Has the next release look at the waiters, however small it is.
    pub(crate) fn look_again(&self) {
        self.useful.store(0, Ordering::SeqCst);
    }

    /// Lets a waiter of a peer on that may have room now.
    pub(crate) fn let_on(&self, state: &mut AdmissionQueue, peer: IpAddr) {
        if state.queue.let_on(peer) {
            self.look_again();
        }
    }
}

// === impl AdmissionQueue ===

impl AdmissionQueue {
    pub(crate) fn see(&mut self, peer: IpAddr, now: Instant) {
        match self.latest[0] {
            Some((last, _)) if last == peer => {}
            last => self.latest[1] = last,
        }
        self.latest[0] = Some((peer, now));
    }

    pub(crate) fn others_than(&self, peer: IpAddr, now: Instant) -> bool {
        let is_other = |(other, seen): &(IpAddr, Instant)| {
            *other != peer && now.saturating_duration_since(*seen) < PEER_LASTS
        };
        self.latest.iter().flatten().any(is_other)
    }

    /// Returns whether it is time to check which bodies could make room: thousands may wait, and one check
    /// serves them all.
    pub(crate) fn looks(&mut self, now: Instant) -> bool {
        let is_time = self
            .looked
            .is_none_or(|last| now.saturating_duration_since(last) >= LOOK_EVERY / 2);
        if is_time {
            self.looked = Some(now);
        }
        is_time
    }

    /// Iterates over all waiters.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        self.queue.iter()
    }

    /// Has everybody who waits looked at next time.
    pub(crate) fn let_all_on(&mut self) {
        self.queue.let_all_on();
    }

    pub(crate) fn held_by(&self, peer: IpAddr) -> usize {
        self.peers.get(&peer).map_or(0, |account| account.held)
    }

    pub(crate) fn begin(&mut self, record: impl FnOnce(u64) -> Record) -> Arc<Record> {
        self.next_id += 1;
        let record = Arc::new(record(self.next_id));
        self.peers.entry(record.peer).or_default().claims += 1;
        record
    }

    fn end(&mut self, record: &Record) {
        self.arriving.remove(&record.id);
        self.take_back(record, record.held());
        if let Some(account) = self.peers.get_mut(&record.peer) {
            account.claims -= 1;
            if account.claims == 0 {
                self.peers.remove(&record.peer);
            }
        }
    }

    pub(crate) fn give(&mut self, record: &Record, bytes: usize) {
        self.peers.entry(record.peer).or_default().held += bytes;
        record.add_held(bytes);
    }

    /// Gives room that a body of `wanted` bytes has waited for, or not.
    fn give_room(&mut self, record: &Record, wanted: usize, room: Room) {
        if room.is_small(record.held() + wanted) {
            record.add_small(wanted);
            self.small_held += wanted;
        }
        self.give(record, wanted);
    }

    pub(crate) fn take_back(&mut self, record: &Record, bytes: usize) {
        record.sub_held(bytes);
        self.small_held = self.small_held.saturating_sub(record.sub_small(bytes));
        if let Some(account) = self.peers.get_mut(&record.peer) {
            account.held = account.held.saturating_sub(bytes);
        }
    }
}

// === impl Budget ===

impl Budget {
    /// Returns the request bodies that were cut off while others waited for the memory that they held, since
    /// the start.
    pub fn bodies_cut(&self) -> u64 {
        self.admission.counters.cut.load(Ordering::Relaxed)
    }

    /// Returns the request bodies that gave back memory which they had declared and not sent, since the
    /// start.
    pub fn bodies_shrunk(&self) -> u64 {
        self.admission.counters.shrunk.load(Ordering::Relaxed)
    }

    /// Returns what a peer may hold while there are others.
    pub(crate) fn peer_share(&self) -> usize {
        self.admission_limit() / 100 * usize::from(self.admission.fairness.peer_share_percent)
    }

    /// Returns the bytes that count against the room for bodies.
    pub(crate) fn used_by_bodies(&self) -> usize {
        self.used().saturating_sub(self.aside())
    }

    pub(crate) fn aside(&self) -> usize {
        self.admission.aside.load(Ordering::SeqCst)
    }

    fn room(&self) -> Room {
        let limit = self.admission_limit();
        Room {
            limit,
            reserve: limit / RESERVE_SHARE,
        }
    }

    /// Returns whether a body that holds some bytes and wants more, in this order, is small.
    pub(crate) fn is_small(&self, wants: (usize, usize)) -> bool {
        self.room().is_small(wants.0 + wants.1)
    }

    /// Returns how far a body that holds some bytes and wants more, in this order, may fill the room now.
    pub(crate) fn limit_for(&self, state: &AdmissionQueue, wants: (usize, usize)) -> usize {
        self.room().limit_for(wants, state.small_held)
    }

    /// Returns whether a peer's share allows it `bytes` bytes more for a body. One body is always allowed.
    pub(crate) fn may_have(
        &self,
        state: &AdmissionQueue,
        record: &Record,
        bytes: usize,
        now: Instant,
    ) -> bool {
        let held = state.held_by(record.peer);
        held <= record.held() || held + bytes <= self.peer_share() || !state.others_than(record.peer, now)
    }

    /// Takes room for `bytes` at once, by `take` if that finds memory that is charged already; `None` if the
    /// caller has to wait.
    pub(crate) fn room_now<T>(
        &self,
        claim: &Claim,
        bytes: usize,
        take: impl FnOnce() -> Option<T>,
    ) -> Option<Option<T>> {
        let now = Instant::now();
        let mut state = self.admission.state();
        state.see(claim.record().peer, now);
        if !state.queue.is_empty() || !self.may_have(&state, claim.record(), bytes, now) {
            return None;
        }
        let taken = take();
        let room = self.room();
        if taken.is_none() {
            let limit = room.limit_for((claim.record().held(), bytes), state.small_held);
            self.charge_or_reclaim(bytes, limit + self.aside()).ok()?;
        }
        state.give_room(claim.record(), bytes, room);
        Some(taken)
    }

    /// Waits until there is room for `bytes`, and charges them; waits for at most `wait`.
    pub(crate) async fn wait_for_room(
        &self,
        claim: &Claim,
        bytes: usize,
        wait: Duration,
    ) -> Result<(), OverBudget> {
        let refused = || OverBudget {
            wanted: bytes,
            used: self.used(),
            limit: self.admission_limit(),
        };
        if bytes > self.admission_limit() {
            return Err(refused());
        }
        let place = Place::take(self, claim, bytes, wait).ok_or_else(refused)?;
        let until = tokio::time::Instant::now() + wait;
        while !place.waiter.is_granted() {
            let look_again = (tokio::time::Instant::now() + LOOK_EVERY).min(until);
            let _ = tokio::time::timeout_at(look_again, place.waiter.wake.notified()).await;
            if place.waiter.is_granted() {
                break;
            }
            if tokio::time::Instant::now() >= until {
                return Err(refused());
            }
            // One look serves all who wait.
            if self.relieve() {
                self.serve_waiting();
            }
        }
        place.keep();
        Ok(())
    }

    /// Returns whether there may be room enough for one of the waiters. This is called for each buffer that
    /// is released.
    pub(crate) fn can_serve(&self) -> bool {
        let room = self.admission_limit().saturating_sub(self.used_by_bodies());
        room >= self.admission.useful.load(Ordering::SeqCst)
    }

    /// Gives room to the waiters, as far as there is any.
    pub(crate) fn serve_waiting(&self) {
        let mut state = self.admission.state();
        loop {
            let useful = self.serve(&mut state);
            self.admission.useful.store(useful, Ordering::SeqCst);
            // The last look did not see room that became free meanwhile.
            if useful == 0 || state.queue.is_empty() || !self.can_serve() {
                return;
            }
        }
    }

    /// Serves the waiters once. Returns how many bytes of room there must be before another look is
    /// worthwhile: 0 if something else may change as well.
    fn serve(&self, state: &mut AdmissionQueue) -> usize {
        let now = Instant::now();
        let (mut last, mut unfit, mut small_unfit) = (None::<Arc<Waiter>>, 0, 0);
        let (mut useful, mut reclaimed) = (usize::MAX, false);
        let (room, mut only_small) = (self.room(), false);
        while small_unfit < UNFIT_MAX
            && let Some(waiter) = state.queue.next(last.as_deref(), only_small)
        {
            self.admission.counters.looked_at.fetch_add(1, Ordering::Relaxed);
            last = Some(Arc::clone(&waiter));
            // Only small bodies pass a body that collects, as far as their reserve goes. However many large
            // bodies wait before them, they find what is reserved for them.
            if only_small && state.small_held + waiter.wanted > room.reserve {
                small_unfit += 1;
                continue;
            }
            if !self.may_have(state, &waiter.record, waiter.wanted, now) {
                state.queue.hold_back(&waiter);
                continue;
            }
            let limit = room.limit_for(waiter.wants(), state.small_held);
            let mut charged = self.try_charge(waiter.wanted, limit + self.aside());
            // Nothing is kept idle while a body waits, so a second attempt would find nothing.
            if charged.is_err() && !reclaimed && self.reclaim() > 0 {
                charged = self.try_charge(waiter.wanted, limit + self.aside());
            }
            if charged.is_ok() {
                self.grant(state, &waiter, room);
                continue;
            }
            (reclaimed, useful) = (true, useful.min(waiter.wanted + (room.limit - limit)));
            if unfit == 0 && waiter.collects(now) {
                // A body that needs all the room gets it only if nobody takes any.
                if limit == room.limit && !waiter.is_small {
                    break;
                }
                only_small = true;
            }
            small_unfit += usize::from(only_small);
            unfit += 1;
            only_small |= unfit >= UNFIT_MAX;
        }
        useful
    }

    fn grant(&self, state: &mut AdmissionQueue, waiter: &Waiter, room: Room) {
        state.queue.remove(waiter);
        self.admission.counts(state);
        state.give_room(&waiter.record, waiter.wanted, room);
        state.see(waiter.record.peer, Instant::now());
        waiter.grant();
        state.queue.let_on(waiter.record.peer);
    }
}

/// Returns the peer that an address belongs to.
pub(crate) fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

/// A peer that has not wanted memory for this long does not count as being there.
const PEER_LASTS: Duration = Duration::from_secs(10);
/// The interval in which a waiter checks which bodies could make room.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The part of the room that is reserved for small bodies: a sixteenth. With the default budget a body of
/// 100 MB fits beside it.
const RESERVE_SHARE: usize = 16;
/// A body is small if so many of its size fit into the reserve.
const SMALL_SHARE: usize = 8;
/// The most waiters without room that are looked at before those behind them are left alone; this bounds the
/// cost of a release.
pub(crate) const UNFIT_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::BUDGET_BYTES_DEFAULT;
    use crate::claim::Claim;

    const MIB: usize = 1 << 20;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    async fn wait(budget: &Arc<Budget>, claim: &Claim, bytes: usize, seconds: u64) -> bool {
        let wait = Duration::from_secs(seconds);
        budget.wait_for_room(claim, bytes, wait).await.is_ok()
    }

    #[test]
    fn sixty_four_bits_of_an_ipv6_address_are_one_peer_and_mapped_ones_are_what_they_map_to() {
        let of = |text: &str| peer_of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[tokio::test]
    async fn who_fits_passes_who_does_not_and_nobody_waits_for_room_that_is_there() {
        let budget = Arc::new(Budget::new(60 * MIB)); // 45 for bodies, 2.8 of it for small ones
        let claims: Vec<Claim> = (0..4).map(|_| Claim::begin(&budget, peer(1))).collect();
        assert!(wait(&budget, &claims[0], 28 * MIB, 1).await);
        assert!(wait(&budget, &claims[1], 8 * MIB, 1).await);
        let (large, small, ()) = tokio::join!(
            wait(&budget, &claims[2], 24 * MIB, 2),
            wait(&budget, &claims[3], 7 * MIB, 2),
            async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                assert_eq!(budget.admission.waiting(), 2);
                claims[1].give_back(8 * MIB);
                budget.release(8 * MIB);
                tokio::task::yield_now().await;
                assert_eq!(budget.admission.waiting(), 1, "the smaller one has it at once");
            }
        );
        assert!(!large && small);
        assert_eq!((budget.used(), budget.admission.waiting()), (35 * MIB, 0));
    }

    #[tokio::test]
    async fn room_that_is_of_no_use_to_anybody_has_nobody_looked_at() {
        let budget = Arc::new(Budget::new(40 * MIB)); // 30 for bodies, 1.9 of it for small ones
        let claims: Vec<Claim> = (0..3).map(|_| Claim::begin(&budget, peer(1))).collect();
        assert!(
            wait(&budget, &claims[0], 30 * MIB, 1).await,
            "all, while nobody has any"
        );
        let (first, second, ()) = tokio::join!(
            wait(&budget, &claims[1], 20 * MIB, 5),
            wait(&budget, &claims[2], 6 * MIB, 5),
            async {
                tokio::task::yield_now().await;
                for (room, is_useful) in [(7, false), (8, true)] {
                    budget.forget(room * MIB - (30 * MIB - budget.used()));
                    assert_eq!(budget.can_serve(), is_useful, "{room} MiB");
                }
                budget.release(0);
                tokio::task::yield_now().await;
                assert_eq!(
                    budget.admission.waiting(),
                    1,
                    "the smaller one has what it wanted"
                );
                assert!(!budget.can_serve());
                budget.release(20 * MIB);
            }
        );
        assert!(first && second);
    }

    #[tokio::test]
    async fn in_the_middle_of_its_wait_nobody_passes_the_first() {
        let budget = Arc::new(Budget::new(60 * MIB));
        let claims: Vec<Claim> = (0..4).map(|_| Claim::begin(&budget, peer(1))).collect();
        assert!(wait(&budget, &claims[0], 20 * MIB, 1).await);
        assert!(wait(&budget, &claims[1], 20 * MIB, 1).await);
        let (large, small, ()) = tokio::join!(
            wait(&budget, &claims[2], 30 * MIB, 4),
            wait(&budget, &claims[3], 15 * MIB, 4),
            async {
                for claim in &claims[..2] {
                    tokio::time::sleep(Duration::from_millis(1_300)).await;
                    claim.give_back(20 * MIB);
                    budget.release(20 * MIB);
                }
            }
        );
        assert!(large && !small, "{large} {small}");
    }

    #[tokio::test]
    async fn small_bodies_have_room_of_their_own_whatever_large_ones_hold_or_collect() {
        let budget = Arc::new(Budget::new(BUDGET_BYTES_DEFAULT)); // 108 for bodies, 6.7 of it for small ones
        let large: Vec<Claim> = (0..4).map(|n| Claim::begin(&budget, peer(100 + n))).collect();
        assert!(wait(&budget, &large[0], 100_000_000, 1).await);
        assert!(
            !wait(&budget, &large[1], 8_000_000, 0).await,
            "the reserve is not theirs"
        );
        let small: Vec<Claim> = (0..13).map(|n| Claim::begin(&budget, peer(n + 2))).collect();
        let at_once = |claim| wait(&budget, claim, 768 << 10, 0);
        for claim in &small[..5] {
            assert!(at_once(claim).await);
        }
        let (collector, rest) = tokio::join!(wait(&budget, &large[2], 50 * MIB, 1), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let mut rest = Vec::new();
            for claim in &small[5..] {
                rest.push(at_once(claim).await);
            }
            rest
        });
        assert!(!collector);
        assert_eq!(rest, [true, true, true, true, false, false, false, false]);
        drop((large, small));
        budget.release(budget.used());
        let state = budget.admission.state();
        assert_eq!((state.small_held, state.peers.len()), (0, 0));
    }

    #[tokio::test]
    async fn small_bodies_find_their_room_behind_however_many_large_ones() {
        let budget = Arc::new(Budget::new(40 * MIB)); // 30 for bodies, 1.9 of it for small ones
        let holder = Claim::begin(&budget, peer(1));
        assert!(wait(&budget, &holder, 24 * MIB, 1).await);
        let large: Vec<Claim> = (0..150).map(|n| Claim::begin(&budget, peer(n + 2))).collect();
        let small = Claim::begin(&budget, peer(200));
        let second = Duration::from_secs(1);
        let waiting = large
            .iter()
            .map(|claim| Place::take(&budget, claim, 8 * MIB, second));
        let waiting: Vec<_> = waiting.map(|place| place.expect("a place")).collect();
        assert!(waiting.iter().all(|place| !place.waiter.is_granted()));
        assert!(wait(&budget, &small, 100 << 10, 0).await);
        drop(waiting);
        assert_eq!(budget.admission.waiting(), 0);
        assert_eq!(budget.aside(), 0);
    }

    #[tokio::test]
    async fn a_body_that_needs_all_the_room_is_not_starved_by_small_ones() {
        let budget = Arc::new(Budget::new(40 * MIB));
        let small: Vec<Claim> = (0..40).map(|n| Claim::begin(&budget, peer(n + 2))).collect();
        assert!(wait(&budget, &small[0], 100 << 10, 0).await);
        let whole = Claim::begin(&budget, peer(1));
        let (whole, ()) = tokio::join!(wait(&budget, &whole, 30 * MIB, 4), async {
            // Each is there before the one before it goes, until the large one collects.
            for pair in small.windows(2) {
                let next = wait(&budget, &pair[1], 100 << 10, 0).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
                let held = pair[0].record().held();
                pair[0].give_back(held);
                budget.release(held);
                if !next {
                    break;
                }
            }
        });
        assert!(whole);
    }

    #[tokio::test]
    async fn a_large_body_that_grows_gets_as_much_as_one_that_says_its_length() {
        let budget = Arc::new(Budget::new(BUDGET_BYTES_DEFAULT)); // 108 for bodies, 6.7 of it for small ones
        let growing = Claim::begin(&budget, peer(1));
        assert!(wait(&budget, &growing, 64 * MIB, 1).await);
        assert!(wait(&budget, &growing, 36 * MIB, 1).await, "it is alone");
        let other = Claim::begin(&budget, peer(2));
        assert!(!wait(&budget, &other, 8_000_000, 0).await);
    }

    #[tokio::test]
    async fn a_large_body_that_grows_in_small_steps_takes_nothing_from_the_small_ones() {
        let budget = Arc::new(Budget::new(BUDGET_BYTES_DEFAULT));
        let (large, growing) = (Claim::begin(&budget, peer(1)), Claim::begin(&budget, peer(2)));
        assert!(wait(&budget, &large, 94 * MIB, 1).await);
        assert!(wait(&budget, &growing, 7 * MIB, 1).await);
        assert!(!wait(&budget, &growing, MIB, 0).await);
        assert!(wait(&budget, &Claim::begin(&budget, peer(3)), 768 << 10, 0).await);
    }

    #[tokio::test]
    async fn a_peer_has_all_while_it_is_alone_and_its_share_when_another_comes() {
        let budget = Arc::new(Budget::new(60 * MIB));
        let greedy: Vec<Claim> = (0..6).map(|_| Claim::begin(&budget, peer(1))).collect();
        for claim in &greedy[..4] {
            assert!(wait(&budget, claim, 10 * MIB, 1).await, "alone");
        }
        let modest = Claim::begin(&budget, peer(2));
        let (more, other, ()) = tokio::join!(
            wait(&budget, &greedy[4], 10 * MIB, 1),
            wait(&budget, &modest, 10 * MIB, 1),
            async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                greedy[0].give_back(10 * MIB);
                budget.release(10 * MIB);
            }
        );
        assert!(!more && other, "who came later, with nothing, comes first");
        let large = Claim::begin(&budget, peer(3));
        greedy[1..4].iter().for_each(|claim| claim.give_back(10 * MIB));
        budget.release(30 * MIB);
        assert!(
            wait(&budget, &large, 30 * MIB, 1).await,
            "one body is always allowed"
        );
    }

    #[tokio::test]
    async fn who_stops_waiting_leaves_no_trace() {
        let budget = Arc::new(Budget::new(60 * MIB));
        let (one, two) = (Claim::begin(&budget, peer(1)), Claim::begin(&budget, peer(1)));
        assert!(wait(&budget, &one, 40 * MIB, 1).await);
        assert!(!wait(&budget, &two, 10 * MIB, 0).await);
        assert_eq!(budget.admission.waiting(), 0);
        one.give_back(40 * MIB);
        budget.release(40 * MIB);
        drop((one, two));
        assert_eq!(budget.used(), 0);
        assert!(budget.admission.state().peers.is_empty());
    }
}
