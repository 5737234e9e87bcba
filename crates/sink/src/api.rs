//! All requests except bulks: those with which a gateway reads a cluster, and those with which tests check
//! one.

use serde_json::{Map, Value, json};

use super::filter_path::filter;
use super::http::{Head, Reply, decode};
use super::index::Index;
use super::route::Formula;
use super::state::{ClusterContext, ClusterState};
use super::{document, listing, search, settings, statistics, users};

/// Returns whether the request carries a user that the cluster knows, if the cluster requires one.
pub(super) fn authorized(shared: &ClusterContext, head: &Head) -> bool {
    if !users::secured(shared) {
        return true;
    }
    let admin = shared.spec.basic_auth.as_ref();
    let admin = admin.map(|(user, password)| users::basic(user, password));
    (admin.is_some() && head.authorization == admin) || users::of(shared, head).is_some()
}

pub(super) fn refuse_stranger(reply: &mut Reply) {
    let reason = "missing or wrong credentials";
    reply.json(
        401,
        &json!({"error": {"type": "security_exception", "reason": reason}, "status": 401}),
    );
}

/// Answers a request to one node.
pub(super) fn answer(shared: &ClusterContext, node: usize, head: &Head, body: &[u8], reply: &mut Reply) {
    let segments: Vec<String> = head
        .path
        .split('/')
        .filter(|part| !part.is_empty())
        .map(|part| decode(part, false))
        .collect();
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let request = Request {
        shared,
        state: &shared.state(),
        node,
        head,
        parts: &parts,
        body,
    };
    let (status, value) = users::refusal(shared, head, &parts)
        .or_else(|| users::answer(shared, head, &parts, body))
        .or_else(|| request.of_cluster())
        .or_else(|| listing::answer(request.state, &head.method, &parts))
        .or_else(|| request.of_settings())
        .or_else(|| request.of_search())
        .or_else(|| request.of_document())
        .or_else(|| request.of_index())
        .or_else(|| request.of_sink())
        .unwrap_or_else(|| {
            let (path, method) = (&head.path, &head.method);
            let reason = format!("no handler found for uri [{path}] and method [{method}]");
            (400, json!({"error": reason}))
        });
    match head.parameter("filter_path") {
        Some(paths) => reply.json(status, &filter(&value, &paths)),
        None => reply.json(status, &value),
    }
}

/// A request, with its path in parts.
struct Request<'r> {
    shared: &'r ClusterContext,
    state: &'r ClusterState,
    node: usize,
    head: &'r Head,
    parts: &'r [&'r str],
    body: &'r [u8],
}

/// A status and a body, if the request is of the kind in question.
type Answer = Option<(u16, Value)>;

// === impl Request ===

