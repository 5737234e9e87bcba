//! Slows down guesses of passwords, by account and by address.
//!
//! Whoever guesses at an account from elsewhere must not lock its user out: where an account has logged in
//! before, its tries are counted apart.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::peer::peer_of;

/// Failed logins, and where accounts have logged in.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    state: Mutex<State>,
}

/// How far somebody who is admitted is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// The account has logged in from this address before, or the request has a session.
    Known,
    Stranger,
}

#[derive(Debug, Default)]
struct State {
    failures: HashMap<Key, Failures>,
    /// The addresses of each account's last logins, the latest at the end. Only right passwords add to it, so
    /// it has no more accounts than there are users.
    places: HashMap<String, Vec<IpAddr>>,
}

/// Addresses are as [`peer_of`] has them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Account(String),
    Address(IpAddr),
    /// An account at an address where it has logged in.
    Place(String, IpAddr),
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

impl Throttle {
    /// Admits a login, or returns how long it has to wait. Each try counts as a failure until it is
    /// [forgiven](Self::forgive), so that simultaneous tries count too.
    pub(crate) fn admit(&self, account: &str, address: IpAddr, now: Instant) -> Result<Asker, Duration> {
        let mut state = self.state.lock();
        let (asker, keys) = state.keys(account, address);
        let failures = &mut state.failures;
        if failures.len() >= KEYS_MAX {
            make_room(failures, now);
        }
        let wait = keys.iter().filter_map(|key| failures.get(key)?.wait(now)).max();
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
        Ok(asker)
    }

    /// Forgets the failures, since the login was right, and keeps where it was.
    pub(crate) fn forgive(&self, account: &str, address: IpAddr) {
        let mut state = self.state.lock();
        let (_, keys) = state.keys(account, address);
        for key in keys {
            state.failures.remove(&key);
        }
        state.remember(account.to_lowercase(), peer_of(address));
    }
}

impl State {
    /// Returns what a login counts for. At a place of the account that is only this place, so that strangers
    /// who guess at the account elsewhere, or at other accounts behind the same proxy, do not lock it out.
    fn keys(&self, account: &str, address: IpAddr) -> (Asker, Vec<Key>) {
        let (account, address) = (account.to_lowercase(), peer_of(address));
        let places = self.places.get(&account);
        match places.is_some_and(|places| places.contains(&address)) {
            true => (Asker::Known, vec![Key::Place(account, address)]),
            false => (
                Asker::Stranger,
                vec![Key::Account(account), Key::Address(address)],
            ),
        }
    }

    fn remember(&mut self, account: String, address: IpAddr) {
        let places = self.places.entry(account).or_default();
        places.retain(|place| *place != address);
        if places.len() >= PLACES_MAX {
            places.remove(0);
        }
        places.push(address);
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

/// Number of tries without a pause.
const FREE: u32 = 5;
/// The pause after the free tries; each further try doubles it.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(15 * 60);
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60 * 60);
/// The largest number of accounts and addresses that are remembered, but for one login.
const KEYS_MAX: usize = 10_000;
/// The largest number of addresses where one account is known.
const PLACES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_tries_are_free_then_pauses_double_to_a_quarter_of_an_hour() {
        let throttle = Throttle::default();
        let address = IpAddr::from([10, 0, 0, 1]);
        let mut now = Instant::now();
        for _ in 0..5 {
            throttle.admit("ada", address, now).unwrap();
        }
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let wait = throttle.admit("ADA", address, now).unwrap_err();
            pauses.push(wait.as_secs());
            now += wait;
            throttle.admit("ada", address, now).unwrap();
        }
        assert_eq!(pauses[..5], [1, 2, 4, 8, 16]);
        assert_eq!(pauses[11], 900);
        // Another address does not help to guess one account, nor does another account help to guess from one
        // address.
        assert!(throttle.admit("ada", IpAddr::from([10, 0, 0, 2]), now).is_err());
        assert!(throttle.admit("bob", address, now).is_err());
        assert!(throttle.admit("bob", IpAddr::from([10, 0, 0, 2]), now).is_ok());
        throttle.forgive("ada", address);
        assert!(throttle.admit("ada", address, now).is_ok());
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
                throttle.admit(&account, address(1, *n), now).is_ok()
            })
            .count();
        assert_eq!(admitted, FREE as usize);
        throttle.admit("ada", address(2, 1), now).unwrap();
    }

    #[test]
    fn logins_are_admitted_and_a_guesser_waits_whatever_number_of_others_try() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let mut guesser = 0;
        while throttle.admit("ada", address(guesser, 1), now).is_ok() {
            guesser += 1;
        }
        assert_eq!(guesser, FREE);
        for n in 0..3 * KEYS_MAX as u32 {
            let account = format!("nobody {n}");
            throttle.admit(&account, address(1_000 + n, 1), now).unwrap();
            assert!(throttle.state.lock().failures.len() <= KEYS_MAX + 1);
        }
        assert!(throttle.admit("ada", address(500, 1), now).is_err());
        assert!(throttle.admit("bob", address(500, 1), now).is_ok());
    }

    /// Tries until one has to wait.
    fn tries(throttle: &Throttle, account: &str, address: IpAddr, now: Instant) -> u32 {
        let tries = 0..1_000;
        let admitted = tries.take_while(|_| throttle.admit(account, address, now).is_ok());
        u32::try_from(admitted.count()).unwrap()
    }

    #[test]
    fn an_account_is_not_locked_out_where_it_has_logged_in() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let (home, elsewhere) = (address(1, 1), address(2, 1));
        assert_eq!(throttle.admit("Ada", home, now), Ok(Asker::Stranger));
        throttle.forgive("Ada", home);
        // Somebody guesses at the account elsewhere, and somebody behind the same proxy at another one.
        assert_eq!(tries(&throttle, "ada", elsewhere, now), FREE);
        assert_eq!(tries(&throttle, "bob", home, now), FREE);
        assert!(throttle.admit("eve", home, now).is_err());
        assert_eq!(throttle.admit("ada", address(1, 2), now), Ok(Asker::Known));
        throttle.forgive("ada", home);
        // A login at home does not give the others new tries.
        assert!(throttle.admit("ada", elsewhere, now).is_err());
        assert!(throttle.admit("eve", home, now).is_err());
        // Guesses at home are bounded, too.
        assert_eq!(tries(&throttle, "ada", home, now), FREE);
    }

    #[test]
    fn an_account_is_known_at_the_places_of_its_last_logins() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let places = || (0..=PLACES_MAX as u32).map(|network| address(network, 1));
        for place in places() {
            throttle.forgive("ada", place);
            throttle.forgive("ada", place);
        }
        let known = places().map(|place| throttle.admit("ada", place, now).unwrap());
        let known = known.filter(|asker| *asker == Asker::Known).count();
        assert_eq!(known, PLACES_MAX);
    }
}
