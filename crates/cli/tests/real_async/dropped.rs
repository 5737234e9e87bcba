//! Documents that an ingest pipeline of OpenSearch drops or fails: its answer has their items in each other's
//! places. Each document's fate is its own all the same.

use anyhow::{Result, ensure};
use serde_json::json;
use testkit::real::{ClusterKind, RealCluster};

use crate::typed::delivered;
use crate::{Prepared, prepare, start};

#[test]
fn what_fails_is_a_dead_letter_and_what_is_dropped_is_none_whatever_places_their_items_have() -> Result<()> {
    let cluster = RealCluster::shared(ClusterKind::OpenSearch)?;
    let nodes = cluster.client()?;
    let Prepared {
        index,
        folder: _folder,
        file,
    } = prepare(&cluster, "dropped")?;
    let pipeline = json!({"processors": [
        {"drop": {"if": "ctx.n == 1"}},
        {"fail": {"if": "ctx.n == 2", "message": "no {{_id}}"}},
    ]});
    nodes
        .put(&format!("/_ingest/pipeline/{index}"), &pipeline)?
        .ok()?;
    let setting = json!({"index": {"default_pipeline": index}});
    nodes.put(&format!("/{index}/_settings"), &setting)?.ok()?;
    let gateway = start(&file);
    let kinds = [2, 0, 1, 2, 1, 0, 2, 2, 1];
    let body: String = (0..kinds.len() * 5)
        .map(|id| {
            format!(
                "{{\"index\":{{\"_id\":\"{id}\"}}}}\n{{\"n\":{}}}\n",
                kinds[id % kinds.len()]
            )
        })
        .collect();
    let target = format!("/{index}/_bulk");
    let answer = gateway.client().post_ndjson(&target, body.as_bytes())?.ok()?;
    ensure!(answer.header("x-tidegate-ack").is_some(), "{}", answer.text());
    let one = delivered(&gateway)?;
    ensure!(one["dead"] == 20 && one["indexed"] == 25, "{one:#}");
    let letters = gateway.admin().get("/dead_letters?queue=q")?.ok()?.json()?;
    let letters = letters["dead_letters"].as_array().cloned().unwrap_or_default();
    let mut dead = Vec::new();
    for letter in &letters {
        let id = letter["action"]["index"]["_id"].as_str().unwrap_or_default();
        let reason = letter["reason"].as_str().unwrap_or_default();
        ensure!(reason.contains(&format!("no {id}")), "{letter:#}");
        dead.push(id.parse::<usize>()?);
    }
    dead.sort_unstable();
    let failing: Vec<usize> = (0..45).filter(|id| kinds[id % kinds.len()] == 2).collect();
    ensure!(dead == failing, "{dead:?}");
    nodes
        .send("POST", &format!("/{index}/_refresh"), &[], b"")?
        .ok()?;
    let count = nodes.get(&format!("/{index}/_count"))?.ok()?.json()?;
    ensure!(count["count"] == 10, "{count}");
    nodes.delete(&format!("/{index}"))?.ok()?;
    nodes.delete(&format!("/_ingest/pipeline/{index}"))?.ok()?;
    Ok(())
}
