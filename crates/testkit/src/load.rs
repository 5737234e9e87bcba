//! A closed-loop load source for bulk requests, on the [`driver`]: each connection sends a prebuilt request,
//! reads the whole reply, checks it, and sends the next one. It therefore reports documents per second at a
//! given number of connections, and the time from the first byte sent to the last byte read, without
//! correction for the waiting that an open loop would see.
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

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use hdrhistogram::Histogram;
use memchr::memmem;

use crate::driver::{self, Client, Connection, Outcome, Server};
use crate::nginx::Bulk;

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
    requests: Vec<Request>,
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

/// One connection's part of a run.
struct Source<'l> {
    requests: &'l [Request],
    docs: u64,
    /// The request with ids of its own, if no id is sent twice.
    renumbered: Option<Vec<u8>>,
    /// Returns the number of the next request; none: there were enough.
    next: &'l (dyn Fn() -> Option<u64> + Sync),
    ids_checked: bool,
    tally: Tally,
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
        let server = Server {
            address: self.address,
            timeout: ANSWER_TIME_MAX,
            tls: self.ca_pem.as_deref().map(driver::trusting).transpose()?,
        };
        let connections = (0..self.connections)
            .map(|_| Connection::open(&server))
            .collect::<Result<Vec<_>>>()?;
        Ok(Prepared {
            requests,
            docs: self.bulk.docs as u64,
            fresh_ids: self.fresh_ids,
            connections,
        })
    }

    fn request(&self, seed: u64) -> Result<Request> {
        let plain = self.bulk.body(seed);
        let mut headers = vec![driver::NDJSON];
        let (body, ids) = if self.gzip {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
            encoder.write_all(&plain)?;
            headers.push(("content-encoding", "gzip"));
            (encoder.finish()?, Vec::new())
        } else {
            let ids = id_places(&plain).collect();
            (plain, ids)
        };
        let bytes = driver::request(("POST", &self.path), self.address, &headers, &body);
        let head = bytes.len() - body.len();
        Ok(Request {
            bytes,
            body_bytes: body.len() as u64,
            ids: ids.into_iter().map(|at: usize| head + at).collect(),
        })
    }
}

// === impl Prepared ===

impl Prepared {
    /// Sends on all connections until there is enough.
    ///
    /// # Errors
    /// If a thread cannot be started. Failed requests are counted, and end their connection's part.
    pub fn run(self, until: Until) -> Result<Report> {
        let requests_max = match until {
            Until::Docs(docs) => docs.div_ceil(self.docs),
            Until::Time(_) => u64::MAX,
        };
        let begun = Instant::now();
        let until = match until {
            Until::Docs(_) => None,
            Until::Time(time) => Some(begun + time),
        };
        let tickets = AtomicU64::new(0);
        let next = || {
            let ticket = tickets.fetch_add(1, Ordering::Relaxed);
            (ticket < requests_max && until.is_none_or(|until| Instant::now() < until)).then_some(ticket)
        };
        let mut total = Tally::new();
        thread::scope(|scope| -> Result<()> {
            let mut threads = Vec::new();
            for connection in self.connections {
                let source = Source {
                    requests: &self.requests,
                    docs: self.docs,
                    renumbered: self.fresh_ids.then(Vec::new),
                    next: &next,
                    ids_checked: false,
                    tally: Tally::new(),
                };
                let thread = thread::Builder::new().stack_size(256 << 10);
                threads.push(thread.spawn_scoped(scope, move || source.work(connection))?);
            }
            for thread in threads {
                total.add(
                    &thread
                        .join()
                        .map_err(|_| anyhow!("a connection's thread panicked"))?,
                );
            }
            Ok(())
        })?;
        Ok(total.report(begun.elapsed(), self.docs, &self.requests))
    }
}

// === impl Source ===

impl Source<'_> {
    fn work(mut self, connection: Connection) -> Tally {
        if let Err(error) = driver::drive(connection, &mut self) {
            self.tally.failed += 1;
            self.tally.failure = Some(format!("{error:#}"));
        }
        self.tally
    }
}

impl<'l> Client for Source<'l> {
    type Sent = &'l Request;

    fn request(&mut self) -> Result<Option<(driver::Request<'_>, Self::Sent)>> {
        let Some(number) = (self.next)() else {
            return Ok(None);
        };
        let request = &self.requests[number as usize % self.requests.len()];
        if let Some(renumbered) = &mut self.renumbered {
            request.renumber(number * self.docs, renumbered);
        }
        let bytes = self.renumbered.as_deref().unwrap_or(&request.bytes).into();
        let connect = None;
        Ok(Some((driver::Request { connect, bytes }, request)))
    }

