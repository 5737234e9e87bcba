//! Tracks what of the console anybody looks at. While nobody looks, clusters and gateways are asked less
//! often, since the questions cost them something and yield only history; and a cluster of which only the
//! overview is open, less often than one with an open page of its own.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The time when somebody last looked, at anything and at each cluster and gateway.
pub(crate) struct Attention {
    last: Mutex<Instant>,
    at: Mutex<HashMap<String, Instant>>,
    began: Notify,
}

/// What is looked at, from the point of view of one cluster or gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gaze {
    /// Nobody looks.
    Away,
    /// Somebody looks, but at no page of this one.
    Elsewhere,
    /// A page of this one is open.
    Here,
}

impl Attention {
    /// Starts with attention: a user who starts a console is about to look.
    pub(crate) fn new() -> Self {
        Self {
            last: Mutex::new(Instant::now()),
            at: Mutex::default(),
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

    /// Notes that somebody looks now at a page of the cluster or gateway with this id, which is registered.
    pub(crate) fn look_at(&self, id: &str) {
        self.look();
        let mut at = self.at.lock();
        at.retain(|_, looked| looked.elapsed() < KEPT);
        if at.insert(id.to_owned(), Instant::now()).is_none() {
            self.began.notify_waiters();
        }
    }

    /// Returns what is looked at now, or was a moment ago.
    pub(super) fn gaze(&self, id: &str) -> Gaze {
        let is_fresh = |looked: &Instant| looked.elapsed() < KEPT;
        match is_fresh(&self.last.lock()) {
            false => Gaze::Away,
            true if self.at.lock().get(id).is_some_and(is_fresh) => Gaze::Here,
            true => Gaze::Elsewhere,
        }
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
        assert_eq!(attention.gaze("a"), Gaze::Elsewhere);
        tokio::time::advance(KEPT).await;
        assert_eq!(attention.gaze("a"), Gaze::Away);
        let began = Instant::now();
        let looking = std::sync::Arc::clone(&attention);
        let rest = attention.rest(began + Duration::from_secs(60));
        let look = async move {
            tokio::time::sleep(Duration::from_secs(2)).await;
            looking.look();
        };
        tokio::join!(rest, look);
        assert_eq!(began.elapsed(), Duration::from_secs(2));
        assert_eq!(attention.gaze("a"), Gaze::Elsewhere);
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_of_one_cluster_is_no_look_at_another_and_wakes_only_when_it_begins() {
        let attention = std::sync::Arc::new(Attention::new());
        tokio::time::advance(KEPT).await;
        assert_eq!(attention.gaze("a"), Gaze::Away);
        let began = Instant::now();
        for after_s in [1, 3, 4] {
            let looking = std::sync::Arc::clone(&attention);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(after_s)).await;
                looking.look_at("a");
            });
        }
        attention.rest(began + Duration::from_secs(60)).await;
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        assert_eq!(
            (attention.gaze("a"), attention.gaze("b")),
            (Gaze::Here, Gaze::Elsewhere)
        );
        attention.rest(began + Duration::from_secs(20)).await;
        assert_eq!(
            began.elapsed(),
            Duration::from_secs(20),
            "who goes on looking wakes nobody"
        );
        tokio::time::advance(Duration::from_secs(15)).await;
        attention.look();
        assert_eq!(attention.gaze("a"), Gaze::Elsewhere);
    }
}
