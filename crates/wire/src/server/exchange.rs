//! The life of one connection: head, service, answer, and again.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, Version, response};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::{Counters, Refused, Service};
use crate::alarm::Alarm;
use crate::codec::{Framing, HeadFault, HeadScan, RequestLine, encode_reply_head, is_token, parse_request};
use crate::connection::{CONTINUE, ClientGone, Connection, Io};
use crate::connections::{Activity, OpenConnection};
use crate::drain::{Phase, Registration, Signal};
use crate::guard::{self, Work, guarded};
use crate::heads::{BegunHead, HEAD_BYTES_FREE};
use crate::incoming::{Incoming, Peer};
use crate::inflate::Encoding;
use crate::limits::Limits;
use crate::outgoing::{Outgoing, SourceError};
use crate::pace::{Pace, Slowest};
use crate::pool::Pool;
use crate::receive::Receiver;
use crate::refusal::Refusal;
use crate::stream::Stream;
use crate::tls::ServerTls;
use crate::transmit::{Sink, TransmitFault, Transmitter, WaitsFor};
use crate::unread::Unread;

/// The state that all connections of one server on one worker share.
pub(super) struct ServerState<S> {
    pub(super) service: Rc<S>,
    /// The present limits; a request keeps those with which it began.
    pub(super) limits: RefCell<Rc<Limits>>,
    pub(super) tls: RefCell<Option<ServerTls>>,
    pub(super) pool: Pool,
    pub(super) signal: Rc<Signal>,
    pub(super) counters: Arc<Counters>,
}

/// The result of the wait for a head.
enum Next {
    Request(Box<RequestLine>),
    Refused(Refusal),
    /// Nothing more will come, or nobody waits for an answer.
    End,
}

/// The fate of the connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Keep,
    Close,
    /// The connection is reset, so that the client can't take what it received for the whole answer.
    Reset,
}

/// The result of sending an answer.
enum Sent {
    All(After),
    /// The answer's body broke off before a byte had been sent: another answer can still be sent.
    Nothing(Box<response::Parts>, SourceError),
    Part(After),
}

// === impl ServerState ===

impl<S> ServerState<S> {
    /// Returns the same state for later connections, with a signal that does not reach the present ones.
    pub(super) fn renewed(&self) -> Self {
        ServerState {
            service: Rc::clone(&self.service),
            limits: self.limits.clone(),
            tls: self.tls.clone(),
            pool: self.pool.clone(),
            signal: Rc::default(),
            counters: Arc::clone(&self.counters),
        }
    }

    fn limits_now(&self) -> Rc<Limits> {
        Rc::clone(&self.limits.borrow())
    }
}

/// Serves one connection to its end.
pub(super) async fn serve<S: Service>(
    shared: Rc<ServerState<S>>,
    socket: TcpStream,
    address: std::net::SocketAddr,
    opened: &Arc<OpenConnection>,
) {
    let registration = shared.signal.register();
    let mut serving = pin!(serve_to_end(&shared, socket, (address, opened), &registration));
    let mut hears = false;
    poll_fn(|cx| {
        if !std::mem::replace(&mut hears, true) {
            opened.hears(cx); // a task's waker stays the same
        }
        match registration.phase(cx) {
            Phase::Cut => Poll::Ready(()),
            _ => serving.as_mut().poll(cx),
        }
    })
    .await
}

