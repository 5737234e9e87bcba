//! Forms of requests that a server refuses as a whole: through the queue they are refused as they are
//! directly, and other clients' documents arrive.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use testkit::client::{Answer, Client};
use testkit::real::{ClusterKind, RealCluster};

use crate::{Prepared, prepare, start};

#[test]
fn opensearch_3_refuses_forms_through_the_queue_as_directly() -> Result<()> {
    prove(ClusterKind::OpenSearch, false)
}

#[test]
fn elasticsearch_7_refuses_forms_through_the_queue_as_directly() -> Result<()> {
    prove(ClusterKind::Elasticsearch7, false)
}

#[test]
fn elasticsearch_9_refuses_forms_through_the_queue_as_directly() -> Result<()> {
    prove(ClusterKind::Elasticsearch, true)
}

/// A form: the parameters, and headers beside the content type.
struct Form<'a> {
    query: &'a str,
    content_type: &'a str,
    header: (&'a str, &'a str),
}

const NDJSON: &str = "application/x-ndjson";
const OF_9: (&str, &str) = (
    "application/vnd.elasticsearch+x-ndjson; compatible-with=9",
    "application/vnd.elasticsearch+json; compatible-with=9",
);

impl Form<'_> {
    fn send(&self, to: &Client, index: &str, from: usize) -> Result<Answer> {
        let headers = [("content-type", self.content_type), self.header];
        let target = format!("/{index}/_bulk{}", self.query);
        to.send("POST", &target, &headers, lines(from, 10).as_bytes())
    }
}

fn lines(from: usize, docs: usize) -> String {
    let line = |id| format!("{{\"index\":{{\"_id\":\"{id}\"}}}}\n{{\"n\":{id}}}\n");
    (from..from + docs).map(line).collect()
}

/// Checks one kind of server, which takes the media types of Elasticsearch 9 or refuses them.
fn prove(kind: ClusterKind, takes_vendor_types: bool) -> Result<()> {
    let cluster = RealCluster::shared(kind)?;
    let nodes = cluster.client()?;
    let Prepared {
        index,
        folder: _folder,
        file,
    } = prepare(&cluster, "forms")?;
    let gateway = start(&file);
    let (long_line, long_header) = (format!("?routing={}", "r".repeat(5_000)), "h".repeat(17_000));
    let plain = ("x-plain", "yes");
    let of_query = |query| Form {
        query,
        content_type: NDJSON,
        header: plain,
    };
    let mut forms = vec![
        of_query("?refresh=banana"),
        of_query("?timeout=banana"),
        of_query("?wait_for_active_shards=banana"),
        of_query("?nonsense=1"),
        of_query(&long_line),
        Form {
            header: ("x-long", &long_header),
            ..of_query("")
        },
        Form {
            content_type: "application/vnd.elasticsearch+x-ndjson; compatible-with=99",
            header: ("accept", "application/vnd.elasticsearch+json; compatible-with=99"),
            ..of_query("")
        },
    ];
    let vendor = Form {
        content_type: OF_9.0,
        header: ("accept", OF_9.1),
        ..of_query("")
    };
    let mut docs = 1000;
    if takes_vendor_types {
        let answer = vendor.send(&gateway.client(), &index, docs)?.ok()?;
        ensure!(answer.header("x-tidegate-ack").is_some(), "{}", answer.text());
        docs += 10;
    } else {
        forms.push(vendor);
    }
    for form in &forms {
        // A node that has refused a header for its length reads nothing more from that connection, and does
        // not close it.
        let directly = form.send(&cluster.client()?, &index, 5000);
        let directly = directly.with_context(|| format!("{:.40} {:.80}", form.query, form.header.1))?;
        ensure!(directly.status >= 400, "{}: {}", form.query, directly.text());
        for _ in 0..2 {
            let through = form.send(&gateway.client(), &index, 5000)?;
            ensure!(
                (through.status, error(&through)?) == (directly.status, error(&directly)?),
                "{:.40} {:.80}: {} {}, directly {} {}",
                form.query,
                form.header.1,
                through.status,
                through.text(),
                directly.status,
                directly.text()
            );
        }
    }
    let target = format!("/{index}/_bulk");
    let good = gateway
        .client()
        .post_ndjson(&target, lines(0, 1000).as_bytes())?
        .ok()?;
    ensure!(good.header("x-tidegate-ack").is_some(), "{}", good.text());
    let one = crate::typed::delivered(&gateway)?;
    ensure!(one["indexed"] == docs && one["dead"] == 0, "{one:#}");
    nodes
        .send("POST", &format!("/{index}/_refresh"), &[], b"")?
        .ok()?;
    let count = nodes.get(&format!("/{index}/_count"))?.ok()?.json()?;
    ensure!(count["count"] == docs, "{count}");
    nodes.delete(&format!("/{index}"))?.ok()?;
    Ok(())
}

/// Returns the type of an answer's error.
fn error(answer: &Answer) -> Result<Value> {
    let told = answer.json()?;
    Ok(match &told["error"]["type"] {
        Value::Null => told["error"].clone(),
        kind => kind.clone(),
    })
}
