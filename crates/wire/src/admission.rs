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
//! A peer is an IPv4 address, or 64 bits of an IPv6 address; and a user that is known to send a body, from
//! whatever addresses ([`holder`](crate::holder)). While others are there, a peer may hold its share
//! ([`Fairness::peer_share_percent`]) and one body. All senders whose credentials nobody has confirmed may
//! hold half a share together while somebody else waits long; until then they are peers by their addresses
//! alone, since none of them can help what the others hold.
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
use crate::claim::{BodyRecord, Claim};
use crate::handover::Promises;
use crate::holder::{Holder, Sender};
use crate::own_bodies::OwnBodies;
use crate::per_core::{Apart, PerCore};
use crate::place::{Places, QueuePlace};
use crate::shared;
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
    /// Every buffer that is put back reads this.
    waiting: Apart<AtomicUsize>,
    /// The least room, in bytes, that is of use to anybody who waits, as of the last look at the queue.
    useful: AtomicUsize,
    /// The bytes in read buffers of waiting bodies.
    pub(crate) aside: AtomicUsize,
    /// The bodies that only their cores know.
    pub(crate) own: PerCore<Arc<OwnBodies>>,
    state: Apart<Mutex<AdmissionQueue>>,
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
    peers: HashMap<Holder, Account>,
    pub(crate) latest: Latest,
    pub(crate) queue: Waiters,
    pub(crate) places: Places,
    pub(crate) promises: Promises,
    /// Bodies that are arriving.
    pub(crate) arriving: HashMap<u64, Arc<BodyRecord>>,
    /// The bytes that small bodies hold.
    small_held: usize,
    next_id: u64,
    /// When the queue was last checked for bodies that could make room.
    looked: Option<Instant>,
    /// The same, for work that waits for memory without being in the queue.
    looked_for_work: Option<Instant>,
}

/// Who came last: this shows whether anybody else is there.
#[derive(Debug, Default)]
pub(crate) struct Latest {
    /// The two addresses that came last, with the moment.
    addresses: LastTwo,
    /// The two users that came last; an address of which nobody asks who sends from there counts as one, and
    /// all whose credentials nobody has confirmed as another.
    users: LastTwo,
}

/// The last one first.
type LastTwo = [Option<(Holder, Instant)>; 2];

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
            waiting: Apart::default(),
            useful: AtomicUsize::new(0),
            aside: AtomicUsize::new(0),
            own: PerCore::default(),
            state: Apart::default(),
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Returns the common state, with all bodies in it.
    pub(crate) fn state(&self) -> MutexGuard<'_, AdmissionQueue> {
        shared::touches("room for bodies");
        let mut state = self.state.lock();
        self.enter_own(&mut state);
        state
    }

    /// Notes that a claim gives back `bytes` of what it holds.
    pub(crate) fn take_back(&self, record: &BodyRecord, bytes: usize) {
        let taken = record.if_own(|_| {
            record.sub_held(bytes);
            record.sub_small(bytes);
        });
        if taken.is_some() {
            return;
        }
        let mut state = self.state();
        state.take_back(record, bytes);
        self.let_on(&mut state, record.sender);
    }

    /// Notes that a claim ends.
    pub(crate) fn end(&self, record: &BodyRecord) {
        if record.if_own(|known| known.forget(record)).is_some() {
            return;
        }
        let mut state = self.state();
        state.end(record);
        self.let_on(&mut state, record.sender);
    }

    /// Notes that the number of waiters is another one.
    pub(crate) fn counts(&self, state: &AdmissionQueue) {
        self.waiting.store(state.queue.len(), Ordering::SeqCst);
    }

    /// Has a release look at the waiters if there is so much room then.
    pub(crate) fn look_at(&self, bytes: usize) {
        self.useful.fetch_min(bytes, Ordering::SeqCst);
    }

    /// Has the next release look at the waiters, however small it is.
    pub(crate) fn look_again(&self) {
        self.useful.store(0, Ordering::SeqCst);
    }

    /// Lets waiters on that may have room now, because a sender has given something back.
    pub(crate) fn let_on(&self, state: &mut AdmissionQueue, sender: Sender) {
        for holder in sender.holders() {
            if state.queue.let_on(holder) {
                self.look_again();
            }
        }
    }
}

// === impl Latest ===

impl Latest {
    pub(crate) fn see(&mut self, sender: Sender, now: Instant) {
        let address = Holder::Address(sender.address);
        let user = sender.beside_address().unwrap_or(address);
        comes(&mut self.addresses, address, now);
        comes(&mut self.users, user, now);
    }

