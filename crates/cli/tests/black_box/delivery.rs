//! The effect of each parameter of `bulk_indexing`, and how lanes' operations for one node travel together.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::fake::{Behaviour, FakeCluster, Fault, Injection, Spec, Workers};

use crate::gateway::{Gateway, PATIENCE, body, cluster};
use crate::home::{GatewayHome, account, drained, queue, wait};

const TOO_BUSY: &str = r#"{"type":"es_rejected_execution_exception","reason":"too busy"}"#;
const UNFIT: &str = r#"{"type":"mapper_parsing_exception","reason":"failed to parse field [n]"}"#;

/// Makes a cluster of one node, with an index of many shards.
fn one_node(shards: u32, behaviour: Behaviour) -> FakeCluster {
    let spec = Spec {
        nodes: 1,
        behaviour,
        ..Spec::default()
    };
    FakeCluster::start(spec.index("logs", shards).storing()).unwrap()
}

/// Makes a home with a queue of this many lanes before a cluster. `pipeline` and `indexing` are the settings
/// of its pipeline and its processor.
fn place(cluster: &FakeCluster, lanes: u32, pipeline: &str, indexing: &str) -> GatewayHome {
    let place = GatewayHome::before(&[cluster], "");
    let text = std::fs::read_to_string(&place.file).unwrap();
    let text = text.replace("lanes: 4", &format!("lanes: {lanes}")).replace(
        "retry_delay_in_ms: 20, processor: [{bulk_indexing: {elasticsearch: c0}}]",
        &format!("{pipeline}, processor: [{{bulk_indexing: {{{indexing}}}}}]"),
    );
    assert!(text.contains(pipeline) && text.contains(indexing), "{text}");
    std::fs::write(&place.file, text).unwrap();
    place
}

fn batch(name: &str, docs: usize) -> String {
    body(docs).replace("\"_id\":\"", &format!("\"_id\":\"{name}-"))
}

fn begin(gateway: &Gateway) {
    let started = gateway.admin().send("POST", "/pipeline/p0/_start", &[], &[]);
    started.unwrap().ok().unwrap();
}

fn status(status: u16) -> Fault {
    Fault::Status {
        status,
        body: "{}".to_owned(),
    }
}

fn items(every: usize, status: u16, error: &str) -> Fault {
    Fault::Items {
        every,
        status,
        error: error.to_owned(),
    }
}

/// Returns the status and attempts of each dead letter.
fn dead(gateway: &Gateway) -> Vec<(u64, u64)> {
    let listed = gateway
        .admin()
        .get("/dead_letters?queue=q")
        .unwrap()
        .ok()
        .unwrap();
    let listed: Value = listed.json().unwrap();
    let letters = listed["dead_letters"].as_array().unwrap().iter();
    letters
        .map(|one| (one["status"].as_u64().unwrap(), one["attempts"].as_u64().unwrap()))
        .collect()
}

#[test]
fn a_backlog_waits_for_the_topology_and_counts_nothing_as_sent_again() {
    let cluster = cluster();
    let place = place(&cluster, 16, "auto_start: false", "");
    let gateway = place.start();
    for name in ["a", "b", "c"] {
        gateway.bulk(&batch(name, 200)).ok().unwrap();
    }
    drop(gateway);
    let text = std::fs::read_to_string(&place.file).unwrap();
    std::fs::write(&place.file, text.replace("auto_start: false", "auto_start: true")).unwrap();
    cluster.inject(Injection::new(testkit::fake::On::Any, Fault::Delay(Duration::from_millis(150))).times(6));
    let gateway = place.start();
    let one = drained(&gateway, "c0");
    assert_eq!(
        (&one["indexed"], &one["docs_retried"]),
        (&json!(600), &json!(0)),
        "{one}"
    );
}

