//! The state of the gateway, as far as its changes are told.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::{Cluster, WatchState};
use config::Config;
use serde_json::Value;

use super::super::AdminState;
use super::super::health::Readiness;
use crate::applied::Applied;
use crate::queue::{Account, Phase, Queues, waits_of};
use crate::reloads::Counted;
use crate::switches::{Switched, Switches};

/// Everything that is compared.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) readiness: Readiness,
    pub(super) clusters: BTreeMap<Arc<str>, ClusterState>,
    pub(super) queues: BTreeMap<Arc<str>, QueueState>,
    pub(super) groups: BTreeMap<(Arc<str>, String), GroupState>,
    pub(super) switches: BTreeMap<Arc<str>, Arc<Switched>>,
    pub(super) configuration: Option<Configuration>,
    pub(super) applied: Option<Applied>,
}

/// A cluster and its nodes.
#[derive(Clone, Debug)]
pub(super) struct ClusterState {
    pub(super) watch: WatchState,
    pub(super) uuid: Option<String>,
    pub(super) generation: u64,
    pub(super) state_version: Option<u64>,
    /// A number for where the primaries are.
    pub(super) primaries: u64,
    pub(super) indices_split: usize,
    pub(super) primaries_missing: usize,
    /// What a person should know of the cluster last.
    pub(super) why: Option<String>,
    /// Whether each node is up, by name and address.
    pub(super) nodes: BTreeMap<(String, String), bool>,
}

/// Whether a queue accepts.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueState {
    /// Why it accepts nothing: in a word, and in a sentence.
    pub(super) refuses: Option<(&'static str, String)>,
}

/// A consumer group of a queue.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupState {
    /// What delivers for the group.
    pub(super) delivery: Option<Delivery>,
    pub(super) dead: u64,
    pub(super) parked: u64,
    /// The keys that documents are parked for, those with most documents.
    pub(super) keys: Vec<Value>,
    pub(super) key_count: usize,
    /// Why documents wait in their lanes.
    pub(super) waits: Vec<Value>,
}

/// A pipeline that delivers for a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) pipeline: Arc<str>,
    pub(super) cluster: Arc<str>,
    pub(super) phase: Phase,
}

/// What is known of the configuration in force.
#[derive(Clone, Debug)]
pub(super) struct Configuration {
    pub(super) reloads: Counted,
    pub(super) version: Option<String>,
}

// === impl State ===

impl State {
    /// Takes the state as it is now.
    pub(super) fn of(admin: &AdminState) -> Self {
        let shared = &admin.shared;
        let live = shared.live.load_full();
        let queues = shared.queues.load();
        let clusters = live.clusters.iter();
        Self {
            readiness: Readiness::of(shared),
            clusters: clusters
                .map(|(name, cluster)| (Arc::clone(name), ClusterState::of(cluster)))
                .collect(),
            queues: queues
                .all()
                .map(|queue| {
                    let refuses = queue.log.refuses_for();
                    let refuses = refuses.map(|word| (word, queue.log.refuses().unwrap_or_default()));
                    (Arc::clone(&queue.name), QueueState { refuses })
                })
                .collect(),
            groups: groups_of(&queues),
            switches: switches_of(&live.config, &shared.switches),
            configuration: Some(Configuration {
                reloads: shared.reloads.counted(),
                version: live.fingerprint.map(|text| shared.configs.version(text)),
            }),
            applied: shared.configs.last(),
        }
    }
}

fn groups_of(queues: &Queues) -> BTreeMap<(Arc<str>, String), GroupState> {
    let accounts = queues.accounts().into_iter();
    let of_queue = |account: Account<'_>| {
        let queue = Arc::clone(account.queue);
        let groups = account.groups.into_iter().map(move |one| {
            let delivers = queues.group(&queue.name, &one.name);
            let waits = waits_of(&queue.name, &one, delivers.map(|group| &**group));
            let mut state = GroupState {
                delivery: delivers.map(|group| Delivery {
                    pipeline: Arc::clone(&group.settings.pipeline),
                    cluster: Arc::clone(&group.settings.cluster),
                    phase: group.phase(),
                }),
                dead: one.dead,
                parked: one.parked,
                waits: match waits {
                    Value::Array(waits) => waits.into_iter().filter(is_told).take(LISTED).collect(),
                    _ => Vec::new(),
                },
                ..GroupState::default()
            };
            if let Some(parked) = queue.parked_of(&one.name) {
                let parked = parked.state();
                state.key_count = parked.key_count();
                state.keys = parked.shown(LISTED).into_iter().map(|key| key.0).collect();
            }
            ((Arc::clone(&queue.name), one.name), state)
        });
        groups.collect::<Vec<_>>()
    };
    accounts.flat_map(of_queue).collect()
}

/// Returns whether a reason why documents wait is told as such. Others have changes of their own, or pass in
/// moments.
fn is_told(wait: &Value) -> bool {
    let told = ["paused", "retrying", "slow_node", "cannot_park", "no_pipeline"];
    wait["reason"]
        .as_str()
        .is_some_and(|reason| told.contains(&reason))
}

fn switches_of(config: &Config, switches: &Arc<Switches>) -> BTreeMap<Arc<str>, Arc<Switched>> {
    let clusters = config.clusters.keys();
    clusters
        .map(|cluster| (Arc::clone(cluster), Arc::clone(&switches.of(cluster).now())))
        .collect()
}

// === impl ClusterState ===

impl ClusterState {
    fn of(cluster: &Cluster) -> Self {
        let status = cluster.status();
        let nodes = status.nodes.into_iter();
        Self {
            watch: status.state,
            uuid: status.cluster_uuid,
            generation: status.generation,
            state_version: status.state_version,
            primaries: status.routes.primaries,
            indices_split: status.routes.indices_split,
            primaries_missing: status.routes.primaries_missing,
            why: status.warnings.into_iter().next_back(),
            nodes: nodes
                .map(|node| ((node.name, node.address.to_string()), node.health.up))
                .collect(),
        }
    }
}

/// The most keys and reasons that a change lists.
const LISTED: usize = 10;
