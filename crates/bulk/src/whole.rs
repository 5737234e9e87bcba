//! Assertions about a finished plan: its parts together have each operation of the body once. They are on in
//! releases as far as they cost nothing per operation.

use crate::Plan;
use crate::plan::{ARENA, Part, Piece};

// === impl Plan ===

impl Plan {
    /// Asserts that the plan is whole: sending its parts sends each operation of `body` once.
    ///
    /// # Panics
    ///
    /// If it is not. No body can cause that; it would be a bug of the planning.
    pub(crate) fn assert_whole(&self, body: &[u8]) {
        let mut docs = 0;
        for part in &self.parts {
            docs += u64::from(part.docs);
            assert!(part.docs > 0, "a part of a plan has operations");
            assert!(
                self.has(part.pieces.last(), body),
                "the pieces of a part lie in its body"
            );
        }
        assert_eq!(
            docs,
            u64::from(self.docs),
            "the parts of a plan have each operation once"
        );
        let ordered = if self.parts.len() > 1 { self.docs } else { 0 };
        assert_eq!(
            self.order.len(),
            ordered as usize,
            "each operation of a plan with several parts has a part"
        );
        if cfg!(debug_assertions) {
            self.assert_each_piece(body);
        }
    }

    /// Asserts the same for each single operation and piece.
    fn assert_each_piece(&self, body: &[u8]) {
        let mut docs = vec![0; self.parts.len()];
        (0..self.docs).for_each(|doc| docs[self.part_of(doc)] += 1);
        assert!(
            self.parts.iter().map(|part| part.docs).eq(docs),
            "a part has as many operations as the order says"
        );
        let mut copied = 0;
        for part in &self.parts {
            let mut end = 0;
            for piece in part.pieces.iter().filter(|piece| !piece.is_spliced()) {
                assert!(end <= piece.start, "a part has its operations in their order");
                end = piece.end;
                copied += (piece.end - piece.start) as usize;
            }
            assert!(
                part.pieces.iter().all(|piece| self.has(Some(piece), body)),
                "the pieces of a part lie in its body"
            );
        }
        assert!(copied <= body.len(), "no byte of a body is in two parts");
    }

    /// Returns whether there is such a piece, of the body or of the arena.
    fn has(&self, piece: Option<&Piece>, body: &[u8]) -> bool {
        piece.is_some_and(|piece| {
            let end = if piece.is_spliced() {
                self.arena.len()
            } else {
                body.len()
            };
            piece.start & !ARENA < piece.end && piece.end as usize <= end
        })
    }
}

// === impl Piece ===

impl Piece {
    fn is_spliced(&self) -> bool {
        self.start & ARENA != 0
    }
}

/// Asserts that all pieces of these parts, each given with how many of its pieces were moved, are in other
/// parts now.
///
/// # Panics
///
/// If some are not.
pub(crate) fn assert_moved(parts: &[(Part, usize)]) {
    assert!(
        parts.iter().all(|(part, moved)| *moved == part.pieces.len()),
        "operations that are moved to other parts take all of their pieces along"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"{\"delete\":{}}\n{\"delete\":{}}\n{\"delete\":{}}\n";
    const DOC: u32 = BODY.len() as u32 / 3;

    fn part(docs: &[u32]) -> Part {
        let pieces = docs.iter().map(|doc| Piece {
            start: doc * DOC,
            end: (doc + 1) * DOC,
        });
        Part {
            docs: docs.len() as u32,
            bytes: docs.len() as u64 * u64::from(DOC),
            pieces: pieces.collect(),
            ..Part::default()
        }
    }

    /// Returns a plan of three operations, the first and the last for one part, the second for the other.
    fn sound() -> Plan {
        plan(vec![part(&[0, 2]), part(&[1])], vec![0, 1, 0])
    }

    fn plan(parts: Vec<Part>, order: Vec<u16>) -> Plan {
        let mut plan = Plan::default();
        (plan.parts, plan.order, plan.docs) = (parts, order, 3);
        plan
    }

    #[test]
    fn a_whole_plan_is_taken() {
        sound().assert_whole(BODY);
        plan(vec![part(&[0, 1, 2])], Vec::new()).assert_whole(BODY);
    }

    #[test]
    #[should_panic(expected = "the parts of a plan have each operation once")]
    fn no_operation_is_in_no_part() {
        let mut plan = sound();
        plan.parts[0] = part(&[2]);
        plan.assert_whole(BODY);
    }

    #[test]
    #[should_panic(expected = "the parts of a plan have each operation once")]
    fn no_operation_is_in_two_parts() {
        let mut plan = sound();
        plan.parts[1] = part(&[1, 2]);
        plan.assert_whole(BODY);
    }

    #[test]
    #[should_panic(expected = "each operation of a plan with several parts has a part")]
    fn no_operation_is_without_a_place_in_the_reply() {
        let mut plan = sound();
        plan.order.pop();
        plan.assert_whole(BODY);
    }

    #[test]
    #[should_panic(expected = "a part of a plan has operations")]
    fn no_part_is_empty() {
        let mut plan = sound();
        plan.parts.push(part(&[]));
        plan.assert_whole(BODY);
    }

    #[test]
    #[should_panic(expected = "the pieces of a part lie in its body")]
    fn no_piece_lies_outside_the_body() {
        sound().assert_whole(&BODY[..BODY.len() - 1]);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a part has as many operations as the order says")]
    fn the_order_counts_as_the_parts_do() {
        let mut plan = sound();
        plan.order = vec![0, 1, 1];
        plan.assert_whole(BODY);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a part has its operations in their order")]
    fn no_operation_overtakes_another_in_its_part() {
        let mut plan = sound();
        plan.parts[0].pieces.reverse();
        plan.assert_whole(BODY);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "no byte of a body is in two parts")]
    fn no_operation_is_sent_twice() {
        let mut plan = sound();
        plan.parts[1] = part(&[0]);
        plan.parts[1].pieces[0].end = 2 * DOC;
        plan.assert_whole(BODY);
    }

    #[test]
    #[should_panic(expected = "operations that are moved to other parts take all of their pieces along")]
    fn no_piece_stays_behind() {
        assert_moved(&[(part(&[0]), 1), (part(&[1, 2]), 1)]);
    }
}
