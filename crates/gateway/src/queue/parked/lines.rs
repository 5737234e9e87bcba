//! The lines that parked operations join when they are read again, after a restart or a hand-over.
//!
//! An operation may go from the line of its entry's key into another one while it is tried, and only memory
//! knows. Later operations on its document have followed it there, and their entries say so. Read again, the
//! first one is in the line of its entry's key, and the others are in a line of a higher rank, which does not
//! wait for it. So these join the line of the earlier one.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::key::ParkKey;
use super::state::order_of;
use super::store::ParkedEntry;

/// The operations in lines that do not hold documents, by the numbers of their documents.
#[derive(Default)]
pub(super) struct Lines {
    earlier: HashMap<u64, Vec<(Place, ParkKey)>>,
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
            later.extend(left.flat_map(|op| documents(entry, *op)));
        }
        let mut lines = Self::default();
        if later.is_empty() {
            return lines;
        }
        for (entry, left) in
            entries.filter(|(entry, _)| !entry.key.holds_documents() && entry.key.holds_names())
        {
            for op in left {
                for document in documents(entry, *op).filter(|document| later.contains(document)) {
                    let of_document = lines.earlier.entry(document).or_default();
                    of_document.push((order_of(entry, *op), entry.key.clone()));
                }
            }
        }
        lines
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
        if self.earlier.is_empty() || !entry.key.holds_documents() {
            return None;
        }
        let order = order_of(entry, op);
        let of_documents = documents(entry, op).filter_map(|document| self.earlier.get(&document));
        let earlier = of_documents.flatten().filter(|(before, _)| *before < order);
        earlier.map(|(_, key)| key).min_by_key(|key| (key.rank(), *key))
    }
}

/// Returns the numbers of an operation's document.
fn documents(entry: &ParkedEntry, op: u32) -> impl Iterator<Item = u64> {
    let numbers = entry.documents.get(op as usize).copied().unwrap_or_default();
    numbers.into_iter().filter(|document| *document != 0)
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
}