impl Request<'_> {
    fn of_cluster(&self) -> Answer {
        let (shared, state) = (self.shared, self.state);
        Some(match (self.head.method.as_str(), self.parts) {
            ("GET" | "HEAD", []) => (200, root(shared, state, self.node)),
            ("GET", ["_nodes", "stats", ..]) => (200, statistics::of_nodes(shared, state)),
            ("GET", ["_stats", ..]) => (200, statistics::of_indices(shared, state)),
            ("GET", ["_nodes", which @ ..]) => (200, nodes(shared, state, self.node, which)),
            ("GET", ["_cluster", "state", which @ ..]) => (200, cluster_state(shared, state, which)),
            ("GET", ["_cluster", "health", ..]) => (200, health(state)),
            ("GET", ["_ingest", "pipeline", ..]) => (200, Value::Object(shared.spec.pipelines.clone())),
            ("GET", ["_alias"]) => (200, aliases(state)),
            ("GET", ["_resolve", "index", name]) if !name.contains('*') => (200, resolved(state, name)),
            ("GET", ["_resolve", "index", ..]) => (200, json!({"data_streams": []})),
            ("GET", ["_data_stream", ..]) => (200, json!({"data_streams": []})),
            _ => return None,
        })
    }

    fn of_settings(&self) -> Answer {
        let (shared, state, head, body) = (self.shared, self.state, self.head, self.body);
        let own = |index: &str| of_index(state, &state.indices[index]);
        Some(match (head.method.as_str(), self.parts) {
            ("GET", ["_cluster", "settings"]) => settings::show_cluster(state, head),
            ("PUT", ["_cluster", "settings"]) => settings::set_cluster(shared, head, body),
            ("GET", ["_all", "_settings", ..]) => (200, flat_settings(state)),
            ("GET", ["_settings", name @ ..]) => {
                settings::show_indices(state, "*", name.first().copied(), head, own)
            }
            ("GET", [index, "_settings", name @ ..]) => {
                settings::show_indices(state, index, name.first().copied(), head, own)
            }
            ("PUT", ["_settings"]) => settings::set_indices(shared, state, "*", head, body),
            ("PUT", [index, "_settings"]) => settings::set_indices(shared, state, index, head, body),
            _ => return None,
        })
    }

    fn of_search(&self) -> Answer {
        let (shared, state, head, body) = (self.shared, self.state, self.head, self.body);
        Some(match (head.method.as_str(), self.parts) {
            ("GET" | "POST", [index, "_search_shards"]) => search_shards(state, index, head),
            ("GET" | "POST", ["_count"]) => search::count(state, None, body),
            ("GET" | "POST", [index, "_count"]) => search::count(state, Some(index), body),
            ("POST", ["_search", "scroll"]) => searched(shared, search::scroll(state, body)),
            ("DELETE", ["_search", "scroll"]) => (200, json!({"succeeded": true, "num_freed": 1})),
            ("GET" | "POST", ["_search"]) => searched(shared, search::search(state, None, head, body)),
            ("GET" | "POST", [index, "_search"]) => {
                searched(shared, search::search(state, Some(index), head, body))
            }
            ("GET" | "POST", ["_msearch"]) => searched(shared, search::msearch(state, None, head, body)),
            ("GET" | "POST", [index, "_msearch"]) => {
                searched(shared, search::msearch(state, Some(index), head, body))
            }
            _ => return None,
        })
    }

    fn of_document(&self) -> Answer {
        let write = |operation, index, id| {
            document::write(
                self.shared,
                self.node,
                operation,
                (index, id),
                self.head,
                self.body,
            )
        };
        Some(match (self.head.method.as_str(), self.parts) {
            ("POST", [index, "_doc"]) if !index.starts_with('_') => write("index", index, None),
            ("PUT" | "POST", [index, "_doc", id]) => write("index", index, Some(id)),
            ("PUT" | "POST", [index, "_create", id]) => write("create", index, Some(id)),
            ("POST", [index, "_update", id]) => write("update", index, Some(id)),
            ("DELETE", [index, "_doc", id]) => write("delete", index, Some(id)),
            ("GET" | "HEAD", [index, "_doc", id]) => doc(self.state, index, id),
            ("GET" | "HEAD", [index, "_source", id]) => source(self.state, index, id),
            ("GET" | "POST", ["_mget"]) => (200, mget(self.state, self.body)),
            _ => return None,
        })
    }

    fn of_index(&self) -> Answer {
        let state = self.state;
        Some(match (self.head.method.as_str(), self.parts) {
            (_, [_, "_refresh" | "_flush"] | ["_refresh" | "_flush"]) => (
                200,
                json!({"_shards": {"total": 1, "successful": 1, "failed": 0}}),
            ),
            ("GET" | "HEAD", [index]) if !index.starts_with('_') => found(state, index, |index| {
                let mut object = Map::new();
                object.insert(
                    index.name.clone(),
                    json!({"aliases": {}, "mappings": {}, "settings": settings(state, index)}),
                );
                Value::Object(object)
            }),
            ("PUT", [index]) => create(self.shared, state, index, self.body),
            ("DELETE", [index]) => {
                self.shared.change(|state| drop(state.indices.remove(*index)));
                (200, json!({"acknowledged": true}))
            }
            _ => return None,
        })
    }

    /// Answers requests that tests send to the sink itself.
    fn of_sink(&self) -> Answer {
        let shared = self.shared;
        Some(match (self.head.method.as_str(), self.parts) {
            ("GET", ["_fake", "counts"]) => (200, json!(shared.counts())),
            ("POST", ["_fake", "behaviour" | "manners"]) => match shared.behaviour().changed(self.head) {
                Some(behaviour) => {
                    shared.set_behaviour(behaviour);
                    (200, json!({"acknowledged": true}))
                }
                None => (
                    400,
                    json!({"error": "numbers are wanted: latency_ms, doc_us, capacity, workers, waiting"}),
                ),
            },
            ("POST", ["_fake", "counts", "reset"]) => {
                shared.reset_counts();
                (200, json!({"acknowledged": true}))
            }
            _ => return None,
        })
    }
}

