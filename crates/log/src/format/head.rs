//! The head of a record on disk: fixed part, parameters, directory.

use std::ops::Range;

use crate::format::bytes::{Take, put_u32, put_u64, set_u32};
use crate::format::checksum::Key;
use crate::format::record::{ALIGN, DirectoryEntry, ENTRY_BYTES, HEAD_BYTES};
use crate::{Codec, GROUPS_MAX, PARAMS_MAX, PAYLOAD_MAX};

/// The fixed part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) position: u64,
    pub(crate) synced: u64,
    pub(crate) time_ms: u64,
    pub(crate) number: u64,
    pub(crate) documents_before: u64,
    pub(crate) payload: u32,
    pub(crate) documents: u32,
    pub(crate) params: u16,
    pub(crate) groups: u16,
    pub(crate) kind: u8,
    pub(crate) codec: Codec,
}

/// A head whose checksum is right, with its parameters and directory.
#[derive(Debug)]
pub(crate) struct Parsed<'a> {
    pub(crate) head: Head,
    pub(crate) params: &'a [u8],
    pub(crate) directory: Vec<DirectoryEntry>,
}

// === impl Head ===

impl Head {
    /// Returns the bytes of head, parameters and directory.
    pub(crate) fn bytes(&self) -> usize {
        HEAD_BYTES + usize::from(self.params) + usize::from(self.groups) * ENTRY_BYTES
    }

    /// Returns the bytes of the whole record.
    pub(crate) fn record_bytes(&self) -> u64 {
        (self.bytes() as u64 + u64::from(self.payload)).next_multiple_of(ALIGN)
    }

    /// Returns the positions of the whole record.
    pub(crate) fn range(&self) -> Range<u64> {
        self.position..self.position + self.record_bytes()
    }

    /// Completes a head: `bytes` already has room for the fixed part, and holds the parameters.
    pub(crate) fn write(&self, bytes: &mut Vec<u8>, directory: &[DirectoryEntry], key: Key) {
        for entry in directory {
            for number in [entry.lane, entry.documents, entry.stored, entry.raw, entry.crc] {
                put_u32(bytes, number);
            }
        }
        let mut fixed = Vec::with_capacity(HEAD_BYTES);
        fixed.extend_from_slice(MAGIC);
        put_u32(&mut fixed, 0);
        for number in [
            self.position,
            self.synced,
            self.time_ms,
            self.number,
            self.documents_before,
        ] {
            put_u64(&mut fixed, number);
        }
        put_u32(&mut fixed, self.payload);
        put_u32(&mut fixed, self.documents);
        fixed.extend_from_slice(&self.params.to_le_bytes());
        fixed.extend_from_slice(&self.groups.to_le_bytes());
        fixed.extend_from_slice(&[self.kind, self.codec.number(), 0, 0]);
        bytes[..HEAD_BYTES].copy_from_slice(&fixed);
        let crc = key.of(&bytes[8..]);
        set_u32(bytes, 4, crc);
    }

    /// Reads the fixed part; none if the bytes cannot be a head. Only the checksum proves that they are one.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        if take.bytes(4)? != MAGIC {
            return None;
        }
        take.u32()?;
        let head = Self {
            position: take.u64()?,
            synced: take.u64()?,
            time_ms: take.u64()?,
            number: take.u64()?,
            documents_before: take.u64()?,
            payload: take.u32()?,
            documents: take.u32()?,
            params: take.u16()?,
            groups: take.u16()?,
            kind: take.u8()?,
            codec: Codec::of(take.u8()?)?,
        };
        let bounded = usize::from(head.params) <= PARAMS_MAX
            && (1..=GROUPS_MAX).contains(&usize::from(head.groups))
            && head.payload as usize <= PAYLOAD_MAX
            && head.position.checked_add(head.record_bytes()).is_some();
        (take.u16()? == 0 && bounded).then_some(head)
    }

    /// Reads a whole head that should be at `position`; none if anything about it is wrong. `bytes` may
    /// continue beyond the head.
    pub(crate) fn parse(bytes: &[u8], position: u64, lanes: u32, key: Key) -> Option<Parsed<'_>> {
        let head = Self::read(bytes)?;
        let whole = bytes.get(..head.bytes())?;
        let crc = u32::from_le_bytes([whole[4], whole[5], whole[6], whole[7]]);
        if head.position != position || key.of(&whole[8..]) != crc {
            return None;
        }
        let (params, directory) = whole[HEAD_BYTES..].split_at(usize::from(head.params));
        let directory = directory_of(directory, lanes)?;
        let sum =
            |of: fn(&DirectoryEntry) -> u32| directory.iter().map(|entry| u64::from(of(entry))).sum::<u64>();
        let sound = sum(|entry| entry.stored) == u64::from(head.payload)
            && sum(|entry| entry.documents) == u64::from(head.documents);
        sound.then_some(Parsed {
            head,
            params,
            directory,
        })
    }
}

