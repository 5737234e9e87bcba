//! The contents of a partition of the parked topic, read from its beginning. The partition holds the
//! operations that the owners of a lane have parked, one after another, and every later owner has to judge it
//! alike. So only the records in the partition itself decide.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use kafka::SENT_AHEAD_MAX;

use super::ends::End;
use super::led_to::{LaneNames, NameLed};
use super::store::{ParkedEntry, Resolved};

/// A lane's past, as far as it was read. `T` goes with each entry.
pub(super) struct History<T> {
    /// Owners that began, and that may never have come to hold the lane: where each began, and how far the
    /// group was.
    begun: BTreeMap<u64, Begun>,
    /// The owner that holds the lane.
    owner: Option<u64>,
    /// Where each owner came to hold the lane, and where it had begun.
    owners: Vec<(u64, u64)>,
    pub(super) live: BTreeMap<u64, LiveEntry<T>>,
    /// The entries that the owner has put, by their numbers, each with its place in `live`; `None` once it is
    /// gone.
    numbers: BTreeMap<u64, Option<u64>>,
    /// Where a copy of an entry is, the place of the copy that counts.
    copies: BTreeMap<u64, u64>,
    /// Where the names of the lane's operations led when its owners sent them.
    pub(super) names: LaneNames,
    /// The number of the lane's parked documents that became dead letters, in all.
    pub(super) dead: u64,
    /// The place of the last record that resolves entries.
    pub(super) last_resolved: Option<u64>,
    /// The operations whose ends are asked for, by the place of their entry and their number in it, and the
    /// owner that wrote that they are gone.
    ends: BTreeMap<(u64, u32), Option<u64>>,
}

#[derive(Clone, Copy)]
struct Begun {
    at: u64,
    committed: u64,
    /// The partition's end then.
    end: u64,
    anew: bool,
}

/// An entry that counts, as far as is known.
pub(super) struct LiveEntry<T> {
    pub(super) entry: Box<ParkedEntry>,
    /// The entry's operations that are not gone.
    pub(super) left: BTreeSet<u32>,
    pub(super) with: T,
    /// The places of the entry's other copies.
    pub(super) copies: Vec<u64>,
    /// Whether it is not known yet if the entry's batch was committed.
    unsettled: bool,
}

impl<T> Default for History<T> {
    fn default() -> Self {
        Self {
            begun: BTreeMap::new(),
            owner: None,
            owners: Vec::new(),
            live: BTreeMap::new(),
            numbers: BTreeMap::new(),
            copies: BTreeMap::new(),
            names: LaneNames::default(),
            dead: 0,
            last_resolved: None,
            ends: BTreeMap::new(),
        }
    }
}

impl<T> History<T> {
    /// Begins a history that looks out for the ends of these operations.
    pub(super) fn looking_for(asked: impl Iterator<Item = (u64, u32)>) -> Self {
        Self {
            ends: asked.map(|operation| (operation, None)).collect(),
            ..Self::default()
        }
    }

    /// Returns what is known of the end of an operation that was looked for.
    pub(super) fn end_of(&self, operation: (u64, u32)) -> End {
        let by = self.ends.get(&operation).copied().flatten();
        let is_parked = || {
            let live = self.live.get(&self.place_of(operation.0));
            live.is_some_and(|live| live.left.contains(&operation.1))
        };
        match by {
            Some(owner) => End::By(owner),
            None if is_parked() => End::Missing { owner: self.owner },
            None => End::Unknown,
        }
    }

    /// Whether this owner's records count: nobody has taken over since.
    pub(super) fn counts(&self, owner: u64) -> bool {
        self.owner == Some(owner)
    }

    /// Records that an owner is about to take over; what the group has not committed in the lane is
    /// `redelivered`. If the lane begins `anew`, because its topic was made anew or the group was forgotten,
    /// all that is parked stays so, since nothing may deliver it again.
    pub(super) fn begins(&mut self, at: u64, owner: u64, redelivered: Range<u64>, anew: bool) {
        let begun = Begun {
            at,
            committed: redelivered.start,
            end: redelivered.end,
            anew,
        };
        self.begun.insert(owner, begun);
    }

