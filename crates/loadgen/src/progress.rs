//! Progress of a load, second by second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;

use crate::spread::Spread;
use crate::tally::{latencies, nanos};

/// Counts of a stretch of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Requests answered.
    pub answers: u64,
    /// Requests without an answer.
    pub errors: u64,
    /// Answers that were invalid.
    pub invalid: u64,
    /// Documents accepted, by their items.
    pub documents: u64,
    /// Documents that failed, by their items.
    pub failed_documents: u64,
    /// Bytes of bodies sent.
    pub sent_bytes: u64,
    /// Bytes of bodies received.
    pub received_bytes: u64,
}

/// The progress in the last second or so, and since the beginning.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Progress {
    /// Seconds since the beginning.
    pub at_s: f64,
    /// Length of the stretch that `last` covers, in seconds.
    pub span_s: f64,
    /// Counts of this stretch.
    pub last: Counts,
    /// Counts since the beginning.
    pub total: Counts,
    /// Latency of the answers of this stretch; none if there were no answers.
    pub latency_ms: Option<Spread>,
    /// An error, or a complaint about an answer, in this stretch; none if all was well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// The progress of one core since the last look.
#[derive(Debug)]
pub(crate) struct Interval {
    inner: Mutex<(Counts, Histogram<u64>)>,
    trouble: Mutex<Option<String>>,
}

/// Collects the progress of all cores from time to time, and remembers it.
#[derive(Debug)]
pub(crate) struct Timeline {
    pub(crate) intervals: Vec<Arc<Interval>>,
    pub(crate) seconds: Vec<Progress>,
    begun: Instant,
    looked: Instant,
    total: Counts,
    latency: Histogram<u64>,
}

// === impl Counts ===

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.answers += other.answers;
        self.errors += other.errors;
        self.invalid += other.invalid;
        self.documents += other.documents;
        self.failed_documents += other.failed_documents;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
    }
}

// === impl Interval ===

impl Default for Interval {
    fn default() -> Self {
        Interval {
            inner: Mutex::new((Counts::default(), latencies())),
            trouble: Mutex::default(),
        }
    }
}

impl Interval {
    /// Adds an answer. The lock is contended only once a second.
    pub(crate) fn add(&self, latency: Duration, counts: &Counts) {
        let (sum, latencies) = &mut *self.lock();
        sum.add(counts);
        latencies.saturating_record(nanos(latency));
    }

    pub(crate) fn count(&self, counts: &Counts) {
        self.lock().0.add(counts);
    }

    /// Notes what went wrong.
    pub(crate) fn complain(&self, why: &str) {
        let mut trouble = self.trouble.lock();
        if trouble.is_none() {
            *trouble = Some(why.to_owned());
        }
    }

    fn take_trouble(&self) -> Option<String> {
        self.trouble.lock().take()
    }

    fn take(&self, counts: &mut Counts, latency: &mut Histogram<u64>) {
        let (sum, latencies) = &mut *self.lock();
        counts.add(&std::mem::take(sum));
        latency.add(&*latencies).expect("both have the same bounds");
        latencies.reset();
    }

    /// The counts are consistent even if a thread panicked while it held the lock.
    fn lock(&self) -> MutexGuard<'_, (Counts, Histogram<u64>)> {
        self.inner.lock()
    }
}

// === impl Timeline ===

impl Timeline {
    pub(crate) fn new(begun: Instant, cores: usize) -> Timeline {
        Timeline {
            intervals: (0..cores).map(|_| Arc::default()).collect(),
            seconds: Vec::new(),
            begun,
            looked: begun,
            total: Counts::default(),
            latency: latencies(),
        }
    }

    /// Returns one of the errors and complaints on the cores since the last look.
    fn take_trouble(&self) -> Option<String> {
        let each = self.intervals.iter().map(|interval| interval.take_trouble());
        each.reduce(Option::or).flatten()
    }

    /// Takes what happened since the last look.
    pub(crate) fn look(&mut self) -> &Progress {
        let now = Instant::now();
        let mut last = Counts::default();
        self.latency.reset();
        for interval in &self.intervals {
            interval.take(&mut last, &mut self.latency);
        }
        self.total.add(&last);
        self.seconds.push(Progress {
            at_s: (now - self.begun).as_secs_f64(),
            span_s: (now - self.looked).as_secs_f64(),
            last,
            total: self.total,
            latency_ms: Spread::of(&self.latency, 1e6),
            trouble: self.take_trouble(),
        });
        self.looked = now;
        &self.seconds[self.seconds.len() - 1]
    }
}

// === impl Progress ===

impl Progress {
    /// Converts a count of the last stretch to a rate per second.
    pub fn rate(&self, count: u64) -> f64 {
        if self.span_s > 0.0 {
            count as f64 / self.span_s
        } else {
            0.0
        }
    }
}