#[test]
fn compress_sends_gzip_that_the_cluster_reads() {
    let cluster = cluster();
    let place = place(&cluster, 4, "retry_delay_in_ms: 20", "bulk.compress: true");
    let gateway = place.start();
    let text = body(2_000);
    gateway.bulk(&text).ok().unwrap();
    assert_eq!(drained(&gateway, "c0")["indexed"], 2_000);
    let counts = cluster.counts();
    assert!(counts.body_bytes * 4 < text.len() as u64, "{counts:?}");
    assert_eq!((cluster.docs("logs").len(), counts.misrouted), (2_000, 0));
    assert_eq!(cluster.docs("logs")["1999"].source, "{\"n\":1999}");
}

/// The gateway has encoded the body itself, so the body is not what the node cannot bear.
#[test]
fn a_node_that_closes_on_compressed_bulks_of_the_queue_leaves_the_rotation() {
    let cluster = cluster();
    let place = place(&cluster, 4, "retry_delay_in_ms: 20", "bulk.compress: true");
    let gateway = place.start();
    cluster.inject(Injection::bulk(Fault::CloseUnwritten).on_node(1).always());
    gateway.bulk(&body(2_000)).ok().unwrap();
    gateway.logged("leaves the rotation");
    assert_eq!(drained(&gateway, "c0")["indexed"], 2_000);
}

#[test]
fn a_request_has_so_many_documents_and_kilobytes_at_most() {
    let requests = |indexing: &str| {
        let cluster = one_node(1, Behaviour::default());
        let place = place(&cluster, 1, "auto_start: false", indexing);
        let gateway = place.start();
        for name in 0..20 {
            gateway.bulk(&batch(&name.to_string(), 50)).ok().unwrap();
        }
        begin(&gateway);
        assert_eq!(drained(&gateway, "c0")["indexed"], 1_000);
        assert_eq!(cluster.docs("logs").len(), 1_000);
        cluster.counts()
    };
    assert_eq!(requests("").bulks, 1);
    assert_eq!(requests("bulk.batch_size_in_docs: 100").bulks, 10);
    let counts = requests("bulk.batch_size_in_kb: 8");
    assert!(counts.body_bytes <= counts.bulks * (8 << 10), "{counts:?}");
    assert!(counts.body_bytes >= counts.bulks * (5 << 10), "{counts:?}");
}

#[test]
fn slices_connections_and_workers_bound_what_is_at_a_node_at_once() {
    let behaviour = || Behaviour {
        latency: Duration::from_millis(15),
        workers: Some(Workers {
            at_once: 2,
            waiting_max: 0,
        }),
        ..Behaviour::default()
    };
    let refused = |bound: &str| {
        let cluster = one_node(32, behaviour());
        let indexing = format!("adaptive_concurrency: false, bulk.batch_size_in_docs: 5{bound}");
        let place = place(&cluster, 32, "auto_start: false", &indexing);
        let gateway = place.start();
        for name in 0..8 {
            gateway.bulk(&batch(&name.to_string(), 320)).ok().unwrap();
        }
        begin(&gateway);
        wait(&gateway, "c0", |one| one["requests"].as_u64().unwrap() > 40);
        (cluster.counts().bulks_refused, cluster.connections()[0])
    };
    assert!(refused("").0 > 5, "more than two at once are refused");
    assert_eq!(refused(", num_of_slices: 2").0, 0);
    assert_eq!(refused(", max_worker_size: 2").0, 0);
    let (refused, connections) = refused(", max_connection_per_node: 2");
    assert_eq!(refused, 0, "{connections} connections");
}

