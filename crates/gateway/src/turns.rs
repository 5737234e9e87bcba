//! Work that grows with the size of one request is done in slices. After each slice the other tasks of the
//! core get a turn, so that no task waits longer for another client's request than one slice. ARCHITECTURE.md
//! lists the steps that are not sliced, and how long they take.

use std::time::{Duration, Instant};

/// The current slice of one task.
pub(crate) struct Turns {
    since: Instant,
}

/// The length of a slice: short enough that a neighbour does not notice it beside the network's own delays.
const SLICE: Duration = Duration::from_millis(5);

/// Longer bodies and answers are worked on in slices. A shorter one takes no longer than one slice, even with
/// the smallest operations.
pub(crate) const AT_ONCE_BYTES: usize = 1 << 20;

// === impl Turns ===

impl Turns {
    pub(crate) fn begin() -> Self {
        Self {
            since: Instant::now(),
        }
    }

    /// Lets other tasks run if the slice is over. Call this every few thousand operations, or for every
    /// chunk, since it reads the clock.
    pub(crate) async fn pass(&mut self) {
        if self.since.elapsed() >= SLICE {
            tokio::task::yield_now().await;
            self.since = Instant::now();
        }
    }
}

/// Does work to its end, however many slices a busy machine makes of it.
#[cfg(test)]
pub(crate) fn in_any_slices<T>(work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(done) = work.as_mut().poll(&mut context) {
            return done;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The slices' ends are set, so that it does not matter how long the test is on the processor.
    #[tokio::test]
    async fn another_task_goes_on_while_one_has_much_to_do() {
        let (done, turns_of_other) = (Cell::new(false), Cell::new(0));
        let long = async {
            let mut turns = Turns::begin();
            for _ in 0..3 {
                turns.since = Instant::now() + SLICE * 100_000;
                let before = turns_of_other.get();
                for _ in 0..1_000 {
                    turns.pass().await;
                }
                assert_eq!(turns_of_other.get(), before, "the slice is not over");
                turns.since = Instant::now() - SLICE;
                turns.pass().await;
                assert!(turns.since.elapsed() < SLICE * 100_000, "another slice has begun");
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
        // The other task runs after each slice; `join` lets the two begin by turns.
        assert!((3..=4).contains(&turns_of_other.get()), "{turns_of_other:?}");
    }
}
