//! How slow and how faulty a cluster is all the time, whatever its injections.

use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::http::Head;

/// How slow and how faulty answers are.
#[derive(Debug, Clone, Default)]
pub struct Behaviour {
    /// The delay of the answer to every bulk, single write and search.
    pub latency: Duration,
    /// The additional delay for each document of a bulk: one thread executes them, while others execute other
    /// bulks.
    pub work: Duration,
    /// The most documents per second, all nodes together: bulks wait for their turn.
    pub docs_per_s_max: Option<u32>,
    /// The number of bulks that a node works on at once; without a value, as many as arrive.
    pub workers: Option<Workers>,
    /// The mix of errors inside every bulk; if a document is due for several of them, it gets the first. The
    /// second kind begins to count one document earlier than the first one, and so on.
    pub failing: Vec<Refusal>,
    /// The documents in bulks that the cluster will never take, like those that do not fit a mapping.
    pub unfit: Option<Unfit>,
    /// The bulks that wait for something else than a worker, as for a change of a mapping.
    pub held_up: Option<HeldUp>,
}

/// Bulks that are answered late because of their contents.
#[derive(Debug, Clone)]
pub struct HeldUp {
    /// The text that their bodies hold.
    pub holds: String,
    /// The additional delay.
    pub wait: Duration,
}

/// Documents that are refused because of their contents.
#[derive(Debug, Clone)]
pub struct Unfit {
    /// The text that their source holds.
    pub holds: String,
    /// The status of their items.
    pub status: u16,
    /// The `error` of their items, a JSON object.
    pub error: String,
}

/// The way in which a node handles bulks that arrive at once, as a server's thread pool for writes does:
/// [`Behaviour::latency`] and [`Behaviour::work`] are then the time for which one of them is worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workers {
    /// The bulks that are worked on at once.
    pub at_once: usize,
    /// The most bulks that wait; more are refused with 429.
    pub waiting_max: usize,
}

/// Documents of a bulk that are refused.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The interval of refused documents in each bulk, counted from the first; 1 refuses all.
    pub every: u32,
    /// The status of their items.
    pub status: u16,
    /// The `error` of their items, a JSON object.
    pub error: String,
}

/// The moment when the documents accepted so far will have been executed.
#[derive(Debug, Default)]
pub(super) struct Capacity {
    free: Mutex<Option<Instant>>,
}

impl Behaviour {
    /// Waits for as long as a bulk with this body is held up.
    fn hold_up(&self, body: &[u8]) {
        if let Some(held_up) = &self.held_up
            && memchr::memmem::find(body, held_up.holds.as_bytes()).is_some()
        {
            thread::sleep(held_up.wait);
        }
    }

    /// Returns this behaviour with the values of a request's parameters; `None` if one of them is not a
    /// number.
    pub(super) fn changed(&self, head: &Head) -> Option<Behaviour> {
        let number = |name: &str| head.parameter(name).map(|text| text.parse::<u32>().ok());
        let mut behaviour = self.clone();
        if let Some(latency_ms) = number("latency_ms") {
            behaviour.latency = Duration::from_millis(latency_ms?.into());
        }
        if let Some(doc_us) = number("doc_us") {
            behaviour.work = Duration::from_micros(doc_us?.into());
        }
        if let Some(capacity) = number("capacity") {
            behaviour.docs_per_s_max = Some(capacity?);
        }
        if let Some(workers) = number("workers") {
            let at_once = workers?.max(1) as usize;
            behaviour.workers = Some(Workers {
                at_once,
                waiting_max: match number("waiting") {
                    Some(waiting) => waiting? as usize,
                    None => 2 * at_once,
                },
            });
        }
        Some(behaviour)
    }
}

/// The workers of one node.
#[derive(Debug, Default)]
pub(super) struct Pool {
    state: Mutex<PoolState>,
    free: Condvar,
}

#[derive(Debug, Default)]
struct PoolState {
    working: usize,
    waiting: usize,
    tally: PoolTally,
}

/// The totals of the workers.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct PoolTally {
    pub(super) refused: u64,
    pub(super) worked: Duration,
    pub(super) waited: Duration,
}

/// A worker that is taken.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    pool: &'a Pool,
    began: Instant,
}

// === impl Pool ===

impl Pool {
    /// Waits for a worker; `None` if too many wait already. The allowed numbers are read again and again
    /// meanwhile.
    pub(super) fn enter(&self, allowed: impl Fn() -> Option<Workers>) -> Option<Worker<'_>> {
        let came = Instant::now();
        let mut state = self.state();
        let full = |state: &PoolState, workers: Workers| state.working >= workers.at_once;
        if let Some(workers) = allowed()
            && full(&state, workers)
            && state.waiting >= workers.waiting_max
        {
            state.tally.refused += 1;
            return None;
        }
        state.waiting += 1;
        while allowed().is_some_and(|workers| full(&state, workers)) {
            self.free.wait_for(&mut state, LOOK_AGAIN);
        }
        state.waiting -= 1;
        state.working += 1;
        state.tally.waited += came.elapsed();
        drop(state);
        Some(Worker {
            pool: self,
            began: Instant::now(),
        })
    }

    pub(super) fn tally(&self) -> PoolTally {
        self.state().tally
    }

    pub(super) fn reset(&self) {
        self.state().tally = PoolTally::default();
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock()
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.working -= 1;
        state.tally.worked += self.began.elapsed();
        drop(state);
        self.pool.free.notify_one();
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(20);

// === impl Capacity ===

impl Capacity {
    /// Waits for as long as a bulk takes, with a worker and without.
    pub(super) fn execute(&self, behaviour: &Behaviour, worker: Worker<'_>, docs: u64, body: &[u8]) {
        self.take(behaviour, docs);
        drop(worker);
        behaviour.hold_up(body);
    }

    /// Waits for as long as `docs` documents take.
    pub(super) fn take(&self, behaviour: &Behaviour, docs: u64) {
        let mut wait = behaviour.latency + behaviour.work.mul_f64(docs as f64);
        if let Some(docs_per_s_max) = behaviour.docs_per_s_max.filter(|max| *max > 0) {
            let work = Duration::from_secs_f64(docs as f64 / f64::from(docs_per_s_max));
            let now = Instant::now();
            let mut free = self.free.lock();
            let done = free.map_or(now, |free| free.max(now)) + work;
            *free = Some(done);
            wait += done - now;
        }
        if !wait.is_zero() {
            thread::sleep(wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_more_workers_could_not_take_is_refused() {
        let pool = Pool::default();
        let workers = || {
            Some(Workers {
                at_once: 2,
                waiting_max: 0,
            })
        };
        let (first, second) = (pool.enter(workers), pool.enter(workers));
        assert!(first.is_some() && second.is_some() && pool.enter(workers).is_none());
        drop(first);
        assert!(pool.enter(workers).is_some());
        assert_eq!(pool.tally().refused, 1);
        assert!((0..9).map(|_| pool.enter(|| None)).all(|worker| worker.is_some()));
    }

    #[test]
    fn documents_wait_for_their_turn() {
        let behaviour = Behaviour {
            docs_per_s_max: Some(10_000),
            ..Behaviour::default()
        };
        let capacity = Capacity::default();
        let begun = Instant::now();
        (0..5).for_each(|_| capacity.take(&behaviour, 200));
        assert!(
            begun.elapsed() >= Duration::from_millis(100),
            "{:?}",
            begun.elapsed()
        );
    }
}
