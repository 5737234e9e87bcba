//! The body of a reply; once it has been read, its connection is free again.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use super::connections::Connection;
use super::deaf::Reuse;
use super::exchange::timeout_kind;
use super::{Deadlines, Fate, Origin, SendError, SendErrorKind};
use crate::budget::ANSWER_WITHIN;
use crate::codec::{Framing, ReplyHead};
use crate::outgoing::{Chunk, Outgoing, Source, SourceError};
use crate::pool::{Buffer, Pool};
use crate::receive::{Collected, READ_BYTES, ReceiveFault, grown};

/// The body of a reply. Dropping it before its end closes the connection.
#[derive(Debug)]
pub struct ReplyBody {
    /// `None` once the body is complete.
    connection: Option<Connection>,
    length: Option<u64>,
    reuse: Reuse,
    reused: bool,
    deadlines: Deadlines,
    stall_timeout: Duration,
    received: u64,
    /// Bytes that were read ahead by a peek.
    ahead: Option<Buffer>,
    origin: Arc<str>,
    pool: Pool,
}

/// A reply takes so much memory without asking for it.
const AT_ONCE_BYTES: usize = 1 << 20;

// === impl ReplyBody ===

impl ReplyBody {
    pub(super) fn new(
        connection: Connection,
        head: &ReplyHead,
        reuse: Reuse,
        deadlines: Deadlines,
        stall_timeout: Duration,
        origin: &Origin,
    ) -> Self {
        let length = match head.framing {
            Framing::None => Some(0),
            Framing::Length(length) => Some(length),
            Framing::Chunked | Framing::UntilClose => None,
        };
        let mut body = ReplyBody {
            pool: connection.wire.receiver.pool.clone(),
            reused: connection.reused,
            connection: Some(connection),
            length,
            reuse,
            deadlines,
            stall_timeout,
            received: u64::MAX,
            ahead: None,
            origin: Arc::clone(&origin.parts.authority),
        };
        body.release_if_done();
        body
    }

    /// Returns the next bytes as they arrive (at most 256 KiB); `None` at the end.
    ///
    /// # Errors
    /// See [`SendErrorKind`]; the fate is always unknown.
    pub async fn chunk(&mut self) -> Result<Option<Chunk>, SendError> {
        Ok(poll_fn(|cx| self.poll_piece(cx)).await?.map(Chunk::Buffer))
    }

    /// Returns the beginning of the body: the first bytes that arrive (at most 256 KiB), which can still be
    /// read later. Empty when there is no body, or when all of it has been read.
    ///
    /// # Errors
    /// See [`SendErrorKind`]; the fate is always unknown.
    pub async fn peek(&mut self) -> Result<&[u8], SendError> {
        if self.ahead.is_none() {
            self.ahead = poll_fn(|cx| self.poll_piece(cx)).await?;
        }
        Ok(self.ahead.as_deref().unwrap_or_default())
    }

    /// Returns the whole body in one contiguous buffer; fails when it is larger than `limit` bytes. The
    /// memory for it is taken beyond the budget if need be: the work that the reply reports may have been
    /// done. It is taken as the body comes, and waits a moment for others where much is taken beyond the
    /// budget already.
    ///
    /// # Errors
    /// See [`SendErrorKind`]; the fate is always unknown.
    pub async fn collect(mut self, limit: usize) -> Result<Buffer, SendError> {
        let begun = self.ahead.take();
        let Some(connection) = &self.connection else {
            let whole = begun.unwrap_or_else(|| self.pool.take(0));
            return match whole.len() > limit {
                true => Err(self.failed(SendErrorKind::TooLarge { limit: limit as u64 })),
                false => Ok(whole),
            };
        };
        let receiver = &connection.wire.receiver;
        let size = match self.length {
            Some(length) if length > limit as u64 => {
                return Err(self.failed(SendErrorKind::TooLarge { limit: limit as u64 }));
            }
            Some(length) if receiver.pending().len() as u64 >= length => 0,
            Some(length) => length as usize,
            None => READ_BYTES,
        };
        let (mut room, mut until) = (size.max(AT_ONCE_BYTES), None);
        if size > AT_ONCE_BYTES {
            self.room(size, &mut until).await?;
        }
        let mut into = begun.unwrap_or_else(|| self.pool.take(size));
        let mut collect = async |body: &mut Self, room| {
            poll_fn(|cx| {
                body.poll_wire(cx, |connection, reuse, cx| {
                    let wire = &mut connection.wire;
                    let collected =
                        ready!(
                            wire.receiver
                                .poll_collect(&mut wire.stream, cx, &mut into, (room, limit))
                        )?;
                    reuse.hear(&into);
                    Poll::Ready(Ok((collected, into.capacity())))
                })
            })
            .await
        };
        while let (Collected::NoRoom, capacity) = collect(&mut self, room).await? {
            room = grown(capacity);
            self.room(room, &mut until).await?;
        }
        Ok(into)
    }

