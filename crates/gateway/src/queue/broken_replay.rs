//! Ends replays of dead letters that the disk broke off. Until then the queue keeps all its segments from
//! there on, whoever has delivered them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use wire::guard::{self, Work};

use crate::queue::Queue;

/// Ends a replay of this queue, if one has broken off: tries again until the disk lets it.
pub(crate) fn end(queue: &Arc<Queue>) {
    if !queue.dead_letters.begins_ending() {
        return;
    }
    let weak = Arc::downgrade(queue);
    let thread = guard::thread("replay-end", Work::Other, move || {
        while !has_ended(&weak) {
            #[allow(clippy::disallowed_methods, reason = "this thread has nothing else to do")]
            std::thread::sleep(TRY_AGAIN);
        }
        if let Some(queue) = weak.upgrade() {
            queue.dead_letters.ends_ending();
        }
    });
    if let Err(error) = thread {
        queue.dead_letters.ends_ending();
        tracing::error!(queue = &*queue.name, %error, "a replay that broke off is ended by the next one or by a restart");
    }
}

/// Tries once; true also if the queue is gone.
fn has_ended(queue: &Weak<Queue>) -> bool {
    let Some(queue) = queue.upgrade() else { return true };
    // A queue that is being removed may be about to be closed, and is gone soon, or stays.
    let Some(_inside) = queue.entrance.enter() else {
        return false;
    };
    let Some(log) = queue.log.on_disk() else {
        return true;
    };
    match queue.dead_letters.end_broken_replay(log) {
        Ok(()) => true,
        Err(error) => {
            wire::rationed!(
                tracing::warn,
                queue = &*queue.name,
                %error,
                "a replay that broke off cannot be ended: the queue keeps what is delivered until the disk can be written"
            );
            false
        }
    }
}

const TRY_AGAIN: Duration = Duration::from_secs(2);
