//! Asynchronous mode: nothing bypasses the queue. What can be queued is queued; what cannot waits for what is
//! queued, or is refused where another cluster would miss it.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::client::{Answer, Client};
use testkit::fake::{FakeCluster, Fault, Flavour, Injection, On, Spec};

use crate::gateway::{Gateway, cluster};
use crate::hardening::exchange;
use crate::home::{GatewayHome, drained, queue, wait};

const NDJSON: (&str, &str) = ("content-type", "application/x-ndjson");

/// Sends a write that cannot be queued: its answer would have to be YAML.
fn unqueued(gateway: &Gateway, n: usize) -> Answer {
    let body = format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"1\"}}}}\n{{\"n\":{n}}}\n");
    let headers = [NDJSON, ("accept", "application/yaml")];
    gateway
        .client()
        .send("POST", "/_bulk", &headers, body.as_bytes())
        .unwrap()
}

fn queued(gateway: &Gateway, n: usize) {
    let body = format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"1\"}}}}\n{{\"n\":{n}}}\n");
    let answer = gateway.bulk(&body).ok().unwrap();
    assert!(answer.header("x-tidegate-ack").is_some());
}

fn down(cluster: &FakeCluster) {
    let away = Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::bulk(away).always());
}

fn begin(gateway: &Gateway, pipeline: &str) {
    let path = format!("/pipeline/{pipeline}/_start");
    gateway
        .admin()
        .send("POST", &path, &[], &[])
        .unwrap()
        .ok()
        .unwrap();
}

/// Makes a home whose pipelines wait to be started.
fn idle(clusters: &[&FakeCluster], settings: &str) -> GatewayHome {
    let place = GatewayHome::before(clusters, settings);
    let text = std::fs::read_to_string(&place.file).unwrap();
    let text = text.replace(
        ", retry_delay_in_ms: 20",
        ", auto_start: false, retry_delay_in_ms: 20",
    );
    std::fs::write(&place.file, text).unwrap();
    place
}

#[test]
fn what_cannot_be_queued_waits_for_what_is_unless_it_is_told_not_to() {
    let last = |settings: &str| {
        let cluster = cluster();
        let place = idle(&[&cluster], settings);
        let gateway = place.start();
        queued(&gateway, 1);
        std::thread::scope(|scope| {
            let passed = scope.spawn(|| unqueued(&gateway, 2));
            if settings.is_empty() {
                gateway.wait_for_in_flight(gateway.address, 1);
                std::thread::sleep(Duration::from_millis(100));
                assert!(!passed.is_finished(), "it waits");
                begin(&gateway, "p0");
            }
            let answer = passed.join().unwrap();
            if !settings.is_empty() {
                begin(&gateway, "p0");
            }
            assert_eq!(answer.header("retry-after").is_some(), answer.status == 503);
            drained(&gateway, "c0");
            (answer.status, cluster.docs("logs")["1"].source.clone())
        })
    };
    assert_eq!(last(""), (200, "{\"n\":2}".to_owned()));
    let soon = ", passing_timeout: 100ms";
    assert_eq!(last(soon), (503, "{\"n\":1}".to_owned()), "it was not executed");
    let now = last(", passing: now");
    assert_eq!(now, (200, "{\"n\":1}".to_owned()), "it overtook the other");
}

#[test]
fn a_client_that_leaves_while_its_write_waits_has_written_nothing() {
    let cluster = cluster();
    let place = idle(&[&cluster], "");
    let gateway = place.start();
    queued(&gateway, 1);
    let patient = Client::build(
        &format!("http://{}", gateway.address),
        None,
        Duration::from_millis(300),
    )
    .unwrap();
    let body = b"{\"index\":{\"_index\":\"logs\",\"_id\":\"1\"}}\n{\"n\":2}\n";
    let answer = patient.send("POST", "/_bulk", &[NDJSON, ("accept", "application/yaml")], body);
    assert!(answer.is_err(), "it has left");
    drop(patient);
    gateway.wait_for_in_flight(gateway.address, 0);
    queued(&gateway, 3);
    begin(&gateway, "p0");
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(2));
    // The write would have arrived by now: its wait is shorter than the drain.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(cluster.docs("logs")["1"].source, "{\"n\":3}");
}

