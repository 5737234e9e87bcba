//! The filter `bulk_reshuffle`, synchronous mode: a bulk is split, each part sent to the node that holds its
//! primaries, and the answers merged into the one that the cluster would have given.

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
use wire::guard::fault;
use wire::{BodyError, CHUNK_BYTES, Chunk, Collected, Incoming, Outgoing, Pool, Shared};

use crate::admission::form::Asking;
use crate::admission::rights::{Caller, Denied};
use crate::answer::{json_response, with_head};
use crate::bulk_request;
use crate::bulk_request::{BulkHead, Kind};
use crate::error::Fault;
use crate::metrics::Counters;
use crate::nodes::lines::Load;
use crate::nodes::{Body, Fallback, Message, Outbound, strip_for_parts};
use crate::queue::{Accept, Asked, Queued, Turn};
use crate::request_id::RequestId;
use crate::reshuffle::directed::{Book, Course};
use crate::reshuffle::introduce::Introduced;
use crate::reshuffle::packed::Coding;
use crate::reshuffle::passing::Passing;
use crate::reshuffle::queued_answer::AnswerShape;
use crate::reshuffle::{belongs, introduce, packed};
use crate::scratch::with_scratch;
use crate::split::{Answer, Combiner, ItemError, Sender, Split};
use crate::switches::Panel;
use crate::why::HeadWhy;

/// Splits bulk requests, one instance a core.
pub(crate) struct Reshuffle {
    pub(crate) outbound: Rc<Outbound>,
    /// Gathers parts of different requests while that is switched on; none in asynchronous mode.
    pub(crate) combiner: Option<Combiner>,
    pub(crate) fallback: Fallback,
    pub(crate) settings: BulkReshuffle,
    /// Whose turn it is to be given documents without id and routing.
    pub(crate) book: Arc<Book>,
    pub(crate) panel: Panel,
    /// In asynchronous mode: where bulks are put that would be split otherwise.
    pub(crate) accept: Option<Accept>,
    /// Bytes of a decoded body at most; the cluster's own limit holds as well.
    pub(crate) body_bytes_max: u64,
    pub(crate) pool: Pool,
    pub(crate) ids: RefCell<IdMint>,
    pub(crate) scratch: RefCell<Scratch>,
    pub(crate) counters: Arc<Counters>,
}

/// What the filter did with a request.
pub(crate) enum Step {
    /// Answered it.
    Done(Response<Outgoing>),
    /// Left it to the next filter, whole. In asynchronous mode it may have to wait for what is queued.
    Next(Parts, Body, Passing),
}

/// A body that is all here.
pub(crate) struct Held {
    /// Decoded.
    pub(crate) body: Shared,
    /// As it came, if that is something else: what passes is what came, since nodes differ in what they accept of packed
    /// bodies.
    pub(crate) original: Option<Shared>,
}

/// A body that cannot be read.
pub(crate) enum Unread {
    /// It is not packed as it says; as it came.
    Corrupt(Shared),
    /// It is not all here, and this is what the client is told.
    Answered(Response<Outgoing>),
}

impl Reshuffle {
    /// Takes a request that may be a bulk.
    pub(crate) async fn take(&self, head: Parts, incoming: Incoming) -> Step {
        let coding = Coding::accepted(&head.headers).filter(|_| self.packs());
        match (self.take_unpacked(head, incoming).await, coding) {
            (Step::Done(answer), Some(coding)) => {
                Step::Done(packed::answer(answer, coding, &self.pool).await)
            }
            (step, _) => step,
        }
    }

    /// Whether answers are packed for those who accept it: as far as the cluster's nodes do so.
    fn packs(&self) -> bool {
        self.settings.compress_answers && self.outbound.cluster().snapshot().compresses_answers
    }

