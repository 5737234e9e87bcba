//! Sends operations of a key: what is for one node apart from what is for others, so that nothing waits for a
//! node that it is not for.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{Node, Snapshot};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{sleep_until, timeout};
use wire::PooledBytes;
use wire::guard::{self, Panicked, Work as GuardedWork, guarded};

use super::at_nodes::{TriesAtNodes, TryAtNode};
use super::going_on::{Leaves, Left, Requests, SendingTask};
use super::key_batch::KeyBatch;
use super::{NotTried, With};
use crate::bulk_request::ask_of;
use crate::delivery::attempt::Attempted;
use crate::delivery::gate::Gate;
use crate::delivery::lane::Route;
use crate::delivery::memory::{AnswerHeld, LaneMemory};
use crate::delivery::outcome::Outcome;
use crate::delivery::outlet::SendMode;
use crate::delivery::work::{Batch, Work};
use crate::nodes::Outbound;
use crate::queue::parked::ParkKey;

/// The nodes that operations of a try are for.
#[derive(Default)]
pub(super) struct Homes {
    nodes: Vec<Home>,
    /// For an operation that is for one node for certain: the node's place in the list.
    of: HashMap<usize, usize>,
}

struct Home {
    node: Arc<Node>,
    /// The try at the node; none if the node is to be sent nothing more now.
    tried: Option<TryAtNode>,
}

/// Operations for one node, or those for any.
struct ForNode {
    operations: Vec<usize>,
    tried: Option<TryAtNode>,
    wait: Wait,
}

/// How long operations are waited for.
#[derive(Clone)]
struct Wait {
    /// One of them.
    first: usize,
    within: Duration,
    gate: Option<Rc<Gate>>,
}

/// The fates of operations that were sent.
#[derive(Default)]
pub(super) struct Sent {
    pub(super) not_done: Vec<(usize, Outcome)>,
    pub(super) held: Vec<Rc<AnswerHeld>>,
    /// What goes on without the try.
    pub(super) left: Option<Left>,
}

/// What a try sends, and how.
pub(super) struct ToSend<'a, 'w> {
    pub(super) key: &'a ParkKey,
    pub(super) mode: SendMode,
    pub(super) operations: Vec<usize>,
    pub(super) homes: Homes,
    pub(super) batch: &'a Rc<Batch>,
    pub(super) work: &'a Work<'w>,
    pub(super) load: &'a KeyBatch,
    pub(super) memory: &'a mut Option<LaneMemory>,
}

/// Tells the end of requests, each with the operations in it and how many were to blame for a refusal so far.
type Tell = UnboundedSender<Result<(Vec<usize>, Attempted, u32), Panicked>>;

/// All that the task needs that sends the requests.
struct Task {
    route: Rc<Route>,
    requests: Rc<Requests>,
    batch: Rc<Batch>,
    body: PooledBytes,
    outbound: Rc<Outbound>,
    snapshot: Arc<Snapshot>,
    mode: SendMode,
    all: Vec<ForNode>,
    tell: Tell,
}

// === impl Homes ===

impl Homes {
    /// Whether an operation may be sent now: its node does not keep what it was sent before.
    pub(super) fn may_go(
        &mut self,
        (route, at_nodes): (&Route, &Rc<TriesAtNodes>),
        work: &Work<'_>,
        operation: usize,
        snapshot: &Snapshot,
    ) -> bool {
        let Some(node) = home(route, work, operation, snapshot) else {
            return true;
        };
        let is_it = |home: &Home| Arc::ptr_eq(&home.node.health, &node.health);
        let at = self.nodes.iter().position(is_it).unwrap_or_else(|| {
            let gate = route.outlets.gate(node);
            self.nodes.push(Home {
                node: Arc::clone(node),
                tried: at_nodes.begin(node, |since| gate.has_taken_since(since)),
            });
            self.nodes.len() - 1
        });
        self.of.insert(operation, at);
        self.nodes[at].tried.is_some()
    }

