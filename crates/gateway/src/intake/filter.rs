//! Reads a request's head and body, and has it decided about ([`decide`](super::decide)) if it is a bulk.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::Snapshot;
use config::Level;
use http::Response;
use http::request::Parts;
use wire::{BodyError, Collected, Incoming, Outgoing, PooledBytes};

use crate::admission::form::FormQuestion;
use crate::admission::rights::{ClusterRights, Senders, Stranger};
use crate::bulk_request;
use crate::bulk_request::RequestKind;
use crate::error::{Fault, Rejection};
use crate::intake::chosen_flows::{ChosenFlows, LinesChecked};
use crate::intake::decide::Decided;
use crate::intake::packed::Coding;
use crate::intake::queued_answer::AnswerShape;
use crate::intake::{chosen_flows, packed};
use crate::metrics::Counters;
use crate::nodes::{Body, Fallback, Outbound};
use crate::queue::Accept;
use crate::request_id::RequestId;
use crate::reshuffle::{BulkRequest, Reshuffle, is_of_nodes};
use crate::why::HeadWhy;

/// Takes bulks and leads them through the gateway, with one instance per core.
pub(crate) struct Intake {
    pub(crate) reshuffle: Reshuffle,
    /// In asynchronous mode: the way into the queue for bulks that would otherwise be split.
    pub(crate) queueing: Option<Queueing>,
    /// The users whose shares of memory bodies count for.
    pub(crate) senders: Senders,
    /// The way to the nodes, for questions.
    pub(crate) outbound: Rc<Outbound>,
    pub(crate) fallback: Fallback,
    /// The largest decoded body in bytes. The cluster's own limit applies too.
    pub(crate) body_bytes_max: u64,
    pub(crate) counters: Arc<Counters>,
}

/// The way into a queue.
pub(crate) struct Queueing {
    pub(crate) accept: Accept,
    /// Who may write to the queue's cluster.
    pub(crate) rights: Arc<ClusterRights>,
}

/// What the filter did with a request.
pub(crate) enum Taken {
    /// The filter answered the request.
    Done(Response<Outgoing>),
    /// The filter left the request to the next filter, whole. In asynchronous mode the request may have to
    /// wait for what is queued.
    Next(Parts, Body, Passing),
}

/// What a queue has to know about a request that goes on to the next filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Passing {
    /// Why the request is not queued, in the words of the counters.
    pub(crate) why: &'static str,
    /// The lanes whose documents the request may touch, or `None` if they are unknown.
    pub(crate) lanes: Option<Vec<u32>>,
}

/// A body that has been read completely.
pub(crate) struct HeldBody {
    /// The decoded body.
    pub(crate) body: PooledBytes,
    /// The body as it came, if that differs from the decoded one. A request passes as it came, since nodes
    /// differ in which compressed bodies they accept.
    pub(crate) original: Option<PooledBytes>,
}

/// A body that cannot be read.
pub(crate) enum Unread {
    /// The body does not match its content encoding. This is the body as it came.
    Corrupt(PooledBytes),
    /// The body did not arrive completely.
    Refused(Fault),
}

// === impl Passing ===

impl Passing {
    /// Returns a request for which it is unknown what it touches.
    pub(crate) fn unknown(why: &'static str) -> Self {
        Self { why, lanes: None }
    }
}

// === impl Intake ===

impl Intake {
    /// Takes a request that may be a bulk.
    pub(crate) async fn take(&self, head: Parts, incoming: Incoming) -> Result<Taken, Rejection> {
        let coding = Coding::accepted(&head.headers).filter(|_| self.packs());
        let step = self.take_unpacked(head, incoming).await;
        let (answer, coding) = match (step, coding) {
            (Ok(Taken::Done(answer)), Some(coding)) => (answer, coding),
            (Err(rejection), Some(coding)) => (rejection.response(), coding),
            (step, _) => return step,
        };
        Ok(Taken::Done(
            packed::answer(answer, coding, &self.reshuffle.pool).await,
        ))
    }

    /// Returns whether answers are compressed for clients that accept it, which is so if the cluster's nodes
    /// do the same.
    fn packs(&self) -> bool {
        let compresses = |snapshot: &Snapshot| snapshot.compresses_answers;
        self.reshuffle.settings.compress_answers && self.outbound.cluster().look(compresses)
    }

