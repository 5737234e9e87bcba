//! Nodes that refuse, die, stall and talk nonsense.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::fake::{FakeCluster, Fault, Flavour, Injection, Spec};

use crate::gateway::{Gateway, body, cluster, ids, statuses};

const REJECTED: &str = r#"{"error":{"root_cause":[{"type":"rejected_execution_exception","reason":"too busy"}],"type":"rejected_execution_exception","reason":"too busy"},"status":429}"#;

fn status(status: u16, body: &str) -> Fault {
    Fault::Status {
        status,
        body: body.to_owned(),
    }
}

#[test]
fn a_node_that_refuses_its_part_fails_its_items_with_its_own_words() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    cluster.inject(Injection::bulk(status(429, REJECTED)).on_node(1));
    let answer = gateway.bulk(&body(300)).ok().unwrap().json().unwrap();
    assert_eq!(answer["errors"], json!(true));
    let statuses = statuses(&answer);
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert!(refused > 50 && refused < 200, "{refused} of 300");
    assert_eq!(
        statuses.iter().filter(|status| **status == 201).count(),
        300 - refused
    );
    assert_eq!(
        cluster.docs("logs").len(),
        300 - refused,
        "nobody tried the refused ones elsewhere"
    );
    let wanted: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    assert_eq!(ids(&answer, "index"), wanted);
    let items = answer["items"].as_array().unwrap();
    let failed = items.iter().find(|item| item["index"]["status"] == 429).unwrap();
    assert_eq!(failed["index"]["error"]["type"], "rejected_execution_exception");
    assert_eq!(failed["index"]["error"]["reason"], "too busy");
    assert_eq!(failed["index"]["_index"], "logs");
    assert_eq!(gateway.counter("docs_refused"), refused as u64);
}

#[test]
fn when_all_nodes_refuse_alike_the_client_gets_the_refusal_as_it_was() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    cluster.inject(Injection::bulk(status(429, REJECTED)).always());
    let answer = gateway.bulk(&body(100));
    assert_eq!((answer.status, answer.text().as_str()), (429, REJECTED));
    assert!(cluster.docs("logs").is_empty());
}

#[test]
fn without_credentials_the_client_gets_the_clusters_401_and_nothing_is_written() {
    let cluster =
        FakeCluster::start(Spec::default().index("logs", 6).storing().basic_auth("u", "p")).unwrap();
    let url = cluster.urls()[0].replace("http://", "http://u:p@");
    let gateway = Gateway::start(&[
        "--cluster",
        &url,
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
    ]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    assert_eq!(gateway.bulk(&body(100)).status, 401);
    assert!(
        cluster.docs("logs").is_empty(),
        "the gateway's own account is not for strangers"
    );
    let with = gateway.client().basic_auth("u", "p");
    with.post_ndjson("/_bulk", body(100).as_bytes())
        .unwrap()
        .ok()
        .unwrap();
    assert_eq!((cluster.docs("logs").len(), cluster.counts().misrouted), (100, 0));
    assert!(
        !gateway.log().contains("u:p"),
        "no secrets in logs: {}",
        gateway.log()
    );
}

#[test]
fn a_dead_nodes_part_goes_to_another_node() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    cluster.kill(2);
    for _ in 0..5 {
        let answer = gateway.bulk(&body(200)).ok().unwrap().json().unwrap();
        assert_eq!(answer["errors"], json!(false));
    }
    assert_eq!(cluster.docs("logs").len(), 200);
    let (direct, any) = (gateway.counter("docs_direct"), gateway.counter("docs_any"));
    assert!(
        any > 0 && direct + any == 1_000,
        "direct {direct}, detoured {any}"
    );
    gateway.wait_until("the dead node is out", |status| {
        status["nodes"][2]["health"]["up"] == false
    });
    cluster.restart(2).unwrap();
    gateway.wait_until("the node is back by a probe", |status| {
        status["nodes"][2]["health"]["up"] == true
    });
}

