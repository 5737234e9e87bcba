//! Nodes that are slow, down, new or gone, and which nodes then get what.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::fake::{FakeCluster, Fault, Injection, On, Spec};

use crate::gateway::{Gateway, PATIENCE, body, cluster, statuses};

const FORWARD: &str = "      - elasticsearch: {elasticsearch: c}";

fn bulks(gateway: &Gateway, count: usize) {
    let client = gateway.client();
    for _ in 0..count {
        client
            .post_ndjson("/_bulk", body(1).as_bytes())
            .unwrap()
            .ok()
            .unwrap();
    }
}

/// Sends 300 bulks of one document again and again, until the nodes' shares meet the condition.
fn comes_to(cluster: &FakeCluster, gateway: &Gateway, as_told: impl Fn(&[u64]) -> bool) -> Vec<u64> {
    let began = Instant::now();
    loop {
        cluster.reset_counts();
        bulks(gateway, 300);
        let taken = cluster.counts().docs_by_node;
        if as_told(&taken) {
            return taken;
        }
        assert!(began.elapsed() < PATIENCE, "{taken:?}: {:#}", gateway.topology());
    }
}

fn health(gateway: &Gateway, node: usize) -> Value {
    gateway.topology()["nodes"][node]["health"].clone()
}

#[test]
fn a_slow_node_gets_little_of_what_any_node_may_take_and_its_share_again_when_it_is_quick() {
    let cluster = cluster();
    let gateway = Gateway::with_filters(&cluster, FORWARD);
    // Equal nodes take turns.
    comes_to(&cluster, &gateway, |taken| taken.iter().all(|docs| *docs >= 75));
    let slow = Fault::Delay(Duration::from_millis(60));
    cluster.inject(Injection::bulk(slow).on_node(1).always());
    // On a busy machine, a healthy node may look slow for a while.
    let taken = comes_to(&cluster, &gateway, |taken| {
        taken[1] < 30 && taken[0] > 100 && taken[2] > 100
    });
    assert_eq!(health(&gateway, 1)["up"], true, "a third would be 100: {taken:?}");
    // The figures of a core that has not noticed yet may count as well.
    assert!(
        health(&gateway, 1)["slowness"].as_f64().unwrap() > 1.2,
        "{}",
        gateway.topology()
    );
    cluster.behave();
    comes_to(&cluster, &gateway, |taken| taken[1] > 80);
}

#[test]
fn a_node_that_does_not_answer_gets_nothing_more_while_it_is_silent() {
    let cluster = cluster();
    let gateway = Gateway::with_filters(&cluster, FORWARD);
    bulks(&gateway, 30);
    cluster.reset_counts();
    cluster.inject(
        Injection::bulk(Fault::Delay(Duration::from_secs(3)))
            .on_node(0)
            .always(),
    );
    let stuck = AtomicU64::default();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let ends = Instant::now() + Duration::from_millis(1500);
                let client = gateway.client();
                while Instant::now() < ends {
                    let began = Instant::now();
                    client
                        .post_ndjson("/_bulk", body(1).as_bytes())
                        .unwrap()
                        .ok()
                        .unwrap();
                    stuck.fetch_add(u64::from(began.elapsed() > Duration::from_secs(2)), Relaxed);
                }
            });
        }
    });
    let sent: u64 = cluster.counts().docs_by_node.iter().sum();
    // If every third one got stuck, there would be a dozen.
    assert!(sent > 40 && stuck.load(Relaxed) <= 3, "{stuck:?} of {sent}");
}

