//! The health of a node: failures take the node out of the rotation, and a probe brings it back.
//!
//! All cores share what failures change. What each exchange changes, each core has to itself: an answer of a
//! node that is well writes nothing that other cores read.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use wire::{PerCore, SendError, SendErrorKind, shared};

use crate::config::HealthRules;
use crate::limiter::Limiter;
use crate::pace::{self, Pace};

/// The outcome of one exchange with a node, as far as the node's health is concerned.
///
/// The statuses are those that `RestStatus` of both engines assigns to exceptions; `NoMasterBlockService`,
/// `NoClusterManagerBlockService` and `GatewayService` make the blocks of [`NodeOutcome::Incapable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeOutcome {
    /// An answer that shows a living node: every status below 500 except 429; 500 itself, which a request can
    /// cause; and 502, 503 and 504 in the server's own words, which concern an index (a red one answers 503)
    /// or the cluster's work, not the node that answers.
    Answered,
    /// The node answered 429: it is alive, but asks for less.
    Busy,
    /// The node answered 503 in the server's own words, which say that this node can do nothing now: it
    /// follows no elected node, has not recovered the cluster's state, or is closing.
    Incapable,
    /// The answer was 502, 503 or 504 in words that are not a server's: something in front of the node can't
    /// reach it.
    ServerError,
    /// The connection was refused or the host unreachable: nothing was sent.
    ConnectRefused,
    /// Connecting or TLS failed otherwise: nothing was sent.
    ConnectFailed,
    /// The connection broke during the exchange.
    Broken,
    /// There was no answer in time.
    TimedOut,
}

impl NodeOutcome {
    /// Returns the outcome of an answer whose body need not be looked at; `None` if the body decides: then
    /// call [`NodeOutcome::of_words`].
    pub fn of_head(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        match status {
            StatusCode::TOO_MANY_REQUESTS => Some(Self::Busy),
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                let theirs = headers.contains_key("x-elastic-product") || is_a_servers(headers);
                match theirs {
                    false => Some(Self::ServerError),
                    // Compressed words can't be read here, and only a server would send them.
                    true if headers.contains_key(CONTENT_ENCODING) => Some(Self::Answered),
                    true => None,
                }
            }
            _ => Some(Self::Answered),
        }
    }

    /// Returns the outcome of a 502, 503 or 504 whose body begins with `begins`. An empty body answers a
    /// `HEAD`.
    pub fn of_words(begins: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&begins[..begins.len().min(WORDS_BYTES_MAX)]);
        let mut plain = text.split_ascii_whitespace().flat_map(str::chars);
        let error = "{\"error\":";
        if !text.is_empty() && !error.chars().all(|wanted| plain.next() == Some(wanted)) {
            return Self::ServerError;
        }
        match INCAPABLE.iter().any(|words| text.contains(words)) {
            true => Self::Incapable,
            false => Self::Answered,
        }
    }

    /// Returns the outcome of a failed exchange; `None` if the cause was on our side (our limits, the
    /// client's body).
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
            // A kept connection that the node had closed proves nothing: that race is common.
            SendErrorKind::Closed | SendErrorKind::Io(_) => (!error.reused).then_some(Self::Broken),
            SendErrorKind::Malformed(_) => Some(Self::Broken),
            _ => None,
        }
    }
}

/// Returns whether a body is of a kind in which servers write errors, and in which hardly any proxy does.
fn is_a_servers(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind
        .and_then(|kind| kind.split(';').next())
        .unwrap_or_default()
        .trim();
    let (_, form) = kind.split_once('/').unwrap_or_default();
    ["json", "yaml", "smile", "cbor"]
        .iter()
        .any(|wanted| form.ends_with(wanted))
}

/// The health of one node.
#[derive(Debug)]
pub struct Health {
    /// The limit on what the node is sent at once.
    limiter: Arc<Limiter>,
    /// Every choice of a node reads this. It changes, as the counts of failures do, only when a node fails or
    /// is back.
    up: AtomicBool,
    failures_in_row: AtomicU32,
    failures: AtomicU64,
    /// What each exchange changes.
    of_cores: PerCore<CoreFigures>,
}

