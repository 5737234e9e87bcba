//! The effects of a panic, and the only way in which tasks and threads are started.
//!
//! A panic is a bug of the gateway that a record, a request or a node's answer has triggered. It must not end
//! the process, since its trigger is still there after a restart. So panics unwind, in every profile, and a
//! panic ends only the [`Work`] in which it happened, with the consequence that is stated there. `Drop` gives
//! back everything that the work held. Each panic is counted ([`panics`]) and reported in one line of the
//! log, with its message and place, and without documents.
//!
//! Nothing else starts a task or a thread (`./dev tidy` refuses the ways around this module), so no task or
//! thread ends unnoticed, and nobody waits for one in vain.
//!
//! A panic in a `Drop` that runs while another one unwinds, a stack that overflows and memory that the system
//! refuses still end the process.

mod fault;
mod told;

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

pub use fault::fault;
pub use told::{Panicked, Work, panics, tell_of_panics};

// The process survives a panic by unwinding; a profile that aborts would defeat this whole module.
const _: () = assert!(cfg!(panic = "unwind"), "a profile has `panic = \"abort\"`");

/// Runs a future until it ends or panics. Everything that it held is dropped by then.
///
/// # Errors
/// The panic. The caller must report its consequence ([`Panicked::report`]).
pub fn guarded<F: Future>(work: Work, future: F) -> Guarded<F> {
    Guarded {
        work,
        future: Some(future),
    }
}

pin_project! {
    /// The future of [`guarded`]: as large as the future that it runs. An `async fn` would keep room for that
    /// twice, in every request.
    #[derive(Debug)]
    pub struct Guarded<F> {
        work: Work,
        #[pin]
        future: Option<F>,
    }
}

impl<F: Future> Future for Guarded<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(future) = this.future.as_mut().as_pin_mut() else {
            // The future has ended, and the caller has been told so.
            return Poll::Pending;
        };
        let ended = match caught(*this.work, || future.poll(cx)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(panicked) => Err(panicked),
        };
        this.future.set(None);
        Poll::Ready(ended)
    }
}

/// Runs a function until it ends or panics.
///
/// Data that the function shares with others may be half changed after a panic. Locks are not poisoned, so
/// code that holds a lock must change the protected data in steps that each leave it sound.
///
/// # Errors
/// The panic.
pub fn caught<T>(work: Work, run: impl FnOnce() -> T) -> Result<T, Panicked> {
    let _doing = work.begin();
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| Panicked::take(&*payload))
}

/// Starts a task on this thread; a panic ends only this task.
pub fn spawn(work: Work, future: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    tokio::task::spawn_local(reported(work, future))
}

/// Like [`spawn`], but adds the task to a set that is awaited as a whole.
pub fn spawn_in(set: &mut JoinSet<()>, work: Work, future: impl Future<Output = ()> + 'static) {
    set.spawn_local(reported(work, future));
}

async fn reported(work: Work, future: impl Future<Output = ()>) {
    if let Err(panicked) = guarded(work, future).await {
        panicked.report(work, "it ends, and nothing else does");
    }
}

