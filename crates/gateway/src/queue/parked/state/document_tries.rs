//! The tries under way of operations that are parked by themselves ([`ParkKey::Documents`]).
//!
//! Such operations do not wait for each other, except on the same document. A try of them waits for all its
//! nodes, though, and a node may keep a request for long. So while a try is late, the next one begins, with
//! operations on other documents. Each later try waits twice as long as the one before it, so a node that
//! keeps everything is soon asked for little.
//!
//! A request that a node keeps goes on without its try, of whatever key, as long as there are not too many:
//! its operations wait by themselves until it has ended.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::time::Instant;

use super::super::flight::Flight;
use super::super::key::ParkKey;
use super::super::store::ParkedEntry;
use super::turns::SLOW;
use super::{EntryPiece, Order, ParkedState};

/// The tries under way, and how many turns the key has besides its first.
#[derive(Default)]
pub(super) struct DocumentTries {
    under_way: Vec<DocumentTry>,
    next_number: u64,
    pub(super) more_turns: usize,
    /// Whether no further turns may begin.
    are_enough: bool,
    /// The keys of requests that go on without their tries, once for each.
    left: Vec<ParkKey>,
}

struct DocumentTry {
    number: u64,
    pieces: HashSet<Order>,
    /// The documents of its operations, by their names at the time.
    documents: HashSet<u64>,
    /// When it was sent; none as long as it waits for memory.
    sent: Option<Instant>,
    /// Whether its turn is over, and only a request of it goes on.
    is_left: bool,
}

/// What a try may have of a piece.
pub(super) enum Free {
    All,
    Some(Vec<u32>),
    Nothing,
}

// === impl DocumentTries ===

impl DocumentTries {
    fn have_piece(&self, order: &Order) -> bool {
        self.under_way.iter().any(|one| one.pieces.contains(order))
    }

    fn have_document(&self, number: u64) -> bool {
        self.under_way.iter().any(|one| one.documents.contains(&number))
    }

    fn of(&mut self, number: u64) -> Option<&mut DocumentTry> {
        self.under_way.iter_mut().find(|one| one.number == number)
    }

    /// Returns from when on one more turn may begin, if the others are all late: one that is between two
    /// tries, or waits for memory, goes on by itself.
    pub(super) fn more_from(&self) -> Option<Instant> {
        let turns = 1 + self.more_turns;
        let under_way = || self.under_way.iter().filter(|one| !one.is_left);
        if self.are_enough || self.more_turns >= MORE_TURNS_MAX || under_way().count() < turns {
            return None;
        }
        let sent: Option<Vec<Instant>> = under_way().map(|one| one.sent).collect();
        let newest = sent?.into_iter().max()?;
        Some(newest + SLOW * (1 << self.more_turns))
    }
}

// === impl EntryPiece ===

impl EntryPiece {
    /// Returns the numbers of the document of one of its operations, by all its names; `at` is the
    /// operation's place among those of the piece.
    pub(super) fn numbers_at(&self, at: usize) -> impl Iterator<Item = u64> {
        let place = self.places.get(at).map(|place| place.now);
        let numbers = self.documents.get(at).into_iter().flatten().copied();
        numbers.chain(place).filter(|number| *number != 0)
    }

    /// Returns the numbers of the documents of some of its operations.
    fn numbers_of(&self, ops: &[u32]) -> impl Iterator<Item = u64> {
        let ops: HashSet<u32> = ops.iter().copied().collect();
        let known = self.documents.len().max(self.places.len());
        let op = |at: usize| {
            self.ops
                .as_ref()
                .map_or(Some(at as u32), |of| of.get(at).copied())
        };
        let places = (0..known).filter(move |at| op(*at).is_some_and(|op| ops.contains(&op)));
        places.flat_map(|at| self.numbers_at(at))
    }

