//! What one lane has for one node, and the request that it travels in: alone, or with what other lanes have for that node.
//! Each gets the outcomes of its own operations.

use std::io::{self, Write as _};
use std::rc::Rc;

use bulk::Gather;
use cluster::{Ended, Node, Permit};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use wire::{CHUNK_BYTES, Chunk, Fate, Outgoing, Pool, Shared};

use crate::lane::Route;
use crate::outbound::{Message, Outbound};
use crate::outcome::{Again, Outcome, Outcomes, outcomes, unanswered};
use crate::part::Load;
use crate::request_id::RequestId;

/// Operations of one lane for one node.
#[derive(Clone)]
pub(crate) struct Parcel {
    lines: Lines,
    pub(crate) docs: u32,
    pub(crate) bytes: u64,
    /// What its request says beside its operations.
    pub(crate) wording: Rc<Wording>,
}

#[derive(Clone)]
enum Lines {
    /// A part of a body that was planned.
    Part(Rc<Load>, usize),
    /// A body as it is.
    Whole(Shared),
}

/// What a request says beside its operations. Only parcels with the same wording can share one.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wording {
    /// Path and query.
    pub(crate) target: String,
    pub(crate) content_type: String,
}

/// What a parcel came to.
pub(crate) enum Told {
    /// Of each operation.
    Outcomes(Outcomes),
    /// Nothing of the request was executed, and one parcel may be to blame for all: each is to travel by itself.
    Alone,
}

// === impl Parcel ===

impl Parcel {
    pub(crate) fn part(load: &Rc<Load>, part: usize, wording: &Rc<Wording>) -> Self {
        let one = &load.plan.parts[part];
        Self {
            docs: one.docs,
            bytes: one.bytes,
            lines: match one.stretch() {
                Some(stretch) => Lines::Whole(load.body.slice(stretch)),
                None => Lines::Part(Rc::clone(load), part),
            },
            wording: Rc::clone(wording),
        }
    }

    pub(crate) fn whole(body: Shared, docs: u32, wording: &Rc<Wording>) -> Self {
        Self {
            docs,
            bytes: body.len() as u64,
            lines: Lines::Whole(body),
            wording: Rc::clone(wording),
        }
    }
}

// === impl Route ===

impl Route {
    /// Sends parcels with one wording in one request; what each came to.
    pub(crate) async fn transmit(
        &self,
        node: &Node,
        parcels: Vec<Parcel>,
        mut leave: Option<Permit>,
    ) -> Vec<Told> {
        let docs: Vec<u32> = parcels.iter().map(|parcel| parcel.docs).collect();
        let bytes = parcels.iter().map(|parcel| parcel.bytes).sum();
        let wording = Rc::clone(&parcels[0].wording);
        let outbound = self.outbound();
        let Some(mut headers) = self.headers(&outbound, &wording) else {
            return docs
                .iter()
                .map(|docs| Told::Outcomes(unreadable(*docs)))
                .collect();
        };
        if !self.group.consumer.may_send() {
            let why = "Kafka has not confirmed for a while that these lanes are this gateway's";
            let outcome = Outcome::Again(Again::unsent(why.to_owned()));
            let told = docs.iter().map(|docs| Outcomes::of_all(&outcome, *docs));
            return told.map(Told::Outcomes).collect();
        }
        let mut body = Body::new(parcels, bytes, self.worker.pool());
        let body = if self.group.settings.compress {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            Outgoing::from(body.compressed().await)
        } else {
            Outgoing::gather(bytes, move || body.next())
        };
        let message = Message {
            request_id: &self.request_id,
            method: &Method::POST,
            target: &wording.target,
            headers: &headers,
        };
        if let Some(leave) = &mut leave {
            leave.sent();
        }
        self.group.requests.add(1);
        self.group.parts.add(docs.len() as u64);
        let answer = outbound.whole(node, message, body, outbound.deadline()).await;
        let all: u32 = docs.iter().sum();
        let (mut outcomes, ended) = match answer {
            Ok((head, _)) if docs.len() > 1 && blames_one(head.status) => {
                if head.status == StatusCode::PAYLOAD_TOO_LARGE {
                    self.outlets.gate(node).too_large(bytes);
                }
                outbound.cluster().hint();
                return docs.iter().map(|_| Told::Alone).collect();
            }
            Ok((head, body)) => {
                let outcomes = outcomes(head.status, &head.headers, &body, all, &node.name);
                let worked = (head.status == StatusCode::OK).then_some(Ended::Worked { bytes });
                if worked.is_some() {
                    self.outlets.gate(node).fitted(bytes);
                }
                let busy = outcomes.are_busy();
                (outcomes, if busy { Some(Ended::Refused) } else { worked })
            }
            Err(error) => {
                let lost = (error.fate == Fate::Unknown).then_some(Ended::Lost);
                let outcome = Outcome::Again(unanswered(&error));
                (Outcomes::of_all(&outcome, all), lost)
            }
        };
        if let (Some(leave), Some(ended)) = (leave, ended) {
            leave.end(ended);
        }
        if !outcomes.are_done() {
            outbound.cluster().hint();
        }
        let told = docs.iter().map(|docs| outcomes.split_off_front(*docs));
        told.map(Told::Outcomes).collect()
    }

