//! The admin port's listener. Few connections at a time, and none that is silent for long: whoever reaches the port must not
//! be able to take the open files that clients and nodes need.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Accepts while there is a place; further connections wait in the backlog.
pub(crate) struct Few {
    listener: TcpListener,
    places: Arc<Semaphore>,
    silence_max: Duration,
}

/// A connection in its place.
pub(crate) struct Visit {
    socket: TcpStream,
    silence_max: Duration,
    silent_until: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

// === impl Few ===

impl Few {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self::with(listener, CONNECTIONS_MAX, SILENCE_MAX)
    }

    fn with(listener: TcpListener, connections_max: usize, silence_max: Duration) -> Self {
        Self {
            listener,
            places: Arc::new(Semaphore::new(connections_max)),
            silence_max,
        }
    }
}

impl Listener for Few {
    type Io = Visit;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visit, SocketAddr) {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.expect("nobody closes the semaphore");
        let (socket, address) = Listener::accept(&mut self.listener).await;
        let visit = Visit {
            socket,
            silence_max: self.silence_max,
            silent_until: Box::pin(sleep(self.silence_max)),
            _place: place,
        };
        (visit, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

// === impl Visit ===

impl Visit {
    fn heard(&mut self) {
        let until = Instant::now() + self.silence_max;
        self.silent_until.as_mut().reset(until);
    }
}

impl AsyncRead for Visit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let visit = &mut *self;
        match Pin::new(&mut visit.socket).poll_read(cx, into) {
            Poll::Pending => visit
                .silent_until
                .as_mut()
                .poll(cx)
                .map(|()| Err(io::ErrorKind::TimedOut.into())),
            read => {
                visit.heard();
                read
            }
        }
    }
}

impl AsyncWrite for Visit {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        if written.is_ready() {
            self.heard(); // a long answer is no silence
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// An operator's browser, a scraper or two, health checks.
const CONNECTIONS_MAX: usize = 128;

/// Longer than the pauses between most scrapes, so that they keep their connection.
const SILENCE_MAX: Duration = Duration::from_secs(90);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn silent_connections_give_their_places_to_those_that_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let few = Few::with(listener, 3, Duration::from_millis(200));
        let routes = axum::Router::new().route("/", axum::routing::get(|| async { "here" }));
        let server = tokio::spawn(async move { axum::serve(few, routes).await });
        let mut squatters = Vec::new();
        for _ in 0..10 {
            squatters.push(TcpStream::connect(address).await.unwrap());
        }
        let mut visitor = TcpStream::connect(address).await.unwrap();
        visitor
            .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        let read = visitor.read_to_string(&mut answer);
        tokio::time::timeout(Duration::from_secs(10), read)
            .await
            .expect("its turn comes")
            .unwrap();
        assert!(answer.ends_with("here"), "{answer}");
        server.abort();
    }
}
