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
            assert_eq!(hash_ascii(text.as_bytes()), hash_units(text.encode_utf16()));
        }
    }
}
