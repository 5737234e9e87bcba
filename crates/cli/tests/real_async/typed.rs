//! Actions with a `_type`, where the server accepts types: they are queued without the type, and executed as
//! the server would have executed them. Also checks that these servers' answers have what delivery asks for.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::real::{ClusterKind, RealCluster};

use crate::gateway::Gateway;
use crate::{Prepared, prepare, start};

#[test]
fn typed_actions_are_queued_and_executed_at_elasticsearch_7() -> Result<()> {
    prove(ClusterKind::Elasticsearch7)
}

#[test]
fn typed_actions_are_queued_and_executed_at_opensearch_1() -> Result<()> {
    prove(ClusterKind::OpenSearch1)
}

fn prove(kind: ClusterKind) -> Result<()> {
    let cluster = RealCluster::shared(kind)?;
    let nodes = cluster.client()?;
    let Prepared {
        index,
        folder: _folder,
        file,
    } = prepare(&cluster, "typed")?;
    let gateway = start(&file);
    let line = |op: &str, id: &str, more: &str| {
        format!("{{\"{op}\":{{\"_index\":\"{index}\",\"_type\":\"_doc\",\"_id\":\"{id}\"{more}}}}}\n")
    };
    let text = [
        line("index", "1", "") + "{\"n\":1}\n",
        line("create", "2", "") + "{\"n\":2}\n",
        line("update", "1", ",\"_source\":true") + "{\"doc\":{\"m\":5}}\n",
        line("index", "gone", "") + "{\"n\":9}\n",
        line("delete", "gone", ""),
        line("delete", "never", ""),
        line("index", "bad", "") + "{\"n\":\"no number\"}\n",
        line("update", "nowhere", "") + "{\"doc\":{}}\n",
    ]
    .concat();
    let by_path = "{\"index\":{\"_id\":\"3\"}}\n{\"n\":3}\n{\"create\":{}}\n{\"n\":30}\n";
    for (path, body, operations) in [
        ("/_bulk".to_owned(), text.as_str(), 8),
        (
            format!("/{index}/_doc/_bulk?_source=true&timeout=90s"),
            by_path,
            2,
        ),
    ] {
        let answer = gateway.client().post_ndjson(&path, body.as_bytes())?.ok()?;
        let queued = answer.header("x-tidegate-ack").is_some();
        ensure!(queued, "{path}: {}", answer.text());
        let answer = answer.json()?;
        ensure!(
            answer["items"]
                .as_array()
                .is_some_and(|items| items.len() == operations),
            "{answer}"
        );
    }
    let json = [("content-type", "application/json")];
    let single = gateway.client().send(
        "PUT",
        &format!("/{index}/_doc/4?refresh=true"),
        &json,
        b"{\"n\":4}",
    )?;
    ensure!(
        single.status == 201 && single.header("x-tidegate-ack").is_some(),
        "{}",
        single.text()
    );
    let refused = gateway
        .client()
        .send("PUT", &format!("/{index}/_doc/5?refresh=banana"), &json, b"{}")?;
    ensure!(
        refused.status == 400 && refused.text().contains("banana"),
        "{}",
        refused.text()
    );
    let one = delivered(&gateway)?;
    ensure!(
        (&one["indexed"], &one["dead"]) == (&json!(9), &json!(2)),
        "{one:#}"
    );
    let letters = gateway.admin().get("/dead_letters?queue=q")?.ok()?.json()?;
    let mut told: Vec<_> = letters["dead_letters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|letter| {
            (
                letter["status"].as_u64(),
                letter["type"].as_str().unwrap_or_default(),
            )
        })
        .collect();
    told.sort_unstable();
    let expected = [
        (Some(400), "mapper_parsing_exception"),
        (Some(404), "document_missing_exception"),
    ];
    ensure!(told == expected, "{letters:#}");
    nodes
        .send("POST", &format!("/{index}/_refresh"), &[], b"")?
        .ok()?;
    let found = nodes.get(&format!("/{index}/_search?size=100"))?.ok()?.json()?;
    let hits = found["hits"]["hits"].as_array().unwrap();
    ensure!(hits.len() == 5, "{found:#}");
    let source = |id: &str| {
        let hit = hits.iter().find(|hit| hit["_id"] == id);
        hit.map(|hit| hit["_source"].clone()).unwrap_or_default()
    };
    ensure!(source("1") == json!({"n": 1, "m": 5}), "{}", source("1"));
    ensure!(
        [("2", 2), ("3", 3), ("4", 4)]
            .iter()
            .all(|(id, n)| source(id)["n"] == *n)
    );
    nodes.delete(&format!("/{index}"))?.ok()?;
    Ok(())
}

/// Returns the accounts once everything is delivered.
pub(crate) fn delivered(gateway: &Gateway) -> Result<Value> {
    let began = Instant::now();
    loop {
        let all = gateway.admin().get("/queue/stats")?.ok()?.json()?;
        let one = &all["q"]["groups"]["c"];
        if one["pending"] == 0 && one["parked"] == 0 {
            return Ok(one.clone());
        }
        ensure!(
            began.elapsed() < Duration::from_secs(60),
            "{all:#}\n{}",
            gateway.log()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
