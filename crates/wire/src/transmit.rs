//! Sending a head and a body to a socket with few system calls, the first of which has head and body
//! together.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::task::{Context, Poll, ready};

use crate::codec::Framing;
use crate::outgoing::{CHUNK_BYTES, Chunk, Outgoing, SourceError};
use crate::stream::Stream;

/// One message on its way out.
#[derive(Debug)]
pub(crate) struct Transmitter {
    /// The head, or chunk framing: it is sent before the queue.
    prefix: Vec<u8>,
    prefix_at: usize,
    queue: VecDeque<Chunk>,
    queue_at: usize,
    queued: usize,
    /// Those of the queued bytes that take memory only because they are queued.
    owned: usize,
    body: Outgoing,
    framing: Framing,
    /// The bytes that a known length still promises.
    promised: u64,
    first_chunk: bool,
    body_ended: bool,
    unflushed: bool,
    /// The bytes that the socket took.
    pub(crate) written: u64,
}

/// The destination of the bytes. The server's connection is shared with the request's body, which may be the
/// source of the answer: it is borrowed for one operation at a time.
pub(crate) trait Sink {
    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl Sink for Stream {
    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Stream::poll_write(self, cx, slices)
    }
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Stream::poll_flush(self, cx)
    }
}

/// The reason why a message could not be sent.
#[derive(Debug)]
pub(crate) enum TransmitFault {
    Io(io::Error),
    /// The body's source failed or did not keep to its length.
    Body(SourceError),
}

/// The side that stopped the transmitter from continuing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    Peer,
    Source,
}

// === impl Transmitter ===

impl Transmitter {
    /// Begins a message. `head` must be complete and agree with `framing`.
    pub(crate) fn new(head: Vec<u8>, body: Outgoing, framing: Framing) -> Self {
        let promised = match framing {
            Framing::Length(length) => length,
            _ => 0,
        };
        Transmitter {
            prefix: head,
            prefix_at: 0,
            queue: VecDeque::new(),
            queue_at: 0,
            queued: 0,
            owned: 0,
            body,
            body_ended: framing == Framing::None,
            framing,
            promised,
            first_chunk: true,
            unflushed: false,
            written: 0,
        }
    }

    /// Sends until everything is sent, or until the peer or the source must be waited for (`waits` says
    /// which).
    pub(crate) fn poll_send(
        &mut self,
        stream: &mut impl Sink,
        cx: &mut Context<'_>,
        waits: &mut WaitsFor,
    ) -> Poll<Result<(), TransmitFault>> {
        loop {
            let source_pending = !self.body_ended && self.has_room() && self.pull(cx)?;
            if self.is_empty() {
                if self.unflushed {
                    *waits = WaitsFor::Peer;
                    ready!(stream.poll_flush(cx)).map_err(TransmitFault::Io)?;
                    self.unflushed = false;
                }
                if self.body_ended {
                    return Poll::Ready(Ok(()));
                }
                if source_pending {
                    *waits = WaitsFor::Source;
                    return Poll::Pending;
                }
                continue;
            }
            *waits = WaitsFor::Peer;
            ready!(self.poll_write(stream, cx)).map_err(TransmitFault::Io)?;
        }
    }

    /// Returns the pooled memory that what is left of a body keeps that was made as a whole, in bytes.
    pub(crate) fn held(&self) -> usize {
        if let Outgoing::Stream { .. } = self.body {
            return 0;
        }
        self.queue.iter().map(Chunk::held).sum::<usize>() + self.body.held()
    }

    fn is_empty(&self) -> bool {
        self.prefix_at == self.prefix.len() && self.queue.is_empty()
    }

    /// Whether more of the body may be queued: as much as one write takes, of memory that is there anyway.
    fn has_room(&self) -> bool {
        self.owned < QUEUE_BYTES && self.queued < CHUNK_BYTES
    }

    /// Queues chunks from the body; returns true when the source has none just now.
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<bool, TransmitFault> {
        let chunked = self.framing == Framing::Chunked;
        while self.has_room() && self.queue.len() < QUEUE_SLICES && (!chunked || self.queue.is_empty()) {
            match self.body.poll_chunk(cx) {
                Poll::Pending => return Ok(true),
                Poll::Ready(Some(Ok(chunk))) if chunk.is_empty() => continue,
                Poll::Ready(Some(Ok(chunk))) => self.push(chunk)?,
                Poll::Ready(Some(Err(error))) => return Err(TransmitFault::Body(error)),
                Poll::Ready(None) => {
                    self.end()?;
                    break;
                }
            }
        }
        Ok(false)
    }

