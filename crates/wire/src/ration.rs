//! Rations for log lines that strangers can cause: a client that misbehaves a thousand times a second must
//! not fill a disk.
//!
//! Each place in the code that warns has a ration of its own, so that one noisy fault does not hide another.
//! Lines that are left out are counted, and the next line from the same place says how many. To count events,
//! use counters, not lines.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The ration of one place in the code: [`LINES_PER_WINDOW`] lines in each [`WINDOW`]. Made by
/// [`rationed!`](crate::rationed).
#[derive(Debug, Default)]
pub struct Ration {
    /// The number of the window (upper half), and how many lines were wanted in it (lower half). Both are in
    /// one word, so that all cores agree without a lock.
    window: AtomicU64,
    left_out: AtomicU64,
}

/// The lines that one place may write in a window: enough to see a pattern, or to name all nodes of a small
/// cluster.
pub const LINES_PER_WINDOW: u32 = 10;

/// The time for which a ration has to last.
pub const WINDOW: Duration = Duration::from_secs(10);

// === impl Ration ===

impl Ration {
    /// Makes a ration from which nothing has been taken.
    pub const fn new() -> Self {
        Ration {
            window: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }
    }

    /// Asks for a line now. `Some` allows it and says how many lines were left out since the last allowed one
    /// (`Some(None)`: none, so that a log field made of it stays away); `None` refuses it.
    #[allow(
        clippy::option_option,
        reason = "the inner option is a log field that may be absent"
    )]
    pub fn take(&self) -> Option<Option<u64>> {
        static START: OnceLock<Instant> = OnceLock::new();
        self.take_at(START.get_or_init(Instant::now).elapsed())
    }

    fn take_at(&self, since_start: Duration) -> Option<Option<u64>> {
        let now = since_start.as_secs() / WINDOW.as_secs();
        let count = |before: u64| {
            let wanted = if before >> 32 == now { before as u32 } else { 0 };
            Some(now << 32 | u64::from(wanted.saturating_add(1)))
        };
        let before = self
            .window
            .fetch_update(Relaxed, Relaxed, count)
            .unwrap_or_default();
        if before >> 32 == now && before as u32 >= LINES_PER_WINDOW {
            self.left_out.fetch_add(1, Relaxed);
            return None;
        }
        Some(Some(self.left_out.swap(0, Relaxed)).filter(|left_out| *left_out > 0))
    }
}

/// Writes a log line by the given macro of `tracing` if this place has not used up its [`Ration`]; `left_out`
/// says how many lines of this place were not written before it.
///
/// ```
/// # let node = "n1";
/// wire::rationed!(tracing::warn, node, "node answers nonsense");
/// ```
#[macro_export]
macro_rules! rationed {
    ($level:path, $($line:tt)+) => {{
        static RATION: $crate::Ration = $crate::Ration::new();
        if let Some(left_out) = RATION.take() {
            use $level as write_line;
            write_line!(left_out, $($line)+);
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_to_its_ration_and_the_next_line_says_how_much_was_left_out() {
        let ration = Ration::new();
        let at = |seconds| ration.take_at(Duration::from_secs(seconds));
        let allowed = (0..1000).filter(|_| at(3).is_some()).count();
        assert_eq!(allowed, LINES_PER_WINDOW as usize);
        assert_eq!(at(9), None);
        assert_eq!(at(10), Some(Some(991)));
        assert_eq!(at(10), Some(None));
        assert_eq!(at(500), Some(None));
    }

    #[test]
    fn each_place_has_a_ration_of_its_own() {
        let place = || {
            static HERE: Ration = Ration::new();
            HERE.take().is_some()
        };
        let other = || {
            static THERE: Ration = Ration::new();
            THERE.take().is_some()
        };
        while place() {}
        assert!(other());
    }

    #[test]
    fn cores_together_get_one_ration() {
        let ration = Ration::new();
        let allowed: usize = std::thread::scope(|scope| {
            let core = || (0..1000).filter(|_| ration.take_at(WINDOW).is_some()).count();
            let cores: Vec<_> = (0..4).map(|_| scope.spawn(core)).collect();
            cores
                .into_iter()
                .map(|core| core.join().expect("it counts"))
                .sum()
        });
        assert_eq!(allowed, LINES_PER_WINDOW as usize);
    }
}
