//! What is written to the log, and how much of it.

use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::fake::{Cue, Fault, On};

use crate::gateway::{Gateway, body, cluster};

/// The log's lines so far.
fn lines(gateway: &Gateway) -> Vec<Value> {
    let log = gateway.log();
    log.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn message(line: &Value) -> &str {
    line["message"].as_str().unwrap_or_default()
}

#[test]
fn every_log_line_of_a_request_carries_its_id() {
    let cluster = cluster();
    let gateway = Gateway::with(&cluster, &["--log-level", "debug"]);
    let since = lines(&gateway).len();
    let client = gateway.client();
    let ndjson = ("content-type", "application/x-ndjson");
    let send = |id: &str, path: &str, body: &str| {
        let headers = [ndjson, ("x-request-id", id)];
        let answer = client.send("POST", path, &headers, body.as_bytes()).unwrap();
        assert_eq!(answer.header("x-request-id"), Some(id));
    };
    send("passes", "/_bulk", "{\"nonsense\"\n");
    cluster.cue(Cue::bulk(Fault::Garbage("{\"nonsense\":1}".into())).on_node(1));
    send("garbage", "/_bulk", &body(50));
    cluster.cue(Cue::bulk(Fault::CloseUnwritten).on_node(2));
    send("closed", "/_bulk", &body(50));
    cluster.cue(Cue::new(
        On::Path("/logs/_search".into()),
        Fault::CloseMidReply(150),
    ));
    let headers = [("content-type", "application/json"), ("x-request-id", "cut")];
    let _ = client.send("POST", "/logs/_search", &headers, b"{}"); // cut or 502: the log is what counts here
    client.send("BAD METHOD", "/", &[], &[]).unwrap_err();
    let began = Instant::now();
    let all = loop {
        let all = lines(&gateway).split_off(since);
        if all
            .iter()
            .any(|line| line["request_id"] == "cut" && message(line) == "request")
        {
            break all;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{all:#?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    for line in &all {
        let of_requests = line["target"]
            .as_str()
            .is_some_and(|target| target.starts_with("gateway"));
        let id = line["request_id"].as_str().unwrap_or_default();
        assert!(!of_requests || !id.is_empty(), "{line}");
    }
    for (id, wanted) in [
        ("passes", "bulk passes whole"),
        ("garbage", "a node's bulk answer cannot be used"),
        ("closed", "exchange failed"),
        ("cut", "exchange failed"),
    ] {
        for wanted in [wanted, "request"] {
            let found = |line: &&Value| line["request_id"] == id && message(line) == wanted;
            assert!(
                all.iter().find(found).is_some(),
                "{id}: {wanted} is missing in {all:#?}"
            );
        }
    }
}

#[test]
fn warnings_that_clients_can_cause_are_rationed() {
    let cluster = cluster();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.yml");
    let text = format!(
        "admin: {{binding: '127.0.0.1:0'}}
logging: {{slow_request: 1ms}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{elasticsearch: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}'}}]
",
        cluster.urls()[0]
    );
    std::fs::write(&file, text).unwrap();
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    let slow = Fault::Delay(Duration::from_millis(5));
    cluster.cue(Cue::new(On::Path("/logs/_count".into()), slow).always());
    for _ in 0..60 {
        gateway.client().get("/logs/_count").unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    let written = lines(&gateway)
        .iter()
        .filter(|line| message(line) == "slow request")
        .count();
    // One ration, or two if a window ended meanwhile.
    assert!((10..=20).contains(&written), "{written} of 60");
}
