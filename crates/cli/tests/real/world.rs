//! An index set under a prefix: the same kinds of index, alias, data stream, template and pipeline each time.
//!
//! Two sets whose prefixes have the same length can be compared byte by byte after replacing one prefix with
//! the other.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::http::{Http, Request};
use super::server::{Engine, Server};

/// The prefixes of the two sets. `TAG` keeps parallel and earlier runs apart.
#[derive(Clone, Debug)]
pub(crate) struct Prefixes {
    /// The set that is written to directly; random bulks are worded for it.
    pub(crate) direct: String,
    pub(crate) other: String,
}

impl Prefixes {
    pub(crate) fn fresh() -> Self {
        let tag: String = std::iter::repeat_with(fastrand::lowercase).take(6).collect();
        Self {
            direct: format!("dd-{tag}-"),
            other: format!("tt-{tag}-"),
        }
    }
}

/// Names in an index set; each follows the prefix.
pub(crate) const PLAIN: &str = "plain";
pub(crate) const SECOND: &str = "second";
pub(crate) const STRICT: &str = "strict";
pub(crate) const PARTED: &str = "parted";
pub(crate) const MUST: &str = "must";
pub(crate) const AUTO: &str = "auto";
/// The index to which `PIPELINE_MOVE` sends documents, even those without an index.
pub(crate) const MOVED: &str = "moved";
pub(crate) const CLOSED: &str = "closed";
pub(crate) const BLOCKED: &str = "blocked";
pub(crate) const PIPED: &str = "piped";
pub(crate) const ALIAS_ONE: &str = "al-one";
pub(crate) const ALIAS_ROUTED: &str = "al-routed";
pub(crate) const ALIAS_WRITE: &str = "al-write";
pub(crate) const ALIAS_TWO: &str = "al-two";
pub(crate) const ALIAS_FILTER: &str = "al-filter";
pub(crate) const STREAM: &str = "ds-logs";
/// Indices named `new-*` are created by the first write to them.
pub(crate) const NEW: &str = "new-";

pub(crate) const PIPELINE_EMPTY: &str = "pl-empty";
pub(crate) const PIPELINE_SET: &str = "pl-set";
pub(crate) const PIPELINE_MOVE: &str = "pl-move";
pub(crate) const PIPELINE_FAIL: &str = "pl-fail";
pub(crate) const PIPELINE_DROP: &str = "pl-drop";

fn mapping(server: &Server) -> Value {
    let mut mapping = json!({
        "properties": {
            "n": {"type": "integer"},
            "t": {"type": "keyword"},
            "d": {"type": "date"},
            "txt": {"type": "text"},
            "o": {"properties": {"x": {"type": "integer"}}},
            "tag": {"type": "keyword"},
        }
    });
    if server.is_es((7, 13)) {
        mapping["dynamic_templates"] = json!([{"as_kw": {"mapping": {"type": "keyword"}}}]);
    }
    mapping
}

/// Creates the whole set.
pub(crate) fn create(http: &mut Http, server: &Server, prefix: &str) -> Result<()> {
    let name = |suffix: &str| format!("{prefix}{suffix}");
    create_pipelines(http, server, prefix)?;
    // A deleted document's version is forgotten after a minute by default, which would be sooner in the set
    // that is written first.
    let settings = |shards: u32| {
        json!({
            "number_of_shards": shards, "number_of_replicas": 0, "refresh_interval": "-1", "gc_deletes": "1h"
        })
    };
    let index = |shards: u32| json!({"settings": settings(shards), "mappings": mapping(server)});

    let mut plain = index(3);
    // After some bulks with broken documents, a search in Elasticsearch 7.10 or OpenSearch 1.3 finds other
    // documents on the replica than on the primary (without Tidegate too), so contents could not be compared.
    plain["settings"]["number_of_replicas"] = json!(u32::from(!matches!(server.version, (7, 10) | (1, _))));
    http.put(&format!("/{}", name(PLAIN)), &plain)?;
    http.put(&format!("/{}", name(SECOND)), &index(5))?;
    let mut strict = index(2);
    strict["mappings"]["dynamic"] = json!("strict");
    http.put(&format!("/{}", name(STRICT)), &strict)?;
    let mut parted = index(6);
    parted["settings"]["routing_partition_size"] = json!(3);
    parted["mappings"]["_routing"] = json!({"required": true});
    http.put(&format!("/{}", name(PARTED)), &parted)?;
    let mut must = index(3);
    must["mappings"]["_routing"] = json!({"required": true});
    http.put(&format!("/{}", name(MUST)), &must)?;
    http.put(&format!("/{}", name(AUTO)), &index(4))?;
    http.put(&format!("/{}", name(MOVED)), &index(3))?;
    http.put(&format!("/{}", name(CLOSED)), &index(1))?;
    http.must(&Request::new("POST", &format!("/{}/_close", name(CLOSED))))?;
    let mut blocked = index(2);
    blocked["settings"]["blocks.write"] = json!(true);
    http.put(&format!("/{}", name(BLOCKED)), &blocked)?;
    let mut piped = index(3);
    piped["settings"]["default_pipeline"] = json!(name(if server.has_processors() {
        PIPELINE_SET
    } else {
        PIPELINE_EMPTY
    }));
    http.put(&format!("/{}", name(PIPED)), &piped)?;

    let mut actions = vec![
        json!({"add": {"index": name(PLAIN), "alias": name(ALIAS_ONE)}}),
        json!({"add": {"index": name(PLAIN), "alias": name(ALIAS_ROUTED), "index_routing": "7", "search_routing": "7,8"}}),
        json!({"add": {"index": name(PLAIN), "alias": name(ALIAS_WRITE)}}),
        json!({"add": {"index": name(SECOND), "alias": name(ALIAS_WRITE), "is_write_index": true}}),
        json!({"add": {"index": name(PLAIN), "alias": name(ALIAS_TWO)}}),
        json!({"add": {"index": name(SECOND), "alias": name(ALIAS_TWO)}}),
    ];
    actions.push(
        json!({"add": {"index": name(PLAIN), "alias": name(ALIAS_FILTER), "filter": {"term": {"t": "a"}}}}),
    );
    http.post("/_aliases", &json!({"actions": actions}))?;

    let template = |pattern: String| {
        json!({
            "index_patterns": [pattern], "priority": 900,
            "template": {"settings": settings(3), "mappings": mapping(server)}
        })
    };
    http.put(
        &format!("/_index_template/{}", name("tp-new")),
        &template(name("new-*")),
    )?;
    http.put(
        &format!("/_index_template/{}", name("tp-math")),
        &template(name("math-*")),
    )?;
    // Where there are no data streams, the name becomes an ordinary index.
    let mut streams = template(name("ds-*"));
    if server.has_data_streams() {
        streams["data_stream"] = json!({});
    }
    http.put(&format!("/_index_template/{}", name("tp-ds")), &streams)?;
    // The stream is created by a write: the trimmed builds of Elasticsearch have data streams, but no
    // requests for them.
    let first = b"{\"create\":{\"_id\":\"first\"}}\n{\"@timestamp\":\"2026-11-01T00:00:00Z\"}\n".to_vec();
    http.must(&Request::new("POST", &format!("/{}/_bulk", name(STREAM))).ndjson(first))?;
    wait_green(http)
}

