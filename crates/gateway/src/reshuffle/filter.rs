//! The filter `bulk_reshuffle`: reads a bulk and decides about it ([`decide`](super::decide)). In synchronous
//! mode it then sends each part to the node that holds the part's primaries, and merges the answers into the
//! one that the cluster would have given; in asynchronous mode it has the bulk queued.

use std::borrow::Cow;
use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bulk::{Ask, Directing, IdMint, Merge, NullId, Plan, Reply, RouteTable, Scratch, Verdict};
use cluster::Snapshot;
use config::{BulkReshuffle, Level};
use futures_util::future::join_all;
use http::Response;
use http::request::Parts;
use traces::SpanKind;
use wire::guard::fault;
use wire::{BodyError, CHUNK_BYTES, Chunk, Collected, Incoming, Outgoing, Pool, PooledBytes};

use crate::admission::form::FormQuestion;
use crate::admission::rights::ClusterRights;
use crate::answer::{json_response, with_head};
use crate::bulk_request;
use crate::bulk_request::{BulkHead, RequestKind};
use crate::error::{Fault, Rejection};
use crate::metrics::Counters;
use crate::nodes::{Body, Fallback, Outbound};
use crate::queue::Accept;
use crate::request_id::RequestId;
use crate::reshuffle::decide::{BulkRequest, Decided};
use crate::reshuffle::directed::{Assignments, RoundRobins};
use crate::reshuffle::packed::Coding;
use crate::reshuffle::queued_answer::AnswerShape;
use crate::reshuffle::{chosen_flows, packed};
use crate::scratch::with_scratch;
use crate::split::{Combiner, ItemError, PartAnswer, Sender, Split};
use crate::switches::ClusterSwitches;
use crate::turns::{AT_ONCE_BYTES, Turns};
use crate::why::HeadWhy;

/// Splits bulk requests, with one instance per core.
pub(crate) struct Reshuffle {
    pub(crate) outbound: Rc<Outbound>,
    /// Gathers parts of different requests while that is switched on; `None` in asynchronous mode.
    pub(crate) combiner: Option<Combiner>,
    pub(crate) fallback: Fallback,
    pub(crate) settings: BulkReshuffle,
    /// The round robins that direct documents without id and routing.
    pub(crate) round_robins: Arc<RoundRobins>,
    pub(crate) switches: ClusterSwitches,
    /// In asynchronous mode: the way into the queue for bulks that would otherwise be split.
    pub(crate) queueing: Option<Queueing>,
    /// The largest decoded body in bytes. The cluster's own limit applies too.
    pub(crate) body_bytes_max: u64,
    pub(crate) pool: Pool,
    pub(crate) ids: RefCell<IdMint>,
    pub(crate) scratch: RefCell<Scratch>,
    pub(crate) counters: Arc<Counters>,
}

/// The way into a queue.
pub(crate) struct Queueing {
    pub(crate) accept: Accept,
    /// Who may write to the queue's cluster.
    pub(crate) rights: Arc<ClusterRights>,
}

/// What the filter did with a request.
pub(crate) enum Taken {
    /// The filter answered the request.
    Done(Response<Outgoing>),
    /// The filter left the request to the next filter, whole. In asynchronous mode the request may have to
    /// wait for what is queued.
    Next(Parts, Body, Passing),
}

/// What a queue has to know about a request that goes on to the next filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Passing {
    /// Why the request is not queued, in the words of the counters.
    pub(crate) why: &'static str,
    /// The lanes whose documents the request may touch, or `None` if they are unknown.
    pub(crate) lanes: Option<Vec<u32>>,
}

/// A body that has been read completely.
pub(crate) struct HeldBody {
    /// The decoded body.
    pub(crate) body: PooledBytes,
    /// The body as it came, if that differs from the decoded one. A request passes as it came, since nodes
    /// differ in which compressed bodies they accept.
    pub(crate) original: Option<PooledBytes>,
}

/// A body that cannot be read.
pub(crate) enum Unread {
    /// The body does not match its content encoding. This is the body as it came.
    Corrupt(PooledBytes),
    /// The body did not arrive completely.
    Refused(Fault),
}

