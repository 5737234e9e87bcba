//! Bounds how many requests of one queue and consumer group are at a node, and at the cluster, at once.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// `max_worker_size`: the requests at the cluster at once. Each node may have one in any case, so that a node
/// that does not answer holds up no other.
pub(crate) struct WorkerLimit {
    free: Cell<usize>,
    waiting: RefCell<VecDeque<Waiting>>,
}

struct Waiting {
    gate: Rc<Gate>,
    tell: oneshot::Sender<GatePermit>,
}

/// The requests at one node, and their bounds.
pub(crate) struct Gate {
    requests: Cell<usize>,
    /// `num_of_slices`: the requests that may be at the node at once.
    slices: Option<Arc<Semaphore>>,
    /// The bytes that several parcels may have together: fewer once a request was too large, and slowly more
    /// again.
    bytes_max: Cell<u64>,
    /// The bound that `bytes_max` never exceeds.
    bytes_limit: u64,
    /// When the latest of the requests began that the node took, whatever it did with their operations.
    taken: Cell<Option<Instant>>,
    /// How long a request takes as a rule, and when a late one has last changed that.
    usual: Cell<Duration>,
    late: Cell<Option<Instant>>,
}

/// A request at a node, until this is dropped.
pub(crate) struct GatePermit {
    gate: Rc<Gate>,
    workers: Rc<WorkerLimit>,
    /// Whether the request is one of `max_worker_size`.
    counts: bool,
    slice: Option<OwnedSemaphorePermit>,
}

// === impl WorkerLimit ===

impl WorkerLimit {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            free: Cell::new(max),
            waiting: RefCell::default(),
        }
    }

    /// Waits, in the order of asking, until one more request may be at a node.
    pub(crate) async fn pass(self: &Rc<Self>, gate: &Rc<Gate>) -> GatePermit {
        let slice = match &gate.slices {
            Some(slices) => Arc::clone(slices).acquire_owned().await.ok(),
            None => None,
        };
        let (tell, told) = oneshot::channel();
        let gate = Rc::clone(gate);
        self.waiting.borrow_mut().push_back(Waiting { gate, tell });
        self.serve();
        let mut pass = told.await.expect("who waits is told");
        pass.slice = slice;
        pass
    }

    /// Lets in every request that may enter.
    fn serve(self: &Rc<Self>) {
        loop {
            let counts = self.free.get() > 0;
            let next = {
                let mut waiting = self.waiting.borrow_mut();
                let at = match counts {
                    true => Some(0),
                    false => waiting.iter().position(|one| one.gate.is_idle()),
                };
                at.and_then(|at| waiting.remove(at))
            };
            let Some(Waiting { gate, tell }) = next else {
                return;
            };
            gate.requests.set(gate.requests.get() + 1);
            self.free.set(self.free.get() - usize::from(counts));
            let workers = Rc::clone(self);
            // A request that no longer waits drops its pass, which gives the pass back.
            drop(tell.send(GatePermit {
                gate,
                workers,
                counts,
                slice: None,
            }));
        }
    }
}

// === impl Gate ===

impl Gate {
    pub(crate) fn new(slices_max: Option<usize>, bytes_max: u64) -> Self {
        Self {
            requests: Cell::new(0),
            slices: slices_max.map(|slices| Arc::new(Semaphore::new(slices))),
            bytes_max: Cell::new(bytes_max),
            bytes_limit: bytes_max,
            taken: Cell::default(),
            usual: Cell::default(),
            late: Cell::default(),
        }
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max.get()
    }

    /// Records that a request of several parcels with this many bytes was more than something on the way
    /// takes.
    pub(crate) fn too_large(&self, bytes: u64) {
        self.bytes_max.set((bytes / 2).max(1));
    }

    /// Records that a request of this many bytes was not too large. Something on the way may have been given
    /// more room since then, so the bound grows, but in small steps: each attempt that fails is a wasted
    /// request.
    pub(crate) fn fitted(&self, bytes: u64) {
        let most = self.bytes_max.get();
        let more = match bytes > most / 2 {
            true => (most / GROWTH).max(1),
            false => 0,
        };
        self.bytes_max.set((most + more).max(bytes).min(self.bytes_limit));
    }

    /// Records that the node took a request that began then.
    pub(crate) fn took(&self, began: Instant) {
        self.taken.set(self.taken.get().max(Some(began)));
    }

    /// Records how long a request has taken. One that takes very long says little about the others.
    pub(crate) fn lasted(&self, time: Duration) {
        let usual = self.usual.get();
        if time > self.long() {
            // Many may end at once.
            let is_recent = |late: Instant| late.elapsed() < self.long();
            if self.late.get().is_some_and(is_recent) {
                return;
            }
            self.late.set(Some(Instant::now()));
        }
        self.usual.set(match time > usual {
            true => time.min(usual * 3 / 2 + Duration::from_millis(1)),
            false => usual - (usual - time) / 8,
        });
    }

