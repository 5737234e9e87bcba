//! Counts kept while a load runs: one tally per core, added up at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::answer::Items;

/// Counts of one request definition on one core.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    /// Answers by status.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// Requests without an answer, by what went wrong.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Answers that were invalid.
    pub(crate) invalid: u64,
    /// Invalid answers by what was wrong with them; the kinds beyond [`KINDS_MAX`] are counted together.
    pub(crate) complaints: BTreeMap<String, u64>,
    /// Bytes of bodies sent, as transferred.
    pub(crate) sent_bytes: u64,
    /// Bytes of bodies received.
    pub(crate) received_bytes: u64,
    pub(crate) items: Items,
    /// Time from the first byte sent (on a schedule: from when it was to be sent) to the last byte read, in
    /// nanoseconds.
    pub(crate) latency_ns: Histogram<u64>,
    /// On a schedule: time from the first byte sent to the last byte read.
    pub(crate) service_ns: Histogram<u64>,
    /// On a schedule: how much later than intended requests were sent.
    pub(crate) behind_ns: Histogram<u64>,
    /// The time that servers report, in milliseconds.
    pub(crate) took_ms: Histogram<u64>,
}

// === impl Tally ===

impl Tally {
    pub(crate) fn new() -> Tally {
        Tally {
            statuses: BTreeMap::new(),
            errors: BTreeMap::new(),
            invalid: 0,
            complaints: BTreeMap::new(),
            sent_bytes: 0,
            received_bytes: 0,
            items: Items::default(),
            latency_ns: latencies(),
            service_ns: latencies(),
            behind_ns: latencies(),
            took_ms: Histogram::new_with_bounds(1, 24 * 3_600_000, 2).expect("the bounds are in order"),
        }
    }

    /// Records a latency; on a schedule also the time from the first byte sent.
    pub(crate) fn latency(&mut self, took: Duration, service: Option<Duration>) {
        self.latency_ns.saturating_record(nanos(took));
        if let Some(service) = service {
            self.service_ns.saturating_record(nanos(service));
        }
    }

    /// Records how much later than intended a request was sent.
    pub(crate) fn behind(&mut self, late: Duration) {
        self.behind_ns.saturating_record(nanos(late));
    }

    /// Counts an invalid answer.
    pub(crate) fn complain(&mut self, complaint: &str) {
        self.invalid += 1;
        let kind = if self.complaints.len() < KINDS_MAX || self.complaints.contains_key(complaint) {
            complaint
        } else {
            OTHERS
        };
        *self.complaints.entry(kind.to_owned()).or_default() += 1;
    }

    pub(crate) fn answers(&self) -> u64 {
        self.statuses.values().sum()
    }

    pub(crate) fn failures(&self) -> u64 {
        self.errors.values().sum()
    }

    pub(crate) fn add(&mut self, other: &Tally) {
        add_all(&mut self.statuses, &other.statuses);
        add_all(&mut self.errors, &other.errors);
        self.invalid += other.invalid;
        add_all(&mut self.complaints, &other.complaints);
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.items.succeeded += other.items.succeeded;
        self.items.failed += other.items.failed;
        self.items.refused += other.items.refused;
        self.items.unknown += other.items.unknown;
        add_all(&mut self.items.statuses, &other.items.statuses);
        add_all(&mut self.items.errors, &other.items.errors);
        let same = "all tallies have the same bounds";
        self.latency_ns.add(&other.latency_ns).expect(same);
        self.service_ns.add(&other.service_ns).expect(same);
        self.behind_ns.add(&other.behind_ns).expect(same);
        self.took_ms.add(&other.took_ms).expect(same);
    }
}

/// Creates a histogram of nanoseconds.
pub(crate) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(LATENCY_NS_MIN, LATENCY_NS_MAX, 3).expect("the bounds are in order")
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn add_all<K: Ord + Clone>(to: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
    for (key, count) in from {
        *to.entry(key.clone()).or_default() += count;
    }
}

/// The number of kinds of errors that are counted separately: every answer could be wrong in a way of its
/// own.
const KINDS_MAX: usize = 20;
const OTHERS: &str = "others";
const LATENCY_NS_MIN: u64 = 100;
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
