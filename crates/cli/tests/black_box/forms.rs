//! Asynchronous mode accepts what its cluster accepts: the cluster judges media types, parameters and
//! lengths. Accepted documents are delivered, whatever their client called them.

use serde_json::json;
use testkit::client::{Answer, Client};
use testkit::fake::{Behaviour, FakeCluster, Flavour, Spec, Unfit};

use crate::gateway::{Gateway, body};
use crate::hardening::exchange;
use crate::home::{GatewayHome, account, drained, queue};

fn cluster_of(flavour: Flavour) -> FakeCluster {
    FakeCluster::start(Spec::default().flavour(flavour).index("logs", 6).storing()).unwrap()
}

/// The media types of Elasticsearch's clients since version 8.
const VENDOR: [(&str, &str); 2] = [
    (
        "content-type",
        "application/vnd.elasticsearch+x-ndjson; compatible-with=9",
    ),
    ("accept", "application/vnd.elasticsearch+json; compatible-with=9"),
];
const PLAIN: [(&str, &str); 1] = [("content-type", "application/x-ndjson")];

fn send(to: &Client, target: &str, headers: &[(&str, &str)]) -> Answer {
    to.send("POST", target, headers, body(20).as_bytes()).unwrap()
}

fn direct(cluster: &FakeCluster) -> Client {
    Client::new(&cluster.urls()[0]).unwrap()
}

fn replay_all(gateway: &Gateway) {
    let answer = gateway
        .admin()
        .send("POST", "/dead_letters/_replay?all=true", &[], &[]);
    answer.unwrap().ok().unwrap();
}

#[test]
fn what_a_client_with_vendor_types_was_promised_is_delivered_and_replayed() {
    let cluster = cluster_of(Flavour::Elasticsearch9);
    cluster.set_behaviour(Behaviour {
        unfit: Some(Unfit {
            holds: "\"n\":7}".to_owned(),
            status: 400,
            error: json!({"type": "mapper_parsing_exception", "reason": "no"}).to_string(),
        }),
        ..Behaviour::default()
    });
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let answer = send(&gateway.client(), "/_bulk", &VENDOR).ok().unwrap();
    assert!(answer.header("x-tidegate-ack").is_some());
    assert_eq!(answer.header("x-elastic-product"), Some("Elasticsearch"));
    assert_eq!(
        answer.header("content-type"),
        Some("application/vnd.elasticsearch+json;compatible-with=9")
    );
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(19), &json!(1)));
    cluster.set_behaviour(Behaviour::default());
    replay_all(&gateway);
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(20), &json!(0)));
    assert_eq!(cluster.docs("logs").len(), 20);
}

/// A client library of Elasticsearch 7 reads a type in each item.
#[test]
fn a_client_of_version_7_before_elasticsearch_8_is_answered_with_types() {
    let seven = [
        (
            "content-type",
            "application/vnd.elasticsearch+x-ndjson; compatible-with=7",
        ),
        ("accept", "application/vnd.elasticsearch+json; compatible-with=7"),
    ];
    let of_one = [
        (
            "content-type",
            "application/vnd.elasticsearch+json; compatible-with=7",
        ),
        seven[1],
    ];
    let cluster = cluster_of(Flavour::Elasticsearch8);
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    for (headers, expected) in [(&seven[..], json!("_doc")), (&PLAIN[..], json!(null))] {
        let answer = send(&gateway.client(), "/_bulk", headers).ok().unwrap();
        assert!(answer.header("x-tidegate-ack").is_some());
        let items = answer.json().unwrap()["items"].take();
        let types = items
            .as_array()
            .unwrap()
            .iter()
            .map(|item| &item["index"]["_type"]);
        assert!(types.clone().count() == 20 && types.clone().all(|one| *one == expected));
    }
    for (method, target, body) in [
        ("PUT", "/logs/_doc/1", "{}"),
        ("POST", "/logs/_doc", "{}"),
        ("DELETE", "/logs/_doc/1", ""),
    ] {
        let answer = gateway.client().send(method, target, &of_one, body.as_bytes());
        let answer = answer.unwrap().ok().unwrap();
        assert!(answer.header("x-tidegate-ack").is_some());
        assert_eq!(answer.json().unwrap()["_type"], "_doc", "{method} {target}");
    }
    drained(&gateway, "c0");
}

