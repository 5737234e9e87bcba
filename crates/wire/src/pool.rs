//! Contiguous buffers, reused while warm: memory touched for the first time costs more than the copies it
//! saves.
//!
//! A [`Pool`] serves one core. Buffers come in size classes (quarter steps between powers of two, 4 KiB to
//! 128 MiB); the last one put back is the first one taken, since it is still in cache. Larger buffers are
//! allocated to measure and given back to the system at once. All capacity is charged to the shared
//! [`Budget`]. While bodies wait for room, the buffer of a body that is done goes to one of them
//! ([`handover`](crate::handover)), and only some buffers for other work stay.
//!
//! Buffers may move between cores: one core may send what another has read, without a copy, and when the last
//! handle to the buffer is dropped, it goes back to the pool that it came from. So the free buffers are
//! behind a lock, which is uncontended while buffers stay on their core.

mod lent;
mod resize;

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::budget::{Budget, Idle, OverBudget, OwnBudget};
use crate::claim::Claim;
use crate::per_core::Apart;

/// The buffers of one core. Cheap to clone.
#[derive(Clone)]
pub struct Pool {
    free: Arc<FreeBuffers>,
}

/// A contiguous run of bytes from a [`Pool`] that can grow up to its capacity; it goes back to the pool when
/// dropped.
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    charged: usize,
    home: Arc<FreeBuffers>,
    /// The claim that it belongs to, if it holds a client's body.
    claim: Option<Claim>,
}

/// A cheap handle to (a part of) a frozen [`Buffer`]; the memory goes back when the last handle is dropped.
#[derive(Clone)]
pub struct PooledBytes {
    buffer: Arc<Buffer>,
    start: usize,
    end: usize,
}

struct FreeBuffers {
    /// Behind a pointer of this core, since bodies count references to it.
    budget: Arc<OwnBudget>,
    stock: Mutex<IdleBuffers>,
    /// The bytes of the idle buffers, which the budget reads when memory is short.
    idle_bytes: Arc<Apart<AtomicUsize>>,
}

/// The idle buffers.
struct IdleBuffers {
    by_class: Vec<Vec<IdleBuffer>>,
    tick: u32,
}

struct IdleBuffer {
    bytes: Vec<u8>,
    since_tick: u32,
}

// === impl Pool ===

impl Pool {
    /// Makes an empty pool under `budget`.
    pub fn new(budget: Arc<Budget>) -> Self {
        let mut by_class = Vec::new();
        by_class.resize_with(CLASSES, Vec::new);
        let stock = IdleBuffers { by_class, tick: 0 };
        let free = Arc::new(FreeBuffers {
            budget: Arc::new(OwnBudget(budget)),
            stock: Mutex::new(stock),
            idle_bytes: Arc::default(),
        });
        let idle: Weak<FreeBuffers> = Arc::downgrade(&free);
        free.budget.has_idle(idle, Arc::clone(&free.idle_bytes));
        Pool { free }
    }