// === impl Passing ===

impl Passing {
    /// Returns a request for which it is unknown what it touches.
    pub(crate) fn unknown(why: &'static str) -> Self {
        Self { why, lanes: None }
    }
}

// === impl Reshuffle ===

impl Reshuffle {
    /// Takes a request that may be a bulk.
    pub(crate) async fn take(&self, head: Parts, incoming: Incoming) -> Result<Taken, Rejection> {
        let coding = Coding::accepted(&head.headers).filter(|_| self.packs());
        let step = self.take_unpacked(head, incoming).await;
        let (answer, coding) = match (step, coding) {
            (Ok(Taken::Done(answer)), Some(coding)) => (answer, coding),
            (Err(rejection), Some(coding)) => (rejection.response(), coding),
            (step, _) => return step,
        };
        Ok(Taken::Done(packed::answer(answer, coding, &self.pool).await))
    }

    /// Returns whether answers are compressed for clients that accept it, which is so if the cluster's nodes
    /// do the same.
    fn packs(&self) -> bool {
        let compresses = |snapshot: &Snapshot| snapshot.compresses_answers;
        self.settings.compress_answers && self.outbound.cluster().look(compresses)
    }

    async fn take_unpacked(&self, head: Parts, incoming: Incoming) -> Result<Taken, Rejection> {
        let target = head
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str())
            .to_owned();
        if self.queueing.is_none() {
            return self.take_as(head, &target, incoming).await;
        }
        let (shape, target) = AnswerShape::take_off(&target);
        match self.take_as(head, &target, incoming).await {
            Ok(Taken::Done(answer)) => Ok(Taken::Done(shape.apply(answer).await)),
            other => other,
        }
    }

    /// Takes a request that may be a bulk. `target` is the part of its path and query that counts.
    async fn take_as(&self, head: Parts, target: &str, incoming: Incoming) -> Result<Taken, Rejection> {
        let arrived = Instant::now();
        let queues = self.queueing.is_some();
        let bulk_head = match bulk_request::classify(&head.method, target, &head.headers) {
            RequestKind::Other if queues => return self.queue_single(head, target, incoming).await,
            RequestKind::Other if self.settings.rewrite_to_bulk => {
                return self.take_single(head, target, incoming).await;
            }
            RequestKind::Other => {
                let body = Body::Streamed(incoming);
                return Ok(Taken::Next(head, body, Passing::unknown(NO_BULK)));
            }
            RequestKind::Pass(why) => return Ok(self.pass_by_head(head, Body::Streamed(incoming), why)),
            RequestKind::Bulk(_) if self.settings.level == Level::Cluster && !queues => {
                return Ok(self.pass_by_head(head, Body::Streamed(incoming), HeadWhy::Level));
            }
            RequestKind::Bulk(bulk_head) => bulk_head,
        };
        let snapshot = match queues {
            // A request that passed now would overtake what is queued, and would reach this cluster only.
            true => self.learnt().await.ok_or_else(Fault::nothing_learnt)?,
            false => self.outbound.cluster().snapshot(),
        };
        if !snapshot.learnt() {
            return Ok(self.pass_by_head(head, Body::Streamed(incoming), HeadWhy::NoTopology));
        }
        if bulk_head.typed && !snapshot.table.dialect().takes_types() {
            return Ok(self.pass_by_head(head, Body::Streamed(incoming), HeadWhy::TypedPath));
        }
        let read = RequestId::begin_in(&head.extensions, "read");
        let collected = self.collect(&head, incoming, &snapshot).await;
        drop(read);
        let held = match collected {
            Ok(held) => held,
            Err(Unread::Corrupt(original)) => {
                return Ok(self.pass_by_head(head, Body::Held(original), HeadWhy::ContentEncoding));
            }
            Err(Unread::Refused(fault)) => return Err(fault.into()),
        };
        self.counters.bulk_bytes.add(held.body.len() as u64);
        if let Some(fault) = chosen_flows::elsewhere(&head, &held.body) {
            return Err(fault.into());
        }
        let bulk = BulkRequest {
            target,
            bulk_head: &bulk_head,
            arrived,
        };
        self.take_held(head, held, bulk, &snapshot).await
    }

    /// Takes a bulk whose body has been read. Decides about it again as long as its indices have to be
    /// created.
    async fn take_held(
        &self,
        mut head: Parts,
        mut held: HeldBody,
        bulk: BulkRequest<'_>,
        snapshot: &Snapshot,
    ) -> Result<Taken, Rejection> {
        let mut target = Cow::Borrowed(bulk.target);
        if let Some(Queueing { accept, .. }) = &self.queueing {
            // This precedes every change to the request: the cluster judges the request as it came.
            self.admit_form(accept, &mut head, &target, snapshot).await?;
            if bulk.bulk_head.typed && snapshot.table.dialect().types_are_optional() {
                // The other clusters that receive the bulk may not know types.
                target = Cow::Owned(target.replacen("/_doc/", "/", 1));
            }
        }
        let bulk = BulkRequest {
            target: &target,
            ..bulk
        };
        let mut introduced = Vec::new();
        loop {
            match self.decide(head, held, bulk, &mut introduced).await? {
                Decided::Done(answer) => return Ok(Taken::Done(answer)),
                Decided::Next(head, body, passing) => return Ok(Taken::Next(head, body, passing)),
                Decided::Again(again, still_held) => (head, held) = (again, still_held),
            }
        }
    }

    /// Leaves a bulk to the next filter because of its head.
    fn pass_by_head(&self, head: Parts, body: Body, why: HeadWhy) -> Taken {
        self.counters.pass_by_head(why);
        Taken::Next(head, body, Passing::unknown(why.as_str()))
    }

    /// Returns the topology, after a short wait if it has not been read yet.
    pub(crate) async fn learnt(&self) -> Option<Arc<Snapshot>> {
        let cluster = self.outbound.cluster();
        let learnt = cluster.look(Snapshot::learnt) || cluster.learnt(LEARNT_WITHIN).await;
        learnt.then(|| cluster.snapshot())
    }

    /// Reads a body, within the limits of the cluster and of the gateway.
    pub(crate) async fn collect(
        &self,
        head: &Parts,
        mut incoming: Incoming,
        snapshot: &Snapshot,
    ) -> Result<HeldBody, Unread> {
        if incoming.may_be_large()
            && let Some(Queueing { rights, .. }) = &self.queueing
            && let uuid = snapshot.cluster_uuid.as_deref().unwrap_or_default()
            && let Some(user) = rights.user_of(uuid, &head.headers)
        {
            incoming.sent_by(user);
        }
        let limit = snapshot
            .max_content_length_bytes
            .map_or(self.body_bytes_max, |theirs| theirs.min(self.body_bytes_max));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let answered = |error| Unread::Refused(self.unread(&error));
        let collected = incoming.collect_with_original(limit).await;
        let Collected { original, decoded } = collected.map_err(answered)?;
        match decoded {
            None => Ok(HeldBody {
                body: original.freeze(),
                original: None,
            }),
            Some(Ok(decoded)) => Ok(HeldBody {
                body: decoded.freeze(),
                original: Some(original.freeze()),
            }),
            Some(Err(BodyError::Corrupt(_))) => Err(Unread::Corrupt(original.freeze())),
            Some(Err(error)) => Err(answered(error)),
        }
    }

    /// Returns the answer to a client whose body could not be read.
    pub(crate) fn unread(&self, error: &BodyError) -> Fault {
        let fault = Fault::body(error);
        self.counters.clients_gone.add(u64::from(fault.is_none()));
        fault.unwrap_or_else(Fault::gone)
    }

    /// Returns what to ask of the plan of a request. `assignments` directs documents without id and routing;
    /// with `None` they stay as they are.
    pub(crate) fn ask<'a>(
        &self,
        head: &'a BulkHead<'_>,
        assignments: Option<&'a Assignments<'_>>,
    ) -> Ask<'a> {
        let assignments = assignments.filter(|assignments| assignments.is_any());
        Ask {
            default_index: head.index.as_deref(),
            url_routing: head.routing.as_deref(),
            url_pipeline: head.pipeline.as_deref(),
            require_alias: head.require_alias,
            require_data_stream: head.require_data_stream,
            suppose_new: false,
            without_types: false,
            level: match self.settings.level {
                _ if let Some(Queueing { accept, .. }) = &self.queueing => {
                    bulk::Level::Lane(accept.queue.log.lanes())
                }
                Level::Cluster => bulk::Level::Cluster,
                Level::Node => bulk::Level::Node,
                Level::Index => bulk::Level::Index,
                Level::Shard => bulk::Level::Shard,
            },
            lanes_by_id: self
                .queueing
                .as_ref()
                .is_some_and(|queueing| queueing.accept.queue.log.has_lanes_by_id()),
            null_id: match (&self.queueing, self.settings.fix_null_id) {
                (Some(_), _) => NullId::Always,
                (None, true) => NullId::Mint,
                (None, false) => NullId::Keep,
            },
            direct: assignments.map(|assignments| assignments as &dyn Directing),
        }
    }

    /// Plans a body. Other tasks get turns in between if the body may have many operations.
    pub(crate) async fn plan(&self, body: &[u8], ask: &Ask<'_>, table: &RouteTable) -> Verdict {
        if body.len() <= AT_ONCE_BYTES {
            return self.plan_at_once(body, ask, table);
        }
        fault("request", body);
        let (mut ids, mut scratch, mut turns) = (own_mint(), self.scratch.take(), Turns::begin());
        scratch.count_shards(self.counters.heat.is_wanted());
        let turn = async || turns.pass().await;
        let planned = bulk::plan_in_turns(body, ask, table, &mut ids, &mut scratch, turn);
        let verdict = planned.await;
        self.scratch.replace(scratch);
        verdict
    }

    /// Counts the documents of a plan that is about to be sent, by shard.
    pub(super) fn count_shards(&self, plan: &Plan, snapshot: &Snapshot) {
        let cluster = &self.settings.cluster;
        self.counters.heat.add(cluster, &snapshot.table, plan.touched());
    }

    /// Plans a body of few operations.
    pub(crate) fn plan_at_once(&self, body: &[u8], ask: &Ask<'_>, table: &RouteTable) -> Verdict {
        let mut ids = self.mint(ask);
        fault("request", body);
        with_scratch(&self.scratch, |scratch| {
            scratch.count_shards(self.counters.heat.is_wanted());
            bulk::plan(body, ask, table, &mut ids, scratch)
        })
    }

    /// Returns whether the whole body could be queued if its missing indices existed. No index is created for
    /// a body that the cluster would refuse as a whole.
    pub(super) async fn is_acceptable_but_new(&self, body: &[u8], ask: &Ask<'_>, table: &RouteTable) -> bool {
        let supposed = Ask {
            suppose_new: true,
            direct: None,
            ..*ask
        };
        match self.plan(body, &supposed, table).await {
            Verdict::Plan(plan) => {
                self.scratch.borrow_mut().recycle(plan);
                true
            }
            Verdict::Pass(_) => false,
        }
    }

    /// Returns the maker of ids. Its clock is set if ids may have to be made.
    pub(super) fn mint(&self, ask: &Ask<'_>) -> RefMut<'_, IdMint> {
        let mut ids = self.ids.borrow_mut();
        if ask.null_id != NullId::Keep || ask.direct.is_some() {
            ids.tick(now_ms());
        }
        ids
    }

    pub(super) async fn send(
        &self,
        split: Split<'_>,
        assignments: &Assignments<'_>,
    ) -> Result<Response<Outgoing>, Fault> {
        let began = Instant::now();
        let combiner = self.combiner.as_ref().filter(|combiner| combiner.is_on());
        let family = combiner.map(|combiner| combiner.family(split.message, &split.load.plan));
        let sender = Sender {
            outbound: &self.outbound,
            pool: &self.pool,
            counters: &self.counters,
            combine: combiner.zip(family.as_ref()),
        };
        let parts = 0..split.load.plan.parts.len();
        let mut answers = match parts.len() {
            1 => vec![sender.deliver(0, split).await],
            _ => join_all(parts.map(|part| sender.deliver(part, split))).await,
        };
        let _merge = split.message.request_id.begin("merge", SpanKind::Internal);
        let (mut replies, mut turns) = (Vec::with_capacity(answers.len()), Turns::begin());
        for (answer, part) in answers.iter().zip(&split.load.plan.parts) {
            replies.push(self.read(answer, part.docs, split));
            turns.pass().await;
        }
        self.count(&split.load.plan, &answers, &replies);
        for (part, answer) in split.load.plan.parts.iter().zip(&answers) {
            if matches!(answer, PartAnswer::Refused(..) | PartAnswer::Unsent(_)) {
                assignments.give_back_part(part);
            }
        }
        match (answers.as_slice(), replies.as_slice()) {
            ([PartAnswer::Items(items)], [Ok(reply)]) if items.is_final() => {
                self.count_errors(reply.errors());
                drop(replies);
                let Some(PartAnswer::Items(items)) = answers.pop() else {
                    unreachable!("it has just been looked at")
                };
                let (head, body) = items.into_answer(began.elapsed(), &self.pool);
                Ok(with_head(head, &[], body))
            }
            (answers, _) => match whole_answer(answers) {
                Some(whole) => whole,
                None => self.merge(split, answers, replies, began.elapsed()).await,
            },
        }
    }

    /// Returns a part's items as a node gave them, or the error that replaces them.
    pub(crate) fn read<'a>(
        &self,
        answer: &'a PartAnswer,
        docs: u32,
        split: Split<'_>,
    ) -> Result<Reply<'a>, ItemError> {
        match answer {
            PartAnswer::Items(items) => items.read(docs, split).map_err(|error| {
                self.counters.replies_malformed.add(1);
                let request_id = split.message.request_id;
                wire::rationed!(tracing::warn, %request_id, %error, "a node's bulk answer cannot be used");
                ItemError::unknown_fate(&error.to_string())
            }),
            PartAnswer::Refused(head, body) => Err(ItemError::refused(head.status, body)),
            PartAnswer::Unsent(error) => Err(ItemError::unsent(error)),
            PartAnswer::Unknown(why) => Err(ItemError::unknown_fate(why)),
        }
    }

    /// Now and then gives the prediction for one of the first documents to the check.
    pub(crate) fn sample(&self, body: &[u8], ask: &Ask<'_>, table: &RouteTable) {
        let cluster = self.outbound.cluster();
        if !cluster.wants_sample() {
            return;
        }
        let explained = bulk::explain(body, ask, table).nth(fastrand::usize(..SAMPLED_FROM));
        if let Some(Ok(doc)) = explained
            && let (Some(shard), Some(key)) = (doc.shard, doc.routing.or(doc.id))
        {
            cluster.sample(&doc.index, &key, shard);
        }
    }

    async fn merge(
        &self,
        split: Split<'_>,
        answers: &[PartAnswer],
        replies: Vec<Result<Reply<'_>, ItemError>>,
        took: Duration,
    ) -> Result<Response<Outgoing>, Fault> {
        let usable = answers.iter().zip(&replies).filter(|(_, reply)| reply.is_ok());
        let heads: Vec<_> = usable
            .filter_map(|(answer, _)| Some(&answer.items()?.head))
            .collect();
        let replies = replies.into_iter().enumerate();
        let replies = replies.map(|(part, reply)| reply.unwrap_or_else(|error| error.items(part, split)));
        let (plan, table) = (&split.load.plan, &split.snapshot.table);
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let mut merge = match Merge::new(plan, replies.collect(), took_ms, table.dialect()) {
            Ok(merge) => merge,
            Err(error) => {
                // Every reply was checked against its part before, so this error shows a contradiction in the
                // gateway itself.
                let request_id = split.message.request_id;
                wire::rationed!(tracing::error, %request_id, %error, "replies do not merge");
                return Err(Fault::unmerged(&error.to_string()));
            }
        };
        self.count_errors(merge.errors());
        let (mut chunks, mut turns): (Vec<Chunk>, _) = (Vec::new(), Turns::begin());
        let mut left = usize::try_from(merge.bytes()).unwrap_or(usize::MAX);
        while left > 0 {
            let mut chunk = self.pool.take(left.min(CHUNK_BYTES));
            let written = merge.next(chunk.as_mut_vec(), CHUNK_BYTES);
            if written == 0 {
                break;
            }
            left = left.saturating_sub(written);
            chunks.push(chunk.into());
            turns.pass().await;
        }
        let body = chunks.into_iter().collect();
        Ok(match heads.split_first() {
            Some((first, others)) => with_head((*first).clone(), others, body),
            None => json_response(body),
        })
    }

    fn count(&self, plan: &Plan, answers: &[PartAnswer], replies: &[Result<Reply<'_>, ItemError>]) {
        self.counters.bulk_requests.add(1);
        for ((part, answer), reply) in plan.parts.iter().zip(answers).zip(replies) {
            self.count_docs(part.docs, answer, reply);
        }
    }

    pub(crate) fn count_docs(&self, docs: u32, answer: &PartAnswer, reply: &Result<Reply<'_>, ItemError>) {
        let (counters, docs) = (&self.counters, u64::from(docs));
        counters.docs.add(docs);
        match reply {
            Ok(_) if answer.items().is_some_and(|items| items.at_home) => counters.docs_direct.add(docs),
            Ok(_) => counters.docs_any.add(docs),
            Err(error) if error.refused => counters.docs_refused.add(docs),
            Err(_) => counters.docs_unanswered.add(docs),
        }
    }

    /// Counts failed items. They may hint at a change of the topology.
    fn count_errors(&self, errors: bool) {
        if errors {
            self.counters.bulk_with_errors.add(1);
            self.outbound.cluster().hint();
        }
    }

    /// Admits a request if the cluster accepts its form.
    pub(super) async fn admit_form(
        &self,
        accept: &Accept,
        head: &mut Parts,
        target: &str,
        snapshot: &Snapshot,
    ) -> Result<(), Rejection> {
        let asking = FormQuestion {
            outbound: &self.outbound,
            fallback: &self.fallback,
        };
        asking.admit(&accept.queue.forms, head, target, snapshot).await
    }
}

