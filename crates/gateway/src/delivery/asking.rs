//! Asks a cluster about documents that may have been written, and keeps no more of an answer than there is
//! memory for: the documents that are there may be any size, whatever the size of the writes in doubt.

use std::sync::Arc;

use cluster::{PickReason, Snapshot};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use wire::{Buffer, Outgoing, Pool, ReplyBody, SendError};

use crate::delivery::answer_pace::Pace;
use crate::delivery::lane::Route;
use crate::delivery::memory::{AnswerRoom, Memory};
use crate::delivery::server_error::{NO_RIGHT, error_of};
use crate::delivery::unknown::UnknownOutcome;
use crate::nodes::{Message, Outbound, Purpose};

/// The answer to a question.
pub(super) struct QuestionAnswer<'m> {
    pub(super) status: StatusCode,
    /// `None` if it is longer than what is read.
    pub(super) body: Option<Buffer>,
    /// The memory that the body takes, if it is long.
    _room: Option<AnswerRoom<'m>>,
}

// === impl QuestionAnswer ===

impl QuestionAnswer<'_> {
    /// Whether the cluster says that the account has no right to ask this.
    pub(super) fn lacks_right(&self) -> bool {
        let said = || serde_json::from_slice(self.body.as_deref()?).ok();
        self.status == StatusCode::FORBIDDEN
            && said()
                .and_then(|said| error_of(403, &said))
                .is_some_and(|error| error.kind == NO_RIGHT)
    }
}

/// A question without its body.
pub(super) struct Question<'a> {
    pub(super) method: Method,
    pub(super) target: &'a str,
    /// The bytes of the answer that are read in any case, and those that are read if there is memory.
    pub(super) least: usize,
    pub(super) more: usize,
}

/// What a document's stored source is, compared with lines that were sent.
pub(super) enum Source {
    /// Byte for byte the same.
    Same,
    Other,
    /// There is none, or the cluster does not tell: its status, and the beginning of its words.
    Error(StatusCode, Buffer),
}

impl Route {
    /// Asks a node. While a long answer waits for memory, nothing of it is read, and the node waits too.
    pub(super) async fn ask(
        &self,
        question: Question<'_>,
        body: Outgoing,
        outbound: &Outbound,
        snapshot: &Snapshot,
    ) -> Result<QuestionAnswer<'_>, UnknownOutcome> {
        let memory = &self.shared.delivery_memory;
        let (least, more) = (question.least, question.more);
        let read = async |status, reply| {
            let pool = self.worker.pool();
            let (body, room) = match read(reply, (least, more), memory, pool).await? {
                Some((body, room)) => (Some(body), room),
                None => (None, None),
            };
            Ok(QuestionAnswer {
                status,
                body,
                _room: room,
            })
        };
        self.put(question, body, (outbound, snapshot), read).await
    }

    /// Compares a document's source with one that was sent, as it comes, so that neither its size nor theirs
    /// matters. Servers keep a source as it was sent, byte for byte.
    pub(super) async fn source_is(
        &self,
        (index, id, routing): (&str, &str, Option<&str>),
        source: &[u8],
        outbound: &Outbound,
        snapshot: &Snapshot,
    ) -> Result<Source, UnknownOutcome> {
        let target = target_of(index, "_source", id, routing);
        let question = Question {
            method: Method::GET,
            target: &target,
            least: 0,
            more: 0,
        };
        let read = async |status, reply: ReplyBody| match status {
            StatusCode::OK => match is_same(reply, source).await? {
                true => Ok(Source::Same),
                false => Ok(Source::Other),
            },
            status => Ok(Source::Error(status, beginning(reply, self.worker.pool()).await?)),
        };
        self.put(question, Outgoing::Empty, (outbound, snapshot), read)
            .await
    }

    /// Sends a question, and has its answer read.
    async fn put<T>(
        &self,
        question: Question<'_>,
        body: Outgoing,
        (outbound, snapshot): (&Outbound, &Snapshot),
        read: impl AsyncFnOnce(StatusCode, ReplyBody) -> Result<T, SendError>,
    ) -> Result<T, UnknownOutcome> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(account) = self.account(outbound) {
            headers.insert(AUTHORIZATION, account);
        }
        let message = Message {
            request_id: &self.request_id,
            purpose: Purpose::Ask,
            method: &question.method,
            target: question.target,
            headers: &headers,
        };
        let node = outbound.pick(snapshot, PickReason::Documents, &[]);
        let began = std::time::Instant::now();
        let reply = outbound.exchange(&node, message, body, outbound.deadline());
        let (head, reply) = reply.await.map_err(Arc::new)?.into_parts();
        match read(head.status, reply).await {
            Ok(told) => Ok(told),
            Err(error) => {
                outbound
                    .ledger()
                    .failed(&node, &error, began.into(), message.request_id);
                Err(Arc::new(error).into())
            }
        }
    }
}

