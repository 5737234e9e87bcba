//! One look at the cluster, immutable: nodes, versions, where everything is.

use std::sync::Arc;

use crate::flavour::{Flavour, Version};
use crate::node::Node;
use crate::pick::{PickReason, Rotations, Turn};

/// What the cluster looked like when it was last read. A request takes one snapshot and keeps it to its end.
#[derive(Debug)]
pub struct Snapshot {
    /// Counts snapshots, from 1 for the one that knows only the endpoints.
    pub generation: u64,
    /// What the cluster calls itself; `None` until learnt.
    pub cluster_name: Option<String>,
    /// Changes when the cluster is built anew; `None` until learnt.
    pub cluster_uuid: Option<String>,
    /// `version` of the cluster state that this was made from.
    pub state_version: Option<u64>,
    /// The nodes; a `bulk::NodeIx` is a position in this list. Never empty.
    pub nodes: Vec<Arc<Node>>,
    /// Which engine; `None` until learnt.
    pub flavour: Option<Flavour>,
    /// The versions among the nodes, lowest first, without duplicates.
    pub versions: Vec<Version>,
    /// Largest body that every node accepts (`http.max_content_length`), bytes; `None` until learnt.
    pub max_content_length_bytes: Option<u64>,
    /// What a person should know, in sentences.
    pub warnings: Vec<String>,
    pub(crate) rotations: Rotations,
}

impl Snapshot {
    /// The node for a request that no primary calls for: the next healthy one in turn that is not among `not`.
    ///
    /// Always some node: when none is healthy, one that is not gets its chance.
    pub(crate) fn pick(&self, turn: &Turn, reason: PickReason, not: &[&Node]) -> Arc<Node> {
        let picked = self.rotations.pick(&self.nodes, turn, reason, not);
        picked
            .expect("a snapshot has at least the endpoints, of which a configuration has one or more")
            .clone()
    }
}