async fn serve_to_end<S: Service>(
    shared: &Rc<ServerState<S>>,
    socket: TcpStream,
    (address, opened): (std::net::SocketAddr, &Arc<OpenConnection>),
    registration: &Registration,
) {
    let came = Instant::now();
    let Ok(local) = socket.local_addr() else { return };
    let _ = socket.set_nodelay(true); // an answer is written at once, so there is nothing to gather
    let (stream, certificate, in_clear) = match handshake(shared, socket, opened, registration).await {
        Handshake::Through(stream, certificate) => (stream, certificate, false),
        Handshake::InClear(socket) => (Stream::Plain(socket), None, true),
        Handshake::Over => return,
    };
    let peer = Peer {
        address,
        local,
        tls: matches!(stream, Stream::Server(_)),
        certificate,
    };
    let connection = Rc::new(Connection {
        io: RefCell::new(Io::new(
            stream,
            Receiver::new(shared.pool.clone()),
            Arc::clone(opened),
        )),
        limits: RefCell::new(shared.limits_now()),
        peer,
        principal: Cell::default(),
        gone: ClientGone::default(),
        opened: Arc::clone(opened),
    });
    let mut hears_until = Some(came + FIRST_WORD_TIME);
    loop {
        let next = match in_clear {
            true => Next::Refused(Refusal::PlainHttp),
            false => next_head(shared, &connection, registration, hears_until.take()).await,
        };
        let after = match next {
            Next::End => break,
            Next::Refused(refusal) => {
                shared.counters.refused.fetch_add(1, Ordering::Relaxed);
                if matches!(refusal, Refusal::PlainHttp | Refusal::TlsHello) {
                    let (client, at) = (connection.peer.address, connection.peer.local);
                    crate::rationed!(tracing::warn, %client, %at, "{refusal}");
                }
                let refused = Refused {
                    peer: Some(&connection.peer),
                    headers: None,
                };
                let answer = shared.service.refuse(refusal, refused);
                // Nothing of it is read any more, and the client may be slow to take the answer.
                connection.io.borrow_mut().receiver.give_up();
                let asked = RequestTraits {
                    method: &Method::GET,
                    version: Version::HTTP_11,
                    keep_alive: false,
                };
                answer_with(&connection, answer, asked, || true).await.after()
            }
            Next::Request(line) => exchange(shared, &connection, *line).await,
        };
        match after {
            After::Keep => opened.does(Activity::Rests),
            After::Close => return linger(&connection).await,
            After::Reset => return connection.io.borrow().stream.reset_on_close(),
        }
    }
}

/// The result of a connection's beginning.
enum Handshake {
    /// The connection is ready; the certificate is the one that the client has shown.
    Through(Stream, Option<Arc<[u8]>>),
    /// The client speaks HTTP in clear text where TLS is expected.
    InClear(TcpStream),
    Over,
}

async fn handshake<S>(
    shared: &ServerState<S>,
    socket: TcpStream,
    opened: &OpenConnection,
    registration: &Registration,
) -> Handshake {
    let Some(config) = shared.tls.borrow().as_ref().map(|tls| Arc::clone(&tls.config)) else {
        return Handshake::Through(Stream::Plain(socket), None);
    };
    let acceptor = tokio_rustls::TlsAcceptor::from(config);
    let patience = shared.limits_now().head_timeout;
    let (mut last_word, mut ends_at) = (Alarm::default(), None);
    let leaves = poll_fn(|cx| {
        if opened.has_to_leave() {
            return Poll::Ready(());
        }
        if registration.phase(cx) != Phase::Serving {
            // Nobody else should wait for a client that is silent.
            last_word.set(*ends_at.get_or_insert_with(|| Instant::now() + FIRST_WORD_TIME));
            return last_word.poll(cx);
        }
        Poll::Pending
    });
    let accepted = tokio::time::timeout(patience, async {
        let mut first = [0];
        // A method's first letter stands where a TLS record has its type.
        if let Ok(1) = socket.peek(&mut first).await
            && is_token(first[0])
        {
            return Err(Ok(socket));
        }
        acceptor.accept(socket).await.map_err(Err)
    });
    let result = tokio::select! {
        biased;
        result = accepted => result,
        () = leaves => return Handshake::Over,
    };
    match result {
        Ok(Ok(stream)) => {
            let chain = stream.get_ref().1.peer_certificates();
            let certificate = chain
                .and_then(|chain| chain.first())
                .map(|leaf| Arc::from(leaf.as_ref()));
            Handshake::Through(Stream::Server(Box::new(stream)), certificate)
        }
        Ok(Err(Ok(socket))) => {
            shared.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
            Handshake::InClear(socket)
        }
        Ok(Err(Err(error))) => {
            shared.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%error, "TLS handshake failed");
            Handshake::Over
        }
        Err(_) => {
            shared.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
            Handshake::Over
        }
    }
}

