//! The expected contents of the log: a list that is slow, obvious, and told everything that happens.

use std::collections::HashSet;
use std::sync::Arc;

use log::{AppendError, Browsed, Log, Receipt};
use parking_lot::Mutex;

/// A record as it was handed over.
#[derive(Clone, Debug)]
pub(crate) struct Submitted {
    pub(crate) params: Vec<u8>,
    pub(crate) kind: u8,
    pub(crate) groups: Vec<(u32, u32, Vec<u8>)>,
    pub(crate) fate: Fate,
}

/// What the record's client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing: the process died, or the log was poisoned.
    Unknown,
    /// Nothing, and no answer will come: the record is in the log or it isn't.
    Lapsed,
    /// Nothing, and the record is in the log.
    There,
    Acknowledged(Receipt),
    Refused,
}

/// A group that the log has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// The position of the group's record.
    pub(crate) position: u64,
    pub(crate) params: Vec<u8>,
    pub(crate) kind: u8,
    pub(crate) documents: u32,
    /// The documents of the lane up to and including this group.
    pub(crate) documents_after: u64,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) type Answers = Arc<Mutex<Vec<(usize, Result<Receipt, AppendError>)>>>;

/// The list.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) submitted: Vec<Submitted>,
    /// The numbers of the records that are in the log, in order, with their positions; deleted ones are
    /// included.
    pub(crate) held: Vec<(usize, u64)>,
    pub(crate) answers: Answers,
    /// The groups of the records in the log, by lane.
    lanes: Vec<Vec<Held>>,
    documents: u64,
}

// === impl Model ===

impl Model {
    /// Hands a record over.
    pub(crate) fn submit(&mut self, log: &Log, kind: u8, params: Vec<u8>, groups: Vec<(u32, u32, Vec<u8>)>) {
        let mut record = log.record(kind, &params);
        for (lane, documents, bytes) in &groups {
            record.group(*lane, *documents, |out| out.extend_from_slice(bytes));
        }
        let (number, answers) = (self.submitted.len(), Arc::clone(&self.answers));
        self.submitted.push(Submitted {
            params,
            kind,
            groups,
            fate: Fate::Unknown,
        });
        log.append(record, move |answer| answers.lock().push((number, answer)));
    }

    /// Notes what clients were told.
    pub(crate) fn hear(&mut self) {
        let answers = std::mem::take(&mut *self.answers.lock());
        for (number, answer) in answers {
            self.submitted[number].fate = match answer {
                Ok(receipt) => {
                    self.hold(number, receipt.position);
                    Fate::Acknowledged(receipt)
                }
                Err(AppendError::Poisoned(_)) => Fate::Unknown,
                Err(_) => Fate::Refused,
            };
        }
    }

    /// Notes that whatever is unanswered by now will never be answered.
    pub(crate) fn settle(&mut self) {
        for one in &mut self.submitted {
            if one.fate == Fate::Unknown {
                one.fate = Fate::Lapsed;
            }
        }
    }

    /// Compares the model with the log after a restart, and takes over what was uncertain. `lossy`: clients
    /// were told before the sync, and the power was cut.
    pub(crate) fn restarted(&mut self, log: &Log, lossy: bool) {
        let start = log.status().start;
        let found = browse(log, start);
        let mut next = 0;
        let gone: Vec<_> = self
            .held
            .iter()
            .take_while(|(_, position)| *position < start)
            .copied()
            .collect();
        let mut held = gone.clone();
        for browsed in &found {
            let same = (next..self.submitted.len()).find(|number| self.submitted[*number].is(browsed));
            let number = same.unwrap_or_else(|| panic!("never submitted, or out of order: {browsed:?}"));
            assert_ne!(
                self.submitted[number].fate,
                Fate::Refused,
                "record {number} was refused, and is there"
            );
            held.push((number, browsed.receipt.position));
            next = number + 1;
        }
        let missing: Vec<_> = self.held.iter().filter(|one| !held.contains(one)).collect();
        if lossy {
            // Records may be lost only from the end: nothing written later may be there.
            let first = missing
                .iter()
                .map(|(number, _)| *number)
                .min()
                .unwrap_or(usize::MAX);
            assert!(
                held.iter().all(|(number, _)| *number < first),
                "{first} is lost, a later one isn't"
            );
        } else {
            assert!(
                missing.is_empty(),
                "acknowledged, and lost: {missing:?} of {:?}; start {start}",
                self.held
            );
        }
        self.held.clear();
        self.lanes.clear();
        self.documents = 0;
        held.into_iter()
            .for_each(|(number, position)| self.hold(number, position));
        let there: HashSet<usize> = self.held.iter().map(|(number, _)| *number).collect();
        // From now on this is certain: a record that is not there never comes back.
        for (number, one) in self.submitted.iter_mut().enumerate() {
            let there = there.contains(&number);
            match one.fate {
                Fate::Lapsed if there => one.fate = Fate::There,
                Fate::Lapsed | Fate::Acknowledged(_) if !there => one.fate = Fate::Refused,
                _ => {}
            }
        }
    }

    /// Returns a lane's groups, from its beginning.
    pub(crate) fn lane(&self, lane: u32) -> &[Held] {
        self.lanes.get(lane as usize).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn documents(&self) -> u64 {
        self.documents
    }

    /// Notes that a record turned out to be in the log, behind all others.
    fn hold(&mut self, number: usize, position: u64) {
        self.held.push((number, position));
        let record = &self.submitted[number];
        for (lane, documents, bytes) in &record.groups {
            if self.lanes.len() <= *lane as usize {
                self.lanes.resize_with(*lane as usize + 1, Vec::new);
            }
            let groups = &mut self.lanes[*lane as usize];
            let before = groups.last().map_or(0, |group| group.documents_after);
            self.documents += u64::from(*documents);
            groups.push(Held {
                position,
                params: record.params.clone(),
                kind: record.kind,
                documents: *documents,
                documents_after: before + u64::from(*documents),
                bytes: bytes.clone(),
            });
        }
    }
}

// === impl Submitted ===

impl Submitted {
    fn is(&self, browsed: &Browsed) -> bool {
        let groups = browsed
            .groups
            .iter()
            .map(|group| (group.lane, group.documents, group.bytes.as_ref()));
        self.params == browsed.params
            && self.kind == browsed.kind
            && groups.eq(self
                .groups
                .iter()
                .map(|(lane, documents, bytes)| (*lane, *documents, Some(bytes))))
    }
}

/// Returns all records from a position on.
pub(crate) fn browse(log: &Log, from: u64) -> Vec<Browsed> {
    let (mut browse, mut found) = (log.browse(from), Vec::new());
    while let Some(browsed) = browse.read().unwrap() {
        found.push(browsed);
    }
    found
}
