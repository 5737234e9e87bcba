//! Directs documents with neither id nor routing to a shard chosen by round robin.
//!
//! [`bulk::plan`] asks for a shard, run by run. The answer comes from the [`RoundRobin`] of the index, which
//! all cores share and which outlives reloads and changes of the topology. [`Assignments`] records what one
//! request was given: while it lives, its documents count as on their way, and it gives back what a node
//! refused.

mod round_robin;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use bulk::{Destination, Direct, Directing, IndexRoute, NodeIx, Part, Run};
use cluster::Snapshot;
use config::DirectRouting;
use parking_lot::Mutex;

use crate::switches::{Switched, in_force};
use round_robin::RoundRobin;

/// The round robins of all indices, by cluster. It lives as long as the process.
#[derive(Debug, Default)]
pub(crate) struct Directory(Mutex<BTreeMap<Arc<str>, Arc<RoundRobins>>>);

/// The round robins of one cluster's indices.
#[derive(Debug, Default)]
#[allow(
    clippy::disallowed_types,
    reason = "written once for each index; held for one look"
)]
pub(crate) struct RoundRobins(parking_lot::RwLock<HashMap<Box<str>, Arc<RoundRobin>>>);

/// The shards that one request's documents were directed to.
#[derive(Debug)]
pub(crate) struct Assignments<'a> {
    configured: DirectRouting,
    /// The switches as they were when the request came.
    switched: Rc<Switched>,
    round_robins: &'a RoundRobins,
    snapshot: &'a Snapshot,
    given: RefCell<Vec<Assignment>>,
}

/// Documents of one index that were given to one shard.
#[derive(Debug)]
struct Assignment {
    round_robin: Arc<RoundRobin>,
    index: Box<str>,
    shard: u32,
    node: Option<NodeIx>,
    docs: u32,
    bytes: u64,
}

impl Directory {
    /// Returns the round robins of a cluster, by its name in the configuration.
    pub(crate) fn of(&self, cluster: &Arc<str>) -> Arc<RoundRobins> {
        let mut clusters = self.0.lock();
        Arc::clone(clusters.entry(Arc::clone(cluster)).or_default())
    }
}

// === impl RoundRobins ===

impl RoundRobins {
    /// Creates the assignments of a request that is planned with `snapshot`.
    pub(crate) fn assignments<'a>(
        &'a self,
        configured: DirectRouting,
        switched: Rc<Switched>,
        snapshot: &'a Snapshot,
    ) -> Assignments<'a> {
        Assignments {
            configured,
            switched,
            round_robins: self,
            snapshot,
            given: RefCell::default(),
        }
    }

    fn round_robin(&self, index: &IndexRoute) -> Arc<RoundRobin> {
        wire::shared::touches("round robins of indices");
        let known = self.0.read();
        if let Some(round_robin) = known.get(&index.name) {
            return Arc::clone(round_robin);
        }
        drop(known);
        let mut known = self.0.write();
        if known.len() >= INDICES_MAX {
            // Drops indices that are not written to any more. One that comes back starts anew, which leaves
            // the documents in it where they are.
            known.retain(|_, round_robin| Arc::strong_count(round_robin) > 1);
        }
        Arc::clone(known.entry(index.name.clone()).or_default())
    }
}

// === impl Assignments ===

impl Assignments<'_> {
    /// Returns whether any index may be directed, so that it is worth asking.
    pub(crate) fn is_any(&self) -> bool {
        self.configured != DirectRouting::Off || self.switched.directs_some()
    }

    /// Returns the number of documents that were given a shard.
    pub(crate) fn docs(&self) -> u64 {
        self.given
            .borrow()
            .iter()
            .map(|given| u64::from(given.docs))
            .sum()
    }

    /// Gives everything back: nothing of the request is sent as it was planned.
    pub(crate) fn give_back_all(&self) {
        self.give_back(|_| true);
    }

    /// Gives back the documents of a part that no node has taken.
    pub(crate) fn give_back_part(&self, part: &Part) {
        self.give_back(|given| {
            given
                .node
                .is_some_and(|node| part.destination == Destination::Node(node))
                && part.index.as_ref().is_none_or(|index| *index == given.index)
                && part.shard.is_none_or(|shard| shard == given.shard)
        });
    }

    fn give_back(&self, which: impl Fn(&Assignment) -> bool) {
        for given in self.given.borrow_mut().iter_mut().filter(|given| which(given)) {
            given.round_robin.give_back(given.shard, given.docs);
            given.docs = 0;
        }
    }
}

impl Directing for Assignments<'_> {
    fn directs(&self, index: &str) -> Direct {
        match in_force(self.switched.directs(index), self.configured) {
            DirectRouting::Off => Direct::Off,
            DirectRouting::MintPacked => Direct::Mint,
            DirectRouting::Routing => Direct::Route,
        }
    }

    fn begin(&self, index: &IndexRoute) -> Option<Run> {
        // The work and slowness of a node that is up, counting requests of every kind.
        let busy = |node: NodeIx| {
            let node = self.snapshot.node(node)?;
            node.health.is_up().then(|| node.health.cost())
        };
        self.round_robins.round_robin(index).next(&index.primaries, busy)
    }

    fn end(&self, index: &IndexRoute, shard: u32, docs: u32, bytes: u64) {
        let round_robin = self.round_robins.round_robin(index);
        round_robin.given(shard, docs, bytes);
        self.given.borrow_mut().push(Assignment {
            round_robin,
            index: index.name.clone(),
            shard,
            node: index.node(shard),
            docs,
            bytes,
        });
    }
}

impl Drop for Assignments<'_> {
    fn drop(&mut self) {
        for given in self.given.get_mut() {
            given.round_robin.returned(given.shard, given.bytes);
        }
    }
}

/// The number of indices whose round robins are kept. Beyond it, those that are not being written to are
/// forgotten.
const INDICES_MAX: usize = 10_000;
