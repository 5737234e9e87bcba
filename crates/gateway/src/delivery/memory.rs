//! Bounds the memory of delivery: one budget of bytes for the lanes of all queues and clusters. A lane takes
//! memory before it reads a batch, and gives it back when the batch is settled.
//!
//! Half of the budget is divided among the lanes, and no lane can have another's part: a lane whose next
//! group fits into its own part never waits, however the others fare. So a node that does not answer, or a
//! cluster that is away, holds up no lane that has nothing for it. The other half is common, and is taken in
//! the order of asking: by batches that are larger than a lane's part, and by groups that do not fit into
//! one, which wait for it in turn. A group that is larger than the whole common half goes alone. A lane that
//! holds some of that half and only waits (for a cluster that is away, for room for dead letters) gives it
//! back as soon as another lane wants it, and reads its lines again when it goes on. No lane waits for more
//! while it holds any.
//!
//! Besides its lines, a batch takes [`NOTES_BYTES`] for each operation, which is more than the lines of a
//! small operation. A lane that gives its memory back while it waits keeps [`RESTING_BYTES`] of them for each
//! operation, which stay counted. What they take of the common half does not keep a group waiting that would
//! go alone: lanes that rest may do so for long.
//!
//! A sixteenth of the memory is for short answers of nodes, which take it as they arrive. An answer that
//! finds none left is read like a long one.
//!
//! An eighth of the memory is kept apart for long answers of nodes, which are read in turn; the reader of one
//! waits for nothing else. None has more than a quarter of it beside others, or three when it is alone,
//! unless its operations need that; one that comes too slowly is given up if others wait
//! ([`Pace`](crate::delivery::answer_pace::Pace)). The text of an answer stays counted until its operations
//! are settled, and while much text is counted, less is kept of the next answers. Nobody waits for text to be
//! settled: one node's answer to a batch is not settled before all nodes have answered. A request has no more
//! operations than that eighth can hold errors for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, SemaphorePermit, oneshot, watch};

use bulk::Operation;

use crate::delivery::doubt::Doubt;
use crate::delivery::outcome::Outcome;
use crate::queue::parked::FailureRow;

/// The memory budget of delivery.
#[derive(Debug)]
pub(crate) struct Memory {
    /// The bytes for documents.
    bytes_max: usize,
    /// The bytes for long answers.
    answers: Semaphore,
    answers_max: u32,
    /// The number of those that wait for these.
    answers_wanted: AtomicUsize,
    /// The bytes for short answers, and those that such answers take now.
    short_max: usize,
    short: AtomicUsize,
    /// The bytes of answers' texts whose operations are not settled yet.
    said: AtomicUsize,
    state: Mutex<Balance>,
    /// The bytes that batches hold now.
    held: AtomicUsize,
    /// The number of lanes that wait.
    waiting: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Balance {
    lanes: usize,
    /// Bytes of the common half that are held.
    common: usize,
    /// Those among them that lanes hold which rest.
    resting: usize,
    /// The lanes that wait, each with the bytes of the common half that it wants.
    queue: VecDeque<(usize, oneshot::Sender<LaneMemory>)>,
}

/// How much of the budget is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) held: usize,
    pub(crate) max: usize,
    /// The number of lanes that wait.
    pub(crate) waiting: usize,
}

/// The parts of the budget that some lanes have, until this is dropped.
#[derive(Debug)]
pub(crate) struct BudgetShares {
    memory: Arc<Memory>,
    lanes: usize,
}

/// Memory that a lane may use until it drops this.
#[derive(Debug)]
pub(crate) struct LaneMemory {
    memory: Arc<Memory>,
    /// Bytes of the lane's own part.
    own: usize,
    /// Bytes of the common half.
    common: usize,
    /// Whether the lane rests, and `common` is counted so.
    rests: bool,
    /// Bytes of both that are counted as held.
    counted: usize,
}

/// Memory that a long answer may take while it is read, until this is dropped.
#[derive(Debug)]
pub(crate) struct AnswerRoom<'a> {
    pub(crate) bytes: usize,
    _permit: Option<SemaphorePermit<'a>>,
}