    /// Returns the budget that this pool is charged to.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.free.budget
    }

    /// Returns the budget behind a pointer that no other core counts references to.
    pub(crate) fn own_budget(&self) -> &Arc<OwnBudget> {
        &self.free.budget
    }

    /// Returns a buffer with room for at least `bytes`, at once and always: for buffers that finish admitted
    /// work (gather chunks of at most 256 KiB, heads). May overdraw the budget by that much.
    pub fn take(&self, bytes: usize) -> Buffer {
        match self.take_free(bytes).or_else(|| self.take_larger_free(bytes)) {
            Some(buffer) => buffer,
            None => {
                let (size, _) = class_of(bytes);
                let budget = &self.free.budget;
                if budget.charge_or_reclaim(size, budget.limit()).is_err() {
                    budget.charge(size);
                }
                self.fresh(size)
            }
        }
    }

    /// Returns a buffer with room for about `bytes`, at once and always: an idle one that has room for at
    /// least two thirds of them, or else a new one. It is for callers that take as much at once as there is
    /// room for: the pages of a new buffer have to be cleared first.
    pub fn take_about(&self, bytes: usize) -> Buffer {
        let idle = self.take_free(bytes).or_else(|| self.take_larger_free(bytes));
        let idle = idle.or_else(|| self.take_smaller_free(bytes));
        idle.unwrap_or_else(|| self.take(bytes))
    }

    /// Returns a buffer with room for at least `bytes` within the whole budget (replies, growth). Never
    /// waits.
    pub fn try_take(&self, bytes: usize) -> Result<Buffer, OverBudget> {
        self.take_within(bytes, self.free.budget.limit())
    }

    /// Returns a buffer for a request body, or for more of one: within three quarters of the budget, waiting
    /// at most `wait` for room. The buffer belongs to the claim as long as it is held; if the claim is put
    /// into the buffer, it ends with the buffer.
    pub(crate) async fn admit(
        &self,
        bytes: usize,
        claim: &Claim,
        wait: Duration,
    ) -> Result<Buffer, OverBudget> {
        let budget = &self.free.budget;
        let size = match class_of(bytes).0 {
            size if size > budget.admission_limit() => bytes,
            size => size,
        };
        let warm = || self.take_free(bytes).filter(|warm| warm.charged == size);
        match budget.room_now(claim, size, warm) {
            Some(Some(warm)) => Ok(warm),
            Some(None) => Ok(self.fresh(size)),
            None => match budget.wait_for_room(claim, size, wait).await? {
                Some(handed_over) => Ok(self.buffer(handed_over)),
                None => Ok(warm()
                    .inspect(|_| budget.release(size)) // it is charged already
                    .unwrap_or_else(|| self.fresh(size))),
            },
        }
    }

    /// Makes room for `bytes` more bytes of a request body, by the rules of [`Pool::admit`]. They are
    /// charged, and meant for [`Buffer::grow`].
    pub(crate) async fn admit_more(
        &self,
        bytes: usize,
        claim: &Claim,
        wait: Duration,
    ) -> Result<(), OverBudget> {
        let budget = &self.free.budget;
        match budget.room_now(claim, bytes, || None::<()>) {
            Some(_) => Ok(()),
            None => budget.wait_for_room(claim, bytes, wait).await.map(drop),
        }
    }

    /// Marks the passing of time and frees buffers that nobody took during the last `keep_ticks` calls.
    /// A [`Worker`](crate::Worker) calls this every second.
    pub fn tick(&self, keep_ticks: u32) {
        let free = &self.free;
        // Before the lock of the stock is taken: the budget gives up the stocks of all pools.
        let in_the_way = free.budget.somebody_waits() && free.budget.idle_in_the_way();
        let mut stock = free.stock();
        stock.tick = stock.tick.wrapping_add(1);
        let now = stock.tick;
        if in_the_way {
            drop(stock);
            free.drop_idle();
            return;
        }
        let mut freed = 0;
        for class in &mut stock.by_class {
            // The oldest are at the front, since the class is a stack.
            let old = class
                .iter()
                .take_while(|idle| now.wrapping_sub(idle.since_tick) > keep_ticks)
                .count();
            freed += class
                .drain(..old)
                .map(|idle| idle.bytes.capacity())
                .sum::<usize>();
            if class.is_empty() {
                class.shrink_to_fit();
            }
        }
        free.forget(stock, freed);
    }

    /// Returns the bytes that lie idle in this pool.
    pub fn idle_bytes(&self) -> usize {
        self.free.idle_bytes()
    }

    fn take_within(&self, bytes: usize, limit: usize) -> Result<Buffer, OverBudget> {
        if let Some(buffer) = self.take_free(bytes).or_else(|| self.take_larger_free(bytes)) {
            return Ok(buffer);
        }
        let (size, _) = class_of(bytes);
        self.free.budget.charge_or_reclaim(size, limit)?;
        Ok(self.fresh(size))
    }

    fn take_free(&self, bytes: usize) -> Option<Buffer> {
        let (_, class) = class_of(bytes);
        let mut stock = self.free.stock();
        let idle = stock.by_class.get_mut(class?)?.pop()?;
        Some(self.woken(stock, idle))
    }

    /// Takes a buffer that is up to twice as large as needed: its pages are there, while the pages of a new
    /// one have to be cleared first.
    fn take_larger_free(&self, bytes: usize) -> Option<Buffer> {
        let (_, class) = class_of(bytes);
        let mut stock = self.free.stock();
        let higher = stock.by_class.get_mut(class? + 1..)?;
        let idle = higher.iter_mut().take(CLASSES_OF_A_DOUBLING).find_map(Vec::pop)?;
        Some(self.woken(stock, idle))
    }

    /// A buffer that has room for two thirds as much, or more.
    fn take_smaller_free(&self, bytes: usize) -> Option<Buffer> {
        let (_, class) = class_of(bytes);
        let mut stock = self.free.stock();
        let lower = stock.by_class.get_mut(..class?)?;
        let mut nearest = lower.iter_mut().rev().take(CLASSES_OF_A_THIRD);
        let idle = nearest.find_map(Vec::pop)?;
        Some(self.woken(stock, idle))
    }

    /// A buffer of what lay idle until now.
    fn woken(&self, stock: MutexGuard<'_, IdleBuffers>, idle: IdleBuffer) -> Buffer {
        self.free.takes_out(idle.bytes.capacity());
        drop(stock);
        self.buffer(idle.bytes)
    }

    fn fresh(&self, size: usize) -> Buffer {
        let mut buffer = self.buffer(Vec::with_capacity(size));
        buffer.charged = size;
        buffer
    }

    /// A buffer of memory that is charged.
    fn buffer(&self, bytes: Vec<u8>) -> Buffer {
        Buffer {
            charged: bytes.capacity(),
            bytes,
            start: 0,
            home: Arc::clone(&self.free),
            claim: None,
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("idle_bytes", &self.idle_bytes())
            .finish_non_exhaustive()
    }
}

