//! Documents that are parked, before real clusters: a problem of an index or a request holds up nothing else,
//! and a temporary problem kills no document.

#![allow(
    clippy::unwrap_used,
    reason = "helpers that meet something unexpected end the test"
)]

#[allow(dead_code, reason = "shared with tests that use more of it")]
#[path = "black_box/gateway.rs"]
mod gateway;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gateway::Gateway;
use serde_json::{Value, json};
use testkit::real::{ClusterKind, RealCluster};

#[test]
fn conditions_of_an_index_or_a_request_hold_up_nothing_else_on_opensearch() -> Result<()> {
    let cluster = RealCluster::shared(ClusterKind::OpenSearch)?;
    let nodes = cluster.client()?;
    let (good, bad) = (cluster.fresh_name("good"), cluster.fresh_name("bad"));
    let alias = cluster.fresh_name("alias");
    for index in [&good, &bad] {
        let settings = json!({"settings": {"number_of_shards": 3, "number_of_replicas": 0}});
        nodes.put(&format!("/{index}"), &settings)?.ok()?;
    }
    let aliases = |actions: Value| nodes.post("/_aliases", &json!({"actions": actions}))?.ok();
    aliases(json!([{"add": {"index": bad, "alias": alias, "is_write_index": true}}]))?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tidegate.yml");
    std::fs::write(&file, configuration(&cluster, folder.path()))?;
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    let names = [&good, &bad, &alias];
    for name in names {
        queued(&gateway, name)?;
    }
    let pipeline = |what: &str| {
        gateway
            .admin()
            .send("POST", &format!("/pipeline/p/_{what}"), &[], &[])?
            .ok()
    };
    let blocked = |block: bool| {
        nodes
            .put(
                &format!("/{bad}/_settings"),
                &json!({"index.blocks.write": block}),
            )?
            .ok()
    };
    let state = |what: &str| nodes.post(&format!("/{bad}/_{what}"), &json!({}))?.ok();
    let writes =
        |writes: bool| aliases(json!([{"add": {"index": bad, "alias": alias, "is_write_index": writes}}]));
    let mut sent = 0;
    // The operations that were used to ask are not counted below.
    wait(&gateway, |one| one["pending"] == 0)?;
    // While the problem lasts, everything for the other index arrives; afterwards the rest arrives in order,
    // and nothing is dead.
    for (number, target) in [&bad, &bad, &alias, &good].into_iter().enumerate() {
        let parameters = if number == 3 {
            "?wait_for_active_shards=99"
        } else {
            ""
        };
        pipeline("stop")?;
        for round in 0..3 {
            sent += send(&gateway, target, parameters, &format!("{number}"), round)?;
        }
        for round in 0..3 {
            sent += send(&gateway, &good, "", &format!("other-{number}"), round)?;
        }
        match number {
            0 => drop(blocked(true)?),
            1 => drop(state("close")?),
            2 => drop(writes(false)?),
            _ => {}
        }
        pipeline("start")?;
        let began = Instant::now();
        let one = wait(&gateway, |one| one["pending"] == 0 && one["parked"] == 60)?;
        ensure!(one["dead"] == 0, "{one}");
        ensure!(
            began.elapsed() < Duration::from_secs(45),
            "{number}: {:?}",
            began.elapsed()
        );
        let other = nodes
            .get(&format!("/{good}/_doc/other-{number}-7"))?
            .ok()?
            .json()?;
        ensure!(other["_source"]["n"] == 2, "{number}: {other}");
        match number {
            0 => drop(blocked(false)?),
            1 => drop(state("open")?),
            2 => drop(writes(true)?),
            _ => {
                let given_up =
                    gateway
                        .admin()
                        .send("POST", "/queue/q/parked/_give_up?confirm=true", &[], &[]);
                given_up?.ok()?;
                wait(&gateway, |one| one["parked"] == 0 && one["dead"] == 60)?;
                break;
            }
        }
        let one = wait(&gateway, |one| one["parked"] == 0)?;
        ensure!(one["dead"] == 0, "{number}: {one}");
        let document = nodes.get(&format!("/{target}/_doc/{number}-7"))?.ok()?.json()?;
        ensure!(
            document["_source"]["n"] == 2 && document["_version"] == 3,
            "{number}: {document}"
        );
    }
    let one = wait(&gateway, |one| one["pending"] == 0)?;
    ensure!(one["indexed"].as_u64().unwrap() >= sent - 60, "{one}");
    for index in [&good, &bad] {
        nodes.delete(&format!("/{index}"))?.ok()?;
    }
    Ok(())
}