/// A long answer that waits for memory, until this is dropped.
struct AnswerWanted<'a>(&'a AtomicUsize);

/// The memory that an answer takes, or the contents of a long one, until this is dropped.
#[derive(Debug)]
pub(crate) struct AnswerHeld {
    memory: Arc<Memory>,
    bytes: usize,
    is_short: bool,
}

// === impl Memory ===

impl Memory {
    /// Creates a budget of this many bytes in all.
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        let (answers, short) = (bytes_max / ANSWERS_SHARE, bytes_max / SHORT_SHARE);
        Self::with(bytes_max - answers - short, answers, short)
    }

    /// Creates a budget of these bytes for documents, these for long answers, and these for short ones.
    fn with(bytes_max: usize, answers: usize, short_max: usize) -> Arc<Self> {
        let answers_max = u32::try_from(answers)
            .unwrap_or(u32::MAX)
            .min(Semaphore::MAX_PERMITS as u32);
        Arc::new(Self {
            bytes_max,
            answers: Semaphore::new(answers_max as usize),
            answers_max,
            answers_wanted: AtomicUsize::new(0),
            short_max,
            short: AtomicUsize::new(0),
            said: AtomicUsize::new(0),
            state: Mutex::default(),
            held: AtomicUsize::new(0),
            waiting: watch::Sender::new(0),
        })
    }

    /// Returns the bytes that there are for documents.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns the bytes that documents and long answers take now, the whole budget, and how many lanes wait.
    pub(crate) fn usage(&self) -> Usage {
        let answers = self.answers_max as usize - self.answers.available_permits();
        let answers = answers + self.said.load(Ordering::Relaxed) + self.short.load(Ordering::Relaxed);
        Usage {
            held: self.held.load(Ordering::Relaxed) + answers,
            max: self.bytes_max + self.answers_max as usize + self.short_max,
            waiting: *self.waiting.borrow(),
        }
    }

    /// Takes memory to read a long answer, in turn: `least` bytes, and as much of `more` as earlier answers
    /// and the next ones leave, but no more than there is in all.
    pub(crate) async fn answer(&self, least: usize, more: usize) -> AnswerRoom<'_> {
        let all = self.answers_max as usize;
        let is_alone = self.answers.available_permits() == all;
        let share = if is_alone { 3 * all / 4 } else { all / 4 };
        let permits = least.saturating_add(more).min(share.max(least)).min(all);
        let waits = AnswerWanted::of(&self.answers_wanted);
        // Nobody closes the semaphore.
        let permit = self.answers.acquire_many(permits as u32).await.ok();
        drop(waits);
        let left = permits.saturating_sub(self.said.load(Ordering::Relaxed));
        AnswerRoom {
            bytes: left.max(least.min(permits)),
            _permit: permit,
        }
    }

    /// Whether a long answer waits for memory.
    pub(crate) fn is_answer_wanted(&self) -> bool {
        self.answers_wanted.load(Ordering::Relaxed) > 0
    }

    /// Counts the memory that the contents of an answer take.
    pub(crate) fn said(self: &Arc<Self>, bytes: usize) -> AnswerHeld {
        self.said.fetch_add(bytes, Ordering::Relaxed);
        AnswerHeld {
            memory: Arc::clone(self),
            bytes,
            is_short: false,
        }
    }

    /// Begins to count the memory that a short answer takes.
    pub(crate) fn short(self: &Arc<Self>) -> AnswerHeld {
        AnswerHeld {
            memory: Arc::clone(self),
            bytes: 0,
            is_short: true,
        }
    }

    /// Returns how many operations a request may have: the errors of all of them find room at once.
    pub(crate) fn operations_max(&self) -> usize {
        (self.answers_max as usize / ERROR_BYTES).max(1)
    }

    /// Gives a part to each of this many lanes.
    pub(crate) fn parts(self: &Arc<Self>, lanes: usize) -> BudgetShares {
        self.state().lanes += lanes;
        BudgetShares {
            memory: Arc::clone(self),
            lanes,
        }
    }

    /// Takes memory for a batch that needs `least` bytes and can use `most`: at once if `least` fits into a
    /// lane's part, otherwise as soon as there is room for it.
    pub(crate) async fn take(self: &Arc<Self>, least: usize, most: usize) -> LaneMemory {
        let told = {
            let mut state = self.state();
            let part = self.part(&state);
            let (own, least_common) = (most.min(part), least.saturating_sub(part));
            let is_next = state.queue.is_empty();
            let fits = self.fits(&state, least_common);
            if least_common == 0 || is_next && fits {
                // A batch gets more than it needs only of memory that no lane waits for.
                let free = self.common_max().saturating_sub(state.common);
                let wish = most.saturating_sub(own).min(if is_next { free } else { 0 });
                let common = wish.max(least_common);
                state.common += common;
                return self.held(own, common);
            }
            let (tell, told) = oneshot::channel();
            state.queue.push_back((least_common, tell));
            self.waiting.send_replace(state.queue.len());
            told
        };
        let mut held = told.await.expect("who waits is told, and the budget outlives it");
        held.own = most.min(self.part(&self.state()));
        held.count(held.bytes());
        held
    }

    /// Takes memory of the common half for a batch whose lane goes on, if that half has room and no lane
    /// waits.
    pub(crate) fn spare(self: &Arc<Self>, bytes: usize) -> Option<LaneMemory> {
        let mut state = self.state();
        if !state.queue.is_empty() || state.common + bytes > self.common_max() {
            return None;
        }
        state.common += bytes;
        Some(self.held(0, bytes))
    }

    /// Returns once a lane waits for memory.
    pub(crate) async fn is_wanted(&self) {
        let mut waiting = self.waiting.subscribe();
        // The sender lives as long as `self`.
        let _ = waiting.wait_for(|waiting| *waiting > 0).await;
    }

    /// Returns the bytes of each lane's part.
    fn part(&self, state: &Balance) -> usize {
        self.bytes_max / 2 / state.lanes.max(1)
    }

    fn common_max(&self) -> usize {
        self.bytes_max / 2
    }

    fn fits(&self, state: &Balance, bytes: usize) -> bool {
        state.common == state.resting || state.common + bytes <= self.common_max()
    }

    fn held(self: &Arc<Self>, own: usize, common: usize) -> LaneMemory {
        let mut held = LaneMemory {
            memory: Arc::clone(self),
            own,
            common,
            rests: false,
            counted: 0,
        };
        held.count(own + common);
        held
    }

    /// Takes note of another state of the common half, and hands what is free to the waiting lanes in turn.
    fn rebalance(self: &Arc<Self>, change: impl FnOnce(&mut Balance)) {
        let mut served = Vec::new();
        {
            let mut state = self.state();
            change(&mut state);
            // A lane that no longer waits does not stand in the way of those behind it.
            state.queue.retain(|(_, tell)| !tell.is_closed());
            while let Some((bytes, _)) = state.queue.front()
                && self.fits(&state, *bytes)
                && let Some((bytes, tell)) = state.queue.pop_front()
            {
                state.common += bytes;
                served.push((bytes, tell));
            }
            self.waiting.send_replace(state.queue.len());
        }
        for (bytes, tell) in served {
            // If the lane has gone meanwhile, its memory comes back and is given to the next.
            drop(tell.send(self.held(0, bytes)));
        }
    }

    fn state(&self) -> MutexGuard<'_, Balance> {
        self.state.lock()
    }
}

