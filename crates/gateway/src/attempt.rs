//! One try of a batch's operations: planned by today's topology, sent to the nodes that hold their primaries, each of which
//! gets no more at once than it has shown to take; and what their answers say.

use std::rc::Rc;

use bulk::{Ask, Destination, Op, Verdict};
use cluster::{Ended, PickReason, Snapshot};
use futures_util::future::join_all;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use wire::{Fate, Outgoing};

use crate::batch::Work;
use crate::bulk_request::{self, Kind};
use crate::lane::Lane;
use crate::outbound::{Message, Outbound};
use crate::outcome::{Again, Outcome, outcomes, unanswered};
use crate::part::{Load, part_body};
use crate::request_id::RequestId;

impl Lane {
    /// One try of some operations: a request to each node that holds their primaries now.
    pub(crate) async fn attempt(&self, work: &Work<'_>, operations: &[usize]) -> Vec<(usize, Outcome)> {
        let (route, pool) = (&self.route, self.route.worker.pool());
        let all = |outcome: Outcome| operations.iter().map(|at| (*at, outcome.clone())).collect();
        let outbound = route.outbound();
        let snapshot = outbound.cluster().snapshot();
        if !snapshot.learnt() {
            return all(Outcome::Again(Again {
                why: "the cluster's topology is not known yet".to_owned(),
                after: None,
                doubt: false,
                busy: false,
                paused: false,
            }));
        }
        let Some(mut headers) = content_type(&work.params.content_type) else {
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
        let adaptive = self.route.group.settings.adaptive;
        let bytes = body.length().unwrap_or_default();
        // The node's leave comes first: who waits for a slow one must not keep others from being sent to.
        let mut leave = match adaptive {
            true => Some(node.health.limiter().acquire().await),
            false => None,
        };
        // Never closed, so there is always one in the end.
        let _permit = self.route.permits.acquire().await;
        if let Some(leave) = &mut leave {
            leave.sent();
        }
        self.route.group.requests.add(1);
        let answer = outbound.whole(&node, message, body, outbound.deadline()).await;
        let (outcomes, ended) = match answer {
            Ok((head, body)) => {
                let outcomes = outcomes(head.status, &head.headers, &body, docs, &node.name);
                let worked = (head.status == StatusCode::OK).then_some(Ended::Worked { bytes });
                let ended = if outcomes.iter().any(Outcome::is_busy) {
                    Some(Ended::Refused)
                } else {
                    worked
                };
                (outcomes, ended)
            }
            Err(error) => {
                let lost = (error.fate == Fate::Unknown).then_some(Ended::Lost);
                (vec![Outcome::Again(unanswered(&error)); docs as usize], lost)
            }
        };
        if let (Some(leave), Some(ended)) = (leave, ended) {
            leave.end(ended);
        }
        if outcomes.iter().any(|outcome| *outcome != Outcome::Done) {
            outbound.cluster().hint();
        }
        outcomes
    }

    /// Whether the document that an operation is in conflict with is the one that it was to write: then an earlier try
    /// has written it, or somebody the same.
    pub(crate) async fn is_ours(&self, work: &Work<'_>, operation: usize) -> Result<bool, String> {
        let at = work.operations[operation];
        if at.op != Op::Create && !at.versioned {
            return Ok(false);
        }
        let unknown = || "the document that is there cannot be looked at".to_owned();
        let outbound = self.route.outbound();
        let snapshot = outbound.cluster().snapshot();
        let mut headers = content_type(&work.params.content_type).ok_or_else(unknown)?;
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
        let answer = outbound
            .whole(&node, message, Outgoing::Empty, outbound.deadline())
            .await;
        let (head, body) = answer.map_err(|error| error.to_string())?;
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
        busy: false,
        paused: true,
    })
}

pub(crate) fn content_type(value: &str) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_str(value).ok()?);
    Some(headers)
}

pub(crate) fn ask_of<'a>(head: &'a bulk_request::BulkHead<'_>) -> Ask<'a> {
    Ask {
        default_index: head.index.as_deref(),
        url_routing: head.routing.as_deref(),
        url_pipeline: head.pipeline.as_deref(),
        level: bulk::Level::Node,
        null_id: bulk::NullId::Keep,
        direct: None,
    }
}

/// The id that log lines of a delivery carry.
fn own_id(queue: &str, lane: u32) -> RequestId {
    let text = format!("delivery-{queue}-{lane}");
    RequestId(HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("delivery")))
}
