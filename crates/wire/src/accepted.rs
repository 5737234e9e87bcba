//! A connection that another server than [`Server`](crate::Server) has accepted, in clear text or under TLS.
//! The TLS handshake is part of the first read or write, so that accepting never waits for a client.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::codec::is_token;
use crate::tls::ServerTls;

/// An accepted connection.
pub struct Accepted(State);

enum State {
    Plain(TcpStream),
    /// TLS is expected, and nothing has come yet.
    Silent(TcpStream, TlsAcceptor),
    Shaking(Box<Accept<TcpStream>>),
    Secured(Box<TlsStream<TcpStream>>),
    /// A request came in clear text where TLS is expected.
    InClear(TcpStream),
    Over,
}

// === impl Accepted ===

impl Accepted {
    /// Takes a connection that is to begin with a TLS handshake if there is a `tls`.
    pub fn new(socket: TcpStream, tls: Option<&ServerTls>) -> Self {
        let _ = socket.set_nodelay(true); // an answer is written at once, so there is nothing to gather
        Self(match tls {
            None => State::Plain(socket),
            Some(tls) => State::Silent(socket, TlsAcceptor::from(tls.config.clone())),
        })
    }

    /// Waits for the client's first bytes and the handshake, if the connection is to begin with one. The
    /// first read or write would do so as well; a caller with a time limit for the handshake alone waits
    /// here.
    pub async fn establish(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll_established(cx)).await
    }

    /// Returns whether the client's first bytes are still awaited, or the handshake's last ones.
    pub fn is_shaking(&self) -> bool {
        matches!(self.0, State::Silent(..) | State::Shaking(_))
    }

    /// Returns whether the connection is under TLS, or will be once the handshake is done.
    pub fn is_secured(&self) -> bool {
        self.is_shaking() || matches!(self.0, State::Secured(_))
    }

    /// Returns whether a request came in clear text where TLS is expected. It can be read and answered like
    /// any other; the answer should be [`Refusal::PlainHttp`](crate::Refusal::PlainHttp).
    pub fn is_in_clear(&self) -> bool {
        matches!(self.0, State::InClear(_))
    }

    /// Sets how many bytes the system holds that the client has not taken.
    ///
    /// # Errors
    /// Fails if the connection is over, or the system does not change it.
    pub fn set_send_buffer(&self, bytes: usize) -> io::Result<()> {
        Ok(sockopt::set_socket_send_buffer_size(self.socket()?, bytes)?)
    }

    /// Sets how long the system waits for the peer to take bytes that were written. After that the connection
    /// fails, as it does if the peer has vanished.
    ///
    /// # Errors
    /// Fails if the connection is over, or the system does not change it.
    pub fn set_taken_within(&self, within: Duration) -> io::Result<()> {
        let within_ms = u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
        Ok(sockopt::set_tcp_user_timeout(self.socket()?, within_ms)?)
    }

    fn socket(&self) -> io::Result<&TcpStream> {
        match &self.0 {
            State::Plain(socket) | State::Silent(socket, _) | State::InClear(socket) => Ok(socket),
            State::Secured(stream) => Ok(stream.get_ref().0),
            State::Shaking(_) | State::Over => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Ready when the connection can be read and written.
    fn poll_established(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.0 {
                State::Plain(_) | State::Secured(_) | State::InClear(_) => return Poll::Ready(Ok(())),
                State::Over => return Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
                State::Silent(socket, _) => {
                    let mut room = [0];
                    let mut first = ReadBuf::new(&mut room);
                    std::task::ready!(socket.poll_peek(cx, &mut first))?;
                    // A method's first letter stands where a TLS record has its type.
                    let is_request = first.filled().first().is_some_and(|byte| is_token(*byte));
                    let State::Silent(socket, acceptor) = std::mem::replace(&mut self.0, State::Over) else {
                        continue;
                    };
                    self.0 = match is_request {
                        true => State::InClear(socket),
                        false => State::Shaking(Box::new(acceptor.accept(socket))),
                    };
                }
                State::Shaking(accept) => {
                    let shaken = std::task::ready!(Pin::new(&mut **accept).poll(cx));
                    self.0 = State::Over;
                    self.0 = State::Secured(Box::new(shaken?));
                }
            }
        }
    }

    fn established(&mut self) -> io::Result<Pin<&mut dyn Duplex>> {
        match &mut self.0 {
            State::Plain(socket) | State::InClear(socket) => Ok(Pin::new(socket)),
            State::Secured(stream) => Ok(Pin::new(&mut **stream)),
            State::Silent(..) | State::Shaking(_) | State::Over => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Duplex for S {}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(self.poll_established(cx))?;
        self.established()?.poll_read(cx, into)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(self.poll_established(cx))?;
        self.established()?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.is_shaking() {
            true => Poll::Ready(Ok(())), // nothing has been written yet
            false => self.established()?.poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.established() {
            Ok(stream) => stream.poll_shutdown(cx),
            Err(_) => Poll::Ready(Ok(())), // dropping it closes it
        }
    }
}

impl std::fmt::Debug for Accepted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accepted")
            .field("secured", &self.is_secured())
            .finish_non_exhaustive()
    }
}