impl Drop for BudgetShares {
    fn drop(&mut self) {
        self.memory.state().lanes -= self.lanes;
    }
}

// === impl LaneMemory ===

impl LaneMemory {
    /// Returns how many bytes this is.
    pub(crate) fn bytes(&self) -> usize {
        self.own + self.common
    }

    /// Whether this is more than the lane's own part.
    pub(crate) fn is_common(&self) -> bool {
        self.common > 0
    }

    /// Gives back the part of the common half that is not needed.
    pub(crate) fn keep(&mut self, bytes: usize) {
        let common = bytes.saturating_sub(self.own).min(self.common);
        let unused = std::mem::replace(&mut self.common, common) - common;
        self.count(bytes.min(self.bytes()));
        let rests = if self.rests { unused } else { 0 };
        if unused > 0 {
            self.memory.rebalance(|state| {
                state.common -= unused;
                state.resting -= rests;
            });
        }
    }

    /// Gives back what is not needed while the lane rests and keeps notes on this many operations.
    pub(crate) fn rest(&mut self, operations: usize) {
        self.keep(operations.saturating_mul(RESTING_BYTES));
        if !std::mem::replace(&mut self.rests, true) && self.common > 0 {
            self.memory.rebalance(|state| state.resting += self.common);
        }
    }