    /// Records that an owner that began was the group's member after that. If another owner has begun later
    /// and holds the lane already, this comes from a gateway that was frozen.
    pub(super) fn holds(&mut self, at: u64, owner: u64) {
        let Some(begun) = self.begun.get(&owner).copied() else {
            return;
        };
        let is_late = self.owners.last().is_some_and(|(_, before)| *before >= begun.at);
        if is_late {
            return;
        }
        // Whoever met the lane anew has committed its beginning at once, and may have gone before it held it.
        let anew = self.begun.values().any(|one| one.anew && one.at <= begun.at);
        self.live.retain(|_, live| {
            let position = live.entry.origins.first().map_or(0, |(position, _)| *position);
            // If the entry's batch was not committed, and is there, it is delivered again.
            let is_redelivered = (begun.committed..begun.end).contains(&position);
            !live.unsettled || anew || !is_redelivered
        });
        self.live.values_mut().for_each(|live| live.unsettled = false);
        self.names
            .owner_gone(begun.committed.saturating_add(SENT_AHEAD_MAX));
        // Copies that come from now on are not the owner's.
        self.numbers.clear();
        self.owner = Some(owner);
        self.owners.push((at, begun.at));
        self.begun.retain(|_, other| other.at > begun.at);
    }

    /// Records that the owner has parked operations. If the owner had to write the record twice, since no
    /// answer came, the last record counts. The brokers may have taken the first one, and may take it later
    /// than the last: whatever is known to be gone stays gone.
    pub(super) fn put(&mut self, at: u64, entry: Box<ParkedEntry>, with: T) {
        let before = match self.numbers.get(&entry.number) {
            Some(None) => return,
            Some(Some(before)) => self.live.remove(before).map(|live| (*before, live)),
            None => None,
        };
        if entry.number != 0 {
            self.numbers.insert(entry.number, Some(at));
        }
        if let Some((before, mut live)) = before {
            live.copies.push(before);
            let copies = live.copies.iter().map(|copy| (*copy, at));
            self.copies.extend(copies);
            self.live.insert(at, LiveEntry { entry, with, ..live });
            return;
        }
        let first = |entry: &ParkedEntry| (entry.origins.first().copied(), entry.ops.first().copied());
        let said = first(&entry);
        for (_, live) in self
            .live
            .extract_if(.., |_, live| live.unsettled && first(&live.entry) == said)
        {
            is_gone(&mut self.numbers, &live.entry);
        }
        let mut left: BTreeSet<u32> = (0..entry.ops.len() as u32).collect();
        left.retain(|op| !entry.gone.contains(op));
        let live = LiveEntry {
            entry,
            left,
            with,
            copies: Vec::new(),
            unsettled: true,
        };
        self.live.insert(at, live);
    }

    /// Records where names led when the owner was about to send operations through them.
    pub(super) fn led_to(&mut self, all: Vec<NameLed>) {
        all.into_iter().for_each(|led| self.names.add(led));
    }

    /// Records that operations of the owner are gone.
    pub(super) fn resolved(&mut self, at: u64, resolved: Resolved) {
        self.dead = self.dead.max(resolved.dead);
        self.last_resolved = Some(at);
        for (entry, ops) in resolved.ops {
            let entry = self.place_of(entry);
            let Some(live) = self.live.get_mut(&entry) else {
                continue;
            };
            for copy in live.copies.iter().chain([&entry]) {
                for ((_, op), by) in self.ends.range_mut((*copy, 0)..=(*copy, u32::MAX)) {
                    let is_gone = ops.as_ref().is_none_or(|ops| ops.contains(op));
                    if is_gone && live.left.contains(op) {
                        *by = self.owner;
                    }
                }
            }
            match ops {
                Some(ops) => live.left.retain(|op| !ops.contains(op)),
                None => live.left.clear(),
            }
            if live.left.is_empty() {
                is_gone(&mut self.numbers, &live.entry);
                self.live.remove(&entry);
            }
        }
    }

    /// Returns the place of the copy that counts of the entry that has a copy at this place.
    fn place_of(&self, copy: u64) -> u64 {
        *self.copies.get(&copy).unwrap_or(&copy)
    }

    pub(super) fn owners(self) -> Vec<(u64, u64)> {
        self.owners
    }
}

