//! One core's part of a run: its users, their connections, what they draw with and what they count.

mod exchange;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::header::{CONTENT_ENCODING, HeaderMap, HeaderValue};
use wire::{Client, ClientConfig, ClientTls, Origin, Worker};

pub(crate) use self::exchange::Seen;
use crate::engine::{Options, Progress};
use crate::file::Load;
use crate::request::{Request, Server};
use crate::tally::Tally;
use crate::variable::Draws;

/// What all cores share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// No further request is begun.
    pub(crate) stop: AtomicBool,
    /// Requests begun, where they are limited.
    pub(crate) tickets: AtomicU64,
    /// Rounds begun, where they are limited.
    pub(crate) rounds: AtomicU64,
    pub(crate) live: Live,
}

/// What has happened so far, for whoever watches.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) answers: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) invalid: AtomicU64,
    pub(crate) documents: AtomicU64,
    pub(crate) failed_documents: AtomicU64,
}

/// One core's part of a run.
pub(crate) struct Core {
    load: Arc<Load>,
    options: Arc<Options>,
    shared: Arc<Shared>,
    client: Client,
    pool: wire::Pool,
    tls: ClientTls,
    draws: RefCell<Draws>,
    origins: RefCell<HashMap<Server, Origin>>,
    /// By request: its fixed headers, ready to be sent.
    headers: Vec<HeaderMap>,
    /// By request: the room that its body will want.
    room: Vec<Cell<usize>>,
    tallies: RefCell<Vec<Tally>>,
}

// === impl Live ===

impl Live {
    pub(crate) fn progress(&self, elapsed: Duration) -> Progress {
        Progress {
            elapsed,
            answers: self.answers.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            invalid: self.invalid.load(Ordering::Relaxed),
            documents: self.documents.load(Ordering::Relaxed),
            failed_documents: self.failed_documents.load(Ordering::Relaxed),
        }
    }
}

// === impl Core ===

impl Core {
    pub(crate) fn new(
        worker: &Worker,
        load: Arc<Load>,
        options: Arc<Options>,
        shared: Arc<Shared>,
        tls: ClientTls,
        users: usize,
    ) -> Core {
        let config = ClientConfig {
            connections_per_origin_max: users.max(1),
            connect_timeout: options.dial_timeout,
            stall_timeout: options.write_timeout.unwrap_or(options.timeout),
            // A connection lasts as long as the run, unless the server ends it.
            idle_timeout: Duration::from_secs(3_600),
            ..ClientConfig::default()
        };
        let fixed = |request: &Request| {
            let mut headers = request.headers.fixed.clone();
            if options.gzip.is_some() && request.body.is_some() {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
            headers
        };
        Core {
            client: Client::new(config, worker.pool().clone()),
            pool: worker.pool().clone(),
            tls,
            draws: RefCell::new(Draws::new(Arc::clone(&load.variables), fastrand::u64(..))),
            origins: RefCell::default(),
            headers: load.requests.iter().map(fixed).collect(),
            room: load.requests.iter().map(|_| Cell::new(1 << 10)).collect(),
            tallies: RefCell::new(load.requests.iter().map(|_| Tally::new()).collect()),
            load,
            options,
            shared,
        }
    }

    /// What was counted.
    pub(crate) fn into_tallies(self: Rc<Self>) -> Vec<Tally> {
        self.tallies.take()
    }

    /// One user: goes through the requests in order, round after round, one request at a time.
    pub(crate) async fn user(self: Rc<Self>, until: Option<Instant>) {
        let mut now = Instant::now();
        let mut patience = PAUSE_MIN;
        loop {
            if let Some(rounds_max) = self.options.rounds_max
                && self.shared.rounds.fetch_add(1, Ordering::Relaxed) >= rounds_max
            {
                return;
            }
            for (at, request) in self.load.requests.iter().enumerate() {
                for _ in 0..request.times {
                    if !self.may_go_on(now, until) {
                        return;
                    }
                    let exchanged = self.exchange(at, None).await;
                    now = exchanged.ended;
                    if exchanged.outcome.is_ok() {
                        patience = PAUSE_MIN;
                    } else {
                        // A server that refuses connections is asked again, but not in a tight loop.
                        tokio::time::sleep(patience).await;
                        patience = (patience * 2).min(PAUSE_MAX);
                        now = Instant::now();
                    }
                }
            }
        }
    }

    fn may_go_on(&self, now: Instant, until: Option<Instant>) -> bool {
        if self.shared.stop.load(Ordering::Relaxed) || until.is_some_and(|until| now >= until) {
            return false;
        }
        match self.options.requests_max {
            Some(max) => self.shared.tickets.fetch_add(1, Ordering::Relaxed) < max,
            None => true,
        }
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

/// After a request without an answer a user waits this long, then twice as long, …
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// … but no longer than this.
const PAUSE_MAX: Duration = Duration::from_secs(1);
