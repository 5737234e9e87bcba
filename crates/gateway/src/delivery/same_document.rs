//! Keeps the order of operations on one document within a try of parked operations.

use std::collections::{HashMap, HashSet};

use crate::queue::parked::{Holder, ParkKey};

/// What one try does with the operations so far, by document.
#[derive(Default)]
pub(super) struct SameDocument {
    /// Documents of which an operation is sent, or stays.
    here: HashSet<u64>,
    /// Documents whose operations go to other lines.
    moved: HashMap<u64, ParkKey>,
}

/// What a try does with an operation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TryStep {
    Send,
    /// It joins the line of this key.
    Move(ParkKey),
    /// It stays for a later try.
    Stay,
}

impl SameDocument {
    /// Records that an operation on a document stays.
    pub(super) fn stay(&mut self, document: u64) {
        self.here.insert(document);
    }

    /// Returns what to do with the next operation on a document, by what it has to wait for. Nothing goes
    /// into another line while an earlier operation on the document is sent or stays: that one may still be
    /// here when the other line is tried.
    pub(super) fn next(&mut self, document: u64, held: Option<&Holder>) -> TryStep {
        if self.here.contains(&document) {
            return TryStep::Stay;
        }
        match (self.moved.get(&document), held) {
            (None, Some(Holder::Key(to))) => {
                self.moved.insert(document, to.clone());
                TryStep::Move(to.clone())
            }
            (Some(before), Some(Holder::Key(to))) if before == to => TryStep::Move(to.clone()),
            (None, None) => {
                self.here.insert(document);
                TryStep::Send
            }
            _ => {
                self.here.insert(document);
                TryStep::Stay
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(lane: u32) -> ParkKey {
        ParkKey::Shards {
            index: "logs".to_owned(),
            lane,
            shard: None,
        }
    }

    fn steps(held: &[Option<Holder>]) -> Vec<TryStep> {
        let mut same = SameDocument::default();
        held.iter().map(|held| same.next(7, held.as_ref())).collect()
    }

    #[test]
    fn what_follows_an_operation_that_is_sent_waits_for_its_fate_whatever_line_it_is_to_join() {
        // The first was accepted before the index was made again with other shards, so it is of another lane.
        // It goes to the same shard as the second, which may be why there is a line for that one's lane.
        let to = Some(Holder::Key(shards(5)));
        assert_eq!(
            steps(&[None, to, None]),
            [TryStep::Send, TryStep::Stay, TryStep::Stay]
        );
    }

    #[test]
    fn operations_on_a_document_move_together_or_the_later_ones_stay() {
        let (to, other) = (Holder::Key(shards(5)), Holder::Key(shards(3)));
        let waits = Holder::OtherLane(shards(3));
        let moved = || TryStep::Move(shards(5));
        let held = [Some(to.clone()), Some(to.clone()), Some(other), Some(to.clone())];
        assert_eq!(steps(&held), [moved(), moved(), TryStep::Stay, TryStep::Stay]);
        assert_eq!(
            steps(&[Some(to.clone()), None, Some(to.clone())]),
            [moved(), TryStep::Stay, TryStep::Stay]
        );
        assert_eq!(steps(&[Some(waits), Some(to)]), [TryStep::Stay, TryStep::Stay]);
    }

    #[test]
    fn other_documents_go_their_own_way() {
        let mut same = SameDocument::default();
        let to = Holder::Key(shards(5));
        assert_eq!(same.next(1, None), TryStep::Send);
        assert_eq!(same.next(2, Some(&to)), TryStep::Move(shards(5)));
        assert_eq!(same.next(3, None), TryStep::Send);
    }
}
