//! `/health/live` and `/health/ready`: what an orchestrator is told, and when a gateway reports that it is
//! not ready.

use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use crate::gateway::{Gateway, PATIENCE, body, cluster};
use crate::home::GatewayHome;

fn ready(gateway: &Gateway) -> (u16, Value) {
    let answer = gateway.admin().get("/health/ready").unwrap();
    (answer.status, answer.json().unwrap())
}

/// Waits until the answer has this status, and returns its body.
fn until(gateway: &Gateway, status: u16) -> Value {
    let began = Instant::now();
    loop {
        let (now, said) = ready(gateway);
        if now == status {
            return said;
        }
        assert!(began.elapsed() < PATIENCE, "{now} and not {status}: {said:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn reason(said: &Value, of: &str) -> String {
    let listed = ["reasons", "warnings"].map(|list| said[list].as_array().unwrap().clone());
    let one = listed.concat().into_iter().find(|one| one["of"] == of);
    let one = one.unwrap_or_else(|| panic!("nothing of {of}: {said:#}"));
    one["why"].as_str().unwrap().to_owned()
}

#[test]
fn a_synchronous_gateway_is_ready_while_a_node_of_its_cluster_is_well_and_lives_all_the_while() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    assert_eq!(until(&gateway, 200)["status"], "ready");
    (0..3).for_each(|node| cluster.kill(node));
    // At first it may say that no node is up.
    let began = Instant::now();
    while !until(&gateway, 503)["reasons"]
        .to_string()
        .contains("does not answer")
    {
        assert!(began.elapsed() < PATIENCE, "{:#}", ready(&gateway).1);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(reason(&ready(&gateway).1, "cluster").contains("does not answer"));
    let live = gateway.admin().get("/health/live").unwrap();
    assert_eq!(
        (live.status, &live.json().unwrap()["status"]),
        (200, &"live".into())
    );
    (0..3).for_each(|node| cluster.restart(node).unwrap());
    until(&gateway, 200);
}

#[test]
fn a_wrong_account_is_an_error_in_readiness_and_in_the_log() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 6).basic_auth("u", "right")).unwrap();
    let url = cluster.urls()[0].replace("http://", "http://u:wrong@");
    let gateway = Gateway::start(&[
        "--cluster",
        &url,
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
    ]);
    let said = until(&gateway, 503);
    let began = Instant::now();
    while !ready(&gateway).1["reasons"].to_string().contains("account") {
        assert!(began.elapsed() < PATIENCE, "{said:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(reason(&ready(&gateway).1, "account").contains("correct `basic_auth` or `api_key`"));
    let log = gateway.logged("refuses our account");
    let line = log
        .lines()
        .find(|line| line.contains("refuses our account"))
        .unwrap_or_default();
    assert!(line.contains("\"ERROR\""), "{log}");
}

/// Where indices are is not known then, so nothing is queued.
#[test]
fn a_gateway_with_a_queue_and_without_the_account_that_its_cluster_requires_is_not_ready() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 6).basic_auth("u", "right")).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = Gateway::start(&["--config", place.file.to_str().unwrap()]);
    let began = Instant::now();
    while !ready(&gateway).1["reasons"].to_string().contains("account") {
        assert!(began.elapsed() < PATIENCE, "{:#}", ready(&gateway).1);
        std::thread::sleep(Duration::from_millis(20));
    }
    let (status, said) = ready(&gateway);
    assert_eq!(status, 503);
    assert!(
        reason(&said, "account").contains("none is configured"),
        "{said:#}"
    );
    let client = gateway.client().basic_auth("u", "right");
    let bulk = b"{\"index\":{\"_index\":\"logs\"}}\n{}\n";
    assert_eq!(client.post_ndjson("/_bulk", bulk).unwrap().status, 503);
}

#[test]
fn a_gateway_with_a_queue_is_ready_while_only_its_clusters_are_away() {
    let (first, second) = (cluster(), cluster());
    let place = GatewayHome::before(&[&first, &second], "");
    let gateway = place.start();
    until(&gateway, 200);
    (0..3).for_each(|node| second.kill(node));
    let began = Instant::now();
    while ready(&gateway).1["warnings"].as_array().unwrap().is_empty() {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    let (status, said) = ready(&gateway);
    assert_eq!(status, 200, "{said:#}");
    assert!(
        reason(&said, "second_cluster").contains("`c1` does not answer"),
        "{said:#}"
    );
    (0..3).for_each(|node| first.kill(node));
    let began = Instant::now();
    while !ready(&gateway).1["warnings"].to_string().contains("`c0`") {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    let (status, said) = ready(&gateway);
    assert_eq!(status, 200, "{said:#}");
    assert!(reason(&said, "cluster").contains("bulks are queued"), "{said:#}");
}

#[test]
fn a_queue_that_is_full_makes_its_gateway_not_ready() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], ", max_size: 4mb");
    let gateway = place.start();
    until(&gateway, 200);
    cluster.inject(
        Injection::bulk(Fault::Status {
            status: 503,
            body: "{}".to_owned(),
        })
        .always(),
    );
    let began = Instant::now();
    while gateway.bulk(&body(2_000)).status == 200 {
        assert!(began.elapsed() < Duration::from_secs(90), "it never fills up");
    }
    // The remaining room is enough for smaller ones.
    while gateway.bulk(&body(100)).status == 200 {}
    let said = until(&gateway, 503);
    assert!(
        reason(&said, "queue").contains("the queue `q` accepts nothing"),
        "{said:#}"
    );
    cluster.behave();
    until(&gateway, 200);
}

#[test]
fn a_gateway_that_was_told_to_stop_is_not_ready_while_it_finishes() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    until(&gateway, 200);
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_secs(3))).always());
    let under_way = std::thread::spawn({
        let client = gateway.client();
        move || client.post_ndjson("/_bulk", body(3).as_bytes()).unwrap().status
    });
    gateway.wait_for_struck(&cluster, 1);
    gateway.signal("TERM");
    let said = until(&gateway, 503);
    assert!(reason(&said, "draining").contains("told to stop"), "{said:#}");
    assert_eq!(under_way.join().unwrap(), 200);
}
