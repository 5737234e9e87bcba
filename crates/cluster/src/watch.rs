//! The loop that keeps the snapshot current: poll the version, read what changed, check, publish.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bulk::{Formula, IndexRoute};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::ask::{AskError, Asker};
use crate::discover::{Discovered, NODES};
use crate::node::Node;
use crate::pipelines::harmless_pipelines;
use crate::routes::{self, Reading, Routes, RoutesStatus, Trust};
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::state::{self, IndexMetadata, StateVersion, Topology};
use crate::status::WatchState;
use crate::topology::Roster;
use crate::verify::{Challenge, Sample, Score, SearchShards, shards_of};

/// What the watch knows.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    asker: Asker,
    roster: Roster,
    /// The node that is asked, for as long as it answers: one node's local state never goes back in time.
    home: Option<Arc<Node>>,
    nodes: Vec<Arc<Node>>,
    node_warnings: Vec<String>,
    /// Publish addresses that could not be reached are tried again then.
    reprobe_at: Option<Instant>,
    /// The last pause before nodes that are silent were asked again.
    silence_pause: Duration,
    discovered: Option<Discovered>,
    /// The node set that `discovered` describes: ids, with what changes when a node restarts.
    discovered_for: BTreeMap<String, Value>,
    at: Option<StateVersion>,
    reading: Option<Reading>,
    routes: Option<Routes>,
    metadata: HashMap<String, IndexMetadata>,
    /// By the index's uuid: what was checked, and how that went.
    trust: HashMap<String, (Checked, Trust)>,
    generation: u64,
    read_took: Duration,
}

/// What a check was about; another number of shards is another question.
type Checked = (Formula, u32, u32);

impl Watch {
    pub(crate) fn new(shared: Arc<Shared>, asker: Asker, roster: Roster) -> Self {
        let nodes = roster.endpoints.clone();
        Self {
            shared,
            asker,
            roster,
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
            trust: HashMap::new(),
            generation: 1,
            read_took: Duration::ZERO,
        }
    }

