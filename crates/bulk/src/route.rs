//! The way from an id or a routing value to a shard and its node, as one index computes it.

use crate::Why;
use crate::murmur;

/// A node's position in the cluster crate's list of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeIx(pub u16);

/// How an index turns a hash into a shard number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Formula {
    /// `floorMod(hash, routing_num_shards) / (routing_num_shards / shards)`: OpenSearch, and indices that
    /// Elasticsearch before 9.4 made (`OperationRouting.calculateScaledShardId`,
    /// `IndexRouting.hashToShardId`).
    Classic {
        /// `routing_num_shards` of the index metadata, a multiple of the number of shards.
        routing_num_shards: u32,
    },
    /// `floorMod(hash, shards)`: indices with `index.version.created` of 9064000 or more.
    Modulo,
}

/// Everything that decides where documents of one concrete index go. Immutable.
#[derive(Clone, Debug)]
pub struct IndexRoute {
    /// The concrete index's name.
    pub name: Box<str>,
    /// The node of each shard's primary; `None` while the primary is unassigned.
    pub primaries: Box<[Option<NodeIx>]>,
    /// The formula from hash to shard.
    pub formula: Formula,
    /// `index.routing_partition_size`; 1 for ordinary indices.
    pub partition_size: u32,
    /// The mapping's `_routing.required`: an operation without routing gets an item error from any node.
    pub routing_required: bool,
    /// Whether documents of this index go through an ingest pipeline of the index, unless an operation names
    /// another.
    pub ingests: bool,
    /// Whether a pipeline of the index writes the sender of a request into documents: such documents are not
    /// queued.
    pub tells_caller: bool,
    /// The reason why documents of this index cannot be predicted, if they cannot: requests that touch it
    /// pass whole.
    pub opaque: Option<Why>,
    /// Whether everything that decides about shard numbers is known, so that lanes can be determined, even if
    /// the index is not ready and therefore opaque.
    pub numbered: bool,
}

// === impl IndexRoute ===

impl IndexRoute {
    /// Makes an ordinary index: partition size 1, no required routing, no pipeline, predictable.
    pub fn new(name: &str, formula: Formula, primaries: impl Into<Box<[Option<NodeIx>]>>) -> Self {
        Self {
            name: name.into(),
            primaries: primaries.into(),
            formula,
            partition_size: 1,
            routing_required: false,
            ingests: false,
            tells_caller: false,
            opaque: None,
            numbered: true,
        }
    }

    /// Returns the number of primary shards.
    pub fn shards(&self) -> u32 {
        self.primaries.len() as u32
    }

    /// Returns the shard of a document with this id and routing.
    ///
    /// Without routing an index with `partition_size` above 1 answers with an item error; the shard returned
    /// is then just a consistent choice.
    pub fn shard(&self, id: &str, routing: Option<&str>) -> u32 {
        self.shard_of(id.as_bytes(), routing.map(str::as_bytes))
    }

    /// Like [`Self::shard`], for texts that are known to be UTF-8.
    #[inline]
    pub(crate) fn shard_of(&self, id: &[u8], routing: Option<&[u8]>) -> u32 {
        match routing {
            Some(routing) if self.partition_size > 1 => {
                let offset = murmur::hash_utf8(id).rem_euclid(self.partition_size as i32);
                self.shard_of_hash(murmur::hash_utf8(routing).wrapping_add(offset))
            }
            Some(routing) => self.shard_of_hash(murmur::hash_utf8(routing)),
            None => self.shard_of_hash(murmur::hash_utf8(id)),
        }
    }

    /// Returns the shard of an effective hash.
    #[inline]
    pub fn shard_of_hash(&self, hash: i32) -> u32 {
        match self.formula {
            Formula::Classic { routing_num_shards } => {
                let slot = hash.rem_euclid(routing_num_shards as i32) as u32;
                slot / (routing_num_shards / self.shards())
            }
            Formula::Modulo => hash.rem_euclid(self.shards() as i32) as u32,
        }
    }

    /// Returns the node that holds a shard's primary; `None` while it is unassigned, and for a shard that
    /// does not exist.
    pub fn node(&self, shard: u32) -> Option<NodeIx> {
        self.primaries.get(shard as usize).copied().flatten()
    }

    /// Returns why documents of this index cannot be predicted, if they cannot: as set, or because its
    /// metadata make no sense.
    pub(crate) fn why_opaque(&self) -> Option<Why> {
        let shards = self.shards();
        let sound = shards > 0
            && shards <= SHARDS_MAX
            && (1..=SHARDS_MAX).contains(&self.partition_size)
            && match self.formula {
                Formula::Classic { routing_num_shards } => {
                    routing_num_shards <= i32::MAX as u32
                        && routing_num_shards >= shards
                        && routing_num_shards % shards == 0
                }
                Formula::Modulo => true,
            };
        self.opaque
            .or(if sound { None } else { Some(Why::UnknownFormula) })
    }
}

/// Servers allow 1,024 shards an index unless configured otherwise; this leaves room and bounds our tables.
const SHARDS_MAX: u32 = 1 << 16;