/// One core's figures of a node.
#[derive(Debug, Default)]
struct CoreFigures {
    /// The node's pace, and the exchanges of this core that are under way to it.
    pace: Pace,
    answers: AtomicU64,
    busy: AtomicU64,
    /// The exponentially weighted mean of the latency of answers, in microseconds; 0 before the first answer.
    latency_us: AtomicU64,
}

/// A [`Health`] as the admin API shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// Mean latency of recent answers, in microseconds: the mean of the cores, in which those with
    /// the latest answers count most.
    pub latency_us: u64,
    /// How many times longer the node's answers take than answers of the whole cluster to requests of the
    /// same size; 1 is as long as usual.
    pub slowness: f32,
    /// Exchanges under way.
    pub in_flight: u32,
    /// The most requests from queues that the node is sent at once, as found from its answers.
    pub limit: usize,
}

/// The effect of a report on the rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RotationChange {
    /// The report changed nothing.
    Same,
    /// The node has just left the rotation.
    Down,
    /// The node has just come back.
    Up,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            limiter: Arc::default(),
            up: AtomicBool::new(true),
            failures_in_row: AtomicU32::new(0),
            failures: AtomicU64::new(0),
            of_cores: PerCore::default(),
        }
    }
}

impl Health {
    /// Returns whether the node is in the rotation.
    pub fn is_up(&self) -> bool {
        self.up.load(Relaxed)
    }

    /// Returns the cost of sending one more request to the node, by what this core has under way and how slow
    /// the answers to this core are; a natural logarithm, of which only differences are meaningful.
    pub fn cost(&self) -> f32 {
        self.pace().cost(1.0)
    }

    /// Returns the node's pace as this core has seen it.
    pub(crate) fn pace(&self) -> &Pace {
        &self.of_cores.own().pace
    }

    /// Returns the limiter of what the node is sent at once, for callers that keep to it.
    pub fn limiter(&self) -> &Arc<Limiter> {
        &self.limiter
    }

    /// Counts one exchange. Lock-free; racing reports may lose a step of the latency mean, but never a change
    /// of the rotation.
    pub(crate) fn report(
        &self,
        outcome: NodeOutcome,
        latency: Duration,
        rules: &HealthRules,
    ) -> RotationChange {
        match outcome {
            NodeOutcome::Answered | NodeOutcome::Busy => {
                self.of_cores.own().count(outcome, latency);
                // As long as the node is well, its answers write nothing that other cores read.
                if self.failures_in_row.load(Relaxed) != 0 {
                    shared::touches("failures of a node");
                    self.failures_in_row.store(0, Relaxed);
                }
                if self.is_up() {
                    return RotationChange::Same;
                }
                shared::touches("failures of a node");
                match self.up.swap(true, Relaxed) {
                    true => RotationChange::Same,
                    false => RotationChange::Up,
                }
            }
            _ => {
                shared::touches("failures of a node");
                self.failures.fetch_add(1, Relaxed);
                let in_row = self.failures_in_row.fetch_add(1, Relaxed).saturating_add(1);
                let at_once = matches!(outcome, NodeOutcome::ConnectRefused | NodeOutcome::Incapable);
                let out = at_once || in_row >= rules.failures_max.max(1);
                if out && self.up.swap(false, Relaxed) {
                    RotationChange::Down
                } else {
                    RotationChange::Same
                }
            }
        }
    }

    /// Returns the numbers for the admin API, of all cores together.
    pub fn status(&self) -> HealthStatus {
        let sum = |of: fn(&CoreFigures) -> &AtomicU64| -> u64 {
            self.of_cores.all().map(|own| of(own).load(Relaxed)).sum()
        };
        let latencies: Vec<(u64, &Pace)> = self
            .of_cores
            .all()
            .map(|own| (own.latency_us.load(Relaxed), &own.pace))
            .filter(|(latency, _)| *latency > 0)
            .collect();
        let paces = || self.of_cores.all().map(|own| &own.pace);
        HealthStatus {
            up: self.is_up(),
            failures_in_row: self.failures_in_row.load(Relaxed),
            answers: sum(|own| &own.answers),
            failures: self.failures.load(Relaxed),
            busy: sum(|own| &own.busy),
            latency_us: pace::mean_of_recent(latencies.iter().copied()),
            slowness: pace::slowness(paces()),
            in_flight: paces().map(Pace::in_flight).sum(),
            limit: self.limiter.limit(),
        }
    }
}