#[test]
fn plain_index_operations_are_sent_again_when_a_node_breaks_off() {
    for fault in [
        Fault::CloseUnwritten,
        Fault::CloseWritten,
        Fault::CloseMidReply(40),
    ] {
        let cluster = cluster();
        let gateway = Gateway::before(&cluster);
        cluster.inject(Injection::bulk(fault.clone()).on_node(0));
        let answer = gateway.bulk(&body(200)).ok().unwrap().json().unwrap();
        assert_eq!(answer["errors"], json!(false), "{fault:?}");
        assert_eq!(cluster.docs("logs").len(), 200, "{fault:?}");
        assert_eq!(gateway.counter("parts_retried"), 1, "{fault:?}");
    }
}

#[test]
fn what_could_double_is_not_sent_again_and_says_that_its_fate_is_unknown() {
    let lines = [
        "{\"update\":{\"_index\":\"logs\",\"_id\":\"ID\"}}\n{\"doc\":{},\"doc_as_upsert\":true}\n",
        "{\"index\":{\"_index\":\"logs\",\"routing\":\"ID\"}}\n{}\n",
        "{\"index\":{\"_index\":\"logs\",\"_id\":\"ID\",\"version\":1,\"version_type\":\"external\"}}\n{}\n",
    ];
    for line in lines {
        let cluster = cluster();
        let gateway = Gateway::before(&cluster);
        cluster.inject(Injection::bulk(Fault::CloseWritten).on_node(0));
        let body: String = (0..60).map(|n| line.replace("ID", &n.to_string())).collect();
        let answer = gateway.bulk(&body).ok().unwrap().json().unwrap();
        let unknown = statuses(&answer).iter().filter(|status| **status == 503).count();
        assert!(unknown > 0 && unknown < 60, "{line}: {unknown}");
        assert_eq!(gateway.counter("parts_retried"), 0, "{line}");
        assert_eq!(gateway.counter("docs_unanswered"), unknown as u64, "{line}");
        assert_eq!(cluster.counts().docs, 60, "{line}: nothing was sent twice");
    }
}

#[test]
fn creates_that_were_not_executed_are_by_a_second_try() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    cluster.inject(Injection::bulk(Fault::CloseUnwritten).on_node(0));
    let answer = gateway
        .bulk(&body(60).replace("index\":{", "create\":{"))
        .ok()
        .unwrap();
    assert_eq!(statuses(&answer.json().unwrap()), [201; 60]);
    assert_eq!(gateway.counter("parts_retried"), 1);
}

#[test]
fn a_second_try_of_a_create_or_delete_never_passes_for_somebody_elses_doing() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let create = body(60).replace("index\":{", "create\":{");
    let delete: String = (0..60)
        .map(|n| format!("{{\"delete\":{{\"_index\":\"logs\",\"_id\":\"{n}\"}}}}\n"))
        .collect();
    for (body, done, op, left) in [(create, 201, "create", 60), (delete, 200, "delete", 0)] {
        cluster.inject(Injection::bulk(Fault::CloseWritten).on_node(0));
        let answer = gateway.bulk(&body).ok().unwrap().json().unwrap();
        assert_eq!(answer["errors"], json!(true));
        let statuses = statuses(&answer);
        let unknown = statuses.iter().filter(|status| **status == 503).count();
        assert!(unknown > 0 && unknown < 60, "{op}: {statuses:?}");
        assert!(
            statuses.iter().all(|status| [503, done].contains(status)),
            "{op}: {statuses:?}"
        );
        let wanted: Vec<String> = (0..60).map(|n| n.to_string()).collect();
        assert_eq!(ids(&answer, op), wanted);
        assert_eq!(cluster.docs("logs").len(), left, "{op}");
    }
}

