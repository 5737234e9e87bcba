//! HTTP/1.1 out: per-core connection pools.

mod connections;
mod error;
mod exchange;
mod origin;
mod reply;
mod resolve;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use tokio::time::Instant;

use self::connections::Connections;
use crate::outgoing::Outgoing;
use crate::pool::Pool;

pub use self::error::{Fate, SendError, SendErrorKind};
pub use self::reply::ReplyBody;

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
    /// Reply headers. Servers add a `Warning` for each deprecated thing that a request touches.
    pub header_count_max: usize,
    /// Without the node taking a byte of our request, or sending a byte of a reply that has begun.
    pub stall_timeout: Duration,
}

/// Sends requests. One per core; cheap to clone; not `Send`. Needs a tokio runtime with a `LocalSet` around
/// it.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Rc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: ClientConfig,
    pool: Pool,
    connections: Connections,
}

/// Where a connection leads: host, port, TLS. Cheap to clone, `Send`; make it once per node and keep it.
#[derive(Debug, Clone)]
pub struct Origin {
    parts: Arc<origin::OriginParts>,
}

/// Head of a request to send. Framing headers (`Content-Length`, `Transfer-Encoding`, `Connection`…) in
/// `headers` are ignored: they follow from the body. `Host` is taken from `headers` if there, else from the
/// origin.
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
    /// The whole exchange up to the reply's head, queueing and connecting included; `ReplyBody` keeps to it
    /// as well.
    pub overall: Instant,
    /// From the last byte of the request to the reply's head.
    pub head_timeout: Option<Duration>,
}

/// An answer whose head has come.
pub type Reply = http::Response<ReplyBody>;

impl Default for ClientConfig {
    fn default() -> Self {
        ClientConfig {
            connections_per_origin_max: 256,
            queue_max: 10_000,
            connect_timeout: Duration::from_secs(3),
            idle_timeout: Duration::from_secs(25),
            head_bytes_max: 64 << 10,
            header_count_max: 1000,
            stall_timeout: Duration::from_secs(60),
        }
    }
}

// === impl Client ===

impl Client {
    /// A client with no connections yet; its buffers come from `pool`.
    pub fn new(config: ClientConfig, pool: Pool) -> Self {
        Client {
            inner: Rc::new(Inner {
                config,
                pool,
                connections: Connections::default(),
            }),
        }
    }

    /// Sends one request and waits for the head of the final reply (1xx are skipped).
    ///
    /// # Errors
    /// See [`SendError`]; whether a retry elsewhere is safe stands in its `fate`. Nothing is retried here,
    /// except that a kept connection found dead before any byte was written is replaced by another one.
    pub async fn send(
        &self,
        origin: &Origin,
        head: RequestHead<'_>,
        body: Outgoing,
        deadlines: Deadlines,
    ) -> Result<Reply, SendError> {
        let failed = |kind, fate, reused| SendError {
            kind,
            fate,
            reused,
            origin: Arc::clone(&origin.parts.authority),
        };
        let connection = match self.inner.checkout(origin, deadlines).await {
            Ok(connection) => connection,
            Err(kind) => return Err(failed(kind, Fate::NothingSent, false)),
        };
        let reused = connection.reused;
        exchange::run(&self.inner, origin, connection, head, body, deadlines)
            .await
            .map_err(|(kind, fate)| failed(kind, fate, reused))
    }

    /// Closes idle connections to an origin (a node that left the cluster).
    pub fn forget(&self, origin: &Origin) {
        self.inner.connections.forget(origin);
    }
}

// === impl Deadlines ===

impl Deadlines {
    /// Everything within `timeout` from now.
    pub fn within(timeout: Duration) -> Self {
        Deadlines {
            overall: Instant::now() + timeout,
            head_timeout: None,
        }
    }
}