// === impl CoreFigures ===

impl CoreFigures {
    fn count(&self, outcome: NodeOutcome, latency: Duration) {
        let counter = match outcome {
            NodeOutcome::Busy => &self.busy,
            _ => &self.answers,
        };
        counter.fetch_add(1, Relaxed);
        self.blend_latency(latency);
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

/// The most bytes of an answer's words that are looked at.
const WORDS_BYTES_MAX: usize = 4 << 10;
/// The words of a node that can do nothing: blocks of the whole cluster by their numbers (1: not recovered,
/// 2: no elected node), which the engines have worded differently over time, and exceptions with the same
/// causes.
const INCAPABLE: [&str; 5] = [
    "SERVICE_UNAVAILABLE/1/",
    "SERVICE_UNAVAILABLE/2/",
    "\"master_not_discovered_exception\"",
    "\"cluster_manager_not_discovered_exception\"",
    "\"node_closed_exception\"",
];
/// The number of answers in which the mean forgets about half of its past.
const LATENCY_WINDOW: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_refused_connection_takes_the_node_out_at_once_and_an_answer_brings_it_back() {
        let (health, rules) = (Health::default(), HealthRules::default());
        assert_eq!(
            health.report(NodeOutcome::ConnectRefused, MS, &rules),
            RotationChange::Down
        );
        assert!(!health.is_up());
        assert_eq!(
            health.report(NodeOutcome::ConnectRefused, MS, &rules),
            RotationChange::Same
        );
        assert_eq!(
            health.report(NodeOutcome::Answered, MS, &rules),
            RotationChange::Up
        );
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
            assert_eq!(
                health.report(NodeOutcome::TimedOut, MS, &rules),
                RotationChange::Same
            );
            assert_eq!(
                health.report(NodeOutcome::ServerError, MS, &rules),
                RotationChange::Same
            );
            assert_eq!(
                health.report(NodeOutcome::Answered, MS, &rules),
                RotationChange::Same
            );
        }
        assert_eq!(
            health.report(NodeOutcome::Broken, MS, &rules),
            RotationChange::Same
        );
        assert_eq!(
            health.report(NodeOutcome::TimedOut, MS, &rules),
            RotationChange::Same
        );
        assert_eq!(
            health.report(NodeOutcome::ServerError, MS, &rules),
            RotationChange::Down
        );
    }

