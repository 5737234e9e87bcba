//! The shards of a cluster that gateways write to most: two answers of a gateway's `/heat`, a few seconds
//! apart, make rates.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

/// A gateway's answer.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct HeatReply {
    counted_s: f64,
    clusters: BTreeMap<String, OfCluster>,
}

#[derive(Debug, Clone, Deserialize)]
struct OfCluster {
    nodes: Vec<NodeTold>,
    indices: BTreeMap<String, OfIndex>,
    others: Others,
}

#[derive(Debug, Clone, Deserialize)]
struct NodeTold {
    id: String,
    name: String,
}

/// Lists by the number of the shard.
#[derive(Debug, Clone, Deserialize)]
struct OfIndex {
    docs: Vec<u64>,
    bytes: Vec<u64>,
    nodes: Vec<Option<usize>>,
    /// Older gateways do not count these.
    #[serde(default)]
    rejected: Vec<u64>,
    #[serde(default)]
    answers: Vec<u64>,
    #[serde(default)]
    answer_us: Vec<u64>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Others {
    docs: u64,
}

/// A gateway's answers of the last seconds, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Samples(VecDeque<(Instant, HeatReply)>);

/// The sums over all gateways of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    shards: BTreeMap<(String, u32), Shard>,
    /// The nodes' names by their ids.
    nodes: BTreeMap<String, String>,
    others_per_s: f64,
    window_s: f64,
}

#[derive(Debug, Default)]
struct Shard {
    node: Option<String>,
    docs: u64,
    docs_per_s: f64,
    bytes_per_s: f64,
    rejected_per_s: f64,
    /// Answers since the first sample, and the time that they took.
    answers: u64,
    answer_us: u64,
}

impl Samples {
    /// Returns whether the newest answer is recent enough to be used again.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        let newest = self.0.back();
        newest.is_some_and(|(at, _)| now.duration_since(*at) < KEPT)
    }

    /// Returns whether the answers are recent enough for rates.
    pub(crate) fn is_recent(&self, now: Instant) -> bool {
        let newest = self.0.back();
        newest.is_some_and(|(at, _)| now.duration_since(*at) < WINDOW)
    }

    /// Adds an answer. A gateway may have begun to count anew; after a pause, rates would be means
    /// over a time that is long gone.
    pub(crate) fn take(&mut self, at: Instant, told: HeatReply) {
        let goes_on =
            |(last, before): &(Instant, HeatReply)| at - *last < WINDOW && told.counted_s >= before.counted_s;
        if !self.0.back().is_some_and(goes_on) {
            self.0.clear();
        }
        self.0.push_back((at, told));
        while self
            .0
            .front()
            .is_some_and(|(first, _)| at.duration_since(*first) > WINDOW)
        {
            self.0.pop_front();
        }
    }
}

impl Sums {
    /// Adds what a gateway sent to a cluster, by the cluster's name in its configuration.
    pub(crate) fn add(&mut self, samples: &Samples, cluster: &str) {
        let (Some((from, first)), Some((to, last))) = (samples.0.front(), samples.0.back()) else {
            return;
        };
        let Some(now) = last.clusters.get(cluster) else {
            return;
        };
        let before = first.clusters.get(cluster);
        let seconds = to.duration_since(*from).as_secs_f64();
        self.window_s = self.window_s.max(seconds);
        let rate = |now: u64, before: u64| match now.checked_sub(before) {
            Some(more) if seconds > 0.0 => more as f64 / seconds,
            _ => 0.0,
        };
        for node in &now.nodes {
            self.nodes.insert(node.key().to_owned(), node.name.clone());
        }
        for (name, index) in &now.indices {
            let old = before.and_then(|before| before.indices.get(name));
            for (number, docs) in index.docs.iter().enumerate() {
                let was = |list: fn(&OfIndex) -> &Vec<u64>| {
                    old.and_then(|old| list(old).get(number).copied()).unwrap_or(0)
                };
                let is = |list: fn(&OfIndex) -> &Vec<u64>| list(index).get(number).copied().unwrap_or(0);
                let rate_of = |list: fn(&OfIndex) -> &Vec<u64>| rate(is(list), was(list));
                let more = |list: fn(&OfIndex) -> &Vec<u64>| is(list).saturating_sub(was(list));
                let shard = self.shards.entry((name.clone(), number as u32)).or_default();
                shard.docs += docs;
                shard.docs_per_s += rate_of(|one| &one.docs);
                shard.bytes_per_s += rate_of(|one| &one.bytes);
                shard.rejected_per_s += rate_of(|one| &one.rejected);
                shard.answers += more(|one| &one.answers);
                shard.answer_us += more(|one| &one.answer_us);
                let node = index.nodes.get(number).copied().flatten();
                let node = node.and_then(|at| now.nodes.get(at));
                shard.node = node.map(|node| node.key().to_owned()).or(shard.node.take());
            }
        }
        let were = before.map_or(0, |before| before.others.docs);
        self.others_per_s += rate(now.others.docs, were);
    }

