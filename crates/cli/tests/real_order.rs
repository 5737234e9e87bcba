//! Aliases and data streams of a real cluster that come to lead elsewhere while writes through them are
//! queued or in doubt: the newer version wins, and no document is in two indices.

#![allow(
    clippy::unwrap_used,
    reason = "helpers that meet something unexpected end the test"
)]

#[allow(dead_code, reason = "shared with tests that use more of it")]
#[path = "black_box/gateway.rs"]
mod gateway;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gateway::Gateway;
use serde_json::{Value, json};
use testkit::client::Client;
use testkit::real::{ClusterKind, RealCluster};

struct Before {
    cluster: RealCluster,
    nodes: Client,
    name: String,
    _folder: tempfile::TempDir,
    file: PathBuf,
}

impl Before {
    /// Makes a gateway's file; `pipeline` has the settings of its pipeline, `indexing` those of its
    /// processor.
    fn new(pipeline: &str, indexing: &str) -> Result<Self> {
        let cluster = RealCluster::shared(ClusterKind::OpenSearch)?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("tidegate.yml");
        let text = format!(
            "path.data: '{}'
admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: c, mode: async, queue: {{name: q, lanes: 16, min_free: 1mb}}}}}}, {{elasticsearch: {{elasticsearch: c}}}}]}}]
pipeline: [{{name: p{pipeline}, processor: [{{bulk_indexing: {{elasticsearch: c{indexing}}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}'}}]
",
            folder.path().join("data").display(),
            cluster.urls()[0],
        );
        std::fs::write(&file, text)?;
        Ok(Self {
            nodes: cluster.client()?,
            name: cluster.fresh_name("order"),
            cluster,
            _folder: folder,
            file,
        })
    }

    fn start(&self) -> Gateway {
        let gateway = Gateway::start(&["--config", self.file.to_str().unwrap()]);
        gateway.wait_until("the topology is known", |status| status["state"] == "watching");
        gateway
    }

    fn make(&self, index: &str, shards: u32) -> Result<()> {
        let settings = json!({"settings": {
            "number_of_shards": shards, "number_of_replicas": 0, "refresh_interval": "1h",
        }});
        self.nodes.put(&format!("/{index}"), &settings)?.ok()?;
        Ok(())
    }

    fn aliases(&self, actions: &Value) -> Result<()> {
        self.nodes.post("/_aliases", &json!({"actions": actions}))?.ok()?;
        Ok(())
    }

    /// Returns the document of this number in an index, refreshed or not.
    fn doc(&self, index: &str, n: usize) -> Result<Option<Value>> {
        let answer = self.nodes.get(&format!("/{index}/_doc/{n}"))?;
        Ok((answer.status == 200).then_some(answer.json()?["_source"].clone()))
    }

    fn count(&self, index: &str) -> Result<usize> {
        let mut count = 0;
        for n in 0..DOCS {
            count += usize::from(self.doc(index, n)?.is_some());
        }
        Ok(count)
    }

    /// Sends a bulk until it is queued for this index: before that the gateway may not know of a change.
    fn queued(&self, gateway: &Gateway, name: &str, index: &str, query: &str, body: &str) -> Result<()> {
        let probe = "{\"delete\":{\"_id\":\"probe\"}}\n";
        let create = "{\"create\":{\"_id\":\"probe\"}}\n{\"@timestamp\":0}\n";
        let probe = if index.starts_with(".ds-") { create } else { probe };
        within(30, || {
            let answer = gateway
                .client()
                .post_ndjson(&format!("/{name}/_bulk"), probe.as_bytes())?;
            let told = answer.header("x-tidegate-ack").is_some();
            let answer = answer.json()?;
            let item = answer["items"][0]
                .as_object()
                .and_then(|item| item.values().next().cloned());
            Ok(told && item.is_some_and(|item| item["_index"] == index))
        })?;
        let path = format!("/{name}/_bulk{query}");
        let answer = gateway.client().post_ndjson(&path, body.as_bytes())?.ok()?;
        ensure!(answer.header("x-tidegate-ack").is_some(), "{:?}", answer.json());
        Ok(())
    }

    fn drained(&self, gateway: &Gateway) -> Result<Value> {
        let mut last = Value::Null;
        within(60, || {
            let all = gateway.admin().get("/queue/stats")?.ok()?.json()?;
            last = all["q"]["groups"]["c"].clone();
            Ok(last["pending"] == 0 && last["parked"] == 0)
        })?;
        Ok(last)
    }
}

fn within(seconds: u64, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !holds()? {
        ensure!(
            began.elapsed() < Duration::from_secs(seconds),
            "not so after {seconds} s"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn body(operation: &str, docs: usize, v: u32) -> String {
    let line = |n| format!("{{\"{operation}\":{{\"_id\":\"{n}\"}}}}\n{{\"v\":{v},\"@timestamp\":0}}\n");
    (0..docs).map(line).collect()
}

#[test]
fn the_newer_version_wins_when_an_alias_is_swapped_while_writes_through_it_are_queued() -> Result<()> {
    let before = Before::new(", auto_start: false, retry_delay_in_ms: 50", "")?;
    let name = &before.name;
    let (alias, one, two) = (format!("{name}-a"), format!("{name}-1"), format!("{name}-2"));
    before.make(&one, 2)?;
    before.make(&two, 5)?;
    before.aliases(&json!([{"add": {"index": one, "alias": alias}}]))?;
    let gateway = before.start();
    // Many lines come before them, so the lane of the older ones has more to do.
    before.queued(&gateway, &alias, &one, "", &body("index", 8, 0).repeat(40))?;
    before.queued(&gateway, &alias, &one, "", &body("index", 8, 1))?;
    before.aliases(&json!([
        {"remove": {"index": one, "alias": alias}}, {"add": {"index": two, "alias": alias}},
    ]))?;
    before.queued(&gateway, &alias, &two, "", &body("index", 8, 2))?;
    gateway
        .admin()
        .send("POST", "/pipeline/p/_start", &[], &[])?
        .ok()?;
    before.drained(&gateway)?;
    for n in 0..8 {
        let doc = before.doc(&two, n)?;
        ensure!(doc.as_ref().is_some_and(|doc| doc["v"] == 2), "{n}: {doc:?}");
    }
    before.nodes.delete(&format!("/{one},{two}"))?.ok()?;
    Ok(())
}

#[test]
fn no_document_is_in_two_indices_after_a_rollover_between_a_lost_answer_and_the_resend() -> Result<()> {
    for operation in ["create", "index"] {
        let before = Before::new(", retry_delay_in_ms: 50", ", timeout: 3s")?;
        let name = &before.name;
        let (alias, one, two) = (format!("{name}-a"), format!("{name}-1"), format!("{name}-2"));
        before.make(&one, 2)?;
        before.aliases(&json!([{"add": {"index": one, "alias": alias, "is_write_index": true}}]))?;
        let gateway = before.start();
        // The answer comes with the next refresh, in an hour: later than anybody waits.
        let written = body(operation, DOCS, 1);
        before.queued(&gateway, &alias, &one, "?refresh=wait_for", &written)?;
        within(30, || Ok(before.count(&one)? == DOCS))?;
        let settings = json!({"settings": {"number_of_shards": 3, "number_of_replicas": 0}});
        let rolled = before
            .nodes
            .post(&format!("/{alias}/_rollover/{two}"), &settings)?;
        ensure!(rolled.ok()?.json()?["rolled_over"] == true);
        let account = before.drained(&gateway)?;
        ensure!(account["dead"] == 0, "{account:#}");
        let counts = (before.count(&one)?, before.count(&two)?);
        ensure!(counts == (DOCS, 0), "{operation}: {counts:?}");
        before.nodes.delete(&format!("/{one},{two}"))?.ok()?;
    }
    Ok(())
}

#[test]
fn no_document_is_in_two_backing_indices_after_a_rollover_between_kill_9_and_the_resend() -> Result<()> {
    let before = Before::new(", retry_delay_in_ms: 50", "")?;
    let name = &before.name;
    let template = json!({
        "index_patterns": [name], "data_stream": {}, "priority": 900,
        "template": {"settings": {"number_of_shards": 2, "number_of_replicas": 0, "refresh_interval": "1h"}},
    });
    before
        .nodes
        .put(&format!("/_index_template/{name}"), &template)?
        .ok()?;
    before
        .nodes
        .send("PUT", &format!("/_data_stream/{name}"), &[], b"")?
        .ok()?;
    let backing = |n: u32| format!(".ds-{name}-{n:06}");
    let gateway = before.start();
    let written = body("create", DOCS, 1);
    before.queued(&gateway, name, &backing(1), "?refresh=wait_for", &written)?;
    within(30, || Ok(before.count(&backing(1))? == DOCS))?;
    gateway.signal("KILL");
    drop(gateway);
    let rolled = before.nodes.post(&format!("/{name}/_rollover"), &Value::Null)?;
    ensure!(rolled.ok()?.json()?["rolled_over"] == true);
    let gateway = before.start();
    let account = before.drained(&gateway)?;
    ensure!(account["dead"] == 0, "{account:#}");
    let counts = (before.count(&backing(1))?, before.count(&backing(2))?);
    ensure!(counts == (DOCS, 0), "{counts:?}");
    before.nodes.delete(&format!("/_data_stream/{name}"))?.ok()?;
    before.nodes.delete(&format!("/_index_template/{name}"))?.ok()?;
    drop(before.cluster);
    Ok(())
}

/// A look for an update asks for the fields that its `doc` sets. Servers give those as the source has them.
#[test]
fn fields_that_a_server_is_asked_for_are_as_in_the_whole_source() -> Result<()> {
    for kind in [
        ClusterKind::OpenSearch,
        ClusterKind::Elasticsearch7,
        ClusterKind::Elasticsearch,
    ] {
        let cluster = RealCluster::shared(kind)?;
        let (nodes, index) = (cluster.client()?, cluster.fresh_name("fields"));
        let source = json!({
            "@t": 0, "none": null, "list": [], "object": {}, "dotted.name": {"x": 1}, "text": "é\n",
            "a": {"none": null, "list": [1, {"x": null, "y": []}], "object": {}, "b": {"c": 1.5, "d": 1}},
            "small": 1e-7, "large": 12_345_678_901_234_567_890_u64, "float": 100.0, "other": 7,
        });
        let mapping = json!({"mappings": {"enabled": false}, "settings": {"number_of_replicas": 0}});
        nodes.put(&format!("/{index}"), &mapping)?.ok()?;
        nodes.put(&format!("/{index}/_doc/1"), &source)?.ok()?;
        let paths = [
            "@t",
            "none",
            "list",
            "object",
            "dotted.name.x",
            "text",
            "a.none",
            "a.list",
            "a.object",
            "a.b.c",
            "small",
            "large",
            "float",
        ];
        let wanted = json!({"docs": [{"_index": index, "_id": "1", "_source": paths}]});
        let answer = nodes.post("/_mget", &wanted)?.ok()?.json()?;
        let mut expected = source.clone();
        expected.as_object_mut().unwrap().shift_remove("other");
        expected["a"]["b"].as_object_mut().unwrap().shift_remove("d");
        ensure!(
            answer["docs"][0]["_source"] == expected,
            "{kind:?}: {}",
            answer["docs"][0]["_source"]
        );
        // Byte by byte, as it was sent.
        let (stored, sent) = (
            nodes.get(&format!("/{index}/_source/1"))?.ok()?,
            source.to_string(),
        );
        ensure!(stored.text() == sent, "{kind:?}: {}", stored.text());
        nodes.delete(&format!("/{index}"))?.ok()?;
    }
    Ok(())
}

const DOCS: usize = 100;