// === impl FreeBuffers ===

impl FreeBuffers {
    fn stock(&self) -> MutexGuard<'_, IdleBuffers> {
        self.stock.lock()
    }

    fn put(&self, mut bytes: Vec<u8>, charged: usize, of_body: bool) {
        let (size, class) = class_of(charged);
        let class = class.filter(|_| bytes.capacity() == size && size == charged);
        let budget = &self.budget;
        let Some(class) = class else {
            drop(bytes);
            return budget.release(charged);
        };
        bytes.clear();
        let may_rest = || size >= KEPT_BYTES_MIN && budget.may_rest(size);
        if !budget.somebody_waits() {
            self.keep(bytes, class);
        } else if !of_body && may_rest() {
            self.keep(bytes, class);
            budget.release(0); // what rests leaves more room for bodies than what is used
        } else if let Some(left) = budget.hand_over(bytes)
            && may_rest()
        {
            budget.charge(size);
            self.keep(left, class);
        }
    }

    fn keep(&self, bytes: Vec<u8>, class: usize) {
        let mut stock = self.stock();
        let (since_tick, size) = (stock.tick, bytes.capacity());
        stock.by_class[class].push(IdleBuffer { bytes, since_tick });
        self.idle_bytes.fetch_add(size, Ordering::SeqCst);
    }

    /// Notes that `bytes` bytes of the stock, whose lock the caller holds, lie idle no longer.
    fn takes_out(&self, bytes: usize) {
        self.idle_bytes.fetch_sub(bytes, Ordering::SeqCst);
    }

    fn idle_bytes(&self) -> usize {
        self.idle_bytes.load(Ordering::SeqCst)
    }

    fn drop_idle(&self) {
        let freed = self.empty();
        if freed > 0 {
            self.budget.release(freed);
        }
    }

    /// Frees the idle buffers; returns how many bytes that were, which are still charged.
    fn empty(&self) -> usize {
        let mut stock = self.stock();
        if self.idle_bytes() == 0 {
            return 0;
        }
        let mut freed = 0;
        for class in &mut stock.by_class {
            freed += class.drain(..).map(|idle| idle.bytes.capacity()).sum::<usize>();
        }
        self.takes_out(freed);
        freed
    }

    /// Subtracts freed bytes from the accounts.
    fn forget(&self, stock: MutexGuard<'_, IdleBuffers>, freed: usize) {
        if freed > 0 {
            self.takes_out(freed);
            drop(stock);
            self.budget.release(freed);
        }
    }
}

