//! Tracks parked operations from the moment when their dead letters are put to the moment when these count.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Parked operations of a group whose letters are put while the operations still count as parked: their lanes
/// have long come past them, so nothing else tells that these letters do not count yet. An operation is named
/// by its record in the store and its number in that record, as the letter's cause names it.
#[derive(Debug, Default)]
pub(crate) struct UnconfirmedLetters(Mutex<BTreeMap<(u64, u32), Unconfirmed>>);

#[derive(Clone, Copy, Debug)]
struct Unconfirmed {
    letter: Letter,
    /// The name under which the gateway held the operation's lane, if gateways hold lanes in turn.
    owner: Option<u64>,
}

/// How far the letter of an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Letter {
    /// It may be on disk.
    OnItsWay,
    /// It is on disk.
    Put,
}

impl UnconfirmedLetters {
    /// Adds operations whose letters are about to be put. `owner` is the name under which the gateway holds
    /// their lanes, if gateways hold them in turn.
    pub(crate) fn begin(&self, operations: impl IntoIterator<Item = (u64, u32)>, owner: Option<u64>) {
        let letter = Letter::OnItsWay;
        let operations = operations
            .into_iter()
            .map(|one| (one, Unconfirmed { letter, owner }));
        self.0.lock().extend(operations);
    }

    /// Records that the letter of an operation is on disk.
    pub(crate) fn put(&self, operation: (u64, u32)) {
        if let Some(one) = self.0.lock().get_mut(&operation) {
            one.letter = Letter::Put;
        }
    }

    /// Removes operations that count as dead now, or whose letters were not put. Returns how many letters are
    /// known to be on disk of those that were not removed before.
    pub(crate) fn end(&self, operations: impl IntoIterator<Item = (u64, u32)>) -> u64 {
        let mut unconfirmed_letters = self.0.lock();
        let removed = operations
            .into_iter()
            .filter_map(|operation| unconfirmed_letters.remove(&operation));
        removed.filter(|one| one.letter == Letter::Put).count() as u64
    }

    /// Removes those of the operations that are meant.
    pub(crate) fn forget(&self, is_meant: impl Fn((u64, u32)) -> bool) {
        // What is meant may follow from what other locks guard, so this one is not held meanwhile.
        let meant: Vec<_> = self.all().into_iter().filter(|one| is_meant(*one)).collect();
        self.end(meant);
    }

    /// Returns the operations.
    pub(crate) fn all(&self) -> Vec<(u64, u32)> {
        self.0.lock().keys().copied().collect()
    }

    /// Returns the name under which the gateway held the lane of an operation when it put the letter.
    pub(crate) fn owner_of(&self, operation: (u64, u32)) -> Option<u64> {
        self.0.lock().get(&operation)?.owner
    }

    /// Whether an operation is one of them.
    pub(crate) fn has(&self, operation: (u64, u32)) -> bool {
        self.0.lock().contains_key(&operation)
    }

    /// Whether an operation's letter is on disk, and only the operation's end is not written down yet.
    pub(crate) fn is_put(&self, operation: (u64, u32)) -> bool {
        self.0
            .lock()
            .get(&operation)
            .is_some_and(|one| one.letter == Letter::Put)
    }

    /// Whether there are letters that may be on disk, or may not.
    pub(crate) fn are_on_their_way(&self) -> bool {
        self.0.lock().values().any(|one| one.letter == Letter::OnItsWay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_known_to_be_there_from_its_put_until_its_operation_has_ended() {
        let letters = UnconfirmedLetters::default();
        letters.begin([(1, 0), (1, 1)], Some(7));
        assert!(letters.has((1, 0)) && !letters.is_put((1, 0)) && letters.are_on_their_way());
        letters.put((1, 0));
        letters.end([(1, 1)]);
        assert_eq!((letters.all(), letters.owner_of((1, 0))), (vec![(1, 0)], Some(7)));
        assert!(letters.is_put((1, 0)) && !letters.has((1, 1)) && !letters.are_on_their_way());
        letters.forget(|(_, op)| op == 1);
        assert!(letters.has((1, 0)));
        letters.forget(|(at, _)| at == 1);
        assert!(!letters.has((1, 0)) && !letters.is_put((1, 0)));
    }
}
