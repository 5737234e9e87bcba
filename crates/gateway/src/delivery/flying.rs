//! Requests under way for which nobody waits ([`super::late`]): they land together if they are of one try,
//! since operations of one record may be in several of them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use crate::delivery::flights::Kept;
use crate::delivery::lane::Route;
use crate::queue::parked::{Flight, FlightOp, Parked};

/// Requests with operations that are parked meanwhile.
pub(super) struct Flying {
    route: Rc<Route>,
    parked: Arc<Parked>,
    pub(super) flight: Arc<Flight>,
    /// How many are under way, and one more while others may join them.
    left: Cell<usize>,
    /// The operations that are done for certain.
    done: RefCell<HashSet<FlightOp>>,
}

/// A try of operations that are parked by themselves, and whose requests need not be waited for. Dropped once
/// the try has its results: what is under way then lands when the last of it has ended.
pub(crate) struct TryWaiter {
    /// The operations, by their numbers in the batch.
    operations: Vec<FlightOp>,
    flying: RefCell<Option<Rc<Flying>>>,
}

// === impl Flying ===

impl Flying {
    fn new(
        (route, parked): (&Rc<Route>, &Arc<Parked>),
        flight: Flight,
        (sent, indices): (Instant, BTreeSet<String>),
    ) -> Rc<Self> {
        let flight = Arc::new(flight);
        route.flights.add(Kept {
            flight: Arc::clone(&flight),
            sent,
            indices,
        });
        Rc::new(Self {
            route: Rc::clone(route),
            parked: Arc::clone(parked),
            flight,
            left: Cell::new(1),
            done: RefCell::default(),
        })
    }

    /// Begins with the one request of a lane that may be kept for any of these indices.
    pub(super) fn alone(
        route: &Rc<Route>,
        parked: &Arc<Parked>,
        kept: (Instant, BTreeSet<String>),
    ) -> Rc<Self> {
        Self::new((route, parked), Flight::default(), kept)
    }

    /// Records the operations that the answer to a request says are done.
    pub(super) fn done(&self, operations: impl Iterator<Item = FlightOp>) {
        self.done.borrow_mut().extend(operations);
    }

    /// Records that a request has ended, or that no others join. Unless its answer has said more, nothing of
    /// the request is known to be done.
    pub(super) fn ended(&self) {
        self.left.set(self.left.get() - 1);
        if self.left.get() > 0 {
            return;
        }
        self.flight.lands(self.done.take());
        self.parked.landed(&self.flight);
        self.route.flights.remove(&self.flight);
    }
}

// === impl TryWaiter ===

impl TryWaiter {
    /// Begins a try of these operations, which has sent nothing yet.
    pub(crate) fn new(operations: Vec<FlightOp>) -> Self {
        Self {
            operations,
            flying: RefCell::default(),
        }
    }

    pub(super) fn operation(&self, number: usize) -> FlightOp {
        self.operations[number]
    }

    /// Adds a request to those of the try that are not waited for.
    pub(super) fn one_more(&self, route: &Rc<Route>, parked: &Arc<Parked>, sent: Instant) -> Rc<Flying> {
        let mut flying = self.flying.borrow_mut();
        // Which index is to blame is found by the lanes.
        let begin = || Flying::new((route, parked), Flight::of_try(), (sent, BTreeSet::new()));
        let flying = flying.get_or_insert_with(begin);
        flying.left.set(flying.left.get() + 1);
        Rc::clone(flying)
    }
}

impl Drop for TryWaiter {
    fn drop(&mut self) {
        if let Some(flying) = self.flying.take() {
            flying.ended();
        }
    }
}
