//! How slow and how faulty a cluster is all the time, whatever its cues.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How slow and how faulty answers are.
#[derive(Debug, Clone, Default)]
pub struct Manners {
    /// Every bulk, single write and search is answered this much later.
    pub latency: Duration,
    /// No more documents a second than this, all nodes together: bulks wait for their turn.
    pub docs_per_s_max: Option<u32>,
    /// The mix of errors inside every bulk; of several that a document is due for, the first.
    /// The second kind begins to count one document earlier than the first one, and so on.
    pub failing: Vec<Refusal>,
}

/// Documents of a bulk that are refused.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// Every so-manieth document of each bulk, counted from the first; 1 refuses all.
    pub every: u32,
    /// The status of their items.
    pub status: u16,
    /// Their `error`, a JSON object.
    pub error: String,
}

/// When the documents that were taken so far will have been worked off.
#[derive(Debug, Default)]
pub(super) struct Capacity {
    free: Mutex<Option<Instant>>,
}

// === impl Capacity ===

impl Capacity {
    /// Waits as long as so many documents take.
    pub(super) fn take(&self, manners: &Manners, docs: u64) {
        let mut wait = manners.latency;
        if let Some(docs_per_s_max) = manners.docs_per_s_max.filter(|max| *max > 0) {
            let work = Duration::from_secs_f64(docs as f64 / f64::from(docs_per_s_max));
            let now = Instant::now();
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let done = free.map_or(now, |free| free.max(now)) + work;
            *free = Some(done);
            wait += done - now;
        }
        if !wait.is_zero() {
            thread::sleep(wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_wait_for_their_turn() {
        let manners = Manners {
            docs_per_s_max: Some(10_000),
            ..Manners::default()
        };
        let capacity = Capacity::default();
        let begun = Instant::now();
        (0..5).for_each(|_| capacity.take(&manners, 200));
        assert!(
            begun.elapsed() >= Duration::from_millis(100),
            "{:?}",
            begun.elapsed()
        );
    }
}
