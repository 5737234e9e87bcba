//! The board: what is known about each cluster and gateway now, and their past. Polls write it, pages read
//! it.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde_json::{Value, json};

use crate::alerts::{Finding, Rule};
use crate::clock::now_ms;
use crate::series::{FINE_MS, Series, step_for};
use crate::store::{ClusterEntry, GatewayEntry};
use crate::traffic::Traffic;

/// A cluster or a gateway, by its id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Cluster(String),
    Gateway(String),
}

impl Key {
    /// Returns the key with this kind and id.
    pub(crate) fn of(kind: &str, id: &str) -> Option<Self> {
        match kind {
            "cluster" => Some(Self::Cluster(id.to_owned())),
            "gateway" => Some(Self::Gateway(id.to_owned())),
            _ => None,
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Cluster(_) => "cluster",
            Self::Gateway(_) => "gateway",
        }
    }

    pub(crate) fn id(&self) -> &str {
        let (Self::Cluster(id) | Self::Gateway(id)) = self;
        id
    }
}

/// How well something is. The order is that of the overview.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    Bad,
    Warn,
    Unknown,
    Ok,
}

/// The latest facts that polls found out.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Facts {
    pub(crate) docs_per_s: Option<f64>,
    pub(crate) nodes: Option<u64>,
    pub(crate) health: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) flavour: Option<String>,
    pub(crate) docs: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) requests_per_s: Option<f64>,
    pub(crate) errors_per_s: Option<f64>,
    pub(crate) queues: Option<Value>,
    /// What a gateway lets the console do, by the token that is registered.
    pub(crate) right: Option<String>,
}

/// The present and past of one cluster or gateway.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(crate) facts: Facts,
    /// The time of its last answer.
    pub(crate) seen_ms: Option<i64>,
    /// The reason why it did not answer the latest poll.
    pub(crate) failed: Option<(Severity, String)>,
    /// Other things that are not as they should be, by the question that found them.
    pub(crate) notes: BTreeMap<&'static str, Vec<(Severity, String)>>,
    pub(crate) series: BTreeMap<&'static str, Series>,
    /// The documents that a gateway delivers, by the cluster's name in its configuration.
    pub(crate) delivered: BTreeMap<String, Series>,
    /// How far a gateway's consumer groups are behind, by queue and group.
    pub(crate) groups: BTreeMap<(String, String), Behind>,
    /// The table of nodes as the page gets it, and the time when it was asked for.
    pub(crate) nodes: Option<(i64, Vec<Value>)>,
    /// A gateway's counters of the last seconds.
    pub(crate) traffic: Traffic,
    /// What meets a rule, as of the last answer about it; no entry before the first answer.
    pub(crate) findings: BTreeMap<Rule, Vec<Finding>>,
    /// The alerts about it, as the overview shows them.
    pub(crate) alerts: Vec<Value>,
}

/// How far a consumer group is behind, over time.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    pub(crate) lag_s: Series,
    pub(crate) pending: Series,
}

/// All clusters and gateways.
#[derive(Debug, Default)]
pub(crate) struct Board {
    watched: Mutex<BTreeMap<Key, Watched>>,
}

impl Board {
    /// Changes what is known about one target. Each change leaves the data consistent.
    pub(crate) fn change(&self, key: &Key, change: impl FnOnce(&mut Watched)) {
        if let Some(watched) = self.lock().get_mut(key) {
            change(watched);
        }
    }

    /// Keeps only these targets, which are registered, and forgets all others.
    pub(crate) fn only(&self, keys: &[Key]) {
        let mut watched = self.lock();
        watched.retain(|key, _| keys.contains(key));
        for key in keys {
            watched.entry(key.clone()).or_default();
        }
    }

    /// Forgets everything about a target, whose entry has been changed.
    pub(crate) fn forget(&self, key: &Key) {
        self.lock().insert(key.clone(), Watched::default());
    }

    /// Returns what meets a rule, for all targets.
    pub(crate) fn findings(&self) -> BTreeMap<(Rule, Key), Vec<Finding>> {
        let watched = self.lock();
        let all = watched.iter().flat_map(|(key, one)| {
            let found = one.findings.iter();
            found.map(move |(rule, found)| ((*rule, key.clone()), found.clone()))
        });
        all.collect()
    }

