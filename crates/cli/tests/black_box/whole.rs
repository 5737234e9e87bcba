//! A node's answer to a whole request: nothing of the request may have been executed in part, and of bulks
//! that travel together, only the one that caused the answer gets it.

use std::sync::Barrier;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::client::{Answer, Client};
use testkit::fake::{Behaviour, FakeCluster, Fault, Flavour, Injection, Spec};

use crate::gateway::{Gateway, statuses};
use crate::home::{GatewayHome, drained};

const CLIENTS: usize = 16;

/// Makes a cluster with an index that requires a routing, one of six shards, and one of a single shard.
fn strict(latency: Duration, flavour: Flavour) -> FakeCluster {
    let behaviour = Behaviour {
        latency,
        ..Behaviour::default()
    };
    let spec = Spec {
        behaviour,
        ..Spec::default().flavour(flavour)
    };
    let spec = spec.index("logs", 6).index("strict", 3).index("one", 1);
    let cluster = FakeCluster::start(spec.storing()).unwrap();
    cluster.require_routing("strict");
    cluster
}

fn busy() -> FakeCluster {
    strict(Duration::from_millis(30), Flavour::OpenSearch3)
}

fn combining(cluster: &FakeCluster) -> Gateway {
    Gateway::with_filters(
        cluster,
        "      - bulk_reshuffle: {elasticsearch: c, mode: sync, rewrite_to_bulk: true, combine: {enabled: true}}
      - elasticsearch: {elasticsearch: c}",
    )
}

fn all_at_once(gateway: &Gateway, rounds: usize, act: impl Fn(&Client, usize, usize) + Sync) {
    let start = Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (start, act) = (&start, &act);
            scope.spawn(move || {
                let connection = gateway.client();
                start.wait();
                for round in 0..rounds {
                    act(&connection, client, round);
                }
            });
        }
    });
}

/// Returns ten documents of a client for `logs`, with ids or without.
fn docs(who: usize, round: usize, ids: bool) -> String {
    let line = |n: usize| {
        let id = if ids {
            format!(",\"_id\":\"{who}-{round}-{n}\"")
        } else {
            String::new()
        };
        format!("{{\"index\":{{\"_index\":\"logs\"{id}}}}}\n{{\"client\":\"of-{who}-\"}}\n")
    };
    (0..10).map(line).collect()
}

fn bulk(client: &Client, body: &str) -> Answer {
    client.post_ndjson("/_bulk", body.as_bytes()).unwrap()
}

/// Makes the nodes answer any request that contains client 0's documents with this error.
fn poisoned(cluster: &FakeCluster, status: u16, kind: &str, reason: &str) {
    let error = json!({"root_cause": [{"type": kind, "reason": reason}], "type": kind, "reason": reason});
    let fault = Fault::StatusIfHolds {
        text: "of-0-".to_owned(),
        status,
        body: json!({"error": error, "status": status}).to_string(),
    };
    cluster.inject(Injection::bulk(fault).always());
}

/// Operations that make a server refuse their whole request, or that only some servers take.
const REFUSED: [&str; 4] = [
    "{\"index\":{\"_index\":\"strict\"}}\n{}\n",
    "{\"create\":{\"_index\":\"strict\",\"_id\":null,\"routing\":null}}\n{}\n",
    "{\"update\":{\"_index\":\"logs\",\"_id\":\"a\",\"retry_on_conflict\":99999999999}}\n{\"doc\":{}}\n",
    "{\"index\":{\"_index\":\"logs\",\"_id\":\"a\",\"retry_on_conflict\":2147483648}}\n{}\n",
];

