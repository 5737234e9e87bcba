//! The seats of connections, and who leaves when there are too many.
//!
//! Every connection is accepted. At the limit another one leaves for it: whoever opens connections and sends
//! nothing, or sends requests without a session in trickles, takes seats from nobody but himself. No peer (as
//! [`peer_of`] has it) takes the seat of another one that has fewer, and requests of users who are logged in
//! are never cut off.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::peer::peer_of;

/// All seats.
pub(super) struct Seats {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    seats: HashMap<u64, Seat>,
    next: u64,
}

/// A connection's hold on its seat, which is free once this is dropped.
pub(super) struct Hold {
    seats: Arc<Seats>,
    id: u64,
    seat: Seat,
}

/// A connection's seat, as its requests see it.
#[derive(Clone)]
pub(crate) struct Seat(Arc<Inner>);

struct Inner {
    peer: IpAddr,
    state: Mutex<State>,
    leaves: Notify,
}

struct State {
    activity: Activity,
    since: Instant,
    /// The number of requests so far.
    requests: u64,
    /// Whether the client has still to take something of an answer.
    is_writing: bool,
}

/// The activity of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// No request is under way: the handshake or a head is awaited.
    Waits,
    /// A request is under way: its body comes, or its answer goes out.
    Asks,
    /// A request of a session is under way.
    Vouched,
}

/// A request that is under way. When it is dropped, the next one is awaited.
pub(super) struct UnderWay(Seat);

impl Seats {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            taken: Mutex::default(),
        })
    }

    /// Gives a seat to a connection, if need be another one's; `None` if requests of users who are logged in
    /// have all of them.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Hold> {
        let peer = peer_of(address);
        let mut taken = self.taken.lock();
        if taken.seats.len() >= self.most {
            let gone = taken.to_leave(peer)?;
            let gone = taken.seats.remove(&gone)?;
            gone.0.leaves.notify_one();
        }
        let seat = Seat(Arc::new(Inner {
            peer,
            state: Mutex::new(State {
                activity: Activity::Waits,
                since: Instant::now(),
                requests: 0,
                is_writing: false,
            }),
            leaves: Notify::new(),
        }));
        let id = taken.next;
        taken.next += 1;
        taken.seats.insert(id, seat.clone());
        Some(Hold {
            seats: Arc::clone(self),
            id,
            seat,
        })
    }
}

impl Taken {
    /// Returns the seat that is given to a connection of `newcomer`: of the peer with the most that may
    /// leave, the one that has been idle for the longest, or else has asked for the longest.
    fn to_leave(&self, newcomer: IpAddr) -> Option<u64> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        let leave = self.seats.iter().filter(|(_, seat)| seat.may_leave());
        for (_, seat) in leave.clone() {
            *counts.entry(seat.0.peer).or_default() += 1;
        }
        let chosen = leave.max_by_key(|(_, seat)| {
            let state = seat.0.state.lock();
            let is_own = seat.0.peer == newcomer;
            (
                counts[&seat.0.peer],
                is_own,
                state.is_idle(),
                Reverse(state.since),
            )
        });
        chosen.map(|(id, _)| *id)
    }
}

impl Hold {
    pub(super) fn seat(&self) -> &Seat {
        &self.seat
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.seats.taken.lock().seats.remove(&self.id);
    }
}

impl Seat {
    /// Ends the connection, whatever it does.
    pub(crate) fn take_away(&self) {
        self.0.leaves.notify_one();
    }

    /// Waits until the seat is given to somebody else, or taken away.
    pub(super) async fn lost(&self) {
        self.0.leaves.notified().await;
    }

    /// Notes that a request's head has come.
    pub(super) fn ask(&self) -> UnderWay {
        self.0.state.lock().requests += 1;
        self.turn(Activity::Asks);
        UnderWay(self.clone())
    }

    /// Notes that the request under way is of a session.
    pub(crate) fn vouch(&self) {
        self.turn(Activity::Vouched);
    }

