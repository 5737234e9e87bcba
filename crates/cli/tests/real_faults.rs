//! Nodes that die and return, shards that move, indices that come, go and roll over, all during load through
//! Tidegate: there must never be a wrong answer.
//!
//! A wrong answer is an item that was acknowledged but is not in the index as it was sent. An item with an
//! error may or may not be there; what the client can't know must not be claimed.

#![allow(clippy::print_stdout, reason = "a proof tells what it has proven")]

mod real;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use real::gateway::Gateway;
use real::http::{Http, Origin, Request};
use real::server::Server;
use real::world;
use serde_json::{Value, json};
use testkit::real::{ClusterKind, Own, RealCluster};

/// A change must be noticed within this time.
const SEEN_WITHIN: Duration = Duration::from_secs(1);

/// The answers to the load's clients.
#[derive(Default)]
struct Told {
    /// Id → number in the document that was acknowledged last.
    acknowledged: HashMap<String, u64>,
    /// Ids whose deletion was acknowledged last.
    gone: Vec<String>,
    /// Ids with an operation that failed or got no answer: their content is undetermined.
    open: HashMap<String, Vec<u64>>,
    bulks: u32,
    items_failed: u32,
    requests_failed: u32,
}

/// Writes bulks through the gateway until told to stop. A bulk either rewrites old documents or creates new
/// ones, which a later bulk deletes. Each id belongs to one writer, so a conflict or a missing document could
/// only come from a second try.
fn load(origin: &Origin, index: &str, writer: u32, stop: &AtomicBool) -> Told {
    let mut http = Http::with_patience(origin, Duration::from_secs(120));
    let mut told = Told::default();
    let (mut number, mut created) = (0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let mut sent: Vec<(&str, String, u64)> = Vec::new();
        for id in std::mem::take(&mut created) {
            sent.push(("delete", id, 0));
        }
        while sent.len() < 200 {
            number += 1;
            sent.push(match told.bulks % 3 {
                0 => ("create", format!("c{writer}-{number}"), number),
                _ => ("index", format!("w{writer}-{}", number % 1700), number),
            });
        }
        let mut body = String::new();
        for (op, id, number) in &sent {
            body.push_str(&format!(
                "{{\"{op}\":{{\"_index\":\"{index}\",\"_id\":\"{id}\"}}}}\n"
            ));
            if *op != "delete" {
                body.push_str(&format!("{{\"number\":{number}}}\n"));
            }
        }
        told.bulks += 1;
        let answer = http.send(&Request::new("POST", "/_bulk").ndjson(body.into_bytes()));
        let items = match answer {
            Ok(answer) if answer.status == 200 => {
                answer.value().map(|v| v["items"].clone()).unwrap_or_default()
            }
            _ => {
                told.requests_failed += 1;
                Value::Null
            }
        };
        for (at, (op, id, number)) in sent.into_iter().enumerate() {
            let item = &items[at][op];
            let status = item["status"].as_u64().unwrap_or(0);
            assert!(status != 409 && status != 404, "nobody else writes {id}: {item}");
            if (200..300).contains(&status) {
                assert_eq!(item["_id"], id, "an item of another document");
                if op == "delete" {
                    told.acknowledged.remove(&id);
                    told.gone.push(id);
                    continue;
                }
                if op == "create" && number % 20 > 0 {
                    created.push(id.clone());
                }
                told.acknowledged.insert(id.clone(), number);
                told.open.remove(&id);
            } else {
                told.items_failed += u32::from(!item.is_null());
                if op == "delete" {
                    told.acknowledged.remove(&id);
                } else {
                    told.open.entry(id).or_default().push(number);
                }
            }
        }
    }
    told
}

