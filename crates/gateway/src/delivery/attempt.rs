//! One try of a batch's operations: they are planned by today's topology, and handed to the outlets of the
//! nodes that hold their primaries.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bulk::{Ask, Destination, Op, Part, Plan, Verdict, Why};
use cluster::{PickReason, Snapshot};
use config::Level;
use futures_util::future::join_all;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use wire::{Outgoing, Pool, PooledBytes};

use crate::bulk_request::ask_of;
use crate::delivery::asking::{Question, SHORT_BYTES, SOURCE_BYTES_MAX, Source, target_of};
use crate::delivery::lane::Route;
use crate::delivery::late::{UnderWay, Waiter};
use crate::delivery::memory::AnswerHeld;
use crate::delivery::outcome::{Outcome, Outcomes};
use crate::delivery::outlet::{Outlet, SendMode};
use crate::delivery::parcel::Parcel;
use crate::delivery::shared_fate::number_of_id;
use crate::delivery::sources::{doc_of, holds, paths, same};
use crate::delivery::unknown::{NotReadable, UnknownOutcome};
use crate::delivery::work::Work;
use crate::nodes::Outbound;
use crate::nodes::lines::PlannedBody;
use crate::scratch::with_scratch;

/// The result of an attempt.
#[derive(Default)]
pub(crate) struct Attempted {
    pub(crate) not_done: Vec<(usize, Outcome)>,
    /// The memory that the outcomes' texts take, for as long as somebody has them.
    pub(crate) held: Vec<Rc<AnswerHeld>>,
}

/// How, and by which topology, operations are sent in one attempt.
#[derive(Clone, Copy)]
struct Sending<'a, 'r> {
    way: SendMode,
    /// The lane that waits for the result, if one does.
    waiter: Option<&'a Waiter<'r>>,
    work: &'a Work<'a>,
    operations: &'a [usize],
    outbound: &'a Outbound,
    snapshot: &'a Snapshot,
}

impl Sending<'_, '_> {
    /// Returns the operations of a part of a plan; without one, all.
    fn of_part(&self, part: Option<(&Plan, usize)>) -> Cow<'_, [usize]> {
        let Some((plan, part)) = part.filter(|(plan, _)| plan.parts.len() > 1) else {
            return Cow::Borrowed(self.operations);
        };
        let all = self.operations.iter().enumerate();
        let of_it = all.filter(|(doc, _)| plan.part_of(*doc as u32) == part);
        of_it.map(|(_, operation)| *operation).collect()
    }
}

impl Work<'_> {
    /// Returns operations as one parcel, whose items are compared with them if servers may mix them up.
    fn whole(&self, body: PooledBytes, operations: &[usize], snapshot: &Snapshot) -> Parcel {
        let parcel = Parcel::whole(body, operations.len() as u32, &self.wording).traced(&self.trace);
        match snapshot.table.dialect().ingests_singly() {
            true => parcel,
            false => parcel.compared(self.numbers_of_ids(operations)),
        }
    }

    /// Returns the numbers of some operations' ids, by which items are compared.
    fn numbers_of_ids(&self, operations: &[usize]) -> Vec<u64> {
        let numbers = operations.iter().map(|at| {
            let at = self.operations[*at];
            let subject = bulk::subject(&self.body[at.start..at.end]);
            let id = subject.and_then(|subject| subject.id);
            id.map_or(0, |id| number_of_id(&id))
        });
        numbers.collect()
    }

    /// Returns the lines of some operations, one after another; copied only if other operations stand between
    /// them.
    fn lines(&self, operations: &[usize], pool: &Pool) -> PooledBytes {
        let place = |at: &usize| self.operations[*at];
        let follow = operations.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        if let (Some(first), Some(last), true) = (operations.first(), operations.last(), follow) {
            return self.body.slice(place(first).start..place(last).end);
        }
        let places = operations.iter().map(place);
        let mut lines = pool.take(places.clone().map(|at| at.end - at.start).sum());
        for at in places {
            lines.extend_from_slice(&self.body[at.start..at.end]);
        }
        lines.freeze()
    }
}