#[test]
fn what_a_second_cluster_would_miss_is_refused_unless_that_is_accepted() {
    let (first, second) = (cluster(), cluster());
    let place = GatewayHome::before(&[&first, &second], "");
    let gateway = place.start();
    let refused = unqueued(&gateway, 1);
    assert_eq!(refused.status, 400, "{}", refused.text());
    let error = refused.json().unwrap()["error"].clone();
    assert_eq!(error["type"], "illegal_argument_exception");
    let reason = error["reason"].as_str().unwrap();
    assert!(
        reason.contains("c1") && reason.contains("accept"),
        "it says why, and which cluster would miss it: {reason}"
    );
    let by_query = |gateway: &Gateway| {
        let path = "/logs/_update_by_query";
        gateway
            .client()
            .post(path, &json!({"query": {"match_all": {}}}))
            .unwrap()
    };
    assert!(by_query(&gateway).text().contains("c1"));
    assert_eq!(
        gateway.client().get("/logs/_count").unwrap().status,
        200,
        "reads go on"
    );
    let search = gateway.client().post("/logs/_search", &json!({})).unwrap();
    assert_eq!(search.status, 200);
    assert!(first.docs("logs").is_empty());
    queued(&gateway, 2);
    drained(&gateway, "c1");
    drop(gateway);
    let place = GatewayHome::before(&[&first, &second], ", passing_second_cluster: accept");
    let gateway = place.start();
    unqueued(&gateway, 3).ok().unwrap();
    assert!(!by_query(&gateway).text().contains("gateway:"));
    let n = |cluster: &FakeCluster| cluster.docs("logs")["1"].source.clone();
    assert_eq!(
        (n(&first), n(&second)),
        ("{\"n\":3}".to_owned(), "{\"n\":2}".to_owned())
    );
}

/// Makes the topology that the gateway reads next say that the index has no shards yet.
fn without_shards(cluster: &FakeCluster, index: &str) {
    let path = "/_cluster/state/version,master_node,nodes,blocks,routing_table";
    let direct = Client::new(&cluster.urls()[0]).unwrap();
    let mut topology = direct.get(path).unwrap().ok().unwrap().json().unwrap();
    let shards = topology["routing_table"]["indices"].as_object_mut().unwrap();
    assert!(shards.remove(index).is_some());
    let version = cluster.state_version() + 1;
    topology["version"] = json!(version);
    let told = Fault::Status {
        status: 200,
        body: topology.to_string(),
    };
    cluster.inject(Injection::new(On::Path(path.to_owned()), told).always());
    cluster.create_index("another", 1);
    assert_eq!(cluster.state_version(), version);
}

fn seen(gateway: &Gateway, cluster: &FakeCluster) {
    gateway.wait_until("the topology is known", |status| {
        status["state_version"].as_u64() >= Some(cluster.state_version())
    });
}

#[test]
fn an_index_that_is_not_ready_is_queued_for_in_the_lanes_that_it_has_when_it_is() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    down(&cluster);
    queued(&gateway, 1);
    without_shards(&cluster, "logs");
    gateway.wait_until("the index is not ready", |status| {
        status["routes"]["indices_passed"]["index_unavailable"] == 2
    });
    queued(&gateway, 2);
    cluster.behave();
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(2));
    assert_eq!(cluster.docs("logs")["1"].source, "{\"n\":2}");
    assert_eq!(gateway.passed("index_unavailable"), 0);
}

#[test]
fn an_index_that_is_closed_is_queued_for() {
    let cluster = cluster();
    let place = idle(&[&cluster], "");
    let gateway = place.start();
    cluster.close_index("logs");
    seen(&gateway, &cluster);
    // Requests that wait for more knowledge wait for two seconds; a busy machine may be late once.
    let mut bulks = 0;
    let at_once = (0..5).any(|_| {
        bulks += 1;
        let began = Instant::now();
        queued(&gateway, 1);
        began.elapsed() < Duration::from_secs(1)
    });
    assert!(at_once);
    assert_eq!(
        (
            gateway.passed("index_closed"),
            queue(&gateway)["accepted"].clone()
        ),
        (0, json!(bulks))
    );
}

