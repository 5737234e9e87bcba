//! Writes of single documents in asynchronous mode: each write becomes a bulk of one operation, is queued in
//! the lane of its document, and is answered in the form of the single-document API.

use std::time::Instant;

use bulk::{NotALine, Op, Single, Turned, Verdict};
use cluster::Snapshot;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use wire::{Incoming, Outgoing, PooledBytes};

use super::answer;
use super::head::{self, SingleHead, SingleKind};
use crate::admission::keys::Occurrence;
use crate::answer::with_head;
use crate::bulk_request::BulkHead;
use crate::error::{Fault, Rejection};
use crate::intake::decide::Decided;
use crate::intake::filter::{HeldBody, Intake, NO_BULK, Passing, Queueing, Taken, Unread};
use crate::intake::queued_answer::whole;
use crate::nodes::Body;
use crate::reshuffle::BulkRequest;
use crate::why::SingleWhy;

impl Intake {
    /// Takes a request that may write a single document. `target` is its path and query.
    pub(crate) async fn queue_single(
        &self,
        head: Parts,
        target: &str,
        mut incoming: Incoming,
    ) -> Result<Taken, Rejection> {
        let arrived = Instant::now();
        let write = match head::classify(&head.method, target, &head.headers) {
            SingleKind::Other => {
                return Ok(Taken::Next(
                    head,
                    Body::Streamed(incoming),
                    Passing::unknown(NO_BULK),
                ));
            }
            // Its answer would contain the document, which is not known before it is written.
            SingleKind::Write(write) if write.single.op == Op::Update && write.target.contains("_source") => {
                return Ok(self.pass_unread(head, incoming, SingleWhy::Parameter));
            }
            SingleKind::Write(write) if write.single.op == Op::Delete && incoming.length() != Some(0) => {
                return Ok(self.pass_unread(head, incoming, SingleWhy::Body));
            }
            SingleKind::Pass(why) => return Ok(self.pass_unread(head, incoming, why)),
            SingleKind::Write(write) => write,
        };
        let Some(snapshot) = self.learnt().await else {
            return Err(Fault::nothing_learnt().into());
        };
        self.note_sender(&head, &mut incoming, &snapshot);
        let HeldBody { body, original } = match self.collect(incoming, &snapshot).await {
            Ok(held) => held,
            Err(Unread::Corrupt(original)) => {
                return Ok(self.pass_single(head, original, SingleWhy::ContentEncoding, None));
            }
            Err(Unread::Refused(fault)) => return Err(fault.into()),
        };
        let came = original.unwrap_or_else(|| body.clone());
        // This comes before anything in the body is read: the cluster judges the parameters and media types,
        // as it does for a bulk.
        let mut as_bulk = parts_of_bulk(&head, &write);
        if let Some(Queueing { accept, .. }) = &self.queueing {
            self.admit_form(accept, &mut as_bulk, &write.target, &snapshot)
                .await?;
        }
        let mut lines = self.reshuffle.pool.take(write.single.bytes_expected(&body));
        if let Err(why) = write.single.write_spaced(&body, lines.as_mut_vec()) {
            let why = match why {
                NotALine::NoObject => SingleWhy::NoObject,
                NotALine::LineBreak => SingleWhy::LineBreak,
            };
            return Ok(self.pass_single(head, came, why, None));
        }
        self.queue_lines((head, as_bulk), write, lines.freeze(), came, arrived)
            .await
    }

