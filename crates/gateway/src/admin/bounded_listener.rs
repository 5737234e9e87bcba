//! The listener of the admin port. It limits the number of connections, and closes those that are silent for
//! long: a client that reaches the port must not be able to use up the open files that clients and nodes
//! need, nor to keep health checks from the port.
//!
//! A new connection is always accepted. If the limit is reached, another connection is closed for it: the one
//! that has waited longest without a complete request, because it is idle or sends its request slowly. Only
//! if all connections have requests under way is it the one that has moved no bytes for the longest time.
//!
//! Whether a connection begins with TLS is decided when it is accepted. If a reload changes that, connections
//! of before end: at once if no request is under way, otherwise when the client has taken the answer.

mod streamed;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request};
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::serve::{IncomingStream, Listener};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep};
use wire::Accepted;

use super::port_tls::Terms;
use super::refusal::Refusal;

pub(super) use streamed::StreamedTo;

/// Accepts every connection, and closes another one to make room if necessary.
pub(crate) struct BoundedListener {
    listener: TcpListener,
    bounds: Bounds,
    terms: watch::Receiver<Terms>,
    connections: Vec<Weak<ConnectionState>>,
    begun: Instant,
}

/// The limits of number and time.
#[derive(Clone, Copy)]
struct Bounds {
    connections_max: usize,
    silence_max: Duration,
    /// The time from the first byte of a request to the end of its head, and for a TLS handshake.
    head_max: Duration,
    /// The time in which the client of an answer that goes on has to take something of what was sent.
    untaken_max: Duration,
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
    /// Whether it has to be closed once the client has taken what was answered.
    is_dismissed: AtomicBool,
    /// Whether the client spoke plain HTTP where TLS is expected.
    in_clear: AtomicBool,
    /// The terms that the connection began with, and those of now.
    began_with: Terms,
    terms: watch::Receiver<Terms>,
    address: SocketAddr,
    waker: Mutex<Option<Waker>>,
    /// How often the system has taken all that was written.
    flushes: watch::Sender<u64>,
    /// Whether the system has yet to be told that an answer goes on: it then holds little of what the client
    /// has not taken, and not for long.
    begins_stream: AtomicBool,
    begun: Instant,
}

/// The connection that a request came from.
#[derive(Clone, Debug)]
pub(crate) struct OfConnection(Arc<ConnectionState>);

/// An accepted connection.
pub(crate) struct AcceptedConnection {
    socket: Accepted,
    bounds: Bounds,
    alarm: Pin<Box<Sleep>>,
    /// Whether the TLS handshake is not over yet.
    is_shaking: bool,
    /// Whether bytes of an incomplete request have arrived.
    head_began: bool,
    /// Whether the client has not taken all of what was written.
    is_writing: bool,
    state: Arc<ConnectionState>,
}

/// A request under way. It ends when this is dropped.
#[derive(Debug)]
struct UnderWay(Arc<ConnectionState>);

// === impl BoundedListener ===

impl BoundedListener {
    pub(super) fn new(listener: TcpListener, terms: watch::Receiver<Terms>) -> Self {
        let bounds = Bounds {
            connections_max: CONNECTIONS_MAX,
            silence_max: SILENCE_MAX,
            head_max: HEAD_MAX,
            untaken_max: UNTAKEN_MAX,
        };
        Self::with(listener, bounds, terms)
    }

    fn with(listener: TcpListener, bounds: Bounds, terms: watch::Receiver<Terms>) -> Self {
        Self {
            listener,
            bounds,
            terms,
            connections: Vec::new(),
            begun: Instant::now(),
        }
    }

