//! The thread that sends spans to a collector.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout_at};
use wire::guard::{self, Work};
use wire::{Origin, Pool};

use crate::grpc::Grpc;
use crate::gzip;
use crate::http1::Http;
use crate::proto;
use crate::recorder::{Counts, Outlet, QUEUE_SPANS_MAX, Recorder};
use crate::span::Span;

/// What is traced, and where the spans go.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The collector.
    pub origin: Origin,
    /// The protocol that it speaks.
    pub protocol: Protocol,
    /// Whether requests are compressed.
    pub gzip: bool,
    /// Headers of each request, such as credentials.
    pub headers: HeaderMap,
    /// The longest time that the collector may take for a request.
    pub timeout: Duration,
    /// The share of requests that are traced, from 0 to 1.
    pub sample: f64,
    /// Whether a client that says whether its request is traced is followed.
    pub follow_clients: bool,
    /// The attributes of this program.
    pub resource: Vec<(String, String)>,
}

/// A form of OTLP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Protocol buffers over HTTP/1.1, posted to this path.
    Http {
        /// The path.
        path: String,
    },
    /// gRPC.
    Grpc {
        /// Whether the collector is reached by TLS.
        tls: bool,
    },
}

/// Why a request did not reach its end.
pub(crate) enum Failure {
    /// The same request may succeed later, after this pause if the collector says so.
    Passing(String, Option<Duration>),
    /// It would fail again.
    Lasting(String),
}

/// A way to the collector.
enum Way {
    Http(Http),
    Grpc(Grpc),
}

/// The state of the thread.
struct Exporter {
    outlet: Mutex<Outlet>,
    way: Way,
    gzip: bool,
    resource: Vec<(String, String)>,
    authority: String,
    counts: Arc<Counts>,
    timeout: Duration,
}

impl Recorder {
    /// Starts to record, and a thread that exports what is recorded.
    ///
    /// # Errors
    /// When the system provides no thread.
    pub fn start(settings: Settings, counts: &Arc<Counts>) -> io::Result<Arc<Self>> {
        let (recorder, outlet) = Recorder::new(settings.sample, settings.follow_clients, Arc::clone(counts));
        let counts = Arc::clone(counts);
        guard::thread("traces", Work::Traces, move || {
            let ran = wire::run_local(MEMORY, |worker| async move {
                let exporter = Exporter::new(outlet, settings, counts, worker.pool());
                guard::restarted(Work::Traces, || exporter.run()).await;
            });
            if let Err(error) = ran {
                tracing::error!(%error, "traces are not exported: their thread cannot run");
            }
        })?;
        Ok(Arc::new(recorder))
    }
}

impl Exporter {
    fn new(outlet: Outlet, settings: Settings, counts: Arc<Counts>, pool: &Pool) -> Self {
        let authority = settings.origin.authority().to_owned();
        let mut headers = settings.headers;
        if settings.gzip {
            let encoding = match settings.protocol {
                Protocol::Http { .. } => CONTENT_ENCODING,
                Protocol::Grpc { .. } => GRPC_ENCODING,
            };
            headers.insert(encoding, HeaderValue::from_static("gzip"));
        }
        let way = match settings.protocol {
            Protocol::Http { path } => Way::Http(Http::new(settings.origin, path, headers, pool)),
            Protocol::Grpc { tls } => Way::Grpc(Grpc::new(settings.origin, tls, headers)),
        };
        Self {
            outlet: Mutex::new(outlet),
            way,
            gzip: settings.gzip,
            resource: settings.resource,
            authority,
            counts,
            timeout: settings.timeout,
        }
    }

    /// Exports until nobody records any more, or the recorder is closed.
    async fn run(&self) {
        let outlet = &mut *self.outlet.lock().await;
        let mut spans = Vec::new();
        loop {
            let more = gather(outlet, &mut spans).await;
            if !spans.is_empty() {
                self.export(&spans, &mut outlet.close).await;
                spans.clear();
            }
            if !more {
                return;
            }
        }
    }

