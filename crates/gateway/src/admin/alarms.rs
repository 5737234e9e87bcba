//! Log lines for problems that an operator has to act on and that no request reveals: a queue that accepts
//! nothing, and certificates that expire soon. Each problem is logged once with the remedy, again while it
//! lasts, and once when it is over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::AdminState;
use crate::queue::Queues;

/// The problems that were logged, and when.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    refusing: BTreeMap<String, (&'static str, Instant)>,
    certificates: BTreeMap<String, Instant>,
}

// === impl Alarms ===

impl Alarms {
    /// Checks everything. To be called every few seconds.
    pub(super) fn look(&mut self, admin: &AdminState) {
        self.look_at_queues(&admin.shared.queues.load());
        self.look_at_certificates(&admin.expiries());
    }

    fn look_at_queues(&mut self, queues: &Queues) {
        for queue in queues.all() {
            let name = queue.name.to_string();
            let Some(reason) = queue.log.refuses_for() else {
                if self.refusing.remove(&name).is_some() {
                    tracing::info!(queue = name, "the queue accepts again");
                }
                continue;
            };
            let said = self.refusing.get(&name);
            if said.is_some_and(|(before, at)| *before == reason && at.elapsed() < QUEUE_AGAIN) {
                continue;
            }
            let (why, then) = (queue.log.refuses().unwrap_or_default(), remedy(reason));
            tracing::error!(queue = name, reason, why, then, "the queue accepts nothing");
            self.refusing.insert(name, (reason, Instant::now()));
        }
        self.refusing
            .retain(|name, _| queues.all().any(|queue| *queue.name == **name));
    }

    fn look_at_certificates(&mut self, expiries: &[(String, f64)]) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for (certificate, ends) in expiries {
            let days = (ends - now.as_secs_f64()).div_euclid(DAY.as_secs_f64());
            if days >= DAYS_BEFORE {
                self.certificates.remove(certificate);
                continue;
            }
            let said = self.certificates.get(certificate);
            if said.is_some_and(|at| at.elapsed() < DAY) {
                continue;
            }
            let then = "put a new one in its place, and reload: connections that are open stay";
            match days < 0.0 {
                true => tracing::error!(certificate, then, "a certificate has ended"),
                false => tracing::warn!(certificate, days, then, "a certificate ends soon"),
            }
            self.certificates.insert(certificate.clone(), Instant::now());
        }
    }
}

/// Returns the remedy for the reason that a queue gives.
fn remedy(reason: &str) -> &'static str {
    match reason {
        "max_size" => {
            "see why it is not delivered (`tidegate queues list`), or raise `max_size` and reload; clients get 429 until then"
        }
        "disk" => {
            "make room on its disk, see why it is not delivered (`tidegate queues list`); what was accepted is safe"
        }
        "failed" => "put its disk right, then restart the gateway; what was accepted is delivered meanwhile",
        _ => "its disk is slower than what comes: a faster one, or `fsync: interval`",
    }
}

/// The time after which a lasting problem is logged again.
const QUEUE_AGAIN: Duration = Duration::from_secs(600);
const DAY: Duration = Duration::from_secs(86_400);
/// The same value as in the alert of `ops/prometheus`.
const DAYS_BEFORE: f64 = 14.0;
