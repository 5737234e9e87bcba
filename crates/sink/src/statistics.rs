//! `_stats` and `_nodes/stats`: the indexed documents, and the state of the nodes.

use serde_json::{Map, Value, json};

use super::state::{ClusterContext, ClusterState};

/// Returns all metrics that the fake has, with all indices as one.
pub(super) fn of_indices(shared: &ClusterContext, state: &ClusterState) -> Value {
    if state.indices.is_empty() {
        // Servers answer likewise: no index, no numbers.
        return json!({"_shards": {"total": 0, "successful": 0, "failed": 0}, "_all": {"primaries": {}, "total": {}}});
    }
    let counts = shared.counts();
    let claimed = shared.claimed_docs();
    let written = counts.docs + counts.writes + claimed;
    let of_all = json!({
        "docs": {"count": written, "deleted": 0},
        "store": {"size_in_bytes": counts.body_bytes + claimed * CLAIMED_BYTES},
        "indexing": {
            "index_total": written,
            "index_time_in_millis": counts.worked_ms + claimed / CLAIMED_DOCS_PER_MS,
            "index_failed": 0,
        },
    });
    let shards: usize = state.indices.values().map(|index| index.primaries.len()).sum();
    json!({
        "_shards": {"total": shards, "successful": shards, "failed": 0},
        "_all": {"primaries": of_all, "total": of_all},
    })
}

/// Returns the statistics of the nodes. The nodes share this process, and so its CPU time; disks and heaps
/// are made up, and never change.
pub(super) fn of_nodes(shared: &ClusterContext, state: &ClusterState) -> Value {
    let counts = shared.counts();
    let here = || state.nodes.iter().enumerate().filter(|(_, node)| !node.gone);
    let total = here().count();
    let share_ms = cpu_ms() / total.max(1) as u64;
    let claimed = shared.claimed_docs() / total.max(1) as u64;
    let mut list = Map::new();
    for (at, node) in here() {
        let indexed = counts.docs_by_node.get(at).copied().unwrap_or(0) + claimed;
        let told = json!({
            "name": node.name,
            "host": shared.spec.host.to_string(),
            "ip": shared.spec.host.to_string(),
            "roles": ["data", "ingest"],
            "indices": {"indexing": {"index_total": indexed}},
            "os": {"cpu": {"percent": 0}},
            "process": {"cpu": {"percent": 0, "total_in_millis": share_ms}},
            "jvm": {"mem": {"heap_used_percent": 40}},
            "fs": {"total": {"total_in_bytes": 100_000_000_000_u64, "available_in_bytes": 60_000_000_000_u64}},
            "thread_pool": {"write": {"queue": 0, "rejected": counts.bulks_refused / total.max(1) as u64}},
        });
        list.insert(node.id.clone(), told);
    }
    json!({"_nodes": {"total": total, "successful": total, "failed": 0}, "cluster_name": "fake", "nodes": list})
}

/// What a claimed document takes.
const CLAIMED_BYTES: u64 = 600;
const CLAIMED_DOCS_PER_MS: u64 = 20;

/// Returns the CPU time that this process has used, user and system.
fn cpu_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name, which may contain anything, user and system time are the 12th and 13th words, in
    // hundredths.
    let words = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    words
        .skip(11)
        .take(2)
        .filter_map(|word| word.parse::<u64>().ok())
        .sum::<u64>()
        * 10
}
