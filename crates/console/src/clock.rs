//! The time of day in milliseconds, as it is stored and sent.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Returns a time in ISO 8601, UTC, for readers outside the page.
pub(crate) fn iso(at_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(at_ms).map_or_else(|_| at_ms.to_string(), |at| at.to_string())
}

/// Returns the beginning of the next second.
pub(crate) fn next_second() -> Instant {
    let into_it = u64::try_from(now_ms().rem_euclid(1000)).unwrap_or(0);
    Instant::now() + Duration::from_millis(1000 - into_it)
}
