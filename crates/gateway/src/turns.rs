//! Work that grows with one request, in slices: who does it lets the other tasks of its core go on after
//! each, so that nobody waits longer for a request of another client than a slice takes. ARCHITECTURE.md says
//! which steps are not in slices, and how long they take.

use std::time::{Duration, Instant};

/// One task's present slice.
pub(crate) struct Turns {
    since: Instant,
}

/// A slice: what a neighbour does not notice beside the network's own delays.
const SLICE: Duration = Duration::from_millis(5);

/// Bodies and answers that are longer are worked on in turns. Of shorter ones even the smallest operations
/// take no longer than a slice.
pub(crate) const AT_ONCE_BYTES: usize = 1 << 20;

// === impl Turns ===

impl Turns {
    pub(crate) fn begin() -> Self {
        Self {
            since: Instant::now(),
        }
    }

    /// Lets others go on if the slice is over. To be called every few thousand operations, or every chunk: it
    /// looks at the clock.
    pub(crate) async fn pass(&mut self) {
        if self.since.elapsed() >= SLICE {
            tokio::task::yield_now().await;
            self.since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn another_task_goes_on_while_one_has_much_to_do() {
        let (done, turns_of_other) = (Cell::new(false), Cell::new(0));
        let long = async {
            let (mut turns, began) = (Turns::begin(), Instant::now());
            while began.elapsed() < SLICE * 4 {
                turns.pass().await;
            }
            done.set(true);
        };
        let other = async {
            while !done.get() {
                turns_of_other.set(turns_of_other.get() + 1);
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(long, other);
        // Once before the work begins, and after each slice but perhaps the last.
        assert!((2..=6).contains(&turns_of_other.get()), "{turns_of_other:?}");
    }
}
