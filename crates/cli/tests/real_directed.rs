//! Directed documents, with neither id nor routing: every document is where the server looks for it, and
//! shards fill evenly.

#![allow(clippy::print_stdout, reason = "a proof tells what it has proven")]

mod real;

use anyhow::{Context as _, Result, ensure};
use real::gateway::Gateway;
use real::http::{Http, Request};
use real::server::Server;
use real::world::Prefixes;
use serde_json::{Value, json};
use testkit::real::ClusterKind;

/// Number of documents in all. `DIRECTED_DOCS=1000000` measures what the project promises.
fn docs() -> usize {
    let told = std::env::var("DIRECTED_DOCS").ok();
    told.and_then(|docs| docs.parse().ok()).unwrap_or(200_000)
}

fn fresh_index(http: &mut Http, name: &str, shards: u32) -> Result<()> {
    // No refresh, so that what a shard remembers of the ids sent to it stays visible.
    http.put(
        &format!("/{name}"),
        &json!({"settings": {"number_of_shards": shards, "number_of_replicas": 0, "refresh_interval": -1}}),
    )?;
    Ok(())
}

fn bulk(through: &mut Http, index: &str, docs: usize) -> Result<Vec<String>> {
    let body = "{\"index\":{}}\n{\"n\":1}\n".repeat(docs);
    let request = Request::new("POST", &format!("/{index}/_bulk")).ndjson(body.into_bytes());
    let answer = through.send(&request)?.value()?;
    ensure!(answer["errors"] == json!(false), "{answer}");
    let items = answer["items"].as_array().context("items")?.iter();
    items
        .map(|item| Ok(item["index"]["_id"].as_str().context("an id")?.to_owned()))
        .collect()
}

/// Sends bulks of changing sizes until there are `docs()` documents, and returns some of the ids.
fn fill(through: &mut Http, index: &str) -> Result<Vec<String>> {
    let (mut written, mut round, mut some) = (0, 0, Vec::new());
    while written < docs() {
        let size = [10, 1_000, 4_000, 10_000][round % 4].min(docs() - written);
        let ids = bulk(through, index, size)?;
        ensure!(ids.len() == size, "{} items for {size}", ids.len());
        some.extend(ids.into_iter().step_by(97));
        written += size;
        round += 1;
    }
    Ok(some)
}

/// Returns the number of documents in each shard.
fn filled(http: &mut Http, index: &str) -> Result<Vec<u64>> {
    http.send(&Request::new("POST", &format!("/{index}/_refresh")))?;
    let shards = http.get(&format!("/_cat/shards/{index}?format=json&h=shard,docs"))?;
    let shards = shards.as_array().context("shards")?.iter();
    shards
        .map(|shard| Ok(shard["docs"].as_str().context("docs")?.parse()?))
        .collect()
}

fn remembered_ids_bytes(http: &mut Http, index: &str) -> Result<u64> {
    let stats = http.get(&format!("/{index}/_stats/segments"))?;
    let bytes = &stats["_all"]["primaries"]["segments"]["version_map_memory_in_bytes"];
    bytes.as_u64().context("version_map_memory_in_bytes")
}