fn root(shared: &ClusterContext, state: &ClusterState, node: usize) -> Value {
    let flavour = shared.spec.flavour;
    let mut version = json!({"number": flavour.version(), "build_type": "tar", "lucene_version": "10.0.0"});
    if flavour.is_opensearch() {
        version["distribution"] = json!("opensearch");
    } else {
        version["build_flavor"] = json!("default");
    }
    json!({
        "name": state.nodes[node].name, "cluster_name": "fake", "cluster_uuid": state.cluster_uuid, "version": version,
        "tagline": if flavour.is_opensearch() { "The OpenSearch Project: https://opensearch.org/" } else { "You Know, for Search" },
    })
}

/// Answers `_nodes`, with the metrics and the nodes that the path names; without a named metric, with all of
/// them.
fn nodes(shared: &ClusterContext, state: &ClusterState, own: usize, which: &[&str]) -> Value {
    const METRICS: [&str; 12] = [
        "settings",
        "os",
        "process",
        "jvm",
        "thread_pool",
        "transport",
        "http",
        "plugins",
        "ingest",
        "aggregations",
        "indices",
        "_all",
    ];
    let is_metric = |part: &&str| METRICS.contains(part) || *part == "_none";
    let words: Vec<&str> = which.iter().flat_map(|part| part.split(',')).collect();
    let metrics: Vec<&str> = words.iter().copied().filter(is_metric).collect();
    let named: Vec<&str> = words.iter().copied().filter(|word| !is_metric(word)).collect();
    let wants = |metric| metrics.is_empty() || metrics.contains(&metric) || metrics.contains(&"_all");
    let flavour = shared.spec.flavour;
    let mut list = Map::new();
    for (at, node) in state.nodes.iter().enumerate().filter(|(_, node)| !node.gone) {
        let fits = |name: &&str| {
            *name == node.id || *name == node.name || *name == "*" || (*name == "_local" && at == own)
        };
        if !named.is_empty() && !named.iter().any(fits) {
            continue;
        }
        let address = shared.addresses[at];
        let mut entry = json!({
            "name": node.name, "transport_address": transport_address(address), "host": "127.0.0.1", "ip": "127.0.0.1",
            "version": flavour.version(), "build_type": "tar", "build_hash": "0000000",
            "roles": ["data", "ingest", flavour.electable_role(), "remote_cluster_client"], "attributes": {},
        });
        if !flavour.is_opensearch() {
            entry["build_flavor"] = json!("default");
        }
        if wants("settings") {
            entry["settings"] = json!({"cluster": {"name": "fake"}, "node": {"name": node.name}, "http": {"port": address.port().to_string()}});
        }
        if let Some(packs) = shared.spec.compression
            && wants("settings")
        {
            entry["settings"]["http"]["compression"] = json!(packs.to_string());
        }
        if wants("http") {
            let publish = address.to_string();
            entry["http"] = json!({
                "bound_address": [publish], "publish_address": publish,
                "max_content_length_in_bytes": shared.spec.content_length_max,
            });
        }
        list.insert(node.id.clone(), entry);
    }
    let total = list.len();
    json!({"_nodes": {"total": total, "successful": total, "failed": 0}, "cluster_name": "fake", "nodes": list})
}

/// Returns a transport address on which no node listens: the fake's nodes talk to each other in memory.
fn transport_address(http: std::net::SocketAddr) -> String {
    format!("127.0.0.1:{}", http.port() ^ 0x4000)
}

