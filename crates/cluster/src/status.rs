//! What the admin API shows of a cluster.

use serde::Serialize;

use crate::address::Address;
use crate::flavour::{show_flavour, show_version};
use crate::health::HealthStatus;
use crate::role::Role;
use crate::routes::RoutesStatus;
use crate::snapshot::Snapshot;
use crate::verify::{PredictionsStatus, Score};

/// A cluster as it is seen now; serialisable, without secrets.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The configured name.
    pub name: String,
    /// How the watch is doing.
    pub state: WatchState,
    /// What the cluster calls itself; `null` until it was asked.
    pub cluster_name: Option<String>,
    /// Changes when the cluster is built anew.
    pub cluster_uuid: Option<String>,
    /// `opensearch` or `elasticsearch`; `null` until known.
    pub flavour: Option<&'static str>,
    /// The versions seen among the nodes, lowest first.
    pub versions: Vec<String>,
    /// Counts the snapshots; each one is immutable.
    pub generation: u64,
    /// `version` of the cluster state that the snapshot was made from.
    pub state_version: Option<u64>,
    /// Milliseconds since the cluster last answered the watch; `null` if it never did.
    pub polled_ago_ms: Option<u64>,
    /// Polls so far, and how many found a change or failed.
    pub polls: Polls,
    /// Largest body that every node accepts, bytes; `null` until known.
    pub max_content_length_bytes: Option<u64>,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
    /// Who takes requests that no primary calls for: one entry for each way in which filters choose nodes.
    pub choices: Vec<ChoiceStatus>,
    /// The route table in numbers.
    pub routes: RoutesStatus,
    /// The check of predictions.
    pub predictions: PredictionsStatus,
    /// Everything a person should know, in sentences; empty when all is well.
    pub warnings: Vec<String>,
}

/// How the watch is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchState {
    /// Discovery is switched off: the endpoints are all that is known.
    Off,
    /// Nothing learnt yet.
    Starting,
    /// The snapshot is current.
    Watching,
    /// The cluster refuses our credentials (401 or 403): requests pass through, nothing is split.
    Unauthorized,
    /// The cluster does not answer; the last snapshot stands.
    Unreachable,
}

/// Counters of the watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Polls {
    /// Asked for the state's version.
    pub total: u64,
    /// Found it changed and read what changed.
    pub changed: u64,
    /// Got no usable answer.
    pub failed: u64,
    /// Found another cluster at the addresses of the one before.
    pub rebuilt: u64,
}

/// One node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeStatus {
    /// `node.name`.
    pub name: String,
    /// Id in the cluster state; empty when not discovered.
    pub id: String,
    /// Where requests go.
    pub address: Address,
    /// What it does.
    pub roles: Vec<Role>,
    /// How it has been doing.
    pub health: HealthStatus,
}

/// What a choice of nodes comes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChoiceStatus {
    /// The nodes and their weights.
    pub nodes: std::collections::BTreeMap<String, u32>,
    /// It would leave no node, so it is ignored.
    pub ignored: bool,
}

/// What the watch tells the status. Locked for moments, never on a request's path.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) state: WatchState,
    pub(crate) polled_at: Option<tokio::time::Instant>,
    pub(crate) polls: Polls,
    pub(crate) last_error: Option<String>,
    pub(crate) routes: RoutesStatus,
    pub(crate) score: Score,
}

// === impl Status ===

impl Status {
    pub(crate) fn of(name: &str, snapshot: &Snapshot, choices: Vec<ChoiceStatus>, watched: &Watched) -> Self {
        let mut warnings = snapshot.warnings.clone();
        if choices.iter().any(|choice| choice.ignored) {
            warnings.push(
                "the filter and weights of an elasticsearch filter leave no node and are ignored".to_owned(),
            );
        }
        match (watched.state, &watched.last_error) {
            (WatchState::Off, _) => warnings.push("discovery is off: bulks pass through unsplit".to_owned()),
            (WatchState::Starting, None) => warnings.push("nothing is known of the cluster yet".to_owned()),
            (_, Some(error)) => warnings.push(error.clone()),
            _ => {}
        }
        let nodes = snapshot.nodes.iter().map(|node| NodeStatus {
            name: node.name.clone(),
            id: node.id.clone(),
            address: node.address.clone(),
            roles: node.roles.clone(),
            health: node.health.status(),
        });
        Self {
            name: name.to_owned(),
            state: watched.state,
            cluster_name: snapshot.cluster_name.clone(),
            cluster_uuid: snapshot.cluster_uuid.clone(),
            flavour: snapshot.flavour.map(show_flavour),
            versions: snapshot.versions.iter().map(show_version).collect(),
            generation: snapshot.generation,
            state_version: snapshot.state_version,
            polled_ago_ms: watched
                .polled_at
                .map(|at| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX)),
            polls: watched.polls,
            max_content_length_bytes: snapshot.max_content_length_bytes,
            nodes: nodes.collect(),
            choices,
            routes: watched.routes.clone(),
            predictions: watched.score.status(),
            warnings,
        }
    }
}

// === impl Watched ===

impl Watched {
    pub(crate) fn new(discovery: bool) -> Self {
        Self {
            state: if discovery {
                WatchState::Starting
            } else {
                WatchState::Off
            },
            polled_at: None,
            polls: Polls::default(),
            last_error: None,
            routes: RoutesStatus::default(),
            score: Score::default(),
        }
    }
}
