//! Decides about a bulk whose body has been read: the bulk is planned, and then queued, split, or passed on
//! as it came.

use std::borrow::Cow;
use std::time::Duration;

use bulk::{Ask, Pass, Plan, Verdict};
use cluster::Snapshot;
use http::Response;
use http::request::Parts;
use traces::OpenSpan;
use wire::{AnswerRoom, BodyError, Buffer, Outgoing, PooledBytes};

use crate::admission::keys::{self, KeyedRequest, Occurrence};
use crate::admission::plan_room::{PlanRoom, PlanTurn};
use crate::admission::rights::{Caller, ClusterRights, Denied};
use crate::error::{Fault, Rejection};
use crate::intake::filter::{HeldBody, Intake, LEARNT_WITHIN, Passing, Queueing};
use crate::intake::introduce::{self, Introduced};
use crate::nodes::Body;
use crate::queue::Queued;
use crate::request_id::RequestId;
use crate::reshuffle::{BulkRequest, PlanBasis};
use crate::sample::sample;
use crate::turns::AT_ONCE_BYTES;
use crate::why::HeadWhy;

/// The outcome of the decision about a bulk.
pub(crate) enum Decided {
    /// The bulk is answered.
    Done(Response<Outgoing>),
    /// The bulk is left to the next filter, whole.
    Next(Parts, Body, Passing),
    /// An index was created for the bulk, or is being created: the bulk has to be decided about again.
    Again(Parts, HeldBody),
}

impl Intake {
    /// Decides about a bulk whose body has been read. `introduced` lists the indices that were created for
    /// it.
    pub(crate) async fn decide(
        &self,
        head: Parts,
        held: HeldBody,
        bulk: BulkRequest<'_>,
        introduced: &mut Vec<String>,
    ) -> Result<Decided, Rejection> {
        let snapshot = self.outbound.cluster().snapshot();
        let occurrence = self.occurrence(&head, bulk.target, &held.body, &snapshot).await;
        let occurrence = occurrence.inspect_err(|_| self.counters.bulk_key_refused.add(1))?;
        let assignments = self.reshuffle.assignments(&snapshot);
        // A request with a key gets the same ids however often it comes, so its ids are derived from the key.
        let ask = Ask {
            // The other clusters that receive what is queued may not know types.
            without_types: self.queueing.is_some() && snapshot.table.dialect().types_are_optional(),
            ..self.reshuffle.ask(
                bulk.bulk_head,
                Some(&assignments).filter(|_| occurrence.is_none()),
            )
        };
        let basis = PlanBasis {
            bulk,
            snapshot: &snapshot,
            assignments: &assignments,
            ask: &ask,
        };
        let Some(queueing) = &self.queueing else {
            return self.split_it(head, held, &basis).await;
        };
        let (room, budget) = (&queueing.accept.queue.plan_room, self.reshuffle.pool.budget());
        if PlanRoom::is_limited(held.body.len()) {
            // Nobody keeps others from their plans who is not known. The answer is remembered.
            self.authenticate(&queueing.rights, &head, &snapshot).await?;
        }
        let items = || bulk::acknowledged_bytes_likely(&held.body);
        let turn = room.enter(held.body.len(), items, budget).await;
        let turn = turn.map_err(|over| self.unread(&BodyError::from(over)))?;
        let planning = RequestId::begin_in(&head.extensions, "plan");
        let (verdict, items) = self
            .reshuffle
            .plan_acknowledged(&held.body, occurrence.as_ref().map(Occurrence::mint), &basis)
            .await;
        planned(planning, &verdict);
        match verdict {
            Verdict::Plan(plan) => {
                let acknowledged = Acknowledged {
                    plan,
                    turn,
                    items,
                    occurrence,
                };
                self.queue_it(queueing, head, held, acknowledged, &basis).await
            }
            // The request was accepted before and must not be executed again, as it would be if it passed.
            Verdict::Pass(pass) if let Some(Occurrence::Again(accepted)) = &occurrence => {
                assignments.give_back_all();
                self.counters.bulk_key_refused.add(1);
                Err(Fault::not_repeatable(accepted.position, &pass.why.to_string()).into())
            }
            Verdict::Pass(pass) => {
                drop(turn);
                self.pass_it(head, held, pass, &basis, introduced).await
            }
        }
    }

