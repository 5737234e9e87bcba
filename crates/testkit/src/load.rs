//! A closed-loop load source for bulk requests: each connection sends a prebuilt request, reads the whole
//! reply, checks it, and sends the next one. It therefore reports documents per second at a given number of
//! connections, and the time from the first byte sent to the last byte read, without correction for the
//! waiting that an open loop would see.
//!
//! Every reply is checked for its status, `"errors":false` and the number of its items. The first reply of
//! each connection is also checked for its ids, one by one in request order.
//!
//! ```
//! use testkit::fake::{FakeCluster, Spec};
//! use testkit::load::{Load, Until};
//! use testkit::nginx::Bulk;
//!
//! let cluster = FakeCluster::start(Spec::default().index("logs", 3))?;
//! let load = Load { bulk: Bulk::new("logs", 100), ..Load::at(cluster.addresses()[0]) };
//! let report = load.prepare()?.run(Until::Docs(1_000))?;
//! assert_eq!((report.docs, report.failed), (1_000, 0));
//! # anyhow::Ok(())
//! ```

mod reply;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use hdrhistogram::Histogram;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::nginx::Bulk;
use reply::Replies;

/// The load: what to send, where, and with how many connections.
#[derive(Debug, Clone)]
pub struct Load {
    /// The address that the requests go to.
    pub address: SocketAddr,
    /// The path and parameters of each request.
    pub path: String,
    /// The recipe of the bodies.
    pub bulk: Bulk,
    /// Number of different bodies that are made and sent in turn.
    pub bodies: usize,
    /// Number of connections, each with one request at a time.
    pub connections: usize,
    /// Whether bodies are sent gzipped (compressed beforehand, level 6).
    pub gzip: bool,
    /// The PEM certificate to trust, if the load uses TLS.
    pub ca_pem: Option<String>,
    /// Whether no id is sent twice: each request's ids are numbered anew when it is sent. Not for compressed
    /// bodies.
    pub fresh_ids: bool,
}

/// The end of a run.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// After this many documents, rounded up to whole requests.
    Docs(u64),
    /// After this long; requests under way are finished.
    Time(Duration),
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// Documents in requests that succeeded.
    pub docs: u64,
    /// Requests that succeeded.
    pub requests: u64,
    /// Requests that failed, or got no answer.
    pub failed: u64,
    /// The text of the first failure.
    pub failure: Option<String>,
    /// Seconds from the first request to the last reply.
    pub seconds: f64,
    /// Median latency of the requests.
    pub p50_ms: f64,
    /// 99th percentile of the requests' latency.
    pub p99_ms: f64,
    /// The longest latency of a request.
    pub max_ms: f64,
    /// Average size of a body as it is sent.
    pub body_bytes: u64,
}

/// Open connections and built requests: a run only has to send.
#[derive(Debug)]
pub struct Prepared {
    requests: Arc<Vec<Request>>,
    docs: u64,
    fresh_ids: bool,
    connections: Vec<Connection>,
}

/// A request, head and body, as it is sent.
#[derive(Debug)]
struct Request {
    bytes: Vec<u8>,
    body_bytes: u64,
    /// The positions at which its ids begin; none in a compressed body.
    ids: Vec<usize>,
}

trait Socket: Read + Write + Send {}
impl<T: Read + Write + Send> Socket for T {}

struct Connection {
    socket: Box<dyn Socket>,
    replies: Replies,
    ids_checked: bool,
    /// The request with ids of its own.
    renumbered: Vec<u8>,
}

// === impl Load ===

impl Load {
    /// Returns a load of one connection sending 5,000 access-log documents per request, with ids, to index
    /// `bench`.
    pub fn at(address: SocketAddr) -> Load {
        Load {
            address,
            path: "/_bulk".to_owned(),
            bulk: Bulk::new("bench", 5_000),
            bodies: 4,
            connections: 1,
            gzip: false,
            ca_pem: None,
            fresh_ids: false,
        }
    }

    /// Builds the requests and connects.
    ///
    /// # Errors
    /// If a connection cannot be made.
    pub fn prepare(&self) -> Result<Prepared> {
        ensure!(
            !(self.fresh_ids && self.gzip),
            "packed bodies cannot be given fresh ids"
        );
        let requests = (0..self.bodies)
            .map(|seed| self.request(seed as u64))
            .collect::<Result<Vec<_>>>()?;
        let tls = self.ca_pem.as_deref().map(trusting).transpose()?;
        let connections = (0..self.connections)
            .map(|_| self.connect(tls.as_ref()))
            .collect::<Result<Vec<_>>>()?;
        Ok(Prepared {
            requests: Arc::new(requests),
            docs: self.bulk.docs as u64,
            fresh_ids: self.fresh_ids,
            connections,
        })
    }

    fn request(&self, seed: u64) -> Result<Request> {
        let plain = self.bulk.body(seed);
        let checked = match self.gzip {
            true => Vec::new(),
            false => reply::id_places(&plain).collect(),
        };
        let (body, packed) = if self.gzip {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
            encoder.write_all(&plain)?;
            (encoder.finish()?, "content-encoding: gzip\r\n")
        } else {
            (plain, "")
        };
        let mut bytes = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/x-ndjson\r\n{packed}content-length: {}\r\n\r\n",
            self.path,
            self.address,
            body.len()
        )
        .into_bytes();
        let head = bytes.len();
        bytes.extend_from_slice(&body);
        Ok(Request {
            bytes,
            body_bytes: body.len() as u64,
            ids: checked.into_iter().map(|at: usize| head + at).collect(),
        })
    }

    fn connect(&self, tls: Option<&Arc<ClientConfig>>) -> Result<Connection> {
        let stream = TcpStream::connect(self.address)
            .with_context(|| format!("cannot connect to {}", self.address))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        stream.set_write_timeout(Some(ANSWER_TIME_MAX))?;
        let socket: Box<dyn Socket> = match tls {
            None => Box::new(stream),
            Some(config) => {
                let name = ServerName::from(self.address.ip());
                Box::new(StreamOwned::new(
                    ClientConnection::new(Arc::clone(config), name)?,
                    stream,
                ))
            }
        };
        Ok(Connection {
            socket,
            replies: Replies::default(),
            ids_checked: false,
            renumbered: Vec::new(),
        })
    }
}

