//! The lines that parked operations join when they are read again, after a restart or a hand-over.
//!
//! An operation may go from the line of its entry's key into another one while it is tried, and only memory
//! knows. Later operations on its document have followed it there, and their entries say so. Read again, the
//! first one is in the line of its entry's key, and the others are in a line of a higher rank, which does not
//! wait for it. So these join the line of the earlier one. Operations in lines for shards join the line of an
//! earlier one for their index, whatever its document is: their number has no bound.
//!
//! If the earlier one names its index by an alias, the later one may have followed it by the index that the
//! alias had come to lead to. Only the cluster knows where that is. So such operations stay where they are,
//! with a note of what they may be [`Behind`], until a topology has it ([`super::state`]).

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::key::{ParkKey, in_index};
use super::store::ParkedEntry;

/// The operations that others join.
#[derive(Default)]
pub(super) struct Lines {
    /// Those in lines that hold names, by the numbers of their documents.
    earlier: HashMap<u64, Vec<(OperationOrder, ParkKey)>>,
    /// The first one of each line for an index, by the index's names.
    of_index: HashMap<String, Vec<(OperationOrder, ParkKey)>>,
    /// Those in lines that hold names, and that name their index by an alias, by the numbers of their ids.
    through_aliases: HashMap<u64, Vec<(OperationOrder, Arc<Ahead>)>>,
}

/// Operations of a line that name their index by one alias, which led to one index when they were parked.
#[derive(Clone, Debug)]
pub(crate) struct Ahead {
    pub(crate) key: ParkKey,
    pub(crate) alias: String,
    pub(super) index: String,
    /// The first position of their requests, when the earliest was accepted, and the index that the alias led
    /// to then, if the request says so. In Kafka these may be two requests.
    pub(crate) request: (u64, u64),
    pub(crate) led_to: Option<String>,
}

/// The lines that operations of one index are behind, if the aliases of these lead to that index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Behind {
    /// The index as the operations name it, and as it was known when they were parked.
    pub(super) written: String,
    pub(super) concrete: String,
    pub(super) ahead: Vec<Arc<Ahead>>,
}

/// The line of an operation: its key, and what it may be behind.
pub(super) type Line = (ParkKey, Option<Behind>);

/// The operations ahead, by what makes them the same, with all of their requests.
type Known = BTreeMap<Arc<Ahead>, Arc<Ahead>>;

/// An operation's request, and its place there.
type OperationOrder = (u64, u32);

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
            left.for_each(|op| lines.add_of_index(entry, entry.order_of(*op)));
        }
        let mut known = Known::new();
        for (entry, left) in entries.filter(|(entry, _)| entry.key.holds_names()) {
            for op in left {
                lines.add(entry, *op, &later, &mut known);
            }
        }
        for (_, ahead) in lines.through_aliases.values_mut().flatten() {
            *ahead = known.get(&*ahead).cloned().unwrap_or_else(|| Arc::clone(ahead));
        }
        lines
    }

    /// Adds an operation in a line that holds names, if any of the `later` ones may have to join it.
    fn add(&mut self, entry: &ParkedEntry, op: u32, later: &HashSet<u64>, known: &mut Known) {
        let is_later = |number: &u64| later.contains(number);
        let id = any_index(entry, op).filter(is_later);
        if id.is_none() && !documents(entry, op).any(|document| is_later(&document)) {
            return;
        }
        let joined = match entry.key {
            ParkKey::Shards { .. } => self.earlier_key(entry, op),
            _ => None, // an earlier one on the same document is known by itself
        };
        let (key, order) = (joined.unwrap_or(&entry.key).clone(), entry.order_of(op));
        for document in documents(entry, op).filter(is_later) {
            let of_document = self.earlier.entry(document).or_default();
            of_document.push((order, key.clone()));
        }
        if let Some((id, ahead)) = id.and_then(|id| Some((id, Ahead::of(entry, op, key)?))) {
            let ahead = Arc::new(ahead);
            let (first, all) = match known.get_key_value(&ahead) {
                Some((first, all)) if ahead.is_earlier(all) => {
                    (Arc::clone(first), Arc::new(all.with(&ahead)))
                }
                Some((first, all)) => (Arc::clone(first), Arc::clone(all)),
                None => (Arc::clone(&ahead), ahead),
            };
            let of_id = self.through_aliases.entry(id).or_default();
            match of_id.iter_mut().find(|(_, known)| *known == first) {
                Some((before, _)) => *before = order.min(*before),
                None => of_id.push((order, Arc::clone(&first))),
            }
            known.insert(first, all);
        }
    }

    fn add_of_index(&mut self, entry: &ParkedEntry, order: OperationOrder) {
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

    /// Returns the operations that are left of an entry, by the line that each joins.
    pub(super) fn split<'e>(
        &self,
        entry: &ParkedEntry,
        left: impl Iterator<Item = &'e u32>,
    ) -> BTreeMap<Line, Vec<u32>> {
        let mut by_line: BTreeMap<Line, Vec<u32>> = BTreeMap::new();
        for op in left {
            let key = self.earlier_key(entry, *op).unwrap_or(&entry.key);
            let line = (key.clone(), self.behind(entry, *op, key));
            by_line.entry(line).or_default().push(*op);
        }
        by_line
    }

    /// Returns what an operation may be behind besides those in the line of its key.
    fn behind(&self, entry: &ParkedEntry, op: u32, key: &ParkKey) -> Option<Behind> {
        let of_id = self.through_aliases.get(&any_index(entry, op)?)?;
        let (order, rank) = (entry.order_of(op), key.rank());
        let ahead = of_id
            .iter()
            .filter(|(before, ahead)| *before < order && ahead.key.rank() < rank);
        let mut ahead: Vec<_> = ahead.map(|(_, ahead)| Arc::clone(ahead)).collect();
        ahead.sort();
        let (written, concrete) = names(entry, op)?;
        let behind = Behind {
            written: written.to_owned(),
            concrete: concrete.to_owned(),
            ahead,
        };
        (entry.key.holds_documents() && !behind.ahead.is_empty()).then_some(behind)
    }

    fn earlier_key(&self, entry: &ParkedEntry, op: u32) -> Option<&ParkKey> {
        let order = entry.order_of(op);
        match entry.key {
            ParkKey::Shards { .. } => {
                let names = entry.names.iter().filter_map(|name| self.of_index.get(name));
                first_of(names.flatten(), order, entry.key.rank())
            }
            ParkKey::Request { .. } | ParkKey::Documents => {
                let documents = documents(entry, op).filter_map(|document| self.earlier.get(&document));
                first_of(documents.flatten(), order, entry.key.rank())
            }
            ParkKey::Index { .. } | ParkKey::Letters { .. } => None,
        }
    }
}

