//! Operations that join the line of earlier ones once it is known that the alias of these leads to their
//! index ([`Behind`](super::super::lines::Behind)).

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::Snapshot;

use super::super::key::ParkKey;
use super::super::lines::Ahead;
use super::index_lines::index_in;
use super::{Order, ParkedState};

/// Operations of a line, and the indices that their alias has led to since they were accepted.
pub(crate) type AheadLed = (Arc<Ahead>, Vec<String>);

impl ParkedState {
    /// Returns what operations of a key may be behind, if no topology of this generation was asked yet.
    pub(crate) fn ahead_of(&self, key: &ParkKey, generation: u64) -> Vec<Arc<Ahead>> {
        let held = self.keys.get(key).filter(|held| held.joined != Some(generation));
        let pieces = held.into_iter().flat_map(|held| held.pieces.values());
        let mut ahead: Vec<_> = pieces
            .filter_map(|piece| piece.behind.as_ref())
            .flat_map(|behind| behind.ahead.iter().cloned())
            .collect();
        ahead.sort();
        ahead.dedup();
        ahead
    }

    /// Has operations of a key join the lines that they are behind by a topology. To be called only while
    /// none of the key is under way, except for tries of what is parked by itself: what these have stays.
    pub(crate) fn join_lines(&mut self, key: &ParkKey, snapshot: &Snapshot, ahead: &[AheadLed]) {
        self.join_by(key, index_in(snapshot), ahead);
        let are_all = *key != ParkKey::Documents || !self.tries_documents();
        if let Some(held) = self.keys.get_mut(key).filter(|_| are_all) {
            held.joined = Some(snapshot.generation);
        }
    }

    pub(crate) fn join_by(
        &mut self,
        key: &ParkKey,
        resolve: impl Fn(&str) -> Option<String>,
        ahead: &[AheadLed],
    ) {
        let Some(held) = self.keys.get(key) else { return };
        let has_led = |wanted: &Arc<Ahead>, index: &str| {
            let mut of_it = ahead.iter().filter(|(ahead, _)| ahead == wanted);
            of_it.any(|(_, led)| led.iter().any(|led| led == index))
        };
        let leads = |name: &str, known: &str| resolve(name).unwrap_or_else(|| known.to_owned());
        let joining = held.pieces.iter().filter_map(|(order, piece)| {
            let behind = piece.behind.as_ref()?;
            if *key == ParkKey::Documents && self.is_piece_tried(order) {
                return None;
            }
            let index = leads(&behind.written, &behind.concrete);
            let is_behind = |ahead: &&Arc<Ahead>| {
                let leads_there = leads(&ahead.alias, &ahead.index) == index || has_led(ahead, &index);
                leads_there && self.has_ahead(ahead, *order)
            };
            let ahead = behind.ahead.iter().find(is_behind)?;
            // Earlier operations that go elsewhere by now count for the line of the index as well.
            let to = match ahead.key {
                ParkKey::Index { .. } => ParkKey::Index { index },
                _ => ahead.key.clone(),
            };
            Some((*order, to))
        });
        let joining: Vec<_> = joining.collect();
        for (order, to) in joining {
            self.join(key, order, to);
        }
        self.forget_if_empty(key);
    }

    /// Whether operations that others may be behind still wait and come before a place. Those in the line of
    /// an index may have gone over into another one.
    fn has_ahead(&self, ahead: &Ahead, place: Order) -> bool {
        let first = |key: &ParkKey| {
            let held = self.keys.get(key)?;
            match key {
                ParkKey::Index { .. } => held.line.first_written(&ahead.alias),
                _ => held.pieces.keys().next().copied(),
            }
        };
        let lines = self.names.get(&*ahead.alias).into_iter().flatten();
        let lines = lines.filter(|key| key.rank() == 0 && ahead.key.rank() == 0);
        let mut firsts = lines.chain([&ahead.key]).filter_map(first);
        firsts.any(|first| first < place)
    }

