//! Decides what an operation has to wait for.

use std::sync::Arc;

use super::super::key::{OperationNames, ParkKey, ShardOf};
use super::ParkedState;
use crate::queue::fence::{Fence, is_behind};

/// An operation, as it asks whether it has to wait behind parked ones.
pub(crate) struct HolderQuery<'a> {
    pub(crate) named: &'a OperationNames,
    pub(crate) lane: u32,
    /// Where its request lies in the log.
    pub(crate) position: u64,
    pub(crate) target: &'a str,
    pub(crate) fences: &'a [Arc<Fence>],
    /// Returns the shard that it goes to now, if that can be told.
    pub(crate) shard: &'a dyn Fn() -> Option<ShardOf>,
}

/// What an operation has to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The operations of a key, whose line it joins.
    Key(ParkKey),
    /// The operations of this key, which another lane has parked, or which go to one shard. Documents of the
    /// index have changed their lane or their shard since, so an earlier write to the same document may be
    /// among them. Others may be parked elsewhere, and no line has all: so the operation waits for its whole
    /// index until the key has gone.
    OtherLane(ParkKey),
}

// === impl HolderQuery ===

impl HolderQuery<'_> {
    fn is_behind_lane_of(&self, key: &ParkKey) -> bool {
        let at = (self.lane, self.position);
        // An operation that names no document follows none.
        self.named.document[0] != 0
            && matches!(key, ParkKey::Shards { lane, .. } if is_behind(self.fences, self.named, at, *lane))
    }

    fn is_held_by(&self, key: &ParkKey) -> bool {
        // An operation that names no document follows none, and its shard is the server's choice.
        let is_free = self.named.document[0] == 0 && matches!(key, ParkKey::Shards { shard: Some(_), .. });
        !is_free && key.holds(self.lane, self.target, self.shard)
    }

    /// Whether the document may have been in the shard of a key that holds the operation, and may not be now.
    fn may_have_left(&self, key: &ParkKey) -> bool {
        let ParkKey::Shards { shard: Some(of), .. } = key else {
            return false;
        };
        self.is_held_by(key) && !(self.shard)().is_some_and(|own| own.is_by_rule_of(*of))
    }
}

// === impl ParkedState ===

impl ParkedState {
    /// Returns what an operation has to wait for, if there is anything; only keys of a rank behind that of
    /// `after` count.
    pub(crate) fn holder(&self, query: &HolderQuery<'_>, after: Option<&ParkKey>) -> Option<Holder> {
        let named = query.named;
        let holds = |key: &ParkKey, name: &str| {
            let held = self.keys.get(key).filter(|_| key.rank() == 0);
            held.is_none_or(|held| held.first_for(key, name).is_some())
        };
        let of_name = |name| {
            let keys = self.names.get(name).into_iter().flatten();
            keys.filter(move |key| holds(key, name))
        };
        let of_names = || named.names().flat_map(of_name);
        let documents = named.document.iter().filter(|document| **document != 0);
        let by_document = documents
            .filter_map(|document| self.documents.get(document))
            .flatten()
            .map(|(key, _)| key)
            .chain(self.places.holders(named.place()));
        let behind = |key: &&ParkKey| after.is_none_or(|after| key.rank() > after.rank());
        let key = of_names()
            .filter(|key| query.is_held_by(key))
            .chain(by_document)
            .filter(behind)
            .min_by_key(|key| (key.rank(), *key));
        match key {
            Some(ParkKey::Index { .. }) => Some(Holder::Key(self.index_line(named))),
            _ => {
                // Two lines for shards hold it only if one of them is for all shards.
                let is_second = |other: &ParkKey| {
                    matches!(other, ParkKey::Shards { .. })
                        && key.is_some_and(|key| matches!(key, ParkKey::Shards { .. }) && key != other)
                        && query.is_held_by(other)
                };
                let other = of_names().filter(behind).find(|other| {
                    query.is_behind_lane_of(other) || query.may_have_left(other) || is_second(other)
                });
                other.or(key).map(|key| match other {
                    Some(_) => Holder::OtherLane(key.clone()),
                    None => Holder::Key(key.clone()),
                })
            }
        }
    }

