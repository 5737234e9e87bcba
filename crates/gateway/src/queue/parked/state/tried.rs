//! Takes over the result of a try.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::FailureRow;
use super::super::flight::Flight;
use super::super::key::ParkKey;
use super::super::store::ParkedEntry;
use super::{EntryPiece, Order, ParkedState};

/// The result of one try of a piece.
#[derive(Default)]
pub(crate) struct Tried {
    /// The operations that are indexed or dead.
    pub(crate) gone: Vec<u32>,
    /// How many of these are dead letters.
    pub(crate) dead: u64,
    /// The operations that are to wait for other keys.
    pub(crate) moved: BTreeMap<ParkKey, Vec<u32>>,
    /// The operations that failed, and wait before they are tried again.
    pub(crate) failed: Vec<u32>,
    /// The operations that were not sent, since their node keeps what it is sent, and wait by themselves.
    pub(crate) kept: Vec<u32>,
    /// The operations whose request goes on without the try, and waits by itself until it has ended.
    pub(crate) goes_on: Option<(Arc<Flight>, Vec<u32>)>,
    pub(crate) attempted: bool,
    pub(crate) refusals: u32,
    /// What the rows of failures of its operations have in common, if some were tried.
    pub(crate) failure_row: Option<FailureRow>,
    pub(crate) doubt: bool,
}

// === impl EntryPiece ===

impl EntryPiece {
    /// Returns its operations' numbers in its entry.
    pub(super) fn all_ops(&self, entry: &ParkedEntry) -> Vec<u32> {
        let all = || (0..entry.ops.len() as u32).collect();
        self.ops.clone().unwrap_or_else(all)
    }

    /// Returns a piece of some of its operations, which waits for this key and has all of its past.
    pub(super) fn remade(&self, entry: &ParkedEntry, key: &ParkKey, ops: Vec<u32>) -> Self {
        let entry = ParkedEntry {
            key: key.clone(),
            ..entry.clone()
        };
        let mut made = Self::new(self.at, self.bytes, &entry, Some(ops), self.standing);
        (made.parked_ms, made.had_ms) = (self.parked_ms, self.had_ms);
        (made.attempts, made.refusals) = (self.attempts, self.refusals);
        (made.failure_row, made.doubt) = (self.failure_row, self.doubt);
        (made.behind, made.flight) = (self.behind.clone(), self.flight.clone());
        made
    }

    /// Returns those of its operations that have to wait: those that failed, and later ones on the same
    /// documents. `left` are the operations that are not done.
    fn to_wait(&self, ops: &[u32], left: &BTreeSet<u32>, failed: &[u32]) -> BTreeSet<u32> {
        let failed: BTreeSet<u32> = failed.iter().copied().collect();
        let mut held = HashSet::new();
        let waits = |(at, op): &(usize, &u32)| {
            let place = self.places.get(*at).map(|place| place.now);
            let numbers = self
                .documents
                .get(*at)
                .into_iter()
                .flatten()
                .copied()
                .chain(place);
            let numbers: Vec<u64> = numbers.filter(|number| *number != 0).collect();
            let waits = failed.contains(op) || numbers.iter().any(|number| held.contains(number));
            if waits {
                held.extend(numbers);
            }
            waits
        };
        let ops = ops.iter().enumerate().filter(|(_, op)| left.contains(op));
        ops.filter(waits).map(|(_, op)| *op).collect()
    }

    /// Parts the operations that are not done into those that failed, those that wait for their node, each
    /// with later ones on the same documents, and the others, which need not wait with them. Says of each
    /// part whether it has failed, and whether it waits for a node.
    fn parts(
        &self,
        ops: &[u32],
        mut left: BTreeSet<u32>,
        (failed, kept): (&[u32], &[u32]),
    ) -> Vec<(BTreeSet<u32>, bool, bool)> {
        let failed = self.to_wait(ops, &left, failed);
        left.retain(|op| !failed.contains(op));
        let kept = self.to_wait(ops, &left, kept);
        left.retain(|op| !kept.contains(op));
        vec![(failed, true, false), (kept, false, true), (left, false, false)]
    }
}

// === impl ParkedState ===

impl ParkedState {
    /// Returns the wait of an operation that is for a node that keeps what it is sent: the more waits by
    /// itself, the longer, since it is read again to see whether it may go out.
    fn wait_for_node(&self) -> Duration {
        let seconds = self.bytes_of(&ParkKey::Documents) / LOOKED_AT_BYTES;
        (KEPT_MIN + Duration::from_secs(seconds)).min(KEPT_MAX)
    }