#[test]
fn a_create_whose_id_was_made_here_is_created_whichever_try_did_it() {
    let cluster = cluster();
    let gateway = Gateway::with_filters(
        &cluster,
        "      - bulk_reshuffle: {elasticsearch: c, mode: sync, fix_null_id: true}
      - elasticsearch: {elasticsearch: c}",
    );
    cluster.inject(Injection::bulk(Fault::CloseWritten).on_node(0));
    let answer = gateway.bulk(&"{\"create\":{\"_index\":\"logs\"}}\n{}\n".repeat(60));
    let answer = answer.ok().unwrap().json().unwrap();
    assert_eq!(
        (&answer["errors"], statuses(&answer)),
        (&json!(false), vec![201; 60])
    );
    let mut told = ids(&answer, "create");
    told.sort_unstable();
    let kept: Vec<String> = cluster.docs("logs").into_keys().collect();
    assert_eq!(told, kept, "each once, under the id that the client was told");
    assert_eq!(gateway.counter("parts_retried"), 1);
}

/// Makes a cluster in which one node holds all documents, so that a bulk has one part.
fn one_shard() -> FakeCluster {
    FakeCluster::start(Spec::default().index("logs", 1).storing()).unwrap()
}

#[test]
fn a_refusal_after_a_try_of_unknown_fate_is_no_refusal() {
    let cluster = one_shard();
    let gateway = Gateway::before(&cluster);
    cluster.inject(Injection::bulk(Fault::CloseWritten));
    cluster.inject(Injection::bulk(status(429, REJECTED)).always());
    let answer = gateway.bulk(&body(20)).ok().unwrap().json().unwrap();
    assert_eq!(statuses(&answer), [503; 20], "{answer}");
    let reason = answer["items"][0]["index"]["error"]["reason"].as_str().unwrap();
    assert!(
        reason.contains("may or may not") && reason.contains("429"),
        "{reason}"
    );
    assert_eq!(cluster.docs("logs").len(), 20, "they were executed indeed");
    assert_eq!(gateway.counter("docs_unanswered"), 20);
    assert_eq!(
        (gateway.counter("docs_refused"), gateway.counter("docs_direct")),
        (0, 0)
    );
}

/// A single item of the second answer, too: the first try executed its operation.
#[test]
fn an_item_that_a_second_try_is_refused_may_have_been_executed_by_the_first() {
    let cluster = one_shard();
    let gateway = Gateway::before(&cluster);
    cluster.inject(Injection::bulk(Fault::CloseWritten));
    cluster.inject(Injection::bulk(Fault::Items {
        every: 4,
        status: 429,
        error: r#"{"type":"es_rejected_execution_exception","reason":"busy"}"#.to_owned(),
    }));
    let answer = gateway.bulk(&body(20)).ok().unwrap().json().unwrap();
    let statuses = statuses(&answer);
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 5);
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 15);
    assert_eq!(cluster.docs("logs").len(), 20, "they were executed indeed");
    let items = answer["items"].as_array().unwrap();
    for (id, item) in items.iter().enumerate() {
        let item = &item["index"];
        assert_eq!(item["_id"], json!(id.to_string()));
        if item["status"] == 503 {
            let reason = item["error"]["reason"].as_str().unwrap();
            assert!(
                reason.contains("may have been executed") && reason.ends_with("429"),
                "{reason}"
            );
        }
    }
}

/// The client has its answer by then, and may have written something newer.
#[test]
fn nothing_is_sent_to_another_node_once_the_timeout_has_passed() {
    let cluster = one_shard();
    let gateway = Gateway::with_file(
        &cluster,
        "      - bulk_reshuffle: {elasticsearch: c, mode: sync, timeout: 1s}\n      - elasticsearch: {elasticsearch: c}",
        "",
    );
    // All nodes have a connection that is kept.
    for _ in 0..20 {
        gateway.client().get("/").unwrap().ok().unwrap();
    }
    gateway.bulk(&body(20)).ok().unwrap();
    let before = gateway.counter("parts");
    cluster.inject(Injection::bulk(Fault::HangUnwritten).always());
    let answer = gateway.bulk(&body(20)).ok().unwrap().json().unwrap();
    assert_eq!(statuses(&answer), [503; 20], "{answer}");
    assert_eq!(gateway.counter("parts") - before, 1);
    assert_eq!(gateway.counter("parts_retried"), 0);
}

