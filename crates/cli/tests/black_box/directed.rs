//! Documents with neither id nor routing, which are directed to shards in turn.

use std::collections::{BTreeMap, HashSet};
use std::sync::Barrier;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::fake::{Behaviour, FakeCluster, Fault, Formula, Injection, Spec, routing_num_shards, shard_of};

use crate::gateway::{Gateway, cluster, ids, statuses};

fn directing(cluster: &FakeCluster, how: &str, more: &str) -> Gateway {
    Gateway::with_filters(
        cluster,
        &format!(
            "      - bulk_reshuffle: {{elasticsearch: c, mode: sync, direct_routing: {how}{more}}}
      - elasticsearch: {{elasticsearch: c}}"
        ),
    )
}

fn without_ids(docs: usize) -> String {
    "{\"index\":{\"_index\":\"logs\"}}\n{\"a\":1}\n".repeat(docs)
}

fn send(gateway: &Gateway, body: &str) -> Value {
    gateway.bulk(body).ok().unwrap().json().unwrap()
}

fn shard(key: &str, shards: u32) -> u32 {
    let routing_num_shards = routing_num_shards(shards);
    shard_of(key, shards, Formula::Classic { routing_num_shards })
}

/// Returns the number of documents per shard, by their routing or else by their id.
fn filled(cluster: &FakeCluster, shards: u32) -> Vec<u64> {
    let mut filled = vec![0; shards as usize];
    for (id, stored) in cluster.docs("logs") {
        filled[shard(stored.routing.as_deref().unwrap_or(&id), shards) as usize] += 1;
    }
    filled
}

fn most_and_least(filled: &[u64]) -> (u64, u64) {
    (*filled.iter().max().unwrap(), *filled.iter().min().unwrap())
}

#[test]
fn a_small_bulk_goes_to_one_shard_as_one_request_and_its_ids_are_told() {
    let cluster = cluster();
    let gateway = directing(&cluster, "mint-packed", "");
    for round in 1..=20 {
        let answer = send(&gateway, &without_ids(10));
        assert_eq!(statuses(&answer), [201; 10]);
        let ids = ids(&answer, "index");
        let shards: HashSet<u32> = ids.iter().map(|id| shard(id, 6)).collect();
        assert_eq!(shards.len(), 1, "{ids:?}");
        let client = gateway.client();
        assert!(
            ids.iter()
                .all(|id| client.get(&format!("/logs/_doc/{id}")).unwrap().status == 200)
        );
        assert_eq!(cluster.counts().bulks, round);
    }
    assert_eq!((cluster.docs("logs").len(), cluster.counts().misrouted), (200, 0));
    let count = |name| gateway.counter(name);
    assert_eq!((count("docs_directed"), count("docs_direct")), (200, 200));
}

#[test]
fn shards_of_all_nodes_fill_evenly_whatever_the_size_of_bulks() {
    for how in ["mint-packed", "routing"] {
        let cluster = cluster();
        let gateway = directing(&cluster, how, "");
        for round in 0..60 {
            let docs = [1, 10, 300, 2_500][round % 4];
            assert_eq!(send(&gateway, &without_ids(docs))["errors"], json!(false));
        }
        let filled = filled(&cluster, 6);
        // This is not yet a million documents: shards differ by two runs at most, of 1,000 documents each.
        let (most, least) = most_and_least(&filled);
        assert!(least > 4_000 && most - least <= 2_100, "{filled:?}");
        assert_eq!(cluster.counts().misrouted, 0);
        assert_eq!(gateway.counter("docs_any"), 0);
    }
}

