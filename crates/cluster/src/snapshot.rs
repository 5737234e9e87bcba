//! An immutable view of the cluster: nodes, versions, and where everything is.

use std::sync::Arc;

use bulk::{Flavour, NodeIx, RouteTable, Version};

use crate::discover::Discovered;
use crate::node::Node;
use crate::state::StateVersion;

/// The cluster as it was last read. A request takes one snapshot and keeps it to its end.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The number of the snapshot; the first, 1, knows only the endpoints.
    pub generation: u64,
    /// The cluster's own name; `None` until learnt.
    pub cluster_name: Option<String>,
    /// The cluster's UUID, which changes when the cluster is rebuilt; `None` until learnt.
    pub cluster_uuid: Option<String>,
    /// The `version` of the cluster state from which this was made.
    pub state_version: Option<u64>,
    /// The nodes; a [`NodeIx`] is a position in this list. Never empty.
    pub nodes: Vec<Arc<Node>>,
    /// The destination of every document. Until the cluster has been read the table knows no name, so every
    /// bulk passes through; see [`Snapshot::learnt`].
    pub table: Arc<RouteTable>,
    /// The engine; `None` until learnt, and when both engines are among the nodes.
    pub flavour: Option<Flavour>,
    /// The versions among the nodes, lowest first, without duplicates.
    pub versions: Vec<Version>,
    /// The largest body that every node accepts (`http.max_content_length`), in bytes; `None` until learnt.
    pub max_content_length_bytes: Option<u64>,
    /// Whether nodes compress their answers for clients that accept it (`http.compression`). Unless that is
    /// set, nodes compress only answers on clear-text connections, since the length of a compressed answer
    /// reveals something about encrypted contents.
    pub compresses_answers: bool,
    /// Facts that a person should know, in sentences.
    pub warnings: Vec<String>,
}

impl Snapshot {
    pub(crate) fn new(generation: u64, nodes: Vec<Arc<Node>>, table: Arc<RouteTable>) -> Self {
        Self {
            generation,
            cluster_name: None,
            cluster_uuid: None,
            state_version: None,
            nodes,
            table,
            flavour: None,
            versions: Vec::new(),
            max_content_length_bytes: None,
            compresses_answers: false,
            warnings: Vec::new(),
        }
    }

    pub(crate) fn described(mut self, at: Option<&StateVersion>, found: Option<&Discovered>) -> Self {
        if let Some(at) = at {
            self.cluster_name = Some(at.cluster_name.clone());
            self.cluster_uuid = Some(at.cluster_uuid.clone());
            self.state_version = Some(at.version);
        }
        if let Some(found) = found {
            self.cluster_name = Some(found.cluster_name.clone());
            self.flavour = found.flavour();
            self.versions.clone_from(&found.versions);
            self.max_content_length_bytes = found.max_content_length_bytes;
            let in_clear = || self.nodes.iter().all(|node| !node.address.tls);
            self.compresses_answers = found.compression.unwrap_or_else(in_clear);
        }
        self
    }

    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }

    /// Returns whether the cluster's state has been read: only then does the table mean anything.
    pub fn learnt(&self) -> bool {
        self.state_version.is_some()
    }

    /// Returns the node that a part of a plan is for; `None` for a number that is not in this snapshot.
    pub fn node(&self, ix: NodeIx) -> Option<&Arc<Node>> {
        self.nodes.get(usize::from(ix.0))
    }
}