    /// Watches until the handle is dropped.
    pub(crate) async fn run(mut self, mut samples: mpsc::Receiver<Sample>) {
        let mut failures = 0u32;
        while !self.shared.stopping.load(Relaxed) {
            let polled = Instant::now();
            let pause = match self.poll().await {
                Ok(()) => {
                    failures = 0;
                    self.said(WatchState::Watching, None);
                    let checking = self
                        .routes
                        .as_ref()
                        .is_some_and(|routes| !routes.unchecked.is_empty());
                    let refresh = self.shared.config.refresh.max(self.read_took * 2);
                    if checking {
                        refresh.min(CHECK_PAUSE)
                    } else {
                        refresh
                    }
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
            self.idle(polled, pause, &mut samples).await;
        }
    }

    /// Waits for the next poll, for a hint, or for a sample to check.
    async fn idle(&mut self, polled: Instant, pause: Duration, samples: &mut mpsc::Receiver<Sample>) {
        let until = Instant::now() + pause;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                () = self.shared.wake.notified() => {
                    // Hints may come by the thousand: they bring the poll forward, not more than that.
                    if !self.shared.stopping.load(Relaxed) {
                        tokio::time::sleep_until(until.min(polled + HINT_PAUSE)).await;
                    }
                    return;
                }
                Some(sample) = samples.recv() => {
                    if let Err(error) = self.check_sample(&sample).await {
                        tracing::debug!(cluster = self.shared.config.name, %error, "a prediction could not be checked");
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
        if changed || reprobe {
            let begun = Instant::now();
            self.read(&home).await?;
            self.read_took = begun.elapsed();
            self.shared.watched().polls.changed += 1;
            self.make_routes();
            self.check_new(&home).await;
            self.publish();
        } else if self
            .routes
            .as_ref()
            .is_some_and(|routes| !routes.unchecked.is_empty())
            && self.check_new(&home).await
        {
            self.publish();
        }
        Ok(())
    }

    /// The first node that answers, the last one's first; and what it says.
    async fn ask_version(&mut self) -> Result<(Arc<Node>, StateVersion), AskError> {
        let mut candidates: Vec<Arc<Node>> = Vec::new();
        let healthy = self.nodes.iter().filter(|node| node.health.is_up());
        let known = self
            .home
            .iter()
            .chain(healthy)
            .chain(&self.roster.endpoints)
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
                Ok(version) if version.master_node.is_some() && version.cluster_uuid != "_na_" => {
                    self.shared
                        .report(&node, crate::Outcome::Answered, begun.elapsed());
                    return Ok((node, version));
                }
                Ok(_) => {
                    let why = "the node follows no elected node".to_owned();
                    let lost = AskError::Unexpected {
                        target: node.address.to_string(),
                        why,
                    };
                    worst = worst.or(Some(lost));
                }
                Err(error) => {
                    if let Some(outcome) = error.outcome() {
                        self.shared.report(&node, outcome, begun.elapsed());
                    }
                    // A refusal of our credentials says more than a dead node.
                    if worst.as_ref().is_none_or(|worst| !worst.is_unauthorized()) {
                        worst = Some(error);
                    }
                }
            }
        }
        self.home = None;
        Err(worst.expect("there are endpoints, so somebody was asked and failed"))
    }

    /// Another cluster lives at these addresses now.
    fn forget(&mut self, version: &StateVersion) {
        let (cluster, uuid) = (&self.shared.config.name, &version.cluster_uuid);
        warn!(
            cluster,
            uuid, "the cluster was built anew: everything learnt of the old one is dropped"
        );
        self.discovered = None;
        self.discovered_for.clear();
        (self.at, self.reading, self.routes) = (None, None, None);
        self.metadata.clear();
        self.trust.clear();
        self.shared.watched().score = Score::default();
    }

    // --- reading ---

    async fn read(&mut self, home: &Arc<Node>) -> Result<(), AskError> {
        let (asker, origin) = (self.asker.clone(), &home.origin);
        let topology: Topology = asker.get(origin, state::TOPOLOGY).await?;
        if self.discovered.is_none() || self.discovered_for != topology.nodes {
            self.discover(home, &topology).await?;
        }
        let (settings, aliases, data_streams, pipelines) = tokio::join!(
            optional(asker.get_bytes(origin, state::SETTINGS)),
            optional(asker.get_bytes(origin, state::ALIASES)),
            optional(asker.get_bytes(origin, state::DATA_STREAMS)),
            optional(asker.get_bytes(origin, state::PIPELINES)),
        );
        let parsed = |what: &'static str| move |e: serde_json::Error| unexpected(what, &e);
        let settings = state::parse_settings(&or_empty(settings?)).map_err(parsed("_settings"))?;
        let aliases = state::parse_aliases(&or_empty(aliases?)).map_err(parsed("_alias"))?;
        let data_streams =
            state::parse_data_streams(&or_empty(data_streams?)).map_err(parsed("_resolve/index"))?;
        let definitions: Map<String, Value> =
            serde_json::from_slice(&or_empty(pipelines?)).map_err(parsed("_ingest/pipeline"))?;
        let uuids: HashSet<&str> = settings.values().map(|s| s.uuid.as_str()).collect();
        self.metadata.retain(|uuid, _| uuids.contains(uuid.as_str()));
        self.trust.retain(|uuid, _| uuids.contains(uuid.as_str()));
        let new = settings
            .iter()
            .filter(|(_, s)| !self.metadata.contains_key(&s.uuid));
        let new: Vec<String> = state::metadata_targets(new.map(|(name, _)| name.as_str()));
        for target in new {
            if let Some(body) = optional(asker.get_bytes(origin, &target)).await? {
                self.metadata
                    .extend(state::parse_metadata(&body).map_err(parsed("_cluster/state/metadata"))?);
            }
        }
        self.shared
            .watched()
            .score
            .keep(|name| settings.contains_key(name));
        self.at = Some(topology.at.clone());
        let harmless_pipelines = harmless_pipelines(&definitions);
        self.reading = Some(Reading {
            topology,
            settings,
            aliases,
            data_streams,
            harmless_pipelines,
        });
        Ok(())
    }

    async fn discover(&mut self, home: &Arc<Node>, topology: &Topology) -> Result<(), AskError> {
        let body = self.asker.get_bytes(&home.origin, NODES).await?;
        let discovered = Discovered::parse(&body).map_err(|e| unexpected("_nodes", &e))?;
        let reached = self
            .roster
            .reach(&self.asker, &discovered.nodes, home.address.tls)
            .await;
        for gone in &self.nodes {
            if !reached.nodes.iter().any(|node| node.address == gone.address) {
                self.asker.forget(&gone.origin);
            }
        }
        let cluster = &self.shared.config.name;
        let mut warnings = reached.warnings;
        let silent = topology.nodes.keys().filter(|id| !discovered.knows(id)).count();
        if silent > 0 {
            warnings.push(format!(
                "{silent} of {} nodes did not tell where they can be reached",
                topology.nodes.len()
            ));
        }
        if let Some(first) = warnings.first().filter(|_| warnings != self.node_warnings) {
            warn!(cluster, nodes = warnings.len(), "{first}");
        }
        info!(cluster, nodes = reached.nodes.len(), "nodes discovered");
        self.silence_pause = match silent {
            0 => SILENCE_PAUSE_MIN,
            _ => (self.silence_pause * 2).min(SILENCE_PAUSE_MAX),
        };
        let reprobe = match (silent, reached.incomplete) {
            (0, false) => None,
            (0, true) => Some(REPROBE),
            // One that has just joined opens its HTTP port in a moment.
            _ => Some(self.silence_pause),
        };
        self.reprobe_at = reprobe.map(|pause| Instant::now() + pause);
        self.nodes = reached.nodes;
        self.node_warnings = warnings;
        self.discovered = Some(discovered);
        self.discovered_for.clone_from(&topology.nodes);
        Ok(())
    }

    // --- routes and their check ---

    fn make_routes(&mut self) {
        let (Some(reading), Some(dialect)) =
            (&self.reading, self.discovered.as_ref().and_then(|d| d.dialect))
        else {
            self.routes = None;
            return;
        };
        let before_split = self.shared.config.verify.before_split;
        let trust = |settings: &state::IndexSettings, route: &IndexRoute| match self.trust.get(&settings.uuid)
        {
            Some((checked, trust)) if *checked == subject(route) => *trust,
            _ if route.shards() < 2 || !before_split => Trust::Trusted,
            _ => Trust::Unchecked,
        };
        self.routes = Some(routes::make(reading, &self.metadata, &self.nodes, dialect, trust));
    }

    /// Checks indices that are new, for a while; `true` when some are through (or through with).
    async fn check_new(&mut self, home: &Arc<Node>) -> bool {
        let Some(routes) = &self.routes else { return false };
        let unchecked = routes.unchecked.clone();
        let until = Instant::now() + CHECK_BUDGET;
        let mut any = false;
        for route in &unchecked {
            if Instant::now() >= until {
                break;
            }
            let Some(challenge) = Challenge::for_index(route) else {
                continue;
            };
            // 404 from a node that has not heard of it yet, a shard without a copy: later.
            let Ok(answer) = self
                .asker
                .get::<SearchShards>(&home.origin, &challenge.target)
                .await
            else {
                continue;
            };
            let Some(numbers) = answer.numbers() else { continue };
            any = true;
            self.judge(route, numbers == challenge.expected);
        }
        if any {
            self.make_routes();
        }
        any
    }

    /// Writes down how a check went.
    fn judge(&mut self, route: &IndexRoute, right: bool) {
        let index = &*route.name;
        if !right {
            let cluster = &self.shared.config.name;
            wire::rationed!(
                tracing::warn,
                cluster,
                index,
                "the cluster keeps documents elsewhere than predicted: the index passes through unsplit"
            );
        }
        {
            let mut watched = self.shared.watched();
            watched.score.count(index, right);
            watched.score.mark(index, !right);
        }
        let uuid = self
            .reading
            .as_ref()
            .and_then(|reading| Some(reading.settings.get(index)?.uuid.clone()));
        if let Some(uuid) = uuid {
            let trust = if right { Trust::Trusted } else { Trust::Failed };
            self.trust.insert(uuid, (subject(route), trust));
        }
    }

    /// Compares one prediction of the live traffic. One that disagrees is looked at again after a fresh reading: the
    /// index may just have been made anew.
    async fn check_sample(&mut self, sample: &Sample) -> Result<(), AskError> {
        let (Some(home), Some(target)) = (self.home.clone(), Challenge::for_sample(sample)) else {
            return Ok(());
        };
        let ask = async |asker: &Asker| {
            asker
                .get::<SearchShards>(&home.origin, &target)
                .await
                .map(|a| a.numbers())
        };
        let Some(numbers) = ask(&self.asker).await? else {
            return Ok(());
        };
        let right = numbers.contains(&sample.shard);
        self.shared.watched().score.count(&sample.index, right);
        if right {
            return Ok(());
        }
        self.read(&home).await?;
        self.make_routes();
        let route = self
            .routes
            .as_ref()
            .and_then(|routes| routes.indices.get(&sample.index).cloned());
        if let (Some(route), Some(numbers)) = (route, ask(&self.asker).await?)
            && route.opaque.is_none()
            && shards_of(&route, &sample.routing) != numbers
        {
            self.judge(&route, false);
            self.make_routes();
        }
        self.publish();
        Ok(())
    }

    // --- telling ---

    fn publish(&mut self) {
        self.generation += 1;
        let mut warnings = self.node_warnings.clone();
        let discovered = self.discovered.as_ref();
        warnings.extend(discovered.iter().flat_map(|d| d.warnings.iter().cloned()));
        let dialect = discovered.and_then(|d| d.dialect);
        let (table, status) = match &self.routes {
            Some(routes) => (routes.table.clone(), routes.status.clone()),
            None => (
                routes::nothing(dialect, self.nodes.len()),
                RoutesStatus::default(),
            ),
        };
        let snapshot = Snapshot::new(self.generation, self.nodes.clone(), table)
            .described(self.at.as_ref(), discovered)
            .with_warnings(warnings);
        self.shared.watched().routes = status;
        self.shared.snapshot.store(Arc::new(snapshot));
        self.shared.generation.send_replace(self.generation);
    }

    fn failed(&mut self, error: &AskError) {
        let state = if error.is_unauthorized() {
            WatchState::Unauthorized
        } else {
            WatchState::Unreachable
        };
        self.shared.watched().polls.failed += 1;
        self.said(state, Some(error.to_string()));
        if error.is_unauthorized() && self.reading.is_some() {
            // What we may no longer ask about we no longer know.
            (self.at, self.reading, self.routes) = (None, None, None);
            self.publish();
        }
    }

    /// Keeps the status, and logs a change of state once.
    fn said(&self, state: WatchState, error: Option<String>) {
        let mut watched = self.shared.watched();
        let changed = watched.state != state;
        watched.state = state;
        if state == WatchState::Watching {
            watched.polled_at = Some(Instant::now());
        }
        if changed {
            let cluster = &self.shared.config.name;
            let means = match state {
                WatchState::Unauthorized => "the cluster refuses our account: bulks pass through unsplit",
                _ if self.reading.is_some() => "the cluster does not answer: bulks go by the last topology",
                _ => "the cluster cannot be read: bulks pass through unsplit",
            };
            match &error {
                Some(error) => wire::rationed!(tracing::warn, cluster, error, "{means}"),
                None => info!(cluster, "the cluster is being watched"),
            }
        }
        watched.last_error = error;
    }
}

/// A refusal (no such API in this build, no right to it) is an empty answer; everything else stays an error.
async fn optional<T>(asked: impl Future<Output = Result<T, AskError>>) -> Result<Option<T>, AskError> {
    match asked.await {
        Ok(body) => Ok(Some(body)),
        Err(error) if error.is_refusal() => Ok(None),
        Err(error) => Err(error),
    }
}

fn or_empty(body: Option<wire::Buffer>) -> Vec<u8> {
    body.map_or_else(|| b"{}".to_vec(), |body| body.to_vec())
}

fn unexpected(target: &str, error: &serde_json::Error) -> AskError {
    AskError::Unexpected {
        target: target.to_owned(),
        why: error.to_string(),
    }
}

fn subject(route: &IndexRoute) -> Checked {
    (route.formula, route.shards(), route.partition_size)
}

/// However many hints come, polls are this far apart at least.
const HINT_PAUSE: Duration = Duration::from_millis(50);
/// Time given to checking new indices before a snapshot is published with what is through.
const CHECK_BUDGET: Duration = Duration::from_millis(150);
const CHECK_PAUSE: Duration = Duration::from_millis(50);
const FAILURE_PAUSE_MIN: Duration = Duration::from_millis(250);
const FAILURE_PAUSE_MAX: Duration = Duration::from_secs(2);
const UNAUTHORIZED_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Publish addresses that could not be reached are tried again this often.
/// Nodes of the cluster state that did not tell where they can be reached are asked again after twice this, then after
/// twice as long, and so on.
const SILENCE_PAUSE_MIN: Duration = Duration::from_millis(150);
/// There may be nodes whose HTTP is off for good.
const SILENCE_PAUSE_MAX: Duration = Duration::from_secs(60);
const REPROBE: Duration = Duration::from_secs(15);
