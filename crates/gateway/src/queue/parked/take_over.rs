//! Takes over, and gives up, the parked operations of lanes of a queue in Kafka, as the lanes come and go.

use std::sync::atomic::Ordering;

use super::lines::Lines;
use super::state::{ParkedState, Standing};
use super::{Parked, ParkedEntry, ParkedError};

impl Parked {
    /// Whether lanes come and go, along with their parked operations.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.topic.is_some()
    }

    /// Finds the parked operations of lanes that came, before anything of them is delivered. Blocks on the
    /// brokers.
    pub(crate) fn take_over(&self, lanes: &[u32]) -> Result<(), ParkedError> {
        let Some(topic) = &self.topic else { return Ok(()) };
        let store = self.open_store()?;
        store.keep_from(store.end());
        let keep =
            |entry: &ParkedEntry, lines: &[u8]| store.put_copy(entry, lines).map_err(ParkedError::NoCopy);
        let found = topic.take_over(lanes, keep)?;
        let mut state = ParkedState::of_copy();
        let live = found.iter().flat_map(|one| one.history.live.values());
        let lines = Lines::of(live.map(|live| (&*live.entry, live.left.iter())));
        for mut one in found {
            state.died_before(one.lane, one.dead);
            let mut copies = Vec::new();
            for (offset, live) in std::mem::take(&mut one.history.live) {
                let (at, bytes) = live.with;
                copies.push((offset, at));
                state.insert_again(&lines, &live.entry, &live.left, (at, bytes), Standing::Ready);
            }
            topic.knows(one.lane, &copies, one.history);
        }
        let mut held = self.state();
        *held = state;
        self.letters_wait.store(held.has_letters(), Ordering::Relaxed);
        self.any.store(!held.is_empty(), Ordering::Release);
        self.tell(&held, lanes.iter().copied());
        drop(held);
        self.tidy();
        Ok(())
    }

    /// Lets go of the lanes, with their parked operations: they are others' from now on. To be called only
    /// while nothing is under way.
    pub(crate) fn let_go(&self) {
        let Some(topic) = &self.topic else { return };
        topic.let_go();
        *self.state() = ParkedState::default();
        self.any.store(false, Ordering::Release);
        if let Some(store) = self.opened() {
            store.keep_from(store.end());
        }
    }
}
