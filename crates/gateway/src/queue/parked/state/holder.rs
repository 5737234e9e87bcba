//! Decides what an operation has to wait for.

use std::sync::Arc;

use super::super::key::{Key, Named};
use super::ParkedState;
use crate::queue::fence::{Fence, is_behind};

/// An operation, as it asks whether it has to wait behind parked ones.
pub(crate) struct Asking<'a> {
    pub(crate) named: &'a Named,
    pub(crate) lane: u32,
    /// Where its request lies in the log.
    pub(crate) position: u64,
    pub(crate) target: &'a str,
    pub(crate) fences: &'a [Arc<Fence>],
}

/// What an operation has to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The operations of a key, whose line it joins.
    Key(Key),
    /// The operations of this key, which another lane has parked. Documents of the index have changed their
    /// lane since, so an earlier write to the same document may be among them. Those of its own lane may be
    /// parked, too, and no line has both: so the operation waits for its whole index until the key has gone.
    OtherLane(Key),
}

// === impl Asking ===

impl Asking<'_> {
    fn is_behind_lane_of(&self, key: &Key) -> bool {
        let at = (self.lane, self.position);
        // An operation that names no document follows none.
        self.named.document[0] != 0
            && matches!(key, Key::Shards { lane, .. } if is_behind(self.fences, self.named, at, *lane))
    }
}

// === impl ParkedState ===

impl ParkedState {
    /// Returns what an operation has to wait for, if there is anything; only keys of a rank behind that of
    /// `after` count.
    pub(crate) fn holder(&self, asking: &Asking<'_>, after: Option<&Key>) -> Option<Holder> {
        let Asking {
            named, lane, target, ..
        } = *asking;
        let of_names = || named.names().filter_map(|name| self.names.get(name)).flatten();
        let documents = named.document.iter().filter(|document| **document != 0);
        let by_document = documents
            .filter_map(|document| self.documents.get(document))
            .flatten();
        let behind = |key: &&Key| after.is_none_or(|after| key.rank() > after.rank());
        let key = of_names()
            .filter(|key| key.holds(lane, target))
            .chain(by_document)
            .filter(behind)
            .min_by_key(|key| (key.rank(), *key));
        match key {
            Some(key @ Key::Index { .. }) => Some(Holder::Key(key.clone())),
            _ => {
                let other = of_names()
                    .filter(behind)
                    .find(|key| asking.is_behind_lane_of(key));
                other.or(key).map(|key| match other {
                    Some(_) => Holder::OtherLane(key.clone()),
                    None => Holder::Key(key.clone()),
                })
            }
        }
    }

    /// Returns the position of the oldest operation that is parked for one lane, if there is one.
    pub(crate) fn oldest_of_lanes(&self) -> Option<u64> {
        let of_lanes = self
            .keys
            .iter()
            .filter(|(key, _)| matches!(key, Key::Shards { .. }));
        let positions = of_lanes.filter_map(|(_, held)| held.pieces.keys().next());
        positions.map(|(position, ..)| *position).min()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{asking, entry, named, park};
    use super::*;

    #[test]
    fn an_operation_waits_for_what_another_lane_has_parked_if_documents_have_changed_their_lane() {
        let mut state = ParkedState::default();
        let shards = Key::Shards {
            index: "logs".to_owned(),
            lane: 3,
        };
        park(&mut state, &entry(shards.clone(), 10, &["1"]), 10);
        assert_eq!(state.oldest_of_lanes(), Some(10));
        let lanes = |lane: u32| [lane].into_iter().collect();
        let fence = |moved: &[&str]| {
            let mut fence = Fence::new(1, 20, (lanes(5), lanes(3)), Some(40));
            fence.moved = moved
                .iter()
                .map(|name| ((*name).to_owned(), "logs-1".to_owned()))
                .collect();
            [Arc::new(fence)]
        };
        let logs = named("logs", "1");
        let holder = |lane, position, fences: &[Arc<Fence>]| {
            state.holder(&asking(&logs, lane, position, fences), None)
        };
        let of_lane = Some(Holder::Key(shards.clone()));
        let of_other = Some(Holder::OtherLane(shards.clone()));
        for fences in [fence(&["logs"]), fence(&[])] {
            assert_eq!(holder(3, 30, &fences), of_lane, "its own lane");
            assert_eq!(holder(5, 30, &fences), of_other);
            assert_eq!(
                holder(5, 99, &fences),
                of_other,
                "also when the fence holds no lane any more"
            );
            assert_eq!(holder(5, 19, &fences), None, "accepted before");
            assert_eq!(holder(4, 30, &fences), None, "no lane of these documents");
        }
        assert_eq!(holder(5, 30, &fence(&["other"])), None, "another name has moved");
        let index = Key::Index {
            index: "logs".to_owned(),
        };
        let after = |key| state.holder(&asking(&logs, 5, 30, &fence(&["logs"])), Some(key));
        assert_eq!(after(&index), of_other, "a line for the index waits, too");
        assert_eq!(after(&shards), None);
    }
}
