//! The lines that parked operations join when they are read again, after a restart or a hand-over.
//!
//! An operation may go from the line of its entry's key into another one while it is tried, and only memory
//! knows. Later operations on its document have followed it there, and their entries say so. Read again, the
//! first one is in the line of its entry's key, and the others are in a line of a higher rank, which does not
//! wait for it. So these join the line of the earlier one. Operations in lines for shards join the line of an
//! earlier one for their index, whatever its document is: their number has no bound.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::key::{ParkKey, in_index};
use super::state::order_of;
use super::store::ParkedEntry;

/// The operations that others join.
#[derive(Default)]
pub(super) struct Lines {
    /// Those in lines that hold names, by the numbers of their documents.
    earlier: HashMap<u64, Vec<(Place, ParkKey)>>,
    /// The first one of each line for an index, by the index's names.
    of_index: HashMap<String, Vec<(Place, ParkKey)>>,
}

/// An operation's request, and its place there.
type Place = (u64, u32);

impl Lines {
    /// Makes the lines of entries and the numbers of their operations that are left.
    pub(super) fn of<'e, I>(entries: impl Iterator<Item = (&'e ParkedEntry, I)> + Clone) -> Self
    where
        I: Iterator<Item = &'e u32>,
    {
        let mut later = HashSet::new();
        for (entry, left) in entries.clone().filter(|(entry, _)| entry.key.holds_documents()) {
            later.extend(left.flat_map(|op| documents(entry, *op).chain(any_index(entry, *op))));
        }
        let mut lines = Self::default();
        for (entry, left) in entries.clone().filter(|(entry, _)| entry.key.rank() == 0) {
            left.for_each(|op| lines.add_of_index(entry, order_of(entry, *op)));
        }
        for (entry, left) in entries.filter(|(entry, _)| entry.key.holds_names()) {
            for op in left {
                // Where the name of the earlier one leads to is not known yet.
                let moved = any_index(entry, *op).filter(|_| is_through_alias(entry, *op));
                let documents = documents(entry, *op).chain(moved);
                for document in documents.filter(|document| later.contains(document)) {
                    let joined = match entry.key {
                        ParkKey::Shards { .. } => lines.earlier_key(entry, *op),
                        _ => None, // an earlier one on the same document is known by itself
                    };
                    let line = (order_of(entry, *op), joined.unwrap_or(&entry.key).clone());
                    lines.earlier.entry(document).or_default().push(line);
                }
            }
        }
        lines
    }

    fn add_of_index(&mut self, entry: &ParkedEntry, order: Place) {
        for name in &entry.names {
            let firsts = match self.of_index.get_mut(name) {
                Some(firsts) => firsts,
                None => self.of_index.entry(name.clone()).or_default(),
            };
            match firsts.iter_mut().find(|(_, key)| *key == entry.key) {
                Some((first, _)) => *first = order.min(*first),
                None => firsts.push((order, entry.key.clone())),
            }
        }
    }

    /// Returns the operations that are left of an entry, by the key of the line that each joins.
    pub(super) fn split<'e>(
        &self,
        entry: &ParkedEntry,
        left: impl Iterator<Item = &'e u32>,
    ) -> BTreeMap<ParkKey, Vec<u32>> {
        let mut by_key: BTreeMap<ParkKey, Vec<u32>> = BTreeMap::new();
        for op in left {
            let key = self.earlier_key(entry, *op).unwrap_or(&entry.key);
            match by_key.get_mut(key) {
                Some(ops) => ops.push(*op),
                None => drop(by_key.insert(key.clone(), vec![*op])),
            }
        }
        by_key
    }

    fn earlier_key(&self, entry: &ParkedEntry, op: u32) -> Option<&ParkKey> {
        let order = order_of(entry, op);
        match entry.key {
            ParkKey::Shards { .. } => {
                let names = entry.names.iter().filter_map(|name| self.of_index.get(name));
                first_of(names.flatten(), order, entry.key.rank())
            }
            ParkKey::Request { .. } | ParkKey::Documents => {
                let documents = documents(entry, op).chain(any_index(entry, op));
                let documents = documents.filter_map(|document| self.earlier.get(&document));
                first_of(documents.flatten(), order, entry.key.rank())
            }
            ParkKey::Index { .. } | ParkKey::Letters { .. } => None,
        }
    }
}

