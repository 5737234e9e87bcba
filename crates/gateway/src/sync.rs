//! The filter `bulk_reshuffle`, synchronous mode: a bulk is split, each part sent to the node that holds its
//! primaries, and the answers merged into the one that the cluster would have given.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bulk::{Ask, Destination, Gather, IdMint, Merge, NullId, Plan, RawError, RouteTable, Scratch, Verdict};
use cluster::{Node, PickReason, Snapshot};
use futures_util::future::join_all;
use http::header::{CONTENT_ENCODING, HOST, WARNING};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode, response};
use wire::{
    BodyError, Buffer, CHUNK_BYTES, Chunk, Collected, Fate, Incoming, Outgoing, Pool, SendError, Shared,
};

use crate::bulk_request::{self, BulkHead, Kind};
use crate::config::{BulkReshuffle, Level};
use crate::credentials::Fallback;
use crate::error::Fault;
use crate::metrics::{Counters, HeadWhy};
use crate::outbound::{Message, Outbound};
use crate::proxy::Body;
use crate::retry;

/// Splits bulk requests, one instance a core.
pub(crate) struct Reshuffle {
    pub(crate) outbound: Outbound,
    pub(crate) fallback: Fallback,
    pub(crate) settings: BulkReshuffle,
    /// Bytes of a decoded body at most; the cluster's own limit holds as well.
    pub(crate) body_bytes_max: u64,
    pub(crate) pool: Pool,
    pub(crate) ids: RefCell<IdMint>,
    pub(crate) scratch: RefCell<Scratch>,
    pub(crate) counters: Arc<Counters>,
}

/// What the filter did with a request.
pub(crate) enum Step {
    /// Answered it.
    Done(Response<Outgoing>),
    /// Left it to the next filter, whole.
    Next(Parts, Body),
}

/// A body and how it is split; shared by the parts while they are sent.
struct Load {
    body: Shared,
    plan: Plan,
}

/// What a part came to.
enum Answer {
    /// 200 and a bulk answer.
    Items(response::Parts, Buffer),
    /// Another status: the node took nothing of the part.
    Refused(response::Parts, Buffer),
    /// No answer.
    Lost(SendError),
}