    /// Takes over the result of a piece's try; `tried.dead` of its documents are dead letters now.
    pub(crate) fn tried(
        &mut self,
        key: &ParkKey,
        order: Order,
        entry: &ParkedEntry,
        tried: Tried,
        again: impl Fn(u32) -> Duration,
    ) {
        let led_to = self.led_to(key, order);
        let wait_for_node = self.wait_for_node();
        let Some(piece) = self.remove(key, order) else {
            return;
        };
        let ops = piece.all_ops(entry);
        let mut left: BTreeSet<u32> = ops.iter().copied().collect();
        let goes_on = tried.goes_on.iter().flat_map(|(_, ops)| ops);
        let moved = tried.moved.values().flatten().chain(goes_on);
        let undone = left.len().saturating_sub(tried.gone.len()).max(1) as u64;
        for op in tried.gone.iter().chain(moved) {
            left.remove(op);
        }
        self.dead += tried.dead;
        self.lanes.entry(piece.lane).or_default().dead += tried.dead;
        // What is on disk stays there until all of them are done.
        let remake = |ops: Vec<u32>, key: &ParkKey, attempted: bool| {
            let share = piece.share * ops.len() as u64 / undone;
            let mut made = piece.remade(entry, key, ops);
            made.share = share;
            made.attempts += u32::from(attempted);
            made.refusals = tried.refusals.max(piece.refusals);
            made.failure_row = piece.failure_row.after(tried.failure_row, attempted);
            made.doubt |= tried.doubt;
            made
        };
        for (to, ops) in tried.moved {
            let names = entry.names_of(Some(&ops));
            let piece = remake(ops, &to, tried.attempted);
            self.insert(to, &names, "", piece);
        }
        if let Some((flight, ops)) = &tried.goes_on {
            let names = entry.names_of(Some(ops));
            let mut piece = remake(ops.clone(), &ParkKey::Documents, false);
            (piece.doubt, piece.flight) = (true, Some(Arc::clone(flight)));
            self.insert(ParkKey::Documents, &names, WAIT_FOR_ANSWER, piece);
        }
        let (is_alone, keeps) = (*key == ParkKey::Documents, !tried.kept.is_empty());
        let parts = match is_alone && (tried.attempted || keeps) && !self.is_full(0) {
            true => piece.parts(&ops, left, (&tried.failed, &tried.kept)),
            false => vec![(left, tried.attempted, keeps)],
        };
        let parts = parts.into_iter().filter(|(left, ..)| !left.is_empty());
        for (left, attempted, is_kept) in parts {
            let left: Vec<u32> = left.into_iter().collect();
            let mut names = entry.names_in(key, Some(&left));
            names.extend(led_to.iter().cloned());
            let mut piece = remake(left, key, attempted);
            if is_alone && (tried.attempted || keeps) {
                let failures = piece.attempts.saturating_sub(entry.attempts);
                let wait = again(failures) * u32::from(attempted);
                let wait = wait.max(wait_for_node * u32::from(is_kept));
                piece.next_try = Some(Instant::now() + wait);
            }
            self.insert(key.clone(), &names, "", piece);
        }
        self.forget_if_empty(key);
    }
}

