//! One node: its listener, a thread for each connection, and the effect of a fault on a request.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::fault::Fault;
use super::http::{Body, Head, Reader, Reply, Socket, break_off};
use super::state::ClusterContext;
use super::{api, bulk, form};

/// The stack of a connection's thread. There may be thousands, which touch little of it; a document as deep
/// as the parser takes needs more than a quarter of it where nothing is optimised.
const STACK_BYTES: usize = 1 << 20;
/// As the standard library has it.
const BACKLOG: i32 = 128;

#[derive(Debug)]
pub(super) struct Node {
    at: usize,
    shared: Arc<ClusterContext>,
    tls: Option<Arc<ServerConfig>>,
    life: Mutex<Option<Life>>,
    /// The port of a node that is down: bound, so that nobody else is given it, and not listening, so that
    /// connections are refused.
    port: Mutex<Option<OwnedFd>>,
}

/// The time from a start to the next kill.
#[derive(Debug)]
struct Life {
    listener: Arc<TcpListener>,
    acceptor: JoinHandle<()>,
    open: Arc<Open>,
}

/// The connections of a life, kept so that they can be broken.
#[derive(Debug, Default)]
struct Open {
    dead: AtomicBool,
    /// Held by requests that are being executed: killing the node waits for them, so that nothing is executed
    /// once the node is dead.
    executing: RwLock<()>,
    next: AtomicU64,
    streams: Mutex<HashMap<u64, TcpStream>>,
}

// === impl Node ===

impl Node {
    pub(super) fn start(
        at: usize,
        listener: TcpListener,
        shared: Arc<ClusterContext>,
        tls: Option<Arc<ServerConfig>>,
    ) -> io::Result<Node> {
        let node = Node {
            at,
            shared,
            tls,
            life: Mutex::new(None),
            port: Mutex::new(None),
        };
        node.live(listener)?;
        Ok(node)
    }

    pub(super) fn kill(&self) {
        let Some(life) = self.life.lock().take() else {
            return;
        };
        life.open.dead.store(true, Ordering::Release);
        // Wakes the acceptor, as no other call does.
        let _ = rustix::net::shutdown(&life.listener, rustix::net::Shutdown::Both);
        drop(life.listener);
        let _ = life.acceptor.join();
        // Another cluster of this process, or another process, would take the node's clients along.
        *self.port.lock() = bound(self.shared.addresses[self.at]).ok();
        drop(life.open.executing.write());
        life.open.streams.lock().values().for_each(break_off);
    }

    pub(super) fn restart(&self) -> io::Result<()> {
        self.kill();
        let kept = self.port.lock().take();
        let port = match kept {
            Some(port) => port,
            None => bound(self.shared.addresses[self.at])?,
        };
        rustix::net::listen(&port, BACKLOG)?;
        self.live(TcpListener::from(port))
    }

    pub(super) fn connections(&self) -> usize {
        let life = self.life.lock();
        life.as_ref().map_or(0, |life| life.open.streams.lock().len())
    }

    fn live(&self, listener: TcpListener) -> io::Result<()> {
        let listener = Arc::new(listener);
        let open = Arc::new(Open::default());
        let acceptor = {
            let (at, listener, open) = (self.at, Arc::clone(&listener), Arc::clone(&open));
            let (shared, tls) = (Arc::clone(&self.shared), self.tls.clone());
            thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn(move || accept(at, &listener, &open, &shared, tls.as_ref()))?
        };
        *self.life.lock() = Some(Life {
            listener,
            acceptor,
            open,
        });
        Ok(())
    }
}

/// Returns a socket that has an address, and does not listen.
fn bound(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The last connections may still be closing.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

fn accept(
    at: usize,
    listener: &TcpListener,
    open: &Arc<Open>,
    shared: &Arc<ClusterContext>,
    tls: Option<&Arc<ServerConfig>>,
) {
    while let Ok((stream, _)) = listener.accept() {
        if open.dead.load(Ordering::Acquire) {
            return;
        }
        let number = open.next.fetch_add(1, Ordering::Relaxed);
        let Ok(copy) = stream.try_clone() else { continue };
        open.streams.lock().insert(number, copy);
        let (shared, tls, open) = (Arc::clone(shared), tls.cloned(), Arc::clone(open));
        let spawned = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            // A broken connection is the peer's concern.
            let _ = converse(at, stream, &shared, tls, &open);
            open.streams.lock().remove(&number);
        });
        drop(spawned);
    }
}

