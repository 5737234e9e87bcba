//! One request that carries several clients' parts, and each client's share of the answer.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bulk::{Gather, Reply};
use cluster::Node;
use http::{StatusCode, response};
use tokio::sync::oneshot;
use wire::{Buffer, CHUNK_BYTES, Fate, Outgoing, Pool, SendError, SendErrorKind};

use super::{Inner, Turn, Way};
use crate::outbound::Message;
use crate::part::{Load, REPLY_BYTES_MAX, Split};
use crate::request_id::RequestId;

/// A client's part that waits or travels.
pub(super) struct Member {
    load: Rc<Load>,
    part: usize,
    request_id: RequestId,
    deadline: tokio::time::Instant,
    came: Instant,
    way: oneshot::Sender<Way>,
}

// === impl Member ===

impl Member {
    pub(super) fn new(part: usize, split: Split<'_>, way: oneshot::Sender<Way>) -> Self {
        Self {
            load: Rc::clone(split.load),
            part,
            request_id: split.message.request_id.clone(),
            deadline: split.deadline,
            came: Instant::now(),
            way,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.load.plan.parts[self.part].bytes
    }

    pub(super) fn docs(&self) -> u32 {
        self.load.plan.parts[self.part].docs
    }

    /// A request that was cut short by the end of the process needs no answer.
    pub(super) fn tell(self, way: Way) {
        drop(self.way.send(way));
    }
}

// === impl Inner ===

impl Inner {
    /// Sends the parts together and gives each client its share.
    pub(super) async fn send(self: Rc<Self>, node: Arc<Node>, turn: Turn, members: Vec<Member>) {
        self.counters.combined_requests.add(1);
        self.counters.combined_parts.add(members.len() as u64);
        let answer = self.exchange(&node, &turn, &members).await;
        // The next ones need not wait for this one's shares.
        drop(turn);
        match answer {
            Ok((head, body)) if head.status == StatusCode::OK => self.share(&node, &head, &body, members),
            Ok((head, body)) if head.status == StatusCode::TOO_MANY_REQUESTS => {
                for member in members {
                    let mut copy = self.pool.take(body.len());
                    copy.extend_from_slice(&body);
                    member.tell(Way::Shared(Ok((head.clone(), copy))));
                }
            }
            // Refused as a whole, so nothing was executed, and one of them may be to blame for all.
            Ok(_) => {
                self.counters.combined_again.add(members.len() as u64);
                members
                    .into_iter()
                    .for_each(|member| member.tell(Way::Alone(None)));
            }
            Err(error) => {
                for member in members {
                    member.tell(Way::Shared(Err(error.again())));
                }
            }
        }
    }

    async fn exchange(
        &self,
        node: &Node,
        turn: &Turn,
        members: &[Member],
    ) -> Result<(response::Parts, Buffer), SendError> {
        let request_id = &members[0].request_id;
        let deadline = members.iter().map(|member| member.deadline).min();
        let message = Message {
            request_id,
            method: &turn.family.method,
            target: &turn.family.target,
            headers: &turn.family.headers,
        };
        let deadline = deadline.unwrap_or_else(|| self.outbound.deadline());
        let began = tokio::time::Instant::now();
        let body = body(members, &self.pool);
        let reply = self.outbound.exchange(node, message, body, deadline).await?;
        let (head, body) = reply.into_parts();
        match body.collect(REPLY_BYTES_MAX).await {
            Ok(body) => Ok((head, body)),
            Err(error) => {
                self.outbound.ledger().failed(node, &error, began, request_id);
                Err(error)
            }
        }
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
                    member.tell(Way::Shared(Err(error)));
                }
                return;
            }
        };
        let mut first = 0;
        for member in members {
            let docs = member.docs();
            let took_ms = u64::try_from(member.came.elapsed().as_millis()).unwrap_or(u64::MAX);
            let expected = body.len() * docs as usize / reply.items() as usize + SHARE_FRAME_BYTES;
            let mut own = self.pool.take(expected);
            reply.share(first, docs, took_ms, own.as_mut_vec());
            first += docs;
            member.tell(Way::Shared(Ok((head.clone(), own))));
        }
    }
}

/// The parts' bytes one after another, copied together chunk by chunk as the connection takes them.
fn body(members: &[Member], pool: &Pool) -> Outgoing {
    let bytes = members.iter().map(Member::bytes).sum();
    let mut left: VecDeque<_> = members
        .iter()
        .map(|member| (Rc::clone(&member.load), member.part, Gather::default()))
        .collect();
    let mut bytes_left = usize::try_from(bytes).unwrap_or(usize::MAX);
    let pool = pool.clone();
    Outgoing::gather(bytes, move || {
        let mut chunk = pool.take(bytes_left.min(CHUNK_BYTES));
        let mut room = CHUNK_BYTES;
        while room > 0
            && let Some((load, part, gather)) = left.front_mut()
        {
            let part = &load.plan.parts[*part];
            let copied = gather.next(&load.plan, part, &load.body, chunk.as_mut_vec(), room);
            room -= copied;
            bytes_left = bytes_left.saturating_sub(copied);
            if copied == 0 {
                left.pop_front();
            }
        }
        (room < CHUNK_BYTES).then(|| chunk.into())
    })
}

/// What stands around the items of an answer, and some room: items differ in length.
const SHARE_FRAME_BYTES: usize = 256;