/// Answers `_cluster/state`, with the metrics and the indices that the path names.
fn cluster_state(shared: &ClusterContext, state: &ClusterState, which: &[&str]) -> Value {
    let metrics: Vec<&str> = which
        .first()
        .map_or_else(Vec::new, |metrics| metrics.split(',').collect());
    let wants = |metric| metrics.is_empty() || metrics.contains(&metric) || metrics.contains(&"_all");
    let chosen = |index: &&Index| {
        which.get(1).is_none_or(|names| {
            names
                .split(',')
                .any(|name| name == index.name || name == "*" || name == "_all")
        })
    };
    let indices: Vec<&Index> = state.indices.values().map(AsRef::as_ref).filter(chosen).collect();
    let version = shared.version.load(std::sync::atomic::Ordering::Relaxed);
    let mut answer = json!({"cluster_name": "fake", "cluster_uuid": state.cluster_uuid});
    let elected = state
        .nodes
        .iter()
        .find(|node| !node.gone)
        .map(|node| node.id.as_str());
    if wants("version") {
        answer["version"] = json!(version);
        answer["state_uuid"] = json!(format!("{}-{version}", state.cluster_uuid));
    }
    if wants("master_node") || wants("cluster_manager_node") {
        answer["master_node"] = json!(elected);
        answer[shared.spec.flavour.elected_key()] = json!(elected);
    }
    if wants("blocks") {
        answer["blocks"] = blocks(&indices);
    }
    if wants("nodes") {
        let here = state.nodes.iter().enumerate().filter(|(_, node)| !node.gone);
        let entry = |(at, node): (usize, &super::state::NodeState)| {
            let address = transport_address(shared.addresses[at]);
            (
                node.id.clone(),
                json!({"name": node.name, "ephemeral_id": node.id, "transport_address": address, "attributes": {}}),
            )
        };
        answer["nodes"] = Value::Object(here.map(entry).collect());
    }
    if wants("metadata") {
        let list: Map<String, Value> = indices
            .iter()
            .map(|index| (index.name.clone(), metadata(state, index)))
            .collect();
        answer["metadata"] = json!({
            "cluster_uuid": state.cluster_uuid, "cluster_uuid_committed": true, "templates": {}, "indices": list,
            "index-graveyard": {"tombstones": []},
        });
    }
    if wants("routing_table") {
        let list: Map<String, Value> = indices
            .iter()
            .map(|index| (index.name.clone(), json!({"shards": shards(state, index)})))
            .collect();
        answer["routing_table"] = json!({"indices": list});
    }
    answer
}

/// Returns the blocks that the engines report for closed indices; nothing about indices if none is closed.
fn blocks(indices: &[&Index]) -> Value {
    let block =
        || json!({"4": {"description": "index closed", "retryable": false, "levels": ["read", "write"]}});
    let closed: Map<String, Value> = indices
        .iter()
        .filter(|index| index.closed)
        .map(|index| (index.name.clone(), block()))
        .collect();
    match closed.is_empty() {
        true => json!({}),
        false => json!({"indices": closed}),
    }
}

fn metadata(state: &ClusterState, index: &Index) -> Value {
    let aliases: Vec<&String> = state
        .aliases
        .iter()
        .filter(|(_, indices)| indices.contains(&index.name))
        .map(|(alias, _)| alias)
        .collect();
    let terms: Map<String, Value> = (0..index.shards())
        .map(|shard| (shard.to_string(), json!(1)))
        .collect();
    let routing_num_shards = match index.formula {
        Formula::Classic { routing_num_shards } => routing_num_shards,
        Formula::Modulo => super::route::routing_num_shards(index.shards()),
    };
    json!({
        "version": 3, "mapping_version": 1, "settings_version": 1, "aliases_version": 1,
        "routing_num_shards": routing_num_shards, "state": "open", "settings": settings(state, index),
        "mappings": mappings(index), "aliases": aliases, "primary_terms": terms, "in_sync_allocations": {}, "rollover_info": {},
        "system": false,
    })
}

fn mappings(index: &Index) -> Value {
    match index.routing_required {
        true => json!({"_doc": {"_routing": {"required": true}}}),
        false => json!({}),
    }
}

fn settings(state: &ClusterState, index: &Index) -> Value {
    json!({"index": {
        "creation_date": "1772323200000", "number_of_shards": index.shards().to_string(), "number_of_replicas": "0",
        "uuid": index.uuid, "version": {"created": state.flavour.index_created()}, "provided_name": index.name,
    }})
}

/// Answers `_all/_settings` with `flat_settings=true`; with all settings, whichever were asked for.
fn flat_settings(state: &ClusterState) -> Value {
    let entries = state
        .indices
        .values()
        .map(|index| (index.name.clone(), json!({"settings": of_index(state, index)})));
    Value::Object(entries.collect())
}

/// Returns the settings that every index has, by their full names.
fn of_index(state: &ClusterState, index: &Index) -> settings::Flat {
    let own = [
        ("index.uuid", index.uuid.clone()),
        ("index.version.created", state.flavour.index_created().to_string()),
        ("index.number_of_shards", index.shards().to_string()),
    ];
    own.into_iter()
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect()
}

