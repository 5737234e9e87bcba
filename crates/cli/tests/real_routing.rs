//! Checks that each document's predicted shard is the shard where the server keeps it.
//!
//! The test indexes tens of thousands of documents and then searches each shard by itself, which shows where
//! the server put each document. It compares every place with what `bulk` predicts for the very bytes that
//! were sent.

#![allow(clippy::print_stdout, reason = "a proof tells what it has proven")]

mod real;

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use bulk::Ask;
use fastrand::Rng;
use real::http::{Http, Request};
use real::server::Server;
use real::{ids, table, world};
use serde_json::{Value, json};
use testkit::real::ClusterKind;

/// Number of documents in each index with ids only.
const IDS: usize = 6000;
/// Number of documents in each of the other indices.
const ROUTED: usize = 2000;

struct Proof {
    server: Server,
    http: Http,
    rng: Rng,
    tag: String,
    /// All bodies that were sent.
    bodies: Vec<Vec<u8>>,
}

impl Proof {
    fn name(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.tag)
    }

    fn create(&mut self, suffix: &str, settings: Value, mappings: Value) -> Result<String> {
        let name = self.name(suffix);
        let mut all =
            json!({"number_of_replicas": 0, "max_result_window": 100_000, "refresh_interval": "-1"});
        for (key, value) in settings.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        self.http.put(
            &format!("/{name}"),
            &json!({"settings": all, "mappings": mappings}),
        )?;
        Ok(name)
    }

    /// Indexes documents into `name`, with routing values if wanted.
    fn fill(&mut self, name: &str, documents: usize, routed: bool) -> Result<()> {
        let mut body = String::new();
        for n in 0..documents {
            let id = ids::text(&mut self.rng, n);
            let id = ids::json(&mut self.rng, &id);
            let routing = if routed {
                let value = self.rng.usize(0..500);
                let value = ids::text(&mut self.rng, value);
                format!(",\"routing\":{}", ids::json(&mut self.rng, &value))
            } else {
                String::new()
            };
            body.push_str(&format!(
                "{{\"create\":{{\"_index\":\"{name}\",\"_id\":{id}{routing}}}}}\n"
            ));
            body.push_str("{\"@timestamp\":\"2026-11-21T00:00:00Z\"}\n");
            if n % 2000 == 1999 || n + 1 == documents {
                let body = std::mem::take(&mut body).into_bytes();
                let answer = self
                    .http
                    .must(&Request::new("POST", "/_bulk").ndjson(body.clone()))?;
                ensure!(answer["errors"] == false, "{}", first_error(&answer));
                self.bodies.push(body);
            }
        }
        Ok(())
    }

    fn resize(&mut self, how: &str, from: &str, to: &str, shards: u32) -> Result<()> {
        let http = &mut self.http;
        // Before an index can be shrunk, all of its shards must be on one node.
        let settings = http.get("/_nodes?filter_path=nodes.*.name")?;
        let node = settings["nodes"]
            .as_object()
            .and_then(|n| n.values().next())
            .context("a node")?["name"]
            .clone();
        let only = if how == "_shrink" { node } else { Value::Null };
        let block = json!({"index.blocks.write": true, "index.routing.allocation.require._name": only});
        http.put(&format!("/{from}/_settings"), &block)?;
        world::wait_settled(http)?;
        let settings = json!({"settings": {
            "index.number_of_shards": shards, "index.number_of_replicas": 0, "index.blocks.write": null,
            "index.routing.allocation.require._name": null, "index.max_result_window": 100_000,
        }});
        http.must(&Request::new("PUT", &format!("/{from}/{how}/{to}")).json(&settings))?;
        world::wait_green(http)
    }

    /// Compares every prediction with the real place, and returns how many there were.
    fn compare(&mut self) -> Result<usize> {
        let table = table::of_state(&self.server, &mut self.http)?;
        let mut truths: HashMap<String, HashMap<(String, Option<String>), u32>> = HashMap::new();
        let mut wrong = Vec::new();
        let mut compared = 0;
        for body in &self.bodies {
            let ask = Ask::default();
            for explained in bulk::explain(body, &ask, &table) {
                let op = explained.map_err(|pass| anyhow::anyhow!("passed: {pass:?}"))?;
                let truth = match truths.get(&op.index) {
                    Some(truth) => truth,
                    None => truths
                        .entry(op.index.clone())
                        .or_insert(shards_of(&mut self.http, &op.index)?),
                };
                let id = op.id.clone().context("every document has an id")?;
                let is = truth.get(&(id.clone(), op.routing.clone())).copied();
                compared += 1;
                if is.is_none() || is != op.shard {
                    wrong.push(format!(
                        "{} {id:?} routing {:?}: foretold {:?}, is {is:?}",
                        op.index, op.routing, op.shard
                    ));
                }
            }
        }
        let few: Vec<&String> = wrong.iter().take(10).collect();
        ensure!(
            wrong.is_empty(),
            "{} of {compared} are wrong: {few:#?}",
            wrong.len()
        );
        Ok(compared)
    }
}

