//! Reading body bytes from a socket into pooled memory: the common part of server and client.

use std::io;
use std::task::{Context, Poll, ready};

use crate::admission::FIRST_BYTES;
use crate::codec::{ChunkDecoder, ChunkFault, Framing};
use crate::outgoing::CHUNK_BYTES;
use crate::pool::{Buffer, Pool};
use crate::stream::Stream;

/// The read side of a connection: the bytes that have arrived and not been asked for yet, and how much of the
/// present body is still to come.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) pool: Pool,
    /// The read buffer; `None` while it would be empty: idle connections hold no memory.
    buffer: Option<Buffer>,
    left: Left,
    /// Whether the peer has closed its side.
    pub(crate) ended: bool,
    /// Whether it did so without ending the TLS session first: anybody on the way could have done that.
    cut: bool,
    /// The body bytes of the present message that have arrived so far.
    pub(crate) received: u64,
}

#[derive(Debug)]
enum Left {
    Nothing,
    Length(u64),
    Chunks(ChunkDecoder),
    UntilClose,
}

/// How far the body of an answer has been collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collected {
    All,
    /// What comes next may not fit into the memory that may be taken.
    NoRoom,
}

/// The progress of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gathered {
    All,
    /// There is no room for more of it.
    NoRoom,
}

/// The reason why a body could not be received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveFault {
    #[error(transparent)]
    Io(io::Error),
    #[error("connection closed before the end of the body")]
    Cut,
    #[error(transparent)]
    Chunk(ChunkFault),
    #[error("body is larger than {0} bytes")]
    TooLarge(u64),
}

// === impl Receiver ===

impl Receiver {
    pub(crate) fn new(pool: Pool) -> Self {
        Receiver {
            pool,
            buffer: None,
            left: Left::Nothing,
            ended: false,
            cut: false,
            received: 0,
        }
    }

    /// Returns the bytes that have arrived and belong to no message yet.
    pub(crate) fn pending(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }

    /// Drops the first `count` pending bytes (a head that was parsed).
    pub(crate) fn consume(&mut self, count: usize) {
        if let Some(buffer) = &mut self.buffer {
            buffer.advance(count);
            if buffer.is_empty() {
                self.buffer = None;
            }
        }
    }

    /// Gives up all pending bytes and their memory, before a connection ends.
    pub(crate) fn give_up(&mut self) {
        self.buffer = None;
    }

    /// Prepares for a body with this framing.
    pub(crate) fn expect(&mut self, framing: Framing) {
        self.received = 0;
        self.left = match framing {
            Framing::None | Framing::Length(0) => Left::Nothing,
            Framing::Length(length) => Left::Length(length),
            Framing::Chunked => Left::Chunks(ChunkDecoder::default()),
            Framing::UntilClose => Left::UntilClose,
        };
    }

