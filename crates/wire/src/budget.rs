//! One byte budget for all cores, which bounds resident memory whatever clients send.
//!
//! Every pooled buffer is charged with its capacity, in use or idle. Request bodies are *admitted*
//! ([`admission`](crate::admission)): they may take three quarters of the budget and wait (bounded) for room.
//! Buffers that are needed to finish admitted work (gather chunks, replies) may use the rest and never wait,
//! so holding and waiting cannot deadlock.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::Instant;

use crate::admission::{Admission, Fairness};
use crate::expected::ExpectedAnswers;
use crate::heads::UnendedHeads;
use crate::per_core::Apart;
use crate::shared;

/// Bytes that buffers of all cores may hold together.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    /// Every buffer that is taken reads this. It changes when a pool gets memory from the system or gives it
    /// back.
    used: Apart<AtomicUsize>,
    pub(crate) admission: Admission,
    pub(crate) heads: UnendedHeads,
    /// The holders of idle buffers, which are given up when room is needed.
    idle: Mutex<Vec<IdleHolder>>,
    /// The lock for large copies: a copy that has room reads, and one that has none writes, and so waits for
    /// all others.
    copying: Arc<RwLock<()>>,
    pub(crate) expected: ExpectedAnswers,
}

/// A core's own pointer to the budget: references to it are counted on this core alone.
#[derive(Debug)]
pub(crate) struct OwnBudget(pub(crate) Arc<Budget>);

/// A holder of idle memory, and how many bytes that are.
#[derive(Debug)]
struct IdleHolder {
    holder: Weak<dyn Idle>,
    bytes: Arc<Apart<AtomicUsize>>,
}

/// A holder of idle memory that is charged to a budget.
pub(crate) trait Idle: Send + Sync + std::fmt::Debug {
    /// Frees all of it; returns how many bytes that were. The caller subtracts them from the budget.
    fn give_up(&self) -> usize;
}

/// Memory beside the pooled buffers that is charged like them, until this is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
    /// The lock that is held while the copy is made.
    making: Making,
}

#[derive(Debug)]
#[expect(dead_code, reason = "they are held, not looked at")]
enum Making {
    Done,
    WithOthers(Option<OwnedRwLockReadGuard<()>>),
    Alone(OwnedRwLockWriteGuard<()>),
}

/// No room under the byte budget (within the wait that was allowed). The cause is ours and transient: answer
/// 429 or 503.
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

/// The part of the budget that may lie idle while bodies wait for room, an eighth: memory for chunks and
/// answers, which is needed again at once. The part of the budget that is not for bodies bears it.
const IDLE_APART_SHARE: usize = 8;

/// Memory is in use if more than one part in this many of the budget is.
const IN_USE_SHARE: usize = 8;

/// How often a copy that waits for room looks for it.
pub(crate) const ROOM_AGAIN: Duration = Duration::from_millis(20);

/// How long an answer for which there is no memory waits for it.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Smaller copies are not waited for: there are few at once, one on each core.
const LARGE_COPY: usize = 1 << 20;

/// The default budget, which leaves room for reply buffers, code, stacks and the allocator under 256 MB
/// resident.
pub const BUDGET_BYTES_DEFAULT: usize = 144 << 20;

// === impl OwnBudget ===

impl Deref for OwnBudget {
    type Target = Arc<Budget>;

    fn deref(&self) -> &Arc<Budget> {
        &self.0
    }
}

// === impl Budget ===

impl Budget {
    /// Makes a budget of `limit` bytes; share it between pools with an `Arc`.
    pub fn new(limit: usize) -> Self {
        Self::with(limit, Fairness::default())
    }

    /// Like [`Budget::new`], with other rules between those that want memory.
    pub fn with(limit: usize, fairness: Fairness) -> Self {
        Budget {
            limit,
            used: Apart(AtomicUsize::new(0)),
            admission: Admission::new(fairness),
            heads: UnendedHeads::default(),
            idle: Mutex::default(),
            copying: Arc::default(),
            expected: ExpectedAnswers::default(),
        }
    }

