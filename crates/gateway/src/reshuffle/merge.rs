//! Sends the parts of a planned bulk to their nodes, and merges the answers into the one that the cluster
//! would have given.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bulk::{Merge, Plan, Reply};
use futures_util::future::join_all;
use http::Response;
use http::request::Parts;
use traces::SpanKind;
use wire::{CHUNK_BYTES, Chunk, Outgoing, PooledBytes};

use crate::admission::form::head_of_our_own;
use crate::answer::with_head;
use crate::error::Fault;
use crate::nodes::lines::PlannedBody;
use crate::nodes::{Message, Purpose, strip_for_parts};
use crate::request_id::RequestId;
use crate::reshuffle::directed::Assignments;
use crate::reshuffle::plan::{PlanBasis, Reshuffle};
use crate::sample::sample;
use crate::split::{ItemError, PartAnswer, Sender, Split};
use crate::turns::Turns;

/// Marks an answer that has items of nodes, so that the cluster has let its client in.
#[derive(Clone, Copy)]
struct OfNodes;

impl Reshuffle {
    /// Sends each part of a planned bulk to its node, and merges the answers.
    pub(crate) async fn split(
        &self,
        mut head: Parts,
        body: PooledBytes,
        plan: Plan,
        basis: &PlanBasis<'_>,
    ) -> Result<Response<Outgoing>, Fault> {
        let (ask, snapshot) = (basis.ask, basis.snapshot);
        self.count_shards(&plan, snapshot);
        self.counters.docs_directed.add(basis.assignments.docs());
        let load = Arc::new(PlannedBody { body, plan });
        strip_for_parts(&mut head.headers);
        let lent = self.fallback.fill(&mut head.headers);
        let request_id = RequestId::of(&head.extensions);
        let split = Split {
            load: &load,
            ask,
            snapshot,
            message: Message {
                request_id: &request_id,
                purpose: Purpose::Part(load.plan.docs()),
                method: &head.method,
                target: basis.bulk.target,
                headers: &head.headers,
            },
            lent,
            deadline: self.outbound.deadline(),
        };
        let answer = self.send(split, basis.assignments).await;
        sample(self.outbound.cluster(), &load.body, ask, &snapshot.table);
        if let Ok(load) = Arc::try_unwrap(load) {
            self.scratch.borrow_mut().recycle(load.plan);
        }
        self.counters.bulk_latency.observe(basis.bulk.arrived.elapsed());
        answer
    }

    /// Has all parts of a bulk executed.
    pub(crate) async fn deliver(&self, split: Split<'_>) -> Vec<PartAnswer> {
        let combiner = self.combiner.as_ref().filter(|combiner| combiner.is_on());
        let (plan, table) = (&split.load.plan, &split.snapshot.table);
        let with = combiner.map(|one| (one.family(split.message, plan), one.company(plan, table)));
        let sender = Sender {
            outbound: &self.outbound,
            pool: &self.pool,
            counters: &self.counters,
            combine: combiner.zip(with.as_ref().map(|(family, company)| (family, company))),
        };
        let parts = 0..split.load.plan.parts.len();
        if !split.load.plan.touched().is_empty() {
            return join_all(parts.map(|part| self.deliver_timed(sender, part, split))).await;
        }
        match parts.len() {
            1 => vec![sender.deliver(0, split).await],
            _ => join_all(parts.map(|part| sender.deliver(part, split))).await,
        }
    }

    /// Has a part executed, and counts how long its shards took.
    async fn deliver_timed(&self, sender: Sender<'_>, part: usize, split: Split<'_>) -> PartAnswer {
        let began = Instant::now();
        let answer = sender.deliver(part, split).await;
        if matches!(answer, PartAnswer::Items(_) | PartAnswer::Refused(..)) {
            let (plan, table) = (&split.load.plan, &split.snapshot.table);
            let (cluster, took) = (&self.settings.cluster, began.elapsed());
            let heat = &self.counters.heat;
            heat.answered(cluster, table, plan.touched(), &plan.parts[part], took);
        }
        answer
    }