fn proof(kind: ClusterKind, shards: u32) -> Result<()> {
    let server = Server::shared(kind)?;
    let index = format!("{}directed", Prefixes::fresh().direct);
    let mut http = server.http();
    fresh_index(&mut http, &index, shards)?;
    let mut gateway = Gateway::directing(&server, "mint-packed")?;
    gateway.wait_for_now(&mut http)?;
    let mut through = gateway.http();
    let ids = fill(&mut through, &index)?;
    let remembered = remembered_ids_bytes(&mut http, &index)?;
    ensure!(
        remembered > 0,
        "a document with an id is looked up: the measure does not measure"
    );
    let filled = filled(&mut http, &index)?;
    let (most, least) = (filled.iter().max(), filled.iter().min());
    let (most, least) = most.zip(least).context("shards")?;
    let mean = docs() as f64 / f64::from(shards);
    let spread = (most - least) as f64 / mean;
    println!(
        "{}: {shards} shards have {filled:?}: {:.2} % apart",
        server.name(),
        spread * 100.0
    );
    ensure!(filled.iter().sum::<u64>() == docs() as u64);
    // Two percent of a shard's share of a million documents, or of more.
    let allowed = 0.02 * mean.max(1e6 / f64::from(shards));
    ensure!((most - least) as f64 <= allowed, "{filled:?}");
    for ids in ids.chunks(500) {
        let found = http.post(&format!("/{index}/_mget?_source=false"), &json!({ "ids": ids }))?;
        let found = found["docs"].as_array().context("docs")?;
        ensure!(
            found.iter().all(|doc| doc["found"] == json!(true)),
            "not found by its id"
        );
    }
    let one = http.get(&format!("/{index}/_doc/{}", ids[0]))?;
    ensure!(one["found"] == json!(true), "{one}");
    let counters = gateway.counters()?;
    let count = |name: &str| counters[name].as_u64().unwrap_or(0);
    ensure!(
        count("docs_directed") == docs() as u64 && count("docs_any") == 0,
        "{counters}"
    );
    http.send(&Request::new("DELETE", &format!("/{index}")))?;
    routed(&server, shards)
}

/// With a routing, the server makes the ids, and looks none up.
fn routed(server: &Server, shards: u32) -> Result<()> {
    let index = format!("{}directed", Prefixes::fresh().direct);
    let mut http = server.http();
    fresh_index(&mut http, &index, shards)?;
    let mut gateway = Gateway::directing(server, "routing")?;
    gateway.wait_for_now(&mut http)?;
    let mut through = gateway.http();
    let (mut ids, mut items) = (Vec::new(), Vec::<Value>::new());
    for size in [1, 10, 1_000, 3_000].repeat(3) {
        ids.extend(bulk(&mut through, &index, size)?);
    }
    // The answer is the server's own, the same as for a client that sets the routing itself.
    let meta = json!({"index": {"_index": index, "routing": "r"}});
    let own = Request::new("POST", "/_bulk").ndjson(format!("{meta}\n{{}}\n").into_bytes());
    items.push(http.send(&own)?.value()?["items"][0]["index"].clone());
    let given = Request::new("POST", &format!("/{index}/_bulk")).ndjson(b"{\"index\":{}}\n{}\n".to_vec());
    items.push(through.send(&given)?.value()?["items"][0]["index"].clone());
    let keys = |item: &Value| {
        item.as_object()
            .map(|item| item.keys().cloned().collect::<Vec<_>>())
    };
    ensure!(keys(&items[0]) == keys(&items[1]), "{items:?}");
    let remembered = remembered_ids_bytes(&mut http, &index)?;
    ensure!(
        remembered == 0,
        "the server looks ids up: {remembered} bytes of them are remembered"
    );
    http.send(&Request::new("POST", &format!("/{index}/_refresh")))?;
    let found = http.get(&format!("/{index}/_search?size=200"))?;
    let hits = found["hits"]["hits"].as_array().context("hits")?.clone();
    ensure!(hits.len() == 200);
    for hit in &hits {
        let id = hit["_id"].as_str().context("an id")?;
        let routing = hit["_routing"].as_str().context("a routing")?;
        let one = http.get(&format!("/{index}/_doc/{id}?routing={routing}"))?;
        ensure!(
            one["found"] == json!(true) && one["_routing"] == json!(routing),
            "{one}"
        );
    }
    let counters = gateway.counters()?;
    let count = |name: &str| counters[name].as_u64().unwrap_or(0);
    ensure!(
        count("docs_directed") == ids.len() as u64 + 1 && count("docs_any") == 0,
        "{counters}"
    );
    http.send(&Request::new("DELETE", &format!("/{index}")))?;
    Ok(())
}

#[test]
fn opensearch_3() -> Result<()> {
    proof(ClusterKind::OpenSearch, 6)
}

#[test]
fn opensearch_2_with_tls_and_basic_auth() -> Result<()> {
    proof(ClusterKind::OpenSearchSecure, 5)
}

#[test]
fn elasticsearch_9() -> Result<()> {
    proof(ClusterKind::Elasticsearch, 5)
}

#[test]
fn elasticsearch_7() -> Result<()> {
    proof(ClusterKind::Elasticsearch7, 6)
}