impl Idle for FreeBuffers {
    fn give_up(&self) -> usize {
        self.empty()
    }
}

impl fmt::Debug for FreeBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreeBuffers").finish_non_exhaustive()
    }
}

impl Drop for FreeBuffers {
    fn drop(&mut self) {
        let freed = self.empty();
        self.budget.forget(freed);
    }
}

// === impl Buffer ===

impl Buffer {
    /// Returns the bytes that fit in without growing.
    pub fn spare(&self) -> usize {
        self.bytes.capacity() - self.bytes.len()
    }

    /// Returns the room in all, from the first byte.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity() - self.start
    }

    /// Appends bytes. Growing past the capacity is allowed but leaves the size classes (such memory isn't
    /// reused).
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.as_mut_vec().extend_from_slice(bytes);
    }

    /// Makes room for `more` more bytes, at once and always, as [`Pool::take`] does: if there is not enough,
    /// moves to a buffer that is at least twice as large.
    pub fn reserve(&mut self, more: usize) {
        if self.spare() < more {
            let mut larger = self.pool().take((self.len() + more).max(self.capacity() * 2));
            larger.bytes.extend_from_slice(self);
            *self = larger;
        }
    }

    /// Returns the claim that this is charged to.
    pub(crate) fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    /// Assigns memory that was charged without asking to the claim, which ends with this buffer.
    pub(crate) fn claimed(&mut self, claim: Claim) {
        claim.has(self.charged);
        self.claim = Some(claim);
    }

    /// Continues in `larger`, which has been admitted for the same claim, or for `claim` as its first.
    pub(crate) fn move_to(&mut self, mut larger: Buffer, claim: Option<Claim>) {
        larger.bytes.extend_from_slice(self);
        larger.claim = self
            .claim
            .take()
            .inspect(|claim| claim.give_back(self.charged))
            .or(claim);
        *self = larger;
    }

    /// Returns the bytes that are charged to the budget for the buffer.
    pub(crate) fn charged(&self) -> usize {
        self.charged
    }

    /// Empties the buffer, keeping its memory.
    pub fn clear(&mut self) {
        self.start = 0;
        self.bytes.clear();
    }

    /// Drops everything after the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(self.start + len);
    }

    /// Drops the first `count` bytes; costs nothing.
    ///
    /// # Panics
    /// If the buffer is shorter than `count`.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "advance past the end of a buffer");
        self.start += count;
        if self.start == self.bytes.len() {
            self.clear();
        }
    }

    /// Returns the underlying vector, for writers that append to a `Vec<u8>`. Bytes dropped by
    /// [`Buffer::advance`] are moved out first.
    pub fn as_mut_vec(&mut self) -> &mut Vec<u8> {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        &mut self.bytes
    }

    /// Freezes the buffer, so that its bytes can be shared.
    pub fn freeze(self) -> PooledBytes {
        let end = self.len();
        PooledBytes {
            buffer: Arc::new(self),
            start: 0,
            end,
        }
    }

    /// Returns the underlying vector with the bytes that `advance` dropped still in front: only appending is
    /// allowed.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(crate) fn pool(&self) -> Pool {
        Pool {
            free: Arc::clone(&self.home),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // The claim first, because whoever gets the freed room may be the same peer.
        let of_body = self.claim.take().is_some();
        self.home
            .put(std::mem::take(&mut self.bytes), self.charged, of_body);
    }
}

// === impl Shared ===