#[test]
fn a_lane_waits_for_more_as_long_as_it_is_told_unless_a_request_is_full() {
    let cluster = one_node(1, Behaviour::default());
    let indexing = "idle_timeout_in_seconds: 1, bulk.batch_size_in_docs: 40";
    let place = place(&cluster, 1, "retry_delay_in_ms: 20", indexing);
    let gateway = place.start();
    // A busy machine may be late with the second one.
    let both_in_one_request = (0..5).any(|n| {
        cluster.reset_counts();
        let began = Instant::now();
        gateway.bulk(&batch(&format!("a{n}"), 10)).ok().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        gateway.bulk(&batch(&format!("b{n}"), 10)).ok().unwrap();
        assert_eq!(drained(&gateway, "c0")["indexed"], 20 * (n + 1));
        assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
        cluster.counts().bulks == 1
    });
    assert!(both_in_one_request);
    let full_goes_at_once = (0..5).any(|n| {
        let began = Instant::now();
        gateway.bulk(&batch(&n.to_string(), 40)).ok().unwrap();
        drained(&gateway, "c0");
        began.elapsed() < Duration::from_millis(800)
    });
    assert!(full_goes_at_once);
}

#[test]
fn retries_wait_as_long_as_they_are_told_after_429_and_after_the_rest() {
    let lasted = |pipeline: &str, indexing: &str, status_code: u16| {
        let cluster = one_node(1, Behaviour::default());
        let place = place(&cluster, 1, pipeline, indexing);
        let gateway = place.start();
        cluster.inject(Injection::bulk(status(status_code)));
        let began = Instant::now();
        gateway.bulk(&batch("a", 10)).ok().unwrap();
        let one = drained(&gateway, "c0");
        assert_eq!((&one["indexed"], &one["docs_retried"]), (&json!(10), &json!(10)));
        began.elapsed()
    };
    // Up to half of each wait is taken off at random.
    let half = Duration::from_millis(500);
    let soon = "retry_delay_in_ms: 20";
    // A busy machine may be late once.
    let at_once = |indexing: &str, status| (0..6).any(|_| lasted(soon, indexing, status) < half);
    assert!(at_once("", 503));
    assert!(lasted("retry_delay_in_ms: 1000", "", 503) >= half);
    assert!(lasted(soon, "bulk.retry_delay_in_seconds: 1", 503) >= half);
    assert!(at_once("bulk.reject_retry_delay_in_seconds: 1", 503));
    assert!(lasted(soon, "bulk.reject_retry_delay_in_seconds: 1", 429) >= half);
    assert!(at_once("bulk.retry_delay_in_seconds: 1", 429));
}

#[test]
fn a_document_that_is_refused_too_often_dies_and_whole_requests_that_fail_do_not_count() {
    let cluster = one_node(1, Behaviour::default());
    let place = place(&cluster, 1, "retry_delay_in_ms: 5", "bulk.max_retry_times: 2");
    let gateway = place.start();
    // From the fourth failure on, the node is asked whether it takes other requests: five tries and two
    // questions.
    cluster.inject(Injection::bulk(status(503)).times(7));
    cluster.inject(Injection::bulk(items(2, 429, TOO_BUSY)).times(1));
    cluster.inject(Injection::bulk(items(1, 429, TOO_BUSY)).always());
    gateway.bulk(&batch("a", 4)).ok().unwrap();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(2), &json!(2)));
    assert_eq!(dead(&gateway), [(429, 8), (429, 8)]);
}

#[test]
fn retry_rules_say_what_is_tried_again_and_what_is_dead_at_once() {
    let outcome = |rules: &str, fault: Fault| {
        let cluster = one_node(1, Behaviour::default());
        let rules = format!("bulk.response_handle.retry_rules: {{{rules}}}");
        let place = place(&cluster, 1, "retry_delay_in_ms: 5", &rules);
        let gateway = place.start();
        cluster.inject(Injection::bulk(fault));
        gateway.bulk(&batch("a", 3)).ok().unwrap();
        let one = drained(&gateway, "c0");
        (one["indexed"].as_u64().unwrap(), one["dead"].as_u64().unwrap())
    };
    assert_eq!(outcome("", items(1, 429, TOO_BUSY)), (3, 0));
    assert_eq!(outcome("retry_429: false", items(1, 429, TOO_BUSY)), (0, 3));
    assert_eq!(outcome("", items(1, 400, UNFIT)), (0, 3));
    assert_eq!(outcome("retry_4xx: true", items(1, 400, UNFIT)), (3, 0));
    assert_eq!(outcome("default: false", items(1, 503, TOO_BUSY)), (0, 3));
    assert_eq!(outcome("permitted.status: [400]", items(1, 400, UNFIT)), (3, 0));
    assert_eq!(
        outcome(
            "denied.keyword: too busy, permitted.status: [429]",
            items(1, 429, TOO_BUSY)
        ),
        (0, 3)
    );
}