#[test]
fn a_cluster_that_does_not_know_vendor_types_says_so_and_nobody_waits() {
    for flavour in [Flavour::OpenSearch3, Flavour::Elasticsearch7] {
        let cluster = cluster_of(flavour);
        let place = GatewayHome::before(&[&cluster], "");
        let gateway = place.start();
        let directly = send(&direct(&cluster), "/_bulk", &VENDOR);
        for _ in 0..2 {
            let through = send(&gateway.client(), "/_bulk", &VENDOR);
            assert_eq!((through.status, through.text()), (406, directly.text()));
            assert!(through.header("x-tidegate-ack").is_none());
        }
        assert_eq!(queue(&gateway)["accepted"], 0);
        let answer = gateway.bulk(&body(30)).ok().unwrap();
        assert_eq!(
            answer.header("content-type"),
            Some("application/json; charset=UTF-8")
        );
        assert_eq!(answer.header("x-elastic-product"), None);
        assert_eq!(drained(&gateway, "c0")["indexed"], 30);
    }
}

/// A node takes no notice of a `Connection` that names them, so the gateway must not act on it, whether it
/// queues a bulk, splits it or passes it on.
#[test]
fn headers_of_the_request_that_connection_names_reach_the_cluster_all_the_same() {
    let cluster = cluster_of(Flavour::OpenSearch3);
    let place = GatewayHome::before(&[&cluster], "");
    let queues = place.start();
    let splits = Gateway::before(&cluster);
    let passes = Gateway::with_filters(&cluster, "      - elasticsearch: {elasticsearch: c}");
    let lines = body(20);
    for (gateway, queued) in [(&queues, true), (&splits, false), (&passes, false)] {
        for connection in ["close, Content-Type", "close", "content-type, close"] {
            let head = format!(
                "POST /logs/_bulk HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nConnection: {connection}\r\nContent-Length: {}\r\n\r\n",
                lines.len()
            );
            let answer = exchange(gateway, format!("{head}{lines}").as_bytes());
            assert!(answer.starts_with("HTTP/1.1 200"), "{connection}: {answer}");
            let is_queued = answer.to_lowercase().contains("x-tidegate-ack");
            assert_eq!(is_queued, queued, "{connection}: {answer}");
        }
    }
    assert_eq!(drained(&queues, "c0")["indexed"], 60);
}

#[test]
fn what_the_cluster_refuses_as_a_whole_is_refused_before_it_is_queued_and_asked_about_once() {
    let cluster = cluster_of(Flavour::OpenSearch3);
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    for target in [
        "/_bulk?refresh=banana",
        "/logs/_bulk?timeout=banana",
        "/_bulk?wait_for_active_shards=-3",
        "/_bulk?require_data_stream=true",
    ] {
        let directly = send(&direct(&cluster), target, &PLAIN);
        assert_eq!(directly.status, 400, "{target}");
        for _ in 0..3 {
            let through = send(&gateway.client(), target, &PLAIN);
            assert_eq!(
                (through.status, through.text()),
                (400, directly.text()),
                "{target}"
            );
        }
    }
    assert_eq!(queue(&gateway)["accepted"], 0);
    assert_eq!(cluster.docs("logs").len(), 0);
    let asked = || cluster.counts().bulks;
    assert_eq!(asked(), 0, "a refused question is no bulk");
    for index in ["logs", "logs", "other"] {
        let target = format!("/{index}/_bulk?require_alias=false&routing={}", fastrand::u32(..));
        send(&gateway.client(), &target, &PLAIN).ok().unwrap();
    }
    drained(&gateway, "c0");
    assert_eq!(
        (asked(), queue(&gateway)["accepted"].as_u64().unwrap()),
        (4, 60),
        "one question, and three bulks"
    );
    assert_eq!(cluster.docs("tidegate-asks-about-parameters").len(), 0);
}

#[test]
fn lines_and_headers_that_are_too_long_for_the_cluster_are_too_long_for_the_queue() {
    let cluster = cluster_of(Flavour::OpenSearch3);
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let long = "r".repeat(4_200);
    let fits = "r".repeat(3_900);
    let header = "h".repeat(17_000);
    let with_header = [PLAIN[0], ("x-long", header.as_str())];
    for (target, headers, status) in [
        (format!("/_bulk?routing={fits}"), &PLAIN[..], 200),
        (format!("/_bulk?routing={long}"), &PLAIN[..], 400),
        (format!("/_bulk?routing={fits}"), &PLAIN[..], 200),
        ("/_bulk".to_owned(), &with_header[..], 400),
        ("/_bulk".to_owned(), &PLAIN[..], 200),
    ] {
        let directly = send(&direct(&cluster), &target, headers);
        let through = send(&gateway.client(), &target, headers);
        assert_eq!((through.status, directly.status), (status, status));
        if status == 400 {
            assert_eq!(through.text(), directly.text());
        }
    }
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(60), &json!(0)));
}

