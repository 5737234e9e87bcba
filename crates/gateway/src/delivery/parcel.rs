//! One lane's operations for one node, and the request in which they travel: alone, or with other lanes'
//! operations for that node. Each lane gets the outcomes of its own operations.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use cluster::{Ended, Node, Permit};
use http::header::{AUTHORIZATION, CONTENT_ENCODING};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use traces::{OpenSpan, Trace};
use wire::guard::fault;
use wire::{Fate, Outgoing, PooledBytes};

use crate::delivery::bulk_answer::BulkAnswer;
use crate::delivery::lane::Route;
use crate::delivery::outcome::{Again, Outcome, Outcomes, outcomes, unanswered};
use crate::delivery::partial_refusal::is_block_of_index;
use crate::delivery::sent_as::{asked_as, with_ids};
use crate::delivery::server_error::is_refused_unexecuted;
use crate::delivery::shared_fate::{doubt_misplaced, doubt_shared};
use crate::nodes::lines::{Body, Lines, PlannedBody};
use crate::nodes::{Message, Outbound, Purpose, SendTimes};
use crate::queue::delivered_headers;
use crate::request_id::{RequestId, together};

/// When a request was sent, if it was.
pub(crate) type Sent = Rc<Cell<Option<Instant>>>;

/// Operations of one lane for one node.
#[derive(Clone)]
pub(crate) struct Parcel {
    lines: Lines,
    pub(crate) docs: u32,
    pub(crate) bytes: u64,
    /// The rest of the request that carries the parcel.
    pub(crate) wording: Rc<Wording>,
    /// The trace that the parcel is part of, if it is recorded.
    trace: Option<Trace>,
    /// The ids of its documents, as numbers, if items are to be compared with them.
    ids: Rc<[u64]>,
    /// When the request with the parcel was sent, if it was.
    pub(crate) sent: Sent,
}

/// The rest of a request besides its operations, as it is sent. Only parcels with the same wording can share
/// a request.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wording {
    /// Path and query, as delivery reads them.
    pub(crate) target: String,
    /// Path and query, as nodes get them.
    asked: String,
    /// Whether the items of the answer have their documents' ids.
    has_ids: bool,
}

/// The result of sending a parcel.
pub(crate) enum Transmitted {
    /// The outcome of each operation.
    Outcomes(Outcomes),
    /// One parcel may be to blame for the answer to the whole request: each parcel is to travel by itself.
    /// `doubt`: the request may have been executed all the same.
    Alone { doubt: bool },
}

// === impl Wording ===

impl Wording {
    pub(crate) fn new(target: String) -> Self {
        Self {
            asked: asked_as(&target),
            target,
            has_ids: false,
        }
    }

    /// Returns the same wording, for a request whose items are to be compared with its operations.
    pub(crate) fn with_ids(&self) -> Self {
        Self {
            target: self.target.clone(),
            asked: with_ids(&self.asked),
            has_ids: true,
        }
    }

    /// Returns path and query, as nodes get them.
    pub(crate) fn asked(&self) -> &str {
        &self.asked
    }

    /// Whether the client's request had parameters that nodes get.
    pub(crate) fn has_parameters(&self) -> bool {
        let query = self.target.split_once('?').map_or("", |(_, query)| query);
        query.split('&').any(|pair| !pair.starts_with("timeout="))
    }
}

// === impl Parcel ===

impl Parcel {
    pub(crate) fn part(load: &Arc<PlannedBody>, part: usize, wording: &Rc<Wording>) -> Self {
        let one = &load.plan.parts[part];
        Self {
            docs: one.docs,
            bytes: one.bytes,
            lines: Lines::part(load, part),
            wording: Rc::clone(wording),
            trace: None,
            ids: Rc::default(),
            sent: Rc::default(),
        }
    }

    /// Has the items of the answer compared with the ids of the parcel's documents.
    pub(crate) fn compared(self, ids: Vec<u64>) -> Self {
        Self {
            wording: Rc::new(self.wording.with_ids()),
            ids: ids.into(),
            ..self
        }
    }

    /// Makes the parcel part of a trace.
    pub(crate) fn traced(self, trace: &Option<Trace>) -> Self {
        Self {
            trace: trace.clone(),
            ..self
        }
    }