#[test]
fn a_routing_leaves_the_ids_to_the_server() {
    let cluster = cluster();
    let gateway = directing(&cluster, "routing", "");
    let answer = send(
        &gateway,
        "{\"index\":{\"_index\":\"logs\"}}\n{}\n{\"create\":{\"_id\":null,\"_index\":\"logs\"}}\n{}\n",
    );
    assert_eq!(answer["errors"], json!(false));
    let docs = cluster.docs("logs");
    let routings: HashSet<_> = docs.values().map(|stored| stored.routing.clone()).collect();
    assert_eq!((docs.len(), routings.len()), (2, 1), "{docs:?}");
    let routing = routings.into_iter().next().unwrap().unwrap();
    assert!(routing.len() <= 2, "{routing}");
    let id = answer["items"][0]["index"]["_id"].as_str().unwrap();
    let found = gateway
        .client()
        .get(&format!("/logs/_doc/{id}?routing={routing}"))
        .unwrap();
    assert_eq!(found.status, 200);
    assert_eq!(cluster.counts().bulks, 1);
}

#[test]
fn documents_with_an_id_or_a_routing_are_untouched() {
    let cluster = cluster();
    let gateway = directing(&cluster, "mint-packed", "");
    let body = "{\"index\":{\"_index\":\"logs\",\"_id\":\"mine\"}}\n{}\n\
                {\"index\":{\"_index\":\"logs\",\"routing\":\"r\"}}\n{}\n\
                {\"create\":{\"_index\":\"logs\"}}\n{}\n\
                {\"update\":{\"_index\":\"logs\",\"_id\":\"mine\"}}\n{\"doc\":{\"a\":2}}\n";
    let answer = send(&gateway, body);
    assert_eq!(statuses(&answer), [201, 201, 201, 200]);
    assert_eq!(answer["items"][0]["index"]["_id"], json!("mine"));
    let docs = cluster.docs("logs");
    let routed: Vec<_> = docs
        .values()
        .filter_map(|stored| stored.routing.clone())
        .collect();
    assert_eq!((docs.len(), routed), (3, vec!["r".to_owned()]));
    assert_eq!(gateway.counter("docs_directed"), 1);
    // The parameters in the URL count as well.
    let answer = gateway
        .client()
        .post_ndjson("/logs/_bulk?routing=s", b"{\"index\":{}}\n{}\n")
        .unwrap();
    assert_eq!(answer.status, 200);
    assert!(
        cluster
            .docs("logs")
            .values()
            .any(|stored| stored.routing.as_deref() == Some("s"))
    );
    assert_eq!(gateway.counter("docs_directed"), 1);
}

#[test]
fn a_node_that_is_down_is_passed_over_and_its_shards_catch_up() {
    let cluster = cluster();
    let gateway = directing(&cluster, "mint-packed", "");
    cluster.kill(1);
    while gateway.topology()["nodes"][1]["health"]["up"] != json!(false) {
        send(&gateway, &without_ids(10));
    }
    let before = gateway.counter("docs_any");
    for _ in 0..20 {
        assert_eq!(send(&gateway, &without_ids(500))["errors"], json!(false));
    }
    assert_eq!(gateway.counter("docs_any"), before, "nothing was aimed at it");
    cluster.restart(1).unwrap();
    gateway.wait_until("the node is back by a probe", |status| {
        status["nodes"][1]["health"]["up"] == true
    });
    for _ in 0..80 {
        send(&gateway, &without_ids(500));
    }
    let filled = filled(&cluster, 6);
    let (most, least) = most_and_least(&filled);
    assert!(most - least <= 2_100, "{filled:?}");
}

#[test]
fn what_a_node_refuses_is_given_again() {
    let cluster = cluster();
    let gateway = directing(&cluster, "mint-packed", "");
    let refusal = Fault::Status {
        status: 429,
        body: r#"{"error":{"type":"t","reason":"r"},"status":429}"#.to_owned(),
    };
    cluster.inject(Injection::bulk(refusal).on_node(2).times(20));
    let mut refused = 0;
    for _ in 0..100 {
        let answer = gateway.bulk(&without_ids(300));
        refused += usize::from(answer.status == 429);
    }
    // Some of the bulks that a node refused were only parts.
    assert!(refused >= 10 && gateway.counter("docs_refused") > 3_000);
    let filled = filled(&cluster, 6);
    let (most, least) = most_and_least(&filled);
    assert!(most - least <= 2_100, "{filled:?}");
}