    /// Returns the whole budget, in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns what request bodies may take together: three quarters. The answers to them need about as much
    /// again as the bodies when documents are short, and must never be refused memory, since the work that
    /// they report has been done. With the default budget this leaves room for one body of 100 MiB, the
    /// largest that nodes take by default, and for the buffers that small bodies are read into.
    pub fn admission_limit(&self) -> usize {
        self.limit / 4 * 3
    }

    /// Returns whether so much is in use that memory is not left where it does nothing.
    pub(crate) fn is_in_use(&self) -> bool {
        self.used() > self.limit / IN_USE_SHARE
    }

    /// Returns whether memory should be used sparingly: more than half of the budget is in use.
    pub(crate) fn is_scarce(&self) -> bool {
        self.used() > self.limit / 2
    }

    /// Returns whether nothing is left, not even for buffers that always get their memory.
    pub(crate) fn is_used_up(&self) -> bool {
        self.used() > self.limit
    }

    /// Waits while nothing is left, for at most `within`: for work that takes more memory than it was
    /// admitted with. Idle memory is given up for it, and what slow clients hold.
    ///
    /// # Errors
    /// Fails if there is still nothing left for `wanted` bytes.
    pub async fn until_not_used_up(&self, wanted: usize, within: Duration) -> Result<(), OverBudget> {
        match self.fits(0, self.limit, Instant::now() + within).await {
            true => Ok(()),
            false => Err(OverBudget {
                wanted,
                used: self.used(),
                limit: self.limit,
            }),
        }
    }

    /// Waits for `wanted` bytes of memory for an answer to work that has been done. It may be taken beyond
    /// the budget, since whoever gets no answer does not know the fate of its documents. Where half as much
    /// as the budget is taken beyond it, an answer waits for others to end, for no longer than until `until`;
    /// no more than twice the budget is taken.
    ///
    /// # Errors
    /// Fails if that is used up and stays so.
    pub(crate) async fn room_for_answer(&self, wanted: usize, until: Instant) -> Result<(), OverBudget> {
        if self.fits(wanted, self.limit / 2 * 3, until).await {
            return Ok(());
        }
        let (used, limit) = (self.used(), self.limit * 2);
        match used.saturating_add(wanted) > limit {
            true => Err(OverBudget { wanted, used, limit }),
            false => Ok(()),
        }
    }

    /// Waits until no more than `limit` is in use with `more`, and returns whether that was so by `until`.
    /// Idle memory is given up for it, and what slow clients hold.
    async fn fits(&self, more: usize, limit: usize, until: Instant) -> bool {
        loop {
            let missing = self.used().saturating_add(more).saturating_sub(limit);
            if missing == 0 {
                return true;
            }
            if self.reclaim() > 0 {
                continue;
            }
            if Instant::now() >= until {
                return false;
            }
            self.relieve_of(missing);
            tokio::time::sleep(ROOM_AGAIN).await;
        }
    }