/// Waits for a request head. No memory is held until its first byte has come; from then on the limits of that
/// moment hold. `hears_until` is how long a connection is read although it is time to end.
async fn next_head<S>(
    shared: &ServerState<S>,
    connection: &Connection,
    registration: &Registration,
    hears_until: Option<Instant>,
) -> Next {
    let mut limits = shared.limits_now();
    let mut scan = HeadScan::default();
    let (mut began, mut ends_at) = (false, None);
    let mut head = BegunHead::new(shared.pool.budget());
    connection
        .io
        .borrow_mut()
        .alarm
        .set_after(limits.keep_alive_timeout);
    poll_fn(|cx| {
        let io = &mut *connection.io.borrow_mut();
        loop {
            skip_empty_lines(&mut io.receiver);
            let bytes = io.receiver.pending();
            if !bytes.is_empty() && !began {
                began = true;
                connection.opened.does(Activity::Begins);
                limits = shared.limits_now();
                *connection.limits.borrow_mut() = Rc::clone(&limits);
                io.alarm.set_after(limits.head_timeout);
                if let Err(refusal) = can_begin_a_head(bytes[0]) {
                    return Poll::Ready(Next::Refused(refusal));
                }
            }
            let begun = (&mut head, &*connection.opened);
            if let Some(next) = find_head(&mut io.receiver, &mut scan, &limits, begun) {
                return Poll::Ready(next);
            }
            match io.receiver.poll_fill(&mut io.stream, cx) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Next::End),
                Poll::Ready(Ok(_)) => {}
                Poll::Pending if began => {
                    if !head.waits(io.receiver.held(), &connection.opened) {
                        return Poll::Ready(Next::Refused(Refusal::OutOfMemory));
                    }
                    hurry(registration.phase(cx), &mut io.alarm, &mut ends_at);
                    if connection.opened.has_to_leave() {
                        return Poll::Ready(Next::End);
                    }
                    let late = || ends_at.map_or(Next::Refused(Refusal::HeadTimeout), |_| Next::End);
                    return io.alarm.poll(cx).map(|()| late());
                }
                Poll::Pending => {
                    // Requests that have arrived by now are still answered, and a client that has just
                    // connected may send one: it could not know of the end.
                    let mut ends = connection.opened.has_to_leave();
                    if registration.phase(cx) != Phase::Serving {
                        match hears_until.max(shared.signal.hears_until()) {
                            Some(until) => io.alarm.set(until),
                            None => ends = true,
                        }
                    }
                    ends = ends || io.alarm.poll(cx).is_ready();
                    // On a busy core, a request may have arrived without this task having been notified.
                    return match ends && !io.stream.has_unread() {
                        true => Poll::Ready(Next::End),
                        false => Poll::Pending,
                    };
                }
            }
        }
    })
    .await
}

/// Leaves a head that is half there when it is time to end a moment to come.
fn hurry(phase: Phase, alarm: &mut Alarm, ends_at: &mut Option<Instant>) {
    if phase == Phase::Serving {
        return;
    }
    let ends_at = *ends_at.get_or_insert_with(|| Instant::now() + FIRST_WORD_TIME);
    alarm.set(alarm.due().map_or(ends_at, |due| due.min(ends_at)));
}

/// Checks whether a request can begin with this byte.
#[inline]
fn can_begin_a_head(byte: u8) -> Result<(), Refusal> {
    match byte {
        TLS_HANDSHAKE => Err(Refusal::TlsHello),
        // No method begins like this, and the bytes may never contain a line's end.
        byte if !is_token(byte) => Err(Refusal::BadRequestLine),
        _ => Ok(()),
    }
}

