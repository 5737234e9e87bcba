//! One batch of a lane on its way: sent by today's topology, again where that may help, until every operation
//! is indexed or among the dead letters.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bulk::{Op, Operation};
use cluster::Snapshot;
use futures_util::future::join_all;
use wire::PooledBytes;

use crate::delivery::concern::is_of_another;
use crate::delivery::lane::{Lane, Route};
use crate::delivery::memory::Held;
use crate::delivery::outcome::{Again, Error, Outcome};
use crate::delivery::outlet::SendMode;
use crate::delivery::pauses::{PAUSE, ROOM_AGAIN, asked_for, backoff};
use crate::delivery::work::{Batch, Work};
use crate::queue::dead_letters::{Cause, NotPut};
use crate::queue::parked::Scope;
use crate::queue::{DELIVERED_TYPE, Doing};

/// What became of the operations that an attempt did not get done.
#[derive(Default)]
struct Undone {
    dead: Vec<(usize, Error)>,
    parked: Vec<(usize, Scope, Again)>,
    /// To be sent again.
    again: Vec<usize>,
    /// Why the lane waits before the next attempt. Of several reasons, the one that somebody has to put
    /// right.
    worst: Option<Again>,
    /// The next attempt has fewer operations.
    split: bool,
    /// The next attempt shares no request with other lanes.
    apart: bool,
}

// === impl Undone ===

impl Undone {
    fn take(&mut self, work: &mut Work<'_>, operation: usize, outcome: Outcome) {
        match outcome {
            Outcome::Done => {}
            Outcome::Refused(error) => self.dead.push((operation, error)),
            Outcome::Split(error) => {
                self.split = true;
                if error.status >= 500 {
                    work.doubt[operation].add();
                }
                self.again.push(operation);
            }
            Outcome::Shared(_) => {
                (self.split, self.apart) = (true, true);
                self.again.push(operation);
            }
            Outcome::AtOnce(_) => self.again.push(operation),
            Outcome::Park(scope, why) => {
                if why.doubt {
                    work.doubt[operation].add();
                }
                self.parked.push((operation, scope, why));
            }
            Outcome::Again(why) => {
                if why.doubt {
                    work.doubt[operation].add();
                }
                self.again.push(operation);
                let worst = self.worst.as_ref();
                if worst.is_none_or(|worst| !worst.paused && why.paused) {
                    self.worst = Some(why);
                }
            }
        }
    }
}

// === impl Lane ===

impl Lane {
    /// Delivers a batch, whose lines `body` is, and returns how many of its operations are dead; `None` if
    /// the gateway stops first.
    pub(crate) async fn deliver(
        &mut self,
        batch: &Batch,
        body: PooledBytes,
        held: Option<Held>,
    ) -> Option<u64> {
        let group = Arc::clone(&self.route.group);
        let (mut body, mut held) = (body, held);
        // A cluster that was never read may be away for long: others may want the memory.
        while self.known_topology().is_none() {
            self.rest_lightly(batch, &mut body, &mut held, LOOK_AGAIN).await?;
        }
        let first = group.knows_what_was_sent() || self.batches < FIRST_BATCHES || self.suspect.is_alone();
        let last = batch.origins.last().map_or(0, |origin| origin.position);
        self.batches += 1;
        let mut work = loop {
            let (_, snapshot) = self.topology().await?;
            let doubtful_before = group.doubtful_before(self.number);
            let doubtful_before = doubtful_before.max(self.suspect.doubtful_before());
            let work = Work::new(&self.route, batch, &body, &snapshot, (doubtful_before, first));
            match work {
                Some(work) => break work,
                None => {
                    let position = batch.origins[0].position;
                    let why = format!("the record at {position} is not one that this version knows to send");
                    group.set(self.number, Doing::Paused, Some(&why));
                    self.rest_lightly(batch, &mut body, &mut held, PAUSE).await?;
                }
            }
        };
        // Its lines have one holder, who may let go of them.
        drop(body);
        work.held = held;
        group.sends(self.number, last + 1);
        // Two operations on one document never travel together: tried again, one could overtake the other.
        for run in bulk::runs(&work.operations) {
            self.settle(&mut work, run.collect()).await?;
        }
        Some(work.dead)
    }

