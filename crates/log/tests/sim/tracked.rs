//! A consumer group, and what it must see.

use std::collections::BTreeMap;

use log::{Consumer, LaneReader, Next};

use crate::life::Harm;
use crate::model::Model;

/// A consumer group and its progress, as the model has it.
pub(crate) struct Tracked {
    pub(crate) name: &'static str,
    lanes: Vec<Lane>,
    /// The states that may be found committed after a crash: the last durable one, and all that came after.
    history: Vec<Vec<Committed>>,
}

type Committed = (u64, u64, u64);

#[derive(Default)]
struct Lane {
    /// The groups behind each mark's position, and the documents reported lost so far, except for missing
    /// ones: where an index had to be rebuilt, those are reported later, at the next running total.
    marks: BTreeMap<u64, (usize, i64)>,
    dead: u64,
}

// === impl Tracked ===

impl Tracked {
    pub(crate) fn new(name: &'static str, lanes: u32) -> Self {
        Self {
            name,
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            history: Vec::new(),
        }
    }

    /// Checks that after a restart all lanes are as they were at one moment, no earlier than the last flush.
    pub(crate) fn restarted(&mut self, consumer: &Consumer, model: &Model, harm: Harm) {
        let found = committed(consumer);
        if self.history.is_empty() {
            for (lane, (position, ..)) in self.lanes.iter_mut().zip(&found) {
                lane.marks.insert(*position, (0, 0));
            }
        } else if harm == Harm::LazySync {
            // The log's end may have gone back, and the cursors with it.
            for (number, lane) in self.lanes.iter_mut().enumerate() {
                let (position, documents, _) = found[number];
                let held = model.lane(number as u32);
                let behind = (0..=held.len()).find(|behind| documents_of(&held[..*behind]) == documents);
                lane.marks = BTreeMap::from([(position, (behind.expect("a boundary"), 0))]);
            }
        } else {
            assert!(
                self.history.contains(&found),
                "{found:?} was never committed: {:?}",
                self.history
            );
        }
        for (lane, (_, _, dead)) in self.lanes.iter_mut().zip(&found) {
            lane.dead = *dead;
        }
        self.history = vec![found];
    }

    /// Reads one group and compares it with the model; returns whether there was one.
    pub(crate) fn read(&mut self, reader: &mut LaneReader, model: &Model, harm: Harm) -> bool {
        let lane = &mut self.lanes[reader.lane() as usize];
        let held = model.lane(reader.lane());
        let (behind, told) = lane.at(reader.mark().position);
        let mut bytes = b"kept".to_vec();
        let next = match reader.next(&mut bytes) {
            Ok(Some(next)) => next,
            Ok(None) => return false,
            Err(error) => {
                assert!(
                    error.to_string().contains("simulated failure") || error.to_string().contains("dead"),
                    "{error}"
                );
                assert_eq!(bytes, b"kept");
                return false;
            }
        };
        match next {
            Next::Group(group) => {
                let rest = held[behind..].iter();
                let mut same = rest
                    .enumerate()
                    .filter(|(_, one)| one.position == group.position && one.bytes == bytes[4..]);
                let (skipped, one) = same
                    .next()
                    .unwrap_or_else(|| panic!("not in the model, or again: {group:?}"));
                assert_eq!(
                    (one.kind, &one.params, one.documents),
                    (group.kind, &group.params, group.documents)
                );
                let missing = documents_of(&held[behind..behind + skipped]);
                if harm != Harm::Damage {
                    assert_eq!((skipped, told), (0, 0));
                    assert_eq!(group.mark.documents, documents_of(&held[..=behind]));
                }
                lane.marks
                    .insert(group.mark.position, (behind + skipped + 1, told - missing as i64));
            }
            Next::Lost { lost, mark } => {
                assert_eq!(harm, Harm::Damage, "{lost:?}");
                assert_eq!(bytes, b"kept");
                let documents = lost.documents.expect("a reader knows");
                lane.marks
                    .insert(mark.position, (behind, told + documents as i64));
            }
        }
        assert_eq!(reader.mark().lane, reader.lane());
        true
    }

    /// Checks that every document was read or reported lost.
    pub(crate) fn at_end(&self, reader: &LaneReader, model: &Model, harm: Harm, unlaned: u64) {
        let held = model.lane(reader.lane());
        let (behind, told) = self.lanes[reader.lane() as usize].at(reader.mark().position);
        let missing = documents_of(&held[behind..]);
        let untold = missing as i64 - told;
        assert!(
            (0..=unlaned as i64).contains(&untold),
            "{untold} were neither delivered nor told lost, {unlaned} are of no lane"
        );
        if harm != Harm::Damage {
            assert_eq!(reader.mark().documents, documents_of(held));
        }
    }

    pub(crate) fn commit(&mut self, consumer: &Consumer, reader: &LaneReader, dead: u64) {
        let (mark, before) = (reader.mark(), consumer.committed(reader.lane()).unwrap());
        if mark.position < before.position {
            let refused = consumer.commit(&[mark.done()]);
            assert!(refused.is_err(), "a mark that goes back");
            return;
        }
        let lane = &mut self.lanes[reader.lane() as usize];
        let fresh = (mark.documents - before.documents) - (mark.lost - before.lost);
        let dead = dead.min(fresh);
        let committed_now = consumer.commit(&[mark.done_with(dead)]);
        committed_now
            .unwrap_or_else(|error| panic!("{error}: {mark:?} after {before:?}, {:?}", consumer.status()));
        lane.dead += dead;
        self.history.push(committed(consumer));
        assert_eq!(
            self.history.last().unwrap()[reader.lane() as usize],
            (mark.position, mark.documents, lane.dead)
        );
    }

    pub(crate) fn flush(&mut self, consumer: &Consumer) {
        if consumer.flush().is_ok() {
            self.history = vec![committed(consumer)];
        }
    }
}

// === impl Lane ===

impl Lane {
    /// Returns the groups behind a position, and the documents reported lost since; readers move on silently
    /// where there is nothing to read.
    fn at(&self, position: u64) -> (usize, i64) {
        *self
            .marks
            .range(..=position)
            .next_back()
            .expect("the beginning is known")
            .1
    }
}

fn committed(consumer: &Consumer) -> Vec<Committed> {
    let status = consumer.status();
    status
        .lanes
        .iter()
        .map(|lane| (lane.position, lane.done, lane.dead))
        .collect()
}

fn documents_of(held: &[crate::model::Held]) -> u64 {
    match (held.first(), held.last()) {
        (Some(first), Some(last)) => {
            last.documents_after - first.documents_after + u64::from(first.documents)
        }
        _ => 0,
    }
}
