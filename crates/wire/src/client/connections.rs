//! The connections to each origin: the idle ones, and how many there are in all. The connection used last is
//! reused first.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustls_pki_types::ServerName;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::{Deadlines, Inner, Origin, SendErrorKind, resolve};
use crate::alarm::Alarm;
use crate::guard::{self, Work};
use crate::receive::Receiver;
use crate::stream::Stream;

/// The connections of one client, to all origins.
#[derive(Debug, Default)]
pub(super) struct Connections {
    by_origin: RefCell<HashMap<Origin, Rc<OriginConnections>>>,
    sweeping: Cell<bool>,
}

/// The connections to one origin.
#[derive(Debug)]
pub(super) struct OriginConnections {
    idle: RefCell<Vec<Idle>>,
    /// The free places for connections; they are given out first come, first served.
    places: Arc<Semaphore>,
    places_max: usize,
    waiting: Cell<usize>,
}

#[derive(Debug)]
struct Idle {
    wire: Wire,
    since: Instant,
}

/// The parts of a connection that are kept between exchanges.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) stream: Stream,
    pub(super) receiver: Receiver,
    pub(super) alarm: Alarm,
}

/// A connection in use. Dropping it frees its place; [`Connection::give_back`] keeps it open.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) wire: Wire,
    pub(super) reused: bool,
    connections: Weak<OriginConnections>,
    _place: tokio::sync::OwnedSemaphorePermit,
}

// === impl Inner ===

impl Inner {
    /// Returns a connection that is free and was alive a moment ago: an idle one, or a new one when there is
    /// a place.
    pub(super) async fn checkout(
        self: &Rc<Self>,
        origin: &Origin,
        deadlines: Deadlines,
    ) -> Result<Connection, SendErrorKind> {
        let connections = self.connections.of(origin, &self.config);
        let place = match Arc::clone(&connections.places).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => connections.wait(self.config.queue_max, deadlines).await?,
        };
        // What is written may be executed, though nobody would wait for the answer.
        if let Some(late) = deadlines.too_late_to_start() {
            return Err(late);
        }
        while let Some(mut idle) = connections.pop() {
            if idle.since.elapsed() < self.config.idle_timeout && idle.wire.is_quiet() {
                return Ok(Connection {
                    wire: idle.wire,
                    reused: true,
                    connections: Rc::downgrade(&connections),
                    _place: place,
                });
            }
        }
        self.sweep_regularly();
        let limit = (Instant::now() + self.config.connect_timeout).min(deadlines.start_limit());
        let stream = match timeout_at(limit, connect(origin)).await {
            Ok(connected) => connected?,
            Err(_) => {
                let late = deadlines.too_late_to_start();
                return Err(late.unwrap_or(SendErrorKind::ConnectTimeout));
            }
        };
        let wire = Wire {
            stream,
            receiver: Receiver::new(self.pool.clone()),
            alarm: Alarm::default(),
        };
        Ok(Connection {
            wire,
            reused: false,
            connections: Rc::downgrade(&connections),
            _place: place,
        })
    }

    /// Regularly closes connections that have been idle for too long, for as long as the client lives.
    fn sweep_regularly(self: &Rc<Self>) {
        if self.connections.sweeping.replace(true) {
            return;
        }
        let (inner, pause) = (
            Rc::downgrade(self),
            (self.config.idle_timeout / 4).max(Duration::from_millis(100)),
        );
        guard::spawn(Work::Housekeeping, async move {
            loop {
                tokio::time::sleep(pause).await;
                let Some(inner) = inner.upgrade() else { return };
                inner.connections.sweep(inner.config.idle_timeout);
            }
        });
    }
}

// === impl Connections ===

impl Connections {
    fn of(&self, origin: &Origin, config: &super::ClientConfig) -> Rc<OriginConnections> {
        if let Some(connections) = self.by_origin.borrow().get(origin) {
            return Rc::clone(connections);
        }
        let places_max = config.connections_per_origin_max.clamp(1, Semaphore::MAX_PERMITS);
        let connections = Rc::new(OriginConnections {
            idle: RefCell::default(),
            places: Arc::new(Semaphore::new(places_max)),
            places_max,
            waiting: Cell::new(0),
        });
        self.by_origin
            .borrow_mut()
            .insert(origin.clone(), Rc::clone(&connections));
        connections
    }

