//! Buffers for copies that outlive their request on another thread, such as records of a log.

use super::{Buffer, Pool, class_of};
use crate::budget::Charge;

// === impl Pool ===

impl Pool {
    /// Returns a buffer with room for at least `bytes`, for a copy that `charge` was made for. The buffer is
    /// charged by itself from now on: with up to a quarter more, which is the most that a size class has.
    pub fn take_charged(&self, bytes: usize, charge: &mut Charge) -> Buffer {
        let (charged, budget) = (charge.take_over(), &self.free.budget);
        if let Some(buffer) = self.take_free(bytes).or_else(|| self.take_larger_free(bytes)) {
            budget.release(charged);
            return buffer;
        }
        let (size, _) = class_of(bytes);
        match size.checked_sub(charged) {
            Some(more) => budget.charge(more),
            None => budget.release(charged - size),
        }
        self.fresh(size)
    }
}

// === impl Buffer ===

impl Buffer {
    /// Charges what the vector has grown by beyond the room that was taken ([`Buffer::as_mut_vec`]), at once
    /// and always.
    pub fn charge_growth(&mut self) {
        let grown = self.bytes.len().saturating_sub(self.charged);
        if grown > 0 {
            self.home.budget.charge(grown);
            self.charged += grown;
        }
    }

    /// Takes the buffer apart: its memory, and a function to give the memory back with, from any thread. The
    /// memory stays charged until then.
    pub fn lend(mut self) -> (Vec<u8>, impl FnOnce(Vec<u8>) + Send + 'static) {
        let memory = std::mem::take(self.as_mut_vec());
        let take_back = move |memory| {
            let mut buffer = self;
            buffer.bytes = memory;
        };
        (memory, take_back)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Budget;

    #[tokio::test]
    async fn a_copy_that_was_charged_is_made_in_idle_memory_which_comes_back_from_another_thread() {
        let pool = Pool::new(Arc::new(Budget::new(64 << 20)));
        let budget = Arc::clone(pool.budget());
        let mut charge = budget.hold(3_400_000).await;
        let first = pool.take_charged(3_400_000, &mut charge);
        let (size, _) = class_of(3_400_000);
        assert_eq!((budget.used(), first.capacity()), (size, size), "charged once");
        drop(charge);
        assert_eq!(budget.used(), size);
        let (mut memory, take_back) = first.lend();
        memory.extend_from_slice(b"lines");
        let address = memory.as_ptr() as usize;
        std::thread::spawn(move || take_back(memory)).join().unwrap();
        assert_eq!((budget.used(), pool.idle_bytes()), (size, size));

        let mut charge = budget.hold(3_300_000).await;
        let second = pool.take_charged(3_300_000, &mut charge);
        drop(charge);
        assert_eq!((budget.used(), second.len()), (size, 0));
        assert_eq!(second.bytes.as_ptr() as usize, address, "no new memory");
        let (memory, take_back) = second.lend();
        drop((memory, take_back));
        assert_eq!(
            (budget.used(), pool.idle_bytes()),
            (0, 0),
            "what does not come back is freed"
        );
    }
}
