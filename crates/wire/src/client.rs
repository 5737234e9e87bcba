//! HTTP/1.1 out: per-core connection pools.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use tokio::time::Instant;

use crate::budget::OverBudget;
use crate::outgoing::{Chunk, Outgoing, SourceError};
use crate::pool::{Buffer, Pool};
use crate::tls::ClientTls;

/// Bounds of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// Connections to one origin (from this core); further requests queue.
    pub connections_per_origin_max: usize,
    /// Requests that may queue for one origin; more fail at once.
    pub queue_max: usize,
    /// TCP (and TLS) connection establishment.
    pub connect_timeout: Duration,
    /// Kept connections idle for longer are closed. Shorter than what nodes and load balancers use.
    pub idle_timeout: Duration,
    /// Reply head, bytes.
    pub head_bytes_max: usize,
    /// Reply headers.
    pub header_count_max: usize,
    /// Without the node taking a byte of our request, or sending a byte of a reply that has begun.
    pub stall_timeout: Duration,
}

/// Sends requests. One per core; cheap to clone; not `Send`. Needs a tokio runtime with a `LocalSet` around it.
#[derive(Debug, Clone)]
pub struct Client {
    _private: std::rc::Rc<()>,
}

/// Where a connection leads: host, port, TLS. Cheap to clone, `Send`; make it once per node and keep it.
#[derive(Debug, Clone)]
pub struct Origin {
    _private: Arc<()>,
}

/// Head of a request to send. Framing headers (`Content-Length`, `Transfer-Encoding`, `Connection`…) in `headers` are ignored:
/// they follow from the body. `Host` is taken from `headers` if there, else from the origin.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    /// Method.
    pub method: &'a Method,
    /// Path and query as they go on the wire, beginning with `/`.
    pub target: &'a str,
    /// Headers.
    pub headers: &'a HeaderMap,
}

/// When to give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// The whole exchange up to the reply's head, queueing and connecting included; `ReplyBody` keeps to it as well.
    pub overall: Instant,
    /// From the last byte of the request to the reply's head.
    pub head_timeout: Option<Duration>,
}

/// An answer whose head has come.
pub type Reply = http::Response<ReplyBody>;

/// The body of a reply. Dropping it before its end closes the connection.
#[derive(Debug)]
pub struct ReplyBody {
    _private: (),
}

/// Whether a failed exchange may have had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Not a byte of the request left: another node may be tried safely.
    NothingSent,
    /// Something was sent and no complete answer came: the request may or may not have been executed.
    Unknown,
}

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
#[error("{origin}: {kind}")]
pub struct SendError {
    /// What went wrong.
    #[source]
    pub kind: SendErrorKind,
    /// Whether it may have had an effect.
    pub fate: Fate,
    /// Whether a kept connection was used (the usual race with a node that closes idle ones).
    pub reused: bool,
    /// `host:port`.
    pub origin: Arc<str>,
}

/// What went wrong in an exchange.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendErrorKind {
    /// Name resolution or TCP connect failed.
    #[error("connect failed: {0}")]
    Connect(#[source] std::io::Error),
    /// TLS handshake failed (certificate, name, protocol).
    #[error("TLS handshake failed: {0}")]
    Tls(#[source] std::io::Error),
    /// No connection in time.
    #[error("connect timed out")]
    ConnectTimeout,
    /// Too many requests wait for a connection to this origin, or none became free before the deadline.
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
    /// The reply breaks HTTP, or is ambiguously framed.
    #[error("malformed reply: {0}")]
    Malformed(&'static str),
    /// The reply is larger than the caller's limit.
    #[error("reply is larger than {limit} bytes")]
    TooLarge {
        /// The limit, bytes.
        limit: u64,
    },
    /// No memory for the reply.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// The request's body failed, or had another length than declared.
    #[error("request body failed: {0}")]
    Body(SourceError),
}

impl Default for ClientConfig {
    fn default() -> Self {
        ClientConfig {
            connections_per_origin_max: 256,
            queue_max: 10_000,
            connect_timeout: Duration::from_secs(3),
            idle_timeout: Duration::from_secs(25),
            head_bytes_max: 64 << 10,
            header_count_max: 100,
            stall_timeout: Duration::from_secs(60),
        }
    }
}

impl Client {
    /// A client with no connections yet; its buffers come from `pool`.
    pub fn new(config: ClientConfig, pool: Pool) -> Self {
        let _ = (config, pool);
        todo!()
    }

    /// Sends one request and waits for the head of the final reply (1xx are skipped).
    ///
    /// # Errors
    /// See [`SendError`]; whether a retry elsewhere is safe stands in its `fate`. Nothing is retried here, except that a kept
    /// connection found dead before any byte was written is replaced by another one.
    pub async fn send(
        &self,
        origin: &Origin,
        head: RequestHead<'_>,
        body: Outgoing,
        deadlines: Deadlines,
    ) -> Result<Reply, SendError> {
        let _ = (origin, head, body, deadlines);
        todo!()
    }

    /// Closes idle connections to an origin (a node that left the cluster).
    pub fn forget(&self, origin: &Origin) {
        let _ = origin;
        todo!()
    }
}

impl Origin {
    /// Clear text. `host` is a name or an address (IPv6 with or without brackets).
    pub fn http(host: &str, port: u16) -> Self {
        let _ = (host, port);
        todo!()
    }

    /// TLS. The certificate is checked against `host`.
    pub fn https(host: &str, port: u16, tls: ClientTls) -> Self {
        let _ = (host, port, tls);
        todo!()
    }

    /// `host:port`, as in a `Host` header.
    pub fn authority(&self) -> &str {
        todo!()
    }
}

impl Deadlines {
    /// Everything within `timeout` from now.
    pub fn within(timeout: Duration) -> Self {
        Deadlines {
            overall: Instant::now() + timeout,
            head_timeout: None,
        }
    }
}

impl ReplyBody {
    /// The next bytes as they come (at most 256 KiB); `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Chunk>, SendError> {
        todo!()
    }

    /// The whole body in one contiguous buffer; fails when it is larger than `limit` bytes.
    pub async fn collect(self, limit: usize) -> Result<Buffer, SendError> {
        let _ = limit;
        todo!()
    }

    /// The body as something to send on, unchanged (length kept when known).
    pub fn forward(self) -> Outgoing {
        todo!()
    }

    /// Declared length; `None` when chunked or until close.
    pub fn length(&self) -> Option<u64> {
        todo!()
    }
}