fn converse(
    at: usize,
    stream: TcpStream,
    shared: &ClusterContext,
    tls: Option<Arc<ServerConfig>>,
    open: &Open,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let raw = stream.try_clone()?;
    let mut socket: Box<dyn Socket> = match tls {
        None => Box::new(stream),
        Some(config) => Box::new(StreamOwned::new(
            ServerConnection::new(config).map_err(io::Error::other)?,
            stream,
        )),
    };
    let mut connection = Connection {
        at,
        shared,
        open,
        reader: Reader::new(),
        reply: Reply::new(),
        scratch: bulk::Scratch::default(),
    };
    while connection.exchange(socket.as_mut())? {}
    // The other clone, among the open ones, would keep the connection half alive.
    break_off(&raw);
    Ok(())
}

struct Connection<'a> {
    at: usize,
    shared: &'a ClusterContext,
    open: &'a Open,
    reader: Reader,
    reply: Reply,
    scratch: bulk::Scratch,
}

// === impl Connection ===

impl Connection<'_> {
    /// Handles one request and its reply. Returns false when the connection ends.
    fn exchange(&mut self, socket: &mut dyn Socket) -> io::Result<bool> {
        let Some(head) = self.reader.head(socket)? else {
            return Ok(false);
        };
        let tally = self.shared.tally(self.at);
        tally.requests.fetch_add(1, Ordering::Relaxed);
        self.shared.traced(head.traceparent.as_deref());
        self.wait_while_paused();
        if self.refuses_head(&head, socket)? {
            return Ok(false);
        }
        let fault = self.shared.injections.take(self.at, &head.path, &head.query);
        let mut rate = None;
        match &fault {
            Some(Fault::CloseAtHead) => return Ok(false),
            Some(Fault::EarlyStatus { status, body }) => {
                self.reply.text(*status, body);
                return self.send(&head, socket, true, None).map(|()| false);
            }
            Some(Fault::SlowRead(bytes_a_s)) => rate = Some(*bytes_a_s),
            _ => {}
        }
        let body = self.reader.read_body(&head, socket, rate)?;
        self.wait_while_paused();
        match fault.and_then(|fault| self.applied(fault, &body)) {
            Some(Fault::Status { status, body }) => self.reply.text(status, &body),
            Some(Fault::CloseUnwritten) => return Ok(false),
            Some(Fault::HangUnwritten) => return self.hang(),
            Some(Fault::Delay(time)) => {
                thread::sleep(time);
                self.answer(&head, &body, None);
            }
            fault => {
                self.answer(&head, &body, fault.as_ref());
                match fault {
                    Some(Fault::HangWritten) => return self.hang(),
                    Some(Fault::CloseWritten) => return Ok(false),
                    Some(Fault::CloseMidReply(bytes)) => return self.send_some(&head, socket, bytes),
                    Some(Fault::Garbage(text)) => self.reply.text(200, &text),
                    Some(Fault::StatusWritten { status, body }) => self.reply.text(status, &body),
                    Some(Fault::SlowReply(bytes_a_s)) => {
                        self.reader.consume(&body);
                        return self
                            .send(&head, socket, head.close, Some(bytes_a_s))
                            .map(|()| !head.close);
                    }
                    _ => {}
                }
            }
        }
        self.reader.consume(&body);
        self.send(&head, socket, head.close, None)?;
        Ok(!head.close)
    }

    /// Returns what a fault that goes by the body does to this one.
    fn applied(&self, fault: Fault, body: &Body) -> Option<Fault> {
        let (is_struck, fault) = match fault {
            Fault::StatusIfHolds {
                text,
                status,
                body: words,
            } => (self.holds(body, &text), Fault::Status { status, body: words }),
            Fault::StatusIfLacks {
                text,
                status,
                body: words,
            } => (!self.holds(body, &text), Fault::Status { status, body: words }),
            Fault::StatusIfLonger {
                bytes,
                status,
                body: words,
            } => (
                self.reader.body(body).len() > bytes,
                Fault::Status { status, body: words },
            ),
            Fault::CloseIfHolds(text) => (self.holds(body, &text), Fault::CloseUnwritten),
            fault => (true, fault),
        };
        is_struck.then_some(fault)
    }

    fn holds(&self, body: &Body, text: &str) -> bool {
        memchr::memmem::find(self.reader.body(body), text.as_bytes()).is_some()
    }

    /// Sends `bytes` bytes of the reply, after which the connection ends.
    fn send_some(&mut self, head: &Head, socket: &mut dyn Socket, bytes: usize) -> io::Result<bool> {
        let named = self.shared.spec.flavour.names_itself();
        let reply = self.reply.finish(&head.method, named, false);
        socket.write_all(&reply[..bytes.min(reply.len())])?;
        socket.flush()?;
        Ok(false)
    }

    fn answer(&mut self, head: &Head, body: &Body, fault: Option<&Fault>) {
        self.reply.clear();
        let _executing = self.open.executing.read();
        if self.open.dead.load(Ordering::Acquire) {
            return;
        }
        if !api::authorized(self.shared, head) {
            return api::refuse_stranger(&mut self.reply);
        }
        let bytes = self.reader.body(body);
        if matches!(head.method.as_str(), "POST" | "PUT") && head.path.ends_with("/_bulk") {
            let tally = self.shared.tally(self.at);
            tally
                .body_bytes
                .fetch_add(body.travelled as u64, Ordering::Relaxed);
            let flavour = self.shared.spec.flavour;
            if let Some((status, words)) = form::refusal(head, flavour) {
                return self.reply.json(status, &words);
            }
            self.reply.media_type = Some(form::answered_type(head, flavour));
            bulk::answer(
                self.shared,
                self.at,
                head,
                bytes,
                fault,
                &mut self.scratch,
                &mut self.reply,
            );
        } else {
            api::answer(self.shared, self.at, head, bytes, &mut self.reply);
        }
    }

    fn send(
        &mut self,
        head: &Head,
        socket: &mut dyn Socket,
        close: bool,
        bytes_a_s: Option<u64>,
    ) -> io::Result<()> {
        if self.open.dead.load(Ordering::Acquire) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if head.accepts_gzip && self.shared.spec.packs() {
            self.reply.pack();
        }
        let reply = self
            .reply
            .finish(&head.method, self.shared.spec.flavour.names_itself(), close);
        match bytes_a_s {
            None => socket.write_all(reply)?,
            Some(rate) => {
                for piece in reply.chunks((rate / 100).max(1) as usize) {
                    socket.write_all(piece)?;
                    socket.flush()?;
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }
        socket.flush()
    }

    /// Waits while the node is paused, unless it dies.
    fn wait_while_paused(&self) {
        while self.shared.paused[self.at].load(Ordering::Acquire) && !self.open.dead.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Refuses a head that is too long, or declares too much; returns whether it did. After headers that are
    /// too long, netty's `HttpObjectDecoder` ignores whatever else comes on the connection, but does not
    /// close it.
    fn refuses_head(&mut self, head: &Head, socket: &mut dyn Socket) -> io::Result<bool> {
        let spec = &self.shared.spec;
        let too_long = form::too_long(head, spec.flavour).filter(|_| !spec.long_heads);
        if let Some((status, words)) = too_long {
            self.reply.json(status, &words);
            let closes = head.line_bytes > form::LINE_BYTES_MAX;
            self.send(head, socket, closes, None)?;
            while !closes && socket.read(&mut [0; 4096])? > 0 {}
            return Ok(true);
        }
        if head.content_length() > spec.content_length_max {
            self.reply.text(413, "");
            self.send(head, socket, true, None)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Sends nothing until the node dies.
    fn hang(&self) -> io::Result<bool> {
        while !self.open.dead.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(20));
        }
        Ok(false)
    }
}