/// Takes a whole head from the bytes that have arrived, and parses it. `None` means that no head is complete.
#[inline]
fn find_head(
    receiver: &mut Receiver,
    scan: &mut HeadScan,
    limits: &Limits,
    (head, opened): (&mut BegunHead<'_>, &OpenConnection),
) -> Option<Next> {
    let bytes = receiver.pending();
    let refusal = match scan.find(bytes) {
        Err(HeadFault::BareLineBreak) => Refusal::BareLineBreak,
        Err(HeadFault::Folded) => Refusal::FoldedHeader,
        Ok(Some(length)) => {
            let parsed = parse_request(&bytes[..length], limits);
            receiver.consume(length);
            head.ends();
            opened.does(Activity::Asks);
            match parsed {
                Ok(line) => return Some(Next::Request(Box::new(line))),
                Err(refusal) => refusal,
            }
        }
        Ok(None) if bytes.len() > limits.head_bytes_max => match scan.past_first_line() {
            true => Refusal::HeadTooLarge,
            false => Refusal::TargetTooLong,
        },
        // Small heads are always waited for; ten thousand large ones would take more memory than all bodies
        // may.
        Ok(None) if bytes.len() > HEAD_BYTES_FREE && receiver.pool.budget().is_used_up() => {
            Refusal::OutOfMemory
        }
        Ok(None) => return None,
    };
    Some(Next::Refused(refusal))
}

/// Skips empty lines before a request line, as RFC 9112, section 2.2 requires (old clients sent one after a
/// body).
fn skip_empty_lines(receiver: &mut Receiver) {
    while receiver.pending().starts_with(b"\r\n") {
        receiver.consume(2);
    }
}

/// Handles one request and its answer.
async fn exchange<S: Service>(
    shared: &Rc<ServerState<S>>,
    connection: &Rc<Connection>,
    line: RequestLine,
) -> After {
    let RequestLine {
        method,
        uri,
        version,
        headers,
        framing,
        keep_alive,
        expects_continue,
    } = line;
    let asked = RequestTraits {
        method: &method,
        version,
        keep_alive,
    };
    let length = match framing {
        Framing::None => Some(0),
        Framing::Length(length) => Some(length),
        Framing::Chunked | Framing::UntilClose => None,
    };
    if length.is_some_and(|length| length > connection.limits().body_bytes_max) {
        shared.counters.refused.fetch_add(1, Ordering::Relaxed);
        let refused = Refused {
            peer: Some(&connection.peer),
            headers: Some(&headers),
        };
        let answer = shared.service.refuse(Refusal::BodyTooLarge, refused);
        return answer_with(connection, answer, asked, || true).await.after();
    }
    connection
        .io
        .borrow_mut()
        .begin_request(framing, expects_continue && length != Some(0));
    let _in_flight = InFlight::enter(&shared.counters);
    let body = Incoming::new(Rc::clone(connection), length, Encoding::of(&headers));
    let mut request = Request::new(body);
    *request.method_mut() = method.clone();
    *request.uri_mut() = uri;
    *request.version_mut() = version;
    *request.headers_mut() = headers;
    // The call is boxed, so that an idle connection does not have the size of a request being answered.
    let call = Box::pin(guarded(Work::Request, shared.service.call(request)));
    let answer = match watched(connection, call).await {
        Ok(answer) => answer,
        Err(panicked) => {
            panicked.report(Work::Request, "a request is answered with 500, others go on");
            let answer = shared.service.refuse(Refusal::Failed, Refused::default());
            return answer_with(connection, answer, asked, || true).await.after();
        }
    };
    let keep = || keep_alive && connection.io.borrow().can_go_on();
    let closes = || !keep() || shared.signal.phase() != Phase::Serving;
    let sent = match answer_with(connection, answer, asked, closes).await {
        Sent::Nothing(given, why) => {
            let answer = shared.service.broke_off(&given, &why);
            answer_with(connection, answer, asked, closes).await
        }
        sent => sent,
    };
    match sent.after() {
        After::Keep if !skip_rest(connection).await => After::Close,
        after => after,
    }
}

/// Waits for the service, and watches the client meanwhile. This is not an `async fn`, because that would
/// cost moves.
#[inline]
fn watched<F: Future>(connection: &Connection, mut call: Pin<Box<F>>) -> impl Future<Output = F::Output> {
    poll_fn(move |cx| {
        let polled = call.as_mut().poll(cx);
        if polled.is_pending() {
            watch(connection, cx);
        }
        polled
    })
}

// === impl Io ===

impl Io {
    /// Prepares for a request's body.
    fn begin_request(&mut self, framing: Framing, asks_to_go_on: bool) {
        self.request += 1;
        self.receiver.expect(framing);
        self.begin_body();
        self.interim = if asks_to_go_on { CONTINUE } else { &[] };
        self.alarm.clear();
    }

    /// Returns whether another request can follow: the rest of this one's body can be skipped.
    fn can_go_on(&self) -> bool {
        let left = || self.receiver.bytes_left();
        // A client that still waits for `100 Continue` may or may not send its body: what comes next is
        // unknown.
        let skippable = self.receiver.is_done()
            || (self.interim.is_empty() && left().is_some_and(|left| left <= SKIP_BYTES_MAX));
        skippable && !self.broken
    }
}

/// The properties of the request that affect the answer's form.
#[derive(Clone, Copy)]
struct RequestTraits<'a> {
    method: &'a Method,
    version: Version,
    keep_alive: bool,
}

// === impl Sent ===

impl Sent {
    fn after(&self) -> After {
        match self {
            Sent::All(after) | Sent::Part(after) => *after,
            Sent::Nothing(..) => After::Close,
        }
    }
}

