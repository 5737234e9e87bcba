//! One try of operations of a key: they are sent, and what the answers mean for each is noted.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use cluster::Snapshot;
use traces::{Context, OpenSpan};

use super::at_nodes::LateOutcome;
use super::going_on::Left;
use super::key_batch::{Dead, Fate, KeyBatch};
use super::sending::{Homes, Sent, ToSend, send};
use super::{NotTried, With};
use crate::delivery::batch::again;
use crate::delivery::lane::Route;
use crate::delivery::memory::{AnswerHeld, LaneMemory};
use crate::delivery::outcome::{Again, Outcome};
use crate::delivery::outlet::SendMode;
use crate::delivery::work::{Batch, Work};
use crate::nodes::Outbound;
use crate::queue::parked::{ParkKey, Parked};

/// The result of one try.
#[derive(Default)]
pub(super) struct TryResult {
    pub(super) dead: Vec<Dead>,
    /// The operations that have their dead letters from an earlier try.
    pub(super) buried: Vec<usize>,
    /// Why something did not go through, unless fewer operations at once are tried next.
    pub(super) failed: Option<Arc<Again>>,
    /// The memory of the texts about the operations.
    pub(super) held: Vec<Rc<AnswerHeld>>,
    /// What goes on without the try.
    pub(super) left: Option<Left>,
}

// === impl TryResult ===

impl TryResult {
    fn note(&mut self, load: &mut KeyBatch, operation: usize, fate: Fate) {
        match fate {
            Fate::Gone => load.gone(operation),
            Fate::Dead(error) => self.dead.push(Dead { operation, error }),
            Fate::Elsewhere(to) => load.moves(operation, to),
            Fate::Stays(again) => {
                load.failed(operation);
                load.doubts(operation, again.doubt);
                self.failed = Some(again);
            }
            Fate::AtOnce(again) => {
                load.doubts(operation, again.doubt);
                self.failed = Some(again);
            }
        }
    }
}

/// What late answers have said of operations.
type LateOutcomes = Vec<(usize, LateOutcome)>;
/// What of a key is sent, and how, with what late answers have said of others.
type ToTry = (SendMode, Vec<usize>, LateOutcomes, Homes);

