//! What the topic says of the ends of parked operations whose dead letters are on this gateway's disk. A
//! gateway that loses its lanes may not know whether the brokers took the record that says that an operation
//! is gone: its letter counts if they did, and must not if the next owner of the lane still has the
//! operation.

use std::collections::{BTreeMap, BTreeSet};

use super::history::History;
use super::topic::ParkedTopic;
use super::{Parked, ParkedError};

/// What a lane's partition says of the end of a parked operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// This owner has written that the operation is gone.
    By(u64),
    /// The operation is still parked; this owner holds the lane.
    Missing { owner: Option<u64> },
    /// The partition no longer has what would say it.
    Unknown,
}

/// The fate of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LetterFate {
    /// Its operation ended with it.
    Counts,
    /// Its operation ends, or has ended, elsewhere.
    Dropped,
    /// Its operation's end may still reach the brokers.
    Open,
}

/// The ends of some parked operations, each of which is named as its letter's cause names it.
pub(crate) type Ends = BTreeMap<(u64, u32), End>;

// === impl End ===

impl End {
    /// Judges the letter that an owner of the lane has put. If nothing is known any more, the letter counts:
    /// a letter that is told of twice is better than one that is lost.
    pub(crate) fn fate_of_letter(self, put_by: Option<u64>) -> LetterFate {
        match self {
            End::By(owner) if put_by.is_none_or(|put_by| put_by == owner) => LetterFate::Counts,
            End::By(_) => LetterFate::Dropped,
            // Whatever this owner has written may still be on its way.
            End::Missing { owner } if owner.is_some() && owner == put_by => LetterFate::Open,
            End::Missing { .. } => LetterFate::Dropped,
            End::Unknown => LetterFate::Counts,
        }
    }
}

// === impl Parked ===

impl Parked {
    /// The name under which this gateway holds its lanes, if gateways hold them in turn.
    pub(crate) fn owner(&self) -> Option<u64> {
        self.topic.as_ref()?.held_as()
    }

    /// Returns the operations whose letters are not confirmed, and which this gateway does not have parked:
    /// it does not hold their lanes any more, or it has written their ends and may not have held them then.
    pub(crate) fn letters_in_doubt(&self) -> BTreeSet<(u64, u32)> {
        let Some(topic) = &self.topic else {
            return BTreeSet::new();
        };
        let is_former = |number: u64| !topic.holds(topic.lane_of(number));
        let unconfirmed = self.unconfirmed_letters.all().into_iter();
        unconfirmed
            .filter(|(number, op)| is_former(*number) || !self.holds(*number, *op))
            .collect()
    }

    /// Asks the topic how these operations ended. Blocks on the brokers.
    pub(crate) fn ends_of(&self, asked: &BTreeSet<(u64, u32)>) -> Result<Ends, ParkedError> {
        match &self.topic {
            Some(topic) => topic.ends_of(asked),
            None => Ok(Ends::new()),
        }
    }
}

// === impl ParkedTopic ===

impl ParkedTopic {
    /// Returns how these operations ended, as the topic has it now. Needs no lane.
    fn ends_of(&self, asked: &BTreeSet<(u64, u32)>) -> Result<Ends, ParkedError> {
        let lanes: BTreeSet<u32> = asked.iter().map(|(number, _)| self.lane_of(*number)).collect();
        let lanes: Vec<u32> = lanes.into_iter().collect();
        let found = self.read_up_to_now(&lanes, asked)?;
        let mut ends = Ends::new();
        for (lane, history) in &found {
            ends.append(&mut self.ends_in(*lane, history, asked));
        }
        Ok(ends)
    }

    /// Returns those of the ends that a lane's history tells.
    pub(super) fn ends_in<T>(&self, lane: u32, history: &History<T>, asked: &BTreeSet<(u64, u32)>) -> Ends {
        let of_lane = asked.iter().filter(|(number, _)| self.lane_of(*number) == lane);
        let ends =
            of_lane.map(|(number, op)| ((*number, *op), history.end_of((self.offset_of(*number), *op))));
        ends.collect()
    }

    /// Begins the history of a lane that looks out for the ends of these operations.
    pub(super) fn history_of<T>(&self, lane: u32, asked: &BTreeSet<(u64, u32)>) -> History<T> {
        let of_lane = asked.iter().filter(|(number, _)| self.lane_of(*number) == lane);
        History::looking_for(of_lane.map(|(number, op)| (self.offset_of(*number), *op)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_counts_unless_its_operation_is_known_to_end_elsewhere() {
        let fate = |end: End| end.fate_of_letter(Some(7));
        assert_eq!(fate(End::By(7)), LetterFate::Counts);
        assert_eq!(
            fate(End::By(8)),
            LetterFate::Dropped,
            "that owner has put its own"
        );
        assert_eq!(
            fate(End::Missing { owner: Some(8) }),
            LetterFate::Dropped,
            "that owner will put its own, if it must"
        );
        assert_eq!(fate(End::Missing { owner: Some(7) }), LetterFate::Open);
        assert_eq!(fate(End::Unknown), LetterFate::Counts);
    }
}
