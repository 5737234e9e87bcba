//! The users who send bulks in synchronous mode. Their credentials travel with their bulks, so the cluster
//! is not asked what they may write. But the memory for bodies is shared among users and not only among
//! addresses ([`wire::Incoming::sent_by`]), and anybody can write any name into credentials. So the cluster
//! is asked who a client is, once one of its nodes has answered a bulk of this client with 200. It is never
//! asked about credentials that may be wrong: clusters count failed logins, and the client's own request has
//! been one already.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use cluster::Snapshot;
use http::HeaderMap;
use wire::Principal;
use wire::guard::{self, Work};

use super::ask::Caller;
use super::identity::{ClientIdentity, shown};
use super::{ClusterRights, Rights};
use crate::nodes::Outbound;
use crate::request_id::RequestId;

/// What is known of the users of one filter; there is one on each core.
pub(crate) struct Senders {
    rights: Arc<Rights>,
    cluster: Arc<str>,
    known: OnceCell<Arc<ClusterRights>>,
    /// What was found about clients a moment ago, and when. All cores share what is known of clients behind a
    /// lock; with this, a client takes it once a second, however many bulks it sends.
    recent: RefCell<HashMap<ClientIdentity, (i64, Principal)>>,
}

/// A client of whom the cluster has not been asked lately.
#[derive(Debug)]
pub(crate) struct Stranger {
    /// The credentials.
    headers: HeaderMap,
    rights: Arc<ClusterRights>,
}

/// The time before which no question of this kind is asked: there is one at a time for each cluster, and none
/// for a second after one that failed. In milliseconds of [`super::Clock`].
#[derive(Debug)]
pub(super) struct Pause(AtomicI64);

/// A question under way. If it is dropped, it has failed.
struct Question {
    rights: Arc<ClusterRights>,
    pause: Duration,
}

// === impl Pause ===

impl Default for Pause {
    fn default() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }
}

impl Pause {
    /// Begins a question, if one may be asked now.
    fn begin(&self, now: i64) -> bool {
        let until = self.0.load(Ordering::Relaxed);
        let begin = || {
            self.0
                .compare_exchange(until, i64::MAX, Ordering::Relaxed, Ordering::Relaxed)
        };
        until <= now && begin().is_ok()
    }
}

// === impl Question ===

impl Question {
    async fn ask(mut self, caller: Caller<'_>) {
        if self.rights.authenticate(caller).await.is_ok() {
            self.pause = Duration::ZERO;
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let pause = i64::try_from(self.pause.as_millis()).unwrap_or(i64::MAX);
        let until = self.rights.clock.now().saturating_add(pause);
        self.rights.pause.0.store(until, Ordering::Relaxed);
    }
}

// === impl Senders ===

impl Senders {
    pub(crate) fn new(rights: Arc<Rights>, cluster: Arc<str>) -> Self {
        Self {
            rights,
            cluster,
            known: OnceCell::new(),
            recent: RefCell::default(),
        }
    }

    /// Returns who sends a request with these headers to the cluster of this snapshot, as far as is known,
    /// and whether the cluster is to be asked.
    pub(crate) fn of(&self, headers: &HeaderMap, snapshot: &Snapshot) -> (Principal, Option<Stranger>) {
        let rights = self.known.get_or_init(|| self.rights.in_memory(&self.cluster));
        let (identity, now) = (rights.identity(headers, snapshot), rights.clock.now());
        if let Some((at, principal)) = self.recent.borrow().get(&identity)
            && now - at < RECENT_MS
        {
            return (*principal, None);
        }
        let (principal, is_known) = rights.sender(headers, snapshot);
        if is_known {
            let mut recent = self.recent.borrow_mut();
            if recent.len() >= RECENT_MAX {
                recent.clear();
            }
            recent.insert(identity, (now, principal));
        }
        let stranger = (!is_known).then(|| Stranger {
            headers: shown(headers),
            rights: Arc::clone(rights),
        });
        (principal, stranger)
    }
}

// === impl Stranger ===

impl Stranger {
    /// Asks the cluster who this is, beside all other work. It is called when the cluster has let these
    /// credentials in.
    pub(crate) fn introduce(self, outbound: &Rc<Outbound>, snapshot: Arc<Snapshot>, request_id: RequestId) {
        let Self { headers, rights } = self;
        if !rights.pause.begin(rights.clock.now()) {
            return;
        }
        let question = Question {
            rights,
            pause: AFTER_FAILURE,
        };
        let outbound = Rc::clone(outbound);
        guard::spawn(Work::Other, async move {
            let caller = Caller {
                outbound: &outbound,
                snapshot: &snapshot,
                headers: &headers,
                request_id: &request_id,
            };
            question.ask(caller).await;
        });
    }
}

const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How long something that was found about a client is not looked up again, in milliseconds.
const RECENT_MS: i64 = 1_000;
/// The most clients of whom that is noted.
const RECENT_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_question_is_asked_at_a_time_and_none_soon_after_one_that_failed() {
        let rights = Arc::new(Rights::new("/nonexistent".as_ref())).in_memory(&"c".into());
        let begun = |rights: &Arc<ClusterRights>, now| rights.pause.begin(now);
        let now = rights.clock.now();
        assert!(begun(&rights, now) && !begun(&rights, now) && !begun(&rights, i64::MAX - 1));
        drop(Question {
            rights: Arc::clone(&rights),
            pause: AFTER_FAILURE,
        });
        assert!(!begun(&rights, now + 999));
        assert!(begun(&rights, rights.clock.now() + 1000));
        drop(Question {
            rights: Arc::clone(&rights),
            pause: Duration::ZERO,
        });
        assert!(begun(&rights, rights.clock.now()));
    }
}
