//! Takes over the result of a try.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::super::FailureRow;
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
}

// === impl ParkedState ===

impl ParkedState {
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
        let Some(piece) = self.remove(key, order) else {
            return;
        };
        let ops = piece.all_ops(entry);
        let mut left: BTreeSet<u32> = ops.iter().copied().collect();
        for op in tried.gone.iter().chain(tried.moved.values().flatten()) {
            left.remove(op);
        }
        self.dead += tried.dead;
        self.lanes.entry(piece.lane).or_default().dead += tried.dead;
        // What is on disk stays there until all of them are done.
        let moved = tried.moved.values().map(Vec::len).sum::<usize>();
        let undone = (left.len() + moved).max(1) as u64;
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
        let mut parts = vec![(left.clone(), tried.attempted)];
        if *key == ParkKey::Documents && tried.attempted && !self.is_full(0) {
            // Those of them that did not fail need not wait with those that did.
            let waiting = piece.to_wait(&ops, &left, &tried.failed);
            left.retain(|op| !waiting.contains(op));
            parts = vec![(waiting, true), (left, false)];
        }
        for (left, attempted) in parts {
            if left.is_empty() {
                continue;
            }
            let left: Vec<u32> = left.into_iter().collect();
            let mut names = entry.names_in(key, Some(&left));
            names.extend(led_to.iter().cloned());
            let mut piece = remake(left, key, attempted);
            if *key == ParkKey::Documents && tried.attempted {
                let failures = piece.attempts.saturating_sub(entry.attempts);
                let wait = again(failures) * u32::from(attempted);
                piece.next_try = Some(Instant::now() + wait);
            }
            self.insert(key.clone(), &names, "", piece);
        }
        self.forget_if_empty(key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Standing;
    use super::super::tests::{entry, park};
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
}
