//! The entrance to a queue, which a reload that removes the queue closes: what is inside can come to an end
//! only if nothing more comes in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Counts the requests on their way into a queue, and refuses new ones while it is closed.
#[derive(Debug, Default)]
pub(crate) struct Entrance {
    closed: AtomicBool,
    /// Each request inside has a copy.
    inside: Arc<()>,
}

/// A request that was let in, until this is dropped.
#[must_use = "a request is inside as long as this is there"]
pub(crate) struct Inside(#[allow(dead_code, reason = "it is only counted")] Arc<()>);

impl Entrance {
    /// Lets a request in; `None` if the entrance is closed.
    pub(crate) fn enter(&self) -> Option<Inside> {
        // Whoever closes it looks for requests afterwards: a request is seen, or sees that it is closed.
        let inside = Inside(Arc::clone(&self.inside));
        // Counting is relaxed: without a fence on both sides, either may happen before what is written above
        // it, and neither sees the other.
        fence(Ordering::SeqCst);
        (!self.closed.load(Ordering::SeqCst)).then_some(inside)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
    }

    /// Returns whether no request is inside. While the entrance is closed, it stays so.
    pub(crate) fn is_empty(&self) -> bool {
        let is_empty = Arc::strong_count(&self.inside) == 1;
        // Whoever finds it empty sees what those have done who were inside.
        fence(Ordering::Acquire);
        is_empty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_entrance_lets_nobody_in_and_tells_when_the_last_one_is_out() {
        let entrance = Entrance::default();
        let first = entrance.enter();
        assert!(first.is_some() && !entrance.is_empty());
        entrance.close();
        assert!(entrance.enter().is_none());
        assert!(!entrance.is_empty(), "the first one is still inside");
        drop(first);
        assert!(entrance.is_empty());
        entrance.open();
        assert!(entrance.enter().is_some());
    }
}