    /// Returns the overview, worst first.
    pub(crate) fn overview(&self, clusters: &[ClusterEntry], gateways: &[GatewayEntry]) -> Value {
        let (now, watched) = (now_ms(), self.lock());
        let nothing = Watched::default();
        let mut rows = Vec::new();
        for cluster in clusters {
            let one = watched.get(&Key::Cluster(cluster.id.clone())).unwrap_or(&nothing);
            let mut row = one.row(now, "cluster_docs_per_s");
            row["kind"] = json!("cluster");
            row["id"] = json!(cluster.id);
            row["name"] = json!(cluster.name);
            row["colour"] = json!(cluster.colour);
            row["read_only"] = json!(cluster.read_only);
            row["protected"] = json!(cluster.protected);
            rows.push((one.state(), cluster.name.clone(), row));
        }
        for gateway in gateways {
            let one = watched.get(&Key::Gateway(gateway.id.clone())).unwrap_or(&nothing);
            let mut row = one.row(now, "docs_per_s");
            row["kind"] = json!("gateway");
            row["id"] = json!(gateway.id);
            row["name"] = json!(gateway.name);
            row["colour"] = Value::Null;
            rows.push((one.state(), gateway.name.clone(), row));
        }
        rows.sort_by(|left, right| (left.0, &left.1).cmp(&(right.0, &right.1)));
        let rows: Vec<Value> = rows.into_iter().map(|(_, _, row)| row).collect();
        json!({"at_ms": now, "rows": rows})
    }

    /// Returns a cluster's series of the last minutes: what its gateways deliver to it, and what it indexes.
    pub(crate) fn series(&self, id: &str, gateways: &[GatewayEntry], minutes: u32) -> Value {
        let (step_ms, span_ms) = step_for(minutes);
        let to_ms = now_ms().div_euclid(step_ms) * step_ms;
        let from_ms = to_ms - span_ms;
        let watched = self.lock();
        let mut series = serde_json::Map::new();
        let one = watched.get(&Key::Cluster(id.to_owned()));
        for name in CLUSTER_SERIES {
            let values = one.and_then(|one| one.series.get(name)).map_or_else(
                || vec![None; usize::try_from(span_ms / step_ms).unwrap_or(0)],
                |series| series.values(step_ms, from_ms, to_ms),
            );
            series.insert(name.to_owned(), json!(values));
        }
        let mut delivered = vec![None; usize::try_from(span_ms / step_ms).unwrap_or(0)];
        for gateway in gateways {
            let Some(one) = watched.get(&Key::Gateway(gateway.id.clone())) else {
                continue;
            };
            let theirs = gateway
                .clusters
                .iter()
                .filter(|link| link.cluster_id.as_deref() == Some(id));
            for part in theirs.filter_map(|link| one.delivered.get(&link.name)) {
                let values = part.values(step_ms, from_ms, to_ms);
                for (sum, value) in delivered.iter_mut().zip(values) {
                    *sum = match (*sum, value) {
                        (Some(sum), Some(value)) => Some(sum + value),
                        (sum, value) => sum.or(value),
                    };
                }
            }
        }
        series.insert("gateway_docs_per_s".to_owned(), json!(delivered));
        json!({"step_ms": step_ms, "from_ms": from_ms, "series": series})
    }

    /// Returns how far the consumer groups of a gateway's queue were behind in the last minutes.
    pub(crate) fn lag(&self, id: &str, queue: &str, minutes: u32) -> Value {
        let (step_ms, span_ms) = step_for(minutes);
        let to_ms = now_ms().div_euclid(step_ms) * step_ms;
        let from_ms = to_ms - span_ms;
        let watched = self.lock();
        let one = watched.get(&Key::Gateway(id.to_owned()));
        let groups = one.into_iter().flat_map(|one| &one.groups);
        let groups = groups
            .filter(|((of, _), _)| of == queue)
            .map(|((_, group), behind)| {
                let values = |series: &Series| series.values(step_ms, from_ms, to_ms);
                let told = json!({"lag_s": values(&behind.lag_s), "pending": values(&behind.pending)});
                (group.clone(), told)
            });
        let groups: serde_json::Map<_, _> = groups.collect();
        json!({"step_ms": step_ms, "from_ms": from_ms, "groups": groups})
    }

    /// Returns a cluster's nodes, as of the time when they were asked for.
    pub(crate) fn nodes(&self, id: &str) -> Value {
        let watched = self.lock();
        match watched
            .get(&Key::Cluster(id.to_owned()))
            .and_then(|one| one.nodes.as_ref())
        {
            Some((at_ms, nodes)) => json!({"at_ms": at_ms, "nodes": nodes}),
            None => json!({"at_ms": null, "nodes": []}),
        }
    }

    /// Returns the entries that a gateway has reported last; `null` before that.
    pub(crate) fn entries(&self, id: &str) -> Value {
        let watched = self.lock();
        let one = watched.get(&Key::Gateway(id.to_owned()));
        one.map_or(Value::Null, |one| one.traffic.entries())
    }