    async fn take_unpacked(&self, head: Parts, incoming: Incoming) -> Result<Taken, Rejection> {
        let target = head
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str())
            .to_owned();
        if self.queueing.is_none() {
            return self.take_as(head, &target, incoming).await;
        }
        let (shape, target) = AnswerShape::take_off(&target);
        match self.take_as(head, &target, incoming).await {
            Ok(Taken::Done(answer)) => Ok(Taken::Done(shape.apply(answer).await)),
            other => other,
        }
    }

    /// Takes a request that may be a bulk. `target` is the part of its path and query that counts.
    async fn take_as(
        &self,
        mut head: Parts,
        target: &str,
        mut incoming: Incoming,
    ) -> Result<Taken, Rejection> {
        let arrived = Instant::now();
        let queues = self.queueing.is_some();
        let bulk_head = match bulk_request::classify(&head.method, target, &head.headers) {
            RequestKind::Other if queues => return self.queue_single(head, target, incoming).await,
            RequestKind::Other if self.reshuffle.settings.rewrite_to_bulk => {
                return self.take_single(head, target, incoming).await;
            }
            RequestKind::Other => {
                let body = Body::Streamed(incoming);
                return Ok(Taken::Next(head, body, Passing::unknown(NO_BULK)));
            }
            RequestKind::Pass(why) => return Ok(self.pass_by_head(head, Body::Streamed(incoming), why)),
            RequestKind::Bulk(_) if self.reshuffle.settings.level == Level::Cluster && !queues => {
                return Ok(self.pass_by_head(head, Body::Streamed(incoming), HeadWhy::Level));
            }
            RequestKind::Bulk(bulk_head) => bulk_head,
        };
        let snapshot = match queues {
            // A request that passed now would overtake what is queued, and would reach this cluster only.
            true => self.learnt().await.ok_or_else(Fault::nothing_learnt)?,
            false => self.outbound.cluster().snapshot(),
        };
        if !snapshot.learnt() {
            return Ok(self.pass_by_head(head, Body::Streamed(incoming), HeadWhy::NoTopology));
        }
        if bulk_head.typed && !snapshot.table.dialect().takes_types() {
            return Ok(self.pass_by_head(head, Body::Streamed(incoming), HeadWhy::TypedPath));
        }
        let stranger = self.note_sender(&head, &mut incoming, &snapshot);
        let read = RequestId::begin_in(&head.extensions, "read");
        let collected = self.collect(incoming, &snapshot).await;
        drop(read);
        let held = match collected {
            Ok(held) => held,
            Err(Unread::Corrupt(original)) => {
                return Ok(self.pass_by_head(head, Body::Held(original), HeadWhy::ContentEncoding));
            }
            Err(Unread::Refused(fault)) => return Err(fault.into()),
        };
        self.counters.bulk_bytes.add(held.body.len() as u64);
        if let Some(fault) = chosen_flows::elsewhere(&head, &held.body).await {
            return Err(fault.into());
        }
        if head.extensions.get::<ChosenFlows>().is_some() {
            head.extensions.insert(LinesChecked);
        }
        let bulk = BulkRequest {
            target,
            bulk_head: &bulk_head,
            arrived,
        };
        let Some(stranger) = stranger else {
            return self.take_held(head, held, bulk, &snapshot).await;
        };
        let request_id = RequestId::of(&head.extensions);
        let taken = self.take_held(head, held, bulk, &snapshot).await;
        if let Ok(Taken::Done(answer)) = &taken
            && is_of_nodes(answer)
        {
            stranger.introduce(&self.outbound, snapshot, request_id);
        }
        taken
    }

    /// Takes a bulk whose body has been read. Decides about it again as long as its indices have to be
    /// created.
    async fn take_held(
        &self,
        mut head: Parts,
        mut held: HeldBody,
        bulk: BulkRequest<'_>,
        snapshot: &Snapshot,
    ) -> Result<Taken, Rejection> {
        let mut target = Cow::Borrowed(bulk.target);
        if let Some(Queueing { accept, .. }) = &self.queueing {
            // This precedes every change to the request: the cluster judges the request as it came.
            self.admit_form(accept, &mut head, &target, snapshot).await?;
            if bulk.bulk_head.typed && snapshot.table.dialect().types_are_optional() {
                // The other clusters that receive the bulk may not know types.
                target = Cow::Owned(target.replacen("/_doc/", "/", 1));
            }
        }
        let bulk = BulkRequest {
            target: &target,
            ..bulk
        };
        let mut introduced = Vec::new();
        loop {
            match self.decide(head, held, bulk, &mut introduced).await? {
                Decided::Done(answer) => return Ok(Taken::Done(answer)),
                Decided::Next(head, body, passing) => return Ok(Taken::Next(head, body, passing)),
                Decided::Again(again, still_held) => (head, held) = (again, still_held),
            }
        }
    }

    /// Leaves a bulk to the next filter because of its head.
    fn pass_by_head(&self, head: Parts, body: Body, why: HeadWhy) -> Taken {
        self.count_pass_by_head(why);
        Taken::Next(head, body, Passing::unknown(why.as_str()))
    }

    /// Returns the topology, after a short wait if it has not been read yet.
    pub(crate) async fn learnt(&self) -> Option<Arc<Snapshot>> {
        let cluster = self.outbound.cluster();
        let learnt = cluster.look(Snapshot::learnt) || cluster.learnt(LEARNT_WITHIN).await;
        learnt.then(|| cluster.snapshot())
    }

    /// Notes whose memory a large body counts for. Returns its sender if the cluster may be asked about it.
    pub(crate) fn note_sender(
        &self,
        head: &Parts,
        incoming: &mut Incoming,
        snapshot: &Snapshot,
    ) -> Option<Stranger> {
        // Clients that use the gateway's account are told apart by their addresses alone.
        if !incoming.may_be_large() || self.fallback.would_fill(&head.headers) {
            return None;
        }
        let (principal, stranger) = match &self.queueing {
            Some(Queueing { rights, .. }) => (rights.sender(&head.headers, snapshot).0, None),
            None => self.senders.of(&head.headers, snapshot),
        };
        incoming.sent_by(principal);
        stranger
    }

    /// Reads a body, within the limits of the cluster and of the gateway.
    pub(crate) async fn collect(&self, incoming: Incoming, snapshot: &Snapshot) -> Result<HeldBody, Unread> {
        let limit = snapshot
            .max_content_length_bytes
            .map_or(self.body_bytes_max, |theirs| theirs.min(self.body_bytes_max));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let answered = |error| Unread::Refused(self.unread(&error));
        let collected = incoming.collect_with_original(limit).await;
        let Collected { original, decoded } = collected.map_err(answered)?;
        match decoded {
            None => Ok(HeldBody {
                body: original.freeze(),
                original: None,
            }),
            Some(Ok(decoded)) => Ok(HeldBody {
                body: decoded.freeze(),
                original: Some(original.freeze()),
            }),
            Some(Err(BodyError::Corrupt(_))) => Err(Unread::Corrupt(original.freeze())),
            Some(Err(error)) => Err(answered(error)),
        }
    }

    /// Returns the answer to a client whose body could not be read.
    pub(crate) fn unread(&self, error: &BodyError) -> Fault {
        let fault = Fault::body(error);
        self.counters.clients_gone.add(u64::from(fault.is_none()));
        fault.unwrap_or_else(Fault::gone)
    }

    /// Admits a request if the cluster accepts its form.
    pub(super) async fn admit_form(
        &self,
        accept: &Accept,
        head: &mut Parts,
        target: &str,
        snapshot: &Snapshot,
    ) -> Result<(), Rejection> {
        let asking = FormQuestion {
            outbound: &self.outbound,
            fallback: &self.fallback,
        };
        asking.admit(&accept.queue.forms, head, target, snapshot).await
    }
}

/// The reason for not queueing requests that are not bulks.
pub(crate) const NO_BULK: &str = "no_bulk";
/// How long a bulk for a queue waits for a topology that was never read, or for an index to be ready.
pub(super) const LEARNT_WITHIN: Duration = Duration::from_secs(2);
