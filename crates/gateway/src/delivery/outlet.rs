//! Gathers lanes' parcels for a node. Several lanes' parcels for one node travel as one request: a node pays
//! for each request once per shard that the request touches, its sync to the disk included, however few
//! documents come with it.
//!
//! A parcel of half a request's size or more goes by itself. Any smaller parcel waits while a request for the
//! same node is under way, for [`INTERVAL`] at most, and goes with the parcels that have come meanwhile; it
//! leaves at once if there is no such request. The [`Slot`] that combines clients' bulks in synchronous mode
//! decides here, too, when to send.
//!
//! Order is kept because all operations on a document are in one lane, because a lane has one batch under
//! way, with no document in it twice, and because each lane tries again by itself.
//!
//! Requests at a node at once are bounded by the node's limiter (adaptive concurrency), by `num_of_slices`,
//! and by `max_worker_size` over all nodes. But a node that has no request may always be sent one: so a node
//! that does not answer, and holds everything that `max_worker_size` allows, holds up nobody but its own
//! lanes. A request that takes much longer than others do at its node gives its place to another one.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::HashMap;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{Node, Permit};
use config::{Combine, Delivery};
use tokio::sync::oneshot;
use wire::guard::{self, Work};

use crate::delivery::gate::{Gate, GatePermit, WorkerLimit};
use crate::delivery::lane::Route;
use crate::delivery::outcome::Outcomes;
use crate::delivery::parcel::{Parcel, Transmitted, Wording};
use crate::delivery::refused_once::RefusedOnce;
use crate::delivery::taken_names::TakenNames;
use crate::gather::{Gathers, SlotAction, Slots, Target, Weight};

/// The outlets to all nodes, of one queue and consumer group.
pub(crate) struct Outlets {
    slots: RefCell<Slots<Outlet, Waiting>>,
    gates: RefCell<HashMap<usize, Rc<Gate>>>,
    workers: Rc<WorkerLimit>,
    pub(super) taken_names: TakenNames,
    pub(super) refused_once: RefusedOnce,
    slices_max: Option<usize>,
    settings: Combine,
}

/// The properties that parcels must share to travel together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outlet {
    target: Target,
    wording: Rc<Wording>,
}

impl Gathers for Outlet {}

/// How a parcel travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendMode {
    /// With parcels of other lanes, where there are any.
    Together,
    /// By itself: it may take long, and no other parcel is to wait for it.
    Apart,
    /// By itself, outside the bounds of requests at a node at once: whether the parcel goes through is not
    /// known, and a request that waits there for its timeout would keep others from being sent.
    Probe,
}

/// A parcel that waits for others.
struct Waiting {
    parcel: Parcel,
    tell: oneshot::Sender<Transmitted>,
}

/// The longest wait of a parcel behind a request under way.
const INTERVAL: Duration = Duration::from_millis(50);

// === impl Route ===

impl Route {
    /// Has a parcel delivered to a node, alone or with parcels of other lanes, and returns the outcomes of
    /// its operations.
    pub(crate) async fn dispatch(
        self: &Rc<Self>,
        way: SendMode,
        node: &Arc<Node>,
        outlet: Outlet,
        parcel: Parcel,
    ) -> Outcomes {
        if way == SendMode::Probe {
            return match self.transmit(node, vec![parcel], &Cell::new(None)).await.pop() {
                Some(Transmitted::Outcomes(outcomes)) => outcomes,
                Some(Transmitted::Alone { .. }) | None => {
                    unreachable!("a parcel by itself is told its own outcomes")
                }
            };
        }
        if way == SendMode::Apart {
            return self.alone(node, parcel).await.0;
        }
        if self.outlets.is_large(&parcel) {
            return self.alone(node, parcel).await.0;
        }
        let alone = self
            .outlets
            .slots
            .borrow_mut()
            .alone(&outlet, node, Instant::now());
        if alone {
            let mut under_way = UnderWay::new(self, &outlet, (1, parcel.bytes));
            let (outcomes, began) = self.alone(node, parcel).await;
            under_way.began = began;
            drop(under_way);
            self.consider(&outlet);
            return outcomes;
        }
        let (tell, told) = oneshot::channel();
        let again = parcel.clone();
        let waiting = Waiting { parcel, tell };
        self.outlets.slots().push(&outlet, node, waiting, Instant::now());
        self.consider(&outlet);
        match told.await {
            Ok(Transmitted::Outcomes(outcomes)) => outcomes,
            Ok(Transmitted::Alone { doubt }) => {
                let (outcomes, _) = self.alone(node, again).await;
                if doubt { outcomes.in_doubt() } else { outcomes }
            }
            // The gateway failed on several lanes' parcels, or on their answer: sending each parcel by itself
            // shows which one was to blame.
            Err(_) => self.alone(node, again).await.0.in_doubt(),
        }
    }

