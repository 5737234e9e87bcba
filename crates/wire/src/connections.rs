//! The connections to a listener, and the choice of those that must leave when there are too many.
//!
//! Below the limit no connection is asked to leave. At the limit, a new connection still gets a place if
//! another one has no request under way: a client that opens connections and sends nothing, or sends heads
//! and bodies in trickles, does not keep others out. No peer (as in [`admission`](crate::admission))
//! displaces another one that has fewer connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Instant;

use parking_lot::Mutex;

/// One connection, as the acceptor sees it. It is on cache lines of its own: the acceptor makes one after
/// another, and each core writes those of its connections with each request.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct OpenConnection {
    pub(crate) peer: IpAddr,
    /// Its present activity, and whether it has to leave ([`LEAVES`]). It is one value, so that nobody tells
    /// a connection to leave that has sent a request since it was chosen.
    state: AtomicU8,
    /// When its present activity began, in ms since the listener began.
    since_ms: AtomicU64,
    begun: Instant,
    waker: Mutex<Option<Waker>>,
}

/// The activity of a connection, in the order in which connections leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Activity {
    /// It has not sent a whole request yet: it shakes hands, is silent, or trickles.
    Begins,
    /// It has been answered, and may send another request.
    Rests,
    /// It has sent a request; the body may still be arriving.
    Asks,
}

/// The connections that leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leaving {
    /// Connections that were told before, and have not left yet.
    pub(crate) before: usize,
    /// Connections that have been told now.
    pub(crate) told: usize,
    /// Whether there is a place although nobody leaves: others have left by themselves.
    pub(crate) has_place: bool,
}

/// All connections of a listener.
#[derive(Debug)]
pub(crate) struct OpenConnections {
    begun: Instant,
    all: Mutex<HashMap<u64, Arc<OpenConnection>>>,
    next_id: AtomicU64,
}

// === impl OpenConnection ===

impl OpenConnection {
    pub(crate) fn new(peer: IpAddr, begun: Instant) -> Self {
        OpenConnection {
            peer,
            state: AtomicU8::new(Activity::Begins as u8),
            since_ms: AtomicU64::new(begun.elapsed().as_millis() as u64),
            begun,
            waker: Mutex::default(),
        }
    }

    pub(crate) fn does(&self, doing: Activity) {
        let now_ms = self.begun.elapsed().as_millis() as u64;
        self.since_ms.store(now_ms, Ordering::Relaxed);
        match doing {
            // A whole request has arrived just in time: the connection stays.
            Activity::Asks => self.state.store(doing as u8, Ordering::Relaxed),
            // Whether it has to leave does not change.
            Activity::Begins | Activity::Rests => {
                self.state.fetch_and(LEAVES, Ordering::Relaxed);
                self.state.fetch_or(doing as u8, Ordering::Relaxed);
            }
        }
    }

    /// Sets the connection's task, which is woken when the connection has to leave.
    pub(crate) fn hears(&self, cx: &Context<'_>) {
        *self.waker.lock() = Some(cx.waker().clone());
    }

    /// Returns whether the connection has to leave; only a connection that waits for its client does so.
    pub(crate) fn has_to_leave(&self) -> bool {
        self.state.load(Ordering::Relaxed) & LEAVES > 0
    }

    fn doing(&self) -> Activity {
        match self.state.load(Ordering::Relaxed) & !LEAVES {
            0 => Activity::Begins,
            1 => Activity::Rests,
            _ => Activity::Asks,
        }
    }

    pub(crate) fn leave(&self) {
        self.state.fetch_or(LEAVES, Ordering::Relaxed);
        self.wake();
    }

    /// Tells the connection to leave if it still does this and has not been told; returns whether it was told
    /// now.
    fn leave_if(&self, doing: Activity) -> bool {
        let (from, to) = (doing as u8, doing as u8 | LEAVES);
        let changed = self
            .state
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        if changed.is_ok() {
            self.wake();
        }
        changed.is_ok()
    }

    fn wake(&self) {
        let waker = self.waker.lock();
        if let Some(waker) = &*waker {
            waker.wake_by_ref();
        }
    }
}

// === impl OpenConnections ===

impl OpenConnections {
    pub(crate) fn new() -> Self {
        OpenConnections {
            begun: Instant::now(),
            all: Mutex::default(),
            next_id: AtomicU64::new(0),
        }
    }