impl Reshuffle {
    /// Takes a request that may be a bulk.
    pub(crate) async fn take(&self, mut head: Parts, incoming: Incoming) -> Step {
        let arrived = Instant::now();
        let target = head
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str())
            .to_owned();
        let bulk_head = match bulk_request::classify(&head.method, &target, &head.headers) {
            Kind::Other => return Step::Next(head, Body::Streamed(incoming)),
            Kind::Pass(why) => {
                self.counters.pass_by_head(why);
                return Step::Next(head, Body::Streamed(incoming));
            }
            Kind::Bulk(_) if self.settings.level == Level::Cluster => {
                self.counters.pass_by_head(HeadWhy::Level);
                return Step::Next(head, Body::Streamed(incoming));
            }
            Kind::Bulk(bulk_head) => bulk_head,
        };
        let snapshot = self.outbound.cluster().snapshot();
        if !snapshot.learnt() {
            self.counters.pass_by_head(HeadWhy::NoTopology);
            return Step::Next(head, Body::Streamed(incoming));
        }
        let limit = snapshot
            .max_content_length_bytes
            .map_or(self.body_bytes_max, |theirs| theirs.min(self.body_bytes_max));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let Collected { original, decoded } = match incoming.collect_with_original(limit).await {
            Ok(collected) => collected,
            Err(error) => return Step::Done(self.unread(&error)),
        };
        // What passes is what came: nodes differ in what they accept of packed bodies.
        let (body, original) = match decoded {
            None => (original.freeze(), None),
            Some(Ok(decoded)) => (decoded.freeze(), Some(original.freeze())),
            Some(Err(BodyError::Corrupt(_))) => {
                self.counters.pass_by_head(HeadWhy::ContentEncoding);
                return Step::Next(head, Body::Held(original.freeze()));
            }
            Some(Err(error)) => return Step::Done(self.unread(&error)),
        };
        self.counters.bulk_bytes.add(body.len() as u64);
        let ask = self.ask(&bulk_head);
        match self.plan(&body, &ask, &snapshot.table) {
            Verdict::Pass(pass) => {
                self.counters.pass(pass.why);
                tracing::debug!(why = %pass.why, line = pass.line, "bulk passes whole");
                if pass.why == bulk::Why::UnknownIndex {
                    self.outbound.cluster().hint();
                }
                Step::Next(head, Body::Held(original.unwrap_or(body)))
            }
            Verdict::Plan(plan) => {
                let load = Rc::new(Load { body, plan });
                head.headers.remove(CONTENT_ENCODING);
                wire::strip_hop_by_hop(&mut head.headers);
                head.headers.remove(HOST);
                // Items are read and merged here: nodes must not pack them. Every client takes plain bodies too.
                head.headers.remove(http::header::ACCEPT_ENCODING);
                self.fallback.fill(&mut head.headers);
                let answer = self.send(&head, &target, &load, &ask, &snapshot).await;
                self.sample(&load.body, &ask, &snapshot.table);
                if let Ok(load) = Rc::try_unwrap(load) {
                    self.scratch.borrow_mut().recycle(load.plan);
                }
                self.counters.bulk_latency.observe(arrived.elapsed());
                Step::Done(answer)
            }
        }
    }

    /// What a client gets whose body could not be read.
    fn unread(&self, error: &BodyError) -> Response<Outgoing> {
        match Fault::body(error) {
            Some(fault) => fault.response(),
            None => {
                self.counters.clients_gone.add(1);
                Fault::refused(wire::Refusal::BodyTimeout).response()
            }
        }
    }

    fn ask<'a>(&self, head: &'a BulkHead<'_>) -> Ask<'a> {
        Ask {
            default_index: head.index.as_deref(),
            url_routing: head.routing.as_deref(),
            url_pipeline: head.pipeline.as_deref(),
            level: match self.settings.level {
                Level::Cluster => bulk::Level::Cluster,
                Level::Node => bulk::Level::Node,
                Level::Index => bulk::Level::Index,
                Level::Shard => bulk::Level::Shard,
            },
            null_id: match self.settings.fix_null_id {
                true => NullId::Mint,
                false => NullId::Keep,
            },
        }
    }

    fn plan(&self, body: &[u8], ask: &Ask<'_>, table: &RouteTable) -> Verdict {
        let mut ids = self.ids.borrow_mut();
        if ask.null_id == NullId::Mint {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            ids.tick(now.map_or(0, |since| since.as_millis() as u64));
        }
        bulk::plan(body, ask, table, &mut ids, &mut self.scratch.borrow_mut())
    }

    async fn send(
        &self,
        head: &Parts,
        target: &str,
        load: &Rc<Load>,
        ask: &Ask<'_>,
        snapshot: &Arc<Snapshot>,
    ) -> Response<Outgoing> {
        let began = Instant::now();
        let message = Message {
            method: &head.method,
            target,
            headers: &head.headers,
        };
        let deadline = self.outbound.deadline();
        let parts = 0..load.plan.parts.len();
        let mut answers = match parts.len() {
            1 => vec![self.deliver(0, load, message, snapshot, deadline).await],
            _ => join_all(parts.map(|part| self.deliver(part, load, message, snapshot, deadline))).await,
        };
        self.count(load, &answers);
        if let Some(whole) = whole_answer(&mut answers) {
            return whole;
        }
        if answers.len() == 1
            && let Some(Answer::Items(head, body)) =
                answers.pop_if(|answer| matches!(answer, Answer::Items(..)))
        {
            return with_head(head, &[], Outgoing::from(body));
        }
        self.merge(load, ask, &snapshot.table, &answers, began.elapsed())
    }

    /// Gives one of the first documents' predictions to the check, now and then.
    fn sample(&self, body: &[u8], ask: &Ask<'_>, table: &RouteTable) {
        let cluster = self.outbound.cluster();
        if !cluster.wants_sample() {
            return;
        }
        let explained = bulk::explain(body, ask, table).nth(fastrand::usize(..SAMPLED_FROM));
        if let Some(Ok(doc)) = explained
            && let (Some(shard), Some(key)) = (doc.shard, doc.routing.or(doc.id))
        {
            cluster.sample(&doc.index, &key, shard);
        }
    }

    /// Sends one part until a node answers it, or nobody may try again.
    async fn deliver(
        &self,
        part: usize,
        load: &Rc<Load>,
        message: Message<'_>,
        snapshot: &Arc<Snapshot>,
        deadline: tokio::time::Instant,
    ) -> Answer {
        let cluster = self.outbound.cluster();
        let mut tried: Vec<Arc<Node>> = Vec::new();
        loop {
            let home = match load.plan.parts[part].destination {
                Destination::Node(node) if tried.is_empty() => snapshot.nodes.get(usize::from(node.0)),
                _ => None,
            };
            let node = match home {
                // A node that is down can't take its documents; any other forwards them to the new primary.
                Some(node) if node.health.is_up() => Arc::clone(node),
                _ => {
                    let refused: Vec<&Node> = tried.iter().map(|node| &**node).collect();
                    cluster.pick(snapshot, PickReason::Documents, &refused)
                }
            };
            let error = match self.try_once(&node, part, load, message, deadline).await {
                Ok(answer) => return answer,
                Err(error) => error,
            };
            cluster.hint();
            let retries = tried.len() as u32;
            let retries_max = self
                .outbound
                .retry_count_max()
                .max(snapshot.nodes.len() as u32 - 1);
            if retries >= retries_max || !(error.fate == Fate::NothingSent || self.may_repeat(part, load)) {
                return Answer::Lost(error);
            }
            tried.push(node);
            if tried.len() >= snapshot.nodes.len() {
                tokio::time::sleep(self.outbound.retry_delay(retries)).await;
            }
            self.counters.parts_retried.add(1);
        }
    }

    async fn try_once(
        &self,
        node: &Node,
        part: usize,
        load: &Rc<Load>,
        message: Message<'_>,
        deadline: tokio::time::Instant,
    ) -> Result<Answer, SendError> {
        self.counters.parts.add(1);
        let began = tokio::time::Instant::now();
        let body = part_body(load, part, &self.pool);
        let reply = self.outbound.exchange(node, message, body, deadline).await?;
        let (head, body) = reply.into_parts();
        match body.collect(REPLY_BYTES_MAX).await {
            Ok(body) if head.status == StatusCode::OK => Ok(Answer::Items(head, body)),
            Ok(body) => Ok(Answer::Refused(head, body)),
            Err(error) => {
                self.outbound.failed(node, &error, began);
                Err(error)
            }
        }
    }

    /// Whether a part whose fate is unknown may be sent again.
    fn may_repeat(&self, part: usize, load: &Load) -> bool {
        let size = usize::try_from(load.plan.parts[part].bytes).unwrap_or(usize::MAX);
        let Ok(mut bytes) = self.pool.try_take(size) else {
            return false;
        };
        Gather::default().next(
            &load.plan,
            &load.plan.parts[part],
            &load.body,
            bytes.as_mut_vec(),
            size,
        );
        retry::is_repeatable(&bytes)
    }

    fn merge(
        &self,
        load: &Load,
        ask: &Ask<'_>,
        table: &RouteTable,
        answers: &[Answer],
        took: Duration,
    ) -> Response<Outgoing> {
        let errors: Vec<Option<ItemError>> = answers.iter().map(ItemError::of).collect();
        let failed = |part: usize, error: &ItemError| {
            let error = RawError {
                status: error.status,
                kind: &error.kind,
                reason: &error.reason,
            };
            bulk::Reply::failed(&load.plan, part, &load.body, ask, table, error)
        };
        let replies = answers
            .iter()
            .zip(&errors)
            .enumerate()
            .map(|(part, answer)| match answer {
                (Answer::Items(_, body), _) => bulk::Reply::split(body, load.plan.parts[part].docs)
                    .unwrap_or_else(|error| {
                        self.counters.replies_malformed.add(1);
                        tracing::warn!(%error, "a node's bulk answer cannot be used");
                        failed(part, &ItemError::unknown_fate(&error.to_string()))
                    }),
                (_, Some(error)) => failed(part, error),
                (_, None) => failed(part, &ItemError::unknown_fate("no answer")),
            });
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let mut merge = match Merge::new(&load.plan, replies.collect(), took_ms, table.dialect()) {
            Ok(merge) => merge,
            Err(error) => {
                // Every reply was checked against its part above, so this says that we contradict ourselves.
                tracing::error!(%error, "replies do not merge");
                return Fault::unmerged(&error.to_string()).response();
            }
        };
        if merge.errors() {
            self.counters.bulk_with_errors.add(1);
            self.outbound.cluster().hint();
        }
        let mut chunks: Vec<Chunk> = Vec::new();
        let mut left = usize::try_from(merge.bytes()).unwrap_or(usize::MAX);
        while left > 0 {
            let mut chunk = self.pool.take(left.min(CHUNK_BYTES));
            let written = merge.next(chunk.as_mut_vec(), CHUNK_BYTES);
            if written == 0 {
                break;
            }
            left = left.saturating_sub(written);
            chunks.push(chunk.into());
        }
        let heads: Vec<&response::Parts> = answers.iter().filter_map(Answer::items_head).collect();
        let body = chunks.into_iter().collect();
        match heads.split_first() {
            Some((first, others)) => with_head((*first).clone(), others, body),
            None => json_response(body),
        }
    }

    fn count(&self, load: &Load, answers: &[Answer]) {
        let counters = &self.counters;
        counters.bulk_requests.add(1);
        let (mut docs, mut direct, mut unanswered, mut refused) = (0, 0, 0, 0);
        for (part, answer) in load.plan.parts.iter().zip(answers) {
            let part_docs = u64::from(part.docs);
            docs += part_docs;
            match answer {
                Answer::Items(..) if matches!(part.destination, Destination::Node(_)) => direct += part_docs,
                Answer::Items(..) => {}
                Answer::Refused(..) => refused += part_docs,
                Answer::Lost(_) => unanswered += part_docs,
            }
        }
        counters.docs.add(docs);
        counters.docs_direct.add(direct);
        counters.docs_any.add(docs - direct - unanswered - refused);
        counters.docs_unanswered.add(unanswered);
        counters.docs_refused.add(refused);
    }
}

