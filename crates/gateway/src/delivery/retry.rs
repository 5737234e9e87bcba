//! Tries parked operations again: one task of the delivery's thread, with at most one try under way for each
//! key. Only of what is parked by itself there may be more, if those under way are late.
//!
//! A try sends what is for one node apart from what is for others ([`sending`]). If a node does not answer in
//! time, the try is over without that request, whose operations wait for its end by themselves
//! ([`going_on`]), and the node is sent next to nothing more until it takes something again ([`at_nodes`]).
//! So a node that keeps requests holds up neither other keys nor what a key has for other nodes.

mod at_nodes;
mod going_on;
mod key_batch;
mod one_try;
#[cfg(test)]
mod order_model;
mod passed_over;
mod sending;
mod try_under_way;

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::Snapshot;
use futures_util::TryFutureExt;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use wire::PooledBytes;
use wire::guard::{Panicked, Work as GuardedWork, caught, fault, guarded, spawn_in};

use crate::delivery::lane::{Route, stopped};
use crate::delivery::memory::{LaneMemory, with_notes};
use crate::delivery::outcome::Again;
use crate::delivery::outlet::SendMode;
use crate::delivery::pauses::{ROOM_AGAIN, asked_for, backoff};
use crate::delivery::unsettled::drop_letters;
use crate::delivery::work::{Batch, Work};
use crate::queue::dead_letters::Cause;
use crate::queue::parked::{
    GoneEntry, LEFT_MAX, MORE_TURNS_MAX, NextPieces, Order, ParkKey, Parked, ParkedError, ParkedState,
    Picked, SOON, Store, behind_other_line,
};
use at_nodes::TriesAtNodes;
use key_batch::{Dead, KeyBatch, PickedEntry};
use one_try::TryResult;
use passed_over::PassedOver;
use sending::Homes;
use try_under_way::TryUnderWay;

/// The result of one try of a key.
enum KeyResult {
    /// The next operations, or fewer of the same, are tried at once. Whether some are gone.
    Progress(bool),
    /// All operations that were looked at wait for another key; those behind them are looked at next.
    PassedOver,
    /// Nothing may be tried now.
    Nothing,
    /// Nothing may be tried before operations in the line of another index.
    Behind(ParkKey),
    /// Why something did not go through, and whether anything did.
    Failed(Arc<Again>, bool),
}

/// What all tries work with.
type With<'a> = (&'a Rc<Route>, &'a Arc<Parked>, &'a Rc<TriesAtNodes>);

