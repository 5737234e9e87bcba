//! The memory that one body holds of the budget, and its rate: that at which a request's body arrives, or at
//! which an answer's is read.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::Mutex;

use crate::budget::OwnBudget;
use crate::holder::Sender;
use crate::own_bodies::{Known, OwnBodies};
use crate::pool::Pool;

/// A body's claim on memory. Dropping it ends the claim and gives back what it holds. The bytes themselves
/// are released by their buffer.
#[derive(Debug)]
pub(crate) struct Claim {
    budget: Arc<OwnBudget>,
    record: Arc<BodyRecord>,
}

/// The part of a claim that others may see.
#[derive(Debug)]
pub(crate) struct BodyRecord {
    pub(crate) id: u64,
    pub(crate) sender: Sender,
    /// The list of the core that it began on, if it began as one of those that only their core knows.
    home: Option<Arc<OwnBodies>>,
    /// Whether it is still in that list. Changed with the list's lock.
    is_own: AtomicBool,
    /// Whether it is arriving, as long as only its core knows of it.
    arrives: AtomicBool,
    held: AtomicUsize,
    /// The part of `held` that was given to it as a small body.
    small: AtomicUsize,
    arrived: AtomicU64,
    /// Since when it is an answer on its way out: what "arrives" is what its client has taken.
    leaves: OnceLock<Instant>,
    /// The bytes that its connection's read buffer takes while it waits.
    aside: AtomicUsize,
    waits: AtomicBool,
    /// A [`ClaimVerdict`], or 0.
    verdict: AtomicU8,
    waker: Mutex<Option<Waker>>,
    mark: Mutex<RateMark>,
}

/// The moment, and the number of bytes, from which a body's rate is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateMark {
    pub(crate) at: Instant,
    pub(crate) arrived: u64,
}

/// The demand on a body whose room others need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimVerdict {
    /// The body keeps only what has arrived.
    Shrink,
    /// The body is too slow for the memory that it holds.
    Slow,
    /// The body's address or user holds more than its share.
    OverShare,
}

// === impl Claim ===

impl Claim {
    /// Begins the claim of a body that is read into buffers of `pool`.
    pub(crate) fn begin_in(pool: &Pool, sender: Sender) -> Self {
        Claim {
            record: pool.budget().begin_body(sender),
            budget: Arc::clone(pool.own_budget()),
        }
    }

    #[cfg(test)]
    pub(crate) fn begin(budget: &Arc<crate::Budget>, sender: Sender) -> Self {
        Claim {
            record: budget.begin_body(sender),
            budget: Arc::new(OwnBudget(Arc::clone(budget))),
        }
    }

    pub(crate) fn record(&self) -> &Arc<BodyRecord> {
        &self.record
    }

    /// Adds memory that was charged without asking.
    pub(crate) fn has(&self, bytes: usize) {
        if self.record.if_own(|_| self.record.add_held(bytes)).is_none() {
            self.budget.admission.state().give(&self.record, bytes);
        }
    }

