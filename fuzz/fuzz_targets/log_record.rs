//! Hostile bytes where a record of the log should be: reading them never panics, what does not check is
//! refused, and what is taken for a record has bounds that hold.
#![no_main]

use libfuzzer_sys::fuzz_target;
use log::Shape;

const LANES: u32 = 8;

fuzz_target!(|input: &[u8]| {
    let position = input.get(8..16).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
    let given = Shape::of(input, 0, position, LANES);
    // The checksum put right, so that the reader comes to look at the rest.
    let Some((params, groups)) = input.get(56..60).map(|bytes| (number(&bytes[..2]), number(&bytes[2..]))) else {
        return assert_eq!(given, None);
    };
    let mut bytes = input.to_vec();
    let Some(covered) = bytes.get(8..64 + params + groups * 20) else {
        return assert_eq!(given, None);
    };
    let mut crc = crc32fast::Hasher::new_with_initial(crc32fast::hash(&0u64.to_le_bytes()));
    crc.update(covered);
    bytes[4..8].copy_from_slice(&crc.finalize().to_le_bytes());
    let Some(shape) = Shape::of(&bytes, 0, position, LANES) else { return };
    assert!(given.is_none() || bytes == input);
    assert_eq!(shape.params, 64..64 + params);
    assert_eq!(shape.documents, shape.groups.iter().map(|(_, documents, _)| documents).sum::<u32>());
    let mut end = 64 + params + groups * 20;
    for (lane, documents, range) in shape.groups {
        assert!(lane < LANES && documents > 0 && range.start == end && range.end > range.start);
        end = range.end;
    }
    assert_eq!(shape.bytes, (end as u64).next_multiple_of(8));
    // Elsewhere, or in another log, the same bytes are nothing.
    assert_eq!(Shape::of(&bytes, 0, position ^ 8, LANES), None);
    assert_eq!(Shape::of(&bytes, 1, position, LANES), None);
});

fn number(bytes: &[u8]) -> usize {
    usize::from(u16::from_le_bytes(bytes.try_into().unwrap()))
}