    /// Returns what is left of it without the operations that wait, and others on their documents.
    fn free_but(&self, waits: impl Fn(usize) -> bool) -> Free {
        let known = self.documents.len().max(self.places.len());
        if !(0..known).any(&waits) {
            return Free::All;
        }
        let mut stays: Vec<bool> = (0..known).map(waits).collect();
        let (mut held, mut before) = (HashSet::new(), None);
        // One may be on a document by one name, and share another name with an earlier one.
        while before != Some(held.len()) {
            before = Some(held.len());
            for (at, stays) in stays.iter_mut().enumerate() {
                *stays = *stays || self.numbers_at(at).any(|number| held.contains(&number));
                if *stays {
                    held.extend(self.numbers_at(at));
                }
            }
        }
        let free = (0..known).filter(|at| !stays[*at]);
        let ops: Vec<u32> = match &self.ops {
            None => free.map(|at| at as u32).collect(),
            Some(of) => free.filter_map(|at| of.get(at).copied()).collect(),
        };
        match ops.is_empty() {
            true => Free::Nothing,
            false => Free::Some(ops),
        }
    }
}

// === impl ParkedState ===

impl ParkedState {
    /// Begins a try of pieces, or of these operations of them; returns its number. Nobody else picks the
    /// pieces, or others with these documents, until [`ParkedState::end_try`].
    pub(crate) fn begin_try<'p>(&mut self, picked: impl Iterator<Item = (Order, Option<&'p [u32]>)>) -> u64 {
        let held = self.keys.get(&ParkKey::Documents);
        let (mut pieces, mut documents) = (HashSet::new(), HashSet::new());
        for (order, ops) in picked {
            pieces.insert(order);
            let Some(piece) = held.and_then(|held| held.pieces.get(&order)) else {
                continue;
            };
            match ops {
                Some(ops) => documents.extend(piece.numbers_of(ops)),
                None => documents.extend(piece.numbers()),
            }
        }
        let tries = &mut self.document_tries;
        tries.next_number += 1;
        tries.under_way.push(DocumentTry {
            number: tries.next_number,
            pieces,
            documents,
            sent: None,
            is_left: false,
        });
        tries.next_number
    }

    /// Whether a request of a key may go on without its try, which then counts until
    /// [`ParkedState::returns_turn`].
    pub(crate) fn leaves_turn(&mut self, key: &ParkKey) -> bool {
        let left = &mut self.document_tries.left;
        let most = match key {
            ParkKey::Documents => LEFT_MAX / 2,
            // An index may be to blame, and not a node.
            _ => LEFT_OF_KEY_MAX,
        };
        let may = left.len() < LEFT_MAX && left.iter().filter(|of| *of == key).count() < most;
        if may {
            left.push(key.clone());
        }
        may
    }

    /// Records that a request has ended that went on without the try of this key.
    pub(crate) fn returns_turn(&mut self, key: &ParkKey) {
        let left = &mut self.document_tries.left;
        if let Some(at) = left.iter().position(|of| of == key) {
            left.swap_remove(at);
        }
    }

    /// Ends a try but for a request of it that goes on: nobody picks others on the documents of that,
    /// whatever names lead to these by then. What else the try had is free again. `number` is that of the
    /// try, if it has one. Returns the number to end.
    pub(crate) fn leave_try(&mut self, number: Option<u64>, flight: &Arc<Flight>) -> u64 {
        let number = number.unwrap_or_else(|| self.begin_try(std::iter::empty()));
        let held = self.keys.get(&ParkKey::Documents);
        let pieces = held.into_iter().flat_map(|held| held.pieces.values());
        let pieces = pieces.filter(|piece| piece.flight.as_ref() == Some(flight));
        let documents: HashSet<u64> = pieces.flat_map(EntryPiece::numbers).collect();
        if let Some(one) = self.document_tries.of(number) {
            one.is_left = true;
            one.pieces.clear();
            one.documents = documents;
        }
        number
    }

    /// Lets more turns begin, or no more, so that there is a time at which nothing is tried.
    pub(crate) fn may_have_more_turns(&mut self, may: bool) {
        self.document_tries.are_enough = !may;
    }

    /// Records that a try goes out now.
    pub(crate) fn sends_try(&mut self, number: u64) {
        if let Some(one) = self.document_tries.of(number) {
            one.sent = Some(Instant::now());
        }
    }

    pub(crate) fn end_try(&mut self, number: u64) {
        self.document_tries.under_way.retain(|one| one.number != number);
    }

    /// Whether an operation of an entry at this place is in a try under way.
    pub(crate) fn is_tried(&self, at: u64, op: u32) -> bool {
        let held = self.keys.get(&ParkKey::Documents);
        let pieces = held.into_iter().flat_map(|held| &held.pieces);
        let mut tried = pieces.filter(|(order, _)| order.2 == at && self.document_tries.have_piece(order));
        tried.any(|(_, piece)| piece.ops.as_ref().is_none_or(|ops| ops.contains(&op)))
    }

    /// Whether a piece that waits by itself is in a try under way.
    pub(super) fn is_piece_tried(&self, order: &Order) -> bool {
        self.document_tries.have_piece(order)
    }

    pub(crate) fn tries_documents(&self) -> bool {
        self.document_tries.under_way.iter().any(|one| !one.is_left)
    }

    /// Returns what of a piece that waits by itself may go out: no operation on a document that an earlier
    /// one is on, or that a try has. `seen` has the documents of earlier pieces, and gets those of this
    /// one.
    pub(super) fn free_of(&self, order: &Order, piece: &EntryPiece, seen: &mut HashSet<u64>) -> Free {
        let tries = &self.document_tries;
        let free = match tries.have_piece(order) || piece.is_under_way() {
            true => Free::Nothing,
            false => {
                let is_held = |number| seen.contains(&number) || tries.have_document(number);
                let waits = |at: usize| {
                    piece.numbers_at(at).any(is_held) || self.has_joined_line(piece.numbers_at(at), *order)
                };
                match piece.free_but(waits) {
                    // There is no room for another piece.
                    Free::Some(_) if self.is_full(0) => Free::Nothing,
                    free => free,
                }
            }
        };
        seen.extend(piece.numbers());
        free
    }

    /// Makes a piece of its own of those operations of one that a try takes. Returns its place.
    pub(crate) fn part(&mut self, order: Order, entry: &ParkedEntry, ops: &[u32]) -> Order {
        let key = ParkKey::Documents;
        let Some(piece) = self.remove(&key, order) else {
            return order;
        };
        let all = piece.all_ops(entry);
        let ops: HashSet<u32> = ops.iter().copied().collect();
        let (taken, left): (Vec<u32>, Vec<u32>) = all.iter().partition(|op| ops.contains(op));
        let mut now = order;
        for (ops, is_taken) in [(taken, true), (left, false)] {
            if ops.is_empty() {
                continue;
            }
            let names = entry.names_in(&key, Some(&ops));
            let share = piece.share * ops.len() as u64 / all.len() as u64;
            let mut part = piece.remade(entry, &key, ops);
            (part.share, part.next_try) = (share, piece.next_try);
            if is_taken {
                now = (part.order.0, part.order.1, part.at);
            }
            self.insert(key.clone(), &names, "", part);
        }
        for one in &mut self.document_tries.under_way {
            if one.pieces.remove(&order) {
                one.pieces.insert(now);
            }
        }
        now
    }
}