/// Returns the path and query of a request about one document.
pub(super) fn target_of(index: &str, endpoint: &str, id: &str, routing: Option<&str>) -> String {
    let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    let mut target = format!("/{}/{endpoint}/{}", encode(index), encode(id));
    if let Some(routing) = routing {
        target.push_str(&format!("?routing={}", encode(routing)));
    }
    target
}

/// Reads a body; `None` if it is longer than there is memory for.
async fn read<'m>(
    mut reply: ReplyBody,
    (least, more): (usize, usize),
    memory: &'m Memory,
    pool: &Pool,
) -> Result<Option<(Buffer, Option<AnswerRoom<'m>>)>, SendError> {
    let length = reply.length();
    match length {
        Some(length) if length <= SHORT_BYTES as u64 => {
            return Ok(Some((reply.collect(SHORT_BYTES).await?, None)));
        }
        Some(length) if length > (least + more) as u64 => return Ok(None),
        _ => {}
    }
    let mut body = pool.take(SHORT_BYTES);
    let (mut room, mut most) = (None, SHORT_BYTES);
    let mut pace: Option<Pace<'_>> = None;
    loop {
        let piece = match &mut pace {
            Some(pace) => pace.chunk(&mut reply).await?,
            None => reply.chunk().await?,
        };
        let Some(piece) = piece else {
            return Ok(Some((body, room)));
        };
        let wanted = body.len() + piece.len();
        if wanted > most && room.is_none() {
            let got = memory.answer(least, more).await;
            most = got.bytes.max(least).max(SHORT_BYTES);
            room = Some(got);
            pace = Some(Pace::begin(memory));
        }
        if wanted > most {
            return Ok(None);
        }
        // It grows by doubling, and by no more than there is memory for.
        if wanted > body.len() + body.spare() {
            body.reserve((2 * wanted).min(most) - body.len());
        }
        body.extend_from_slice(&piece);
    }
}

/// Whether a body is this text, white space at their ends aside.
async fn is_same(mut reply: ReplyBody, text: &[u8]) -> Result<bool, SendError> {
    let mut rest = text.trim_ascii();
    while let Some(piece) = reply.chunk().await? {
        let piece: &[u8] = &piece;
        let count = piece.len().min(rest.len());
        if piece[..count] != rest[..count] || !piece[count..].trim_ascii().is_empty() {
            return Ok(false);
        }
        rest = &rest[count..];
    }
    Ok(rest.is_empty())
}

async fn beginning(mut reply: ReplyBody, pool: &Pool) -> Result<Buffer, SendError> {
    let mut words = pool.take(SHORT_BYTES);
    while let Some(piece) = reply.chunk().await? {
        let count = piece.len().min(SHORT_BYTES - words.len());
        words.extend_from_slice(&piece[..count]);
        if words.len() == SHORT_BYTES {
            break;
        }
    }
    Ok(words)
}

/// Larger sources are compared as they come.
pub(super) const SOURCE_BYTES_MAX: usize = 1 << 20;
/// The bytes of an answer that are charged to nobody.
pub(super) const SHORT_BYTES: usize = 64 << 10;