    /// Returns the name of a node that is to be sent nothing more now.
    pub(super) fn keeping(&self) -> Option<&str> {
        let mut keeping = self.nodes.iter().filter(|home| home.tried.is_none());
        keeping.next().map(|home| &*home.node.name)
    }

    /// Parts operations by the nodes that they are for.
    fn part(self, route: &Route, operations: Vec<usize>) -> Vec<ForNode> {
        let mut all: Vec<ForNode> = self.nodes.into_iter().map(|home| home.part(route)).collect();
        let mut any = ForNode {
            operations: Vec::new(),
            tried: None,
            wait: Wait {
                first: 0,
                within: LATE,
                gate: None,
            },
        };
        for operation in operations {
            let of = self.of.get(&operation).map_or(&mut any, |at| &mut all[*at]);
            of.operations.push(operation);
        }
        all.push(any);
        all.retain(|one| !one.operations.is_empty());
        all.iter_mut().for_each(|one| one.wait.first = one.operations[0]);
        all
    }
}

// === impl Home ===

impl Home {
    fn part(self, route: &Route) -> ForNode {
        let gate = route.outlets.gate(&self.node);
        ForNode {
            operations: Vec::new(),
            tried: self.tried,
            wait: Wait {
                first: 0,
                // Where all requests take long, none is late, unless it takes much longer than a turn should.
                within: gate.long().clamp(LATE, LATE_MAX),
                gate: Some(gate),
            },
        }
    }
}

// === impl Wait ===

impl Wait {
    /// Whether the node has taken nothing for a while, so that it is to blame, and not the operations: others
    /// of their index would wait as long, one after another.
    fn is_for_node(&self, began: Instant) -> bool {
        let recently = Instant::now().checked_sub(RECENTLY).unwrap_or(began);
        let takes = |gate: &Rc<Gate>| gate.has_taken_since(began.max(recently));
        !self.gate.as_ref().is_some_and(takes)
    }
}

/// Returns the node that an operation is for, if it is for one for certain.
fn home<'s>(
    route: &Route,
    work: &Work<'_>,
    operation: usize,
    snapshot: &'s Snapshot,
) -> Option<&'s Arc<Node>> {
    let at = work.operations[operation];
    let ask = ask_of(work.head, route.group.settings.level);
    let lines = &work.body[at.start..at.end];
    let explained = bulk::explain(lines, &ask, &snapshot.table).next()?.ok()?;
    // Otherwise it may get another shard whenever it is planned.
    let is_certain = explained.id.is_some() || explained.routing.is_some();
    let node = explained.node.filter(|_| is_certain)?;
    snapshot.node(node).filter(|node| node.health.is_up())
}

/// Sends operations of a key. What takes too long goes on without the try, if there is room for that.
pub(super) async fn send(
    (route, parked, at_nodes): With<'_>,
    (outbound, snapshot): (&Rc<Outbound>, &Arc<Snapshot>),
    to_send: ToSend<'_, '_>,
) -> Result<Sent, NotTried> {
    let ToSend { work, load, .. } = to_send;
    let (requests, began) = (Rc::<Requests>::default(), Instant::now());
    let all = to_send.homes.part(route, to_send.operations);
    let mut waiting: HashSet<usize> = all.iter().flat_map(|one| &one.operations).copied().collect();
    let mut waits: Vec<Wait> = all.iter().map(|one| one.wait.clone()).collect();
    let (tell, mut told) = unbounded_channel();
    let task = Task {
        route: Rc::clone(route),
        requests: Rc::clone(&requests),
        batch: Rc::clone(to_send.batch),
        body: work.body.clone(),
        outbound: Rc::clone(outbound),
        snapshot: Arc::clone(snapshot),
        mode: to_send.mode,
        all,
        tell,
    };
    let task = SendingTask::new(task.start(work));
    let (mut sent, mut look_again) = (Sent::default(), began);
    while !waiting.is_empty() {
        let late = waits.iter().map(|wait| wait.within).max().unwrap_or_default();
        let until = (began + late).max(look_again);
        tokio::select! {
            biased;
            one = told.recv() => {
                let (operations, attempted, blamed) = one.ok_or(NotTried::Unknown)??;
                work.blamed.set(work.blamed.get().max(blamed));
                for one in &operations {
                    waiting.remove(one);
                }
                waits.retain(|wait| waiting.contains(&wait.first));
                sent.not_done.extend(attempted.not_done);
                sent.held.extend(attempted.held);
            }
            () = sleep_until(until.into()) => {
                look_again = Instant::now() + LOOK_AGAIN;
                let may_leave = waits.iter().all(|wait| wait.is_for_node(began)) && parked.has_plenty(0);
                if !may_leave || !parked.state().leaves_turn(to_send.key) {
                    continue;
                }
                let leaves = Leaves {
                    key: to_send.key,
                    limit: work.limit,
                    names: waiting.iter().map(|one| (*one, load.flight_op(*one))).collect(),
                    began,
                    memory: to_send.memory.take(),
                };
                let flight = requests.go_on((route, parked, at_nodes), leaves);
                let operations = waiting.into_iter().collect();
                sent.left = Some(Left { operations, flight, requests, task });
                return Ok(sent);
            }
        }
    }
    Ok(sent)
}