    /// Counts this many bytes as in use.
    fn count(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.counted, bytes);
        self.memory.held.fetch_add(bytes, Ordering::Relaxed);
        self.memory.held.fetch_sub(before, Ordering::Relaxed);
    }

    /// Gives back all of the common half, and uses nothing of the lane's own part.
    fn let_go(&mut self) {
        self.keep(0);
    }
}

// === impl AnswerWanted ===

impl<'a> AnswerWanted<'a> {
    fn of(wanted: &'a AtomicUsize) -> Self {
        wanted.fetch_add(1, Ordering::Relaxed);
        Self(wanted)
    }
}

impl Drop for AnswerWanted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl AnswerHeld ===

impl AnswerHeld {
    /// Takes memory for a short answer that has so many bytes now; returns whether there was room.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let (short, most) = (&self.memory.short, self.memory.short_max);
        let taken = short.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            Some(taken + more).filter(|sum| *sum <= most)
        });
        self.bytes += if taken.is_ok() { more } else { 0 };
        taken.is_ok()
    }
}

impl Drop for AnswerHeld {
    fn drop(&mut self) {
        let counted = match self.is_short {
            true => &self.memory.short,
            false => &self.memory.said,
        };
        counted.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for LaneMemory {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Returns the bytes that lines take together with the notes of their operations.
pub(crate) fn with_notes(bytes: usize, operations: usize) -> usize {
    bytes.saturating_add(operations.saturating_mul(NOTES_BYTES))
}

/// The bytes of the notes on an operation while its batch is delivered: its place and its doubt, its number
/// among those to be sent and to be sent again, and its outcome in one try, twice while the outcome is passed
/// on.
const NOTES_BYTES: usize = size_of::<Operation>()
    + 6 * size_of::<u32>()
    + size_of::<FailureRow>()
    + 2 * size_of::<(usize, Outcome)>();

/// The bytes of these notes that a lane keeps while it rests: the doubt about an operation, how often it was
/// tried and refused, and its number among those that are left, of this step and of the next ones.
const RESTING_BYTES: usize =
    size_of::<Doubt>() + 2 * size_of::<u32>() + size_of::<FailureRow>() + 3 * size_of::<usize>();

/// The least that an error takes in an answer that is reduced ([`bulk::Condense`]), with the item around it.
pub(crate) const ERROR_BYTES: usize = 320;

/// Long answers get one part in this many of the whole budget.
const ANSWERS_SHARE: usize = 8;
/// Short answers get one part in this many.
const SHORT_SHARE: usize = 16;

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Returns the memory that can be had at once.
    fn now(memory: &Arc<Memory>, least: usize, most: usize) -> Option<LaneMemory> {
        match poll(pin!(memory.take(least, most))) {
            Poll::Ready(held) => Some(held),
            Poll::Pending => None,
        }
    }

    fn common(memory: &Memory) -> usize {
        memory.state().common
    }

    #[test]
    fn lanes_that_hold_all_they_can_for_ever_hold_up_no_other() {
        // 32 lanes, of which 31 have batches for a dead node and never let go.
        let memory = Memory::with(64_000, 0, 0);
        let _parts = memory.parts(32);
        let dead: Vec<_> = (0..31).map(|_| now(&memory, 900, 5_000).unwrap()).collect();
        assert_eq!(
            dead.iter().map(LaneMemory::bytes).sum::<usize>(),
            31 * 1_000 + 32_000
        );
        for _ in 0..100 {
            let held = now(&memory, 1_000, 5_000).unwrap();
            assert_eq!(held.bytes(), 1_000, "its own part, at once, each time");
        }
        assert!(now(&memory, 1_001, 5_000).is_none(), "more is not there");
        assert_eq!(memory.usage().held, 31 * 1_000 + 32_000);
        drop(dead);
        assert!(now(&memory, 1_001, 5_000).is_some());
        assert_eq!((common(&memory), memory.usage().held), (0, 0));
    }

    #[test]
    fn what_is_larger_than_all_goes_alone_and_all_get_their_turn() {
        let memory = Memory::with(100, 10, 0);
        let _parts = memory.parts(5);
        let huge = now(&memory, 5_000, 5_000).unwrap();
        assert_eq!(huge.bytes(), 5_000);
        let (mut second, mut third, mut fourth) = (
            pin!(memory.take(5_000, 5_000)),
            pin!(memory.take(20, 20)),
            pin!(memory.take(30, 100)),
        );
        assert!(poll(second.as_mut()).is_pending() && poll(third.as_mut()).is_pending());
        assert!(poll(fourth.as_mut()).is_pending());
        assert!(now(&memory, 11, 11).is_none(), "others were there before");
        assert_eq!(
            now(&memory, 10, 90).unwrap().bytes(),
            10,
            "and only its own part is its own"
        );
        drop(huge);
        let Poll::Ready(huge) = poll(second.as_mut()) else {
            panic!("it was first")
        };
        assert!(poll(third.as_mut()).is_pending());
        drop(huge);
        let (Poll::Ready(third), Poll::Ready(fourth)) = (poll(third.as_mut()), poll(fourth.as_mut())) else {
            panic!("both fit")
        };
        assert_eq!((third.bytes(), fourth.bytes(), common(&memory)), (20, 30, 30));
    }

    #[test]
    fn who_no_longer_waits_is_passed_over_and_loses_nothing() {
        let memory = Memory::with(100, 10, 0);
        let _parts = memory.parts(5);
        let held = now(&memory, 60, 60).unwrap();
        let mut next = pin!(memory.take(60, 60));
        {
            let mut gone = pin!(memory.take(60, 60));
            assert!(poll(gone.as_mut()).is_pending());
            assert!(poll(next.as_mut()).is_pending());
        }
        drop(held);
        assert!(poll(next.as_mut()).is_ready());
        let held = now(&memory, 60, 60).unwrap();
        let mut told = Box::pin(memory.take(60, 60));
        assert!(poll(told.as_mut()).is_pending());
        drop(held);
        // The waiting lane was given memory, and goes before it has received it.
        drop(told);
        assert_eq!(common(&memory), 0);
    }

    #[test]
    fn long_answers_wait_for_one_another_and_for_nothing_else() {
        let memory = Memory::with(100, 10, 0);
        let _parts = memory.parts(5);
        let _all = now(&memory, 500, 500).unwrap();
        let Poll::Ready(first) = poll(pin!(memory.answer(1_000, 1_000))) else {
            panic!("nobody reads one")
        };
        assert_eq!(first.bytes, 10, "all there is");
        let mut second = pin!(memory.answer(3, 0));
        assert!(poll(second.as_mut()).is_pending());
        drop(first);
        assert!(poll(second.as_mut()).is_ready());
    }

    #[test]
    fn a_long_answer_leaves_room_for_others_unless_its_operations_need_it() {
        let memory = Memory::with(100, 100, 0);
        let room = |least| match poll(pin!(memory.answer(least, 400))) {
            Poll::Ready(room) => Some(room),
            Poll::Pending => None,
        };
        let (first, second) = (room(10).unwrap(), room(10).unwrap());
        assert_eq!((first.bytes, second.bytes), (75, 25));
        assert!(!memory.is_answer_wanted());
        {
            let mut third = pin!(memory.answer(50, 400));
            assert!(poll(third.as_mut()).is_pending() && memory.is_answer_wanted());
            drop(first);
            let Poll::Ready(third) = poll(third.as_mut()) else {
                panic!("there is room")
            };
            assert_eq!((third.bytes, memory.is_answer_wanted()), (50, false));
            assert!(room(10).is_some() && room(26).is_none());
        }
        assert!(!memory.is_answer_wanted(), "who goes wants nothing");
    }

    #[test]
    fn what_answers_have_said_leaves_less_to_the_next_and_stops_none() {
        let memory = Memory::with(100, 12, 0);
        let room = |least, more| match poll(pin!(memory.answer(least, more))) {
            Poll::Ready(room) => room.bytes,
            Poll::Pending => panic!("nobody reads one"),
        };
        assert_eq!(room(2, 6), 8);
        let said = memory.said(5);
        assert_eq!((room(2, 6), room(2, 100), memory.usage().held), (3, 4, 5));
        let more = memory.said(50);
        assert_eq!(room(2, 6), 2, "what each must have");
        drop((said, more));
        assert_eq!((room(2, 6), memory.usage().held), (8, 0));
    }

    #[test]
    fn short_answers_take_what_there_is_for_them_and_no_more() {
        let memory = Memory::with(100, 10, 20);
        let (mut first, mut second) = (memory.short(), memory.short());
        assert!(first.grow(10) && first.grow(15) && second.grow(5));
        assert!(!second.grow(6));
        assert_eq!((memory.usage().held, memory.usage().max), (20, 130));
        drop(first);
        assert!(second.grow(20) && !memory.short().grow(1));
        drop(second);
        assert_eq!(memory.usage().held, 0);
    }

    #[test]
    fn notes_of_lanes_that_rest_are_counted_and_stop_nobody() {
        let memory = Memory::with(20_000, 0, 0);
        let _parts = memory.parts(10);
        // The lane's own part is 1000 bytes.
        let mut resting = now(&memory, 12_000, 12_000).unwrap();
        let mut other = pin!(memory.take(9_000, 9_000));
        assert!(poll(other.as_mut()).is_pending());
        let notes = 250 * RESTING_BYTES;
        resting.rest(250);
        assert!(notes > 1_000);
        let Poll::Ready(other) = poll(other.as_mut()) else {
            panic!("there is room beside the notes")
        };
        assert_eq!(memory.usage().held, notes + 9_000);
        assert_eq!(common(&memory), notes - 1_000 + 8_000);
        let mut huge = pin!(memory.take(50_000, 50_000));
        assert!(poll(huge.as_mut()).is_pending(), "it goes alone");
        drop(other);
        let Poll::Ready(huge) = poll(huge.as_mut()) else {
            panic!("only a lane that rests holds anything")
        };
        // The lane goes on: it has its memory again before it lets go of the notes.
        let mut back = pin!(memory.take(12_000, 12_000));
        assert!(poll(back.as_mut()).is_pending());
        drop(huge);
        assert!(poll(back.as_mut()).is_ready());
        drop(resting);
        assert_eq!((common(&memory), memory.usage().held), (0, 0));
        assert_eq!(memory.state().resting, 0);
    }

    #[test]
    fn what_only_waits_hears_that_its_memory_is_wanted() {
        let memory = Memory::with(100, 10, 0);
        let _parts = memory.parts(5);
        let mut resting = now(&memory, 60, 60).unwrap();
        assert!(resting.is_common() && poll(pin!(memory.is_wanted())).is_pending());
        let mut other = pin!(memory.take(60, 60));
        assert!(poll(other.as_mut()).is_pending());
        let usage = Usage {
            held: 60,
            max: 110,
            waiting: 1,
        };
        assert_eq!(memory.usage(), usage);
        assert!(poll(pin!(memory.is_wanted())).is_ready());
        resting.let_go();
        assert!(!resting.is_common() && poll(other.as_mut()).is_ready());
        assert!(poll(pin!(memory.is_wanted())).is_pending());
        resting.keep(1_000_000);
        assert_eq!(resting.bytes(), 10);
    }
}
