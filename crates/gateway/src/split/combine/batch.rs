//! One request that carries several clients' parts, and each client's share of the answer.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bulk::Reply;
use cluster::Node;
use http::{StatusCode, response};
use tokio::sync::oneshot;
use traces::{OpenSpan, SpanKind};
use wire::codec::ReplyFault;
use wire::guard::fault;
use wire::{Fate, PooledBytes, SendError, SendErrorKind};

use super::company::NameHash;
use super::{CombinedRemote, Family, Inner, Lease};
use crate::gather::Weight;
use crate::nodes::lines::{Body, Lines, PlannedBody};
use crate::nodes::{Message, Purpose, SendTimes, is_unexecuted};
use crate::request_id::{RequestId, together};
use crate::split::part::{AnswerBody, Split};

/// A client's part that waits or travels.
pub(super) struct Member {
    load: Arc<PlannedBody>,
    /// The index of the part in its plan.
    part: usize,
    several: Option<Arc<[NameHash]>>,
    request_id: RequestId,
    deadline: tokio::time::Instant,
    /// The wait, if it is traced.
    wait: Option<OpenSpan>,
    tell: oneshot::Sender<CombinedRemote>,
}

// === impl Member ===

impl Member {
    pub(super) fn new(
        part: usize,
        split: Split<'_>,
        several: Option<Arc<[NameHash]>>,
        tell: oneshot::Sender<CombinedRemote>,
    ) -> Self {
        Self {
            load: Arc::clone(split.load),
            part,
            several,
            request_id: split.message.request_id.clone(),
            deadline: split.deadline,
            wait: split.message.request_id.begin("wait", SpanKind::Internal),
            tell,
        }
    }

    /// Returns the indices of the part's bulk, if they are several.
    pub(super) fn several(&self) -> Option<Arc<[NameHash]>> {
        self.several.clone()
    }

    /// Returns whether this is that part of that bulk.
    pub(super) fn is(&self, load: &Arc<PlannedBody>, part: usize) -> bool {
        self.part == part && Arc::ptr_eq(&self.load, load)
    }