#[test]
fn a_slow_node_keeps_its_own_documents_and_its_turns_for_documents_without_ids() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    cluster.inject(
        Injection::bulk(Fault::Delay(Duration::from_millis(40)))
            .on_node(1)
            .always(),
    );
    for _ in 0..12 {
        gateway.bulk(&body(30)).ok().unwrap();
    }
    assert_eq!(cluster.counts().misrouted, 0);
    cluster.reset_counts();
    // Each core has turns of its own, and a connection is on one core.
    let client = gateway.client();
    for _ in 0..12 {
        let answer = client.post_ndjson("/_bulk", b"{\"index\":{\"_index\":\"logs\"}}\n{}\n");
        answer.unwrap().ok().unwrap();
    }
    assert_eq!(cluster.counts().docs_by_node, [4, 4, 4]);
}

#[test]
fn a_red_index_takes_no_node_out_of_the_rotation() {
    const RED: &str = r#"{"error":{"root_cause":[],"type":"search_phase_execution_exception","reason":"all shards failed"},"status":503}"#;
    let cluster = cluster();
    let gateway = Gateway::with_filters(&cluster, FORWARD);
    let red = Fault::Status {
        status: 503,
        body: RED.to_owned(),
    };
    cluster.inject(Injection::new(On::Path("/red/".to_owned()), red).always());
    for _ in 0..20 {
        let answer = gateway.client().get("/red/_search").unwrap();
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (503, RED),
            "passed on as it was"
        );
    }
    for node in 0..3 {
        let health = health(&gateway, node);
        assert_eq!(
            (&health["up"], &health["failures"]),
            (&json!(true), &json!(0)),
            "{health}"
        );
    }
}

/// A server closes the connection on a body that it cannot decode; any client can send one.
#[test]
fn a_node_that_closes_on_a_clients_encoded_body_stays_in_the_rotation() {
    let cluster = cluster();
    let gateway = Gateway::with_filters(&cluster, FORWARD);
    cluster.inject(Injection::new(On::Path("/logs/_search".to_owned()), Fault::CloseUnwritten).always());
    let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
    for _ in 0..30 {
        let answer = gateway
            .client()
            .send("POST", "/logs/_search", &headers, b"\x1f\x8bnot gzip");
        assert!(matches!(answer.unwrap().status, 502 | 503));
    }
    for node in 0..3 {
        let health = health(&gateway, node);
        assert_eq!(
            (&health["up"], &health["failures"]),
            (&json!(true), &json!(0)),
            "{health}"
        );
    }
    assert!(
        !gateway.log().contains("leaves the rotation"),
        "{}",
        gateway.log()
    );
}

#[test]
fn a_503_that_is_not_a_servers_own_takes_its_node_out_and_a_probe_brings_it_back() {
    let cluster = cluster();
    let gateway = Gateway::with_filters(&cluster, FORWARD);
    let proxy = Fault::Status {
        status: 503,
        body: "<h1>no backend</h1>".to_owned(),
    };
    cluster.inject(Injection::new(On::Any, proxy).on_node(1).always());
    let began = Instant::now();
    while health(&gateway, 1)["up"] == true {
        gateway.client().get("/logs/_count").unwrap();
        assert!(
            began.elapsed() < Duration::from_secs(15),
            "{}",
            gateway.topology()
        );
    }
    cluster.behave();
    gateway.wait_until("it is back", |topology| {
        topology["nodes"][1]["health"]["up"] == true
    });
}

#[test]
fn a_node_that_says_that_it_has_no_master_leaves_the_rotation_at_once() {
    const LOST: &str = r#"{"error":{"root_cause":[{"type":"cluster_block_exception","reason":"blocked by: [SERVICE_UNAVAILABLE/2/no master];"}],"type":"cluster_block_exception","reason":"blocked by: [SERVICE_UNAVAILABLE/2/no master];"},"status":503}"#;
    let cluster = cluster();
    let gateway = Gateway::with_filters(&cluster, FORWARD);
    let lost = Fault::Status {
        status: 503,
        body: LOST.to_owned(),
    };
    // The fault strikes once, but not when the gateway itself asks where the shards are.
    cluster.inject(Injection::new(On::Exactly("/logs/_count".to_owned()), lost).on_node(2));
    let answers: Vec<u16> = (0..60)
        .map(|_| gateway.client().get("/logs/_count").unwrap().status)
        .collect();
    assert_eq!(
        answers.iter().filter(|status| **status == 503).count(),
        1,
        "{answers:?}"
    );
    let log = gateway.logged("leaves the rotation");
    assert!(log.contains("Incapable"), "{log}");
    gateway.wait_until("it is back", |topology| {
        topology["nodes"][2]["health"]["up"] == true
    });
}

