//! Directing documents with neither id nor routing to shards in turn.
//!
//! The server would give each such document a random id, and so a bulk of them touches every shard. When
//! directed, a run of them goes to one shard: by an id made to hash to that shard ([`Direct::Mint`]), or by a
//! routing value that does ([`Direct::Route`]). Whose turn it is depends on other requests and on the state
//! of the nodes, so it comes from outside: from [`Directing`].

use crate::packed::{mints_in_order, stock_of_a_shard};
use crate::{Formula, IndexRoute, murmur};

/// The treatment of documents that have neither id nor routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Direct {
    /// They are not directed.
    #[default]
    Off,
    /// They get an id minted here that leads to the shard whose turn it is.
    Mint,
    /// They get a routing value that leads to the shard whose turn it is, and the server makes the id. This
    /// is impossible on data streams, which refuse a routing.
    Route,
}

/// Consecutive documents of one index that go to one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The shard.
    pub shard: u32,
    /// The most documents, at least 1.
    pub docs: u32,
    /// Bytes after which no more documents are added.
    pub bytes: u64,
}

/// The source of the shards whose turn it is. It is asked only for indices whose documents may be directed:
/// more than one shard, no required routing, not partitioned.
pub trait Directing: std::fmt::Debug {
    /// Returns how to treat this concrete index's documents that have neither id nor routing. The result must
    /// not change during a request, since the answer is made with it too.
    fn directs(&self, index: &str) -> Direct;

    /// Returns the next run; `None` when no shard can be preferred: the documents then are treated as if
    /// nobody directed.
    fn begin(&self, index: &IndexRoute) -> Option<Run>;

    /// Notes that `docs` documents of a run and `bytes` bytes of the body were given to the shard.
    fn end(&self, index: &IndexRoute, shard: u32, docs: u32, bytes: u64);
}

/// Returns the longest run for which ids are made at full speed, in documents. Longer runs cost more, but are
/// correct.
pub fn run_docs_max(shards: u32) -> u32 {
    if mints_in_order(shards) {
        u32::MAX
    } else {
        stock_of_a_shard(shards)
    }
}

/// Routing values by shard, of the kinds of indices that were directed last.
#[derive(Debug, Default)]
pub(crate) struct RoutingValues(Vec<(Formula, Box<[Value]>)>);

/// A routing value: at most seven letters and digits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Value {
    text: [u8; VALUE_LENGTH_MAX],
    length: u8,
}

const VALUE_LENGTH_MAX: usize = 7;

/// The most kinds of indices, by formula and number of shards, whose values are kept.
const KEPT_MAX: usize = 16;

// === impl RoutingValues ===

impl RoutingValues {
    /// Returns a short routing value that leads to `shard`, always the same for one kind of index.
    pub(crate) fn of(&mut self, route: &IndexRoute, shard: u32) -> Value {
        let known = |(formula, values): &(Formula, Box<[Value]>)| {
            *formula == route.formula && values.len() == route.shards() as usize
        };
        let at = self.0.iter().position(known).unwrap_or_else(|| {
            if self.0.len() == KEPT_MAX {
                self.0.remove(0);
            }
            self.0.push((route.formula, values(route)));
            self.0.len() - 1
        });
        self.0[at].1[shard as usize]
    }
}

// === impl Value ===

impl Value {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.length)]
    }

    /// Returns the `number`th text of letters and digits, shorter ones first.
    fn numbered(mut number: u64) -> Self {
        let mut value = Self::default();
        loop {
            value.text[usize::from(value.length)] = LETTERS[(number % LETTERS.len() as u64) as usize];
            value.length += 1;
            match (number / LETTERS.len() as u64).checked_sub(1) {
                Some(more) => number = more,
                None => return value,
            }
        }
    }
}

const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Returns, for each shard, the first value that leads to it.
fn values(route: &IndexRoute) -> Box<[Value]> {
    let mut values = vec![Value::default(); route.shards() as usize];
    let mut missing = values.len();
    // There are 36^7 values for at most 2^16 shards: the chance that a shard is missed is e^-1000000.
    for number in 0.. {
        if missing == 0 {
            break;
        }
        let value = Value::numbered(number);
        let shard = route.shard_of_hash(murmur::hash_ascii(value.as_bytes()));
        let place = &mut values[shard as usize];
        if place.length == 0 {
            *place = value;
            missing -= 1;
        }
    }
    values.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_has_a_short_routing_value_that_leads_to_it() {
        let formulas = |shards: u32| {
            let routing_num_shards = shards * (1024 / shards).max(1);
            [Formula::Classic { routing_num_shards }, Formula::Modulo]
        };
        let mut all = RoutingValues::default();
        for shards in [1, 2, 5, 6, 30, 300, 1024] {
            for formula in formulas(shards) {
                let route = IndexRoute::new("i", formula, vec![None; shards as usize]);
                for shard in 0..shards {
                    let value = all.of(&route, shard);
                    let text = std::str::from_utf8(value.as_bytes()).unwrap();
                    assert_eq!(route.shard("any id", Some(text)), shard);
                    assert!((1..=4).contains(&text.len()), "{text}");
                }
            }
        }
        assert!(all.0.len() <= KEPT_MAX);
    }

    #[test]
    fn values_are_numbered_without_a_gap_or_a_double() {
        let values: std::collections::HashSet<_> = (0..50_000)
            .map(|number| Value::numbered(number).as_bytes().to_vec())
            .collect();
        assert_eq!(values.len(), 50_000);
        assert_eq!(values.iter().filter(|value| value.len() == 1).count(), 36);
        assert_eq!(values.iter().filter(|value| value.len() == 2).count(), 36 * 36);
    }
}
