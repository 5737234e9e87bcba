//! How long to wait before something is tried again.

use std::time::Duration;

/// Returns the wait after this many failures in a row. The wait doubles each time, up to [`BACKOFF_MAX`] (or
/// `first`, if that is longer); `random` (0 to 1) scales it to between half of that and all of it.
pub(crate) fn backoff(first: Duration, failures: u32, random: f64) -> Duration {
    let delay = first
        .saturating_mul(1 << failures.min(10))
        .min(BACKOFF_MAX.max(first));
    delay.mul_f64(0.5 + random / 2.0)
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
    fn waits_double_up_to_a_bound_and_are_never_twice_the_same() {
        let first = Duration::from_millis(100);
        assert_eq!(backoff(first, 0, 1.0), first);
        assert_eq!(backoff(first, 3, 0.0), first * 4);
        assert_eq!(backoff(first, 60, 1.0), BACKOFF_MAX);
        assert_eq!(
            backoff(Duration::from_secs(600), 60, 1.0),
            Duration::from_secs(600)
        );
        let waits: std::collections::HashSet<_> =
            (0..50).map(|_| backoff(first, 3, fastrand::f64())).collect();
        assert!(waits.len() > 40, "{waits:?}");
        assert!(waits.iter().all(|wait| (first * 4..=first * 8).contains(wait)));
    }

    #[test]
    fn a_node_is_left_alone_for_as_long_as_it_asks_but_not_for_ever() {
        let minute = Duration::from_secs(60);
        assert_eq!(asked_for(None), Duration::ZERO);
        assert_eq!(asked_for(Some(minute)), minute);
        assert_eq!(asked_for(Some(minute * 1_000)), minute * 5);
    }
}
