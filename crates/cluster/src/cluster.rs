//! The gateway's handle to a cluster: snapshots, picks, reports, hints, samples.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tracing::warn;
use wire::PerCore;
use wire::guard::{self, Pauses, Work};

use crate::ask::{Asker, REPLY_BYTES_MAX};
use crate::chooser::{Chooser, Choosers};
use crate::config::{BadConfig, ClusterConfig, NodeChoice};
use crate::health::NodeOutcome;
use crate::inner::ClusterInner;
use crate::node::Node;
use crate::own_snapshot;
use crate::pace::{Exchange, kind_of};
use crate::probe::probe;
use crate::routes;
use crate::snapshot::Snapshot;
use crate::status::{Status, Watched};
use crate::tls_files::TlsContents;
use crate::topology::NodeRegistry;
use crate::verify::Sample;
use crate::watch::Watch;

/// A cluster that is being watched. The watch has a thread of its own. It ends when the last handle is
/// dropped, or by [`Cluster::stop`].
#[derive(Debug)]
pub struct Cluster {
    shared: Arc<ClusterInner>,
}

// === impl Cluster ===

impl Cluster {
    /// Starts to watch a cluster. Returns at once, with a snapshot that knows only the endpoints; every bulk
    /// passes through unsplit until the cluster has been read for the first time (see [`Cluster::learnt`]).
    ///
    /// # Errors
    /// If the configuration cannot work. A cluster that cannot be reached is no error: the watch waits for
    /// it.
    pub fn start(config: ClusterConfig) -> Result<Arc<Self>, BadConfig> {
        if config.endpoints.is_empty() {
            return Err(BadConfig::NoEndpoint(config.name));
        }
        let (contents, tls) = match config.endpoints.iter().any(|endpoint| endpoint.tls) {
            // The contents first: see there.
            true => (Some(config.tls.contents()?), Some(config.tls.load()?)),
            false => (None, None),
        };
        Asker::check(&config)?;
        let registry = NodeRegistry::new(config.clone(), tls);
        let (samples, wanted) = mpsc::channel(SAMPLES_WAITING_MAX);
        let nodes = registry.endpoints.clone();
        let table = routes::nothing(None, nodes.len());
        let shared = Arc::new(ClusterInner {
            snapshot: ArcSwap::from_pointee(Snapshot::new(1, nodes, table)),
            published: AtomicU64::new(1),
            generation: watch::Sender::new(1),
            choosers: Choosers::default(),
            wake: Notify::new(),
            probe_wake: Notify::new(),
            stopping: AtomicBool::new(false),
            samples,
            started: Instant::now(),
            next_sample_ms: AtomicU64::new(0),
            watched: Mutex::new(Watched::new(config.discovery)),
            usual: PerCore::default(),
            tls: contents,
            config,
        });
        let theirs = shared.clone();
        guard::thread("cluster", Work::Watch, move || {
            watch_thread(theirs, registry, wanted)
        })
        .map_err(BadConfig::Thread)?;
        Ok(Arc::new(Self { shared }))
    }