#[test]
fn an_index_of_which_too_little_is_known_is_503_and_nothing_passes() {
    let cluster = cluster();
    let of_none = Fault::Status {
        status: 200,
        body: "{\"metadata\":{\"indices\":{}}}".to_owned(),
    };
    let metadata = On::Path("/_cluster/state/metadata".to_owned());
    cluster.inject(Injection::new(metadata, of_none).always());
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let answer = gateway.bulk("{\"index\":{\"_index\":\"logs\",\"_id\":\"1\"}}\n{}\n");
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (503, Some("1")),
        "{}",
        answer.text()
    );
    assert!(cluster.docs("logs").is_empty());
    cluster.behave();
    cluster.create_index("another", 1);
    gateway.wait_until("the index is known", |status| {
        status["routes"]["indices_split"] == 2
    });
    queued(&gateway, 1);
    drained(&gateway, "c0");
}

#[test]
fn writes_of_single_documents_are_queued_and_answered_in_their_own_form() {
    let (first, second) = (cluster(), cluster());
    let place = GatewayHome::before(&[&first, &second], "");
    let gateway = place.start();
    down(&first);
    queued(&gateway, 1);
    let json = ("content-type", "application/json");
    let send = |method: &str, path: &str, body: &str| {
        let answer = gateway
            .client()
            .send(method, path, &[json], body.as_bytes())
            .unwrap();
        let ack = answer.header("x-tidegate-ack").unwrap_or_default();
        assert!(
            ack.starts_with("queued; position="),
            "{method} {path}: {}",
            answer.text()
        );
        (
            answer.status,
            answer.json().unwrap(),
            answer.header("location").map(str::to_owned),
        )
    };
    let (status, told, location) = send("PUT", "/logs/_doc/1?refresh=wait_for", "{\n  \"n\": 2\n}\n");
    assert_eq!((status, &told["result"]), (201, &json!("created")));
    assert_eq!((&told["_index"], &told["_id"]), (&json!("logs"), &json!("1")));
    assert_eq!(location.as_deref(), Some("/logs/_doc/1"));
    assert!(
        told.get("status").is_none() && told.get("items").is_none(),
        "{told}"
    );
    let (status, told, _) = send("POST", "/logs/_doc", "{\"n\":3}");
    let minted = told["_id"].as_str().unwrap().to_owned();
    assert_eq!((status, minted.len()), (201, 20));
    send("PUT", "/logs/_create/2?routing=r", "{\"n\":4}");
    let (status, told, location) = send("POST", "/logs/_update/1", "{\"doc\":{\"m\":5}}");
    assert_eq!(
        (status, &told["result"], location),
        (200, &json!("updated"), None)
    );
    send("PUT", "/logs/_doc/3", "{\"n\":6}");
    let (status, told, _) = send("DELETE", "/logs/_doc/3", "");
    assert_eq!((status, &told["result"]), (200, &json!("deleted")));
    first.behave();
    let (_, told, _) = send("PUT", "/fresh/_doc/1", "{\"n\":7}");
    assert_eq!(told["_index"], "fresh", "an index that was not there");
    for (name, cluster) in [("c0", &first), ("c1", &second)] {
        let one = drained(&gateway, name);
        assert_eq!((&one["indexed"], &one["dead"]), (&json!(8), &json!(0)), "{name}");
        let docs = cluster.docs("logs");
        let one: serde_json::Value = serde_json::from_str(&docs["1"].source).unwrap();
        assert_eq!(one, json!({"n": 2, "m": 5}), "{name}");
        assert_eq!(docs.keys().collect::<Vec<_>>().len(), 3, "{docs:?}");
        assert!(docs.contains_key(&minted) && !docs.contains_key("3"));
        assert_eq!(cluster.docs("fresh").len(), 1);
    }
}

#[test]
fn a_single_write_that_cannot_be_queued_waits_for_its_lane_only() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], ", passing_timeout: 300ms");
    let gateway = place.start();
    let json = ("content-type", "application/json");
    let write = |path: &str| {
        let body = b"{\"doc\":{\"n\":1},\"doc_as_upsert\":true}";
        gateway.client().send("POST", path, &[json], body).unwrap()
    };
    // Document 1 is refused for now, and its lane holds it; documents in other lanes go on.
    let busy = Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::new(On::Bulk, busy).always());
    queued(&gateway, 1);
    let routed = |n: u32| write(&format!("/logs/_update/{n}?routing=r{n}&timeout=1m"));
    let statuses: Vec<_> = (0..12).map(|n| routed(n).status).collect();
    assert!(statuses.contains(&201) && statuses.contains(&503), "{statuses:?}");
}