    /// Adds what another core has seen.
    pub(crate) fn add(&mut self, other: Latest) {
        let pairs = [
            (&mut self.addresses, other.addresses),
            (&mut self.users, other.users),
        ];
        for (own, others) in pairs {
            let mut all: Vec<_> = own.iter().chain(&others).flatten().copied().collect();
            all.sort_by_key(|(_, seen)| *seen);
            *own = LastTwo::default();
            all.into_iter()
                .for_each(|(holder, seen)| comes(own, holder, seen));
        }
    }

    fn others_than(&self, holder: Holder, now: Instant) -> bool {
        let latest = match holder {
            Holder::Address(_) => &self.addresses,
            Holder::User(_) | Holder::Unproven => &self.users,
        };
        let is_other = |(other, seen): &(Holder, Instant)| {
            *other != holder && now.saturating_duration_since(*seen) < PEER_LASTS
        };
        latest.iter().flatten().any(is_other)
    }
}

/// Returns whether the last look is long enough ago, and if so, notes this one.
fn is_time(looked: &mut Option<Instant>, now: Instant) -> bool {
    let is_time = looked.is_none_or(|last| now.saturating_duration_since(last) >= LOOK_EVERY / 2);
    if is_time {
        *looked = Some(now);
    }
    is_time
}

fn comes(latest: &mut LastTwo, holder: Holder, now: Instant) {
    match latest[0] {
        Some((last, _)) if last == holder => {}
        last => latest[1] = last,
    }
    latest[0] = Some((holder, now));
}

// === impl AdmissionQueue ===

impl AdmissionQueue {
    pub(crate) fn see(&mut self, sender: Sender, now: Instant) {
        self.latest.see(sender, now);
    }

    /// Returns whether others than `holder` were there lately: other addresses for an address, bodies that
    /// are not known to be its own for a user.
    pub(crate) fn others_than(&self, holder: Holder, now: Instant) -> bool {
        self.latest.others_than(holder, now)
    }

    /// Returns whether it is time to check which bodies could make room: thousands may wait, and one check
    /// serves them all.
    pub(crate) fn looks(&mut self, now: Instant) -> bool {
        is_time(&mut self.looked, now)
    }

    /// Like [`looks`](Self::looks), for work that is not in the queue.
    pub(crate) fn looks_for_work(&mut self, now: Instant) -> bool {
        is_time(&mut self.looked_for_work, now)
    }

