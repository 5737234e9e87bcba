//! The HTTP/1.1 and 1.0 server.

mod exchange;

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::drain::{DrainReport, Phase, Signal};
use crate::guard::{self, Work};
use crate::incoming::{Incoming, Peer};
use crate::limits::Limits;
use crate::listener::{self, Bound, ConnectionCounts, Order, WorkerSlot};
use crate::outgoing::{Outgoing, SourceError};
use crate::refusal::Refusal;
use crate::runtime::{Worker, Workers};
use crate::tls::ServerTls;

/// Answers requests. One instance lives on each worker; nothing of it needs to be `Send`.
pub trait Service: 'static {
    /// Answers one request. This runs inside the connection's task: requests of one connection are answered
    /// one after the other. A body that isn't read to its end is skipped if little is left; otherwise the
    /// connection closes after the answer.
    fn call(&self, request: http::Request<Incoming>) -> impl Future<Output = http::Response<Outgoing>>;

    /// Builds the answer to a request that never reaches [`Service::call`]. Its status should be
    /// [`Refusal::status`].
    fn refuse(&self, refusal: Refusal, refused: Refused<'_>) -> http::Response<Outgoing>;

    /// Builds the answer to a request when the body of the answer that [`Service::call`] gave (its head is
    /// `given`) broke off before a byte of that answer was sent. Once something has been sent, the connection
    /// can only be cut.
    fn broke_off(&self, given: &http::response::Parts, why: &SourceError) -> http::Response<Outgoing> {
        let _ = (given, why);
        self.refuse(Refusal::Failed, Refused::default())
    }
}

/// The known parts of a request that is refused.
#[derive(Debug, Clone, Copy, Default)]
pub struct Refused<'a> {
    /// The client that sent the request.
    pub peer: Option<&'a Peer>,
    /// The request's headers, if its head could be read.
    pub headers: Option<&'a http::HeaderMap>,
}

/// One listening socket.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The address to listen on; port 0 takes a free one ([`Server::local_addr`]).
    pub address: SocketAddr,
    /// Whether to set `SO_REUSEPORT`, so that a new process can take over while the old one drains.
    pub reuse_port: bool,
    /// The TLS configuration; none for clear text.
    pub tls: Option<ServerTls>,
    /// The limits of its connections.
    pub limits: Limits,
}

/// A listening socket and its connections on all workers. Dropping it closes the socket and cuts the
/// connections.
#[derive(Debug)]
pub struct Server {
    local_addr: SocketAddr,
    /// Another handle to the acceptor's socket, while it accepts.
    socket: Option<std::net::TcpListener>,
    counts: Arc<ConnectionCounts>,
    counters: Vec<Arc<Counters>>,
    orders: Vec<mpsc::UnboundedSender<Order>>,
    stop: Option<oneshot::Sender<()>>,
    acceptor: Option<std::thread::JoinHandle<Option<()>>>,
}

/// The counts of a server since its start, all workers together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Open connections.
    pub connections: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections closed on arrival, because the greatest number of connections was open.
    pub turned_away: u64,
    /// Idle connections, without a request under way, that were closed for new ones.
    pub made_room: u64,
    /// Requests whose head was parsed.
    pub requests: u64,
    /// Requests being answered now.
    pub in_flight: u64,
    /// Requests refused before the service saw them.
    pub refused: u64,
    /// TLS handshakes that failed.
    pub handshakes_failed: u64,
}

impl ServerConfig {
    /// Makes a configuration for clear text on `address` with default limits.
    pub fn on(address: SocketAddr) -> Self {
        ServerConfig {
            address,
            reuse_port: false,
            tls: None,
            limits: Limits::default(),
        }
    }
}

/// One worker's counters, on cache lines of their own; only that worker writes them.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counters {
    requests: AtomicU64,
    in_flight: AtomicU64,
    refused: AtomicU64,
    handshakes_failed: AtomicU64,
}

// === impl Server ===

