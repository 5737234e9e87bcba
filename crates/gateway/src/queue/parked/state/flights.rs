//! Requests under way with operations that are parked: their lines wait for their end.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::bound::{DOCUMENTS_MAX, OPERATIONS_MAX, PIECES_MAX};
use super::super::flight::Flight;
use super::super::key::ParkKey;
use super::{EntryPiece, Order, ParkedKey, ParkedState, Standing};

// === impl ParkedKey ===

impl ParkedKey {
    /// Whether nothing of it may be tried now, because of requests under way. Operations that are parked by
    /// themselves do not wait for each other.
    pub(super) fn is_under_way(&self, key: &ParkKey) -> bool {
        match key {
            _ if !self.flies() => false,
            ParkKey::Documents => self.pieces.values().all(EntryPiece::is_under_way),
            _ => true,
        }
    }

    fn flies(&self) -> bool {
        self.flights.iter().any(|flight| flight.is_under_way())
    }

    /// Whether a lane's request with operations of it is under way, or was until just now.
    fn has_flown(&self) -> bool {
        let mut of_lanes = self.flights.iter().filter(|flight| flight.is_of_lane());
        of_lanes.any(|flight| flight.is_under_way())
            || self.flew.is_some_and(|flew| flew.elapsed() < CATCHES_UP)
    }

    pub(super) fn flies_with(&mut self, flight: &Arc<Flight>) {
        if flight.is_under_way() && !self.flights.contains(flight) {
            self.flights.push(Arc::clone(flight));
        }
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
                held.flew = held.flew.max(flight.is_of_lane().then(Instant::now));
            }
        }
    }

    /// Returns how many bytes of committed batches a key holds if operations of it wait for the end of a
    /// lane's request, or have until just now; otherwise 0.
    pub(crate) fn bytes_under_way(&self, key: &ParkKey) -> u64 {
        let Some(held) = self.keys.get(key).filter(|held| held.has_flown()) else {
            return 0;
        };
        // A batch that waited for what it has parked itself would wait for ever.
        let unsettled = self.unsettled.values().flatten().filter(|(of, _)| of == key);
        let shares = unsettled.filter_map(|(_, order)| Some(held.pieces.get(order)?.share));
        held.bytes.saturating_sub(shares.sum())
    }

    /// Whether operations of a key wait for the end of a lane's request, or have until just now.
    pub(crate) fn has_flown(&self, key: &ParkKey) -> bool {
        self.keys.get(key).is_some_and(ParkedKey::has_flown)
    }

    /// Whether a request is under way with operations of a key.
    pub(crate) fn flies(&self, key: &ParkKey) -> bool {
        self.keys.get(key).is_some_and(ParkedKey::flies)
    }

    /// Returns the pieces whose requests have ended since they were parked, by key.
    pub(crate) fn landed_pieces(&self) -> Vec<(ParkKey, HashSet<Order>)> {
        let has_landed = |piece: &EntryPiece| {
            piece.standing != Standing::Unsettled && piece.flight.is_some() && !piece.is_under_way()
        };
        let keys = self.keys.iter().map(|(key, held)| {
            let pieces = held.pieces.iter().filter(|(_, piece)| has_landed(piece));
            (key.clone(), pieces.map(|(order, _)| *order).collect())
        });
        keys.filter(|(_, pieces): &(_, HashSet<Order>)| !pieces.is_empty())
            .collect()
    }

    pub(crate) fn has_plenty(&self) -> bool {
        let documents = self.documents.len() < DOCUMENTS_MAX && self.known < OPERATIONS_MAX / 2;
        documents && self.pieces < PIECES_MAX / 2
    }
}

/// How long a key is given to catch up after the end of a request, before what has no room any more dies.
pub(crate) const CATCHES_UP: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::super::tests::{entry, park};
    use super::super::{ParkedState, Tried};
    use super::*;

    #[test]
    fn lanes_wait_behind_much_that_waits_for_a_lanes_request_and_not_for_one_of_a_try() {
        let key = ParkKey::Documents;
        for (flight, waits) in [(Flight::default(), true), (Flight::of_try(), false)] {
            let (mut state, flight) = (ParkedState::default(), Arc::new(flight));
            let ids = entry(key.clone(), 2, &["1"]);
            park(&mut state, &ids, 30);
            assert!(state.count(3));
            state.ready();
            let order = state.pick(&key, 1, 1000, |_| false).picked[0].order;
            let tried = Tried {
                goes_on: Some((Arc::clone(&flight), vec![0])),
                ..Tried::default()
            };
            state.tried(&key, order, &ids, tried, |_| Duration::ZERO);
            assert!(state.flies(&key) && state.pick(&key, 1, 1000, |_| false).picked.is_empty());
            assert_eq!(
                (state.bytes_under_way(&key) > 0, state.has_flown(&key)),
                (waits, waits)
            );
            flight.lands(HashSet::new());
            state.landed(&flight);
            assert!(!state.flies(&key) && state.has_flown(&key) == waits);
        }
    }
}
