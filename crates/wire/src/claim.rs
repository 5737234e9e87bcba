//! What one request body holds of the budget, and how quickly it comes.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::Mutex;

use crate::budget::Budget;

/// A body's claim on memory; ends, with what it holds, when dropped. The bytes themselves are released by
/// their buffer.
#[derive(Debug)]
pub(crate) struct Claim {
    budget: Arc<Budget>,
    record: Arc<Record>,
}

/// What others may see of a claim.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) id: u64,
    pub(crate) peer: IpAddr,
    held: AtomicUsize,
    arrived: AtomicU64,
    waits: AtomicBool,
    /// A [`Verdict`], or 0.
    verdict: AtomicU8,
    waker: Mutex<Option<Waker>>,
    mark: Mutex<Mark>,
}

/// From when, and from how many bytes, a body's rate is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) at: Instant,
    pub(crate) arrived: u64,
}

/// What a body is told that others need room of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It keeps what has arrived.
    Shrink,
    /// It is too slow for what it holds.
    Slow,
    /// Its peer holds more than its share.
    OverShare,
}

// === impl Claim ===

impl Claim {
    pub(crate) fn begin(budget: &Arc<Budget>, peer: IpAddr) -> Self {
        let record = budget.admission.state().begin(|id| Record {
            id,
            peer,
            held: AtomicUsize::new(0),
            arrived: AtomicU64::new(0),
            waits: AtomicBool::new(false),
            verdict: AtomicU8::new(0),
            waker: Mutex::default(),
            mark: Mutex::new(Mark {
                at: Instant::now(),
                arrived: 0,
            }),
        });
        Claim {
            budget: Arc::clone(budget),
            record,
        }
    }

    pub(crate) fn record(&self) -> &Arc<Record> {
        &self.record
    }

    /// Memory that was charged without asking belongs to it, too.
    pub(crate) fn has(&self, bytes: usize) {
        self.budget.admission.state().give(&self.record, bytes);
    }

    /// It holds so many bytes less.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.record.sub_held(bytes);
        self.budget.admission.state().take_back(self.record.peer, bytes);
    }

    /// The body is on its way from now on: others may ask it to make room.
    pub(crate) fn arrives(&self) {
        self.record.start_over();
        let mut state = self.budget.admission.state();
        state.arriving.insert(self.record.id, Arc::clone(&self.record));
    }

    /// The body is here.
    pub(crate) fn has_arrived(&self) {
        self.budget.admission.state().arriving.remove(&self.record.id);
    }

    /// So many bytes of it are here.
    pub(crate) fn arrived(&self, bytes: usize) {
        self.record.arrived.store(bytes as u64, Ordering::Relaxed);
    }

    /// What it has been told, once.
    pub(crate) fn poll_verdict(&self, cx: &mut Context<'_>) -> Poll<Verdict> {
        {
            let mut waker = self.record.waker.lock();
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        match Verdict::of(self.record.verdict.swap(0, Ordering::AcqRel)) {
            Some(verdict) => Poll::Ready(verdict),
            None => Poll::Pending,
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.budget.admission.state().end(&self.record);
    }
}

// === impl Record ===

impl Record {
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn add_held(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub_held(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn bytes_arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Whether it waits for room itself: that it does not come is not its sender's doing.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    pub(crate) fn wait(&self, waits: bool) {
        self.waits.store(waits, Ordering::Relaxed);
        self.start_over();
    }

    pub(crate) fn start_over(&self) {
        *self.mark.lock() = Mark {
            at: Instant::now(),
            arrived: self.bytes_arrived(),
        };
    }

    pub(crate) fn mark(&self) -> Mark {
        *self.mark.lock()
    }

    /// Whether it has been told something that it has not done yet.
    pub(crate) fn told(&self) -> Option<Verdict> {
        Verdict::of(self.verdict.load(Ordering::Acquire))
    }

    pub(crate) fn tell(&self, verdict: Verdict) {
        self.verdict.store(verdict as u8 + 1, Ordering::Release);
        let waker = self.waker.lock();
        if let Some(waker) = &*waker {
            waker.wake_by_ref();
        }
    }
}

// === impl Verdict ===

impl Verdict {
    fn of(number: u8) -> Option<Self> {
        [Verdict::Shrink, Verdict::Slow, Verdict::OverShare]
            .get(usize::from(number).checked_sub(1)?)
            .copied()
    }
}