impl Server {
    /// Listens, and serves on all workers; `make` builds each worker's service on that worker's thread.
    ///
    /// # Errors
    /// When the address can't be bound, or the system provides no thread.
    pub fn start<S, F>(workers: &Workers, config: ServerConfig, make: F) -> io::Result<Server>
    where
        S: Service,
        F: Fn(&Worker) -> Rc<S> + Clone + Send + 'static,
    {
        let bound = Bound::new(config.address, config.reuse_port)?;
        Self::serve(workers, bound, config.tls, config.limits, make)
    }

    /// Like [`Server::start`], on a socket that already listens.
    ///
    /// # Errors
    /// When the system provides no thread; the socket is closed then.
    pub fn serve<S, F>(
        workers: &Workers,
        bound: Bound,
        tls: Option<ServerTls>,
        limits: Limits,
        make: F,
    ) -> io::Result<Server>
    where
        S: Service,
        F: Fn(&Worker) -> Rc<S> + Clone + Send + 'static,
    {
        let local_addr = bound.local_addr();
        let listener = bound.listener;
        let socket = listener.try_clone()?;
        let counts = Arc::new(ConnectionCounts::new(limits.connections_max));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (mut counters, mut orders, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        for link in workers.links() {
            let (sender, receiver) = mpsc::unbounded_channel();
            let counted = Arc::new(Counters::default());
            counters.push(Arc::clone(&counted));
            orders.push(sender.clone());
            slots.push(WorkerSlot {
                orders: sender,
                load: Arc::clone(&link.connections),
            });
            let (make, limits, tls) = (make.clone(), limits.clone(), tls.clone());
            link.run(move |worker| {
                let shared = exchange::ServerState {
                    service: make(worker),
                    limits: RefCell::new(Rc::new(limits)),
                    tls: RefCell::new(tls),
                    pool: worker.pool().clone(),
                    signal: Rc::new(Signal::default()),
                    counters: counted,
                };
                guard::spawn(Work::Housekeeping, attend(Rc::new(shared), receiver));
            });
        }
        let (stop, stopped) = oneshot::channel();
        let counts_of = Arc::clone(&counts);
        let acceptor = guard::vital_thread("accept", Work::Core, move || {
            runtime.block_on(listener::accept(listener, slots, counts_of, stopped));
        })?;
        Ok(Server {
            local_addr,
            socket: Some(socket),
            counts,
            counters,
            orders,
            stop: Some(stop),
            acceptor: Some(acceptor),
        })
    }

    /// Returns the address that is really bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns the counters, summed over all workers.
    pub fn counts(&self) -> ServerCounts {
        let sum = |read: fn(&Counters) -> &AtomicU64| {
            self.counters
                .iter()
                .map(|counters| read(counters).load(Ordering::Relaxed))
                .sum()
        };
        ServerCounts {
            connections: self.counts.live.load(Ordering::Relaxed) as u64,
            accepted: self.counts.accepted.load(Ordering::Relaxed) as u64,
            turned_away: self.counts.turned_away.load(Ordering::Relaxed) as u64,
            made_room: self.counts.made_room.load(Ordering::Relaxed) as u64,
            requests: sum(|counters| &counters.requests),
            in_flight: sum(|counters| &counters.in_flight),
            refused: sum(|counters| &counters.refused),
            handshakes_failed: sum(|counters| &counters.handshakes_failed),
        }
    }

    /// Changes limits and TLS without a connection being refused or dropped. The limits hold for the next
    /// request on each connection, and [`Limits::connections_max`] for the next connection; TLS holds for
    /// connections accepted from now on (see [`Server::renew`]).
    pub fn adjust(&self, limits: &Limits, tls: Option<&ServerTls>) {
        self.counts
            .live_max
            .store(limits.connections_max, Ordering::Relaxed);
        self.tell(|| Order::Adjust(limits.clone(), tls.cloned()));
    }

    /// Lets the connections that are open now finish their requests in flight (their last answers say
    /// `Connection: close`) and then closes them, the idle ones at once; new connections are served as
    /// before. This is for a change in what TLS requires of clients.
    pub fn renew(&self) {
        self.tell(|| Order::Renew);
    }

    /// Lets other sockets listen on this port too, if they ask for that (`SO_REUSEPORT`), or forbids it
    /// again. Linux checks the option when the other socket is bound, so a listener on `0.0.0.0` can take
    /// over from one on `127.0.0.1`, and the other way round, without a moment in which nobody listens. Linux
    /// also remembers the option: a port that was shared can still be shared by sockets of the same user that
    /// ask for it, until nobody listens on it.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn share_port(&self, shared: bool) -> io::Result<()> {
        match &self.socket {
            Some(socket) => socket2::SockRef::from(socket).set_reuse_port(shared),
            None => Ok(()),
        }
    }