#[test]
fn a_pipeline_that_is_not_to_keep_running_stops_when_all_is_delivered() {
    let cluster = cluster();
    let place = place(&cluster, 4, "auto_start: false, keep_running: false", "");
    let gateway = place.start();
    let stopped = |one: &Value| one["state"] == "stopped";
    for round in 1..=2 {
        gateway.bulk(&batch(&round.to_string(), 100)).ok().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(account(&queue(&gateway), "c0")["pending"], 100);
        begin(&gateway);
        let one = wait(&gateway, "c0", |one| one["pending"] == 0 && stopped(one));
        assert_eq!(one["indexed"], 100 * round);
    }
}

#[test]
fn a_node_that_never_answers_is_left_alone_after_the_timeout() {
    let cluster = one_node(1, Behaviour::default());
    let place = place(&cluster, 1, "retry_delay_in_ms: 20", "timeout: 2s");
    let gateway = place.start();
    cluster.inject(Injection::bulk(Fault::HangWritten));
    gateway.bulk(&batch("a", 10)).ok().unwrap();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["docs_retried"]), (&json!(10), &json!(10)));
}

#[test]
fn what_lanes_have_for_one_node_travels_together() {
    let latency = Duration::from_millis(20);
    let cluster = one_node(
        32,
        Behaviour {
            latency,
            ..Behaviour::default()
        },
    );
    let place = place(&cluster, 32, "auto_start: false", "");
    let gateway = place.start();
    for name in 0..10 {
        gateway.bulk(&batch(&name.to_string(), 320)).ok().unwrap();
    }
    begin(&gateway);
    let one = drained(&gateway, "c0");
    assert_eq!(
        (&one["indexed"], &one["docs_retried"]),
        (&json!(3_200), &json!(0))
    );
    let lanes = one["parts"].as_u64().unwrap();
    let counts = cluster.counts();
    assert!(lanes >= 12 && counts.bulks * 3 <= lanes, "{lanes}: {counts:?}");
    assert_eq!(
        (one["requests"].as_u64().unwrap(), counts.docs),
        (counts.bulks, 3_200)
    );
    assert_eq!((cluster.docs("logs").len(), counts.misrouted), (3_200, 0));
}

#[test]
fn lanes_that_travel_together_try_again_each_for_itself_and_keep_the_order() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 24).storing()).unwrap();
    let latency = Duration::from_millis(5);
    cluster.set_behaviour(Behaviour {
        latency,
        ..Behaviour::default()
    });
    let place = place(&cluster, 24, "retry_delay_in_ms: 10", "");
    let gateway = place.start();
    cluster.inject(Injection::bulk(items(3, 429, TOO_BUSY)).times(9));
    cluster.inject(Injection::bulk(status(429)).on_node(1).times(3));
    cluster.inject(Injection::bulk(Fault::CloseWritten).on_node(2).times(2));
    for round in 0..20 {
        let text: String = (0..100)
            .map(|n| {
                let (id, n) = (n % 50, round * 100 + n);
                format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"n\":{n}}}\n")
            })
            .collect();
        gateway.bulk(&text).ok().unwrap();
    }
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(2_000), &json!(0)));
    assert!(one["parts"].as_u64() > one["requests"].as_u64(), "{one}");
    let docs = cluster.docs("logs");
    assert_eq!(docs.len(), 50);
    for id in 0..50 {
        let last = json!({"n": 1_950 + id});
        let source: Value = serde_json::from_str(&docs[&id.to_string()].source).unwrap();
        assert_eq!(source, last, "{id}");
    }
}

