//! Decides how often a request is tried, at which nodes, and at what intervals.

use std::sync::Arc;
use std::time::Duration;

use cluster::{Node, PickReason, Snapshot};

use super::Outbound;
use crate::backoff::backoff;

/// The tries of one request, or of one part of a bulk. The caller decides whether the outcome of a try allows
/// another one; this type decides how many tries there may be, and when.
pub(crate) struct Tries<'a> {
    outbound: &'a Outbound,
    snapshot: &'a Snapshot,
    failed_at: Vec<Arc<Node>>,
    retries: u32,
}

// === impl Tries ===

impl<'a> Tries<'a> {
    /// Begins without a try, for a request that a node of `snapshot` is to take.
    pub(crate) fn new(outbound: &'a Outbound, snapshot: &'a Snapshot) -> Tries<'a> {
        Tries {
            outbound,
            snapshot,
            failed_at: Vec::new(),
            retries: 0,
        }
    }

    /// Returns whether the try under way is the first.
    pub(crate) fn is_first(&self) -> bool {
        self.retries == 0
    }

    /// Returns whether no node has failed yet.
    pub(crate) fn none_failed(&self) -> bool {
        self.failed_at.is_empty()
    }

    /// Returns a node for the next try, if possible one that has not failed.
    pub(crate) fn pick(&self, reason: PickReason) -> Arc<Node> {
        self.outbound.pick(self.snapshot, reason, &self.failed_at)
    }

    /// Returns whether another try may follow. `unsent`: no try so far has sent a byte.
    pub(crate) fn may_retry(&self, unsent: bool) -> bool {
        let nodes = self.snapshot.nodes.len();
        self.retries < retries_max(self.outbound.retry_count_max, unsent, nodes)
    }

    /// Goes on to the next try, after a pause if every node has failed. `failed` is the node of the last try,
    /// if that node was to blame.
    pub(crate) async fn retry(&mut self, failed: Option<Arc<Node>>) {
        self.failed_at.extend(failed);
        if self.failed_at.len() >= self.snapshot.nodes.len() {
            tokio::time::sleep(pause(self.outbound.retry_delay, self.retries)).await;
        }
        self.retries += 1;
    }
}

/// Returns the number of retries. A request of which nothing could be sent may be tried at all nodes,
/// whatever is configured. A request that a node may have begun to execute may also be what broke the node,
/// and must not break all the others.
fn retries_max(configured: u32, unsent: bool, nodes: usize) -> u32 {
    let others = u32::try_from(nodes.saturating_sub(1)).unwrap_or(u32::MAX);
    if unsent {
        configured.max(others)
    } else {
        configured
    }
}

/// Returns the pause before retry number `retry` (from 0), which doubles six times.
fn pause(first: Duration, retry: u32) -> Duration {
    backoff(first, retry, first.saturating_mul(1 << 6), fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_not_sent_goes_round_all_nodes() {
        assert_eq!(retries_max(3, true, 50), 49);
        assert_eq!(retries_max(3, false, 50), 3);
        assert_eq!(retries_max(0, false, 3), 0);
        assert_eq!(retries_max(0, true, 1), 0);
    }

    #[test]
    fn pauses_double_six_times() {
        let first = Duration::from_millis(100);
        for (retry, doubled) in [(0, 100), (1, 200), (6, 6_400), (60, 6_400)] {
            let doubled = Duration::from_millis(doubled);
            let pause = pause(first, retry);
            assert!(pause >= doubled / 2 && pause <= doubled, "{retry}: {pause:?}");
        }
    }
}