/// Answers `_alias`: every index with its aliases; the first index of an alias takes the writes.
fn aliases(state: &ClusterState) -> Value {
    let entries = state.indices.values().map(|index| {
        let held = state
            .aliases
            .iter()
            .filter(|(_, indices)| indices.contains(&index.name));
        let held: Map<String, Value> = held
            .map(|(alias, indices)| {
                let leads = indices[0] == index.name && !state.unled.contains(alias);
                (alias.clone(), json!({"is_write_index": leads}))
            })
            .collect();
        (index.name.clone(), json!({"aliases": held}))
    });
    Value::Object(entries.collect())
}

fn shards(state: &ClusterState, index: &Index) -> Value {
    let entries = index
        .primaries
        .iter()
        .enumerate()
        .map(|(shard, _)| (shard.to_string(), json!([copy(state, index, shard)])));
    Value::Object(entries.collect())
}

fn copy(state: &ClusterState, index: &Index, shard: usize) -> Value {
    let node = index.primaries[shard].map(|node| state.nodes[node].id.as_str());
    let mut copy = json!({
        "state": if node.is_some() { "STARTED" } else { "UNASSIGNED" }, "primary": true, "node": node,
        "relocating_node": null, "shard": shard, "index": index.name,
    });
    if node.is_some() {
        copy["allocation_id"] = json!({"id": format!("{}-{shard}", index.uuid)});
    }
    copy
}

fn health(state: &ClusterState) -> Value {
    let nodes = state.nodes.iter().filter(|node| !node.gone).count();
    let unassigned = state
        .indices
        .values()
        .flat_map(|index| &index.primaries)
        .filter(|node| node.is_none())
        .count();
    let active: usize = state
        .indices
        .values()
        .map(|index| index.primaries.len())
        .sum::<usize>()
        - unassigned;
    json!({
        "cluster_name": "fake", "status": if unassigned == 0 { "green" } else { "red" }, "timed_out": false,
        "number_of_nodes": nodes, "number_of_data_nodes": nodes, "active_primary_shards": active, "active_shards": active,
        "relocating_shards": 0, "initializing_shards": 0, "unassigned_shards": unassigned,
    })
}

fn search_shards(state: &ClusterState, name: &str, head: &Head) -> (u16, Value) {
    found(state, name, |index| {
        let wanted: Vec<usize> = match head.parameter("routing") {
            Some(values) => {
                let set: std::collections::BTreeSet<usize> = values
                    .split(',')
                    .map(|value| index.shard(value) as usize)
                    .collect();
                set.into_iter().collect()
            }
            None => (0..index.primaries.len()).collect(),
        };
        let lists: Vec<Value> = wanted
            .iter()
            .map(|&shard| json!([copy(state, index, shard)]))
            .collect();
        let nodes: Map<String, Value> = state
            .nodes
            .iter()
            .map(|node| (node.id.clone(), json!({"name": node.name, "attributes": {}})))
            .collect();
        json!({"nodes": nodes, "indices": {index.name.as_str(): {}}, "shards": lists})
    })
}

fn doc(state: &ClusterState, name: &str, id: &str) -> (u16, Value) {
    let Some(index) = state.index(name) else {
        return found(state, name, |_| Value::Null);
    };
    match index.doc(id) {
        None => (404, json!({"_index": index.name, "_id": id, "found": false})),
        Some(doc) => {
            let source: Value = serde_json::from_str(&doc.source).unwrap_or(Value::Null);
            let mut answer = json!({"_index": index.name, "_id": id, "_version": doc.version, "_seq_no": doc.seq_no, "_primary_term": 1});
            if let Some(routing) = doc.routing {
                answer["_routing"] = json!(routing);
            }
            answer["found"] = json!(true);
            answer["_source"] = source;
            (200, answer)
        }
    }
}

/// Answers `_resolve/index` for one name.
fn resolved(state: &ClusterState, name: &str) -> Value {
    let index = state
        .indices
        .get(name)
        .map(|index| json!({"name": index.name, "attributes": ["open"]}));
    let alias = state
        .aliases
        .get(name)
        .map(|indices| json!({"name": name, "indices": indices}));
    json!({
        "indices": index.into_iter().collect::<Vec<_>>(),
        "aliases": alias.into_iter().collect::<Vec<_>>(),
        "data_streams": [],
    })
}