/// Records that all of an entry is gone: a copy of it that comes yet counts for nothing.
fn is_gone(numbers: &mut BTreeMap<u64, Option<u64>>, entry: &ParkedEntry) {
    if let Some(place) = numbers.get_mut(&entry.number) {
        *place = None;
    }
}

/// Returns the place from which a partition has to be kept, so that records from `needed` on are read as they
/// were written: the place where the owner of `needed` began.
pub(super) fn kept_from(owners: &[(u64, u64)], needed: u64) -> u64 {
    let before = owners.iter().rev().find(|(holds, _)| *holds <= needed);
    before.map_or(0, |(_, begins)| *begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(position: u64, ops: u32) -> Box<ParkedEntry> {
        Box::new(ParkedEntry {
            origins: vec![(position, 1)],
            ops: (0..ops).map(|place| (0, place)).collect(),
            ..ParkedEntry::sample()
        })
    }

    fn numbered(number: u64, position: u64, ops: u32) -> Box<ParkedEntry> {
        Box::new(ParkedEntry {
            number,
            ..*entry(position, ops)
        })
    }

    fn gone(ops: &[(u64, Option<Vec<u32>>)], dead: u64) -> Resolved {
        Resolved {
            ops: ops.to_vec(),
            dead,
            lost: 0,
        }
    }

    fn live(history: &History<()>) -> Vec<u64> {
        history.live.keys().copied().collect()
    }

    fn owned(owner: u64) -> History<()> {
        let mut history = History::default();
        history.begins(0, owner, 0..99, false);
        history.holds(1, owner);
        history
    }

    #[test]
    fn what_was_parked_of_a_batch_counts_if_the_next_owner_found_the_batch_committed() {
        let mut history = owned(7);
        history.put(2, entry(10, 1), ());
        history.put(3, entry(20, 2), ());
        history.resolved(4, gone(&[(3, Some(vec![0]))], 1));
        history.begins(5, 8, 15..99, false);
        // The other owner has not said yet that it has taken over.
        history.put(6, entry(30, 1), ());
        assert!(history.counts(7) && !history.counts(8));
        history.holds(7, 8);
        assert!(!history.counts(7) && history.counts(8));
        assert_eq!((live(&history), history.dead), (vec![2], 1));
        // An entry that counts once counts for all later owners, wherever the group is set.
        history.begins(8, 9, 5..99, false);
        history.holds(9, 9);
        assert_eq!(live(&history), [2]);
    }

    #[test]
    fn what_was_parked_of_messages_that_may_not_be_there_any_more_stays_parked() {
        let mut history = owned(7);
        history.put(2, entry(10, 1), ());
        history.put(3, entry(20, 1), ());
        history.begins(4, 8, 0..99, true);
        // It went before it held the lane, and has committed the lane's beginning.
        history.begins(5, 9, 0..99, false);
        history.holds(6, 9);
        assert_eq!(live(&history), [2, 3]);
        let mut history = owned(7);
        history.put(2, entry(10, 1), ());
        history.put(3, entry(20, 1), ());
        history.begins(4, 8, 0..15, false);
        history.holds(5, 8);
        assert_eq!(live(&history), [3], "there is no such message");
    }

    #[test]
    fn the_end_of_an_operation_is_the_owners_that_wrote_it_first() {
        let mut history = History::<()>::looking_for([(2, 0), (2, 1), (3, 0), (9, 0)].into_iter());
        history.begins(0, 7, 0..99, false);
        history.holds(1, 7);
        history.put(2, entry(10, 3), ());
        history.put(3, entry(11, 1), ());
        history.resolved(4, gone(&[(2, Some(vec![0, 2]))], 1));
        history.begins(5, 8, 15..99, false);
        history.holds(6, 8);
        assert_eq!(history.end_of((2, 1)), End::Missing { owner: Some(8) });
        history.resolved(7, gone(&[(2, None)], 2));
        assert_eq!(history.end_of((2, 0)), End::By(7));
        assert_eq!(history.end_of((2, 1)), End::By(8));
        assert_eq!(history.end_of((3, 0)), End::Missing { owner: Some(8) });
        assert_eq!(
            history.end_of((9, 0)),
            End::Unknown,
            "its entry was deleted with what came after"
        );
    }

    #[test]
    fn a_gateway_that_was_frozen_takes_over_from_nobody() {
        let mut history = owned(7);
        history.begins(2, 8, 0..99, false);
        history.begins(3, 9, 0..99, false);
        history.holds(4, 9);
        history.holds(5, 8);
        history.begins(6, 10, 0..99, false);
        assert!(history.counts(9), "10 may not be in the group any more");
        history.holds(7, 11);
        assert!(history.counts(9), "nobody has heard of 11");
    }

    #[test]
    fn what_is_said_twice_counts_once() {
        let mut history = owned(7);
        history.put(2, entry(10, 3), ());
        history.put(3, entry(10, 3), ());
        history.put(4, entry(11, 3), ());
        assert_eq!(live(&history), [3, 4]);
        history.resolved(5, gone(&[(3, Some(vec![0, 2])), (4, None)], 2));
        history.resolved(6, gone(&[(3, Some(vec![1]))], 2));
        assert_eq!((live(&history), history.last_resolved), (vec![], Some(6)));
    }

    #[test]
    fn a_copy_that_the_brokers_take_after_the_end_of_its_entry_is_not_parked_again() {
        let mut history = owned(7);
        history.put(2, numbered(5, 10, 1), ());
        history.resolved(3, gone(&[(2, None)], 0));
        history.put(4, numbered(5, 10, 1), ());
        assert!(live(&history).is_empty());
        history.begins(5, 8, 15..99, false);
        history.holds(6, 8);
        assert!(live(&history).is_empty());
    }

    #[test]
    fn what_is_gone_of_an_entry_is_gone_of_all_its_copies() {
        let mut history = History::<()>::looking_for([(2, 0)].into_iter());
        history.begins(0, 7, 0..99, false);
        history.holds(1, 7);
        history.put(2, numbered(5, 10, 1), ());
        history.put(3, numbered(5, 10, 1), ());
        history.resolved(4, gone(&[(2, Some(vec![0]))], 0));
        assert_eq!((live(&history), history.end_of((2, 0))), (vec![], End::By(7)));
        let mut history = History::<()>::looking_for([(2, 0), (2, 1)].into_iter());
        history.begins(0, 7, 0..99, false);
        history.holds(1, 7);
        history.put(2, numbered(5, 10, 2), ());
        history.resolved(3, gone(&[(2, Some(vec![0]))], 0));
        history.put(4, numbered(5, 10, 2), ());
        history.put(5, numbered(5, 10, 2), ());
        assert_eq!(live(&history), [5]);
        assert!(history.live[&5].left.iter().eq([&1]), "the first one is gone");
        assert_eq!(history.end_of((2, 1)), End::Missing { owner: Some(7) });
        // The next owner knows the entry by the copy that counts.
        history.begins(6, 8, 15..99, false);
        history.holds(7, 8);
        history.resolved(8, gone(&[(5, Some(vec![1]))], 0));
        assert_eq!((live(&history), history.end_of((2, 1))), (vec![], End::By(8)));
        assert_eq!(history.end_of((2, 0)), End::By(7));
    }

    #[test]
    fn entries_with_numbers_of_their_own_are_no_copies_of_each_other() {
        let mut history = owned(7);
        history.put(2, numbered(5, 10, 1), ());
        history.put(3, numbered(6, 11, 1), ());
        history.put(4, numbered(5, 10, 1), ());
        assert_eq!(live(&history), [3, 4]);
        // The batch was sent once more, and a copy of its first entry came late.
        history.put(5, numbered(9, 10, 1), ());
        history.put(6, numbered(5, 10, 1), ());
        history.resolved(7, gone(&[(5, None)], 0));
        assert_eq!(live(&history), [3]);
    }

    #[test]
    fn a_partition_is_kept_from_where_the_owner_of_what_is_needed_began() {
        let owners = [(1, 0), (7, 5), (20, 18)];
        let kept = [1, 6, 7, 19, 20, 99].map(|needed| kept_from(&owners, needed));
        assert_eq!(kept, [0, 0, 5, 5, 18, 18]);
        // The part of the partition that is left says the same.
        let mut history = History::<()>::default();
        history.put(17, entry(1, 1), ());
        assert!(!history.counts(7));
    }
}
