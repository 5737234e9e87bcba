//! Operations that are refused for good and wait for room among the dead letters. They wait by index, and
//! nothing waits behind them.

use super::super::bound::PIECES_MAX;
use super::super::key::{ParkKey, SEVERAL};
use super::{ParkedKey, ParkedState};

impl ParkedState {
    /// Returns the key under which refused operations for an index wait for room among the dead letters.
    pub(crate) fn letters_key(&self, index: &str) -> ParkKey {
        let of = |index: &str| ParkKey::Letters {
            index: index.to_owned(),
        };
        let key = of(index);
        let is_crowded = || {
            let letters = self.keys.keys().filter(|key| key.is_letters());
            self.pieces >= PIECES_MAX || letters.take(LETTERS_KEYS_MAX).count() == LETTERS_KEYS_MAX
        };
        match !self.keys.contains_key(&key) && is_crowded() {
            true => of(SEVERAL),
            false => key,
        }
    }

    /// Returns the first of these names whose refused operations take more room than they may, with their
    /// bytes, if there is one: `most` bytes may be parked in all, and `used` are.
    pub(crate) fn overfull<'n>(
        &self,
        mut names: impl Iterator<Item = &'n str>,
        used: u64,
        most: u64,
    ) -> Option<(&'n str, u64)> {
        let letters: Vec<&ParkedKey> = self
            .keys
            .iter()
            .filter(|(key, _)| key.is_letters())
            .map(|(_, held)| held)
            .collect();
        let all: u64 = letters.iter().map(|held| held.bytes).sum();
        let share = most.saturating_sub(used).max(most / SHARE_LEAST);
        names.find_map(|name| {
            let mut of_name = letters.iter().filter(|held| held.names.contains(name));
            let over = of_name.find(|held| held.bytes > share || all > 2 * most)?;
            Some((name, over.bytes))
        })
    }

    /// Returns how many documents are refused and wait for room among the dead letters.
    pub(crate) fn letters(&self) -> u64 {
        let letters = self.keys.iter().filter(|(key, _)| key.is_letters());
        let pieces = letters.flat_map(|(_, held)| held.pieces.values());
        pieces.map(|piece| u64::from(piece.docs)).sum()
    }

    /// Whether refused operations wait for room.
    pub(crate) fn has_letters(&self) -> bool {
        self.keys.keys().any(ParkKey::is_letters)
    }
}

/// The most indices whose refused operations are told apart.
const LETTERS_KEYS_MAX: usize = 1000;
/// The refused operations of an index may in any case have one part in this many of the store.
const SHARE_LEAST: u64 = 64;
