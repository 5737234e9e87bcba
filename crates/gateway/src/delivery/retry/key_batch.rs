//! Parked operations of one key that are tried together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::Snapshot;
use traces::Context;
use wire::Buffer;

use super::at_nodes::{LateOutcome, TriesAtNodes};
use super::going_on::Left;
use super::passed_over::PassedOver;
use super::sending::Homes;
use super::{NotTried, With};
use crate::clock::steady_ms;
use crate::delivery::doubt::Doubt;
use crate::delivery::error_scope::concerns_requests;
use crate::delivery::lane::Route;
use crate::delivery::op_lines::lines_of;
use crate::delivery::outcome::{Again, Outcome};
use crate::delivery::same_document::{SameDocument, TryStep};
use crate::delivery::server_error::Error;
use crate::delivery::unwritten::Id;
use crate::delivery::work::{Batch, Origin, Work};
use crate::queue::parked::{
    FlightOp, Holder, HolderQuery, ParkKey, Parked, ParkedEntry, Picked, Scope, Store, Tried,
    behind_other_lane,
};
use crate::queue::{Fences, Params, Recorded, minted};

/// Pieces of one key that are sent together.
pub(super) struct KeyBatch {
    pub(super) batch: Batch,
    pub(super) pieces: Vec<PickedEntry>,
    /// For each operation: its piece, and its number in the entry.
    pub(super) of: Vec<(usize, u32)>,
}

pub(super) struct PickedEntry {
    pub(super) picked: Picked,
    pub(super) entry: Box<ParkedEntry>,
    pub(super) tried: Tried,
}

/// What a try does with operations of a key.
#[derive(Default)]
pub(super) struct DueSteps {
    /// The operations to be sent, in ascending order.
    pub(super) send: Vec<usize>,
    /// Those that go into other lines.
    pub(super) elsewhere: Vec<(usize, ParkKey)>,
    /// The key of another lane, or of a line without room, that some of the rest wait for.
    pub(super) other_lane: Option<ParkKey>,
}

/// The operations of a key that are to be sent now, and why some of the others wait.
pub(super) struct DueNow {
    pub(super) send: Vec<usize>,
    pub(super) behind: Option<String>,
}

/// What an operation of a key has to wait for besides those of its line.
pub(super) enum Held {
    /// It stays: with an earlier one on its document that was passed over, or since its node keeps others.
    Stays,
    By(Option<Holder>),
}

/// An operation that is given up.
pub(super) struct Dead {
    pub(super) operation: usize,
    pub(super) error: Arc<Error>,
}

/// The fate of an operation after a try.
pub(super) enum Fate {
    Gone,
    Dead(Arc<Error>),
    Elsewhere(ParkKey),
    /// It failed, and waits before it is tried again.
    Stays(Arc<Again>),
    /// It is tried again at once: another operation may be why its request failed.
    AtOnce(Arc<Again>),
}

// === impl DueSteps ===

impl DueSteps {
    /// Decides about operations of a key, in the order in which they were accepted: each with the number of
    /// its document, and whether an earlier one that may go to the same document is elsewhere. `has_room`
    /// says whether so many may go into other lines; those that may not stay, and later ones on their
    /// documents.
    pub(super) fn of(
        key: &ParkKey,
        operations: impl Iterator<Item = (usize, u64, bool)>,
        mut held: impl FnMut(usize) -> Held,
        has_room: impl Fn(usize) -> bool,
        limit: usize,
    ) -> Self {
        let (mut steps, mut same) = (Self::default(), SameDocument::default());
        for (operation, document, is_behind) in operations {
            if steps.send.len() >= limit {
                break;
            }
            let held = match key {
                _ if is_behind => Held::Stays,
                ParkKey::Letters { .. } => Held::By(None),
                _ => held(operation),
            };
            let Held::By(held) = held else {
                same.stay(document);
                continue;
            };
            // Operations that are refused already are not sent, so none overtakes another.
            let step = match key.is_letters() {
                true => TryStep::Send,
                false => same.next(document, held.as_ref()),
            };
            match step {
                TryStep::Send => steps.send.push(operation),
                TryStep::Move(to) if has_room(steps.elsewhere.len() + 1) => {
                    steps.elsewhere.push((operation, to))
                }
                TryStep::Move(to) => {
                    same.stay(document);
                    steps.other_lane = Some(to);
                }
                TryStep::Stay => {}
            }
            if let Some(Holder::OtherLane(key)) = held {
                steps.other_lane = Some(key);
            }
        }
        steps.send.sort_unstable();
        steps
    }
}

