//! Parts whose answers take long.
//!
//! A node keeps a request until the elected master has added a new field to a mapping, for up to 30 s, and no
//! parameter bounds that; a node that never answers keeps it until the timeout. A lane does not wait so long
//! if documents for other indices wait behind: while the request is under way, its operations are parked, as
//! operations that may have been executed. They are tried once the request has ended, except for those of
//! which the answer says that they are done.
//!
//! A request often has documents for several indices, and nobody can tell for which of them the node keeps
//! it. So its operations are parked by themselves, and later operations for these indices go out, except on
//! the same documents. But from then on, until the request has ended, the lanes send what they have for each
//! of these indices by itself, after all others. If that takes long, too, while the node answers others, it
//! is the index: its operations are parked in the line of the index, and later ones go there at once.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Node, Snapshot};
use log::Next;
use tokio::time::timeout;
use wire::guard::{self, Work as GuardedWork};

use crate::delivery::flights::Kept;
use crate::delivery::lane::Route;
use crate::delivery::memory::{LaneMemory, with_notes};
use crate::delivery::op_lines::lines_of;
use crate::delivery::outcome::{Again, Outcome, Outcomes};
use crate::delivery::parcel::Sent;
use crate::delivery::park::BEHIND_BYTES_MAX;
use crate::delivery::work::Work;
use crate::queue::parked::{Flight, FlightOp, Parked, Scope};
use crate::queue::{LaneReader, Recorded};

/// A lane that waits for the answers of its parts.
pub(crate) struct Waiter<'a> {
    pub(crate) lane: u32,
    /// Whether all of the operations are for one index, and a request with operations for it is kept.
    suspect: bool,
    /// Reads what waits behind in the lane.
    ahead: RefCell<&'a mut LaneReader>,
}

/// A part under way: its outcomes, some time.
pub(crate) type UnderWay = Pin<Box<dyn Future<Output = Outcomes>>>;

/// The end of a request for which nobody waits: told when this is dropped, whatever becomes of it.
struct Landing {
    route: Rc<Route>,
    parked: Arc<Parked>,
    flight: Arc<Flight>,
    _held: LaneMemory,
}

impl Drop for Landing {
    fn drop(&mut self) {
        // Unless the answer has said more, nothing is known to be done.
        self.flight.lands(HashSet::new());
        self.parked.landed(&self.flight);
        self.route.flights.remove(&self.flight);
    }
}

// === impl Waiter ===

impl<'a> Waiter<'a> {
    pub(crate) fn new(lane: u32, suspect: bool, ahead: &'a mut LaneReader) -> Self {
        let ahead = RefCell::new(ahead);
        Self { lane, suspect, ahead }
    }

    /// Whether documents wait behind a batch in the lane that are for none of these indices.
    fn others_wait(&self, indices: &BTreeSet<String>, snapshot: &Snapshot) -> bool {
        let is_other = |index: Option<&str>| index.is_some_and(|index| !indices.contains(index));
        let mut reader = self.ahead.borrow_mut();
        let (before, mut lines, mut bytes) = (reader.mark(), Vec::new(), 0);
        let mut found = false;
        while !found
            && bytes < LOOKED_AT_BYTES
            && let Ok(Some(Next::Group(group))) = reader.next(&mut lines)
        {
            bytes += lines.len();
            let recorded = Recorded::read(&group.params);
            let default = recorded
                .as_ref()
                .and_then(|recorded| recorded.head.as_ref()?.index.as_deref());
            found = lines_of(&lines).into_iter().any(|range| {
                let subject = bulk::subject(&lines[range]);
                let written = subject.as_ref().and_then(|subject| subject.index.as_deref());
                let written = written.or(default);
                let concrete = written.and_then(|written| snapshot.table.write_index(written.as_bytes()));
                is_other(concrete.or(written))
            });
            lines.clear();
        }
        reader.rewind(before);
        found
    }
}

// === impl Route ===

impl Route {
    /// Splits operations into those that go out now, and those that go later: what is for an index that may
    /// be to blame for a request that is kept comes last, each index by itself. Returns that index, too.
    pub(crate) fn suspects_apart(
        &self,
        work: &Work<'_>,
        operations: Vec<usize>,
        snapshot: &Snapshot,
    ) -> (Vec<usize>, Vec<usize>, Option<String>) {
        let index = |operation: usize| work.named(operation, snapshot).index().to_owned();
        let (suspects, others): (Vec<usize>, Vec<usize>) = operations
            .into_iter()
            .partition(|operation| self.flights.suspects_one(&index(*operation)));
        let first = match suspects.first() {
            Some(first) if others.is_empty() => index(*first),
            _ => return (others, suspects, None),
        };
        let (of_it, rest) = suspects.into_iter().partition(|one| index(*one) == first);
        (of_it, rest, Some(first))
    }

