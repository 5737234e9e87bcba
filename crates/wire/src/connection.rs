//! The state that a connection's loop and the body of its present request share. One task uses it at a time,
//! and each borrow lasts one poll.

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use crate::admission::peer_of;
use crate::alarm::Alarm;
use crate::claim::Claim;
use crate::codec::ChunkFault;
use crate::connections::OpenConnection;
use crate::holder::{Principal, Sender};
use crate::incoming::{BodyError, Peer};
use crate::limits::Limits;
use crate::pace::{Pace, Slowest};
use crate::receive::{ReceiveFault, Receiver};
use crate::refusal::Refusal;
use crate::stream::Stream;

/// One client's connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) io: RefCell<Io>,
    /// The limits of the present request.
    pub(crate) limits: RefCell<Rc<Limits>>,
    pub(crate) peer: Peer,
    /// The sender of the present request, as far as it is known.
    pub(crate) principal: Cell<Principal>,
    pub(crate) gone: ClientGone,
    pub(crate) opened: Arc<OpenConnection>,
}

#[derive(Debug)]
pub(crate) struct Io {
    pub(crate) stream: Stream,
    pub(crate) receiver: Receiver,
    pub(crate) alarm: Alarm,
    /// The number of the request that the body belongs to: an [`Incoming`](crate::Incoming) that outlives its
    /// request reads nothing.
    pub(crate) request: u64,
    /// The part of `100 Continue` that must still be written before the body is read.
    pub(crate) interim: &'static [u8],
    /// Whether the body broke a rule: nothing that follows on this connection can be trusted.
    pub(crate) broken: bool,
    pace: Pace,
    opened: Arc<OpenConnection>,
}

/// Whether the client has gone, and the task that waits to know.
#[derive(Debug, Default)]
pub(crate) struct ClientGone {
    gone: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

// === impl Connection ===

impl Connection {
    /// Returns the present request's limits.
    pub(crate) fn limits(&self) -> Rc<Limits> {
        Rc::clone(&self.limits.borrow())
    }

    /// Begins the claim of the present request's body, or of its answer.
    pub(crate) fn claim(&self) -> Claim {
        let sender = Sender {
            address: peer_of(self.peer.address.ip()),
            principal: self.principal.get(),
        };
        Claim::begin_in(&self.io.borrow().receiver.pool, sender)
    }
}

// === impl Io ===

impl Io {
    pub(crate) fn new(stream: Stream, receiver: Receiver, opened: Arc<OpenConnection>) -> Self {
        Io {
            stream,
            receiver,
            alarm: Alarm::default(),
            request: 0,
            interim: &[],
            broken: false,
            pace: Pace::default(),
            opened,
        }
    }

    /// Resets the measured pace of the last body.
    pub(crate) fn begin_body(&mut self) {
        self.pace = Pace::default();
    }

    /// Reads a part of the body by `read`, within the time limits.
    pub(crate) fn poll_body<T>(
        &mut self,
        limits: &Limits,
        cx: &mut Context<'_>,
        read: impl FnOnce(&mut Receiver, &mut Stream, &mut Context<'_>) -> Poll<Result<T, ReceiveFault>>,
    ) -> Poll<Result<T, BodyError>> {
        ready!(self.poll_interim(cx))?;
        match read(&mut self.receiver, &mut self.stream, cx) {
            Poll::Ready(result) => {
                self.pace.resume();
                Poll::Ready(result.map_err(|fault| {
                    self.broken = true;
                    body_error(fault)
                }))
            }
            Poll::Pending => self.poll_patience(limits, cx).map(Err),
        }
    }

    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        while !self.interim.is_empty() && self.receiver.pending().is_empty() {
            let wrote =
                ready!(self.stream.poll_write(cx, &[IoSlice::new(self.interim)])).map_err(BodyError::Io)?;
            self.interim = &self.interim[wrote..];
            if self.interim.is_empty() {
                ready!(self.stream.poll_flush(cx)).map_err(BodyError::Io)?;
            }
        }
        self.interim = &[];
        Poll::Ready(Ok(()))
    }

    /// Ready when the client has been too slow. Only time spent waiting for the client counts, not time that
    /// a slow reader on our side took.
    fn poll_patience(&mut self, limits: &Limits, cx: &mut Context<'_>) -> Poll<BodyError> {
        let slowest = Slowest {
            patience: limits.body_idle_timeout,
            rate_min: limits.body_rate_min,
        };
        let in_time = self.pace.wait(self.receiver.received, slowest, &mut self.alarm);
        if !in_time || self.opened.has_to_leave() || self.alarm.poll(cx).is_ready() {
            self.broken = true;
            return Poll::Ready(BodyError::Refused(Refusal::BodyTimeout));
        }
        Poll::Pending
    }
}

// === impl ClientGone ===

impl ClientGone {
    pub(crate) fn set(&self) {
        if !self.gone.replace(true)
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.gone.get()
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.gone.get() {
            return Poll::Ready(());
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

fn body_error(fault: ReceiveFault) -> BodyError {
    match fault {
        ReceiveFault::Io(error) => BodyError::Io(error),
        ReceiveFault::Cut => BodyError::Disconnected,
        ReceiveFault::Chunk(ChunkFault::Chunk) => BodyError::Refused(Refusal::BadChunk),
        ReceiveFault::Chunk(ChunkFault::Trailer) => BodyError::Refused(Refusal::BadTrailers),
        ReceiveFault::TooLarge(_) => BodyError::Refused(Refusal::BodyTooLarge),
    }
}
