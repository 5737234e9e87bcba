//! Any record that is made is read back as it was made; any bytes that are no record are refused.

use log::Shape;
use proptest::collection::vec;
use proptest::prelude::*;

const LANES: u32 = 8;

/// Builds a head with its checksum right, as the format defines it: written here a second time, number by
/// number.
fn head(log: u64, position: u64, params: &[u8], groups: &[(u32, u32, u32)]) -> Vec<u8> {
    let mut bytes = b"TGR1\0\0\0\0".to_vec();
    let sum = |of: fn(&(u32, u32, u32)) -> u32| groups.iter().map(of).sum::<u32>();
    for number in [position, 0, 1_700_000_000_000, 3, 17] {
        bytes.extend(u64::to_le_bytes(number));
    }
    bytes.extend(sum(|group| group.2).to_le_bytes());
    bytes.extend(sum(|group| group.1).to_le_bytes());
    bytes.extend((params.len() as u16).to_le_bytes());
    bytes.extend((groups.len() as u16).to_le_bytes());
    bytes.extend([1, 0, 0, 0]);
    bytes.extend(params);
    for (lane, documents, stored) in groups {
        for number in [*lane, *documents, *stored, *stored, 0] {
            bytes.extend(number.to_le_bytes());
        }
    }
    let mut crc = crc32fast::Hasher::new_with_initial(crc32fast::hash(&log.to_le_bytes()));
    crc.update(&bytes[8..]);
    bytes[4..8].copy_from_slice(&crc.finalize().to_le_bytes());
    bytes
}

proptest! {
    #[test]
    fn a_head_is_read_as_the_format_has_it(
        log: u64,
        position in 0..u64::MAX / 2,
        params in vec(any::<u8>(), 0..200),
        groups in vec((0..LANES, 1..1000u32, 1..100_000u32), 1..20),
        beyond in vec(any::<u8>(), 0..50),
        flipped: prop::sample::Index,
    ) {
        let mut bytes = head(log, position, &params, &groups);
        let length = bytes.len();
        bytes.extend(&beyond);
        let shape = Shape::of(&bytes, log, position, LANES).expect("a head");
        prop_assert_eq!(&bytes[shape.params.clone()], &params[..]);
        let mut at = length;
        for (group, (lane, documents, stored)) in shape.groups.iter().zip(&groups) {
            let end = at + *stored as usize;
            prop_assert_eq!(group, &(*lane, *documents, at..end));
            at = end;
        }
        prop_assert_eq!(shape.groups.len(), groups.len());
        prop_assert_eq!(shape.bytes, (at as u64).next_multiple_of(8));

        prop_assert_eq!(Shape::of(&bytes, log, position + 8, LANES), None);
        prop_assert_eq!(Shape::of(&bytes[..length - 1], log, position, LANES), None);
        bytes[flipped.index(length)] ^= 0x10;
        prop_assert_eq!(Shape::of(&bytes, log, position, LANES), None);
    }

    #[test]
    fn bytes_that_are_no_record_are_refused(bytes in vec(any::<u8>(), 0..300), position: u64) {
        prop_assert_eq!(Shape::of(&bytes, 0, position, LANES), None);
    }
}
