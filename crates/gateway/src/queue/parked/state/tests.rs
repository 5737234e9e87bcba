use super::*;
use crate::queue::fence::Fence;
use crate::queue::parked::OperationNames;

pub(super) fn entry(key: ParkKey, position: u64, ids: &[&str]) -> ParkedEntry {
    let documents = ids
        .iter()
        .map(|id| OperationNames::new("logs".to_owned(), None, Some(id)).document);
    ParkedEntry {
        key,
        lane: 3,
        origins: vec![(position, 1)],
        ops: (0..ids.len() as u32).map(|place| (0, place)).collect(),
        documents: documents.collect(),
        ..ParkedEntry::sample()
    }
}

pub(super) fn park(state: &mut ParkedState, entry: &ParkedEntry, at: u64) {
    let piece = EntryPiece::new(at, 100, entry, None, Standing::Unsettled);
    state.insert(entry.key.clone(), &entry.names, &entry.why, piece);
}

pub(super) fn named(index: &str, id: &str) -> OperationNames {
    OperationNames::new(index.to_owned(), None, Some(id))
}

pub(super) fn query<'a>(
    named: &'a OperationNames,
    lane: u32,
    position: u64,
    fences: &'a [Arc<Fence>],
) -> HolderQuery<'a> {
    HolderQuery {
        named,
        lane,
        position,
        target: "/_bulk",
        fences,
        shard: &|| None,
    }
}

/// Earlier versions wrote such entries.
#[test]
fn a_line_with_an_entry_whose_operations_do_not_ascend_is_tried() {
    let (mut state, index) = (ParkedState::default(), "logs".to_owned());
    let key = ParkKey::Index { index };
    let mut turned = entry(key.clone(), 2, &["1", "2"]);
    turned.ops.reverse();
    park(&mut state, &turned, 30);
    park(&mut state, &entry(key.clone(), 3, &["3"]), 40);
    assert!(state.count(3));
    state.ready();
    let picked = state.pick(&key, 10, 10_000, |_| false).picked;
    assert_eq!(picked.iter().map(|one| one.at).collect::<Vec<_>>(), [30, 40]);
    let alone = state.pick(&key, 2, 10_000, |_| false).picked;
    assert_eq!(alone.iter().map(|one| one.at).collect::<Vec<_>>(), [30]);
}

#[test]
fn an_operation_waits_for_its_index_first_and_then_for_its_document() {
    let mut state = ParkedState::default();
    let index = ParkKey::Index {
        index: "logs".to_owned(),
    };
    park(&mut state, &entry(index.clone(), 1, &["1"]), 10);
    park(&mut state, &entry(ParkKey::Documents, 2, &["2"]), 20);
    let behind = |state: &ParkedState, index, id, after| {
        let named = named(index, id);
        state.holder(&query(&named, 3, 9, &[]), after)
    };
    let holder = |state: &ParkedState, index, id| behind(state, index, id, None);
    assert_eq!(holder(&state, "logs", "2"), Some(Holder::Key(index.clone())));
    assert_eq!(holder(&state, "other", "2"), None);
    let documents = behind(&state, "logs", "2", Some(&index));
    assert_eq!(documents, Some(Holder::Key(ParkKey::Documents)));
    assert_eq!(behind(&state, "logs", "1", Some(&index)), None);
    state.drop_unsettled(None, 0);
    assert!(state.is_empty() && holder(&state, "logs", "2").is_none());
}

#[test]
fn an_operation_waits_for_the_earlier_one_whose_alias_leads_to_its_index_now() {
    let through = |alias: &str, index: &str, position| {
        let named = OperationNames::new(alias.to_owned(), Some(index.to_owned()), Some("1"));
        ParkedEntry {
            names: vec![alias.to_owned(), index.to_owned()],
            documents: vec![named.document],
            places: vec![(0, 1, named.id)],
            ..entry(ParkKey::Documents, position, &["1"])
        }
    };
    let mut state = ParkedState::default();
    park(&mut state, &through("a", "i1", 1), 10);
    let holder = |state: &ParkedState, index, id| {
        let named = named(index, id);
        state.holder(&query(&named, 3, 9, &[]), None)
    };
    let leads = |state: &mut ParkedState, to: &'static str| {
        state.follow_documents(|name| Some(if name == "a" { to } else { name }.to_owned()));
    };
    let held = Some(Holder::Key(ParkKey::Documents));
    assert_eq!(
        (holder(&state, "i1", "1"), holder(&state, "i2", "1")),
        (held.clone(), None)
    );
    leads(&mut state, "i2");
    assert_eq!(
        (holder(&state, "i2", "1"), holder(&state, "i2", "2")),
        (held.clone(), None)
    );
    // The later one is parked behind it, and is not tried before it.
    park(&mut state, &through("i2", "i2", 2), 20);
    state.count(3);
    state.ready();
    let at = |state: &ParkedState| {
        let picked = state.pick(&ParkKey::Documents, 10, 1000, |_| false).picked;
        picked.iter().map(|picked| picked.at).collect::<Vec<_>>()
    };
    assert_eq!(at(&state), [10]);
    leads(&mut state, "i3");
    assert_eq!((holder(&state, "i3", "1"), at(&state)), (held, vec![10, 20]));
    let first = state.pick(&ParkKey::Documents, 10, 1000, |_| false).picked[0].order;
    let gone = Tried {
        gone: vec![0],
        ..Tried::default()
    };
    state.tried(&ParkKey::Documents, first, &through("a", "i1", 1), gone, |_| {
        Duration::ZERO
    });
    assert_eq!(holder(&state, "i3", "1"), None);
}

