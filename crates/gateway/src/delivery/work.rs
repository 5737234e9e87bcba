//! The batch of a lane and its progress, shared by all steps of a delivery.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bulk::{Ask, Minted, Operation, Plan, Verdict};
use cluster::Snapshot;
use config::Level;
use log::{Commit, Mark};
use traces::{Context, Trace};
use wire::PooledBytes;
use wire::guard::fault;

use crate::bulk_request::{BulkHead, ask_of};
use crate::delivery::doubt::{Doubt, DoubtfulWrites};
use crate::delivery::lane::Route;
use crate::delivery::memory::LaneMemory;
use crate::delivery::parcel::Wording;
use crate::delivery::sent_as::sent_as;
use crate::queue::parked::{FailureRow, OperationNames, ShardOf};
use crate::queue::{Recorded, apart_from_span};
use crate::scratch::with_scratch;

/// Groups of a lane that are delivered together: requests with the same parameters, one after another.
pub(crate) struct Batch {
    /// The parameters of its first record; `None` if the record cannot be read, and nobody knows how to send
    /// it.
    pub(crate) recorded: Option<Recorded>,
    /// The parameters of its first record as they are written, apart from its span.
    pub(crate) raw_params: Vec<u8>,
    pub(crate) minted: Vec<Minted>,
    pub(crate) documents: usize,
    pub(crate) origins: Vec<Origin>,
    /// The mark to commit.
    pub(crate) mark: Mark,
    /// The mark from which its first group is read.
    pub(crate) from: Option<Mark>,
    /// The lanes and positions of the first of its traced records, each with the span that put it into the
    /// queue. Parked operations that are tried together are of several lanes, and in Kafka each lane has
    /// positions of its own.
    pub(crate) accepted_by: Vec<((u32, u64), Context)>,
}

/// Names, each with the index that it led to.
pub(crate) type NamesLedTo = Rc<[(String, String)]>;

/// Where operations of a batch come from.
#[derive(Clone)]
pub(crate) struct Origin {
    /// The first operation's number in the batch.
    pub(crate) first: usize,
    /// The first operation's number among those that its request has for the lane.
    pub(crate) place: u32,
    /// The position of the client's request.
    pub(crate) position: u64,
    /// When the request was accepted, in ms since 1970.
    pub(crate) time_ms: u64,
    /// Where the names of the request led when it was accepted, if the record says so.
    pub(crate) led_to: Option<NamesLedTo>,
}

/// A batch under way, and its progress.
pub(crate) struct Work<'b> {
    pub(crate) batch: &'b Batch,
    pub(crate) body: PooledBytes,
    /// The trace that the batch is part of, if it is recorded.
    pub(crate) trace: Option<Trace>,
    /// The memory that the batch takes.
    pub(crate) held: Option<LaneMemory>,
    /// The topology by which the batch was cut into operations.
    pub(super) cut_by: Arc<Snapshot>,
    /// The plan by which the whole body goes to the nodes of a topology, if all of it goes at once; taken at
    /// its first use.
    pub(crate) planned: RefCell<Option<(Arc<Snapshot>, Plan)>>,
    pub(crate) wording: Rc<Wording>,
    pub(crate) operations: Vec<Operation>,
    /// The head that all of the batch's requests have.
    pub(crate) head: &'b BulkHead<'static>,
    /// For each operation: whether it may have been executed already.
    pub(crate) doubt: Vec<Doubt>,
    pub(crate) past: DoubtfulWrites,
    pub(crate) attempts: Vec<u32>,
    /// For each operation: how often a node has refused it by itself.
    pub(crate) refusals: Vec<u32>,
    /// For each operation: how often in a row it has failed without anybody's word against it.
    pub(crate) failure_rows: Vec<FailureRow>,
    pub(super) dead: u64,
    /// Whether something of the batch has been sent.
    pub(super) begun: bool,
    /// The most operations that are sent at once; halved when a request is too large.
    pub(crate) limit: usize,
    /// How many operations were to blame by themselves for the refusal of a whole request.
    pub(crate) blamed: Cell<u32>,
    /// When a shard last took no other operation in place of a refused one.
    pub(crate) shard_refused: Cell<Option<Instant>>,
}