// === impl Answer ===

impl Answer {
    fn items_head(&self) -> Option<&response::Parts> {
        match self {
            Answer::Items(head, _) => Some(head),
            _ => None,
        }
    }
}

/// When no part was taken: the answer for the request as a whole, as the cluster words it.
fn whole_answer(answers: &mut Vec<Answer>) -> Option<Response<Outgoing>> {
    let mut statuses = answers.iter().map(|answer| match answer {
        Answer::Refused(head, _) => Some(head.status),
        _ => None,
    });
    let first = statuses.next()?;
    if first.is_some() && statuses.all(|status| status == first) {
        if let Answer::Refused(head, body) = answers.swap_remove(0) {
            return Some(with_head(head, &[], Outgoing::from(body)));
        }
        return None;
    }
    let lost = answers.iter().map(|answer| match answer {
        Answer::Lost(error) if error.fate == Fate::NothingSent => Some(error),
        _ => None,
    });
    let lost: Option<Vec<&SendError>> = lost.collect();
    lost.and_then(|errors| Some(Fault::upstream(errors.first()?).response()))
}

/// What the items of a part say that no node has answered item by item.
struct ItemError {
    status: u16,
    kind: String,
    reason: String,
}

impl ItemError {
    fn of(answer: &Answer) -> Option<Self> {
        match answer {
            Answer::Items(..) => None,
            Answer::Refused(head, body) => Some(Self::refused(head.status, body)),
            Answer::Lost(error) => Some(Self::unknown_fate(&error.to_string())),
        }
    }

