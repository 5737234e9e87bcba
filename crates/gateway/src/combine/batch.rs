//! One request that carries several clients' parts, and each client's share of the answer.

use std::sync::Arc;
use std::time::Instant;

use bulk::{Gather, Reply};
use cluster::Node;
use http::{StatusCode, response};
use tokio::sync::oneshot;
use wire::{Buffer, CHUNK_BYTES, Fate, Held, Outgoing, Pool, SendError, SendErrorKind};

use super::slot::Weight;
use super::{Inner, Told, Turn};
use crate::outbound::Message;
use crate::part::Split;
use crate::request_id::RequestId;

/// A client's part that waits or travels.
pub(super) struct Member {
    /// Its operations, until they are sent.
    lines: Vec<u8>,
    docs: u32,
    request_id: RequestId,
    deadline: tokio::time::Instant,
    came: Instant,
    tell: oneshot::Sender<Told>,
    /// What its copy of the operations takes.
    memory: Option<Held>,
}

// === impl Member ===

impl Member {
    /// `memory`: what the budget holds for the part's bytes.
    pub(super) fn new(part: usize, split: Split<'_>, memory: Held, tell: oneshot::Sender<Told>) -> Self {
        let load = split.load;
        let part = &load.plan.parts[part];
        let bytes = usize::try_from(part.bytes).unwrap_or(usize::MAX);
        let mut lines = Vec::with_capacity(bytes);
        Gather::default().next(&load.plan, part, &load.body, &mut lines, bytes);
        Self {
            lines,
            docs: part.docs,
            request_id: split.message.request_id.clone(),
            deadline: split.deadline,
            came: Instant::now(),
            tell,
            memory: Some(memory),
        }
    }

    /// A request that was cut short by the end of the process needs no answer.
    pub(super) fn tell(self, told: Told) {
        drop(self.tell.send(told));
    }
}

impl Weight for Member {
    fn bytes(&self) -> u64 {
        self.lines.len() as u64
    }

    fn docs(&self) -> u32 {
        self.docs
    }
}

/// Sends parts together and gives each client its share.
pub(super) async fn send(node: Arc<Node>, mut turn: Turn, mut members: Vec<Member>) {
    let combiner = turn.combiner.clone();
    let inner = &*combiner.0;
    inner.counters.combined_requests.add(1);
    inner.counters.combined_parts.add(members.len() as u64);
    let answer = inner.exchange(&node, &mut turn, &mut members).await;
    // The next ones need not wait for this one's shares.
    drop(turn);
    match answer {
        Ok((head, body)) if head.status == StatusCode::OK => inner.share(&node, &head, &body, members),
        Ok((head, body)) if !blames_one(head.status) => {
            for member in members {
                member.tell(Told::Shared(Ok((head.clone(), body.to_vec()))));
            }
        }
        Ok(_) => {
            inner.counters.combined_again.add(members.len() as u64);
            for member in members {
                member.tell(Told::Alone(None));
            }
        }
        Err(error) => {
            for member in members {
                member.tell(Told::Shared(Err(error.again())));
            }
        }
    }
}

/// Whether a whole request was refused for what it holds: then nothing was executed, and one of them may be to blame for all.
/// Of the others each client is told: the node has too much to do, or something on the way to it may have given up on a
/// request that the node executes.
fn blames_one(status: StatusCode) -> bool {
    status.is_client_error()
        && status != StatusCode::TOO_MANY_REQUESTS
        && status != StatusCode::REQUEST_TIMEOUT
}

// === impl Inner ===

impl Inner {
    async fn exchange(
        &self,
        node: &Node,
        turn: &mut Turn,
        members: &mut [Member],
    ) -> Result<(response::Parts, Buffer), SendError> {
        let request_id = members[0].request_id.clone();
        let deadline = members.iter().map(|member| member.deadline).min();
        let ticket = turn.ticket.as_ref().expect("it is given back with the turn");
        let family = Arc::clone(&ticket.family);
        let message = Message {
            request_id: &request_id,
            method: &family.method,
            target: &family.target,
            headers: &family.headers,
        };
        let deadline = deadline.unwrap_or_else(|| self.outbound.deadline());
        let bytes = members.iter().map(Member::bytes).sum();
        let body = body(members, &self.pool);
        turn.sent();
        let answer = self.outbound.whole(node, message, body, deadline).await;
        turn.ended(answer.as_ref().map(|(head, body)| (head.status, &**body)), bytes);
        answer
    }

    fn share(&self, node: &Node, head: &response::Parts, body: &[u8], members: Vec<Member>) {
        let docs = members.iter().map(Member::docs).sum();
        let reply = match Reply::split(body, docs) {
            Ok(reply) => reply,
            Err(error) => {
                self.counters.replies_malformed.add(1);
                let request_id = &members[0].request_id;
                wire::rationed!(tracing::warn, %request_id, %error, "a node's bulk answer cannot be used");
                for member in members {
                    let error = SendError {
                        kind: SendErrorKind::Malformed("not the answer to a bulk request"),
                        fate: Fate::Unknown,
                        reused: false,
                        origin: node.address.authority().into(),
                    };
                    member.tell(Told::Shared(Err(error)));
                }
                return;
            }
        };
        let mut first = 0;
        for member in members {
            let docs = member.docs();
            let took_ms = u64::try_from(member.came.elapsed().as_millis()).unwrap_or(u64::MAX);
            let expected = body.len() * docs as usize / reply.items() as usize + SHARE_FRAME_BYTES;
            let mut own = Vec::with_capacity(expected);
            reply.share(first, docs, took_ms, &mut own);
            first += docs;
            member.tell(Told::Shared(Ok((head.clone(), own))));
        }
    }
}

/// The parts' bytes one after another, copied together chunk by chunk as the connection takes them.
fn body(members: &mut [Member], pool: &Pool) -> Outgoing {
    let bytes = members.iter().map(Member::bytes).sum();
    let parts: Vec<_> = members
        .iter_mut()
        .map(|member| (std::mem::take(&mut member.lines), member.memory.take()))
        .collect();
    let (mut part, mut at) = (0, 0);
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    let pool = pool.clone();
    Outgoing::gather(bytes, move || {
        let room = left.min(CHUNK_BYTES);
        let mut chunk = pool.take(room);
        while chunk.len() < room {
            let rest = &parts[part].0[at..];
            let copied = rest.len().min(room - chunk.len());
            chunk.extend_from_slice(&rest[..copied]);
            at += copied;
            if copied == rest.len() {
                (part, at) = (part + 1, 0);
            }
        }
        left -= room;
        (room > 0).then(|| chunk.into())
    })
}

/// What stands around the items of an answer, and some room: items differ in length.
const SHARE_FRAME_BYTES: usize = 256;
