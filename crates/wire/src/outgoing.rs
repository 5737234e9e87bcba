//! Bodies to send: request bodies to nodes and reply bodies to clients.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::pool::{Buffer, PooledBytes};

/// The largest piece that is handed to one write: large enough that a system call costs nothing per byte,
/// small enough to stay in cache.
pub const CHUNK_BYTES: usize = 256 << 10;

/// A run of bytes to send; its owner gets it back once it is written.
#[derive(Debug)]
pub enum Chunk {
    /// Bytes that live as long as the program.
    Static(&'static [u8]),
    /// Reference-counted bytes.
    Bytes(Bytes),
    /// A pooled buffer.
    Buffer(Buffer),
    /// A part of a frozen pooled buffer.
    Shared(PooledBytes),
}

/// A body to send.
#[derive(Default)]
pub enum Outgoing {
    /// No body. Requests have no `Content-Length` for methods that need none; replies have `Content-Length:
    /// 0`.
    #[default]
    Empty,
    /// One run of bytes.
    Full(Chunk),
    /// Several runs of bytes.
    Chunks(VecDeque<Chunk>),
    /// A body that is pulled chunk by chunk while the connection takes them.
    Stream {
        /// The source of the chunks.
        source: Box<dyn Source>,
        /// The bytes in all; `None` sends `Transfer-Encoding: chunked` (to an HTTP/1.0 peer: until close). A
        /// source that gives more or less fails the exchange.
        length: Option<u64>,
    },
}

/// A source of chunks, asked for the next one when the connection can take it.
pub trait Source {
    /// Returns the next chunk, `None` at the end. An error aborts the exchange and closes the connection.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, SourceError>>>;
}

/// The reason why a source could not continue (for example, the client whose body was being forwarded went
/// away).
pub type SourceError = Box<dyn Error + Send + Sync>;

// === impl Outgoing ===

impl Outgoing {
    /// Makes a pull-based body of exactly `length` bytes: `next` is called only when the last chunk has been
    /// written, so a caller can gather 256 KiB at a time into one pooled buffer that stays hot.
    pub fn gather(length: u64, next: impl FnMut() -> Option<Chunk> + 'static) -> Self {
        Outgoing::Stream {
            source: Box::new(Gather(next)),
            length: Some(length),
        }
    }

    /// Makes a streamed body.
    pub fn stream(source: impl Source + 'static, length: Option<u64>) -> Self {
        Outgoing::Stream {
            source: Box::new(source),
            length,
        }
    }

    /// Returns the bytes in all, when known.
    pub fn length(&self) -> Option<u64> {
        match self {
            Outgoing::Empty => Some(0),
            Outgoing::Full(chunk) => Some(chunk.len() as u64),
            Outgoing::Chunks(chunks) => Some(chunks.iter().map(|chunk| chunk.len() as u64).sum()),
            Outgoing::Stream { length, .. } => *length,
        }
    }

    /// Returns the pooled memory that the body keeps until it is sent, in bytes.
    pub(crate) fn held(&self) -> usize {
        match self {
            Outgoing::Empty | Outgoing::Stream { .. } => 0,
            Outgoing::Full(chunk) => chunk.held(),
            Outgoing::Chunks(chunks) => chunks.iter().map(Chunk::held).sum(),
        }
    }

    /// Returns the next piece to write.
    pub(crate) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, SourceError>>> {
        match self {
            Outgoing::Empty => Poll::Ready(None),
            Outgoing::Full(_) => match std::mem::replace(self, Outgoing::Empty) {
                Outgoing::Full(chunk) => Poll::Ready(Some(Ok(chunk))),
                _ => Poll::Ready(None),
            },
            Outgoing::Chunks(chunks) => Poll::Ready(chunks.pop_front().map(Ok)),
            Outgoing::Stream { source, .. } => source.poll_next(cx),
        }
    }
}

impl<T: Into<Chunk>> From<T> for Outgoing {
    fn from(chunk: T) -> Self {
        Outgoing::Full(chunk.into())
    }
}

impl FromIterator<Chunk> for Outgoing {
    fn from_iter<I: IntoIterator<Item = Chunk>>(chunks: I) -> Self {
        Outgoing::Chunks(chunks.into_iter().collect())
    }
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing")
            .field("length", &self.length())
            .finish_non_exhaustive()
    }
}

struct Gather<F>(F);

impl<F: FnMut() -> Option<Chunk>> Source for Gather<F> {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Chunk, SourceError>>> {
        Poll::Ready((self.0)().map(Ok))
    }
}

// === impl Chunk ===

impl Chunk {
    /// Returns the pooled memory that the chunk keeps, in bytes.
    pub(crate) fn held(&self) -> usize {
        match self {
            Chunk::Static(_) | Chunk::Bytes(_) => 0,
            Chunk::Buffer(buffer) => buffer.charged(),
            Chunk::Shared(bytes) => bytes.kept(),
        }
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        match self {
            Chunk::Static(bytes) => bytes,
            Chunk::Bytes(bytes) => bytes,
            Chunk::Buffer(bytes) => bytes,
            Chunk::Shared(bytes) => bytes,
        }
    }
}

impl std::ops::Deref for Chunk {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

impl From<&'static [u8]> for Chunk {
    fn from(bytes: &'static [u8]) -> Self {
        Chunk::Static(bytes)
    }
}

impl From<&'static str> for Chunk {
    fn from(text: &'static str) -> Self {
        Chunk::Static(text.as_bytes())
    }
}

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Self {
        Chunk::Bytes(bytes)
    }
}

impl From<Vec<u8>> for Chunk {
    fn from(bytes: Vec<u8>) -> Self {
        Chunk::Bytes(bytes.into())
    }
}

impl From<String> for Chunk {
    fn from(text: String) -> Self {
        Chunk::Bytes(text.into_bytes().into())
    }
}

impl From<Buffer> for Chunk {
    fn from(buffer: Buffer) -> Self {
        Chunk::Buffer(buffer)
    }
}

impl From<PooledBytes> for Chunk {
    fn from(shared: PooledBytes) -> Self {
        Chunk::Shared(shared)
    }
}
