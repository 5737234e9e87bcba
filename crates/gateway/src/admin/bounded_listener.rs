//! The listener of the admin port. It limits the number of connections, and closes those that are silent for
//! long: a client that reaches the port must not be able to use up the open files that clients and nodes
//! need, nor to keep health checks from the port.
//!
//! A new connection is always accepted. If the limit is reached, another connection is closed for it: the one
//! that has waited longest without a complete request, because it is idle or sends its request slowly. Only
//! if all connections have requests under way is it the one that has moved no bytes for the longest time.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::{IncomingStream, Listener};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep, sleep};

/// Accepts every connection, and closes another one to make room if necessary.
pub(crate) struct BoundedListener {
    listener: TcpListener,
    bounds: Bounds,
    connections: Vec<Weak<ConnectionState>>,
    begun: Instant,
}

/// The limits of number and time.
#[derive(Clone, Copy)]
struct Bounds {
    connections_max: usize,
    silence_max: Duration,
    /// The time from the first byte of a request to the end of its head.
    head_max: Duration,
}

/// What is known about a connection.
#[derive(Debug)]
struct ConnectionState {
    /// The number of requests whose head has arrived and whose answer is not complete.
    requests: AtomicUsize,
    /// When bytes last moved, in ms since the listener began.
    moved_ms: AtomicU64,
    /// Since when the connection has had no complete request, in ms since the listener began.
    waits_since_ms: AtomicU64,
    leaves: AtomicBool,
    waker: Mutex<Option<Waker>>,
    begun: Instant,
}

/// The connection that a request came from.
#[derive(Clone, Debug)]
pub(crate) struct OfConnection(Arc<ConnectionState>);

/// An accepted connection.
pub(crate) struct AcceptedConnection {
    socket: TcpStream,
    bounds: Bounds,
    alarm: Pin<Box<Sleep>>,
    /// Whether bytes of an incomplete request have arrived.
    head_began: bool,
    state: Arc<ConnectionState>,
}

/// A request under way. It ends when this is dropped.
struct UnderWay(Arc<ConnectionState>);

// === impl BoundedListener ===

impl BoundedListener {
    pub(crate) fn new(listener: TcpListener) -> Self {
        let bounds = Bounds {
            connections_max: CONNECTIONS_MAX,
            silence_max: SILENCE_MAX,
            head_max: HEAD_MAX,
        };
        Self::with(listener, bounds)
    }

    fn with(listener: TcpListener, bounds: Bounds) -> Self {
        Self {
            listener,
            bounds,
            connections: Vec::new(),
            begun: Instant::now(),
        }
    }

    /// Closes a connection if the limit is reached. One is enough, since the connections are accepted one at
    /// a time.
    fn make_room(&mut self) {
        self.connections.retain(|state| {
            let state = state.upgrade();
            state.is_some_and(|state| !state.leaves.load(Ordering::Relaxed))
        });
        if self.connections.len() < self.bounds.connections_max {
            return;
        }
        let open = self.connections.iter().filter_map(Weak::upgrade);
        let first = open.min_by_key(|state| match state.requests.load(Ordering::Relaxed) {
            0 => (0, state.waits_since_ms.load(Ordering::Relaxed)),
            _ => (1, state.moved_ms.load(Ordering::Relaxed)),
        });
        if let Some(state) = first {
            wire::rationed!(
                tracing::warn,
                connections_max = self.bounds.connections_max,
                "too many connections to the admin port: the one that waits for the longest time is closed"
            );
            state.leave();
        }
    }
}