#[test]
fn a_single_write_waits_for_the_lanes_that_its_index_had_before_it_was_made_again() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 1).storing()).unwrap();
    let place = idle(&[&cluster], ", passing_timeout: 300ms");
    let gateway = place.start();
    queued(&gateway, 1);
    cluster.create_index("logs", 7);
    seen(&gateway, &cluster);
    // Each document of the new index may have been written before, in the one lane of the old index.
    let json = ("content-type", "application/json");
    let body = b"{\"doc\":{\"n\":2},\"doc_as_upsert\":true}";
    for n in 0..12 {
        let path = format!("/logs/_update/{n}?routing=r{n}&timeout=1m");
        let answer = gateway.client().send("POST", &path, &[json], body).unwrap();
        assert_eq!(answer.status, 503, "{n}: {}", answer.text());
    }
}

#[test]
fn typed_bulks_are_queued_and_reach_a_second_cluster_that_knows_no_types() {
    let spec = Spec::default().flavour(Flavour::Elasticsearch7);
    let first = FakeCluster::start(spec.index("logs", 3).storing()).unwrap();
    let second = cluster();
    let place = GatewayHome::before(&[&first, &second], "");
    let gateway = place.start();
    let typed = "{\"index\":{\"_index\":\"logs\",\"_type\":\"_doc\",\"_id\":\"1\"}}\n{\"n\":1}\n";
    let answer = gateway.bulk(typed).ok().unwrap();
    assert!(answer.header("x-tidegate-ack").is_some(), "{}", answer.text());
    assert_eq!(answer.json().unwrap()["items"][0]["index"]["_type"], "_doc");
    let by_path = b"{\"index\":{\"_id\":\"2\"}}\n{\"_type\":\"_doc\"}\n";
    let answer = gateway
        .client()
        .post_ndjson("/logs/_doc/_bulk?timeout=1m", by_path)
        .unwrap();
    assert!(answer.header("x-tidegate-ack").is_some(), "{}", answer.text());
    for (name, cluster) in [("c0", &first), ("c1", &second)] {
        let one = drained(&gateway, name);
        assert_eq!((&one["indexed"], &one["dead"]), (&json!(2), &json!(0)), "{name}");
        let docs = cluster.docs("logs");
        assert_eq!(docs["2"].source, "{\"_type\":\"_doc\"}");
        assert_eq!(docs.len(), 2);
    }
    // A server that accepts no types says so.
    let of_other = typed.replace("\"_doc\"", "\"other\"");
    assert_eq!(gateway.bulk(&of_other).status, 400);
}

#[test]
fn typed_bulks_are_split_where_the_server_takes_types_and_refused_by_it_where_not() {
    let typed: String = (0..20)
        .map(|n| format!("{{\"index\":{{\"_index\":\"logs\",\"_type\":\"_doc\",\"_id\":\"{n}\"}}}}\n{{}}\n"))
        .collect();
    let spec = Spec::default().flavour(Flavour::OpenSearch1);
    let cluster = FakeCluster::start(spec.index("logs", 3).storing()).unwrap();
    let gateway = Gateway::before(&cluster);
    gateway.bulk(&typed).ok().unwrap();
    let path = "/logs/_doc/_bulk";
    gateway
        .client()
        .post_ndjson(path, typed.as_bytes())
        .unwrap()
        .ok()
        .unwrap();
    assert_eq!(
        (gateway.counter("bulk_requests"), gateway.counter("bulk_passed")),
        (2, 0)
    );
    assert_eq!((cluster.docs("logs").len(), cluster.counts().misrouted), (20, 0));
    let cluster = self::cluster();
    let gateway = Gateway::before(&cluster);
    let refused = gateway.bulk(&typed);
    assert!(
        refused.text().contains("unknown parameter [_type]"),
        "{}",
        refused.text()
    );
    assert_eq!((refused.status, gateway.passed("typed_action")), (400, 1));
}

