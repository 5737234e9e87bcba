//! Decides which keys are tried next. A try of operations for a node that does not answer lasts until it
//! times out, so keys whose tries last long leave room for the others.

use std::time::Duration;

use tokio::time::Instant;

use super::super::SOON;
use super::super::key::ParkKey;
use super::{EntryPiece, ParkedKey, ParkedState};

impl ParkedKey {
    /// Whether its last try took long, or what is under way does.
    fn is_slow(&self, now: Instant) -> bool {
        self.slow || self.running && now.saturating_duration_since(self.began) > SLOW
    }
}

impl ParkedState {
    /// Returns the keys whose turn it is, at most `most`, and slow ones only as long as no more than
    /// `slow_max` of these are under way; each is under way until [`ParkedState::rest`].
    pub(crate) fn due(&mut self, most: usize, slow_max: usize) -> Vec<ParkKey> {
        self.due_at(Instant::now(), most, slow_max)
    }

    pub(crate) fn due_at(&mut self, now: Instant, most: usize, slow_max: usize) -> Vec<ParkKey> {
        let mut slow_left = self.slow_left(now, slow_max);
        let due = self
            .keys
            .iter_mut()
            .filter(|(_, held)| !held.running && held.next_try <= now && held.may_try())
            .filter(|(key, held)| !held.is_under_way(key));
        let mut due: Vec<(Instant, ParkKey, &mut ParkedKey)> = due
            .map(|(key, held)| (held.next_try, key.clone(), held))
            .collect();
        due.sort_by_key(|(next, ..)| *next);
        let fits = |(.., held): &(Instant, ParkKey, &mut ParkedKey)| {
            if held.slow {
                let left = slow_left.checked_sub(1);
                slow_left = left.unwrap_or(0);
                return left.is_some();
            }
            true
        };
        let due = due.into_iter().filter(fits).take(most).map(|(_, key, held)| {
            (held.running, held.began) = (true, now);
            key
        });
        let mut due: Vec<ParkKey> = due.collect();
        if self.more_from().is_some_and(|from| from <= now) {
            self.document_tries.more_turns += 1;
            due.push(ParkKey::Documents);
        }
        due
    }

    /// Returns from when on one more turn is due for what is parked by itself, because those under way are
    /// late.
    fn more_from(&self) -> Option<Instant> {
        let held = self.keys.get(&ParkKey::Documents).filter(|held| held.running)?;
        Some(self.document_tries.more_from()?.max(held.next_try))
    }

    /// Returns how many turns are under way besides one for each key.
    pub(crate) fn more_turns(&self) -> usize {
        self.document_tries.more_turns
    }

    pub(super) fn ends_turn(&mut self, key: &ParkKey) {
        let more = &mut self.document_tries.more_turns;
        if *key == ParkKey::Documents && *more > 0 {
            *more -= 1;
        } else if let Some(held) = self.keys.get_mut(key) {
            held.running = false;
        }
    }

    /// Ends a key's turn in which nothing could be tried: what is due waits for this long.
    pub(crate) fn idle(&mut self, key: &ParkKey, progress: bool, wait: Duration) {
        self.ends_turn(key);
        let Some(held) = self.keys.get_mut(key) else {
            return;
        };
        held.failures *= u32::from(!progress);
        let now = Instant::now();
        held.next_try = now + wait;
        if *key == ParkKey::Documents {
            let later = |piece: &EntryPiece| piece.next_try.filter(|at| *at > now);
            let next = held
                .pieces
                .values()
                .map(|piece| later(piece).unwrap_or(now + wait));
            held.next_try = next.min().unwrap_or(now + wait).max(now + SOON);
        }
    }

    /// Returns when a key is due next.
    pub(crate) fn next_due(&self, slow_max: usize) -> Option<Instant> {
        let slow_left = self.slow_left(Instant::now(), slow_max);
        let waiting = self
            .keys
            .iter()
            .filter(|(_, held)| !held.running && held.may_try());
        // The end of a request is told.
        let waiting = waiting.filter(|(key, held)| !held.is_under_way(key));
        let waiting = waiting.filter(|(_, held)| !held.slow || slow_left > 0);
        let waiting = waiting.map(|(_, held)| held.next_try);
        waiting.chain(self.more_from()).min()
    }

    /// Records how long a try of a key took; `is_first` in its turn.
    pub(crate) fn took(&mut self, key: &ParkKey, is_first: bool, time: Duration) {
        if let Some(held) = self.keys.get_mut(key) {
            held.slow = time > SLOW || held.slow && !is_first;
        }
    }

    /// Returns how many more slow keys may be tried.
    fn slow_left(&self, now: Instant, slow_max: usize) -> usize {
        let running = self.keys.values().filter(|held| held.running);
        slow_max.saturating_sub(running.filter(|held| held.is_slow(now)).count())
    }
}

/// A try that takes longer is slow.
pub(super) const SLOW: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::super::tests::{entry, park};
    use super::*;

    #[test]
    fn keys_whose_tries_take_long_leave_room_for_the_others() {
        let mut state = ParkedState::default();
        let key = |index: usize| ParkKey::Index {
            index: format!("i{index}"),
        };
        for index in 0..9 {
            park(&mut state, &entry(key(index), 1, &["1"]), 10 + index as u64);
        }
        state.count(3);
        let now = Instant::now() + Duration::from_secs(1);
        let later = now + SLOW + Duration::from_millis(1);
        // Nobody knows yet which are slow.
        assert_eq!(state.due_at(now, 6, 2).len(), 6);
        for index in 0..6 {
            state.took(&key(index), true, SLOW * 2);
            state.took(&key(index), false, Duration::ZERO);
        }
        let rest = |state: &mut ParkedState, index| state.rest(&key(index), false, None, |_| Duration::ZERO);
        (0..6).for_each(|index| rest(&mut state, index));
        let due = state.due_at(now, 8, 2);
        let slow = due.iter().filter(|due| (0..6).any(|index| key(index) == **due));
        assert_eq!((slow.count(), due.len()), (2, 5));
        assert!(
            state.next_due(2).is_none(),
            "the others wait for one of these to end"
        );
        assert!(state.next_due(3).is_some() && state.due_at(now, 8, 2).is_empty());
        // What has been under way for long is slow, too.
        assert_eq!((state.slow_left(now, 9), state.slow_left(later, 9)), (7, 4));
        let quick = due
            .iter()
            .find(|due| (0..6).any(|index| key(index) == **due))
            .unwrap();
        state.took(quick, true, Duration::ZERO);
        state.rest(quick, true, None, |_| Duration::ZERO);
        let due = state.due_at(now, 8, 2);
        assert!(due.contains(quick) && due.len() == 2, "{due:?}");
    }
}