    /// Returns a gateway's traffic of the last seconds, and over the last minutes.
    pub(crate) fn traffic(&self, id: &str, minutes: u32) -> Value {
        let (step_ms, span_ms) = step_for(minutes);
        let to_ms = now_ms().div_euclid(step_ms) * step_ms;
        let from_ms = to_ms - span_ms;
        let watched = self.lock();
        let one = watched.get(&Key::Gateway(id.to_owned()));
        let series = GATEWAY_SERIES.map(|(name, _)| {
            let values = one.and_then(|one| one.series.get(name)).map_or_else(
                || vec![None; usize::try_from(span_ms / step_ms).unwrap_or(0)],
                |series| series.values(step_ms, from_ms, to_ms),
            );
            (name.to_owned(), json!(values))
        });
        let series: serde_json::Map<_, _> = series.into_iter().collect();
        let now = one.map_or(Value::Null, |one| one.traffic.told());
        json!({"now": now, "step_ms": step_ms, "from_ms": from_ms, "series": series})
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Watched>> {
        self.watched.lock()
    }
}

impl Watched {
    fn state(&self) -> Severity {
        let notes = self.notes.values().flatten().map(|(state, _)| *state);
        let failed = self.failed.as_ref().map(|(state, _)| *state);
        let known = if self.seen_ms.is_some() {
            Severity::Ok
        } else {
            Severity::Unknown
        };
        notes.chain(failed).min().map_or(known, |worst| worst.min(known))
    }

    fn row(&self, now: i64, spark: &str) -> Value {
        let failed = self.failed.iter();
        let mut notes: Vec<&(Severity, String)> = failed.chain(self.notes.values().flatten()).collect();
        notes.sort_by_key(|(state, _)| *state);
        let why: Vec<&str> = notes.iter().map(|(_, words)| &**words).collect();
        let to_ms = now.div_euclid(FINE_MS) * FINE_MS;
        let spark = self.series.get(spark).map_or_else(
            || vec![None; SPARK_STEPS],
            |series| series.values(FINE_MS, to_ms - SPARK_STEPS as i64 * FINE_MS, to_ms),
        );
        let mut row = serde_json::to_value(&self.facts).unwrap_or_default();
        if self.failed.is_some() {
            // Rates describe the present: there are none while the target does not answer.
            for rate in ["docs_per_s", "requests_per_s", "errors_per_s"] {
                row[rate] = Value::Null;
            }
        }
        row["state"] = json!(self.state());
        row["alerts"] = json!(self.alerts);
        row["why"] = json!(why);
        row["seen_ms_ago"] = json!(self.seen_ms.map(|seen| (now - seen).max(0)));
        row["spark"] = json!(spark);
        row
    }
}

/// The series of a cluster that come from the cluster itself.
pub(crate) const CLUSTER_SERIES: [&str; 5] = [
    "cluster_docs_per_s",
    "index_latency_ms",
    "rejected_per_s",
    "heap_pct",
    "disk_pct",
];
/// The series of a gateway's page, each with the counter whose rate it is.
pub(crate) const GATEWAY_SERIES: [(&str, &str); 4] = [
    ("split_per_s", "docs"),
    ("queued_per_s", "docs_queued"),
    ("requests_per_s", "requests"),
    ("passed_per_s", "bulk_passed"),
];
const SPARK_STEPS: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_first_and_old_numbers_have_their_age_and_no_rate() {
        let board = Board::default();
        let clusters = ["a", "b", "c"].map(|id| ClusterEntry {
            id: id.to_owned(),
            name: id.to_owned(),
            ..ClusterEntry::default()
        });
        let key = |id: &str| Key::Cluster(id.to_owned());
        board.only(&[key("a"), key("b"), key("c")]);
        board.change(&key("a"), |one| {
            one.seen_ms = Some(now_ms());
            one.facts.docs_per_s = Some(5.0);
        });
        board.change(&key("c"), |one| {
            one.seen_ms = Some(now_ms() - 14_000);
            one.facts.docs_per_s = Some(7.0);
            one.facts.docs = Some(100);
            one.failed = Some((Severity::Bad, "connect failed".to_owned()));
        });
        let told = board.overview(&clusters, &[]);
        let names: Vec<&str> = told["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["c", "b", "a"]);
        let (worst, best) = (&told["rows"][0], &told["rows"][2]);
        assert_eq!(
            (worst["state"].as_str(), best["state"].as_str()),
            (Some("bad"), Some("ok"))
        );
        assert_eq!(worst["why"][0], "connect failed");
        assert!(worst["seen_ms_ago"].as_i64().unwrap() >= 14_000);
        assert_eq!(
            (&worst["docs_per_s"], &worst["docs"]),
            (&Value::Null, &json!(100))
        );
        assert_eq!(best["docs_per_s"], 5.0);
        assert_eq!(told["rows"][1]["state"], "unknown");
        assert_eq!(told["rows"][1]["spark"].as_array().unwrap().len(), 60);
    }
}
