//! The keys of parked operations: the index, the request or the document that their failure concerns.

use bulk::Target;
use serde::{Deserialize, Serialize};

/// The condition that has to be put right before operations go on. Operations with the same key wait in one
/// line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum ParkKey {
    /// Everything for an index: it is blocked, closed or missing, or the gateway's account may not write to
    /// it.
    Index { index: String },
    /// One lane's operations for an index of which some shards take nothing; those of one shard alone, if the
    /// lane has documents of all shards.
    Shards {
        index: String,
        lane: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shard: Option<ShardOf>,
    },
    /// Operations sent to an index with these parameters, which ask for more than the index has, or which a
    /// node refuses.
    Request { index: String, target: String },
    /// Documents that failed by themselves: each waits alone.
    Documents,
    /// Operations that are refused for good and wait for room among the dead letters; nothing waits behind
    /// them. The index is [`SEVERAL`] where there are too many to tell apart.
    Letters { index: String },
}

/// A shard of an index, and the rule by which documents come to be in it. Earlier versions do not know it,
/// and hold back all of the lane's operations for the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct ShardOf {
    number: u32,
    /// A number of the rule. By another rule, a document may be in any shard.
    rule: u64,
}

/// The extent of an operation's failure, according to the node's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Its index.
    Index,
    /// The shard that it goes to, or the copies of it that the request wants.
    Shard,
    /// The requests for its index that have the same parameters.
    Request,
    /// The document alone.
    Document,
}

/// The names of an operation, which tell whether it must wait behind parked operations.
#[derive(Clone, Debug)]
pub(crate) struct OperationNames {
    /// The index as its action or its URL names it.
    pub(crate) written: String,
    /// The index that the written name stands for now, if that is known.
    pub(crate) concrete: Option<String>,
    /// The numbers of the document by its written name and by its concrete one. The numbers are the same if
    /// there is one name, and for operations without an id, which concern no document that is there.
    pub(crate) document: [u64; 2],
    /// The number of the id, or 0.
    pub(crate) id: u64,
}

// === impl ParkKey ===

impl ParkKey {
    /// Returns the rank of the key. An operation that several keys hold waits for the key of the lowest rank
    /// first. An operation that leaves that line is checked against the ranks behind it, so no operation
    /// passes an earlier one on the same document.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            ParkKey::Index { .. } => 0,
            ParkKey::Shards { .. } => 1,
            ParkKey::Request { .. } => 2,
            ParkKey::Documents => 3,
            ParkKey::Letters { .. } => 4,
        }
    }

    /// Whether the key's operations hold back later ones by document, and not only by name.
    pub(crate) fn holds_documents(&self) -> bool {
        matches!(self, ParkKey::Request { .. } | ParkKey::Documents)
    }

    /// Whether the key holds an operation for one of its indices; `shard` returns where the operation goes
    /// now, if that can be told.
    pub(crate) fn holds(&self, lane: u32, target: &str, shard: &dyn Fn() -> Option<ShardOf>) -> bool {
        match self {
            ParkKey::Index { .. } => true,
            ParkKey::Shards {
                lane: held,
                shard: of,
                ..
            } => *held == lane && of.is_none_or(|of| !shard().is_some_and(|own| own.is_beside(of))),
            ParkKey::Request { target: held, .. } => held == target,
            ParkKey::Documents | ParkKey::Letters { .. } => false,
        }
    }

    /// Whether the key's operations hold back later ones for their index.
    pub(crate) fn holds_names(&self) -> bool {
        !matches!(self, ParkKey::Documents | ParkKey::Letters { .. })
    }

    /// Whether the key's operations are refused already.
    pub(crate) fn is_letters(&self) -> bool {
        matches!(self, ParkKey::Letters { .. })
    }

    /// Returns the key as people are shown it.
    pub(crate) fn shown(&self) -> String {
        match self {
            ParkKey::Index { index } => format!("index:{index}"),
            ParkKey::Shards { index, lane, shard } => {
                let shard = shard.map_or_else(String::new, |shard| format!(":{}", shard.number));
                format!("shards:{index}:{lane}{shard}")
            }
            ParkKey::Request { index, target } => format!("request:{index}:{target}"),
            ParkKey::Documents => "documents".to_owned(),
            ParkKey::Letters { index } => format!("letters:{index}"),
        }
    }
}

