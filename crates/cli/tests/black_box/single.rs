//! Writes of single documents that travel as bulks: where they go, what they travel with, and what happens
//! when nodes refuse or break off. `real_single` proves on real clusters that answers are the cluster's own.

use std::sync::Barrier;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::client::{Answer, Client};
use testkit::fake::{Behaviour, FakeCluster, Fault, Injection, Spec};

use crate::gateway::{Gateway, cluster};

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

fn before(cluster: &FakeCluster) -> Gateway {
    Gateway::with(cluster, &["--rewrite-to-bulk"])
}

/// Returns how often writes passed for this reason.
fn passed(gateway: &Gateway, why: &str) -> u64 {
    let stats = gateway.admin().get("/stats").unwrap().json().unwrap();
    stats["gateway"]["single_passed_because"][why]
        .as_u64()
        .unwrap_or(0)
}

/// Returns the answer without the cluster's clock (its sequence numbers).
fn timeless(answer: &Answer) -> (u16, Option<String>, Value) {
    let mut body = answer.json().unwrap();
    if body["_seq_no"].is_u64() {
        body["_seq_no"] = json!(0);
    }
    (
        answer.status,
        answer.header("content-type").map(str::to_owned),
        body,
    )
}

#[test]
fn single_writes_go_to_their_primaries_as_bulks_and_are_answered_as_single_writes() {
    let (cluster, twin) = (cluster(), cluster());
    let (gateway, direct) = (before(&cluster), Client::new(&twin.urls()[0]).unwrap());
    let client = gateway.client();
    for n in 0..40 {
        for (method, target, body) in [
            ("PUT", format!("/logs/_doc/{n}"), r#"{"n":1}"#),
            ("POST", format!("/logs/_doc/{n}?refresh=wait_for"), r#"{"n":2}"#),
            ("PUT", format!("/logs/_create/{n}-c"), r#"{"n":1}"#),
            ("PUT", format!("/logs/_doc/{n}-c?op_type=create"), r#"{"n":1}"#),
            ("POST", format!("/logs/_update/{n}"), r#"{"doc":{"n":3}}"#),
            (
                "POST",
                format!("/logs/_update/{n}-u"),
                r#"{"doc":{"n":3},"doc_as_upsert":true}"#,
            ),
            ("POST", format!("/logs/_update/{n}-none"), r#"{"doc":{"n":3}}"#),
            ("DELETE", format!("/logs/_doc/{n}-c"), ""),
            ("DELETE", format!("/logs/_doc/{n}-c"), ""),
        ] {
            let headers = if body.is_empty() { &[] } else { JSON };
            let wanted = direct.send(method, &target, headers, body.as_bytes()).unwrap();
            let answer = client.send(method, &target, headers, body.as_bytes()).unwrap();
            let mut wanted = timeless(&wanted);
            if let Some(error) = wanted.2.get("error").cloned() {
                wanted.2["error"]["root_cause"] = json!([error]);
            }
            assert_eq!(timeless(&answer), wanted, "{method} {target}");
            let location = (answer.status == 201)
                .then(|| format!("/logs/_doc/{}", target.split(['/', '?']).nth(3).unwrap()));
            assert_eq!(
                answer.header("location"),
                location.as_deref(),
                "{method} {target}"
            );
        }
    }
    let counts = cluster.counts();
    assert_eq!((counts.writes, counts.docs, counts.misrouted), (0, 360, 0));
    assert!(counts.docs_by_node.iter().all(|docs| *docs > 0));
    assert_eq!(cluster.docs("logs"), twin.docs("logs"));
    assert_eq!(gateway.counter("single_joined"), 360);
    assert_eq!(gateway.counter("single_again"), 0);
    assert_eq!(gateway.counter("docs_direct"), 360);
    assert_eq!(gateway.counter("bulk_requests"), 0);
}

#[test]
fn a_document_without_an_id_is_created_once_with_its_own() {
    let cluster = cluster();
    let gateway = before(&cluster);
    let client = gateway.client();
    for _ in 0..12 {
        let answer = client.post("/logs/_doc", &json!({"n": 1})).unwrap();
        assert_eq!(answer.status, 201);
        let id = answer.json().unwrap()["_id"].as_str().unwrap().to_owned();
        assert_eq!(answer.header("location"), Some(&*format!("/logs/_doc/{id}")));
        assert!(cluster.docs("logs").contains_key(&id));
    }
    assert_eq!(cluster.docs("logs").len(), 12);
    // Nodes take turns, but one that happens to be much slower than the next may be passed over once.
    let by_node = cluster.counts().docs_by_node;
    assert!(by_node.iter().all(|docs| *docs >= 2), "{by_node:?}");
}

#[test]
fn many_clients_single_writes_reach_the_nodes_as_few_bulks() {
    const CLIENTS: usize = 24;
    let behaviour = Behaviour {
        latency: Duration::from_millis(30),
        ..Behaviour::default()
    };
    let spec = Spec {
        behaviour,
        ..Spec::default()
    };
    let cluster = FakeCluster::start(spec.index("logs", 6).storing()).unwrap();
    let gateway = Gateway::with_filters(
        &cluster,
        "      - rewrite_to_bulk:
      - bulk_reshuffle: {elasticsearch: c, mode: sync, combine: {enabled: true}}
      - elasticsearch: {elasticsearch: c}",
    );
    let start = Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        for who in 0..CLIENTS {
            let (gateway, start) = (&gateway, &start);
            scope.spawn(move || {
                let client = gateway.client();
                start.wait();
                for round in 0..10 {
                    let target = format!("/logs/_doc/{who}-{}", round / 2);
                    let answer = match round % 2 {
                        0 => client.put(&target, &json!({"who": who})).unwrap(),
                        _ => client.delete(&target).unwrap(),
                    };
                    let (status, result) = [(201, "created"), (200, "deleted")][round % 2];
                    let body = answer.json().unwrap();
                    assert_eq!((answer.status, &body["result"]), (status, &json!(result)));
                    assert_eq!(body["_id"], json!(format!("{who}-{}", round / 2)));
                }
            });
        }
    });
    assert!(cluster.docs("logs").is_empty());
    let counts = cluster.counts();
    assert_eq!(
        (counts.writes, counts.docs, counts.misrouted),
        (0, CLIENTS as u64 * 10, 0)
    );
    assert!(counts.bulks < counts.docs / 2, "{counts:?}");
    assert!(gateway.counter("combined_requests") > 0);
}

#[test]
fn what_is_unusual_goes_on_as_it_came_and_is_counted() {
    let cluster = cluster();
    let gateway = before(&cluster);
    let client = gateway.client();
    for (target, body, why) in [
        ("/logs/_doc/1?pretty", "{}", "url_parameter"),
        ("/logs/_doc/1?filter_path=result", "{}", "url_parameter"),
        ("/logs/_doc/1", "{\n}", "line_break"),
        ("/logs/_doc/1", "[]", "not_an_object"),
        ("/none/_doc/1", "{}", "unknown_index"),
        ("/a,b/_doc/1", "{}", "url_index"),
        ("/logs/_doc/_mapping", "{}", "url_id"),
        ("/logs/_doc/1?routing=", "{}", "empty_routing"),
        ("/logs/_doc/1?version=3", "{}", "versioning"),
    ] {
        let answer = client.send("PUT", target, JSON, body.as_bytes()).unwrap();
        assert_eq!(
            passed(&gateway, why),
            if target.contains("filter") { 2 } else { 1 },
            "{target}"
        );
        assert!(!answer.text().contains("gateway:"), "{}", answer.text());
    }
    let yaml = [("content-type", "application/yaml")];
    client.send("PUT", "/logs/_doc/1", &yaml, b"{}").unwrap();
    assert_eq!(passed(&gateway, "content_type"), 1);
    let counts = cluster.counts();
    assert_eq!((gateway.counter("single_passed"), counts.bulks), (10, 0));
    assert!(counts.writes >= 5, "{counts:?}");
    assert_eq!(gateway.counter("single_joined"), 0);
}

#[test]
fn single_writes_stay_as_they_are_unless_asked_for() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    gateway
        .client()
        .put("/logs/_doc/1", &json!({}))
        .unwrap()
        .ok()
        .unwrap();
    assert_eq!((cluster.counts().writes, cluster.counts().bulks), (1, 0));
    assert_eq!(gateway.counter("single_passed"), 0);
}

#[test]
fn what_the_cluster_refuses_gets_the_clusters_own_answer() {
    let refused =
        r#"{"type":"mapper_parsing_exception","reason":"no","caused_by":{"type":"x","reason":"y"}}"#;
    for fault in [
        Fault::Items {
            every: 1,
            status: 400,
            error: refused.to_owned(),
        },
        Fault::Status {
            status: 403,
            body: r#"{"error":{"type":"security_exception","reason":"no bulks"},"status":403}"#.to_owned(),
        },
    ] {
        let cluster = cluster();
        let gateway = before(&cluster);
        cluster.inject(Injection::bulk(fault));
        // The fake cluster accepts such a write.
        let answer = gateway.client().put("/logs/_doc/1", &json!({"n": 1})).unwrap();
        assert_eq!(
            (answer.status, answer.header("location")),
            (201, None),
            "{}",
            answer.text()
        );
        assert_eq!((cluster.counts().writes, cluster.docs("logs").len()), (1, 1));
        assert_eq!(gateway.counter("single_again"), 1);
    }
}

#[test]
fn what_is_too_much_is_not_asked_again() {
    let words =
        r#"{"error":{"root_cause":[{"type":"x","reason":"y"}],"type":"x","reason":"y"},"status":429}"#;
    for fault in [
        Fault::Status {
            status: 429,
            body: words.to_owned(),
        },
        Fault::Items {
            every: 1,
            status: 429,
            error: r#"{"type":"x","reason":"y"}"#.to_owned(),
        },
    ] {
        let cluster = cluster();
        let gateway = before(&cluster);
        cluster.inject(Injection::bulk(fault));
        let answer = gateway.client().put("/logs/_doc/1", &json!({"n": 1})).unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (429, words));
        assert_eq!((cluster.counts().writes, cluster.docs("logs").len()), (0, 0));
    }
}

#[test]
fn what_may_have_been_executed_is_not_asked_again_whoever_says_so() {
    let cluster = cluster();
    let gateway = before(&cluster);
    for (status, body) in [
        (503, r#"{"error":{"type":"x","reason":"y"},"status":503}"#),
        (504, "<html>gateway time-out</html>"),
        (408, "{}"),
    ] {
        let body = body.to_owned();
        cluster.inject(Injection::bulk(Fault::Status {
            status,
            body: body.clone(),
        }));
        let answer = gateway.client().put("/logs/_doc/1", &json!({"n": 1})).unwrap();
        assert_eq!((answer.status, answer.text()), (status, body));
    }
    assert_eq!((cluster.counts().writes, gateway.counter("single_again")), (0, 0));
}

#[test]
fn a_write_of_unknown_fate_is_sent_again_only_if_that_cannot_write_twice() {
    let update = r#"{"doc":{"n":1},"doc_as_upsert":true}"#;
    for (method, target, body, status) in [
        ("PUT", "/logs/_doc/1", "{}", 200),
        ("PUT", "/logs/_create/1", "{}", 503),
        ("POST", "/logs/_doc", "{}", 503),
        ("POST", "/logs/_update/1", update, 503),
        ("PUT", "/logs/_doc/1?version=3&version_type=external", "{}", 503),
    ] {
        let cluster = cluster();
        let gateway = before(&cluster);
        cluster.inject(Injection::bulk(Fault::CloseWritten));
        let answer = gateway
            .client()
            .send(method, target, JSON, body.as_bytes())
            .unwrap();
        assert_eq!(answer.status, status, "{method} {target}: {}", answer.text());
        assert_eq!(
            (cluster.counts().writes, cluster.docs("logs").len()),
            (0, 1),
            "{target}"
        );
        if status == 503 {
            let body = answer.json().unwrap();
            assert_eq!(body["status"], 503);
            assert_eq!(
                body["error"]["root_cause"][0]["type"],
                "unavailable_shards_exception"
            );
            assert!(answer.text().contains("gateway:"), "{}", answer.text());
        }
    }
}

#[test]
fn a_refusal_of_a_second_try_is_told_and_not_tried_a_third_time() {
    let cluster = cluster();
    let gateway = before(&cluster);
    cluster.inject(Injection::bulk(Fault::CloseWritten));
    cluster.inject(Injection::bulk(Fault::Items {
        every: 1,
        status: 403,
        error: r#"{"type":"cluster_block_exception","reason":"read-only"}"#.to_owned(),
    }));
    let answer = gateway.client().put("/logs/_doc/1", &json!({"n": 1})).unwrap();
    // The first try executed it before the index took no more writes.
    assert_eq!(answer.status, 503);
    let cause = answer.json().unwrap()["error"]["root_cause"][0].clone();
    assert_eq!(cause["type"], "unavailable_shards_exception");
    let reason = cause["reason"].as_str().unwrap();
    assert!(
        reason.contains("may have been executed") && reason.ends_with("403"),
        "{reason}"
    );
    assert_eq!((cluster.counts().bulks, cluster.counts().writes), (2, 0));
}

#[test]
fn one_clients_refused_write_does_not_hurt_those_that_travel_with_it() {
    const CLIENTS: usize = 12;
    let behaviour = Behaviour {
        latency: Duration::from_millis(30),
        ..Behaviour::default()
    };
    let spec = Spec {
        behaviour,
        ..Spec::default()
    };
    let cluster = FakeCluster::start(spec.index("logs", 1).storing()).unwrap();
    let gateway = Gateway::with(&cluster, &["--rewrite-to-bulk"]);
    let body = r#"{"error":{"type":"illegal_argument_exception","reason":"no"},"status":400}"#;
    cluster.inject(
        Injection::bulk(Fault::StatusIfHolds {
            text: "poison".to_owned(),
            status: 400,
            body: body.to_owned(),
        })
        .always(),
    );
    let start = Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        for who in 0..CLIENTS {
            let (gateway, start) = (&gateway, &start);
            scope.spawn(move || {
                let client = gateway.client();
                start.wait();
                for round in 0..4 {
                    let word = if who == 0 { "poison" } else { "fine" };
                    let answer = client.put(&format!("/logs/_doc/{who}-{round}"), &json!({"word": word}));
                    assert_eq!(answer.unwrap().status, 201);
                }
            });
        }
    });
    assert_eq!(cluster.docs("logs").len(), CLIENTS * 4);
    assert_eq!(cluster.counts().writes, 4, "the poisoned ones, each once");
    assert!(gateway.counter("combined_again") > 0);
}

#[test]
fn every_reason_to_go_on_as_it_came_is_documented_and_every_documented_one_is_there() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let metrics = gateway.admin().get("/metrics").unwrap().ok().unwrap().text();
    let labels = |name: &str| -> Vec<String> {
        let lines = metrics.lines().filter_map(|line| {
            let labelled = line.strip_prefix(name)?.strip_prefix("{why=\"")?;
            labelled.split('"').next().map(str::to_owned)
        });
        lines.collect()
    };
    let mut counted = labels("tidegate_single_passed_because_total");
    let all = counted.len();
    counted.sort();
    counted.dedup();
    assert_eq!(counted.len(), all, "each is there once");
    let of_plans: Vec<&str> = bulk::Why::ALL.iter().map(|why| why.as_str()).collect();
    counted.retain(|label| !of_plans.contains(&label.as_str()));
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/combine.md")).unwrap();
    let (_, tables) = page.split_once("## Writes of single documents").unwrap();
    let mut documented: Vec<&str> = tables
        .lines()
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    documented.sort_unstable();
    assert_eq!(counted, documented);
}