#[test]
fn a_request_that_is_refused_for_one_lanes_document_costs_no_other_lane_anything() {
    for (status, kind) in [
        (400, "illegal_argument_exception"),
        (413, "content_too_long_exception"),
    ] {
        let latency = Duration::from_millis(20);
        let cluster = one_node(
            32,
            Behaviour {
                latency,
                ..Behaviour::default()
            },
        );
        let place = place(&cluster, 32, "auto_start: false, retry_delay_in_ms: 20", "");
        let gateway = place.start();
        let poison = Fault::StatusIfHolds {
            text: "poison".to_owned(),
            status,
            body: format!("{{\"error\":{{\"type\":\"{kind}\",\"reason\":\"no\"}},\"status\":{status}}}"),
        };
        cluster.inject(Injection::bulk(poison).always());
        let poisoned = "{\"index\":{\"_index\":\"logs\",\"_id\":\"p\"}}\n{\"n\":\"poison\"}\n";
        gateway.bulk(&(batch("a", 200) + poisoned)).ok().unwrap();
        begin(&gateway);
        if status == 400 {
            let one = drained(&gateway, "c0");
            assert_eq!((&one["indexed"], &one["dead"]), (&json!(200), &json!(1)), "{one}");
        } else {
            // A single operation that is too large is no reason to give it up, nor to let others wait.
            let others = |one: &Value| one["indexed"] == 200 && one["pending"] == 0;
            let one = wait(&gateway, "c0", others);
            assert_eq!(
                (&one["parked"], &one["dead"], &one["paused_lanes"]),
                (&json!(1), &json!(0), &json!(0)),
                "{one}"
            );
        }
    }
}

#[test]
fn a_node_that_takes_large_requests_again_is_sent_large_ones_again() {
    let latency = Duration::from_millis(20);
    let behaviour = Behaviour {
        latency,
        ..Behaviour::default()
    };
    let cluster = one_node(32, behaviour);
    let place = place(&cluster, 32, "auto_start: false, retry_delay_in_ms: 20", "");
    let gateway = place.start();
    // Something on the way accepts only small requests for a while.
    cluster.inject(Injection::bulk(status(413)).times(6));
    gateway.bulk(&batch("a", 400)).ok().unwrap();
    begin(&gateway);
    drained(&gateway, "c0");
    let numbers = |one: &Value| ["parts", "requests"].map(|name| one[name].as_u64().unwrap());
    let mut before = numbers(&drained(&gateway, "c0"));
    let mut together = Vec::new();
    while together.last().is_none_or(|parts| *parts < 3.0) {
        assert!(together.len() < 40, "{together:.1?}");
        let name = format!("b{}", together.len());
        gateway.bulk(&batch(&name, 3_200)).ok().unwrap();
        let now = numbers(&drained(&gateway, "c0"));
        together.push((now[0] - before[0]) as f64 / (now[1] - before[1]) as f64);
        before = now;
    }
    assert!(together[0] < 3.0, "it remembers what it was told: {together:.1?}");
}

