//! Choosing the bodies that make room when somebody waits for it: a waiter looks at all bodies that are
//! arriving.
//!
//! Bodies make room in this order, and no more of them than necessary:
//!
//! 1. a body that has been slow for a moment gives back the room that was promised and not used,
//! 2. a body that has been slow for a second is cut off, beginning with the one that holds most and sends
//!    least,
//! 3. after a second of waiting, addresses and users that hold more than their share are cut down to it, and
//!    so are those whose credentials nobody has confirmed, all together, if somebody else waits.
//!
//! For a body that waits because its own address or user already holds its share, only the slow bodies of
//! that holder make room.
//!
//! Bodies that have arrived completely are never touched: their requests end by themselves.
//!
//! Answers that wait in memory for their clients ([`unread`](crate::unread)) are among them, with what has
//! been read in place of what has arrived. All that they hold is in use, so they give nothing back before
//! they are cut off. What they report has been done, so they are left alone longer.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::admission::{AdmissionQueue, UNFIT_MAX};
use crate::budget::Budget;
use crate::claim::{BodyRecord, ClaimVerdict};
use crate::holder::{Holder, Sender};
use crate::waiters::Waiter;

/// The state of one body, as seen by a look.
struct BodyState {
    record: Arc<BodyRecord>,
    slow_for: Duration,
    /// How long it may be slow at least, whatever is demanded of it.
    patience: Duration,
    /// Whether it is an answer of the last seconds, which is not cut for its sender's share.
    is_young: bool,
    /// The burden of the body: the higher, the more it holds and the less it sends.
    burden: f64,
}

impl Budget {
    /// Makes bodies give up the room that is waited for, and has all waiters looked at anew, unless somebody
    /// has just done so. Returns whether this look did.
    pub(crate) fn relieve(&self) -> bool {
        let now = Instant::now();
        let mut state = self.admission.state();
        if !state.looks(now) {
            return false;
        }
        let (mut wanting, mut over): (Vec<_>, Vec<_>) = state
            .waiting()
            .cloned()
            .partition(|waiter| self.may_have(&state, &waiter.record, waiter.wanted, now));
        wanting.truncate(UNFIT_MAX);
        over.truncate(UNFIT_MAX);
        let wanted: usize = wanting.iter().map(|waiter| waiter.wanted).sum();
        let largest = wanting.iter().map(|waiter| waiter.wants());
        let largest = largest.max_by_key(|(held, more)| held + more);
        let limit = self.limit_for(&state, largest.unwrap_or_default());
        let mut missing = (self.used_by_bodies() + wanted.min(limit)).saturating_sub(limit);
        let (seen, freed) = self.look_at_all(&state, now);
        missing = missing.saturating_sub(freed);
        missing = self.slow_ones_make_room(seen.iter(), missing);
        for waiter in &over {
            let holder = self.held_up_by(&state, &waiter.record, waiter.wanted, now);
            let Some(holder) = holder else { continue };
            let more = (state.held_by(holder) + waiter.wanted).saturating_sub(self.peer_share());
            let its_own = seen.iter().filter(|one| one.record.sender.is(holder));
            self.slow_ones_make_room(its_own, more);
        }
        let waits_long = |waiter: &&Arc<Waiter>| now.saturating_duration_since(waiter.since) >= SHARE_AFTER;
        let long = || {
            wanting
                .iter()
                .filter(waits_long)
                .map(|waiter| waiter.record.sender)
        };
        let mut who_waits: HashSet<Holder> = long().flat_map(Sender::holders).collect();
        if long().any(|sender| !sender.is(Holder::Unproven)) {
            // One of them that waits, too, does not keep the room for the others.
            who_waits.remove(&Holder::Unproven);
        }
        if missing > 0 && !who_waits.is_empty() {
            for one in self.over_share(&state, &seen, &who_waits) {
                self.tell(one, ClaimVerdict::OverShare);
            }
        }
        state.let_all_on();
        true
    }

    /// Makes slow bodies give up so much room, for work that is in nobody's queue; unless somebody has just
    /// done so.
    pub(crate) fn relieve_of(&self, missing: usize) {
        let now = Instant::now();
        let mut state = self.admission.state();
        if state.looks_for_work(now) {
            let (seen, freed) = self.look_at_all(&state, now);
            self.slow_ones_make_room(seen.iter(), missing.saturating_sub(freed));
        }
    }

    /// Looks at all bodies: returns those that have been told nothing, the greatest burden first, and what
    /// the others are about to free.
    fn look_at_all(&self, state: &AdmissionQueue, now: Instant) -> (Vec<BodyState>, usize) {
        let (mut seen, mut freed) = (Vec::new(), 0);
        for record in state.arriving.values() {
            match record.told() {
                Some(verdict) => freed += freed_by(record, verdict),
                None => seen.push(look(record, self.admission.fairness.rate_min, now)),
            }
        }
        seen.sort_by(|one, other| other.burden.total_cmp(&one.burden));
        (seen, freed)
    }

