//! Slows down guesses of passwords, by account and by address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Failed logins, by account and by address.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    failures: Mutex<HashMap<Key, Failures>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Account(String),
    Address(IpAddr),
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

impl Throttle {
    /// Admits a login, or returns how long it has to wait. Each try counts as a failure until it is
    /// [forgiven](Self::forgive), so that simultaneous tries count too. A login at an OpenID provider names
    /// no account before it succeeds.
    pub(crate) fn admit(&self, account: Option<&str>, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut failures = self.failures.lock();
        if failures.len() >= KEYS_MAX {
            failures.retain(|_, failed| now.duration_since(failed.last) < FORGOTTEN_AFTER);
            if failures.len() >= KEYS_MAX {
                return Err(Duration::from_secs(1));
            }
        }
        let keys = keys(account, address);
        let wait = keys.clone().filter_map(|key| failures.get(&key)?.wait(now)).max();
        if let Some(wait) = wait {
            return Err(wait);
        }
        for key in keys {
            let failed = failures.entry(key).or_insert(Failures { count: 0, last: now });
            if now.duration_since(failed.last) >= FORGOTTEN_AFTER {
                failed.count = 0;
            }
            failed.count = failed.count.saturating_add(1);
            failed.last = now;
        }
        Ok(())
    }

    /// Forgets the failures, since the login was right.
    pub(crate) fn forgive(&self, account: Option<&str>, address: IpAddr) {
        let mut failures = self.failures.lock();
        for key in keys(account, address) {
            failures.remove(&key);
        }
    }
}

impl Failures {
    fn wait(&self, now: Instant) -> Option<Duration> {
        let beyond = self.count.checked_sub(FREE)?;
        let pause = PAUSE_MIN.saturating_mul(1 << beyond.min(16)).min(PAUSE_MAX);
        (self.last + pause)
            .checked_duration_since(now)
            .filter(|left| !left.is_zero())
    }
}

fn keys(account: Option<&str>, address: IpAddr) -> impl Iterator<Item = Key> + Clone {
    let account = account.map(|account| Key::Account(account.to_lowercase()));
    account.into_iter().chain([Key::Address(address)])
}

/// Number of tries without a pause.
const FREE: u32 = 5;
/// The pause after the free tries; each further try doubles it.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(15 * 60);
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60 * 60);
/// The largest number of accounts and addresses that are remembered. Above it, every login waits.
const KEYS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_tries_are_free_then_pauses_double_to_a_quarter_of_an_hour() {
        let throttle = Throttle::default();
        let address = IpAddr::from([10, 0, 0, 1]);
        let mut now = Instant::now();
        for _ in 0..5 {
            throttle.admit(Some("ada"), address, now).unwrap();
        }
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let wait = throttle.admit(Some("ADA"), address, now).unwrap_err();
            pauses.push(wait.as_secs());
            now += wait;
            throttle.admit(Some("ada"), address, now).unwrap();
        }
        assert_eq!(pauses[..5], [1, 2, 4, 8, 16]);
        assert_eq!(pauses[11], 900);
        // Another address does not help to guess one account, nor does another account help to guess from one
        // address.
        assert!(
            throttle
                .admit(Some("ada"), IpAddr::from([10, 0, 0, 2]), now)
                .is_err()
        );
        assert!(throttle.admit(Some("bob"), address, now).is_err());
        assert!(
            throttle
                .admit(Some("bob"), IpAddr::from([10, 0, 0, 2]), now)
                .is_ok()
        );
        assert!(throttle.admit(None, address, now).is_err());
        throttle.forgive(Some("ada"), address);
        assert!(throttle.admit(Some("ada"), address, now).is_ok());
    }
}
