//! A connection whose client has to send a head, and to take what is written, within a time. A client that
//! does neither would keep its seat.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::seats::Seat;

/// A connection that fails once a write, a flush or the end has waited for so long without any progress, or a
/// head has taken too long.
pub(super) struct Patient<S> {
    stream: S,
    seat: Seat,
    patience: Duration,
    /// Set while something waits.
    alarm: Option<Pin<Box<Sleep>>>,
    /// Set while a head comes; with the number of requests before it.
    head: Option<(u64, Pin<Box<Sleep>>)>,
}

impl<S> Patient<S> {
    /// The first head has to be there at `first_by`, whether any of it has come or not.
    pub(super) fn new(stream: S, seat: Seat, first_by: Instant, patience: Duration) -> Self {
        Self {
            stream,
            seat,
            patience,
            alarm: None,
            head: Some((0, Box::pin(sleep_until(first_by)))),
        }
    }

    fn wait<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.seat.set_writing(done.is_pending());
        if done.is_ready() {
            self.alarm = None;
            return done;
        }
        let patience = self.patience;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep(patience)));
        alarm
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Fails once the head that is awaited has taken too long since its first byte.
    fn poll_late(&mut self, cx: &mut Context<'_>, came: bool) -> Poll<io::Error> {
        let Some(awaited) = self.seat.awaits() else {
            self.head = None;
            return Poll::Pending;
        };
        self.head.take_if(|(number, _)| *number != awaited);
        if came && self.head.is_none() {
            self.head = Some((awaited, Box::pin(sleep(HEAD_WITHIN))));
        }
        let Some((_, alarm)) = &mut self.head else {
            return Poll::Pending;
        };
        alarm.as_mut().poll(cx).map(|()| io::ErrorKind::TimedOut.into())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        let came = into.filled().len() > before;
        let late = self.poll_late(cx, came);
        if read.is_ready() {
            return read;
        }
        Poll::Ready(Err(ready!(late)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wait(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.wait(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.wait(cx, shut)
    }
}

/// Time limit for a head from its first byte on, and for a connection's first one from its beginning on.
pub(super) const HEAD_WITHIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::super::seats::Seats;
    use super::*;

    fn made<S>(stream: S) -> Patient<S> {
        let hold = Seats::new(1).take([127, 0, 0, 1].into());
        let seat = hold.unwrap().seat().clone();
        Patient::new(
            stream,
            seat,
            Instant::now() + HEAD_WITHIN,
            Duration::from_secs(60),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up_and_a_slow_one_is_not() {
        let (console, _browser) = duplex(16);
        let mut patient = made(console);
        let error = patient.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);

        let (console, mut browser) = duplex(16);
        let mut patient = made(console);
        let slow = async {
            for _ in 0..8 {
                sleep(Duration::from_secs(50)).await;
                browser.read_exact(&mut [0; 8]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(patient.write_all(&[0; 64]), slow);
        written.unwrap();
    }
}