    /// Queues the bulk that a write has become. `came` is the body as it came; the heads are those of the
    /// write and of the bulk.
    async fn queue_lines(
        &self,
        (head, mut as_bulk): (Parts, Parts),
        write: SingleHead<'_>,
        lines: PooledBytes,
        came: PooledBytes,
        arrived: Instant,
    ) -> Result<Taken, Rejection> {
        let no_defaults = head::no_defaults(&head.headers);
        let bulk = BulkRequest {
            target: &write.target,
            bulk_head: &no_defaults,
            arrived,
        };
        let mut introduced = Vec::new();
        let mut held = HeldBody {
            body: lines.clone(),
            original: None,
        };
        loop {
            let snapshot = self.outbound.cluster().snapshot();
            if write.single.op == Op::Update && is_peculiar(&write.single, &snapshot) {
                // It may have been queued before the index came to be peculiar.
                let occurrence = self.occurrence(&as_bulk, &write.target, &lines, &snapshot);
                if let Some(Occurrence::Again(accepted)) = occurrence.await? {
                    self.counters.bulk_key_refused.add(1);
                    let why = SingleWhy::Update.as_str();
                    return Err(Fault::not_repeatable(accepted.position, why).into());
                }
                let lanes = self.lanes_of(&lines, &snapshot);
                return Ok(self.pass_single(head, came, SingleWhy::Update, lanes));
            }
            let decided = self.decide(as_bulk, held, bulk, &mut introduced);
            match Box::pin(decided).await? {
                Decided::Done(answer) => {
                    let routing = answer::routing(&write.single, &snapshot.table);
                    if answer.status() == StatusCode::OK {
                        self.counters.single_joined.add(1);
                    }
                    return Ok(Taken::Done(of_one(answer, routing)));
                }
                Decided::Next(_, _, passing) => return Ok(Taken::Next(head, Body::Held(came), passing)),
                Decided::Again(again, still_held) => (as_bulk, held) = (again, still_held),
            }
        }
    }

    /// Returns the lanes that these lines would be in, if they can be determined.
    fn lanes_of(&self, lines: &[u8], snapshot: &Snapshot) -> Option<Vec<u32>> {
        let no_defaults = BulkHead::default();
        match self
            .reshuffle
            .plan_at_once(lines, &self.reshuffle.ask(&no_defaults, None), &snapshot.table)
        {
            Verdict::Plan(plan) => Some(plan.parts.iter().map(|part| part.lane).collect()),
            Verdict::Pass(_) => None,
        }
    }

    fn pass_unread(&self, head: Parts, incoming: Incoming, why: SingleWhy) -> Taken {
        self.count_single(why);
        Taken::Next(head, Body::Streamed(incoming), Passing::unknown(why.as_str()))
    }

    fn pass_single(&self, head: Parts, came: PooledBytes, why: SingleWhy, lanes: Option<Vec<u32>>) -> Taken {
        self.count_single(why);
        let why = why.as_str();
        Taken::Next(head, Body::Held(came), Passing { why, lanes })
    }
}

/// Returns the head of the bulk that a write has become.
fn parts_of_bulk(head: &Parts, write: &SingleHead<'_>) -> Parts {
    let mut bulk = head.clone();
    bulk.method = Method::POST;
    bulk.headers = head::bulk_headers(&head.headers, write.content_type.clone());
    bulk
}

/// The same check as `super::is_peculiar`, before there is a plan.
fn is_peculiar(update: &Single<'_>, snapshot: &Snapshot) -> bool {
    let table = &snapshot.table;
    let target = table.target(&update.index).and_then(|target| target.write().ok());
    target.is_some_and(|index| index.ingests) || answer::routing(update, table).is_some()
}

/// Turns the answer to a queued bulk of one operation into the form of the single-document API. Other answers
/// stay as they are, since they are about the whole request.
fn of_one(answer: Response<Outgoing>, routing: Option<&str>) -> Response<Outgoing> {
    if answer.status() != StatusCode::OK {
        return answer;
    }
    let (head, body) = answer.into_parts();
    let body = whole(body);
    let turned = bulk::Reply::split(&body, 1).map(|reply| bulk::single_answer(reply.item(0)));
    match turned {
        Ok(Turned::Answer(turned)) => answer::response(head, turned, routing),
        // The gateway's own items always have that form.
        _ => with_head(head, &[], Outgoing::from(body)),
    }
}