/// Returns the key of the line to join: of a lower rank than an operation's own, with an earlier operation.
fn first_of<'l>(
    lines: impl Iterator<Item = &'l (Place, ParkKey)>,
    order: Place,
    rank: u8,
) -> Option<&'l ParkKey> {
    let earlier = lines.filter(|(before, key)| *before < order && key.rank() < rank);
    earlier.map(|(_, key)| key).min_by_key(|key| (key.rank(), *key))
}

/// Returns the numbers of an operation's document.
fn documents(entry: &ParkedEntry, op: u32) -> impl Iterator<Item = u64> {
    let numbers = entry.documents.get(op as usize).copied().unwrap_or_default();
    numbers.into_iter().filter(|document| *document != 0)
}

/// Returns the number of an operation's document, whatever its index is.
fn any_index(entry: &ParkedEntry, op: u32) -> Option<u64> {
    let (.., id) = entry.places.get(op as usize)?;
    (*id != 0).then(|| in_index(0, *id))
}

/// Whether an operation names another index than it was known to be for.
fn is_through_alias(entry: &ParkedEntry, op: u32) -> bool {
    let place = entry.places.get(op as usize);
    place.is_some_and(|(written, concrete, _)| written != concrete)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: ParkKey, position: u64, documents: &[u64]) -> ParkedEntry {
        ParkedEntry {
            key,
            origins: vec![(position, 1)],
            ops: (0..documents.len() as u32).map(|place| (0, place)).collect(),
            documents: documents.iter().map(|document| [*document, 0]).collect(),
            ..ParkedEntry::sample()
        }
    }

    #[test]
    fn a_later_operation_joins_the_line_of_an_earlier_one_on_its_document_and_no_other_does() {
        let index = ParkKey::Index {
            index: "logs".to_owned(),
        };
        let entries = [
            entry(ParkKey::Documents, 1, &[3]),
            entry(index.clone(), 2, &[1, 2, 3]),
            entry(ParkKey::Documents, 3, &[1, 4]),
        ];
        let left: [Vec<u32>; 3] = [vec![0], vec![0, 1, 2], vec![0, 1]];
        let all = || entries.iter().zip(left.iter().map(|left| left.iter()));
        let lines = Lines::of(all());
        let split = |at: usize| lines.split(&entries[at], left[at].iter());
        assert_eq!(
            split(0),
            [(ParkKey::Documents, vec![0])].into(),
            "it is the earlier one"
        );
        assert_eq!(split(1), [(index.clone(), vec![0, 1, 2])].into());
        assert_eq!(
            split(2),
            [(index.clone(), vec![0]), (ParkKey::Documents, vec![1])].into()
        );
        // The earlier one is gone.
        let lines = Lines::of(entries.iter().zip([[].iter(), [1].iter(), [0].iter()]));
        assert_eq!(
            lines.split(&entries[2], [0].iter()),
            [(ParkKey::Documents, vec![0])].into()
        );
    }

    #[test]
    fn what_went_from_one_line_to_the_next_is_followed_at_every_rank() {
        let index = ParkKey::Index {
            index: "logs".to_owned(),
        };
        let shards = ParkKey::Shards {
            index: "logs".to_owned(),
            lane: 0,
            shard: None,
        };
        let request = ParkKey::Request {
            index: "logs".to_owned(),
            target: "/_bulk?wait_for_active_shards=3".to_owned(),
        };
        let joined = |first: &ParkKey, second: &ParkKey| {
            // The first was parked for this key, and went on in memory; the second followed it there.
            let entries = [entry(first.clone(), 2, &[7]), entry(second.clone(), 3, &[7])];
            let left = [0];
            let lines = Lines::of(entries.iter().map(|entry| (entry, left.iter())));
            let split = |entry: &ParkedEntry| lines.split(entry, left.iter()).into_keys().next().unwrap();
            assert_eq!(split(&entries[0]), *first);
            split(&entries[1])
        };
        let entries = [
            entry(index.clone(), 2, &[8]),
            entry(shards.clone(), 3, &[7]),
            entry(ParkKey::Documents, 4, &[7]),
        ];
        let lines = Lines::of(entries.iter().map(|entry| (entry, [0].iter())));
        for entry in &entries {
            let lines = lines.split(entry, [0].iter());
            assert_eq!(lines, [(index.clone(), vec![0])].into(), "{:?}", entry.key);
        }
        let ranks = [index, shards, request, ParkKey::Documents];
        for (rank, first) in ranks.iter().enumerate() {
            for second in &ranks[rank..] {
                assert_eq!(joined(first, second), *first, "{second:?}");
            }
            for second in &ranks[..rank] {
                assert_eq!(joined(first, second), *second, "it is checked against {first:?}");
            }
        }
    }
}
