//! Takes over, and gives up, the parked operations of lanes of a queue in Kafka, as the lanes come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use super::ends::Ends;
use super::lines::Lines;
use super::state::{ParkedState, Standing};
use super::{LanesBegun, NameLed, Parked, ParkedEntry, ParkedError};
use crate::clock::now_ms;

/// What a gateway learns when it takes lanes over, besides their parked operations.
#[derive(Default)]
pub(crate) struct TakenOver {
    /// Where names led when former owners sent operations that are in doubt.
    pub(crate) led_to: Vec<NameLed>,
    /// How operations of these lanes ended whose letters on this disk are not confirmed.
    pub(crate) ends: Ends,
}

// === impl Parked ===

impl Parked {
    /// Whether lanes come and go, along with their parked operations.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.topic.is_some()
    }

    /// Finds the parked operations of lanes that came, before anything of them is delivered. What fails may
    /// be tried again with the same `begun`. Blocks on the brokers.
    pub(crate) fn take_over(
        &self,
        lanes: &[u32],
        begun: &mut Option<LanesBegun>,
    ) -> Result<TakenOver, ParkedError> {
        let mut taken = TakenOver::default();
        let Some(topic) = &self.topic else {
            return Ok(taken);
        };
        let store = self.open_store()?;
        store.keep_from(store.end());
        let keep =
            |entry: &ParkedEntry, lines: &[u8]| store.put_copy(entry, lines).map_err(ParkedError::NoCopy);
        let asked: BTreeSet<_> = self.unconfirmed_letters.all().into_iter().collect();
        let found = topic.take_over(lanes, begun, &asked, keep)?;
        let mut state = ParkedState::of_copy();
        let live = found.iter().flat_map(|one| one.history.live.values());
        let lines = Lines::of(live.map(|live| (&*live.entry, live.left.iter())));
        for mut one in found {
            taken.led_to.append(&mut one.led_to);
            taken
                .ends
                .append(&mut topic.ends_in(one.lane, &one.history, &asked));
            state.died_before(one.lane, one.dead);
            let mut copies = Vec::new();
            for (offset, live) in std::mem::take(&mut one.history.live) {
                let (at, bytes) = live.with;
                // The last one is the place by which the entry is known from now on.
                copies.extend(live.copies.iter().map(|copy| (*copy, at)));
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
        Ok(taken)
    }

    /// Has the next owner of these lanes know where names lead, before operations of the lanes are sent
    /// through them: in a queue in Kafka, that is written into the topic if it is news.
    pub(crate) async fn note_names(
        &self,
        lanes: &[u32],
        names: &BTreeMap<&str, &str>,
    ) -> Result<(), ParkedError> {
        match &self.topic {
            Some(topic) => topic.note_names(lanes, names, now_ms()).await,
            None => Ok(()),
        }
    }

    /// Has the next owner know where names lead now through which operations were sent that led elsewhere:
    /// operations that are under way may be executed there.
    pub(crate) async fn note_moves(
        &self,
        index_of: impl Fn(&str) -> Option<String>,
    ) -> Result<(), ParkedError> {
        match &self.topic {
            Some(topic) => topic.note_moves(index_of, now_ms()).await,
            None => Ok(()),
        }
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
