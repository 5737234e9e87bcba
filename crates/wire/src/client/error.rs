//! The errors of exchanges, and whether an exchange may have had an effect.

use std::sync::Arc;

use crate::budget::OverBudget;
use crate::codec::ReplyFault;
use crate::outgoing::SourceError;
use crate::receive::ReceiveFault;
use crate::tls::words;

/// Whether a failed exchange may have had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Not a byte of the request left: another node may be tried safely.
    NothingSent,
    /// Something was sent and no complete answer came: the request may or may not have been executed.
    Unknown,
}

/// The error of a failed exchange.
#[derive(Debug, thiserror::Error)]
#[error("{origin}: {kind}")]
pub struct SendError {
    /// The kind of the failure.
    #[source]
    pub kind: SendErrorKind,
    /// Whether the exchange may have had an effect.
    pub fate: Fate,
    /// Whether a kept connection was used (the usual race with a node that closes idle ones).
    pub reused: bool,
    /// The origin as `host:port`.
    pub origin: Arc<str>,
}

/// The kind of a failed exchange.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendErrorKind {
    /// Name resolution or TCP connect failed.
    #[error("connect failed: {}", connect_words(.0))]
    Connect(#[source] std::io::Error),
    /// TLS handshake failed (certificate, name, protocol).
    #[error("TLS handshake failed: {}", words::of_handshake(.0))]
    Tls(#[source] std::io::Error),
    /// No connection was established in time.
    #[error("connect timed out")]
    ConnectTimeout,
    /// Too many requests wait for a connection to this origin, or none became free before the deadline, or
    /// before the request may not be sent any more.
    #[error("no free connection")]
    Busy,
    /// The overall deadline passed.
    #[error("deadline passed")]
    Deadline,
    /// The reply's head did not come in time, or either direction stalled.
    #[error("timed out waiting for the node")]
    Timeout,
    /// The node closed the connection before the end of its reply.
    #[error("connection closed before the end of the reply")]
    Closed,
    /// The connection failed.
    #[error("connection failed: {0}")]
    Io(#[source] std::io::Error),
    /// The reply violates HTTP, or is ambiguously framed.
    #[error("malformed reply: {0}")]
    Malformed(ReplyFault),
    /// The reply is larger than the caller's limit.
    #[error("reply is larger than {limit} bytes")]
    TooLarge {
        /// The limit, bytes.
        limit: u64,
    },
    /// The reply is a TLS message, although the request was sent in clear text.
    #[error("the node speaks TLS at this port: the URL should begin with https://")]
    SpeaksTls,
    /// There is no memory for the reply.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// The request's body failed, or did not have the declared length.
    #[error("request body failed: {0}")]
    Body(SourceError),
}

/// The body of a request had not come when the request's time was over. The node is not to blame for that.
#[derive(Debug, thiserror::Error)]
#[error("the body did not come within the time that the whole request had")]
pub struct SlowSource;

// === impl SendError ===

impl SendError {
    /// Returns the same error once more, for another caller that waited for the same exchange.
    pub fn again(&self) -> Self {
        Self {
            kind: self.kind.again(),
            fate: self.fate,
            reused: self.reused,
            origin: Arc::clone(&self.origin),
        }
    }
}

// === impl SendErrorKind ===

impl SendErrorKind {
    /// Returns the same kind once more; of its cause only the kind and words are kept.
    fn again(&self) -> Self {
        let io = |error: &std::io::Error| std::io::Error::new(error.kind(), error.to_string());
        match self {
            Self::Connect(error) => Self::Connect(io(error)),
            Self::Tls(error) => Self::Tls(io(error)),
            Self::ConnectTimeout => Self::ConnectTimeout,
            Self::Busy => Self::Busy,
            Self::Deadline => Self::Deadline,
            Self::Timeout => Self::Timeout,
            Self::Closed => Self::Closed,
            Self::Io(error) => Self::Io(io(error)),
            Self::Malformed(fault) => Self::Malformed(*fault),
            Self::SpeaksTls => Self::SpeaksTls,
            Self::TooLarge { limit } => Self::TooLarge { limit: *limit },
            Self::OverBudget(over) => Self::OverBudget(*over),
            Self::Body(error) => Self::Body(error.to_string().into()),
        }
    }
}

/// Returns the system's words for a connection that could not be made, or a plain explanation where its
/// meaning is certain.
fn connect_words(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused: nothing listens there".to_owned(),
        std::io::ErrorKind::HostUnreachable | std::io::ErrorKind::NetworkUnreachable => {
            "no way leads to that address".to_owned()
        }
        _ => error.to_string(),
    }
}

impl From<ReceiveFault> for SendErrorKind {
    fn from(fault: ReceiveFault) -> Self {
        match fault {
            ReceiveFault::Io(error) => SendErrorKind::Io(error),
            ReceiveFault::Cut => SendErrorKind::Closed,
            ReceiveFault::Chunk(_) => SendErrorKind::Malformed(ReplyFault::Chunk),
            ReceiveFault::TooLarge(limit) => SendErrorKind::TooLarge { limit },
        }
    }
}