#[test]
fn a_filter_that_does_not_refresh_keeps_the_nodes_it_has_known_first() {
    let cluster = cluster();
    cluster.leave(2);
    let gateway = Gateway::with_filters(
        &cluster,
        "      - elasticsearch: {elasticsearch: c, refresh: {enabled: false}, when: {exists: _ctx.request.header.x-frozen}}
      - elasticsearch: {elasticsearch: c, refresh: {enabled: true, interval: 200ms}}",
    );
    assert_eq!(gateway.topology()["nodes"].as_array().unwrap().len(), 2);
    let send = |frozen: bool| {
        let ndjson = ("content-type", "application/x-ndjson");
        let headers = [ndjson, ("x-frozen", "yes")];
        let headers = if frozen { &headers[..] } else { &headers[..1] };
        for _ in 0..12 {
            let answer = gateway
                .client()
                .send("POST", "/_bulk", headers, body(1).as_bytes());
            answer.unwrap().ok().unwrap();
        }
        let taken = cluster.counts().docs_by_node;
        cluster.reset_counts();
        taken
    };
    let both_old = |taken: Vec<u64>| taken[0] > 0 && taken[1] > 0 && taken[2] == 0;
    assert!(both_old(send(true)));
    cluster.restart(2).unwrap();
    gateway.wait_until("the new node is seen", |topology| {
        topology["nodes"].as_array().unwrap().len() == 3
    });
    let polls = || gateway.topology()["polls"]["total"].as_u64().unwrap();
    let (began, before) = (Instant::now(), polls());
    gateway.wait_until("it is asked", |_| polls() >= before + 12);
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "the filter's interval holds, not the cluster's second: {:?}",
        began.elapsed()
    );
    // The node gets nothing before it has answered a probe.
    gateway.wait_until("the new node is up", |topology| {
        topology["nodes"][2]["health"]["up"] == true
    });
    assert!(both_old(send(true)));
    let taken = send(false);
    assert!(taken.iter().all(|docs| *docs > 0), "{taken:?}");
}

