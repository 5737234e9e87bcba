//! One thread that accepts and deals each connection to the worker with the fewest: bulk clients are few and
//! long-lived, so the kernel's hashing (`SO_REUSEPORT` alone) would leave cores idle.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::server::ServerConfig;

/// What a worker's end of a server is told.
pub(crate) enum Order {
    Serve(TcpStream, SocketAddr, Admitted),
    Drain,
    Cut,
}

/// One worker to deal to.
pub(crate) struct Seat {
    pub(crate) orders: mpsc::UnboundedSender<Order>,
    /// Connections of all servers on that worker.
    pub(crate) load: Arc<AtomicUsize>,
}

/// Connections of one server on all workers.
#[derive(Debug, Default)]
pub(crate) struct Census {
    pub(crate) live: AtomicUsize,
    pub(crate) accepted: AtomicUsize,
    pub(crate) turned_away: AtomicUsize,
    pub(crate) left: Notify,
}

/// A connection's place in the counts, until dropped.
pub(crate) struct Admitted {
    census: Arc<Census>,
    load: Arc<AtomicUsize>,
}

// === impl Admitted ===

impl Admitted {
    fn new(census: &Arc<Census>, load: &Arc<AtomicUsize>) -> Self {
        census.live.fetch_add(1, Ordering::Relaxed);
        census.accepted.fetch_add(1, Ordering::Relaxed);
        load.fetch_add(1, Ordering::Relaxed);
        Admitted {
            census: Arc::clone(census),
            load: Arc::clone(load),
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
        self.census.live.fetch_sub(1, Ordering::Release);
        self.census.left.notify_waiters();
    }
}

/// Binds the socket, not accepting yet.
pub(crate) fn bind(config: &ServerConfig) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(config.address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if config.reuse_port {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&config.address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts until told to stop; the socket closes with it.
pub(crate) async fn accept(
    listener: std::net::TcpListener,
    seats: Vec<Seat>,
    census: Arc<Census>,
    connections_max: usize,
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
            _ = &mut stop => return,
            accepted = listener.accept() => accepted,
        };
        match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok((stream, _)) if census.live.load(Ordering::Acquire) >= connections_max => {
                census.turned_away.fetch_add(1, Ordering::Relaxed);
                crate::rationed!(
                    tracing::warn,
                    connections_max,
                    "too many connections: new ones are closed"
                );
                drop(stream);
            }
            Ok((stream, peer)) => {
                let _ = set_keepalive(&stream); // fails only if the client has gone
                turn += 1;
                let seat = least_loaded(&seats, turn);
                let admitted = Admitted::new(&census, &seat.load);
                let _ = seat.orders.send(Order::Serve(stream, peer, admitted)); // a stopped worker drops it
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                // Out of descriptors or memory: waiting is all that helps, and spinning would make it worse.
                crate::rationed!(tracing::warn, %error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The system notices peers that have vanished, when nothing is sent to them either.
pub(crate) fn set_keepalive<S: AsFd>(socket: &S) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_TIME)
        .with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(socket).set_tcp_keepalive(&keepalive)
}

fn least_loaded(seats: &[Seat], turn: usize) -> &Seat {
    let load = |at: &usize| seats[at % seats.len()].load.load(Ordering::Relaxed);
    let at = (turn..turn + seats.len()).min_by_key(load).unwrap_or(turn);
    &seats[at % seats.len()]
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
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
