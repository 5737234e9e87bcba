//! Shows people the parked operations, piece by piece.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{EntryPiece, ParkedState};

impl ParkedState {
    /// Returns each piece with its key, for people: the key, the reason, since when the piece waits, how
    /// often it was tried, and when it is tried again.
    pub(in crate::queue::parked) fn pieces_shown(&self) -> impl Iterator<Item = (&EntryPiece, Value)> {
        let now = Instant::now();
        self.keys.iter().flat_map(move |(key, held)| {
            let told = move |piece: &EntryPiece| {
                let next = piece.next_try.unwrap_or(held.next_try);
                json!({
                    "key": key.shown(),
                    "why": held.why,
                    "since_ms": piece.parked_ms,
                    "attempts": piece.attempts,
                    "next_try_s": next.saturating_duration_since(now).as_secs_f64(),
                })
            };
            held.pieces.values().map(move |piece| (piece, told(piece)))
        })
    }
}
