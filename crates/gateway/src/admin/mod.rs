//! The admin port: a small HTTP API on a thread of its own, off the data path. It binds to loopback unless
//! configured otherwise.
//!
//! One table ([`endpoints`]) defines what the port serves. The routes and the list at `/` are made from it.

mod alarms;
mod bounded_listener;
mod changes;
mod configs;
mod dead_letters;
mod endpoints;
mod gauges;
mod guard;
mod health;
mod observe;
mod openapi;
mod parked;
mod pipelines;
mod port_tls;
mod pretty;
mod process;
mod queues;
mod rates;
mod refusal;
mod switches;
mod topics;
mod trace;
mod upgrade;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::{Router, serve};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use wire::Budget;
use wire::guard::{Work, fault, restarted, vital_thread};

use crate::clock::now_ms;
use crate::delivery::Deliveries;
use crate::front::Listeners;
use crate::live::GatewayState;

use alarms::Alarms;
use bounded_listener::BoundedListener;
use changes::Changes;
use rates::Rates;
use refusal::Refusal;

pub(crate) use health::why_not_ready;
pub(crate) use port_tls::PortTls;

/// The running admin port. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Admin {
    address: SocketAddr,
    /// The socket, with the address that the configuration gives.
    socket: (SocketAddr, std::net::TcpListener),
    tls: Arc<PortTls>,
    changes: Arc<Changes>,
    stop: oneshot::Sender<()>,
    /// Resolves once the thread of the port is done.
    ended: oneshot::Receiver<()>,
}

/// The state that the endpoints read.
struct AdminState {
    shared: Arc<GatewayState>,
    listeners: Arc<Mutex<Listeners>>,
    budget: Arc<Budget>,
    deliveries: Arc<Deliveries>,
    tls: Arc<PortTls>,
    rates: Rates,
    changes: Arc<Changes>,
    started: Instant,
    /// The time of the start in milliseconds since 1970, which distinguishes this program from another one.
    started_ms: u64,
    /// Whether this program was put back after an upgrade that failed.
    put_back: bool,
}

impl Admin {
    /// Listens on `binding`, on the socket of the program before if it has left one. Serves on a thread of
    /// its own.
    pub(crate) fn start(
        (binding, left, tls): (SocketAddr, Option<OwnedFd>, PortTls),
        put_back: bool,
        shared: Arc<GatewayState>,
        listeners: Arc<Mutex<Listeners>>,
        budget: Arc<Budget>,
        deliveries: Arc<Deliveries>,
    ) -> io::Result<Self> {
        let listener = match left {
            Some(socket) => std::net::TcpListener::from(socket),
            None => std::net::TcpListener::bind(binding)?,
        };
        listener.set_nonblocking(true)?;
        let socket = (binding, listener.try_clone()?);
        let address = listener.local_addr()?;
        let tls = Arc::new(tls);
        let started_ms = now_ms();
        let changes = Arc::new(Changes::new(started_ms));
        let admin = Arc::new(AdminState {
            shared,
            listeners,
            budget,
            deliveries,
            tls: Arc::clone(&tls),
            rates: Rates::default(),
            changes: Arc::clone(&changes),
            started: Instant::now(),
            started_ms,
            put_back,
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let (ends, ended) = oneshot::channel::<()>();
        vital_thread("admin", Work::Core, move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = serve_until_it_fails(listener, &admin, stopped) => {}
                    () = restarted(Work::Admin, || count(&admin)) => {}
                    () = restarted(Work::Admin, || admin.changes.watch(&admin)) => {}
                }
            });
            drop(ends);
        })?;
        Ok(Self {
            address,
            socket,
            tls,
            changes,
            stop,
            ended,
        })
    }

    /// Stops accepting, tells those who follow changes why, and returns once the open requests are answered,
    /// or after [`LAST_ANSWERS`].
    pub(crate) async fn stop(self, why: &'static str) {
        self.changes.end(why);
        drop(self.stop);
        let _ = self.ended.await; // the sender sends nothing, and is dropped when the thread ends
    }

    /// Duplicates the socket for the next program.
    ///
    /// # Errors
    /// Fails when the system has no descriptor left.
    pub(crate) fn socket(&self) -> io::Result<(SocketAddr, OwnedFd)> {
        Ok((self.socket.0, self.socket.1.try_clone()?.into()))
    }

    /// Returns the TLS of the port, which a reload may change.
    pub(crate) fn tls(&self) -> &PortTls {
        &self.tls
    }

    /// Returns the address that the port listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve_until_it_fails(
    listener: std::net::TcpListener,
    admin: &Arc<AdminState>,
    stopped: oneshot::Receiver<()>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "admin port failed"),
    };
    let routes = router(Arc::clone(admin));
    let listener = BoundedListener::new(listener, admin.tls.terms());
    let service = routes.into_make_service_with_connect_info::<bounded_listener::OfConnection>();
    let (stopping, is_stopping) = oneshot::channel();
    let serving = serve(listener, service).with_graceful_shutdown(async move {
        let _ = stopped.await; // the sender is dropped without sending
        let _ = stopping.send(());
    });
    let no_longer = async {
        let _ = is_stopping.await;
        tokio::time::sleep(LAST_ANSWERS).await;
    };
    tokio::select! {
        served = serving => if let Err(error) = served {
            tracing::error!(%error, "admin port failed");
        },
        () = no_longer => {}
    }
}

/// Samples the numbers of the queues now and then, for their rates, and logs what an operator has to act on.
async fn count(admin: &AdminState) {
    let mut ticks = tokio::time::interval(rates::EVERY);
    let mut alarms = Alarms::default();
    loop {
        ticks.tick().await;
        admin.rates.take(&admin.shared.queues.load());
        alarms.look(admin);
    }
}

/// Answers 500 for a handler that panics.
async fn guarded(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let handled = wire::guard::guarded(Work::Admin, async {
        fault("admin", path.as_bytes());
        next.run(request).await
    });
    handled.await.unwrap_or_else(|panicked| {
        panicked.report(Work::Admin, "its client gets 500, other requests go on");
        Refusal::failed(panicked.to_string()).into_response()
    })
}

fn router(admin: Arc<AdminState>) -> Router {
    let mut router = Router::new();
    for endpoint in endpoints::all() {
        router = router.route(endpoint.path, (endpoint.route)());
    }
    // Paths that do not exist are behind the token too: layers cover what was added before them.
    router
        .fallback(async || Refusal::not_found("no such endpoint; GET / lists them"))
        .method_not_allowed_fallback(async || Refusal::method())
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(Arc::clone(&admin), guard::admit))
        .layer(from_fn(guarded))
        .layer(from_fn(bounded_listener::note))
        .layer(from_fn(pretty::lay_out))
        .with_state(admin)
}

/// How long requests that came before the end are answered: a client may take its time.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The longest body: a dead letter's new source may be as long as a client's.
const BODY_BYTES_MAX: usize = 256 << 20;
