//! Plans bulks: which operation goes to which node, or to which lane of a queue.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bulk::{Ask, Directing, IdMint, NullId, Plan, RouteTable, Scratch, Verdict};
use cluster::Snapshot;
use config::{BulkReshuffle, Level};
use wire::guard::fault;
use wire::{Buffer, Pool};

use crate::bulk_request::BulkHead;
use crate::clock::now_ms;
use crate::flow_counts::FlowCounts;
use crate::metrics::Counters;
use crate::nodes::{Fallback, Outbound};
use crate::own_copy::OwnCopy;
use crate::reshuffle::directed::{Assignments, RoundRobins};
use crate::scratch::with_scratch;
use crate::split::Combiner;
use crate::switches::{ClusterSwitches, Switched};
use crate::turns::{AT_ONCE_BYTES, Turns};

/// Plans bulks and splits them, with one instance per core.
pub(crate) struct Reshuffle {
    pub(crate) outbound: Rc<Outbound>,
    /// Gathers parts of different requests while that is switched on; `None` in asynchronous mode.
    pub(crate) combiner: Option<Combiner>,
    pub(crate) fallback: Fallback,
    pub(crate) settings: BulkReshuffle,
    /// In asynchronous mode: the lanes of the queue.
    pub(crate) lanes: Option<Lanes>,
    /// The round robins that direct documents without id and routing.
    pub(crate) round_robins: Arc<RoundRobins>,
    pub(crate) switches: ClusterSwitches,
    /// This core's copy of the switches, which requests keep.
    pub(crate) switched: OwnCopy<Switched>,
    pub(crate) pool: Pool,
    pub(crate) ids: RefCell<IdMint>,
    pub(crate) scratch: RefCell<Scratch>,
    /// The counts of the flow that the filter is in.
    pub(crate) flow: Arc<FlowCounts>,
    pub(crate) counters: Arc<Counters>,
}

/// The lanes of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes {
    pub(crate) count: u32,
    /// Whether a document's lane follows from its id alone.
    pub(crate) by_id: bool,
    /// Whether a lane's documents for one node may lie next to each other.
    pub(crate) nodes_apart: bool,
}

/// A bulk that is planned, besides its head and body.
#[derive(Clone, Copy)]
pub(crate) struct BulkRequest<'a> {
    /// The path and query that count.
    pub(crate) target: &'a str,
    pub(crate) bulk_head: &'a BulkHead<'a>,
    pub(crate) arrived: Instant,
}

/// What a bulk is planned by.
pub(crate) struct PlanBasis<'a> {
    pub(crate) bulk: BulkRequest<'a>,
    pub(crate) snapshot: &'a Arc<Snapshot>,
    pub(crate) assignments: &'a Assignments<'a>,
    pub(crate) ask: &'a Ask<'a>,
}

// === impl Reshuffle ===

impl Reshuffle {
    /// Creates the assignments of a request that is planned with `snapshot`.
    pub(crate) fn assignments<'a>(&'a self, snapshot: &'a Snapshot) -> Assignments<'a> {
        let switched = self.switched.of(&self.switches.now());
        let configured = self.settings.direct_routing;
        self.round_robins.assignments(configured, switched, snapshot)
    }