impl PooledBytes {
    /// Returns how many bytes of memory this handle keeps: all of the buffer, however small a part of it this
    /// is.
    pub fn kept(&self) -> usize {
        self.buffer.capacity()
    }

    /// Returns the buffer that this is a part of.
    pub(crate) fn whole(&self) -> &Buffer {
        &self.buffer
    }

    /// Returns a handle to a part of this one.
    ///
    /// # Panics
    /// If the range lies outside this handle's bytes.
    pub fn slice(&self, range: Range<usize>) -> PooledBytes {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "slice outside of a shared buffer"
        );
        PooledBytes {
            buffer: Arc::clone(&self.buffer),
            start: self.start + range.start,
            end: self.start + range.end,
        }
    }
}

impl Deref for PooledBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }
}

impl AsRef<[u8]> for PooledBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for PooledBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledBytes").field("len", &self.len()).finish()
    }
}

/// Returns the capacity for `bytes`, and its class (`None`: allocated to measure, not kept).
fn class_of(bytes: usize) -> (usize, Option<usize>) {
    if bytes <= CLASS_BYTES_MIN {
        return (CLASS_BYTES_MIN, Some(0));
    }
    if bytes > CLASS_BYTES_MAX {
        return (bytes.div_ceil(1 << 20) << 20, None);
    }
    let power = (bytes - 1).ilog2();
    let step = 1usize << (power - 2);
    let size = bytes.div_ceil(step) * step;
    let quarter = ((size - 1) >> (power - 2)) & 3;
    (size, Some(1 + (power as usize - 12) * 4 + quarter))
}