fn create_pipelines(http: &mut Http, server: &Server, prefix: &str) -> Result<()> {
    let mut put = |suffix: &str, processors: Value| -> Result<()> {
        http.put(
            &format!("/_ingest/pipeline/{prefix}{suffix}"),
            &json!({"processors": processors}),
        )?;
        Ok(())
    };
    put(PIPELINE_EMPTY, json!([]))?;
    if server.has_processors() {
        put(PIPELINE_SET, json!([{"set": {"field": "tag", "value": "piped"}}]))?;
        put(
            PIPELINE_MOVE,
            json!([{"set": {"field": "_index", "value": format!("{prefix}{MOVED}")}}]),
        )?;
        put(PIPELINE_FAIL, json!([{"fail": {"message": "no more of {{t}}"}}]))?;
        put(PIPELINE_DROP, json!([{"drop": {}}]))?;
    }
    Ok(())
}

/// Waits until every shard of the cluster has been started.
pub(crate) fn wait_green(http: &mut Http) -> Result<()> {
    let health =
        http.get("/_cluster/health?wait_for_status=green&wait_for_no_initializing_shards=true&timeout=60s")?;
    anyhow::ensure!(health["status"] == "green", "the cluster stays {health}");
    Ok(())
}

/// Returns the concrete indices under a prefix, including closed and hidden ones.
pub(crate) fn indices(http: &mut Http, prefix: &str) -> Result<Vec<String>> {
    let target = "/_cluster/state/metadata?filter_path=metadata.indices.*.state";
    let state = http.get(target)?;
    let all = state["metadata"]["indices"]
        .as_object()
        .context("the state lists indices")?;
    Ok(all
        .keys()
        .filter(|n| n.strip_prefix(".ds-").unwrap_or(n).starts_with(prefix))
        .cloned()
        .collect())
}

/// Removes everything that `create` and the bulks made under a prefix.
pub(crate) fn remove(http: &mut Http, server: &Server, prefix: &str) -> Result<()> {
    if server.engine == Engine::OpenSearch {
        http.must(&Request::new(
            "DELETE",
            &format!("/_data_stream/{prefix}{STREAM}"),
        ))?;
        let _ = http.send(&Request::new(
            "DELETE",
            &format!("/_index_template/{prefix}tp-ds"),
        ))?;
    }
    // Backing indices stay where the build has no request to delete a data stream.
    let all = indices(http, prefix)?;
    let named: Vec<&str> = all
        .iter()
        .filter(|name| !name.starts_with(".ds-"))
        .map(String::as_str)
        .collect();
    http.must(&Request::new("DELETE", &format!("/{}", named.join(","))))?;
    for suffix in ["tp-new", "tp-math", "tp-ds"] {
        let _ = http.send(&Request::new(
            "DELETE",
            &format!("/_index_template/{prefix}{suffix}"),
        ))?;
    }
    for suffix in [
        PIPELINE_EMPTY,
        PIPELINE_SET,
        PIPELINE_MOVE,
        PIPELINE_FAIL,
        PIPELINE_DROP,
    ] {
        let _ = http.send(&Request::new(
            "DELETE",
            &format!("/_ingest/pipeline/{prefix}{suffix}"),
        ))?;
    }
    Ok(())
}

/// Waits until no shard is moving to another node.
pub(crate) fn wait_settled(http: &mut Http) -> Result<()> {
    let target = "/_cluster/health?wait_for_no_relocating_shards=true&wait_for_no_initializing_shards=true&timeout=60s&wait_for_events=languid";
    let health = http.get(target)?;
    anyhow::ensure!(health["timed_out"] == false, "shards keep moving: {health}");
    Ok(())
}