// === impl KeyBatch ===

impl KeyBatch {
    /// Reads pieces from the disk, and puts their lines together in `body`.
    pub(super) fn read(
        store: &Store,
        picked: Vec<Picked>,
        wording: &(String, String),
        body: &mut Buffer,
    ) -> Result<Self, NotTried> {
        let params = Params {
            target: wording.0.clone(),
            content_type: wording.1.clone(),
            minted: None,
            replay: None,
            idempotency: None,
            led_to: Vec::new(),
            led_to_in: BTreeMap::new(),
            trace: None,
        };
        let mut load = Self {
            batch: Batch::empty(),
            pieces: Vec::new(),
            of: Vec::new(),
        };
        for picked in picked {
            let read = store.read(picked.at)?;
            let Some((entry, lines)) = read else {
                return Err(NotTried::Damaged(picked.order));
            };
            let known = lines_of(&lines);
            if known.len() != entry.ops.len() {
                return Err(NotTried::OtherOperations(picked.order));
            }
            load.batch.minted.extend(entry.minted.iter().filter_map(minted));
            spans_of(&entry)
                .for_each(|(position, span)| load.batch.goes_on_from((entry.lane, position), span));
            body.reserve(lines.len());
            let mut request = None;
            for (op, range) in known.into_iter().enumerate() {
                if picked.ops.as_ref().is_none_or(|ops| ops.contains(&(op as u32))) {
                    let of = entry.ops[op].0;
                    if request.replace(of) != Some(of) {
                        load.batch.origins.push(origin_of(&entry, of, load.of.len()));
                    }
                    body.extend_from_slice(&lines[range]);
                    load.of.push((load.pieces.len(), op as u32));
                }
            }
            load.pieces.push(PickedEntry {
                picked,
                entry,
                tried: Tried::default(),
            });
        }
        load.batch.recorded = Some(Recorded::of(params));
        load.batch.documents = load.of.len();
        Ok(load)
    }

    /// Makes pieces of their own of those operations of others that are tried without the rest.
    pub(super) fn part(&mut self, parked: &Parked) {
        for PickedEntry { picked, entry, .. } in &mut self.pieces {
            if let Some(ops) = picked.ops.as_deref().filter(|_| picked.is_part) {
                picked.order = parked.state().part(picked.order, entry, ops);
            }
        }
    }

