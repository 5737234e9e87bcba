//! One exchange: a request out, and the head of its reply in.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::{Method, StatusCode};
use tokio::time::Instant;

use super::connections::{Connection, Wire};
use super::deaf::Reuse;
use super::error::SlowSource;
use super::{Deadlines, Fate, Inner, Origin, Reply, ReplyBody, RequestHead, SendErrorKind};
use crate::codec::{Framing, HeadScan, ReplyFault, ReplyHead, encode_request_head, parse_reply};
use crate::outgoing::Outgoing;
use crate::transmit::{TransmitFault, Transmitter, WaitsFor};

/// An exchange on its way.
struct Exchange<'a> {
    inner: &'a Inner,
    method: &'a Method,
    deadlines: Deadlines,
    transmitter: Transmitter,
    sent: bool,
    /// The reason why sending stopped; the node may have answered before it closed.
    send_fault: Option<SendErrorKind>,
    scan: HeadScan,
    progress: u64,
}

pub(super) async fn run(
    inner: &Rc<Inner>,
    origin: &Origin,
    mut connection: Connection,
    head: RequestHead<'_>,
    body: Outgoing,
    deadlines: Deadlines,
) -> Result<Reply, (SendErrorKind, Fate)> {
    let framing = framing_of(&body, head.method);
    let mut text = Vec::with_capacity(HEAD_BYTES_TYPICAL);
    encode_request_head(
        &mut text,
        head.method,
        head.target,
        origin.authority(),
        head.headers,
        framing,
    );
    let head_bytes = text.len();
    let mut exchange = Exchange {
        inner,
        method: head.method,
        deadlines,
        transmitter: Transmitter::new(text, body, framing),
        sent: false,
        send_fault: None,
        scan: HeadScan::default(),
        progress: u64::MAX,
    };
    let answer = poll_fn(|cx| exchange.poll(&mut connection.wire, cx)).await;
    let fate = if exchange.transmitter.written == 0 {
        Fate::NothingSent
    } else {
        Fate::Unknown
    };
    let head = answer.map_err(|kind| (kind, fate))?;
    // The connection is not used again after a reply that came before the request was complete, since the
    // rest of the request will not be sent.
    let reuse = match head.keep_alive && exchange.sent {
        true => Reuse::after(&head, exchange.method, head_bytes),
        false => Reuse::No,
    };
    let mut reply = http::Response::new(ReplyBody::new(
        connection,
        &head,
        reuse,
        deadlines,
        inner.config.stall_timeout,
        origin,
    ));
    *reply.status_mut() = head.status;
    *reply.version_mut() = head.version;
    *reply.headers_mut() = head.headers;
    Ok(reply)
}

// === impl Exchange ===

