//! What a panic ends, and what it does not: the one way in which tasks and threads are started.
//!
//! A panic is a bug of the gateway's that a record, a request or a node's answer has met. It must not end the
//! process, since what it met is there after a restart too. So panics unwind, in every profile, and what they
//! end is the [`Work`] that met them, with a consequence that is stated there. All that the work held is
//! given back by `Drop`. Each panic is counted ([`panics`]) and told of in one line of the log, with its
//! message and place, and without documents.
//!
//! Nothing else starts a task or a thread (`./dev tidy` refuses the ways around this module), so there is
//! none that ends unseen, or that others wait for in vain.
//!
//! A panic in a `Drop` that runs while another one unwinds, a stack that overflows and memory that the system
//! refuses end the process still.

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

// The process goes on after a panic by its unwinding; a profile that aborts would undo all of this module.
const _: () = assert!(cfg!(panic = "unwind"), "a profile has `panic = \"abort\"`");

/// Runs a future to its end or to its panic. What it held is dropped by then.
///
/// # Errors
/// The panic. Whoever calls this says what comes of it ([`Panicked::report`]).
pub fn guarded<F: Future>(work: Work, future: F) -> Guarded<F> {
    Guarded {
        work,
        future: Some(future),
    }
}

pin_project! {
    /// [`guarded`]'s future: as large as what it runs. An `async fn` would keep room for that twice, in every
    /// request.
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
            // It has ended, and whoever asks again has been told so.
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

/// The same of a function.
///
/// What it shares with others may be half changed after a panic: locks are taken as they are found then, so
/// whoever holds one changes what it protects in steps that each leave it sound.
///
/// # Errors
/// The panic.
pub fn caught<T>(work: Work, run: impl FnOnce() -> T) -> Result<T, Panicked> {
    let _doing = work.begin();
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| Panicked::take(&*payload))
}

/// Starts a task on this thread; its panic ends it, and nothing else.
pub fn spawn(work: Work, future: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    tokio::task::spawn_local(reported(work, future))
}

/// The same, as one of those that somebody waits for together.
pub fn spawn_in(set: &mut JoinSet<()>, work: Work, future: impl Future<Output = ()> + 'static) {
    set.spawn_local(reported(work, future));
}

async fn reported(work: Work, future: impl Future<Output = ()>) {
    if let Err(panicked) = guarded(work, future).await {
        panicked.report(work, "it ends, and nothing else does");
    }
}

/// Runs what `make` makes, and once more after each panic, with growing pauses; until it ends by itself.
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

/// Starts a thread. A panic ends it; whoever joins it gets none then, and whoever waits for a word from it
/// finds the other end of the channel dropped.
///
/// # Errors
/// When the system gives no thread.
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

/// Starts a thread without which the gateway would be half dead: a core, an acceptor, the admin port. Its
/// panic is told to whoever waits for [`broken`], who is to end the process.
///
/// # Errors
/// When the system gives no thread.
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

/// Ends when a thread has panicked that the gateway cannot do without ([`vital_thread`]). For one waiter.
pub async fn broken() {
    BROKEN.notified().await;
}

static BROKEN: Notify = Notify::const_new();

/// Starts a thread that runs `turn` until that returns `true`, and once more after each panic, with growing
/// pauses.
///
/// # Errors
/// When the system gives no thread.
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

/// Pauses between restarts: each twice as long as the one before, unless what was restarted has run for a
/// while.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pauses(u32);

impl Pauses {
    /// The pause before the next start of what has `run` for so long.
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
/// What ran for so long was well.
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
