//! Reads answers to delivery's requests, and keeps only the parts that delivery needs. Nodes are not asked
//! for more; but lines may ask for documents, errors quote documents, and a server that sends more than it is
//! asked for, or is no cluster at all, must not fill the memory.

use std::ops::Deref;
use std::sync::Arc;

use bulk::Condense;
use cluster::Node;
use http::response;
use tokio::time::Instant;
use wire::{Buffer, Outgoing, ReplyBody, SendError};

use super::answer_pace::Pace;
use super::memory::{AnswerHeld, ERROR_BYTES, Memory};
use crate::nodes::{Message, Outbound, SendTimes, Traced};

/// An answer to a bulk request.
pub(crate) struct BulkAnswer {
    pub(crate) head: response::Parts,
    pub(crate) body: BulkAnswerBody,
    /// The memory that the answer takes, or its contents if it is long.
    pub(crate) held: Option<AnswerHeld>,
}

/// The part of an answer's body that is kept.
pub(crate) enum BulkAnswerBody {
    Whole(Buffer),
    Reduced(Vec<u8>),
}

impl Deref for BulkAnswerBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            BulkAnswerBody::Whole(body) => body,
            BulkAnswerBody::Reduced(body) => body,
        }
    }
}

impl Outbound {
    /// Sends one bulk request of this many documents and waits for its answer. A long answer is reduced as it
    /// comes, once there is memory for it, to the fate of the documents.
    pub(crate) async fn brief(
        &self,
        node: &Node,
        message: Message<'_>,
        body: Outgoing,
        deadline: SendTimes,
        (docs, memory): (u32, &Arc<Memory>),
    ) -> Result<BulkAnswer, SendError> {
        let began = Instant::now();
        let mut traced = Traced::begin(message, node, self.cluster());
        let reply = self.exchange_in(&mut traced, node, message, body, deadline);
        let (head, reply) = reply.await?.into_parts();
        match self.read(reply, docs, memory).await {
            Ok((body, held)) => Ok(BulkAnswer { head, body, held }),
            Err(error) => {
                self.ledger().failed(node, &error, began, message.request_id);
                if let Some(traced) = &mut traced {
                    traced.answered(Err(&error));
                }
                Err(error)
            }
        }
    }

    async fn read(
        &self,
        mut reply: ReplyBody,
        docs: u32,
        memory: &Arc<Memory>,
    ) -> Result<(BulkAnswerBody, Option<AnswerHeld>), SendError> {
        let plain = (PLAIN_BYTES + docs as usize * PLAIN_ITEM_BYTES).min(PLAIN_BYTES_MAX);
        let mut held = memory.short();
        let length = reply.length().and_then(|length| usize::try_from(length).ok());
        if let Some(length) = length.filter(|length| *length <= plain)
            && held.grow(length)
        {
            return Ok((BulkAnswerBody::Whole(reply.collect(plain).await?), Some(held)));
        }
        let mut read = self.pool().take(0);
        let more = loop {
            match reply.chunk().await? {
                None => return Ok((BulkAnswerBody::Whole(read), Some(held))),
                Some(more) if read.len() + more.len() > plain => break more,
                Some(more) if !held.grow(read.len() + more.len()) => break more,
                Some(more) => {
                    read.reserve(more.len());
                    read.extend_from_slice(&more);
                }
            }
        };
        // While this waits, it reads nothing, so the node waits too.
        let least = docs as usize * ERROR_BYTES;
        let room = memory.answer(least, ERRORS_BYTES_MAX).await;
        let mut pace = Pace::begin(memory);
        let errors = room.bytes.saturating_sub(least);
        let mut condense = Condense::new(docs, errors.clamp(ERROR_BYTES, ERROR_BYTES_MAX), errors);
        // `kept` never grows: that would take twice as much. The part of it that is not written takes no
        // memory.
        let mut kept = Vec::with_capacity(room.bytes);
        let mut next = condense
            .feed(&read, &mut kept)
            .and_then(|()| condense.feed(&more, &mut kept));
        drop(more);
        let mut begins = self.pool().take(BEGINNING_BYTES);
        begins.extend_from_slice(&read[..read.len().min(BEGINNING_BYTES)]);
        drop((read, held));
        while next.is_ok() {
            match pace.chunk(&mut reply).await? {
                None => {
                    let held = memory.said(kept.len());
                    return Ok((BulkAnswerBody::Reduced(kept), Some(held)));
                }
                Some(more) => next = condense.feed(&more, &mut kept),
            }
        }
        // This is not a bulk's answer: its beginning is kept, to show what it is.
        Ok((BulkAnswerBody::Whole(begins), None))
    }
}

/// Bytes of an answer, and of each of its items, that are taken as they are if there is memory for that: an
/// item that is done has 25.
const PLAIN_BYTES: usize = 64 << 10;
const PLAIN_ITEM_BYTES: usize = 48;
const PLAIN_BYTES_MAX: usize = 512 << 10;
/// The most bytes that are kept of an error in a long answer; and of all its errors, besides the bytes that
/// each may have in any case.
const ERROR_BYTES_MAX: usize = 256 << 10;
const ERRORS_BYTES_MAX: usize = 4 << 20;
/// The bytes that are kept of an answer that is not a bulk's.
const BEGINNING_BYTES: usize = 4 << 10;