/// Notices, while the service works and after the body is read, that the client leaves. Bytes that the client
/// pipelines meanwhile are taken in.
fn watch(connection: &Connection, cx: &mut Context<'_>) {
    let io = &mut *connection.io.borrow_mut();
    if !io.receiver.is_done() || connection.gone.is_set() {
        return;
    }
    if io.receiver.pending().is_empty()
        && let Poll::Ready(Ok(0) | Err(_)) = io.receiver.poll_fill(&mut io.stream, cx)
    {
        connection.gone.set();
    }
    io.receiver.rests();
}

/// Writes an answer.
async fn answer_with(
    connection: &Connection,
    answer: Response<Outgoing>,
    asked: RequestTraits<'_>,
    closes: impl Fn() -> bool,
) -> Sent {
    let (parts, body) = answer.into_parts();
    let bodyless = *asked.method == Method::HEAD
        || parts.status == StatusCode::NO_CONTENT
        || parts.status == StatusCode::NOT_MODIFIED;
    let framing = asked.framing(parts.status, body.length());
    let close = framing == Framing::UntilClose || closes();
    let token = match (close, asked.version) {
        (true, _) => Some("close"),
        (false, Version::HTTP_10) if asked.keep_alive => Some("keep-alive"),
        (false, _) => None,
    };
    let mut head = Vec::with_capacity(HEAD_BYTES_TYPICAL);
    // A 204 answer has no length, not even a declared one (RFC 9110, section 8.6): some clients would wait
    // for that many bytes.
    let declares_only = bodyless && parts.status != StatusCode::NO_CONTENT;
    encode_reply_head(
        &mut head,
        parts.status,
        &parts.headers,
        framing,
        declares_only,
        token,
    );
    let (body, framing) = if bodyless {
        (Outgoing::Empty, Framing::None)
    } else {
        (body, framing)
    };
    let mut transmitter = Transmitter::new(head, body, framing);
    // If only the end of the connection ends the body, an orderly end would be taken for the body's end.
    let cut = match framing {
        Framing::UntilClose => After::Reset,
        _ => After::Close,
    };
    let unended = (cut == After::Reset).then(|| Unended(connection));
    let sent = transmit(connection, &mut transmitter, cut).await;
    // Its end is in order, or its caller resets the connection.
    std::mem::forget(unended);
    match sent {
        Ok(()) if close => Sent::All(After::Close),
        Ok(()) => Sent::All(After::Keep),
        Err((_, Some(error))) if transmitter.written == 0 => Sent::Nothing(Box::new(parts), error),
        Err((cut, _)) => Sent::Part(cut),
    }
}

/// An answer that only the connection's end will end. If it is dropped on the way, as at the deadline of a
/// stop, the connection is reset: an orderly end would be taken for the answer's end.
struct Unended<'a>(&'a Connection);

impl Drop for Unended<'_> {
    fn drop(&mut self) {
        if let Ok(io) = self.0.io.try_borrow() {
            io.stream.reset_on_close();
        }
    }
}

/// Sends an answer as fast as its client takes it, and no slower than the limits allow. `Err` says how to end
/// the connection (`cut`, unless the client is to blame), and why the body broke off, if it did.
#[inline]
fn transmit(
    connection: &Connection,
    transmitter: &mut Transmitter,
    cut: After,
) -> impl Future<Output = Result<(), (After, Option<SourceError>)>> {
    let (mut pace, mut unread) = (Pace::default(), Unread::default());
    let limits = connection.limits();
    let slowest = Slowest {
        patience: limits.write_timeout,
        rate_min: limits.body_rate_min,
    };
    poll_fn(move |cx| {
        let mut waits = WaitsFor::Source;
        let send = || transmitter.poll_send(&mut Borrowed(connection), cx, &mut waits);
        // A body that panics is treated as one that broke off.
        let polled = guard::caught(Work::Request, send).unwrap_or_else(|panicked| {
            panicked.report(Work::Request, "an answer breaks off, others go on");
            Poll::Ready(Err(TransmitFault::Body(panicked.to_string().into())))
        });
        let makes_room = match waits {
            WaitsFor::Peer if polled.is_pending() => {
                unread.poll_waits(connection, transmitter, cx).is_ready()
            }
            // The client has taken all that there was.
            _ => {
                unread = Unread::default();
                false
            }
        };
        let io = &mut *connection.io.borrow_mut();
        match polled {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
            Poll::Ready(Err(TransmitFault::Io(_))) => Poll::Ready(Err((cut, None))),
            Poll::Ready(Err(TransmitFault::Body(error))) => Poll::Ready(Err((cut, Some(error)))),
            Poll::Pending => {
                io.receiver.rests();
                if waits == WaitsFor::Source {
                    pace.resume();
                    return Poll::Pending; // whose patience that is, is the source's business
                }
                if !makes_room && pace.wait(transmitter.written, slowest, &mut io.alarm) {
                    ready!(io.alarm.poll(cx));
                }
                // A client that doesn't read will not read the rest either: nothing is kept for it.
                Poll::Ready(Err((After::Reset, None)))
            }
        }
    })
}

