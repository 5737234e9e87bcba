//! Requests of a try that go on without it, since a node does not answer in time: their operations wait for
//! the end of the request, each by itself, and the key has its next try meanwhile.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinHandle;

use super::at_nodes::{LateAnswer, TriesAtNodes};
use super::try_under_way::TryUnderWay;
use super::{NotTried, With};
use crate::delivery::attempt::Attempted;
use crate::delivery::flights::Kept;
use crate::delivery::lane::Route;
use crate::delivery::memory::LaneMemory;
use crate::delivery::outcome::{Again, Outcome};
use crate::queue::parked::{Flight, FlightOp, ParkKey, Parked};

/// The requests of a try, as the task that sends them knows it.
#[derive(Default)]
pub(super) struct Requests {
    /// Set once they go on without their try.
    alone: RefCell<Option<GoesOn>>,
}

/// Requests that go on without their try: their end is told when this is dropped, whatever becomes of them.
struct GoesOn {
    route: Rc<Route>,
    parked: Arc<Parked>,
    key: ParkKey,
    flight: Arc<Flight>,
    /// The operations that are waited for.
    names: HashMap<usize, FlightOp>,
    done: HashSet<FlightOp>,
    at_nodes: Rc<TriesAtNodes>,
    answer: Option<LateAnswer>,
    /// What keeps others from the documents of the operations.
    document_try: Option<u64>,
    _memory: Option<LaneMemory>,
}

/// The task that sends the requests of a try: it ends with its try, unless it is to go on.
pub(super) struct SendingTask(Option<JoinHandle<()>>);

/// The part of a try that goes on without it.
pub(super) struct Left {
    pub(super) operations: Vec<usize>,
    pub(super) flight: Arc<Flight>,
    pub(super) requests: Rc<Requests>,
    pub(super) task: SendingTask,
}

/// What goes on without its try: its key, the most operations that were sent at once, and the name of each
/// that is waited for.
pub(super) struct Leaves<'a> {
    pub(super) key: &'a ParkKey,
    pub(super) limit: usize,
    pub(super) names: HashMap<usize, FlightOp>,
    pub(super) began: Instant,
    pub(super) memory: Option<LaneMemory>,
}

// === impl Requests ===

impl Requests {
    /// Has the requests go on without their try, for which there has to be a place
    /// ([`crate::queue::parked::ParkedState::leaves_turn`]). Returns what their operations wait for.
    pub(super) fn go_on(&self, (route, parked, at_nodes): With<'_>, leaves: Leaves<'_>) -> Arc<Flight> {
        let flight = Arc::new(Flight::of_try());
        route.flights.add(Kept {
            flight: Arc::clone(&flight),
            lane: leaves.names.values().next().map_or(0, |(lane, ..)| *lane),
            is_committed: true,
            sent: leaves.began,
            // What the lanes send to these indices need not go apart: it is the node that keeps them.
            indices: BTreeSet::new(),
        });
        *self.alone.borrow_mut() = Some(GoesOn {
            route: Rc::clone(route),
            parked: Arc::clone(parked),
            key: leaves.key.clone(),
            flight: Arc::clone(&flight),
            names: leaves.names,
            done: HashSet::new(),
            at_nodes: Rc::clone(at_nodes),
            answer: Some(LateAnswer {
                flight: Arc::downgrade(&flight),
                limit: leaves.limit,
                not_done: HashMap::new(),
                held: Vec::new(),
            }),
            document_try: None,
            _memory: leaves.memory,
        });
        flight
    }

    /// Takes the end of one of the requests if they go on without their try; otherwise returns it.
    pub(super) fn take(&self, operations: &[usize], attempted: Attempted) -> Option<Attempted> {
        let mut alone = self.alone.borrow_mut();
        let Some(alone) = &mut *alone else {
            return Some(attempted);
        };
        alone.ended(operations, attempted);
        None
    }

    /// Tells the end of the requests, if they go on without their try.
    pub(super) fn end(&self) {
        let alone = self.alone.borrow_mut().take();
        drop(alone);
    }
}

// === impl GoesOn ===

impl GoesOn {
    fn ended(&mut self, operations: &[usize], attempted: Attempted) {
        let not_done: HashSet<usize> = attempted.not_done.iter().map(|(one, _)| *one).collect();
        let done = operations.iter().filter(|one| !not_done.contains(one));
        self.done.extend(done.filter_map(|one| self.names.get(one)));
        let Some(answer) = &mut self.answer else { return };
        for (operation, outcome) in attempted.not_done {
            if let Some(name) = self.names.get(&operation) {
                answer.not_done.insert(*name, outcome);
            }
        }
        answer.held.extend(attempted.held);
    }
}

impl Drop for GoesOn {
    fn drop(&mut self) {
        if let Some(mut answer) = self.answer.take() {
            // All requests tell their end, unless the gateway fails on one.
            for name in self.names.values().filter(|name| !self.done.contains(*name)) {
                let untold = || Outcome::again(Again::in_doubt(UNTOLD.to_owned()));
                answer.not_done.entry(*name).or_insert_with(untold);
            }
            if !answer.not_done.is_empty() {
                self.at_nodes.keep(answer);
            }
        }
        // Of the rest nothing is known to be done.
        self.flight.lands(std::mem::take(&mut self.done));
        {
            let mut state = self.parked.state();
            state.returns_turn(&self.key);
            if let Some(number) = self.document_try {
                state.end_try(number);
            }
        }
        self.parked.landed(&self.flight);
        self.route.flights.remove(&self.flight);
    }
}

// === impl SendingTask ===

impl SendingTask {
    pub(super) fn new(task: JoinHandle<()>) -> Self {
        Self(Some(task))
    }
}

impl Drop for SendingTask {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

// === impl Left ===

impl Left {
    /// Lets the requests go on, if it is noted that their operations wait for their end; otherwise the try
    /// waits for it.
    pub(super) async fn after<T>(
        self,
        settled: Result<T, NotTried>,
        parked: &Parked,
        under_way: TryUnderWay<'_>,
    ) -> Result<T, NotTried> {
        match &settled {
            Ok(_) => self.goes_on(parked, under_way.leave()),
            Err(_) => self.ends().await,
        }
        settled
    }

    /// `number` is that of the try, if it has one.
    fn goes_on(mut self, parked: &Parked, number: Option<u64>) {
        self.task.0 = None;
        let mut alone = self.requests.alone.borrow_mut();
        let mut state = parked.state();
        match &mut *alone {
            Some(alone) => alone.document_try = Some(state.leave_try(number, &self.flight)),
            None => number.into_iter().for_each(|number| state.end_try(number)),
        }
    }

    async fn ends(mut self) {
        if let Some(task) = &mut self.task.0 {
            let _ = task.await;
        }
    }
}

/// Why an operation is tried again of whose request nobody has told the end.
const UNTOLD: &str = "the gateway failed on its request, which is a bug of its own";