    /// Whether there is room for one more request without a lane, with this many operations.
    fn may_leave(&self, work: &Work<'_>, operations: usize, parked: &Parked) -> bool {
        // Each lane may park what it has read before it sees how much waits.
        let batches = u64::from(self.group.queue.log.lanes()) * self.group.settings.batch_bytes_max as u64;
        operations <= OPERATIONS_MAX
            && work.body.len() <= BYTES_MAX
            && self.flights.count() < FLIGHTS_MAX
            && parked.has_plenty(batches + BEHIND_BYTES_MAX)
    }

    /// Waits for the outcomes of a part as long as its lane should; `sent` says since when it is under way.
    /// If that is over, the part goes on by itself, and its operations are to be parked.
    pub(crate) async fn in_time(
        self: &Rc<Self>,
        waiter: Option<&Waiter<'_>>,
        (work, operations): (&Work<'_>, &dyn Fn() -> Vec<usize>),
        (node, snapshot): (&Node, &Snapshot),
        (sent, mut part): (Sent, UnderWay),
    ) -> Outcomes {
        let (Some(waiter), Some(parked)) = (waiter, self.group.parked()) else {
            return part.await;
        };
        let gate = self.outlets.gate(node);
        if let Ok(outcomes) = timeout(gate.long(), &mut part).await {
            return outcomes;
        }
        let operations = operations();
        let index = |operation: &usize| work.named(*operation, snapshot).index().to_owned();
        let indices: BTreeSet<String> = operations.iter().map(index).collect();
        // The body of the whole batch stays for as long as the request is under way.
        let bytes = with_notes(work.body.kept(), operations.len());
        let (sent, held) = loop {
            let late = sent.get().filter(|sent| sent.elapsed() >= gate.long());
            if let Some(sent) = late
                && self.may_leave(work, operations.len(), parked)
                && waiter.others_wait(&indices, snapshot)
                && let Some(held) = self.shared.delivery_memory.spare(bytes)
            {
                break (sent, held);
            }
            if let Ok(outcomes) = timeout(LATE_AGAIN, &mut part).await {
                return outcomes;
            }
        };
        // A node that answers nothing keeps the request for no index.
        let since = self.flights.suspects(&indices).filter(|_| waiter.suspect);
        let since = since.map(|since| since.max(sent.checked_sub(RECENTLY).unwrap_or(since)));
        let scope = match since.is_some_and(|since| gate.has_taken_since(since)) {
            true => Scope::Index,
            false => Scope::Document,
        };
        let flight = Arc::new(Flight::default());
        self.flights.add(Kept {
            flight: Arc::clone(&flight),
            lane: waiter.lane,
            is_committed: false,
            sent,
            indices,
        });
        let landing = Landing {
            route: Rc::clone(self),
            parked: Arc::clone(parked),
            flight: Arc::clone(&flight),
            _held: held,
        };
        let name = |operation: &usize| {
            let (position, place) = work.batch.order_of(*operation);
            (waiter.lane, position, place)
        };
        let names: Vec<FlightOp> = operations.iter().map(name).collect();
        let count = names.len() as u32;
        guard::spawn(GuardedWork::Parcels, async move {
            let landing = landing;
            let outcomes = part.await;
            landing
                .flight
                .lands(outcomes.done().map(|at| names[at]).collect());
        });
        let why = format!("{} keeps a request: they wait for its end", node.name);
        let outcome = Outcome::Park(scope, Arc::new(Again::under_way(why, flight)));
        Outcomes::of_all(&outcome, count)
    }
}

/// The time until it is looked again whether a part is late, and others wait.
const LATE_AGAIN: Duration = Duration::from_millis(250);
/// The time before a request in which the node has to have taken others, if that request is late for its
/// index.
const RECENTLY: Duration = Duration::from_secs(3);
/// The bytes that are looked at behind a batch.
const LOOKED_AT_BYTES: usize = 256 << 10;
/// The most operations of a part that goes on by itself, and bytes of its batch, which are parked; and the
/// most such parts of a pipeline.
const OPERATIONS_MAX: usize = 10_000;
const BYTES_MAX: usize = 8 << 20;
const FLIGHTS_MAX: usize = 64;