/// Runs the future that `make` makes, and again after each panic, with growing pauses, until it ends by
/// itself.
pub async fn restarted<F: Future<Output = ()>>(work: Work, mut make: impl FnMut() -> F) {
    let mut pauses = Pauses::default();
    loop {
        let began = tokio::time::Instant::now();
        match guarded(work, make()).await {
            Ok(()) => return,
            Err(panicked) => {
                let pause = pauses.next(began.elapsed());
                panicked.report(work, "it is started again in a moment");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Starts a thread. A panic ends it: joining it then gives no result, and a receiver of its messages finds
/// that the sender was dropped.
///
/// # Errors
/// When the system provides no thread.
pub fn thread<T: Send + 'static>(
    name: &str,
    work: Work,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<thread::JoinHandle<Option<T>>> {
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        let ran = caught(work, run);
        ran.inspect_err(|panicked| panicked.report(work, "its thread ends, and nothing else does"))
            .ok()
    })
}

/// Starts a thread that the gateway cannot do without: a core, an acceptor, the admin port. Its panic wakes
/// the waiter of [`broken`], which is to end the process.
///
/// # Errors
/// When the system provides no thread.
pub fn vital_thread(
    name: &str,
    work: Work,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<thread::JoinHandle<Option<()>>> {
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        let ran = caught(work, run);
        let panicked = ran.as_ref().err();
        if let Some(panicked) = panicked {
            panicked.report(
                work,
                "a thread has ended that the gateway cannot do without: it stops accepting, and ends",
            );
            BROKEN.notify_one();
        }
        ran.ok()
    })
}

/// Waits until a thread that the gateway cannot do without ([`vital_thread`]) has panicked. For one waiter.
pub async fn broken() {
    BROKEN.notified().await;
}

static BROKEN: Notify = Notify::const_new();

/// Starts a thread that runs `turn` until it returns `true`, and again after each panic, with growing pauses.
///
/// # Errors
/// When the system provides no thread.
pub fn restarted_thread(
    name: &str,
    work: Work,
    mut turn: impl FnMut() -> bool + Send + 'static,
) -> io::Result<thread::JoinHandle<Option<()>>> {
    thread(name, work, move || {
        let mut pauses = Pauses::default();
        loop {
            let began = std::time::Instant::now();
            match caught(work, &mut turn) {
                Ok(true) => return,
                Ok(false) => {}
                Err(panicked) => {
                    panicked.report(work, "it is started again in a moment");
                    #[allow(
                        clippy::disallowed_methods,
                        reason = "a thread of its own: no core waits for it"
                    )]
                    thread::sleep(pauses.next(began.elapsed()));
                }
            }
        }
    })
}

/// Pauses between restarts: each is twice as long as the one before, unless the work has run for a while.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pauses(u32);

impl Pauses {
    /// Returns the pause before the next start of work that has just run for `run`.
    pub fn next(&mut self, run: Duration) -> Duration {
        if run > WELL_AFTER {
            self.0 = 0;
        }
        let pause = PAUSE_MIN.saturating_mul(1 << self.0.min(16)).min(PAUSE_MAX);
        self.0 = self.0.saturating_add(1);
        pause
    }
}

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Work that ran for this long counts as healthy.
const WELL_AFTER: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use super::*;

    fn run(test: impl AsyncFnOnce()) {
        crate::run_local(1 << 20, |_| test()).expect("a runtime");
    }

    #[test]
    fn a_future_that_panics_is_an_error_and_gives_back_what_it_held() {
        run(async || {
            let (held, borrowed) = (Rc::new(()), RefCell::new(7));
            let inside = Rc::clone(&held);
            let panicked = guarded(Work::Request, async {
                let _inside = inside;
                let mut number = borrowed.borrow_mut();
                *number += 1;
                assert!(*number < 8, "planted");
            });
            let panicked = panicked.await.expect_err("it panics");
            assert_eq!(panicked.message, "planted");
            assert_eq!(Rc::strong_count(&held), 1);
            assert_eq!(*borrowed.borrow(), 8, "nobody borrows it any more");
            assert_eq!(guarded(Work::Request, async { 5 }).await, Ok(5));
        });
    }

    #[test]
    fn what_is_to_go_on_is_started_again_until_it_ends_by_itself() {
        run(async || {
            let starts = Cell::new(0);
            restarted(Work::Watch, || async {
                starts.set(starts.get() + 1);
                assert!(starts.get() > 2, "not yet");
            })
            .await;
            assert_eq!(starts.get(), 3);
        });
    }

    #[test]
    fn whoever_waits_for_a_thread_is_told_that_it_has_panicked() {
        let joined = thread("t", Work::Other, || panic!("planted")).map(thread::JoinHandle::join);
        let joined: Option<()> = joined.expect("a thread").expect("its panic does not come out");
        assert_eq!(joined, None);
        let mut turns = 0;
        let ended = restarted_thread("t", Work::Other, move || {
            turns += 1;
            assert!(turns > 1, "planted");
            true
        });
        assert_eq!(ended.expect("a thread").join().expect("ends"), Some(()));
    }

    #[test]
    fn pauses_grow_up_to_a_bound_and_begin_anew_after_a_good_run() {
        let mut pauses = Pauses::default();
        let short = Duration::from_secs(1);
        let first: Vec<_> = (0..3).map(|_| pauses.next(short).as_millis()).collect();
        assert_eq!(first, [100, 200, 400]);
        let last = (0..100).map(|_| pauses.next(short)).max();
        assert_eq!(last, Some(PAUSE_MAX));
        assert_eq!(pauses.next(WELL_AFTER * 2), PAUSE_MIN);
    }
}
