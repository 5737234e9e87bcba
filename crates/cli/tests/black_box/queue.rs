//! Asynchronous mode: bulks are answered from the queue and delivered from it, whatever happens in between.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::fake::{Behaviour, FakeCluster, Fault, Injection, On, Spec, Unfit};

use crate::gateway::{Gateway, PATIENCE, body, cluster, ids, statuses};
use crate::home::{GatewayHome, account, drained, queue, wait};

const TOO_BUSY: &str = r#"{"type":"es_rejected_execution_exception","reason":"too busy"}"#;

fn dead_letters(gateway: &Gateway) -> Vec<Value> {
    let listed = gateway
        .admin()
        .get("/dead_letters?queue=q")
        .unwrap()
        .ok()
        .unwrap()
        .json()
        .unwrap();
    listed["dead_letters"].as_array().unwrap().clone()
}

/// Returns the `n` of a document.
fn n_of(cluster: &FakeCluster, id: &str) -> Value {
    let source: Value = serde_json::from_str(&cluster.docs("logs")[id].source).unwrap();
    source["n"].clone()
}

#[test]
fn a_bulk_is_answered_from_the_queue_and_delivered_to_the_nodes_of_its_documents() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let text = format!(
        "{}{{\"create\":{{\"_index\":\"logs\"}}}}\n{{\"n\":-1}}\n{{\"delete\":{{\"_index\":\"logs\",\"_id\":\"7\"}}}}\n",
        body(300)
    );
    let answer = gateway.bulk(&text).ok().unwrap();
    let ack = answer.header("x-tidegate-ack").unwrap();
    assert!(ack.starts_with("queued; position="), "{ack}");
    let answer = answer.json().unwrap();
    assert_eq!(answer["errors"], json!(false));
    let statuses = statuses(&answer);
    assert_eq!(
        (statuses.len(), statuses[0], statuses[300], statuses[301]),
        (302, 201, 201, 200)
    );
    let items = answer["items"].as_array().unwrap();
    assert_eq!(
        items[5]["index"],
        json!({
            "_index": "logs",
            "_id": "5",
            "_version": -1,
            "result": "created",
            "_shards": {"total": 0, "successful": 0, "failed": 0},
            "status": 201,
        })
    );
    assert_eq!(items[301]["delete"]["result"], "deleted");
    let minted = items[300]["create"]["_id"].as_str().unwrap().to_owned();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(302), &json!(0)));
    let docs = cluster.docs("logs");
    assert_eq!(docs.len(), 300);
    assert!(docs.contains_key(&minted) && !docs.contains_key("7"));
    assert_eq!(cluster.counts().misrouted, 0, "each part went to its node");
    assert_eq!(
        (gateway.counter("docs_queued"), gateway.counter("bulk_queued")),
        (302, 1)
    );
}

#[test]
fn what_was_acknowledged_survives_kill_9_and_each_document_ends_with_its_last_version() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    // A backlog: no node accepts anything.
    let slow = Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::bulk(slow.clone()).always());
    for round in 0..10 {
        let text: String = (0..200)
            .map(|id| {
                format!(
                    "{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"n\":{}}}\n",
                    round * 1000 + id
                )
            })
            .collect();
        let created =
            format!("{{\"create\":{{\"_index\":\"logs\",\"_id\":\"c{round}\"}}}}\n{{\"n\":{round}}}\n");
        gateway.bulk(&(text + &created)).ok().unwrap();
    }
    assert_eq!(account(&queue(&gateway), "c0")["pending"], json!(2010));
    gateway.signal("KILL");
    drop(gateway);
    // The gateway is killed again and again while it delivers, and now and then an answer is lost.
    cluster.behave();
    for _ in 0..3 {
        cluster.inject(Injection::bulk(Fault::CloseWritten).times(2));
        let gateway = place.start();
        std::thread::sleep(Duration::from_millis(60));
        account(&queue(&gateway), "c0");
        gateway.signal("KILL");
    }
    cluster.behave();
    let gateway = place.start();
    let one = drained(&gateway, "c0");
    assert_eq!(
        (&one["indexed"], &one["dead"], &one["lost"]),
        (&json!(2010), &json!(0), &json!(0))
    );
    assert_eq!(cluster.docs("logs").len(), 210);
    for id in 0..200 {
        assert_eq!(n_of(&cluster, &id.to_string()), json!(9000 + id));
    }
    assert!(dead_letters(&gateway).is_empty());
}

