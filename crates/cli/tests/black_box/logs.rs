//! What is written to the log, and how much of it.

use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::fake::{Fault, Injection, On};

use crate::gateway::{Gateway, PATIENCE, body, cluster};

/// Returns the log's lines so far.
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
    cluster.inject(Injection::bulk(Fault::Garbage("{\"nonsense\":1}".into())).on_node(1));
    send("garbage", "/_bulk", &body(50));
    cluster.inject(Injection::bulk(Fault::CloseUnwritten).on_node(2));
    send("closed", "/_bulk", &body(50));
    cluster.inject(Injection::new(
        On::Exactly("/logs/_search".into()),
        Fault::CloseMidReply(150),
    ));
    let headers = [("content-type", "application/json"), ("x-request-id", "cut")];
    let _ = client.send("POST", "/logs/_search", &headers, b"{}"); // cut or 502: only the log matters here
    client.send("BAD METHOD", "/", &[], &[]).unwrap_err();
    let began = Instant::now();
    // A line may come later than its answer, and those of several cores come in any order.
    let all = loop {
        let all = lines(&gateway).split_off(since);
        let said = |id: &str, wanted: &str| {
            all.iter()
                .any(|line| line["request_id"] == id && message(line) == wanted)
        };
        let missing: Vec<_> = [
            ("passes", "bulk passes whole"),
            ("garbage", "a node's bulk answer cannot be used"),
            ("closed", "exchange failed"),
            ("cut", "exchange failed"),
        ]
        .into_iter()
        .flat_map(|(id, wanted)| [(id, wanted), (id, "request")])
        .filter(|(id, wanted)| !said(id, wanted))
        .collect();
        if missing.is_empty() {
            break all;
        }
        assert!(began.elapsed() < PATIENCE, "{missing:?} in {all:#?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    for line in &all {
        let of_requests = line["target"]
            .as_str()
            .is_some_and(|target| target.starts_with("gateway"));
        let id = line["request_id"].as_str().unwrap_or_default();
        assert!(!of_requests || !id.is_empty(), "{line}");
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
    cluster.inject(Injection::new(On::Exactly("/logs/_count".into()), slow).always());
    let began = Instant::now();
    for _ in 0..60 {
        gateway.client().get("/logs/_count").unwrap();
    }
    let most = rations_since(began);
    wait_for(&gateway, 10, |line| message(line) == "slow request");
    std::thread::sleep(Duration::from_millis(100));
    let written = wait_for(&gateway, 10, |line| message(line) == "slow request").len();
    assert!(written <= most, "{written} of 60, {most} at most");
}

/// Returns how many lines there may be since then: ten in each window of ten seconds, and one more window,
/// which may just have ended.
fn rations_since(began: Instant) -> usize {
    10 * (2 + began.elapsed().as_secs() as usize / 10)
}

/// Starts a gateway with these settings of logging in its file.
fn logging(cluster: &testkit::fake::FakeCluster, logging: &str) -> (Gateway, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.yml");
    let text = format!(
        "admin: {{binding: '127.0.0.1:0'}}
logging: {logging}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}, max_request_body_size: 10kb}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{elasticsearch: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}'}}]
",
        cluster.urls()[0]
    );
    std::fs::write(&file, text).unwrap();
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    (gateway, directory)
}

