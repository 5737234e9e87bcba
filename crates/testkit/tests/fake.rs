//! Checks what the fake cluster promises to the tests and figures that rely on it.

#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

use serde_json::{Value, json};
use testkit::client::Client;
use testkit::fake::{Behaviour, FakeCluster, Fault, Flavour, Injection, Spec, Unfit, shard_of};
use testkit::nginx::{Bulk, Ids};

fn client(cluster: &FakeCluster, node: usize) -> Client {
    Client::new(&cluster.urls()[node]).unwrap()
}

fn bulk(client: &Client, path: &str, body: &[u8]) -> Value {
    client.post_ndjson(path, body).unwrap().json().unwrap()
}

#[test]
fn every_document_gets_its_item_in_order() {
    for flavour in [
        Flavour::OpenSearch3,
        Flavour::Elasticsearch9,
        Flavour::OpenSearch1,
    ] {
        let cluster = FakeCluster::start(Spec::default().flavour(flavour).index("logs", 3)).unwrap();
        let body = Bulk {
            ids: Ids::From(5),
            ..Bulk::new("logs", 40)
        }
        .body(1);
        let answer = bulk(&client(&cluster, 0), "/_bulk", &body);
        assert_eq!(answer["errors"], false);
        let ids: Vec<&str> = answer["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["index"]["_id"].as_str().unwrap())
            .collect();
        assert_eq!(ids, (5..45).map(|id| id.to_string()).collect::<Vec<_>>());
        let first = answer.as_object().unwrap().keys().next().unwrap();
        assert_eq!(
            first,
            if flavour == Flavour::Elasticsearch9 {
                "errors"
            } else {
                "took"
            }
        );
    }
}

#[test]
fn documents_on_the_wrong_node_are_counted() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3)).unwrap();
    let body = Bulk {
        ids: Ids::From(0),
        ..Bulk::new("logs", 300)
    }
    .body(1);
    bulk(&client(&cluster, 1), "/_bulk", &body);
    let formula = testkit::fake::Formula::Classic {
        routing_num_shards: 768,
    };
    let at_home = (0..300)
        .filter(|id| shard_of(&id.to_string(), 3, formula) == 1)
        .count() as u64;
    let counts = cluster.counts();
    assert_eq!(
        (counts.docs, counts.misrouted, counts.bulks),
        (300, 300 - at_home, 1)
    );
    assert_eq!(counts.docs_by_node, [0, 300, 0]);
}

#[test]
fn stored_documents_are_found_by_id_and_conflict_as_they_should() {
    let cluster = FakeCluster::start(Spec::default().storing().index("logs", 2)).unwrap();
    let node = client(&cluster, 0);
    let body = b"{\"create\":{\"_id\":\"a\"}}\n{\"n\":1}\n{\"create\":{\"_id\":\"a\"}}\n{\"n\":2}\n\
                 {\"update\":{\"_id\":\"a\"}}\n{\"doc\":{\"m\":3}}\n{\"delete\":{\"_id\":\"b\"}}\n";
    let answer = bulk(&node, "/logs/_bulk", body);
    let statuses: Vec<i64> = answer["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            item.as_object().unwrap().values().next().unwrap()["status"]
                .as_i64()
                .unwrap()
        })
        .collect();
    assert_eq!(
        (statuses, &answer["errors"]),
        (vec![201, 409, 200, 404], &json!(true))
    );
    let doc = node.get("/logs/_doc/a").unwrap().json().unwrap();
    assert_eq!(
        (&doc["_version"], &doc["_source"]),
        (&json!(2), &json!({"n": 1, "m": 3}))
    );
    assert_eq!(cluster.docs("logs").len(), 1);
}

#[test]
fn faults_come_on_cue_and_go() {
    let cluster = FakeCluster::start(Spec::default().storing().index("logs", 1)).unwrap();
    let node = client(&cluster, 0);
    let one = b"{\"index\":{\"_id\":\"1\"}}\n{}\n";
    cluster.inject(Injection::bulk(Fault::Status {
        status: 429,
        body: "{\"status\":429}".into(),
    }));
    assert_eq!(node.post_ndjson("/logs/_bulk", one).unwrap().status, 429);
    assert_eq!(cluster.docs("logs").len(), 0);
    cluster.inject(Injection::bulk(Fault::CloseWritten));
    node.post_ndjson("/logs/_bulk", one).unwrap_err();
    assert_eq!(cluster.docs("logs")["1"].version, 1);
    cluster.inject(Injection::bulk(Fault::Items {
        every: 1,
        status: 503,
        error: "{\"type\":\"x\"}".into(),
    }));
    assert_eq!(
        bulk(&node, "/logs/_bulk", one)["items"][0]["index"]["status"],
        503
    );
    cluster.inject(Injection::bulk(Fault::ItemCount(1)));
    assert_eq!(
        bulk(&node, "/logs/_bulk", one)["items"].as_array().unwrap().len(),
        2
    );
    assert_eq!(
        bulk(&node, "/logs/_bulk", one)["items"].as_array().unwrap().len(),
        1
    );
}

