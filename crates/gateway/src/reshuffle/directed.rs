//! Documents with neither id nor routing, directed to the shard whose turn it is.
//!
//! [`bulk::plan`] asks for a shard, run by run; the answer comes from the [`Turns`] of the index, which all cores share
//! and which outlive reloads and changes of the topology. A [`Course`] is what one request was given: it says what is on
//! its way as long as it lives, and gives back what a node refused.

mod turns;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bulk::{Destination, Direct, Directing, IndexRoute, NodeIx, Part, Run};
use cluster::Snapshot;
use config::DirectRouting;

use crate::switches::{Switched, in_force};
use turns::Turns;
use wire::lock;

/// The turns of all indices, by cluster; as long as the process.
#[derive(Debug, Default)]
pub(crate) struct Directory(Mutex<BTreeMap<Arc<str>, Arc<Book>>>);

/// The turns of one cluster's indices.
#[derive(Debug, Default)]
pub(crate) struct Book(RwLock<HashMap<Box<str>, Arc<Turns>>>);

/// What one request's documents were directed to.
#[derive(Debug)]
pub(crate) struct Course<'a> {
    configured: DirectRouting,
    /// As it was when the request came.
    switched: Arc<Switched>,
    book: &'a Book,
    snapshot: &'a Snapshot,
    legs: RefCell<Vec<Leg>>,
}

/// Documents of an index that were given to a shard.
#[derive(Debug)]
struct Leg {
    turns: Arc<Turns>,
    index: Box<str>,
    shard: u32,
    node: Option<NodeIx>,
    docs: u32,
    bytes: u64,
}

impl Directory {
    /// Of a cluster, by its name in the configuration.
    pub(crate) fn of(&self, cluster: &Arc<str>) -> Arc<Book> {
        let mut books = lock(&self.0);
        Arc::clone(books.entry(Arc::clone(cluster)).or_default())
    }
}

// === impl Book ===

impl Book {
    /// The course of a request that is planned with `snapshot`.
    pub(crate) fn course<'a>(
        &'a self,
        configured: DirectRouting,
        switched: Arc<Switched>,
        snapshot: &'a Snapshot,
    ) -> Course<'a> {
        Course {
            configured,
            switched,
            book: self,
            snapshot,
            legs: RefCell::default(),
        }
    }

    fn turns(&self, index: &IndexRoute) -> Arc<Turns> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = known.get(&index.name) {
            return Arc::clone(turns);
        }
        drop(known);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= INDICES_MAX {
            // Indices of former days. Who comes back begins anew, which leaves what is there as it is.
            known.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        Arc::clone(known.entry(index.name.clone()).or_default())
    }
}

// === impl Course ===

impl Course<'_> {
    /// Whether there is anything to ask.
    pub(crate) fn is_any(&self) -> bool {
        self.configured != DirectRouting::Off || self.switched.directs_some()
    }

    /// Documents that were given a shard.
    pub(crate) fn docs(&self) -> u64 {
        self.legs.borrow().iter().map(|leg| u64::from(leg.docs)).sum()
    }

    /// Nothing of the request is sent as it was planned.
    pub(crate) fn give_back_all(&self) {
        self.give_back(|_| true);
    }

    /// No node has taken anything of this part.
    pub(crate) fn give_back_part(&self, part: &Part) {
        self.give_back(|leg| {
            leg.node
                .is_some_and(|node| part.destination == Destination::Node(node))
                && part.index.as_ref().is_none_or(|index| *index == leg.index)
                && part.shard.is_none_or(|shard| shard == leg.shard)
        });
    }

    fn give_back(&self, which: impl Fn(&Leg) -> bool) {
        for leg in self.legs.borrow_mut().iter_mut().filter(|leg| which(leg)) {
            leg.turns.give_back(leg.shard, leg.docs);
            leg.docs = 0;
        }
    }
}

impl Directing for Course<'_> {
    fn directs(&self, index: &str) -> Direct {
        match in_force(self.switched.directs(index), self.configured) {
            DirectRouting::Off => Direct::Off,
            DirectRouting::MintPacked => Direct::Mint,
            DirectRouting::Routing => Direct::Route,
        }
    }

    fn begin(&self, index: &IndexRoute) -> Option<Run> {
        // What a node that is up has to do, in requests of whatever kind, and how slow it is.
        let busy = |node: NodeIx| {
            let node = self.snapshot.node(node)?;
            node.health.is_up().then(|| node.health.cost())
        };
        self.book.turns(index).next(&index.primaries, busy)
    }

    fn end(&self, index: &IndexRoute, shard: u32, docs: u32, bytes: u64) {
        let turns = self.book.turns(index);
        turns.given(shard, docs, bytes);
        self.legs.borrow_mut().push(Leg {
            turns,
            index: index.name.clone(),
            shard,
            node: index.node(shard),
            docs,
            bytes,
        });
    }
}

impl Drop for Course<'_> {
    fn drop(&mut self) {
        for leg in self.legs.get_mut() {
            leg.turns.returned(leg.shard, leg.bytes);
        }
    }
}

/// Indices whose turns are kept; beyond it those that nobody writes to at the moment are forgotten.
const INDICES_MAX: usize = 10_000;
