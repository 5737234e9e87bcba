//! Requests under way with operations that are parked: their lines wait for their end.

use std::sync::Arc;

use tokio::time::Instant;

use super::super::bound::PIECES_MAX;
use super::super::flight::{Flight, any_under_way};
use super::super::key::ParkKey;
use super::{EntryPiece, ParkedKey, ParkedState};

// === impl ParkedKey ===

impl ParkedKey {
    /// Whether nothing of it may be tried now, because of requests under way. Operations that are parked by
    /// themselves do not wait for each other.
    pub(super) fn is_under_way(&self, key: &ParkKey) -> bool {
        match key {
            _ if !self.flights.iter().any(|flight| flight.is_under_way()) => false,
            ParkKey::Documents => self.pieces.values().all(EntryPiece::is_under_way),
            _ => true,
        }
    }

    pub(super) fn flies_with(&mut self, flight: &Arc<Flight>) {
        if any_under_way(&mut self.flights) && self.flights.contains(flight) || !flight.is_under_way() {
            return;
        }
        self.flights.push(Arc::clone(flight));
    }
}

// === impl EntryPiece ===

impl EntryPiece {
    pub(super) fn is_under_way(&self) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.is_under_way())
    }
}

// === impl ParkedState ===

impl ParkedState {
    /// Records that a request is under way with the pieces of a lane's batch that are at this place.
    pub(crate) fn are_under_way(&mut self, lane: u32, at: u64, flight: &Arc<Flight>) {
        for (key, order) in self.unsettled.get(&lane).into_iter().flatten() {
            let Some(held) = self.keys.get_mut(key).filter(|_| order.2 == at) else {
                continue;
            };
            held.flies_with(flight);
            if let Some(piece) = held.pieces.get_mut(order) {
                piece.flight = Some(Arc::clone(flight));
            }
        }
    }

    /// Makes the lines due that waited for the end of a request, and forgets the request.
    pub(crate) fn landed(&mut self, flight: &Arc<Flight>) {
        for held in self.keys.values_mut() {
            let before = held.flights.len();
            held.flights.retain(|one| one != flight);
            if held.flights.len() < before {
                held.next_try = Instant::now();
            }
        }
    }

    /// Returns how many bytes wait in a line behind a request under way; 0 if there is none.
    pub(crate) fn bytes_under_way(&self, key: &ParkKey) -> u64 {
        let line = self.keys.get(key).filter(|_| key.rank() == 0);
        let held = line.filter(|held| held.is_under_way(key));
        held.map_or(0, |held| held.bytes)
    }

    pub(crate) fn has_plenty(&self) -> bool {
        self.pieces < PIECES_MAX / 2
    }
}
