//! Buffers that records are made in, used again: memory touched for the first time costs more than a copy.

use std::sync::{Mutex, PoisonError};

/// Empty buffers, up to a number of bytes.
#[derive(Default)]
pub(crate) struct Pool {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

// === impl Pool ===

impl Pool {
    /// The buffer that was given last, since it is likely still in a cache; or a new one.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let buffer = kept.buffers.pop().unwrap_or_default();
        kept.bytes -= buffer.capacity();
        buffer
    }

    pub(crate) fn give(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.capacity() > 0 && kept.bytes + buffer.capacity() <= KEPT_BYTES_MAX {
            kept.bytes += buffer.capacity();
            kept.buffers.push(buffer);
        }
    }
}

/// Bytes that idle buffers may hold.
const KEPT_BYTES_MAX: usize = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_and_a_huge_one_is_let_go() {
        let pool = Pool::default();
        pool.give(Vec::with_capacity(100));
        pool.give(Vec::with_capacity(KEPT_BYTES_MAX));
        assert_eq!(pool.take().capacity(), 100);
        assert_eq!(pool.take().capacity(), 0);
    }
}