    async fn take_unpacked(&self, head: Parts, incoming: Incoming) -> Step {
        let target = head
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str())
            .to_owned();
        if self.accept.is_none() {
            return self.take_as(head, &target, incoming).await;
        }
        let (shape, target) = AnswerShape::take_off(&target);
        match self.take_as(head, &target, incoming).await {
            Step::Done(answer) => Step::Done(shape.apply(answer)),
            next => next,
        }
    }

    /// Takes a request that may be a bulk; `target` is what counts of its path and query.
    async fn take_as(&self, mut head: Parts, target: &str, incoming: Incoming) -> Step {
        let arrived = Instant::now();
        let bulk_head = match bulk_request::classify(&head.method, target, &head.headers) {
            Kind::Other if self.accept.is_some() => return self.queue_single(head, target, incoming).await,
            Kind::Other if self.settings.rewrite_to_bulk => {
                return self.take_single(head, target, incoming).await;
            }
            Kind::Other => {
                return Step::Next(head, Body::Streamed(incoming), Passing::unknown(NO_BULK));
            }
            Kind::Pass(why) => {
                self.counters.pass_by_head(why);
                let passing = Passing::unknown(why.as_str());
                return Step::Next(head, Body::Streamed(incoming), passing);
            }
            Kind::Bulk(_) if self.settings.level == Level::Cluster && self.accept.is_none() => {
                self.counters.pass_by_head(HeadWhy::Level);
                let passing = Passing::unknown(HeadWhy::Level.as_str());
                return Step::Next(head, Body::Streamed(incoming), passing);
            }
            Kind::Bulk(bulk_head) => bulk_head,
        };
        // What would pass now would come before what is queued, and to this cluster only.
        if self.accept.is_some() && self.learnt().await.is_none() {
            return Step::Done(Fault::nothing_learnt().response());
        }
        let snapshot = self.outbound.cluster().snapshot();
        if !snapshot.learnt() {
            self.counters.pass_by_head(HeadWhy::NoTopology);
            let passing = Passing::unknown(HeadWhy::NoTopology.as_str());
            return Step::Next(head, Body::Streamed(incoming), passing);
        }
        let dialect = snapshot.table.dialect();
        if bulk_head.typed && !dialect.takes_types() {
            self.counters.pass_by_head(HeadWhy::TypedPath);
            let passing = Passing::unknown(HeadWhy::TypedPath.as_str());
            return Step::Next(head, Body::Streamed(incoming), passing);
        }
        let mut held = match self.collect(incoming, &snapshot).await {
            Ok(held) => held,
            Err(Unread::Corrupt(original)) => {
                self.counters.pass_by_head(HeadWhy::ContentEncoding);
                let passing = Passing::unknown(HeadWhy::ContentEncoding.as_str());
                return Step::Next(head, Body::Held(original), passing);
            }
            Err(Unread::Answered(answer)) => return Step::Done(answer),
        };
        self.counters.bulk_bytes.add(held.body.len() as u64);
        if let Some(fault) = belongs::elsewhere(&head, &held.body) {
            return Step::Done(fault.response());
        }
        // Before anything else changes what it says: the cluster judges what came.
        if let Some(accept) = &self.accept
            && let Err(refusal) = self.admit_form(accept, &mut head, target, &snapshot).await
        {
            return Step::Done(refusal);
        }
        let mut target = Cow::Borrowed(target);
        if self.accept.is_some() && dialect.types_are_optional() && bulk_head.typed {
            // Other clusters that get it may know no types.
            target = Cow::Owned(target.replacen("/_doc/", "/", 1));
        }
        let mut introduced = Vec::new();
        loop {
            let decided = self.decide(head, &target, &bulk_head, held, arrived, &mut introduced);
            match decided.await {
                Ok(step) => return step,
                Err(again) => (head, held) = *again,
            }
        }
    }

    /// The topology once it was read, if that is soon.
    pub(crate) async fn learnt(&self) -> Option<Arc<Snapshot>> {
        let cluster = self.outbound.cluster();
        let learnt = cluster.snapshot().learnt() || cluster.learnt(LEARNT_WITHIN).await;
        learnt.then(|| cluster.snapshot())
    }

    /// Takes a bulk whose body is here; gives it back, to be taken again, when an index has been made for it or is being made.
    pub(crate) async fn decide(
        &self,
        mut head: Parts,
        target: &str,
        bulk_head: &BulkHead<'_>,
        Held { body, original }: Held,
        arrived: Instant,
        introduced: &mut Vec<String>,
    ) -> Result<Step, Box<(Parts, Held)>> {
        let snapshot = self.outbound.cluster().snapshot();
        let switched = self.panel.now();
        let course = self
            .book
            .course(self.settings.direct_routing, Arc::clone(&switched), &snapshot);
        drop(switched);
        let turn = match self.turn(&head, target, &body, &snapshot).await {
            Ok(turn) => turn,
            Err(refusal) => {
                self.counters.bulk_key_refused.add(1);
                return Ok(Step::Done(refusal));
            }
        };
        // A request that has a key gets the same ids however often it comes, so they follow from the key.
        let ask = Ask {
            // Other clusters that get what is queued may know no types.
            without_types: self.accept.is_some() && snapshot.table.dialect().types_are_optional(),
            ..self.ask(bulk_head, Some(&course).filter(|_| turn.is_none()))
        };
        let (verdict, items) = match self.accept {
            // What is queued is answered before anybody executes it.
            Some(_) => {
                let (mut items, table) = (self.pool.take(bulk::acknowledged_bytes(&body)), &snapshot.table);
                let out = items.as_mut_vec();
                fault("request", &body);
                let verdict = with_scratch(&self.scratch, |scratch| match &turn {
                    None => bulk::plan_acknowledged(&body, &ask, table, &mut self.mint(&ask), scratch, out),
                    Some(turn) => bulk::plan_acknowledged(&body, &ask, table, &mut turn.mint(), scratch, out),
                });
                (verdict, Some(items))
            }
            None => (self.plan(&body, &ask, &snapshot.table), None),
        };
        match &verdict {
            Verdict::Plan(_) => self.counters.docs_directed.add(course.docs()),
            Verdict::Pass(_) => course.give_back_all(),
        }
        match verdict {
            // It must not be executed again, as what passes would be.
            Verdict::Pass(pass) if let Some(Turn::Again(accepted)) = &turn => {
                self.counters.bulk_key_refused.add(1);
                let refusal = Fault::not_repeatable(accepted.position, &pass.why.to_string());
                Ok(Step::Done(refusal.response()))
            }
            Verdict::Pass(pass) => {
                if pass.why == bulk::Why::UnknownIndex
                    && self.accept.is_some()
                    && let Some(index) = introduce::named(&body, pass.line, bulk_head.index.as_deref())
                    && self.is_acceptable_but_new(&body, &ask, &snapshot.table)
                {
                    // It was there, and is gone again; or there are more than one request should have to wait for.
                    if introduced.contains(&index) || introduced.len() >= INTRODUCED_MAX {
                        return Ok(Step::Done(Fault::not_introduced(&index).response()));
                    }
                    match Box::pin(self.introduce(&index, &head, &snapshot)).await {
                        Introduced::Known => {
                            introduced.push(index);
                            return Err(Box::new((head, Held { body, original })));
                        }
                        Introduced::NotYet => {
                            return Ok(Step::Done(Fault::not_introduced(&index).response()));
                        }
                        Introduced::Refused => {}
                    }
                }
                // An index that is being made is known by its name only, for a moment.
                if pass.why == bulk::Why::IndexUnavailable && self.accept.is_some() {
                    self.outbound.cluster().hint();
                    if arrived.elapsed() >= LEARNT_WITHIN {
                        return Ok(Step::Done(Fault::index_not_ready().response()));
                    }
                    tokio::time::sleep(LOOK_AGAIN).await;
                    return Err(Box::new((head, Held { body, original })));
                }
                self.counters.pass(pass.why);
                let request_id = RequestId::of(&head.extensions);
                tracing::debug!(%request_id, why = %pass.why, line = pass.line, "bulk passes whole");
                if matches!(pass.why, bulk::Why::UnknownIndex | bulk::Why::IndexClosed) {
                    self.outbound.cluster().hint();
                }
                let passing = Passing::unknown(pass.why.as_str());
                Ok(Step::Next(head, Body::Held(original.unwrap_or(body)), passing))
            }
            Verdict::Plan(plan) if let (Some(accept), Some(items)) = (&self.accept, items) => {
                // A repeat writes nothing.
                if !matches!(turn, Some(Turn::Again(_)))
                    && let Err(denied) = self.permit(accept, &head, &snapshot, &plan).await
                {
                    course.give_back_all();
                    let lanes = plan.parts.iter().map(|part| part.lane).collect();
                    self.scratch.borrow_mut().recycle(plan);
                    return Ok(match denied {
                        Denied::Answer(answer) => Step::Done(*answer),
                        Denied::Pass => {
                            self.counters.pass_by_head(HeadWhy::Rights);
                            let passing = Passing {
                                why: HeadWhy::Rights.as_str(),
                                lanes: Some(lanes),
                            };
                            Step::Next(head, Body::Held(original.unwrap_or(body)), passing)
                        }
                    });
                }
                self.fallback.fill(&mut head.headers);
                self.sample(&body, &ask, &snapshot.table);
                drop(original);
                let queued = Queued {
                    head: &head,
                    target,
                    body,
                    pool: &self.pool,
                    plan: &plan,
                    ask: &ask,
                    items,
                    snapshot: &snapshot,
                    arrived,
                };
                let repeats = matches!(turn, Some(Turn::Again(_)));
                let answer = accept.take(&self.outbound, queued, turn).await;
                if repeats {
                    self.counters.bulk_repeated.add(1);
                } else if answer.status().is_success() {
                    self.counters.bulk_queued.add(1);
                    self.counters.docs_queued.add(u64::from(plan.docs()));
                } else {
                    course.give_back_all();
                }
                self.scratch.borrow_mut().recycle(plan);
                self.counters.bulk_latency.observe(arrived.elapsed());
                Ok(Step::Done(answer))
            }
            Verdict::Plan(plan) => {
                let load = Arc::new(Load { body, plan });
                strip_for_parts(&mut head.headers);
                let lent = self.fallback.fill(&mut head.headers);
                let request_id = RequestId::of(&head.extensions);
                let split = Split {
                    load: &load,
                    ask: &ask,
                    snapshot: &snapshot,
                    message: Message {
                        request_id: &request_id,
                        method: &head.method,
                        target,
                        headers: &head.headers,
                    },
                    lent,
                    deadline: self.outbound.deadline(),
                };
                let answer = self.send(split, &course).await;
                self.sample(&load.body, &ask, &snapshot.table);
                if let Ok(load) = Arc::try_unwrap(load) {
                    self.scratch.borrow_mut().recycle(load.plan);
                }
                self.counters.bulk_latency.observe(arrived.elapsed());
                Ok(Step::Done(answer))
            }
        }
    }

    /// Whether the client of a request may do all that is planned for it.
    async fn permit(
        &self,
        accept: &Accept,
        head: &Parts,
        snapshot: &Snapshot,
        plan: &Plan,
    ) -> Result<(), Denied> {
        let mut headers = Cow::Borrowed(&head.headers);
        if self.fallback.would_fill(&headers) {
            self.fallback.fill(headers.to_mut());
        }
        let caller = Caller {
            outbound: &self.outbound,
            snapshot,
            headers: &headers,
            request_id: &RequestId::of(&head.extensions),
        };
        accept.admit(caller, plan).await
    }

    /// What a request has to do that has a key; none: it has none. An error is the answer.
    async fn turn(
        &self,
        head: &Parts,
        target: &str,
        body: &[u8],
        snapshot: &Snapshot,
    ) -> Result<Option<Turn>, Response<Outgoing>> {
        let Some(accept) = &self.accept else {
            return Ok(None);
        };
        let Some(keys) = accept.keys_for(&head.headers) else {
            return Ok(None);
        };
        let mut headers = head.headers.clone();
        self.fallback.fill(&mut headers);
        let asked = Asked {
            head,
            headers: &headers,
            target,
            body,
            snapshot,
        };
        accept.claim(&self.outbound, keys, asked).await.map(Some)
    }

    /// Reads a body, within the cluster's limit and ours.
    pub(crate) async fn collect(&self, incoming: Incoming, snapshot: &Snapshot) -> Result<Held, Unread> {
        let limit = snapshot
            .max_content_length_bytes
            .map_or(self.body_bytes_max, |theirs| theirs.min(self.body_bytes_max));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let answered = |error| Unread::Answered(self.unread(&error));
        let collected = incoming.collect_with_original(limit).await;
        let Collected { original, decoded } = collected.map_err(answered)?;
        match decoded {
            None => Ok(Held {
                body: original.freeze(),
                original: None,
            }),
            Some(Ok(decoded)) => Ok(Held {
                body: decoded.freeze(),
                original: Some(original.freeze()),
            }),
            Some(Err(BodyError::Corrupt(_))) => Err(Unread::Corrupt(original.freeze())),
            Some(Err(error)) => Err(answered(error)),
        }
    }

    /// What a client gets whose body could not be read.
    pub(crate) fn unread(&self, error: &BodyError) -> Response<Outgoing> {
        match Fault::body(error) {
            Some(fault) => fault.response(),
            None => {
                self.counters.clients_gone.add(1);
                Fault::gone().response()
            }
        }
    }

    /// `course` is for documents without id and routing; none: they stay as they are.
    pub(crate) fn ask<'a>(&self, head: &'a BulkHead<'_>, course: Option<&'a Course<'_>>) -> Ask<'a> {
        let course = course.filter(|course| course.is_any());
        Ask {
            default_index: head.index.as_deref(),
            url_routing: head.routing.as_deref(),
            url_pipeline: head.pipeline.as_deref(),
            require_alias: head.require_alias,
            require_data_stream: head.require_data_stream,
            suppose_new: false,
            without_types: false,
            level: match self.settings.level {
                _ if let Some(accept) = &self.accept => bulk::Level::Lane(accept.queue.log.lanes()),
                Level::Cluster => bulk::Level::Cluster,
                Level::Node => bulk::Level::Node,
                Level::Index => bulk::Level::Index,
                Level::Shard => bulk::Level::Shard,
            },
            null_id: match (&self.accept, self.settings.fix_null_id) {
                (Some(_), _) => NullId::Always,
                (None, true) => NullId::Mint,
                (None, false) => NullId::Keep,
            },
            direct: course.map(|course| course as &dyn Directing),
        }
    }

    pub(crate) fn plan(&self, body: &[u8], ask: &Ask<'_>, table: &RouteTable) -> Verdict {
        let mut ids = self.mint(ask);
        fault("request", body);
        with_scratch(&self.scratch, |scratch| {
            bulk::plan(body, ask, table, &mut ids, scratch)
        })
    }

    /// Whether all of a body could be queued if the indices were there that are not yet. What the cluster would refuse as a
    /// whole makes no index.
    fn is_acceptable_but_new(&self, body: &[u8], ask: &Ask<'_>, table: &RouteTable) -> bool {
        let supposed = Ask {
            suppose_new: true,
            direct: None,
            ..*ask
        };
        match self.plan(body, &supposed, table) {
            Verdict::Plan(plan) => {
                self.scratch.borrow_mut().recycle(plan);
                true
            }
            Verdict::Pass(_) => false,
        }
    }

    /// What makes ids, told the time if it may have to.
    fn mint(&self, ask: &Ask<'_>) -> RefMut<'_, IdMint> {
        let mut ids = self.ids.borrow_mut();
        if ask.null_id != NullId::Keep || ask.direct.is_some() {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            ids.tick(now.map_or(0, |since| since.as_millis() as u64));
        }
        ids
    }

    async fn send(&self, split: Split<'_>, course: &Course<'_>) -> Response<Outgoing> {
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
        let replies: Vec<_> = answers
            .iter()
            .zip(&split.load.plan.parts)
            .map(|(answer, part)| self.read(answer, part.docs, split))
            .collect();
        self.count(&split.load.plan, &answers, &replies);
        for (part, answer) in split.load.plan.parts.iter().zip(&answers) {
            if matches!(answer, Answer::Refused(..) | Answer::Unsent(_)) {
                course.give_back_part(part);
            }
        }
        match (answers.as_slice(), replies.as_slice()) {
            ([Answer::Items(items)], [Ok(reply)]) if items.is_final() => {
                self.count_errors(reply.errors());
                drop(replies);
                let Some(Answer::Items(items)) = answers.pop() else {
                    unreachable!("it has just been looked at")
                };
                let (head, body) = items.into_answer(began.elapsed(), &self.pool);
                with_head(head, &[], body)
            }
            (answers, _) => match whole_answer(answers) {
                Some(whole) => whole,
                None => self.merge(split, answers, replies, began.elapsed()),
            },
        }
    }

    /// A part's items as a node gave them, or what they say instead.
    pub(crate) fn read<'a>(
        &self,
        answer: &'a Answer,
        docs: u32,
        split: Split<'_>,
    ) -> Result<Reply<'a>, ItemError> {
        match answer {
            Answer::Items(items) => items.read(docs, split).map_err(|error| {
                self.counters.replies_malformed.add(1);
                let request_id = split.message.request_id;
                wire::rationed!(tracing::warn, %request_id, %error, "a node's bulk answer cannot be used");
                ItemError::unknown_fate(&error.to_string())
            }),
            Answer::Refused(head, body) => Err(ItemError::refused(head.status, body)),
            Answer::Unsent(error) => Err(ItemError::unsent(error)),
            Answer::Unknown(why) => Err(ItemError::unknown_fate(why)),
        }
    }

    /// Gives one of the first documents' predictions to the check, now and then.
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

    fn merge(
        &self,
        split: Split<'_>,
        answers: &[Answer],
        replies: Vec<Result<Reply<'_>, ItemError>>,
        took: Duration,
    ) -> Response<Outgoing> {
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
                // Every reply was checked against its part before, so this says that we contradict ourselves.
                let request_id = split.message.request_id;
                wire::rationed!(tracing::error, %request_id, %error, "replies do not merge");
                return Fault::unmerged(&error.to_string()).response();
            }
        };
        self.count_errors(merge.errors());
        let mut chunks: Vec<Chunk> = Vec::new();
        let mut left = usize::try_from(merge.bytes()).unwrap_or(usize::MAX);
        while left > 0 {
            let mut chunk = self.pool.take(left.min(CHUNK_BYTES));
            let written = merge.next(chunk.as_mut_vec(), CHUNK_BYTES);
            if written == 0 {
                break;
            }
            left = left.saturating_sub(written);
            chunks.push(chunk.into());
        }
        let body = chunks.into_iter().collect();
        match heads.split_first() {
            Some((first, others)) => with_head((*first).clone(), others, body),
            None => json_response(body),
        }
    }

    fn count(&self, plan: &Plan, answers: &[Answer], replies: &[Result<Reply<'_>, ItemError>]) {
        self.counters.bulk_requests.add(1);
        for ((part, answer), reply) in plan.parts.iter().zip(answers).zip(replies) {
            self.count_docs(part.docs, answer, reply);
        }
    }

    pub(crate) fn count_docs(&self, docs: u32, answer: &Answer, reply: &Result<Reply<'_>, ItemError>) {
        let (counters, docs) = (&self.counters, u64::from(docs));
        counters.docs.add(docs);
        match reply {
            Ok(_) if answer.items().is_some_and(|items| items.at_home) => counters.docs_direct.add(docs),
            Ok(_) => counters.docs_any.add(docs),
            Err(error) if error.refused => counters.docs_refused.add(docs),
            Err(_) => counters.docs_unanswered.add(docs),
        }
    }

    /// A failed item may hint at a change of the topology.
    fn count_errors(&self, errors: bool) {
        if errors {
            self.counters.bulk_with_errors.add(1);
            self.outbound.cluster().hint();
        }
    }

    /// Lets a request go on whose form the cluster takes. An error is the answer.
    pub(super) async fn admit_form(
        &self,
        accept: &Accept,
        head: &mut Parts,
        target: &str,
        snapshot: &Snapshot,
    ) -> Result<(), Response<Outgoing>> {
        let asking = Asking {
            outbound: &self.outbound,
            fallback: &self.fallback,
        };
        asking.admit(&accept.queue.forms, head, target, snapshot).await
    }
}

/// When no part was taken: the answer for the request as a whole, as the cluster words it.
fn whole_answer(answers: &[Answer]) -> Option<Response<Outgoing>> {
    match answers.first()? {
        Answer::Refused(head, body) => {
            let alike =
                |answer: &Answer| matches!(answer, Answer::Refused(other, _) if other.status == head.status);
            let whole = || with_head(head.clone(), &[], Outgoing::from(body.clone()));
            answers.iter().all(alike).then(whole)
        }
        Answer::Unsent(error) => {
            let alike = |answer: &Answer| matches!(answer, Answer::Unsent(_));
            answers
                .iter()
                .all(alike)
                .then(|| Fault::upstream(error).response())
        }
        Answer::Items(_) | Answer::Unknown(_) => None,
    }
}

/// Why something is not queued that is no bulk.
pub(crate) const NO_BULK: &str = "no_bulk";
/// How long a bulk for a queue waits for a topology that was never read, and for an index to be ready.
const LEARNT_WITHIN: Duration = Duration::from_secs(2);
/// Between two looks at an index.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Indices that one bulk may make at most before it is queued.
const INTRODUCED_MAX: usize = 16;
/// Samples are taken from a bulk's first documents: reading on costs time.
const SAMPLED_FROM: usize = 16;