    /// Counts the documents that nodes have rejected, by shard, if shards are counted.
    pub(crate) async fn count_rejected(&self, split: Split<'_>, replies: &[Result<Reply<'_>, ItemError>]) {
        let plan = &split.load.plan;
        if plan.touched().is_empty() || !replies.iter().any(has_rejected) {
            return;
        }
        let (mut items, mut turns) = (vec![0; replies.len()], Turns::begin());
        let (mut rejected, table) = (Vec::new(), &split.snapshot.table);
        for (doc, document) in bulk::explain(&split.load.body, split.ask, table).enumerate() {
            let Ok(document) = document else { break };
            let part = plan.part_of(doc as u32);
            if is_rejected(&replies[part], items[part]) {
                rejected.push((document.index, document.shard));
            }
            items[part] += 1;
            if doc % EXPLAINED_AT_ONCE == 0 {
                turns.pass().await;
            }
        }
        let documents = rejected.iter().map(|(index, shard)| (&**index, *shard));
        self.counters.heat.rejected(&self.settings.cluster, documents);
    }

    async fn send(
        &self,
        split: Split<'_>,
        assignments: &Assignments<'_>,
    ) -> Result<Response<Outgoing>, Fault> {
        let began = Instant::now();
        let mut answers = self.deliver(split).await;
        let _merge = split.message.request_id.begin("merge", SpanKind::Internal);
        let (mut replies, mut turns) = (Vec::with_capacity(answers.len()), Turns::begin());
        for (answer, part) in answers.iter().zip(&split.load.plan.parts) {
            replies.push(self.read(answer, part.docs, split, &mut turns).await);
            turns.pass().await;
        }
        self.count(&split.load.plan, &answers, &replies);
        self.count_rejected(split, &replies).await;
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
                Ok(of_nodes(with_head(head, &[], body)))
            }
            (answers, _) => match whole_answer(answers) {
                Some(whole) => whole,
                None => self.merge(split, answers, replies, began.elapsed()).await,
            },
        }
    }

    /// Returns a part's items as a node gave them, or the error that replaces them.
    pub(crate) async fn read<'a>(
        &self,
        answer: &'a PartAnswer,
        docs: u32,
        split: Split<'_>,
        turns: &mut Turns,
    ) -> Result<Reply<'a>, ItemError> {
        match answer {
            PartAnswer::Items(items) => items.read(docs, turns).await.map_err(|error| {
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
            Some((first, others)) => of_nodes(with_head((*first).clone(), others, body)),
            None => {
                let mut response = Response::new(body);
                *response.headers_mut() = head_of_our_own(table.dialect(), split.message.headers);
                response
            }
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
        self.flow.docs.add(docs);
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
}

/// Whether a node has rejected documents of a part.
fn has_rejected(reply: &Result<Reply<'_>, ItemError>) -> bool {
    match reply {
        Ok(reply) => reply.errors() && (0..reply.items()).any(|item| reply.status(item) == Some(REJECTED)),
        Err(error) => error.is_rejection(),
    }
}

/// Whether a node has rejected this item of a part.
fn is_rejected(reply: &Result<Reply<'_>, ItemError>, item: u32) -> bool {
    match reply {
        Ok(reply) => item < reply.items() && reply.status(item) == Some(REJECTED),
        Err(error) => error.is_rejection(),
    }
}

const REJECTED: u16 = 429;
/// The number of documents that are looked at before others get their turn.
const EXPLAINED_AT_ONCE: usize = 64;

fn of_nodes(mut answer: Response<Outgoing>) -> Response<Outgoing> {
    answer.extensions_mut().insert(OfNodes);
    answer
}

/// Returns whether nodes have executed at least a part of a bulk with this answer.
pub(crate) fn is_of_nodes(answer: &Response<Outgoing>) -> bool {
    answer.extensions().get::<OfNodes>().is_some()
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