    /// Returns the position of the oldest parked operation that may still be executed, if there is one.
    pub(crate) fn oldest_waiting(&self) -> Option<u64> {
        let waiting = self.keys.iter().filter(|(key, _)| !key.is_letters());
        let positions = waiting.filter_map(|(_, held)| held.pieces.keys().next());
        positions.map(|(position, ..)| *position).min()
    }
}

#[cfg(test)]
mod tests {
    use bulk::{Formula, IndexRoute, Target};
    use serde_json::json;

    use super::super::tests::{entry, named, park, query};
    use super::*;

    #[test]
    fn an_operation_waits_for_what_another_lane_has_parked_if_documents_have_changed_their_lane() {
        let mut state = ParkedState::default();
        let shards = ParkKey::Shards {
            index: "logs".to_owned(),
            lane: 3,
            shard: None,
        };
        park(&mut state, &entry(shards.clone(), 10, &["1"]), 10);
        assert_eq!(state.oldest_waiting(), Some(10));
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
        let holder =
            |lane, position, fences: &[Arc<Fence>]| state.holder(&query(&logs, lane, position, fences), None);
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
        let index = ParkKey::Index {
            index: "logs".to_owned(),
        };
        let after = |key| state.holder(&query(&logs, 5, 30, &fence(&["logs"])), Some(key));
        assert_eq!(after(&index), of_other, "a line for the index waits, too");
        assert_eq!(after(&shards), None);
    }

    #[test]
    fn an_operation_waits_for_what_its_shard_has_parked_and_for_all_if_shards_are_found_otherwise_now() {
        let route = |shards: usize| Arc::new(IndexRoute::new("logs-1", Formula::Modulo, vec![None; shards]));
        let alias = |shards, routing: Option<&str>| Target::Alias {
            write: route(shards),
            index_routing: routing.map(Into::into),
        };
        let of = |number, target: &Target| ShardOf::new(number, target);
        let six = of(2, &Target::Index(route(6)));
        let key = |shard| ParkKey::Shards {
            index: "logs".to_owned(),
            lane: 3,
            shard,
        };
        let mut state = ParkedState::default();
        park(&mut state, &entry(key(six), 10, &["1"]), 10);
        let (logs, no_id) = (
            named("logs", "1"),
            OperationNames::new("logs".to_owned(), None, None),
        );
        let holder = |state: &ParkedState, named, lane, shard: Option<ShardOf>| {
            let shard = || shard;
            let query = HolderQuery {
                shard: &shard,
                ..query(named, lane, 30, &[])
            };
            state.holder(&query, None)
        };
        let (joins, waits) = (Some(Holder::Key(key(six))), Some(Holder::OtherLane(key(six))));
        assert_eq!(holder(&state, &logs, 3, six), joins);
        assert_eq!(
            holder(&state, &logs, 3, of(2, &alias(6, None))),
            joins,
            "by an alias"
        );
        assert_eq!(
            holder(&state, &logs, 3, of(1, &alias(6, None))),
            None,
            "another shard"
        );
        assert_eq!(holder(&state, &logs, 4, six), None, "a document of another lane");
        for otherwise in [None, of(1, &alias(5, None)), of(2, &alias(6, Some("r")))] {
            assert_eq!(holder(&state, &logs, 3, otherwise), waits, "{otherwise:?}");
        }
        assert_eq!(holder(&state, &no_id, 3, None), None);
        // The line of an operation whose shard could not be told.
        park(&mut state, &entry(key(None), 20, &["2"]), 20);
        assert_eq!(holder(&state, &logs, 3, six), waits, "both may have earlier ones");
        let all = Some(Holder::Key(key(None)));
        assert_eq!(holder(&state, &logs, 3, of(1, &alias(6, None))), all);
        // As earlier versions write and read it.
        let written = serde_json::to_value(key(None)).unwrap();
        assert_eq!(written, json!({"kind": "shards", "index": "logs", "lane": 3}));
        let read: ParkKey = serde_json::from_value(serde_json::to_value(key(six)).unwrap()).unwrap();
        assert_eq!((read, key(six).shown()), (key(six), "shards:logs:3:2".to_owned()));
    }
}