    /// Tries until each of these operations is done or dead.
    async fn settle(&mut self, work: &mut Work<'_>, mut left: Vec<usize>) -> Option<()> {
        let group = Arc::clone(&self.route.group);
        let (mut failures, mut apart) = (0, false);
        while !left.is_empty() {
            if self.is_stopped() {
                return None;
            }
            self.hold_back(work, &mut left).await?;
            if left.is_empty() {
                break;
            }
            let chunk = left.len().min(work.limit);
            let rest = left.split_off(chunk);
            let (outbound, snapshot) = self.topology().await?;
            let route = Rc::clone(&self.route);
            let mut not_done = route.look_back(work, &mut left, &outbound, &snapshot).await;
            if !left.is_empty() {
                work.past.send_by(&snapshot);
                let way = if apart {
                    SendMode::Apart
                } else {
                    SendMode::Together
                };
                let attempt = route.attempt(way, work, &left, &outbound, &snapshot);
                not_done.extend(attempt.await);
            }
            let mut undone = Undone::default();
            for (operation, outcome) in not_done {
                work.attempts[operation] += 1;
                let outcome = route.judge(work, operation, outcome, &snapshot).await;
                let outcome = route.by_rules(work, operation, outcome);
                undone.take(work, operation, outcome);
            }
            apart = undone.apart;
            let (mut again, mut dead) = (undone.again, undone.dead);
            let settled = chunk - again.len();
            dead.extend(self.park(work, undone.parked, &snapshot).await?);
            self.bury(work, dead).await?;
            group.retried.add(again.len() as u64);
            work.limit = match undone.split {
                true => (chunk / 2).max(1),
                // A request with more would be answered with more than there is memory for.
                false => work
                    .limit
                    .saturating_mul(2)
                    .min(group.settings.batch_docs_max.max(1)),
            };
            again.extend(rest);
            left = again;
            let Some(worst) = undone.worst else { continue };
            failures = if settled > 0 { 0 } else { failures + 1 };
            let doing = if worst.paused {
                Doing::Paused
            } else {
                Doing::Retrying
            };
            group.set(self.number, doing, Some(&worst.why));
            let retry = &group.settings.retry;
            let first = if worst.busy { retry.busy_delay } else { retry.delay };
            let delay = backoff(first, failures, fastrand::f64());
            let delay = delay.max(asked_for(worst.after));
            self.rest_lightly(work.batch, &mut work.body, &mut work.held, delay)
                .await?;
        }
        group.set(self.number, Doing::Delivering, None);
        Some(())
    }

    /// Puts operations among the dead letters. Those that find no room there are parked until they do; where
    /// nothing is parked, and while the disk does not take them, the lane waits.
    pub(crate) async fn bury(&mut self, work: &mut Work<'_>, mut dead: Vec<(usize, Error)>) -> Option<()> {
        let group = Arc::clone(&self.route.group);
        while !dead.is_empty() {
            let snapshot = self.topology().await?.1;
            let puts = dead.iter().map(|(operation, error)| {
                let at = work.operations[*operation];
                let index = work.named(*operation, &snapshot).index().to_owned();
                let (cause, lines) = (self.cause(work, *operation, error), &work.body[at.start..at.end]);
                let letters = &group.queue.dead_letters;
                async move { letters.put(cause, &index, lines).await }
            });
            let results = join_all(puts).await;
            let (mut left, mut without_room, mut failed) = (Vec::new(), Vec::new(), None);
            let can_park = self.parked().is_some();
            for ((operation, error), result) in dead.into_iter().zip(results) {
                match result {
                    Ok(()) => work.dead += 1,
                    Err(NotPut::NoRoom(why)) if can_park => without_room.push((operation, error, why)),
                    Err(why) => {
                        failed = Some(why.to_string());
                        left.push((operation, error));
                    }
                }
            }
            dead = left;
            if !without_room.is_empty() {
                self.park_letters(work, without_room).await?;
            }
            if let Some(why) = failed {
                let why = format!("dead letters cannot be written: {why}");
                group.set(self.number, Doing::Paused, Some(&why));
                self.rest_lightly(work.batch, &mut work.body, &mut work.held, ROOM_AGAIN)
                    .await?;
            }
        }
        Some(())
    }