/// The body is passed on while it comes.
#[test]
fn a_client_whose_body_does_not_come_in_time_gets_408_and_no_node_is_blamed() {
    use std::io::{Read as _, Write as _};
    let cluster = one_shard();
    let gateway = Gateway::with_file(
        &cluster,
        "      - elasticsearch: {elasticsearch: c, timeout: 1s}",
        "",
    );
    let mut slow: Vec<_> = (0..6)
        .map(|_| {
            let mut socket = std::net::TcpStream::connect(gateway.address).unwrap();
            let head = "POST /logs/_search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
                Content-Length: 1000\r\n\r\n{\"query\":";
            socket.write_all(head.as_bytes()).unwrap();
            socket
        })
        .collect();
    for socket in &mut slow {
        let mut answer = [0; 12];
        socket
            .set_read_timeout(Some(std::time::Duration::from_secs(30)))
            .unwrap();
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 408");
    }
    for node in gateway.topology()["nodes"].as_array().unwrap() {
        let health = &node["health"];
        assert_eq!(
            (&health["up"], &health["failures"]),
            (&true.into(), &0.into()),
            "{health}"
        );
    }
}

/// Their clients read nothing else.
#[test]
fn an_answer_that_no_node_has_given_says_that_elasticsearch_answers() {
    let spec = Spec::default().flavour(Flavour::Elasticsearch9);
    let cluster = FakeCluster::start(spec.index("logs", 1).storing()).unwrap();
    let gateway = Gateway::before(&cluster);
    cluster.inject(Injection::bulk(Fault::CloseWritten).always());
    let update = "{\"update\":{\"_index\":\"logs\",\"_id\":\"1\"}}\n{\"doc\":{},\"doc_as_upsert\":true}\n";
    let headers = [("content-type", "application/x-ndjson"), ("x-opaque-id", "mine")];
    let answer = gateway
        .client()
        .send("POST", "/_bulk", &headers, update.as_bytes())
        .unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(statuses(&answer.json().unwrap()), [503]);
    assert_eq!(answer.header("x-elastic-product"), Some("Elasticsearch"));
    assert_eq!(answer.header("x-opaque-id"), Some("mine"));
    assert_eq!(answer.header("content-type"), Some("application/json"));
}

#[test]
fn nobody_is_told_that_nothing_was_sent_when_something_was() {
    let cluster = one_shard();
    let gateway = Gateway::before(&cluster);
    let home = cluster.node_of("logs", 0).unwrap();
    cluster.inject(Injection::bulk(Fault::CloseWritten).on_node(home).always());
    (0..3)
        .filter(|node| *node != home)
        .for_each(|node| cluster.kill(node));
    let answer = gateway.bulk(&body(20)).ok().unwrap().json().unwrap();
    assert_eq!(statuses(&answer), [503; 20], "{answer}");
    let reason = answer["items"][0]["index"]["error"]["reason"].as_str().unwrap();
    assert!(reason.contains("may or may not"), "{reason}");
    assert_eq!(gateway.counter("docs_unanswered"), 20);
}

#[test]
fn the_only_parts_reply_is_checked_as_well() {
    for fault in [
        Fault::ItemCount(-1),
        Fault::ItemCount(1),
        Fault::Garbage("{\"took\":1,\"errors\":false}".into()),
    ] {
        let cluster = one_shard();
        let gateway = Gateway::before(&cluster);
        cluster.inject(Injection::bulk(fault.clone()));
        let answer = gateway.bulk(&body(20)).ok().unwrap().json().unwrap();
        assert_eq!(statuses(&answer), [503; 20], "{fault:?}");
        assert_eq!(answer["errors"], json!(true), "{fault:?}");
        assert_eq!(gateway.counter("replies_malformed"), 1, "{fault:?}");
        assert_eq!(gateway.counter("docs_unanswered"), 20, "{fault:?}");
        assert_eq!(gateway.counter("docs_direct"), 0, "{fault:?}");
    }
}

#[test]
fn failed_items_of_an_only_part_are_counted() {
    let cluster = one_shard();
    let gateway = Gateway::before(&cluster);
    let error = "{\"type\":\"mapper_parsing_exception\",\"reason\":\"no\"}".to_owned();
    cluster.inject(Injection::bulk(Fault::Items {
        every: 3,
        status: 400,
        error,
    }));
    gateway.bulk(&body(20)).ok().unwrap();
    assert_eq!(
        (
            gateway.counter("bulk_with_errors"),
            gateway.counter("docs_direct")
        ),
        (1, 20)
    );
}

#[test]
fn documents_without_ids_are_never_doubled() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    cluster.inject(Injection::bulk(Fault::CloseWritten).always());
    let answer = gateway.bulk(&"{\"index\":{\"_index\":\"logs\"}}\n{}\n".repeat(10));
    cluster.behave();
    assert_eq!(cluster.docs("logs").len(), 10);
    assert_eq!(statuses(&answer.json().unwrap()), [503; 10]);
}