// === impl Batch ===

impl Batch {
    pub(crate) fn new(
        recorded: Option<Recorded>,
        mut raw_params: Vec<u8>,
        origin: Origin,
        mark: Mark,
    ) -> Self {
        raw_params.truncate(apart_from_span(&raw_params).0.len());
        let minted = recorded.as_ref().and_then(|recorded| recorded.minted);
        let accepted_by = recorded
            .as_ref()
            .and_then(|recorded| recorded.params.accepted_by());
        Self {
            recorded,
            raw_params,
            minted: minted.into_iter().collect(),
            documents: 0,
            mark,
            from: None,
            accepted_by: accepted_by
                .map(|span| ((mark.lane, origin.position), span))
                .into_iter()
                .collect(),
            origins: vec![origin],
        }
    }

    /// Creates a batch without operations, for parked operations, which come from several batches.
    pub(crate) fn empty() -> Self {
        Self {
            recorded: None,
            raw_params: Vec::new(),
            minted: Vec::new(),
            documents: 0,
            origins: Vec::new(),
            from: None,
            mark: Mark::default(),
            accepted_by: Vec::new(),
        }
    }

    /// Whether another record's request can go along: the two may differ only in minted ids, and in where
    /// their names led.
    pub(crate) fn may_take(&self, recorded: Option<&Recorded>) -> bool {
        match (&self.recorded, recorded) {
            (Some(ours), Some(theirs)) => ours.params.target == theirs.params.target,
            _ => false,
        }
    }

    /// Takes a record along; `recorded` is `None` if its parameters are those of the batch, apart from its
    /// span.
    ///
    /// # Panics
    ///
    /// If the record is of another lane, or lies before those that the batch has: writes to one document
    /// would overtake each other. A log makes an index that does not ascend anew before anybody reads by it.
    pub(crate) fn take(
        &mut self,
        (recorded, span): (Option<&Recorded>, Option<Context>),
        origin: Origin,
        mark: Mark,
    ) {
        assert_eq!(mark.lane, self.mark.lane, "the groups of a batch are of one lane");
        let last = self.first_and_last().1;
        assert!(
            origin.position >= last,
            "a lane's groups come in ascending positions: {} after {last}",
            origin.position
        );
        self.minted.extend(recorded.and_then(|recorded| recorded.minted));
        if let Some(span) = recorded.map_or(span, |recorded| recorded.params.accepted_by()) {
            self.goes_on_from((mark.lane, origin.position), span);
        }
        self.origins.push(origin);
        self.mark = mark;
    }

    /// Notes the span that put the record at this position of a lane into the queue.
    pub(super) fn goes_on_from(&mut self, position: (u32, u64), span: Context) {
        if self.accepted_by.len() < LINKS_MAX && self.span_of(position).is_none() {
            self.accepted_by.push((position, span));
        }
    }

    /// Returns the span that put the record at this position of a lane into the queue, if it is recorded.
    pub(super) fn span_of(&self, position: (u32, u64)) -> Option<Context> {
        let mut spans = self.accepted_by.iter();
        spans.find(|(of, _)| *of == position).map(|(_, span)| *span)
    }

    /// Returns the commit of the batch when all of its operations are settled, of which `dead` are dead.
    ///
    /// # Panics
    ///
    /// If that is more than there are.
    pub(super) fn settled(&self, dead: u64) -> Commit {
        assert!(
            dead <= self.documents as u64,
            "no more operations of a batch die than it has: {dead} of {}",
            self.documents
        );
        self.mark.done_with(dead)
    }

    /// Returns the path and query of the batch's requests, as their clients sent them.
    pub(crate) fn target(&self) -> &str {
        self.recorded
            .as_ref()
            .map_or("", |recorded| &recorded.params.target)
    }

    /// Returns the positions of the batch's first and last record.
    pub(crate) fn first_and_last(&self) -> (u64, u64) {
        let position = |origin: Option<&Origin>| origin.map_or(0, |origin| origin.position);
        (position(self.origins.first()), position(self.origins.last()))
    }

