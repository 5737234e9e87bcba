//! One choice of nodes, kept up to date with the cluster, and its turns.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tracing::warn;
use wire::PerCore;

use crate::address::Address;
use crate::config::NodeChoice;
use crate::node::Node;
use crate::pick::{PickReason, Rotations, RoundRobin};
use crate::snapshot::Snapshot;
use crate::status::ChoiceStatus;

/// Chooses nodes for requests that no primary calls for, as one [`NodeChoice`] says. All cores share a
/// chooser, and each has its own turns. Returned by [`Cluster::chooser`](crate::Cluster::chooser).
#[derive(Debug)]
pub struct Chooser {
    cluster: String,
    choice: NodeChoice,
    made: ArcSwapOption<Made>,
    /// The nodes that were there when the cluster was first read, for a choice that is frozen.
    first: OnceLock<Vec<Address>>,
    round_robins: PerCore<RoundRobins>,
    /// Whether the log has been told that the choice admits no node.
    warned: AtomicBool,
}

/// One core's round robins.
#[derive(Debug)]
struct RoundRobins {
    requests: RoundRobin,
    documents: RoundRobin,
}

/// The rotations of one snapshot.
#[derive(Debug)]
struct Made {
    generation: u64,
    rotations: Rotations,
}

/// The choosers that are in use.
#[derive(Debug, Default)]
pub(crate) struct Choosers(Mutex<Vec<Weak<Chooser>>>);

impl Chooser {
    fn new(cluster: &str, choice: NodeChoice) -> Self {
        Self {
            cluster: cluster.to_owned(),
            choice,
            made: ArcSwapOption::empty(),
            first: OnceLock::new(),
            round_robins: PerCore::default(),
            warned: AtomicBool::new(false),
        }
    }

    /// Returns this core's next node: weighted round robin among the healthy nodes of the choice, in which
    /// slow nodes are passed over by requests that any node may take. `not` lists nodes that were tried
    /// already. The pick falls back to nodes outside the choice, then to unhealthy ones: some node is always
    /// returned.
    ///
    /// # Panics
    /// Never: a snapshot has at least one node.
    pub fn pick(&self, snapshot: &Snapshot, reason: PickReason, not: &[&Node]) -> Arc<Node> {
        let own = self.round_robins.own_or(|place| RoundRobins {
            requests: RoundRobin::beginning_at(place),
            documents: RoundRobin::beginning_at(place),
        });
        let round_robin = match reason {
            PickReason::Request => &own.requests,
            PickReason::Documents => &own.documents,
        };
        let pick = |rotations: &Rotations| rotations.pick(&snapshot.nodes, round_robin, reason, not);
        self.look(snapshot, pick)
            .expect("a snapshot has at least the endpoints, of which a configuration has one or more")
            .clone()
    }

    /// Reads something from the rotations of a snapshot; they are rebuilt when the snapshot is another one
    /// than the last time. Reading counts no reference, so it touches nothing that other cores write.
    fn look<T>(&self, snapshot: &Snapshot, read: impl FnOnce(&Rotations) -> T) -> T {
        match &*self.made.load() {
            Some(made) if made.generation == snapshot.generation => read(&made.rotations),
            _ => read(&self.make(snapshot).rotations),
        }
    }

    fn make(&self, snapshot: &Snapshot) -> Arc<Made> {
        let first = (self.choice.frozen && snapshot.learnt()).then(|| {
            let addresses = || snapshot.nodes.iter().map(|node| node.address.clone()).collect();
            self.first.get_or_init(addresses).as_slice()
        });
        let rotations = Rotations::new(&snapshot.nodes, &self.choice, first);
        let ignored = rotations.filter_ignored;
        if ignored && !self.warned.swap(true, Relaxed) {
            warn!(
                cluster = self.cluster,
                "the filter and weights of an elasticsearch filter leave no node and are ignored"
            );
        } else if !ignored {
            self.warned.store(false, Relaxed);
        }
        let made = Arc::new(Made {
            generation: snapshot.generation,
            rotations,
        });
        self.made.store(Some(Arc::clone(&made)));
        made
    }

    fn status(&self, snapshot: &Snapshot) -> ChoiceStatus {
        self.look(snapshot, |rotations| {
            let weights = snapshot.nodes.iter().zip(rotations.weights());
            ChoiceStatus {
                nodes: weights
                    .filter(|(_, weight)| **weight > 0)
                    .map(|(node, weight)| (node.name.clone(), *weight))
                    .collect(),
                ignored: rotations.filter_ignored,
            }
        })
    }
}

// === impl Choosers ===

impl Choosers {
    /// Returns the chooser of this choice: the one that is already in use, or a new one.
    pub(crate) fn get(&self, cluster: &str, choice: NodeChoice) -> Arc<Chooser> {
        let mut held = self.0.lock();
        held.retain(|chooser| chooser.strong_count() > 0);
        let mut living = held.iter().filter_map(Weak::upgrade);
        if let Some(same) = living.find(|chooser| chooser.choice == choice) {
            return same;
        }
        let chooser = Arc::new(Chooser::new(cluster, choice));
        held.push(Arc::downgrade(&chooser));
        chooser
    }

    pub(crate) fn status(&self, snapshot: &Snapshot) -> Vec<ChoiceStatus> {
        let held = self.0.lock();
        let living: Vec<Arc<Chooser>> = held.iter().filter_map(Weak::upgrade).collect();
        drop(held);
        living.iter().map(|chooser| chooser.status(snapshot)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes;

    #[test]
    fn a_pick_counts_no_reference_to_rotations_that_are_up_to_date() {
        let chooser = Chooser::new("c", NodeChoice::default());
        let nodes = vec![crate::testing::node("a", &[]), crate::testing::node("b", &[])];
        let table = routes::nothing(None, nodes.len());
        let snapshot = |generation| Snapshot::new(generation, nodes.clone(), table.clone());
        let first = snapshot(1);
        chooser.pick(&first, PickReason::Request, &[]);
        let made = chooser.made.load_full().unwrap();
        chooser.look(&first, |_| assert_eq!(Arc::strong_count(&made), 2));
        // Another snapshot has other rotations.
        chooser.pick(&snapshot(2), PickReason::Request, &[]);
        assert_eq!((Arc::strong_count(&made), made.generation), (1, 1));
        assert_eq!(chooser.made.load_full().unwrap().generation, 2);
    }
}
