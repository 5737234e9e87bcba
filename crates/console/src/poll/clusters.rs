//! The questions to a cluster: what it indexes every two seconds, its health every five, its nodes every
//! ten, and its contents every thirty. Asked twice as often, they cost each of its nodes more than 0.2 % of a
//! core.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::pace::{Pace, spread};
use super::{Polls, QUESTION_WITHIN, whole};
use crate::alerts::Rule;
use crate::board::{Key, Severity};
use crate::clock::now_ms;
use crate::outbound::AskError;
use crate::store::ClusterEntry;
use crate::target::Target;

/// A counter at a point in time.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Instant,
    at_ms: i64,
    indexed: u64,
    millis: u64,
}

/// What two marks say about the time between them.
#[derive(Debug, PartialEq)]
struct IndexingRate {
    docs_per_s: f64,
    latency_ms: Option<f64>,
}

/// A node's counters at a point in time.
#[derive(Debug, Clone, Copy)]
struct NodeMark {
    at: Instant,
    indexed: u64,
    rejected: u64,
}

struct ClusterPoll<'a> {
    polls: &'a Polls,
    key: Key,
    target: Arc<Target>,
    mark: Option<Mark>,
    nodes: HashMap<String, NodeMark>,
    nodes_at_ms: Option<i64>,
}

/// Polls a cluster until the future is dropped.
pub(super) async fn poll(polls: &Polls, entry: &ClusterEntry) {
    let key = Key::Cluster(entry.id.clone());
    let target = match Target::of_cluster(&polls.store, entry) {
        Ok(target) => Arc::new(target),
        Err(error) => return polls.cannot(&key, &error),
    };
    let mut poll = ClusterPoll {
        polls,
        key,
        target,
        mark: None,
        nodes: HashMap::new(),
        nodes_at_ms: None,
    };
    // Clusters are asked at different moments, or the console would work by fits and starts.
    let beat = Instant::now() + spread(&entry.id, Duration::from_secs(1));
    let every = |seconds| {
        Pace::new(Duration::from_secs(seconds))
            .elsewhere(ELSEWHERE)
            .on(beat)
    };
    let mut indexing = every(2);
    let mut others = [
        (Question::Version, every(60)),
        (Question::Health, every(5)),
        (Question::Nodes, every(10)),
        (Question::Holds, every(30)),
    ];
    loop {
        let gaze = polls.attention.gaze(&entry.id);
        indexing.attend(gaze);
        others.iter_mut().for_each(|(_, pace)| pace.attend(gaze));
        let began = Instant::now();
        if !indexing.is_due(began) {
            polls.attention.rest(indexing.due()).await;
            continue;
        }
        let went = poll.indexing().await;
        polls.heard(&poll.key, went.as_ref().copied());
        match went {
            Ok(()) => indexing.answered(began),
            Err(_) => {
                poll.mark = None;
                indexing.failed();
            }
        }
        for (question, pace) in &mut others {
            let began = Instant::now();
            // The other questions wait while the main one fails.
            if !indexing.is_failing() && pace.is_due(began) {
                match poll.ask(*question).await {
                    Ok(notes) => {
                        pace.answered(began);
                        polls.noted(&poll.key, question.name(), notes);
                    }
                    Err(error) => {
                        pace.failed();
                        let note = (Severity::Warn, error.to_string());
                        polls.noted(&poll.key, question.name(), vec![note]);
                    }
                }
            }
        }
    }
}

/// The factor by which pauses are longer while no page of the cluster is open.
const ELSEWHERE: u32 = 2;

#[derive(Debug, Clone, Copy)]
enum Question {
    Version,
    Health,
    Nodes,
    Holds,
}

impl Question {
    fn name(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Health => "health",
            Self::Nodes => "nodes",
            Self::Holds => "holds",
        }
    }
}

// === impl Mark ===

impl Mark {
    /// Reads the primaries' counters. None if shards did not answer, as while a node is leaving: the sum is
    /// less by what they have counted, and once they answer again it would seem to be written at once.
    fn of(told: &Value, at: Instant, at_ms: i64) -> Option<Self> {
        if told["_shards"]["failed"]
            .as_u64()
            .is_some_and(|failed| failed > 0)
        {
            return None;
        }
        let indexing = &told["_all"]["primaries"]["indexing"];
        // A cluster without indices reports no counter.
        let count = |name: &str| indexing[name].as_u64().unwrap_or(0);
        Some(Self {
            at,
            at_ms,
            indexed: count("index_total"),
            millis: count("index_time_in_millis"),
        })
    }

