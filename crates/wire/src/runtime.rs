//! One thread, one runtime and one pool per core.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use std::{io, thread};

use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

use crate::admission::Fairness;
use crate::budget::{BUDGET_BYTES_DEFAULT, Budget};
use crate::guard::{self, Work, fault};
use crate::pool::Pool;

/// The number of workers, and the resources that they share.
#[derive(Debug, Clone)]
pub struct WorkersConfig {
    /// The number of threads; 0 means one per available core.
    pub count: usize,
    /// Whether to pin worker n to the n-th core that this process may run on.
    pub pin: bool,
    /// The bytes of all pooled buffers together.
    pub budget_bytes: usize,
    /// The rules between clients that want memory.
    pub fairness: Fairness,
    /// The thread name prefix (shown by `top -H`); at most 10 characters are useful.
    pub name: String,
}

/// The threads that serve. Dropping this stops them: futures that still run there are dropped at their next
/// await.
#[derive(Debug)]
pub struct Workers {
    links: Vec<WorkerLink>,
    threads: Vec<thread::JoinHandle<Option<()>>>,
    budget: Arc<Budget>,
}

/// A worker's own resources, for code on its thread. Cheap to clone; not `Send`.
#[derive(Debug, Clone)]
pub struct Worker {
    index: usize,
    pool: Pool,
}

/// A way to hand work to one worker from any thread.
#[derive(Debug, Clone)]
pub(crate) struct WorkerLink {
    jobs: mpsc::UnboundedSender<Job>,
    /// The connections that live there: the acceptor goes by this number.
    pub(crate) connections: Arc<AtomicUsize>,
}

type Job = Box<dyn FnOnce(&Worker) + Send>;

// === impl Workers ===

impl Workers {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system provides no thread or no epoll instance.
    pub fn start(config: WorkersConfig) -> io::Result<Workers> {
        let count = match config.count {
            0 => thread::available_parallelism().map_or(1, |cores| cores.get()),
            count => count,
        };
        let budget = Arc::new(Budget::with(config.budget_bytes, config.fairness));
        let cores = if config.pin { allowed_cores() } else { Vec::new() };
        let mut workers = Workers {
            links: Vec::new(),
            threads: Vec::new(),
            budget,
        };
        for index in 0..count {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let (jobs, queue) = mpsc::unbounded_channel();
            let core = if cores.is_empty() {
                None
            } else {
                Some(cores[index % cores.len()])
            };
            let budget = Arc::clone(&workers.budget);
            let name = format!("{}-{index}", config.name);
            let thread = guard::vital_thread(&name, Work::Core, move || {
                if let Some(core) = core {
                    pin_to(core);
                }
                let worker = Worker {
                    index,
                    pool: Pool::new(budget),
                };
                #[cfg(any(debug_assertions, feature = "planted"))]
                crate::shared::is_core();
                // A panic planted here stands for a bug in the driver of all tasks of a core.
                fault("core", index.to_string().as_bytes());
                LocalSet::new().block_on(&runtime, work(worker, queue));
            })?;
            workers.links.push(WorkerLink {
                jobs,
                connections: Arc::new(AtomicUsize::new(0)),
            });
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Returns the number of workers.
    pub fn count(&self) -> usize {
        self.links.len()
    }

    /// Returns the byte budget that all of them share.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Runs a future, made by `make` on the worker's thread, on that thread.
    ///
    /// # Panics
    /// If there is no worker `index`.
    pub fn spawn_on<F, Fut>(&self, index: usize, make: F)
    where
        F: FnOnce(Worker) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        self.links[index].run(move |worker| {
            guard::spawn(Work::Other, make(worker.clone()));
        });
    }

    /// Runs a future on one worker's thread; the receiver gets its result (an error if the worker stopped
    /// before).
    pub fn ask<F, Fut, T>(&self, index: usize, make: F) -> oneshot::Receiver<T>
    where
        F: FnOnce(Worker) -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (tell, answer) = oneshot::channel();
        self.spawn_on(index, move |worker| async move {
            let _ = tell.send(make(worker).await);
        });
        answer
    }

    pub(crate) fn links(&self) -> &[WorkerLink] {
        &self.links
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.links.clear(); // closes the job queues, which ends the threads
        for thread in self.threads.drain(..) {
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Default for WorkersConfig {
    fn default() -> Self {
        WorkersConfig {
            count: 0,
            pin: false,
            budget_bytes: BUDGET_BYTES_DEFAULT,
            fairness: Fairness::default(),
            name: "core".into(),
        }
    }
}

// === impl Worker ===

impl Worker {
    /// Returns the worker's index, from 0, as in [`Workers::spawn_on`].
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns this core's buffers.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

/// Blocks on a future in a runtime of its own on this thread, as on a worker: a simple way to use a
/// [`Client`](crate::Client) from control-plane code and tests.
///
/// # Errors
/// When the system provides no epoll instance.
pub fn run_local<F, Fut, T>(budget_bytes: usize, make: F) -> io::Result<T>
where
    F: FnOnce(Worker) -> Fut,
    Fut: Future<Output = T>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let worker = Worker {
        index: 0,
        pool: Pool::new(Arc::new(Budget::new(budget_bytes))),
    };
    Ok(LocalSet::new().block_on(&runtime, async {
        let ticking = guard::spawn(Work::Housekeeping, tick_on(worker.pool.clone()));
        let answer = make(worker).await;
        ticking.abort();
        answer
    }))
}

// === impl WorkerLink ===

impl WorkerLink {
    /// Queues a job; returns false when the worker has stopped.
    pub(crate) fn run(&self, job: impl FnOnce(&Worker) + Send + 'static) -> bool {
        self.jobs.send(Box::new(job)).is_ok()
    }
}

async fn work(worker: Worker, mut queue: mpsc::UnboundedReceiver<Job>) {
    let worker = Rc::new(worker);
    guard::spawn(Work::Housekeeping, tick_on(worker.pool.clone()));
    while let Some(job) = queue.recv().await {
        if let Err(panicked) = guard::caught(Work::Other, || job(&worker)) {
            panicked.report(Work::Other, "a core goes on without what it was given to do");
        }
    }
}

async fn tick_on(pool: Pool) {
    guard::restarted(Work::Housekeeping, || tick(pool.clone())).await;
}

async fn tick(pool: Pool) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        second.tick().await;
        pool.tick(IDLE_SECONDS);
    }
}

/// Raises the number of files, and so of connections, that this process may open to the most that the system
/// allows it; shells and service managers start with 1,024. Returns the new number.
pub fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current, // the kernel does not really accept an unlimited maximum
    };
    now.unwrap_or(u64::MAX)
}

fn allowed_cores() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|core| set.is_set(*core))
            .collect(),
        Err(_) => Vec::new(),
    }
}

fn pin_to(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(core, %error, "thread could not be pinned");
    }
}

/// Pooled buffers that nobody took for this long are given back.
const IDLE_SECONDS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn spawn_on_each_runs_on_every_worker_and_drop_joins() {
        let workers = Workers::start(WorkersConfig {
            count: 2,
            ..Default::default()
        })
        .expect("starts");
        let one = workers.ask(0, |worker| async move { worker.index() }).await;
        let two = workers.ask(1, |worker| async move { worker.index() }).await;
        assert_eq!((one, two), (Ok(0), Ok(1)));
        drop(workers);
    }
}
