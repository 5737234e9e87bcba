//! One core's part of a run: its users, their connections, the values that they draw, and their counts.

mod exchange;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::header::{CONTENT_ENCODING, HeaderMap, HeaderValue};
use wire::{Client, ClientConfig, ClientTls, Origin, Worker};

pub(crate) use self::exchange::Transcript;
pub use self::exchange::Unanswered;
use crate::engine::Stop;
use crate::file::Load;
use crate::ledger::Ledger;
use crate::options::Options;
use crate::pace::Pace;
use crate::progress::Interval;
use crate::request::{Request, Server};
use crate::tally::Tally;
use crate::variable::Draws;

/// The state that all cores share.
#[derive(Debug, Default)]
pub(crate) struct RunState {
    /// Set when no further request may begin.
    pub(crate) stop: Stop,
    /// Number of requests begun, if they are limited.
    pub(crate) tickets: AtomicU64,
    /// Number of rounds begun, if they are limited.
    pub(crate) rounds: AtomicU64,
    /// Number of requests taken from the schedule.
    pub(crate) scheduled: AtomicU64,
    /// Number of requests left out of rounds that an answer ended early.
    pub(crate) skipped: AtomicU64,
}

/// One core's part of a run.
pub(crate) struct Core {
    load: Arc<Load>,
    options: Arc<Options>,
    shared: Arc<RunState>,
    client: Client,
    pool: wire::Pool,
    tls: ClientTls,
    draws: RefCell<Draws>,
    origins: RefCell<HashMap<Server, Origin>>,
    /// The fixed headers of each request, ready to be sent.
    headers: Vec<HeaderMap>,
    /// The buffer space that each request's body is expected to need.
    room: Vec<Cell<usize>>,
    tallies: RefCell<Vec<Tally>>,
    ledger: RefCell<Ledger>,
    /// The moment from which schedules count.
    begun: Instant,
    interval: Arc<Interval>,
}

/// The input for a core's part.
pub(crate) struct CoreInput {
    pub(crate) load: Arc<Load>,
    pub(crate) options: Arc<Options>,
    pub(crate) shared: Arc<RunState>,
    pub(crate) tls: ClientTls,
    /// Number of users on this core.
    pub(crate) users: usize,
    /// The moment from which schedules count.
    pub(crate) begun: Instant,
    pub(crate) interval: Arc<Interval>,
}

/// A user's memory from one request to the next.
#[derive(Debug, Default)]
pub(crate) struct User {
    /// The values that answers registered, by the number of their name.
    registered: Vec<Vec<u8>>,
}

// === impl User ===

impl User {
    /// Creates a user who remembers nothing yet.
    pub(crate) fn of(load: &Load) -> User {
        User {
            registered: vec![Vec::new(); load.registered],
        }
    }
}

// === impl Core ===

impl Core {
    pub(crate) fn new(worker: &Worker, part: CoreInput) -> Core {
        let CoreInput {
            load,
            options,
            shared,
            tls,
            users,
            begun,
            interval,
        } = part;
        let config = ClientConfig {
            connections_per_origin_max: users.max(1),
            connect_timeout: options.dial_timeout,
            stall_timeout: options.write_timeout.unwrap_or(options.timeout),
            // A connection lasts as long as the run, unless the server closes it.
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
            begun,
            interval,
            ledger: RefCell::default(),
        }
    }

    /// Takes the counts and the ledger.
    pub(crate) fn take_counts(&self) -> (Vec<Tally>, Ledger) {
        (self.tallies.take(), self.ledger.take())
    }

    /// Runs one user: it goes through the requests in order, round after round, one request at a time.
    pub(crate) async fn user(self: Rc<Self>, until: Option<Instant>) {
        let mut user = User::of(&self.load);
        let mut now = Instant::now();
        let mut patience = PAUSE_MIN;
        let runner = &self.load.runner;
        let pace = self.options.schedule.as_ref().and_then(|_| Pace::new().ok());
        loop {
            if let Some(rounds_max) = self.options.rounds_max
                && self.shared.rounds.fetch_add(1, Ordering::Relaxed) >= rounds_max
            {
                return;
            }
            if runner.reset_context {
                user = User::of(&self.load);
            }
            let mut done = 0;
            'round: for (at, request) in self.load.requests.iter().enumerate() {
                for _ in 0..request.times {
                    if !self.may_go_on(now, until) {
                        return;
                    }
                    let Some(intended) = self.turn(pace.as_ref(), until).await else {
                        return;
                    };
                    let exchanged = self.exchange(at, &mut user, intended, None).await;
                    now = exchanged.ended;
                    done += 1;
                    if exchanged.outcome.is_ok() || intended.is_some() {
                        patience = PAUSE_MIN;
                    } else {
                        // The user asks a server that refuses connections again, but not in a tight loop.
                        now = self.sleep(patience, until).await;
                        patience = (patience * 2).min(PAUSE_MAX);
                    }
                    if exchanged.asserted
                        && exchanged.complaint.is_some()
                        && !runner.continue_on_assert_invalid
                    {
                        // The rest of the round may depend on what this answer should have been.
                        let left = self.load.requests_per_round() - done;
                        self.shared.skipped.fetch_add(left, Ordering::Relaxed);
                        break 'round;
                    }
                    if let Some(pause) = request.sleep {
                        now = self.sleep(pause, until).await;
                    }
                }
            }
        }
    }

    /// Waits for the next request's turn on the schedule. Returns the moment at which the request was to be
    /// sent, if there is a schedule, or `None` when the run has ended.
    async fn turn(&self, pace: Option<&Pace>, until: Option<Instant>) -> Option<Option<Instant>> {
        let Some(schedule) = &self.options.schedule else {
            return Some(None);
        };
        let number = self.shared.scheduled.fetch_add(1, Ordering::Relaxed);
        let intended = self.begun + schedule.at(number)?;
        if until.is_some_and(|until| intended >= until) {
            return None;
        }
        loop {
            let now = Instant::now();
            if self.shared.stop.is_asked() {
                return None;
            }
            if now >= intended {
                return Some(Some(intended));
            }
            let step = (intended - now).min(STOP_LOOK);
            match pace {
                Some(pace) => pace.wait(step).await.ok()?,
                // Without a file descriptor for the timer, a precision of milliseconds is better than
                // nothing.
                None => tokio::time::sleep(step).await,
            }
        }
    }

    /// Sleeps, but not past the end of the run. Returns the current time.
    async fn sleep(&self, pause: Duration, until: Option<Instant>) -> Instant {
        let begun = Instant::now();
        let end = until.map_or(begun + pause, |until| until.min(begun + pause));
        loop {
            let now = Instant::now();
            if now >= end || self.shared.stop.is_asked() {
                return now;
            }
            tokio::time::sleep((end - now).min(STOP_LOOK)).await;
        }
    }

    fn may_go_on(&self, now: Instant, until: Option<Instant>) -> bool {
        if self.shared.stop.is_asked() || until.is_some_and(|until| now >= until) {
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

/// How often sleeping users check whether the run is to stop.
const STOP_LOOK: Duration = Duration::from_millis(100);
/// The first pause of a user after a request without an answer; each further pause is twice as long …
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// … up to this limit.
const PAUSE_MAX: Duration = Duration::from_secs(1);