/// Checks that every acknowledged document is there with its content.
fn compare(http: &mut Http, index: &str, told: &Told) -> Result<()> {
    http.must(&Request::new("POST", &format!("/{index}/_refresh")))?;
    let answer = http.get(&format!("/{index}/_search?size=10000&version=true"))?;
    let hits = answer["hits"]["hits"].as_array().context("hits")?;
    ensure!(hits.len() < 10_000, "more documents than one search shows");
    let held: HashMap<&str, u64> = hits
        .iter()
        .filter_map(|hit| Some((hit["_id"].as_str()?, hit["_source"]["number"].as_u64()?)))
        .collect();
    let there = told.gone.iter().filter(|id| held.contains_key(id.as_str()));
    let mut wrong: Vec<String> = there.map(|id| format!("{id}: deleted, and there")).collect();
    for (id, number) in &told.acknowledged {
        let is = held.get(id.as_str()).copied();
        let open = told.open.get(id);
        if is != Some(*number) && !is.is_some_and(|is| open.is_some_and(|open| open.contains(&is))) {
            wrong.push(format!("{id}: acknowledged {number}, is {is:?}, open {open:?}"));
        }
    }
    ensure!(
        wrong.is_empty(),
        "{} wrong: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(10)]
    );
    Ok(())
}

/// Runs writers through the gateway while `faults` happen, and compares the result.
fn under_load(
    server: &Server,
    gateway: &mut Gateway,
    index: &str,
    faults: impl FnOnce(&mut Gateway) -> Result<()>,
) -> Result<()> {
    let stop = AtomicBool::new(false);
    let origin = gateway.origin.clone();
    let (all, faulted) = std::thread::scope(|threads| {
        let writers: Vec<_> = (0..3)
            .map(|n| (n, &origin, &stop))
            .map(|(n, origin, stop)| threads.spawn(move || load(origin, index, n, stop)))
            .collect();
        std::thread::sleep(Duration::from_millis(500));
        let faulted = faults(gateway);
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
        let all: Vec<Told> = writers
            .into_iter()
            .map(|w| w.join().expect("a writer does not panic"))
            .collect();
        (all, faulted)
    });
    faulted?;
    server.cluster.wait_green()?;
    for told in &all {
        println!(
            "{} bulks, {} documents acknowledged, {} items failed, {} requests failed",
            told.bulks,
            told.acknowledged.len(),
            told.items_failed,
            told.requests_failed
        );
        ensure!(told.bulks > 5 && told.acknowledged.len() > 200, "hardly any load");
        compare(&mut server.http(), index, told)?;
    }
    Ok(())
}

fn create(http: &mut Http, name: &str, shards: u32, replicas: u32) -> Result<()> {
    let settings = json!({
        "number_of_shards": shards, "number_of_replicas": replicas,
        "unassigned.node_left.delayed_timeout": "0s",
    });
    http.put(
        &format!("/{name}"),
        &json!({"settings": settings, "mappings": {"properties": {"number": {"type": "long"}}}}),
    )?;
    world::wait_green(http)
}

