//! Buffers that become larger or smaller where they are, without a copy beside them.

use super::{Buffer, class_of};
use crate::budget::OverBudget;

// === impl Buffer ===

impl Buffer {
    /// Returns whether to grow or shrink where it is costs less than a copy.
    pub(crate) fn is_large(&self) -> bool {
        self.charged >= IN_PLACE_MIN
    }

    /// Grows by `more` bytes, which have been charged for it. The memory leaves the size classes, unless all
    /// of it is as large as one of them.
    pub(crate) fn grow(&mut self, more: usize) {
        self.charged += more;
        self.bytes.reserve_exact(self.charged - self.bytes.len());
    }

    /// Makes room for at least `size` bytes in all, charged to the whole budget: in a buffer of a size class,
    /// or without moving where there is no room for two.
    pub(crate) fn try_grow(&mut self, size: usize) -> Result<(), OverBudget> {
        let more = match self.pool().try_take(size) {
            Ok(larger) => {
                if let Some(claim) = &self.claim {
                    claim.has(larger.charged);
                }
                self.move_to(larger, None);
                return Ok(());
            }
            Err(_) => size.saturating_sub(self.charged),
        };
        let budget = &self.home.budget;
        budget.charge_or_reclaim(more, budget.limit())?;
        if let Some(claim) = &self.claim {
            claim.has(more);
        }
        self.grow(more);
        Ok(())
    }

    /// Continues with hardly more memory than its contents take. A large buffer gives its end back where it
    /// is: memory is scarce when this is called, and a copy would take more of it first.
    pub(crate) fn shrink(&mut self, spare: usize) {
        let (size, _) = class_of(self.bytes.len() + spare);
        if size >= IN_PLACE_MIN {
            let less = self.charged.saturating_sub(size);
            self.bytes.shrink_to(size);
            self.charged -= less;
            if let Some(claim) = &self.claim {
                claim.give_back(less);
            }
            self.home.budget.release(less);
            return;
        }
        let small = self.pool().take(self.len() + spare);
        if let Some(claim) = &self.claim {
            claim.has(small.charged);
        }
        self.move_to(small, None);
    }
}

/// The least size of memory that is resized where it is: allocators map larger blocks apart, and moving their
/// pages costs little.
const IN_PLACE_MIN: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::Budget;
    use crate::claim::Claim;
    use crate::holder::Sender;
    use crate::pool::Pool;

    #[test]
    fn a_buffer_that_moves_stays_its_claims_and_is_counted_once() {
        let pool = Pool::new(Arc::new(Budget::new(1 << 20)));
        let claim = Claim::begin(pool.budget(), Sender::unknown([127, 0, 0, 1].into()));
        let record = Arc::clone(claim.record());
        let mut buffer = pool.take(4096);
        buffer.extend_from_slice(b"hello");
        buffer.claimed(claim);
        assert_eq!(record.held(), 4096);
        let larger = pool.take(600 << 10);
        buffer.claim().expect("it has one").has(larger.charged);
        buffer.move_to(larger, None);
        assert_eq!((record.held(), &*buffer), (640 << 10, &b"hello"[..]));
        buffer.shrink(100);
        assert_eq!((record.held(), &*buffer), (4096, &b"hello"[..]));
        drop(buffer);
        pool.tick(0);
        pool.tick(0);
        assert_eq!(pool.budget().used(), 0);
    }

    #[test]
    fn a_large_buffer_shrinks_and_grows_where_it_is_and_is_counted_exactly() {
        let pool = Pool::new(Arc::new(Budget::new(64 << 20)));
        let claim = Claim::begin(pool.budget(), Sender::unknown([127, 0, 0, 1].into()));
        let record = Arc::clone(claim.record());
        let mut buffer = pool.take(40 << 20);
        buffer.extend_from_slice(&vec![7; 9 << 20]);
        buffer.claimed(claim);
        buffer.shrink(100);
        let small = 10 << 20;
        assert_eq!(
            (record.held(), pool.budget().used(), buffer.capacity()),
            (small, small, small)
        );
        pool.budget().charge(30 << 20);
        buffer.claim().expect("it has one").has(30 << 20);
        buffer.grow(30 << 20);
        let all = 40 << 20;
        assert_eq!(
            (record.held(), pool.budget().used(), buffer.capacity()),
            (all, all, all)
        );
        assert_eq!(*buffer, vec![7; 9 << 20]);
        drop(buffer);
        assert_eq!(pool.idle_bytes(), all, "it is of a size class again");
    }
}
