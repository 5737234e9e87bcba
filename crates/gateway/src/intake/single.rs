//! Writes of single documents that join the bulks (`rewrite_to_bulk`): each write becomes a bulk of one
//! operation, goes the way of bulks, `combine` included, and its item becomes the single-document API's own
//! answer.
//!
//! A write whose head or body is unusual goes on as it came, and so does one that cannot be planned with
//! certainty. A write that the cluster refuses has not been executed, so its answer need not be invented
//! here: the request then goes on as it came, and gets the cluster's own answer. Only refusals that are
//! certain to read the same (a version conflict, a missing document) are built from the item. If it is
//! unknown whether the operation was executed, the client is told so, and nothing goes on.

mod answer;
mod head;
mod queued;

use crate::why::SingleWhy;

use std::sync::Arc;

use bulk::{Ask, NotALine, Op, Plan, RouteTable, Single, Turned, Verdict};
use cluster::Snapshot;
use config::Level;
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use wire::{Incoming, Outgoing, PooledBytes};

use crate::answer::with_head;
use crate::error::{Fault, Rejection};
use crate::intake::filter::{HeldBody, Intake, NO_BULK, Passing, Taken, Unread};
use crate::nodes::lines::PlannedBody;
use crate::nodes::strip_for_parts;
use crate::nodes::{Body, Message, Purpose};
use crate::request_id::RequestId;
use crate::sample::sample;
use crate::split::{PartAnswer, Split};
use crate::turns::Turns;
use head::{SingleHead, SingleKind};

/// The outcome of a write that was sent as a bulk.
enum Sent {
    /// The answer for the client.
    Answer(Response<Outgoing>),
    /// The write was refused, and not executed.
    Refused,
}

impl Intake {
    /// Takes a request that may write a single document; `target` is its path and query.
    pub(crate) async fn take_single(
        &self,
        head: Parts,
        target: &str,
        mut incoming: Incoming,
    ) -> Result<Taken, Rejection> {
        let write = match head::classify(&head.method, target, &head.headers) {
            SingleKind::Other => {
                return Ok(Taken::Next(
                    head,
                    Body::Streamed(incoming),
                    Passing::unknown(NO_BULK),
                ));
            }
            SingleKind::Pass(why) => {
                self.count_single(why);
                let passing = Passing::unknown(why.as_str());
                return Ok(Taken::Next(head, Body::Streamed(incoming), passing));
            }
            SingleKind::Write(write) => write,
        };
        let snapshot = self.outbound.cluster().snapshot();
        let odd = match write.single.op {
            _ if self.reshuffle.settings.level == Level::Cluster => Some(SingleWhy::Level),
            _ if !snapshot.learnt() => Some(SingleWhy::NoTopology),
            Op::Delete if incoming.length() != Some(0) => Some(SingleWhy::Body),
            _ => None,
        };
        if let Some(why) = odd {
            self.count_single(why);
            let passing = Passing::unknown(why.as_str());
            return Ok(Taken::Next(head, Body::Streamed(incoming), passing));
        }
        self.note_sender(&head, &mut incoming, &snapshot);
        let HeldBody { body, original } = match self.collect(incoming, &snapshot).await {
            Ok(held) => held,
            Err(Unread::Corrupt(original)) => {
                self.count_single(SingleWhy::ContentEncoding);
                let passing = Passing::unknown(SingleWhy::ContentEncoding.as_str());
                return Ok(Taken::Next(head, Body::Held(original), passing));
            }
            Err(Unread::Refused(fault)) => return Err(fault.into()),
        };
        let no_defaults = head::no_defaults(&head.headers);
        // Without direct routing: the client does not know a routing given here, and it would be missing in
        // the answer's `Location`.
        let ask = self.reshuffle.ask(&no_defaults, None);
        let Some(load) = self.one_operation(&write.single, &body, &ask, &snapshot) else {
            let passing = Passing::unknown(NO_BULK);
            return Ok(Taken::Next(head, Body::Held(original.unwrap_or(body)), passing));
        };
        self.counters.single_joined.add(1);
        self.reshuffle.count_shards(&load.plan, &snapshot);
        let sent = self.send_single(&head, write, &load, &ask, &snapshot).await;
        if let Ok(load) = Arc::try_unwrap(load) {
            self.reshuffle.scratch.borrow_mut().recycle(load.plan);
        }
        match sent? {
            Sent::Answer(answer) => Ok(Taken::Done(answer)),
            Sent::Refused => {
                self.counters.single_again.add(1);
                let passing = Passing::unknown(NO_BULK);
                Ok(Taken::Next(head, Body::Held(original.unwrap_or(body)), passing))
            }
        }
    }

