//! The state of a cluster as the admin API shows it.

use serde::Serialize;

use crate::address::Address;
use crate::flavour::{show_flavour, show_version};
use crate::health::HealthStatus;
use crate::role::Role;
use crate::routes::RoutesStatus;
use crate::snapshot::Snapshot;
use crate::verify::{PredictionsStatus, Score};

/// The present view of a cluster; serialisable, without secrets.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The configured name.
    pub name: String,
    /// The state of the watch.
    pub state: WatchState,
    /// The cluster's own name; `null` until it was asked.
    pub cluster_name: Option<String>,
    /// The cluster's UUID, which changes when the cluster is rebuilt.
    pub cluster_uuid: Option<String>,
    /// `opensearch` or `elasticsearch`; `null` until known.
    pub flavour: Option<&'static str>,
    /// The versions seen among the nodes, lowest first.
    pub versions: Vec<String>,
    /// The number of the snapshot; each snapshot is immutable.
    pub generation: u64,
    /// The `version` of the cluster state from which the snapshot was made.
    pub state_version: Option<u64>,
    /// Milliseconds since the cluster last answered the watch; `null` if it never did.
    pub polled_ago_ms: Option<u64>,
    /// The polls so far, and how many found a change or failed.
    pub polls: Polls,
    /// The largest body that every node accepts, in bytes; `null` until known.
    pub max_content_length_bytes: Option<u64>,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
    /// The nodes that take requests that no primary calls for: one entry for each way in which filters choose
    /// nodes.
    pub choices: Vec<ChoiceStatus>,
    /// The route table in numbers.
    pub routes: RoutesStatus,
    /// The check of predictions.
    pub predictions: PredictionsStatus,
    /// Facts that a person should know, in sentences; empty when all is well.
    pub warnings: Vec<String>,
}

/// The state of the watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchState {
    /// Discovery is switched off: only the endpoints are known.
    Off,
    /// Nothing has been learnt yet.
    Starting,
    /// The snapshot is current.
    Watching,
    /// The cluster refuses our credentials (401 or 403): requests pass through, and nothing is split.
    Unauthorized,
    /// The cluster does not answer; the last snapshot holds.
    Unreachable,
}

/// Counters of the watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Polls {
    /// Polls of the state's version.
    pub total: u64,
    /// Polls that found it changed and read the changes.
    pub changed: u64,
    /// Polls without a usable answer.
    pub failed: u64,
    /// Polls that found another cluster at the addresses of the one before.
    pub rebuilt: u64,
}

/// One node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeStatus {
    /// `node.name`.
    pub name: String,
    /// The id in the cluster state; empty when not discovered.
    pub id: String,
    /// The address to which requests go.
    pub address: Address,
    /// The node's roles.
    pub roles: Vec<Role>,
    /// The node's health.
    pub health: HealthStatus,
}

/// The result of a choice of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChoiceStatus {
    /// The nodes and their weights.
    pub nodes: std::collections::BTreeMap<String, u32>,
    /// Whether the choice would leave no node, and is ignored.
    pub ignored: bool,
}

/// The watch's part of the status. Locked only for moments, never on a request's path.
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
