//! One batch of a lane on its way: sent by today's topology, again where that may help, until every operation is
//! indexed or among the dead letters.

use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use bulk::{Ask, Destination, ID_LENGTH, Minted, Op, Operation, Verdict};
use cluster::{PickReason, Snapshot};
use futures_util::future::join_all;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use log::Mark;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use wire::Outgoing;

use crate::accept::Params;
use crate::bulk_request::{self, Kind};
use crate::dead_letters::Cause;
use crate::lane::Lane;
use crate::outbound::{Message, Outbound};
use crate::outcome::{Again, Error, Outcome, outcomes, unanswered};
use crate::part::{Load, REPLY_BYTES_MAX, part_body};
use crate::queue::Doing;
use crate::request_id::RequestId;

/// Groups of a lane that are delivered together: requests with the same parameters, one after another.
pub(crate) struct Batch {
    /// None: they cannot be read, and nobody knows how to send it.
    params: Option<Params>,
    pub(crate) raw_params: Vec<u8>,
    minted: Vec<Minted>,
    pub(crate) body: Vec<u8>,
    pub(crate) documents: usize,
    pub(crate) origins: Vec<Origin>,
    /// What to commit.
    pub(crate) mark: Mark,
}

/// Where operations of a batch come from.
pub(crate) struct Origin {
    /// The first one's number in the batch.
    pub(crate) first: usize,
    /// Position of the client's request.
    pub(crate) position: u64,
    /// When it was accepted, ms since 1970.
    pub(crate) time_ms: u64,
}

/// How far a batch is.
struct Work<'b> {
    batch: &'b Batch,
    params: &'b Params,
    operations: Vec<Operation>,
    /// For each operation: it may have been executed already, and nobody knows.
    doubt: Vec<bool>,
    attempts: Vec<u32>,
    dead: u64,
    /// Operations in one request at most; halved when a request is too large.
    limit: usize,
}

// === impl Batch ===

impl Batch {
    pub(crate) fn new(params: Option<Params>, raw_params: Vec<u8>, origin: Origin, mark: Mark) -> Self {
        let minted = params.as_ref().and_then(minted).into_iter().collect();
        Self {
            params,
            raw_params,
            minted,
            body: Vec::new(),
            documents: 0,
            origins: vec![origin],
            mark,
        }
    }

    /// Whether a request with these parameters can go along: they differ in minted ids only.
    pub(crate) fn may_take(&self, raw_params: &[u8]) -> bool {
        let theirs: Option<Params> = serde_json::from_slice(raw_params).ok();
        match (&self.params, theirs) {
            (Some(ours), Some(theirs)) => {
                (&ours.target, &ours.content_type) == (&theirs.target, &theirs.content_type)
            }
            _ => false,
        }
    }

    pub(crate) fn take_minted(&mut self, raw_params: &[u8]) {
        let params: Option<Params> = serde_json::from_slice(raw_params).ok();
        self.minted.extend(params.as_ref().and_then(minted));
    }

    fn origin(&self, operation: usize) -> &Origin {
        let at = self.origins.partition_point(|origin| origin.first <= operation);
        &self.origins[at - 1]
    }
}

fn minted(params: &Params) -> Option<Minted> {
    let id = |id: &str| <[u8; ID_LENGTH]>::try_from(id.as_bytes()).ok();
    let (first, last) = params.minted.as_ref()?;
    Some(Minted {
        first: id(first)?,
        last: id(last)?,
    })
}

// === impl Lane ===

impl Lane {
    /// Delivers a batch and returns how many of its operations are dead; `None` if the gateway stops first.
    pub(crate) async fn deliver(&mut self, batch: &Batch) -> Option<u64> {
        let group = std::sync::Arc::clone(&self.route.group);
        let mut work = loop {
            let table = &self.route.outbound().cluster().snapshot().table;
            let work = batch.params.as_ref().and_then(|params| {
                let headers = content_type(params)?;
                let Kind::Bulk(head) = bulk_request::classify(&Method::POST, &params.target, &headers) else {
                    return None;
                };
                let operations = bulk::operations(&batch.body, &ask_of(&head), table)?;
                let doubt = (0..operations.len()).map(|at| batch.origin(at).position < group.doubtful_before);
                (operations.len() == batch.documents).then(|| Work {
                    batch,
                    params,
                    doubt: doubt.collect(),
                    attempts: vec![0; operations.len()],
                    operations,
                    dead: 0,
                    limit: usize::MAX,
                })
            });
            match work {
                Some(work) => break work,
                None => {
                    let position = batch.origins[0].position;
                    let why = format!("the record at {position} is not one that this version knows to send");
                    group.set(self.number, Doing::Paused, Some(&why));
                    self.rest(PAUSE).await?;
                }
            }
        };
        let mut from = 0;
        while from < work.operations.len() {
            // Two operations on one document never travel together: tried again, one could overtake the other.
            let mut documents = HashSet::new();
            let operations = work.operations[from..].iter();
            let run = operations
                .take_while(|operation| documents.insert(operation.document))
                .count();
            self.settle(&mut work, (from..from + run).collect()).await?;
            from += run;
        }
        Some(work.dead)
    }