    /// Ends connections that wait for a request and began on other terms, those whose client is still taking
    /// an answer a little later. Those whose answer has not begun end with it ([`note`]).
    fn end_those_of_before(&self) {
        let open = self.connections.iter().filter_map(Weak::upgrade);
        for state in open.filter(|state| state.is_of_before() && !state.is_answering()) {
            state.is_dismissed.store(true, Ordering::Relaxed);
            state.wake();
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
        let (socket, address) = loop {
            tokio::select! {
                accepted = Listener::accept(&mut self.listener) => break accepted,
                Ok(()) = self.terms.changed() => self.end_those_of_before(),
            }
        };
        self.make_room();
        let terms = self.terms.borrow().clone();
        let socket = Accepted::new(socket, terms.tls.as_ref());
        let state = Arc::new(ConnectionState::new(
            self.begun,
            address,
            terms,
            self.terms.clone(),
        ));
        self.connections.push(Arc::downgrade(&state));
        let is_shaking = socket.is_shaking();
        let first = if is_shaking {
            self.bounds.head_max
        } else {
            self.bounds.silence_max
        };
        let visit = AcceptedConnection {
            socket,
            bounds: self.bounds,
            alarm: Box::pin(sleep(first)),
            is_shaking,
            head_began: false,
            is_writing: false,
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

// === impl OfConnection ===

impl OfConnection {
    /// Returns whether the connection is under TLS.
    pub(super) fn is_secured(&self) -> bool {
        self.0.began_with.tls.is_some()
    }
}

/// Records that a request has come, and when it is answered. A request in clear text where TLS is expected is
/// refused here, as is one on a connection of before a change of TLS; and the connection ends with the answer
/// if connections begin otherwise by now.
pub(crate) async fn note(
    ConnectInfo(OfConnection(state)): ConnectInfo<OfConnection>,
    request: Request,
    next: Next,
) -> Response {
    let _under_way = UnderWay::begin(Arc::clone(&state));
    let in_clear = state.in_clear.load(Ordering::Relaxed);
    let mut answer = if in_clear {
        let refusal = wire::Refusal::PlainHttp;
        wire::rationed!(tracing::warn, client = %state.address, "admin port: {refusal}");
        Refusal::invalid(refusal.reason()).into_response()
    } else if state.is_of_before() {
        // It may have been sent while an answer was still on its way.
        Refusal::misdirected("the TLS of this port has changed; connect again").into_response()
    } else {
        next.run(request).await
    };
    if in_clear || state.is_of_before() {
        answer
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

// === impl ConnectionState ===

impl ConnectionState {
    fn new(begun: Instant, address: SocketAddr, began_with: Terms, terms: watch::Receiver<Terms>) -> Self {
        let now_ms = begun.elapsed().as_millis() as u64;
        Self {
            requests: AtomicUsize::new(0),
            moved_ms: AtomicU64::new(now_ms),
            waits_since_ms: AtomicU64::new(now_ms),
            leaves: AtomicBool::new(false),
            is_dismissed: AtomicBool::new(false),
            in_clear: AtomicBool::new(false),
            began_with,
            terms,
            address,
            waker: Mutex::default(),
            flushes: watch::Sender::new(0),
            begins_stream: AtomicBool::new(false),
            begun,
        }
    }

    fn is_answering(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// Returns whether connections begin otherwise now.
    fn is_of_before(&self) -> bool {
        self.began_with.generation != self.terms.borrow().generation
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn leave(&self) {
        self.leaves.store(true, Ordering::Relaxed);
        self.wake();
    }

    fn wake(&self) {
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
        self.state.is_answering()
    }

    /// Notes the end of the handshake. A client may then be silent for a while.
    fn shaken(&mut self) {
        if self.is_shaking && !self.socket.is_shaking() {
            self.is_shaking = false;
            self.state
                .in_clear
                .store(self.socket.is_in_clear(), Ordering::Relaxed);
            let until = Instant::now() + self.bounds.silence_max;
            self.alarm.as_mut().reset(until);
        }
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

    /// Waits for the end of a connection that has nothing to read.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let leaves = self.poll_leave(cx);
        let is_dismissed = self.state.is_dismissed.load(Ordering::Relaxed);
        match leaves.is_pending() && is_dismissed && !self.is_writing && !self.is_answering() {
            true => Poll::Ready(io::ErrorKind::ConnectionAborted.into()),
            false => leaves,
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
        let (before, begins) = (into.filled().len(), !visit.head_began);
        let read = Pin::new(&mut visit.socket).poll_read(cx, into);
        visit.shaken();
        match read {
            Poll::Pending => visit.poll_end(cx).map(Err),
            read => {
                visit.heard();
                if begins && into.filled().get(before) == Some(&TLS_HANDSHAKE) {
                    let (client, refusal) = (visit.state.address, wire::Refusal::TlsHello);
                    wire::rationed!(tracing::warn, %client, "admin port: {refusal}");
                }
                read
            }
        }
    }
}

impl AsyncWrite for AcceptedConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.is_writing = true;
        if self.state.begins_stream.swap(false, Ordering::Relaxed) {
            // Without these, a client that takes nothing costs some memory more, and for a longer time.
            let _ = self.socket.set_send_buffer(STREAMED_BYTES_HELD);
            let _ = self.socket.set_taken_within(self.bounds.untaken_max);
        }
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        if written.is_pending() {
            return self.poll_leave(cx).map(Err);
        }
        // A long answer does not count as silence, and after it a new head begins.
        self.moved();
        self.head_began = false;
        let until = Instant::now() + self.bounds.silence_max;
        self.alarm.as_mut().reset(until);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.socket).poll_flush(cx) {
            Poll::Pending => self.poll_leave(cx).map(Err), // TLS keeps what the client does not take
            flushed => {
                let has_written = std::mem::replace(&mut self.is_writing, false);
                if has_written {
                    self.state.flushes.send_modify(|flushes| *flushes += 1);
                }
                if has_written && self.state.is_dismissed.load(Ordering::Relaxed) {
                    cx.waker().wake_by_ref(); // nothing else would make the server read, and so end
                }
                flushed
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.socket).poll_shutdown(cx) {
            Poll::Pending => self.poll_leave(cx).map(Err),
            shut => shut,
        }
    }
}

/// Enough for an operator's browser, a scraper or two, and health checks.
const CONNECTIONS_MAX: usize = 128;

/// Longer than the pauses between most scrapes, so that scrapers keep their connections.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// Heads are short, and a client that begins one sends it at once.
const HEAD_MAX: Duration = Duration::from_secs(10);

/// What the system holds of an answer that goes on, while the client does not take it. Linux doubles this.
const STREAMED_BYTES_HELD: usize = 32 << 10;

/// Two heartbeats of a stream: a client that has vanished does not keep its place much longer.
const UNTAKEN_MAX: Duration = Duration::from_secs(30);

/// The type of the record that a TLS session begins with (RFC 8446, section 5.1). No request begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::TlsIdentity;
    use crate::start_error::TlsOwner;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

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
        let (_, terms) = watch::channel(Terms::default());
        let listener = BoundedListener::with(listener, bounds, terms);
        tokio::spawn(async move { axum::serve(listener, service).await });
        address
    }

    /// A port with answers of 16 KB, and what can be seen of its connections.
    struct Port {
        address: SocketAddr,
        identity: Option<TlsIdentity>,
        terms: watch::Sender<Terms>,
        answers: Arc<AtomicUsize>,
    }

    impl Port {
        async fn open(bounds: Bounds, secured: bool) -> Self {
            let settings = config::EntryTls {
                certificate: config::Certificate::SelfSigned,
                client_ca_file: None,
                hot_reload: false,
            };
            let identity = secured.then(|| TlsIdentity::load(&TlsOwner::Admin, &settings).unwrap());
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let answers = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&answers);
            let answer = move || async move {
                counted.fetch_add(1, Ordering::Relaxed);
                "x".repeat(16 << 10)
            };
            let routes = axum::Router::new()
                .route("/", axum::routing::get(answer))
                .route("/long", axum::routing::get(async || "x".repeat(LONG_BYTES)))
                .route("/stream", axum::routing::get(endless))
                .layer(axum::middleware::from_fn(note));
            let service = routes.into_make_service_with_connect_info::<OfConnection>();
            let tls = identity.as_ref().map(|identity| identity.tls().clone());
            let (terms, watched) = watch::channel(Terms { tls, generation: 0 });
            let listener = BoundedListener::with(listener, bounds, watched);
            tokio::spawn(async move { axum::serve(listener, service).await });
            Self {
                address,
                identity,
                terms,
                answers,
            }
        }

        /// Connects with a socket that holds so much.
        async fn connect(&self, bytes: u32) -> Box<dyn Stream> {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(bytes).unwrap();
            let socket = socket.connect(self.address).await.unwrap();
            match &self.identity {
                None => Box::new(socket),
                Some(identity) => Box::new(secured(identity, socket).await),
            }
        }

        /// Connects, and sends requests until there are no more answers, of which none is read.
        async fn stall(&self) -> Box<dyn Stream> {
            let mut kept = self.connect(4096).await;
            let requests = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2_000);
            kept.write_all(&requests).await.unwrap();
            kept.flush().await.unwrap();
            let mut before = 0;
            loop {
                sleep(Duration::from_millis(200)).await;
                let now = self.answers.load(Ordering::Relaxed);
                if now > 0 && now == before {
                    return kept;
                }
                before = now;
            }
        }

        /// Waits until so many connections are open, or fewer. Each one follows the terms, as the listener
        /// does.
        async fn are_open(&self, most: usize) {
            let closed = async {
                while self.terms.receiver_count() > most + 1 {
                    sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), closed)
                .await
                .unwrap_or_else(|_| panic!("{} are open", self.terms.receiver_count() - 1));
        }
    }

    /// Answers with more than sockets hold, and goes on.
    async fn endless(ConnectInfo(connection): ConnectInfo<OfConnection>) -> Response {
        let of = (connection.streams(), LONG_BYTES);
        let chunks = futures_util::stream::unfold(of, |(streamed, bytes)| async move {
            if bytes == 0 {
                std::future::pending::<()>().await;
            }
            let chunk = "x".repeat(bytes);
            Some((Ok::<_, std::convert::Infallible>(chunk), (streamed, 0)))
        });
        axum::body::Body::from_stream(chunks).into_response()
    }

    trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

    impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

    async fn secured(
        identity: &TlsIdentity,
        socket: TcpStream,
    ) -> tokio_rustls::client::TlsStream<TcpStream> {
        use tokio_rustls::rustls::pki_types::pem::PemObject as _;
        use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
        let mut roots = tokio_rustls::rustls::RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(identity.certificate_pem()).unwrap();
        roots.add(certificate).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        let client = tokio_rustls::rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
        connector.connect(name, socket).await.unwrap()
    }

    #[tokio::test]
    async fn clients_that_read_no_answers_give_way_to_new_ones_also_under_tls() {
        for secured in [false, true] {
            let port = Port::open(bounds(3, Duration::from_secs(60)), secured).await;
            let mut stalled = Vec::new();
            for _ in 0..8 {
                stalled.push(port.stall().await);
            }
            port.are_open(3).await;
        }
    }

    #[tokio::test]
    async fn a_client_that_reads_no_answers_is_closed_for_its_silence() {
        for secured in [false, true] {
            let silence_max = Duration::from_secs(1);
            let bounds = Bounds {
                silence_max,
                ..bounds(3, Duration::from_secs(60))
            };
            let port = Port::open(bounds, secured).await;
            let _stalled = port.stall().await;
            port.are_open(0).await;
        }
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_of_an_answer_that_goes_on_is_given_up_by_the_system() {
        for secured in [false, true] {
            let bounds = Bounds {
                untaken_max: Duration::from_secs(1),
                ..bounds(3, Duration::from_secs(60))
            };
            let port = Port::open(bounds, secured).await;
            let mut vanished = port.connect(4096).await;
            vanished
                .write_all(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
                .await
                .unwrap();
            vanished.read_exact(&mut [0; 64]).await.unwrap();
            port.are_open(0).await;
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_being_taken_is_not_cut_by_a_change_of_tls_and_the_connection_ends_with_it() {
        for secured in [false, true] {
            let port = Port::open(bounds(9, Duration::from_secs(60)), secured).await;
            let mut idle = port.connect(64 << 10).await;
            idle.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                .await
                .unwrap();
            idle.read_exact(&mut [0; 64]).await.unwrap();
            let mut taking = port.connect(64 << 10).await;
            taking
                .write_all(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
                .await
                .unwrap();
            taking.read_exact(&mut [0; 64]).await.unwrap();
            // The server looks no further while it has the beginning of a request. The first of these is read
            // once the answer has been taken, and must not be executed.
            taking.write_all(b"G").await.unwrap();
            let mut answer = vec![0; TAKEN_BYTES];
            taking.read_exact(&mut answer).await.unwrap();
            taking
                .write_all(b"ET / HTTP/1.1\r\nHost: x\r\n\r\nG")
                .await
                .unwrap();

            port.terms.send_modify(|terms| terms.generation += 1);
            // The idle one has ended, so the listener knows.
            let mut rest = Vec::new();
            let _ = idle.read_to_end(&mut rest).await; // under TLS, it ends without a word
            let ends = taking.read_to_end(&mut answer);
            let _ = tokio::time::timeout(Duration::from_secs(30), ends)
                .await
                .expect("it ends");
            let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
            let after = &answer[head + 4 + LONG_BYTES..];
            let after = String::from_utf8_lossy(&after[..after.len().min(1_000)]);
            assert!(
                after.is_empty() || after.starts_with("HTTP/1.1 421 "),
                "secured: {secured}: {after}"
            );
            assert_eq!(port.answers.load(Ordering::Relaxed), 1, "that of the idle one");
        }
    }

    /// More than sockets and the server's buffers hold.
    const LONG_BYTES: usize = 16 << 20;
    const TAKEN_BYTES: usize = 4 << 20;

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
            untaken_max: Duration::from_secs(60),
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