#[test]
fn what_is_parked_counts_from_its_commit_and_goes_out_in_order() {
    let mut state = ParkedState::default();
    let second = entry(ParkKey::Documents, 2, &["1", "2"]);
    park(&mut state, &second, 30);
    assert_eq!(
        (
            state.counted,
            state.pick(&ParkKey::Documents, 10, 1000, |_| false).picked.len()
        ),
        (0, 0)
    );
    assert!(state.count(3) && !state.count(3));
    state.ready();
    assert_eq!(state.counted, 2);
    park(&mut state, &entry(ParkKey::Documents, 3, &["1"]), 40);
    state.count(3);
    state.ready();
    let picked = state.pick(&ParkKey::Documents, 10, 1000, |_| false).picked;
    let at: Vec<u64> = picked.iter().map(|picked| picked.at).collect();
    assert_eq!(at, [30], "the other one is a later write to the same document");
    let tried = Tried {
        gone: vec![0],
        attempted: true,
        ..Tried::default()
    };
    state.tried(&ParkKey::Documents, picked[0].order, &second, tried, |_| {
        Duration::ZERO
    });
    assert_eq!(
        (state.counted, state.has(30, 0), state.has(30, 1)),
        (2, false, true)
    );
    let picked = state.pick(&ParkKey::Documents, 10, 1000, |_| false).picked;
    let at: Vec<u64> = picked.iter().map(|picked| picked.at).collect();
    assert_eq!(at, [30, 40], "the first write is done");
}

#[test]
fn many_operations_on_one_document_are_bounded_as_those_on_many_are() {
    let mut state = ParkedState::default();
    let ids = vec!["1"; 100_000];
    let full_at = (0..20).find(|at| {
        if state.is_full(ids.len()) {
            return true;
        }
        park(&mut state, &entry(ParkKey::Documents, *at, &ids), 10 * at);
        false
    });
    assert_eq!(full_at, Some(10), "a million");
    assert_eq!(state.bound_before(1), Some(ParkedBound::Operations));
    assert_eq!(state.bound_before(200_001), Some(ParkedBound::Documents));
    let one = named("logs", "1");
    let holder = state.holder(&query(&one, 3, 9, &[]), None);
    assert_eq!(holder, Some(Holder::Key(ParkKey::Documents)));
    let keys = state.documents.values().map(Vec::len).max();
    assert_eq!(keys, Some(1), "a later operation looks at the key once");
    state.drop_unsettled(None, 0);
    assert!(state.is_empty() && state.documents.is_empty() && !state.is_full(ids.len()));
}

#[test]
fn where_a_name_has_led_is_asked_since_the_earliest_request_whatever_positions_partitions_have() {
    let through = |lane, position, accepted_ms| {
        let named = OperationNames::new("a".to_owned(), Some("i1".to_owned()), Some("1"));
        ParkedEntry {
            lane,
            names: vec!["a".to_owned(), "i1".to_owned()],
            origins: vec![(position, accepted_ms)],
            documents: vec![named.document],
            places: vec![(0, 1, named.id)],
            ..entry(
                ParkKey::Index {
                    index: "i1".to_owned(),
                },
                position,
                &["1"],
            )
        }
    };
    let mut state = ParkedState::default();
    // The second was accepted first, into a partition that has had more.
    for (number, (lane, position, accepted_ms)) in [(3, 5, 2_000), (4, 900, 1_000)].into_iter().enumerate() {
        state.insert_put(
            &through(lane, position, accepted_ms),
            (10 * number as u64, 100),
            false,
        );
    }
    let written = state.written_names(1);
    assert_eq!(written.get("a"), Some(&(5, 1_000)));
}
