//! Asynchronous mode before real clusters: after `kill -9`, acknowledged documents are there as they were
//! sent, and a document that the cluster refuses is a dead letter with the cluster's own reason.

#![allow(
    clippy::unwrap_used,
    reason = "helpers that meet something unexpected end the test"
)]

#[path = "real_async/by_hand.rs"]
mod by_hand;
#[path = "real_async/dropped.rs"]
mod dropped;
#[path = "real_async/forms.rs"]
mod forms;
#[allow(dead_code, reason = "shared with tests that use more of it")]
#[path = "black_box/gateway.rs"]
mod gateway;
#[path = "real_async/keyed.rs"]
mod keyed;
#[path = "real_async/required.rs"]
mod required;
#[path = "real_async/typed.rs"]
mod typed;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gateway::Gateway;
use serde_json::{Value, json};
use testkit::client::Client;
use testkit::real::{ClusterKind, RealCluster};

#[test]
fn acknowledged_documents_arrive_at_a_secured_opensearch() -> Result<()> {
    prove(ClusterKind::OpenSearchSecure)
}

#[test]
fn acknowledged_documents_arrive_at_elasticsearch() -> Result<()> {
    prove(ClusterKind::Elasticsearch)
}

/// An index whose documents have a number, and the file of a gateway that queues writes to it.
struct Prepared {
    index: String,
    folder: tempfile::TempDir,
    file: PathBuf,
}

fn prepare(cluster: &RealCluster, name: &str) -> Result<Prepared> {
    let index = cluster.fresh_name(name);
    let settings = json!({
        "settings": {"number_of_shards": 3, "number_of_replicas": 0},
        "mappings": {"properties": {"n": {"type": "long"}}},
    });
    let made = cluster.client()?.put(&format!("/{index}"), &settings)?;
    made.ok()?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tidegate.yml");
    std::fs::write(&file, configuration(cluster, folder.path()))?;
    Ok(Prepared { index, folder, file })
}

/// Starts a gateway that knows the cluster.
fn start(file: &Path) -> Gateway {
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    gateway
}

fn prove(kind: ClusterKind) -> Result<()> {
    let cluster = RealCluster::shared(kind)?;
    let nodes = cluster.client()?;
    let Prepared {
        index,
        folder: _folder,
        file,
    } = prepare(&cluster, "async")?;
    let credentials = cluster.credentials();
    let client = |gateway: &Gateway| match credentials {
        Some((user, password)) => gateway.client().basic_auth(user, password),
        None => gateway.client(),
    };

    let gateway = start(&file);
    if let Some((user, _)) = credentials {
        let stranger = gateway.client().basic_auth(user, "wrong");
        let answer = stranger.post_ndjson(&format!("/{index}/_bulk"), b"{\"delete\":{\"_id\":\"1\"}}\n")?;
        ensure!(answer.status == 401, "{}", answer.status);
    }
    // Bulks for a new index pass until its first prediction is verified.
    let probe = "{\"index\":{\"_id\":\"0\"}}\n{\"n\":0}\n";
    let began = Instant::now();
    let mut queued = 0;
    while queued == 0 {
        let answer = client(&gateway)
            .post_ndjson(&format!("/{index}/_bulk"), probe.as_bytes())?
            .ok()?;
        queued += u64::from(answer.header("x-tidegate-ack").is_some());
        ensure!(
            began.elapsed() < Duration::from_secs(30),
            "never queued: {}",
            gateway.log()
        );
    }
    let mut minted = Vec::new();
    let mut last = gateway;
    for round in 0..3 {
        let mut text = String::new();
        for id in 0..200 {
            let n = round * 1000 + id;
            text.push_str(&format!("{{\"index\":{{\"_id\":\"{id}\"}}}}\n{{\"n\":{n}}}\n"));
        }
        text.push_str("{\"create\":{}}\n{\"n\":1}\n");
        text.push_str(&format!(
            "{{\"update\":{{\"_id\":\"5\"}}}}\n{{\"doc\":{{\"round\":{round}}}}}\n"
        ));
        text.push_str(&format!(
            "{{\"index\":{{\"_id\":\"d{round}\"}}}}\n{{\"n\":1}}\n{{\"delete\":{{\"_id\":\"d{round}\"}}}}\n"
        ));
        text.push_str(&format!(
            "{{\"index\":{{\"_id\":\"bad{round}\"}}}}\n{{\"n\":\"no number\"}}\n"
        ));
        let answer = client(&last)
            .post_ndjson(&format!("/{index}/_bulk"), text.as_bytes())?
            .ok()?;
        ensure!(answer.header("x-tidegate-ack").is_some());
        let answer = answer.json()?;
        let items = answer["items"].as_array().unwrap();
        minted.push(items[200]["create"]["_id"].as_str().unwrap().to_owned());
        queued += items.len() as u64;
        last.signal("KILL");
        drop(last);
        last = start(&file);
    }
    let began = Instant::now();
    let stats = loop {
        let all = last.admin().get("/queue/stats")?.ok()?.json()?;
        let one = &all["q"]["groups"]["c"];
        let of = |state: &str| one[state].as_u64().unwrap();
        ensure!(all["q"]["accepted"] == queued, "{all:#}");
        ensure!(
            of("indexed") + of("dead") + of("lost") + of("parked") + of("pending") == queued,
            "{all:#}"
        );
        // A slow cluster may have parked what it takes later.
        if of("pending") == 0 && of("parked") == 0 {
            break one.clone();
        }
        ensure!(
            began.elapsed() < Duration::from_secs(60),
            "{all:#}\n{}",
            last.log()
        );
        std::thread::sleep(Duration::from_millis(50));
    };
    let letters = last.admin().get("/dead_letters?queue=q")?.ok()?.json()?;
    ensure!(stats["dead"] == 3 && stats["lost"] == 0, "{stats:#} {letters:#}");
    let letters = letters["dead_letters"].as_array().unwrap();
    ensure!(letters.len() == 3, "{letters:#?}");
    for letter in letters {
        let reason = letter["reason"].as_str().unwrap();
        ensure!(letter["status"] == 400 && reason.contains("[n]"), "{letter:#}");
    }
    nodes
        .send("POST", &format!("/{index}/_refresh"), &[], b"")?
        .ok()?;
    let found = nodes.get(&format!("/{index}/_search?size=1000"))?.ok()?.json()?;
    let hits = found["hits"]["hits"].as_array().unwrap();
    ensure!(hits.len() == 203, "{} documents", hits.len());
    let source = |id: &str| -> Value {
        let hit = hits.iter().find(|hit| hit["_id"] == id);
        hit.map(|hit| hit["_source"].clone()).unwrap_or_default()
    };
    for id in 0..200 {
        ensure!(
            source(&id.to_string())["n"] == 2000 + id,
            "{id}: {}",
            source(&id.to_string())
        );
    }
    ensure!(source("5")["round"] == 2);
    ensure!(minted.iter().all(|id| source(id)["n"] == 1), "{minted:?}");
    traces_agree(&last, &nodes, &index, &minted[2])?;
    nodes.delete(&format!("/{index}"))?.ok()?;
    Ok(())
}