/// Why operations wait whose request goes on without its try.
const WAIT_FOR_ANSWER: &str = "a node has not answered their request: they wait for its end";
/// The least and the longest wait of what is for a node that keeps what it is sent, and the bytes of it that
/// are read again in a second to see whether it does.
const KEPT_MIN: Duration = Duration::from_secs(2);
const KEPT_MAX: Duration = Duration::from_secs(30);
const LOOKED_AT_BYTES: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use super::super::tests::{entry, park};
    use super::super::{Picked, Standing};
    use super::*;

    /// Returns how many operations the pieces that may be tried now have.
    fn due(state: &ParkedState) -> Vec<u32> {
        let picked = state.pick(&ParkKey::Documents, 10, 10_000, |_| false).picked;
        picked.iter().map(|picked| picked.docs).collect()
    }

    #[test]
    fn an_operation_that_fails_waits_with_the_later_ones_on_its_document_and_no_other_does() {
        let mut state = ParkedState::default();
        let ids = entry(ParkKey::Documents, 2, &["1", "2", "3", "1"]);
        park(&mut state, &ids, 30);
        assert!(state.count(3));
        state.ready();
        let first = |state: &ParkedState| {
            let picked = state.pick(&ParkKey::Documents, 10, 10_000, |_| false).picked;
            picked[0].order
        };
        let attempted = || Tried {
            attempted: true,
            ..Tried::default()
        };
        let hour = |_| Duration::from_secs(3600);
        // The request was refused, perhaps for one of them.
        state.tried(&ParkKey::Documents, first(&state), &ids, attempted(), hour);
        assert_eq!(due(&state), [4], "all of them are due, to be sent in halves");
        let failed = Tried {
            failed: vec![0],
            ..attempted()
        };
        state.tried(&ParkKey::Documents, first(&state), &ids, failed, hour);
        assert_eq!(due(&state), [2]);
        assert!(state.has(30, 0) && state.has(30, 3), "they are still parked");
        state.release(None);
        assert_eq!(due(&state), [2, 2]);
        let pieces: Vec<_> = state.pieces().map(|piece| (piece.docs, piece.attempts)).collect();
        assert_eq!(pieces, [(2, ids.attempts + 1), (2, ids.attempts)]);
        assert!(state.pieces().all(|piece| piece.standing == Standing::Ready));
        assert_eq!(state.counted, 4);
    }

    #[test]
    fn operations_that_go_over_one_by_one_take_no_more_room_than_their_record() {
        let mut state = ParkedState::default();
        let key = ParkKey::Index {
            index: "logs".to_owned(),
        };
        let ids = entry(key.clone(), 2, &["1", "2", "3", "4"]);
        park(&mut state, &ids, 30);
        assert!(state.count(3));
        state.ready();
        let room = |state: &ParkedState| (state.bytes_of(&key), state.bytes_of(&ParkKey::Documents));
        assert_eq!(room(&state), (100, 0));
        for op in 0..4 {
            let picked = state.pick(&key, 10, 10_000, |_| false).picked;
            let moves = Tried {
                moved: [(ParkKey::Documents, vec![op])].into(),
                attempted: true,
                ..Tried::default()
            };
            state.tried(&key, picked[0].order, &ids, moves, |_| Duration::ZERO);
        }
        assert_eq!(room(&state), (0, 100));
        assert_eq!(state.live_bytes(), 100, "one record");
    }

    #[test]
    fn what_is_for_a_node_that_keeps_others_waits_for_it_and_the_rest_does_not() {
        let mut state = ParkedState::default();
        let ids = entry(ParkKey::Documents, 2, &["1", "2", "1"]);
        park(&mut state, &ids, 30);
        assert!(state.count(3));
        state.ready();
        let picked = state.pick(&ParkKey::Documents, 10, 10_000, |_| false).picked;
        let kept = Tried {
            kept: vec![0],
            ..Tried::default()
        };
        state.tried(&ParkKey::Documents, picked[0].order, &ids, kept, |_| {
            Duration::ZERO
        });
        assert_eq!(due(&state), [1], "the later one on its document waits with it");
        assert!(
            state
                .pieces()
                .all(|piece| piece.attempts == ids.attempts && !piece.doubt)
        );
        state.release(None);
        assert_eq!(due(&state), [2, 1]);
    }

    #[test]
    fn operations_of_a_request_that_goes_on_wait_for_its_end_by_themselves_and_their_line_goes_on() {
        let key = ParkKey::Index {
            index: "logs".to_owned(),
        };
        for key in [key, ParkKey::Documents] {
            let mut state = ParkedState::default();
            let ids = entry(key.clone(), 2, &["1", "2", "3"]);
            park(&mut state, &ids, 30);
            assert!(state.count(3));
            state.ready();
            let picked = state.pick(&key, 10, 10_000, |_| false).picked;
            let flight = Arc::new(Flight::default());
            let is_alone = key == ParkKey::Documents;
            let number = is_alone.then(|| state.begin_try(picked.iter().map(Picked::operations)));
            let tried = Tried {
                gone: vec![1],
                goes_on: Some((Arc::clone(&flight), vec![0])),
                attempted: true,
                ..Tried::default()
            };
            state.tried(&key, picked[0].order, &ids, tried, |_| Duration::ZERO);
            let number = state.leave_try(number, &flight);
            let docs = |state: &ParkedState, key: &ParkKey| {
                let picked = state.pick(key, 10, 10_000, |_| false).picked;
                picked
                    .iter()
                    .map(|one| (one.ops.clone(), one.doubt))
                    .collect::<Vec<_>>()
            };
            assert_eq!(docs(&state, &key), [(Some(vec![2]), false)], "{key:?}");
            assert!(state.has(30, 0) && !state.has(30, 1));
            flight.lands([].into());
            state.end_try(number);
            state.landed(&flight);
            let (alone, left) = (docs(&state, &ParkKey::Documents), docs(&state, &key));
            assert_eq!(alone[0], (Some(vec![0]), true), "{key:?}");
            assert!(left.contains(&(Some(vec![2]), false)));
            assert_eq!((state.counted, state.live_bytes()), (2, 100), "one record");
        }
    }
}
