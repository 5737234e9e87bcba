//! Doubt about operations that may have been executed already, and the facts that [`super::lookup`] needs
//! to resolve it.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use cluster::Snapshot;
use serde_json::Value;

use crate::bulk_request::BulkHead;

/// Whether an operation may have been executed without the gateway knowing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// An earlier run may have sent the operation.
    pub(super) restart: bool,
    /// The operation also lies where its lane was sending, so this is likely.
    pub(super) first: bool,
    /// The operation was sent, and its fate is not known.
    pub(super) lost: bool,
    /// Since then the operation was looked for wherever it can have gone, and was not there.
    pub(super) looked: bool,
}

/// Facts about a batch's operations that are in doubt.
#[derive(Default)]
pub(crate) struct DoubtfulWrites {
    /// The topologies by which some of the operations were sent.
    pub(super) sent_by: Vec<Arc<Snapshot>>,
    /// The indices that a name stands for, asked of the cluster where nothing else tells.
    pub(super) members: HashMap<String, Vec<String>>,
}

/// Documents that an earlier run may have written to in an index that their names no longer lead to, and that
/// were not found there as they should be: so the write was sent again, or something came after it. Then
/// later operations on the document must be sent again too, found or not: otherwise the older of two
/// operations would be the one in the index that the name leads to now.
#[derive(Default)]
pub(crate) struct Resent {
    random: RandomState,
    documents: HashSet<u64>,
}

/// The document that an operation is about.
pub(super) struct Document {
    /// The name that the operation has for its index.
    pub(super) name: String,
    /// The index where the operation would go now, if today's topology can tell.
    pub(super) index: Option<String>,
    pub(super) id: Option<String>,
    pub(super) routing: Option<String>,
}

// === impl Doubt ===

impl Doubt {
    /// Returns the doubt about an operation that an earlier run may have sent, if `restart` says so.
    pub(crate) fn since_start(restart: bool, first: bool) -> Self {
        Self {
            restart,
            first: restart && first,
            ..Self::default()
        }
    }

    /// Records that the operation's fate is not known.
    pub(crate) fn add(&mut self) {
        self.lost = true;
        self.looked = false;
    }

    pub(crate) fn is_any(self) -> bool {
        self.restart || self.lost
    }

    /// Whether the operation is likely to have been executed. Its name may come to lead elsewhere before the
    /// gateway knows, so the operation is not even sent to the same name again without a look.
    pub(super) fn is_uncertain(self) -> bool {
        self.lost || self.first
    }
}

// === impl Resent ===

impl Resent {
    fn of(&self, document: &Document) -> u64 {
        self.random
            .hash_one((&document.name, &document.id, &document.routing))
    }

    pub(super) fn insert(&mut self, document: &Document) {
        if self.documents.len() < RESENT_MAX {
            self.documents.insert(self.of(document));
        }
    }

    /// Whether the document is one of them, or may be one that is no longer remembered.
    pub(super) fn has(&self, document: &Document) -> bool {
        self.documents.len() >= RESENT_MAX || self.documents.contains(&self.of(document))
    }
}

// === impl Document ===

impl Document {
    /// Reads the document that the action line names by itself.
    pub(super) fn read(lines: &[u8], head: &BulkHead<'_>) -> Option<Self> {
        let line = lines.split(|byte| *byte == b'\n').next()?;
        let line: Value = serde_json::from_slice(line).ok()?;
        let meta = line.as_object()?.values().next()?;
        let text = |keys: [&str; 2]| {
            let value = keys
                .iter()
                .map(|key| &meta[*key])
                .find(|value| !value.is_null())?;
            Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        };
        Some(Self {
            name: text(["_index", "_index"]).or_else(|| head.index.as_deref().map(str::to_owned))?,
            index: None,
            id: text(["_id", "_id"]),
            routing: text(["routing", "_routing"]).or_else(|| head.routing.as_deref().map(str::to_owned)),
        })
    }
}

// === impl DoubtfulWrites ===

impl DoubtfulWrites {
    /// Records that some operations are about to be sent by this topology.
    pub(crate) fn send_by(&mut self, snapshot: &Arc<Snapshot>) {
        let known = self
            .sent_by
            .iter()
            .any(|known| Arc::ptr_eq(&known.table, &snapshot.table));
        if !known {
            self.sent_by.push(Arc::clone(snapshot));
            if self.sent_by.len() > SENT_BY_MAX {
                self.sent_by.remove(0);
            }
        }
    }
}

/// The most topologies that a batch remembers.
const SENT_BY_MAX: usize = 64;
/// The most documents that are remembered; beyond that, operations in doubt are sent again in any case.
const RESENT_MAX: usize = 100_000;