    pub(crate) fn whole(body: PooledBytes, docs: u32, wording: &Rc<Wording>) -> Self {
        Self {
            docs,
            bytes: body.len() as u64,
            lines: Lines::Whole(body),
            wording: Rc::clone(wording),
            trace: None,
            ids: Rc::default(),
            sent: Rc::default(),
        }
    }
}

// === impl Route ===

impl Route {
    /// Sends parcels with one wording in one request; returns the result of each. The node's limiter is told
    /// how the request ended, unless somebody has taken its permit meanwhile.
    pub(crate) async fn transmit(
        &self,
        node: &Node,
        parcels: Vec<Parcel>,
        permit: &Cell<Option<Permit>>,
    ) -> Vec<Transmitted> {
        let docs: Vec<u32> = parcels.iter().map(|parcel| parcel.docs).collect();
        let all: u32 = docs.iter().sum();
        let bytes = parcels.iter().map(|parcel| parcel.bytes).sum();
        let wording = Rc::clone(&parcels[0].wording);
        let outbound = self.outbound();
        if !self.group.consumer.may_send() {
            return Self::withheld(&docs);
        }
        let ((request_id, _beside), ids) = (self.together(&parcels), ids_of(&parcels));
        let departs: Vec<_> = parcels.iter().map(|parcel| Rc::clone(&parcel.sent)).collect();
        let body = Body::new(parcels.into_iter().map(|parcel| parcel.lines), self.worker.pool());
        let (headers, body) = self.encoded(body, &outbound).await;
        let message = Message {
            request_id: &request_id,
            purpose: Purpose::Part(all),
            method: &Method::POST,
            target: &wording.asked,
            headers: &headers,
        };
        depart(permit, &departs);
        self.group.requests.add(1);
        self.group.parts.add(docs.len() as u64);
        let room = (all, &self.shared.delivery_memory);
        let deadline = self.times(&outbound);
        let sent = (&*node.name, Instant::now());
        let answer = outbound.brief(node, message, body, deadline, room).await;
        let (mut outcomes, ended) = match answer {
            Ok(BulkAnswer { head, body, .. }) if docs.len() > 1 && may_blame_one(head.status, &body) => {
                if head.status == StatusCode::PAYLOAD_TOO_LARGE {
                    self.outlets.gate(node).too_large(bytes);
                }
                outbound.cluster().hint();
                let doubt = !is_refused_unexecuted(head.status, &body);
                return docs.iter().map(|_| Transmitted::Alone { doubt }).collect();
            }
            Ok(answer) => {
                let head = &answer.head;
                fault("reply", &answer.body);
                let mut outcomes = outcomes(head.status, &head.headers, &answer.body, all, sent);
                doubt(&mut outcomes, &answer.body, (&wording, &ids), &outbound);
                let outcomes = outcomes.holding(answer.held);
                let ended = self.load_of(node, answer.head.status, (bytes, sent.1), &outcomes);
                (outcomes, ended)
            }
            Err(error) => {
                let lost = (error.fate == Fate::Unknown).then_some(Ended::Lost);
                let outcome = Outcome::again(unanswered(&error));
                (Outcomes::of_all(&outcome, all), lost)
            }
        };
        assert_eq!(
            outcomes.len(),
            all as usize,
            "a request has an outcome for each of its operations"
        );
        if let (Some(permit), Some(ended)) = (permit.take(), ended) {
            permit.end(ended);
        }
        if !outcomes.are_done() {
            outbound.cluster().hint();
        }
        let told = docs.iter().map(|docs| outcomes.split_off_front(*docs));
        told.map(Transmitted::Outcomes).collect()
    }

    /// Returns the id of a request with these parcels, and the spans of the parcels whose traces it does not
    /// carry.
    fn together(&self, parcels: &[Parcel]) -> (RequestId, Vec<OpenSpan>) {
        let traces = parcels.iter().filter_map(|parcel| parcel.trace.as_ref());
        together(traces, &self.request_id)
    }

    /// Returns a body as it is sent, compressed if the pipeline says so, and its headers.
    pub(super) async fn encoded(&self, body: Body, outbound: &Outbound) -> (HeaderMap, Outgoing) {
        let mut headers = delivered_headers();
        if let Some(account) = self.account(outbound) {
            headers.insert(AUTHORIZATION, account);
        }
        if !self.group.settings.compress {
            return (headers, body.outgoing());
        }
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        (headers, Outgoing::from(body.compressed().await))
    }

