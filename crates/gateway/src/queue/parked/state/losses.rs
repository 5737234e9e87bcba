//! Counts the parked documents that the disk has lost.

use super::super::key::ParkKey;
use super::super::topic::GoneEntry;
use super::{Order, ParkedState};

impl ParkedState {
    /// Returns the operations of a piece, as those that the disk has lost.
    pub(crate) fn damaged(&self, key: &ParkKey, order: Order) -> Option<GoneEntry> {
        let piece = self.keys.get(key)?.pieces.get(&order)?;
        Some(GoneEntry {
            at: piece.at,
            lane: piece.lane,
            ops: piece.ops.clone(),
            dead: 0,
            lost: piece.docs.into(),
        })
    }

    /// Takes out a piece whose operations are written down as lost.
    pub(crate) fn lose(&mut self, key: &ParkKey, order: Order) {
        if let Some(piece) = self.remove(key, order) {
            self.lost += u64::from(piece.docs);
            self.forget_if_empty(key);
        }
    }

    /// Adds what earlier runs have written down as lost.
    pub(in super::super) fn lost_before(&mut self, documents: u64) {
        self.lost += documents;
        self.losing += documents;
    }

    /// Adds the operations of a damaged record, which count as lost from now on. The next record that says
    /// what is gone says so.
    pub(in super::super) fn add_unreadable(&mut self, at: u64, documents: u64) {
        self.lost_before(documents);
        self.unreadable.insert(at);
    }

    /// Returns the damaged records that are to be written down as gone.
    pub(in super::super) fn unreadable(&self) -> Vec<u64> {
        self.unreadable.iter().copied().collect()
    }

    /// Records that these are written down.
    pub(in super::super) fn unreadable_gone(&mut self, places: &[u64]) {
        self.unreadable.retain(|at| !places.contains(at));
    }
}
