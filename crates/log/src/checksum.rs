//! CRC-32, made with carry-less multiplication where the processor has it.

/// Of these bytes.
pub(crate) fn of(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// A checksum that starts from a log's id: only who knows the id can make bytes that check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u32);

// === impl Key ===

impl Key {
    pub(crate) fn new(log: u64) -> Self {
        Self(crc32fast::hash(&log.to_le_bytes()))
    }

    /// Of these bytes.
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
        assert_ne!(Key::new(1).of(b"record"), Key::new(2).of(b"record"));
    }
}