    fn push(&mut self, chunk: Chunk) -> Result<(), TransmitFault> {
        match self.framing {
            Framing::Length(length) => match self.promised.checked_sub(chunk.len() as u64) {
                Some(left) => self.promised = left,
                None => {
                    return Err(TransmitFault::Body(
                        format!("more than the declared {length} bytes").into(),
                    ));
                }
            },
            Framing::Chunked => {
                let line_end = if std::mem::take(&mut self.first_chunk) {
                    ""
                } else {
                    "\r\n"
                };
                // Writing into a vector can't fail.
                let _ = write!(self.pending_prefix(), "{line_end}{:x}\r\n", chunk.len());
            }
            Framing::None | Framing::UntilClose => {}
        }
        self.queued += chunk.len();
        self.owned += owned_of(&chunk, chunk.len());
        self.queue.push_back(chunk);
        Ok(())
    }

    fn end(&mut self) -> Result<(), TransmitFault> {
        self.body_ended = true;
        if self.promised > 0 {
            let missing = self.promised;
            return Err(TransmitFault::Body(
                format!("{missing} bytes less than declared").into(),
            ));
        }
        if self.framing == Framing::Chunked {
            let last: &[u8] = if self.first_chunk {
                b"0\r\n\r\n"
            } else {
                b"\r\n0\r\n\r\n"
            };
            self.pending_prefix().extend_from_slice(last);
        }
        Ok(())
    }

    fn pending_prefix(&mut self) -> &mut Vec<u8> {
        debug_assert!(self.queue.is_empty(), "chunk framing goes before the queue");
        if self.prefix_at == self.prefix.len() {
            self.prefix.clear();
            self.prefix_at = 0;
        }
        &mut self.prefix
    }

    fn poll_write(&mut self, stream: &mut impl Sink, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut slices = [IoSlice::new(&[]); QUEUE_SLICES + 1];
        slices[0] = IoSlice::new(&self.prefix[self.prefix_at..]);
        let (mut skip, mut room) = (self.queue_at, CHUNK_BYTES);
        for (slice, chunk) in slices[1..].iter_mut().zip(&self.queue) {
            let rest = &chunk[skip..];
            *slice = IoSlice::new(&rest[..rest.len().min(room)]);
            room -= slice.len();
            skip = 0;
        }
        let count = (1 + self.queue.len()).min(slices.len());
        let first = usize::from(slices[0].is_empty());
        let wrote = ready!(stream.poll_write(cx, &slices[first..count]))?;
        if wrote == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.written += wrote as u64;
        self.unflushed = true;
        self.drop_written(wrote);
        Poll::Ready(Ok(()))
    }

    fn drop_written(&mut self, mut wrote: usize) {
        let of_prefix = wrote.min(self.prefix.len() - self.prefix_at);
        self.prefix_at += of_prefix;
        wrote -= of_prefix;
        self.queued -= wrote;
        while let Some(chunk) = self.queue.front() {
            let rest = chunk.len() - self.queue_at;
            self.owned -= owned_of(chunk, wrote.min(rest));
            if wrote < rest {
                self.queue_at += wrote;
                return;
            }
            wrote -= rest;
            self.queue_at = 0;
            self.queue.pop_front(); // a pooled buffer goes back here, just before the source wants its next one
        }
    }
}

/// Returns how many of some bytes of a chunk take memory only because they are queued.
fn owned_of(chunk: &Chunk, bytes: usize) -> usize {
    match chunk {
        Chunk::Shared(_) => 0,
        Chunk::Static(_) | Chunk::Bytes(_) | Chunk::Buffer(_) => bytes,
    }
}

const QUEUE_BYTES: usize = 64 << 10;
const QUEUE_SLICES: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use super::*;
    use crate::{Budget, Pool};

    /// Takes one write in full, and notes its bytes.
    #[derive(Default)]
    struct OneWrite(Option<usize>);

    impl Sink for OneWrite {
        fn poll_write(&mut self, _: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
            let bytes = slices.iter().map(|slice| slice.len()).sum();
            if self.0.is_some() {
                return Poll::Pending;
            }
            self.0 = Some(bytes);
            Poll::Ready(Ok(bytes))
        }
        fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn one_write_has_as_much_as_it_takes_of_memory_that_is_there_anyway_and_little_else_waits() {
        const PIECE: usize = 40 << 10;
        let pool = Pool::new(Arc::new(Budget::new(64 << 20)));
        let buffer = || {
            let mut buffer = pool.take(PIECE);
            buffer.extend_from_slice(&[b'x'; PIECE]);
            buffer
        };
        let shared = buffer().freeze();
        let first_write = |chunk: &dyn Fn() -> Chunk| {
            let body: Outgoing = (0..10).map(|_| chunk()).collect();
            let framing = Framing::Length(10 * PIECE as u64);
            let (mut sent, mut sink) = (Transmitter::new(Vec::new(), body, framing), OneWrite::default());
            let (mut context, mut waits) = (Context::from_waker(Waker::noop()), WaitsFor::Source);
            assert!(sent.poll_send(&mut sink, &mut context, &mut waits).is_pending());
            sink.0.unwrap_or_default()
        };
        assert_eq!(first_write(&|| Chunk::Buffer(buffer())), 2 * PIECE);
        assert_eq!(first_write(&|| Chunk::Shared(shared.clone())), CHUNK_BYTES);
    }
}
