//! Answers to what delivery sends, without what it doesn't read. A node is not asked for that; but lines may
//! ask for documents, errors quote them, and who says what it isn't asked for, or is no cluster at all, is
//! not to fill the memory.

use bulk::Condense;
use cluster::Node;
use http::response;
use tokio::time::Instant;
use wire::{Buffer, Outgoing, ReplyBody, SendError};

use super::memory::Memory;
use crate::nodes::{Message, Outbound};

impl Outbound {
    /// Sends one bulk request of so many documents and waits for its answer. One that is long is reduced as
    /// it comes, when there is memory for it, to what says how the documents went.
    pub(crate) async fn brief(
        &self,
        node: &Node,
        message: Message<'_>,
        body: Outgoing,
        deadline: Instant,
        (docs, memory): (u32, &Memory),
    ) -> Result<(response::Parts, Buffer), SendError> {
        let began = Instant::now();
        let (head, reply) = self.exchange(node, message, body, deadline).await?.into_parts();
        let plain = PLAIN_BYTES.saturating_add(docs as usize * PLAIN_ITEM_BYTES);
        match self.read(reply, docs, plain.min(PLAIN_BYTES_MAX), memory).await {
            Ok(body) => Ok((head, body)),
            Err(error) => {
                self.ledger().failed(node, &error, began, message.request_id);
                Err(error)
            }
        }
    }

    async fn read(
        &self,
        mut reply: ReplyBody,
        docs: u32,
        plain: usize,
        memory: &Memory,
    ) -> Result<Buffer, SendError> {
        if reply.length().is_some_and(|length| length <= plain as u64) {
            return reply.collect(plain).await;
        }
        let mut read = self.pool().take(0);
        let more = loop {
            match reply.chunk().await? {
                None => return Ok(read),
                Some(more) if read.len() + more.len() > plain => break more,
                Some(more) => {
                    read.reserve(more.len());
                    read.extend_from_slice(&more);
                }
            }
        };
        // Who waits here reads nothing, so the node waits too.
        let errors = ERRORS_BYTES_MAX + docs as usize * ITEM_BYTES;
        let _turn = memory.answer(errors).await;
        let (mut condense, mut kept) = (Condense::new(docs, ERROR_BYTES_MAX, ERRORS_BYTES_MAX), Vec::new());
        let mut next = condense
            .feed(&read, &mut kept)
            .and_then(|()| condense.feed(&more, &mut kept));
        drop(more);
        let begins = self.pooled(&read[..read.len().min(BEGINNING_BYTES)]);
        drop(read);
        while next.is_ok() {
            match reply.chunk().await? {
                None => return Ok(self.pooled(&kept)),
                Some(more) => next = condense.feed(&more, &mut kept),
            }
        }
        // No bulk's answer: how it begins says what it is instead.
        Ok(begins)
    }

    fn pooled(&self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.pool().take(bytes.len());
        buffer.extend_from_slice(bytes);
        buffer
    }
}

/// Bytes of an answer, and of each of its items, that are taken as they are: an item that is done has 25.
/// They are charged to nobody, so a pipeline's requests have so many together at most.
const PLAIN_BYTES: usize = 64 << 10;
const PLAIN_ITEM_BYTES: usize = 48;
const PLAIN_BYTES_MAX: usize = 512 << 10;
/// What an item of a long answer takes at least of the memory for those.
const ITEM_BYTES: usize = 256;
/// What is kept of an error in a long answer, and of all of them.
const ERROR_BYTES_MAX: usize = 256 << 10;
const ERRORS_BYTES_MAX: usize = 4 << 20;
/// What is kept of an answer that is none.
const BEGINNING_BYTES: usize = 4 << 10;
