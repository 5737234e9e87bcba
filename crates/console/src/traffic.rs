//! A gateway's counters over the last seconds, and the rates that they make.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

/// A gateway's latest counters, and its view of its clusters.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// `/stats` without its queues, oldest first.
    samples: VecDeque<(Instant, i64, Value)>,
    /// The part of `/elasticsearch` that the page shows, and the time of the answer.
    clusters: Option<(i64, Value)>,
}

impl Traffic {
    /// Adds a sample of `/stats`. A gateway that was restarted counts from zero, so older samples go.
    pub(crate) fn take(&mut self, at: Instant, at_ms: i64, told: &Value) {
        // Queues may be many, and have pages of their own.
        let parts = told
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| *name != "queues");
        let told = Value::Object(parts.map(|(name, part)| (name.clone(), part.clone())).collect());
        let uptime = |sample: &Value| sample["uptime_s"].as_u64();
        if self
            .samples
            .back()
            .is_some_and(|(_, _, last)| uptime(&told) < uptime(last))
        {
            self.samples.clear();
        }
        self.samples.push_back((at, at_ms, told));
        while self.samples.len() > SAMPLES_MAX
            || self
                .samples
                .front()
                .is_some_and(|(first, ..)| at.duration_since(*first) > WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// Forgets the samples: the gateway does not answer, and rates across the gap would be wrong.
    pub(crate) fn interrupt(&mut self) {
        self.samples.drain(..self.samples.len().saturating_sub(1));
    }

    /// Keeps the gateway's view of its clusters.
    pub(crate) fn take_clusters(&mut self, at_ms: i64, told: &Value) {
        self.clusters = Some((at_ms, Value::Object(shown(told))));
    }

    /// Returns the entries as they were reported last; `null` before the first sample.
    pub(crate) fn entries(&self) -> Value {
        let last = self.samples.back();
        last.map_or(Value::Null, |(_, _, last)| last["entries"].clone())
    }

    /// Returns the totals and the rates over the last seconds; `null` before the first sample.
    pub(crate) fn told(&self) -> Value {
        let (Some((from, _, first)), Some((to, at_ms, last))) = (self.samples.front(), self.samples.back())
        else {
            return Value::Null;
        };
        let seconds = to.duration_since(*from).as_secs_f64();
        let rate = |now: &Value, before: &Value| -> Value {
            let counted = now.as_u64().zip(before.as_u64().or(Some(0)));
            let counted = counted.and_then(|(now, before)| now.checked_sub(before));
            json!(
                counted
                    .filter(|_| seconds > 0.0)
                    .map(|counted| counted as f64 / seconds)
            )
        };
        let counters = counters(&last["gateway"], |name| {
            rate(&last["gateway"][name], &first["gateway"][name])
        });
        let passed = passed(&last["gateway"], &first["gateway"], &rate);
        let mut entries = Map::new();
        for (name, entry) in last["entries"].as_object().into_iter().flatten() {
            let mut told = entry.clone();
            for counter in ["requests", "refused", "accepted"] {
                told[format!("{counter}_per_s")] = rate(&entry[counter], &first["entries"][name][counter]);
            }
            entries.insert(name.clone(), told);
        }
        let flows = flows(&last["flows"], &first["flows"], &rate);
        let clusters = self.clusters.as_ref();
        let gain = gain(&counters, clusters.map(|(_, told)| told));
        json!({
            "gain": gain, "at_ms": at_ms, "window_s": seconds, "uptime_s": last["uptime_s"], "version": last["version"],
            "counters": counters, "passed": passed, "entries": entries, "flows": flows,
            "memory": last["memory"], "delivery_memory": last["delivery_memory"],
            "clusters_at_ms": clusters.map(|(at_ms, _)| at_ms), "clusters": clusters.map(|(_, told)| told),
        })
    }
}

/// Returns each flow's counters with their rates, and why it passed requests on whole.
fn flows(last: &Value, first: &Value, rate: &impl Fn(&Value, &Value) -> Value) -> Map<String, Value> {
    let flows = last.as_object().into_iter().flatten();
    flows
        .map(|(name, flow)| {
            // A flow that is new counts from zero.
            let before = &first[name];
            let counters = counters(flow, |counter| rate(&flow[counter], &before[counter]));
            let told = json!({"counters": counters, "passed": passed(flow, before, rate)});
            (name.clone(), told)
        })
        .collect()
}

/// Returns why bulks and single writes went on whole, with the rates, the most frequent reason first.
fn passed(last: &Value, first: &Value, rate: &impl Fn(&Value, &Value) -> Value) -> Vec<Value> {
    let mut passed = Vec::new();
    for (kind, list) in [("bulk", "passed_because"), ("single", "single_passed_because")] {
        for (why, total) in last[list].as_object().into_iter().flatten() {
            let per_s = rate(total, &first[list][why]);
            let meaning = (kind == "bulk").then(|| meaning(why)).flatten();
            passed.push(json!({
                "kind": kind, "why": why, "meaning": meaning, "total": total, "per_s": per_s,
            }));
        }
    }
    passed.sort_by_key(|one| std::cmp::Reverse(one["total"].as_u64()));
    passed
}

/// Returns an estimate of what a gateway saves its clusters. A document that goes straight to the node of its
/// primary saves the hop that it would make from a node that was chosen in turn, which is the right one of n
/// nodes in one of n cases. Of several clusters, the smallest counts. Parts of bulks that share a request
/// save all requests but that one. `null` where the counters do not tell.
fn gain(counters: &Map<String, Value>, clusters: Option<&Value>) -> Value {
    let per_s = |name: &str| counters.get(name)?["per_s"].as_f64();
    let clusters = clusters.and_then(Value::as_object).into_iter().flatten();
    let nodes = clusters.filter_map(|(_, cluster)| Some(cluster["nodes"].as_array()?.len()));
    let nodes = nodes.filter(|nodes| *nodes > 0).min();
    let hops = per_s("docs_direct")
        .zip(nodes)
        .map(|(docs, nodes)| docs * (1.0 - 1.0 / nodes as f64));
    let requests = per_s("combined_parts")
        .zip(per_s("combined_requests"))
        .map(|(parts, requests)| (parts - requests).max(0.0));
    json!({
        "nodes": nodes, "hops_per_s": hops, "requests_per_s": requests,
        "cores": requests.map(|requests| requests * REQUEST_CPU_MS / 1_000.0), "request_cpu_ms": REQUEST_CPU_MS,
    })
}

/// Returns the meaning of a reason that a plan finds. Other reasons are the gateway's own.
fn meaning(why: &str) -> Option<&'static str> {
    let found = bulk::Why::ALL.into_iter().find(|known| known.as_str() == why);
    found.map(bulk::Why::meaning)
}