// === impl RequestTraits ===

impl RequestTraits<'_> {
    /// Returns how the answer's body is delimited.
    #[inline]
    fn framing(&self, status: StatusCode, length: Option<u64>) -> Framing {
        match length {
            // The length of a GET's answer may be declared, by us or by the caller's own header.
            _ if status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED => Framing::None,
            Some(0) if *self.method == Method::HEAD => Framing::None,
            Some(length) => Framing::Length(length),
            None if self.version == Version::HTTP_11 => Framing::Chunked,
            None => Framing::UntilClose,
        }
    }
}

/// The connection's socket, borrowed for each operation.
struct Borrowed<'a>(&'a Connection);

impl Sink for Borrowed<'_> {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        self.0.io.borrow_mut().stream.poll_write(cx, slices)
    }
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.0.io.borrow_mut().stream.poll_flush(cx)
    }
}

/// Skips the rest of a body that the service did not read; returns false when the rest did not come.
async fn skip_rest(connection: &Connection) -> bool {
    let limits = &connection.limits();
    poll_fn(|cx| {
        let io = &mut *connection.io.borrow_mut();
        loop {
            match io.poll_body(limits, cx, |receiver, stream, cx| receiver.poll_piece(stream, cx)) {
                Poll::Ready(Ok(Some(_))) => {}
                Poll::Ready(Ok(None)) => {
                    io.request += 1; // the request is over: its body handle must not read the next one
                    return Poll::Ready(true);
                }
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

/// Closes for writing, then takes in what the client still sends, for as long as it does so at a fair rate:
/// closing with unread bytes would make the kernel send a reset, which may reach the client before it has
/// read our answer.
async fn linger(connection: &Connection) {
    let mut end = Instant::now() + LINGER_TIME;
    let mut shutting = true;
    let mut skipped = 0;
    let mut scrap = Vec::with_capacity(LINGER_READ_BYTES);
    connection.io.borrow_mut().receiver.give_up();
    let _ = poll_fn(|cx| {
        let io = &mut *connection.io.borrow_mut();
        io.request += 1;
        io.alarm.set(end);
        if shutting {
            match io.stream.poll_shutdown(cx) {
                Poll::Ready(Ok(())) => shutting = false,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return io.alarm.poll(cx),
            }
        }
        if io.receiver.ended {
            return Poll::Ready(());
        }
        loop {
            scrap.clear();
            match io.stream.poll_read(cx, &mut scrap, LINGER_READ_BYTES) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(count)) if skipped + count > LINGER_BYTES_MAX => return Poll::Ready(()),
                Poll::Ready(Ok(count)) => {
                    skipped += count;
                    end += LINGER_TIME_PER_MIB.mul_f64(count as f64 / f64::from(1 << 20));
                }
                Poll::Pending => {
                    io.alarm.set(end);
                    return io.alarm.poll(cx);
                }
            }
        }
    })
    .await;
}

struct InFlight<'a>(&'a AtomicU64);

impl<'a> InFlight<'a> {
    fn enter(counters: &'a Counters) -> Self {
        counters.requests.fetch_add(1, Ordering::Relaxed);
        counters.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(&counters.in_flight)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

const HEAD_BYTES_TYPICAL: usize = 512;
const SKIP_BYTES_MAX: u64 = 256 << 10;
/// A client that has connected just before the end is given this long to send its first request.
const FIRST_WORD_TIME: Duration = Duration::from_secs(1);
/// How long a client may take to read its answer and close.
const LINGER_TIME: Duration = Duration::from_secs(2);
/// How much longer for each MiB of its request that it goes on to send meanwhile: many clients read no answer
/// before they have sent all.
const LINGER_TIME_PER_MIB: Duration = Duration::from_millis(125);
const LINGER_READ_BYTES: usize = 16 << 10;
/// More than the largest bodies that servers take.
const LINGER_BYTES_MAX: usize = 128 << 20;

/// The type of the record that a TLS session begins with (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 0x16;