    fn join(&mut self, key: &ParkKey, order: Order, to: ParkKey) {
        let Some(mut piece) = self.remove(key, order) else {
            return;
        };
        let names = piece
            .behind
            .take()
            .map(|behind| vec![behind.written, behind.concrete]);
        piece.next_try = None;
        if *key == ParkKey::Documents {
            // Later operations on these documents may be there, and stay.
            for number in piece.numbers() {
                self.joined_lines.entry(number).or_default().push(order);
            }
        }
        if let (ParkKey::Index { .. }, Some([written, _])) = (&to, names.as_deref()) {
            piece.written = [written.as_str().into()].into();
        }
        if !to.holds_documents() {
            (piece.documents, piece.places) = Default::default();
        }
        self.insert(to, &names.unwrap_or_default(), "", piece);
    }
}

impl ParkedState {
    /// Whether an earlier operation on one of these documents has joined a line, and still waits there.
    pub(super) fn has_joined_line(&self, numbers: impl Iterator<Item = u64>, place: Order) -> bool {
        if self.joined_lines.is_empty() {
            return false;
        }
        // What is left of a piece after a try has another place, and the same record.
        let lines = || self.keys.iter().filter(|(key, _)| **key != ParkKey::Documents);
        let pieces = || lines().flat_map(|(_, held)| held.pieces.values());
        let waits = |order: &Order| pieces().any(|piece| piece.at == order.2);
        let mut earlier = numbers.flat_map(|number| self.joined_lines.get(&number).into_iter().flatten());
        earlier.any(|order| *order < place && waits(order))
    }