/// How many turns the key may have besides its first. The last of them begins two minutes after the first, if
/// none of them ends.
pub(crate) const MORE_TURNS_MAX: usize = 6;
/// How many requests may go on without their tries, half of them of the key, and how many of each other key.
pub(crate) const LEFT_MAX: usize = 10;
const LEFT_OF_KEY_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::OperationNames;
    use super::super::tests::{entry, park};
    use super::super::{Picked, Tried};
    use super::*;

    const KEY: ParkKey = ParkKey::Documents;

    fn parked(entries: &[(u64, &[&str])]) -> ParkedState {
        let mut state = ParkedState::default();
        for (at, ids) in entries {
            park(&mut state, &entry(KEY, *at, ids), *at);
        }
        assert!(state.count(3));
        state.ready();
        state
    }

    fn pick(state: &ParkedState, docs_max: usize) -> Vec<Picked> {
        state.pick(&KEY, docs_max, 10_000, |_| false).picked
    }

    fn begin(state: &mut ParkedState, picked: &[Picked]) -> u64 {
        state.begin_try(picked.iter().map(Picked::operations))
    }

    fn begin_next(state: &mut ParkedState, docs_max: usize) -> u64 {
        let picked = pick(state, docs_max);
        begin(state, &picked[..1])
    }

    fn places(picked: &[Picked]) -> Vec<(u64, Option<Vec<u32>>)> {
        picked.iter().map(|one| (one.at, one.ops.clone())).collect()
    }

    #[test]
    fn a_late_try_leaves_what_is_on_other_documents_to_the_next() {
        let mut state = parked(&[(10, &["1", "2"]), (20, &["3"])]);
        let now = Instant::now() + Duration::from_secs(1);
        assert_eq!(state.due_at(now, 8, 4), [KEY]);
        let first = begin_next(&mut state, 2);
        let later = now + Duration::from_secs(60);
        assert!(state.due_at(later, 8, 4).is_empty(), "it waits for memory");
        state.sends_try(first);
        assert!(state.due_at(now, 8, 4).is_empty(), "it is not late");
        assert!(state.next_due(4).is_some_and(|due| due <= now + SLOW));
        assert_eq!(state.due_at(now + SLOW, 8, 4), [KEY]);
        assert!(
            state.due_at(later, 8, 4).is_empty(),
            "the second turn goes on by itself"
        );
        assert_eq!(places(&pick(&state, 2)), [(20, None)]);
        let second = begin_next(&mut state, 2);
        state.sends_try(second);
        assert!(pick(&state, 2).is_empty());
        assert!(
            state.due_at(now + SLOW, 8, 4).is_empty(),
            "later ones wait longer"
        );
        assert_eq!(state.due_at(now + 2 * SLOW, 8, 4), [KEY]);
        state.idle(&KEY, false, Duration::ZERO);
        // One ends: the other is late by then, and has been for long enough.
        state.end_try(first);
        state.rest(&KEY, true, None, |_| Duration::ZERO);
        assert_eq!(places(&pick(&state, 2)), [(10, None)]);
        assert_eq!(state.due_at(later, 8, 4), [KEY]);
        state.end_try(second);
        state.rest(&KEY, true, None, |_| Duration::ZERO);
        state.rest(&KEY, true, None, |_| Duration::ZERO);
        assert_eq!((state.more_turns(), state.due_at(later, 8, 4)), (0, vec![KEY]));
    }

    #[test]
    fn turns_besides_the_first_are_bounded() {
        let ids: Vec<String> = (0..20).map(|id| id.to_string()).collect();
        let ids: Vec<[&str; 1]> = ids.iter().map(|id| [&**id]).collect();
        let entries: Vec<(u64, &[&str])> = ids.iter().zip(1..).map(|(id, at)| (10 * at, &id[..])).collect();
        let mut state = parked(&entries);
        let mut turns = 0;
        loop {
            if state
                .due_at(Instant::now() + Duration::from_secs(3600), 8, 4)
                .is_empty()
            {
                break;
            }
            turns += 1;
            let number = begin_next(&mut state, 1);
            state.sends_try(number);
        }
        assert_eq!((turns, state.more_turns()), (1 + MORE_TURNS_MAX, MORE_TURNS_MAX));
    }

    #[test]
    fn of_operations_that_were_parked_together_only_those_wait_whose_documents_are_in_a_try() {
        let second = entry(KEY, 20, &["1", "3", "1", "4"]);
        let mut state = parked(&[(10, &["1"]), (20, &["1", "3", "1", "4"])]);
        let number = begin_next(&mut state, 1);
        let picked = pick(&state, 10);
        assert_eq!(places(&picked), [(20, Some(vec![1, 3]))]);
        assert!(picked[0].is_part && picked[0].docs == 2);
        let other = begin(&mut state, &picked);
        let order = state.part(picked[0].order, &second, &[1, 3]);
        assert_ne!(order, picked[0].order);
        assert!(state.is_tried(20, 1) && state.is_tried(20, 3) && !state.is_tried(20, 0));
        assert!(pick(&state, 10).is_empty());
        state.end_try(number);
        assert_eq!(
            places(&pick(&state, 10)),
            [(10, None)],
            "the later ones wait for it still"
        );
        state.end_try(other);
        assert_eq!(places(&pick(&state, 10)), [(10, None), (20, Some(vec![1, 3]))]);
        assert_eq!((state.counted, state.bytes_of(&KEY)), (5, 200));
        let gone = Tried {
            gone: vec![1, 3],
            ..Default::default()
        };
        state.tried(&KEY, order, &second, gone, |_| Duration::ZERO);
        assert_eq!(
            (state.counted, state.has(20, 2), state.has(20, 3)),
            (3, true, false)
        );
    }

    #[test]
    fn a_document_of_a_try_waits_also_after_its_name_has_moved() {
        let through = |name: &str, position| {
            let named = OperationNames::new(name.to_owned(), Some("i0".to_owned()), Some("1"));
            ParkedEntry {
                names: vec![name.to_owned(), "i0".to_owned()],
                documents: vec![named.document],
                places: vec![(0, 1, named.id)],
                ..entry(KEY, position, &["1"])
            }
        };
        let mut state = ParkedState::default();
        park(&mut state, &through("a", 1), 10);
        let direct = OperationNames::new("i1".to_owned(), Some("i1".to_owned()), Some("1"));
        let direct = ParkedEntry {
            names: vec!["i1".to_owned()],
            documents: vec![direct.document],
            places: vec![(0, 0, direct.id)],
            ..entry(KEY, 2, &["1"])
        };
        park(&mut state, &direct, 20);
        assert!(state.count(3));
        state.ready();
        let leads = |state: &mut ParkedState, to: &'static str| {
            state.follow_documents(|name| Some(if name == "a" { to } else { name }.to_owned()));
        };
        leads(&mut state, "i1");
        let number = begin_next(&mut state, 1);
        leads(&mut state, "i2");
        assert!(pick(&state, 10).is_empty(), "it is being sent to i1");
        state.end_try(number);
        assert_eq!(places(&pick(&state, 10)), [(10, None), (20, None)]);
    }

    #[test]
    fn of_operations_on_one_document_by_different_names_none_goes_without_the_others() {
        let mut state = parked(&[(10, &["1"]), (20, &["2", "3", "4"])]);
        // The last of the second record is on the document of the first one, and on that of the one before.
        let held = state.keys.get_mut(&KEY).unwrap();
        let one = held.pieces.values().next().unwrap().documents[0][0];
        let piece = held.pieces.values_mut().nth(1).unwrap();
        piece.documents[2] = [one, piece.documents[1][0]];
        let picked = pick(&state, 10);
        assert_eq!(places(&picked), [(10, None), (20, Some(vec![0]))]);
    }

    #[test]
    fn a_turn_that_finds_nothing_ends_until_something_is_due() {
        let ids = entry(KEY, 10, &["1"]);
        let mut state = parked(&[(10, &["1"])]);
        let failed = Tried {
            failed: vec![0],
            attempted: true,
            ..Tried::default()
        };
        let order = pick(&state, 1)[0].order;
        let hour = Duration::from_secs(3600);
        state.tried(&KEY, order, &ids, failed, |_| hour);
        let now = Instant::now() + Duration::from_secs(1);
        assert_eq!(state.due_at(now, 8, 4), [KEY]);
        state.idle(&KEY, true, Duration::from_millis(20));
        assert!(
            state.next_due(4).is_some_and(|due| due > now + hour / 2),
            "no sooner"
        );
        park(&mut state, &entry(KEY, 20, &["2"]), 20);
        assert!(state.next_due(4).is_some_and(|due| due < now));
    }

    #[test]
    fn no_more_turns_begin_if_there_is_to_be_a_time_without_any() {
        let mut state = parked(&[(10, &["1"]), (20, &["2"])]);
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(state.due_at(later, 8, 4), [KEY]);
        let number = begin_next(&mut state, 1);
        state.sends_try(number);
        state.may_have_more_turns(false);
        assert!(state.due_at(later, 8, 4).is_empty());
        state.may_have_more_turns(true);
        assert_eq!(state.due_at(later, 8, 4), [KEY]);
    }

    #[test]
    fn requests_that_go_on_without_their_tries_are_bounded_for_each_key_and_in_all() {
        let mut state = ParkedState::default();
        let key = |index: usize| ParkKey::Index {
            index: format!("i{index}"),
        };
        let leaves =
            |state: &mut ParkedState, key: ParkKey| (0..20).filter(|_| state.leaves_turn(&key)).count();
        assert_eq!(leaves(&mut state, key(0)), LEFT_OF_KEY_MAX);
        assert_eq!(leaves(&mut state, KEY), LEFT_MAX / 2);
        let others: usize = (1..20).map(|index| leaves(&mut state, key(index))).sum();
        assert_eq!(others, LEFT_MAX / 2 - LEFT_OF_KEY_MAX);
        state.returns_turn(&key(0));
        assert!(!state.leaves_turn(&KEY) && state.leaves_turn(&key(0)));
    }
}