#[test]
fn a_killed_node_refuses_and_a_restarted_one_answers() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3)).unwrap();
    let node = client(&cluster, 2);
    node.get("/_cluster/health").unwrap().ok().unwrap();
    cluster.leave(2);
    node.get("/_cluster/health").unwrap_err();
    assert!((0..3).all(|shard| cluster.node_of("logs", shard) != Some(2)));
    cluster.restart(2).unwrap();
    node.get("/_cluster/health").unwrap().ok().unwrap();
}

#[test]
fn the_cluster_state_follows_changes() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3)).unwrap();
    let node = client(&cluster, 0);
    let ask = || {
        node.get("/_cluster/state/metadata,routing_table,version?filter_path=version,metadata.indices.*.settings.index.uuid,routing_table.indices.*.shards.*.node").unwrap().json().unwrap()
    };
    let before = ask();
    cluster.move_shard("logs", 0, 2);
    let moved = ask();
    assert_ne!(before["version"], moved["version"]);
    assert_eq!(
        before["routing_table"]["indices"]["logs"]["shards"]["2"][0]["node"],
        moved["routing_table"]["indices"]["logs"]["shards"]["0"][0]["node"]
    );
    cluster.create_index("logs", 3);
    assert_ne!(
        ask()["metadata"]["indices"]["logs"]["settings"]["index"]["uuid"],
        moved["metadata"]["indices"]["logs"]["settings"]["index"]["uuid"]
    );
}

#[test]
fn strangers_are_refused() {
    let cluster = FakeCluster::start(Spec::default().basic_auth("admin", "admin")).unwrap();
    assert_eq!(client(&cluster, 0).get("/_nodes").unwrap().status, 401);
    let known = client(&cluster, 0).basic_auth("admin", "admin");
    assert_eq!(known.get("/_nodes/http").unwrap().status, 200);
}

#[test]
fn settings_and_aliases_are_listed() {
    let cluster = FakeCluster::start(Spec::default().index("logs-1", 3).index("logs-2", 1)).unwrap();
    cluster.alias("logs", &["logs-2", "logs-1"]);
    let node = client(&cluster, 0);
    let path = "/_all/_settings/index.uuid,index.version.*,index.number_of_shards?flat_settings=true";
    let settings = node.get(path).unwrap().json().unwrap();
    let first = settings["logs-1"]["settings"].as_object().unwrap();
    assert_eq!((first.len(), &first["index.number_of_shards"]), (3, &json!("3")));
    let aliases = node.get("/_alias").unwrap().json().unwrap();
    assert_eq!(aliases["logs-2"]["aliases"]["logs"]["is_write_index"], true);
    assert_eq!(aliases["logs-1"]["aliases"]["logs"]["is_write_index"], false);
}