    /// Splits a bulk, or leaves it to the next filter.
    async fn split_it(
        &self,
        head: Parts,
        held: HeldBody,
        basis: &PlanBasis<'_>,
    ) -> Result<Decided, Rejection> {
        let Some(room) = self.room_for_answer(&held.body).await? else {
            // It goes through this gateway piece by piece.
            let pass = Pass {
                why: bulk::Why::TooLarge,
                line: None,
            };
            return self.pass_it(head, held, pass, basis, &mut Vec::new()).await;
        };
        let planning = RequestId::begin_in(&head.extensions, "plan");
        let table = &basis.snapshot.table;
        let verdict = self.reshuffle.plan(&held.body, basis.ask, table).await;
        planned(planning, &verdict);
        let pass = match verdict {
            Verdict::Plan(plan) if fits(&plan, basis.snapshot) => {
                // The bulk cannot pass any more, so the compressed original is not needed.
                drop(held.original);
                let answer = self.reshuffle.split(head, held.body, plan, basis).await;
                return Ok(Decided::Done(answer?));
            }
            Verdict::Plan(plan) => {
                self.reshuffle.scratch.borrow_mut().recycle(plan);
                Pass {
                    why: bulk::Why::TooLarge,
                    line: None,
                }
            }
            Verdict::Pass(pass) => pass,
        };
        drop(room);
        // Nothing of a bulk that is not queued waits for an index.
        self.pass_it(head, held, pass, basis, &mut Vec::new()).await
    }

    /// Waits for room for the answer to a bulk: it is in memory twice, as the nodes give it and as one, and
    /// is many times the size of a body of short documents. A small one waits only while there is no memory
    /// at all, and has no room of its own. `None` if the answer is so large that it could not be held.
    async fn room_for_answer(&self, body: &PooledBytes) -> Result<Option<Option<AnswerRoom>>, Rejection> {
        let budget = self.reshuffle.pool.budget();
        let likely = match body.len() <= AT_ONCE_BYTES / ANSWER_TIMES_MAX {
            true => 0,
            false => 2 * bulk::answered_bytes_likely(body),
        };
        // Beside bodies and a quarter for other answers, this is what the nodes' answers always find room
        // for.
        if likely / 2 > budget.limit() {
            return Ok(None);
        }
        let room = match likely <= AT_ONCE_BYTES {
            true => budget
                .until_not_used_up(body.len(), ROOM_WITHIN)
                .await
                .map(|()| None),
            false => body.expect_answer(likely, ROOM_WITHIN).await.map(Some),
        };
        room.map(Some)
            .map_err(|over| self.unread(&BodyError::from(over)).into())
    }

    /// Queues a planned bulk if its client may do all of it, and answers it.
    async fn queue_it(
        &self,
        Queueing { accept, rights }: &Queueing,
        mut head: Parts,
        HeldBody { body, original }: HeldBody,
        Acknowledged {
            plan,
            turn,
            items,
            occurrence,
        }: Acknowledged,
        &PlanBasis {
            bulk,
            snapshot,
            assignments,
            ask,
        }: &PlanBasis<'_>,
    ) -> Result<Decided, Rejection> {
        self.counters.docs_directed.add(assignments.docs());
        let repeats = matches!(occurrence, Some(Occurrence::Again(_)));
        // A repeated request writes nothing.
        if !repeats && let Err(denied) = self.permit(rights, &head, snapshot, &plan).await {
            assignments.give_back_all();
            let lanes = plan.parts.iter().map(|part| part.lane).collect();
            self.reshuffle.scratch.borrow_mut().recycle(plan);
            return match denied {
                Denied::Rejected(rejection) => Err(rejection),
                Denied::Pass => {
                    self.count_pass_by_head(HeadWhy::Rights);
                    let passing = Passing {
                        why: HeadWhy::Rights.as_str(),
                        lanes: Some(lanes),
                    };
                    Ok(Decided::Next(head, Body::Held(original.unwrap_or(body)), passing))
                }
            };
        }
        assert_lanes(&plan, accept.queue.log.lanes());
        self.fallback.fill(&mut head.headers);
        sample(self.outbound.cluster(), &body, ask, &snapshot.table);
        drop(original);
        let docs = plan.docs();
        let queued = Queued {
            head: &head,
            target: bulk.target,
            body,
            pool: &self.reshuffle.pool,
            plan,
            scratch: &self.reshuffle.scratch,
            turn,
            ask,
            items,
            snapshot,
            arrived: bulk.arrived,
        };
        let answer = accept.take(&self.outbound, queued, occurrence).await;
        if repeats {
            self.counters.bulk_repeated.add(1);
        } else if answer.is_ok() {
            self.counters.bulk_queued.add(1);
            self.counters.docs_queued.add(u64::from(docs));
            self.reshuffle.flow.docs_queued.add(u64::from(docs));
        } else {
            assignments.give_back_all();
        }
        self.counters.bulk_latency.observe(bulk.arrived.elapsed());
        Ok(Decided::Done(answer?))
    }

