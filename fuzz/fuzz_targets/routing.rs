//! Any id, routing and index: a shard that exists, the same one each time, and the one that the plain rule
//! gives.
#![no_main]

use bulk::{Formula, IndexRoute, NodeIx};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (String, Option<String>, u8, u8, u8)| {
    let (id, routing, shards, factor, partition) = input;
    let shards = u32::from(shards) + 1;
    let slots = shards * (u32::from(factor) + 1);
    for formula in [Formula::Modulo, Formula::Classic { routing_num_shards: slots }] {
        let mut route = IndexRoute::new("a", formula, vec![Some(NodeIx(0)); shards as usize]);
        route.partition_size = u32::from(partition) + 1;
        let shard = route.shard(&id, routing.as_deref());
        assert!(shard < shards);
        let mut hash = i64::from(murmur3(routing.as_deref().unwrap_or(&id)));
        if partition > 0 && routing.is_some() {
            hash += i64::from(murmur3(&id)).rem_euclid(i64::from(partition) + 1);
        }
        let hash = hash as i32;
        let expected = match formula {
            Formula::Modulo => hash.rem_euclid(shards as i32),
            Formula::Classic { .. } => hash.rem_euclid(slots as i32) / (slots / shards) as i32,
        };
        assert_eq!(shard, expected as u32);
    }
});

/// MurmurHash3 x86 32, seed 0, over UTF-16LE, by the book.
fn murmur3(text: &str) -> i32 {
    let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mix = |k: u32| k.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (mut h, mut tail) = (0_u32, 0_u32);
    let blocks = bytes.chunks_exact(4);
    for (place, byte) in blocks.remainder().iter().enumerate() {
        tail |= u32::from(*byte) << (8 * place);
    }
    for block in blocks {
        h ^= mix(u32::from_le_bytes(block.try_into().expect("four bytes")));
        h = h.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    h ^= mix(tail) ^ bytes.len() as u32;
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    (h ^ (h >> 16)) as i32
}
