//! Reusable buffers in which records are made: memory touched for the first time costs more than a copy.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Idle buffers, up to a number of bytes.
#[derive(Default)]
pub(crate) struct Pool {
    kept: Mutex<PooledBuffers>,
}

#[derive(Default)]
struct PooledBuffers {
    /// The buffers, in the order in which they were returned.
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    /// The fewest bytes that were idle at any moment since the last look: nobody needs them.
    idle: usize,
    looked: Option<Instant>,
}

// === impl Pool ===

impl Pool {
    /// Returns the smallest idle buffer with room for `bytes` bytes, or a new one. Of several such buffers it
    /// returns the one that came back last, since that one is likely still in a cache.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        let mut kept = self.kept.lock();
        let fitting = kept.buffers.iter().enumerate().rev();
        let fitting = fitting.filter(|(_, buffer)| buffer.capacity() >= bytes);
        let Some((at, _)) = fitting.min_by_key(|(_, buffer)| buffer.capacity()) else {
            drop(kept);
            return Vec::with_capacity(bytes);
        };
        let buffer = kept.buffers.remove(at);
        kept.bytes -= buffer.capacity();
        kept.idle = kept.idle.min(kept.bytes);
        buffer
    }

    /// Frees the memory that nobody has taken since the last look, if that was long enough ago.
    pub(crate) fn trim(&self, now: Instant) {
        let mut kept = self.kept.lock();
        let kept = &mut *kept;
        let is_due = kept.looked.is_none_or(|looked| now >= looked + IDLE_FOR);
        if !is_due {
            return;
        }
        let unneeded = std::mem::replace(&mut kept.idle, kept.bytes);
        if kept.looked.replace(now).is_none() {
            return;
        }
        let mut given_back = 0;
        let many = kept.buffers.iter().take_while(|buffer| {
            given_back += buffer.capacity();
            given_back <= unneeded
        });
        let many = many.count();
        let given_back: Vec<_> = kept.buffers.drain(..many).collect();
        kept.bytes -= given_back.iter().map(Vec::capacity).sum::<usize>();
        kept.idle = kept.bytes;
    }

    pub(crate) fn give(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut kept = self.kept.lock();
        let room = kept.buffers.len() < KEPT_MAX && kept.bytes + buffer.capacity() <= KEPT_BYTES_MAX;
        if buffer.capacity() > 0 && room {
            kept.bytes += buffer.capacity();
            kept.buffers.push(buffer);
        }
    }
}

/// The most idle buffers: each is looked at when one is taken.
const KEPT_MAX: usize = 64;
/// Memory that nobody takes for this long is freed.
const IDLE_FOR: Duration = Duration::from_secs(1);
/// The most bytes that idle buffers may hold. Nobody counts them, and a gateway has several logs.
const KEPT_BYTES_MAX: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_nobody_takes_for_a_while_is_given_back_and_what_is_used_stays() {
        let (pool, began) = (Pool::default(), Instant::now());
        let bytes = || pool.kept.lock().bytes;
        for _ in 0..4 {
            pool.give(Vec::with_capacity(1000));
        }
        pool.trim(began);
        let used = pool.take(1000);
        pool.give(used);
        pool.trim(began + IDLE_FOR / 2);
        assert_eq!(bytes(), 4000, "too early");
        pool.trim(began + IDLE_FOR);
        assert_eq!(bytes(), 1000, "one was taken meanwhile");
        pool.trim(began + IDLE_FOR * 2);
        assert_eq!(bytes(), 0);
        pool.give(Vec::with_capacity(1000));
        pool.trim(began + IDLE_FOR * 3);
        assert_eq!(bytes(), 1000, "it has just come");
    }

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
