//! One request that carries several clients' parts, and each client's share of the answer.

use std::sync::Arc;

use bulk::Reply;
use cluster::Node;
use http::{StatusCode, response};
use tokio::sync::oneshot;
use wire::{Fate, SendError, SendErrorKind, Shared};

use super::slot::Weight;
use super::{Inner, Told, Turn};
use crate::lines::{Body, Lines, Load};
use crate::outbound::Message;
use crate::part::{Split, Words};
use crate::refusal::is_unexecuted;
use crate::request_id::RequestId;

/// A client's part that waits or travels.
pub(super) struct Member {
    load: Arc<Load>,
    /// Which of its parts.
    part: usize,
    request_id: RequestId,
    deadline: tokio::time::Instant,
    tell: oneshot::Sender<Told>,
}

// === impl Member ===

impl Member {
    pub(super) fn new(part: usize, split: Split<'_>, tell: oneshot::Sender<Told>) -> Self {
        Self {
            load: Arc::clone(split.load),
            part,
            request_id: split.message.request_id.clone(),
            deadline: split.deadline,
            tell,
        }
    }

    /// A request that was cut short by the end of the process needs no answer.
    pub(super) fn tell(self, told: Told) {
        drop(self.tell.send(told));
    }
}

impl Weight for Member {
    fn bytes(&self) -> u64 {
        self.load.plan.parts[self.part].bytes
    }

    fn docs(&self) -> u32 {
        self.load.plan.parts[self.part].docs
    }
}

/// Sends parts together and gives each client its share.
pub(super) async fn send(node: Arc<Node>, mut turn: Turn, members: Vec<Member>) {
    let combiner = turn.combiner.clone();
    let inner = &*combiner.0;
    inner.counters.combined_requests.add(1);
    inner.counters.combined_parts.add(members.len() as u64);
    let answer = inner.exchange(&node, &mut turn, &members).await;
    // The next ones need not wait for this one's shares.
    drop(turn);
    match answer {
        Ok((head, body)) if head.status == StatusCode::OK => inner.share(&node, &head, body, members),
        // Whatever it says, it says it of all of them: each is to hear of its own only.
        Ok((head, body)) => {
            inner.counters.combined_again.add(members.len() as u64);
            let unexecuted = is_unexecuted(head.status, &body);
            for member in members {
                member.tell(match unexecuted {
                    true => Told::Alone(None),
                    false => Told::Doubted(head.status),
                });
            }
        }
        Err(error) => {
            for member in members {
                member.tell(Told::Shared(Err(error.again())));
            }
        }
    }
}

// === impl Inner ===

impl Inner {
    async fn exchange(
        &self,
        node: &Node,
        turn: &mut Turn,
        members: &[Member],
    ) -> Result<(response::Parts, Shared), SendError> {
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
        let lines = members
            .iter()
            .map(|member| Lines::part(&member.load, member.part));
        let body = Body::new(lines, &self.pool).outgoing();
        turn.sent();
        let answer = self.outbound.whole(node, message, body, deadline).await;
        turn.ended(answer.as_ref().map(|(head, body)| (head.status, &**body)), bytes);
        answer.map(|(head, body)| (head, body.freeze()))
    }

    fn share(&self, node: &Node, head: &response::Parts, body: Shared, members: Vec<Member>) {
        let docs = members.iter().map(Member::docs).sum();
        let reply = match Reply::split(&body, docs) {
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
            let words = Words {
                all: body.clone(),
                share: Some(Box::new(reply.share(first, docs))),
            };
            first += docs;
            member.tell(Told::Shared(Ok((head.clone(), words))));
        }
    }
}
