//! The state that all nodes share: the cluster state, replaced as a whole at each change, and the counters.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};

use super::behaviour::{Behaviour, Capacity, Pool};
use super::fault::Injections;
use super::flavour::Flavour;
use super::index::Index;
use super::route::{Formula, routing_num_shards};
use super::settings::Flat;
use super::users::{self, Users};
use super::{Counts, Spec};

/// The state of a cluster, shared by the threads of all nodes.
#[derive(Debug)]
pub(super) struct ClusterContext {
    pub(super) spec: Spec,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) injections: Injections,
    pub(super) capacity: Capacity,
    /// The workers of each node.
    pub(super) pools: Vec<Pool>,
    /// Whether each node accepts connections and does nothing else.
    pub(super) paused: Vec<AtomicBool>,
    behaviour: RwLock<Arc<Behaviour>>,
    pub(super) version: AtomicU64,
    /// The next sequence number of documents that are only counted.
    pub(super) seq_no: AtomicU64,
    state: RwLock<Arc<ClusterState>>,
    has_users: AtomicBool,
    users: RwLock<Arc<Users>>,
    tallies: Vec<Tally>,
    /// The latest `traceparent` headers.
    traceparents: Mutex<VecDeque<String>>,
    /// Since when documents are claimed.
    started: Instant,
}

/// The most `traceparent` headers that are kept.
const TRACEPARENTS_MAX: usize = 1000;

/// One node's counters, updated once per request.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: AtomicU64,
    pub(super) bulks: AtomicU64,
    /// Documents written one by one.
    pub(super) writes: AtomicU64,
    pub(super) docs: AtomicU64,
    pub(super) misrouted: AtomicU64,
    pub(super) body_bytes: AtomicU64,
}

/// A cluster state.
#[derive(Debug, Clone)]
pub(super) struct ClusterState {
    pub(super) flavour: Flavour,
    pub(super) cluster_uuid: String,
    pub(super) nodes: Vec<NodeState>,
    pub(super) indices: BTreeMap<String, Arc<Index>>,
    /// The indices of each alias; the first takes the writes.
    pub(super) aliases: BTreeMap<String, Vec<String>>,
    /// The aliases of which no index takes the writes.
    pub(super) unled: BTreeSet<String>,
    /// The settings of the cluster that were set.
    pub(super) persistent: Flat,
    pub(super) transient: Flat,
    /// The settings of indices that were set, by index.
    pub(super) index_settings: BTreeMap<String, Flat>,
    /// The number of uuids made so far.
    uuids: u64,
    store: bool,
}

#[derive(Debug, Clone)]
pub(super) struct NodeState {
    /// The id, as in the routing table.
    pub(super) id: String,
    pub(super) name: String,
    /// Whether it is known to have left the cluster.
    pub(super) gone: bool,
}

// === impl ClusterContext ===

impl ClusterContext {
    pub(super) fn new(spec: Spec, addresses: Vec<SocketAddr>) -> ClusterContext {
        let mut state = ClusterState {
            flavour: spec.flavour,
            cluster_uuid: String::new(),
            nodes: (0..spec.nodes).map(NodeState::new).collect(),
            indices: BTreeMap::new(),
            aliases: BTreeMap::new(),
            unled: BTreeSet::new(),
            persistent: Flat::new(),
            transient: Flat::new(),
            index_settings: BTreeMap::new(),
            uuids: fastrand::u64(..) >> 8,
            store: spec.store,
        };
        state.cluster_uuid = state.uuid();
        for (name, shards) in &spec.indices {
            state.create(name, *shards);
        }
        let tallies = addresses.iter().map(|_| Tally::default()).collect();
        let pools = (0..spec.nodes).map(|_| Pool::default()).collect();
        let paused = (0..spec.nodes).map(|_| AtomicBool::new(false)).collect();
        let behaviour = RwLock::new(Arc::new(spec.behaviour.clone()));
        let mut known = Users::new();
        spec.users
            .iter()
            .for_each(|user| users::add(&mut known, user.clone()));
        ClusterContext {
            spec,
            addresses,
            injections: Injections::default(),
            capacity: Capacity::default(),
            pools,
            paused,
            behaviour,
            version: AtomicU64::new(10),
            seq_no: AtomicU64::new(0),
            state: RwLock::new(Arc::new(state)),
            has_users: AtomicBool::new(!known.is_empty()),
            users: RwLock::new(Arc::new(known)),
            tallies,
            traceparents: Mutex::default(),
            started: Instant::now(),
        }
    }

    /// Returns the documents that somebody else is said to have written since the start.
    pub(super) fn claimed_docs(&self) -> u64 {
        let since_ms = self.started.elapsed().as_millis() as u64;
        since_ms * u64::from(self.spec.claimed_docs_per_s) / 1000
    }

    pub(super) fn state(&self) -> Arc<ClusterState> {
        Arc::clone(&self.state.read())
    }