    /// Tries until each of these operations is done or dead.
    async fn settle(&mut self, work: &mut Work<'_>, mut left: Vec<usize>) -> Option<()> {
        let group = std::sync::Arc::clone(&self.route.group);
        let mut failures = 0;
        while !left.is_empty() {
            if self.is_stopped() {
                return None;
            }
            let chunk = left.len().min(work.limit);
            let rest = left.split_off(chunk);
            let outcomes = self.attempt(work, &left).await;
            let (mut again, mut dead, mut worst) = (Vec::new(), Vec::new(), None::<Again>);
            let mut split = false;
            for (operation, outcome) in outcomes {
                work.attempts[operation] += 1;
                let outcome = self.judge(work, operation, outcome).await;
                match outcome {
                    Outcome::Done => {}
                    Outcome::Refused(error) => dead.push((operation, error)),
                    Outcome::Split(_) => {
                        split = true;
                        again.push(operation);
                    }
                    Outcome::Again(why) => {
                        work.doubt[operation] |= why.doubt;
                        again.push(operation);
                        if worst.as_ref().is_none_or(|worst| !worst.paused && why.paused) {
                            worst = Some(why);
                        }
                    }
                }
            }
            let settled = left.len() - again.len();
            self.bury(work, dead).await?;
            group.retried.add(again.len() as u64);
            work.limit = match split {
                true => (chunk / 2).max(1),
                false => work.limit.saturating_mul(2),
            };
            again.extend(rest);
            left = again;
            let Some(worst) = worst else { continue };
            failures = if settled > 0 { 0 } else { failures + 1 };
            let doing = if worst.paused {
                Doing::Paused
            } else {
                Doing::Retrying
            };
            group.set(self.number, doing, Some(&worst.why));
            let delay = backoff(group.settings.retry_delay, failures, fastrand::f64());
            self.rest(delay.max(worst.after.unwrap_or_default().min(PAUSE * 10)))
                .await?;
        }
        group.set(self.number, Doing::Delivering, None);
        Some(())
    }

    /// Looks closer at what a node said of an operation, where its word alone does not settle it.
    async fn judge(&self, work: &Work<'_>, operation: usize, outcome: Outcome) -> Outcome {
        match outcome {
            // Too large even alone: nothing that sending less would mend.
            Outcome::Split(error) if work.limit == 1 || work.operations.len() == 1 => match error.status {
                413 => Outcome::Again(Again {
                    why: format!(
                        "one operation alone is too large for the cluster: {}",
                        error.reason
                    ),
                    after: None,
                    doubt: false,
                    paused: true,
                }),
                _ => Outcome::Refused(error),
            },
            Outcome::Refused(error) if error.status >= 500 && work.attempts[operation] < ATTEMPTS_MAX => {
                Outcome::Again(Again {
                    why: format!("{} {}: {}", error.status, error.kind, error.reason),
                    after: None,
                    doubt: true,
                    paused: false,
                })
            }
            Outcome::Refused(error) if error.status == 409 && work.doubt[operation] => {
                match self.is_ours(work, operation).await {
                    Ok(true) => Outcome::Done,
                    Ok(false) => Outcome::Refused(error),
                    Err(why) => Outcome::Again(Again {
                        why,
                        after: None,
                        doubt: true,
                        paused: false,
                    }),
                }
            }
            outcome => outcome,
        }
    }

    /// Puts operations among the dead letters; waits, for as long as it takes, if there is no room.
    async fn bury(&mut self, work: &mut Work<'_>, mut dead: Vec<(usize, Error)>) -> Option<()> {
        let group = std::sync::Arc::clone(&self.route.group);
        while !dead.is_empty() {
            let puts = dead.iter().map(|(operation, error)| {
                let (batch, at) = (work.batch, work.operations[*operation]);
                let origin = batch.origin(*operation);
                let cause = Cause {
                    group: group.settings.group.to_string(),
                    cluster: group.settings.cluster.to_string(),
                    status: error.status,
                    kind: error.kind.clone(),
                    reason: error.reason.clone(),
                    attempts: work.attempts[*operation],
                    accepted_ms: origin.time_ms,
                    position: origin.position,
                    lane: self.number,
                    place: (operation - origin.first) as u32,
                    target: work.params.target.clone(),
                };
                group.queue.dead_letters.put(cause, &batch.body[at.start..at.end])
            });
            let results = join_all(puts).await;
            let mut failed = None;
            let mut results = results.into_iter();
            dead.retain(|_| match results.next() {
                Some(Err(error)) => {
                    failed = Some(error.to_string());
                    true
                }
                _ => {
                    work.dead += 1;
                    false
                }
            });
            if let Some(why) = failed {
                let why = format!("dead letters cannot be written: {why}");
                group.set(self.number, Doing::Paused, Some(&why));
                self.rest(PAUSE).await?;
            }
        }
        Some(())
    }