/// Checks that `/trace` tells of each document what has become of it, and what the cluster itself tells.
fn traces_agree(gateway: &Gateway, nodes: &Client, index: &str, minted: &str) -> Result<()> {
    let trace = |id: &str| -> Result<(Value, Value)> {
        let told = gateway.admin().get(&format!("/trace?index={index}&id={id}"))?;
        let told = told.ok()?.json()?;
        Ok((
            told["queues"][0]["groups"][0].clone(),
            told["clusters"]["c"].clone(),
        ))
    };
    for id in ["0", "5", "199", minted] {
        let (group, at) = trace(id)?;
        let document = nodes.get(&format!("/{index}/_doc/{id}"))?.ok()?.json()?;
        ensure!(group["state"] == "indexed", "{id}: {group:#}");
        ensure!(
            at["found"] == true
                && at["version"] == document["_version"]
                && at["seq_no"] == document["_seq_no"],
            "{id}: {at:#} {document:#}"
        );
    }
    let (group, at) = trace("bad2")?;
    let letter = &group["dead"][0];
    ensure!(
        group["state"] == "dead" && letter["status"] == 400 && at["found"] == false,
        "{group:#} {at:#}"
    );
    ensure!(
        letter["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("[n]")),
        "{letter:#}"
    );
    let (group, at) = trace("d2")?;
    ensure!(
        group["state"] == "deleted" && at["found"] == false,
        "{group:#} {at:#}"
    );
    let (group, at) = trace("never")?;
    ensure!(
        group["state"] == "not_seen" && at["found"] == false,
        "{group:#} {at:#}"
    );
    Ok(())
}

fn configuration(cluster: &RealCluster, folder: &std::path::Path) -> String {
    let account = cluster
        .credentials()
        .map(|(user, password)| format!(", basic_auth: {{username: {user}, password: '{password}'}}"));
    let tls = cluster
        .ca_path()
        .map(|ca| format!(", tls: {{ca_file: '{}'}}", ca.display()));
    format!(
        "path.data: '{}'
admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: c, queue: {{name: q, lanes: 4, min_free: 1mb}}}}}}, {{elasticsearch: {{elasticsearch: c}}}}]}}]
pipeline: [{{name: p, retry_delay_in_ms: 50, processor: [{{bulk_indexing: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}'{}{}}}]
",
        folder.join("data").display(),
        cluster.urls()[0],
        account.unwrap_or_default(),
        tls.unwrap_or_default(),
    )
}
