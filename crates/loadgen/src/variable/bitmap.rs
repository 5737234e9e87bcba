//! Sets of numbers as portable Roaring bitmaps in base 64, for fields and queries that take them.
//! (Source: the Roaring bitmap format specification, for bitmaps without runs.)

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Appends a set of numbers as a bitmap. Sorts the numbers.
pub(crate) fn put_bitmap(numbers: &mut Vec<u32>, out: &mut Vec<u8>) {
    numbers.sort_unstable();
    numbers.dedup();
    let chunks: Vec<&[u32]> = numbers.chunk_by(|one, two| one >> 16 == two >> 16).collect();
    let mut bytes = Vec::with_capacity(8 + chunks.len() * 8 + numbers.len() * 2);
    bytes.extend_from_slice(&COOKIE.to_le_bytes());
    bytes.extend_from_slice(&(chunks.len() as u32).to_le_bytes());
    for chunk in &chunks {
        bytes.extend_from_slice(&((chunk[0] >> 16) as u16).to_le_bytes());
        bytes.extend_from_slice(&((chunk.len() - 1) as u16).to_le_bytes());
    }
    let mut offset = (bytes.len() + 4 * chunks.len()) as u32;
    for chunk in &chunks {
        bytes.extend_from_slice(&offset.to_le_bytes());
        offset += if chunk.len() > ARRAY_MAX {
            BITS_BYTES as u32
        } else {
            2 * chunk.len() as u32
        };
    }
    for chunk in chunks {
        if chunk.len() > ARRAY_MAX {
            let start = bytes.len();
            bytes.resize(start + BITS_BYTES, 0);
            for number in chunk {
                let low = (number & 0xffff) as usize;
                bytes[start + low / 8] |= 1 << (low % 8);
            }
        } else {
            for number in chunk {
                bytes.extend_from_slice(&(*number as u16).to_le_bytes());
            }
        }
    }
    out.extend_from_slice(STANDARD.encode(&bytes).as_bytes());
}

const COOKIE: u32 = 12_346;
/// A container with more numbers than this is stored as bits.
const ARRAY_MAX: usize = 4_096;
const BITS_BYTES: usize = 8_192;

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that CRoaring (pyroaring 1.2.0) produces for the same sets.
    #[test]
    fn sets_serialise_as_croaring_does() {
        let text = |mut numbers: Vec<u32>| {
            let mut out = Vec::new();
            put_bitmap(&mut numbers, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(vec![3, 1, 70_000, 3]), SMALL);
        let large = STANDARD.decode(text((0..10_000).step_by(2).collect())).unwrap();
        assert_eq!(
            (large.len(), &large[..16], &large[16..20]),
            (16 + 8_192, &LARGE_HEAD[..], &[0x55; 4][..])
        );
    }

    const SMALL: &str = "OjAAAAIAAAAAAAEAAQAAABgAAAAcAAAAAQADAHAR";
    const LARGE_HEAD: [u8; 16] = [0x3a, 0x30, 0, 0, 1, 0, 0, 0, 0, 0, 0x87, 0x13, 16, 0, 0, 0];
}