    /// Returns the bytes charged now, idle pooled buffers included.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Charges `bytes` if the sum stays within `limit`.
    pub(crate) fn try_charge(&self, bytes: usize, limit: usize) -> Result<(), OverBudget> {
        shared::touches("memory in use");
        let charged = self
            .used
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= limit)
            });
        charged.map(|_| ()).map_err(|used| OverBudget {
            wanted: bytes,
            used,
            limit,
        })
    }

    /// Like [`Budget::try_charge`], but gives up all idle memory if need be.
    pub(crate) fn charge_or_reclaim(&self, bytes: usize, limit: usize) -> Result<(), OverBudget> {
        match self.try_charge(bytes, limit) {
            Err(refused) if bytes <= limit && self.reclaim() == 0 => Err(refused),
            Err(_) => self.try_charge(bytes, limit),
            charged => charged,
        }
    }

    /// Charges memory that finishes admitted work and is allocated elsewhere, such as a copy of a body for a
    /// log. The charge is never refused, and idle memory is given up for it; but where there is no room, it
    /// waits until no other such copy is being made, since bodies are released once they are copied.
    pub async fn hold(self: &Arc<Self>, bytes: usize) -> Charge {
        let making = match self.charge_or_reclaim(bytes, self.limit) {
            Ok(()) => self.making_with_others(bytes),
            Err(_) if bytes < LARGE_COPY => {
                self.charge(bytes);
                Making::Done
            }
            Err(_) => {
                let alone = Arc::clone(&self.copying).write_owned().await;
                if self.charge_or_reclaim(bytes, self.limit).is_err() {
                    self.charge(bytes);
                }
                Making::Alone(alone)
            }
        };
        self.charged(bytes, making)
    }

    /// Like [`Budget::hold`], but first waits for room, for at most `wait`: for work that nobody waits for.
    /// Bodies are released meanwhile.
    pub async fn hold_in_time(self: &Arc<Self>, bytes: usize, wait: Duration) -> Charge {
        let until = Instant::now() + wait;
        while bytes <= self.limit && Instant::now() < until {
            if self.charge_or_reclaim(bytes, self.limit).is_ok() {
                return self.charged(bytes, self.making_with_others(bytes));
            }
            tokio::time::sleep(ROOM_AGAIN).await;
        }
        self.hold(bytes).await
    }

    fn making_with_others(&self, bytes: usize) -> Making {
        match bytes < LARGE_COPY {
            true => Making::Done,
            false => Making::WithOthers(Arc::clone(&self.copying).try_read_owned().ok()),
        }
    }

    fn charged(self: &Arc<Self>, bytes: usize, making: Making) -> Charge {
        Charge {
            budget: Arc::clone(self),
            bytes,
            making,
        }
    }

    /// Charges without asking, for small buffers that finish admitted work.
    pub(crate) fn charge(&self, bytes: usize) {
        shared::touches("memory in use");
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Releases memory that became free, and serves those that wait for room.
    pub(crate) fn release(&self, bytes: usize) {
        shared::touches("memory in use");
        self.used.fetch_sub(bytes, Ordering::SeqCst);
        if self.somebody_waits() && self.can_serve() {
            self.serve_waiting();
        }
    }

    /// Like [`Budget::release`], when there is nobody to serve.
    pub(crate) fn forget(&self, bytes: usize) {
        shared::touches("memory in use");
        self.used.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Returns whether somebody waits for room: hardly anything is kept idle then.
    pub(crate) fn somebody_waits(&self) -> bool {
        self.admission.waiting() > 0
    }

    /// Returns the bytes of idle buffers, of all pools. Their cores change these numbers with each request,
    /// so they are read only while memory is short.
    fn idle_bytes(&self) -> usize {
        let all = self.idle.lock();
        all.iter().map(|idle| idle.bytes.load(Ordering::SeqCst)).sum()
    }

    /// Returns whether `bytes` more may lie idle while bodies wait for room.
    pub(crate) fn may_rest(&self, bytes: usize) -> bool {
        self.idle_bytes() + bytes <= self.idle_apart_max()
    }

    /// Returns the idle bytes that do not count against the room for bodies.
    pub(crate) fn idle_apart(&self) -> usize {
        self.idle_bytes().min(self.idle_apart_max())
    }

    /// Returns whether idle memory counts against the room for bodies.
    pub(crate) fn idle_in_the_way(&self) -> bool {
        !self.may_rest(0)
    }

    fn idle_apart_max(&self) -> usize {
        self.limit / IDLE_APART_SHARE
    }

    /// Notes that there is another holder of idle memory, which keeps `bytes` up to date.
    pub(crate) fn has_idle(&self, holder: Weak<dyn Idle>, bytes: Arc<Apart<AtomicUsize>>) {
        let mut all = self.idle.lock();
        all.retain(|one| one.holder.strong_count() > 0);
        all.push(IdleHolder { holder, bytes });
    }

    /// Gives up all idle memory; returns how many bytes that were.
    pub(crate) fn reclaim(&self) -> usize {
        let all = self.idle.lock();
        let freed = all
            .iter()
            .filter_map(|idle| idle.holder.upgrade())
            .map(|idle| idle.give_up())
            .sum();
        shared::touches("memory in use");
        self.used.fetch_sub(freed, Ordering::SeqCst);
        freed
    }
}
// === impl Charge ===

impl Charge {
    /// Takes over the bytes that are charged: from now on somebody else releases them.
    pub(crate) fn take_over(&mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }

    /// Notes that the copy is made, and that its source is gone; the copy has `bytes` bytes, never more than
    /// charged.
    pub fn made(&mut self, bytes: usize) {
        self.making = Making::Done;
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        if less > 0 {
            self.budget.release(less);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_that_nobody_waits_for_waits_for_room_and_no_longer_than_it_may() {
        let budget = Arc::new(Budget::new(100 << 20));
        let mut body = budget.hold(80 << 20).await;
        body.made(80 << 20);
        let (second, began) = (Duration::from_secs(1), Instant::now());
        let late = budget.hold_in_time(40 << 20, second).await;
        assert_eq!((began.elapsed(), budget.used()), (second, 120 << 20));
        drop(late);
        let (copy, ()) = tokio::join!(budget.hold_in_time(40 << 20, second), async {
            tokio::time::sleep(second / 2).await;
            assert_eq!(budget.used(), 80 << 20);
            drop(body);
        });
        assert_eq!((began.elapsed(), budget.used()), (second / 2 * 3, 40 << 20));
        drop(copy);
        let larger = budget.hold_in_time(101 << 20, second).await;
        assert_eq!(began.elapsed(), second / 2 * 3, "there will never be room for it");
        drop(larger);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn copies_that_there_is_no_room_for_wait_for_the_others_and_none_is_refused() {
        let budget = Arc::new(Budget::new(100 << 20));
        let Poll::Ready(mut first) = poll(pin!(budget.hold(80 << 20))) else {
            panic!("there is room")
        };
        let (mut second, mut third) = (pin!(budget.hold(150 << 20)), pin!(budget.hold(90 << 20)));
        assert!(poll(second.as_mut()).is_pending() && poll(third.as_mut()).is_pending());
        assert_eq!(budget.used(), 80 << 20);
        first.made(10 << 20);
        let Poll::Ready(mut second) = poll(second.as_mut()) else {
            panic!("nobody makes one")
        };
        assert!(
            poll(third.as_mut()).is_pending(),
            "the second is larger than all, and alone"
        );
        let Poll::Ready(small) = poll(pin!(budget.hold(0))) else {
            panic!("what needs nothing waits for nobody")
        };
        second.made(5 << 20);
        let Poll::Ready(third) = poll(third.as_mut()) else {
            panic!("it is its turn")
        };
        drop((first, second, third, small));
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_waits_where_much_is_taken_beyond_the_budget_and_fails_at_twice_of_it() {
        let budget = Budget::new(100 << 20);
        budget.charge(100 << 20);
        let began = Instant::now();
        let room = |mib: usize| budget.room_for_answer(mib << 20, Instant::now() + ANSWER_WITHIN);
        room(50).await.expect("150 of 150");
        assert_eq!(began.elapsed(), Duration::ZERO);
        room(51).await.expect("after a wait");
        assert_eq!(began.elapsed(), ANSWER_WITHIN);
        let refused = room(101).await.expect_err("201 of 200");
        assert_eq!(refused.limit, 200 << 20);
        let (room, ()) = tokio::join!(room(101), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            budget.forget(60 << 20);
        });
        room.expect("141 of 150");
        assert!(began.elapsed() < 2 * ANSWER_WITHIN + Duration::from_secs(2));
        budget.forget(40 << 20);
    }
}