/// One copy of each shard has no node to be on, as when the node with a replica is down.
#[test]
fn writes_that_want_all_copies_wait_for_a_replica_and_hold_up_no_other_write() -> Result<()> {
    let cluster = RealCluster::shared(ClusterKind::OpenSearch)?;
    let nodes = cluster.client()?;
    let index = cluster.fresh_name("copies");
    let replicas = cluster.urls().len();
    let settings = json!({"settings": {"number_of_shards": 3, "number_of_replicas": replicas}});
    nodes.put(&format!("/{index}"), &settings)?.ok()?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tidegate.yml");
    std::fs::write(&file, configuration(&cluster, folder.path()))?;
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    queued(&gateway, &index)?;
    wait(&gateway, |one| one["pending"] == 0)?;
    send(&gateway, &index, "?wait_for_active_shards=all", "all", 1)?;
    for client in 0..10 {
        send(&gateway, &index, "", &format!("other-{client}"), 1)?;
    }
    let one = wait(&gateway, |one| one["pending"] == 0 && one["parked"] == 20)?;
    ensure!(one["dead"] == 0, "{one}");
    nodes.post(&format!("/{index}/_refresh"), &json!({}))?.ok()?;
    let others = json!({"query": {"match": {"name": "other"}}});
    let count = nodes.post(&format!("/{index}/_count"), &others)?.ok()?.json()?;
    ensure!(count["count"] == 200, "{count}");
    // The replica is not missed any more.
    let settings = json!({"index.number_of_replicas": 0});
    nodes.put(&format!("/{index}/_settings"), &settings)?.ok()?;
    let one = wait(&gateway, |one| one["parked"] == 0)?;
    ensure!(one["dead"] == 0, "{one}");
    let document = nodes.get(&format!("/{index}/_doc/all-7"))?.ok()?.json()?;
    ensure!(document["_version"] == 1, "{document}");
    nodes.delete(&format!("/{index}"))?.ok()?;
    Ok(())
}

/// Sends 20 documents with ids.
fn send(gateway: &Gateway, index: &str, parameters: &str, name: &str, n: usize) -> Result<u64> {
    let text: String = (0..20)
        .map(|id| format!("{{\"index\":{{\"_id\":\"{name}-{id}\"}}}}\n{{\"n\":{n},\"name\":\"{name}\"}}\n"))
        .collect();
    let target = format!("/{index}/_bulk{parameters}");
    let answer = gateway.client().post_ndjson(&target, text.as_bytes())?.ok()?;
    ensure!(answer.header("x-tidegate-ack").is_some(), "not queued: {target}");
    Ok(20)
}

/// Waits until a bulk for an index is queued: bulks for a new index pass until its first prediction is
/// verified.
fn queued(gateway: &Gateway, index: &str) -> Result<()> {
    let began = Instant::now();
    loop {
        let probe = "{\"index\":{\"_id\":\"0\"}}\n{\"n\":0}\n";
        let answer = gateway
            .client()
            .post_ndjson(&format!("/{index}/_bulk"), probe.as_bytes())?
            .ok()?;
        if answer.header("x-tidegate-ack").is_some() {
            return Ok(());
        }
        ensure!(
            began.elapsed() < Duration::from_secs(30),
            "never queued: {}",
            gateway.log()
        );
    }
}

fn wait(gateway: &Gateway, holds: impl Fn(&Value) -> bool) -> Result<Value> {
    let began = Instant::now();
    loop {
        let all = gateway.admin().get("/queue/stats")?.ok()?.json()?;
        let one = &all["q"]["groups"]["c"];
        if holds(one) {
            return Ok(one.clone());
        }
        ensure!(
            began.elapsed() < Duration::from_secs(60),
            "{one:#}\n{}",
            gateway.log()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn configuration(cluster: &RealCluster, folder: &std::path::Path) -> String {
    format!(
        "path.data: '{}'
admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: c, queue: {{name: q, lanes: 4, min_free: 1mb}}}}}}, {{elasticsearch: {{elasticsearch: c}}}}]}}]
pipeline: [{{name: p, retry_delay_in_ms: 50, processor: [{{bulk_indexing: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}'}}]
",
        folder.join("data").display(),
        cluster.urls()[0],
    )
}
