//! Little-endian numbers in byte strings.

/// Reads numbers from a byte string, one after the other; a read beyond the end returns none.
pub(crate) struct Take<'a>(pub(crate) &'a [u8]);

// === impl Take ===

impl<'a> Take<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads `magic`, the version byte and two zeros.
    pub(crate) fn magic(&mut self, magic: &[u8; 5]) -> Option<()> {
        (self.bytes(5)? == magic && self.u8()? == VERSION && self.u16()? == 0).then_some(())
    }
}

/// Starts a block with `magic`, the version byte and two zeros.
pub(crate) fn put_magic(out: &mut Vec<u8>, magic: &[u8; 5]) {
    out.extend_from_slice(magic);
    out.extend_from_slice(&[VERSION, 0, 0]);
}

pub(crate) fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Overwrites the number at `at`.
pub(crate) fn set_u32(out: &mut [u8], at: usize, number: u32) {
    out[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

/// The version byte of every file.
pub(crate) const VERSION: u8 = 1;