#[test]
fn an_answer_that_is_lost_is_asked_for_again_without_doubling() {
    let cluster = cluster();
    let gateway = directing(&cluster, "mint-packed", "");
    cluster.inject(Injection::bulk(Fault::CloseWritten).times(1));
    let answer = send(&gateway, &without_ids(50));
    assert_eq!(answer["errors"], json!(false), "{answer}");
    assert_eq!(cluster.docs("logs").len(), 50);
}

#[test]
fn small_bulks_of_many_clients_travel_together_and_touch_few_shards() {
    const CLIENTS: usize = 24;
    const ROUNDS: usize = 10;
    let behaviour = Behaviour {
        latency: Duration::from_millis(30),
        ..Behaviour::default()
    };
    let spec = Spec {
        behaviour,
        ..Spec::default()
    };
    let cluster = FakeCluster::start(spec.index("logs", 30).storing()).unwrap();
    let gateway = directing(&cluster, "mint-packed", ", combine: {enabled: true}");
    let start = Barrier::new(CLIENTS);
    let touched = parking_lot::Mutex::new(BTreeMap::<u32, u64>::new());
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let client = gateway.client();
                start.wait();
                for _ in 0..ROUNDS {
                    let answer = client.post_ndjson("/_bulk", without_ids(10).as_bytes()).unwrap();
                    let answer = answer.ok().unwrap().json().unwrap();
                    let ids = ids(&answer, "index");
                    assert_eq!(ids.len(), 10);
                    let mut touched = touched.lock();
                    for id in ids {
                        *touched.entry(shard(&id, 30)).or_default() += 1;
                    }
                }
            });
        }
    });
    let docs = CLIENTS * ROUNDS * 10;
    let counts = cluster.counts();
    assert_eq!((cluster.docs("logs").len(), counts.misrouted), (docs, 0));
    assert!(
        counts.bulks < (CLIENTS * ROUNDS) as u64,
        "{} requests",
        counts.bulks
    );
    assert!(
        counts.docs_by_node.iter().all(|docs| *docs > 400),
        "{:?}",
        counts.docs_by_node
    );
    // 2,400 documents are 12 runs of 200; at random, they would be in all 30 shards.
    let touched = touched.into_inner();
    assert!(touched.len() <= 18, "{touched:?}");
}

#[test]
fn an_index_of_one_shard_needs_no_ids_to_go_home() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 1).storing()).unwrap();
    let gateway = directing(&cluster, "mint-packed", "");
    for _ in 0..9 {
        assert_eq!(statuses(&send(&gateway, &without_ids(2))), [201; 2]);
    }
    let home = cluster.node_of("logs", 0).unwrap();
    assert_eq!(cluster.counts().docs_by_node[home], 18);
    assert_eq!(gateway.counter("docs_direct"), 18);
}

#[test]
fn the_command_line_directs_too() {
    let cluster = cluster();
    let gateway = Gateway::with(&cluster, &["--direct-routing", "routing"]);
    assert_eq!(statuses(&send(&gateway, &without_ids(3))), [201; 3]);
    assert!(
        cluster
            .docs("logs")
            .values()
            .all(|stored| stored.routing.is_some())
    );
}

#[test]
fn it_is_switched_while_it_runs_for_single_indices_too() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 6).index("other", 6).storing()).unwrap();
    let gateway = directing(&cluster, "off", "");
    let directed = |index: &str| {
        let before = gateway.counter("docs_directed");
        send(&gateway, &without_ids(10).replace("logs", index));
        gateway.counter("docs_directed") - before
    };
    let switch = |change: &Value| {
        let answer = gateway.admin().put("/switches/c", change).unwrap();
        assert_eq!(answer.status, 200);
    };
    assert_eq!((directed("logs"), directed("other")), (0, 0));
    switch(&json!({"direct_routing.indices": [{"index": "log*", "enabled": true}]}));
    assert_eq!((directed("logs"), directed("other")), (10, 0));
    switch(
        &json!({"direct_routing.enabled": "true", "direct_routing.indices": [{"index": "log*", "enabled": false}]}),
    );
    assert_eq!((directed("logs"), directed("other")), (0, 10));
}