#[test]
fn a_node_that_never_answers_holds_up_only_its_own_documents() {
    let cluster = cluster();
    let indexing = "max_worker_size: 1, adaptive_concurrency: false, timeout: 6s";
    let place = place(&cluster, 4, "retry_delay_in_ms: 20", indexing);
    let gateway = place.start();
    gateway.bulk(&body(300)).ok().unwrap();
    drained(&gateway, "c0");
    let there = cluster.counts().docs_by_node[1] as usize;
    assert!((50..250).contains(&there), "{there}");
    cluster.inject(Injection::bulk(Fault::HangUnwritten).on_node(1).always());
    gateway.bulk(&body(300).replace("{\"n\"", "{\"m\"")).ok().unwrap();
    let written_again = || {
        let docs = cluster.docs("logs");
        docs.values().filter(|doc| doc.source.contains("\"m\"")).count()
    };
    let began = Instant::now();
    while written_again() < 300 - there {
        assert!(
            began.elapsed() < Duration::from_millis(5_500),
            "{}",
            written_again()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    cluster.behave();
    assert_eq!(drained(&gateway, "c0")["indexed"], 600);
    assert_eq!(written_again(), 300);
}

#[test]
fn what_somebody_has_to_put_right_pauses_the_lanes_and_gives_up_nothing() {
    let denied = r#"{"error":{"type":"security_exception","reason":"who are you"},"status":401}"#;
    for (fault, says) in [
        (
            Fault::Status {
                status: 401,
                body: denied.to_owned(),
            },
            "who are you",
        ),
        (
            Fault::Status {
                status: 404,
                body: "<html>no such page".to_owned(),
            },
            "no such page",
        ),
        (Fault::Garbage("<html>welcome".to_owned()), "welcome"),
    ] {
        let cluster = cluster();
        let indexing = "bulk.max_retry_times: 1";
        let place = place(&cluster, 4, "retry_delay_in_ms: 20", indexing);
        let gateway = place.start();
        cluster.inject(Injection::bulk(fault).always());
        gateway.bulk(&body(50)).ok().unwrap();
        let one = wait(&gateway, "c0", |one| one["paused_lanes"].as_u64() > Some(0));
        assert_eq!((&one["pending"], &one["dead"]), (&json!(50), &json!(0)), "{one}");
        let pipelines = gateway.admin().get("/pipeline").unwrap().json().unwrap();
        let why = &pipelines["p0"]["deliveries"][0]["why"];
        assert!(why.as_str().unwrap().contains(says), "{why}");
        cluster.behave();
        let one = drained(&gateway, "c0");
        assert_eq!((&one["indexed"], &one["dead"]), (&json!(50), &json!(0)), "{one}");
    }
}

#[test]
fn a_cluster_whose_certificate_nobody_vouches_for_gets_nothing_and_the_lanes_say_why() {
    let spec = Spec::default().index("logs", 6).storing();
    let (cluster, other) = (cluster(), FakeCluster::start(spec.tls()).unwrap());
    let place = GatewayHome::before(&[&cluster, &other], "");
    let gateway = place.start();
    gateway.bulk(&body(50)).ok().unwrap();
    assert_eq!(drained(&gateway, "c0")["indexed"], 50);
    let began = Instant::now();
    loop {
        let pipelines = gateway.admin().get("/pipeline").unwrap().json().unwrap();
        let why = pipelines["p1"]["deliveries"][0]["why"]
            .as_str()
            .unwrap_or_default();
        if why.contains("ertificate") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{why}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let one = account(&queue(&gateway), "c1");
    assert_eq!(
        (&one["pending"], &one["dead"], &one["docs_retried"]),
        (&json!(50), &json!(0), &json!(0))
    );
    assert_eq!(other.counts().docs, 0);
}

#[test]
fn what_may_have_been_executed_is_not_executed_twice() {
    let cluster = cluster();
    let place = place(&cluster, 4, "retry_delay_in_ms: 20", "");
    let gateway = place.start();
    cluster.inject(Injection::bulk(Fault::CloseWritten).times(2));
    cluster.inject(Injection::bulk(Fault::CloseMidReply(100)).times(2));
    let minted = "{\"create\":{\"_index\":\"logs\"}}\n{\"n\":1}\n".repeat(60);
    let named: String = body(40).replace("{\"index\"", "{\"create\"");
    gateway.bulk(&(minted + &named)).ok().unwrap();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(100), &json!(0)), "{one}");
    assert!(one["docs_retried"].as_u64() > Some(0), "{one}");
    let docs = cluster.docs("logs");
    assert_eq!(docs.len(), 100);
    assert!(docs.values().all(|doc| doc.version == 1), "each was written once");
}