#[test]
fn while_the_cluster_is_away_forms_that_it_took_are_queued_and_others_are_told_to_come_back() {
    let cluster = cluster_of(Flavour::Elasticsearch9);
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    send(&gateway.client(), "/_bulk", &VENDOR).ok().unwrap();
    gateway.bulk(&body(1)).ok().unwrap();
    for node in 0..3 {
        cluster.kill(node);
    }
    for _ in 0..4 {
        send(&gateway.client(), "/_bulk", &VENDOR).ok().unwrap();
    }
    let other = send(&gateway.client(), "/_bulk?require_alias=false", &VENDOR);
    assert_eq!((other.status, other.header("retry-after")), (503, Some("1")));
    assert!(other.text().contains("nothing was accepted"), "{}", other.text());
    for node in 0..3 {
        cluster.restart(node).unwrap();
    }
    assert_eq!(drained(&gateway, "c0")["indexed"], 101);
    account(&queue(&gateway), "c0");
}

#[test]
fn what_a_request_forbids_to_make_is_not_made_and_the_cluster_says_why() {
    let cluster = cluster_of(Flavour::OpenSearch3);
    cluster.alias("current", &["logs"]);
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let client = gateway.client();
    let of_line = "{\"index\":{\"_index\":\"new3\",\"_id\":\"1\",\"require_alias\":true}}\n{}\n";
    for (target, body) in [
        (
            "/new1/_bulk?require_alias=true",
            "{\"index\":{\"_id\":\"1\"}}\n{}\n",
        ),
        (
            "/_bulk?require_alias",
            "{\"index\":{\"_index\":\"logs\",\"_id\":\"1\"}}\n{}\n",
        ),
        ("/_bulk", of_line),
    ] {
        let answer = client.send("POST", target, &PLAIN, body.as_bytes()).unwrap();
        assert_eq!(answer.header("x-tidegate-ack"), None, "{target}");
        let words = answer.text();
        assert!(words.contains("is not an alias"), "{target}: {words}");
    }
    // Both lines are refused as a whole, so no index is created for the first.
    let refused = "{\"index\":{\"_index\":\"new4\"}}\n{}\n{\"upsert\":{\"_index\":\"new4\"}}\n{}\n";
    assert_eq!(gateway.bulk(refused).status, 400);
    let to_new = "{\"index\":{\"_index\":\"new5\"}}\n{}\n";
    let refused = client.send("POST", "/_bulk?refresh=banana", &PLAIN, to_new.as_bytes());
    assert_eq!(refused.unwrap().status, 400);
    for name in ["new1", "new3", "new4", "new5"] {
        let there = direct(&cluster).get(&format!("/{name}/_search")).unwrap();
        assert_eq!(there.status, 404, "{name}: {}", there.text());
    }
    assert_eq!(queue(&gateway)["accepted"], 0);
    let through_alias = client.send(
        "POST",
        "/current/_bulk?require_alias=true",
        &PLAIN,
        b"{\"index\":{}}\n{}\n",
    );
    assert!(through_alias.unwrap().header("x-tidegate-ack").is_some());
    assert_eq!(drained(&gateway, "c0")["indexed"], 1);
}

#[test]
fn a_pipeline_that_writes_who_sent_a_document_runs_for_its_client_only() {
    let pipelines = json!({
        "who": {"processors": [{"set_security_user": {"field": "user"}}]},
        "trim": {"processors": [{"trim": {"field": "n"}}]},
    });
    let mut spec = Spec::default()
        .flavour(Flavour::Elasticsearch9)
        .index("logs", 6)
        .storing();
    spec.pipelines = pipelines.as_object().unwrap().clone();
    let cluster = FakeCluster::start(spec).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let answer = send(&gateway.client(), "/_bulk?pipeline=who", &PLAIN)
        .ok()
        .unwrap();
    assert_eq!(answer.header("x-tidegate-ack"), None);
    assert_eq!(
        (
            gateway.passed("callers_pipeline"),
            queue(&gateway)["accepted"].as_u64()
        ),
        (1, Some(0))
    );
    let answer = send(&gateway.client(), "/_bulk?pipeline=trim", &PLAIN)
        .ok()
        .unwrap();
    assert!(answer.header("x-tidegate-ack").is_some());
}

#[test]
fn a_clients_own_name_for_its_request_is_echoed_as_servers_do() {
    let cluster = cluster_of(Flavour::OpenSearch3);
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let headers = [PLAIN[0], ("x-opaque-id", "mine")];
    let answer = send(&gateway.client(), "/_bulk", &headers).ok().unwrap();
    assert_eq!(answer.header("x-opaque-id"), Some("mine"));
}
