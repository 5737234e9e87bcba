//! Lists of the indices and shards, the mappings, and the templates, of which there are none: what an
//! administrator's page asks a cluster for.

use serde_json::{Map, Value, json};

use super::api::no_such_index;
use super::index::Index;
use super::state::ClusterState;

/// Answers a request for one of the lists; `None` if it is another request.
pub(super) fn answer(state: &ClusterState, method: &str, parts: &[&str]) -> Option<(u16, Value)> {
    let of = |name: &str, told: fn(&ClusterState, &Index) -> Value| match state.index(name) {
        Some(index) => (200, told(state, index)),
        None => no_such_index(name),
    };
    Some(match (method, parts) {
        ("GET", ["_cat", "indices"]) => (200, state.indices.values().map(|index| row(index)).collect()),
        ("GET", ["_cat", "shards", name]) => of(name, shards),
        ("GET", [name, "_mapping"]) if !name.starts_with('_') => of(name, |_, index| mapping(index)),
        ("GET", ["_index_template"]) => (200, json!({"index_templates": []})),
        ("GET", ["_component_template"]) => (200, json!({"component_templates": []})),
        ("GET", ["_template"]) => (200, json!({})),
        _ => return None,
    })
}

/// Returns the row of an index. The sink does not know sizes and times of creation.
fn row(index: &Index) -> Value {
    let is_whole = index.primaries.iter().all(Option::is_some);
    let docs = index.each_match(&|_, _| true, &mut |_, _, _| {});
    json!({
        "health": if is_whole { "green" } else { "red" },
        "status": if index.closed { "close" } else { "open" },
        "index": index.name,
        "uuid": index.uuid,
        "pri": index.shards().to_string(),
        "rep": "0",
        "docs.count": docs.to_string(),
        "docs.deleted": "0",
        "store.size": null,
        "pri.store.size": null,
    })
}

/// Returns the rows of an index's shards. The sink counts documents by index.
fn shards(state: &ClusterState, index: &Index) -> Value {
    let row = |(shard, node): (usize, &Option<usize>)| {
        let node = node.map(|node| &*state.nodes[node].name);
        json!({
            "index": index.name,
            "shard": shard.to_string(),
            "prirep": "p",
            "state": if node.is_some() { "STARTED" } else { "UNASSIGNED" },
            "docs": null,
            "store": null,
            "node": node,
        })
    };
    index.primaries.iter().enumerate().map(row).collect()
}

/// Returns the mapping of an index: the sink takes any field, and maps none.
fn mapping(index: &Index) -> Value {
    let mapping = match index.routing_required {
        true => json!({"_routing": {"required": true}}),
        false => json!({}),
    };
    let mut told = Map::new();
    told.insert(index.name.clone(), json!({"mappings": mapping}));
    Value::Object(told)
}

#[cfg(test)]
mod tests {
    use crate::{FakeCluster, Spec};

    use super::*;

    #[test]
    fn indices_shards_mappings_and_templates_are_told_as_servers_tell_them() {
        let cluster = FakeCluster::start(Spec::default().index("logs", 2).index("other", 1)).unwrap();
        let state = cluster.shared.state();
        let get = |path: &str| {
            let parts: Vec<&str> = path.split('/').collect();
            answer(&state, "GET", &parts).unwrap()
        };
        let (status, told) = get("_cat/indices");
        assert_eq!((status, told.as_array().unwrap().len()), (200, 2));
        let keys = ["index", "health", "pri", "docs.count"].map(|key| told[0][key].as_str().unwrap());
        assert_eq!(keys, ["logs", "green", "2", "0"]);
        let (_, told) = get("_cat/shards/logs");
        assert_eq!(told[1]["shard"], "1");
        assert_eq!(told[1]["state"], "STARTED");
        assert_eq!(get("logs/_mapping"), (200, json!({"logs": {"mappings": {}}})));
        assert_eq!(get("none/_mapping").0, 404);
        for path in ["_index_template", "_template", "_component_template"] {
            assert_eq!(get(path).0, 200, "{path}");
        }
        assert!(answer(&state, "PUT", &["_index_template"]).is_none());
    }
}