#[test]
fn parameters_that_shape_the_answer_shape_that_of_the_queue() {
    let (first, second) = (cluster(), cluster());
    let place = GatewayHome::before(&[&first, &second], "");
    let gateway = place.start();
    let body = b"{\"index\":{\"_index\":\"logs\",\"_id\":\"1\"}}\n{\"n\":1}\n";
    let told = |path: &str| {
        let answer = gateway.client().post_ndjson(path, body).unwrap().ok().unwrap();
        assert!(
            answer.header("x-tidegate-ack").is_some(),
            "{path}: {}",
            answer.text()
        );
        answer.text()
    };
    let errors = told("/_bulk?filter_path=errors,items.*.error&timeout=1m");
    assert_eq!(errors, "{\"errors\":false}");
    assert_eq!(
        told("/logs/_bulk?filter_path=items.*._id"),
        "{\"items\":[{\"index\":{\"_id\":\"1\"}}]}"
    );
    assert!(told("/_bulk?pretty&human&error_trace=true").contains("\n"));
    let json = ("content-type", "application/json");
    let one = gateway
        .client()
        .send("PUT", "/logs/_doc/2?filter_path=result", &[json], b"{}")
        .unwrap();
    assert_eq!(
        (one.status, one.text()),
        (201, "{\"result\":\"created\"}".to_owned())
    );
    // Consecutive stars once were as many paths as there are ways through an answer: 2 GB of them ended the
    // process.
    let stars = told(&format!("/_bulk?filter_path={}_id", "**.".repeat(2_000)));
    assert_eq!(stars, "{\"items\":[{\"index\":{\"_id\":\"1\"}}]}");
    for name in ["c0", "c1"] {
        assert_eq!(drained(&gateway, name)["indexed"], json!(5));
    }
}

#[test]
fn writes_by_query_wait_for_what_is_queued_and_then_go() {
    let cluster = cluster();
    let place = idle(&[&cluster], "");
    let gateway = place.start();
    for path in ["/logs/_update_by_query", "/logs/_delete_by_query", "/_reindex"] {
        queued(&gateway, 1);
        let answer = std::thread::scope(|scope| {
            let by_query = scope.spawn(|| {
                let query = json!({"query": {"match_all": {}}});
                gateway.client().post(path, &query).unwrap()
            });
            std::thread::sleep(Duration::from_millis(300));
            assert!(!by_query.is_finished(), "{path} went round the queue");
            begin(&gateway, "p0");
            by_query.join().unwrap()
        });
        // The fake cluster does not know this API, and says so in its own words.
        assert!(answer.text().contains("no handler found"), "{}", answer.text());
        drained(&gateway, "c0");
        let stop = gateway.admin().send("POST", "/pipeline/p0/_stop", &[], &[]);
        stop.unwrap().ok().unwrap();
    }
}

#[test]
fn a_write_by_query_waits_for_its_own_indices_and_for_no_others() {
    let spec = Spec::default().index("logs", 6).index("stuck", 6).storing();
    let cluster = FakeCluster::start(spec).unwrap();
    cluster.alias("fine", &["logs"]);
    cluster.alias("behind", &["stuck"]);
    let place = GatewayHome::before(&[&cluster], ", passing_timeout: 300ms");
    let gateway = place.start();
    let blocked = r#"{"type":"cluster_block_exception","reason":"index [stuck] blocked by: [FORBIDDEN/8/index write (api)];"}"#;
    cluster.refuse_writes("stuck", Some((403, blocked)));
    let line = "{\"index\":{\"_index\":\"stuck\",\"_id\":\"1\"}}\n{}\n";
    gateway.bulk(line).ok().unwrap();
    queued(&gateway, 1);
    wait(&gateway, "c0", |one| one["parked"] == 1 && one["pending"] == 0);
    let by_query = |path: &str, body: serde_json::Value| gateway.client().post(path, &body).unwrap();
    let all = || json!({"query": {"match_all": {}}});
    for path in [
        "/logs/_update_by_query",
        "/lo*/_delete_by_query",
        "/fine/_update_by_query",
        "/fine,l%6Fgs/_update_by_query",
    ] {
        let answer = by_query(path, all());
        // The fake cluster does not know this API, and says so in its own words.
        assert!(
            answer.text().contains("no handler found"),
            "{path}: {}",
            answer.text()
        );
    }
    let reindex = |from: &str, to: &str| json!({"source": {"index": from}, "dest": {"index": to}});
    let answer = by_query("/_reindex", reindex("logs", "fine"));
    assert!(answer.text().contains("no handler found"), "{}", answer.text());
    for path in [
        "/stuck/_update_by_query",
        "/behind/_update_by_query",
        "/s*/_delete_by_query",
        "/logs,stuck/_update_by_query",
        "/_all/_update_by_query",
        "/nowhere/_update_by_query",
    ] {
        let answer = by_query(path, all());
        assert_eq!(answer.status, 503, "{path}: {}", answer.text());
    }
    let answer = by_query("/_reindex", reindex("logs", "stuck"));
    assert_eq!(answer.status, 503, "{}", answer.text());
    cluster.refuse_writes("stuck", None);
    drained(&gateway, "c0");
    assert!(
        by_query("/stuck/_update_by_query", all())
            .text()
            .contains("no handler found")
    );
}

