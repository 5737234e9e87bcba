//! Counts refused logins for the audit log. The log can only grow, so a guesser's tries must not become an
//! entry each: an entry is written for the first try, the tenth, the hundredth and so on, and one at the end
//! of the hour.

use std::collections::BTreeMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::clock::iso;
use crate::store::{AuditedChange, BY_UNKNOWN, OTHERS, Store, StoreError};

/// Refused logins of the present hour, by who was refused.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    counted: Mutex<BTreeMap<Who, Count>>,
}

/// The subject of a count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Who {
    /// What was tried.
    pub(crate) what: &'static str,
    /// The account's name. A name without an account is not kept: people type passwords into that field.
    pub(crate) account: Option<String>,
    /// The address; `None` for the other addresses, once [`SUBJECTS_MAX`] subjects are counted.
    pub(crate) address: Option<IpAddr>,
}

/// Why a login was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The password or the link was wrong.
    Wrong,
    /// Too many others were wrong just before.
    Throttled,
}

#[derive(Debug, Clone, Copy)]
struct Count {
    since_ms: i64,
    wrong: u64,
    throttled: u64,
    /// The number of tries at which the next entry is written.
    next_entry: u64,
    /// The number of tries that the last entry has.
    noted: u64,
}

/// An entry to write.
#[derive(Debug)]
struct RefusalEntry {
    who: Who,
    told: Value,
}

impl Refused {
    /// Counts a refusal, and notes it in the audit log if its turn has come.
    pub(crate) fn count(&self, store: &Store, who: Who, why: Why, now_ms: i64) -> Result<(), StoreError> {
        match self.counted(who, why, now_ms) {
            Some(entry) => entry.note(store),
            None => Ok(()),
        }
    }

    /// Notes and forgets the counts that began an hour ago, or all of them if the console stops.
    pub(crate) fn settle(&self, store: &Store, now_ms: i64, stopping: bool) -> Result<(), StoreError> {
        let entries = self.settled(now_ms, stopping);
        entries.iter().try_for_each(|entry| entry.note(store))
    }

    fn counted(&self, who: Who, why: Why, now_ms: i64) -> Option<RefusalEntry> {
        let mut counted = self.counted.lock();
        let who = subject(&counted, who);
        let count = counted.entry(who.clone()).or_insert(Count {
            since_ms: now_ms,
            wrong: 0,
            throttled: 0,
            next_entry: 1,
            noted: 0,
        });
        match why {
            Why::Wrong => count.wrong += 1,
            Why::Throttled => count.throttled += 1,
        }
        if count.tries() < count.next_entry {
            return None;
        }
        count.next_entry = count.next_entry.saturating_mul(10);
        count.noted = count.tries();
        Some(RefusalEntry {
            told: count.told(&who),
            who,
        })
    }

    fn settled(&self, now_ms: i64, stopping: bool) -> Vec<RefusalEntry> {
        let mut entries = Vec::new();
        self.counted.lock().retain(|who, count| {
            let stays = !stopping && now_ms - count.since_ms < HOUR_MS;
            if !stays && count.tries() > count.noted {
                entries.push(RefusalEntry {
                    told: count.told(who),
                    who: who.clone(),
                });
            }
            stays
        });
        entries
    }
}

/// Returns the subject that a refusal is counted for. Whoever has many addresses cannot hide by them which
/// account is guessed.
fn subject(counted: &BTreeMap<Who, Count>, who: Who) -> Who {
    let has_room = |who: &Who, most| counted.contains_key(who) || counted.len() < most;
    if has_room(&who, SUBJECTS_MAX) {
        return who;
    }
    let of_account = Who { address: None, ..who };
    if has_room(&of_account, 2 * SUBJECTS_MAX) {
        return of_account;
    }
    Who {
        account: None,
        ..of_account
    }
}

impl Count {
    fn tries(&self) -> u64 {
        self.wrong + self.throttled
    }

