//! Which parts may travel together because of the indices that their bulks name.
//!
//! A node answers a request when its last operation is done, and an operation may wait for long because of
//! its index alone: for the elected node to change the mapping, or for a shard that is about to start.
//! Therefore a bulk that names one index travels only with bulks that name the same one.
//!
//! A bulk that names several indices depends on all of them anyway. Such bulks travel together whichever
//! indices they name, as long as these are *settled*: requests that carried them have not been slow lately. A
//! bulk with an index that is not settled travels only with bulks that name the same indices. An index is not
//! settled at first, because new indices change their mappings; nor after a slow request, for a time that
//! doubles with each further one.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wire::shared;

/// The parts that a part may travel with, as far as indices decide.
#[derive(Clone, Debug)]
pub(crate) struct Company {
    /// Parts with the same key may travel together.
    pub(super) key: u64,
    /// The indices of the bulk, if they are several.
    pub(super) several: Option<Arc<[NameHash]>>,
}

/// A name of an index, as its hash; two names with one hash do no harm.
pub(super) type NameHash = u64;

/// The indices that bulks with several of them have named.
#[derive(Debug, Default)]
pub(super) struct Companies {
    hasher: RandomState,
    known: Mutex<HashMap<NameHash, Standing>>,
}

#[derive(Clone, Copy, Debug)]
struct Standing {
    /// When the index is settled.
    settled_at: Instant,
    /// How long it was to be unsettled after the last slow request.
    penalty: Duration,
}

// === impl Companies ===

impl Companies {
    /// Returns the company of a bulk at this filter that names these indices, each once.
    pub(super) fn of<'a>(
        &self,
        filter: &[u8],
        mut names: impl Iterator<Item = &'a str>,
        now: Instant,
    ) -> Company {
        // Another filter's cluster may have indices of the same names.
        let hash = |name| self.hasher.hash_one((filter, name));
        let first = names.next().map(hash);
        let Some(second) = names.next() else {
            let key = first.unwrap_or_default();
            return Company { key, several: None };
        };
        let rest = std::iter::once(second).chain(names);
        let mut hashes: Vec<NameHash> = first.into_iter().chain(rest.map(hash)).collect();
        hashes.sort_unstable();
        let key = match self.are_settled(&hashes, now) {
            true => MIXED,
            false => self.hasher.hash_one(&hashes),
        };
        let several = Some(hashes.into());
        Company { key, several }
    }

    fn are_settled(&self, hashes: &[NameHash], now: Instant) -> bool {
        shared::touches("indices that are settled");
        let mut known = self.known.lock();
        if known.len() + hashes.len() > KNOWN_MAX {
            known.retain(|_, standing| standing.settled_at > now);
        }
        let mut settled = true;
        for hash in hashes {
            let has_room = known.len() < KNOWN_MAX;
            settled &= match known.get(hash) {
                Some(standing) => standing.settled_at <= now,
                None => {
                    let new = Standing {
                        settled_at: now + NEW,
                        penalty: Duration::ZERO,
                    };
                    if has_room {
                        known.insert(*hash, new);
                    }
                    false
                }
            };
        }
        settled
    }

    /// Records that a request with a bulk that names these indices is slow.
    pub(super) fn slow(&self, hashes: &[NameHash], now: Instant) {
        shared::touches("indices that are settled");
        let mut known = self.known.lock();
        for hash in hashes {
            let Some(standing) = known.get_mut(hash) else {
                continue;
            };
            // Several requests may be slow for one reason.
            if standing.settled_at > now {
                standing.settled_at = standing.settled_at.max(now + NEW);
                continue;
            }
            let is_relapse = now < standing.settled_at + FORGOTTEN_AFTER;
            standing.penalty = match is_relapse {
                true => (standing.penalty * 2).clamp(PENALTY_MIN, PENALTY_MAX),
                false => PENALTY_MIN,
            };
            standing.settled_at = now + standing.penalty;
        }
    }
}

/// Returns how long a request may take before it is slow, where requests usually take `usual`; zero if that
/// is not known.
pub(super) fn slow_after(usual: Duration) -> Duration {
    match usual {
        Duration::ZERO => SLOW_UNKNOWN,
        usual => (usual * SLOW_TIMES).max(SLOW_MIN),
    }
}