    /// Sends a parcel by itself; returns its outcomes, and when the request began.
    async fn alone(&self, node: &Arc<Node>, parcel: Parcel) -> (Outcomes, Instant) {
        let leave = self.admit(node).await;
        let began = Instant::now();
        match self.send_with(leave, node, vec![parcel]).await.pop() {
            Some(Transmitted::Outcomes(outcomes)) => (outcomes, began),
            Some(Transmitted::Alone { .. }) | None => {
                unreachable!("a parcel by itself is told its own outcomes")
            }
        }
    }

    /// Waits until a node may be sent one more request. The leave of the node's limiter comes first: a parcel
    /// that waits for a slow node must not keep others from being sent to other nodes.
    async fn admit(&self, node: &Arc<Node>) -> (Option<Permit>, GatePermit) {
        let permit = match self.group.settings.adaptive {
            true => Some(node.health.limiter().acquire().await),
            false => None,
        };
        let pass = self.outlets.workers.pass(&self.outlets.gate(node)).await;
        (permit, pass)
    }

    /// Sends parcels with the leave of their node. A request that takes much longer than others do there
    /// gives its place back: the node keeps it until something else has happened, and others would wait for
    /// that.
    async fn send_with(
        &self,
        (permit, pass): (Option<Permit>, GatePermit),
        node: &Arc<Node>,
        parcels: Vec<Parcel>,
    ) -> Vec<Transmitted> {
        let (permit, gate, began) = (Cell::new(permit), self.outlets.gate(node), Instant::now());
        let mut sending = pin!(self.transmit(node, parcels, &permit));
        let told = match tokio::time::timeout(gate.long(), &mut sending).await {
            Ok(told) => told,
            Err(_) => {
                drop((permit.take(), pass));
                sending.await
            }
        };
        gate.lasted(began.elapsed());
        told
    }

    /// Sends the parcels that wait at an outlet, or makes sure that they will be sent.
    fn consider(self: &Rc<Self>, outlet: &Outlet) {
        let outlets = &self.outlets;
        let step = outlets
            .slots()
            .next_step(outlet, &outlets.settings, Instant::now());
        match step {
            SlotAction::Nothing => {}
            SlotAction::Send => self.depart(outlet),
            SlotAction::Wait { longest, round } => {
                let (route, outlet) = (Rc::clone(self), outlet.clone());
                guard::spawn(Work::Parcels, async move {
                    tokio::time::sleep(longest).await;
                    let present = route.outlets.slots().round(&outlet);
                    if present == Some(round) {
                        route.depart(&outlet);
                    }
                });
            }
        }
    }

    /// Sends the parcels that wait at an outlet as soon as its node may be sent one more request.
    fn depart(self: &Rc<Self>, outlet: &Outlet) {
        let Some(node) = self.outlets.slots().ask_always(outlet) else {
            return;
        };
        let (route, outlet) = (Rc::clone(self), outlet.clone());
        guard::spawn(Work::Parcels, async move {
            let asks = Asks(&route, &outlet);
            let leave = route.admit(&node).await;
            drop(asks);
            let Some((node, waiting)) = route.outlets.take(&outlet, &node) else {
                return;
            };
            // More may have waited than one request takes.
            route.consider(&outlet);
            let (parcels, lanes): (Vec<_>, Vec<_>) =
                waiting.into_iter().map(|one| (one.parcel, one.tell)).unzip();
            let weight = (lanes.len(), parcels.iter().map(|parcel| parcel.bytes).sum());
            let under_way = UnderWay::new(&route, &outlet, weight);
            let told = route.send_with(leave, &node, parcels).await;
            drop(under_way);
            for (lane, told) in lanes.into_iter().zip(told) {
                // A lane that has ended needs no answer.
                drop(lane.send(told));
            }
            route.consider(&outlet);
        });
    }
}

/// A wait for a node's leave to send the parcels at an outlet, until this is dropped.
struct Asks<'a>(&'a Rc<Route>, &'a Outlet);