    /// Returns what to ask of the plan of a request. `assignments` directs documents without id and routing;
    /// with `None` they stay as they are.
    pub(crate) fn ask<'a>(
        &self,
        head: &'a BulkHead<'_>,
        assignments: Option<&'a Assignments<'_>>,
    ) -> Ask<'a> {
        let assignments = assignments.filter(|assignments| assignments.is_any());
        Ask {
            default_index: head.index.as_deref(),
            url_routing: head.routing.as_deref(),
            url_pipeline: head.pipeline.as_deref(),
            require_alias: head.require_alias,
            require_data_stream: head.require_data_stream,
            suppose_new: false,
            without_types: false,
            compatible_with_7: head.compatible_with_7,
            level: match self.settings.level {
                _ if let Some(lanes) = self.lanes => bulk::Level::Lane(lanes.count),
                Level::Cluster => bulk::Level::Cluster,
                Level::Node => bulk::Level::Node,
                Level::Index => bulk::Level::Index,
                Level::Shard => bulk::Level::Shard,
            },
            lanes_by_id: self.lanes.is_some_and(|lanes| lanes.by_id),
            nodes_apart: self.lanes.is_some_and(|lanes| lanes.nodes_apart),
            null_id: match (self.lanes, self.settings.fix_null_id) {
                (Some(_), _) => NullId::Always,
                (None, true) => NullId::Mint,
                (None, false) => NullId::Keep,
            },
            direct: assignments.map(|assignments| assignments as &dyn Directing),
        }
    }

    /// Plans a body. Other tasks get turns in between if the body may have many operations.
    pub(crate) async fn plan(&self, body: &[u8], ask: &Ask<'_>, table: &RouteTable) -> Verdict {
        if body.len() <= AT_ONCE_BYTES {
            return self.plan_at_once(body, ask, table);
        }
        fault("request", body);
        let (mut ids, mut scratch, mut turns) = (own_mint(), self.scratch.take(), Turns::begin());
        scratch.count_shards(self.counters.heat.is_wanted());
        let turn = async || turns.pass().await;
        let planned = bulk::plan_in_turns(body, ask, table, &mut ids, &mut scratch, turn);
        let verdict = planned.await;
        self.scratch.replace(scratch);
        verdict
    }

    /// Counts the documents of a plan that is about to be sent, by shard.
    pub(crate) fn count_shards(&self, plan: &Plan, snapshot: &Snapshot) {
        let cluster = &self.settings.cluster;
        self.counters.heat.add(cluster, &snapshot.table, plan.touched());
    }

    /// Plans a body of few operations.
    pub(crate) fn plan_at_once(&self, body: &[u8], ask: &Ask<'_>, table: &RouteTable) -> Verdict {
        let mut ids = self.mint(ask);
        fault("request", body);
        with_scratch(&self.scratch, |scratch| {
            scratch.count_shards(self.counters.heat.is_wanted());
            bulk::plan(body, ask, table, &mut ids, scratch)
        })
    }

    /// Returns whether the whole body could be queued if its missing indices existed. No index is created for
    /// a body that the cluster would refuse as a whole.
    pub(crate) async fn is_acceptable_but_new(&self, body: &[u8], ask: &Ask<'_>, table: &RouteTable) -> bool {
        let supposed = Ask {
            suppose_new: true,
            direct: None,
            ..*ask
        };
        match self.plan(body, &supposed, table).await {
            Verdict::Plan(plan) => {
                self.scratch.borrow_mut().recycle(plan);
                true
            }
            Verdict::Pass(_) => false,
        }
    }

    /// Returns the maker of ids. Its clock is set if ids may have to be made.
    fn mint(&self, ask: &Ask<'_>) -> RefMut<'_, IdMint> {
        let mut ids = self.ids.borrow_mut();
        if ask.null_id != NullId::Keep || ask.direct.is_some() {
            ids.tick(now_ms());
        }
        ids
    }

    /// Plans a bulk for the queue, and writes the items of its answer: it is answered before it is executed.
    /// `ids` makes its ids, if they are not to be new ones.
    pub(crate) async fn plan_acknowledged(
        &self,
        body: &[u8],
        ids: Option<IdMint>,
        &PlanBasis { snapshot, ask, .. }: &PlanBasis<'_>,
    ) -> (Verdict, Buffer) {
        let (mut items, table) = (self.pool.take(bulk::acknowledged_bytes(body)), &snapshot.table);
        let out = items.as_mut_vec();
        fault("request", body);
        if body.len() > AT_ONCE_BYTES {
            let mut ids = ids.unwrap_or_else(own_mint);
            let (mut scratch, mut turns) = (self.scratch.take(), Turns::begin());
            let (ids, kept, turn) = (&mut ids, &mut scratch, async || turns.pass().await);
            let planned = bulk::plan_acknowledged_in_turns(body, ask, table, ids, kept, out, turn);
            let verdict = planned.await;
            self.scratch.replace(scratch);
            items.charge_growth();
            return (verdict, items);
        }
        let verdict = with_scratch(&self.scratch, |scratch| match ids {
            None => bulk::plan_acknowledged(body, ask, table, &mut self.mint(ask), scratch, out),
            Some(mut ids) => bulk::plan_acknowledged(body, ask, table, &mut ids, scratch, out),
        });
        items.charge_growth();
        (verdict, items)
    }
}

/// Makes ids for one body alone. While a body is planned in turns, other bodies are planned too, and the ids
/// of one body must be all that its mint makes.
fn own_mint() -> IdMint {
    let mut ids = IdMint::new(fastrand::u64(..));
    ids.tick(now_ms());
    ids
}