    pub(crate) fn enter(&self, peer: IpAddr) -> (u64, Arc<OpenConnection>) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let opened = Arc::new(OpenConnection::new(peer, self.begun));
        self.all().insert(id, Arc::clone(&opened));
        (id, opened)
    }

    pub(crate) fn leave(&self, id: u64) {
        let mut all = self.all();
        all.remove(&id);
        if all.len() < all.capacity() / 8 {
            all.shrink_to_fit();
        }
    }

    /// Makes some connections leave, so that `peer` finds one of the `places`. More than one leaves at a
    /// time, since each call walks through all of them. Connections that were told before and have not left
    /// yet count.
    pub(crate) fn make_room(&self, peer: IpAddr, places: usize) -> Leaving {
        let all = self.all();
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        counts.insert(peer, 0);
        let mut leaving = 0;
        for opened in all.values() {
            *counts.entry(opened.peer).or_default() += 1;
            // A connection with a request under way does not leave, whatever it was told.
            leaving += usize::from(opened.has_to_leave() && opened.doing() != Activity::Asks);
        }
        let mut leaving = Leaving {
            before: leaving,
            told: 0,
            has_place: all.len() < places,
        };
        // The newcomer needs one of the places that become free.
        if all.len() < places + leaving.before {
            return leaving;
        }
        let fair = all.len() / counts.len();
        let own = counts.get(&peer).copied().unwrap_or_default();
        let may_go = |opened: &OpenConnection| {
            let count = counts.get(&opened.peer).copied().unwrap_or_default();
            !opened.has_to_leave()
                && if own >= fair {
                    opened.peer == peer
                } else {
                    count > fair
                }
        };
        let mut going: Vec<(Activity, u64, &Arc<OpenConnection>)> = all
            .values()
            .filter(|opened| may_go(opened))
            .map(|opened| (opened.doing(), opened.since_ms.load(Ordering::Relaxed), opened))
            .collect();
        let batch = (all.len() / BATCH_PART).max(1).min(going.len());
        if batch == 0 {
            return leaving;
        }
        going.select_nth_unstable_by_key(batch - 1, |(doing, since_ms, _)| (*doing, *since_ms));
        let first = going[..batch].iter().map(|(doing, ..)| *doing).min();
        // Requests are cut off only where no other connection is left.
        let may_be_told = |doing: Activity| doing != Activity::Asks || first == Some(Activity::Asks);
        // Those who have sent a request meanwhile stay, and others leave in their place.
        let told = going
            .iter()
            .filter(|(doing, _, opened)| may_be_told(*doing) && opened.leave_if(*doing));
        leaving.told = told.take(batch).count();
        leaving
    }

    fn all(&self) -> parking_lot::MutexGuard<'_, HashMap<u64, Arc<OpenConnection>>> {
        self.all.lock()
    }
}

/// The bit of a connection's state that says that it has to leave.
const LEAVES: u8 = 1 << 7;
/// The part of all connections that leaves at a time: one in this many.
const BATCH_PART: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    fn leaving(all: &[(u64, Arc<OpenConnection>)]) -> Vec<usize> {
        let told = |at: &usize| all[*at].1.has_to_leave();
        (0..all.len()).filter(told).collect()
    }

    #[test]
    fn the_oldest_that_has_not_asked_leaves_first_then_who_rests_and_who_asks_last() {
        let connections = OpenConnections::new();
        let all: Vec<_> = (0..4).map(|_| connections.enter(peer(1))).collect();
        let doing = [
            Activity::Asks,
            Activity::Rests,
            Activity::Begins,
            Activity::Begins,
        ];
        for (((_, opened), doing), since_ms) in all.iter().zip(doing).zip([0, 1, 9, 5]) {
            opened.does(doing);
            opened.since_ms.store(since_ms, Ordering::Relaxed);
        }
        let mut left = Vec::new();
        for places in (1..=4).rev() {
            assert_eq!(connections.make_room(peer(1), places).told, 1);
            let told: Vec<usize> = leaving(&all)
                .into_iter()
                .filter(|at| !left.contains(at))
                .collect();
            connections.leave(all[told[0]].0);
            left.extend(told);
        }
        assert_eq!(left, [3, 2, 1, 0]);
        assert_eq!(connections.make_room(peer(1), 0).told, 0, "nobody is left");
    }

    #[test]
    fn those_who_leave_count_as_gone_and_who_has_asked_meanwhile_stays() {
        let connections = OpenConnections::new();
        let all: Vec<_> = (0..2).map(|_| connections.enter(peer(1))).collect();
        let leave = |before, told| Leaving {
            before,
            told,
            has_place: false,
        };
        assert_eq!(connections.make_room(peer(1), 2), leave(0, 1));
        assert_eq!(connections.make_room(peer(1), 2), leave(1, 0));
        let told = leaving(&all);
        all[told[0]].1.does(Activity::Asks);
        assert_eq!(leaving(&all), []);
    }

    /// A connection is chosen while it waits, and sends its request before it is told.
    #[test]
    fn nobody_is_told_to_leave_who_has_asked_since_it_was_chosen() {
        let connections = OpenConnections::new();
        let (_, asks) = connections.enter(peer(1));
        let rest: Vec<_> = (0..60).map(|_| connections.enter(peer(1)).1).collect();
        rest.iter().for_each(|opened| opened.does(Activity::Rests));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    connections.make_room(peer(1), 0);
                    for opened in rest.iter().filter(|opened| opened.has_to_leave()) {
                        opened.does(Activity::Asks);
                        opened.does(Activity::Rests);
                    }
                }
            });
            let mut told = 0;
            for _ in 0..20_000 {
                asks.does(Activity::Begins);
                (0..50).for_each(|_| std::hint::spin_loop());
                asks.does(Activity::Asks);
                told += (0..50).filter(|_| asks.has_to_leave()).count();
            }
            over.store(true, Ordering::Relaxed);
            assert_eq!(told, 0);
        });
    }

    #[test]
    fn a_place_that_somebody_has_left_by_itself_is_a_place() {
        let connections = OpenConnections::new();
        let (id, _) = connections.enter(peer(1));
        assert!(!connections.make_room(peer(2), 1).has_place);
        connections.leave(id);
        assert!(connections.make_room(peer(2), 1).has_place);
    }

    #[test]
    fn a_peer_drives_out_itself_before_one_that_has_fewer() {
        let connections = OpenConnections::new();
        let mut all: Vec<_> = (0..3).map(|_| connections.enter(peer(2))).collect();
        all.extend((0..97).map(|_| connections.enter(peer(1))));
        for newcomer in [1, 2, 3, 1] {
            let before = leaving(&all).len();
            let places = connections.all().len();
            assert!(connections.make_room(peer(newcomer), places).told > 0);
            let told = leaving(&all);
            assert!(told.len() > before && told[0] >= 3, "{told:?}");
            told.iter().for_each(|at| connections.leave(all[*at].0));
        }
    }
}