    /// Returns the write as a bulk with its plan. Returns `None`, and counts the reason, if the bulk is not
    /// certain to have the same effect.
    fn one_operation(
        &self,
        single: &Single<'_>,
        source: &PooledBytes,
        ask: &Ask<'_>,
        snapshot: &Snapshot,
    ) -> Option<Arc<PlannedBody>> {
        let mut lines = self.reshuffle.pool.take(single.bytes_expected(source));
        if let Err(why) = single.write(source, lines.as_mut_vec()) {
            self.count_single(match why {
                NotALine::NoObject => SingleWhy::NoObject,
                NotALine::LineBreak => SingleWhy::LineBreak,
            });
            return None;
        }
        let body = lines.freeze();
        match self.reshuffle.plan_at_once(&body, ask, &snapshot.table) {
            Verdict::Plan(plan) if single.op == Op::Update && is_peculiar(single, &plan, &snapshot.table) => {
                self.count_single(SingleWhy::Update);
                None
            }
            Verdict::Plan(plan) => Some(Arc::new(PlannedBody { body, plan })),
            Verdict::Pass(pass) => {
                self.count_single_by_plan(pass.why);
                if pass.why == bulk::Why::UnknownIndex {
                    self.outbound.cluster().hint();
                }
                None
            }
        }
    }

    async fn send_single(
        &self,
        head: &Parts,
        write: SingleHead<'_>,
        load: &Arc<PlannedBody>,
        ask: &Ask<'_>,
        snapshot: &Arc<Snapshot>,
    ) -> Result<Sent, Fault> {
        let (headers, lent) = self.headers_of_bulk(&head.headers, &write);
        let request_id = RequestId::of(&head.extensions);
        let split = Split {
            load,
            ask,
            snapshot,
            message: Message {
                request_id: &request_id,
                purpose: Purpose::Part(load.plan.docs()),
                method: &Method::POST,
                target: &write.target,
                headers: &headers,
            },
            lent,
            deadline: self.outbound.deadline(),
        };
        let answer = self.reshuffle.deliver(split).await.swap_remove(0);
        let reply = self.reshuffle.read(&answer, 1, split, &mut Turns::begin()).await;
        self.reshuffle.count_docs(1, &answer, &reply);
        let replies = [reply];
        self.reshuffle.count_rejected(split, &replies).await;
        let [reply] = replies;
        sample(self.outbound.cluster(), &load.body, ask, &snapshot.table);
        let turned = reply.map(|reply| bulk::single_answer(reply.item(0)));
        Ok(match (answer, turned) {
            (PartAnswer::Items(items), Ok(Turned::Answer(turned))) => {
                // A failed write may hint at a change of the topology, unless the document itself is to
                // blame.
                if turned.status >= 400 && !matches!(turned.status, 404 | 409) {
                    self.outbound.cluster().hint();
                }
                let routing = answer::routing(&write.single, &snapshot.table);
                Sent::Answer(answer::response(items.head, turned, routing))
            }
            // An earlier try may have been executed, so the write must not be sent again.
            (PartAnswer::Items(items), Ok(Turned::Refused(turned))) if items.is_repeated() => {
                Sent::Answer(answer::response(items.head, turned, None))
            }
            (PartAnswer::Items(_), Ok(Turned::Refused(_))) => Sent::Refused,
            (PartAnswer::Items(_), Ok(Turned::Unread)) => {
                self.counters.replies_malformed.add(1);
                return Err(Fault::unknown_fate("a node's item cannot be read"));
            }
            // The words of this answer also fit a single document. Sending again would add to an overload
            // (429), and after a 5xx, from the node or from something in between, the write may have been
            // executed.
            (PartAnswer::Refused(head, body), _) if !is_refusal(head.status) => {
                Sent::Answer(with_head(head, &[], Outgoing::from(body)))
            }
            (PartAnswer::Refused(..), _) => Sent::Refused,
            (PartAnswer::Unsent(error), _) => return Err(Fault::upstream(&error)),
            (PartAnswer::Unknown(why), _) => return Err(Fault::unknown_fate(&why)),
            (PartAnswer::Items(_), Err(error)) => return Err(Fault::unknown_fate(error.reason())),
        })
    }

    /// Returns the headers of a write's bulk, and whether the account among them is the gateway's.
    fn headers_of_bulk(&self, headers: &HeaderMap, write: &SingleHead<'_>) -> (HeaderMap, bool) {
        let mut headers = head::bulk_headers(headers, write.content_type.clone());
        strip_for_parts(&mut headers);
        let lent = self.fallback.fill(&mut headers);
        (headers, lent)
    }
}

/// Returns whether the status of the whole answer means that nothing was executed and that sending the
/// request in another form may succeed.
fn is_refusal(status: StatusCode) -> bool {
    let later = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
    status.is_client_error() && !later.contains(&status)
}

/// Returns whether a bulk may treat an update differently than the update API does. The update API keeps the
/// routing of the request or of the alias with the document, where a bulk keeps the routing that the document
/// had (`RestUpdateAction`, `UpdateHelper.calculateRouting`). The update API also sends the result of the
/// update as a write of its own, through the index's pipeline (`TransportUpdateAction.shardOperation`).
fn is_peculiar(update: &Single<'_>, plan: &Plan, table: &RouteTable) -> bool {
    plan.ingests() || answer::routing(update, table).is_some()
}