    /// Iterates over all waiters.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        self.queue.iter()
    }

    /// Has everybody who waits looked at next time.
    pub(crate) fn let_all_on(&mut self) {
        self.queue.let_all_on();
    }

    pub(crate) fn held_by(&self, holder: Holder) -> usize {
        self.peers.get(&holder).map_or(0, |account| account.held)
    }

    pub(crate) fn begin(&mut self, sender: Sender) -> Arc<BodyRecord> {
        self.next_id += 1;
        let record = Arc::new(BodyRecord::new(self.next_id, sender, None));
        for holder in record.sender.holders() {
            self.peers.entry(holder).or_default().claims += 1;
        }
        record
    }

    /// Enters a body that only its core has known until now.
    pub(crate) fn enter(&mut self, record: Arc<BodyRecord>) {
        for holder in record.sender.holders() {
            let account = self.peers.entry(holder).or_default();
            account.claims += 1;
            account.held += record.held();
        }
        self.small_held += record.small();
        if record.is_arriving() {
            self.arriving.insert(record.id, record);
        }
    }

    /// Returns whether there are no bodies.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.peers.is_empty() && self.arriving.is_empty() && self.queue.is_empty() && self.small_held == 0
    }

    fn end(&mut self, record: &BodyRecord) {
        self.arriving.remove(&record.id);
        self.take_back(record, record.held());
        for holder in record.sender.holders() {
            if let Some(account) = self.peers.get_mut(&holder) {
                account.claims -= 1;
                if account.claims == 0 {
                    self.peers.remove(&holder);
                }
            }
        }
    }

    pub(crate) fn give(&mut self, record: &BodyRecord, bytes: usize) {
        for holder in record.sender.holders() {
            self.peers.entry(holder).or_default().held += bytes;
        }
        record.add_held(bytes);
    }

    /// Gives room that a body of `wanted` bytes has waited for, or not.
    fn give_room(&mut self, record: &BodyRecord, wanted: usize, room: Room) {
        if room.is_small(record.held() + wanted) {
            record.add_small(wanted);
            self.small_held += wanted;
        }
        self.give(record, wanted);
    }

    pub(crate) fn take_back(&mut self, record: &BodyRecord, bytes: usize) {
        record.sub_held(bytes);
        self.small_held = self.small_held.saturating_sub(record.sub_small(bytes));
        for holder in record.sender.holders() {
            if let Some(account) = self.peers.get_mut(&holder) {
                account.held = account.held.saturating_sub(bytes);
            }
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

    /// Returns what a holder may hold while others wait. Those whose credentials nobody has confirmed have
    /// half a share, so that a user who sends such bodies beside its own leaves room for others.
    pub(crate) fn share_of(&self, holder: Holder) -> usize {
        match holder {
            Holder::Address(_) | Holder::User(_) => self.peer_share(),
            Holder::Unproven => self.peer_share() / 2,
        }
    }

    /// Returns the bytes that count against the room for bodies.
    pub(crate) fn used_by_bodies(&self) -> usize {
        self.used().saturating_sub(self.set_apart())
    }

    /// Returns the bytes that the part of the budget bears which is not for bodies: read buffers of bodies
    /// that wait, and idle memory for other work.
    fn set_apart(&self) -> usize {
        self.aside() + self.idle_apart()
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

    /// Returns the room for bodies that is not reserved for small ones.
    pub(crate) fn unreserved(&self) -> usize {
        let room = self.room();
        room.limit - room.reserve
    }

    /// Returns whether a body that holds some bytes and wants more, in this order, is small.
    pub(crate) fn is_small(&self, wants: (usize, usize)) -> bool {
        self.room().is_small(wants.0 + wants.1)
    }

    /// Returns how far a body that holds some bytes and wants more, in this order, may fill the room now.
    pub(crate) fn limit_for(&self, state: &AdmissionQueue, wants: (usize, usize)) -> usize {
        self.room().limit_for(wants, state.small_held)
    }

    /// Returns whether the shares of a body's address and user allow it `bytes` bytes more. One body is
    /// always allowed.
    pub(crate) fn may_have(
        &self,
        state: &AdmissionQueue,
        record: &BodyRecord,
        bytes: usize,
        now: Instant,
    ) -> bool {
        self.held_up_by(state, record, bytes, now).is_none()
    }

    /// Returns whose share does not allow a body `bytes` bytes more.
    pub(crate) fn held_up_by(
        &self,
        state: &AdmissionQueue,
        record: &BodyRecord,
        bytes: usize,
        now: Instant,
    ) -> Option<Holder> {
        let mut holders = record.sender.holders().filter(|one| *one != Holder::Unproven);
        holders.find(|holder| {
            let held = state.held_by(*holder);
            held > record.held() && held + bytes > self.peer_share() && state.others_than(*holder, now)
        })
    }

    /// Takes room for `bytes` at once, by `take` if that finds memory that is charged already; `None` if the
    /// caller has to wait.
    pub(crate) fn room_now<T>(
        &self,
        claim: &Claim,
        bytes: usize,
        take: impl Fn() -> Option<T>,
    ) -> Option<Option<T>> {
        if let Some(taken) = self.own_room(claim.record(), bytes, &take) {
            return Some(taken);
        }
        let now = Instant::now();
        let mut state = self.admission.state();
        state.see(claim.record().sender, now);
        if !state.queue.is_empty() || !self.may_have(&state, claim.record(), bytes, now) {
            return None;
        }
        let room = self.room();
        let limit = room.limit_for((claim.record().held(), bytes), state.small_held);
        // Memory that is charged already is no way round the limit: records on their way to the disk may take
        // what is beyond it.
        let taken = match self.used() <= limit + self.aside() || self.has_room_for_idle(bytes, limit) {
            true => take(),
            false => None,
        };
        if taken.is_none() {
            self.charge_body(bytes, limit).ok()?;
        }
        state.give_room(claim.record(), bytes, room);
        Some(taken)
    }

    /// Returns whether bodies have no more than `limit` if `bytes` that lie idle are a body's from now on.
    fn has_room_for_idle(&self, bytes: usize, limit: usize) -> bool {
        self.used() <= limit + self.set_apart().saturating_sub(bytes)
    }

    /// Charges room for a body, and gives up idle memory if that helps.
    fn charge_body(&self, bytes: usize, limit: usize) -> Result<(), OverBudget> {
        // Enough as a rule, and cheaper than to ask all pools what lies idle.
        if self.try_charge(bytes, limit + self.aside()).is_ok() {
            return Ok(());
        }
        match self.try_charge(bytes, limit + self.set_apart()) {
            Err(_) if self.idle_in_the_way() && self.reclaim() > 0 => {
                self.try_charge(bytes, limit + self.set_apart())
            }
            charged => charged,
        }
    }

    /// Waits until there is room for `bytes`, and charges them; waits for at most `wait`. Returns the buffer
    /// that another body had until then, if there is one.
    pub(crate) async fn wait_for_room(
        &self,
        claim: &Claim,
        bytes: usize,
        wait: Duration,
    ) -> Result<Option<Vec<u8>>, OverBudget> {
        let refused = || OverBudget {
            wanted: bytes,
            used: self.used(),
            limit: self.admission_limit(),
        };
        if bytes > self.admission_limit() {
            return Err(refused());
        }
        let place = QueuePlace::take(self, claim, bytes, wait).ok_or_else(refused)?;
        let until = tokio::time::Instant::now() + wait;
        while !place.waiter.is_granted() {
            let look_again = (tokio::time::Instant::now() + place.looks_after()).min(until);
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
        Ok(place.keep())
    }

    /// Returns whether there may be room enough for one of the waiters. This is called for each buffer that
    /// is released.
    pub(crate) fn can_serve(&self) -> bool {
        let room = self.admission_limit().saturating_sub(self.used_by_bodies());
        room >= self.admission.useful.load(Ordering::SeqCst)
    }

    /// Releases a buffer, and keeps it for a body that gets the room; gives it back if there is none.
    pub(crate) fn hand_over(&self, buffer: Vec<u8>) -> Option<Vec<u8>> {
        self.release(buffer.capacity());
        self.admission.state().promises.offer(buffer)
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
        let mut useful = usize::MAX;
        let (room, mut only_small) = (self.room(), false);
        while small_unfit < UNFIT_MAX
            && let Some(waiter) = state.queue.next(last.as_deref(), only_small)
        {
            if let Some(needed) = self.lacks_room(state) {
                return useful.min(needed);
            }
            self.admission.counters.looked_at.fetch_add(1, Ordering::Relaxed);
            last = Some(Arc::clone(&waiter));
            // Only small bodies pass a body that collects, as far as their reserve goes. However many large
            // bodies wait before them, they find what is reserved for them.
            if only_small && state.small_held + waiter.wanted > room.reserve {
                small_unfit += 1;
                continue;
            }
            if let Some(holder) = self.held_up_by(state, &waiter.record, waiter.wanted, now) {
                state.queue.hold_back(&waiter, holder);
                continue;
            }
            let limit = room.limit_for(waiter.wants(), state.small_held);
            if self.charge_body(waiter.wanted, limit).is_ok() {
                self.grant(state, &waiter, room);
                continue;
            }
            useful = useful.min(waiter.wanted + (room.limit - limit));
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

    /// Returns how much room would be of use, if there is not enough for anybody: thousands may want as much
    /// as the first, and are not looked at in vain.
    fn lacks_room(&self, state: &AdmissionQueue) -> Option<usize> {
        let needed = self.room_of_use(state, state.queue.least_wanted()?);
        let room = self.admission_limit().saturating_sub(self.used_by_bodies());
        (needed > room && !self.idle_in_the_way()).then_some(needed)
    }

    /// Returns the least room that is of use to a waiter who wants this much, or more.
    pub(crate) fn room_of_use(&self, state: &AdmissionQueue, wanted: usize) -> usize {
        let room = self.room();
        let reserved = room.limit - room.limit_for((0, wanted), state.small_held);
        // A body that needs all the room leaves nothing to small ones.
        (wanted + reserved).min(room.limit - room.reserve).max(wanted)
    }

    fn grant(&self, state: &mut AdmissionQueue, waiter: &Waiter, room: Room) {
        state.queue.remove(waiter);
        self.admission.counts(state);
        state.give_room(&waiter.record, waiter.wanted, room);
        state.promises.give(waiter.wanted);
        state.see(waiter.record.sender, Instant::now());
        waiter.grant();
        for holder in waiter.record.sender.holders() {
            state.queue.let_on(holder);
        }
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
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The part of the room that is reserved for small bodies: a sixteenth. With the default budget a body of
/// 100 MB fits beside it.
const RESERVE_SHARE: usize = 16;
/// A body is small if so many of its size fit into the reserve.
const SMALL_SHARE: usize = 8;
/// The most waiters without room that are looked at before those behind them are left alone; this bounds the
/// cost of a release.
pub(crate) const UNFIT_MAX: usize = 64;

#[cfg(test)]
mod tests;
