//! The loop that keeps the snapshot current: it polls the version, reads what changed, checks, and publishes.

mod checking;
mod metadata;
mod reading;
mod telling;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bulk::Formula;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::warn;
use wire::guard::fault;

use crate::ask::{AskError, Asker};
use crate::discover::Discovered;
use crate::health::NodeOutcome;
use crate::inner::ClusterInner;
use crate::node::Node;
use crate::routes::{Reading, Routes, Trust};
use crate::state::{self, IndexMetadata, StateVersion};
use crate::status::WatchState;
use crate::topology::NodeRegistry;
use crate::verify::{Sample, Score};
use checking::Inconclusive;
use metadata::Known;

/// The knowledge of the watch.
pub(crate) struct Watch {
    shared: Arc<ClusterInner>,
    asker: Asker,
    registry: NodeRegistry,
    /// The node that is asked, for as long as it answers: one node's local state never goes back in time.
    home: Option<Arc<Node>>,
    nodes: Vec<Arc<Node>>,
    node_warnings: Vec<String>,
    /// When publish addresses that could not be reached are tried again.
    reprobe_at: Option<Instant>,
    /// The last pause before silent nodes were asked again.
    silence_pause: Duration,
    discovered: Option<Discovered>,
    /// The nodes that `discovered` describes: their ids, with the value that changes when a node restarts.
    discovered_for: BTreeMap<String, Value>,
    at: Option<StateVersion>,
    reading: Option<Reading>,
    routes: Option<Routes>,
    metadata: HashMap<String, IndexMetadata>,
    /// By the index's uuid, like the rest here: how long its metadata hold.
    known: HashMap<String, Known>,
    /// The indices whose metadata are read again at the next reading.
    stale: HashSet<String>,
    /// What was checked, and the result.
    trust: HashMap<String, (Checked, Trust)>,
    /// The checks that came to no result.
    inconclusive: HashMap<String, Inconclusive>,
    generation: u64,
    read_took: Duration,
}

/// The subject of a check; another number of shards needs another check.
type Checked = (Formula, u32, u32);

impl Watch {
    pub(crate) fn new(shared: Arc<ClusterInner>, asker: Asker, registry: NodeRegistry) -> Self {
        let nodes = registry.endpoints.clone();
        let generation = shared.snapshot.load().generation;
        Self {
            shared,
            asker,
            registry,
            home: None,
            nodes,
            node_warnings: Vec::new(),
            reprobe_at: None,
            silence_pause: SILENCE_PAUSE_MIN,
            discovered: None,
            discovered_for: BTreeMap::new(),
            at: None,
            reading: None,
            routes: None,
            metadata: HashMap::new(),
            known: HashMap::new(),
            stale: HashSet::new(),
            trust: HashMap::new(),
            inconclusive: HashMap::new(),
            generation,
            read_took: Duration::ZERO,
        }
    }

    /// Watches until the handle is dropped.
    pub(crate) async fn run(mut self, samples: &mut mpsc::Receiver<Sample>) {
        let mut failures = 0u32;
        while !self.shared.stopping.load(Relaxed) {
            fault("watch", b"");
            let polled = Instant::now();
            let pause = match self.poll().await {
                Ok(()) => {
                    failures = 0;
                    self.said(WatchState::Watching, None);
                    let refresh = match (self.shared.config.refresh, self.reprobe_at) {
                        (Some(refresh), _) => refresh.max(self.read_took * 2),
                        (None, Some(at)) => at.saturating_duration_since(Instant::now()),
                        (None, None) => NEVER,
                    };
                    let waits = |next: Option<Instant>, least: Duration| {
                        let next = next.map(|at| at.saturating_duration_since(Instant::now()));
                        next.map_or(NEVER, |next| next.max(least))
                    };
                    let check = waits(self.next_check(), CHECK_PAUSE);
                    refresh
                        .min(check)
                        .min(waits(self.next_unmapped(), UNMAPPED_PAUSE))
                }
                Err(error) => {
                    failures += 1;
                    self.failed(&error);
                    let slowest = if error.is_unauthorized() {
                        UNAUTHORIZED_PAUSE_MAX
                    } else {
                        FAILURE_PAUSE_MAX
                    };
                    (FAILURE_PAUSE_MIN * 2u32.saturating_pow(failures.min(16) - 1)).min(slowest)
                }
            };
            self.idle(polled, pause, samples).await;
        }
    }

