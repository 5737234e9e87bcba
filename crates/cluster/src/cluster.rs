//! The handle that the gateway holds: snapshots, picks, reports, hints, samples.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use crate::config::{BadConfig, ClusterConfig};
use crate::health::{self, Outcome};
use crate::node::Node;
use crate::pick::{PickReason, Turn};
use crate::snapshot::Snapshot;
use crate::status::Status;

/// A cluster that is being watched. The watch has a thread of its own and ends when the handle is dropped.
#[derive(Debug)]
pub struct Cluster {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What the handle and the watch's thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: ClusterConfig,
    pub(crate) snapshot: ArcSwap<Snapshot>,
    pub(crate) generation: watch::Sender<u64>,
    pub(crate) turn: Turn,
    /// A hint came, or the handle was dropped.
    pub(crate) wake: Notify,
    pub(crate) stopping: AtomicBool,
}

impl Cluster {
    /// Starts to watch a cluster. Returns at once, with a snapshot that knows the endpoints only; every bulk passes
    /// through unsplit until the cluster was read for the first time (see [`Cluster::learnt`]).
    ///
    /// # Errors
    /// A configuration that cannot work. A cluster that cannot be reached is no error: it is watched for.
    pub fn start(config: ClusterConfig) -> Result<Arc<Self>, BadConfig> {
        let _ = config;
        todo!("the watch")
    }

    /// The newest snapshot. Costs an atomic load and a reference count; take it once per request.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.load_full()
    }

    /// Waits until the cluster was read for the first time; `false` when that took longer than `timeout`.
    pub async fn learnt(&self, timeout: Duration) -> bool {
        let mut generations = self.shared.generation.subscribe();
        let learnt = generations.wait_for(|_| self.shared.snapshot.load().cluster_uuid.is_some());
        tokio::time::timeout(timeout, learnt)
            .await
            .is_ok_and(|waited| waited.is_ok())
    }

    /// Tells of each new snapshot by its generation.
    pub fn generations(&self) -> watch::Receiver<u64> {
        self.shared.generation.subscribe()
    }

    /// The node for a request that no primary calls for: weighted round robin among the healthy nodes that the filter
    /// admits. `not` lists nodes that were tried already. Falls back to nodes outside the filter, then to unhealthy
    /// ones: some node is always returned.
    pub fn pick(&self, snapshot: &Snapshot, reason: PickReason, not: &[&Node]) -> Arc<Node> {
        snapshot.pick(&self.shared.turn, reason, not)
    }

    /// Says what became of an exchange with a node; `latency` is the time to the reply's head.
    /// Lock-free; a node that fails leaves the rotation at once, and is probed until it answers.
    pub fn report(&self, node: &Node, outcome: Outcome, latency: Duration) {
        match node.health.report(outcome, latency, &self.shared.config.health) {
            health::Turn::Same => {}
            health::Turn::Down | health::Turn::Up => self.shared.wake.notify_one(),
        }
    }

    /// Says that a reply hinted at a change (an index that was not known, a shard that had moved, a node that refused):
    /// the cluster is asked at once, but not more than a few times per refresh interval whatever is hinted.
    pub fn hint(&self) {
        self.shared.wake.notify_one();
    }

    /// Whether a prediction of the live traffic is wanted for checking now. Cheap; `true` a few times a second at most,
    /// and then for one caller only.
    pub fn wants_sample(&self) -> bool {
        false
    }

    /// Gives a prediction for checking: that `index` (a concrete one) keeps documents with the effective `routing`
    /// (the routing value, else the id) in `shard`. Dropped when the check is busy.
    pub fn sample(&self, index: &str, routing: &str, shard: u32) {
        let _ = (index, routing, shard);
    }

    /// Everything the admin API shows.
    pub fn status(&self) -> Status {
        todo!("the status")
    }

    /// What the cluster was started with.
    pub fn config(&self) -> &ClusterConfig {
        &self.shared.config
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Relaxed);
        self.shared.wake.notify_one();
        drop(self.thread.take());
    }
}
