//! Counts how many documents of each lane are parked, and how many of those that were parked have died. A
//! lane's next owner counts on from there, and a record of the store says it.

use std::collections::BTreeMap;

use super::super::topic::GoneEntry;
use super::ParkedState;

/// The documents of one lane.
#[derive(Clone, Copy, Default)]
pub(super) struct OfLane {
    pub(super) counted: u64,
    pub(super) dead: u64,
    /// `dead`, and those whose death is being written down.
    dying: u64,
}

/// Parked documents that became dead letters, including those that are about to.
pub(crate) struct Dying {
    pub(crate) all: u64,
    pub(crate) by_lane: BTreeMap<u32, u64>,
    /// Parked documents that the disk has lost, including those that are about to be written down.
    pub(crate) lost: u64,
}

impl ParkedState {
    /// Makes the state of a store that is a copy: the fate of entries is written elsewhere, and nothing is
    /// kept for it.
    pub(crate) fn of_copy() -> Self {
        Self {
            last_resolved: u64::MAX,
            ..Self::default()
        }
    }

    /// Adds the dead letters that an earlier run, or another gateway, has made of a lane's documents.
    pub(crate) fn died_before(&mut self, lane: u32, dead: u64) {
        self.dead += dead;
        let lane = self.lanes.entry(lane).or_default();
        lane.dead += dead;
        lane.dying += dead;
    }

    /// Announces that these operations are about to be written down as gone; returns how many will have died
    /// then.
    pub(crate) fn will_die(&mut self, gone: &[GoneEntry]) -> Dying {
        for one in gone {
            self.lanes.entry(one.lane).or_default().dying += one.dead;
            self.losing += one.lost;
        }
        let lanes = gone.iter().map(|one| one.lane);
        Dying {
            all: self.lanes.values().map(|lane| lane.dying).sum(),
            by_lane: lanes.map(|lane| (lane, self.lanes[&lane].dying)).collect(),
            lost: self.losing,
        }
    }

    /// Takes the announcement back: it could not be written down.
    pub(crate) fn will_not_die(&mut self, gone: &[GoneEntry]) {
        for one in gone {
            self.lanes.entry(one.lane).or_default().dying -= one.dead;
            self.losing -= one.lost;
        }
    }

    /// Returns how many documents of a lane are parked, and how many have died.
    pub(crate) fn of_lane(&self, lane: u32) -> (u64, u64) {
        let lane = self.lanes.get(&lane).copied().unwrap_or_default();
        (lane.counted, lane.dead)
    }

    pub(super) fn add(&mut self, lane: u32, documents: u64) {
        self.counted += documents;
        self.lanes.entry(lane).or_default().counted += documents;
    }

    /// Takes documents off those that count.
    ///
    /// # Panics
    /// If fewer count; nothing has changed then.
    pub(super) fn take_off(&mut self, lane: u32, documents: u64) {
        let of_lane = self.lanes.entry(lane).or_default();
        assert!(
            documents <= of_lane.counted && documents <= self.counted,
            "no more parked documents of a lane leave than were parked: {documents} of {} and of {} in all",
            of_lane.counted,
            self.counted
        );
        self.counted -= documents;
        of_lane.counted -= documents;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> ParkedState {
        let mut state = ParkedState::default();
        state.add(1, 5);
        state.add(2, 5);
        state
    }

    #[test]
    fn documents_that_leave_are_taken_off_their_lane_and_the_sum() {
        let mut state = state();
        state.take_off(1, 5);
        state.take_off(2, 1);
        assert_eq!(
            (state.counted, state.of_lane(1), state.of_lane(2)),
            (4, (0, 0), (4, 0))
        );
    }

    #[test]
    #[should_panic(
        expected = "no more parked documents of a lane leave than were parked: 6 of 5 and of 10 in all"
    )]
    fn no_more_documents_leave_than_were_parked() {
        state().take_off(1, 6);
    }
}
