//! The time of day in milliseconds, as it is stored and sent.

use std::time::{SystemTime, UNIX_EPOCH};

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
