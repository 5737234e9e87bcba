//! hyper as the oracle: its client with our server, and our client with its server, for bodies of all sizes
//! and framings.

mod support;

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::service::service_fn;
use support::{ask, echo_server, with_client};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use wire::{Origin, Outgoing};

/// hyper's own I/O traits over a tokio socket.
struct Io(TcpStream);

impl hyper::rt::Read for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let mut bytes = [0; 8192];
        let room = cursor.remaining().min(bytes.len());
        let mut into = ReadBuf::new(&mut bytes[..room]);
        let polled = Pin::new(&mut self.0).poll_read(cx, &mut into);
        if let Poll::Ready(Ok(())) = polled {
            cursor.put_slice(into.filled());
        }
        polled
    }
}

impl hyper::rt::Write for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// A body in pieces, with its length declared or not (then it is chunked).
struct Pieces {
    pieces: Vec<Bytes>,
    declared: bool,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(match self.pieces.is_empty() {
            true => None,
            false => Some(Ok(Frame::data(self.pieces.remove(0)))),
        })
    }
    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }
    fn size_hint(&self) -> SizeHint {
        match self.declared {
            true => SizeHint::with_exact(self.pieces.iter().map(|piece| piece.len() as u64).sum()),
            false => SizeHint::default(),
        }
    }
}

async fn whole(mut body: hyper::body::Incoming) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame.expect("sound framing").into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    bytes
}

/// Makes a few bodies, cut into pieces of every order of magnitude.
fn bodies() -> Vec<Vec<Bytes>> {
    let mut seed = 7u64;
    let mut next = move |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    (0..60)
        .map(|round| {
            let count = next(7);
            (0..count)
                .map(|piece| {
                    let length = 1 + next(10usize.pow(1 + (round % 6) as u32));
                    Bytes::from(vec![b'a' + ((round + piece) % 26) as u8; length])
                })
                .collect()
        })
        .collect()
}

#[test]
fn hypers_client_gets_back_from_our_server_what_it_sent() {
    let (_workers, server) = echo_server(Default::default());
    let address = server.local_addr();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let mut kept = connect(address).await;
        for (number, pieces) in bodies().into_iter().enumerate() {
            let sent = pieces.concat();
            let request = |path: &str, pieces| {
                let declared = number % 3 == 0;
                let body = Pieces { pieces, declared };
                http::Request::post(path)
                    .header("host", "x")
                    .body(body)
                    .expect("a request")
            };
            kept.ready().await.expect("kept alive");
            let reply = kept
                .send_request(request("/collect", pieces.clone()))
                .await
                .expect("an answer");
            assert_eq!(
                (reply.status().as_u16(), whole(reply.into_body()).await == sent),
                (200, true),
                "body {number}"
            );
            // An answer that begins before its request's body has ended closes the connection.
            let mut own = connect(address).await;
            let reply = own
                .send_request(request("/forward", pieces))
                .await
                .expect("an answer");
            assert_eq!(
                (reply.status().as_u16(), whole(reply.into_body()).await == sent),
                (200, true),
                "body {number}"
            );
        }
    });
    assert_eq!(
        server.counts().accepted,
        1 + bodies().len() as u64,
        "one connection served all that was collected"
    );
}

async fn connect(address: std::net::SocketAddr) -> hyper::client::conn::http1::SendRequest<Pieces> {
    let io = Io(TcpStream::connect(address).await.expect("connects"));
    let (client, connection) = hyper::client::conn::http1::handshake(io)
        .await
        .expect("shakes hands");
    tokio::task::spawn_local(async { connection.await.expect("hyper finds nothing wrong") });
    client
}

#[test]
fn our_client_gets_back_from_hypers_server_what_it_sent() {
    let (tell, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
            tell.send(listener.local_addr().expect("address"))
                .expect("somebody waits");
            loop {
                let (socket, _) = listener.accept().await.expect("accepts");
                let echo = service_fn(|request: http::Request<hyper::body::Incoming>| async {
                    let declared = request.uri().path() == "/declared";
                    let bytes = whole(request.into_body()).await;
                    let pieces = bytes.chunks(10_000).map(Bytes::copy_from_slice).collect();
                    Ok::<_, Infallible>(http::Response::new(Pieces { pieces, declared }))
                });
                tokio::task::spawn_local(
                    hyper::server::conn::http1::Builder::new().serve_connection(Io(socket), echo),
                );
            }
        });
    });
    let origin = Origin::http("127.0.0.1", address.recv().expect("it listens").port());
    with_client(|client| async move {
        for (number, pieces) in bodies().into_iter().enumerate() {
            let sent = pieces.concat();
            let path = if number % 2 == 0 { "/declared" } else { "/chunked" };
            let body: Outgoing = pieces.into_iter().map(wire::Chunk::from).collect();
            let (status, body) = ask(&client, &origin, path, body).await.expect("an answer");
            assert_eq!((status, body == sent), (200, true), "body {number}");
        }
    });
}
