//! The lanes of shards and ids, and the parts of lanes.

use crate::{Level, Part, Plan, RouteTable, murmur};

// === impl Plan ===

impl Plan {
    /// Returns the parts by their lanes, those of one lane in the order of their first documents.
    pub fn by_lane(&self) -> Vec<&Part> {
        let mut parts: Vec<_> = self.parts.iter().collect();
        parts.sort_by_key(|part| part.lane);
        parts
    }
}

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

/// Returns how many parts a lane may have, by the nodes of its documents: several where the body is so long
/// that each part is a long stretch. A stretch that is later sent as it stands need not be copied together.
/// Many nodes share parts: the places for parts are reset for each body.
pub(crate) fn bins(level: Level, bytes: usize, table: &RouteTable) -> usize {
    let (Level::Lane(lanes), nodes) = (level, usize::from(table.nodes()).clamp(1, BINS_MAX)) else {
        return 1;
    };
    match bytes / (lanes.max(1) as usize * nodes) >= STRETCH_BYTES_MIN {
        true => nodes.next_power_of_two(),
        false => 1,
    }
}

/// The most parts of a lane.
const BINS_MAX: usize = 8;
/// Bytes of a part, on average, from which on a lane has several.
const STRETCH_BYTES_MIN: usize = 24 << 10;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::{
        Ask, Destination, Dialect, Flavour, Formula, Gather, IdMint, IndexRoute, NodeIx, NullId, Scratch,
        Verdict, Version, explain, plan,
    };

    const NODES: u16 = 3;

    fn table() -> RouteTable {
        let dialect = Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0));
        let mut table = RouteTable::builder(dialect, NODES);
        for name in ["a", "b"] {
            let primaries: Vec<_> = (0..30).map(|shard| Some(NodeIx(shard % NODES))).collect();
            table.index(Arc::new(IndexRoute::new(name, Formula::Modulo, primaries)));
        }
        table.build()
    }

    /// Returns the lines of each lane, and the most parts that one has.
    fn lanes(body: &str, nodes_apart: bool) -> (BTreeMap<u32, String>, usize) {
        let ask = Ask {
            level: Level::Lane(4),
            null_id: NullId::Always,
            nodes_apart,
            ..Ask::default()
        };
        let (mut ids, mut scratch) = (IdMint::new(7), Scratch::default());
        let Verdict::Plan(plan) = plan(body.as_bytes(), &ask, &table(), &mut ids, &mut scratch) else {
            panic!("plain")
        };
        let (mut lines, mut most) = (BTreeMap::<_, String>::new(), 0);
        for parts in plan.by_lane().chunk_by(|part, next| part.lane == next.lane) {
            most = most.max(parts.len());
            for part in parts {
                assert_eq!(part.destination, Destination::Any);
                let (mut gather, mut out) = (Gather::default(), Vec::new());
                while gather.next(&plan, part, body.as_bytes(), &mut out, 1 << 20) > 0 {}
                assert_eq!(out.len() as u64, part.bytes);
                let text = std::str::from_utf8(&out).unwrap();
                lines.entry(part.lane).or_default().push_str(text);
            }
        }
        (lines, most)
    }

    /// The operations of each shard of each index, in their order.
    type ByShard = BTreeMap<(String, Option<u32>), Vec<String>>;

    /// Returns the operations by their shards, and how often one is followed by one of another node.
    fn by_shard(lines: &str) -> (ByShard, usize) {
        let (mut shards, mut turns, mut last) = (ByShard::new(), 0, None);
        for doc in explain(lines.as_bytes(), &Ask::default(), &table()) {
            let doc = doc.unwrap();
            let node = doc.shard.map(|shard| shard % u32::from(NODES));
            turns += usize::from(last.replace(node).is_some_and(|last| last != node));
            let line = lines.lines().nth(doc.line as usize - 1).unwrap().to_owned();
            shards.entry((doc.index, doc.shard)).or_default().push(line);
        }
        (shards, turns)
    }

    #[test]
    fn a_long_body_has_a_lanes_documents_for_a_node_next_to_each_other_and_each_shards_in_their_order() {
        let source = "x".repeat(4 << 10);
        let body: String = (0..200)
            .map(|n| {
                let (index, id) = (["a", "b"][n % 2], n % 70);
                format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\",\"version\":{n},\"version_type\":\"external\"}}}}\n{{\"s\":\"{source}\"}}\n")
            })
            .collect();
        let ((apart, most), (mixed, one)) = (lanes(&body, true), lanes(&body, false));
        assert_eq!((most, one), (usize::from(NODES), 1));
        assert!(apart.keys().eq(mixed.keys()));
        for (lane, lines) in &apart {
            let ((shards, turns), (as_sent, before)) = (by_shard(lines), by_shard(&mixed[lane]));
            assert_eq!(shards, as_sent);
            assert!(turns < usize::from(NODES) && before > 10, "{turns} {before}");
        }
        let short = &body[..body.len() / 4];
        let short = &short[..short.rfind("{\"index\"").unwrap()];
        assert_eq!(
            lanes(short, true),
            lanes(short, false),
            "stretches would be short"
        );
    }
}
