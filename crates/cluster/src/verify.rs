//! Checking predictions against the cluster's own answers: requests to `_search_shards`, and the score.

use std::collections::{BTreeMap, BTreeSet};

use bulk::IndexRoute;
use serde::{Deserialize, Serialize};

use crate::state::path_segment;

/// The results of checking predictions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PredictionsStatus {
    /// Predictions compared with the cluster's own answer since the cluster was (re)learnt.
    pub checked: u64,
    /// Predictions that agreed.
    pub right: u64,
    /// `right / checked`; `null` before the first check.
    pub hit_rate: Option<f64>,
    /// Indices whose predictions were checked.
    pub indices: BTreeMap<String, IndexPredictions>,
}

/// The results of checking one index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IndexPredictions {
    /// Predictions that were compared.
    pub checked: u64,
    /// Predictions that agreed.
    pub right: u64,
    /// Whether a prediction failed: the index then passes through until its metadata changes.
    pub failed: bool,
}

/// A prediction for live traffic.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) index: String,
    pub(crate) routing: String,
    pub(crate) shard: u32,
}

/// A request that only one formula in many answers correctly: made-up routing values that should all lead to
/// the same shards (one shard, or `routing_partition_size` shards for partitioned indices).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub(crate) target: String,
    pub(crate) expected: BTreeSet<u32>,
}

/// The reply to `_search_shards`, filtered.
#[derive(Debug, Deserialize)]
pub(crate) struct SearchShards {
    #[serde(default)]
    shards: Vec<Vec<ShardNumber>>,
}

#[derive(Debug, Deserialize)]
struct ShardNumber {
    shard: u32,
}

/// The score since the cluster was (re)learnt.
#[derive(Debug, Default)]
pub(crate) struct Score {
    checked: u64,
    right: u64,
    indices: BTreeMap<String, IndexPredictions>,
}

impl Challenge {
    /// Makes a challenge for an index; `None` for an index of one shard, where there is nothing to predict.
    ///
    /// A wrong formula has a chance of 1 in shards^7 to pass.
    pub(crate) fn for_index(route: &IndexRoute) -> Option<Self> {
        if route.shards() < 2 {
            return None;
        }
        let expected = shards_of(route, "t0");
        let values: Vec<String> = (0..CANDIDATES_MAX)
            .map(|i| format!("t{i}"))
            .filter(|value| shards_of(route, value) == expected)
            .take(VALUES)
            .collect();
        Some(Self {
            target: target(&route.name, &values.join(",")),
            expected,
        })
    }

    /// Returns the request for one routing value of live traffic; `None` for values that the URL cannot carry
    /// as one value.
    pub(crate) fn for_sample(sample: &Sample) -> Option<String> {
        // The server splits the parameter at commas; an empty value means none.
        let fits = !sample.routing.contains(',') && !sample.routing.is_empty() && sample.routing.len() <= 512;
        fits.then(|| target(&sample.index, &path_segment(&sample.routing)))
    }
}

/// Returns all shards that documents with this routing value may be in.
pub(crate) fn shards_of(route: &IndexRoute, routing: &str) -> BTreeSet<u32> {
    let hash = bulk::hash(routing);
    (0..route.partition_size.max(1))
        .map(|offset| route.shard_of_hash(hash.wrapping_add(offset as i32)))
        .collect()
}

impl SearchShards {
    /// Returns the shard numbers; `None` when a shard has no active copy and so no number in the reply.
    pub(crate) fn numbers(&self) -> Option<BTreeSet<u32>> {
        let numbers: Option<BTreeSet<u32>> = self
            .shards
            .iter()
            .map(|copies| Some(copies.first()?.shard))
            .collect();
        numbers.filter(|numbers| !numbers.is_empty())
    }
}

impl Score {
    pub(crate) fn count(&mut self, index: &str, right: bool) {
        let entry = self.indices.entry(index.to_owned()).or_default();
        for (checked, hits) in [
            (&mut self.checked, &mut self.right),
            (&mut entry.checked, &mut entry.right),
        ] {
            *checked += 1;
            *hits += u64::from(right);
        }
    }

    /// Marks an index as failed, or as having another chance.
    pub(crate) fn mark(&mut self, index: &str, failed: bool) {
        self.indices.entry(index.to_owned()).or_default().failed = failed;
    }

    /// Drops indices that no longer exist.
    pub(crate) fn keep(&mut self, exists: impl Fn(&str) -> bool) {
        self.indices.retain(|name, _| exists(name));
    }

    pub(crate) fn status(&self) -> PredictionsStatus {
        PredictionsStatus {
            checked: self.checked,
            right: self.right,
            hit_rate: (self.checked > 0).then(|| self.right as f64 / self.checked as f64),
            indices: self.indices.clone(),
        }
    }
}

fn target(index: &str, routing: &str) -> String {
    format!(
        "/{}/_search_shards?routing={routing}&filter_path=shards.shard",
        path_segment(index)
    )
}

const VALUES: usize = 8;
const CANDIDATES_MAX: u32 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use bulk::Formula;

    fn route(formula: Formula, shards: usize) -> IndexRoute {
        IndexRoute::new("logs é", formula, vec![None; shards])
    }

    #[test]
    fn a_challenge_tells_the_formulas_apart() {
        let classic = route(
            Formula::Classic {
                routing_num_shards: 768,
            },
            6,
        );
        let challenge = Challenge::for_index(&classic).unwrap();
        assert_eq!(challenge.expected.len(), 1);
        assert!(
            challenge
                .target
                .starts_with("/logs%20%C3%A9/_search_shards?routing=t0,t"),
            "{}",
            challenge.target
        );
        let values = challenge.target.split(['=', '&']).nth(1).unwrap();
        assert_eq!(values.split(',').count(), VALUES);
        let modulo = route(Formula::Modulo, 6);
        let answer: BTreeSet<u32> = values.split(',').flat_map(|v| shards_of(&modulo, v)).collect();
        assert_ne!(answer, challenge.expected);
    }

    #[test]
    fn one_shard_needs_no_check_and_a_partitioned_index_is_asked_for_all_its_shards() {
        assert_eq!(Challenge::for_index(&route(Formula::Modulo, 1)), None);
        let partitioned = IndexRoute {
            partition_size: 3,
            ..route(Formula::Modulo, 5)
        };
        assert_eq!(Challenge::for_index(&partitioned).unwrap().expected.len(), 3);
    }

    #[test]
    fn a_shard_without_a_copy_makes_the_answer_inconclusive() {
        let read = |text: &str| serde_json::from_str::<SearchShards>(text).unwrap().numbers();
        assert_eq!(
            read(r#"{"shards":[[{"shard":2},{"shard":2}],[{"shard":4}]]}"#),
            Some(BTreeSet::from([2, 4]))
        );
        assert_eq!(read(r#"{"shards":[[],[{"shard":4}]]}"#), None);
        assert_eq!(read("{}"), None);
    }

    #[test]
    fn the_score_is_kept_by_index_and_overall() {
        let mut score = Score::default();
        score.count("a", true);
        score.count("a", true);
        score.count("b", false);
        score.mark("b", true);
        let status = score.status();
        assert_eq!((status.checked, status.right), (3, 2));
        assert!(status.indices["b"].failed && !status.indices["a"].failed);
        score.keep(|name| name == "a");
        assert_eq!(score.status().indices.len(), 1);
    }
}