    /// Why an operation is dead, and where it came from.
    fn cause(&self, work: &Work<'_>, operation: usize, error: &Error) -> Cause {
        let (group, batch) = (&self.route.group, work.batch);
        let origin = batch.origin(operation);
        Cause {
            group: group.settings.group.to_string(),
            cluster: group.settings.cluster.to_string(),
            status: error.status,
            kind: error.kind.clone(),
            reason: error.reason.clone(),
            attempts: work.attempts[operation],
            accepted_ms: origin.time_ms,
            position: origin.position,
            lane: self.number,
            place: origin.place_of(operation),
            target: batch.target().to_owned(),
            content_type: DELIVERED_TYPE.to_owned(),
            ..Cause::default()
        }
    }
}

// === impl Route ===

impl Route {
    /// Looks closer at what a node said of an operation, where its word alone does not settle it.
    pub(crate) async fn judge(
        &self,
        work: &Work<'_>,
        operation: usize,
        outcome: Outcome,
        snapshot: &Snapshot,
    ) -> Outcome {
        let outcome = match outcome {
            // Its index, and others' documents there, have nothing to do with it.
            Outcome::Park(Scope::Index | Scope::Shard, again)
                if again.error().is_some_and(|error| {
                    is_of_another(error, again.index.as_deref(), &work.named(operation, snapshot))
                }) =>
            {
                Outcome::Park(Scope::Document, again)
            }
            // Even alone: nothing that sending less would mend.
            Outcome::Split(error) if work.limit == 1 || work.operations.len() == 1 => match error.status {
                400 => Outcome::Refused(error),
                _ => Outcome::Park(Scope::Document, Again::refused(error)),
            },
            Outcome::Refused(error) if error.status == 409 && is_between(&work.operations[operation]) => {
                match work.attempts[operation] <= AT_ONCE_MAX {
                    true => Outcome::AtOnce(error),
                    false => Outcome::Park(Scope::Document, Again::refused(error)),
                }
            }
            Outcome::Refused(error) if error.status == 409 && work.doubt[operation].is_any() => {
                match self.is_ours(work, operation).await {
                    Ok(true) => Outcome::Done,
                    Ok(false) => Outcome::Refused(error),
                    Err(why) => Outcome::Again(Again::in_doubt(why.to_string())),
                }
            }
            outcome => outcome,
        };
        match self.group.parked {
            Some(_) => outcome,
            None => outcome.without_parking(),
        }
    }

    /// Whether what a node refused by itself is tried again: as the pipeline says, or as the status does.
    pub(crate) fn by_rules(&self, work: &mut Work<'_>, operation: usize, outcome: Outcome) -> Outcome {
        let (error, again) = match &outcome {
            Outcome::Refused(error) => (error, false),
            Outcome::Again(Again {
                error: Some(error), ..
            })
            | Outcome::Park(
                _,
                Again {
                    error: Some(error), ..
                },
            ) => (&**error, true),
            _ => return outcome,
        };
        let retry = &self.group.settings.retry;
        let ruled = retry.rules.of(error.status, &error.kind, &error.reason);
        // What somebody has to put right is no document's fault.
        let paused = matches!(&outcome, Outcome::Again(again) | Outcome::Park(_, again) if again.paused);
        if ruled.is_none() && paused {
            return outcome;
        }
        work.refusals[operation] += 1;
        let times_max = match (ruled, again) {
            (Some(false), _) => 0,
            (None, false) if error.status < 500 => 0,
            // By itself this passes.
            (_, true) => retry.times_max.unwrap_or(u32::MAX),
            // Nobody knows whether this does.
            (_, false) => retry.times_max.unwrap_or(TIMES_MAX),
        };
        match (again, work.refusals[operation] <= times_max) {
            (true, true) | (false, false) => outcome,
            (true, false) => Outcome::Refused(error.clone()),
            (false, true) => {
                let parked = Outcome::Park(Scope::Document, Again::refused(error.clone()));
                match self.group.parked {
                    Some(_) => parked,
                    None => Outcome::Again(Again::refused(error.clone())),
                }
            }
        }
    }
}

/// Whether a conflict of an operation means that another writer came between its reading and its writing of
/// the document: an `update` that names no version.
fn is_between(operation: &Operation) -> bool {
    operation.op == Op::Update && !operation.versioned
}

/// What an earlier run may have sent and not committed is in so many batches of a lane, as a rule, where
/// nobody wrote down how far it sent.
const FIRST_BATCHES: u32 = 4;
/// An `update` that another writer came between is tried again so often before it waits apart.
const AT_ONCE_MAX: u32 = 4;
/// An operation that a node fails with 500 is tried again so often before it is given up.
const TIMES_MAX: u32 = 9;
/// Between two looks at whether the cluster's topology is known.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