/// Smaller buffers are not kept while somebody waits for room, since the allocator keeps their memory.
const KEPT_BYTES_MIN: usize = 64 << 10;
const CLASS_BYTES_MIN: usize = 4 << 10;
const CLASS_BYTES_MAX: usize = 128 << 20;
const CLASSES_OF_A_DOUBLING: usize = 4;
/// A third less, or hardly more than that.
const CLASSES_OF_A_THIRD: usize = 2;
const CLASSES: usize = 1 + (27 - 12) * 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::Sender;

    fn pool(limit: usize) -> Pool {
        Pool::new(Arc::new(Budget::new(limit)))
    }

    #[test]
    fn classes_are_dense_monotonic_and_waste_at_most_a_quarter() {
        let mut last = (0, 0);
        for bytes in (1..CLASS_BYTES_MAX)
            .step_by(997)
            .chain([4096, 4097, 8192, 8193, CLASS_BYTES_MAX])
        {
            let (size, class) = class_of(bytes);
            let class = class.expect("pooled");
            assert!(size >= bytes && class < CLASSES);
            assert!(bytes <= 4096 || size - bytes <= bytes / 4, "{bytes} in {size}");
            assert_eq!(class_of(size), (size, Some(class)), "a class holds its own size");
            if bytes > last.0 && last.0 > 0 {
                assert!(class >= last.1);
            }
            last = (bytes, class);
        }
        assert_eq!(class_of(CLASS_BYTES_MAX + 1), (129 << 20, None));
    }

    #[test]
    fn the_last_buffer_put_back_is_taken_first() {
        let pool = pool(1 << 20);
        let (one, two) = (pool.take(5000), pool.take(5000));
        let address = one.bytes.as_ptr();
        drop(two);
        drop(one);
        assert_eq!(pool.take(5100).bytes.as_ptr(), address);
    }

    #[test]
    fn what_is_about_as_large_is_taken_before_memory_is_new() {
        let pool = pool(1 << 20);
        let taken = |bytes: usize, kept: &[usize]| {
            let kept: Vec<_> = kept.iter().map(|kept| pool.fresh(*kept)).collect();
            kept.iter().for_each(|kept| pool.free.budget.charge(kept.charged));
            drop(kept);
            let room = pool.take_about(bytes).capacity();
            pool.free.drop_idle();
            room
        };
        assert_eq!(taken(16 << 10, &[12 << 10, 16 << 10, 20 << 10]), 16 << 10);
        assert_eq!(taken(16 << 10, &[12 << 10, 20 << 10]), 20 << 10);
        assert_eq!(taken(16 << 10, &[12 << 10, 14 << 10]), 14 << 10, "the nearest");
        assert_eq!(taken(20 << 10, &[14 << 10]), 14 << 10);
        assert_eq!(taken(16 << 10, &[10 << 10]), 16 << 10, "too little");
        assert_eq!(taken(16 << 10, &[]), 16 << 10);
    }

    #[test]
    fn a_buffer_that_another_thread_has_done_with_goes_back_to_where_it_came_from() {
        let pool = pool(1 << 20);
        let mut buffer = pool.take(5000);
        buffer.extend_from_slice(b"read here");
        let address = buffer.bytes.as_ptr();
        let shared = buffer.freeze();
        let there = shared.clone();
        let sent = std::thread::spawn(move || there.len());
        assert_eq!(sent.join().expect("no panic"), 9);
        assert_eq!(pool.idle_bytes(), 0, "it is in use here still");
        let last = std::thread::spawn(move || drop(shared));
        last.join().expect("no panic");
        assert_eq!(pool.take(5000).bytes.as_ptr(), address);
    }

    #[test]
    fn budget_counts_what_is_used_and_idle_and_returns_to_zero() {
        let pool = pool(1 << 20);
        let buffer = pool.try_take(100_000).expect("fits");
        let used = pool.budget().used();
        assert_eq!(used, buffer.capacity());
        drop(buffer);
        assert_eq!((pool.budget().used(), pool.idle_bytes()), (used, used));
        pool.tick(0);
        assert_eq!((pool.budget().used(), pool.idle_bytes()), (0, 0));
    }

    #[test]
    fn a_grown_buffer_is_not_kept_and_the_charge_is_released() {
        let pool = pool(1 << 20);
        let mut buffer = pool.take(4096);
        buffer.extend_from_slice(&[0; 10_000]);
        drop(buffer);
        assert_eq!((pool.budget().used(), pool.idle_bytes()), (0, 0));
    }

    #[test]
    fn try_take_fails_over_budget_and_gives_way_to_idle_memory() {
        let pool = pool(1 << 20);
        let held = pool.try_take(600 << 10).expect("fits");
        assert!(pool.try_take(600 << 10).is_err());
        drop(held);
        assert!(
            pool.try_take(900 << 10).is_ok(),
            "idle memory is given up for another class"
        );
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn admission_waits_for_room_and_no_longer_than_allowed() {
        let pool = pool(1 << 20);
        let claim = Claim::begin(pool.budget(), Sender::unknown([127, 0, 0, 1].into()));
        let admit = async |wait| pool.admit(600 << 10, &claim, wait).await;
        let held = admit(Duration::ZERO).await.expect("fits");
        assert!(admit(Duration::from_millis(50)).await.is_err());
        let (got, ()) = tokio::join!(admit(Duration::from_secs(5)), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(held);
        });
        assert!(got.is_ok());
    }

    #[test]
    fn idle_memory_of_one_pool_is_given_up_for_another() {
        let budget = Arc::new(Budget::new(1 << 20));
        let (one, other) = (Pool::new(Arc::clone(&budget)), Pool::new(Arc::clone(&budget)));
        drop(one.take(700 << 10));
        assert!(other.try_take(700 << 10).is_ok());
        assert_eq!(one.idle_bytes(), 0);
    }

    #[test]
    fn advance_and_freeze_keep_the_bytes() {
        let pool = pool(1 << 20);
        let mut buffer = pool.take(10);
        buffer.extend_from_slice(b"hello world");
        buffer.advance(6);
        let shared = buffer.freeze();
        assert_eq!((&*shared, &*shared.slice(1..3)), (&b"world"[..], &b"or"[..]));
        drop(shared);
        assert_eq!(pool.idle_bytes(), 4096);
    }
}