/// Returns where the server keeps the documents of one index: (id, routing) → shard.
fn shards_of(http: &mut Http, index: &str) -> Result<HashMap<(String, Option<String>), u32>> {
    http.must(&Request::new("POST", &format!("/{index}/_refresh")))?;
    let settings = http.get(&format!("/{index}/_settings?flat_settings=true"))?;
    let shards: u32 = settings[index]["settings"]["index.number_of_shards"]
        .as_str()
        .context("shards")?
        .parse()?;
    let mut all = HashMap::new();
    for shard in 0..shards {
        let target = format!("/{index}/_search?preference=_shards:{shard}&size=100000");
        let answer = http.post(&target, &json!({"_source": false}))?;
        for hit in answer["hits"]["hits"].as_array().context("hits")? {
            let id = hit["_id"].as_str().context("an id")?.to_owned();
            all.insert((id, hit["_routing"].as_str().map(str::to_owned)), shard);
        }
    }
    Ok(all)
}

fn first_error(answer: &Value) -> String {
    let items = answer["items"].as_array().map_or(&[][..], Vec::as_slice);
    let error = items
        .iter()
        .flat_map(|i| i.as_object())
        .flat_map(|o| o.values())
        .find(|r| r.get("error").is_some());
    error.map(Value::to_string).unwrap_or_default()
}

fn on(kind: ClusterKind) -> Result<()> {
    let server = Server::shared(kind)?;
    let tag = server.cluster.fresh_name("routing");
    let mut proof = Proof {
        http: server.http(),
        server,
        rng: Rng::with_seed(7),
        tag,
        bodies: Vec::new(),
    };

    for shards in [1, 3, 5, 7] {
        let name = proof.create(
            &format!("ids-{shards}"),
            json!({"number_of_shards": shards}),
            json!({}),
        )?;
        proof.fill(&name, IDS, false)?;
    }
    let routed = proof.create("routed", json!({"number_of_shards": 6}), json!({}))?;
    proof.fill(&routed, ROUTED, true)?;
    let partitioned = json!({"number_of_shards": 8, "routing_partition_size": 3});
    let parted = proof.create("parted", partitioned, json!({"_routing": {"required": true}}))?;
    proof.fill(&parted, ROUTED, true)?;

    // Indices made from others keep the number of their slots, or (Elasticsearch 9.4) get another.
    let small = proof.create(
        "small",
        json!({"number_of_shards": 2, "number_of_routing_shards": 48}),
        json!({}),
    )?;
    let split = proof.name("split");
    proof.resize("_split", &small, &split, 6)?;
    proof.fill(&split, ROUTED, false)?;
    let large = proof.create("large", json!({"number_of_shards": 6}), json!({}))?;
    let shrunk = proof.name("shrunk");
    proof.resize("_shrink", &large, &shrunk, 2)?;
    proof.fill(&shrunk, ROUTED, false)?;

    let first = proof.create("first", json!({"number_of_shards": 5}), json!({}))?;
    let second = proof.create("second", json!({"number_of_shards": 4}), json!({}))?;
    let (alias, aliased) = (proof.name("alias"), proof.name("aliased"));
    let actions = json!({"actions": [
        {"add": {"index": first, "alias": alias, "is_write_index": true}},
        {"add": {"index": second, "alias": alias}},
        {"add": {"index": second, "alias": aliased, "index_routing": "by 🦀"}},
    ]});
    proof.http.post("/_aliases", &actions)?;
    proof.fill(&alias, ROUTED, false)?;
    proof.fill(&aliased, ROUTED, false)?;
    if proof.server.has_data_streams() {
        let stream = proof.name("stream");
        let settings = json!({"number_of_shards": 3, "number_of_replicas": 0, "max_result_window": 100_000});
        let template = json!({"index_patterns": [stream], "data_stream": {}, "priority": 900, "template": {"settings": settings}});
        proof.http.put(&format!("/_index_template/{stream}"), &template)?;
        proof.fill(&stream, ROUTED, false)?;
    }

    let compared = proof.compare()?;
    println!(
        "{}: {compared} documents are where they were foretold to be",
        proof.server.name()
    );
    ensure!(compared >= 4 * IDS + 6 * ROUTED);
    proof.http.must(&Request::new(
        "DELETE",
        &format!(
            "/{}",
            world::indices(&mut proof.server.http(), &format!("{}-", proof.tag))?
                .into_iter()
                .filter(|n| !n.starts_with('.'))
                .collect::<Vec<_>>()
                .join(",")
        ),
    ))?;
    Ok(())
}

#[test]
fn opensearch_3() -> Result<()> {
    on(ClusterKind::OpenSearch)
}

#[test]
fn opensearch_1() -> Result<()> {
    on(ClusterKind::OpenSearch1)
}

#[test]
fn opensearch_2_with_tls_and_basic_auth() -> Result<()> {
    on(ClusterKind::OpenSearchSecure)
}

#[test]
fn elasticsearch_9() -> Result<()> {
    on(ClusterKind::Elasticsearch)
}

#[test]
fn elasticsearch_8() -> Result<()> {
    on(ClusterKind::Elasticsearch8)
}

#[test]
fn elasticsearch_7() -> Result<()> {
    on(ClusterKind::Elasticsearch7)
}
