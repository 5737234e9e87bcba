//! The one driver of load: a client makes a request, the driver sends it, reads the whole reply, and hands
//! over the outcome, until the client has no more requests. Clients differ in what they send and in what they
//! make of the outcome; for many connections, each is driven by a thread of its own.
//!
//! The driver uses nothing of the gateway, and no HTTP library: a request is bytes that its client has built,
//! and a reply is read into a buffer that the connection keeps.

mod reply;

use std::borrow::Cow;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use reply::Replies;
pub use reply::Reply;

/// What sends requests, one after another. An error ends it.
pub trait Client {
    /// What the client remembers of a request until its outcome is there.
    type Sent;

    /// Returns the next request; none: this was all.
    ///
    /// # Errors
    /// If the client cannot go on.
    fn request(&mut self) -> Result<Option<(Request<'_>, Self::Sent)>>;

    /// Takes the outcome of a request.
    ///
    /// # Errors
    /// If the client is not to go on.
    fn outcome(&mut self, sent: Self::Sent, outcome: Outcome<'_>) -> Result<()>;
}

/// A request, head and body, as it is sent.
#[derive(Debug)]
pub struct Request<'a> {
    /// Where to connect to for it; none: the open connection is used, or one to the same server.
    pub connect: Option<Server>,
    /// What [`request`] makes.
    pub bytes: Cow<'a, [u8]>,
}

/// The outcome of a request.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// The moment before the first byte was sent, and before the connection was made, if one was.
    pub began: Instant,
    /// The time until the last byte was read.
    pub took: Duration,
    /// The whole reply, or why there is none.
    pub reply: Result<Reply<'a>>,
}

/// A server to connect to.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its address.
    pub address: SocketAddr,
    /// The limit on making a connection, and on each read and write.
    pub timeout: Duration,
    /// The trust that TLS needs, if it is used ([`trusting`]).
    pub tls: Option<Arc<ClientConfig>>,
}

/// A connection of a client, which may be closed.
#[derive(Default)]
pub struct Connection {
    server: Option<Server>,
    socket: Option<Box<dyn Socket>>,
    replies: Replies,
}

trait Socket: Read + Write + Send {}
impl<T: Read + Write + Send> Socket for T {}

/// Drives a client to its end, on this thread.
///
/// # Errors
/// What the client returns.
pub fn drive(mut connection: Connection, client: &mut impl Client) -> Result<()> {
    while let Some((request, sent)) = client.request()? {
        let began = Instant::now();
        let reply = connection.exchange(request);
        let took = began.elapsed();
        let is_open = reply.as_ref().is_ok_and(|reply| !reply.is_last());
        client.outcome(sent, Outcome { began, took, reply })?;
        if !is_open {
            connection.socket = None;
        }
    }
    Ok(())
}

/// Returns the bytes of a request.
pub fn request(
    (method, path): (&str, &str),
    address: SocketAddr,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\n");
    for (name, value) in headers {
        text.extend([name, ": ", value, "\r\n"]);
    }
    text.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Returns what a client needs for TLS with servers that have a certificate of this PEM text, or one that it
/// has signed.
///
/// # Errors
/// If the text has no certificate that can be trusted.
pub fn trusting(pem: &str) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate.map_err(|error| anyhow!("the certificate to trust: {error}"))?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(
        config.with_root_certificates(roots).with_no_client_auth(),
    ))
}

// === impl Server ===

impl Server {
    /// Returns a server without TLS.
    pub fn plain(address: SocketAddr, timeout: Duration) -> Self {
        Self {
            address,
            timeout,
            tls: None,
        }
    }

    fn connect(&self) -> Result<Box<dyn Socket>> {
        let stream = TcpStream::connect_timeout(&self.address, self.timeout)
            .with_context(|| format!("cannot connect to {}", self.address))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        let Some(config) = &self.tls else {
            return Ok(Box::new(stream));
        };
        let name = ServerName::from(self.address.ip());
        let tls = ClientConnection::new(Arc::clone(config), name)?;
        Ok(Box::new(StreamOwned::new(tls, stream)))
    }
}

// === impl Connection ===

impl Connection {
    /// Connects before there is a request.
    ///
    /// # Errors
    /// If the connection cannot be made.
    pub fn open(server: &Server) -> Result<Self> {
        Ok(Self {
            socket: Some(server.connect()?),
            server: Some(server.clone()),
            replies: Replies::default(),
        })
    }

    fn exchange(&mut self, request: Request<'_>) -> Result<Reply<'_>> {
        if request.connect.is_some() {
            (self.server, self.socket) = (request.connect, None);
        }
        let began = Instant::now();
        if self.socket.is_none() {
            let server = self.server.as_ref().context("no server to connect to")?;
            self.socket = Some(server.connect()?);
        }
        let connected = began.elapsed();
        let socket = self.socket.as_mut().context("the connection is open")?;
        socket.write_all(&request.bytes).context("while sending")?;
        socket.flush()?;
        let sent = began.elapsed();
        self.replies.read(socket.as_mut()).with_context(|| {
            format!("while reading the reply (connected after {connected:?}, sent after {sent:?})")
        })
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// The header of bulks.
pub const NDJSON: (&str, &str) = ("content-type", "application/x-ndjson");

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Sends requests on these connections: a new one, or the one that is open. Notes the statuses.
    struct Countdown {
        connects: Vec<Option<Server>>,
        statuses: Vec<Option<u16>>,
    }

    impl Client for Countdown {
        type Sent = usize;

        fn request(&mut self) -> Result<Option<(Request<'_>, usize)>> {
            let left = self.connects.len();
            let bytes = Cow::from(&b"GET / HTTP/1.1\r\n\r\n"[..]);
            let connect = self.connects.pop();
            Ok(connect.map(|connect| (Request { connect, bytes }, left)))
        }

        fn outcome(&mut self, left: usize, outcome: Outcome<'_>) -> Result<()> {
            assert_eq!(left, self.connects.len() + 1);
            self.statuses.push(outcome.reply.ok().map(|reply| reply.status));
            Ok(())
        }
    }

    /// Starts a server that gives each of its connections these replies, and then closes it.
    fn server(connections: Vec<Vec<&'static str>>) -> (Server, thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server::plain(listener.local_addr().unwrap(), Duration::from_secs(20));
        let answers = move || {
            for replies in connections {
                let (mut socket, _) = listener.accept().unwrap();
                for reply in replies {
                    let mut request = [0; 18];
                    socket.read_exact(&mut request).unwrap();
                    socket.write_all(reply.as_bytes()).unwrap();
                }
            }
        };
        (server, thread::spawn(answers))
    }

    #[test]
    fn a_connection_is_kept_until_a_reply_or_a_failure_ends_it_or_a_new_one_is_wanted() {
        const KEPT: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        const LAST: &str = "HTTP/1.1 429 X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        const HALF: &str = "HTTP/1.1 201 X\r\ncontent-length: 9\r\n\r\n{}";
        let connections = vec![vec![KEPT, KEPT, LAST], vec![HALF], vec![KEPT], vec![KEPT]];
        let (server, answering) = server(connections);
        let mut few = Countdown {
            // The last is the first to be sent.
            connects: vec![Some(server.clone()), None, None, None, None, Some(server)],
            statuses: Vec::new(),
        };
        drive(Connection::default(), &mut few).unwrap();
        answering.join().unwrap();
        let wanted = [200, 200, 429, 0, 200, 200].map(|status| (status > 0).then_some(status));
        assert_eq!(few.statuses, wanted);
    }
}