#[test]
fn refused_items_are_sent_again_and_no_later_write_overtakes_them() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let busy = |every| Fault::Items {
        every,
        status: 429,
        error: TOO_BUSY.to_owned(),
    };
    cluster.inject(Injection::bulk(busy(3)).times(6));
    cluster.inject(
        Injection::bulk(Fault::Status {
            status: 429,
            body: "{}".to_owned(),
        })
        .on_node(1)
        .times(5),
    );
    cluster.inject(Injection::bulk(busy(1)).times(3));
    // Many writes to few documents, within one request and over several.
    for round in 0..5 {
        let text: String = (0..60)
            .map(|n| {
                let (id, n) = (n % 10, round * 60 + n);
                format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"n\":{n}}}\n")
            })
            .collect();
        gateway.bulk(&text).ok().unwrap();
    }
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(300), &json!(0)));
    assert!(one["docs_retried"].as_u64().unwrap() > 0);
    for id in 0..10 {
        assert_eq!(n_of(&cluster, &id.to_string()), json!(290 + id));
    }
}

#[test]
fn what_the_cluster_will_not_take_is_kept_with_its_reason_and_survives_a_restart() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let error = r#"{"type":"mapper_parsing_exception","reason":"failed to parse field [n]"}"#;
    // Only that document fails, whatever travels with it, and again if it is delivered again.
    cluster.set_behaviour(Behaviour {
        unfit: Some(Unfit {
            holds: r#""n":"x""#.to_owned(),
            status: 400,
            error: error.to_owned(),
        }),
        ..Behaviour::default()
    });
    let text = "{\"index\":{\"_id\":\"bad\"}}\n{\"n\":\"x\"}\n";
    let answer = gateway
        .client()
        .post_ndjson("/logs/_bulk?timeout=1m", text.as_bytes())
        .unwrap()
        .ok()
        .unwrap();
    let position: u64 = answer
        .header("x-tidegate-ack")
        .unwrap()
        .rsplit_once('=')
        .unwrap()
        .1
        .parse()
        .unwrap();
    gateway.bulk(&body(50)).ok().unwrap();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(50), &json!(1)));
    let check = |gateway: &Gateway| {
        let letters = dead_letters(gateway);
        assert_eq!(letters.len(), 1, "{letters:#?}");
        let letter = &letters[0];
        assert_eq!(letter["action"], json!({"index": {"_id": "bad"}}));
        assert_eq!(letter["source"], json!({"n": "x"}));
        assert_eq!((&letter["status"], &letter["attempts"]), (&json!(400), &json!(1)));
        assert_eq!(letter["type"], "mapper_parsing_exception");
        assert_eq!(letter["reason"], "failed to parse field [n]");
        assert_eq!(letter["origin"]["position"], json!(position));
        assert_eq!(letter["origin"]["target"], "/logs/_bulk?timeout=1m");
    };
    check(&gateway);
    gateway.signal("KILL");
    drop(gateway);
    let gateway = place.start();
    // Marks are durable within a tenth of a second; anything not yet durable is delivered again.
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(50), &json!(1)));
    check(&gateway);
}

#[test]
fn rights_that_are_missing_pause_the_lanes_and_give_up_nothing() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let refusal = r#"{"error":{"type":"security_exception","reason":"no rights"},"status":403}"#;
    cluster.inject(
        Injection::bulk(Fault::Status {
            status: 403,
            body: refusal.to_owned(),
        })
        .always(),
    );
    gateway.bulk(&body(100)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["paused_lanes"].as_u64().unwrap() > 0);
    assert_eq!((&one["pending"], &one["dead"]), (&json!(100), &json!(0)));
    gateway.logged("no rights");
    cluster.behave();
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(100));
    assert!(dead_letters(&gateway).is_empty());
}

#[test]
fn a_batch_that_is_too_large_is_halved_and_one_bad_request_does_not_take_others_with_it() {
    let cluster = FakeCluster::start(Spec {
        content_length_max: 2_000,
        ..Spec::default().index("logs", 1).storing()
    })
    .unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    // The gateway knows the limit by then, and splits nothing that a client may not send.
    for n in 0..20 {
        gateway
            .bulk(&body(30).replace("\"_id\":\"", &format!("\"_id\":\"{n}-")))
            .ok()
            .unwrap();
    }
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(600), &json!(0)));
    assert_eq!(cluster.docs("logs").len(), 600);
}