    /// One try of some operations: a request to each node that holds their primaries now.
    async fn attempt(&self, work: &Work<'_>, operations: &[usize]) -> Vec<(usize, Outcome)> {
        let (route, pool) = (&self.route, self.route.worker.pool());
        let all = |outcome: Outcome| operations.iter().map(|at| (*at, outcome.clone())).collect();
        // Never closed, so there is always one in the end.
        let _permit = route.permits.acquire().await;
        let outbound = route.outbound();
        let snapshot = outbound.cluster().snapshot();
        if !snapshot.learnt() {
            return all(Outcome::Again(Again {
                why: "the cluster's topology is not known yet".to_owned(),
                after: None,
                doubt: false,
                paused: false,
            }));
        }
        let Some(mut headers) = content_type(work.params) else {
            return all(unreadable());
        };
        let Kind::Bulk(head) = bulk_request::classify(&Method::POST, &work.params.target, &headers) else {
            return all(unreadable());
        };
        let bytes = operations.iter().map(|at| work.operations[*at]);
        let mut body = pool.take(bytes.clone().map(|at| at.end - at.start).sum());
        for at in bytes {
            body.extend_from_slice(&work.batch.body[at.start..at.end]);
        }
        let body = body.freeze();
        if let Some(account) = route.account(&outbound) {
            headers.insert(AUTHORIZATION, account);
        }
        let ask = ask_of(&head);
        let verdict = {
            let (mut ids, mut scratch) = (route.ids.borrow_mut(), route.scratch.borrow_mut());
            bulk::plan(&body, &ask, &snapshot.table, &mut ids, &mut scratch)
        };
        let send = |destination, body, docs| {
            self.send(&outbound, &snapshot, work, &headers, destination, body, docs)
        };
        match verdict {
            Verdict::Plan(plan) => {
                let load = Rc::new(Load { body, plan });
                let parts = &load.plan.parts;
                let sent = parts
                    .iter()
                    .enumerate()
                    .map(|(part, one)| send(one.destination, part_body(&load, part, pool), one.docs));
                let mut sent: Vec<_> = join_all(sent).await.into_iter().map(Vec::into_iter).collect();
                let outcomes = operations.iter().enumerate().map(|(doc, at)| {
                    let outcome = sent[load.plan.part_of(doc as u32)].next();
                    (
                        *at,
                        outcome.expect("a part has an outcome for each of its operations"),
                    )
                });
                let outcomes = outcomes.collect();
                if let Ok(load) = Rc::try_unwrap(load) {
                    route.scratch.borrow_mut().recycle(load.plan);
                }
                outcomes
            }
            Verdict::Pass(_) => {
                outbound.cluster().hint();
                let body = Outgoing::Full(wire::Chunk::Shared(body));
                let sent = send(Destination::Any, body, operations.len() as u32).await;
                operations.iter().copied().zip(sent).collect()
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "all of it is one request")]
    async fn send(
        &self,
        outbound: &Outbound,
        snapshot: &Snapshot,
        work: &Work<'_>,
        headers: &HeaderMap,
        destination: Destination,
        body: Outgoing,
        docs: u32,
    ) -> Vec<Outcome> {
        let home = match destination {
            Destination::Node(node) => snapshot.node(node).filter(|node| node.health.is_up()),
            Destination::Any => None,
        };
        let node = match home {
            Some(node) => std::sync::Arc::clone(node),
            None => outbound.pick(snapshot, PickReason::Documents, &[]),
        };
        let request_id = own_id(&self.route.group.settings.queue, self.number);
        let message = Message {
            request_id: &request_id,
            method: &Method::POST,
            target: &work.params.target,
            headers,
        };
        self.route.group.requests.add(1);
        let began = tokio::time::Instant::now();
        let answer = match outbound.exchange(&node, message, body, outbound.deadline()).await {
            Ok(reply) => {
                let (head, body) = reply.into_parts();
                match body.collect(REPLY_BYTES_MAX).await {
                    Ok(body) => Ok((head, body)),
                    Err(error) => {
                        outbound.ledger().failed(&node, &error, began, &request_id);
                        Err(error)
                    }
                }
            }
            Err(error) => Err(error),
        };
        let outcomes = match answer {
            Ok((head, body)) => outcomes(head.status, &head.headers, &body, docs, &node.name),
            Err(error) => vec![Outcome::Again(unanswered(&error)); docs as usize],
        };
        if outcomes.iter().any(|outcome| *outcome != Outcome::Done) {
            outbound.cluster().hint();
        }
        outcomes
    }

    /// Whether the document that an operation is in conflict with is the one that it was to write: then an earlier try
    /// has written it, or somebody the same.
    async fn is_ours(&self, work: &Work<'_>, operation: usize) -> Result<bool, String> {
        let at = work.operations[operation];
        if at.op != Op::Create && !at.versioned {
            return Ok(false);
        }
        let unknown = || "the document that is there cannot be looked at".to_owned();
        let outbound = self.route.outbound();
        let snapshot = outbound.cluster().snapshot();
        let mut headers = content_type(work.params).ok_or_else(unknown)?;
        let Kind::Bulk(head) = bulk_request::classify(&Method::POST, &work.params.target, &headers) else {
            return Err(unknown());
        };
        let lines = &work.batch.body[at.start..at.end];
        let ask = ask_of(&head);
        let explained = bulk::explain(lines, &ask, &snapshot.table).next();
        let Some(Ok(document)) = explained else {
            return Err(unknown());
        };
        let id = document.id.ok_or_else(unknown)?;
        if at.op == Op::Create && work.batch.minted.iter().any(|minted| minted.has(id.as_bytes())) {
            return Ok(true);
        }
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let mut target = format!("/{}/_doc/{}", encode(&document.index), encode(&id));
        if let Some(routing) = &document.routing {
            target.push_str(&format!("?routing={}", encode(routing)));
        }
        headers.remove(CONTENT_TYPE);
        if let Some(account) = self.route.account(&outbound) {
            headers.insert(AUTHORIZATION, account);
        }
        let request_id = own_id(&self.route.group.settings.queue, self.number);
        let message = Message {
            request_id: &request_id,
            method: &Method::GET,
            target: &target,
            headers: &headers,
        };
        let node = outbound.pick(&snapshot, PickReason::Documents, &[]);
        let reply = outbound
            .exchange(&node, message, Outgoing::Empty, outbound.deadline())
            .await;
        let (head, body) = reply.map_err(|error| error.to_string())?.into_parts();
        let body = body
            .collect(REPLY_BYTES_MAX)
            .await
            .map_err(|error| error.to_string())?;
        match head.status {
            StatusCode::NOT_FOUND => Ok(at.op == Op::Delete),
            StatusCode::OK => {
                let there: Value = serde_json::from_slice(&body).map_err(|_| unknown())?;
                let source = lines.splitn(2, |byte| *byte == b'\n').nth(1).unwrap_or_default();
                let wanted: Option<Value> = serde_json::from_slice(source).ok();
                Ok(wanted.is_some_and(|wanted| there.get("_source") == Some(&wanted)))
            }
            status => Err(format!(
                "{} answered {status} when asked for the document",
                node.name
            )),
        }
    }
}

fn unreadable() -> Outcome {
    Outcome::Again(Again {
        why: "the record is not one that this version knows to send".to_owned(),
        after: None,
        doubt: false,
        paused: true,
    })
}

fn content_type(params: &Params) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_str(&params.content_type).ok()?);
    Some(headers)
}