#[test]
fn a_bulk_that_the_cluster_refuses_as_a_whole_is_not_queued_in_part() {
    for flavour in [
        Flavour::OpenSearch3,
        Flavour::Elasticsearch7,
        Flavour::Elasticsearch9,
    ] {
        let (cluster, twin) = (strict(Duration::ZERO, flavour), strict(Duration::ZERO, flavour));
        let place = GatewayHome::before(&[&cluster], "");
        let gateway = place.start();
        let direct = Client::new(&twin.urls()[0]).unwrap();
        let mut refused = 0;
        for line in REFUSED {
            let body = docs(7, 0, true) + line;
            let (wanted, answer) = (bulk(&direct, &body), gateway.bulk(&body));
            assert_eq!(answer.status, wanted.status, "{flavour:?} {line}");
            if wanted.status != 200 {
                refused += 1;
                assert_eq!(answer.header("x-tidegate-ack"), None, "{flavour:?} {line}");
                assert_eq!(
                    answer.json().unwrap(),
                    wanted.json().unwrap(),
                    "{flavour:?} {line}"
                );
            }
            drained(&gateway, "c0");
            let there = [&cluster, &twin].map(|cluster| cluster.docs("logs").len());
            assert_eq!(there[0], there[1], "{flavour:?} {line}");
        }
        assert!(refused > 1, "{flavour:?}");
    }
}

#[test]
fn a_bulk_that_the_cluster_refuses_as_a_whole_is_not_executed_in_part() {
    for flavour in [
        Flavour::OpenSearch3,
        Flavour::Elasticsearch7,
        Flavour::Elasticsearch9,
    ] {
        let (cluster, twin) = (strict(Duration::ZERO, flavour), strict(Duration::ZERO, flavour));
        let gateway = Gateway::before(&cluster);
        let direct = Client::new(&twin.urls()[0]).unwrap();
        for line in REFUSED {
            let body = docs(7, 0, true) + line;
            let (wanted, answer) = (bulk(&direct, &body), gateway.bulk(&body));
            assert_eq!(answer.status, wanted.status, "{flavour:?} {line}");
            if wanted.status != 200 {
                assert_eq!(
                    answer.json().unwrap(),
                    wanted.json().unwrap(),
                    "{flavour:?} {line}"
                );
            }
            let there = [&cluster, &twin].map(|cluster| cluster.docs("logs").len());
            assert_eq!(there[0], there[1], "{flavour:?} {line}");
        }
    }
}

#[test]
fn a_document_whose_routing_is_missing_fails_its_own_request_alone() {
    let cluster = busy();
    let gateway = combining(&cluster);
    all_at_once(&gateway, 4, |client, who, round| {
        let own = docs(who, round, who % 2 == 0);
        if who % 5 == 0 {
            let answer = bulk(client, &(own + "{\"index\":{\"_index\":\"strict\"}}\n{}\n"));
            assert_eq!(answer.status, 500);
            assert!(answer.text().contains("id must not be null"), "{}", answer.text());
        } else {
            assert_eq!(
                statuses(&bulk(client, &own).ok().unwrap().json().unwrap()),
                [201; 10]
            );
        }
    });
    assert!(gateway.counter("combined_requests") > 0);
    assert!(gateway.passed("routing_required") > 0);
    let good = (0..CLIENTS).filter(|who| who % 5 != 0).count();
    assert_eq!(cluster.docs("logs").len(), good * 40, "nothing of the others");
}

#[test]
fn a_single_write_whose_routing_is_missing_fails_alone() {
    let cluster = busy();
    let gateway = combining(&cluster);
    let json = [("content-type", "application/json")];
    all_at_once(&gateway, 6, |client, who, _| {
        let target = if who % 5 == 0 {
            "/strict/_doc"
        } else {
            "/logs/_doc"
        };
        let answer = client.send("POST", target, &json, b"{}").unwrap();
        assert_eq!(
            answer.status,
            if who % 5 == 0 { 500 } else { 201 },
            "{}",
            answer.text()
        );
    });
    assert!(gateway.counter("combined_requests") > 0);
}

#[test]
fn what_was_refused_before_anything_was_executed_is_sent_again_apart_whatever_the_status() {
    for (status, kind, reason) in [
        (500, "null_pointer_exception", "id must not be null"),
        (429, "circuit_breaking_exception", "[parent] Data too large"),
        (
            503,
            "cluster_block_exception",
            "blocked by: [SERVICE_UNAVAILABLE/2/no master];",
        ),
    ] {
        let cluster = busy();
        let gateway = combining(&cluster);
        poisoned(&cluster, status, kind, reason);
        all_at_once(&gateway, 3, |client, who, round| {
            let answer = bulk(client, &docs(who, round, who % 2 == 0));
            if who == 0 {
                assert_eq!(answer.status, status);
                assert_eq!(answer.json().unwrap()["error"]["reason"], json!(reason));
            } else {
                assert_eq!(
                    statuses(&answer.ok().unwrap().json().unwrap()),
                    [201; 10],
                    "{status}"
                );
            }
        });
        assert!(gateway.counter("combined_again") > 0);
        assert_eq!(cluster.docs("logs").len(), (CLIENTS - 1) * 30);
    }
}