// === impl Ahead ===

impl Ahead {
    /// Makes it of an operation in the line of a key; `None` if the operation names its index by no alias.
    fn of(entry: &ParkedEntry, op: u32, key: ParkKey) -> Option<Self> {
        let (alias, index) = names(entry, op).filter(|(written, concrete)| written != concrete)?;
        let (request, _) = entry.ops.get(op as usize).copied()?;
        let led_to = entry.led_to.iter();
        let mut led_to = led_to.filter(|(number, name, _)| *number == request && name == alias);
        Some(Self {
            key,
            alias: alias.to_owned(),
            index: index.to_owned(),
            request: entry.origins.get(request as usize).copied().unwrap_or_default(),
            led_to: led_to.next().map(|(.., index)| index.clone()),
        })
    }

    fn is_earlier(&self, other: &Self) -> bool {
        self.request.0 < other.request.0 || self.request.1 < other.request.1
    }

    /// Returns it with other operations of the same line, alias and index.
    fn with(&self, other: &Self) -> Self {
        let earliest = if other.request.1 < self.request.1 {
            other
        } else {
            self
        };
        Self {
            request: (self.request.0.min(other.request.0), earliest.request.1),
            led_to: earliest.led_to.clone(),
            ..self.clone()
        }
    }

    fn identity(&self) -> (&ParkKey, &str, &str) {
        (&self.key, &self.alias, &self.index)
    }
}

impl PartialEq for Ahead {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Ahead {}

impl PartialOrd for Ahead {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ahead {
    fn cmp(&self, other: &Self) -> Ordering {
        self.identity().cmp(&other.identity())
    }
}

/// Returns the key of the line to join: of a lower rank than an operation's own, with an earlier operation.
fn first_of<'l>(
    lines: impl Iterator<Item = &'l (OperationOrder, ParkKey)>,
    order: OperationOrder,
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

/// Returns the index of an operation as it is written and as it was known.
fn names(entry: &ParkedEntry, op: u32) -> Option<(&str, &str)> {
    let (written, concrete, _) = entry.places.get(op as usize)?;
    let name = |number: &u32| entry.names.get(*number as usize).map(String::as_str);
    Some((name(written)?, name(concrete)?))
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

    /// Splits an entry whose operations are behind none that an alias would have to lead to.
    fn by_key(lines: &Lines, entry: &ParkedEntry, left: &[u32]) -> BTreeMap<ParkKey, Vec<u32>> {
        let split = lines.split(entry, left.iter()).into_iter();
        let split = split.map(|((key, behind), ops)| {
            assert!(behind.is_none(), "{behind:?}");
            (key, ops)
        });
        split.collect()
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
        let split = |at: usize| by_key(&lines, &entries[at], &left[at]);
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
            by_key(&lines, &entries[2], &[0]),
            [(ParkKey::Documents, vec![0])].into()
        );
    }

    #[test]
    fn where_an_alias_has_led_is_asked_since_the_earliest_of_the_requests_ahead() {
        let index = ParkKey::Index {
            index: "i1".to_owned(),
        };
        // Parked in another order than they were accepted in, from partitions with positions of their own.
        let requests = [((5, 3_000), "i3"), ((7, 1_000), "i1"), ((6, 2_000), "i2")];
        let ahead = |number: usize| {
            let (request, led_to) = requests[number];
            ParkedEntry {
                names: vec!["a".to_owned(), "i1".to_owned()],
                origins: vec![request],
                places: vec![(0, 1, 7)],
                led_to: vec![(0, "a".to_owned(), led_to.to_owned())],
                ..entry(index.clone(), 1, &[1])
            }
        };
        let later = ParkedEntry {
            names: vec!["i2".to_owned()],
            places: vec![(0, 0, 7)],
            ..entry(ParkKey::Documents, 9, &[2])
        };
        let entries = [ahead(0), ahead(1), ahead(2), later];
        let lines = Lines::of(entries.iter().map(|entry| (entry, [0].iter())));
        let split = lines.split(&entries[3], [0].iter());
        let behind = split.keys().next().unwrap().1.as_ref().unwrap();
        let [ahead] = &behind.ahead[..] else {
            panic!("{behind:?}")
        };
        assert_eq!((ahead.request, ahead.led_to.as_deref()), ((5, 1_000), Some("i1")));
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
            let split = |entry: &ParkedEntry| by_key(&lines, entry, &left).into_keys().next().unwrap();
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
            let lines = by_key(&lines, entry, &[0]);
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