fn ask_of<'a>(head: &'a bulk_request::BulkHead<'_>) -> Ask<'a> {
    Ask {
        default_index: head.index.as_deref(),
        url_routing: head.routing.as_deref(),
        url_pipeline: head.pipeline.as_deref(),
        level: bulk::Level::Node,
        null_id: bulk::NullId::Keep,
    }
}

/// The id that log lines of a delivery carry.
fn own_id(queue: &str, lane: u32) -> RequestId {
    let text = format!("delivery-{queue}-{lane}");
    RequestId(HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("delivery")))
}

/// The wait after so many failures in a row: doubled each time, up to [`BACKOFF_MAX`], of which `random` (0 to 1) takes
/// up to a half.
fn backoff(first: Duration, failures: u32, random: f64) -> Duration {
    let delay = first
        .saturating_mul(1 << failures.min(10))
        .min(BACKOFF_MAX.max(first));
    delay.mul_f64(0.5 + random / 2.0)
}

/// An operation that a node fails with 500 is tried so often before it is given up.
const ATTEMPTS_MAX: u32 = 10;
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Between two looks at what somebody has to put right.
const PAUSE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_are_never_twice_the_same() {
        let first = Duration::from_millis(100);
        assert_eq!(backoff(first, 0, 1.0), first);
        assert_eq!(backoff(first, 3, 0.0), first * 4);
        assert_eq!(backoff(first, 60, 1.0), BACKOFF_MAX);
        assert_eq!(
            backoff(Duration::from_secs(600), 60, 1.0),
            Duration::from_secs(600)
        );
    }
}