// === impl Task ===

impl Task {
    /// Starts the task, which knows of the operations what `of` does.
    fn start(self, of: &Work<'_>) -> tokio::task::JoinHandle<()> {
        let known = (
            (of.doubt.clone(), of.attempts.clone(), of.refusals.clone()),
            (of.failure_rows.clone(), of.trace.clone(), of.limit),
        );
        let (tell, requests) = (self.tell.clone(), Rc::clone(&self.requests));
        guard::spawn(GuardedWork::Parked, async move {
            let ended = guarded(GuardedWork::Parked, async move {
                let Some(mut work) =
                    Work::new(&self.route, &self.batch, &self.body, &self.snapshot, (0, false))
                else {
                    return;
                };
                (
                    (work.doubt, work.attempts, work.refusals),
                    (work.failure_rows, work.trace, work.limit),
                ) = known;
                Self::run(
                    (&self.route, &self.outbound, &self.snapshot),
                    (&work, self.mode),
                    self.all,
                    |one| {
                        let (operations, attempted) = one;
                        if let Some(attempted) = self.requests.take(&operations, attempted) {
                            let _ = self.tell.send(Ok((operations, attempted, work.blamed.get())));
                        }
                    },
                )
                .await;
            });
            if let Err(panicked) = ended.await {
                panicked.report(
                    GuardedWork::Parked,
                    "parked operations stay parked, and are tried again later",
                );
                let _ = tell.send(Err(panicked));
            }
            requests.end();
        })
    }

    /// Sends all requests at once, and tells the end of each.
    async fn run(
        (route, outbound, snapshot): (&Rc<Route>, &Outbound, &Arc<Snapshot>),
        (work, mode): (&Work<'_>, SendMode),
        all: Vec<ForNode>,
        tell: impl Fn((Vec<usize>, Attempted)),
    ) {
        let sent = all.into_iter().map(async |one| {
            let attempted = {
                let attempt = route.attempt((mode, None), work, &one.operations, outbound, snapshot);
                let mut attempt = pin!(attempt);
                match timeout(one.wait.within, &mut attempt).await {
                    Ok(attempted) => attempted,
                    Err(_) => {
                        one.tried.iter().for_each(TryAtNode::is_late);
                        attempt.await
                    }
                }
            };
            (one.operations, attempted)
        });
        let mut sent: FuturesUnordered<_> = sent.collect();
        while let Some(one) = sent.next().await {
            tell(one);
        }
    }
}

/// A request that takes longer is late, or after this time in any case, even where all take long.
const LATE: Duration = Duration::from_secs(2);
const LATE_MAX: Duration = Duration::from_secs(10);
/// The time in which a node has to have taken a request if it is not to blame.
const RECENTLY: Duration = Duration::from_secs(3);
/// The time until it is looked again whether there is room for a request to go on without its try.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