    /// Passes a bulk that cannot be planned to the next filter, unless it has to wait for an index.
    async fn pass_it(
        &self,
        head: Parts,
        held: HeldBody,
        pass: Pass,
        basis: &PlanBasis<'_>,
        introduced: &mut Vec<String>,
    ) -> Result<Decided, Rejection> {
        basis.assignments.give_back_all();
        if self.queueing.is_some() && self.awaits_index(&head, &held, &pass, basis, introduced).await? {
            return Ok(Decided::Again(head, held));
        }
        self.count_pass(pass.why);
        let request_id = RequestId::of(&head.extensions);
        tracing::debug!(%request_id, why = %pass.why, line = pass.line, "bulk passes whole");
        if matches!(pass.why, bulk::Why::UnknownIndex | bulk::Why::IndexClosed) {
            self.outbound.cluster().hint();
        }
        let passing = Passing::unknown(pass.why.as_str());
        let body = held.original.unwrap_or(held.body);
        Ok(Decided::Next(head, Body::Held(body), passing))
    }

    /// Has an index created that a bulk for a queue names, or waits for one that is being created. Returns
    /// whether it did either, so that the bulk can be planned again.
    async fn awaits_index(
        &self,
        head: &Parts,
        held: &HeldBody,
        pass: &Pass,
        &PlanBasis {
            bulk, snapshot, ask, ..
        }: &PlanBasis<'_>,
        introduced: &mut Vec<String>,
    ) -> Result<bool, Rejection> {
        if pass.why == bulk::Why::UnknownIndex
            && let Some(index) = introduce::named(&held.body, pass.line, bulk.bulk_head.index.as_deref())
            && self
                .reshuffle
                .is_acceptable_but_new(&held.body, ask, &snapshot.table)
                .await
        {
            // The index existed and is gone again, or one request would have to wait for too many indices.
            if introduced.contains(&index) || introduced.len() >= INTRODUCED_MAX {
                return Err(Fault::not_introduced(&index).into());
            }
            match Box::pin(self.introduce(&index, head, snapshot)).await {
                Introduced::Known => {
                    introduced.push(index);
                    return Ok(true);
                }
                Introduced::NotYet => return Err(Fault::not_introduced(&index).into()),
                Introduced::Refused => {}
            }
        }
        // While an index is being created, only its name is known for a moment.
        if pass.why == bulk::Why::IndexUnavailable {
            self.outbound.cluster().hint();
            if bulk.arrived.elapsed() >= LEARNT_WITHIN {
                return Err(Fault::index_not_ready().into());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            return Ok(true);
        }
        Ok(false)
    }

    /// Checks that the client of a request may do everything that is planned for it.
    async fn permit(
        &self,
        rights: &ClusterRights,
        head: &Parts,
        snapshot: &Snapshot,
        plan: &Plan,
    ) -> Result<(), Denied> {
        let permitted = async |caller: Caller<'_>| rights.permit(caller, plan.writes()).await;
        self.as_its_caller(head, snapshot, permitted).await
    }

    /// Checks that the cluster lets the client of a request in.
    async fn authenticate(
        &self,
        rights: &ClusterRights,
        head: &Parts,
        snapshot: &Snapshot,
    ) -> Result<(), Rejection> {
        let known = async |caller: Caller<'_>| rights.authenticate(caller).await.map(drop);
        self.as_its_caller(head, snapshot, known).await
    }

    /// Asks something about the client of a request, who shows the credentials that the request is sent with.
    async fn as_its_caller<T>(
        &self,
        head: &Parts,
        snapshot: &Snapshot,
        ask: impl AsyncFnOnce(Caller<'_>) -> T,
    ) -> T {
        let mut headers = Cow::Borrowed(&head.headers);
        if self.fallback.would_fill(&headers) {
            self.fallback.fill(headers.to_mut());
        }
        ask(Caller {
            outbound: &self.outbound,
            snapshot,
            headers: &headers,
            request_id: &RequestId::of(&head.extensions),
        })
        .await
    }

    /// Returns what has to be done with a request that has a key, or `None` if it has no key.
    pub(crate) async fn occurrence(
        &self,
        head: &Parts,
        target: &str,
        body: &[u8],
        snapshot: &Snapshot,
    ) -> Result<Option<Occurrence>, Rejection> {
        let Some(Queueing { accept, rights }) = &self.queueing else {
            return Ok(None);
        };
        let keys = accept.queue.keys.as_ref();
        let Some(keys) = keys.filter(|_| keys::is_given(&head.headers)) else {
            return Ok(None);
        };
        let mut headers = head.headers.clone();
        self.fallback.fill(&mut headers);
        let asked = KeyedRequest {
            caller: Caller {
                outbound: &self.outbound,
                snapshot,
                headers: &headers,
                request_id: &RequestId::of(&head.extensions),
            },
            headers: &head.headers,
            target,
            body,
        };
        let end = accept.queue.log.status().end;
        keys.admit(rights, asked, end).await.map(Some)
    }
}

/// Ends the span of planning, and records what came of it.
fn planned(planning: Option<OpenSpan>, verdict: &Verdict) {
    let Some(mut planning) = planning else { return };
    match verdict {
        Verdict::Plan(plan) => {
            planning.set("tidegate.operations", plan.docs());
            planning.set("tidegate.parts", plan.parts.len());
        }
        Verdict::Pass(pass) => planning.set("tidegate.passes_because", pass.why.as_str()),
    }
}

/// Returns whether every node accepts the parts of a plan. A part may be larger than the body, by the ids
/// that were made for its documents.
fn fits(plan: &Plan, snapshot: &Snapshot) -> bool {
    let theirs = snapshot.max_content_length_bytes.unwrap_or(u64::MAX);
    plan.parts.iter().all(|part| part.bytes <= theirs)
}

/// Checks the lanes of a plan. A part for a lane that the queue does not have would be durable and
/// acknowledged, but never read.
///
/// # Panics
/// If the plan has such a part.
fn assert_lanes(plan: &Plan, lanes: u32) {
    let stray = plan.parts.iter().find(|part| part.lane >= lanes);
    let lane = stray.map(|part| part.lane);
    assert!(
        lane.is_none(),
        "a plan has a part for lane {lane:?}, and the queue has {lanes} lanes"
    );
}

/// A bulk that is planned for a queue.
struct Acknowledged {
    plan: Plan,
    turn: PlanTurn,
    /// The items of the answer.
    items: Buffer,
    /// What has to be done with the bulk if it has a key.
    occurrence: Option<Occurrence>,
}

/// The time between two checks of an index.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long a bulk waits for memory for its answer. Its body has come, so it is not sent away soon.
const ROOM_WITHIN: Duration = Duration::from_secs(20);
/// An answer takes less than this many times the memory of its body, in the nodes' words and as one.
const ANSWER_TIMES_MAX: usize = 32;
/// The number of indices that one bulk may create at most before it is queued.
const INTRODUCED_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(lanes: &[u32]) -> Plan {
        let mut plan = Plan::default();
        plan.parts = lanes.iter().map(|lane| part(*lane)).collect();
        plan
    }

    fn part(lane: u32) -> bulk::Part {
        let mut part = bulk::Part::default();
        part.lane = lane;
        part
    }

    #[test]
    fn lanes_of_the_queue_are_no_strays() {
        assert_lanes(&plan(&[0, 15, 3]), 16);
    }

    #[test]
    #[should_panic(expected = "lane Some(16), and the queue has 16 lanes")]
    fn nothing_is_acknowledged_for_a_lane_that_nobody_reads() {
        assert_lanes(&plan(&[0, 16]), 16);
    }
}
