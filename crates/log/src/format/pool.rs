//! Buffers that records are made in, used again: memory touched for the first time costs more than a copy.

use crate::lock::lock;
use std::sync::Mutex;

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
    /// Of those that have room for so many bytes the smallest, of several the one that was given last, since it is likely
    /// still in a cache; or else a new one.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        let mut kept = lock(&self.kept);
        let fitting = kept.buffers.iter().enumerate().rev();
        let fitting = fitting.filter(|(_, buffer)| buffer.capacity() >= bytes);
        let Some((at, _)) = fitting.min_by_key(|(_, buffer)| buffer.capacity()) else {
            drop(kept);
            return Vec::with_capacity(bytes);
        };
        let buffer = kept.buffers.remove(at);
        kept.bytes -= buffer.capacity();
        buffer
    }

    pub(crate) fn give(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut kept = lock(&self.kept);
        let room = kept.buffers.len() < KEPT_MAX && kept.bytes + buffer.capacity() <= KEPT_BYTES_MAX;
        if buffer.capacity() > 0 && room {
            kept.bytes += buffer.capacity();
            kept.buffers.push(buffer);
        }
    }
}

/// Idle buffers: all are looked at when one is taken.
const KEPT_MAX: usize = 64;
/// Bytes that idle buffers may hold.
const KEPT_BYTES_MAX: usize = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_buffer_with_room_is_used_again_and_a_huge_one_is_let_go() {
        let pool = Pool::default();
        for bytes in [100, 2000, 1000, KEPT_BYTES_MAX] {
            pool.give(Vec::with_capacity(bytes));
        }
        assert_eq!(pool.take(500).capacity(), 1000);
        assert_eq!(pool.take(500).capacity(), 2000);
        assert_eq!(pool.take(500).capacity(), 500);
        assert_eq!(pool.take(0).capacity(), 100);
        assert_eq!(pool.take(0).capacity(), 0);
    }
}