    /// Returns the nodes, and the shards that are written to most, the hottest first.
    pub(crate) fn told(self) -> Value {
        let nodes: Vec<&String> = self.nodes.keys().collect();
        let mut shards: Vec<(&(String, u32), &Shard)> = self.shards.iter().collect();
        shards.sort_by(|(_, left), (_, right)| {
            right
                .docs_per_s
                .total_cmp(&left.docs_per_s)
                .then(right.docs.cmp(&left.docs))
        });
        let left_out = shards.len().saturating_sub(SHARDS_MAX);
        shards.truncate(SHARDS_MAX);
        let shards: Vec<Value> = shards
            .into_iter()
            .map(|((index, number), shard)| {
                let node = shard.node.as_ref().and_then(|id| nodes.binary_search(&id).ok());
                let latency_ms =
                    (shard.answers > 0).then(|| shard.answer_us as f64 / shard.answers as f64 / 1e3);
                json!({
                    "index": index, "shard": number, "node": node, "docs": shard.docs,
                    "docs_per_s": shard.docs_per_s, "bytes_per_s": shard.bytes_per_s,
                    "rejected_per_s": shard.rejected_per_s, "latency_ms": latency_ms,
                })
            })
            .collect();
        let names: Vec<&String> = self.nodes.values().collect();
        json!({
            "window_s": self.window_s, "nodes": names, "shards": shards, "left_out": left_out,
            "others_per_s": self.others_per_s,
        })
    }
}

impl NodeTold {
    /// A node that was never discovered has no id.
    fn key(&self) -> &str {
        if self.id.is_empty() { &self.name } else { &self.id }
    }
}

/// How long an answer is used again.
const KEPT: Duration = Duration::from_millis(900);
/// Rates are means over this time.
const WINDOW: Duration = Duration::from_secs(10);
/// The largest number of shards that a page gets.
const SHARDS_MAX: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn told(counted_s: u64, docs: &[u64]) -> HeatReply {
        let bytes: Vec<u64> = docs.iter().map(|docs| docs * 100).collect();
        let nodes: Vec<usize> = (0..docs.len()).map(|shard| shard % 2).collect();
        let told = json!({"counted_s": counted_s, "clusters": {"c": {
            "nodes": [{"id": "y", "name": "node-2", "up": true}, {"id": "x", "name": "node-1", "up": true}],
            "indices": {"logs": {"docs": docs, "bytes": bytes, "nodes": nodes}},
            "others": {"docs": counted_s * 3, "bytes": 0},
        }}});
        serde_json::from_value(told).unwrap()
    }

    fn sums(all: &[&Samples]) -> Value {
        let mut sums = Sums::default();
        all.iter().for_each(|samples| sums.add(samples, "c"));
        sums.told()
    }

    #[test]
    fn rates_are_summed_over_gateways_and_the_hottest_shard_is_first() {
        let began = Instant::now();
        let at = |s: u64| began + Duration::from_secs(s);
        let (mut one, mut other) = (Samples::default(), Samples::default());
        one.take(at(0), told(10, &[100, 0, 50]));
        assert_eq!(
            sums(&[&one])["shards"][0]["docs_per_s"],
            0.0,
            "there is no rate yet"
        );
        one.take(at(5), told(15, &[200, 1000, 50]));
        other.take(at(0), told(1, &[0]));
        other.take(at(2), told(3, &[30]));
        let told = sums(&[&one, &other]);
        assert_eq!(told["nodes"], json!(["node-1", "node-2"]));
        let shards: Vec<(u64, f64, u64)> = told["shards"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| {
                (
                    one["shard"].as_u64().unwrap(),
                    one["docs_per_s"].as_f64().unwrap(),
                    one["node"].as_u64().unwrap(),
                )
            })
            .collect();
        assert_eq!(shards, [(1, 200.0, 0), (0, 35.0, 1), (2, 0.0, 1)]);
        assert_eq!(told["shards"][0]["bytes_per_s"], 20_000.0);
        assert_eq!(
            (&told["others_per_s"], &told["window_s"]),
            (&json!(6.0), &json!(5.0))
        );
    }

    #[test]
    fn rejections_are_rates_and_a_latency_is_the_mean_of_all_answers_of_all_gateways() {
        let began = Instant::now();
        let at = |s: u64| began + Duration::from_secs(s);
        let with = |counted_s: u64, rejected: u64, answers: u64, answer_us: u64| {
            let mut told = told(counted_s, &[counted_s * 10]);
            let index = told
                .clusters
                .get_mut("c")
                .unwrap()
                .indices
                .get_mut("logs")
                .unwrap();
            (index.rejected, index.answers, index.answer_us) =
                (vec![rejected], vec![answers], vec![answer_us]);
            told
        };
        let (mut one, mut other, mut old) = (Samples::default(), Samples::default(), Samples::default());
        one.take(at(0), with(1, 7, 10, 99_000));
        one.take(at(5), with(6, 107, 14, 139_000));
        assert_eq!(sums(&[&one])["shards"][0]["latency_ms"], 10.0);
        other.take(at(0), with(1, 0, 0, 0));
        other.take(at(5), with(6, 0, 4, 120_000));
        old.take(at(0), told(1, &[10]));
        old.take(at(5), told(6, &[20]));
        let told = sums(&[&one, &other, &old]);
        let shard = &told["shards"][0];
        assert_eq!(
            (&shard["rejected_per_s"], &shard["latency_ms"]),
            (&json!(20.0), &json!(20.0))
        );
        assert_eq!(sums(&[&old])["shards"][0]["latency_ms"], Value::Null);
    }

    #[test]
    fn a_restart_and_a_pause_begin_anew() {
        let began = Instant::now();
        let at = |s: u64| began + Duration::from_secs(s);
        let mut samples = Samples::default();
        samples.take(at(0), told(100, &[1000]));
        samples.take(at(1), told(1, &[500]));
        assert_eq!(sums(&[&samples])["shards"][0]["docs_per_s"], 0.0);
        samples.take(at(2), told(2, &[600]));
        assert_eq!(sums(&[&samples])["shards"][0]["docs_per_s"], 100.0);
        samples.take(at(60), told(60, &[9000]));
        assert_eq!(sums(&[&samples])["window_s"], 0.0);
        assert!(samples.is_fresh(at(60)) && !samples.is_fresh(at(61)));
    }
}
