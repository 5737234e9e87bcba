//! Slows down guesses of passwords, by account and by address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::peer::peer_of;

/// Failed logins, by account and by address.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    failures: Mutex<HashMap<Key, Failures>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Account(String),
    /// As [`peer_of`] has it.
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
            make_room(&mut failures, now);
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
    /// What decides which failures are forgotten first.
    fn blame(&self) -> (u32, Instant) {
        (self.count, self.last)
    }

    fn wait(&self, now: Instant) -> Option<Duration> {
        let beyond = self.count.checked_sub(FREE)?;
        let pause = PAUSE_MIN.saturating_mul(1 << beyond.min(16)).min(PAUSE_MAX);
        (self.last + pause)
            .checked_duration_since(now)
            .filter(|left| !left.is_zero())
    }
}

/// Forgets what is an hour old, and, unless that is enough, the tenth with the fewest failures, of these the
/// oldest. To refuse logins instead would let strangers lock everybody out, with names that nobody has.
fn make_room(failures: &mut HashMap<Key, Failures>, now: Instant) {
    failures.retain(|_, failed| now.duration_since(failed.last) < FORGOTTEN_AFTER);
    if failures.len() < KEYS_MAX {
        return;
    }
    let mut blames: Vec<_> = failures.values().map(|failed| failed.blame()).collect();
    let (_, most, _) = blames.select_nth_unstable(KEYS_MAX / 10);
    let most = *most;
    failures.retain(|_, failed| failed.blame() > most);
}

fn keys(account: Option<&str>, address: IpAddr) -> impl Iterator<Item = Key> + Clone {
    let account = account.map(|account| Key::Account(account.to_lowercase()));
    account.into_iter().chain([Key::Address(peer_of(address))])
}

/// Number of tries without a pause.
const FREE: u32 = 5;
/// The pause after the free tries; each further try doubles it.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(15 * 60);
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60 * 60);
/// The largest number of accounts and addresses that are remembered, but for one login.
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
    fn address(network: u32, host: u64) -> IpAddr {
        let network = u128::from(0x2001_0db8_u32) << 96 | u128::from(network) << 64;
        IpAddr::from((network | u128::from(host)).to_be_bytes())
    }

    #[test]
    fn whoever_has_a_network_of_ipv6_has_the_tries_of_one_address_and_locks_nobody_out() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let admitted = (0..2 * KEYS_MAX as u64)
            .filter(|n| {
                let account = format!("nobody {n}");
                throttle.admit(Some(&account), address(1, *n), now).is_ok()
            })
            .count();
        assert_eq!(admitted, FREE as usize);
        throttle.admit(Some("ada"), address(2, 1), now).unwrap();
        throttle.admit(None, address(3, 1), now).unwrap();
    }

    #[test]
    fn logins_are_admitted_and_a_guesser_waits_whatever_number_of_others_try() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let mut guesser = 0;
        while throttle.admit(Some("ada"), address(guesser, 1), now).is_ok() {
            guesser += 1;
        }
        assert_eq!(guesser, FREE);
        for n in 0..3 * KEYS_MAX as u32 {
            let account = format!("nobody {n}");
            throttle.admit(Some(&account), address(1_000 + n, 1), now).unwrap();
            assert!(throttle.failures.lock().len() <= KEYS_MAX + 1);
        }
        assert!(throttle.admit(Some("ada"), address(500, 1), now).is_err());
        assert!(throttle.admit(Some("bob"), address(500, 1), now).is_ok());
    }
}