#[test]
fn documents_are_written_one_by_one_and_found_by_simple_searches() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3).storing()).unwrap();
    let client = client(&cluster, 0);
    let send = |method: &str, path: &str, body: Value| {
        let answer = client
            .send(method, path, &[], body.to_string().as_bytes())
            .unwrap();
        (answer.status, answer.json().unwrap())
    };
    let (status, answer) = send("PUT", "/logs/_doc/1", json!({"user": "alice", "n": 1}));
    assert_eq!(
        (status, &answer["result"], &answer["_version"]),
        (201, &json!("created"), &json!(1))
    );
    assert_eq!(send("PUT", "/logs/_create/1", json!({})).0, 409);
    assert_eq!(
        send("POST", "/logs/_update/1", json!({"doc": {"n": 2}})).1["result"],
        "updated"
    );
    assert_eq!(send("POST", "/logs/_doc", json!({"user": "bob"})).0, 201);
    assert_eq!(send("PUT", "/logs/_doc/2", json!([])).0, 400);
    let found = |path: &str, query: Value| send("POST", path, query).1;
    let term = json!({"query": {"term": {"user": "alice"}}});
    let answer = found("/logs/_search", term.clone());
    assert_eq!(answer["hits"]["total"]["value"], 1);
    assert_eq!(
        answer["hits"]["hits"][0]["_source"],
        json!({"user": "alice", "n": 2})
    );
    assert_eq!(found("/logs/_count", term)["count"], 1);
    assert_eq!(
        found("/_search?q=user:bob", json!({}))["hits"]["total"]["value"],
        1
    );
    assert_eq!(
        found("/logs/_search?size=1", json!({}))["hits"]["hits"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let pairs =
        b"{\"index\":\"logs\"}\n{\"query\":{\"ids\":{\"values\":[\"1\"]}}}\n{\"index\":\"none\"}\n{}\n";
    let answer = bulk(&client, "/_msearch", pairs);
    assert_eq!(answer["responses"][0]["hits"]["total"]["value"], 1);
    assert_eq!(answer["responses"][1]["status"], 404);
    assert_eq!(send("DELETE", "/logs/_doc/1", json!({})).1["result"], "deleted");
    assert_eq!(found("/logs/_search", json!({}))["hits"]["total"]["value"], 1);
    assert_eq!((cluster.counts().writes, cluster.counts().docs), (5, 0));
}

#[test]
fn what_is_only_counted_is_counted_by_index() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3)).unwrap();
    let client = client(&cluster, 0);
    bulk(&client, "/_bulk", &Bulk::new("logs", 40).body(1));
    client.put("/other/_doc/1", &json!({})).unwrap().ok().unwrap();
    let count = |path: &str| client.get(path).unwrap().json().unwrap()["count"].clone();
    assert_eq!(
        (count("/logs/_count"), count("/other/_count"), count("/_count")),
        (40.into(), 1.into(), 41.into())
    );
}

#[test]
fn nodes_tell_the_cpu_time_that_they_have_used() {
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    let stats = client(&cluster, 0)
        .get("/_nodes/stats/process")
        .unwrap()
        .json()
        .unwrap();
    let nodes = stats["nodes"].as_object().unwrap();
    assert_eq!(nodes.len(), 3);
    assert!(
        nodes
            .values()
            .all(|node| node["process"]["cpu"]["total_in_millis"].is_u64()),
        "{stats}"
    );
}

#[test]
fn ids_that_the_nodes_make_are_never_the_same_twice_in_bulks_at_the_same_time() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3).storing()).unwrap();
    let body = Bulk {
        ids: Ids::None,
        ..Bulk::new("logs", 500)
    }
    .body(1);
    std::thread::scope(|scope| {
        for node in 0..3 {
            let (client, body) = (client(&cluster, node), &body);
            scope.spawn(move || (0..4).for_each(|_| drop(bulk(&client, "/_bulk", body))));
        }
    });
    assert_eq!(cluster.docs("logs").len(), 6_000);
}

#[test]
fn a_paused_node_takes_requests_and_executes_them_when_it_is_resumed_unless_it_dies_first() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3).storing()).unwrap();
    let body = |id: &str| format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"n\":1}}\n");
    std::thread::scope(|scope| {
        for (node, id) in [(0, "resumed"), (1, "killed")] {
            cluster.pause(node);
            let client = client(&cluster, node);
            scope.spawn(move || {
                let answered = client.post_ndjson("/_bulk", body(id).as_bytes()).is_ok();
                assert_eq!(answered, id == "resumed");
            });
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(cluster.docs("logs").is_empty());
        cluster.kill(1);
        cluster.resume(1);
        cluster.resume(0);
    });
    let docs = cluster.docs("logs");
    assert_eq!(docs.keys().collect::<Vec<_>>(), ["resumed"]);
}

#[test]
fn documents_that_do_not_fit_are_refused_every_time() {
    let unfit = Unfit {
        holds: "\"n\":\"".to_owned(),
        status: 400,
        error: r#"{"type":"mapper_parsing_exception","reason":"no number"}"#.to_owned(),
    };
    let behaviour = Behaviour {
        unfit: Some(unfit),
        ..Behaviour::default()
    };
    let spec = Spec {
        behaviour,
        ..Spec::default()
    };
    let cluster = FakeCluster::start(spec.index("logs", 3).storing()).unwrap();
    let body = b"{\"index\":{\"_index\":\"logs\",\"_id\":\"1\"}}\n{\"n\":\"x\"}\n{\"index\":{\"_index\":\"logs\",\"_id\":\"2\"}}\n{\"n\":2}\n";
    for _ in 0..2 {
        let answer = bulk(&client(&cluster, 0), "/_bulk", body);
        assert_eq!(answer["items"][0]["index"]["error"]["reason"], "no number");
    }
    assert_eq!(cluster.docs("logs").keys().collect::<Vec<_>>(), ["2"]);
}