    /// Checks the reply. A failure ends the connection's part.
    fn outcome(&mut self, request: Self::Sent, outcome: Outcome<'_>) -> Result<()> {
        let reply = outcome.reply?;
        ensure!(
            reply.status == 200,
            "status {}: {}",
            reply.status,
            beginning(reply.body)
        );
        check(reply.body, self.docs)?;
        if !self.ids_checked {
            let bytes = self.renumbered.as_deref().unwrap_or(&request.bytes);
            check_ids(reply.body, bytes, &request.ids)?;
            self.ids_checked = true;
        }
        let took = outcome.took.as_micros().try_into().unwrap_or(u64::MAX);
        self.tally.latency_us.saturating_record(took);
        Ok(())
    }
}

// === impl Request ===

impl Request {
    /// Copies the request and writes a number of this process into the first characters of each of its ids.
    fn renumber(&self, first: u64, renumbered: &mut Vec<u8>) {
        renumbered.clear();
        renumbered.extend_from_slice(&self.bytes);
        for (id, number) in self.ids.iter().zip(first..) {
            let mut number = number | u64::from(std::process::id()) << 40;
            for letter in &mut renumbered[*id..*id + NUMBER_LETTERS] {
                *letter = b'A' + (number & 15) as u8;
                number >>= 4;
            }
        }
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

// === the checks of replies ===

/// No errors, and as many items as documents.
fn check(body: &[u8], docs: u64) -> Result<()> {
    let opening = &body[..body.len().min(64)];
    ensure!(
        memmem::find(opening, b"\"errors\":false").is_some(),
        "errors: {}",
        beginning(body)
    );
    ensure!(
        body.ends_with(b"]}"),
        "no end: {}",
        String::from_utf8_lossy(&body[body.len().saturating_sub(80)..])
    );
    let items = memmem::find_iter(body, b"\"status\":20").count() as u64;
    ensure!(items == docs, "{items} items for {docs} documents");
    Ok(())
}

/// Checks that the ids of the items are those of the request, in its order. If the request has no ids, the
/// items may have any.
fn check_ids(body: &[u8], request: &[u8], places: &[usize]) -> Result<()> {
    let mut got = id_places(body);
    for (at, wanted) in places.iter().enumerate() {
        let wanted = id_at(request, *wanted);
        let got = got.next().map_or(&b""[..], |place| id_at(body, place));
        let show = String::from_utf8_lossy;
        ensure!(
            got == wanted,
            "item {at} is of {}, not {}",
            show(got),
            show(wanted)
        );
    }
    Ok(())
}

/// Returns where the values of `"_id": "…"` begin, however the colon is spaced. None of the generated sources
/// has such a key.
fn id_places(text: &[u8]) -> impl Iterator<Item = usize> {
    const KEY: &[u8] = b"\"_id\"";
    memmem::find_iter(text, KEY).filter_map(|at| {
        let mut value = at + KEY.len();
        while matches!(text.get(value), Some(b' ' | b':')) {
            value += 1;
        }
        (text.get(value) == Some(&b'"')).then_some(value + 1)
    })
}

fn id_at(text: &[u8], place: usize) -> &[u8] {
    let value = &text[place..];
    &value[..memchr::memchr(b'"', value).unwrap_or(value.len())]
}

fn beginning(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned()
}

/// Number of letters of an id that hold 60 bits, of which the last 20 are the process's.
const NUMBER_LETTERS: usize = 15;
/// A request that takes longer than this has failed.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
const LATENCY_US_MAX: u64 = 120_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_replies_are_told_apart() {
        let one = br#"{"took":1,"errors":false,"items":[{"index":{"_id":"a","status":201}}]}"#;
        check(one, 1).unwrap();
        check(one, 2).unwrap_err();
        let failed = br#"{"took":1,"errors":true,"items":[{"index":{"_id":"a","status":201}}]}"#;
        check(failed, 1).unwrap_err();
        let (request, other) = (br#"{"_id" : "a"}{"_id": "b"}"#, br#"{"_id":"b"}{"_id":"a"}"#);
        let places: Vec<_> = id_places(request).collect();
        check_ids(request, request, &places).unwrap();
        check_ids(other, request, &places).unwrap_err();
    }
}