    fn said(status: u16, kind: &str, body: &str) -> NodeOutcome {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, kind.parse().unwrap());
        let status = StatusCode::from_u16(status).unwrap();
        NodeOutcome::of_head(status, &headers).unwrap_or_else(|| NodeOutcome::of_words(body.as_bytes()))
    }

    #[test]
    fn what_a_server_says_of_an_index_is_no_failure_of_the_node() {
        let red = r#"{"error":{"root_cause":[],"type":"search_phase_execution_exception","reason":"all shards failed","phase":"query"},"status":503}"#;
        let one = r#"{
  "error" : {
    "root_cause" : [ { "type" : "unavailable_shards_exception", "reason" : "[logs][0] primary shard is not active" } ]"#;
        let block = r#"{"error":{"root_cause":[{"type":"cluster_block_exception","reason":"index [logs] blocked by: [SERVICE_UNAVAILABLE/14/index refresh blocked];"}]"#;
        for body in [red, one, block] {
            assert_eq!(
                said(503, "application/json; charset=UTF-8", body),
                NodeOutcome::Answered,
                "{body}"
            );
        }
        let theirs = "application/vnd.elasticsearch+json;compatible-with=8";
        assert_eq!(said(504, theirs, red), NodeOutcome::Answered);
        assert_eq!(said(503, "application/json", ""), NodeOutcome::Answered, "HEAD");
        assert_eq!(said(500, "text/html", ""), NodeOutcome::Answered);
    }

    #[test]
    fn a_node_that_says_that_it_can_do_nothing_is_taken_at_its_word() {
        for reason in [
            r#""type":"cluster_block_exception","reason":"blocked by: [SERVICE_UNAVAILABLE/2/no master];""#,
            r#""type":"cluster_block_exception","reason":"blocked by: [SERVICE_UNAVAILABLE/2/no cluster-manager];""#,
            r#""type":"cluster_block_exception","reason":"blocked by: [SERVICE_UNAVAILABLE/1/state not recovered / initialized];""#,
            r#""type":"master_not_discovered_exception","reason":null"#,
            r#""type":"node_closed_exception","reason":"node closed""#,
        ] {
            let body = format!(r#"{{"error":{{"root_cause":[{{{reason}}}]"#);
            assert_eq!(
                said(503, "application/json", &body),
                NodeOutcome::Incapable,
                "{body}"
            );
        }
        let (health, rules) = (Health::default(), HealthRules::default());
        assert_eq!(
            health.report(NodeOutcome::Incapable, MS, &rules),
            RotationChange::Down
        );
    }

    #[test]
    fn what_no_server_says_counts_against_the_node() {
        assert_eq!(
            said(502, "text/html", "<h1>Bad Gateway</h1>"),
            NodeOutcome::ServerError
        );
        assert_eq!(said(503, "", ""), NodeOutcome::ServerError);
        assert_eq!(
            said(
                503,
                "application/json",
                r#"{"ok":false,"message":"Unknown resource."}"#
            ),
            NodeOutcome::ServerError
        );
    }

    #[test]
    fn a_node_that_asks_for_less_stays_in_the_rotation() {
        let (health, rules) = (Health::default(), HealthRules::default());
        for _ in 0..100 {
            health.report(NodeOutcome::Busy, MS, &rules);
        }
        assert!(health.is_up());
        assert_eq!(health.status().busy, 100);
    }

    #[test]
    fn cores_report_apart_and_the_numbers_are_those_of_all() {
        let (health, rules) = (Health::default(), HealthRules::default());
        std::thread::scope(|scope| {
            for outcome in [NodeOutcome::Answered, NodeOutcome::Answered, NodeOutcome::Busy] {
                let (health, rules) = (&health, &rules);
                scope.spawn(move || {
                    for _ in 0..100 {
                        health.report(outcome, 8 * MS, rules);
                    }
                });
            }
        });
        let status = health.status();
        assert_eq!((status.answers, status.busy, status.failures), (200, 100, 0));
        assert!((7_000..=8_100).contains(&status.latency_us), "{status:?}");
    }

    #[test]
    fn answers_of_a_node_that_is_well_write_nothing_that_other_cores_read() {
        let (health, rules) = (Health::default(), HealthRules::default());
        let touched = || shared::by_this_thread().values().sum::<u64>();
        health.report(NodeOutcome::TimedOut, MS, &rules);
        health.report(NodeOutcome::Answered, MS, &rules);
        let before = touched();
        assert_eq!(before, 2, "the failure, and its end");
        for _ in 0..100 {
            health.report(NodeOutcome::Answered, MS, &rules);
            health.report(NodeOutcome::Busy, MS, &rules);
        }
        assert_eq!(touched(), before);
    }

    #[test]
    fn latency_follows_what_is_reported() {
        let (health, rules) = (Health::default(), HealthRules::default());
        for _ in 0..100 {
            health.report(NodeOutcome::Answered, 8 * MS, &rules);
        }
        let slow = health.status().latency_us;
        assert!((7_000..=8_100).contains(&slow), "{slow}");
        for _ in 0..100 {
            health.report(NodeOutcome::Answered, MS, &rules);
        }
        assert!(health.status().latency_us < 2_000);
    }
}