/// Returns the number of nodes that the gateway knows and considers healthy.
fn nodes_up(topology: &Value) -> usize {
    let nodes = topology["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    nodes.iter().filter(|node| node["health"]["up"] == true).count()
}

#[test]
fn a_node_that_is_killed_and_returns_under_load_loses_nothing() -> Result<()> {
    let server = Server::alone(ClusterKind::Elasticsearch7)?;
    let mut http = server.http();
    let index = server.cluster.fresh_name("killed");
    create(&mut http, &index, 6, 1)?;
    let mut gateway = Gateway::before(&server)?;
    gateway.wait_for_now(&mut http)?;
    under_load(&server, &mut gateway, &index, |gateway| {
        server.cluster.kill_node(3)?;
        let began = Instant::now();
        gateway.wait_until(
            "the dead node has left the rotation",
            Duration::from_secs(60),
            |t| nodes_up(t) == 2,
        )?;
        println!("the dead node left the rotation after {:?}", began.elapsed());
        std::thread::sleep(Duration::from_secs(2));
        server.cluster.start_node(3)?;
        let began = Instant::now();
        gateway.wait_until("the node is back", Duration::from_secs(60), |t| nodes_up(t) == 3)?;
        println!(
            "the node was back {:?} after the cluster was green",
            began.elapsed()
        );
        std::thread::sleep(Duration::from_secs(1));
        Ok(())
    })?;
    http.must(&Request::new("DELETE", &format!("/{index}")))?;
    gateway.split_at_least(0.5)
}

#[test]
fn a_shard_that_moves_under_load_loses_nothing_and_is_followed() -> Result<()> {
    let server = Server::shared(ClusterKind::OpenSearch)?;
    let mut http = server.http();
    let index = server.cluster.fresh_name("moved");
    create(&mut http, &index, 3, 1)?;
    let mut gateway = Gateway::before(&server)?;
    gateway.wait_for_now(&mut http)?;
    under_load(&server, &mut gateway, &index, |gateway| {
        let mut http = server.http();
        // A busy machine delays some changes; a gateway that looks too seldom delays most of them.
        let mut all_took = Vec::new();
        while all_took.iter().filter(|took| **took < SEEN_WITHIN).count() < 3 {
            ensure!(all_took.len() < 6, "relocations were seen after {all_took:?}");
            move_a_primary(&mut http, &index)?;
            let began = Instant::now();
            gateway.wait_for_now(&mut http)?;
            println!("a relocation was seen after {:?}", began.elapsed());
            all_took.push(began.elapsed());
        }
        Ok(())
    })?;
    http.must(&Request::new("DELETE", &format!("/{index}")))?;
    gateway.split_at_least(0.9)
}

/// Moves a primary to a node that has no copy of it, and waits until it is there.
fn move_a_primary(http: &mut Http, index: &str) -> Result<()> {
    let state = http.get(&format!("/_cluster/state/routing_table,nodes/{index}"))?;
    let nodes: Vec<String> = state["nodes"]
        .as_object()
        .context("nodes")?
        .keys()
        .cloned()
        .collect();
    let shards = state["routing_table"]["indices"][index]["shards"]
        .as_object()
        .context("shards")?;
    let (shard, from, to) = shards
        .iter()
        .find_map(|(shard, copies)| {
            let copies = copies.as_array()?;
            let from = copies.iter().find(|copy| copy["primary"] == true)?["node"]
                .as_str()?
                .to_owned();
            let free = nodes
                .iter()
                .find(|node| copies.iter().all(|copy| copy["node"] != node.as_str()))?;
            Some((shard.parse::<u32>().ok()?, from, free.clone()))
        })
        .context("a shard that can move")?;
    let command =
        json!({"commands": [{"move": {"index": index, "shard": shard, "from_node": from, "to_node": to}}]});
    http.post("/_cluster/reroute", &command)?;
    world::wait_settled(http)
}

#[test]
fn indices_that_come_go_and_roll_over_are_seen_within_a_second() -> Result<()> {
    let server = Server::shared(ClusterKind::OpenSearch)?;
    let mut http = server.http();
    let mut gateway = Gateway::before(&server)?;
    let name = server.cluster.fresh_name("changes");
    let mut all_took = Vec::new();
    let mut within = |gateway: &mut Gateway, http: &mut Http, what: &str| -> Result<()> {
        let began = Instant::now();
        gateway.wait_for_now(http)?;
        println!("{what}: seen after {:?}", began.elapsed());
        all_took.push(began.elapsed());
        Ok(())
    };
    let direct_share_of = |gateway: &Gateway, target: &str| -> Result<f64> {
        let before = gateway.counters()?;
        let lines: String = (0..300).map(|n| format!("{{\"create\":{{\"_id\":\"{target}-{n}\"}}}}\n{{\"@timestamp\":\"2026-11-21T00:00:00Z\"}}\n")).collect();
        let answer = gateway
            .http()
            .must(&Request::new("POST", &format!("/{target}/_bulk")).ndjson(lines.into_bytes()))?;
        ensure!(answer["errors"] == false, "{answer}");
        let after = gateway.counters()?;
        let more = |name: &str| after[name].as_u64().unwrap_or(0) - before[name].as_u64().unwrap_or(0);
        Ok(if after.is_null() {
            1.0
        } else {
            more("docs_direct") as f64 / 300.0
        })
    };

    create(&mut http, &name, 3, 0)?;
    within(&mut gateway, &mut http, "a new index")?;
    ensure!(
        direct_share_of(&gateway, &name)? > 0.99,
        "the new index's documents do not go to their nodes"
    );

    // The name is the same, but the shards are others: an old table would send nearly everything to the wrong
    // node.
    http.must(&Request::new("DELETE", &format!("/{name}")))?;
    create(&mut http, &name, 7, 0)?;
    within(&mut gateway, &mut http, "an index deleted and made anew")?;
    ensure!(
        direct_share_of(&gateway, &name)? > 0.99,
        "the index made anew is not split"
    );

    let stream = format!("{name}-stream");
    let template = json!({"index_patterns": [stream], "data_stream": {}, "priority": 900, "template": {"settings": {"number_of_shards": 3, "number_of_replicas": 0}}});
    http.put(&format!("/_index_template/{stream}"), &template)?;
    http.must(&Request::new("PUT", &format!("/_data_stream/{stream}")))?;
    within(&mut gateway, &mut http, "a new data stream")?;
    http.must(&Request::new("POST", &format!("/{stream}/_rollover")))?;
    within(&mut gateway, &mut http, "a rollover")?;
    ensure!(
        direct_share_of(&gateway, &stream)? > 0.99,
        "the new write index is not split"
    );
    let newest =
        http.get(&format!("/_data_stream/{stream}"))?["data_streams"][0]["indices"][1]["index_name"].clone();
    let newest = newest.as_str().context("two backing indices")?.to_owned();
    http.must(&Request::new("POST", &format!("/{newest}/_refresh")))?;
    let count = http.get(&format!("/{newest}/_count"))?["count"].clone();
    ensure!(count == 300, "the new write index has {count} documents");

    http.must(&Request::new("DELETE", &format!("/_data_stream/{stream}")))?;
    http.must(&Request::new("DELETE", &format!("/{name}")))?;
    // A busy machine delays one of them; a gateway that looks too seldom delays most of them.
    all_took.sort();
    ensure!(all_took[1] < SEEN_WITHIN, "seen after {all_took:?}");
    gateway.split_at_least(0.9)
}

#[test]
fn a_cluster_rebuilt_behind_the_same_address_is_learnt_anew() -> Result<()> {
    // Two clusters take turns behind one address, which is that of a small relay.
    let own = Own {
        nodes: 1,
        ..Own::new(ClusterKind::Elasticsearch7)
    };
    let first = Server::of(RealCluster::own(&own)?)?;
    let uuid = |server: &Server| -> Result<Value> {
        Ok(server.http().get("/_cluster/state/version")?["cluster_uuid"].clone())
    };
    let second = Server::of(RealCluster::own(&own)?)?;
    let relay = real::relay::Relay::to(&first.nodes[0].address)?;
    create(&mut first.http(), "logs", 2, 0)?;
    create(&mut second.http(), "logs", 5, 0)?;
    let mut gateway = Gateway::before_url(&relay.url(), &first)?;
    let known = uuid(&first)?;
    gateway.wait_until("the first cluster is known", Duration::from_secs(30), |t| {
        t["cluster_uuid"] == known
    })?;
    let write = |gateway: &Gateway, from: u32| -> Result<()> {
        let lines: String = (from..from + 200)
            .map(|n| format!("{{\"index\":{{\"_id\":\"{n}\"}}}}\n{{\"number\":{n}}}\n"))
            .collect();
        let answer = gateway
            .http()
            .must(&Request::new("POST", "/logs/_bulk?refresh=true").ndjson(lines.into_bytes()))?;
        ensure!(answer["errors"] == false, "{answer}");
        Ok(())
    };
    write(&gateway, 0)?;

    relay.now_to(&second.nodes[0].address);
    drop(first);
    let began = Instant::now();
    let anew = uuid(&second)?;
    gateway.wait_until("the second cluster is known", Duration::from_secs(60), |t| {
        t["cluster_uuid"] == anew
    })?;
    println!("the rebuilt cluster was known after {:?}", began.elapsed());
    write(&gateway, 1000)?;
    let count = second.http().get("/logs/_count")?["count"].clone();
    ensure!(count == 200, "the second cluster has {count} documents");
    Ok(())
}