    /// Returns what was indexed since an earlier mark. The counter of a deleted index is gone, so the sum may
    /// fall; then there is no rate.
    fn since(&self, last: &Self) -> Option<IndexingRate> {
        let indexed = self.indexed.checked_sub(last.indexed)?;
        let took = self.millis.checked_sub(last.millis).filter(|_| indexed > 0);
        Some(IndexingRate {
            docs_per_s: indexed as f64 / self.at.duration_since(last.at).as_secs_f64(),
            latency_ms: took.map(|took| took as f64 / indexed as f64),
        })
    }
}

impl ClusterPoll<'_> {
    async fn get(&self, path: &str) -> Result<Value, AskError> {
        self.polls
            .outbound
            .poll(&self.target, path, QUESTION_WITHIN)
            .await
    }

    /// Measures documents per second with the primaries' counter.
    async fn indexing(&mut self) -> Result<(), AskError> {
        let told = self.get(INDEXING).await?;
        let mark = Mark::of(&told, Instant::now(), now_ms());
        let last = std::mem::replace(&mut self.mark, mark);
        let Some((since_ms, at_ms, rate)) = last.zip(mark).and_then(|(last, mark)| {
            let rate = mark.since(&last)?;
            Some((last.at_ms, mark.at_ms, rate))
        }) else {
            self.polls
                .board
                .change(&self.key, |one| one.facts.docs_per_s = None);
            return Ok(());
        };
        self.polls.board.change(&self.key, |one| {
            one.facts.docs_per_s = Some(rate.docs_per_s);
            let mut put = |name, value| one.series.entry(name).or_default().put(since_ms, at_ms, value);
            put("cluster_docs_per_s", rate.docs_per_s);
            if let Some(latency_ms) = rate.latency_ms {
                put("index_latency_ms", latency_ms);
            }
        });
        Ok(())
    }

    async fn ask(&mut self, question: Question) -> Result<Vec<(Severity, String)>, AskError> {
        match question {
            Question::Version => self.version().await,
            Question::Health => self.health().await,
            Question::Nodes => self.nodes().await,
            Question::Holds => self.holds().await,
        }
    }

    async fn version(&self) -> Result<Vec<(Severity, String)>, AskError> {
        let told = self.get("/").await?;
        let version = told["version"]["number"].as_str().map(str::to_owned);
        let flavour = flavour_of(&told);
        self.polls.board.change(&self.key, |one| {
            one.facts.version = version;
            one.facts.flavour = Some(flavour.to_owned());
        });
        Ok(Vec::new())
    }

    async fn health(&self) -> Result<Vec<(Severity, String)>, AskError> {
        let told = self.get(HEALTH).await?;
        let health = told["status"].as_str().map(str::to_owned);
        let unassigned = told["unassigned_shards"].as_u64().unwrap_or(0);
        let nodes = told["number_of_nodes"].as_u64();
        let words = |colour: &str| format!("health is {colour}: {unassigned} shards are not assigned");
        let notes = match health.as_deref() {
            Some("red") => vec![(Severity::Bad, words("red"))],
            Some("yellow") => vec![(Severity::Warn, words("yellow"))],
            Some("green") => Vec::new(),
            _ => vec![(Severity::Warn, "its answer does not tell its health".to_owned())],
        };
        let red = notes.iter().filter(|(state, _)| *state == Severity::Bad);
        let red = red.map(|(_, words)| whole(words.clone())).collect();
        self.polls.found(&self.key, Rule::ClusterRed, red);
        self.polls.board.change(&self.key, |one| {
            one.facts.health = health;
            one.facts.nodes = nodes;
        });
        Ok(notes)
    }

    async fn holds(&self) -> Result<Vec<(Severity, String)>, AskError> {
        let told = self.get(HOLDS).await?;
        let all = &told["_all"];
        let docs = all["primaries"]["docs"]["count"].as_u64();
        let bytes = all["total"]["store"]["size_in_bytes"].as_u64();
        self.polls.board.change(&self.key, |one| {
            one.facts.docs = docs;
            one.facts.bytes = bytes;
        });
        Ok(Vec::new())
    }

    async fn nodes(&mut self) -> Result<Vec<(Severity, String)>, AskError> {
        let told = self.get(NODES).await?;
        let (at, at_ms) = (Instant::now(), now_ms());
        let Some(list) = told["nodes"].as_object() else {
            return Ok(vec![(Severity::Warn, "its answer tells of no nodes".to_owned())]);
        };
        let (mut table, mut marks) = (Vec::new(), HashMap::new());
        let (mut rejected_per_s, mut heap_max, mut disk_max) = (None, None, None);
        for (id, node) in list {
            let (row, mark) = self.node(node, self.nodes.get(id), at);
            let rate = row["rejected_per_s"].as_f64();
            rejected_per_s = rate.map_or(rejected_per_s, |rate| Some(rejected_per_s.unwrap_or(0.0) + rate));
            heap_max = most(heap_max, row["heap_pct"].as_f64());
            disk_max = most(disk_max, row["disk_pct"].as_f64());
            table.push(row);
            marks.insert(id.clone(), mark);
        }
        table.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
        let notes = complaints(&table);
        for (rule, (figure, least, words)) in ALERTING {
            let found = complaint(&table, figure, least, words).map(whole);
            self.polls.found(&self.key, rule, found.into_iter().collect());
        }
        self.nodes = marks;
        let since_ms = self.nodes_at_ms.replace(at_ms).unwrap_or(at_ms - 1);
        table.sort_by(|left, right| left["name"].as_str().cmp(&right["name"].as_str()));
        self.polls.board.change(&self.key, |one| {
            let measured = [
                ("rejected_per_s", rejected_per_s),
                ("heap_pct", heap_max),
                ("disk_pct", disk_max),
            ];
            for (name, value) in measured {
                if let Some(value) = value {
                    one.series.entry(name).or_default().put(since_ms, at_ms, value);
                }
            }
            one.nodes = Some((at_ms, table));
        });
        Ok(notes)
    }

    fn node(&self, node: &Value, last: Option<&NodeMark>, at: Instant) -> (Value, NodeMark) {
        let indexed = node["indices"]["indexing"]["index_total"].as_u64();
        let write = &node["thread_pool"]["write"];
        let rejected = write["rejected"].as_u64();
        let mark = NodeMark {
            at,
            indexed: indexed.unwrap_or(0),
            rejected: rejected.unwrap_or(0),
        };
        let rate = |now: Option<u64>, before: Option<u64>| {
            let seconds = at.duration_since(last?.at).as_secs_f64();
            Some(now?.checked_sub(before?)? as f64 / seconds)
        };
        let total = node["fs"]["total"]["total_in_bytes"].as_u64();
        let free = node["fs"]["total"]["available_in_bytes"].as_u64();
        let used = total.zip(free).and_then(|(total, free)| total.checked_sub(free));
        let rejected_per_s = rate(rejected, last.map(|last| last.rejected));
        let cpu = node["os"]["cpu"]["percent"]
            .as_i64()
            .or_else(|| node["process"]["cpu"]["percent"].as_i64());
        let mut row = json!({
            "name": node["name"],
            "address": node["ip"].as_str().or_else(|| node["host"].as_str()),
            "roles": node["roles"],
            "cpu_pct": cpu.filter(|percent| *percent >= 0),
            "heap_pct": node["jvm"]["mem"]["heap_used_percent"],
            "disk_used_bytes": used,
            "disk_total_bytes": total,
            "disk_pct": used.zip(total).filter(|(_, total)| *total > 0).map(|(used, total)| used as f64 * 100.0 / total as f64),
            "docs_per_s": rate(indexed, last.map(|last| last.indexed)),
            "rejected": rejected,
            "rejected_per_s": rejected_per_s,
            "queue": write["queue"],
        });
        let ails = AILMENTS
            .iter()
            .any(|(figure, least, _)| is_over(&row, figure, *least));
        row["state"] = json!(if ails { "warn" } else { "ok" });
        (row, mark)
    }
}