impl Route {
    /// Tries some operations once: each node is sent the operations that it holds the primaries of. `waiter`
    /// is the lane that waits for the result, if one does.
    pub(crate) async fn attempt(
        self: &Rc<Self>,
        (way, waiter): (SendMode, Option<&Waiter<'_>>),
        work: &Work<'_>,
        operations: &[usize],
        outbound: &Outbound,
        snapshot: &Snapshot,
    ) -> Attempted {
        let sending = Sending {
            way,
            waiter,
            work,
            operations,
            outbound,
            snapshot,
        };
        let attempted = self.send_all(sending).await;
        if attempted.not_done.is_empty() {
            self.note_taken(work, operations, snapshot);
        }
        attempted
    }

    async fn send_all(self: &Rc<Self>, sending: Sending<'_, '_>) -> Attempted {
        let Sending {
            work,
            operations,
            outbound,
            snapshot,
            ..
        } = sending;
        let (route, pool) = (self, self.worker.pool());
        let wording = &work.wording;
        let body = work.lines(operations, pool);
        let planned = work
            .planned
            .take()
            .filter(|(of, _)| std::ptr::eq(&**of, snapshot) && operations.len() == work.operations.len());
        let verdict = match planned {
            Some((_, plan)) => Verdict::Plan(plan),
            None => {
                let ask = ask_of(work.head, route.group.settings.level);
                let (mut ids, table) = (route.ids.borrow_mut(), &snapshot.table);
                with_scratch(&route.scratch, |scratch| {
                    scratch.count_shards(route.counters.heat.is_wanted());
                    bulk::plan(&body, &ask, table, &mut ids, scratch)
                })
            }
        };
        match verdict {
            Verdict::Plan(plan) => {
                route.count_shards(&plan, snapshot);
                let load = Arc::new(PlannedBody { body, plan });
                let sent = (0..load.plan.parts.len()).map(|part| {
                    let parcel = Parcel::part(&load, part, wording).traced(&work.trace);
                    self.send_timed(sending, (&load, part), parcel)
                });
                let sent = join_all(sent).await;
                let held = sent.iter().filter_map(Outcomes::held).collect();
                let mut not_done = Vec::new();
                if !sent.iter().all(Outcomes::are_done) {
                    let mut sent: Vec<_> = sent.into_iter().map(Outcomes::into_iter).collect();
                    not_done = unfinished(operations.iter().enumerate().map(|(doc, at)| {
                        let outcome = sent[load.plan.part_of(doc as u32)].next();
                        let outcome = outcome.expect("a part has an outcome for each of its operations");
                        (*at, outcome)
                    }));
                }
                route.count_rejected(&load.plan, work, &not_done, snapshot);
                if let Ok(load) = Arc::try_unwrap(load) {
                    route.scratch.borrow_mut().recycle(load.plan);
                }
                Attempted { not_done, held }
            }
            Verdict::Pass(pass) => {
                // Every other reason may go away when the topology is read again.
                if pass.why != Why::BatchedIngest {
                    outbound.cluster().hint();
                }
                let parcel = work.whole(body, operations, snapshot);
                let outcomes = self.send(sending, None, parcel).await;
                match outcomes.are_done() {
                    true => Attempted::default(),
                    false => Attempted {
                        held: outcomes.held().into_iter().collect(),
                        not_done: unfinished(operations.iter().copied().zip(outcomes)),
                    },
                }
            }
        }
    }

    /// Counts the documents of a plan that is about to be sent, by shard.
    fn count_shards(&self, plan: &Plan, snapshot: &Snapshot) {
        let cluster = &self.group.settings.cluster;
        self.counters.heat.add(cluster, &snapshot.table, plan.touched());
    }

    /// Counts the operations of a plan that nodes have rejected, by shard, if shards are counted.
    fn count_rejected(
        &self,
        plan: &Plan,
        work: &Work<'_>,
        not_done: &[(usize, Outcome)],
        snapshot: &Snapshot,
    ) {
        if plan.touched().is_empty() {
            return;
        }
        let ask = ask_of(work.head, self.group.settings.level);
        let rejected = not_done.iter().filter(|(_, outcome)| outcome.is_busy());
        let documents: Vec<_> = rejected
            .filter_map(|(at, _)| {
                let at = work.operations[*at];
                bulk::explain(&work.body[at.start..at.end], &ask, &snapshot.table)
                    .next()?
                    .ok()
            })
            .collect();
        let documents = documents.iter().map(|one| (&*one.index, one.shard));
        self.counters
            .heat
            .rejected(&self.group.settings.cluster, documents);
    }

    /// Sends a part, and counts how long its shards took.
    async fn send_timed(
        self: &Rc<Self>,
        sending: Sending<'_, '_>,
        (load, part): (&Arc<PlannedBody>, usize),
        parcel: Parcel,
    ) -> Outcomes {
        let began = (!load.plan.touched().is_empty()).then(Instant::now);
        let outcomes = self.send(sending, Some((&load.plan, part)), parcel).await;
        if let Some(began) = began.filter(|_| outcomes.are_answered()) {
            let (cluster, touched) = (&self.group.settings.cluster, load.plan.touched());
            let heat = &self.counters.heat;
            let part = &load.plan.parts[part];
            heat.answered(cluster, &sending.snapshot.table, touched, part, began.elapsed());
        }
        outcomes
    }

    /// Sends one node its parcel: a part, or operations that any node may take.
    async fn send(
        self: &Rc<Self>,
        sending: Sending<'_, '_>,
        of: Option<(&Plan, usize)>,
        parcel: Parcel,
    ) -> Outcomes {
        let part: Option<&Part> = of.map(|(plan, part)| &plan.parts[part]);
        let (outbound, snapshot) = (sending.outbound, sending.snapshot);
        let home = match part.map(|part| part.destination) {
            Some(Destination::Node(node)) => snapshot.node(node).filter(|node| node.health.is_up()),
            Some(Destination::Any) | None => None,
        };
        let (index, shard) = part.map_or((None, None), |part| (part.index.as_deref(), part.shard));
        let outlet = Outlet::new(home, index, shard, &parcel);
        let node = match home {
            Some(node) => Arc::clone(node),
            None => self
                .outlets
                .gathering(&outlet)
                .unwrap_or_else(|| outbound.pick(snapshot, PickReason::Documents, &[])),
        };
        let _listed = sending
            .waiter
            .map(|waiter| self.group.at_nodes.list(waiter.lane, &node, parcel.docs));
        let sent = Rc::clone(&parcel.sent);
        let (route, to, way) = (Rc::clone(self), Arc::clone(&node), sending.way);
        let part = Box::pin(async move { route.dispatch(way, &to, outlet, parcel).await });
        let operations = || sending.of_part(of).into_owned();
        let of_it = (sending.work, &operations as &dyn Fn() -> Vec<usize>);
        let (by, part) = ((&*node, snapshot), (sent, part as UnderWay));
        let outcomes = self.in_time(sending.waiter, of_it, by, part).await;
        if outcomes.are_under_way() {
            return outcomes;
        }
        // A request that failed without a word may have had other lanes' operations, and failed for these.
        if sending.way == SendMode::Together
            && outcomes.unexplained().is_some()
            && outcomes.refused_at().is_none()
        {
            return outcomes;
        }
        if outcomes.are_done() {
            return outcomes;
        }
        let of = (sending.work, &*sending.of_part(of));
        self.sort_refusal(outcomes, &node, of, (outbound, snapshot)).await
    }

    /// Whether the document that an operation conflicts with is the one that the operation was to write: then
    /// an earlier try has written it, or somebody else has written the same.
    pub(crate) async fn is_ours(&self, work: &Work<'_>, operation: usize) -> Result<bool, UnknownOutcome> {
        let at = work.operations[operation];
        if at.op != Op::Create && !at.versioned {
            return Ok(false);
        }
        let outbound = self.outbound();
        let snapshot = outbound.cluster().snapshot();
        let lines = &work.body[at.start..at.end];
        // This asks which document it is, not where it is: the place may not be proven yet.
        let ask = Ask {
            level: bulk::Level::Lane(1),
            ..ask_of(work.head, Level::Node)
        };
        let explained = bulk::explain(lines, &ask, &snapshot.table).next();
        let Some(Ok(document)) = explained else {
            return Err(UnknownOutcome::Unreadable);
        };
        let id = document.id.ok_or(UnknownOutcome::Unreadable)?;
        if at.op == Op::Create && work.batch.minted.iter().any(|minted| minted.has(id.as_bytes())) {
            return Ok(true);
        }
        let source = lines.splitn(2, |byte| *byte == b'\n').nth(1).unwrap_or_default();
        let place = (&*document.index, &*id, document.routing.as_deref());
        if at.op == Op::Update {
            return self.is_updated(place, source, &outbound, &snapshot).await;
        }
        match source.len() {
            0..=SOURCE_BYTES_MAX => self.is_there(place, at.op, source, &outbound, &snapshot).await,
            _ => match self.source_is(place, source, &outbound, &snapshot).await? {
                Source::Same => Ok(true),
                Source::Other | Source::Error(StatusCode::NOT_FOUND, _) => Ok(false),
                Source::Error(status, body) => Err(not_told(place.0, status, &body)),
            },
        }
    }

    /// Whether a document is there as an update with this line leaves it. An update with a script may leave
    /// anything, so its document does not tell.
    async fn is_updated(
        &self,
        (index, id, routing): (&str, &str, Option<&str>),
        line: &[u8],
        outbound: &Outbound,
        snapshot: &Snapshot,
    ) -> Result<bool, UnknownOutcome> {
        let Some(part) = doc_of(line) else {
            return Ok(false);
        };
        // The rest of the document, which may be much larger than the update, says nothing.
        let mut target = target_of(index, "_doc", id, routing);
        let paths = paths(part).map(|paths| paths.join(","));
        if let Some(paths) = paths.filter(|paths| paths.len() <= PATHS_BYTES_MAX) {
            let and = if routing.is_some() { '&' } else { '?' };
            target.push_str(&format!("{and}_source_includes={paths}"));
        }
        let question = Question {
            method: Method::GET,
            target: &target,
            least: 2 * line.len() + SHORT_BYTES,
            more: UPDATED_BYTES_MAX.saturating_sub(2 * line.len() + SHORT_BYTES),
        };
        let answer = self.ask(question, Outgoing::Empty, outbound, snapshot).await?;
        match (answer.status, &answer.body) {
            (StatusCode::NOT_FOUND, _) => Ok(false),
            (StatusCode::OK, Some(body)) => {
                let there: Stored<'_> =
                    serde_json::from_slice(body).map_err(|_| UnknownOutcome::Unreadable)?;
                Ok(there.source.is_some_and(|source| holds(source, part)))
            }
            (StatusCode::OK, None) => Ok(false),
            (status, body) => Err(not_told(index, status, body.as_deref().unwrap_or_default())),
        }
    }

    /// Whether a document is there with this source, or is not there after a delete.
    async fn is_there(
        &self,
        (index, id, routing): (&str, &str, Option<&str>),
        op: Op,
        source: &[u8],
        outbound: &Outbound,
        snapshot: &Snapshot,
    ) -> Result<bool, UnknownOutcome> {
        let question = Question {
            method: Method::GET,
            target: &target_of(index, "_doc", id, routing),
            least: 2 * source.len() + SHORT_BYTES,
            more: 0,
        };
        let answer = self.ask(question, Outgoing::Empty, outbound, snapshot).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(op == Op::Delete),
            StatusCode::OK => {
                // A longer answer has a longer document.
                let Some(body) = &answer.body else {
                    return Ok(false);
                };
                let there: Stored<'_> =
                    serde_json::from_slice(body).map_err(|_| UnknownOutcome::Unreadable)?;
                let wanted: Option<&RawValue> = serde_json::from_slice(source).ok();
                let both = there.source.zip(wanted);
                Ok(both.is_some_and(|(there, wanted)| same(there, wanted)))
            }
            status => Err(not_told(
                index,
                status,
                answer.body.as_deref().unwrap_or_default(),
            )),
        }
    }
}

/// A document as a cluster shows it.
#[derive(Deserialize)]
struct Stored<'a> {
    #[serde(borrow, rename = "_source")]
    source: Option<&'a RawValue>,
}

/// Returns why a cluster does not tell of a document in an index, from its answer.
fn not_told(index: &str, status: StatusCode, body: &[u8]) -> UnknownOutcome {
    NotReadable::of(index, status, body).map_or(UnknownOutcome::Documents(status), Into::into)
}

/// Returns the outcomes of operations that are not done.
fn unfinished(outcomes: impl Iterator<Item = (usize, Outcome)>) -> Vec<(usize, Outcome)> {
    outcomes
        .filter(|(_, outcome)| !matches!(outcome, Outcome::Done))
        .collect()
}

/// The most bytes of an answer that are read about an updated document.
const UPDATED_BYTES_MAX: usize = 4 << 20;
/// The most bytes of fields' names in a request's head, of which servers take 4 KiB in all.
const PATHS_BYTES_MAX: usize = 2 << 10;