// === impl ShardOf ===

impl ShardOf {
    /// Makes the shard of this number of the index that a name leads to.
    pub(crate) fn new(number: u32, target: &Target) -> Option<Self> {
        let write = target.write().ok()?;
        let index_routing = match target {
            Target::Alias { index_routing, .. } => index_routing.as_deref(),
            _ => None,
        };
        let (formula, shards, of_routing) = (write.formula, write.shards(), write.partition_size);
        let rule = format!("{formula:?} {shards} {of_routing} {index_routing:?}");
        Some(Self {
            number,
            rule: fnv(rule.bytes()),
        })
    }

    /// Whether both shards are found by one rule.
    pub(crate) fn is_by_rule_of(self, other: Self) -> bool {
        self.rule == other.rule
    }

    /// Whether no document is in both: they are different ones, found by one rule.
    fn is_beside(self, other: Self) -> bool {
        self.is_by_rule_of(other) && self.number != other.number
    }
}

// === impl OperationNames ===

impl OperationNames {
    pub(crate) fn new(written: String, concrete: Option<String>, id: Option<&str>) -> Self {
        let document = match id {
            // No other operation can mean the document that this one will make.
            None => [0; 2],
            Some(id) => {
                let by = |name: &str| document(name, id);
                [by(&written), by(concrete.as_deref().unwrap_or(&written))]
            }
        };
        Self {
            written,
            concrete,
            document,
            id: id.map_or(0, |id| fnv(id.bytes()).max(1)),
        }
    }

    /// Returns the name of the operation's index: the concrete one where it is known.
    pub(crate) fn index(&self) -> &str {
        self.concrete.as_deref().unwrap_or(&self.written)
    }

    /// Returns the number of the document by the index that its name leads to now ([`in_index`]), or 0.
    pub(crate) fn place(&self) -> u64 {
        in_index(name_number(self.index()), self.id)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let concrete = self.concrete.as_deref().filter(|name| *name != self.written);
        std::iter::once(&*self.written).chain(concrete)
    }
}

/// Says that an operation waits for its index until operations that another lane has parked are done.
pub(crate) fn behind_other_lane(key: &ParkKey) -> String {
    let shown = key.shown();
    match key {
        ParkKey::Shards { .. } => {
            format!("earlier writes, from when the index had other shards, wait for {shown}")
        }
        _ => format!("earlier writes to the same documents wait for {shown}, which has no room for more"),
    }
}

/// Says that an operation waits for its turn until operations in the line of another index are done.
pub(crate) fn behind_other_line(key: &ParkKey) -> String {
    let key = key.shown();
    format!("earlier writes, which may go to the same index, wait for {key}")
}

/// The name that stands for several indices.
pub(crate) const SEVERAL: &str = "*";

/// Returns the number of a document. Two documents that share a number by chance wait for each other; nothing
/// else comes of it.
fn document(index: &str, id: &str) -> u64 {
    fnv(index.bytes().chain(std::iter::once(0)).chain(id.bytes()))
}

/// Returns the number of the name of an index.
pub(super) fn name_number(index: &str) -> u64 {
    fnv(index.bytes())
}

/// Returns the number of a document by the numbers of its index and of its id; 0 without an id. Unlike
/// [`document`], it can be made anew when a name leads to another index and only the number of the id is
/// known.
pub(super) fn in_index(index: u64, id: u64) -> u64 {
    match id {
        0 => 0,
        id => fnv(index.to_le_bytes().into_iter().chain(id.to_le_bytes())),
    }
}

/// Returns a hash by FNV-1a, since these numbers stand in files that later versions read.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