/// Lists the nodes' complaints: one line per kind, however many nodes have it.
fn complaints(nodes: &[Value]) -> Vec<(Severity, String)> {
    let lines = AILMENTS
        .iter()
        .filter_map(|(figure, least, words)| complaint(nodes, figure, *least, words));
    lines.map(|line| (Severity::Warn, line)).collect()
}

/// Returns the line about one figure; none if it is as it should be on all nodes.
fn complaint(nodes: &[Value], figure: &str, least: f64, words: &str) -> Option<String> {
    let ill: Vec<&Value> = nodes.iter().filter(|node| is_over(node, figure, least)).collect();
    let worst = ill
        .iter()
        .filter_map(|node| node[figure].as_f64())
        .reduce(f64::max)?;
    let named: Vec<&str> = ill
        .iter()
        .take(NAMED_MAX)
        .map(|node| node["name"].as_str().unwrap_or("a node"))
        .collect();
    let others = match ill.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let words = words.replace("{}", &format!("{:.0}", worst.max(1.0)));
    Some(format!("{}{others}: {words}", named.join(", ")))
}

fn is_over(node: &Value, figure: &str, least: f64) -> bool {
    node[figure].as_f64().is_some_and(|value| value >= least)
}

/// A figure of a node, the value from which on it is reported, and the text, which gets the worst node's
/// figure.
const AILMENTS: [Ailment; 3] = [
    // Above this value, the garbage collector begins to take time from writes.
    ("heap_pct", 90.0, "heap is {} % full"),
    // The servers' default low watermark: above this value, a node gets no more shards.
    ("disk_pct", 85.0, DISK),
    REJECTS,
];
/// Those that are alerts. At 90 %, the servers' default high watermark, shards are moved away from a node.
const ALERTING: [(Rule, Ailment); 2] = [
    (Rule::DiskFull, ("disk_pct", 90.0, DISK)),
    (Rule::WritesRejected, REJECTS),
];
type Ailment = (&'static str, f64, &'static str);
const DISK: &str = "disk is {} % full";
const REJECTS: Ailment = (
    "rejected_per_s",
    f64::MIN_POSITIVE,
    "writes are rejected, up to {} a second",
);
/// Number of nodes that a line names.
const NAMED_MAX: usize = 3;

