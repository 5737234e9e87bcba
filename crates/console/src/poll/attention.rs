//! Tracks whether anybody looks at the console. While nobody does, clusters and gateways are asked less
//! often, since the questions cost them something and yield only history.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The time when somebody last looked.
pub(crate) struct Attention {
    last: Mutex<Instant>,
    began: Notify,
}

impl Attention {
    /// Starts with attention: a user who starts a console is about to look.
    pub(crate) fn new() -> Self {
        Self {
            last: Mutex::new(Instant::now()),
            began: Notify::new(),
        }
    }

    /// Notes that somebody looks now.
    pub(crate) fn look(&self) {
        let before = std::mem::replace(&mut *self.last.lock(), Instant::now());
        if before.elapsed() >= KEPT {
            self.began.notify_waiters();
        }
    }

    /// Whether somebody looks now, or did a moment ago.
    pub(super) fn is_there(&self) -> bool {
        self.last.lock().elapsed() < KEPT
    }

    /// Waits until the given time, or until somebody begins to look.
    pub(super) async fn rest(&self, until: Instant) {
        tokio::select! {
            () = sleep_until(until) => {}
            () = self.began.notified() => {}
        }
    }
}

/// How long attention lasts: a user who reloads the page has not left.
const KEPT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_begins_to_look_ends_the_rest() {
        let attention = std::sync::Arc::new(Attention::new());
        assert!(attention.is_there());
        tokio::time::advance(KEPT).await;
        assert!(!attention.is_there());
        let began = Instant::now();
        let looking = std::sync::Arc::clone(&attention);
        let rest = attention.rest(began + Duration::from_secs(60));
        let look = async move {
            tokio::time::sleep(Duration::from_secs(2)).await;
            looking.look();
        };
        tokio::join!(rest, look);
        assert_eq!(began.elapsed(), Duration::from_secs(2));
        assert!(attention.is_there());
    }
}
