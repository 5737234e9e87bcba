//! How long to wait before something is tried again.

use std::time::Duration;

/// Returns the wait after this many failures in a row. The wait doubles each time, up to `most`; `random` (0
/// to 1) scales it to between half of that and all of it.
pub(crate) fn backoff(first: Duration, failures: u32, most: Duration, random: f64) -> Duration {
    let doubled = first.saturating_mul(1 << failures.min(31)).min(most);
    doubled.mul_f64(0.5 + random / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_are_never_twice_the_same() {
        let (first, most) = (Duration::from_millis(100), Duration::from_secs(30));
        assert_eq!(backoff(first, 0, most, 1.0), first);
        assert_eq!(backoff(first, 3, most, 0.0), first * 4);
        assert_eq!(backoff(first, u32::MAX, most, 1.0), most);
        let waits: std::collections::HashSet<_> = (0..50)
            .map(|_| backoff(first, 3, most, fastrand::f64()))
            .collect();
        assert!(waits.len() > 40, "{waits:?}");
        assert!(waits.iter().all(|wait| (first * 4..=first * 8).contains(wait)));
    }
}