/// Returns each counter with its rate.
fn counters(told: &Value, rate: impl Fn(&str) -> Value) -> Map<String, Value> {
    let numbers = told
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| value.is_u64());
    numbers
        .map(|(name, total)| (name.clone(), json!({"total": total, "per_s": rate(name)})))
        .collect()
}

/// Returns what the page shows of a gateway's clusters: not the tables of indices, which may be long.
fn shown(told: &Value) -> Map<String, Value> {
    let clusters = told.as_object().into_iter().flatten();
    clusters
        .map(|(name, cluster)| {
            let keys = [
                "state",
                "polled_ago_ms",
                "versions",
                "flavour",
                "warnings",
                "nodes",
            ];
            let values = keys.map(|key| (key.to_owned(), cluster[key].clone()));
            let mut kept: Map<_, _> = values.into_iter().collect();
            kept.insert("hit_rate".to_owned(), cluster["predictions"]["hit_rate"].clone());
            kept.insert(
                "indices_split".to_owned(),
                cluster["routes"]["indices_split"].clone(),
            );
            kept.insert(
                "indices_passed".to_owned(),
                cluster["routes"]["indices_passed"].clone(),
            );
            (name.clone(), Value::Object(kept))
        })
        .collect()
}

/// Rates are means over this time, so that a single second does not make them jump.
const WINDOW: Duration = Duration::from_secs(10);
const SAMPLES_MAX: usize = 32;

