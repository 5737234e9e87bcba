//! The outcome of reloads: whether the running configuration is the one in the file, and since when.

use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// Counts reloads of the configuration. The start counts as the first success.
#[derive(Debug)]
pub(crate) struct Reloads(Mutex<Counted>);

/// The counts and the state of the last reload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    /// Whether the last reload succeeded.
    pub(crate) in_force: bool,
    /// Keys of the file that wait for a restart.
    pub(crate) waiting: usize,
    /// When the last successful reload took place, in seconds since 1970.
    pub(crate) succeeded_at: f64,
}

// === impl Reloads ===

impl Default for Reloads {
    fn default() -> Self {
        Self(Mutex::new(Counted {
            succeeded: 0,
            failed: 0,
            in_force: true,
            waiting: 0,
            succeeded_at: now(),
        }))
    }
}

impl Reloads {
    /// Records that a configuration was put in force, except for `waiting` keys that need a restart.
    pub(crate) fn succeeded(&self, waiting: usize) {
        let mut counted = self.0.lock();
        counted.succeeded += 1;
        (counted.in_force, counted.waiting, counted.succeeded_at) = (true, waiting, now());
    }

    /// Records that a configuration was refused: the previous one stays in force.
    pub(crate) fn failed(&self) {
        let mut counted = self.0.lock();
        counted.failed += 1;
        counted.in_force = false;
    }

    pub(crate) fn counted(&self) -> Counted {
        *self.0.lock()
    }
}

fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}
