//! A stream of changes: what becomes different at the gateway, as it happens.
//!
//! While somebody follows, the state of the gateway is taken once a second ([`state`]) and compared with the
//! one of before ([`compare`]). What differs becomes changes with increasing ids, of which the newest are
//! kept in a ring ([`ring`]), so that a follower that was away for a moment goes on where it was. Nothing
//! that happens is recorded elsewhere, so the gateway's work costs the same whether somebody follows or not.
//!
//! Followers ([`follow`]) read the ring. None has a copy of it, and nobody waits for one that is slow.

mod change;
mod compare;
mod follow;
mod ring;
mod state;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::AdminState;
use crate::clock::now_ms;
use ring::{Kept, Ring};
use state::State;

pub(super) use follow::follow;

/// The changes of late, and who follows them.
#[derive(Debug)]
pub(super) struct Changes {
    watched: Mutex<Watched>,
    news: watch::Sender<News>,
    begins: Notify,
}

#[derive(Debug)]
struct Watched {
    ring: Ring,
    /// The state that the next one is compared with; `None` while nobody follows.
    state: Option<State>,
    followers: usize,
    /// When the last follower left.
    left: Instant,
}

/// What wakes followers.
#[derive(Clone, Copy, Debug)]
struct News {
    /// The id of the newest change.
    last: u64,
    /// Why the stream ends, once it does.
    end: Option<&'static str>,
}

/// Somebody who follows. Dropping it ends that.
#[derive(Debug)]
struct Follower(Arc<Changes>);

// === impl Changes ===

impl Changes {
    /// Begins with ids above `base`, which has to be greater than the ids of earlier processes.
    pub(super) fn new(base: u64) -> Self {
        Self {
            watched: Mutex::new(Watched {
                ring: Ring::new(base),
                state: None,
                followers: 0,
                left: Instant::now(),
            }),
            news: watch::Sender::new(News {
                last: base,
                end: None,
            }),
            begins: Notify::new(),
        }
    }

    /// Looks for changes once a second, while somebody follows. Never ends.
    pub(super) async fn watch(&self, admin: &AdminState) {
        loop {
            if self.watched.lock().is_idle() {
                self.begins.notified().await;
            }
            tokio::time::sleep(EVERY).await;
            self.look(|| State::of(admin));
        }
    }

    /// Ends all streams, and tells their readers why.
    pub(super) fn end(&self, why: &'static str) {
        self.news.send_modify(|news| news.end = Some(why));
    }

    /// Counts a follower in; `None` if there are too many. From then on all changes are in the ring.
    fn enter(self: &Arc<Self>, now: impl FnOnce() -> State) -> Option<Follower> {
        let mut watched = self.watched.lock();
        if watched.followers >= FOLLOWERS_MAX {
            return None;
        }
        self.begin(&mut watched, now);
        watched.followers += 1;
        Some(Follower(Arc::clone(self)))
    }

    /// Has changes looked for from now on, for somebody who does not wait for them and so takes no place, but
    /// will ask again.
    fn glance(&self, now: impl FnOnce() -> State) {
        let mut watched = self.watched.lock();
        self.begin(&mut watched, now);
        watched.left = Instant::now();
    }

    fn begin(&self, watched: &mut Watched, now: impl FnOnce() -> State) {
        if watched.state.is_none() {
            watched.ring.forget();
            watched.state = Some(now());
            self.begins.notify_one();
        }
    }

    /// Returns the id of the newest change.
    fn last(&self) -> u64 {
        self.watched.lock().ring.last()
    }

    /// Returns changes after an id, see [`Ring::after`].
    fn after(&self, id: u64, bytes: usize) -> Vec<Kept> {
        self.watched.lock().ring.after(id, bytes, now_ms())
    }

    fn look(&self, now: impl FnOnce() -> State) {
        let mut watched = self.watched.lock();
        let before = watched.state.take();
        if watched.followers == 0 && watched.left.elapsed() >= LINGER {
            return;
        }
        let now = now();
        match before {
            None => watched.ring.forget(), // the last look has panicked
            Some(before) => {
                let at_ms = now_ms();
                for change in compare::changes(&before, &now) {
                    watched.ring.push(&change, at_ms);
                }
            }
        }
        watched.state = Some(now);
        let last = watched.ring.last();
        drop(watched);
        self.news.send_if_modified(|news| {
            let is_new = news.last != last;
            news.last = last;
            is_new
        });
    }
}

impl Watched {
    fn is_idle(&self) -> bool {
        self.state.is_none() && self.followers == 0
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut watched = self.0.watched.lock();
        watched.followers -= 1;
        watched.left = Instant::now();
    }
}

/// The time between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// How long changes are still looked for after the last follower has left: it may only have lost its
/// connection.
const LINGER: Duration = Duration::from_secs(60);

/// The most followers. The port has more connections than that, so the others stay for short questions.
const FOLLOWERS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use serde_json::Value;

    fn reason(kept: &Kept) -> Value {
        let line: Value = serde_json::from_slice(&kept.line).unwrap();
        line["reason"].clone()
    }

    #[test]
    fn a_look_that_panics_is_told_as_a_gap_and_the_next_one_looks_again() {
        let changes = Arc::new(Changes::new(100));
        let _follower = changes.enter(State::default).unwrap();
        let mut news = changes.news.subscribe();
        let begin = changes.last();
        changes.look(State::default);
        assert!(changes.after(begin, 1).is_empty());
        news.mark_unchanged();
        let looks = AssertUnwindSafe(|| changes.look(|| panic!("of the test")));
        assert!(catch_unwind(looks).is_err());
        changes.look(State::default);
        assert!(news.has_changed().unwrap());
        let last = news.borrow_and_update().last;
        let told = changes.after(begin, usize::MAX);
        assert_eq!((told.len(), reason(&told[0])), (1, "unwatched".into()));
        assert_eq!((told[0].id, last), (begin + 1, begin + 1));
        changes.look(State::default);
        assert!(!news.has_changed().unwrap() && changes.after(last, 1).is_empty());
    }

    #[test]
    fn looking_ends_some_time_after_the_last_follower_and_begins_with_the_next() {
        let changes = Arc::new(Changes::new(100));
        drop(changes.enter(State::default).unwrap());
        let begin = changes.last();
        changes.look(State::default);
        assert!(changes.after(begin, 1).is_empty(), "it may come back");
        changes.watched.lock().left = Instant::now() - LINGER;
        changes.look(|| panic!("nobody follows"));
        assert!(changes.watched.lock().is_idle());
        let _follower = changes.enter(State::default).unwrap();
        assert_eq!(reason(&changes.after(begin, 1)[0]), "unwatched");
        let others: Vec<_> = (1..FOLLOWERS_MAX)
            .map(|_| changes.enter(|| panic!("it is there")))
            .collect();
        assert!(others.iter().all(Option::is_some) && changes.enter(State::default).is_none());
        drop(others);
        assert!(changes.enter(State::default).is_some());
    }

    #[test]
    fn a_glance_takes_no_place_and_has_changes_looked_for_some_time() {
        let changes = Arc::new(Changes::new(100));
        changes.glance(State::default);
        assert_eq!(changes.watched.lock().followers, 0);
        let begin = changes.last();
        changes.look(State::default);
        changes.glance(|| panic!("it is there"));
        assert!(changes.after(begin, 1).is_empty(), "nothing was missed");
        changes.watched.lock().left = Instant::now() - LINGER;
        changes.look(|| panic!("nobody asks any more"));
        assert!(changes.watched.lock().is_idle());
    }
}
