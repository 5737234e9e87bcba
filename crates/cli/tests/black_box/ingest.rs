//! Asynchronous mode with pipelines of servers that run them for many documents at once, and fail all of
//! these for one that cannot be parsed.

use std::fmt::Write as _;

use serde_json::json;
use testkit::fake::{FakeCluster, Flavour, Spec};

use crate::gateway::Gateway;
use crate::home::{GatewayHome, drained};

fn cluster() -> FakeCluster {
    let mut spec = Spec::default()
        .flavour(Flavour::OpenSearch3)
        .index("logs", 3)
        .index("others", 3)
        .storing();
    let stamps = json!({"stamps": {"processors": [{"set": {"field": "stamped", "value": true}}]}});
    spec.pipelines = stamps.as_object().unwrap().clone();
    FakeCluster::start(spec).unwrap()
}

/// Returns the documents of the range; those in `broken` lack the end of their JSON.
fn body(index: &str, range: std::ops::Range<usize>, broken: &[usize]) -> String {
    let mut body = String::new();
    for n in range {
        let end = if broken.contains(&n) { "" } else { "}" };
        writeln!(
            body,
            "{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{n}\"}}}}\n{{\"n\":{n}{end}"
        )
        .unwrap();
    }
    body
}

fn send(gateway: &Gateway, body: &str) {
    let answer = gateway
        .client()
        .post_ndjson("/_bulk?pipeline=stamps", body.as_bytes());
    let answer = answer.unwrap().ok().unwrap();
    assert!(answer.header("x-tidegate-ack").is_some(), "{}", answer.text());
}

#[test]
fn documents_through_a_pipeline_are_queued_and_none_dies_of_what_another_holds() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let broken = [7, 110, 111, 112];
    send(&gateway, &body("logs", 0..150, &broken));
    for n in 0..40 {
        send(&gateway, &body("others", n..n + 1, &[13]));
    }
    let group = drained(&gateway, "c0");
    assert_eq!(group["indexed"], json!(150 - broken.len() + 39), "{group:#}");
    assert_eq!(group["dead"], json!(broken.len() + 1), "{group:#}");
    let (logs, others) = (cluster.docs("logs"), cluster.docs("others"));
    assert_eq!((logs.len(), others.len()), (146, 39));
    for document in logs.values().chain(others.values()) {
        assert!(
            document.source.contains("\"stamped\":true"),
            "{}",
            document.source
        );
        assert_eq!(document.version, 1, "nothing was written twice");
    }
}
