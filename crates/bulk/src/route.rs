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

/// A [`Formula`] whose divisions are multiplications by inverses (Lemire, Kaser, Kurz: "Faster remainder by
/// direct computation", 2019): a document waits for its shard before anything else is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardFinder {
    /// The number of values of the hash's remainder.
    slots: u32,
    /// 2^64 by `slots`, rounded up; 0 for a single slot.
    slots_inverse: u64,
    /// What the slot of the least hash, made a number without sign, is away from that of hash 0.
    zero_at: u32,
    /// 2^63 by the number of slots of a shard, rounded up.
    width_inverse: u64,
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

    /// Returns the formula with its divisions prepared.
    pub(crate) fn shard_finder(&self) -> ShardFinder {
        let shards = self.shards().max(1);
        match self.formula {
            Formula::Classic { routing_num_shards } => {
                ShardFinder::new(routing_num_shards, routing_num_shards / shards)
            }
            Formula::Modulo => ShardFinder::new(shards, 1),
        }
    }

    /// Returns the node that holds a shard's primary; `None` while it is unassigned, and for a shard that
    /// does not exist.
    pub fn node(&self, shard: u32) -> Option<NodeIx> {
        self.primaries.get(shard as usize).copied().flatten()
    }

    /// Returns why documents of this index cannot be predicted, if they cannot: as set, or because its
    /// metadata make no sense.
    pub fn why_opaque(&self) -> Option<Why> {
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

// === impl ShardFinder ===

impl ShardFinder {
    /// Prepares `floorMod(hash, slots) / width`; both are sound numbers ([`IndexRoute::why_opaque`]), or what
    /// is found means nothing.
    fn new(slots: u32, width: u32) -> Self {
        let (slots, width) = (slots.clamp(1, i32::MAX as u32), width.clamp(1, i32::MAX as u32));
        Self {
            slots,
            slots_inverse: (u64::MAX / u64::from(slots)).wrapping_add(1),
            zero_at: (slots - SIGN % slots) % slots,
            width_inverse: (1_u64 << 63).div_ceil(u64::from(width)),
        }
    }

    /// Like [`IndexRoute::shard_of_hash`].
    #[inline(always)]
    pub(crate) fn shard_of_hash(&self, hash: i32) -> u32 {
        let fraction = self.slots_inverse.wrapping_mul(u64::from(hash as u32 ^ SIGN));
        let above = ((u128::from(fraction) * u128::from(self.slots)) >> 64) as u32 + self.zero_at;
        let slot = above.min(above.wrapping_sub(self.slots));
        ((u128::from(slot) * u128::from(self.width_inverse)) >> 63) as u32
    }
}

/// What is added to a hash to make it a number without sign.
const SIGN: u32 = 1 << 31;

/// Servers allow 1,024 shards an index unless configured otherwise; this leaves room and bounds our tables.
const SHARDS_MAX: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepared_divisions_find_the_shards_that_the_formulas_give() {
        let mut hashes: Vec<i32> = (0..2_000)
            .map(|number: u32| number.wrapping_mul(0x9e37_79b1) as i32)
            .collect();
        for near in [i32::MIN, -1 << 30, -1024, -768, 0, 768, 1024, 1 << 30, i32::MAX] {
            hashes.extend((-3..=3).map(|offset| near.wrapping_add(offset)));
        }
        let shards_of = |shards: u32| vec![Some(NodeIx(0)); shards as usize];
        for shards in [1, 2, 3, 5, 6, 7, 30, 300, 1_000, 1_023, 1_024, 65_535, 65_536] {
            let classic =
                [1, 2, 3, 7, 16, 128, 1_000, i32::MAX as u32 / shards].map(|width| Formula::Classic {
                    routing_num_shards: shards * width,
                });
            for formula in classic.into_iter().chain([Formula::Modulo]) {
                let route = IndexRoute::new("logs", formula, shards_of(shards));
                let finder = route.shard_finder();
                for hash in &hashes {
                    assert_eq!(
                        finder.shard_of_hash(*hash),
                        route.shard_of_hash(*hash),
                        "{formula:?}, {shards} shards, {hash}"
                    );
                }
            }
        }
    }
}
