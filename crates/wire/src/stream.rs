//! A socket, in clear text or under TLS, with the few operations that connections need.

use std::future::Future;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BufMut;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;

/// The transport of a connection's bytes.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Server(Box<tokio_rustls::server::TlsStream<TcpStream>>),
    Client(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

// === impl Stream ===

impl Stream {
    /// Appends the available bytes to `into`, at most its spare room and `max`. 0 means the end of the
    /// stream; an end of the connection before the end of the TLS session is `UnexpectedEof`.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
        max: usize,
    ) -> Poll<io::Result<usize>> {
        let room = max.min(into.capacity() - into.len());
        debug_assert!(
            room > 0,
            "reading without room would look like the end of the stream"
        );
        match self {
            // Uninitialised memory is read into directly: no zeroing, no second copy.
            Stream::Plain(socket) => pin!(socket.read_buf(&mut into.limit(room))).poll(cx),
            // rustls needs initialised memory, so the room is bounded to the bytes that it can fill at a
            // time.
            Stream::Server(tls) => poll_read_tls(&mut **tls, cx, into, room),
            Stream::Client(tls) => poll_read_tls(&mut **tls, cx, into, room),
        }
    }

    /// Ready when reading may give something: without a system call, and ready when unsure.
    pub(crate) fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(socket) => socket.poll_read_ready(cx),
            Stream::Server(_) | Stream::Client(_) => Poll::Ready(Ok(())),
        }
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
            Stream::Server(tls) => Pin::new(&mut **tls).poll_write_vectored(cx, slices),
            Stream::Client(tls) => Pin::new(&mut **tls).poll_write_vectored(cx, slices),
        }
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(_) => Poll::Ready(Ok(())),
            Stream::Server(tls) => Pin::new(&mut **tls).poll_flush(cx),
            Stream::Client(tls) => Pin::new(&mut **tls).poll_flush(cx),
        }
    }

    /// Makes closing reset the connection and drop the bytes that the peer has not taken.
    pub(crate) fn reset_on_close(&self) {
        let _ = self.socket().set_linger(Some(Duration::ZERO)); // fails only if it is closed already
    }

    /// Returns whether bytes have arrived that nobody has read, as far as the system knows now: a read sees
    /// them only once its task has been woken. Costs a system call.
    pub(crate) fn has_unread(&self) -> bool {
        matches!(self.socket().peek(&mut [MaybeUninit::uninit()]), Ok(1..))
    }

    /// Returns how many bytes that were written the peer's system has not taken yet. Costs a system call.
    pub(crate) fn unsent(&self) -> usize {
        // SAFETY: the call writes one `int` (tcp(7), `SIOCOUTQ`), and touches nothing else.
        let asked = unsafe { rustix::ioctl::Getter::<{ libc::TIOCOUTQ as _ }, libc::c_int>::new() };
        // SAFETY: as above.
        let unsent = unsafe { rustix::ioctl::ioctl(&*self.socket(), asked) };
        unsent
            .ok()
            .and_then(|bytes| usize::try_from(bytes).ok())
            .unwrap_or(0)
    }

    fn socket(&self) -> socket2::SockRef<'_> {
        socket2::SockRef::from(match self {
            Stream::Plain(socket) => socket,
            Stream::Server(tls) => tls.get_ref().0,
            Stream::Client(tls) => tls.get_ref().0,
        })
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Stream::Server(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
            Stream::Client(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
        }
    }
}

/// Reads until the room is full or nothing more is decrypted: one wake for many records.
fn poll_read_tls<S>(
    tls: &mut S,
    cx: &mut Context<'_>,
    into: &mut Vec<u8>,
    room: usize,
) -> Poll<io::Result<usize>>
where
    S: tokio::io::AsyncRead + Unpin,
{
    let mut sum = 0;
    while sum < room {
        match pin!(tls.read_buf(&mut into.limit((room - sum).min(TLS_READ_BYTES)))).poll(cx) {
            Poll::Ready(Ok(0)) => return Poll::Ready(Ok(sum)),
            Poll::Ready(Ok(count)) => sum += count,
            Poll::Ready(Err(error)) if sum == 0 => return Poll::Ready(Err(error)),
            Poll::Pending if sum == 0 => return Poll::Pending,
            Poll::Ready(Err(_)) | Poll::Pending => break,
        }
    }
    Poll::Ready(Ok(sum))
}

const TLS_READ_BYTES: usize = 16 << 10;