impl Drop for Asks<'_> {
    fn drop(&mut self) {
        let Self(route, outlet) = self;
        route.outlets.slots().got_leave(outlet);
        if std::thread::panicking() {
            route.consider(outlet);
        }
    }
}

/// A request of an outlet that is under way, until this is dropped.
struct UnderWay<'a> {
    route: &'a Rc<Route>,
    outlet: &'a Outlet,
    /// The number of its parcels, and their bytes.
    weight: (usize, u64),
    began: Instant,
}

impl<'a> UnderWay<'a> {
    fn new(route: &'a Rc<Route>, outlet: &'a Outlet, weight: (usize, u64)) -> Self {
        Self {
            route,
            outlet,
            weight,
            began: Instant::now(),
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let lasted = self.began.elapsed();
        let mut slots = self.route.outlets.slots();
        slots.returned(self.outlet, self.weight, lasted, Instant::now());
        drop(slots);
        if std::thread::panicking() {
            self.route.consider(self.outlet);
        }
    }
}

// === impl Outlet ===

impl Outlet {
    /// Names an outlet. `node` is `None` where any node may take the parcels.
    pub(crate) fn new(
        node: Option<&Arc<Node>>,
        index: Option<&str>,
        shard: Option<u32>,
        parcel: &Parcel,
    ) -> Self {
        Self {
            // A large parcel goes by itself.
            target: Target::new(node, index, shard, false, 0),
            wording: Rc::clone(&parcel.wording),
        }
    }
}

fn address(node: &Node) -> usize {
    Arc::as_ptr(&node.health).addr()
}

// === impl Outlets ===

impl Outlets {
    /// Makes outlets whose requests have at most `operations_max` operations.
    pub(crate) fn new(settings: &Delivery, operations_max: usize) -> Self {
        let docs_max = settings.batch_docs_max.clamp(1, operations_max);
        Self {
            slots: RefCell::new(Slots::new(1, settings.adaptive)),
            gates: RefCell::default(),
            workers: Rc::new(WorkerLimit::new(settings.workers_max)),
            taken_names: TakenNames::default(),
            refused_once: RefusedOnce::default(),
            slices_max: settings.slices_max,
            settings: Combine {
                enabled: true,
                flush_bytes: settings.batch_bytes_max as u64,
                docs_max: u32::try_from(docs_max).unwrap_or(u32::MAX),
                requests_max: u32::MAX,
                interval: INTERVAL,
                adaptive: settings.adaptive,
            },
        }
    }

    /// Returns the slots, which have the parcels that wait for each outlet. They are borrowed for one step at
    /// a time.
    fn slots(&self) -> RefMut<'_, Slots<Outlet, Waiting>> {
        self.slots.borrow_mut()
    }

    /// Whether a parcel is large enough to go by itself.
    fn is_large(&self, parcel: &Parcel) -> bool {
        let Combine {
            flush_bytes,
            docs_max,
            ..
        } = self.settings;
        parcel.bytes > flush_bytes / 2 || u64::from(parcel.docs) * 2 > u64::from(docs_max)
    }

    /// Returns the node for a parcel that any node may take, if such parcels gather for one.
    pub(crate) fn gathering(&self, outlet: &Outlet) -> Option<Arc<Node>> {
        let node = self.slots().node(outlet);
        node.filter(|node| node.health.is_up())
    }

    /// Takes the parcels that go with one request now that a node has given leave.
    fn take(&self, outlet: &Outlet, node: &Arc<Node>) -> Option<(Arc<Node>, Vec<Waiting>)> {
        let most = (self.gate(node).bytes_max(), self.settings.docs_max.into());
        self.slots().take(outlet, most, Instant::now())
    }

    pub(crate) fn gate(&self, node: &Node) -> Rc<Gate> {
        let mut gates = self.gates.borrow_mut();
        if gates.len() >= GATES_KEPT {
            gates.retain(|_, gate| !gate.is_idle());
        }
        let gate = gates
            .entry(address(node))
            .or_insert_with(|| Rc::new(Gate::new(self.slices_max, self.settings.flush_bytes)));
        Rc::clone(gate)
    }
}

// === impl Waiting ===

impl Weight for Waiting {
    fn bytes(&self) -> u64 {
        self.parcel.bytes
    }

    fn docs(&self) -> u32 {
        self.parcel.docs
    }
}

/// The number of gates beyond which idle ones are removed.
const GATES_KEPT: usize = 1024;
