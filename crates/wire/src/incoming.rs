//! The body of a request, as it comes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::budget::OverBudget;
use crate::outgoing::Chunk;
use crate::pool::{Buffer, Pool};
use crate::refusal::Refusal;

/// The body of a request. Dropping it unread is fine.
#[derive(Debug)]
pub struct Incoming {
    _private: (),
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Address of the client.
    pub address: SocketAddr,
    /// Address it connected to.
    pub local: SocketAddr,
    /// Whether the connection is TLS.
    pub tls: bool,
    /// The client's certificate (DER), when one was asked for and verified.
    pub certificate: Option<Arc<[u8]>>,
}

/// Tells when the client goes away while its request is being answered.
#[derive(Debug, Clone)]
pub struct Presence {
    _private: (),
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The body breaks a rule of HTTP or a limit, or came too slowly: answer with this refusal.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No room in memory now: answer 429 or 503.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// `Content-Encoding` is none that we decode.
    #[error("unsupported Content-Encoding")]
    UnsupportedEncoding,
    /// The compressed body is corrupt or cut off.
    #[error("corrupt {0} body")]
    Corrupt(&'static str),
    /// The body inflates past the limit or beyond any honest ratio.
    #[error("compressed body inflates to more than {limit} bytes")]
    Inflated {
        /// The limit that was passed, bytes.
        limit: u64,
    },
    /// The client went away before the end of its body.
    #[error("client closed the connection before the end of the request body")]
    Disconnected,
    /// The connection failed.
    #[error("connection failed while the request body was read: {0}")]
    Io(#[source] io::Error),
}

impl BodyError {
    /// The refusal to answer with; `None` when nobody is there to read it, or for `OverBudget`, `UnsupportedEncoding` and `Corrupt`.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            BodyError::Refused(refusal) => Some(*refusal),
            BodyError::Inflated { .. } => Some(Refusal::BodyTooLarge),
            _ => None,
        }
    }
}

impl Incoming {
    /// The next bytes as they come over the wire (at most 256 KiB, any content encoding untouched); `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Chunk>, BodyError> {
        todo!()
    }

    /// The whole body in one contiguous buffer, `gzip` and `deflate` decoded (see [`Incoming::collect_raw`]).
    /// `limit` bounds the decoded size in bytes; more is [`BodyError::Refused`] (413) or [`BodyError::Inflated`].
    pub async fn collect(self, limit: usize) -> Result<Buffer, BodyError> {
        let _ = limit;
        todo!()
    }

    /// The whole body as it came, not decoded.
    pub async fn collect_raw(self, limit: usize) -> Result<Buffer, BodyError> {
        let _ = limit;
        todo!()
    }

    /// The body as a source to send on, unchanged; its length is [`Incoming::length`].
    pub fn forward(self) -> crate::Outgoing {
        todo!()
    }

    /// Declared length; `None` when chunked.
    pub fn length(&self) -> Option<u64> {
        todo!()
    }

    /// Whether the request has no body at all.
    pub fn is_empty(&self) -> bool {
        self.length() == Some(0)
    }

    /// The pool of the core this runs on.
    pub fn pool(&self) -> &Pool {
        todo!()
    }

    /// Who sent it.
    pub fn peer(&self) -> &Peer {
        todo!()
    }

    /// A handle that tells when the client goes away.
    pub fn presence(&self) -> Presence {
        todo!()
    }
}

impl Presence {
    /// Resolves when the client has closed or reset its connection (a half-closed client counts as gone, as Elasticsearch has it).
    /// Only watches once the request's body has been read. Select on it to give up work whose answer nobody will read.
    pub async fn gone(&self) {
        todo!()
    }
}