    /// Exports these spans, again if that may help.
    async fn export(&self, spans: &[Span], close: &mut watch::Receiver<Option<Instant>>) {
        let body = self.body(spans);
        let (count, mut pause) = (spans.len() as u64, PAUSE_MIN);
        for left in (0..TRIES).rev() {
            let limit = ends(close, Instant::now() + self.timeout);
            let failure = match timeout_at(limit, self.way.send(body.clone(), limit)).await {
                Ok(Ok(None)) => return self.counts.settle(count, 0),
                Ok(Ok(Some((refused, why)))) => {
                    self.tell(refused, &why);
                    return self.counts.settle(count, refused);
                }
                Ok(Err(failure)) => failure,
                Err(_) => Failure::Passing("it takes too long".to_owned(), None),
            };
            let (why, asked) = match failure {
                Failure::Passing(why, asked) if left > 0 => (why, asked),
                Failure::Passing(why, _) | Failure::Lasting(why) => {
                    self.tell(count, &why);
                    break;
                }
            };
            tracing::debug!(collector = self.authority, why, "traces are sent again");
            let wait = asked.unwrap_or(pause).min(PAUSE_MAX);
            let resumes = Instant::now() + wait.mul_f64(0.5 + fastrand::f64() / 2.0);
            pause *= 2;
            tokio::select! {
                () = tokio::time::sleep_until(resumes) => {}
                () = closed(close) => {}
            }
        }
        self.counts.settle(count, count);
    }

    fn body(&self, spans: &[Span]) -> Bytes {
        let room = self.way.room();
        let body = proto::request(spans, &self.resource, room);
        Bytes::from(match self.gzip {
            true => gzip::compressed(&body, room),
            false => body,
        })
    }

    fn tell(&self, spans: u64, why: &str) {
        let collector = &*self.authority;
        wire::rationed!(tracing::warn, collector, spans, why, "spans were not exported");
    }
}

/// Gathers spans for a request: as many as one has, or those of a moment. Returns whether more may come.
async fn gather(outlet: &mut Outlet, spans: &mut Vec<Span>) -> bool {
    let Outlet { queue, close, .. } = outlet;
    let mut until = None;
    while spans.len() < REQUEST_SPANS_MAX {
        let room = REQUEST_SPANS_MAX - spans.len();
        let moment = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = closed(close) => return take_left(outlet, spans),
            more = queue.recv_many(spans, room) => if more == 0 { return false },
            () = moment => return true,
        }
        until = until.or_else(|| Some(Instant::now() + MOMENT));
    }
    true
}

/// Takes what is still queued when a recorder is closed. Returns whether there is more than a request has.
fn take_left(outlet: &mut Outlet, spans: &mut Vec<Span>) -> bool {
    let until = *outlet.close.borrow();
    while spans.len() < REQUEST_SPANS_MAX {
        match outlet.queue.try_recv() {
            Ok(span) => spans.push(span),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => return false,
        }
    }
    until.is_some_and(|until| Instant::now() < until)
}

/// Waits until the recorder is closed. Without a sender it is gone, and the queue ends by itself.
async fn closed(close: &mut watch::Receiver<Option<Instant>>) {
    if close.wait_for(Option::is_some).await.is_err() {
        std::future::pending().await
    }
}

/// Returns when to give up an exchange: when the recorder has to have ended, if that is earlier.
fn ends(close: &watch::Receiver<Option<Instant>>, limit: Instant) -> Instant {
    close.borrow().map_or(limit, |until| until.min(limit))
}

// === impl Way ===

impl Way {
    /// Returns how many bytes a request needs before its message.
    fn room(&self) -> usize {
        match self {
            Way::Http(_) => 0,
            Way::Grpc(_) => crate::grpc::PREFIX_BYTES,
        }
    }

    /// Sends one request. Returns how many spans the collector refused, if any, and why.
    async fn send(&self, body: Bytes, limit: Instant) -> Result<Option<(u64, String)>, Failure> {
        match self {
            Way::Http(http) => http.send(body, limit).await,
            Way::Grpc(grpc) => grpc.send(body).await,
        }
    }
}

/// How the messages of a gRPC call are compressed.
pub(crate) const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// The most spans of one request: far below the 4 MiB that a gRPC server takes.
const REQUEST_SPANS_MAX: usize = QUEUE_SPANS_MAX / 8;
/// How long spans wait for others.
const MOMENT: Duration = Duration::from_secs(1);
/// How often a request is tried, and the pauses between tries, which double: about 15 seconds in all. The
/// spans that come meanwhile fill the queue.
const TRIES: u32 = 5;
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The memory for answers.
const MEMORY: usize = 4 << 20;