    pub(crate) fn origin(&self, operation: usize) -> &Origin {
        let at = self.origins.partition_point(|origin| origin.first <= operation);
        &self.origins[at - 1]
    }

    /// Returns the position of an operation's request, and its number among those that this has for the lane.
    pub(crate) fn order_of(&self, operation: usize) -> (u64, u32) {
        let origin = self.origin(operation);
        (origin.position, origin.place_of(operation))
    }
}

// === impl Origin ===

impl Origin {
    /// Returns the index that a name led to when the request was accepted, if the record says so.
    pub(crate) fn led_to(&self, name: &str) -> Option<&str> {
        let pairs = self.led_to.as_deref()?;
        let pair = pairs.iter().find(|(known, _)| known == name)?;
        Some(&pair.1)
    }

    /// Returns the number of an operation of the batch among those that its request has for the lane.
    pub(crate) fn place_of(&self, operation: usize) -> u32 {
        self.place + (operation - self.first) as u32
    }
}

// === impl Work ===

impl<'b> Work<'b> {
    /// Cuts a batch with the lines `body` into operations; `None` if this version does not know how.
    /// Operations accepted before `doubtful_before` may have been executed; `first` says that this is likely.
    pub(crate) fn new(
        route: &Route,
        batch: &'b Batch,
        body: &PooledBytes,
        snapshot: &Arc<Snapshot>,
        (doubtful_before, first): (u64, bool),
    ) -> Option<Self> {
        let recorded = batch.recorded.as_ref()?;
        let head = recorded.head.as_ref()?;
        let ask = ask_of(head, route.group.settings.level);
        fault("batch", body);
        let (operations, plan) = cut(route, batch, &ask, body, snapshot)?;
        let doubtful = batch
            .origins
            .iter()
            .filter(|origin| origin.position < doubtful_before);
        let doubtful = doubtful.count();
        let doubt_ends = batch
            .origins
            .get(doubtful)
            .map_or(operations.len(), |origin| origin.first);
        Some(Work {
            batch,
            body: body.clone(),
            trace: None,
            held: None,
            cut_by: Arc::clone(snapshot),
            planned: RefCell::new(plan.map(|plan| (Arc::clone(snapshot), plan))),
            wording: Rc::new(Wording::new(sent_as(&recorded.params.target))),
            head,
            doubt: (0..operations.len())
                .map(|at| Doubt::since_start(at < doubt_ends, first))
                .collect(),
            past: DoubtfulWrites::default(),
            attempts: vec![0; operations.len()],
            refusals: vec![0; operations.len()],
            failure_rows: vec![FailureRow::default(); operations.len()],
            operations,
            dead: 0,
            begun: false,
            limit: route.operations_max(),
            blamed: Cell::new(0),
            shard_refused: Cell::default(),
        })
    }

    /// Lets go of the lines and their memory, and of where operations are in them. The memory of other notes
    /// on the operations stays held.
    pub(super) fn let_go(&mut self, route: &Route) {
        self.body = route.worker.pool().take(0).freeze();
        self.operations = Vec::new();
        self.planned.take();
        if let Some(held) = &mut self.held {
            held.rest(self.doubt.len());
        }
    }

    /// Takes back lines that were let go of; returns whether they can be cut into the same operations.
    pub(super) fn take_again(&mut self, route: &Route, body: PooledBytes, held: LaneMemory) -> bool {
        let ask = ask_of(self.head, route.group.settings.level);
        let Some((operations, _)) = cut(route, self.batch, &ask, &body, &self.cut_by) else {
            return false;
        };
        (self.operations, self.body, self.held) = (operations, body, Some(held));
        true
    }