#[test]
fn a_topology_that_is_not_polled_costs_speed_and_no_answer() {
    let cluster = cluster();
    let gateway = Gateway::with_file(
        &cluster,
        "      - bulk_reshuffle: {elasticsearch: c, mode: sync}\n      - elasticsearch: {elasticsearch: c}",
        ", discovery.refresh.enabled: false",
    );
    let right = |docs: usize| {
        let answer = gateway.bulk(&body(docs)).ok().unwrap().json().unwrap();
        assert_eq!(answer["errors"], json!(false));
        assert_eq!(cluster.docs("logs").len(), docs);
    };
    right(300);
    assert_eq!(cluster.counts().misrouted, 0, "it was read at the start");
    let polls = || gateway.topology()["polls"]["total"].as_u64().unwrap();
    let before = polls();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(polls(), before, "nobody asks again without a reason");

    let home = cluster.node_of("logs", 0).unwrap();
    cluster.move_shard("logs", 0, (home + 1) % 3);
    right(300);
    assert!(
        cluster.counts().misrouted > 0,
        "a move is not seen: the node passes the documents on"
    );

    cluster.create_index("other", 4);
    let other = body(100).replace("logs", "other");
    let began = Instant::now();
    while gateway.passed("unknown_index") < 1 || gateway.counter("bulk_requests") < 3 {
        assert_eq!(gateway.bulk(&other).status, 200);
        assert!(began.elapsed() < PATIENCE, "{}", gateway.topology());
    }
    gateway.wait_until("it has looked", |topology| {
        topology["state_version"].as_u64() >= Some(cluster.state_version())
    });
    cluster.reset_counts();
    right(300);
    assert_eq!(
        cluster.counts().misrouted,
        0,
        "the look for the index that was unknown showed the move as well"
    );

    cluster.create_index("logs", 5);
    let began = Instant::now();
    loop {
        right(300);
        cluster.reset_counts();
        right(300);
        if cluster.counts().misrouted == 0 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{}", gateway.topology());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(statuses(&gateway.bulk(&body(10)).json().unwrap()).len(), 10);
}

#[test]
fn a_cluster_that_a_reload_takes_out_is_left_alone_at_once() {
    let (kept, gone) = (cluster(), cluster());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.yml");
    let write = |clusters: &[(&str, &FakeCluster)]| {
        let mut text = "admin: {binding: '127.0.0.1:0'}
entry: [{name: e, router: r, network: {binding: '127.0.0.1:0'}}]
router: [{name: r, default_flow: f}]
flow:
  - name: f
    filter:
"
        .to_owned();
        for (name, _) in clusters.iter().rev() {
            text.push_str(&format!("      - elasticsearch: {{elasticsearch: {name}}}\n"));
        }
        text.push_str("elasticsearch:\n");
        for (name, cluster) in clusters {
            text.push_str(&format!(
                "  - {{name: {name}, endpoint: '{}'}}\n",
                cluster.urls()[0]
            ));
        }
        std::fs::write(&file, text).unwrap();
    };
    write(&[("kept", &kept), ("gone", &gone)]);
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    gateway.client().get("/").unwrap().ok().unwrap();
    let began = Instant::now();
    while gone.counts().requests < 10 {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    write(&[("kept", &kept)]);
    gateway.signal("HUP");
    gateway.logged("configuration reloaded");
    // No request comes that would notify the cores. Requests under way at that moment may still arrive.
    let left_alone = (0..3).any(|_| {
        let before = gone.counts().requests;
        std::thread::sleep(Duration::from_millis(2_500));
        gone.counts().requests == before
    });
    assert!(left_alone);
}

/// Makes a cluster of many nodes, with all documents on one of them.
fn many() -> FakeCluster {
    let spec = Spec {
        nodes: 8,
        ..Spec::default()
    };
    FakeCluster::start(spec.index("logs", 1).storing()).unwrap()
}

fn with_retries(cluster: &FakeCluster, retries: u32) -> Gateway {
    let filters = format!(
        "      - bulk_reshuffle: {{elasticsearch: c, mode: sync, max_retry_times: {retries}, retry_delay_in_ms: 1}}
      - elasticsearch: {{elasticsearch: c, max_retry_times: {retries}, retry_delay_in_ms: 1}}"
    );
    Gateway::with_filters(cluster, &filters)
}

#[test]
fn what_may_have_broken_one_node_is_shown_to_no_more_than_max_retry_times_others() {
    for retries in [0, 2] {
        let cluster = many();
        let gateway = with_retries(&cluster, retries);
        cluster.inject(Injection::bulk(Fault::CloseUnwritten).always());
        let answer = gateway.bulk(&body(20)).ok().unwrap().json().unwrap();
        assert_eq!(statuses(&answer), [503; 20], "{answer}");
        assert_eq!(gateway.counter("parts"), u64::from(retries) + 1);
    }
}

#[test]
fn what_could_not_be_sent_goes_round_all_nodes_whatever_max_retry_times_says() {
    let cluster = many();
    let gateway = with_retries(&cluster, 0);
    (0..7).for_each(|node| cluster.kill(node));
    let answer = gateway.bulk(&body(20)).ok().unwrap().json().unwrap();
    assert_eq!(answer["errors"], json!(false));
    assert_eq!(cluster.counts().docs_by_node[7], 20);
}
