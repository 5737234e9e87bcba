//! A lane of a queue on its way to a cluster, and the state that the lanes of one thread share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bulk::{IdMint, Scratch};
use cluster::{Cluster, NodeChoice, Snapshot, WatchState};
use http::HeaderValue;
use tokio::sync::watch;
use wire::{Charge, Worker};

use crate::delivery::doubt::Resent;
use crate::delivery::flights::Flights;
use crate::delivery::memory::BudgetShares;
use crate::delivery::name_history::NameHistory;
use crate::delivery::outlet::Outlets;
use crate::delivery::suspect::Suspect;
use crate::delivery::unwritten::Unwritten;
use crate::live::GatewayState;
use crate::metrics::Counters;
use crate::nodes::Outbound;
use crate::queue::{Fronts, Group, LaneActivity, LaneReader};
use crate::request_id::RequestId;

/// The state that the lanes of one thread share.
pub(crate) struct Route {
    pub(crate) shared: Arc<GatewayState>,
    pub(crate) group: Arc<Group>,
    pub(crate) worker: Worker,
    /// The outlets where the lanes' parcels for a node gather.
    pub(crate) outlets: Outlets,
    /// The id that the thread's requests carry in the log.
    pub(crate) request_id: RequestId,
    pub(crate) counters: Arc<Counters>,
    pub(crate) outbound: RefCell<Option<(Arc<Cluster>, Rc<Outbound>)>>,
    pub(crate) ids: RefCell<IdMint>,
    pub(crate) scratch: RefCell<Scratch>,
    /// The memory that its lanes may hold in any case: given back when this is dropped.
    pub(crate) _parts: BudgetShares,
    /// The number of lanes that have documents to deliver now.
    pub(crate) busy: Cell<usize>,
    pub(crate) fronts: Fronts,
    pub(crate) resent: RefCell<Resent>,
    /// Where names have led, for a queue in Kafka.
    pub(crate) led_to: RefCell<NameHistory>,
    /// Refusals of parked operations whose dead letters the disk does not take.
    pub(crate) unwritten: RefCell<Unwritten>,
    /// The parts under way for which no lane waits.
    pub(crate) flights: Flights,
}

/// One lane on its way to the cluster.
pub(crate) struct Lane {
    pub(crate) route: Rc<Route>,
    pub(crate) number: u32,
    pub(crate) reader: LaneReader,
    /// The lane's knowledge of records that the gateway failed on.
    pub(crate) suspect: Suspect,
    pub(crate) stop: watch::Receiver<bool>,
}

// === impl Route ===

impl Route {
    /// Returns the way to the cluster as the newest configuration describes it.
    pub(crate) fn outbound(&self) -> Rc<Outbound> {
        let live = self.shared.live.load();
        let settings = &self.group.settings;
        let cluster = &live.clusters[&settings.cluster];
        let mut outbound = self.outbound.borrow_mut();
        match &*outbound {
            Some((known, outbound)) if Arc::ptr_eq(known, cluster) => Rc::clone(outbound),
            _ => {
                let made = Rc::new(Outbound::new(
                    Arc::clone(cluster),
                    NodeChoice::default(),
                    &settings.sending,
                    1,
                    self.worker.pool().clone(),
                    Arc::clone(&self.counters),
                ));
                *outbound = Some((Arc::clone(cluster), Rc::clone(&made)));
                made
            }
        }
    }

    /// Returns how many operations a request may have: as many as the pipeline says, and as many as there is
    /// memory for if all of them are refused.
    pub(crate) fn operations_max(&self) -> usize {
        let by_memory = self.shared.delivery_memory.operations_max();
        self.group.settings.batch_docs_max.clamp(1, by_memory)
    }

    /// Has the memory for bodies bear a copy that is made of a large document for the disk, until this is
    /// dropped; none of a small one. Waits a while for room, since bodies are released meanwhile.
    pub(crate) async fn large_copy(&self, bytes: usize) -> Option<Charge> {
        if bytes <= LARGE_COPY {
            return None;
        }
        Some(self.shared.body_memory.hold_in_time(bytes, ROOM_WITHIN).await)
    }

    /// Returns the gateway's own account at the cluster.
    pub(crate) fn account(&self, outbound: &Outbound) -> Option<HeaderValue> {
        outbound
            .cluster()
            .config()
            .credentials
            .authorization()
            .ok()
            .flatten()
    }
}

// === impl Lane ===

impl Lane {
    /// Waits until the cluster's topology is known: before that, nobody can say which operations are on one
    /// document, or where they go. `None` if the gateway stops meanwhile.
    pub(crate) async fn topology(&mut self) -> Option<(Rc<Outbound>, Arc<Snapshot>)> {
        let mut waited = false;
        loop {
            if let Some(known) = self.known_topology() {
                if waited {
                    let group = &self.route.group;
                    group.set(self.number, LaneActivity::Delivering, None);
                }
                self.route.look(&known.1.table);
                return Some(known);
            }
            waited = true;
            let outbound = self.route.outbound();
            tokio::select! {
                biased;
                () = stopped(&mut self.stop) => return None,
                // A reload may have put another cluster in its place.
                _ = outbound.cluster().learnt(LOOK_AGAIN) => {}
            }
        }
    }

    /// Returns the cluster's topology; if the topology is not known yet, the lane's state says so.
    pub(crate) fn known_topology(&self) -> Option<(Rc<Outbound>, Arc<Snapshot>)> {
        let outbound = self.route.outbound();
        let snapshot = outbound.cluster().snapshot();
        if snapshot.learnt() || !outbound.cluster().config().discovery {
            return Some((outbound, snapshot));
        }
        let status = outbound.cluster().status();
        let activity = match status.state {
            WatchState::Unauthorized => LaneActivity::Paused,
            _ => LaneActivity::Retrying,
        };
        let known = status.warnings.last().map(|why| format!(": {why}"));
        let why = format!(
            "the cluster's topology is not known yet{}",
            known.unwrap_or_default()
        );
        self.route.group.set(self.number, activity, Some(&why));
        None
    }

    /// Waits; `None` if the gateway stops meanwhile.
    pub(crate) async fn rest(&mut self, time: Duration) -> Option<()> {
        self.route.group.rests_until(self.number, Instant::now() + time);
        tokio::select! {
            biased;
            () = stopped(&mut self.stop) => None,
            () = tokio::time::sleep(time) => Some(()),
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }
}

pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Without a sender the gateway is gone, which counts as being told to stop.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// How long a lane waits for a cluster before it looks at the configuration again.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Copies of smaller documents are counted nowhere: a lane makes one at a time.
const LARGE_COPY: usize = 1 << 20;
/// How long a large copy waits for room; then it is made all the same.
const ROOM_WITHIN: Duration = Duration::from_secs(2);