    /// The lines of some operations, one after another. One that is large is not copied.
    pub(super) fn text(&self, operations: &[usize]) -> Cow<'_, [u8]> {
        let mut lines = operations.iter().map(|at| {
            let at = self.operations[*at];
            &self.body[at.start..at.end]
        });
        match (lines.next(), lines.next()) {
            (first, None) => Cow::Borrowed(first.unwrap_or_default()),
            (first, second) => {
                let mut all = [first.unwrap_or_default(), second.unwrap_or_default()].concat();
                lines.for_each(|more| all.extend_from_slice(more));
                Cow::Owned(all)
            }
        }
    }

    /// Returns the names of an operation.
    pub(super) fn named(&self, operation: usize, snapshot: &Snapshot) -> OperationNames {
        let at = self.operations[operation];
        let default = self.head.index.as_deref().unwrap_or_default();
        let subject = bulk::subject(&self.body[at.start..at.end]);
        let index = subject.as_ref().and_then(|subject| subject.index.as_deref());
        let written = index.unwrap_or(default).to_owned();
        let concrete = snapshot.table.write_index(written.as_bytes()).map(str::to_owned);
        let id = subject.as_ref().and_then(|subject| subject.id.as_deref());
        OperationNames::new(written, concrete, id)
    }

    /// Returns the shard that an operation goes to by a topology, if that can be told.
    pub(super) fn shard(&self, operation: usize, snapshot: &Snapshot) -> Option<ShardOf> {
        let at = self.operations[operation];
        // A topology tells this also while the shard has no primary.
        let ask = Ask {
            level: bulk::Level::Lane(1),
            ..ask_of(self.head, Level::Node)
        };
        let lines = &self.body[at.start..at.end];
        let explained = bulk::explain(lines, &ask, &snapshot.table).next()?.ok()?;
        ShardOf::new(explained.shard?, snapshot.table.laned(&explained.name)?)
    }
}

/// The most spans that one span goes on from, as OpenTelemetry's own limit is.
const LINKS_MAX: usize = 128;

/// Cuts a batch's lines into its operations, and plans them if this version can do so by that topology.
fn cut(
    route: &Route,
    batch: &Batch,
    ask: &Ask<'_>,
    body: &[u8],
    snapshot: &Snapshot,
) -> Option<(Vec<Operation>, Option<Plan>)> {
    let mut operations = Vec::with_capacity(batch.documents);
    let verdict = with_scratch(&route.scratch, |scratch| {
        let (mut ids, table) = (route.ids.borrow_mut(), &snapshot.table);
        scratch.count_shards(route.counters.heat.is_wanted());
        bulk::plan_cut(body, ask, table, &mut ids, scratch, &mut operations)
    });
    let plan = match verdict {
        Verdict::Plan(plan) => Some(plan),
        Verdict::Pass(_) => {
            operations = bulk::operations(body, ask, &snapshot.table)?;
            None
        }
    };
    (operations.len() == batch.documents).then_some((operations, plan))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(position: u64) -> Origin {
        Origin {
            first: 0,
            place: 0,
            position,
            time_ms: 0,
            led_to: None,
        }
    }

    fn mark(lane: u32, position: u64) -> Mark {
        Mark {
            lane,
            position,
            ..Mark::default()
        }
    }

    fn batch() -> Batch {
        let mut batch = Batch::new(None, Vec::new(), origin(512), mark(3, 600));
        batch.documents = 2;
        batch
    }

    #[test]
    fn a_batch_takes_the_next_groups_of_its_lane_and_commits_behind_the_last() {
        let mut batch = batch();
        // A record may have several groups of a lane.
        batch.take((None, None), origin(512), mark(3, 700));
        batch.take((None, None), origin(800), mark(3, 900));
        assert_eq!(batch.settled(2), mark(3, 900).done_with(2));
    }

    #[test]
    #[should_panic(expected = "a lane's groups come in ascending positions: 504 after 512")]
    fn no_group_overtakes_another_of_its_lane() {
        batch().take((None, None), origin(504), mark(3, 700));
    }

    #[test]
    #[should_panic(expected = "the groups of a batch are of one lane")]
    fn no_group_comes_from_another_lane() {
        batch().take((None, None), origin(520), mark(2, 700));
    }

    #[test]
    #[should_panic(expected = "no more operations of a batch die than it has: 3 of 2")]
    fn no_operation_dies_twice() {
        let _ = batch().settled(3);
    }
}