/// Why a key cannot be tried.
#[derive(Debug, thiserror::Error)]
enum NotTried {
    #[error(transparent)]
    Commit(#[from] log::ReadError),
    #[error(transparent)]
    Parked(#[from] ParkedError),
    #[error("this version does not know to send them")]
    Unknown,
    #[error("the gateway failed on it, which is a bug of its own: {0}")]
    Failed(Panicked),
    #[error("the disk has damaged the record at {}", record_of(.0))]
    Damaged(Order),
    #[error("the record at {} has other operations than it says", record_of(.0))]
    OtherOperations(Order),
}

impl From<Panicked> for NotTried {
    fn from(panicked: Panicked) -> Self {
        Self::Failed(panicked)
    }
}

/// Returns the record of a piece.
fn record_of((.., at): &Order) -> u64 {
    *at
}

/// Tries parked operations again until told to stop; `is_over` says that no lane will park more.
pub(crate) async fn tend(route: Rc<Route>, mut stop: watch::Receiver<bool>, is_over: impl Fn() -> bool) {
    let Some(parked) = route.group.parked().cloned() else {
        return;
    };
    fault("tend", b"");
    let (mut running, at_nodes) = (JoinSet::new(), Rc::<TriesAtNodes>::default());
    // After a panic, nothing of an earlier run is under way any more.
    parked.state().doubt_all();
    if parked.unconfirmed_letters.are_on_their_way() {
        forget_letters(&route, &parked, |number, op| parked.holds(number, op));
    }
    let mut seen: Option<Arc<Snapshot>> = None;
    let mut looked = Instant::now();
    loop {
        if *stop.borrow() || is_over() && !parked.any() && running.is_empty() {
            break;
        }
        let snapshot = route.outbound().cluster().snapshot();
        if parked.any() && looked.elapsed() >= LOOK_AT_CLUSTER {
            looked = Instant::now();
            let changed = seen.as_ref().is_some_and(|seen| !Arc::ptr_eq(seen, &snapshot));
            let mut state = parked.state_by(&snapshot, None, led_by(&route));
            if changed {
                state.hurry();
            }
            seen = Some(snapshot);
        }
        if running.is_empty()
            && let Err(why) = parked.gather().await
        {
            tracing::warn!(
                why = why.to_string(),
                "parked operations keep more of the disk than they need"
            );
        }
        let may_have_more = !parked.is_half_full();
        let room = |state: &ParkedState, running: &JoinSet<_>| {
            AT_ONCE.saturating_sub(running.len().saturating_sub(state.more_turns()))
        };
        let due = {
            let mut state = parked.state();
            state.may_have_more_turns(may_have_more);
            let room = room(&state, &running);
            state.due(room, SLOW_AT_ONCE)
        };
        for key in due {
            let with = (Rc::clone(&route), Arc::clone(&parked), Rc::clone(&at_nodes));
            let attended = attend_guarded(with, key, stop.clone());
            spawn_in(&mut running, GuardedWork::Parked, attended);
        }
        let latest = Instant::now() + LOOK_AGAIN;
        let next = {
            let state = parked.state();
            let due = state
                .next_due(SLOW_AT_ONCE)
                .filter(|_| room(&state, &running) > 0);
            due.map_or(latest, |due| due.min(latest))
        };
        tokio::select! {
            biased;
            () = stopped(&mut stop) => {}
            _ = running.join_next(), if !running.is_empty() => {}
            () = parked.changed.notified() => {}
            () = tokio::time::sleep_until(next.max(Instant::now() + Duration::from_millis(1))) => {}
        }
    }
    while running.join_next().await.is_some() {}
}

/// Runs `attend`, whatever a parked operation does to the gateway: after a panic the operation stays parked,
/// and is tried again later.
async fn attend_guarded(
    (route, parked, at_nodes): (Rc<Route>, Arc<Parked>, Rc<TriesAtNodes>),
    key: ParkKey,
    stop: watch::Receiver<bool>,
) {
    let attended = attend((&route, &parked, &at_nodes), key.clone(), stop);
    let Err(panicked) = guarded(GuardedWork::Parked, attended).await else {
        return;
    };
    panicked.report(
        GuardedWork::Parked,
        "parked operations stay parked, and are tried again later",
    );
    forget_letters(&route, &parked, |number, op| {
        let Some(at) = parked.at_of(number) else {
            return false;
        };
        let state = parked.state();
        // Another try of the key puts its letters by itself.
        state.holds(&key, at, op) && !(key == ParkKey::Documents && state.is_tried(at, op))
    });
    let why = format!("the gateway failed on it, which is a bug of its own: {panicked}");
    let mut state = parked.state();
    state.doubt(&key);
    state.rest(&key, false, Some(&why), |failures| backoff(FAILED, failures));
}

/// Drops the letters of tries that ended before these were known to be on disk, if the letters' operations
/// still wait; `holds` says so. A letter that is known to be there stays, and its operation is not sent
/// again.
fn forget_letters(route: &Route, parked: &Parked, holds: impl Fn(u64, u32) -> bool) {
    let group = &route.group;
    let forgotten = caught(GuardedWork::Parked, || {
        let is_meant = |id: (u64, u32)| !parked.unconfirmed_letters.is_put(id) && holds(id.0, id.1);
        drop_letters(&group.queue.dead_letters, &group.settings.group, parked, is_meant)
    });
    match forgotten {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::error!(%error, "dead letters of operations that are still parked may be told of twice");
        }
        Err(panicked) => panicked.report(
            GuardedWork::Parked,
            "dead letters of operations that are still parked may be told of twice",
        ),
    }
}

/// Tries the operations of a key until none goes through, or until other keys should have their turn.
async fn attend(with @ (route, parked, _): With<'_>, key: ParkKey, mut stop: watch::Receiver<bool>) {
    let retry = &route.group.settings.retry;
    let (mut progress, mut limit) = (false, usize::MAX);
    let mut passed = PassedOver::default();
    for at in 0..STEPS_MAX {
        if *stop.borrow() {
            break;
        }
        let began = Instant::now();
        let so_far = (progress, &mut limit, &mut passed);
        let stepped = step(with, &key, so_far, &mut stop);
        let stepped = stepped.or_else(|why| lose(route, parked, &key, why)).await;
        parked.state().took(&key, at == 0, began.elapsed());
        match stepped {
            Ok(KeyResult::Progress(some)) => progress |= some,
            Ok(KeyResult::PassedOver) => {}
            Ok(KeyResult::Nothing) => {
                let mut state = parked.state();
                // The end of a request is told, and that of another try.
                let is_behind = state.flies(&key) || key == ParkKey::Documents && state.tries_documents();
                state.idle(&key, progress, if is_behind { LOOK_AGAIN } else { WAITS });
                return;
            }
            Ok(KeyResult::Behind(other)) => {
                let why = behind_other_line(&other);
                parked.state().wait_behind(&key, &why, BEHIND);
                return;
            }
            Ok(KeyResult::Failed(again, some)) => {
                let first = if again.busy { retry.busy_delay } else { retry.delay };
                // Looking for room among the dead letters costs next to nothing.
                let most = if key.is_letters() {
                    ROOM_AGAIN
                } else {
                    Duration::MAX
                };
                let delay = |failures: u32| backoff(first, failures).min(most);
                let asked = asked_for(again.after);
                let mut state = parked.state();
                state.rest(&key, progress || some, Some(&again.why()), |failures| {
                    delay(failures).max(asked)
                });
                return;
            }
            Err(why) => {
                // Some of the operations may have been executed, or have their dead letters, and nobody could
                // write that down. The letters are known: the next try writes down what this one could not.
                parked.state().doubt(&key);
                let queue = &*route.group.queue.name;
                let key_shown = key.shown();
                wire::rationed!(
                    tracing::error,
                    queue,
                    key = key_shown,
                    why = why.to_string(),
                    "parked operations cannot be tried"
                );
                let delay = |failures| match &why {
                    NotTried::Failed(_) => backoff(FAILED, failures),
                    _ => retry.delay.max(FAILED),
                };
                parked.state().rest(&key, false, Some(&why.to_string()), delay);
                return;
            }
        }
    }
    parked.state().rest(&key, true, None, |_| SOON);
}

/// Writes down what requests have executed that go on without their lanes, once they have ended: when
/// delivery stops, nobody will know it later.
pub(crate) async fn settle_landed(route: &Rc<Route>) {
    let Some(parked) = route.group.parked() else {
        return;
    };
    route.flights.landed().await;
    let (_lasts, mut stop) = watch::channel(false);
    let at_nodes = Rc::default();
    let landed = parked.state().landed_pieces();
    for (key, pieces) in landed {
        let (mut limit, mut passed) = (usize::MAX, PassedOver::all_but(pieces));
        let with = (route, parked, &at_nodes);
        let mut one = async || step(with, &key, (false, &mut limit, &mut passed), &mut stop).await;
        loop {
            match one().await {
                Ok(KeyResult::Progress(true)) => {}
                Ok(_) => break,
                Err(why) => {
                    let (queue, key) = (&*route.group.queue.name, key.shown());
                    let why = why.to_string();
                    tracing::warn!(
                        queue,
                        key,
                        why,
                        "operations that are done will be looked for again"
                    );
                    break;
                }
            }
        }
    }
}

/// Tries the first operations of a key once.
async fn step(
    with @ (route, parked, at_nodes): With<'_>,
    key: &ParkKey,
    (proven, limit, passed): (bool, &mut usize, &mut PassedOver),
    stop: &mut watch::Receiver<bool>,
) -> Result<KeyResult, NotTried> {
    if let Some(result) = waits(route, parked, key)? {
        return Ok(result);
    }
    let given_up = parked.state().is_given_up(key) || key.is_letters();
    let outbound = route.outbound();
    let snapshot = outbound.cluster().snapshot();
    passed.follow(&snapshot);
    let (next, under_way) = pick(route, parked, key, &snapshot, (*limit, passed));
    let Some(wording) = next.wording else {
        return Ok(next.behind.map_or_else(|| passed.all(), KeyResult::Behind));
    };
    let store = parked.open_store()?;
    let Some(held) = memory(route, &next.picked, stop).await else {
        return Ok(KeyResult::Nothing);
    };
    let (mut load, body) = read(route, &store, next.picked, &wording).await?;
    if !passed.sends_nothing() {
        load.part(parked);
    }
    under_way.sends();
    let batch = Rc::new(std::mem::replace(&mut load.batch, Batch::empty()));
    fault("parked", &body);
    let mut work = Work::new(route, &batch, &body, &snapshot, (0, false)).ok_or(NotTried::Unknown)?;
    load.recall(&mut work);
    let mut homes = Homes::default();
    let by = (with, given_up, &*passed);
    let due = load.due(by, key, (&work, &snapshot), *limit, &mut homes);
    let (mut send, behind) = (due.send, due.behind);
    let idle = send.is_empty();
    let all_wait = idle && !given_up && load.moves_none() && !load.keeps_some();
    if let Some(behind) = behind.as_ref().filter(|_| all_wait)
        && passed.pass(load.picked(), &work, &snapshot, behind)
    {
        return Ok(KeyResult::PassedOver);
    }
    load.executed(&mut send, passed.sends_nothing());
    let buried = load.buried_before(parked, &mut send);
    let refused = load.refused_before(route, parked, &mut send);
    let late = load.late_outcomes(at_nodes, &mut send, given_up);
    work.limit = send.len();
    let mut held = Some(held);
    let mut went = if given_up || send.is_empty() && late.is_empty() {
        let behind = behind.filter(|_| idle && !load.keeps_some());
        TryResult {
            dead: load.give_up(send),
            failed: behind.map(|why| Arc::new(Again::unsent(why))),
            ..TryResult::default()
        }
    } else {
        let mode = if proven { SendMode::Apart } else { SendMode::Probe };
        let (by, of) = ((&outbound, &snapshot), (&batch, &mut work, &mut load));
        let sent = (mode, send, late, homes);
        one_try::send_due(with, by, key, sent, limit, of, &mut held).await?
    };
    went.dead.extend(refused);
    went.buried = buried;
    let left = went.left.take();
    let settled = settle(route, parked, key, (load, &work, &snapshot), went).await;
    match left {
        Some(left) => left.after(settled, parked, under_way).await,
        None => settled,
    }
}

/// Picks what a key tries next, which is under way from then on.
fn pick<'p>(
    route: &Route,
    parked: &'p Parked,
    key: &ParkKey,
    snapshot: &Snapshot,
    (limit, passed): (usize, &PassedOver),
) -> (NextPieces, TryUnderWay<'p>) {
    let (docs_max, bytes_max) = tried_at_once(route);
    join_lines(route, parked, key, snapshot);
    // The operations go where their names lead in this snapshot, so no other decides which wait.
    let mut state = parked.state_by(snapshot, Some(key), led_by(route));
    let next = state.pick(key, docs_max.min(limit), bytes_max, |piece| passed.has(piece));
    let under_way = TryUnderWay::begin(parked, &mut state, key, &next.picked);
    (next, under_way)
}