#[test]
fn a_write_by_query_waits_for_the_lanes_of_its_indices_only() {
    let spec = Spec::default().index("logs", 1);
    let spec = (0..8).fold(spec, |spec, n| spec.index(&format!("other-{n}"), 1));
    let cluster = FakeCluster::start(spec.storing()).unwrap();
    let place = idle(&[&cluster], ", passing_timeout: 300ms");
    let gateway = place.start();
    queued(&gateway, 1);
    let goes = |index: &str| {
        let path = format!("/{index}/_update_by_query");
        gateway.client().post(&path, &json!({})).unwrap().status != 503
    };
    assert!(!goes("logs"));
    let going = (0..8).filter(|n| goes(&format!("other-{n}"))).count();
    // One of four lanes holds something.
    assert!(going >= 3, "{going} of 8");
}

#[test]
fn what_the_cluster_refuses_for_a_single_writes_parameters_is_refused_before_it_is_queued() {
    let cluster = FakeCluster::start(
        Spec::default()
            .flavour(Flavour::Elasticsearch9)
            .index("logs", 3)
            .storing(),
    )
    .unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let direct = Client::new(&cluster.urls()[0]).unwrap();
    let json = [("content-type", "application/json")];
    for (method, path, body) in [
        ("PUT", "/logs/_doc/1?refresh=banana", "{}"),
        ("POST", "/logs/_doc?timeout=banana", "{}"),
        ("PUT", "/logs/_create/1?wait_for_active_shards=banana", "{}"),
        ("POST", "/logs/_update/1?refresh=banana", "{\"doc\":{}}"),
        ("DELETE", "/logs/_doc/1?timeout=banana", ""),
    ] {
        let answer = gateway
            .client()
            .send(method, path, &json, body.as_bytes())
            .unwrap();
        let bulk = path.split_once('?').map_or("", |(_, query)| query);
        let theirs = direct.post_ndjson(
            &format!("/_bulk?{bulk}"),
            b"{\"delete\":{\"_index\":\"logs\",\"_id\":\"x\"}}\n",
        );
        let theirs = theirs.unwrap();
        assert_eq!(
            (answer.status, answer.text()),
            (400, theirs.text()),
            "{method} {path}"
        );
    }
    assert_eq!(queue(&gateway)["accepted"], json!(0));
    let taken = gateway
        .client()
        .send("PUT", "/logs/_doc/1?refresh=true&timeout=2m", &json, b"{}")
        .unwrap();
    assert_eq!(taken.status, 201, "{}", taken.text());
    assert_eq!(taken.header("x-elastic-product"), Some("Elasticsearch"));
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(1));
}

/// A pipeline that may move documents puts them into other lanes than those they would be queued in, and
/// nobody can know what an unknown pipeline does.
#[test]
fn bulks_through_pipelines_that_cannot_be_queued_wait_on_every_server() {
    let moving = json!({"moving": {"processors": [{"set": {"field": "_index", "value": "logs"}}]}});
    for flavour in [
        Flavour::OpenSearch1,
        Flavour::OpenSearch3,
        Flavour::Elasticsearch7,
        Flavour::Elasticsearch8,
        Flavour::Elasticsearch9,
    ] {
        let mut spec = Spec::default().flavour(flavour).index("logs", 3).storing();
        spec.pipelines = moving.as_object().unwrap().clone();
        let cluster = FakeCluster::start(spec).unwrap();
        let place = idle(&[&cluster], "");
        let gateway = place.start();
        queued(&gateway, 1);
        let send = |target: &'static str, n: usize| {
            let body = format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"1\"}}}}\n{{\"n\":{n}}}\n");
            gateway.client().post_ndjson(target, body.as_bytes()).unwrap()
        };
        std::thread::scope(|scope| {
            let waiting = ["/_bulk?pipeline=unknown", "/_bulk?pipeline=moving"]
                .map(|target| scope.spawn(move || send(target, 2).ok().unwrap()));
            let single = scope.spawn(|| {
                let headers = [("content-type", "application/json")];
                let path = "/logs/_doc/1?pipeline=moving";
                let answer = gateway.client().send("PUT", path, &headers, b"{\"n\":2}");
                answer.unwrap().ok().unwrap()
            });
            std::thread::sleep(Duration::from_millis(300));
            assert!(!single.is_finished(), "{flavour:?}");
            assert!(
                cluster.docs("logs").is_empty(),
                "{flavour:?}: it went round the queue"
            );
            begin(&gateway, "p0");
            let answers = waiting.into_iter().chain([single]);
            for answer in answers.map(|one| one.join().unwrap()) {
                assert_eq!(answer.header("x-tidegate-ack"), None);
            }
        });
        drained(&gateway, "c0");
        assert_eq!(cluster.docs("logs")["1"].source, "{\"n\":2}", "{flavour:?}");
    }
}

