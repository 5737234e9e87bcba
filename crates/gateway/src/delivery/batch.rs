//! Delivers one batch of a lane: sends it by today's topology, and again where that may help, until every
//! operation is indexed, parked or a dead letter.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bulk::{Op, Operation};
use cluster::Snapshot;
use config::Retry;
use futures_util::future::join_all;
use traces::{OpenSpan, SpanKind};
use wire::PooledBytes;

use crate::delivery::error_scope::is_of_another;
use crate::delivery::lane::{Lane, Route};
use crate::delivery::late::Waiter;
use crate::delivery::memory::{AnswerHeld, LaneMemory};
use crate::delivery::outcome::{Again, Outcome};
use crate::delivery::outlet::SendMode;
use crate::delivery::pauses::{PAUSE, ROOM_AGAIN, asked_for, backoff};
use crate::delivery::remembered::remembered;
use crate::delivery::server_error::Error;
use crate::delivery::work::{Batch, Work};
use crate::queue::dead_letters::{Cause, NotPut};
use crate::queue::parked::Scope;
use crate::queue::{DELIVERED_TYPE, LaneActivity};

/// The operations that an attempt did not get done, sorted by their outcome.
#[derive(Default)]
struct Undone {
    dead: Vec<(usize, Arc<Error>)>,
    parked: Vec<(usize, Scope, Arc<Again>)>,
    /// The operations to be sent again.
    again: Vec<usize>,
    /// Why the lane waits before the next attempt. Of several reasons, a reason that somebody has to put
    /// right comes first.
    worst: Option<Arc<Again>>,
    /// Whether the next attempt has fewer operations.
    split: bool,
    /// Whether the next attempt shares no request with other lanes.
    apart: bool,
    /// Whether one of the operations is to be found for which requests fail without a word.
    suspects: bool,
}

/// What became of some operations in one try.
struct Tried {
    undone: Undone,
    /// The topology by which they were sent.
    snapshot: Arc<Snapshot>,
    /// The memory that the texts of their outcomes take, for as long as somebody has them.
    held: Vec<Rc<AnswerHeld>>,
}

// === impl Undone ===

impl Undone {
    /// Whether all of the operations are done.
    fn is_nothing(&self) -> bool {
        self.dead.is_empty() && self.parked.is_empty() && self.again.is_empty()
    }