/// Returns the indices that a name has led to since a request.
fn led_by(route: &Route) -> impl Fn(&str, (u64, u64)) -> Vec<String> {
    |name, request| route.indices_led_to(name, request, None)
}

/// Has operations of a key, of which none is under way, join the lines that they are behind.
fn join_lines(route: &Route, parked: &Parked, key: &ParkKey, snapshot: &Snapshot) {
    let ahead = parked.state().ahead_of(key, snapshot.generation);
    if ahead.is_empty() {
        return;
    }
    let led = ahead.into_iter().map(|ahead| {
        let led = route.indices_led_to(&ahead.alias, ahead.request, ahead.led_to.as_deref());
        (ahead, led)
    });
    let led: Vec<_> = led.collect();
    parked.state().join_lines(key, snapshot, &led);
}

/// Writes down the fate of the operations of a try.
async fn settle(
    route: &Rc<Route>,
    parked: &Parked,
    key: &ParkKey,
    (mut load, work, snapshot): (KeyBatch, &Work<'_>, &Snapshot),
    TryResult {
        dead,
        buried: before,
        mut failed,
        held,
        ..
    }: TryResult,
) -> Result<KeyResult, NotTried> {
    let mut unburied: BTreeSet<usize> = dead.iter().map(|dead| dead.operation).collect();
    let (mut buried, why) = bury(route, parked, &load, work, dead, snapshot).await;
    for operation in &buried {
        unburied.remove(operation);
    }
    if !unburied.is_empty() {
        unburied.into_iter().for_each(|operation| load.failed(operation));
        failed = Some(Arc::new(Again::unsent(format!(
            "dead letters cannot be written: {why}"
        ))));
    }
    buried.extend(before);
    // The texts that are left are short, or are among the dead letters.
    drop(held);
    let some = finish(route, parked, key, load, buried).await?;
    Ok(match failed {
        Some(again) => KeyResult::Failed(again, some),
        None => KeyResult::Progress(some),
    })
}

// === impl PassedOver ===

impl PassedOver {
    /// Returns the result of a try that finds nothing besides what was passed over.
    fn all(&self) -> KeyResult {
        match self.behind() {
            Some(why) => KeyResult::Failed(Arc::new(Again::unsent(why.to_owned())), false),
            None => KeyResult::Nothing,
        }
    }
}

/// Returns the result of a try in which no operation of a key can go out yet.
fn waits(route: &Route, parked: &Parked, key: &ParkKey) -> Result<Option<KeyResult>, NotTried> {
    if parked.state().counts_some(key) {
        // Until the lanes' places are durable, their operations may be delivered once more.
        route.group.consumer.flush()?;
        parked.state().ready();
    }
    let outbound = route.outbound();
    let why = match key {
        ParkKey::Letters { index } if !route.group.queue.dead_letters.has_room(index) => {
            "its dead letters find no room still (dead_letters_max_size)"
        }
        _ if !outbound.cluster().snapshot().learnt() && outbound.cluster().config().discovery => {
            "the cluster's topology is not known yet"
        }
        _ => return Ok(None),
    };
    let again = Arc::new(Again::unsent(why.to_owned()));
    Ok(Some(KeyResult::Failed(again, false)))
}

/// Reads pieces from the disk, and their lines.
async fn read(
    route: &Route,
    store: &Store,
    picked: Vec<Picked>,
    wording: &(String, String),
) -> Result<(KeyBatch, PooledBytes), NotTried> {
    let mut body = route.worker.pool().take(0);
    // What is read of one piece is there twice until it is put to the others.
    let largest = picked.iter().map(|one| one.bytes).max().unwrap_or_default();
    let copied = usize::try_from(largest).unwrap_or(usize::MAX);
    let _charge = route.large_copy(copied).await;
    let load = KeyBatch::read(store, picked, wording, &mut body)?;
    Ok((load, body.freeze()))
}

/// Gives up operations that cannot be read for a reason that does not pass: they count as lost, and what
/// waits behind them goes on. Returns the reason if it is another.
async fn lose(route: &Route, parked: &Parked, key: &ParkKey, why: NotTried) -> Result<KeyResult, NotTried> {
    let order = match why {
        // The topic has them: its next owner reads them there.
        _ if parked.is_handed_over() => return Err(why),
        NotTried::Damaged(order) => order,
        // The disk has what was written: only somebody who gives it up can say that it is worth nothing.
        NotTried::OtherOperations(order) if parked.state().is_given_up(key) => order,
        why => return Err(why),
    };
    let _kept = TryUnderWay::keep(parked, key, order);
    let documents = parked.lose(key, order).await?;
    let settings = &route.group.settings;
    tracing::error!(
        queue = &*settings.queue,
        group = &*settings.group,
        key = key.shown(),
        at = record_of(&order),
        documents,
        why = why.to_string(),
        "parked operations are lost"
    );
    Ok(KeyResult::Progress(true))
}

/// Memory for pieces that are tried together, as a lane has for a batch; none: delivery stops.
async fn memory(route: &Route, picked: &[Picked], stop: &mut watch::Receiver<bool>) -> Option<LaneMemory> {
    let sizes = picked.iter().map(|one| {
        (
            usize::try_from(one.bytes).unwrap_or(usize::MAX),
            one.docs as usize,
        )
    });
    let (bytes, docs) = sizes.fold((0, 0), |(bytes, docs), one| {
        (usize::saturating_add(bytes, one.0), docs + one.1)
    });
    let all = with_notes(bytes, docs);
    tokio::select! {
        biased;
        () = stopped(stop) => None,
        held = route.shared.delivery_memory.take(all, all) => Some(held),
    }
}

/// Returns the most operations that a key tries together, and the most bytes.
fn tried_at_once(route: &Route) -> (usize, u64) {
    let share = route.shared.delivery_memory.bytes_max() / SHARE;
    let bytes_max = route.group.settings.batch_bytes_max.min(share);
    (route.operations_max(), bytes_max as u64)
}

/// Makes dead letters of operations. Returns the operations that have become dead letters, and the reason why
/// the others, which stay parked, have not. The refusals of those are remembered.
async fn bury(
    route: &Route,
    parked: &Parked,
    load: &KeyBatch,
    work: &Work<'_>,
    dead: Vec<Dead>,
    snapshot: &Snapshot,
) -> (Vec<usize>, String) {
    let group = &route.group;
    let id_of = |dead: &Dead| load.id(parked, dead.operation);
    let owner = parked.owner();
    parked.unconfirmed_letters.begin(dead.iter().map(id_of), owner);
    let puts = dead.iter().map(|Dead { operation, error }| {
        let (piece, op) = load.of[*operation];
        let PickedEntry { picked, entry, .. } = &load.pieces[piece];
        let (origin, place) = entry.ops[op as usize];
        let (position, accepted_ms) = entry.origins[origin as usize];
        let cause = Cause {
            group: group.settings.group.to_string(),
            cluster: group.settings.cluster.to_string(),
            status: error.status,
            kind: error.kind.clone(),
            reason: error.reason.clone(),
            attempts: work.attempts[*operation],
            accepted_ms,
            position,
            lane: entry.lane,
            place,
            target: entry.target.clone(),
            content_type: entry.content_type.clone(),
            parked: Some((parked.number_of(picked.at), op)),
            ..Cause::default()
        };
        let at = work.operations[*operation];
        let index = work.named(*operation, snapshot).index().to_owned();
        let (letters, lines) = (&group.queue.dead_letters, &work.body[at.start..at.end]);
        async move { letters.put(cause, &index, lines).await }
    });
    let results = join_all(puts).await;
    let (mut buried, mut failed) = (Vec::new(), String::new());
    for (one, result) in dead.iter().zip(results) {
        match result {
            Ok(()) => {
                parked.unconfirmed_letters.put(id_of(one));
                buried.push(one.operation);
            }
            Err(error) => {
                parked.unconfirmed_letters.end([id_of(one)]);
                let mut unwritten = route.unwritten.borrow_mut();
                unwritten.keep(id_of(one), &one.error, Instant::now().into_std());
                failed = error.to_string();
                let why = &failed;
                // Refused operations have waited for room all the time, as their key says.
                if !load.pieces[load.of[one.operation].0].entry.key.is_letters() {
                    wire::rationed!(
                        tracing::error,
                        why,
                        "a parked operation that is given up stays parked"
                    );
                }
            }
        }
    }
    (buried, failed)
}

/// Records on disk which operations are gone, and then in memory, from where on later operations may pass.
async fn finish(
    route: &Route,
    parked: &Parked,
    key: &ParkKey,
    mut load: KeyBatch,
    buried: Vec<usize>,
) -> Result<bool, ParkedError> {
    let mut ids = Vec::with_capacity(buried.len());
    for operation in buried {
        ids.push(load.id(parked, operation));
        load.pieces[load.of[operation].0].tried.dead += 1;
        load.gone(operation);
    }
    let gone = load.pieces.iter().filter(|part| !part.tried.gone.is_empty());
    let gone: Vec<GoneEntry> = gone
        .map(|part| {
            let all = part.tried.gone.len() == part.entry.ops.len();
            GoneEntry {
                at: part.picked.at,
                lane: part.entry.lane,
                ops: (!all).then(|| part.tried.gone.clone()),
                dead: part.tried.dead,
                lost: 0,
            }
        })
        .collect();
    let lanes: BTreeSet<u32> = gone.iter().map(|one| one.lane).collect();
    let counts = gone.is_empty() || parked.resolve(gone).await?;
    let some = load.pieces.iter().any(|part| !part.tried.gone.is_empty());
    let retry = &route.group.settings.retry;
    {
        let mut state = parked.state();
        for part in load.pieces {
            let again = |attempts| backoff(retry.delay, attempts);
            state.tried(key, part.picked.order, &part.entry, part.tried, again);
        }
        parked
            .any
            .store(!state.is_empty(), std::sync::atomic::Ordering::Release);
        parked.tell(&state, lanes);
    }
    let mut unwritten = route.unwritten.borrow_mut();
    ids.iter().for_each(|id| unwritten.forget(*id));
    drop(unwritten);
    // From here on the letters may be purged and replayed; if their ends may not count, from when that is
    // known.
    let letters = match counts {
        true => parked.unconfirmed_letters.end(ids),
        false => 0,
    };
    parked.release_room();
    if letters > 0 {
        let letters_of = &route.group.queue.dead_letters;
        letters_of.committed(&route.group.settings.group, letters);
    }
    Ok(some)
}

/// Keys that are tried at once, each of which has a part of delivery's memory as a lane has, and how much of
/// all of it the lines of each may take.
const AT_ONCE: usize = 8;
/// The most tries at once, with those that begin because others are late, and what goes on without its try.
pub(crate) const TURNS_MAX: usize = AT_ONCE + MORE_TURNS_MAX + LEFT_MAX;
/// How many of these may be keys whose last try took long.
const SLOW_AT_ONCE: usize = AT_ONCE / 2;
const SHARE: usize = 64;
/// The number of tries of a key in a row before other keys have their turn.
const STEPS_MAX: usize = 50;
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const LOOK_AT_CLUSTER: Duration = Duration::from_millis(500);
/// The time until a key whose operations wait for their commit is looked at again.
const WAITS: Duration = Duration::from_millis(20);
/// The time until a key is looked at again whose operations wait for those of another index.
const BEHIND: Duration = Duration::from_millis(200);
/// The time until a store that failed is tried again.
const FAILED: Duration = Duration::from_secs(1);
