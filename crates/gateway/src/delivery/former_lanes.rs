//! Dead letters of parked operations whose lanes this gateway lost, or may have lost, before it knew whether
//! the operations' ends count: the topic of parked operations is asked, beside the delivery, until it tells.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use wire::guard::{self, Work};

use crate::delivery::unsettled::decide_letters;
use crate::queue::Group;

/// Asks again and again as long as there are such letters.
pub(super) struct FormerLanes {
    group: Arc<Group>,
    is_asking: Arc<AtomicBool>,
    next: Instant,
    pause: Duration,
}

/// Says that a question has ended, also by a panic.
struct Asking(Arc<AtomicBool>);

// === impl Asking ===

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

// === impl FormerLanes ===

impl FormerLanes {
    pub(super) fn new(group: &Arc<Group>) -> Self {
        Self {
            group: Arc::clone(group),
            is_asking: Arc::default(),
            next: Instant::now(),
            pause: ASK_AFTER,
        }
    }

    /// Has the topic asked soon: lanes have come or gone, so it may tell more.
    pub(super) fn changed(&mut self) {
        self.pause = ASK_AFTER;
        self.next = Instant::now() + self.pause;
    }

    /// Asks if it is time and there is something to decide.
    pub(super) fn look(&mut self) {
        if Instant::now() < self.next || self.is_asking.load(Ordering::Acquire) {
            return;
        }
        let Some(parked) = self.group.parked().cloned() else {
            return;
        };
        self.next = Instant::now() + self.pause;
        if parked.letters_in_doubt().is_empty() {
            return;
        }
        self.pause = (2 * self.pause).min(ASK_AFTER_MAX);
        self.is_asking.store(true, Ordering::Release);
        let (group, asking) = (Arc::clone(&self.group), Asking(Arc::clone(&self.is_asking)));
        let thread = guard::thread("former-lanes", Work::Parked, move || {
            let _asking = asking;
            let letters = &group.queue.dead_letters;
            if let Err(why) = decide_letters(letters, &group.settings.group, &parked) {
                wire::rationed!(
                    tracing::warn,
                    why = why.to_string(),
                    "whether operations of lanes that went elsewhere are dead is not known yet: their letters wait"
                );
            }
        });
        if let Err(error) = thread {
            tracing::error!(%error, "letters of lanes that went elsewhere wait");
        }
    }
}

/// The time from a change of the lanes to the question: their next owners begin first.
const ASK_AFTER: Duration = Duration::from_secs(1);
/// The longest pause between two questions.
const ASK_AFTER_MAX: Duration = Duration::from_secs(15);