    /// Returns the newest snapshot. It is this thread's own copy, nodes included: until another snapshot is
    /// published, nothing is touched that other cores write, however often references to it are counted. To
    /// keep the copy to this thread is a matter of speed alone.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        own_snapshot::of(&self.shared)
    }

    /// Reads something from the newest snapshot. This makes no copy, for threads that look now and then.
    pub fn look<T>(&self, read: impl FnOnce(&Snapshot) -> T) -> T {
        read(&self.shared.snapshot.load())
    }

    /// Waits until the cluster has been read for the first time; returns `false` if that took longer than
    /// `timeout`.
    pub async fn learnt(&self, timeout: Duration) -> bool {
        let mut generations = self.shared.generation.subscribe();
        let learnt = generations.wait_for(|_| self.shared.snapshot.load().learnt());
        tokio::time::timeout(timeout, learnt)
            .await
            .is_ok_and(|waited| waited.is_ok())
    }

    /// Returns a receiver that is told of each new snapshot by its generation.
    pub fn generations(&self) -> watch::Receiver<u64> {
        self.shared.generation.subscribe()
    }

    /// Returns the chooser of nodes for requests that no primary calls for. Callers with an equal choice get
    /// the same chooser, as long as somebody holds it.
    pub fn chooser(&self, choice: NodeChoice) -> Arc<Chooser> {
        self.shared.choosers.get(&self.shared.config.name, choice)
    }

    /// Begins an exchange: a request is about to be sent to a node. `read` means that the request changes
    /// nothing. A node's share of the requests that any node may take depends on the requests under way to
    /// it, and on how long its answers take beside other nodes' answers to requests of this size. An exchange
    /// that is dropped without [`Cluster::end`] counts as given up.
    pub fn begin<'n>(&self, node: &'n Node, read: bool, body_bytes: Option<u64>) -> Exchange<'n> {
        let kind = kind_of(read, body_bytes);
        node.health.pace().begin(self.shared.usual.own(), kind)
    }

    /// Reports the outcome of an exchange with a node, when the head of its answer has arrived, on the thread
    /// that began it. Lock-free; a node that fails leaves the rotation at once, and is probed until it
    /// answers.
    pub fn end(&self, exchange: Exchange<'_>, node: &Node, outcome: NodeOutcome) {
        self.shared.end(exchange, node, outcome);
    }

    /// Reports a later outcome of an exchange with a node that had ended well, or the outcome of an exchange
    /// that was not begun here; `latency` is the time to the reply's head. See [`Cluster::end`].
    pub fn report(&self, node: &Node, outcome: NodeOutcome, latency: Duration) {
        self.shared.report(node, outcome, latency);
    }

    /// Reports that a reply hinted at a change (an unknown index, a shard that had moved, a node that
    /// refused): the cluster is asked at once, but not more than twenty times a second however many hints
    /// there are.
    pub fn hint(&self) {
        self.shared.wake.notify_one();
    }

    /// Returns whether a prediction for live traffic is wanted for checking now: `true` at most a few times a
    /// second ([`crate::Verify::samples_per_second`]), and then for only one caller. This costs a clock
    /// reading and an atomic load.
    pub fn wants_sample(&self) -> bool {
        let per_second = u64::from(self.shared.config.verify.samples_per_second);
        if per_second == 0 || !self.shared.config.discovery {
            return false;
        }
        let now = u64::try_from(self.shared.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let due = self.shared.next_sample_ms.load(Relaxed);
        let next = now + (1_000 / per_second).max(1);
        now >= due
            && self
                .shared
                .next_sample_ms
                .compare_exchange(due, next, Relaxed, Relaxed)
                .is_ok()
    }

    /// Submits a prediction for checking: that `index` (a concrete one) keeps documents with the effective
    /// `routing` (the routing value, or else the id) in `shard`. The prediction is dropped while the check is
    /// busy. Ask [`Cluster::wants_sample`] first.
    pub fn sample(&self, index: &str, routing: &str, shard: u32) {
        let sample = Sample {
            index: index.to_owned(),
            routing: routing.to_owned(),
            shard,
        };
        // A full channel means that the check is behind: there will be other samples.
        let _ = self.shared.samples.try_send(sample);
    }

    /// Returns everything that the admin API shows.
    pub fn status(&self) -> Status {
        let snapshot = self.shared.snapshot.load();
        let choices = self.shared.choosers.status(&snapshot);
        let watched = self.shared.watched();
        Status::of(&self.shared.config.name, &snapshot, choices, &watched)
    }

    /// Ends the watch, as dropping the last handle does: snapshots stay as they are, and nodes that are down
    /// stay so until an answer of theirs is reported.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Relaxed);
        self.shared.wake.notify_one();
        self.shared.probe_wake.notify_one();
    }

    /// Returns the configuration that the cluster was started with.
    pub fn config(&self) -> &ClusterConfig {
        &self.shared.config
    }

    /// Returns what was in the TLS files when they were loaded; `None` if the cluster does without them,
    /// because no endpoint is `https`.
    pub fn tls(&self) -> Option<&TlsContents> {
        self.shared.tls.as_ref()
    }

    /// Returns whether the TLS files have other contents than those that are in use, or cannot be read: a
    /// cluster that is started with the same configuration loads them, or says why it cannot. This reads the
    /// files.
    pub fn tls_changed(&self) -> bool {
        let in_use = self.shared.tls.as_ref();
        in_use.is_some_and(|in_use| !self.config().tls.contents().is_ok_and(|now| now == *in_use))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

fn watch_thread(shared: Arc<ClusterInner>, registry: NodeRegistry, mut wanted: mpsc::Receiver<Sample>) {
    let name = shared.config.name.clone();
    let ran = wire::run_local(REPLIES_BYTES_MAX, move |worker| async move {
        let asker = match Asker::new(&shared.config, worker.pool().clone()) {
            Ok(asker) => asker,
            Err(error) => return warn!(cluster = shared.config.name, %error, "the watch cannot ask"),
        };
        let (probed, asks) = (shared.clone(), asker.clone());
        let probes = guard::restarted(Work::Watch, move || probe(probed.clone(), asks.clone()));
        let probing = guard::spawn(Work::Watch, probes);
        if shared.config.discovery {
            watch(&shared, &asker, &registry, &mut wanted).await;
            probing.abort();
        } else {
            let _ = probing.await;
        }
    });
    if let Err(error) = ran {
        warn!(cluster = name, %error, "the watch could not start");
    }
}

/// Watches until the handle is dropped. After a panic the watch starts again, with the nodes that it knew
/// when it first started; until it has read the cluster again, the last snapshot holds.
async fn watch(
    shared: &Arc<ClusterInner>,
    asker: &Asker,
    registry: &NodeRegistry,
    wanted: &mut mpsc::Receiver<Sample>,
) {
    let mut pauses = Pauses::default();
    loop {
        let began = Instant::now();
        let watch = Watch::new(shared.clone(), asker.clone(), registry.clone());
        match Box::pin(guard::guarded(Work::Watch, watch.run(wanted))).await {
            Ok(()) => return,
            Err(panicked) => {
                let pause = pauses.next(began.elapsed());
                panicked.report(Work::Watch, "the watch of a cluster begins anew in a moment");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// The most samples that wait for their check.
const SAMPLES_WAITING_MAX: usize = 8;

/// The memory for the replies to the watch's questions.
const REPLIES_BYTES_MAX: usize = 2 * REPLY_BYTES_MAX;
