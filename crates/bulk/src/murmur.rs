//! The servers' hash of routing values: `Murmur3HashFunction.hash(String)`, MurmurHash3 x86 32 with seed 0
//! over the UTF-16LE code units of the value.

const C1: u32 = 0xcc9e_2d51;
const C2: u32 = 0x1b87_3593;

/// Returns the hash of `text`, signed as in Java. Does not allocate.
pub fn hash(text: &str) -> i32 {
    if text.is_ascii() {
        hash_ascii(text.as_bytes())
    } else {
        hash_units(text.encode_utf16())
    }
}

/// Returns the hash of a text that is known to be UTF-8.
#[inline]
pub(crate) fn hash_utf8(text: &[u8]) -> i32 {
    #[cfg(target_arch = "x86_64")]
    if text.len() >= wide::CHUNK_BYTES && is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        if let Some(hash) = unsafe { wide::hash_ascii(text) } {
            return hash;
        }
    }
    if text.is_ascii() {
        hash_ascii(text)
    } else {
        hash(&String::from_utf8_lossy(text))
    }
}

/// Returns the hash of a text that is known to be ASCII: each byte is one code unit.
#[inline]
pub(crate) fn hash_ascii(bytes: &[u8]) -> i32 {
    let mut h = 0;
    let (pairs, rest) = bytes.as_chunks::<2>();
    for pair in pairs {
        h = mix(h, u32::from(pair[0]) | u32::from(pair[1]) << 16);
    }
    if let [last] = rest {
        h = mix_tail(h, u32::from(*last));
    }
    finish(h, bytes.len() as u32 * 2)
}

fn hash_units(units: impl Iterator<Item = u16>) -> i32 {
    let (mut h, mut count, mut low) = (0, 0_u32, 0_u32);
    for unit in units {
        if count % 2 == 0 {
            low = u32::from(unit);
        } else {
            h = mix(h, low | u32::from(unit) << 16);
        }
        count += 1;
    }
    if count % 2 == 1 {
        h = mix_tail(h, low);
    }
    finish(h, count * 2)
}

/// Returns the state after one more block of two code units; the first is the low half.
#[inline]
pub(crate) fn mix(h: u32, k: u32) -> u32 {
    absorb(h, scramble(k))
}

/// Like [`mix`], for a block that is scrambled already.
#[inline]
pub(crate) fn absorb(h: u32, scrambled: u32) -> u32 {
    (h ^ scrambled)
        .rotate_left(13)
        .wrapping_mul(5)
        .wrapping_add(0xe654_6b64)
}

/// Scrambles a block before it is mixed into the state.
pub(crate) const fn scramble(k: u32) -> u32 {
    k.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2)
}

#[inline]
fn mix_tail(h: u32, k: u32) -> u32 {
    h ^ scramble(k)
}

/// Returns the hash, from the state after all blocks and the length in bytes of UTF-16.
#[inline]
pub(crate) fn finish(h: u32, length: u32) -> i32 {
    let mut h = h ^ length;
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    (h ^ (h >> 16)) as i32
}

/// The hash of ASCII texts, eight blocks at a time. The state depends on each block in turn, but to scramble
/// the blocks is most of the work, and they are scrambled together.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128, _mm_setzero_si128,
        _mm256_cvtepu8_epi16, _mm256_mullo_epi32, _mm256_or_si256, _mm256_set1_epi32, _mm256_slli_epi32,
        _mm256_srli_epi32, _mm256_storeu_si256,
    };

    use super::{C1, C2, absorb, finish, mix_tail};

    /// The characters that are scrambled together.
    pub(super) const CHUNK_BYTES: usize = 16;
    const BLOCKS: usize = CHUNK_BYTES / 2;

    /// Returns the hash of a text of [`CHUNK_BYTES`] or more; `None` if it is not ASCII.
    #[target_feature(enable = "avx2")]
    pub(super) fn hash_ascii(text: &[u8]) -> Option<i32> {
        let (pairs, odd) = text.split_at(text.len() & !1);
        let (chunks, rest) = pairs.as_chunks::<CHUNK_BYTES>();
        let (mut h, mut all) = (0, _mm_setzero_si128());
        for chunk in chunks {
            let bytes = load(chunk);
            all = _mm_or_si128(all, bytes);
            h = scrambled(bytes).iter().fold(h, |h, block| absorb(h, *block));
        }
        if !rest.is_empty() {
            // The last bytes are scrambled once more together with those before them.
            let bytes = load(pairs.last_chunk()?);
            all = _mm_or_si128(all, bytes);
            let blocks = &scrambled(bytes)[BLOCKS - rest.len() / 2..];
            h = blocks.iter().fold(h, |h, block| absorb(h, *block));
        }
        let mut ascii = _mm_movemask_epi8(all) == 0;
        if let [last] = odd {
            h = mix_tail(h, u32::from(*last));
            ascii &= last.is_ascii();
        }
        ascii.then(|| finish(h, text.len() as u32 * 2))
    }

    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8; CHUNK_BYTES]) -> __m128i {
        // SAFETY: the load needs no alignment, and the bytes are as many as it reads.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    /// Like [`super::scramble`], for the blocks of all pairs of bytes.
    #[target_feature(enable = "avx2")]
    fn scrambled(bytes: __m128i) -> [u32; BLOCKS] {
        let blocks = _mm256_mullo_epi32(_mm256_cvtepu8_epi16(bytes), _mm256_set1_epi32(C1 as i32));
        let turned = _mm256_or_si256(_mm256_slli_epi32::<15>(blocks), _mm256_srli_epi32::<17>(blocks));
        let blocks: __m256i = _mm256_mullo_epi32(turned, _mm256_set1_epi32(C2 as i32));
        let mut out = [0; BLOCKS];
        // SAFETY: the store needs no alignment, and `out` has the size of what is stored.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), blocks) };
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that the servers' own `Murmur3HashFunctionTests` publish.
    #[test]
    fn agrees_with_the_servers_published_values() {
        for (text, expected) in [
            ("hell", 0x5a0c_b7c3_u32),
            ("hello", 0xd7c3_1989),
            ("hello w", 0x22ab_2984),
            ("hello wo", 0xdf0c_a123),
            ("hello wor", 0xe774_4d61),
            ("The quick brown fox jumps over the lazy dog", 0xe07d_b09c),
            ("The quick brown fox jumps over the lazy cog", 0x4e63_d2ad),
        ] {
            assert_eq!(hash(text), expected as i32, "{text}");
        }
    }

    #[test]
    fn ascii_path_equals_the_general_one() {
        for length in 0..70 {
            let text: String = (0..length)
                .map(|i| char::from(b' ' + (i * 7 % 90) as u8))
                .collect();
            let expected = hash_units(text.encode_utf16());
            assert_eq!(hash_ascii(text.as_bytes()), expected);
            assert_eq!(hash_utf8(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_character_beyond_ascii_is_seen_at_every_place() {
        for length in 1..70 {
            for place in 0..length {
                let mut text = "x".repeat(length);
                text.replace_range(place..=place, "é");
                assert_eq!(
                    hash_utf8(text.as_bytes()),
                    hash_units(text.encode_utf16()),
                    "{text}"
                );
            }
        }
    }
}