    /// Derives the load of a node from its answer: the node worked on a request of this many bytes that began
    /// at `began`, or refused it. `None`: neither.
    fn load_of(
        &self,
        node: &Node,
        status: StatusCode,
        (bytes, began): (u64, Instant),
        outcomes: &Outcomes,
    ) -> Option<Ended> {
        let worked = status == StatusCode::OK;
        if worked {
            let gate = self.outlets.gate(node);
            gate.fitted(bytes);
            if outcomes.are_answered() {
                gate.took(began);
            }
        }
        if outcomes.are_busy() {
            Some(Ended::Refused)
        } else {
            worked.then_some(Ended::Worked { bytes })
        }
    }

    /// Returns when a request has to be answered. It must not wait for a connection for longer than its lanes
    /// are this gateway's.
    fn times(&self, outbound: &Outbound) -> SendTimes {
        SendTimes {
            overall: outbound.deadline(),
            start_by: self.group.consumer.may_send_until().map(Into::into),
        }
    }

    /// Returns the outcomes of parcels that are not sent, because the lanes may belong to another gateway.
    fn withheld(docs: &[u32]) -> Vec<Transmitted> {
        let why = "Kafka has not confirmed for a while that these lanes are this gateway's";
        let outcome = Outcome::again(Again::unsent(why.to_owned()));
        let told = docs.iter().map(|docs| Outcomes::of_all(&outcome, *docs));
        told.map(Transmitted::Outcomes).collect()
    }
}

/// Records that a request with these parcels is sent now.
fn depart(permit: &Cell<Option<Permit>>, parcels: &[Sent]) {
    if let Some(mut leave) = permit.take() {
        leave.sent();
        permit.set(Some(leave));
    }
    parcels.iter().for_each(|sent| sent.set(Some(Instant::now())));
}

/// Returns the numbers of the ids of the parcels' documents, if items are to be compared with them.
fn ids_of(parcels: &[Parcel]) -> Vec<u64> {
    let ids = parcels.iter().flat_map(|parcel| parcel.ids.iter().copied());
    ids.collect()
}

/// Marks outcomes that may be those of other operations of the request.
fn doubt(outcomes: &mut Outcomes, answer: &[u8], (wording, ids): (&Wording, &[u64]), outbound: &Outbound) {
    if wording.has_ids {
        doubt_misplaced(outcomes, answer, ids);
    }
    if !outbound.cluster().snapshot().table.dialect().ingests_singly() {
        doubt_shared(outcomes);
    }
}

/// Whether the answer to a whole request may be due to one parcel in it. More requests do not help a node
/// that has too much to do or waits too long.
fn may_blame_one(status: StatusCode, body: &[u8]) -> bool {
    // What is no server's may come from something on the way that looks at what is sent.
    let is_foreign = status.is_redirection() || status == StatusCode::OK && body.first() != Some(&b'{');
    let is_refusal = status.is_client_error() || status.is_server_error();
    let is_busy = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT
    );
    // Only a refusal is read: an answer to operations has an item for each of them.
    is_foreign || is_refusal && (!is_busy || is_block_of_index(status, body))
}

/// The id that log lines of a delivery carry.
pub(crate) fn own_id(queue: &str) -> RequestId {
    let text = format!("delivery-{queue}");
    RequestId::new(HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("delivery")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_searched_for_one_to_blame_and_answers_to_operations_are_not() {
        let block = br#"{"error":{"type":"cluster_block_exception","reason":"index [i] blocked by: [x];","index":"i"}}"#;
        let busy = br#"{"error":{"type":"es_rejected_execution_exception","reason":"no"}}"#;
        for (status, body, may_blame) in [
            (200, &block[..], false),
            (201, block, false),
            (200, b"<html>", true),
            (302, b"", true),
            (400, busy, true),
            (403, block, true),
            (408, block, false),
            (413, b"", true),
            (429, block, true),
            (429, busy, false),
            (503, busy, true),
            (504, block, false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(may_blame_one(status, body), may_blame, "{status}");
        }
    }
}