    fn told(&self, who: &Who) -> Value {
        let address = who
            .address
            .map_or(OTHERS.to_owned(), |address| address.to_string());
        json!({
            "address": address, "since": iso(self.since_ms), "wrong": self.wrong, "throttled": self.throttled,
        })
    }
}

impl RefusalEntry {
    fn note(&self, store: &Store) -> Result<(), StoreError> {
        store.note(&AuditedChange {
            user: self.who.account.as_deref().unwrap_or(BY_UNKNOWN),
            what: self.who.what,
            target: "console",
            after: Some(&self.told),
            ..AuditedChange::default()
        })
    }
}

const HOUR_MS: i64 = 60 * 60 * 1000;
/// The largest number of subjects that are counted apart, and of accounts that are counted beyond them. With
/// it, the log gets at most some hundred entries an hour from guessers, whatever their number.
const SUBJECTS_MAX: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str, address: [u8; 4]) -> Who {
        Who {
            what: "failed login",
            account: Some(name.to_owned()),
            address: Some(address.into()),
        }
    }

    #[test]
    fn a_million_tries_are_seven_entries_and_their_last_count_comes_with_the_end_of_the_hour() {
        let refused = Refused::default();
        let mut noted = Vec::new();
        for n in 0..1_234_567_i64 {
            let why = if n < 5 { Why::Wrong } else { Why::Throttled };
            noted.extend(refused.counted(who("ada", [10, 0, 0, 1]), why, n));
        }
        let tries = |entry: &RefusalEntry| {
            entry.told["wrong"].as_u64().unwrap() + entry.told["throttled"].as_u64().unwrap()
        };
        let counts: Vec<u64> = noted.iter().map(tries).collect();
        assert_eq!(counts, [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000]);
        assert!(refused.settled(HOUR_MS - 1, false).is_empty());
        let last = refused.settled(HOUR_MS, false);
        assert_eq!(
            last[0].told,
            json!({"address": "10.0.0.1", "since": "1970-01-01T00:00:00Z", "wrong": 5, "throttled": 1_234_562})
        );
        assert!(refused.settled(2 * HOUR_MS, false).is_empty(), "it is noted once");
        // One try alone has its entry already.
        assert!(
            refused
                .counted(who("ada", [10, 0, 0, 1]), Why::Wrong, 0)
                .is_some()
        );
        assert!(refused.settled(0, true).is_empty());
    }

    #[test]
    fn tries_from_very_many_addresses_are_counted_together() {
        let refused = Refused::default();
        let mut entries = 0;
        for n in 0..100_000_u32 {
            let [_, high, middle, low] = n.to_be_bytes();
            let noted = refused.counted(who("ada", [10, high, middle, low]), Why::Wrong, 0);
            entries += usize::from(noted.is_some());
        }
        let rest = refused.settled(0, true);
        let tries: u64 = rest
            .iter()
            .map(|entry| entry.told["wrong"].as_u64().unwrap())
            .sum();
        assert_eq!(tries, 100_000 - SUBJECTS_MAX as u64);
        assert_eq!((rest.len(), &rest[0].told["address"]), (1, &json!("(others)")));
        assert!(entries + rest.len() < 100, "{entries}");
    }

    #[test]
    fn many_addresses_do_not_hide_which_account_is_guessed() {
        let refused = Refused::default();
        let nobody = |last| Who {
            account: None,
            ..who("", [10, 0, 0, last])
        };
        for last in 0..200 {
            refused.counted(nobody(last), Why::Wrong, 0);
        }
        let entry = refused.counted(who("ada", [10, 0, 0, 1]), Why::Wrong, 0).unwrap();
        assert_eq!(
            (entry.who.account.as_deref(), &entry.told["address"]),
            (Some("ada"), &json!("(others)"))
        );
        for n in 0..1_000 {
            refused.counted(who(&format!("user {n}"), [10, 0, 0, 1]), Why::Wrong, 0);
        }
        let subjects = refused.counted.lock().len();
        assert!(subjects <= 2 * SUBJECTS_MAX + 1, "{subjects}");
    }
}