/// Waits for lines that match.
fn wait_for(gateway: &Gateway, count: usize, fits: impl Fn(&Value) -> bool) -> Vec<Value> {
    let began = Instant::now();
    loop {
        let found: Vec<Value> = lines(gateway).into_iter().filter(&fits).collect();
        if found.len() >= count {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{found:#?}\n{}", gateway.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_access_log_has_a_line_for_each_request_whatever_the_level_is() {
    let cluster = cluster();
    let (gateway, directory) = logging(&cluster, "{level: info}");
    let file = directory.path().join("tidegate.yml");
    let text = std::fs::read_to_string(&file).unwrap();
    let quiet = text.replace("{level: info}", "{level: error, access.enabled: true}");
    std::fs::write(&file, quiet).unwrap();
    wait_for(&gateway, 1, |line| message(line) == "configuration reloaded");
    let since = lines(&gateway).len();
    let client = gateway.client();
    let headers = [("content-type", "application/x-ndjson"), ("x-request-id", "mine")];
    let answer = client
        .send("POST", "/_bulk?refresh=true", &headers, body(5).as_bytes())
        .unwrap();
    answer.ok().unwrap();
    let too_large = client
        .send("POST", "/_bulk", &headers[1..], body(2000).as_bytes())
        .unwrap();
    assert_eq!(too_large.status, 413);
    assert_eq!(
        too_large.header("x-request-id"),
        Some("mine"),
        "its head could be read"
    );
    crate::hardening::exchange(&gateway, b"NONSENSE\r\n\r\n");
    let written = wait_for(&gateway, 3, |line| line["target"] == "access");
    // There are two connections, so their lines may come in any order.
    let mut told: Vec<(u64, bool)> = written
        .iter()
        .map(|line| {
            (
                line["status"].as_u64().unwrap(),
                line["client"].as_str().is_some(),
            )
        })
        .collect();
    told.sort_unstable();
    assert_eq!(told, [(200, true), (400, true), (413, true)]);
    let first = written.iter().find(|line| line["status"] == 200).unwrap();
    assert_eq!(
        (first["request_id"].as_str(), first["entry"].as_str()),
        (Some("mine"), Some("e"))
    );
    assert_eq!(
        (first["method"].as_str(), first["path"].as_str()),
        (Some("POST"), Some("/_bulk"))
    );
    assert_eq!(first["bytes_in"], body(5).len());
    assert!(
        first["took_ms"].is_u64() && first["bytes_out"].is_u64(),
        "{first}"
    );
    assert!(!gateway.log().contains("refresh=true"), "queries are not written");
    let rest = lines(&gateway).split_off(since);
    assert!(rest.iter().all(|line| line["target"] == "access"), "{rest:#?}");
}

#[test]
fn a_sampled_access_log_has_one_request_in_so_many() {
    let cluster = cluster();
    let (gateway, _directory) = logging(&cluster, "{access: {enabled: true, sample: 5}}");
    let client = gateway.client();
    for _ in 0..20 {
        client.get("/logs/_count").unwrap();
    }
    let last = |line: &Value| line["target"] == "access";
    wait_for(&gateway, 4, last);
    std::thread::sleep(Duration::from_millis(100));
    // Each core counts separately.
    assert!((4..=5).contains(&wait_for(&gateway, 4, last).len()));
}

#[test]
fn what_the_gateway_itself_refuses_or_cannot_answer_is_logged_with_its_id_and_rationed() {
    let cluster = cluster();
    let (gateway, _directory) = logging(&cluster, "{level: info}");
    cluster.inject(Injection::new(On::Exactly("/logs/_search".into()), Fault::CloseUnwritten).always());
    let client = gateway.client();
    let began = Instant::now();
    for n in 0..30 {
        let id = format!("failed-{n}");
        let headers = [("content-type", "application/json"), ("x-request-id", &*id)];
        let answer = client.send("POST", "/logs/_search", &headers, b"{}").unwrap();
        assert!(answer.status >= 500, "{}", answer.status);
        assert_eq!(answer.header("x-request-id"), Some(&*id));
    }
    let refused = client.send(
        "POST",
        "/_bulk",
        &[("x-request-id", "refused")],
        body(2000).as_bytes(),
    );
    assert_eq!(refused.unwrap().status, 413);
    // A rejection in the cluster's own words is not the gateway's.
    cluster.inject(Injection::new(
        On::Exactly("/logs/_count".into()),
        Fault::Status {
            status: 503,
            body: "{}".into(),
        },
    ));
    assert_eq!(client.get("/logs/_count").unwrap().status, 503);
    let refused = wait_for(&gateway, 1, |line| message(line) == "request refused");
    assert_eq!(
        (refused.len(), refused[0]["request_id"].as_str()),
        (1, Some("refused"))
    );
    assert_eq!(
        (refused[0]["level"].as_str(), refused[0]["status"].as_u64()),
        (Some("INFO"), Some(413))
    );
    let failed = wait_for(&gateway, 10, |line| message(line) == "request failed");
    assert!(failed.len() <= rations_since(began), "{}", failed.len());
    for line in &failed {
        assert_eq!(line["level"], "WARN");
        assert!(
            line["request_id"].as_str().unwrap().starts_with("failed-"),
            "{line}"
        );
        assert!(
            line["reason"].as_str().unwrap().starts_with("gateway: "),
            "{line}"
        );
    }
}