#[test]
fn a_reply_with_the_wrong_number_of_items_is_never_taken_for_success() {
    for fault in [
        Fault::ItemCount(-1),
        Fault::ItemCount(1),
        Fault::Garbage("{\"took\":1}".into()),
    ] {
        let cluster = cluster();
        let gateway = Gateway::before(&cluster);
        cluster.inject(Injection::bulk(fault.clone()).on_node(1));
        let answer = gateway.bulk(&body(90)).ok().unwrap().json().unwrap();
        let statuses = statuses(&answer);
        assert_eq!(statuses.len(), 90, "{fault:?}");
        assert_eq!(answer["errors"], json!(true), "{fault:?}");
        assert!(statuses.contains(&503) && statuses.contains(&201), "{fault:?}");
        assert_eq!(gateway.counter("replies_malformed"), 1, "{fault:?}");
    }
}

#[test]
fn failed_items_keep_their_places() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let error = "{\"type\":\"mapper_parsing_exception\",\"reason\":\"no }},{ such field\"}".to_owned();
    cluster.inject(
        Injection::bulk(Fault::Items {
            every: 2,
            status: 400,
            error,
        })
        .always(),
    );
    let answer = gateway.bulk(&body(120)).ok().unwrap().json().unwrap();
    let wanted: Vec<String> = (0..120).map(|n| n.to_string()).collect();
    assert_eq!(ids(&answer, "index"), wanted);
    let written = cluster.docs("logs");
    for (id, status) in wanted.iter().zip(statuses(&answer)) {
        assert_eq!(status == 201, written.contains_key(id), "{id}: {status}");
    }
}

#[test]
fn with_no_node_left_the_answer_is_503_and_says_so() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    (0..3).for_each(|node| cluster.kill(node));
    let answer = gateway.bulk(&body(10));
    assert_eq!(answer.status, 503);
    assert_eq!(
        answer.json().unwrap()["error"]["type"],
        "connect_transport_exception"
    );
    assert_eq!(gateway.client().get("/_cluster/health").unwrap().status, 503);
    assert_eq!(gateway.admin().get("/health").unwrap().status, 503);
}

#[test]
fn a_slow_node_delays_only_the_answers_that_need_it() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    cluster.inject(
        Injection::bulk(Fault::Delay(Duration::from_millis(700)))
            .on_node(0)
            .always(),
    );
    let began = Instant::now();
    let whole = gateway.bulk(&body(100)).ok().unwrap().json().unwrap();
    assert!(began.elapsed() >= Duration::from_millis(700));
    assert!(
        whole["took"].as_u64().unwrap() >= 700,
        "took is what it took: {}",
        whole["took"]
    );
    let shard = (0..6)
        .find(|shard| cluster.node_of("logs", *shard) == Some(1))
        .unwrap();
    let formula = testkit::fake::Formula::Classic {
        routing_num_shards: testkit::fake::routing_num_shards(6),
    };
    let id = (0..).find(|n: &u32| testkit::fake::shard_of(&n.to_string(), 6, formula) == shard);
    let one = format!(
        "{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{}\"}}}}\n{{}}\n",
        id.unwrap()
    );
    // A busy machine may be late once; the slow node would be late each time.
    let at_once = (0..10).any(|_| {
        let began = Instant::now();
        gateway.bulk(&one).ok().unwrap();
        began.elapsed() < Duration::from_millis(600)
    });
    assert!(at_once);
}