/// Sends operations of a key, and notes the fate of each, and how many may be sent at once from now on.
pub(super) async fn send_due(
    with @ (route, parked, _): With<'_>,
    by @ (outbound, snapshot): (&Rc<Outbound>, &Arc<Snapshot>),
    key: &ParkKey,
    (mode, send_now, late, homes): ToTry,
    limit: &mut usize,
    (batch, work, load): (&Rc<Batch>, &mut Work<'_>, &mut KeyBatch),
    memory: &mut Option<LaneMemory>,
) -> Result<TryResult, NotTried> {
    let span = traced(route, (work, load), key, &send_now);
    work.trace = span.as_ref().map(OpenSpan::trace);
    let mut left = send_now.clone();
    let mut outcomes = route.look_back(work, &mut left, outbound, snapshot).await;
    let mut sent = Sent::default();
    if !left.is_empty() {
        let lanes = load.lanes(&left);
        match route.note_names(&lanes, work, &left, snapshot).await {
            Ok(()) => {
                let to_send = ToSend {
                    key,
                    mode,
                    operations: left,
                    homes,
                    batch,
                    work,
                    load,
                    memory,
                };
                sent = send(with, by, to_send).await?;
                outcomes.append(&mut sent.not_done);
            }
            Err(why) => outcomes.extend(again(left, &why)),
        }
    }
    route.group.retried.add(send_now.len() as u64);
    load.sent(&send_now);
    // What was sent by an earlier try, and failed by its late answer, was attempted, too.
    load.sent(&late.iter().map(|(operation, _)| *operation).collect::<Vec<_>>());
    let goes_on = sent.left.as_ref().map_or(&[][..], |left| &left.operations);
    let open: HashSet<usize> = outcomes.iter().map(|(operation, _)| *operation).collect();
    let open: HashSet<usize> = open.into_iter().chain(goes_on.iter().copied()).collect();
    let done = send_now.iter().filter(|operation| !open.contains(operation));
    done.for_each(|operation| load.gone(*operation));
    if let Some(left) = &sent.left {
        load.goes_on(left);
    }
    let mut went = TryResult {
        held: sent.held,
        left: sent.left,
        ..TryResult::default()
    };
    let split = judge(
        (route, parked, snapshot),
        key,
        (outcomes, late),
        (work, load),
        &mut went,
    )
    .await;
    *limit = match split {
        Some(sent) => (sent / 2).max(1),
        None => limit.saturating_mul(2),
    };
    went.failed = went.failed.filter(|_| split.is_none());
    Ok(went)
}

/// Notes the fates of operations by their outcomes. Returns how many were sent at once, if fewer are to be.
async fn judge(
    (route, parked, snapshot): (&Rc<Route>, &Arc<Parked>, &Arc<Snapshot>),
    key: &ParkKey,
    (outcomes, late): (Vec<(usize, Outcome)>, LateOutcomes),
    (work, load): (&mut Work<'_>, &mut KeyBatch),
    went: &mut TryResult,
) -> Option<usize> {
    let group = &route.group;
    let (now, mut split, mut moving) = (work.limit, None::<usize>, 0);
    let late_limits: HashMap<usize, usize> = late.iter().map(|(one, late)| (*one, late.limit)).collect();
    let late = late.into_iter().map(|(operation, late)| {
        went.held.extend(late.held);
        (operation, late.outcome)
    });
    let all: Vec<(usize, Outcome)> = late.chain(outcomes).collect();
    for (operation, outcome) in all {
        work.limit = *late_limits.get(&operation).unwrap_or(&now);
        work.attempts[operation] += 1;
        work.failure_rows[operation].add(outcome.unexplained());
        let outcome = route.judge(work, operation, outcome, snapshot).await;
        let outcome = route.by_rules(work, operation, outcome);
        if matches!(
            outcome,
            Outcome::Split { .. } | Outcome::Shared { .. } | Outcome::Whole(_)
        ) {
            split = Some(split.map_or(work.limit, |split| split.min(work.limit)));
        }
        load.note(operation, work);
        let named = work.named(operation, snapshot);
        let of = (key, (named.index(), &*work.wording.target));
        let may_move = || !parked.state().is_full(moving + 1);
        // Doubt goes along with what moves to another line.
        if let Outcome::Park(_, again) = &outcome {
            load.doubts(operation, again.doubt);
        }
        let fate = load.outcome(operation, outcome, of, (group.queue.parked_age_max(), may_move));
        moving += usize::from(matches!(fate, Fate::Elsewhere(_)));
        went.note(load, operation, fate);
    }
    split
}

/// Begins the span of a try of these operations, if there are some of traced requests among them.
fn traced(
    route: &Route,
    (work, load): (&Work<'_>, &KeyBatch),
    key: &ParkKey,
    send: &[usize],
) -> Option<OpenSpan> {
    let batch = work.batch;
    let position = |at: &usize| (load.lane(*at), batch.origin(*at).position);
    let positions: BTreeSet<(u32, u64)> = match batch.accepted_by.is_empty() {
        true => BTreeSet::new(),
        false => send.iter().map(position).collect(),
    };
    let mut links: Vec<Context> = Vec::new();
    for (at, from) in &batch.accepted_by {
        // A request may have operations in several lanes.
        if positions.contains(at) && !links.contains(from) {
            links.push(*from);
        }
    }
    let mut span = (!links.is_empty()).then(|| route.traced(batch))??;
    span.set("tidegate.parked", key.shown());
    span.set("tidegate.operations", send.len());
    links.into_iter().for_each(|from| span.link(from));
    Some(span)
}
