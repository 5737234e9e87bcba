//! How long delivery waits before something is tried again.

use std::time::Duration;

/// Returns the wait after this many failures in a row. The wait doubles ten times, but only up to
/// [`BACKOFF_MAX`] (or `first`, if that is longer); a part of it is left to chance.
pub(crate) fn backoff(first: Duration, failures: u32) -> Duration {
    let most = first.saturating_mul(1 << 10).min(BACKOFF_MAX.max(first));
    crate::backoff::backoff(first, failures, most, fastrand::f64())
}

/// Returns the wait that `Retry-After` asks for, up to a bound.
pub(crate) fn asked_for(after: Option<Duration>) -> Duration {
    after.unwrap_or_default().min(PAUSE * 10)
}

const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// The interval between two checks on something that somebody has to put right.
pub(crate) const PAUSE: Duration = Duration::from_secs(30);
/// The interval between two checks for room for dead letters.
pub(crate) const ROOM_AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_half_a_minute_and_to_a_thousand_times_the_first_at_most() {
        let (milli, seconds) = (Duration::from_millis, Duration::from_secs);
        for (first, failures, most) in [
            (milli(100), 0, milli(100)),
            (milli(100), 3, milli(800)),
            (milli(100), 60, BACKOFF_MAX),
            (milli(1), 60, milli(1_024)),
            (seconds(600), 60, seconds(600)),
        ] {
            let wait = backoff(first, failures);
            assert!(
                wait >= most / 2 && wait <= most,
                "{first:?}, {failures}: {wait:?}"
            );
        }
    }

    #[test]
    fn a_node_is_left_alone_for_as_long_as_it_asks_but_not_for_ever() {
        let minute = Duration::from_secs(60);
        assert_eq!(asked_for(None), Duration::ZERO);
        assert_eq!(asked_for(Some(minute)), minute);
        assert_eq!(asked_for(Some(minute * 1_000)), minute * 5);
    }
}