#[test]
fn a_full_queue_is_429_with_retry_after_and_nothing_of_the_request_is_delivered() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], ", max_size: 256kb");
    let gateway = place.start();
    let down = Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::bulk(down).always());
    let mut accepted = 0;
    let refused = loop {
        let answer = gateway.bulk(&body(500));
        if answer.status != 200 {
            break answer;
        }
        accepted += 500;
        assert!(accepted < 100_000, "a quota of 256 kb holds no more");
    };
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), Some("10"));
    assert_eq!(
        refused.json().unwrap()["error"]["type"],
        "es_rejected_execution_exception"
    );
    assert_eq!(account(&queue(&gateway), "c0")["pending"], json!(accepted));
    cluster.behave();
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(accepted));
    let began = Instant::now();
    while gateway.bulk(&body(500)).status != 200 {
        assert!(began.elapsed() < PATIENCE, "there is room again");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn two_clusters_get_everything_each_at_its_own_pace() {
    let (primary, backup) = (
        cluster(),
        FakeCluster::start(Spec::default().index("logs", 2).storing()).unwrap(),
    );
    let place = GatewayHome::before(&[&primary, &backup], "");
    let gateway = place.start();
    let busy = Fault::Items {
        every: 1,
        status: 429,
        error: TOO_BUSY.to_owned(),
    };
    backup.inject(Injection::bulk(busy).always());
    gateway.bulk(&body(400)).ok().unwrap();
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(400));
    assert_eq!(account(&queue(&gateway), "c1")["pending"], json!(400));
    let seen = |all: &Value| all["c1"]["state"] == "watching";
    while !seen(&gateway.admin().get("/elasticsearch").unwrap().json().unwrap()) {
        std::thread::sleep(Duration::from_millis(20));
    }
    backup.reset_counts();
    backup.behave();
    assert_eq!(drained(&gateway, "c1")["indexed"], json!(400));
    assert_eq!(
        (primary.docs("logs").len(), backup.docs("logs").len()),
        (400, 400)
    );
    assert_eq!(backup.counts().misrouted, 0, "split by its own topology");
}

#[test]
fn a_client_that_the_cluster_does_not_know_gets_the_clusters_401() {
    let cluster =
        FakeCluster::start(Spec::default().index("logs", 6).storing().basic_auth("u", "p")).unwrap();
    let url = cluster.urls()[0].replace("http://", "http://u:p@");
    let place = GatewayHome::at(&[url], "");
    let gateway = place.start();
    assert_eq!(gateway.bulk(&body(10)).status, 401);
    let wrong = gateway.client().basic_auth("u", "x");
    assert_eq!(
        wrong.post_ndjson("/_bulk", body(10).as_bytes()).unwrap().status,
        401
    );
    assert_eq!(queue(&gateway)["accepted"], json!(0));
    let right = gateway.client().basic_auth("u", "p");
    right
        .post_ndjson("/_bulk", body(10).as_bytes())
        .unwrap()
        .ok()
        .unwrap();
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(10));
    // The index is known now, and the cluster is away: that is what a queue is for. A stranger cannot be
    // checked.
    for node in 0..3 {
        cluster.kill(node);
    }
    right
        .post_ndjson("/_bulk", body(10).as_bytes())
        .unwrap()
        .ok()
        .unwrap();
    let answer = wrong.post_ndjson("/_bulk", body(10).as_bytes()).unwrap();
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    for node in 0..3 {
        cluster.restart(node).unwrap();
    }
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(20));
}

#[test]
fn what_cannot_be_queued_is_answered_by_the_cluster() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let answer = gateway.bulk("{\"index\":{\"_index\":\"logs\",\"_id\":\"1\"}}\n{}\n{\"what\":{}}\n");
    assert_eq!(answer.header("x-tidegate-ack"), None);
    let headers = [
        ("content-type", "application/x-ndjson"),
        ("accept", "application/yaml"),
    ];
    let one = b"{\"index\":{\"_id\":\"2\"}}\n{\"n\":1}\n";
    let answer = gateway
        .client()
        .send("POST", "/logs/_bulk", &headers, one)
        .unwrap()
        .ok()
        .unwrap();
    assert_eq!(answer.header("x-tidegate-ack"), None, "the cluster's own answer");
    assert_eq!(answer.json().unwrap()["items"][0]["index"]["_version"], 1);
    assert_eq!(
        (queue(&gateway)["accepted"].clone(), gateway.passed("accept")),
        (json!(0), 1)
    );
}