/// The CPU time of the nodes that a request saves, as `docs/proof.md` has measured it (64 clients × 10
/// documents with ids, 6 shards, 3 nodes): 254 s for a million documents, whose 295,000 parts went in 7,000
/// requests. Larger requests save more.
const REQUEST_CPU_MS: f64 = 0.88;

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(uptime: u64, docs: u64, passed: &Value) -> Value {
        json!({
            "uptime_s": uptime, "version": "1", "queues": {"q": {}}, "memory": {"buffers_bytes": 5},
            "gateway": {"docs": docs, "direct_share": 0.5, "passed_because": passed, "single_passed_because": {}},
            "entries": {"e": {"requests": docs / 10, "in_flight": 3}},
            "flows": if uptime < 5 { json!({"f": {"requests": docs / 20}}) } else {
                json!({
                    "f": {"requests": docs / 20, "docs": docs / 2, "passed_because": {"empty": uptime}},
                    "new": {"requests": 30},
                })
            },
        })
    }

    #[test]
    fn rates_are_over_ten_seconds_and_begin_anew_after_a_restart() {
        let mut traffic = Traffic::default();
        assert_eq!(traffic.told(), Value::Null);
        let began = Instant::now();
        let at = |s: u64| began + Duration::from_secs(s);
        traffic.take(at(0), 0, &stats(0, 1000, &json!({})));
        assert_eq!(
            traffic.told()["counters"]["docs"],
            json!({"total": 1000, "per_s": null})
        );
        for s in 1..=20 {
            traffic.take(
                at(s),
                0,
                &stats(s, 1000 + s * 100, &json!({"empty": s, "no_id": 50})),
            );
        }
        let told = traffic.told();
        assert_eq!(told["counters"]["docs"], json!({"total": 3000, "per_s": 100.0}));
        assert_eq!(told["counters"].get("direct_share"), None, "it is no counter");
        assert_eq!(
            told["passed"],
            json!([
                {"kind": "bulk", "why": "no_id", "meaning": "An update or a delete has no `_id`.",
                    "total": 50, "per_s": 0.0},
                {"kind": "bulk", "why": "empty", "meaning": "The body has no operation.", "total": 20,
                    "per_s": 1.0},
            ])
        );
        let entry = &told["entries"]["e"];
        assert_eq!(
            (&entry["requests_per_s"], &entry["in_flight"]),
            (&json!(10.0), &json!(3))
        );
        let flow = &told["flows"]["f"];
        assert_eq!(
            flow["counters"],
            json!({"requests": {"total": 150, "per_s": 5.0}, "docs": {"total": 1500, "per_s": 50.0}})
        );
        assert_eq!(
            flow["passed"],
            json!([{"kind": "bulk", "why": "empty", "meaning": "The body has no operation.", "total": 20,
                "per_s": 1.0}])
        );
        assert_eq!(told["flows"]["new"]["counters"]["requests"]["total"], 30);
        traffic.take(at(21), 0, &stats(1, 40, &json!({})));
        assert_eq!(
            traffic.told()["counters"]["docs"],
            json!({"total": 40, "per_s": null})
        );
    }

    #[test]
    fn the_gain_is_estimated_from_what_is_counted_and_unknown_without_it() {
        let mut traffic = Traffic::default();
        let began = Instant::now();
        let at = |s: u64| began + Duration::from_secs(s);
        let stats = |s: u64| {
            json!({
                "uptime_s": s, "gateway": {
                    "docs_direct": s * 30_000, "combined_parts": s * 240, "combined_requests": s * 60,
                },
            })
        };
        traffic.take(at(0), 0, &stats(0));
        traffic.take(at(5), 0, &stats(5));
        assert_eq!(
            traffic.told()["gain"]["hops_per_s"],
            Value::Null,
            "of how many nodes?"
        );
        let nodes = |count: usize| json!({"nodes": vec![json!({}); count]});
        traffic.take_clusters(0, &json!({"a": nodes(3), "b": nodes(12), "away": nodes(0)}));
        let gain = &traffic.told()["gain"];
        assert_eq!(gain["nodes"], 3);
        assert!(
            (gain["hops_per_s"].as_f64().unwrap() - 20_000.0).abs() < 1e-6,
            "{gain}"
        );
        assert_eq!(gain["requests_per_s"], 180.0);
        assert_eq!(gain["cores"], 180.0 * REQUEST_CPU_MS / 1_000.0);
    }

    #[test]
    fn no_rate_is_taken_across_silence() {
        let mut traffic = Traffic::default();
        let began = Instant::now();
        for s in 0..3 {
            traffic.take(began + Duration::from_secs(s), 0, &stats(s, s * 100, &json!({})));
        }
        traffic.interrupt();
        assert_eq!(
            traffic.told()["counters"]["docs"],
            json!({"total": 200, "per_s": null})
        );
        traffic.take_clusters(
            7,
            &json!({"c": {"state": "watching", "routes": {"indices_split": 2}, "nodes": []}}),
        );
        let told = traffic.told();
        assert_eq!(
            (&told["clusters_at_ms"], &told["clusters"]["c"]["indices_split"]),
            (&json!(7), &json!(2))
        );
    }
}
