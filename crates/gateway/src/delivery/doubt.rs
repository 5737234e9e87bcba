//! What is not known of operations that may have been executed already, and what is remembered to find out
//! ([`super::lookback`] does).

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use cluster::Snapshot;
use serde_json::Value;

use crate::bulk_request::BulkHead;

/// Whether an operation may have been executed, and nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// An earlier run may have sent it.
    pub(super) restart: bool,
    /// And it lies where its lane has sent, so that this is likely.
    pub(super) first: bool,
    /// It was sent, and what became of it is not known.
    pub(super) lost: bool,
    /// Since then it was looked for where it can have gone, and was not there.
    pub(super) looked: bool,
}

/// What is known of a batch's operations that are in doubt.
#[derive(Default)]
pub(crate) struct Past {
    /// The topologies by which some of it was sent.
    pub(super) sent_by: Vec<Arc<Snapshot>>,
    /// What a name stands for, asked of the cluster where nobody else knows.
    pub(super) members: HashMap<String, Vec<String>>,
}

/// Documents that an earlier run may have written to, in an index that its name leads to no more, and that
/// were not found there as they should be: so the write was sent again, or something came after it. Then what
/// comes after must be sent again too, found or not, or the older one of two would be the one that is where
/// the name leads now.
#[derive(Default)]
pub(crate) struct Resent {
    random: RandomState,
    documents: HashSet<u64>,
}

/// What an operation is about.
pub(super) struct Document {
    /// The name that it has for its index.
    pub(super) name: String,
    /// Where it would go now, if today's topology can tell.
    pub(super) index: Option<String>,
    pub(super) id: Option<String>,
    pub(super) routing: Option<String>,
}

// === impl Doubt ===

impl Doubt {
    /// Of an operation that an earlier run may have sent, if so.
    pub(crate) fn since_start(restart: bool, first: bool) -> Self {
        Self {
            restart,
            first: restart && first,
            ..Self::default()
        }
    }

    /// It was sent, or not, and nobody knows what became of it.
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

    /// Whether it is one of them, or nobody remembers.
    pub(super) fn has(&self, document: &Document) -> bool {
        self.documents.len() >= RESENT_MAX || self.documents.contains(&self.of(document))
    }
}

// === impl Document ===

impl Document {
    /// What the action line says by itself.
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

// === impl Past ===

impl Past {
    /// Some operations are about to be sent by this topology.
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

/// Topologies that a batch remembers.
const SENT_BY_MAX: usize = 64;
/// Documents that are remembered; beyond that what is in doubt is sent again whatever is found.
const RESENT_MAX: usize = 100_000;