fn trusting(pem: &str) -> Result<Arc<ClientConfig>> {
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

// === impl Prepared ===

impl Prepared {
    /// Sends on all connections until there is enough.
    ///
    /// # Errors
    /// If a thread cannot be started. Failed requests are counted, and end their connection's part.
    pub fn run(self, until: Until) -> Result<Report> {
        let tickets = Arc::new(AtomicU64::new(0));
        let requests_max = match until {
            Until::Docs(docs) => docs.div_ceil(self.docs),
            Until::Time(_) => u64::MAX,
        };
        let begun = Instant::now();
        let until = match until {
            Until::Docs(_) => None,
            Until::Time(time) => Some(begun + time),
        };
        let mut threads = Vec::new();
        for mut connection in self.connections {
            let (requests, tickets) = (Arc::clone(&self.requests), Arc::clone(&tickets));
            let (docs, fresh) = (self.docs, self.fresh_ids);
            let work = move || {
                connection.work(&requests, docs, fresh, &|| {
                    let ticket = tickets.fetch_add(1, Ordering::Relaxed);
                    (ticket < requests_max && until.is_none_or(|until| Instant::now() < until))
                        .then_some(ticket)
                })
            };
            threads.push(thread::Builder::new().stack_size(256 << 10).spawn(work)?);
        }
        let mut total = Tally::new();
        for thread in threads {
            total.add(
                &thread
                    .join()
                    .map_err(|_| anyhow!("a connection's thread panicked"))?,
            );
        }
        Ok(total.report(begun.elapsed(), self.docs, &self.requests))
    }
}

// === impl Connection ===

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("ids_checked", &self.ids_checked)
            .finish_non_exhaustive()
    }
}

impl Connection {
    fn work(
        &mut self,
        requests: &[Request],
        docs: u64,
        fresh: bool,
        next: &dyn Fn() -> Option<u64>,
    ) -> Tally {
        let mut tally = Tally::new();
        while let Some(ticket) = next() {
            let request = &requests[ticket as usize % requests.len()];
            if fresh {
                self.renumber(request, ticket * docs);
            }
            let begun = Instant::now();
            if let Err(error) = self.exchange(request, docs, fresh) {
                tally.failed += 1;
                tally.failure.get_or_insert_with(|| format!("{error:#}"));
                break;
            }
            let took = begun.elapsed().as_micros().try_into().unwrap_or(u64::MAX);
            tally.latency_us.saturating_record(took);
        }
        tally
    }

    /// Copies a request and writes a number of this process into the first characters of each of its ids.
    fn renumber(&mut self, request: &Request, first: u64) {
        self.renumbered.clear();
        self.renumbered.extend_from_slice(&request.bytes);
        for (id, number) in request.ids.iter().zip(first..) {
            let mut number = number | u64::from(std::process::id()) << 40;
            for letter in &mut self.renumbered[*id..*id + NUMBER_LETTERS] {
                *letter = b'A' + (number & 15) as u8;
                number >>= 4;
            }
        }
    }

    fn exchange(&mut self, request: &Request, docs: u64, fresh: bool) -> Result<()> {
        let bytes = if fresh { &self.renumbered } else { &request.bytes };
        self.socket.write_all(bytes).context("while sending")?;
        self.socket.flush()?;
        let body = self
            .replies
            .read(self.socket.as_mut())
            .context("while reading the reply")?;
        reply::check(body, docs)?;
        if !self.ids_checked {
            reply::check_ids(body, bytes, &request.ids)?;
            self.ids_checked = true;
        }
        Ok(())
    }
}

// === Tally ===

struct Tally {
    latency_us: Histogram<u64>,
    failed: u64,
    failure: Option<String>,
}

impl Tally {
    fn new() -> Tally {
        let latency_us = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("the bounds are in order");
        Tally {
            latency_us,
            failed: 0,
            failure: None,
        }
    }

    fn add(&mut self, other: &Tally) {
        self.latency_us
            .add(&other.latency_us)
            .expect("both have the same bounds");
        self.failed += other.failed;
        if self.failure.is_none() {
            self.failure.clone_from(&other.failure);
        }
    }

    fn report(self, took: Duration, docs: u64, requests: &[Request]) -> Report {
        let answered = self.latency_us.len();
        let ms = |us: u64| us as f64 / 1e3;
        Report {
            docs: answered * docs,
            requests: answered,
            failed: self.failed,
            failure: self.failure,
            seconds: took.as_secs_f64(),
            p50_ms: ms(self.latency_us.value_at_quantile(0.5)),
            p99_ms: ms(self.latency_us.value_at_quantile(0.99)),
            max_ms: ms(self.latency_us.max()),
            body_bytes: requests.iter().map(|request| request.body_bytes).sum::<u64>()
                / requests.len() as u64,
        }
    }
}

/// Number of letters of an id that hold 60 bits, of which the last 20 are the process's.
const NUMBER_LETTERS: usize = 15;
/// A request that takes longer than this has failed.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
const LATENCY_US_MAX: u64 = 120_000_000;