fn directory_of(bytes: &[u8], lanes: u32) -> Option<Vec<DirectoryEntry>> {
    let mut take = Take(bytes);
    let mut directory = Vec::with_capacity(bytes.len() / ENTRY_BYTES);
    while !take.0.is_empty() {
        let entry = DirectoryEntry {
            lane: take.u32()?,
            documents: take.u32()?,
            stored: take.u32()?,
            raw: take.u32()?,
            crc: take.u32()?,
        };
        let sound = entry.lane < lanes
            && entry.documents > 0
            && entry.stored > 0
            && (1..=PAYLOAD_MAX).contains(&(entry.raw as usize));
        if !sound {
            return None;
        }
        directory.push(entry);
    }
    Some(directory)
}

// === impl Parsed ===

impl Parsed<'_> {
    /// Returns each group with its range, in bytes from the record's start.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (Range<usize>, DirectoryEntry)> {
        let mut at = self.head.bytes();
        self.directory.iter().map(move |entry| {
            let start = at;
            at += entry.stored as usize;
            (start..at, *entry)
        })
    }
}

/// The first bytes of a record.
pub(crate) const MAGIC: &[u8; 4] = b"TGR1";

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Head, Vec<DirectoryEntry>, Vec<u8>) {
        let entry = |lane, documents, stored| DirectoryEntry {
            lane,
            documents,
            stored,
            raw: stored,
            crc: 7,
        };
        let directory = vec![entry(0, 2, 10), entry(3, 1, 5)];
        let head = Head {
            position: 4096,
            synced: 1024,
            time_ms: 5,
            number: 9,
            documents_before: 100,
            payload: 15,
            documents: 3,
            params: 3,
            groups: 2,
            kind: 1,
            codec: Codec::None,
        };
        let mut bytes = vec![0; HEAD_BYTES];
        bytes.extend_from_slice(b"a=b");
        head.write(&mut bytes, &directory, Key::new(1));
        (head, directory, bytes)
    }

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let (head, directory, mut bytes) = sample();
        bytes.extend_from_slice(b"payload");
        let parsed = Head::parse(&bytes, 4096, 4, Key::new(1)).unwrap();
        assert_eq!(
            (parsed.head, parsed.params, &parsed.directory),
            (head, &b"a=b"[..], &directory)
        );
        let places: Vec<_> = parsed.groups().map(|(place, _)| place).collect();
        assert_eq!(places, [107..117, 117..122]);
        assert_eq!(head.record_bytes(), 128);
    }

    #[test]
    fn a_head_elsewhere_of_another_log_or_with_any_bit_flipped_is_none() {
        let (_, _, bytes) = sample();
        assert!(Head::parse(&bytes, 4104, 4, Key::new(1)).is_none());
        assert!(Head::parse(&bytes, 4096, 4, Key::new(2)).is_none());
        assert!(Head::parse(&bytes, 4096, 3, Key::new(1)).is_none());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Head::parse(&flipped, 4096, 4, Key::new(1)).is_none(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Head::parse(&bytes[..length], 4096, 4, Key::new(1)).is_none());
        }
    }
}