impl Listener for BoundedListener {
    type Io = AcceptedConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (AcceptedConnection, SocketAddr) {
        let (socket, address) = Listener::accept(&mut self.listener).await;
        self.make_room();
        let state = Arc::new(ConnectionState::new(self.begun));
        self.connections.push(Arc::downgrade(&state));
        let visit = AcceptedConnection {
            socket,
            bounds: self.bounds,
            alarm: Box::pin(sleep(self.bounds.silence_max)),
            head_began: false,
            state,
        };
        (visit, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Connected<IncomingStream<'_, BoundedListener>> for OfConnection {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Self {
        Self(Arc::clone(&stream.io().state))
    }
}

/// Records that a request has come, and when it is answered.
pub(crate) async fn note(
    ConnectInfo(OfConnection(state)): ConnectInfo<OfConnection>,
    request: Request,
    next: Next,
) -> Response {
    let _under_way = UnderWay::begin(state);
    next.run(request).await
}

// === impl ConnectionState ===

impl ConnectionState {
    fn new(begun: Instant) -> Self {
        let now_ms = begun.elapsed().as_millis() as u64;
        Self {
            requests: AtomicUsize::new(0),
            moved_ms: AtomicU64::new(now_ms),
            waits_since_ms: AtomicU64::new(now_ms),
            leaves: AtomicBool::new(false),
            waker: Mutex::default(),
            begun,
        }
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn leave(&self) {
        self.leaves.store(true, Ordering::Relaxed);
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns whether the connection has to be closed. The task of `cx` is woken when this changes.
    fn has_to_leave(&self, cx: &Context<'_>) -> bool {
        *self.waker.lock() = Some(cx.waker().clone());
        self.leaves.load(Ordering::Relaxed)
    }
}

// === impl UnderWay ===

impl UnderWay {
    fn begin(state: Arc<ConnectionState>) -> Self {
        state.requests.fetch_add(1, Ordering::Relaxed);
        Self(state)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.waits_since_ms.store(self.0.now_ms(), Ordering::Relaxed);
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl AcceptedConnection ===

impl AcceptedConnection {
    fn is_answering(&self) -> bool {
        self.state.requests.load(Ordering::Relaxed) > 0
    }

    fn moved(&mut self) {
        self.state.moved_ms.store(self.state.now_ms(), Ordering::Relaxed);
    }

    fn heard(&mut self) {
        self.moved();
        let now = Instant::now();
        if self.is_answering() {
            self.head_began = false;
            self.alarm.as_mut().reset(now + self.bounds.silence_max);
        } else if !self.head_began {
            // The limit for the whole head, however slowly it arrives.
            self.head_began = true;
            self.alarm.as_mut().reset(now + self.bounds.head_max);
        }
    }

    fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.state.has_to_leave(cx) {
            return Poll::Ready(io::ErrorKind::ConnectionAborted.into());
        }
        while self.alarm.as_mut().poll(cx).is_ready() {
            if !(self.head_began && self.is_answering()) {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            // The head arrived in time; the connection waits for the gateway's answer, or for the body.
            self.head_began = false;
            self.alarm
                .as_mut()
                .reset(Instant::now() + self.bounds.silence_max);
        }
        Poll::Pending
    }
}

impl AsyncRead for AcceptedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let visit = &mut *self;
        match Pin::new(&mut visit.socket).poll_read(cx, into) {
            Poll::Pending => visit.poll_leave(cx).map(Err),
            read => {
                visit.heard();
                read
            }
        }
    }
}

impl AsyncWrite for AcceptedConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        if written.is_pending() {
            return match self.state.has_to_leave(cx) {
                true => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
                false => Poll::Pending,
            };
        }
        // A long answer does not count as silence, and after it a new head begins.
        self.moved();
        self.head_began = false;
        let until = Instant::now() + self.bounds.silence_max;
        self.alarm.as_mut().reset(until);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// Enough for an operator's browser, a scraper or two, and health checks.
const CONNECTIONS_MAX: usize = 128;

/// Longer than the pauses between most scrapes, so that scrapers keep their connections.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// Heads are short, and a client that begins one sends it at once.
const HEAD_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

    async fn serve(bounds: Bounds, answer_after: Duration) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = move || async move {
            sleep(answer_after).await;
            "here"
        };
        let routes = axum::Router::new()
            .route("/", axum::routing::get(answer))
            .layer(axum::middleware::from_fn(note));
        let service = routes.into_make_service_with_connect_info::<OfConnection>();
        tokio::spawn(async move { axum::serve(BoundedListener::with(listener, bounds), service).await });
        address
    }

    async fn read_all(mut socket: TcpStream) -> String {
        let mut answer = String::new();
        let read = socket.read_to_string(&mut answer);
        let _ = tokio::time::timeout(Duration::from_secs(10), read)
            .await
            .expect("it ends");
        answer
    }

    fn bounds(connections_max: usize, head_max: Duration) -> Bounds {
        Bounds {
            connections_max,
            silence_max: Duration::from_secs(60),
            head_max,
        }
    }

    #[tokio::test]
    async fn a_new_connection_takes_the_seat_of_one_that_trickles() {
        let address = serve(bounds(3, Duration::from_secs(60)), Duration::ZERO).await;
        let mut tricklers = Vec::new();
        for _ in 0..20 {
            let mut socket = TcpStream::connect(address).await.unwrap();
            socket.write_all(b"GET / HT").await.unwrap();
            tricklers.push(socket);
        }
        for _ in 0..10 {
            let mut visitor = TcpStream::connect(address).await.unwrap();
            visitor.write_all(HEAD).await.unwrap();
            let answer = read_all(visitor).await;
            assert!(answer.ends_with("here"), "{answer}");
        }
    }

    #[tokio::test]
    async fn a_request_under_way_keeps_its_seat() {
        let address = serve(bounds(3, Duration::from_secs(60)), Duration::from_millis(500)).await;
        let mut working = TcpStream::connect(address).await.unwrap();
        working.write_all(HEAD).await.unwrap();
        sleep(Duration::from_millis(100)).await;
        for _ in 0..20 {
            let mut socket = TcpStream::connect(address).await.unwrap();
            socket.write_all(b"G").await.unwrap();
        }
        let answer = read_all(working).await;
        assert!(answer.ends_with("here"), "{answer}");
    }

    #[tokio::test]
    async fn a_head_that_trickles_is_not_waited_for() {
        let address = serve(bounds(3, Duration::from_millis(300)), Duration::ZERO).await;
        let socket = TcpStream::connect(address).await.unwrap();
        let (mut reads, mut writes) = socket.into_split();
        let begun = Instant::now();
        let trickle = async move {
            for byte in HEAD {
                if writes.write_all(&[*byte]).await.is_err() {
                    return;
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        let mut answer = String::new();
        let ends = async {
            let _ = reads.read_to_string(&mut answer).await;
            begun.elapsed()
        };
        let ((), took) = tokio::join!(trickle, ends);
        assert!(
            !answer.contains("200") && took < Duration::from_secs(2),
            "{took:?}: {answer}"
        );
    }
}
