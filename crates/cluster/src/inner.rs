//! The state that the handle and the watch's thread share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Release};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc, watch};
use wire::PerCore;

use crate::chooser::Choosers;
use crate::config::ClusterConfig;
use crate::health::{NodeOutcome, RotationChange};
use crate::node::Node;
use crate::pace::{Exchange, UsualTimes};
use crate::snapshot::Snapshot;
use crate::status::Watched;
use crate::tls_files::TlsContents;
use crate::verify::Sample;

/// The shared state of one cluster; it lives as long as the longer-lived of the two.
#[derive(Debug)]
pub(crate) struct ClusterInner {
    pub(crate) config: ClusterConfig,
    /// What was in the TLS files; `None` if no endpoint needs them.
    pub(crate) tls: Option<TlsContents>,
    pub(crate) snapshot: ArcSwap<Snapshot>,
    /// How often a snapshot was published. Threads look at it to know whether their copy is still good.
    pub(crate) published: AtomicU64,
    pub(crate) generation: watch::Sender<u64>,
    pub(crate) choosers: Choosers,
    /// Notified when a hint comes, or when the handle is dropped.
    pub(crate) wake: Notify,
    /// Notified when a node leaves the rotation, or when the handle is dropped.
    pub(crate) probe_wake: Notify,
    pub(crate) stopping: AtomicBool,
    pub(crate) samples: mpsc::Sender<Sample>,
    pub(crate) started: Instant,
    /// Milliseconds since `started` at which the next sample is wanted.
    pub(crate) next_sample_ms: AtomicU64,
    pub(crate) watched: Mutex<Watched>,
    /// The usual times of this cluster's answers.
    pub(crate) usual: PerCore<UsualTimes>,
}

// === impl ClusterInner ===

impl ClusterInner {
    /// Puts a snapshot in force.
    pub(crate) fn publish(&self, snapshot: Snapshot) {
        let generation = snapshot.generation;
        self.snapshot.store(Arc::new(snapshot));
        // After this, whoever finds the number changed finds the snapshot, or a later one.
        self.published.fetch_add(1, Release);
        self.generation.send_replace(generation);
    }

    pub(crate) fn report(&self, node: &Node, outcome: NodeOutcome, latency: Duration) {
        match node.health.report(outcome, latency, &self.config.health) {
            RotationChange::Same => {}
            RotationChange::Down => {
                wire::rationed!(
                    tracing::warn,
                    cluster = self.config.name,
                    node = node.name,
                    ?outcome,
                    "node leaves the rotation"
                );
                self.probe_wake.notify_one();
                self.wake.notify_one();
            }
            RotationChange::Up => {
                wire::rationed!(
                    tracing::info,
                    cluster = self.config.name,
                    node = node.name,
                    "node is back in the rotation"
                );
                self.wake.notify_one();
            }
        }
    }

    pub(crate) fn end(&self, exchange: Exchange<'_>, node: &Node, outcome: NodeOutcome) {
        let latency = exchange.began.elapsed();
        match outcome {
            NodeOutcome::Answered => exchange.pace.answered(self.usual.own(), exchange.kind, latency),
            _ => exchange.pace.failed(self.usual.own(), exchange.kind, latency),
        }
        self.report(node, outcome, latency);
    }

    pub(crate) fn watched(&self) -> MutexGuard<'_, Watched> {
        // These are plain numbers and strings: whatever a panic left is still worth showing.
        self.watched.lock()
    }
}
