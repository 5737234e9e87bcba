//! The documents that the lanes of a consumer group have at nodes: handed to a node's outlet and not answered
//! yet. A lane waits for all of its nodes, so the slowest of them holds it back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::Node;
use parking_lot::Mutex;

/// The documents of each lane that are at nodes.
#[derive(Debug)]
pub(crate) struct AtNodes {
    lanes: Vec<Mutex<Vec<AtNode>>>,
}

/// The documents of one lane that are at one node.
#[derive(Clone, Debug)]
pub(crate) struct AtNode {
    pub(crate) node: Arc<Node>,
    pub(crate) documents: u32,
    /// When the documents were handed over.
    pub(crate) since: Instant,
}

/// A node that holds lanes back.
#[derive(Debug)]
pub(crate) struct Slow {
    pub(crate) node: Arc<Node>,
    pub(crate) lanes: Vec<usize>,
    /// The documents that these lanes have at the node.
    pub(crate) documents: u64,
    /// When the node got the oldest of these documents.
    pub(crate) since: Instant,
}

/// An entry of the list, taken off when this is dropped.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    lane: &'a Mutex<Vec<AtNode>>,
    entry: AtNode,
}

/// A node that has had documents for this long is reported. A node that keeps up answers sooner.
const SLOW: Duration = Duration::from_secs(1);

/// Returns seconds, to a tenth.
pub(super) fn tenths(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

/// Whether two nodes are the same: a node's health stays when the topology changes.
fn same(one: &Node, other: &Node) -> bool {
    Arc::ptr_eq(&one.health, &other.health)
}

// === impl AtNodes ===

impl AtNodes {
    pub(crate) fn new(lanes: u32) -> Self {
        Self {
            lanes: (0..lanes).map(|_| Mutex::default()).collect(),
        }
    }

    /// Notes that a lane has documents at a node, until the result is dropped.
    pub(crate) fn list(&self, lane: u32, node: &Arc<Node>, documents: u32) -> Listed<'_> {
        let lane = &self.lanes[lane as usize];
        let entry = AtNode {
            node: Arc::clone(node),
            documents,
            since: Instant::now(),
        };
        lane.lock().push(entry.clone());
        Listed { lane, entry }
    }

    /// Returns the documents that a lane has at nodes.
    pub(crate) fn of(&self, lane: usize) -> Vec<AtNode> {
        self.lanes
            .get(lane)
            .map(|lane| lane.lock().clone())
            .unwrap_or_default()
    }

    /// Returns the nodes that have had documents for some time, the one that holds most lanes first.
    pub(crate) fn slow(&self, now: Instant) -> Vec<Slow> {
        let mut slow: Vec<Slow> = Vec::new();
        for lane in 0..self.lanes.len() {
            for one in self.of(lane) {
                if now.saturating_duration_since(one.since) < SLOW {
                    continue;
                }
                match slow.iter_mut().find(|known| same(&known.node, &one.node)) {
                    None => slow.push(Slow {
                        node: one.node,
                        lanes: vec![lane],
                        documents: u64::from(one.documents),
                        since: one.since,
                    }),
                    Some(known) => {
                        if known.lanes.last() != Some(&lane) {
                            known.lanes.push(lane);
                        }
                        known.documents += u64::from(one.documents);
                        known.since = known.since.min(one.since);
                    }
                }
            }
        }
        slow.sort_by_key(|one| (std::cmp::Reverse(one.lanes.len()), one.since));
        slow
    }
}

// === impl Listed ===

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let mut lane = self.lane.lock();
        let entry = &self.entry;
        // Of equal entries any one will do.
        let equal = |one: &AtNode| {
            same(&one.node, &entry.node) && one.documents == entry.documents && one.since == entry.since
        };
        if let Some(at) = lane.iter().position(equal) {
            lane.swap_remove(at);
        }
    }
}