/// Servers read a name that is not escaped as Latin-1, so the cluster gets it as it came, behind the queue.
#[test]
fn a_target_that_is_not_escaped_is_not_queued_and_waits_for_all_that_is() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], ", passing_timeout: 300ms");
    let gateway = place.start();
    let bulk = "{\"index\":{\"_id\":\"1\"}}\n{}\n";
    let one = "{\"n\":1}";
    let requests = [
        ("POST", "/caf\u{e9}/_bulk", bulk),
        ("POST", "/logs/_bulk?routing=\u{e9}", bulk),
        ("PUT", "/logs/_doc/\u{e9}", one),
        ("PUT", "/caf\u{e9}/_doc/1", one),
    ];
    let send = |(method, target, body): (&str, &str, &str)| {
        let length = body.len();
        let head = format!("{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        let head = format!("{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
        let answer = exchange(&gateway, format!("{head}{body}").as_bytes());
        assert!(!answer.to_lowercase().contains("x-tidegate-ack"), "{answer}");
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    for request in requests {
        assert!(send(request).starts_with('2'), "{request:?}");
    }
    assert_eq!(queue(&gateway)["accepted"], 0);
    down(&cluster);
    queued(&gateway, 1);
    for request in [requests[0], requests[3]] {
        assert_eq!(send(request), "503", "{request:?}");
    }
}

#[test]
fn what_passes_waits_for_the_indices_of_its_lines_and_an_id_that_looks_like_an_api_is_an_id() {
    let cluster = crate::parked::two_indices();
    let place = GatewayHome::before(&[&cluster], ", passing_timeout: 300ms");
    let gateway = place.start();
    let block = r#"{"type":"cluster_block_exception","reason":"index [blocked] blocked by: [FORBIDDEN/8/index write (api)];"}"#;
    cluster.refuse_writes("blocked", Some((403, block)));
    gateway.bulk(&crate::parked::docs("blocked", 20, 1)).ok().unwrap();
    crate::home::wait(&gateway, "c0", |one| one["parked"] == 20 && one["pending"] == 0);
    let send = |target: &str, body: &str| {
        let headers = [("content-type", "application/json")];
        let answer = gateway.client().send("POST", target, &headers, body.as_bytes());
        answer.unwrap().status
    };
    // A bulk without a final line break is never queued: the cluster refuses it, when its turn comes.
    let line = |index: &str| format!("{{\"delete\":{{\"_index\":\"{index}\",\"_id\":\"1\"}}}}\n");
    let last = |index: &str| line(index).trim_end().to_owned();
    assert_eq!(send("/_bulk", &last("good")), 400);
    assert_eq!(send("/blocked/_bulk", &last("good")), 400);
    assert_eq!(send("/_bulk", &(line("good") + &last("blocked"))), 503);
    assert_eq!(
        send("/blocked/_bulk", &(line("good") + "{\"delete\":{\"_id\":\"1\"}}")),
        503
    );
    assert_eq!(
        send("/_bulk", &(line("good") + "{\"delete\"")),
        503,
        "nobody knows"
    );
    // This server knows no types, so it is a document, which must not overtake those that are queued.
    assert_eq!(send("/blocked/_doc/_search", "{\"n\":1}"), 503);
    assert!(send("/blocked/_search", "{}") != 503);
    // All lanes of the one index have parked documents of the other.
    let update = "{\"doc\":{\"n\":1}}";
    assert_eq!(send("/blocked/_update/1?routing=r", update), 503);
    for id in 0..8 {
        assert!(
            send(&format!("/good/_update/{id}?routing=r"), update) != 503,
            "{id}"
        );
    }
}
