//! The HTTP/1.1 client: connection pools on each core.

mod connections;
mod deaf;
mod dial;
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

pub use self::dial::{Duplex, dial};
pub use self::error::{Fate, SendError, SendErrorKind, SlowSource};
pub use self::reply::ReplyBody;

/// The limits of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// The most connections to one origin from this core; further requests queue.
    pub connections_per_origin_max: usize,
    /// The most requests that may queue for one origin; further ones fail at once.
    pub queue_max: usize,
    /// The longest time to establish a TCP (and TLS) connection.
    pub connect_timeout: Duration,
    /// How long idle connections are kept: shorter than nodes and load balancers do.
    pub idle_timeout: Duration,
    /// The most bytes of a reply head.
    pub head_bytes_max: usize,
    /// The most headers of a reply. Servers add a `Warning` for each deprecated feature that a request uses.
    pub header_count_max: usize,
    /// The longest time in which the node takes no byte of our request, or sends no byte of a reply that has
    /// begun.
    pub stall_timeout: Duration,
}

/// Sends requests. There is one client per core; it is cheap to clone and not `Send`. It needs a tokio
/// runtime with a `LocalSet` around it.
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

/// The destination of a connection: host, port, TLS. Cheap to clone, `Send`; make it once per node and keep
/// it.
#[derive(Debug, Clone)]
pub struct Origin {
    parts: Arc<origin::OriginParts>,
}

/// The head of a request to send. Framing headers (`Content-Length`, `Transfer-Encoding`, `Connection`…) in
/// `headers` are ignored: they follow from the body. `Host` is taken from `headers` if there, otherwise from
/// the origin.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    /// Method.
    pub method: &'a Method,
    /// Path and query as they go on the wire, beginning with `/`.
    pub target: &'a str,
    /// Headers.
    pub headers: &'a HeaderMap,
}

/// The moments at which to give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// The end of the whole exchange up to the reply's head, queueing and connecting included; `ReplyBody`
    /// keeps to it as well.
    pub overall: Instant,
    /// The longest time from the last byte of the request to the reply's head.
    pub head_timeout: Option<Duration>,
    /// Nothing is sent from this moment on, if there is one; nor is a connection waited for any longer.
    pub start_by: Option<Instant>,
}

/// A reply whose head has arrived.
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
    /// Makes a client with no connections yet; its buffers come from `pool`.
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
    /// See [`SendError`]; its `fate` says whether a retry elsewhere is safe. Nothing is retried here, except
    /// that a kept connection that turns out to be dead before any byte was written is replaced by another
    /// one.
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

    /// Closes idle connections to an origin, such as a node that left the cluster.
    pub fn forget(&self, origin: &Origin) {
        self.inner.connections.forget(origin);
    }
}

// === impl Deadlines ===

impl Deadlines {
    /// Returns when it is of no use any more to wait for a connection.
    fn start_limit(self) -> Instant {
        self.start_by
            .map_or(self.overall, |start_by| start_by.min(self.overall))
    }

    /// Returns why nothing may be sent any more, if it is too late for that.
    fn too_late_to_start(self) -> Option<SendErrorKind> {
        let now = Instant::now();
        match (now >= self.overall, now >= self.start_limit()) {
            (true, _) => Some(SendErrorKind::Deadline),
            (false, true) => Some(SendErrorKind::Busy),
            (false, false) => None,
        }
    }

    /// Returns deadlines for an exchange that must end within `timeout` from now.
    pub fn within(timeout: Duration) -> Self {
        Deadlines {
            overall: Instant::now() + timeout,
            head_timeout: None,
            start_by: None,
        }
    }
}