    /// Waits for memory for more of the reply, for so long in all as is allowed once.
    async fn room(&self, bytes: usize, until: &mut Option<Instant>) -> Result<(), SendError> {
        let until = *until.get_or_insert_with(|| Instant::now() + ANSWER_WITHIN);
        let room = self.pool.budget().room_for_answer(bytes, until).await;
        room.map_err(|over| self.failed(SendErrorKind::OverBudget(over)))
    }

    /// Turns the body into one to send on, unchanged (its length is kept when known).
    pub fn forward(self) -> Outgoing {
        match self.length {
            Some(0) => Outgoing::Empty,
            length => Outgoing::stream(self, length),
        }
    }

    /// Returns the declared length; `None` when chunked or until close.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Gives up the rest of a body that comes too slowly, and closes its connection; returns the error for
    /// that, which is [`SendErrorKind::Timeout`].
    pub fn give_up(&mut self) -> SendError {
        self.connection = None;
        self.failed(SendErrorKind::Timeout)
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Buffer>, SendError>> {
        if let Some(ahead) = self.ahead.take() {
            return Poll::Ready(Ok(Some(ahead)));
        }
        if self.connection.is_none() {
            return Poll::Ready(Ok(None));
        }
        self.poll_wire(cx, |connection, reuse, cx| {
            let wire = &mut connection.wire;
            let piece = ready!(wire.receiver.poll_piece(&mut wire.stream, cx))?;
            reuse.hear(piece.as_deref().unwrap_or_default());
            Poll::Ready(Ok(piece))
        })
    }

    /// Reads by `read` within the time limits, and releases the connection at the body's end.
    fn poll_wire<T>(
        &mut self,
        cx: &mut Context<'_>,
        read: impl FnOnce(&mut Connection, &mut Reuse, &mut Context<'_>) -> Poll<Result<T, ReceiveFault>>,
    ) -> Poll<Result<T, SendError>> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(Err(self.failed(SendErrorKind::Closed)));
        };
        let polled = read(connection, &mut self.reuse, cx);
        if polled.is_pending() {
            let wire = &mut connection.wire;
            if wire.receiver.received != self.received {
                self.received = wire.receiver.received;
                wire.alarm
                    .set((Instant::now() + self.stall_timeout).min(self.deadlines.overall));
            }
            ready!(wire.alarm.poll(cx));
            let kind = timeout_kind(wire.alarm.due(), self.deadlines);
            self.connection = None;
            return Poll::Ready(Err(self.failed(kind)));
        }
        match ready!(polled) {
            Ok(got) => {
                self.release_if_done();
                Poll::Ready(Ok(got))
            }
            Err(fault) => {
                self.connection = None;
                Poll::Ready(Err(self.failed(fault.into())))
            }
        }
    }

    fn release_if_done(&mut self) {
        let done = |connection: &Connection| connection.wire.receiver.is_done();
        if self.connection.as_ref().is_some_and(done) {
            match self.connection.take() {
                Some(connection) if self.reuse.is_wanted() => connection.give_back(),
                _ => {}
            }
        }
    }

    fn failed(&self, kind: SendErrorKind) -> SendError {
        SendError {
            kind,
            fate: Fate::Unknown,
            reused: self.reused,
            origin: Arc::clone(&self.origin),
        }
    }
}

impl Source for ReplyBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, SourceError>>> {
        let piece = ready!(self.poll_piece(cx));
        Poll::Ready(
            piece
                .map(|piece| piece.map(Chunk::Buffer))
                .map_err(SourceError::from)
                .transpose(),
        )
    }
}