    /// Returns whether the present body has been read to its end.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.left, Left::Nothing)
    }

    /// Returns the bytes still to come, when known.
    pub(crate) fn bytes_left(&self) -> Option<u64> {
        match self.left {
            Left::Nothing => Some(0),
            Left::Length(left) => Some(left),
            Left::Chunks(_) | Left::UntilClose => None,
        }
    }

    /// Reads more pending bytes; 0 means the end of the stream.
    pub(crate) fn poll_fill(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        if stream.poll_read_ready(cx)?.is_pending() {
            self.hold_little();
            return Poll::Pending;
        }
        let read_bytes = self.read_bytes();
        let buffer = self.buffer.get_or_insert_with(|| self.pool.take(read_bytes));
        if buffer.spare() < READ_BYTES_MIN {
            let little = READ_BYTES_SCARCE.max(buffer.len() + read_bytes);
            let more = match self.pool.budget().is_scarce() {
                true => little.min(buffer.len() * 2),
                false => buffer.len() * 2,
            };
            let mut larger = self.pool.take(more.max(read_bytes));
            larger.extend_from_slice(buffer);
            *buffer = larger;
        }
        let got = end_of_connection(stream.poll_read(cx, buffer.tail(), usize::MAX), &mut self.cut);
        match &got {
            Poll::Ready(Ok(0)) => self.ended = true,
            Poll::Pending => self.hold_little(),
            _ => {}
        }
        if self.pending().is_empty() {
            self.buffer = None;
        }
        got
    }

    /// Returns how many bytes to read at a time. A connection that waits for room for its body keeps the
    /// bytes read with the head: few, when room is scarce.
    fn read_bytes(&self) -> usize {
        let budget = self.pool.budget();
        match () {
            () if budget.is_used_up() => 2 * READ_BYTES_MIN,
            () if budget.is_scarce() => READ_BYTES_SCARCE,
            () => READ_BYTES,
        }
    }

    /// Holds no more memory than needed while waiting for the rest of a head: ten thousand slow heads must
    /// not hold ten thousand read buffers.
    fn hold_little(&mut self) {
        if let Some(buffer) = &mut self.buffer
            && !buffer.is_empty()
            && buffer.capacity() > 2 * (buffer.len() + READ_BYTES_MIN)
        {
            let mut small = self.pool.take(buffer.len() + READ_BYTES_MIN);
            small.extend_from_slice(buffer);
            *buffer = small;
        }
    }

    /// Notes that the pending bytes have to wait: unless memory is plenty, they take little more than they
    /// are. A single byte would otherwise take a whole read buffer for as long as an answer is waited for.
    pub(crate) fn rests(&mut self) {
        if self.buffer.is_some() && self.pool.budget().is_in_use() {
            self.hold_little();
        }
    }

    /// Returns how much memory the pending bytes take while nothing is read: little more than they are, where
    /// memory is scarce.
    pub(crate) fn waits(&mut self) -> usize {
        if self.pool.budget().is_scarce() {
            self.hold_little();
        }
        self.held()
    }

    /// Returns how much memory the pending bytes take.
    pub(crate) fn held(&self) -> usize {
        self.buffer.as_ref().map_or(0, Buffer::charged)
    }

    /// Returns the next piece of the body, at most 256 KiB; `None` at its end.
    pub(crate) fn poll_piece(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Buffer>, ReceiveFault>> {
        loop {
            if self.is_done() {
                return Poll::Ready(Ok(None));
            }
            if let Some(piece) = self.take_piece()? {
                return Poll::Ready(Ok(Some(piece)));
            }
            if self.is_done() {
                return Poll::Ready(Ok(None));
            }
            // Large known lengths are read straight into the piece; all others by way of the read buffer.
            if let Left::Length(left) = self.left
                && left > READ_BYTES as u64
            {
                ready!(stream.poll_read_ready(cx)).map_err(ReceiveFault::Io)?;
                let mut piece = self.pool.take(CHUNK_BYTES);
                let count = ready!(self.poll_read_body(stream, cx, &mut piece, left))?;
                debug_assert_eq!(count, piece.len());
                return Poll::Ready(Ok(Some(piece)));
            }
            ready!(self.poll_more(stream, cx))?;
        }
    }

    /// Takes the pending bytes that belong to the body, as a piece of their own.
    fn take_piece(&mut self) -> Result<Option<Buffer>, ReceiveFault> {
        let Some(mut buffer) = self.buffer.take() else {
            return Ok(None);
        };
        let (skip, data) = self.next_data(&buffer)?;
        buffer.advance(skip);
        if data == 0 {
            self.buffer = Some(buffer).filter(|buffer| !buffer.is_empty());
            return Ok(None);
        }
        self.received += data as u64;
        if data == buffer.len() {
            return Ok(Some(buffer));
        }
        // All small chunks that have arrived form one piece: a piece for each would cost a buffer, and a
        // write further on, for as little as a byte.
        let room = match self.left {
            Left::Chunks(_) => buffer.len(),
            _ => data,
        };
        let mut piece = self.pool.take(room);
        let mut data = data;
        while data > 0 {
            piece.extend_from_slice(&buffer[..data]);
            buffer.advance(data);
            let next = self.next_data(&buffer)?;
            buffer.advance(next.0);
            data = next.1;
            self.received += data as u64;
        }
        self.buffer = Some(buffer).filter(|buffer| !buffer.is_empty());
        Ok(Some(piece))
    }

    /// Returns how many framing bytes to skip and body bytes to take at the beginning of `bytes`; advances
    /// the body's state.
    fn next_data(&mut self, bytes: &[u8]) -> Result<(usize, usize), ReceiveFault> {
        match &mut self.left {
            Left::Nothing => Ok((0, 0)),
            Left::UntilClose => Ok((0, bytes.len())),
            Left::Length(left) => {
                let data = (*left).min(bytes.len() as u64);
                *left -= data;
                if *left == 0 {
                    self.left = Left::Nothing;
                }
                Ok((0, data as usize))
            }
            Left::Chunks(decoder) => {
                let step = decoder.step(bytes).map_err(ReceiveFault::Chunk)?;
                if step.ended {
                    self.left = Left::Nothing;
                }
                Ok((step.skip, step.data))
            }
        }
    }

    /// Appends the body of an answer to `into`, which must be big enough for a known length; grows it for
    /// unknown ones. Takes at most `limit` bytes. Before `into` has to become larger than `room` bytes, this
    /// asks for more; `room` has to be at least as large as what is read at once.
    pub(crate) fn poll_collect(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
        into: &mut Buffer,
        (room, limit): (usize, usize),
    ) -> Poll<Result<Collected, ReceiveFault>> {
        loop {
            while let Some(mut buffer) = self.buffer.take() {
                let may_need = into.len() + buffer.len();
                if may_need > into.capacity().max(room) && may_need <= limit {
                    self.buffer = Some(buffer);
                    return Poll::Ready(Ok(Collected::NoRoom));
                }
                let (skip, data) = self.next_data(&buffer)?;
                buffer.advance(skip);
                self.received += data as u64;
                if data > 0 {
                    if into.len() + data > limit {
                        return Poll::Ready(Err(ReceiveFault::TooLarge(limit as u64)));
                    }
                    if into.is_empty() && data == buffer.len() && self.is_done() {
                        *into = buffer; // the whole body came with its head: hand over the memory itself
                        break;
                    }
                    self.grow_for(into, data, limit)?;
                    into.extend_from_slice(&buffer[..data]);
                    buffer.advance(data);
                }
                if !buffer.is_empty() {
                    self.buffer = Some(buffer);
                }
                if self.is_done() {
                    break;
                }
            }
            match self.left {
                Left::Nothing => return Poll::Ready(Ok(Collected::All)),
                Left::Length(left) => {
                    self.grow_for(into, left.min(usize::MAX as u64) as usize, limit)?;
                    ready!(self.poll_read_body(stream, cx, into, left))?;
                }
                Left::Chunks(_) | Left::UntilClose => ready!(self.poll_more(stream, cx))?,
            }
        }
    }

    /// Appends the body to `into` until it is complete or there is no room. A body that fits into little
    /// memory stays in the read buffer until it is complete, and so does the beginning of a body of known
    /// length, since room is given for bytes that arrive.
    pub(crate) fn poll_gather(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
        into: &mut Buffer,
        limit: usize,
    ) -> Poll<Result<Gathered, ReceiveFault>> {
        loop {
            if let Some(mut buffer) = self.buffer.take() {
                if let Left::Length(left) = self.left
                    && into.is_empty()
                    && left == buffer.len() as u64
                {
                    self.received += left;
                    self.left = Left::Nothing;
                    self.buffer = Some(buffer);
                    self.rests();
                    // The whole body came with its head: hand over the memory itself.
                    *into = self.buffer.take().unwrap_or_else(|| self.pool.take(0));
                    return Poll::Ready(Ok(Gathered::All));
                }
                let begins = match self.left {
                    Left::Length(left) => into.claim().is_none() && left > into.spare() as u64,
                    _ => false,
                };
                if begins && buffer.len() < FIRST_BYTES && !self.holds_rest(&buffer) {
                    self.buffer = Some(buffer);
                    ready!(self.poll_more(stream, cx))?;
                    continue;
                }
                if begins || into.spare() == 0 {
                    self.buffer = Some(buffer);
                    return Poll::Ready(Ok(Gathered::NoRoom));
                }
                let fits = buffer.len().min(into.spare());
                let (skip, data) = self.next_data(&buffer[..fits])?;
                buffer.advance(skip);
                self.received += data as u64;
                if into.len() + data > limit {
                    return Poll::Ready(Err(ReceiveFault::TooLarge(limit as u64)));
                }
                into.extend_from_slice(&buffer[..data]);
                buffer.advance(data);
                self.buffer = Some(buffer).filter(|buffer| !buffer.is_empty());
                if self.is_done() {
                    return Poll::Ready(Ok(Gathered::All));
                }
                if skip + data > 0 {
                    continue;
                }
            }
            match self.left {
                Left::Nothing => return Poll::Ready(Ok(Gathered::All)),
                Left::Length(left) if into.claim().is_some() => {
                    if into.spare() == 0 {
                        return Poll::Ready(Ok(Gathered::NoRoom));
                    }
                    ready!(self.poll_read_body(stream, cx, into, left))?;
                }
                _ => ready!(self.poll_more(stream, cx))?,
            }
        }
    }

    /// Returns whether the rest of the body is in the read buffer.
    fn holds_rest(&self, buffer: &Buffer) -> bool {
        matches!(self.left, Left::Length(left) if left <= buffer.len() as u64)
    }

    /// Reads body bytes of a known length directly into `into`.
    fn poll_read_body(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
        into: &mut Buffer,
        left: u64,
    ) -> Poll<Result<usize, ReceiveFault>> {
        let max = left.min(usize::MAX as u64) as usize;
        let read = end_of_connection(stream.poll_read(cx, into.tail(), max), &mut self.cut);
        let count = ready!(read).map_err(ReceiveFault::Io)?;
        if count == 0 {
            self.ended = true;
            return Poll::Ready(Err(ReceiveFault::Cut));
        }
        self.received += count as u64;
        let left = left - count as u64;
        self.left = if left == 0 {
            Left::Nothing
        } else {
            Left::Length(left)
        };
        Poll::Ready(Ok(count))
    }

    /// Fills the read buffer. The end of the stream ends a body that lasts until close, and truncates any
    /// other.
    fn poll_more(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<Result<(), ReceiveFault>> {
        if ready!(self.poll_fill(stream, cx)).map_err(ReceiveFault::Io)? == 0 {
            match self.left {
                Left::UntilClose if !self.cut => self.left = Left::Nothing,
                _ => return Poll::Ready(Err(ReceiveFault::Cut)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Makes room for `more` bytes, and more at once the larger it is ([`grown`]); past the budget, too,
    /// since answers report work that has been done.
    fn grow_for(&self, buffer: &mut Buffer, more: usize, limit: usize) -> Result<(), ReceiveFault> {
        let need = buffer.len() + more;
        if need > limit {
            return Err(ReceiveFault::TooLarge(limit as u64));
        }
        if more > buffer.spare() {
            let size = need.max(grown(buffer.capacity()).min(limit));
            let mut larger = self.pool.take(size);
            larger.extend_from_slice(buffer);
            *buffer = larger;
        }
        Ok(())
    }
}

/// Returns the capacity that a buffer grows to: twice as much, or 16 MiB more. Both are in memory for a
/// moment.
pub(crate) fn grown(capacity: usize) -> usize {
    capacity + capacity.min(GROWTH_BYTES_MAX)
}

const GROWTH_BYTES_MAX: usize = 16 << 20;

/// Treats a connection that ends without the end of the TLS session, as many peers end it, as an ordinary
/// end: lengths and chunks reveal what is missing. `cut` remembers it for bodies where nothing else does.
fn end_of_connection(read: Poll<io::Result<usize>>, cut: &mut bool) -> Poll<io::Result<usize>> {
    match read {
        Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            *cut = true;
            Poll::Ready(Ok(0))
        }
        read => read,
    }
}

pub(crate) const READ_BYTES: usize = 128 << 10;
pub(crate) const READ_BYTES_MIN: usize = 2 << 10;
/// A body waits for room once [`FIRST_BYTES`] of it have come, which most heads leave room for in this. With
/// less, nearly every body that waits would grow its buffer for the last few bytes.
const READ_BYTES_SCARCE: usize = FIRST_BYTES + (4 << 10);
