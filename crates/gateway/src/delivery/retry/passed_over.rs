//! The first operations of a key's line, if all of them wait for another key, or for a node that keeps what
//! it is sent: others behind them need not wait with them, unless they are on the same documents.

use std::collections::HashSet;
use std::sync::Arc;

use cluster::Snapshot;

use crate::delivery::work::Work;
use crate::queue::parked::{OperationNames, Order, Picked};

/// The pieces of a key that were passed over since its turn began.
#[derive(Default)]
pub(super) struct PassedOver {
    /// The topology by which the documents have their names.
    snapshot: Option<Arc<Snapshot>>,
    pieces: HashSet<Order>,
    /// The only pieces that are looked at, if not all are; nothing of them is sent.
    only: Option<HashSet<Order>>,
    documents: HashSet<u64>,
    times: usize,
    /// Why the last of them wait.
    behind: Option<String>,
}

impl PassedOver {
    /// Forgets what was passed over by another topology: documents may have other names now.
    pub(super) fn follow(&mut self, snapshot: &Arc<Snapshot>) {
        let is_same = self
            .snapshot
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, snapshot));
        if !is_same {
            self.snapshot = Some(Arc::clone(snapshot));
            self.pieces.clear();
            self.documents.clear();
        }
    }

    /// Passes over all pieces but these, of which nothing is sent.
    pub(super) fn all_but(pieces: HashSet<Order>) -> Self {
        Self {
            only: Some(pieces),
            ..Self::default()
        }
    }

    pub(super) fn sends_nothing(&self) -> bool {
        self.only.is_some()
    }

    pub(super) fn has(&self, piece: &Order) -> bool {
        let is_out = self.only.as_ref().is_some_and(|only| !only.contains(piece));
        is_out || self.pieces.contains(piece)
    }

    /// Whether an operation has to stay because an earlier one on its document does.
    pub(super) fn holds(&self, named: &OperationNames) -> bool {
        let of_document = named.document.iter().filter(|document| **document != 0);
        of_document
            .into_iter()
            .any(|document| self.documents.contains(document))
    }

    /// Passes over pieces that wait for this reason; returns `false` if those behind them have to wait, too.
    pub(super) fn pass<'p>(
        &mut self,
        pieces: impl Iterator<Item = &'p Picked>,
        work: &Work<'_>,
        snapshot: &Snapshot,
        behind: &str,
    ) -> bool {
        self.times += 1;
        if self.times > TIMES_MAX || self.documents.len() + 2 * work.operations.len() > DOCUMENTS_MAX {
            return false;
        }
        self.pieces.extend(pieces.map(|piece| piece.order));
        for operation in 0..work.operations.len() {
            self.documents.extend(work.named(operation, snapshot).document);
        }
        self.behind = Some(behind.to_owned());
        true
    }

    /// Returns why what was passed over waits, if anything was.
    pub(super) fn behind(&self) -> Option<&str> {
        self.behind.as_deref()
    }
}

/// How often a key passes pieces over in one turn, and the most numbers of documents that it remembers.
const TIMES_MAX: usize = 32;
const DOCUMENTS_MAX: usize = 200_000;
