//! The time of day; and one that nobody sets, for windows and ages that last longer than a process.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

/// Returns the time of day in milliseconds since 1970, as the system's clock has it now.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// Returns the time on the scale of [`steady_ms`] that is as long ago as this time of day, which a disk has
/// kept. It may be from a process whose clock was wrong when that process began.
pub(crate) fn steady_of(day_ms: u64) -> u64 {
    steady_ms().saturating_sub(now_ms().saturating_sub(day_ms))
}

/// Returns milliseconds since 1970, as the system's clock had it when this process first asked, and from then
/// on by a clock that nobody sets: a window of ten minutes has ten minutes, however the system's clock is set
/// meanwhile.
pub(crate) fn steady_ms() -> u64 {
    static START: OnceLock<(u64, Instant)> = OnceLock::new();
    let (at_start, since) = START.get_or_init(|| (now_ms(), Instant::now()));
    at_start.saturating_add(u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX))
}