/// Makes ids for one body alone. While a body is planned in turns, other bodies are planned too, and the ids
/// of one body must be all that its mint makes.
pub(super) fn own_mint() -> IdMint {
    let mut ids = IdMint::new(fastrand::u64(..));
    ids.tick(now_ms());
    ids
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as u64)
}

/// Returns the answer to the request as a whole, in the cluster's words, if no part was taken.
fn whole_answer(answers: &[PartAnswer]) -> Option<Result<Response<Outgoing>, Fault>> {
    match answers.first()? {
        PartAnswer::Refused(head, body) => {
            let alike = |answer: &PartAnswer| matches!(answer, PartAnswer::Refused(other, _) if other.status == head.status);
            let whole = || Ok(with_head(head.clone(), &[], Outgoing::from(body.clone())));
            answers.iter().all(alike).then(whole)
        }
        PartAnswer::Unsent(error) => {
            let alike = |answer: &PartAnswer| matches!(answer, PartAnswer::Unsent(_));
            answers.iter().all(alike).then(|| Err(Fault::upstream(error)))
        }
        PartAnswer::Items(_) | PartAnswer::Unknown(_) => None,
    }
}

/// The reason for not queueing requests that are not bulks.
pub(crate) const NO_BULK: &str = "no_bulk";
/// How long a bulk for a queue waits for a topology that was never read, or for an index to be ready.
pub(super) const LEARNT_WITHIN: Duration = Duration::from_secs(2);
/// Samples are taken from this many first documents of a bulk, since reading on takes time.
const SAMPLED_FROM: usize = 16;
