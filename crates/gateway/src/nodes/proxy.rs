//! The filter `elasticsearch`: streams any API request to a healthy node, and the answer back.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use cluster::{Cluster, Node, PickReason, Snapshot};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HOST};
use http::request::Parts;
use http::{Method, Response, response};
use tokio::time::Instant;
use wire::{BodyError, Buffer, Fate, Incoming, Outgoing, PooledBytes, SendError, SendErrorKind};

use crate::error::{Fault, ReplyTooLarge};
use crate::metrics::Counters;
use crate::nodes::credentials::Fallback;
use crate::nodes::outbound::{Message, Outbound, Purpose};
use crate::nodes::relay::Relay;
use crate::nodes::tries::Tries;
use crate::nodes::unquoted::{self, OwnRequest};
use crate::request_id::RequestId;

/// Forwards requests, with one instance per core.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) outbound: Outbound,
    pub(crate) fallback: Fallback,
    pub(crate) response_bytes_max: Option<u64>,
    pub(crate) counters: Arc<Counters>,
}

/// A body that is passed on.
pub(crate) enum Body {
    /// The body is streamed as it comes, and can be sent once.
    Streamed(Incoming),
    /// The body is held in memory, and can be sent again.
    Held(PooledBytes),
}

impl Proxy {
    /// Forwards a request. Another node is tried where that is safe: when nothing was sent, or when the
    /// method has no effects and a kept connection turned out to be dead.
    pub(crate) async fn forward(
        &self,
        mut head: Parts,
        body: Body,
        reason: PickReason,
    ) -> Result<Response<Outgoing>, Fault> {
        let target = head
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str())
            .to_owned();
        wire::strip_hop_by_hop(&mut head.headers, &[HOST]);
        let body = self.settle(body).await?;
        let snapshot = self.outbound.cluster().snapshot();
        // Errors quote what was read as a body. A client without a body gets its answer unchanged, compressed
        // if it accepts that.
        if !matches!(body, Sendable::Nothing) && unquoted::may_quote(&snapshot) {
            return self
                .forward_to_quoting(head, &target, body, reason, &snapshot)
                .await;
        }
        let reached = self.reach(&mut head, &target, body, reason, &snapshot).await?;
        self.answer(reached, RequestId::of(&head.extensions))
    }

    /// Forwards a request to a cluster whose errors quote: an answer that may quote is read completely, and
    /// passed on without quotes of other clients.
    async fn forward_to_quoting(
        &self,
        mut head: Parts,
        target: &str,
        body: Sendable,
        reason: PickReason,
        snapshot: &Snapshot,
    ) -> Result<Response<Outgoing>, Fault> {
        head.headers.remove(ACCEPT_ENCODING);
        let lent = self.fallback.would_fill(&head.headers);
        let asked = OwnRequest::new(&head.method, target, &head.headers, body.held(), lent);
        let request_id = RequestId::of(&head.extensions);
        let reached = self.reach(&mut head, target, body, reason, snapshot).await?;
        if head.method == Method::HEAD || !asked.may_be_quoted(reached.0.status()) {
            return self.answer(reached, request_id);
        }
        let (reply, node, began) = reached;
        let (mut told, body) = reply.into_parts();
        wire::strip_hop_by_hop(&mut told.headers, &[]);
        let bytes_max = self.response_bytes_max.unwrap_or(ANSWER_BYTES_MAX);
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        match body.collect(bytes_max).await {
            Ok(body) => {
                let unquoted = unquoted::without_others(told.status, &told.headers, &body, &asked);
                told.headers.remove(CONTENT_LENGTH);
                let body = match unquoted {
                    Some(unquoted) => Outgoing::from(unquoted),
                    None => Outgoing::from(body.freeze()),
                };
                Ok(Response::from_parts(told, body))
            }
            Err(error) => {
                self.outbound.ledger().failed(&node, &error, began, &request_id);
                Err(Fault::upstream(&error))
            }
        }
    }

    /// Sends a request with a body and a target of the gateway's own, and waits for its complete answer,
    /// which comes uncompressed.
    pub(crate) async fn fetch(
        &self,
        head: &mut Parts,
        target: &str,
        body: Bytes,
    ) -> Result<(response::Parts, Buffer), Fault> {
        wire::strip_hop_by_hop(&mut head.headers, &[HOST, CONTENT_ENCODING, ACCEPT_ENCODING]);
        let body = match body.is_empty() {
            true => Sendable::Nothing,
            false => Sendable::Made(body),
        };
        let snapshot = self.outbound.cluster().snapshot();
        let reached = self.reach(head, target, body, PickReason::Request, &snapshot);
        let (reply, node, began) = reached.await?;
        let (answer, body) = reply.into_parts();
        let bytes_max = self.response_bytes_max.unwrap_or(ANSWER_BYTES_MAX);
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        match body.collect(bytes_max).await {
            Ok(body) => Ok((answer, body)),
            Err(error) => {
                let request_id = RequestId::of(&head.extensions);
                self.outbound.ledger().failed(&node, &error, began, &request_id);
                Err(Fault::upstream(&error))
            }
        }
    }

    /// Returns the cluster that requests go to.
    pub(crate) fn cluster(&self) -> &Cluster {
        self.outbound.cluster()
    }

    /// Returns the answer to a client whose body could not be read.
    pub(crate) fn unread(&self, error: &BodyError) -> Fault {
        let fault = Fault::body(error);
        self.counters.clients_gone.add(u64::from(fault.is_none()));
        fault.unwrap_or_else(Fault::gone)
    }

    /// Sends a request to a node of `snapshot`, and waits for the head of its answer.
    async fn reach(
        &self,
        head: &mut Parts,
        target: &str,
        mut body: Sendable,
        reason: PickReason,
        snapshot: &Snapshot,
    ) -> Result<Reached, Fault> {
        self.fallback.fill(&mut head.headers);
        self.counters.forwarded.add(1);
        let request_id = RequestId::of(&head.extensions);
        let message = Message {
            request_id: &request_id,
            purpose: Purpose::Forward,
            method: &head.method,
            target,
            headers: &head.headers,
        };
        let deadline = self.outbound.deadline();
        let mut tries = Tries::new(&self.outbound, snapshot);
        let mut unsent = true;
        loop {
            let node = tries.pick(reason);
            let (sending, again) = body.take();
            let began = Instant::now();
            match self.outbound.pass_on(&node, message, sending, deadline).await {
                Ok(reply) => return Ok((reply, node, began)),
                Err(error) => {
                    unsent &= error.fate == Fate::NothingSent;
                    if again.is_none() || !may_repeat(&head.method, &error) || !tries.may_retry(unsent) {
                        self.counters.clients_gone.add(u64::from(client_gone(&error)));
                        return Err(Fault::upstream(&error));
                    }
                    tries.retry(Some(node)).await;
                    self.counters.forwarded_retried.add(1);
                }
            }
            body = again.unwrap_or(Sendable::Nothing);
        }
    }

    /// Prepares a body. Small bodies are read first, so that another node can be tried; large ones are
    /// streamed.
    async fn settle(&self, body: Body) -> Result<Sendable, Fault> {
        match body {
            Body::Held(bytes) => Ok(Sendable::Held(bytes)),
            Body::Streamed(incoming) => match incoming.length() {
                Some(0) => Ok(Sendable::Nothing),
                Some(length) if length <= HELD_BYTES_MAX => {
                    match incoming.collect_raw(HELD_BYTES_MAX as usize).await {
                        Ok(bytes) => Ok(Sendable::Held(bytes.freeze())),
                        Err(error) => Err(self.unread(&error)),
                    }
                }
                _ => Ok(Sendable::Once(incoming)),
            },
        }
    }

    fn answer(
        &self,
        (reply, node, began): Reached,
        request_id: RequestId,
    ) -> Result<Response<Outgoing>, Fault> {
        let (mut head, body) = reply.into_parts();
        wire::strip_hop_by_hop(&mut head.headers, &[]);
        if let (Some(limit), Some(length)) = (self.response_bytes_max, body.length())
            && length > limit
        {
            return Err(Fault::reply_too_large(ReplyTooLarge(limit)));
        }
        let ledger = Rc::clone(self.outbound.ledger());
        let body = Relay::of(body, self.response_bytes_max, ledger, node, began, request_id);
        Ok(Response::from_parts(head, body))
    }
}

