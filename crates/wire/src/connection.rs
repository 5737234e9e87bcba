//! What a connection's loop and the body of its present request share. One task uses it at a time; borrows last one poll.

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::alarm::Alarm;
use crate::codec::ChunkFault;
use crate::incoming::{BodyError, Peer};
use crate::limits::Limits;
use crate::receive::{ReceiveFault, Receiver};
use crate::refusal::Refusal;
use crate::stream::Stream;

/// One client's connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) io: RefCell<Io>,
    pub(crate) limits: Rc<Limits>,
    pub(crate) peer: Peer,
    pub(crate) gone: Gone,
}

#[derive(Debug)]
pub(crate) struct Io {
    pub(crate) stream: Stream,
    pub(crate) receiver: Receiver,
    pub(crate) alarm: Alarm,
    /// Which request the body belongs to: an [`Incoming`](crate::Incoming) that outlives its request reads nothing.
    pub(crate) request: u64,
    /// What of `100 Continue` must still be written before the body is read.
    pub(crate) interim: &'static [u8],
    /// The body broke a rule: nothing that follows on this connection can be trusted.
    pub(crate) broken: bool,
    waiting_since: Option<Instant>,
    waited: Duration,
    received_before: u64,
}

/// Whether the client has gone, and who wants to know.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    gone: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

// === impl Io ===

impl Io {
    pub(crate) fn new(stream: Stream, receiver: Receiver) -> Self {
        Io {
            stream,
            receiver,
            alarm: Alarm::default(),
            request: 0,
            interim: &[],
            broken: false,
            waiting_since: None,
            waited: Duration::ZERO,
            received_before: 0,
        }
    }

    /// Forgets how the last body came.
    pub(crate) fn begin_body(&mut self) {
        self.waiting_since = None;
        self.waited = Duration::ZERO;
        self.received_before = 0;
    }

    /// Reads something of the body by `read`, within the limits on time.
    pub(crate) fn poll_body<T>(
        &mut self,
        limits: &Limits,
        cx: &mut Context<'_>,
        read: impl FnOnce(&mut Receiver, &mut Stream, &mut Context<'_>) -> Poll<Result<T, ReceiveFault>>,
    ) -> Poll<Result<T, BodyError>> {
        ready!(self.poll_interim(cx))?;
        match read(&mut self.receiver, &mut self.stream, cx) {
            Poll::Ready(result) => {
                if let Some(since) = self.waiting_since.take() {
                    self.waited += since.elapsed();
                }
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

    /// Ready when the client has been too slow. Only time spent waiting for it counts, not what a slow reader of ours took.
    fn poll_patience(&mut self, limits: &Limits, cx: &mut Context<'_>) -> Poll<BodyError> {
        let now = Instant::now();
        let since = *self.waiting_since.get_or_insert(now);
        let received = self.receiver.received;
        if received != self.received_before || since == now {
            self.received_before = received;
            self.alarm.set(now + limits.body_idle_timeout);
        }
        let waited = self.waited + (now - since);
        let too_slow = waited > limits.body_idle_timeout
            && (received as f64) < limits.body_rate_min as f64 * waited.as_secs_f64();
        if too_slow || self.alarm.poll(cx).is_ready() {
            self.broken = true;
            return Poll::Ready(BodyError::Refused(Refusal::BodyTimeout));
        }
        Poll::Pending
    }
}

// === impl Gone ===

impl Gone {
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
        ReceiveFault::OverBudget(over) => BodyError::OverBudget(over),
    }
}