    /// Returns the number of requests before the one whose head is awaited; `None` while a request is under
    /// way.
    pub(super) fn awaits(&self) -> Option<u64> {
        let state = self.0.state.lock();
        (state.activity == Activity::Waits).then_some(state.requests)
    }

    pub(super) fn set_writing(&self, is_writing: bool) {
        self.0.state.lock().is_writing = is_writing;
    }

    fn turn(&self, activity: Activity) {
        let mut state = self.0.state.lock();
        state.activity = activity;
        state.since = Instant::now();
    }

    fn may_leave(&self) -> bool {
        self.0.state.lock().activity != Activity::Vouched
    }
}

#[cfg(test)]
impl Seat {
    /// Returns a seat of no connection.
    pub(crate) fn of_nobody() -> Self {
        let hold = Seats::new(1).take([127, 0, 0, 1].into());
        hold.unwrap().seat().clone()
    }

    /// Waits until the seat is given to somebody else, or taken away.
    pub(crate) async fn gone(&self) {
        self.lost().await;
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.activity == Activity::Waits && !self.is_writing
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.turn(Activity::Waits);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn address(peer: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, peer])
    }

    /// Which of the connections have lost their seats.
    fn lost(holds: &[Hold]) -> Vec<usize> {
        let lost = |hold: &Hold| hold.seat().lost().now_or_never().is_some();
        holds
            .iter()
            .enumerate()
            .filter(|(_, hold)| lost(hold))
            .map(|(at, _)| at)
            .collect()
    }

    #[test]
    fn whoever_holds_all_seats_idly_loses_one_to_each_newcomer_and_nobody_else_does() {
        let seats = Seats::new(4);
        let take = |peer| seats.take(address(peer)).unwrap();
        let mut holds: Vec<Hold> = [1, 1, 1, 2].map(take).into();
        let _asking = holds[0].seat().ask();
        assert_eq!(lost(&holds), [0; 0]);
        holds.push(take(3));
        let first = lost(&holds);
        assert!(
            first == [1] || first == [2],
            "an idle one of the first peer: {first:?}"
        );
        holds.push(take(1));
        let second = lost(&holds);
        assert!(
            second.len() == 1 && second[0] < 3 && second != first,
            "another one of its own: {second:?}"
        );
        // With one each, a newcomer who has none takes another one's, and else the own.
        let mut holds: Vec<Hold> = Vec::new();
        let seats = Seats::new(2);
        let take = |peer| seats.take(address(peer)).unwrap();
        holds.extend([take(1), take(2)]);
        holds.push(take(2));
        assert_eq!(lost(&holds), [1]);
        holds.push(take(3));
        assert_eq!(lost(&holds), [0], "the oldest");
    }

    #[test]
    fn requests_without_a_session_leave_and_requests_of_sessions_do_not() {
        let seats = Seats::new(3);
        let take = || seats.take(address(1));
        let holds: Vec<Hold> = [(); 3].map(|()| take().unwrap()).into();
        let under_way: Vec<UnderWay> = holds.iter().map(|hold| hold.seat().ask()).collect();
        holds[0].seat().vouch();
        holds[2].seat().vouch();
        let other = take().unwrap();
        assert_eq!(lost(&holds), [1]);
        let asking = other.seat().ask();
        other.seat().vouch();
        assert!(take().is_none());
        drop(under_way);
        // What the client has not taken yet is not cut off while others are idle.
        holds[0].seat().set_writing(true);
        let _newcomer = take().unwrap();
        assert_eq!(lost(&holds), [2]);
        assert_eq!(other.seat().awaits(), None);
        drop(asking);
        assert_eq!(other.seat().awaits(), Some(1));
    }

    #[test]
    fn a_connection_that_ends_frees_its_seat() {
        let seats = Seats::new(1);
        for _ in 0..3 {
            let hold = seats.take(address(1)).unwrap();
            assert_eq!(lost(&[hold]), [0; 0]);
        }
        assert!(seats.taken.lock().seats.is_empty());
    }
}
