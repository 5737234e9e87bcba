//! Parked documents by the indices that their names lead to now. An operation that was parked through an
//! alias goes where the alias leads when it is tried; so later operations on the document there wait for it,
//! by whatever name they come.

use std::collections::{BTreeSet, HashMap};

use super::super::key::{ParkKey, in_index, name_number};
use super::super::store::ParkedEntry;
use super::{EntryPiece, ParkedState, add_key, pick, remove_key};

/// The document of a parked operation.
#[derive(Clone, Copy)]
pub(super) struct DocumentPlace {
    /// The numbers of its index as it is written and as it was known when the operation was parked.
    written: u64,
    concrete: u64,
    /// The number of its id, or 0.
    id: u64,
    /// The number of the document in the index that the written name leads to now.
    pub(super) now: u64,
}

/// The documents whose names lead elsewhere now.
#[derive(Default)]
pub(super) struct DocumentPlaces {
    /// The keys that hold a document there.
    moved: HashMap<u64, Vec<(ParkKey, u32)>>,
    /// The indices that the names of parked documents lead to, as far as the cluster says.
    led_to: HashMap<u64, Option<u64>>,
}

// === impl DocumentPlace ===

impl DocumentPlace {
    /// Returns those of some operations of an entry; none for entries that earlier versions have written.
    pub(super) fn of(entry: &ParkedEntry, ops: Option<&[u32]>) -> Vec<Self> {
        let names: Vec<u64> = entry.names.iter().map(|name| name_number(name)).collect();
        let number = |name: u32| names.get(name as usize).copied().unwrap_or_default();
        let places = pick(&entry.places, ops).into_iter();
        let places = places.map(|(written, concrete, id)| Self {
            written: number(written),
            concrete: number(concrete),
            id,
            now: in_index(number(concrete), id),
        });
        places.collect()
    }

    fn is_moved(self) -> bool {
        self.now != in_index(self.concrete, self.id)
    }
}

// === impl DocumentPlaces ===

impl DocumentPlaces {
    /// Returns the keys that hold a document.
    pub(super) fn holders(&self, place: u64) -> impl Iterator<Item = &ParkKey> {
        let keys = self.moved.get(&place).into_iter().flatten();
        keys.map(|(key, _)| key)
    }

    /// Notes the documents of a piece. Returns whether the cluster has to be asked where a name leads.
    pub(super) fn enter(&mut self, key: &ParkKey, piece: &mut EntryPiece) -> bool {
        let mut is_new = false;
        for place in &mut piece.places {
            let led_to = self.led_to.get(&place.written);
            is_new |= led_to.is_none();
            self.set(key, place, led_to.copied().flatten());
        }
        is_new
    }

    pub(super) fn leave(&mut self, key: &ParkKey, piece: &EntryPiece) {
        for place in piece.places.iter().filter(|place| place.is_moved()) {
            self.forget(key, place.now);
        }
    }

    /// Takes over where a document is now.
    fn set(&mut self, key: &ParkKey, place: &mut DocumentPlace, index: Option<u64>) {
        place.now = in_index(index.unwrap_or(place.concrete), place.id);
        if place.is_moved() {
            add_key(self.moved.entry(place.now).or_default(), key);
        }
    }

    fn forget(&mut self, key: &ParkKey, place: u64) {
        if let Some(keys) = self.moved.get_mut(&place) {
            remove_key(keys, key);
            if keys.is_empty() {
                self.moved.remove(&place);
            }
        }
    }
}

// === impl ParkedState ===

impl ParkedState {
    /// Finds out where the names of parked documents lead now, and holds the documents there.
    pub(super) fn follow_documents(&mut self, resolve: impl Fn(&str) -> Option<String>) {
        let holding = || self.keys.iter().filter(|(key, _)| key.holds_documents());
        let names: BTreeSet<&str> = holding()
            .flat_map(|(_, held)| held.names.iter().map(|name| &**name))
            .collect();
        let led_to = names.into_iter().map(|name| {
            let index = resolve(name).map(|index| name_number(&index));
            (name_number(name), index)
        });
        let led_to: HashMap<_, _> = led_to.collect();
        if led_to == self.places.led_to {
            return;
        }
        self.places.led_to = led_to;
        let (keys, places) = (&mut self.keys, &mut self.places);
        for (key, held) in keys.iter_mut().filter(|(key, _)| key.holds_documents()) {
            for piece in held.pieces.values_mut() {
                places.leave(key, piece);
                places.enter(key, piece);
            }
        }
    }
}