    /// Tells the member's task. The task may be gone, as after its deadline; it needs no answer then.
    pub(super) fn tell(self, told: CombinedRemote) {
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

/// The members of a request that is under way. A member that has not been told when this is dropped, as after
/// a panic, is told that it is unknown what was executed. Its part is then sent separately.
struct Members(VecDeque<Member>);

/// Notices that a request is slow, and which indices its bulks name.
pub(crate) struct SlowWatch {
    pub(super) family: Arc<Family>,
    pub(super) names: Vec<Arc<[NameHash]>>,
    /// How long the request may take before it is slow.
    pub(super) slow_after: Duration,
}

impl SlowWatch {
    /// Waits for the answer. If it is slow, parts that come meanwhile no longer travel with these indices.
    pub(crate) async fn over<T>(watch: Option<Self>, mut exchange: Pin<&mut impl Future<Output = T>>) -> T {
        let Some(watch) = watch else { return exchange.await };
        match tokio::time::timeout(watch.slow_after, &mut exchange).await {
            Ok(answer) => answer,
            Err(_) => {
                watch.family.is_slow(&watch.names);
                exchange.await
            }
        }
    }
}

/// Sends parts together and gives each client its share.
pub(super) async fn send(node: Arc<Node>, mut lease: Lease, members: Vec<Member>) {
    let combiner = lease.combiner.clone();
    let inner = &*combiner.0;
    let mut members = Members(members.into());
    inner.counters.combined_requests.add(1);
    inner.counters.combined_parts.add(members.0.len() as u64);
    let watch = lease.slow_watch();
    let soonest = members.0.iter().map(|member| member.deadline).min();
    let answer = {
        let exchange = pin!(inner.exchange(&node, &mut lease, members.0.make_contiguous()));
        SlowWatch::over(watch, exchange).await
    };
    // The next request need not wait until the shares of this answer are distributed.
    drop(lease);
    match answer {
        Ok((head, body)) if head.status == StatusCode::OK => inner.share(&node, &head, &body, members),
        // Such an answer is about all members together, and each client may only read about its own part.
        Ok((head, body)) => {
            inner.counters.combined_again.add(members.0.len() as u64);
            let unexecuted = is_unexecuted(head.status, &body);
            members.tell_each(|_| match unexecuted {
                true => CombinedRemote::Alone(None),
                false => CombinedRemote::Doubted(format!(
                    "a request that carried it with others was answered {}",
                    head.status
                )),
            });
        }
        // It waited for a connection until the first of them was late. Others may still leave by themselves.
        Err(error) if error.fate == Fate::NothingSent && soonest.is_some_and(|soonest| soonest <= now()) => {
            members.tell_each(|member| match member.deadline > now() {
                true => CombinedRemote::Alone(None),
                false => CombinedRemote::Shared(Err(error.again())),
            });
        }
        Err(error) => members.tell_each(|_| CombinedRemote::Shared(Err(error.again()))),
    }
}

fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

// === impl Members ===

impl Members {
    fn tell_each(mut self, mut told: impl FnMut(&Member) -> CombinedRemote) {
        while let Some(member) = self.0.front() {
            let told = told(member);
            if let Some(member) = self.0.pop_front() {
                member.tell(told);
            }
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for member in self.0.drain(..) {
            let why = "the gateway failed on the answer to a request that carried it with others";
            member.tell(CombinedRemote::Doubted(why.to_owned()));
        }
    }
}

// === impl Inner ===

impl Inner {
    async fn exchange(
        &self,
        node: &Node,
        lease: &mut Lease,
        members: &mut [Member],
    ) -> Result<(response::Parts, PooledBytes), SendError> {
        members.iter_mut().for_each(|member| drop(member.wait.take()));
        let traces = members.iter().filter_map(|member| member.request_id.trace());
        let (request_id, _beside) = together(traces, &members[0].request_id);
        // Each member gives up at its own deadline, and nothing of it may be sent later.
        let deadlines = members.iter().map(|member| member.deadline);
        let (soonest, latest) = (deadlines.clone().min(), deadlines.max());
        let ticket = lease.ticket.as_ref().expect("it is given back with the lease");
        let family = Arc::clone(&ticket.family);
        let message = Message {
            request_id: &request_id,
            purpose: Purpose::Part(members.iter().map(Member::docs).sum()),
            method: &family.method,
            target: &family.target,
            headers: &family.headers,
        };
        let deadline = SendTimes {
            overall: latest.unwrap_or_else(|| self.outbound.deadline()),
            start_by: soonest,
        };
        let bytes = members.iter().map(Member::bytes).sum();
        let lines = members
            .iter()
            .map(|member| Lines::part(&member.load, member.part));
        let body = Body::new(lines, &self.pool).outgoing();
        lease.sent();
        let answer = self.outbound.whole(node, message, body, deadline).await;
        lease.ended(answer.as_ref().map(|(head, body)| (head.status, &**body)), bytes);
        answer.map(|(head, body)| (head, body.freeze()))
    }

    fn share(&self, node: &Node, head: &response::Parts, body: &PooledBytes, members: Members) {
        fault("combined", body);
        let docs = members.0.iter().map(Member::docs).sum();
        let reply = match Reply::split(body, docs) {
            Ok(reply) => reply,
            Err(error) => {
                self.counters.replies_malformed.add(1);
                let request_id = &members.0[0].request_id;
                wire::rationed!(tracing::warn, %request_id, %error, "a node's bulk answer cannot be used");
                let error = || SendError {
                    kind: SendErrorKind::Malformed(ReplyFault::Content("not the answer to a bulk request")),
                    fate: Fate::Unknown,
                    reused: false,
                    origin: node.address.authority().into(),
                };
                return members.tell_each(|_| CombinedRemote::Shared(Err(error())));
            }
        };
        let mut first = 0;
        members.tell_each(|member| {
            let docs = member.docs();
            let words = AnswerBody {
                all: body.clone(),
                share: Some(Box::new(reply.share(first, docs))),
            };
            first += docs;
            CombinedRemote::Shared(Ok((head.clone(), words)))
        });
    }
}