    pub(super) fn forget(&self, origin: &Origin) {
        self.by_origin.borrow_mut().remove(origin);
    }

    /// Closes what has been idle for too long, and forgets origins to which nothing is open: callers may come
    /// with new ones without end, as each new TLS configuration makes one.
    fn sweep(&self, idle_timeout: Duration) {
        self.by_origin.borrow_mut().retain(|_, connections| {
            let mut idle = connections.idle.borrow_mut();
            idle.retain_mut(|idle| idle.since.elapsed() < idle_timeout && idle.wire.is_quiet());
            !idle.is_empty() || connections.is_in_use() || Rc::strong_count(connections) > 1
        });
    }
}

// === impl OriginConnections ===

impl OriginConnections {
    /// Whether a connection is open and not idle, or is waited for.
    fn is_in_use(&self) -> bool {
        self.waiting.get() > 0 || self.places.available_permits() < self.places_max
    }

    fn pop(&self) -> Option<Idle> {
        self.idle.borrow_mut().pop()
    }

    async fn wait(
        &self,
        queue_max: usize,
        deadlines: Deadlines,
    ) -> Result<tokio::sync::OwnedSemaphorePermit, SendErrorKind> {
        if self.waiting.get() >= queue_max {
            return Err(SendErrorKind::Busy);
        }
        self.waiting.set(self.waiting.get() + 1);
        let _leave = Leave(&self.waiting);
        match timeout_at(deadlines.start_limit(), Arc::clone(&self.places).acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(SendErrorKind::Busy),
        }
    }
}

/// Leaves the queue even when the waiting future is dropped.
struct Leave<'a>(&'a Cell<usize>);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

// === impl Connection ===

impl Connection {
    /// Keeps the connection for the next request (unless its origin has been forgotten).
    pub(super) fn give_back(mut self) {
        if let Some(connections) = self.connections.upgrade() {
            self.wire.alarm.clear();
            connections.idle.borrow_mut().push(Idle {
                wire: self.wire,
                since: Instant::now(),
            });
        }
    }
}

// === impl Wire ===

impl Wire {
    /// Returns whether nothing has arrived since the last reply: neither the end of the stream nor unexpected
    /// bytes. This costs no system call unless the reactor has seen something.
    fn is_quiet(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        self.receiver.pending().is_empty()
            && matches!(self.receiver.poll_fill(&mut self.stream, &mut cx), Poll::Pending)
    }
}

pub(super) async fn connect(origin: &Origin) -> Result<Stream, SendErrorKind> {
    let parts = &origin.parts;
    let socket = resolve::connect(&parts.host, parts.port)
        .await
        .map_err(SendErrorKind::Connect)?;
    let _ = socket.set_nodelay(true);
    let _ = crate::listener::set_keepalive(&socket);
    let Some(tls) = &parts.tls else {
        return Ok(Stream::Plain(socket));
    };
    let name = ServerName::try_from(parts.host.to_string())
        .map_err(|error| SendErrorKind::Tls(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    let connector = tokio_rustls::TlsConnector::from(Arc::clone(&tls.config));
    let stream = connector
        .connect(name, socket)
        .await
        .map_err(SendErrorKind::Tls)?;
    Ok(Stream::Client(Box::new(stream)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClientConfig;

    #[test]
    fn origins_to_which_nothing_is_open_are_forgotten() {
        let (all, config) = (Connections::default(), ClientConfig::default());
        let origins: Vec<_> = (1..100).map(|port| Origin::http("127.0.0.1", port)).collect();
        for origin in &origins {
            all.of(origin, &config);
        }
        let place = Arc::clone(&all.of(&origins[7], &config).places).try_acquire_owned();
        let held = all.of(&origins[8], &config);
        all.sweep(config.idle_timeout);
        assert_eq!(all.by_origin.borrow().len(), 2, "one is in use, one is asked");
        drop((place, held));
        all.sweep(config.idle_timeout);
        assert!(all.by_origin.borrow().is_empty());
    }
}
