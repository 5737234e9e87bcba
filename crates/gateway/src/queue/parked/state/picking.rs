//! Picks the operations of a key that are tried next.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::time::Instant;

use super::super::FailureRow;
use super::super::flight::Flight;
use super::super::key::ParkKey;
use super::document_tries::Free;
use super::{EntryPiece, Order, ParkedState, Standing};

/// A piece that is to be tried now.
pub(crate) struct Picked {
    pub(crate) order: Order,
    pub(crate) at: u64,
    pub(crate) ops: Option<Vec<u32>>,
    /// Whether other operations of the piece stay.
    pub(crate) is_part: bool,
    /// Its operations that are left, and the bytes of all that it has on disk.
    pub(crate) docs: u32,
    pub(crate) bytes: u64,
    pub(crate) attempts: u32,
    pub(crate) refusals: u32,
    pub(crate) failure_row: FailureRow,
    pub(crate) doubt: bool,
    pub(crate) parked_ms: u64,
    pub(crate) had_ms: u64,
    /// The place from which its operations have to stay: earlier ones than these are elsewhere.
    pub(crate) until: Option<Order>,
    /// The request that was under way with its operations when they were parked.
    pub(crate) flight: Option<Arc<Flight>>,
}

/// The pieces that a key tries next.
#[derive(Default)]
pub(crate) struct NextPieces {
    pub(crate) picked: Vec<Picked>,
    pub(crate) wording: Option<Arc<(String, String)>>,
    /// The line that the next piece has to wait for, if there is one.
    pub(crate) behind: Option<ParkKey>,
}

// === impl Picked ===

impl Picked {
    fn new(order: Order, piece: &EntryPiece, until: Option<Order>) -> Self {
        Self {
            order,
            at: piece.at,
            ops: piece.ops.clone(),
            is_part: false,
            docs: piece.docs,
            bytes: piece.bytes,
            attempts: piece.attempts,
            refusals: piece.refusals,
            failure_row: piece.failure_row,
            doubt: piece.doubt,
            parked_ms: piece.parked_ms,
            had_ms: piece.had_ms,
            until,
            flight: piece.flight.clone(),
        }
    }

    /// Returns its piece, and its operations unless they are all of the piece.
    pub(crate) fn operations(&self) -> (Order, Option<&[u32]>) {
        (self.order, self.ops.as_deref().filter(|_| self.is_part))
    }

    /// Leaves only these operations of it.
    fn only(&mut self, ops: Vec<u32>) {
        self.docs = ops.len() as u32;
        (self.ops, self.is_part) = (Some(ops), true);
    }

    /// Whether an operation at this place has to stay, because an earlier one is elsewhere.
    pub(crate) fn is_behind_others(&self, place: Order) -> bool {
        self.until.is_some_and(|until| place >= until)
    }
}

// === impl ParkedState ===

impl ParkedState {
    /// Returns the first pieces of a key that may go together: with one wording, and with a bounded number of
    /// documents and bytes, but at least one piece. `passed` says which pieces are passed over.
    pub(crate) fn pick(
        &self,
        key: &ParkKey,
        docs_max: usize,
        bytes_max: u64,
        passed: impl Fn(&Order) -> bool,
    ) -> NextPieces {
        let mut next = NextPieces::default();
        let Some(held) = self.keys.get(key) else {
            return next;
        };
        let (mut docs, mut bytes) = (0, 0);
        let mut waiting = HashSet::new();
        let (mut seen, now) = (HashSet::<u64>::new(), Instant::now());
        for (order, piece) in &held.pieces {
            // A lane's later pieces wait for the commit of the earlier ones.
            if piece.standing != Standing::Ready || waiting.contains(&piece.lane) {
                waiting.insert(piece.lane);
                continue;
            }
            if passed(order) {
                continue;
            }
            // It may have come into the line since the line's turn began.
            if *key != ParkKey::Documents && piece.is_under_way() {
                break;
            }
            let mut free = Free::All;
            if *key == ParkKey::Documents {
                free = self.free_of(order, piece, &mut seen);
                let is_due = held.given_up || piece.next_try.is_none_or(|next| next <= now);
                if matches!(free, Free::Nothing) || !is_due {
                    continue;
                }
            }
            // What is given up is not sent, so that it overtakes nothing.
            let ahead = self.ahead_in_other_lines(key, piece).filter(|_| !held.given_up);
            if let Some((_, other)) = ahead.filter(|(ahead, _)| ahead < order) {
                next.behind = Some(other.clone());
                break;
            }
            let until = ahead.map(|(ahead, _)| ahead);
            let mut picked = Picked::new(*order, piece, until);
            if let Free::Some(ops) = free {
                picked.only(ops);
            }
            let fits = docs + picked.docs as usize <= docs_max && bytes + piece.bytes <= bytes_max;
            let alike = next
                .wording
                .as_ref()
                .is_none_or(|wording| *wording == piece.wording);
            let goes_along = next.picked.is_empty() || fits && alike;
            if !goes_along {
                break;
            }
            next.wording.get_or_insert_with(|| Arc::clone(&piece.wording));
            docs += picked.docs as usize;
            bytes += piece.bytes;
            next.picked.push(picked);
        }
        if key.rank() == 0 {
            self.stop_at_next(key, &mut next.picked);
        }
        next
    }
}
