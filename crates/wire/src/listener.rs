//! The acceptor: one thread that accepts connections and gives each to the worker with the fewest. Bulk
//! clients are few and long-lived, so the kernel's hashing (`SO_REUSEPORT` alone) would leave cores idle.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use crate::admission::peer_of;
use crate::connections::{OpenConnection, OpenConnections};
use crate::guard::{Work, caught, fault};
use crate::limits::Limits;
use crate::tls::ServerTls;

/// A socket that listens, and from which nobody accepts yet: nothing about listening can fail any more.
/// Clients that connect wait until a [`Server`](crate::Server) is made of the socket; dropping it turns them
/// away.
#[derive(Debug)]
pub struct Bound {
    pub(crate) listener: std::net::TcpListener,
    address: SocketAddr,
}

/// An order to a worker's part of a server.
pub(crate) enum Order {
    Serve(TcpStream, SocketAddr, Admitted),
    Adjust(Limits, Option<ServerTls>),
    /// Open connections end in an orderly way, and new ones are served.
    Renew,
    /// Open connections end likewise, and no new ones are served. Until the moment given, if any, connections
    /// without a request under way are still read.
    Drain(Option<Instant>),
    Cut,
}

/// A worker that connections can be given to.
pub(crate) struct WorkerSlot {
    pub(crate) orders: mpsc::UnboundedSender<Order>,
    /// The connections of all servers on that worker.
    pub(crate) load: Arc<AtomicUsize>,
}

/// The connections of one server on all workers.
#[derive(Debug)]
pub(crate) struct ConnectionCounts {
    /// The most connections; more are turned away.
    pub(crate) live_max: AtomicUsize,
    pub(crate) live: AtomicUsize,
    pub(crate) accepted: AtomicUsize,
    pub(crate) turned_away: AtomicUsize,
    /// Connections closed to make room for others.
    pub(crate) made_room: AtomicUsize,
    pub(crate) connections: OpenConnections,
    pub(crate) left: Notify,
}

/// A connection's place in the counts, until dropped.
pub(crate) struct Admitted {
    counts: Arc<ConnectionCounts>,
    load: Arc<AtomicUsize>,
    id: u64,
    pub(crate) opened: Arc<OpenConnection>,
}

// === impl Bound ===

impl Bound {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address is not available.
    pub fn new(address: SocketAddr, reuse_port: bool) -> io::Result<Bound> {
        let listener = bind(address, reuse_port)?;
        let address = listener.local_addr()?;
        Ok(Bound { listener, address })
    }

    /// Continues with a socket that already listens: another program has left it to this one.
    ///
    /// # Errors
    /// When the socket is not a TCP socket that listens.
    pub fn on(socket: OwnedFd) -> io::Result<Bound> {
        let socket = Socket::from(socket);
        if !socket.is_listener()? || socket.r#type()? != Type::STREAM {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it does not listen"));
        }
        socket.set_nonblocking(true)?;
        let listener = std::net::TcpListener::from(socket);
        let address = listener.local_addr()?;
        Ok(Bound { listener, address })
    }

    /// Returns the address that is really bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// See [`Server::share_port`](crate::Server::share_port).
    ///
    /// # Errors
    /// When the system refuses.
    pub fn share_port(&self, shared: bool) -> io::Result<()> {
        SockRef::from(&self.listener).set_reuse_port(shared)
    }
}

// === impl ConnectionCounts ===

impl ConnectionCounts {
    pub(crate) fn new(live_max: usize) -> Self {
        ConnectionCounts {
            live_max: AtomicUsize::new(live_max),
            live: AtomicUsize::default(),
            accepted: AtomicUsize::default(),
            turned_away: AtomicUsize::default(),
            made_room: AtomicUsize::default(),
            connections: OpenConnections::new(),
            left: Notify::default(),
        }
    }
}

// === impl Admitted ===

