//! The lanes of shards and ids.

use crate::murmur;

/// Returns those of `lanes` lanes in which an index with `shards` shards keeps its documents; each once, in
/// no particular order.
pub fn lanes_of(index: &str, shards: u32, lanes: u32) -> impl Iterator<Item = u32> {
    let seed = lane_seed(index);
    (0..shards.min(lanes)).map(move |shard| lane_of(seed, shard, lanes))
}

pub(crate) fn lane_seed(index: &str) -> u32 {
    murmur::hash_utf8(index.as_bytes()) as u32
}

#[inline]
pub(crate) fn lane_of(seed: u32, shard: u32, lanes: u32) -> u32 {
    seed.wrapping_add(shard) % lanes.max(1)
}

/// Returns the lane of an id. Documents that wait in a log were put there by this formula: it must not
/// change.
#[inline]
pub(crate) fn lane_of_id(id: &[u8], lanes: u32) -> u32 {
    murmur::hash_utf8(id) as u32 % lanes.max(1)
}
