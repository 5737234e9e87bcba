//! CRC-32, computed with carry-less multiplication where the processor supports it.

/// Returns the checksum of these bytes.
pub(crate) fn of(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// A checksum computed piece by piece.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum(crc32fast::Hasher);

// === impl Sum ===

impl Sum {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> u32 {
        self.0.finalize()
    }
}

/// Bytes of a piece: few enough that they are still in the core's own cache when the checksum reads them.
pub(crate) const PIECE_BYTES: usize = 128 << 10;

/// The key of a log's checksums, derived from the log's id: only someone who knows the id can make bytes that
/// check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u32);

// === impl Key ===

impl Key {
    pub(crate) fn new(log: u64) -> Self {
        Self(crc32fast::hash(&log.to_le_bytes()))
    }

    /// Returns the keyed checksum of these bytes.
    pub(crate) fn of(self, bytes: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.0);
        hasher.update(bytes);
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_the_documented_one_and_keys_tell_logs_apart() {
        assert_eq!(of(b"123456789"), 0xcbf4_3926);
        let mut sum = Sum::default();
        sum.update(b"1234");
        sum.update(b"56789");
        assert_eq!(sum.finish(), 0xcbf4_3926);
        assert_ne!(Key::new(1).of(b"record"), Key::new(2).of(b"record"));
    }
}
