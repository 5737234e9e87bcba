//! A part's bytes, copied out of the body chunk by chunk as they are sent.

use crate::plan::{ARENA, Part, Plan};

/// How far a part has been copied. Start with `Gather::default()` for each attempt to send the part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gather {
    piece: usize,
    offset: u32,
}

// === impl Gather ===

impl Gather {
    /// Appends the part's next bytes to `out`, at most `max` of them, and returns how many; 0 at the end.
    ///
    /// `body` is the body that `plan` was made of.
    pub fn next(&mut self, plan: &Plan, part: &Part, body: &[u8], out: &mut Vec<u8>, max: usize) -> usize {
        let mut room = max;
        while let Some(piece) = part.pieces.get(self.piece) {
            let start = (piece.start & !ARENA) + self.offset;
            let length = (piece.end - start) as usize;
            let from = if piece.start & ARENA == 0 {
                body
            } else {
                &plan.arena
            };
            if length > room {
                out.extend_from_slice(&from[start as usize..start as usize + room]);
                self.offset += room as u32;
                return max;
            }
            out.extend_from_slice(&from[start as usize..piece.end as usize]);
            room -= length;
            self.piece += 1;
            self.offset = 0;
        }
        max - room
    }
}