/// The company of bulks with several settled indices.
const MIXED: u64 = 0;
/// How long a new index is not settled, and one that is not settled after a slow request, at least.
const NEW: Duration = Duration::from_secs(2);
const PENALTY_MIN: Duration = Duration::from_secs(30);
const PENALTY_MAX: Duration = Duration::from_secs(600);
/// The time after which a slow request no longer counts.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// A request is slow that takes this many times longer than usual.
const SLOW_TIMES: u32 = 4;
/// No request is slow that takes less.
const SLOW_MIN: Duration = Duration::from_secs(1);
/// A first request is slow that takes longer.
const SLOW_UNKNOWN: Duration = Duration::from_secs(5);
/// The most indices that are remembered; further ones are not settled.
const KNOWN_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(companies: &Companies, names: &[&str], now: Instant) -> u64 {
        companies.of(b"f", names.iter().copied(), now).key
    }

    fn after(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn bulks_with_one_index_travel_only_with_bulks_for_the_same() {
        let (companies, now) = (Companies::default(), Instant::now());
        let of = |names: &[&str]| key(&companies, names, now);
        assert_eq!(of(&["a"]), of(&["a"]));
        assert_ne!(of(&["a"]), of(&["b"]));
        assert_ne!(of(&["a"]), of(&["a", "b"]));
        assert!(companies.of(b"f", ["a"].into_iter(), now).several.is_none());
        let elsewhere = companies.of(b"g", ["a"].into_iter(), now);
        assert_ne!(of(&["a"]), elsewhere.key, "another cluster's index");
        let later = now + NEW;
        assert_ne!(key(&companies, &["a"], later), key(&companies, &["b"], later));
    }

    #[test]
    fn bulks_with_several_indices_travel_together_once_all_of_them_are_settled() {
        let (companies, now) = (Companies::default(), Instant::now());
        let of = |names: &[&str], at| key(&companies, names, at);
        assert_eq!(of(&["a", "b"], now), of(&["b", "a"], now), "the same indices");
        assert_ne!(of(&["a", "b"], now), of(&["b", "c"], now));
        let later = now + NEW;
        assert_eq!(of(&["a", "b"], later), MIXED);
        assert_eq!(of(&["b", "c"], later), MIXED);
        assert_ne!(of(&["a", "d"], later), MIXED, "one is new");
    }

    #[test]
    fn who_is_slow_travels_alone_for_a_time_that_doubles_and_is_forgotten() {
        let (companies, now) = (Companies::default(), Instant::now());
        let of = |at| companies.of(b"f", ["a", "b"].into_iter(), at);
        of(now);
        let mut at = now + NEW;
        for penalty in [30, 60, 120, 240, 480, 600, 600] {
            let names = of(at).several.expect("two");
            companies.slow(&names, at);
            companies.slow(&names, at + after(1));
            let end = at + after(penalty);
            assert_ne!(of(end - after(1)).key, MIXED, "{penalty}");
            assert_eq!(of(end).key, MIXED, "{penalty}");
            at = end;
        }
        at += FORGOTTEN_AFTER;
        let names = of(at).several.expect("two");
        companies.slow(&names, at);
        assert_eq!(of(at + PENALTY_MIN).key, MIXED);
    }

    #[test]
    fn a_new_index_is_not_settled_while_its_requests_are_slow() {
        let (companies, now) = (Companies::default(), Instant::now());
        let of = |at| companies.of(b"f", ["a", "b"].into_iter(), at);
        let names = of(now).several.expect("two");
        companies.slow(&names, now + after(1));
        assert_ne!(of(now + NEW).key, MIXED);
        assert_eq!(of(now + after(1) + NEW).key, MIXED);
    }

    #[test]
    fn no_more_indices_are_remembered_than_allowed_and_the_rest_is_not_settled() {
        let (companies, now) = (Companies::default(), Instant::now());
        let all: Vec<String> = (0..KNOWN_MAX + 10).map(|n| n.to_string()).collect();
        let names = || all.iter().map(String::as_str);
        companies.of(b"f", names(), now);
        assert_eq!(companies.known.lock().len(), KNOWN_MAX);
        assert_ne!(companies.of(b"f", names().skip(KNOWN_MAX), now + NEW).key, MIXED);
        assert!(companies.known.lock().len() < 100, "settled ones make room");
    }

    #[test]
    fn slow_is_what_takes_a_multiple_of_the_usual_time() {
        assert_eq!(slow_after(Duration::ZERO), SLOW_UNKNOWN);
        assert_eq!(slow_after(Duration::from_millis(3)), SLOW_MIN);
        assert_eq!(slow_after(Duration::from_secs(1)), Duration::from_secs(4));
    }
}