/// Answers `_mget`, for documents that each name their index.
fn mget(state: &ClusterState, body: &[u8]) -> Value {
    let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let docs = body["docs"].as_array().into_iter().flatten().map(|wanted| {
        let name = wanted["_index"].as_str().unwrap_or_default();
        let id = wanted["_id"].as_str().unwrap_or_default();
        let failed = |kind: &str, reason: &str| {
            let cause = json!({"type": kind, "reason": reason, "index": name});
            let error = json!({"root_cause": [cause], "type": kind, "reason": reason, "index": name});
            json!({"_index": name, "_id": id, "error": error})
        };
        match state.index(name) {
            None => failed("index_not_found_exception", "no such index"),
            Some(index) if index.closed => failed("index_closed_exception", "closed"),
            Some(_) => {
                let mut found = doc(state, name, id).1;
                filter_source(&mut found, &wanted["_source"]);
                found
            }
        }
    });
    json!({"docs": docs.collect::<Vec<_>>()})
}

/// Leaves of a document's source what an entry of `_mget` asks for: all, nothing, or these paths.
fn filter_source(found: &mut Value, wanted: &Value) {
    match wanted {
        Value::Bool(false) => drop(found.as_object_mut().map(|found| found.shift_remove("_source"))),
        Value::Array(paths) => {
            let paths: Vec<_> = paths.iter().filter_map(Value::as_str).collect();
            if let Some(source) = found.get_mut("_source") {
                *source = reduced(source, "", &paths);
            }
        }
        _ => {}
    }
}

/// Returns the fields of an object that lie on these paths.
fn reduced(object: &Value, above: &str, paths: &[&str]) -> Value {
    let fields = object.as_object().into_iter().flatten();
    let kept = fields.filter_map(|(name, value)| {
        let path = format!("{above}{name}");
        if paths.contains(&&*path) {
            return Some((name.clone(), value.clone()));
        }
        let within = format!("{path}.");
        let leads = value.is_object() && paths.iter().any(|wanted| wanted.starts_with(&within));
        leads.then(|| (name.clone(), reduced(value, &within, paths)))
    });
    Value::Object(kept.collect())
}

/// Answers with the source of a document alone.
fn source(state: &ClusterState, index: &str, id: &str) -> (u16, Value) {
    match doc(state, index, id) {
        (200, mut found) => (200, found["_source"].take()),
        (status, _) => {
            let reason = format!("Document not found [{index}]/[{id}]");
            let error = json!({"type": "resource_not_found_exception", "reason": reason});
            (status, json!({"error": error, "status": status}))
        }
    }
}

fn create(shared: &ClusterContext, state: &ClusterState, name: &str, body: &[u8]) -> (u16, Value) {
    if state.index(name).is_some() {
        let reason = format!("index [{name}] already exists");
        return (
            400,
            json!({"error": {"type": "resource_already_exists_exception", "reason": reason, "index": name}, "status": 400}),
        );
    }
    let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let settings = &body["settings"];
    let given = [
        &settings["number_of_shards"],
        &settings["index"]["number_of_shards"],
        &settings["index.number_of_shards"],
    ];
    let number = |value: &&Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let shards = given.iter().find_map(number).unwrap_or(1) as u32;
    shared.change(|state| state.create(name, shards));
    (
        200,
        json!({"acknowledged": true, "shards_acknowledged": true, "index": name}),
    )
}

/// Returns the answer after the delay that the cluster's behaviour gives it.
fn searched(shared: &ClusterContext, answer: (u16, Value)) -> (u16, Value) {
    shared.capacity.take(&shared.behaviour(), 0);
    answer
}

/// Answers with `answer` for the index of this name, or that there is no such index.
fn found(state: &ClusterState, name: &str, answer: impl FnOnce(&Index) -> Value) -> (u16, Value) {
    match state.index(name) {
        Some(index) => (200, answer(index)),
        None => no_such_index(name),
    }
}

pub(super) fn no_such_index(name: &str) -> (u16, Value) {
    let reason = format!("no such index [{name}]");
    let cause = json!({"type": "index_not_found_exception", "reason": reason, "index": name});
    (
        404,
        json!({"error": {"root_cause": [cause], "type": "index_not_found_exception", "reason": reason, "index": name}, "status": 404}),
    )
}
