//! One byte budget for all cores: what keeps resident memory bounded whatever clients send.
//!
//! Every pooled buffer is charged with its capacity, in use or idle. Request bodies are *admitted*: they may take
//! five eighths of the budget and wait (bounded) for room. Everything that is needed to finish work already
//! admitted (gather chunks, replies) may use the rest and never waits, so nothing can deadlock by holding and waiting.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Bytes that buffers of all cores may hold together.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    used: AtomicUsize,
    waiting: AtomicUsize,
    freed: Notify,
    /// Set when somebody found no room: cores drop their idle buffers on the next occasion.
    pressure: AtomicBool,
}

/// No room under the byte budget (within the wait that was allowed). Our fault, transient: answer 429 or 503.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("buffer of {wanted} bytes is over the memory budget ({used} of {limit} bytes used)")]
pub struct OverBudget {
    /// Bytes asked for.
    pub wanted: usize,
    /// Bytes charged at that moment.
    pub used: usize,
    /// The budget.
    pub limit: usize,
}

/// Leaves room for reply buffers, code, stacks and the allocator under 256 MB resident.
pub const BUDGET_BYTES_DEFAULT: usize = 192 << 20;

// === impl Budget ===

impl Budget {
    /// A budget of `limit` bytes; share it between pools with an `Arc`.
    pub fn new(limit: usize) -> Self {
        Budget {
            limit,
            used: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            pressure: AtomicBool::new(false),
        }
    }

    /// The whole budget, in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// What request bodies may take together: five eighths. The answers to them need about as much again as the bodies
    /// when documents are short, and must never be refused memory: what they tell about has been done. Of the default
    /// budget this leaves room for one body of 100 MiB, the largest that nodes take by default.
    pub fn admission_limit(&self) -> usize {
        self.limit / 8 * 5
    }

    /// Whether memory should be spent sparingly: more than half of the budget is in use.
    pub(crate) fn is_scarce(&self) -> bool {
        self.used() > self.limit / 2
    }

    /// Whether nothing is left, not even for what always gets its memory.
    pub(crate) fn is_used_up(&self) -> bool {
        self.used() > self.limit
    }

    /// Bytes charged now, idle pooled buffers included.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Charges `bytes` if the sum stays within `limit`.
    pub(crate) fn try_charge(&self, bytes: usize, limit: usize) -> Result<(), OverBudget> {
        let charged = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= limit)
            });
        charged.map(|_| ()).map_err(|used| OverBudget {
            wanted: bytes,
            used,
            limit,
        })
    }

    /// Charges without asking: small buffers that finish admitted work.
    pub(crate) fn charge(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Release);
        self.wake_waiting();
    }

    /// Memory became free: the first who waits may try, and passes the word on if it got what it wanted. Waking all of a
    /// thousand waiting connections at each release would cost more than their requests.
    pub(crate) fn wake_waiting(&self) {
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.freed.notify_one();
        }
    }

    pub(crate) fn raise_pressure(&self) {
        self.pressure.store(true, Ordering::Relaxed);
    }

    pub(crate) fn under_pressure(&self) -> bool {
        self.pressure.load(Ordering::Relaxed) && self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Waits until `attempt` succeeds or `wait` is over; woken by every release.
    pub(crate) async fn wait_for<T>(
        &self,
        wait: Duration,
        mut attempt: impl FnMut() -> Result<T, OverBudget>,
    ) -> Result<T, OverBudget> {
        match attempt() {
            Ok(got) => return Ok(got),
            Err(refused) if refused.wanted > refused.limit => return Err(refused),
            Err(_) => {}
        }
        let _waiting = Waiting::enter(self);
        let end = tokio::time::Instant::now() + wait;
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable(); // registered before the attempt, or a release between the two would be lost
            let refused = match attempt() {
                Ok(got) => {
                    self.wake_waiting();
                    return Ok(got);
                }
                Err(refused) => refused,
            };
            self.raise_pressure();
            if tokio::time::timeout_at(end, freed).await.is_err() {
                return Err(refused);
            }
        }
    }
}

struct Waiting<'a>(&'a Budget);

impl<'a> Waiting<'a> {
    fn enter(budget: &'a Budget) -> Self {
        budget.waiting.fetch_add(1, Ordering::AcqRel);
        Waiting(budget)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.0.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.pressure.store(false, Ordering::Relaxed);
        }
    }
}
