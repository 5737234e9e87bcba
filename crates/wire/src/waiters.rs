//! The bodies that wait for room, in the order in which they came. However many wait, each step costs about
//! as much as with a few.
//!
//! A waiter whose address or user holds its share already is held back: nobody looks at it again before that
//! holder has given something back, or before the next look at all waiters.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::claim::BodyRecord;
use crate::holder::Holder;

/// A body that waits for room.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// Its place in the queue.
    number: u64,
    pub(crate) wanted: usize,
    /// Whether the body is small with what it wants.
    pub(crate) is_small: bool,
    pub(crate) record: Arc<BodyRecord>,
    pub(crate) since: Instant,
    wait: Duration,
    granted: Mutex<bool>,
    pub(crate) wake: Notify,
}

/// All bodies that wait.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    last: u64,
    large: BTreeMap<u64, Arc<Waiter>>,
    small: BTreeMap<u64, Arc<Waiter>>,
    /// The bytes that these want, each with the number of waiters who want as much.
    wanted: BTreeMap<usize, usize>,
    held_back: HashMap<Holder, BTreeMap<u64, Arc<Waiter>>>,
    held_back_count: usize,
}

// === impl Waiter ===

impl Waiter {
    /// Returns what the body holds, and what it wants beyond that.
    pub(crate) fn wants(&self) -> (usize, usize) {
        (self.record.held(), self.wanted)
    }

    pub(crate) fn grant(&self) {
        *self.granted.lock() = true;
        self.wake.notify_one();
    }

    pub(crate) fn is_granted(&self) -> bool {
        *self.granted.lock()
    }

    /// Makes the waiter forget that it was granted its room, which somebody else has now.
    pub(crate) fn passes_on(&self) {
        *self.granted.lock() = false;
    }

    /// Returns whether the waiter is the one of so many that come one after another.
    pub(crate) fn is_one_in(&self, many: usize) -> bool {
        self.number.is_multiple_of(many as u64)
    }

    /// Returns whether no other waiter may pass this one now: in the middle of its wait. Later it evidently
    /// does not get enough.
    pub(crate) fn collects(&self, now: Instant) -> bool {
        let waited = now.saturating_duration_since(self.since);
        waited > self.wait / 4 && waited < self.wait / 4 * 3
    }
}

// === impl Waiters ===

impl Waiters {
    /// Puts a body that wants so many bytes behind all others.
    pub(crate) fn push(
        &mut self,
        record: &Arc<BodyRecord>,
        (wanted, is_small): (usize, bool),
        (since, wait): (Instant, Duration),
    ) -> Arc<Waiter> {
        self.last += 1;
        let waiter = Arc::new(Waiter {
            number: self.last,
            wanted,
            is_small,
            record: Arc::clone(record),
            since,
            wait,
            granted: Mutex::new(false),
            wake: Notify::new(),
        });
        self.put(Arc::clone(&waiter));
        waiter
    }

    /// Removes a waiter; returns whether it was still there.
    pub(crate) fn remove(&mut self, waiter: &Waiter) -> bool {
        self.take_out(waiter).is_some() || self.take_held_back(waiter)
    }

    /// Returns the least that anybody wants who is not held back.
    pub(crate) fn least_wanted(&self) -> Option<usize> {
        self.wanted.first_key_value().map(|(wanted, _)| *wanted)
    }

    pub(crate) fn len(&self) -> usize {
        self.large.len() + self.small.len() + self.held_back_count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the first waiter behind `after` that is not held back; only small ones if `only_small`.
    pub(crate) fn next(&self, after: Option<&Waiter>, only_small: bool) -> Option<Arc<Waiter>> {
        let behind = (
            after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.number)),
            Bound::Unbounded,
        );
        let small = self.small.range(behind).next();
        let large = if only_small {
            None
        } else {
            self.large.range(behind).next()
        };
        let first = [small, large]
            .into_iter()
            .flatten()
            .min_by_key(|(number, _)| **number);
        first.map(|(_, waiter)| Arc::clone(waiter))
    }

    /// Iterates over all waiters, those that are held back last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        let held_back = self.held_back.values().flat_map(BTreeMap::values);
        let waiting: BTreeMap<_, _> = self.small.iter().chain(&self.large).collect();
        waiting.into_values().chain(held_back)
    }

    /// Has nobody look at a waiter until `holder`, which holds its share, or everybody, is let on.
    pub(crate) fn hold_back(&mut self, waiter: &Waiter, holder: Holder) {
        if let Some(waiter) = self.take_out(waiter) {
            let held_back = self.held_back.entry(holder).or_default();
            held_back.insert(waiter.number, waiter);
            self.held_back_count += 1;
        }
    }

    /// Lets the first waiter on that is held back because of a holder, if one is.
    pub(crate) fn let_on(&mut self, holder: Holder) -> bool {
        let held_back = self.held_back.get(&holder);
        let first = held_back.and_then(|held_back| held_back.first_key_value());
        let Some(waiter) = first.map(|(_, waiter)| Arc::clone(waiter)) else {
            return false;
        };
        self.take_held_back(&waiter);
        self.put(waiter);
        true
    }

    /// Lets all waiters on.
    pub(crate) fn let_all_on(&mut self) {
        self.held_back_count = 0;
        for waiter in std::mem::take(&mut self.held_back).into_values().flatten() {
            self.put(waiter.1);
        }
    }

    fn take_out(&mut self, waiter: &Waiter) -> Option<Arc<Waiter>> {
        let waiter = self.list(waiter.is_small).remove(&waiter.number)?;
        if let Some(count) = self.wanted.get_mut(&waiter.wanted) {
            *count -= 1;
            if *count == 0 {
                self.wanted.remove(&waiter.wanted);
            }
        }
        Some(waiter)
    }

    fn put(&mut self, waiter: Arc<Waiter>) {
        *self.wanted.entry(waiter.wanted).or_default() += 1;
        self.list(waiter.is_small).insert(waiter.number, waiter);
    }

    fn take_held_back(&mut self, waiter: &Waiter) -> bool {
        let mut holders = waiter.record.sender.holders();
        let found = holders.find(|holder| {
            let held_back = self.held_back.get_mut(holder);
            held_back.is_some_and(|held_back| held_back.remove(&waiter.number).is_some())
        });
        let Some(holder) = found else {
            return false;
        };
        self.held_back_count -= 1;
        if self.held_back[&holder].is_empty() {
            self.held_back.remove(&holder);
        }
        true
    }

    fn list(&mut self, is_small: bool) -> &mut BTreeMap<u64, Arc<Waiter>> {
        match is_small {
            true => &mut self.small,
            false => &mut self.large,
        }
    }
}