    /// As a coordinating node words it when a primary's node does not answer
    /// (`TransportReplicationAction` ends in an `UnavailableShardsException`).
    fn unknown_fate(why: &str) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE.as_u16(),
            kind: "unavailable_shards_exception".to_owned(),
            reason: format!(
                "gateway: the node that was asked gave no usable answer, so this operation may or may not have been executed: {why}"
            ),
        }
    }

    /// The node's own error, given to each item.
    fn refused(status: StatusCode, body: &[u8]) -> Self {
        let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let word = |key: &str| body["error"][key].as_str().map(str::to_owned);
        Self {
            status: status.as_u16(),
            kind: word("type").unwrap_or_else(|| "status_exception".to_owned()),
            reason: word("reason")
                .unwrap_or_else(|| format!("the node answered {status} to this part of the request")),
        }
    }
}

/// A part's body, copied together chunk by chunk as the connection takes it.
fn part_body(load: &Rc<Load>, part: usize, pool: &Pool) -> Outgoing {
    let (load, pool) = (Rc::clone(load), pool.clone());
    let bytes = load.plan.parts[part].bytes;
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut gather = Gather::default();
    Outgoing::gather(bytes, move || {
        let mut chunk = pool.take(left.min(CHUNK_BYTES));
        let part = &load.plan.parts[part];
        let copied = gather.next(&load.plan, part, &load.body, chunk.as_mut_vec(), CHUNK_BYTES);
        left = left.saturating_sub(copied);
        (copied > 0).then(|| chunk.into())
    })
}

/// An answer with a node's head: its headers, and the warnings of the other nodes that it lacks.
fn with_head(mut head: response::Parts, others: &[&response::Parts], body: Outgoing) -> Response<Outgoing> {
    wire::strip_hop_by_hop(&mut head.headers);
    head.headers.remove(http::header::CONTENT_LENGTH);
    for other in others {
        add_warnings(&mut head.headers, &other.headers);
    }
    Response::from_parts(head, body)
}

fn add_warnings(headers: &mut HeaderMap, more: &HeaderMap) {
    for warning in more.get_all(WARNING) {
        if !headers.get_all(WARNING).iter().any(|known| known == warning) {
            headers.append(WARNING, warning.clone());
        }
    }
}

fn json_response(body: Outgoing) -> Response<Outgoing> {
    let mut response = Response::new(body);
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json; charset=UTF-8"),
    );
    response
}

/// Samples are taken from a bulk's first documents: reading on costs time.
const SAMPLED_FROM: usize = 16;

/// No bulk answer is larger; what memory allows is less.
const REPLY_BYTES_MAX: usize = 1 << 30;