    /// Replaces the state by a changed copy and raises its version.
    pub(super) fn change(&self, change: impl FnOnce(&mut ClusterState)) {
        let mut slot = self.state.write();
        let mut state = ClusterState::clone(&slot);
        change(&mut state);
        *slot = Arc::new(state);
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether there is, or has been, a user with limited rights.
    pub(super) fn has_users(&self) -> bool {
        self.has_users.load(Ordering::Acquire)
    }

    pub(super) fn users(&self) -> Arc<Users> {
        Arc::clone(&self.users.read())
    }

    pub(super) fn change_users(&self, change: impl FnOnce(&mut Users)) {
        let mut slot = self.users.write();
        let mut users = Users::clone(&slot);
        change(&mut users);
        *slot = Arc::new(users);
        self.has_users.store(true, Ordering::Release);
    }

    /// Returns how slow and how faulty the nodes are now.
    pub(super) fn behaviour(&self) -> Arc<Behaviour> {
        Arc::clone(&self.behaviour.read())
    }

    pub(super) fn set_behaviour(&self, behaviour: Behaviour) {
        *self.behaviour.write() = Arc::new(behaviour);
    }

    /// Notes the `traceparent` of a request, if it has one.
    pub(super) fn traced(&self, traceparent: Option<&str>) {
        let Some(traceparent) = traceparent else { return };
        let mut traceparents = self.traceparents.lock();
        if traceparents.len() == TRACEPARENTS_MAX {
            traceparents.pop_front();
        }
        traceparents.push_back(traceparent.to_owned());
    }

    pub(super) fn traceparents(&self) -> Vec<String> {
        self.traceparents.lock().iter().cloned().collect()
    }

    pub(super) fn tally(&self, node: usize) -> &Tally {
        &self.tallies[node]
    }

    pub(super) fn counts(&self) -> Counts {
        let sum = |pick: fn(&Tally) -> &AtomicU64| {
            self.tallies
                .iter()
                .map(|tally| pick(tally).load(Ordering::Relaxed))
                .sum()
        };
        let pools: Vec<_> = self.pools.iter().map(Pool::tally).collect();
        Counts {
            requests: sum(|tally| &tally.requests),
            bulks: sum(|tally| &tally.bulks),
            writes: sum(|tally| &tally.writes),
            docs: sum(|tally| &tally.docs),
            misrouted: sum(|tally| &tally.misrouted),
            docs_by_node: self
                .tallies
                .iter()
                .map(|tally| tally.docs.load(Ordering::Relaxed))
                .collect(),
            body_bytes: sum(|tally| &tally.body_bytes),
            bulks_refused: pools.iter().map(|pool| pool.refused).sum(),
            worked_ms: pools.iter().map(|pool| pool.worked.as_millis() as u64).sum(),
            waited_ms: pools.iter().map(|pool| pool.waited.as_millis() as u64).sum(),
        }
    }

    pub(super) fn reset_counts(&self) {
        self.pools.iter().for_each(Pool::reset);
        for tally in &self.tallies {
            for counter in [
                &tally.requests,
                &tally.bulks,
                &tally.writes,
                &tally.docs,
                &tally.misrouted,
                &tally.body_bytes,
            ] {
                counter.store(0, Ordering::Relaxed);
            }
        }
    }
}

// === impl ClusterState ===

impl ClusterState {
    /// Returns the index that a name means for writes: its own or an alias's.
    pub(super) fn index(&self, name: &str) -> Option<&Arc<Index>> {
        let name = self.aliases.get(name).map_or(name, |indices| &indices[0]);
        self.indices.get(name)
    }

    pub(super) fn index_mut(&mut self, name: &str) -> &mut Index {
        Arc::make_mut(
            self.indices
                .get_mut(name)
                .expect("the caller names an index that is there"),
        )
    }

    /// Creates an index, replacing one of the same name.
    pub(super) fn create(&mut self, name: &str, shards: u32) {
        let here: Vec<usize> = (0..self.nodes.len())
            .filter(|&node| !self.nodes[node].gone)
            .collect();
        let primaries = (0..shards as usize)
            .map(|shard| here.get(shard % here.len().max(1)).copied())
            .collect();
        let formula = match self.flavour {
            Flavour::Elasticsearch9 => Formula::Modulo,
            _ => Formula::Classic {
                routing_num_shards: routing_num_shards(shards),
            },
        };
        let uuid = self.uuid();
        self.indices.insert(
            name.to_owned(),
            Arc::new(Index::new(name, uuid, primaries, formula, self.store)),
        );
    }

    /// Makes an index with other shards and the documents of another index, which is deleted.
    pub(super) fn split(&mut self, source: &str, name: &str, shards: u32) {
        self.create(name, shards);
        if let Some(old) = self.indices.remove(source) {
            // Both share one store: a bulk that began before writes to the source, whereas on a real server
            // it would have finished before the split.
            self.index_mut(name).store.clone_from(&old.store);
        }
    }

    pub(super) fn alias(&mut self, alias: &str, indices: &[&str]) {
        self.unled.remove(alias);
        self.aliases.insert(
            alias.to_owned(),
            indices.iter().map(|&index| index.to_owned()).collect(),
        );
    }

    /// Takes a node out; its primaries move to the others in turn.
    pub(super) fn evict(&mut self, node: usize) {
        self.nodes[node].gone = true;
        let here: Vec<usize> = (0..self.nodes.len()).filter(|&at| !self.nodes[at].gone).collect();
        for index in self.indices.values_mut() {
            for (shard, primary) in Arc::make_mut(index).primaries.iter_mut().enumerate() {
                if *primary == Some(node) {
                    *primary = here.get(shard % here.len().max(1)).copied();
                }
            }
        }
    }

    pub(super) fn rebuild(&mut self) {
        self.cluster_uuid = self.uuid();
        let shards: Vec<(String, u32)> = self
            .indices
            .values()
            .map(|index| (index.name.clone(), index.shards()))
            .collect();
        for (name, shards) in shards {
            self.create(&name, shards);
        }
    }

    /// Returns 22 characters, different at each call.
    fn uuid(&mut self) -> String {
        self.uuids += 1;
        format!("fake{:018x}", self.uuids)
    }
}

impl NodeState {
    fn new(node: usize) -> NodeState {
        NodeState {
            id: format!("fakenode{:014}", node + 1),
            name: format!("node-{}", node + 1),
            gone: false,
        }
    }
}