    fn take(&mut self, work: &mut Work<'_>, operation: usize, outcome: Outcome) {
        match outcome {
            Outcome::Done => {}
            Outcome::Refused(error) => self.dead.push((operation, error)),
            Outcome::Split { doubt, .. } => {
                self.split = true;
                if doubt {
                    work.doubt[operation].add();
                }
                self.again.push(operation);
            }
            Outcome::Shared { doubt, .. } => {
                (self.split, self.apart) = (true, true);
                if doubt {
                    work.doubt[operation].add();
                }
                self.again.push(operation);
            }
            Outcome::Whole(why) => {
                self.split = true;
                self.suspects |= why.unexplained.is_some();
                if why.doubt {
                    work.doubt[operation].add();
                }
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

/// How a lane waits before its next attempt.
struct Wait {
    why: String,
    activity: LaneActivity,
    busy: bool,
    after: Option<Duration>,
    /// Whether the lane waits for room among the dead letters, or for the disk.
    for_room: bool,
}

// === impl Wait ===

impl Wait {
    fn new(again: &Again) -> Self {
        Self {
            why: again.why(),
            activity: if again.paused {
                LaneActivity::Paused
            } else {
                LaneActivity::Retrying
            },
            busy: again.busy,
            after: again.after,
            for_room: false,
        }
    }

    fn for_room(why: &str) -> Self {
        Self {
            why: format!("dead letters cannot be written: {why}"),
            activity: LaneActivity::Paused,
            busy: false,
            after: None,
            for_room: true,
        }
    }

    fn time(&self, retry: &Retry, failures: u32) -> Duration {
        let first = if self.busy { retry.busy_delay } else { retry.delay };
        match self.for_room {
            // The operations are sent again after each of these waits.
            true => backoff(ROOM_AGAIN, failures.min(2)),
            false => backoff(first, failures).max(asked_for(self.after)),
        }
    }
}

// === impl Lane ===

impl Lane {
    /// Delivers a batch with the lines `body`, and returns how many of its operations are dead; `None` if the
    /// gateway stops first.
    pub(crate) async fn deliver(
        &mut self,
        batch: &Batch,
        body: PooledBytes,
        held: Option<LaneMemory>,
    ) -> Option<u64> {
        let group = Arc::clone(&self.route.group);
        let (mut body, mut held) = (body, held);
        let mut span = self.route.traced(batch);
        if let Some(span) = &mut span {
            span.set("tidegate.lane", self.number);
            span.set("tidegate.operations", batch.documents);
            batch.accepted_by.iter().for_each(|(_, from)| span.link(*from));
        }
        // A cluster that was never read may be away for long, and other lanes may want the memory.
        while self.known_topology().is_none() {
            self.rest_lightly(batch, &mut body, &mut held, LOOK_AGAIN).await?;
        }
        let (first, last) = batch.first_and_last();
        self.wait_for_commit(batch, last + 1, &mut body, &mut held)
            .await?;
        let first = group.is_likely_sent(self.number, first) || self.suspect.is_alone();
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
                    group.set(self.number, LaneActivity::Paused, Some(&why));
                    self.rest_lightly(batch, &mut body, &mut held, PAUSE).await?;
                }
            }
        };
        // The lines have a single holder, which may let go of them.
        drop(body);
        work.held = held;
        work.trace = span.as_ref().map(OpenSpan::trace);
        group.sends(self.number, last + 1);
        // Two operations on one document never travel together: if one were tried again, it could overtake
        // the other.
        for run in bulk::runs(&work.operations) {
            self.settle(&mut work, run.collect()).await?;
        }
        Some(work.dead)
    }

    /// Waits until enough is committed for the records before `end` to be sent. `None`: the gateway stops.
    async fn wait_for_commit(
        &mut self,
        batch: &Batch,
        end: u64,
        body: &mut PooledBytes,
        held: &mut Option<LaneMemory>,
    ) -> Option<()> {
        let group = Arc::clone(&self.route.group);
        if group.may_send_to(self.number, end) {
            return Some(());
        }
        group.set(self.number, LaneActivity::Delivering, Some(WAITS_FOR_COMMIT));
        while !group.may_send_to(self.number, end) {
            self.rest_lightly(batch, body, held, COMMITTED_AGAIN).await?;
        }
        group.set(self.number, LaneActivity::Delivering, None);
        Some(())
    }

    /// Tries until each of these operations is done, parked or dead.
    async fn settle(&mut self, work: &mut Work<'_>, mut left: Vec<usize>) -> Option<()> {
        let group = Arc::clone(&self.route.group);
        let (mut failures, mut unexplained) = (0, 0);
        let (mut apart, mut suspects) = (false, false);
        // Refused operations whose dead letters the disk did not take.
        let mut refused = Vec::new();
        while !left.is_empty() {
            // A batch of which something was sent is finished, unless it has to be tried again or takes too
            // long: whatever was done of it would be done once more after the next start.
            if self.is_stopped() && (failures > 0 || !work.begun || group.breaks_off()) {
                return None;
            }
            // Only what may go next is compared with what is parked: for small parts, all would be each time.
            let later = left.split_off(left.len().min(work.limit.max(COMPARED_AT_ONCE)));
            self.hold_back(work, &mut left).await?;
            if left.is_empty() {
                left = later;
                continue;
            }
            let (now, mut rest, suspect) = self.suspects_apart(work, left).await?;
            left = now;
            let chunk = left.len().min(work.limit);
            rest.extend(left.split_off(chunk).into_iter().chain(later));
            rest.sort_unstable();
            work.begun = true;
            let tried = self.try_once(work, left, (apart, suspect)).await?;
            let (mut undone, snapshot) = (tried.undone, tried.snapshot);
            unexplained = match &undone.worst {
                Some(worst) if worst.unexplained.is_some() => unexplained + 1,
                _ => 0,
            };
            // What another lane has in the same request may be why, also while the cause is looked for.
            suspects |= undone.suspects;
            apart = undone.apart || suspects || unexplained >= UNEXPLAINED_TOGETHER;
            let mut again = undone.again;
            let settled = chunk - again.len();
            refused.append(&mut undone.dead);
            let unburied = self.try_to_bury(work, std::mem::take(&mut refused), &snapshot);
            let unburied = unburied.await?;
            let mut wait = undone.worst.map(|worst| Wait::new(&worst));
            // A lane that waits for the disk keeps no memory that others' answers want. An operation whose
            // refusal cannot be remembered was not executed, and is sent again.
            drop(tried.held);
            if let Some((dead, why)) = unburied {
                let forgotten;
                (refused, forgotten) = remembered(dead);
                again.extend(forgotten);
                wait = Some(Wait::for_room(&why));
            }
            let without_room = self.park(work, undone.parked, &snapshot).await?;
            self.bury(work, without_room).await?;
            group.retried.add(again.len() as u64);
            work.limit = match undone.split {
                true => (chunk / 2).max(1),
                // A request with more operations could get an answer that there is no memory for.
                false => work.limit.saturating_mul(2).min(self.route.operations_max()),
            };
            again.extend(rest);
            again.sort_unstable();
            left = again;
            let Some(wait) = wait else { continue };
            failures = if settled > 0 { 0 } else { failures + 1 };
            group.set(self.number, wait.activity, Some(&wait.why));
            let delay = wait.time(&group.settings.retry, failures);
            self.rest_with(work, delay).await?;
        }
        self.bury(work, refused).await?;
        group.set(self.number, LaneActivity::Delivering, None);
        Some(())
    }

    /// Sets apart what is for an index for which a request may be kept: as [`Route::suspects_apart`].
    async fn suspects_apart(
        &mut self,
        work: &Work<'_>,
        left: Vec<usize>,
    ) -> Option<(Vec<usize>, Vec<usize>, Option<String>)> {
        if !self.route.flights.are_any() {
            return Some((left, Vec::new(), None));
        }
        let snapshot = self.topology().await?.1;
        Some(self.route.suspects_apart(work, left, &snapshot))
    }

    /// Tries some operations once, and sorts those that are not done by what is to be done about them.
    async fn try_once(
        &mut self,
        work: &mut Work<'_>,
        mut operations: Vec<usize>,
        (apart, suspect): (bool, Option<String>),
    ) -> Option<Tried> {
        let began = Instant::now();
        let (outbound, snapshot) = self.topology().await?;
        let route = Rc::clone(&self.route);
        let mut held = Vec::new();
        let mut not_done = route.look_back(work, &mut operations, &outbound, &snapshot).await;
        if !operations.is_empty() {
            let (lane, untold) = ([self.number], work.of_untold_names(&operations));
            match route.note_names(&lane, work, &untold, &snapshot).await {
                Ok(()) => {
                    work.past.send_by(&snapshot);
                    let mode = match apart || suspect.is_some() {
                        true => SendMode::Apart,
                        false => SendMode::Together,
                    };
                    let waiter = Waiter::new(self.number, suspect.is_some(), &mut self.reader);
                    let by = (mode, Some(&waiter));
                    let tried = route.attempt(by, work, &operations, &outbound, &snapshot).await;
                    not_done.extend(tried.not_done);
                    held = tried.held;
                }
                Err(why) => not_done.extend(again(operations, &why)),
            }
        }
        let mut undone = Undone::default();
        for (operation, outcome) in not_done {
            work.attempts[operation] += 1;
            work.failure_rows[operation].add(outcome.unexplained());
            let outcome = route.judge(work, operation, outcome, &snapshot).await;
            let outcome = route.by_rules(work, operation, outcome);
            undone.take(work, operation, outcome);
        }
        let is_quick = undone.is_nothing() && began.elapsed() < ACQUITTED_WITHIN;
        if let Some(index) = suspect.filter(|_| is_quick) {
            route.flights.acquit(&index);
        }
        Some(Tried {
            undone,
            snapshot,
            held,
        })
    }

    /// Puts operations among the dead letters, and waits while the disk does not take them.
    pub(crate) async fn bury(
        &mut self,
        work: &mut Work<'_>,
        mut dead: Vec<(usize, Arc<Error>)>,
    ) -> Option<()> {
        while !dead.is_empty() {
            let snapshot = self.topology().await?.1;
            let Some((left, why)) = self.try_to_bury(work, dead, &snapshot).await? else {
                break;
            };
            dead = left;
            let wait = Wait::for_room(&why);
            self.route.group.set(self.number, wait.activity, Some(&wait.why));
            self.rest_with(work, ROOM_AGAIN).await?;
        }
        Some(())
    }

    /// Puts operations among the dead letters. Those that find no room there are parked until they do. If
    /// nothing can be parked, or the disk does not take the letters, the operations are returned with the
    /// reason.
    async fn try_to_bury(
        &mut self,
        work: &mut Work<'_>,
        dead: Vec<(usize, Arc<Error>)>,
        snapshot: &Snapshot,
    ) -> Option<Option<(Vec<(usize, Arc<Error>)>, String)>> {
        let group = Arc::clone(&self.route.group);
        let can_park = self.parked().is_some();
        let (mut left, mut failed) = (Vec::new(), None);
        // A letter takes several times its size in memory until it is written.
        let mut rest = dead.as_slice();
        while failed.is_none() && !rest.is_empty() {
            let (some, after) = rest.split_at(letters_at_once(work, rest));
            rest = after;
            let lines = |(operation, _): &(usize, _)| {
                let at = work.operations[*operation];
                at.end - at.start
            };
            let charge = self.route.large_copy(some.iter().map(lines).sum()).await;
            let puts = some.iter().map(|(operation, error)| {
                let at = work.operations[*operation];
                let index = work.named(*operation, snapshot).index().to_owned();
                let (cause, lines) = (self.cause(work, *operation, error), &work.body[at.start..at.end]);
                let letters = &group.queue.dead_letters;
                async move { letters.put(cause, &index, lines).await }
            });
            let results = join_all(puts).await;
            drop(charge);
            let mut without_room = Vec::new();
            for ((operation, error), result) in some.iter().zip(results) {
                match result {
                    Ok(()) => work.dead += 1,
                    Err(NotPut::NoRoom(why)) if can_park => {
                        without_room.push((*operation, Arc::clone(error), why));
                    }
                    Err(why) => {
                        failed = Some(why.to_string());
                        left.push((*operation, Arc::clone(error)));
                    }
                }
            }
            if !without_room.is_empty() {
                self.park_letters(work, without_room).await?;
            }
        }
        left.extend_from_slice(rest);
        Some(failed.map(|why| (left, why)))
    }

    /// Returns why an operation is dead, and where it came from.
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
    /// Begins the span of a batch that has records of traced requests.
    pub(crate) fn traced(&self, batch: &Batch) -> Option<OpenSpan> {
        if batch.accepted_by.is_empty() {
            return None;
        }
        let live = self.shared.live.load();
        let mut span = live.recorder.as_ref()?.begin("deliver", SpanKind::Consumer);
        let settings = &self.group.settings;
        span.set("tidegate.queue", settings.queue.to_string());
        span.set("tidegate.group", settings.group.to_string());
        Some(span)
    }

    /// Examines an operation's outcome more closely where the node's word alone does not settle it.
    pub(crate) async fn judge(
        &self,
        work: &Work<'_>,
        operation: usize,
        outcome: Outcome,
        snapshot: &Snapshot,
    ) -> Outcome {
        let is_alone = work.limit == 1 || work.operations.len() == 1;
        let outcome = match outcome {
            Outcome::Whole(again) if is_alone => {
                match self.scope_of_refusal(work, operation, &again, snapshot).await {
                    Some(scope) => Outcome::Park(scope, again),
                    None => Outcome::Again(again),
                }
            }
            outcome => outcome,
        };
        let outcome = match outcome {
            // The operation's own index, and others' documents there, have nothing to do with the error.
            Outcome::Park(Scope::Index | Scope::Shard, again)
                if again.error().is_some_and(|error| {
                    is_of_another(error, again.index.as_deref(), &work.named(operation, snapshot))
                }) =>
            {
                Outcome::Park(Scope::Document, again)
            }
            // The operation is refused even alone: sending less would not help.
            Outcome::Split { error, doubt } if is_alone => {
                let refused = (error, doubt);
                self.refused_alone(work, operation, refused, snapshot).await
            }
            Outcome::Again(again) => self.own_refusal(work, operation, again, snapshot).await,
            Outcome::Refused(error) if error.status == 409 && is_between(&work.operations[operation]) => {
                match work.attempts[operation] <= AT_ONCE_MAX {
                    true => Outcome::AtOnce(error),
                    false => Outcome::Park(Scope::Document, Arc::new(Again::refused(error))),
                }
            }
            Outcome::Refused(error) if error.status == 409 && work.doubt[operation].is_any() => {
                match self.is_ours(work, operation).await {
                    Ok(true) => Outcome::Done,
                    Ok(false) => Outcome::Refused(error),
                    // The node says so of this document, and answers: no other operation needs to wait.
                    Err(why) if why.is_of_document() => {
                        let why = format!("{why}; the cluster refused the operation: {error}");
                        Outcome::Park(Scope::Document, Arc::new(Again::in_doubt(why)))
                    }
                    Err(why) => Outcome::again(Again::in_doubt(why.to_string())),
                }
            }
            outcome => outcome,
        };
        match self.group.parked() {
            Some(_) => outcome,
            None => outcome.without_parking(),
        }
    }

    /// Decides whether an operation that a node refused by itself is tried again: as the pipeline says, or as
    /// the status does.
    pub(crate) fn by_rules(&self, work: &mut Work<'_>, operation: usize, outcome: Outcome) -> Outcome {
        let (error, again) = match &outcome {
            Outcome::Refused(error) => (error, false),
            Outcome::Again(again) | Outcome::Park(_, again) => match again.own_error() {
                Some(error) => (error, true),
                None => return outcome,
            },
            _ => return outcome,
        };
        let retry = &self.group.settings.retry;
        let ruled = retry.rules.of(error.status, &error.kind, &error.reason);
        // A fault that somebody has to put right is not the document's.
        let paused = matches!(&outcome, Outcome::Again(again) | Outcome::Park(_, again) if again.paused);
        if ruled.is_none() && paused {
            return outcome;
        }
        work.refusals[operation] += 1;
        let times_max = match (ruled, again) {
            (Some(false), _) => 0,
            (None, false) if error.status < 500 => 0,
            // The error passes by itself.
            (_, true) => retry.times_max.unwrap_or(u32::MAX),
            // Nobody knows whether the error passes.
            (_, false) => retry.times_max.unwrap_or(TIMES_MAX),
        };
        match (again, work.refusals[operation] <= times_max) {
            (true, true) | (false, false) => outcome,
            (true, false) => Outcome::Refused(Arc::clone(error)),
            (false, true) => {
                let again = Arc::new(Again::refused(Arc::clone(error)));
                match self.group.parked() {
                    Some(_) => Outcome::Park(Scope::Document, again),
                    None => Outcome::Again(again),
                }
            }
        }
    }
}

/// Returns that operations are to be sent again, for one reason.
pub(crate) fn again(operations: Vec<usize>, why: &Arc<Again>) -> impl Iterator<Item = (usize, Outcome)> {
    let again = |operation| (operation, Outcome::Again(Arc::clone(why)));
    operations.into_iter().map(again)
}

/// Whether a conflict of an operation means that another writer came between its reading and its writing of
/// the document, as with an `update` that names no version.
fn is_between(operation: &Operation) -> bool {
    operation.op == Op::Update && !operation.versioned
}

/// Returns how many of these operations become dead letters together: at least one.
fn letters_at_once(work: &Work<'_>, dead: &[(usize, Arc<Error>)]) -> usize {
    let mut bytes = 0;
    let together = dead
        .iter()
        .take(LETTERS_AT_ONCE)
        .take_while(|(operation, error)| {
            let at = work.operations[*operation];
            bytes += at.end - at.start + error.kind.len() + error.reason.len();
            bytes <= LETTERS_BYTES
        });
    together.count().max(1)
}

/// The most dead letters that are put together, and the most bytes of their errors and lines (a single letter
/// may have more).
const LETTERS_AT_ONCE: usize = 1000;
const LETTERS_BYTES: usize = 1 << 20;
/// How many operations are compared with what is parked at once, at least. With less, what waits for one key
/// would be parked in many small entries.
const COMPARED_AT_ONCE: usize = 1000;
/// The time within which a request for one index is answered if no other is kept for that index.
const ACQUITTED_WITHIN: Duration = Duration::from_secs(1);
/// Why a lane waits if its last batches have to be committed before it sends more.
const WAITS_FOR_COMMIT: &str = "it waits for Kafka to take the commit of what it has delivered";
/// The interval between two checks for that commit.
const COMMITTED_AGAIN: Duration = Duration::from_millis(5);
/// How often in a row a request may fail, and nobody says why, before it has no other lane's operations.
const UNEXPLAINED_TOGETHER: u32 = 2;
/// How often an `update` that another writer came between is tried again before it waits apart.
const AT_ONCE_MAX: u32 = 4;
/// How often an operation that a node fails with 500 is tried again before it is given up.
const TIMES_MAX: u32 = 9;
/// The interval between two checks whether the cluster's topology is known.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
