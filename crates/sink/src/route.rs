//! The servers' choice of a shard, implemented a second time and differently from the gateway's, to check it.

/// The formula from a hash to a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Formula {
    /// OpenSearch, and Elasticsearch before 9.4: by way of `routing_num_shards`.
    Classic {
        /// The index's `routing_num_shards`, a multiple of its shards.
        routing_num_shards: u32,
    },
    /// Indices made by Elasticsearch 9.4 or later: the remainder by the number of shards.
    Modulo,
}

/// Returns the shard of a routing value (or of an id without one) in an index of `shards` shards.
pub fn shard_of(routing: &str, shards: u32, formula: Formula) -> u32 {
    let hash = if routing.is_ascii() {
        murmur3_ascii(routing.as_bytes())
    } else {
        murmur3_utf16(routing)
    };
    let remainder = |divisor: u32| (hash as i32).rem_euclid(divisor as i32) as u32;
    match formula {
        Formula::Classic { routing_num_shards } => {
            remainder(routing_num_shards) / (routing_num_shards / shards)
        }
        Formula::Modulo => remainder(shards),
    }
}

/// Returns `routing_num_shards` of a new index: the shards doubled as often as 1,024 allows, at least once.
pub fn routing_num_shards(shards: u32) -> u32 {
    let doublings = 10_u32.saturating_sub(32 - (shards - 1).leading_zeros()).max(1);
    shards << doublings
}

/// Returns murmur3 (x86, 32 bits, seed 0) of the UTF-16LE form, for text in which every byte is one unit.
fn murmur3_ascii(text: &[u8]) -> u32 {
    let mut hash = 0;
    let mut pairs = text.chunks_exact(2);
    for pair in &mut pairs {
        hash = block(hash, u32::from(pair[0]) | u32::from(pair[1]) << 16);
    }
    let tail = pairs.remainder().first().map(|&unit| u32::from(unit));
    finish(hash, tail, text.len())
}

fn murmur3_utf16(text: &str) -> u32 {
    let units: Vec<u16> = text.encode_utf16().collect();
    let mut hash = 0;
    let mut pairs = units.chunks_exact(2);
    for pair in &mut pairs {
        hash = block(hash, u32::from(pair[0]) | u32::from(pair[1]) << 16);
    }
    let tail = pairs.remainder().first().map(|&unit| u32::from(unit));
    finish(hash, tail, units.len())
}

fn scramble(word: u32) -> u32 {
    word.wrapping_mul(0xcc9e_2d51)
        .rotate_left(15)
        .wrapping_mul(0x1b87_3593)
}

fn block(hash: u32, word: u32) -> u32 {
    (hash ^ scramble(word))
        .rotate_left(13)
        .wrapping_mul(5)
        .wrapping_add(0xe654_6b64)
}

fn finish(mut hash: u32, tail: Option<u32>, units: usize) -> u32 {
    if let Some(tail) = tail {
        hash ^= scramble(tail);
    }
    hash ^= 2 * units as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_servers() {
        // From Murmur3HashFunctionTests of both servers.
        let known = [
            ("hell", 0x5a0c_b7c3),
            ("hello", 0xd7c3_1989),
            ("hello w", 0x22ab_2984),
            ("hello wo", 0xdf0c_a123),
            ("hello wor", 0xe774_4d61),
        ];
        for (text, hash) in known {
            assert_eq!(
                (murmur3_ascii(text.as_bytes()), murmur3_utf16(text)),
                (hash, hash),
                "{text}"
            );
        }
        assert_eq!(
            murmur3_utf16("The quick brown fox jumps over the lazy dog"),
            0xe07d_b09c
        );
        assert_eq!(
            murmur3_utf16("The quick brown fox jumps over the lazy cog"),
            0x4e63_d2ad
        );
    }

    #[test]
    fn routing_shards_are_those_of_new_indices() {
        assert_eq!(
            [1, 3, 6, 16, 300, 1000].map(routing_num_shards),
            [1024, 768, 768, 1024, 600, 2000]
        );
    }

    #[test]
    fn both_formulas_use_every_shard() {
        for formula in [
            Formula::Classic {
                routing_num_shards: 768,
            },
            Formula::Modulo,
        ] {
            let shards: std::collections::BTreeSet<_> =
                (0..100).map(|id| shard_of(&id.to_string(), 3, formula)).collect();
            assert_eq!(shards.len(), 3);
        }
    }
}