    /// Takes over the new places of the records of operations that have joined lines.
    pub(super) fn joined_moved(&mut self, places: &BTreeMap<u64, u64>) {
        for order in self.joined_lines.values_mut().flatten() {
            order.2 = places.get(&order.2).copied().unwrap_or(order.2);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::super::key::OperationNames;
    use super::super::super::lines::Lines;
    use super::super::super::store::ParkedEntry;
    use super::super::tests::{named, query};
    use super::super::{Holder, Standing};
    use super::*;

    /// Makes an entry with one operation on each document: the index as it is written, the index, and the id.
    fn entry(key: ParkKey, position: u64, documents: &[(&str, &str, &str)]) -> ParkedEntry {
        let mut entry = ParkedEntry {
            key,
            names: Vec::new(),
            lane: 3,
            origins: vec![(position, 1)],
            ops: (0..documents.len() as u32).map(|place| (0, place)).collect(),
            ..ParkedEntry::sample()
        };
        for (written, concrete, id) in documents {
            let named = OperationNames::new((*written).to_owned(), Some((*concrete).to_owned()), Some(id));
            entry.add_names(&named);
        }
        entry
    }

    fn index(name: &str) -> ParkKey {
        ParkKey::Index {
            index: name.to_owned(),
        }
    }

    /// Makes the state of entries that are read again.
    fn read_again(entries: &[ParkedEntry]) -> ParkedState {
        let left: Vec<BTreeSet<u32>> = entries
            .iter()
            .map(|entry| (0..entry.ops.len() as u32).collect())
            .collect();
        let lines = Lines::of(entries.iter().zip(left.iter().map(|left| left.iter())));
        let mut state = ParkedState::default();
        for (number, (entry, left)) in entries.iter().zip(&left).enumerate() {
            let at = (10 * number as u64, 100);
            state.insert_again(&lines, entry, left, at, Standing::Ready);
        }
        state
    }

    /// Returns the documents that wait under each key, by a topology in which `a` leads to an index; and how
    /// many pieces wait for earlier ones in the line of another index.
    fn joined(entries: &[ParkedEntry], a: Option<&str>, led: &[&str]) -> (Vec<(ParkKey, u32)>, usize) {
        let mut state = read_again(entries);
        let ahead = state.ahead_of(&ParkKey::Documents, 1).into_iter();
        let led: Vec<String> = led.iter().map(|index| (*index).to_owned()).collect();
        let ahead: Vec<AheadLed> = ahead.map(|ahead| (ahead, led.clone())).collect();
        let resolve = |name: &str| match name {
            "a" => a.map(str::to_owned),
            name => Some(name.to_owned()),
        };
        state.join_by(&ParkKey::Documents, resolve, &ahead);
        state.follow_by((1, &resolve), None, &vec![("a".into(), led)]);
        let keys = state.keys.iter();
        let docs = keys.map(|(key, held)| (key.clone(), held.pieces.values().map(|piece| piece.docs).sum()));
        let behind = state.keys.iter().map(|(key, held)| {
            let pieces = held.pieces.iter();
            let ahead = pieces.filter_map(|(order, piece)| {
                let (ahead, _) = state.ahead_in_other_lines(key, piece)?;
                (ahead < *order).then_some(())
            });
            ahead.count()
        });
        (docs.collect(), behind.sum())
    }

    #[test]
    fn an_operation_joins_the_line_of_its_index_if_an_earlier_one_is_there_or_may_go_there_and_no_other() {
        let entries = [
            entry(index("i1"), 1, &[("a", "i1", "1"), ("a", "i1", "2")]),
            entry(
                ParkKey::Documents,
                2,
                &[("i2", "i2", "1"), ("i2", "i2", "3"), ("other", "other", "2")],
            ),
        ];
        let apart = |line: &str| (vec![(index(line), 2), (ParkKey::Documents, 3)], 0);
        let together = (vec![(index("i2"), 3), (ParkKey::Documents, 2)], 0);
        assert_eq!(joined(&entries, Some("i1"), &[]), apart("i1"));
        assert_eq!(joined(&entries, None, &[]), apart("i1"));
        assert_eq!(joined(&entries, Some("i2"), &[]), together);
        assert_eq!(joined(&entries, Some("i3"), &[]), apart("i3"));
        let may_go_there = vec![(index("i2"), 1), (index("i3"), 2), (ParkKey::Documents, 2)];
        assert_eq!(joined(&entries, Some("i3"), &["i1", "i2"]), (may_go_there, 1));
        let reversed = [
            entries[1].clone(),
            ParkedEntry {
                origins: vec![(3, 1)],
                ..entries[0].clone()
            },
        ];
        assert_eq!(
            joined(&reversed, Some("i2"), &[]),
            apart("i2"),
            "it is the earlier one"
        );
    }

    #[test]
    fn operations_that_join_a_line_bring_the_names_of_their_own_indices_alone() {
        let holder = |state: &ParkedState, name: &str| {
            let named = named(name, "9");
            state.holder(&query(&named, 3, 9, &[]), None)
        };
        let first = entry(index("users"), 1, &[("users", "users", "1")]);
        let second = entry(
            ParkKey::Documents,
            2,
            &[("users", "users", "1"), ("orders", "orders", "1")],
        );
        let state = read_again(&[first, second]);
        assert_eq!(holder(&state, "users"), Some(Holder::Key(index("users"))));
        assert_eq!(holder(&state, "orders"), None);
    }

    #[test]
    fn as_many_operations_as_are_behind_one_line_are_one_piece() {
        let ids: Vec<String> = (0..100).map(|id| id.to_string()).collect();
        let all = |written: &'static str, concrete: &'static str| -> Vec<_> {
            ids.iter().map(|id| (written, concrete, &**id)).collect()
        };
        let state = read_again(&[
            entry(index("i1"), 1, &all("a", "i1")[..50]),
            entry(index("i1"), 2, &all("a", "i1")[50..]),
            entry(ParkKey::Documents, 3, &all("i2", "i2")),
        ]);
        assert_eq!(state.pieces, 3);
    }
}
