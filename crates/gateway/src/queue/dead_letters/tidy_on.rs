//! Writes dead letters again that hold segments, where a request had no time for all of them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use wire::guard::{self, Work};

use crate::queue::Queue;

/// Says that nobody gets on with it, however the thread ends.
struct Tidying(Weak<Queue>);

impl Drop for Tidying {
    fn drop(&mut self) {
        if let Some(queue) = self.0.upgrade() {
            queue.dead_letters.is_tidying.store(false, Ordering::Release);
        }
    }
}

/// Gets on with what requests have left to do, if they have, and nobody does yet.
pub(crate) fn tidy_on(queue: &Arc<Queue>) {
    let letters = &queue.dead_letters;
    if letters.is_tidy() || letters.is_tidying.swap(true, Ordering::AcqRel) {
        return;
    }
    let tidying = Tidying(Arc::downgrade(queue));
    let thread = guard::thread("letters-tidy", Work::Other, move || {
        while goes_on(&tidying.0) {
            // Whoever waits to change letters gets a turn.
            #[allow(clippy::disallowed_methods, reason = "this thread has nothing else to do")]
            std::thread::sleep(PAUSE);
        }
        let queue = tidying.0.clone();
        drop(tidying);
        // A request may have left something since the last look, and seen that somebody gets on with it.
        if let Some(queue) = queue.upgrade().filter(|queue| queue.entrance.enter().is_some()) {
            tidy_on(&queue);
        }
    });
    if let Err(error) = thread {
        tracing::warn!(queue = &*queue.name, %error, "dead letters keep more of the disk than they need until the next change");
    }
}

/// Works for a while; false once nothing is left to do, or the queue is being removed.
fn goes_on(queue: &Weak<Queue>) -> bool {
    let Some(queue) = queue.upgrade() else {
        return false;
    };
    let Some(_inside) = queue.entrance.enter() else {
        return false;
    };
    queue.dead_letters.tidy_on()
}

const PAUSE: Duration = Duration::from_millis(100);