    /// Waits for the next poll, for a hint, or for a sample to check.
    async fn idle(&mut self, polled: Instant, pause: Duration, samples: &mut mpsc::Receiver<Sample>) {
        let until = Instant::now() + pause;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                () = self.shared.wake.notified() => {
                    // Hints may come by the thousand: they only bring the poll forward.
                    if !self.shared.stopping.load(Relaxed) {
                        tokio::time::sleep_until(until.min(polled + HINT_PAUSE)).await;
                    }
                    return;
                }
                Some(sample) = samples.recv() => {
                    let generation = self.generation;
                    if let Err(error) = self.check_sample(&sample).await {
                        tracing::debug!(cluster = self.shared.config.name, %error, "a prediction could not be checked");
                    }
                    // If the cluster was read because of the sample, there may be new indices, which are
                    // checked before they are split, and other reasons to wait less long.
                    if self.generation != generation || self.at.is_none() {
                        return;
                    }
                }
            }
        }
    }

    // --- polling ---

    /// Asks for the state's version and reads the rest when it changed.
    async fn poll(&mut self) -> Result<(), AskError> {
        self.shared.watched().polls.total += 1;
        let (home, version) = self.ask_version().await?;
        let rebuilt = self
            .at
            .as_ref()
            .is_some_and(|at| at.cluster_uuid != version.cluster_uuid);
        if rebuilt {
            self.forget(&version);
        }
        let changed = self
            .at
            .as_ref()
            .is_none_or(|at| at.state_uuid != version.state_uuid);
        let reprobe = self.reprobe_at.is_some_and(|at| at <= Instant::now());
        if reprobe {
            self.discovered_for.clear();
        }
        self.home = Some(home.clone());
        let (first, read) = (self.routes.is_none(), changed || reprobe);
        if read {
            let begun = Instant::now();
            Box::pin(self.read(&home)).await?;
            self.read_took = begun.elapsed();
            self.shared.watched().polls.changed += 1;
            self.make_routes();
            // To know where the primaries are, nobody waits for the checks, which may take long. Who waits
            // for the first snapshot is about to split bulks.
            if !first {
                self.publish();
            }
        }
        let mapped = !read && self.read_unmapped(&home).await?;
        if mapped {
            self.make_routes();
        }
        if self.check_new(&home).await || mapped || (read && first) {
            self.publish();
        }
        Ok(())
    }

    /// Returns the first node that answers, with its answer; the node that answered last is asked first.
    async fn ask_version(&mut self) -> Result<(Arc<Node>, StateVersion), AskError> {
        let mut candidates: Vec<Arc<Node>> = Vec::new();
        let healthy = self.nodes.iter().filter(|node| node.health.is_up());
        let known = self
            .home
            .iter()
            .chain(healthy)
            .chain(&self.registry.endpoints)
            .chain(&self.nodes);
        for node in known {
            if !candidates.iter().any(|c| c.address == node.address) {
                candidates.push(node.clone());
            }
        }
        let mut worst: Option<AskError> = None;
        for node in candidates {
            let begun = Instant::now();
            match self.asker.get::<StateVersion>(&node.origin, state::VERSION).await {
                Ok(version) if version.is_led() => {
                    self.shared.report(&node, NodeOutcome::Answered, begun.elapsed());
                    return Ok((node, version));
                }
                Ok(_) => {
                    self.shared.report(&node, NodeOutcome::Incapable, begun.elapsed());
                    worst = worst.or_else(|| Some(unled(&node)));
                }
                Err(error) => {
                    if let Some(outcome) = error.outcome() {
                        self.shared.report(&node, outcome, begun.elapsed());
                    }
                    // A refusal of our credentials is more informative than a dead node.
                    if worst.as_ref().is_none_or(|worst| !worst.is_unauthorized()) {
                        worst = Some(error);
                    }
                }
            }
        }
        self.home = None;
        Err(worst.expect("there are endpoints, so somebody was asked and failed"))
    }

    /// Drops everything learnt, since another cluster is now at these addresses.
    fn forget(&mut self, version: &StateVersion) {
        let (cluster, uuid) = (&self.shared.config.name, &version.cluster_uuid);
        warn!(
            cluster,
            uuid,
            "the cluster was built anew: everything learnt of the old one is dropped; whether its documents are back is \
             for you to see (`tidegate diff`), what the queue still has can be delivered again (`tidegate queues offset`)"
        );
        self.discovered = None;
        self.discovered_for.clear();
        (self.at, self.reading, self.routes) = (None, None, None);
        self.metadata.clear();
        self.known.clear();
        self.stale.clear();
        self.trust.clear();
        self.inconclusive.clear();
        let mut watched = self.shared.watched();
        watched.score = Score::default();
        watched.polls.rebuilt += 1;
    }
}

/// Returns the error for an answer of a node that follows no elected node.
fn unled(node: &Node) -> AskError {
    AskError::Unexpected {
        target: node.address.to_string(),
        why: "the node follows no elected node".to_owned(),
    }
}

/// The least time between polls, however many hints come.
const HINT_PAUSE: Duration = Duration::from_millis(50);
const CHECK_PAUSE: Duration = Duration::from_millis(50);
/// The first pauses before an index that may have no mapping is read again are none and this one.
const UNMAPPED_PAUSE: Duration = Duration::from_secs(1);
const FAILURE_PAUSE_MIN: Duration = Duration::from_millis(250);
const FAILURE_PAUSE_MAX: Duration = Duration::from_secs(2);
const UNAUTHORIZED_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Until something hints at a change.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// The first pause for nodes in the cluster state that did not tell where they can be reached: they are asked
/// again after twice this time, then after twice as long, and so on.
const SILENCE_PAUSE_MIN: Duration = Duration::from_millis(150);