    /// Makes slow bodies give back the room that they do not need, or cuts them off; returns how much room is
    /// still missing.
    fn slow_ones_make_room<'s>(
        &self,
        seen: impl Iterator<Item = &'s BodyState> + Clone,
        mut missing: usize,
    ) -> usize {
        for (slow_for, verdict) in [
            (SHRINK_AFTER, ClaimVerdict::Shrink),
            (CUT_AFTER, ClaimVerdict::Slow),
        ] {
            for one in seen
                .clone()
                .filter(|one| one.slow_for >= slow_for.max(one.patience))
            {
                if missing == 0 {
                    return 0;
                }
                missing = missing.saturating_sub(self.tell(one, verdict));
            }
        }
        missing
    }

    /// Gives a body its verdict, if that frees anything; returns how much it will free.
    fn tell(&self, one: &BodyState, verdict: ClaimVerdict) -> usize {
        let freed = freed_by(&one.record, verdict);
        if freed > 0 && one.record.told().is_none() {
            let counter = match verdict {
                ClaimVerdict::Shrink => &self.admission.counters.shrunk,
                ClaimVerdict::Slow | ClaimVerdict::OverShare => &self.admission.counters.cut,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            one.record.tell(verdict);
            return freed;
        }
        0
    }

    /// Picks bodies to be cut off, so that nobody except those that wait holds more than its share.
    fn over_share<'s>(
        &self,
        state: &AdmissionQueue,
        seen: &'s [BodyState],
        who_waits: &HashSet<Holder>,
    ) -> Vec<&'s BodyState> {
        let mut over = HashMap::new();
        let mut picked = Vec::new();
        // What nobody may take away is not made up for by others.
        let spared = |holder| {
            let young = seen
                .iter()
                .filter(|one| one.is_young && one.record.sender.is(holder));
            young.map(|one| one.record.held()).sum::<usize>()
        };
        for one in seen.iter().filter(|one| !one.is_young) {
            let mut is_over = false;
            for holder in one.record.sender.holders().filter(|one| !who_waits.contains(one)) {
                let left = over.entry(holder).or_insert_with(|| {
                    let more = state.held_by(holder).saturating_sub(self.share_of(holder));
                    more.saturating_sub(spared(holder))
                });
                is_over |= *left > 0;
            }
            if is_over {
                for holder in one.record.sender.holders() {
                    if let Some(left) = over.get_mut(&holder) {
                        *left = left.saturating_sub(one.record.held());
                    }
                }
                picked.push(one);
            }
        }
        picked
    }
}

fn freed_by(record: &BodyRecord, verdict: ClaimVerdict) -> usize {
    let held = record.held();
    match verdict {
        ClaimVerdict::Shrink if record.leaves_since().is_some() => 0,
        ClaimVerdict::Shrink => {
            let freed = held.saturating_sub(usize::try_from(record.bytes_arrived()).unwrap_or(usize::MAX));
            if freed < SHRINK_BYTES_MIN { 0 } else { freed }
        }
        ClaimVerdict::Slow | ClaimVerdict::OverShare => held,
    }
}

/// Measures a body's rate from its mark on. The mark of a body that has been fast for some time moves on,
/// because a fast start must not hide slow sending later.
fn look(record: &Arc<BodyRecord>, rate_min: u64, now: Instant) -> BodyState {
    let mark = record.mark();
    let time = now.saturating_duration_since(mark.at);
    let came = record.bytes_arrived().saturating_sub(mark.arrived) as f64;
    let slow = !record.waits_for_room() && came < rate_min as f64 * time.as_secs_f64();
    let patience = record.leaves_since().map_or(Duration::ZERO, |_| ANSWER_CUT_AFTER);
    if !slow && time >= 2 * patience.max(CUT_AFTER) {
        record.start_over();
    }
    BodyState {
        slow_for: if slow { time } else { Duration::ZERO },
        patience,
        is_young: record
            .leaves_since()
            .is_some_and(|since| now.saturating_duration_since(since) < ANSWER_SHARE_AFTER),
        burden: record.held() as f64 / (1.0 + came / time.as_secs_f64().max(0.01)),
        record: Arc::clone(record),
    }
}

const SHRINK_AFTER: Duration = Duration::from_millis(250);
const CUT_AFTER: Duration = Duration::from_secs(1);
const SHARE_AFTER: Duration = Duration::from_secs(1);
/// A client's system takes hundreds of kilobytes at once, and nothing more until they are read.
const ANSWER_CUT_AFTER: Duration = Duration::from_secs(10);
/// An answer that is read fast enough has this long before its sender's share counts against it.
const ANSWER_SHARE_AFTER: Duration = Duration::from_secs(10);
/// Freeing fewer bytes is not worth a copy.
const SHRINK_BYTES_MIN: usize = 64 << 10;