    /// Stops accepting, lets requests in flight finish (their last answers say `Connection: close`), and cuts
    /// the remaining connections after `deadline`. Works from any tokio runtime.
    pub async fn drain(self, deadline: Duration) -> DrainReport {
        self.end(deadline, None).await
    }

    /// Like [`Server::drain`], for a program that continues with the same socket: connections without a
    /// request under way are not closed at once but read for `hears` longer, since their clients may be about
    /// to send a request.
    pub async fn leave(self, deadline: Duration, hears: Duration) -> DrainReport {
        self.end(deadline, Some(Instant::now() + hears)).await
    }

    /// Returns another handle to the listening socket, for another program. Connections wait in it while
    /// nobody accepts.
    ///
    /// # Errors
    /// When the system has no descriptor left, or the server no longer listens.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        Ok(socket.try_clone()?.into())
    }

    async fn end(mut self, deadline: Duration, hears_until: Option<Instant>) -> DrainReport {
        self.stop_accepting();
        let open = self.counts.live.load(Ordering::Acquire) as u64;
        self.tell(|| Order::Drain(hears_until));
        let cut = match tokio::time::timeout(deadline, self.empty()).await {
            Ok(()) => 0,
            Err(_) => self.counts.live.load(Ordering::Acquire) as u64,
        };
        self.tell(|| Order::Cut);
        DrainReport { open, cut }
    }

    async fn empty(&self) {
        loop {
            let left = self.counts.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            if self.counts.live.load(Ordering::Acquire) == 0 {
                return;
            }
            left.await;
        }
    }

    fn tell(&self, order: impl Fn() -> Order) {
        for orders in &self.orders {
            let _ = orders.send(order()); // a stopped worker has no connections left
        }
    }

    fn stop_accepting(&mut self) {
        self.socket = None;
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join(); // it ends at once; after this the address is free
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_accepting();
        self.tell(|| Order::Cut);
    }
}

/// Runs one worker's part of a server.
async fn attend<S: Service>(
    mut shared: Rc<exchange::ServerState<S>>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    // The shared states of connections that are to end because of renewals.
    let mut ending: Vec<Rc<exchange::ServerState<S>>> = Vec::new();
    while let Some(order) = orders.recv().await {
        let done = guard::caught(Work::Connection, || follow(order, &mut shared, &mut ending));
        if let Err(panicked) = done {
            panicked.report(
                Work::Connection,
                "a listener goes on without what it was told to do",
            );
        }
    }
}

fn follow<S: Service>(
    order: Order,
    shared: &mut Rc<exchange::ServerState<S>>,
    ending: &mut Vec<Rc<exchange::ServerState<S>>>,
) {
    match order {
        Order::Serve(socket, address, admitted) => match TcpStream::from_std(socket) {
            Ok(socket) => {
                let shared = Rc::clone(shared);
                guard::spawn(Work::Connection, async move {
                    exchange::serve(shared, socket, address, &admitted.opened).await;
                    drop(admitted);
                });
            }
            Err(error) => {
                crate::rationed!(tracing::warn, %error, "connection could not be registered");
            }
        },
        Order::Adjust(limits, tls) => {
            *shared.limits.borrow_mut() = Rc::new(limits);
            *shared.tls.borrow_mut() = tls;
        }
        Order::Renew => {
            ending.retain(|ending| Rc::strong_count(ending) > 1);
            let renewed = Rc::new(shared.renewed());
            let old = std::mem::replace(shared, renewed);
            old.signal.raise(Phase::Draining);
            ending.push(old);
        }
        Order::Drain(hears_until) => {
            shared.signal.hear_until(hears_until);
            shared.signal.raise(Phase::Draining);
        }
        Order::Cut => {
            for shared in ending.iter().chain([&*shared]) {
                shared.signal.raise(Phase::Cut);
            }
        }
    }
}
