//! One thread that accepts and deals each connection to the worker with the fewest: bulk clients are few and
//! long-lived, so the kernel's hashing (`SO_REUSEPORT` alone) would leave cores idle.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
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
            accepted = accept_below(&listener, &census, connections_max) => accepted,
        };
        match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok((stream, peer)) => {
                turn += 1;
                let seat = least_loaded(&seats, turn);
                let admitted = Admitted::new(&census, &seat.load);
                let _ = seat.orders.send(Order::Serve(stream, peer, admitted)); // a stopped worker drops it
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                // Out of descriptors or memory: waiting is all that helps, and spinning would make it worse.
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn accept_below(
    listener: &tokio::net::TcpListener,
    census: &Census,
    connections_max: usize,
) -> io::Result<(tokio::net::TcpStream, SocketAddr)> {
    loop {
        let left = census.left.notified();
        tokio::pin!(left);
        left.as_mut().enable();
        if census.live.load(Ordering::Acquire) < connections_max {
            return listener.accept().await;
        }
        left.await;
    }
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
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