    fn headers(&self, outbound: &Outbound, wording: &Wording) -> Option<HeaderMap> {
        let mut headers = content_type(&wording.content_type)?;
        if let Some(account) = self.account(outbound) {
            headers.insert(AUTHORIZATION, account);
        }
        Some(headers)
    }
}

/// Whether a whole request was refused for what it holds.
fn blames_one(status: StatusCode) -> bool {
    status.is_client_error()
        && status != StatusCode::TOO_MANY_REQUESTS
        && status != StatusCode::REQUEST_TIMEOUT
}

pub(crate) fn content_type(value: &str) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_str(value).ok()?);
    Some(headers)
}

pub(crate) fn unreadable(docs: u32) -> Outcomes {
    let why = "the record is not one that this version knows to send";
    Outcomes::of_all(&Outcome::Again(Again::paused(why.to_owned())), docs)
}

/// The id that log lines of a delivery carry.
pub(crate) fn own_id(queue: &str) -> RequestId {
    let text = format!("delivery-{queue}");
    RequestId(HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("delivery")))
}

/// Parcels one after another, chunk by chunk: what fills one goes as it lies there, the rest is copied together.
struct Body {
    parcels: Vec<Parcel>,
    /// The one that is copied, and how far.
    at: usize,
    gather: Gather,
    offset: usize,
    left: usize,
    pool: Pool,
}

// === impl Body ===

impl Body {
    fn new(parcels: Vec<Parcel>, bytes: u64, pool: &Pool) -> Self {
        Self {
            parcels,
            at: 0,
            gather: Gather::default(),
            offset: 0,
            left: usize::try_from(bytes).unwrap_or(usize::MAX),
            pool: pool.clone(),
        }
    }

    /// The next chunk; none at the end.
    fn next(&mut self) -> Option<Chunk> {
        if let Some(parcel) = self.parcels.get(self.at)
            && let Lines::Whole(body) = &parcel.lines
            && body.len() - self.offset >= CHUNK_BYTES.min(self.left)
        {
            let end = body.len().min(self.offset + CHUNK_BYTES);
            let chunk = body.slice(self.offset..end);
            (self.offset, self.left) = (end, self.left.saturating_sub(chunk.len()));
            return (!chunk.is_empty()).then_some(Chunk::Shared(chunk));
        }
        let mut chunk = self.pool.take(self.left.min(CHUNK_BYTES));
        while chunk.len() < CHUNK_BYTES
            && let Some(parcel) = self.parcels.get(self.at)
        {
            let room = CHUNK_BYTES - chunk.len();
            let copied = match &parcel.lines {
                Lines::Part(load, part) => {
                    let part = &load.plan.parts[*part];
                    self.gather
                        .next(&load.plan, part, &load.body, chunk.as_mut_vec(), room)
                }
                Lines::Whole(body) => {
                    let rest = &body[self.offset..];
                    let copied = rest.len().min(room);
                    chunk.extend_from_slice(&rest[..copied]);
                    self.offset += copied;
                    copied
                }
            };
            if copied == 0 {
                self.at += 1;
                (self.gather, self.offset) = (Gather::default(), 0);
            }
        }
        self.left = self.left.saturating_sub(chunk.len());
        (!chunk.is_empty()).then(|| chunk.into())
    }

    /// All of it, compressed; others get their turn in between.
    async fn compressed(&mut self) -> Vec<u8> {
        let packed = Vec::with_capacity(self.left / RATIO_TYPICAL);
        let mut encoder = GzEncoder::new(packed, Compression::fast());
        while let Some(chunk) = self.next() {
            let written: io::Result<()> = encoder.write_all(&chunk);
            written.expect("writing to a Vec cannot fail");
            tokio::task::yield_now().await;
        }
        encoder.finish().expect("writing to a Vec cannot fail")
    }
}

/// Bulks are rarely compressed better.
const RATIO_TYPICAL: usize = 8;