    /// Gives back `bytes` of the memory that it holds.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.budget.admission.take_back(&self.record, bytes);
    }

    /// Notes that the body is arriving from now on: others may ask it to make room.
    pub(crate) fn arrives(&self) {
        self.record.start_over();
        if self.record.if_own(|_| self.record.arrives(true)).is_none() {
            let mut state = self.budget.admission.state();
            state.arriving.insert(self.record.id, Arc::clone(&self.record));
        }
    }

    /// Notes that this is an answer that is there as a whole, of which `read` bytes have been read: others
    /// may ask its client to make room.
    pub(crate) fn leaves(&self, read: usize) {
        self.arrived(read);
        self.record.leaves.get_or_init(Instant::now);
        self.arrives();
    }

    /// Notes that the whole body has arrived.
    pub(crate) fn has_arrived(&self) {
        if self.record.if_own(|_| self.record.arrives(false)).is_none() {
            self.budget.admission.state().arriving.remove(&self.record.id);
        }
    }

    /// Notes that `bytes` bytes of the body have arrived, or, of an answer, have been read.
    pub(crate) fn arrived(&self, bytes: usize) {
        self.record.arrived.store(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the verdict on the body, once.
    pub(crate) fn poll_verdict(&self, cx: &mut Context<'_>) -> Poll<ClaimVerdict> {
        {
            let mut waker = self.record.waker.lock();
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        match ClaimVerdict::of(self.record.verdict.swap(0, Ordering::AcqRel)) {
            Some(verdict) => Poll::Ready(verdict),
            None => Poll::Pending,
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.budget.admission.end(&self.record);
    }
}

// === impl BodyRecord ===

impl BodyRecord {
    pub(crate) fn new(id: u64, sender: Sender, home: Option<Arc<OwnBodies>>) -> Self {
        BodyRecord {
            id,
            sender,
            is_own: AtomicBool::new(home.is_some()),
            home,
            arrives: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            small: AtomicUsize::new(0),
            arrived: AtomicU64::new(0),
            leaves: OnceLock::new(),
            aside: AtomicUsize::new(0),
            waits: AtomicBool::new(false),
            verdict: AtomicU8::new(0),
            waker: Mutex::default(),
            mark: Mutex::new(RateMark {
                at: Instant::now(),
                arrived: 0,
            }),
        }
    }

    /// Does something with the list of its core, if only its core knows of it.
    pub(crate) fn if_own<T>(&self, own: impl FnOnce(&mut Known) -> T) -> Option<T> {
        let mut known = self.home.as_ref()?.known();
        self.is_own.load(Ordering::Relaxed).then(|| own(&mut known))
    }

    /// Notes that others know of it too. The caller holds the lock of its core's list.
    pub(crate) fn is_common(&self) {
        self.is_own.store(false, Ordering::Relaxed);
    }

    fn arrives(&self, arrives: bool) {
        self.arrives.store(arrives, Ordering::Relaxed);
    }

    pub(crate) fn is_arriving(&self) -> bool {
        self.arrives.load(Ordering::Relaxed)
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn add_held(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub_held(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_small(&self, bytes: usize) {
        self.small.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns how many bytes were given to it as a small body.
    pub(crate) fn small(&self) -> usize {
        self.small.load(Ordering::Relaxed)
    }

    /// Returns how many of `bytes` bytes that it gives back were given to it as a small body. The caller
    /// holds the lock of the queue.
    pub(crate) fn sub_small(&self, bytes: usize) -> usize {
        let small = self.small.load(Ordering::Relaxed);
        let less = small.min(bytes);
        self.small.store(small - less, Ordering::Relaxed);
        less
    }

    pub(crate) fn aside(&self) -> usize {
        self.aside.load(Ordering::Relaxed)
    }

    /// Sets the bytes that the body takes besides while it waits; not while it waits.
    pub(crate) fn set_aside(&self, bytes: usize) {
        self.aside.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn bytes_arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Returns since when it is an answer on its way out; `None` for the body of a request.
    pub(crate) fn leaves_since(&self) -> Option<Instant> {
        self.leaves.get().copied()
    }

    /// Returns whether the body itself waits for room: then its sender is not to blame that it does not
    /// arrive.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    pub(crate) fn wait(&self, waits: bool) {
        self.waits.store(waits, Ordering::Relaxed);
        self.start_over();
    }

    pub(crate) fn start_over(&self) {
        *self.mark.lock() = RateMark {
            at: Instant::now(),
            arrived: self.bytes_arrived(),
        };
    }

    pub(crate) fn mark(&self) -> RateMark {
        *self.mark.lock()
    }

    /// Returns a verdict that the body has not yet acted on.
    pub(crate) fn told(&self) -> Option<ClaimVerdict> {
        ClaimVerdict::of(self.verdict.load(Ordering::Acquire))
    }

    pub(crate) fn tell(&self, verdict: ClaimVerdict) {
        self.verdict.store(verdict as u8 + 1, Ordering::Release);
        let waker = self.waker.lock();
        if let Some(waker) = &*waker {
            waker.wake_by_ref();
        }
    }
}

// === impl ClaimVerdict ===

impl ClaimVerdict {
    fn of(number: u8) -> Option<Self> {
        [ClaimVerdict::Shrink, ClaimVerdict::Slow, ClaimVerdict::OverShare]
            .get(usize::from(number).checked_sub(1)?)
            .copied()
    }
}