impl Admitted {
    fn new(counts: &Arc<ConnectionCounts>, load: &Arc<AtomicUsize>, peer: IpAddr) -> Self {
        counts.live.fetch_add(1, Ordering::Relaxed);
        counts.accepted.fetch_add(1, Ordering::Relaxed);
        load.fetch_add(1, Ordering::Relaxed);
        let (id, opened) = counts.connections.enter(peer);
        Admitted {
            counts: Arc::clone(counts),
            load: Arc::clone(load),
            id,
            opened,
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
        self.counts.connections.leave(self.id);
        self.counts.live.fetch_sub(1, Ordering::Release);
        self.counts.left.notify_waiters();
    }
}

fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts until told to stop, and then accepts the connections that the kernel has let in by then: closing
/// the socket over them would reset connections that their clients believe to be good. The socket closes at
/// the end.
pub(crate) async fn accept(
    listener: std::net::TcpListener,
    workers: Vec<WorkerSlot>,
    counts: Arc<ConnectionCounts>,
    mut stop: oneshot::Receiver<()>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "listener could not be registered"),
    };
    let mut turn = 0;
    loop {
        let accepted = tokio::select! {
            biased;
            _ = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok((stream, peer)) => {
                fault("accept", b"");
                let dealt = caught(Work::Connection, || {
                    deal(stream, peer, &workers, &counts, &mut turn)
                });
                if let Err(panicked) = dealt {
                    panicked.report(
                        Work::Connection,
                        "a connection is closed as it came, others go on",
                    );
                }
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                // There are no descriptors or no memory left: only waiting helps, and spinning would make it
                // worse.
                crate::rationed!(tracing::warn, %error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    let Ok(listener) = listener.into_std() else { return };
    for _ in 0..BACKLOG {
        match listener.accept() {
            Ok((stream, peer)) if stream.set_nonblocking(true).is_ok() => {
                deal(stream, peer, &workers, &counts, &mut turn);
            }
            Err(error) if !is_of_one_connection(&error) => return,
            _ => {}
        }
    }
}

/// Hands a connection to the worker with the fewest, if there is room for it or room can be made.
fn deal(
    stream: TcpStream,
    peer: SocketAddr,
    workers: &[WorkerSlot],
    counts: &Arc<ConnectionCounts>,
    turn: &mut usize,
) {
    let connections_max = counts.live_max.load(Ordering::Relaxed);
    let address = peer_of(peer.ip());
    let live = counts.live.load(Ordering::Acquire);
    if live >= connections_max {
        // Connections that are told to leave take a moment to do so, and until then there are some too many.
        let leaving = counts.connections.make_room(address, connections_max);
        // A connection that has just left may still be in the count.
        let finds_place = leaving.has_place || leaving.told > 0 || leaving.before > 0;
        if !finds_place || live >= connections_max + ABOVE_MAX.max(connections_max / 16) {
            counts.turned_away.fetch_add(1, Ordering::Relaxed);
            crate::rationed!(
                tracing::warn,
                connections_max,
                "too many connections, all of them with requests: new ones are closed"
            );
            return;
        }
        if !leaving.has_place {
            counts.made_room.fetch_add(leaving.told, Ordering::Relaxed);
            crate::rationed!(
                tracing::warn,
                connections_max,
                "too many connections: those that wait for the longest time are closed"
            );
        }
    }
    let _ = set_keepalive(&stream); // fails only if the client has gone
    *turn += 1;
    let worker = least_loaded(workers, *turn);
    let admitted = Admitted::new(counts, &worker.load, address);
    let _ = worker.orders.send(Order::Serve(stream, peer, admitted)); // a stopped worker drops it
}

/// Makes the system notice peers that have vanished, even when nothing is sent to them.
pub(crate) fn set_keepalive<S: AsFd>(socket: &S) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_TIME)
        .with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(socket).set_tcp_keepalive(&keepalive)
}

fn least_loaded(workers: &[WorkerSlot], turn: usize) -> &WorkerSlot {
    let load = |at: &usize| workers[at % workers.len()].load.load(Ordering::Relaxed);
    let at = (turn..turn + workers.len()).min_by_key(load).unwrap_or(turn);
    &workers[at % workers.len()]
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

const BACKLOG: i32 = 4096;
const KEEPALIVE_TIME: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// The most connections above the limit that may be there while others leave.
const ABOVE_MAX: usize = 64;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