/// The head of an answer, the node that gave it, and when the node was asked.
type Reached = (wire::Reply, Arc<Node>, Instant);

enum Sendable {
    Nothing,
    Made(Bytes),
    Held(PooledBytes),
    Once(Incoming),
}

impl Sendable {
    /// Returns the client's body, if it is in memory.
    fn held(&self) -> Option<PooledBytes> {
        match self {
            Sendable::Held(body) => Some(body.clone()),
            Sendable::Nothing | Sendable::Made(_) | Sendable::Once(_) => None,
        }
    }

    /// Returns what to send now, and what is left to send again.
    fn take(self) -> (Outgoing, Option<Sendable>) {
        match self {
            Sendable::Nothing => (Outgoing::Empty, Some(Sendable::Nothing)),
            Sendable::Made(bytes) => (Outgoing::from(bytes.clone()), Some(Sendable::Made(bytes))),
            Sendable::Held(bytes) => (Outgoing::from(bytes.clone()), Some(Sendable::Held(bytes))),
            Sendable::Once(incoming) => (incoming.forward(), None),
        }
    }
}

/// Returns whether an exchange failed because the client left in the middle of its body.
fn client_gone(error: &SendError) -> bool {
    let SendErrorKind::Body(source) = &error.kind else {
        return false;
    };
    matches!(
        source.downcast_ref(),
        Some(BodyError::Disconnected | BodyError::Io(_))
    )
}

fn may_repeat(method: &Method, error: &SendError) -> bool {
    match error.fate {
        Fate::NothingSent => true,
        Fate::Unknown => error.reused && matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS),
    }
}

/// The largest body, in bytes, that is held so that it can be sent again.
const HELD_BYTES_MAX: u64 = 256 << 10;

/// The default limit, in bytes, for answers that are read completely.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