#[test]
fn what_may_have_been_executed_is_sent_again_apart_where_that_doubles_nothing() {
    for status in [500, 502, 504] {
        let cluster = busy();
        let gateway = combining(&cluster);
        poisoned(&cluster, status, "exception", "secret of another");
        all_at_once(&gateway, 3, |client, who, round| {
            let answer = bulk(client, &docs(who, round, true));
            if who == 0 {
                assert_eq!(answer.status, status, "its own words: {}", answer.text());
            } else {
                assert_eq!(
                    statuses(&answer.ok().unwrap().json().unwrap()),
                    [201; 10],
                    "{status}"
                );
            }
        });
        assert!(gateway.counter("combined_requests") > 0);
        assert_eq!(cluster.docs("logs").len(), (CLIENTS - 1) * 30);
    }
}

#[test]
fn what_may_have_been_executed_and_would_be_doubled_is_said_to_be_unknown_and_not_to_be_anothers_error() {
    let cluster = busy();
    let gateway = combining(&cluster);
    poisoned(&cluster, 500, "exception", "secret of another");
    all_at_once(&gateway, 3, |client, who, round| {
        let answer = bulk(client, &docs(who, round, false));
        if who == 0 && answer.status != 200 {
            assert_eq!(answer.status, 500, "its own words, when it was alone");
            return;
        }
        assert!(
            who == 0 || !answer.text().contains("secret of another"),
            "{}",
            answer.text()
        );
        let answer = answer.ok().unwrap().json().unwrap();
        for item in answer["items"].as_array().unwrap() {
            let reason = &item["index"]["error"]["reason"];
            let known = item["index"]["status"] == json!(201);
            let unknown = reason
                .as_str()
                .is_some_and(|reason| reason.contains("may or may not"));
            assert!(known || unknown, "{item}");
        }
    });
    assert!(gateway.counter("combined_requests") > 0);
    let taken = cluster.counts().docs as usize;
    assert_eq!(cluster.docs("logs").len(), taken, "nothing twice");
}

#[test]
fn single_writes_get_no_others_refusal_either() {
    let cluster = busy();
    let gateway = combining(&cluster);
    poisoned(&cluster, 500, "exception", "secret of another");
    let json = [("content-type", "application/json")];
    all_at_once(&gateway, 6, |client, who, round| {
        let target = format!("/logs/_doc/{who}-{round}");
        let body = format!("{{\"client\":\"of-{who}-\"}}");
        let answer = client.send("PUT", &target, &json, body.as_bytes()).unwrap();
        assert_eq!(
            answer.status,
            if who == 0 { 500 } else { 201 },
            "{}",
            answer.text()
        );
    });
    assert!(gateway.counter("combined_requests") > 0);
}

#[test]
fn documents_without_id_keep_their_place_among_others_of_their_shard() {
    let cluster = strict(Duration::from_millis(5), Flavour::OpenSearch3);
    let gateway = Gateway::before(&cluster);
    for (index, round) in [("one", 0), ("logs", 0), ("one", 1), ("logs", 1)] {
        let line = |n: usize| {
            let id = if n.is_multiple_of(2) {
                format!(",\"_id\":\"{round}-{n}\"")
            } else {
                String::new()
            };
            format!("{{\"index\":{{\"_index\":\"{index}\"{id}}}}}\n{{}}\n")
        };
        let body: String = (0..20).map(line).collect();
        let answer = gateway.bulk(&body).ok().unwrap().json().unwrap();
        let numbers: Vec<u64> = answer["items"].as_array().unwrap().iter().map(number).collect();
        let first = numbers[0];
        assert_eq!(numbers, (first..first + 20).collect::<Vec<_>>(), "{index}");
    }
    assert_eq!(cluster.counts().bulks, 4);
}

fn number(item: &Value) -> u64 {
    item["index"]["_seq_no"].as_u64().unwrap()
}
