//! How a node has been doing, in atomics that all cores share: out of the rotation on failures, back by a probe.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::StatusCode;
use serde::Serialize;
use wire::{SendError, SendErrorKind};

use crate::config::HealthRules;

/// What became of one exchange with a node, as far as the node's health is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An answer that speaks of a living node: everything below 500 but 429, and 500 itself, which a request can
    /// bring about.
    Answered,
    /// 429: alive, but asks for less.
    Busy,
    /// 502, 503 or 504.
    ServerError,
    /// The connection was refused or the host unreachable: nothing was sent.
    ConnectRefused,
    /// Connecting or TLS failed otherwise: nothing was sent.
    ConnectFailed,
    /// The connection broke during the exchange.
    Broken,
    /// No answer in time.
    TimedOut,
}

impl Outcome {
    /// What a status says.
    pub fn of_status(status: StatusCode) -> Self {
        match status {
            StatusCode::TOO_MANY_REQUESTS => Self::Busy,
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                Self::ServerError
            }
            _ => Self::Answered,
        }
    }

    /// What a failed exchange says; `None` when it was our own doing (our limits, the client's body).
    pub fn of_error(error: &SendError) -> Option<Self> {
        match &error.kind {
            SendErrorKind::Connect(io) => Some(match io.kind() {
                ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                    Self::ConnectRefused
                }
                _ => Self::ConnectFailed,
            }),
            SendErrorKind::Tls(_) | SendErrorKind::ConnectTimeout => Some(Self::ConnectFailed),
            SendErrorKind::Deadline | SendErrorKind::Timeout => Some(Self::TimedOut),
            // A kept connection that the node had closed says nothing: that race is everyday.
            SendErrorKind::Closed | SendErrorKind::Io(_) => (!error.reused).then_some(Self::Broken),
            SendErrorKind::Malformed(_) => Some(Self::Broken),
            _ => None,
        }
    }
}

/// The health of one node.
#[derive(Debug)]
pub struct Health {
    up: AtomicBool,
    failures_in_row: AtomicU32,
    answers: AtomicU64,
    failures: AtomicU64,
    busy: AtomicU64,
    /// Exponentially weighted mean of the latency of answers, microseconds; 0 before the first.
    latency_us: AtomicU64,
}

/// A [`Health`] as the admin API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealthStatus {
    /// Whether the node is in the rotation.
    pub up: bool,
    /// Failures since the last answer.
    pub failures_in_row: u32,
    /// Answers so far.
    pub answers: u64,
    /// Failures so far.
    pub failures: u64,
    /// Answers of 429 so far.
    pub busy: u64,
    /// Mean latency of recent answers, microseconds.
    pub latency_us: u64,
}

/// What a report changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing.
    Same,
    /// The node has just left the rotation.
    Down,
    /// The node has just come back.
    Up,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            up: AtomicBool::new(true),
            failures_in_row: AtomicU32::new(0),
            answers: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            latency_us: AtomicU64::new(0),
        }
    }
}

impl Health {
    /// Whether the node is in the rotation.
    pub fn is_up(&self) -> bool {
        self.up.load(Relaxed)
    }

    /// Counts one exchange. Lock-free; racing reports may lose a step of the latency mean, never a turn.
    pub(crate) fn report(&self, outcome: Outcome, latency: Duration, rules: &HealthRules) -> Turn {
        match outcome {
            Outcome::Answered | Outcome::Busy => {
                let counter = if outcome == Outcome::Busy {
                    &self.busy
                } else {
                    &self.answers
                };
                counter.fetch_add(1, Relaxed);
                self.blend_latency(latency);
                self.failures_in_row.store(0, Relaxed);
                if self.up.swap(true, Relaxed) {
                    Turn::Same
                } else {
                    Turn::Up
                }
            }
            _ => {
                self.failures.fetch_add(1, Relaxed);
                let in_row = self.failures_in_row.fetch_add(1, Relaxed).saturating_add(1);
                let out = outcome == Outcome::ConnectRefused || in_row >= rules.failures_max.max(1);
                if out && self.up.swap(false, Relaxed) {
                    Turn::Down
                } else {
                    Turn::Same
                }
            }
        }
    }

    /// Numbers for the admin API.
    pub fn status(&self) -> HealthStatus {
        HealthStatus {
            up: self.is_up(),
            failures_in_row: self.failures_in_row.load(Relaxed),
            answers: self.answers.load(Relaxed),
            failures: self.failures.load(Relaxed),
            busy: self.busy.load(Relaxed),
            latency_us: self.latency_us.load(Relaxed),
        }
    }

    fn blend_latency(&self, latency: Duration) {
        let new = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1);
        let old = self.latency_us.load(Relaxed);
        let blended = if old == 0 {
            new
        } else {
            old - old / LATENCY_WINDOW + new / LATENCY_WINDOW
        };
        self.latency_us.store(blended.max(1), Relaxed);
    }
}

/// The mean forgets about half of its past in this many answers.
const LATENCY_WINDOW: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_refused_connection_takes_the_node_out_at_once_and_an_answer_brings_it_back() {
        let (health, rules) = (Health::default(), HealthRules::default());
        assert_eq!(health.report(Outcome::ConnectRefused, MS, &rules), Turn::Down);
        assert!(!health.is_up());
        assert_eq!(health.report(Outcome::ConnectRefused, MS, &rules), Turn::Same);
        assert_eq!(health.report(Outcome::Answered, MS, &rules), Turn::Up);
        assert!(health.is_up());
    }

    #[test]
    fn other_failures_take_it_out_only_when_they_come_in_a_row() {
        let (health, rules) = (
            Health::default(),
            HealthRules {
                failures_max: 3,
                ..HealthRules::default()
            },
        );
        for _ in 0..5 {
            assert_eq!(health.report(Outcome::TimedOut, MS, &rules), Turn::Same);
            assert_eq!(health.report(Outcome::ServerError, MS, &rules), Turn::Same);
            assert_eq!(health.report(Outcome::Answered, MS, &rules), Turn::Same);
        }
        assert_eq!(health.report(Outcome::Broken, MS, &rules), Turn::Same);
        assert_eq!(health.report(Outcome::TimedOut, MS, &rules), Turn::Same);
        assert_eq!(health.report(Outcome::ServerError, MS, &rules), Turn::Down);
    }

    #[test]
    fn a_node_that_asks_for_less_stays_in_the_rotation() {
        let (health, rules) = (Health::default(), HealthRules::default());
        for _ in 0..100 {
            health.report(Outcome::Busy, MS, &rules);
        }
        assert!(health.is_up());
        assert_eq!(health.status().busy, 100);
    }

    #[test]
    fn latency_follows_what_is_reported() {
        let (health, rules) = (Health::default(), HealthRules::default());
        for _ in 0..100 {
            health.report(Outcome::Answered, 8 * MS, &rules);
        }
        let slow = health.status().latency_us;
        assert!((7_000..=8_100).contains(&slow), "{slow}");
        for _ in 0..100 {
            health.report(Outcome::Answered, MS, &rules);
        }
        assert!(health.status().latency_us < 2_000);
    }
}
