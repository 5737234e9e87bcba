//! Keeps the order of operations on one document within a try of parked operations.

use std::collections::{HashMap, HashSet};

use crate::queue::parked::{Holder, Key};

/// What one try does with the operations so far, by document.
#[derive(Default)]
pub(super) struct SameDocument {
    /// Documents of which an operation is sent, or stays.
    here: HashSet<u64>,
    /// Documents whose operations go to other lines.
    moved: HashMap<u64, Key>,
}

/// What a try does with an operation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Send,
    /// It joins the line of this key.
    Move(Key),
    /// It stays for a later try.
    Stay,
}

impl SameDocument {
    /// Returns what to do with the next operation on a document, by what it has to wait for. Nothing goes
    /// into another line while an earlier operation on the document is sent or stays: that one may still be
    /// here when the other line is tried.
    pub(super) fn next(&mut self, document: u64, held: Option<&Holder>) -> Step {
        if self.here.contains(&document) {
            return Step::Stay;
        }
        match (self.moved.get(&document), held) {
            (None, Some(Holder::Key(to))) => {
                self.moved.insert(document, to.clone());
                Step::Move(to.clone())
            }
            (Some(before), Some(Holder::Key(to))) if before == to => Step::Move(to.clone()),
            (None, None) => {
                self.here.insert(document);
                Step::Send
            }
            _ => {
                self.here.insert(document);
                Step::Stay
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(lane: u32) -> Key {
        Key::Shards {
            index: "logs".to_owned(),
            lane,
            shard: None,
        }
    }

    fn steps(held: &[Option<Holder>]) -> Vec<Step> {
        let mut same = SameDocument::default();
        held.iter().map(|held| same.next(7, held.as_ref())).collect()
    }

    #[test]
    fn what_follows_an_operation_that_is_sent_waits_for_its_fate_whatever_line_it_is_to_join() {
        // The first was accepted before the index was made again with other shards, so it is of another lane.
        // It goes to the same shard as the second, which may be why there is a line for that one's lane.
        let to = Some(Holder::Key(shards(5)));
        assert_eq!(steps(&[None, to, None]), [Step::Send, Step::Stay, Step::Stay]);
    }

    #[test]
    fn operations_on_a_document_move_together_or_the_later_ones_stay() {
        let (to, other) = (Holder::Key(shards(5)), Holder::Key(shards(3)));
        let waits = Holder::OtherLane(shards(3));
        let moved = || Step::Move(shards(5));
        let held = [Some(to.clone()), Some(to.clone()), Some(other), Some(to.clone())];
        assert_eq!(steps(&held), [moved(), moved(), Step::Stay, Step::Stay]);
        assert_eq!(
            steps(&[Some(to.clone()), None, Some(to.clone())]),
            [moved(), Step::Stay, Step::Stay]
        );
        assert_eq!(steps(&[Some(waits), Some(to)]), [Step::Stay, Step::Stay]);
    }

    #[test]
    fn other_documents_go_their_own_way() {
        let mut same = SameDocument::default();
        let to = Holder::Key(shards(5));
        assert_eq!(same.next(1, None), Step::Send);
        assert_eq!(same.next(2, Some(&to)), Step::Move(shards(5)));
        assert_eq!(same.next(3, None), Step::Send);
    }
}