fn most(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.max(other)),
        (one, other) => one.or(other),
    }
}

/// Returns the kind of server. OpenSearch names itself; any other server that has a version is Elasticsearch.
pub(crate) fn flavour_of(root: &Value) -> &'static str {
    match root["version"]["distribution"].as_str() {
        Some("opensearch") => "opensearch",
        _ => "elasticsearch",
    }
}

const INDEXING: &str = "/_stats/indexing?level=cluster&filter_path=_shards.failed,\
    _all.primaries.indexing.index_total,_all.primaries.indexing.index_time_in_millis";
const HOLDS: &str = "/_stats/docs,store?level=cluster&filter_path=\
    _all.primaries.docs.count,_all.total.store.size_in_bytes";
const HEALTH: &str = "/_cluster/health?filter_path=status,number_of_nodes,unassigned_shards";
const NODES: &str = "/_nodes/stats/indices,os,process,jvm,fs,thread_pool/indexing?filter_path=nodes.*.name,nodes.*.host,\
    nodes.*.ip,nodes.*.roles,nodes.*.indices.indexing.index_total,nodes.*.os.cpu.percent,nodes.*.process.cpu.percent,\
    nodes.*.jvm.mem.heap_used_percent,nodes.*.fs.total.total_in_bytes,nodes.*.fs.total.available_in_bytes,\
    nodes.*.thread_pool.write.rejected,nodes.*.thread_pool.write.queue";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_that_shards_are_missing_from_makes_no_rate() {
        let began = Instant::now();
        let mark = |s: u64, failed: Option<u64>, indexed: u64| {
            let indexing = json!({"index_total": indexed, "index_time_in_millis": indexed / 2});
            let told = json!({"_shards": {"failed": failed}, "_all": {"primaries": {"indexing": indexing}}});
            Mark::of(&told, began + Duration::from_secs(s), 0)
        };
        let whole = mark(0, Some(0), 400_000_000).unwrap();
        assert!(mark(2, Some(3), 10).is_none());
        let rate = mark(4, None, 400_000_200).unwrap().since(&whole).unwrap();
        assert_eq!((rate.docs_per_s, rate.latency_ms), (50.0, Some(0.5)));
        let same = mark(4, Some(0), 400_000_000).unwrap().since(&whole).unwrap();
        assert_eq!((same.docs_per_s, same.latency_ms), (0.0, None));
        assert_eq!(
            mark(4, Some(0), 7).unwrap().since(&whole),
            None,
            "an index is gone"
        );
        assert!(INDEXING.contains("_shards.failed"));
    }

    #[test]
    fn an_ailment_of_many_nodes_is_one_line_with_the_worst_figure() {
        let nodes: Vec<_> = (1..=5)
            .map(|n| json!({"name": format!("n{n}"), "disk_pct": 84.0 + f64::from(n), "heap_pct": 40, "rejected_per_s": 0.0}))
            .collect();
        let told: Vec<String> = complaints(&nodes).into_iter().map(|(_, words)| words).collect();
        assert_eq!(told, ["n1, n2, n3 and 2 more: disk is 89 % full"]);
        let one = [json!({"name": "n1", "heap_pct": 95, "rejected_per_s": 12.4})];
        let told: Vec<String> = complaints(&one).into_iter().map(|(_, words)| words).collect();
        assert_eq!(
            told,
            [
                "n1: heap is 95 % full",
                "n1: writes are rejected, up to 12 a second"
            ]
        );
        assert!(complaints(&[json!({"name": "n1"})]).is_empty());
    }
}