impl Exchange<'_> {
    fn poll(&mut self, wire: &mut Wire, cx: &mut Context<'_>) -> Poll<Result<ReplyHead, SendErrorKind>> {
        let mut waits = WaitsFor::Peer;
        if !self.sent && self.send_fault.is_none() {
            match self.transmitter.poll_send(&mut wire.stream, cx, &mut waits) {
                Poll::Ready(Ok(())) => self.sent = true,
                Poll::Ready(Err(TransmitFault::Body(error))) => {
                    return Poll::Ready(Err(SendErrorKind::Body(error)));
                }
                Poll::Ready(Err(TransmitFault::Io(error))) if self.transmitter.written == 0 => {
                    return Poll::Ready(Err(SendErrorKind::Io(error)));
                }
                Poll::Ready(Err(TransmitFault::Io(error))) => {
                    self.send_fault = Some(SendErrorKind::Io(error))
                }
                Poll::Pending => {}
            }
        }
        match self.poll_head(wire, cx) {
            Poll::Ready(Err(fault)) => Poll::Ready(Err(self.send_fault.take().unwrap_or(fault))),
            Poll::Ready(answer) => Poll::Ready(answer),
            Poll::Pending => self.poll_patience(wire, cx, waits).map(Err),
        }
    }

    fn poll_head(&mut self, wire: &mut Wire, cx: &mut Context<'_>) -> Poll<Result<ReplyHead, SendErrorKind>> {
        loop {
            let bytes = wire.receiver.pending();
            match self.scan.find(bytes) {
                Err(_) => {
                    return Poll::Ready(Err(SendErrorKind::Malformed(ReplyFault::LineBreak)));
                }
                Ok(Some(length)) if length > self.inner.config.head_bytes_max => {
                    return Poll::Ready(Err(HEAD_TOO_LARGE));
                }
                Ok(Some(length)) => {
                    let head = parse_reply(&bytes[..length], self.method, self.inner.config.header_count_max);
                    wire.receiver.consume(length);
                    let head = head.map_err(SendErrorKind::Malformed)?;
                    if head.status == StatusCode::SWITCHING_PROTOCOLS {
                        return Poll::Ready(Err(SendErrorKind::Malformed(ReplyFault::ProtocolSwitch)));
                    }
                    if !head.status.is_informational() {
                        wire.receiver.expect(head.framing);
                        return Poll::Ready(Ok(head));
                    }
                    self.scan = HeadScan::default();
                }
                Ok(None) if bytes.len() > self.inner.config.head_bytes_max => {
                    return Poll::Ready(Err(HEAD_TOO_LARGE));
                }
                Ok(None) if is_tls_record(bytes) => return Poll::Ready(Err(SendErrorKind::SpeaksTls)),
                Ok(None) => match wire.receiver.poll_fill(&mut wire.stream, cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(SendErrorKind::Closed)),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(SendErrorKind::Io(error))),
                },
            }
        }
    }

    /// Ready when the exchange has taken too long.
    fn poll_patience(
        &mut self,
        wire: &mut Wire,
        cx: &mut Context<'_>,
        waits: WaitsFor,
    ) -> Poll<SendErrorKind> {
        let progress = self.transmitter.written + u64::from(self.sent);
        if progress != self.progress {
            self.progress = progress;
            let now = Instant::now();
            let patience = match (self.sent, waits) {
                (true, _) => self.deadlines.head_timeout,
                (false, WaitsFor::Peer) => Some(self.inner.config.stall_timeout),
                (false, WaitsFor::Source) => None, // the source has its own time limits
            };
            wire.alarm.set(patience.map_or(self.deadlines.overall, |wait| {
                (now + wait).min(self.deadlines.overall)
            }));
        }
        wire.alarm
            .poll(cx)
            .map(|()| match timeout_kind(wire.alarm.due(), self.deadlines) {
                SendErrorKind::Deadline if !self.sent && waits == WaitsFor::Source => {
                    SendErrorKind::Body(SlowSource.into())
                }
                kind => kind,
            })
    }
}

/// Returns which of the two deadlines has passed.
pub(super) fn timeout_kind(due: Option<Instant>, deadlines: Deadlines) -> SendErrorKind {
    if due.is_some_and(|due| due < deadlines.overall) {
        SendErrorKind::Timeout
    } else {
        SendErrorKind::Deadline
    }
}

/// Returns whether a reply begins like a TLS alert or handshake (RFC 8446, section 5.1), as no HTTP reply
/// can.
fn is_tls_record(bytes: &[u8]) -> bool {
    matches!(bytes, [21 | 22, 3, 0..=4, ..])
}

fn framing_of(body: &Outgoing, method: &Method) -> Framing {
    let usually_has_body = *method == Method::POST || *method == Method::PUT || *method == Method::PATCH;
    match (body, body.length()) {
        (Outgoing::Empty, _) if !usually_has_body => Framing::None,
        (_, Some(length)) => Framing::Length(length),
        (_, None) => Framing::Chunked,
    }
}

const HEAD_TOO_LARGE: SendErrorKind = SendErrorKind::Malformed(ReplyFault::HeadTooLarge);
const HEAD_BYTES_TYPICAL: usize = 512;