    /// Returns the time after which a request takes longer than it should: the node waits for something.
    pub(crate) fn long(&self) -> Duration {
        LATE.max(self.usual.get() * LATE_TIMES)
    }

    /// Whether the node took a request that began then or later.
    pub(crate) fn has_taken_since(&self, began: Instant) -> bool {
        self.taken.get() >= Some(began)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.requests.get() == 0
    }
}

// === impl GatePermit ===

impl Drop for GatePermit {
    fn drop(&mut self) {
        self.gate.requests.set(self.gate.requests.get() - 1);
        self.workers
            .free
            .set(self.workers.free.get() + usize::from(self.counts));
        self.slice.take();
        self.workers.serve();
    }
}

/// An accepted request of nearly the allowed size raises that size by one part in this many.
const GROWTH: u64 = 64;

/// A request takes too long after this time at least: a node waits for up to 1 s by itself (`timeout=1s`).
const LATE: Duration = Duration::from_millis(1_500);
/// And after as many times as long as requests take as a rule: where all are slow, none is late.
const LATE_TIMES: u32 = 4;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn run(test: impl AsyncFnOnce()) {
        wire::run_local(1 << 20, |_| test()).unwrap();
    }

    async fn waits<T>(one: impl Future<Output = T>) -> bool {
        let wait = Duration::from_millis(5);
        tokio::time::timeout(wait, one).await.is_err()
    }

    #[test]
    fn a_node_that_keeps_all_workers_busy_leaves_one_request_to_each_other() {
        run(async || {
            let workers = Rc::new(WorkerLimit::new(2));
            let (dead, well) = (Rc::new(Gate::new(None, 0)), Rc::new(Gate::new(None, 0)));
            let _held = [workers.pass(&dead).await, workers.pass(&dead).await];
            assert!(waits(workers.pass(&dead)).await);
            let first = workers.pass(&well).await;
            let mut second = std::pin::pin!(workers.pass(&well));
            assert!(waits(&mut second).await);
            drop(first);
            assert!(
                !waits(&mut second).await,
                "its turn, as soon as the node has nothing"
            );
        });
    }

    #[test]
    fn as_many_as_may_be_at_the_cluster_are_there_and_no_more() {
        run(async || {
            let workers = Rc::new(WorkerLimit::new(3));
            let gate = Rc::new(Gate::new(None, 0));
            let most = Rc::new(Cell::new(0));
            let requests = (0..50).map(|n| {
                let (workers, gate, most) = (Rc::clone(&workers), Rc::clone(&gate), Rc::clone(&most));
                tokio::task::spawn_local(async move {
                    let _pass = workers.pass(&gate).await;
                    most.set(most.get().max(gate.requests.get()));
                    tokio::time::sleep(Duration::from_micros(500 * (n % 3))).await;
                })
            });
            for request in requests.collect::<Vec<_>>() {
                request.await.unwrap();
            }
            assert_eq!((most.get(), workers.free.get(), gate.is_idle()), (3, 3, true));
        });
    }

    #[test]
    fn slices_bound_what_is_at_one_node() {
        run(async || {
            let workers = Rc::new(WorkerLimit::new(9));
            let (one, other) = (Rc::new(Gate::new(Some(1), 0)), Rc::new(Gate::new(Some(1), 0)));
            let held = workers.pass(&one).await;
            assert!(waits(workers.pass(&one)).await);
            assert!(!waits(workers.pass(&other)).await);
            drop(held);
            assert!(!waits(workers.pass(&one)).await);
        });
    }

    #[test]
    fn what_a_node_took_is_known_by_when_it_began() {
        let gate = Gate::new(None, 0);
        let first = Instant::now();
        let (later, last) = (first + Duration::from_secs(1), first + Duration::from_secs(2));
        assert!(!gate.has_taken_since(first), "nothing was taken");
        gate.took(later);
        gate.took(first);
        assert!(gate.has_taken_since(first) && gate.has_taken_since(later));
        assert!(!gate.has_taken_since(last), "that one began before");
    }

    #[test]
    fn a_node_that_took_too_much_for_once_is_slowly_trusted_with_more_again() {
        let gate = Gate::new(None, 1 << 20);
        gate.too_large(1 << 20);
        assert_eq!(gate.bytes_max(), 1 << 19);
        gate.fitted(1_000);
        assert_eq!(gate.bytes_max(), 1 << 19, "that says nothing of large ones");
        let tries = (0..1_000).take_while(|_| {
            let most = gate.bytes_max();
            gate.fitted(most);
            most < 1 << 20
        });
        let tries = tries.count();
        assert!((30..100).contains(&tries), "{tries}");
        assert_eq!(gate.bytes_max(), 1 << 20, "and no more than it may have");
        gate.too_large(0);
        gate.fitted(700);
        assert_eq!(gate.bytes_max(), 700, "what went by itself did fit");
    }
}
