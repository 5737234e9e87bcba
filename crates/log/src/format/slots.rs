//! Small state that is overwritten in place, alternating between two slots, so that a torn write leaves the
//! other slot intact.

use std::io::{self, IoSlice};

use crate::disk::File;
use crate::format::bytes::{Take, put_magic, put_u32, put_u64, set_u32};
use crate::format::checksum::Key;

/// The layout of a file of two slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    magic: &'static [u8; 5],
    key: Key,
    body: usize,
}

// === impl Slots ===

impl Slots {
    pub(crate) fn new(magic: &'static [u8; 5], key: Key, body: usize) -> Self {
        Self { magic, key, body }
    }

    /// Writes one slot. Sequence numbers go up by one, so the slot with the newest state is never
    /// overwritten.
    pub(crate) fn write(&self, file: &dyn File, sequence: u64, body: &[u8]) -> io::Result<()> {
        assert_eq!(body.len(), self.body, "a slot's body has one length");
        let mut out = Vec::with_capacity(HEAD_BYTES + body.len());
        put_magic(&mut out, self.magic);
        put_u32(&mut out, 0);
        put_u32(&mut out, body.len() as u32);
        put_u64(&mut out, sequence);
        out.extend_from_slice(body);
        let crc = self.key.of(&out[12..]);
        set_u32(&mut out, 8, crc);
        file.write_at(&mut [IoSlice::new(&out)], (sequence % 2) * self.stride())
    }

    /// Returns the sequence number and body of the newest slot that checks.
    pub(crate) fn read(&self, file: &dyn File) -> io::Result<Option<(u64, Vec<u8>)>> {
        let mut newest: Option<(u64, Vec<u8>)> = None;
        for slot in 0..2 {
            let mut bytes = vec![0; HEAD_BYTES + self.body];
            let read = file.read_at(&mut bytes, slot * self.stride())?;
            bytes.truncate(read);
            if let Some(sequence) = self.parse(&bytes)
                && newest.as_ref().is_none_or(|(best, _)| *best < sequence)
            {
                newest = Some((sequence, bytes.split_off(HEAD_BYTES)));
            }
        }
        Ok(newest)
    }

    fn parse(&self, bytes: &[u8]) -> Option<u64> {
        let mut take = Take(bytes);
        take.magic(self.magic)?;
        let sound = take.u32()? == self.key.of(take.0)
            && take.u32()? as usize == self.body
            && bytes.len() == HEAD_BYTES + self.body;
        take.u64().filter(|_| sound)
    }

    /// Returns the distance between the slots: they are pages apart, so that no disk tears both.
    fn stride(&self) -> u64 {
        ((HEAD_BYTES + self.body) as u64).next_multiple_of(4096)
    }
}

const HEAD_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk as _, RealDisk};

    #[test]
    fn the_newest_slot_counts_and_a_torn_one_leaves_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let file = RealDisk::default().create(&folder.path().join("x")).unwrap();
        let slots = Slots::new(b"TGMRK", Key::new(1), 5000);
        assert_eq!(slots.read(&*file).unwrap(), None);
        for sequence in 1..4u8 {
            slots.write(&*file, sequence.into(), &[sequence; 5000]).unwrap();
            assert_eq!(
                slots.read(&*file).unwrap(),
                Some((sequence.into(), vec![sequence; 5000]))
            );
        }
        file.write_at(&mut [IoSlice::new(b"torn")], 8192 + 4000).unwrap();
        assert_eq!(slots.read(&*file).unwrap(), Some((2, vec![2; 5000])));
    }
}