#[test]
fn a_graceful_stop_leaves_nothing_half_done() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let mut gateway = place.start();
    cluster.inject(Injection::new(On::Bulk, Fault::Delay(Duration::from_millis(200))).times(20));
    gateway.bulk(&body(100)).ok().unwrap();
    wait(&gateway, "c0", |one| one["requests"].as_u64().unwrap() > 3);
    gateway.signal("TERM");
    assert!(gateway.wait().success(), "{}", gateway.log());
    drop(gateway);
    let sent = cluster.counts().docs;
    let gateway = place.start();
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(100));
    assert_eq!(
        (cluster.counts().docs, sent),
        (100, 100),
        "what was under way was finished and committed"
    );
    assert!(Path::new(&place.data()).join("queue/q/LOG").exists());
}

#[test]
fn documents_without_ids_are_directed_before_they_are_queued() {
    let cluster = cluster();
    // Settings besides the queue's own.
    let place = GatewayHome::before(
        &[&cluster],
        "}, direct_routing: mint-packed, combine: {enabled: false",
    );
    let gateway = place.start();
    for bulks in 1..=3 {
        let body = "{\"index\":{\"_index\":\"logs\"}}\n{}\n".repeat(20);
        let answer = gateway.bulk(&body).ok().unwrap().json().unwrap();
        let told = ids(&answer, "index");
        assert_eq!(drained(&gateway, "c0")["indexed"], json!(20 * bulks));
        let docs = cluster.docs("logs");
        assert!(told.iter().all(|id| docs.contains_key(id)), "{told:?}");
        assert_eq!(
            (docs.len(), cluster.counts().bulks),
            (20 * bulks, bulks as u64),
            "one lane each"
        );
    }
    assert_eq!(
        (gateway.counter("docs_directed"), cluster.counts().misrouted),
        (60, 0)
    );
}

/// All writes of a batch to one document are sent one after another. A stop lets them come to their end, so
/// that none of them is executed a second time.
#[test]
fn a_stop_in_the_middle_of_a_batch_lets_it_come_to_its_end() {
    let behaviour = Behaviour {
        latency: Duration::from_millis(40),
        ..Behaviour::default()
    };
    let spec = Spec {
        behaviour,
        ..Spec::default()
    };
    let cluster = FakeCluster::start(spec.index("logs", 1).storing()).unwrap();
    let writes = |round: usize| -> String {
        let line =
            |n| format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"one\"}}}}\n{{\"n\":{round}{n}}}\n");
        (0..40).map(line).collect()
    };
    let place = GatewayHome::before(&[&cluster], "");
    let mut gateway = place.start();
    let under_way = |sent: u64| {
        let began = Instant::now();
        while cluster.counts().docs < sent + 5 {
            assert!(began.elapsed() < PATIENCE, "{:?}", cluster.counts());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    gateway.bulk(&writes(1)).ok().unwrap();
    under_way(0);
    let stopped = gateway
        .admin()
        .send("POST", "/pipeline/p0/_stop", &[], b"")
        .unwrap();
    assert_eq!(stopped.status, 200, "{}", stopped.text());
    assert_eq!(cluster.counts().docs, 40, "the pipeline has stopped");
    let started = gateway
        .admin()
        .send("POST", "/pipeline/p0/_start", &[], b"")
        .unwrap();
    assert_eq!(started.status, 200, "{}", started.text());
    assert_eq!(drained(&gateway, "c0")["indexed"], 40);
    gateway.bulk(&writes(2)).ok().unwrap();
    under_way(40);
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    assert_eq!(cluster.counts().docs, 80, "the gateway has stopped");
    let gateway = place.start();
    assert_eq!(drained(&gateway, "c0")["indexed"], 80);
    assert_eq!(cluster.counts().docs, 80, "each is sent once");
}
