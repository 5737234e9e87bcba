//! Requests that require a data stream or an alias, at Elasticsearch, which knows both requirements: what is
//! neither is refused through the queue as it is directly, and nothing is made.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::client::{Answer, Client};
use testkit::real::{ClusterKind, RealCluster};

use crate::gateway::Gateway;
use crate::{Prepared, prepare, start};

#[test]
fn what_requires_a_data_stream_gets_404_as_it_does_directly_and_makes_nothing() -> Result<()> {
    let cluster = RealCluster::shared(ClusterKind::Elasticsearch)?;
    let nodes = cluster.client()?;
    let Prepared {
        index,
        folder: _folder,
        file,
    } = prepare(&cluster, "required")?;
    let stream = cluster.fresh_name("required-stream");
    let template = json!({"index_patterns": [stream], "data_stream": {}, "priority": 500,
        "template": {"settings": {"number_of_shards": 1, "number_of_replicas": 0}}});
    nodes
        .put(&format!("/_index_template/{stream}"), &template)?
        .ok()?;
    // The stream is created by a write: the trimmed builds of Elasticsearch have data streams, but no
    // requests for them. So it stays when the test is over.
    let fits = "{\"create\":{}}\n{\"@timestamp\":\"2020-01-01T00:00:00Z\"}\n";
    let required = format!("/{stream}/_bulk?require_data_stream=true");
    let made = nodes.post_ndjson(&required, fits.as_bytes())?.ok()?.json()?;
    ensure!(made["errors"] == false, "{made}");
    let gateway = start(&file);
    let through = gateway.client();

    let missing = cluster.fresh_name("required-missing");
    for name in [&missing, &index] {
        for requirement in ["require_data_stream", "require_alias"] {
            let by_url = format!("{{\"create\":{{\"_index\":\"{name}\",\"_id\":\"1\"}}}}\n{{\"n\":1}}\n");
            let by_line = by_url.replacen("\"_id\"", &format!("\"{requirement}\":true,\"_id\""), 1);
            for (target, body) in [
                (format!("/_bulk?{requirement}=true"), &by_url),
                (format!("/{name}/_bulk?{requirement}=true"), &by_url),
                (format!("/_bulk?{requirement}"), &by_url),
                ("/_bulk".to_owned(), &by_line),
            ] {
                let send = |client: &Client| client.post_ndjson(&target, body.as_bytes());
                let (directly, queued) = (send(&nodes)?, send(&through)?);
                let item = &directly.json()?["items"][0]["create"];
                ensure!(item["status"] == 404, "{target}: {item}");
                same(&target, &directly, &queued)?;
            }
            let single = format!("/{name}/_doc/1?{requirement}=true");
            let send = |client: &Client| client.put(&single, &json!({"n": 1}));
            let (directly, queued) = (send(&nodes)?, send(&through)?);
            ensure!(directly.status == 404, "{single}: {}", directly.text());
            same(&single, &directly, &queued)?;
        }
    }
    ensure!(nodes.get(&format!("/{missing}"))?.status == 404, "it was made");
    let count = nodes.get(&format!("/{index}/_count"))?.ok()?.json()?;
    ensure!(count["count"] == 0, "{count}");
    let queue = |gateway: &Gateway| -> Result<Value> {
        let all = gateway.admin().get("/queue/stats")?.ok()?.json()?;
        Ok(all["q"].clone())
    };
    ensure!(queue(&gateway)?["accepted"] == 0, "{:#}", queue(&gateway)?);

    // A data stream is what is required, so its documents are queued.
    let answer = through.post_ndjson(&required, fits.as_bytes())?.ok()?;
    ensure!(answer.header("x-tidegate-ack").is_some(), "{}", answer.text());
    crate::typed::delivered(&gateway)?;
    nodes
        .send("POST", &format!("/{stream}/_refresh"), &[], b"")?
        .ok()?;
    let count = nodes.get(&format!("/{stream}/_count"))?.ok()?.json()?;
    ensure!(count["count"] == 2, "{count}");
    nodes.delete(&format!("/{index}"))?.ok()?;
    Ok(())
}

/// Makes sure that a request was refused in the cluster's own words, and not queued.
fn same(target: &str, directly: &Answer, queued: &Answer) -> Result<()> {
    let without_time = |answer: &Answer| -> Result<Value> {
        let mut told = answer.json()?;
        if let Some(told) = told.as_object_mut() {
            told.remove("took");
        }
        Ok(told)
    };
    ensure!(
        queued.header("x-tidegate-ack").is_none(),
        "{target} was queued: {}",
        queued.text()
    );
    ensure!(
        (directly.status, without_time(directly)?) == (queued.status, without_time(queued)?),
        "{target}\ndirectly {}: {}\nthrough the queue {}: {}",
        directly.status,
        directly.text(),
        queued.status,
        queued.text()
    );
    Ok(())
}
