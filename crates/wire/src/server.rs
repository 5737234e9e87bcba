//! HTTP/1.1 and 1.0 in.
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::drain::DrainReport;
use crate::incoming::Incoming;
use crate::limits::Limits;
use crate::outgoing::Outgoing;
use crate::refusal::Refusal;
use crate::runtime::{Worker, Workers};
use crate::tls::ServerTls;

/// Answers requests. One instance lives on each worker; nothing of it needs to be `Send`.
pub trait Service: 'static {
    /// Answers one request. Runs inside the connection's task: requests of one connection are answered one after the other.
    /// A body that isn't read to its end is skipped if little is left, else the connection closes after the answer.
    fn call(&self, request: http::Request<Incoming>) -> impl Future<Output = http::Response<Outgoing>>;

    /// Words the answer to a request that never reaches [`Service::call`]. Its status should be [`Refusal::status`].
    fn refuse(&self, refusal: Refusal) -> http::Response<Outgoing>;
}

/// One listening socket.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where to listen; port 0 takes a free one ([`Server::local_addr`]).
    pub address: SocketAddr,
    /// `SO_REUSEPORT`, so that a new process can take over while the old one drains.
    pub reuse_port: bool,
    /// TLS, or clear text.
    pub tls: Option<ServerTls>,
    /// Bounds of its connections.
    pub limits: Limits,
}

/// A listening socket and its connections on all workers. Dropping it closes the socket and cuts the connections.
#[derive(Debug)]
pub struct Server {
    local_addr: SocketAddr,
}

/// What a server has counted since its start, all workers together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Open connections.
    pub connections: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Requests whose head was understood.
    pub requests: u64,
    /// Requests being answered now.
    pub in_flight: u64,
    /// Requests refused before the service saw them.
    pub refused: u64,
    /// TLS handshakes that failed.
    pub handshakes_failed: u64,
}

impl ServerConfig {
    /// Clear text on `address` with default limits.
    pub fn on(address: SocketAddr) -> Self {
        ServerConfig {
            address,
            reuse_port: false,
            tls: None,
            limits: Limits::default(),
        }
    }
}

impl Server {
    /// Listens, and serves on all workers; `make` builds each worker's service on that worker's thread.
    ///
    /// # Errors
    /// When the address can't be bound.
    pub fn start<S, F>(workers: &Workers, config: ServerConfig, make: F) -> io::Result<Server>
    where
        S: Service,
        F: Fn(&Worker) -> Rc<S> + Clone + Send + 'static,
    {
        let _ = (workers, config, make);
        todo!()
    }

    /// The address that is really bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Counters, summed over all workers.
    pub fn counts(&self) -> ServerCounts {
        todo!()
    }

    /// Stops accepting, lets requests in flight finish (last answers say `Connection: close`), cuts what is left after `deadline`.
    /// Works from any tokio runtime.
    pub async fn drain(self, deadline: Duration) -> DrainReport {
        let _ = deadline;
        todo!()
    }
}