    /// Returns the operations to be sent now: the first one on each document, except for those that must wait
    /// for another key, or for a node.
    pub(super) fn due(
        &mut self,
        (with, given_up, passed): (With<'_>, bool, &PassedOver),
        key: &ParkKey,
        (work, snapshot): (&Work<'_>, &Snapshot),
        limit: usize,
        homes: &mut Homes,
    ) -> DueNow {
        let (route, parked, at_nodes) = with;
        // What is given up is not sent, so that it overtakes nothing.
        let fences = if given_up {
            Fences::default()
        } else {
            route.fences()
        };
        let is_free = given_up || passed.sends_nothing();
        let mut kept = Vec::new();
        let steps = {
            let state = parked.state();
            let held = |operation: usize| {
                let named = work.named(operation, snapshot);
                if passed.holds(&named) {
                    return Held::Stays;
                }
                let shard = || work.shard(operation, snapshot);
                let query = HolderQuery {
                    named: &named,
                    shard: &shard,
                    lane: self.lane(operation),
                    position: work.batch.origin(operation).position,
                    target: &work.wording.target,
                    fences: &fences,
                };
                let by = match key {
                    ParkKey::Documents => None,
                    _ => state.holder(&query, Some(key)),
                };
                if by.is_none()
                    && !is_free
                    && !self.has_answer(at_nodes, operation)
                    && !homes.may_go((route, at_nodes), work, operation, snapshot)
                {
                    kept.push(operation);
                    return Held::Stays;
                }
                Held::By(by)
            };
            let operations = self.by_acceptance();
            let operations = operations.into_iter().map(|operation| {
                let is_behind = self.is_behind_others(operation);
                (operation, work.operations[operation].document, is_behind)
            });
            DueSteps::of(key, operations, held, |moving| !state.is_full(moving), limit)
        };
        for (operation, to) in steps.elsewhere {
            self.moves(operation, to);
        }
        // In a line, they are passed over; by themselves, they wait as after a try.
        let kept = kept.into_iter().filter(|_| *key == ParkKey::Documents);
        kept.for_each(|operation| self.keeps(operation));
        let of_node = || {
            homes
                .keeping()
                .map(|node| format!("{node} keeps earlier requests"))
        };
        DueNow {
            send: steps.send,
            behind: steps.other_lane.as_ref().map(behind_other_lane).or_else(of_node),
        }
    }

    /// Whether an answer that came late says something of an operation.
    fn has_answer(&self, at_nodes: &TriesAtNodes, operation: usize) -> bool {
        let flight = self.pieces[self.of[operation].0].picked.flight.as_ref();
        flight.is_some_and(|flight| flight.has_done(self.flight_op(operation)))
            || at_nodes.has_answer(flight, self.flight_op(operation))
    }

    /// Takes away the operations of which an answer that came late says something; none that are given up.
    /// Returns them.
    pub(super) fn late_outcomes(
        &self,
        at_nodes: &TriesAtNodes,
        due: &mut Vec<usize>,
        given_up: bool,
    ) -> Vec<(usize, LateOutcome)> {
        let mut late = Vec::new();
        due.retain(|operation| {
            let flight = self.pieces[self.of[*operation].0].picked.flight.as_ref();
            match at_nodes.take(flight.filter(|_| !given_up), self.flight_op(*operation)) {
                Some(outcome) => late.push((*operation, outcome)),
                None => return true,
            }
            false
        });
        late
    }

    /// Returns the operations as they were accepted: pieces of one batch may overlap.
    fn by_acceptance(&self) -> Vec<usize> {
        let mut operations: Vec<usize> = (0..self.of.len()).collect();
        operations.sort_by_key(|operation| self.order_of(*operation));
        operations
    }

    fn order_of(&self, operation: usize) -> (u64, u32) {
        let (piece, op) = self.of[operation];
        self.pieces[piece].entry.order_of(op)
    }

    pub(super) fn flight_op(&self, operation: usize) -> FlightOp {
        let (position, place) = self.order_of(operation);
        (self.lane(operation), position, place)
    }

    /// Whether an earlier operation, which may go to the same document, is elsewhere.
    fn is_behind_others(&self, operation: usize) -> bool {
        let picked = &self.pieces[self.of[operation].0].picked;
        let (position, place) = self.order_of(operation);
        // Operations of different partitions in Kafka may have one position, so the record decides as well.
        picked.is_behind_others((position, place, picked.at))
    }

    /// Whether no operation goes to another line.
    pub(super) fn moves_none(&self) -> bool {
        self.pieces.iter().all(|piece| piece.tried.moved.is_empty())
    }

    pub(super) fn picked(&self) -> impl Iterator<Item = &Picked> {
        self.pieces.iter().map(|piece| &piece.picked)
    }

    /// Returns the fate that an outcome means for an operation that waited for a key. `request` is its index
    /// and the target of its request; `may_move` says whether there is room for it in another line.
    pub(super) fn outcome(
        &self,
        operation: usize,
        outcome: Outcome,
        (key, request): (&ParkKey, (&str, &str)),
        (age_max, may_move): (Duration, impl Fn() -> bool),
    ) -> Fate {
        let again = match outcome {
            Outcome::Done => return Fate::Gone,
            Outcome::Refused(error) => return Fate::Dead(error),
            // The operation waits by itself now: operations behind it do not wait for it.
            Outcome::Park(Scope::Document, _) if *key != ParkKey::Documents && may_move() => {
                return Fate::Elsewhere(ParkKey::Documents);
            }
            // So do the requests with these parameters.
            Outcome::Park(scope, again)
                if matches!(key, ParkKey::Index { .. })
                    && concerns_requests(scope, again.error(), request.1)
                    && may_move() =>
            {
                return Fate::Elsewhere(ParkKey::Request {
                    index: request.0.to_owned(),
                    target: request.1.to_owned(),
                });
            }
            Outcome::Park(_, again) => again,
            // It concerns the whole cluster, the account, or nobody knows whom: a lane would wait for as long
            // as it takes.
            Outcome::Again(again) => return Fate::Stays(again),
            Outcome::Whole(again) => return Fate::AtOnce(again),
            Outcome::Split { error, doubt } | Outcome::Shared { error, doubt } => {
                return Fate::AtOnce(Arc::new(Again::refused(error).with_doubt(doubt)));
            }
            Outcome::AtOnce(error) => return Fate::Stays(Arc::new(Again::refused(error))),
        };
        let picked = &self.pieces[self.of[operation].0].picked;
        let since = |then_ms| Duration::from_millis(steady_ms().saturating_sub(then_ms));
        let age = since(picked.parked_ms);
        // The clock may have been set while no gateway ran.
        if age < age_max || since(picked.had_ms) < age_max / HAD_PART {
            return Fate::Stays(again);
        }
        let error = again.error.as_deref().cloned().unwrap_or_else(|| Error {
            status: 503,
            kind: "parked_too_long".to_owned(),
            reason: again.why(),
        });
        Fate::Dead(Arc::new(Error {
            reason: format!("it was parked for {} s; {}", age.as_secs(), error.reason),
            ..error
        }))
    }

    /// Tells `work` the doubt, the attempts and the refusals of earlier tries of its operations.
    pub(super) fn recall(&self, work: &mut Work<'_>) {
        for (operation, (piece, _)) in self.of.iter().enumerate() {
            let picked = &self.pieces[*piece].picked;
            work.doubt[operation] = Doubt::since_start(picked.doubt, true);
            work.attempts[operation] = picked.attempts;
            work.refusals[operation] = picked.refusals;
            work.failure_rows[operation] = picked.failure_row;
        }
    }

    /// Takes away what has a dead letter from an earlier try that could not write down its end: it is not
    /// sent again, and no second letter is put. Returns it.
    pub(super) fn buried_before(&self, parked: &Parked, due: &mut Vec<usize>) -> Vec<usize> {
        let is_buried = |operation: &mut usize| {
            let id = self.id(parked, *operation);
            parked.unconfirmed_letters.is_put(id)
        };
        due.extract_if(.., is_buried).collect()
    }

    /// Takes away what a request has executed that was under way when it was parked: that is done. Takes the
    /// rest away, too, if nothing is to be sent.
    pub(super) fn executed(&mut self, due: &mut Vec<usize>, sends_nothing: bool) {
        let is_done = |operation: &mut usize| {
            let flight = self.pieces[self.of[*operation].0].picked.flight.as_ref();
            flight.is_some_and(|flight| flight.has_done(self.flight_op(*operation)))
        };
        let done: Vec<usize> = due.extract_if(.., is_done).collect();
        done.into_iter().for_each(|operation| self.gone(operation));
        due.retain(|_| !sends_nothing);
    }

    /// Takes away what was refused at an earlier try and whose dead letter the disk has not taken: it is not
    /// sent again. Returns it, to be given up.
    pub(super) fn refused_before(&self, route: &Route, parked: &Parked, due: &mut Vec<usize>) -> Vec<Dead> {
        let (mut unwritten, now) = (route.unwritten.borrow_mut(), Instant::now());
        let mut dead = Vec::new();
        due.retain(|operation| match unwritten.of(self.id(parked, *operation), now) {
            None => true,
            Some(error) => {
                dead.push(Dead {
                    operation: *operation,
                    error,
                });
                false
            }
        });
        dead
    }

    /// Returns the name of an operation that lasts from one try to the next.
    pub(super) fn id(&self, parked: &Parked, operation: usize) -> Id {
        let (piece, op) = self.of[operation];
        (parked.number_of(self.pieces[piece].picked.at), op)
    }

    /// Gives up operations as an operator asked: with the cluster's error, if there is one.
    pub(super) fn give_up(&self, operations: Vec<usize>) -> Vec<Dead> {
        let dead = operations.into_iter().map(|operation| {
            let error = self.refused(operation).unwrap_or_else(|| Error {
                status: 503,
                kind: "given_up_by_operator".to_owned(),
                reason: self.why(operation),
            });
            let error = Arc::new(error);
            Dead { operation, error }
        });
        dead.collect()
    }

    /// Returns the lane of an operation.
    pub(super) fn lane(&self, operation: usize) -> u32 {
        self.pieces[self.of[operation].0].entry.lane
    }

    /// Returns the lanes of operations.
    pub(super) fn lanes(&self, operations: &[usize]) -> Vec<u32> {
        let lanes: BTreeSet<u32> = operations.iter().map(|operation| self.lane(*operation)).collect();
        lanes.into_iter().collect()
    }

    pub(super) fn sent(&mut self, operations: &[usize]) {
        for operation in operations {
            self.pieces[self.of[*operation].0].tried.attempted = true;
        }
    }

    pub(super) fn note(&mut self, operation: usize, work: &Work<'_>) {
        let tried = &mut self.pieces[self.of[operation].0].tried;
        tried.refusals = tried.refusals.max(work.refusals[operation]);
        let row = work.failure_rows[operation];
        tried.failure_row = Some(tried.failure_row.map_or(row, |other| other.common(row)));
    }

    pub(super) fn doubts(&mut self, operation: usize, doubt: bool) {
        self.pieces[self.of[operation].0].tried.doubt |= doubt;
    }

    pub(super) fn failed(&mut self, operation: usize) {
        let (piece, op) = self.of[operation];
        self.pieces[piece].tried.failed.push(op);
    }

    /// Records that an operation was not sent, since its node keeps others.
    fn keeps(&mut self, operation: usize) {
        let (piece, op) = self.of[operation];
        self.pieces[piece].tried.kept.push(op);
    }

    pub(super) fn keeps_some(&self) -> bool {
        self.pieces.iter().any(|piece| !piece.tried.kept.is_empty())
    }

    /// Records that operations go on without the try.
    pub(super) fn goes_on(&mut self, left: &Left) {
        for operation in &left.operations {
            let (piece, op) = self.of[*operation];
            let goes_on = &mut self.pieces[piece].tried.goes_on;
            let (_, ops) = goes_on.get_or_insert_with(|| (Arc::clone(&left.flight), Vec::new()));
            ops.push(op);
        }
        for piece in &mut self.pieces {
            let goes_on = piece.tried.goes_on.iter_mut();
            goes_on.for_each(|(_, ops)| ops.sort_unstable());
        }
    }

    pub(super) fn gone(&mut self, operation: usize) {
        let (piece, op) = self.of[operation];
        self.pieces[piece].tried.gone.push(op);
    }

    pub(super) fn moves(&mut self, operation: usize, to: ParkKey) {
        let (piece, op) = self.of[operation];
        let moved: &mut BTreeMap<ParkKey, Vec<u32>> = &mut self.pieces[piece].tried.moved;
        moved.entry(to).or_default().push(op);
    }

    /// Returns the cluster's error for an operation that is refused already.
    pub(super) fn refused(&self, operation: usize) -> Option<Error> {
        let (piece, op) = self.of[operation];
        let refused = self.pieces[piece].entry.refused.get(op as usize)?;
        Some(refused.clone().into())
    }

    pub(super) fn why(&self, operation: usize) -> String {
        let entry = &self.pieces[self.of[operation].0].entry;
        match entry.why.is_empty() {
            true => "it waited behind others".to_owned(),
            false => entry.why.clone(),
        }
    }
}

/// Returns where the operations of one of an entry's requests come from, as a batch has it from its operation
/// `first` on.
fn origin_of(entry: &ParkedEntry, request: u32, first: usize) -> Origin {
    let of_it = entry.led_to.iter().filter(|(number, ..)| *number == request);
    let led_to: Vec<_> = of_it
        .map(|(_, name, index)| (name.clone(), index.clone()))
        .collect();
    let at = entry.origins.get(request as usize);
    Origin {
        first,
        place: 0,
        position: at.map_or(0, |(position, _)| *position),
        time_ms: at.map_or(0, |(_, time_ms)| *time_ms),
        led_to: (!led_to.is_empty()).then(|| led_to.into()),
    }
}

/// Returns the positions of an entry's traced requests, each with the span that put it into the queue.
fn spans_of(entry: &ParkedEntry) -> impl Iterator<Item = (u64, Context)> {
    entry.spans.iter().filter_map(|(request, span)| {
        let (position, _) = entry.origins.get(*request as usize)?;
        Some((*position, Context::parse(span.as_bytes())?))
    })
}

/// An operation is tried for one part in this many of its longest age before it is given up, however old it
/// is when the gateway starts, or takes its lane over.
const HAD_PART: u32 = 24;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{HeaderMap, StatusCode};
    use log::Options;
    use wire::{Budget, Pool};

    use super::*;
    use crate::delivery::outcome::outcomes;

    /// Reads what was parked a long time ago: an operation for each entry that `entry_of` makes.
    fn read(entry_of: impl Fn(u32) -> ParkedEntry) -> KeyBatch {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), Options::default()).unwrap();
        let picked = (0..2).map(|number| {
            let lines = b"{\"delete\":{\"_index\":\"i\",\"_id\":\"1\"}}\n";
            let (at, bytes) = store.put_copy(&entry_of(number), lines).unwrap();
            Picked {
                order: Default::default(),
                at,
                ops: None,
                is_part: false,
                docs: 1,
                bytes,
                attempts: 0,
                refusals: 0,
                failure_row: Default::default(),
                doubt: false,
                parked_ms: 5,
                had_ms: 5,
                until: None,
                flight: None,
            }
        });
        let picked = picked.collect();
        let mut body = Pool::new(Arc::new(Budget::new(1 << 20))).take(0);
        let wording = ("/_bulk".to_owned(), "application/x-ndjson".to_owned());
        let load = KeyBatch::read(&store, picked, &wording, &mut body);
        load.unwrap_or_else(|_| panic!("both are there"))
    }

    #[test]
    fn requests_at_one_position_of_two_lanes_go_on_from_their_own_spans() {
        let span = |lane: u32| format!("00-{:032x}-{:016x}-01", 7, lane + 1);
        let load = read(|lane| ParkedEntry {
            lane,
            spans: vec![(0, span(lane))],
            ..ParkedEntry::sample()
        });
        for operation in 0..2 {
            let (lane, position) = (load.lane(operation), load.batch.origin(operation).position);
            let from = load.batch.span_of((lane, position)).unwrap();
            assert_eq!((lane, from.to_string()), (operation as u32, span(lane)));
        }
    }

    #[test]
    fn an_operation_whose_letter_is_there_is_not_sent_again_and_gets_no_second_one() {
        let load = read(|_| ParkedEntry::sample());
        let folder = tempfile::tempdir().unwrap();
        let parked = Parked::sample(folder.path());
        let ids = [0, 1].map(|operation| load.id(&parked, operation));
        assert_ne!(ids[0], ids[1]);
        parked.unconfirmed_letters.begin(ids, None);
        parked.unconfirmed_letters.put(ids[1]);
        let mut due = vec![0, 1];
        assert_eq!(load.buried_before(&parked, &mut due), [1]);
        assert_eq!(
            due,
            [0],
            "nobody knows whether the letter of the other one was put"
        );
    }

    #[test]
    fn an_operation_dies_of_age_only_if_it_failed_by_itself() {
        let load = read(|_| ParkedEntry::sample());
        let error = || {
            Arc::new(Error {
                status: 403,
                kind: "security_exception".to_owned(),
                reason: "no".to_owned(),
            })
        };
        let again = || Arc::new(Again::refused(error()));
        let key = ParkKey::Index {
            index: "i".to_owned(),
        };
        let fate = |outcome| {
            let age_max = Duration::from_secs(1);
            load.outcome(0, outcome, (&key, ("i", "/_bulk")), (age_max, || true))
        };
        for outcome in [
            Outcome::Whole(again()),
            Outcome::Split {
                error: error(),
                doubt: false,
            },
            Outcome::Shared {
                error: error(),
                doubt: false,
            },
        ] {
            assert!(matches!(fate(outcome.clone()), Fate::AtOnce(_)), "{outcome:?}");
        }
        assert!(
            matches!(fate(Outcome::AtOnce(error())), Fate::Stays(_)),
            "another writer came in between"
        );
        let parks = Outcome::Park(Scope::Index, again());
        assert!(matches!(fate(parks), Fate::Dead(_)));
        let whole = |status| {
            let sent = ("node-1", Instant::now());
            let refused = outcomes(status, &HeaderMap::new(), b"<html>no", 1, sent).into_iter();
            refused.collect::<Vec<_>>().remove(0)
        };
        for outcome in [
            whole(StatusCode::FORBIDDEN),
            whole(StatusCode::UNAUTHORIZED),
            Outcome::again(Again::unsent("no node".to_owned())),
            Outcome::Again(again()),
        ] {
            let stays = matches!(fate(outcome.clone()), Fate::Stays(_));
            assert!(stays, "nobody knows whom it concerns: {outcome:?}");
        }
    }

    #[test]
    fn what_is_old_when_the_gateway_starts_is_tried_for_a_while_before_it_is_given_up() {
        let mut load = read(|_| ParkedEntry::sample());
        let key = ParkKey::Index {
            index: "i".to_owned(),
        };
        let fate = |load: &KeyBatch| {
            let age_max = Duration::from_secs(24 * 3600);
            let outcome = Outcome::Park(Scope::Index, Arc::new(Again::unsent("closed".to_owned())));
            load.outcome(0, outcome, (&key, ("i", "/_bulk")), (age_max, || true))
        };
        for (had_min, dies) in [(0, false), (50, false), (70, true)] {
            load.pieces[0].picked.had_ms = steady_ms() - had_min * 60_000;
            assert_eq!(matches!(fate(&load), Fate::Dead(_)), dies, "after {had_min} min");
        }
    }

    #[test]
    fn operations_behind_one_that_has_moved_follow_it_only_while_there_is_room_and_keep_their_order() {
        let key = ParkKey::Index {
            index: "i".to_owned(),
        };
        let to = ParkKey::Documents;
        let steps = |room: usize| {
            // Two operations on the document 1, of which an earlier one has moved, beside two on others.
            let operations = [(0, 1, false), (1, 2, false), (2, 1, false), (3, 3, false)];
            let held = |operation: usize| {
                let moved = operation.is_multiple_of(2);
                Held::By(moved.then_some(Holder::Key(ParkKey::Documents)))
            };
            DueSteps::of(&key, operations.into_iter(), held, |moving| moving <= room, 10)
        };
        let all = steps(2);
        assert_eq!((all.send, all.other_lane), (vec![1, 3], None));
        assert_eq!(all.elsewhere, [(0, to.clone()), (2, to.clone())]);
        let first = steps(1);
        assert_eq!((first.send, first.other_lane), (vec![1, 3], Some(to.clone())));
        assert_eq!(first.elsewhere, [(0, to.clone())], "the second stays behind it");
        let none = steps(0);
        assert_eq!(
            (none.send, none.other_lane),
            (vec![1, 3], Some(to)),
            "others go on"
        );
        assert!(none.elsewhere.is_empty());
    }

    #[test]
    fn an_operation_goes_into_another_line_only_if_there_is_room() {
        let load = read(|_| ParkedEntry::sample());
        let key = ParkKey::Index {
            index: "i".to_owned(),
        };
        for scope in [Scope::Document, Scope::Request] {
            let fate = |has_room: bool| {
                let outcome = Outcome::Park(scope, Arc::new(Again::unsent("no".to_owned())));
                load.outcome(0, outcome, (&key, ("i", "/_bulk")), (Duration::MAX, || has_room))
            };
            assert!(matches!(fate(true), Fate::Elsewhere(_)), "{scope:?}");
            assert!(matches!(fate(false), Fate::Stays(_)), "{scope:?}");
        }
    }
}
