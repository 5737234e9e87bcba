//! Asynchronous mode before everything is known about the cluster, or before it is there: writes that
//! bypassed the queue then would overtake queued ones, and never reach the second cluster.

use std::time::{Duration, Instant};

use testkit::fake::{FakeCluster, Fault, Injection, On, Spec};

use crate::gateway::{Gateway, body, cluster};
use crate::home::{GatewayHome, account, drained, queue};

fn unavailable(path: &str) -> Injection {
    let fault = Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    };
    Injection::new(On::Path(path.to_owned()), fault).always()
}

#[test]
fn a_bulk_before_the_topology_is_read_is_refused_and_no_node_gets_it() {
    let cluster = cluster();
    cluster.inject(unavailable("/_cluster/state"));
    let place = GatewayHome::before(&[&cluster], "");
    let start = || Gateway::start(&["--config", place.file.to_str().unwrap()]);
    let mut gateway = start();
    let refused = gateway.bulk(&body(10));
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert!(
        refused.text().contains("nothing was accepted"),
        "{}",
        refused.text()
    );
    assert_eq!(account(&queue(&gateway), "c0")["pending"], 0);
    // A request that comes a moment too early waits for two seconds, in which a busy machine may not have
    // read anything.
    let waits = (0..4).any(|_| {
        cluster.inject(unavailable("/_cluster/state"));
        gateway.signal("KILL");
        gateway.wait();
        gateway = start();
        let answer = std::thread::scope(|scope| {
            let early = scope.spawn(|| gateway.bulk(&body(20)));
            std::thread::sleep(Duration::from_millis(300));
            cluster.behave();
            early.join().unwrap()
        });
        assert!(matches!(answer.status, 200 | 503), "{}", answer.text());
        assert_eq!(answer.header("x-tidegate-ack").is_some(), answer.status == 200);
        answer.status == 200
    });
    assert!(waits);
    assert_eq!(drained(&gateway, "c0")["indexed"], 20);
    assert_eq!(cluster.docs("logs").len(), 20);
}

#[test]
fn a_bulk_for_an_index_whose_routing_is_not_proven_yet_is_queued_all_the_same() {
    let clusters: Vec<FakeCluster> = (0..2)
        .map(|_| FakeCluster::start(Spec::default().index("logs", 6).storing()).unwrap())
        .collect();
    for cluster in &clusters {
        cluster.inject(unavailable("/logs/_search_shards"));
    }
    let place = GatewayHome::before(&[&clusters[0], &clusters[1]], "");
    let gateway = place.start();
    // Writes to the same documents before and after the proof: each document ends as it was written last.
    for round in 0..6 {
        let text: String = (0..40)
            .map(|id| {
                format!(
                    "{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"n\":{}}}\n",
                    round * 100 + id
                )
            })
            .collect();
        let answer = gateway.bulk(&text).ok().unwrap();
        assert!(
            answer.header("x-tidegate-ack").is_some(),
            "round {round} was not queued"
        );
        if round == 2 {
            clusters.iter().for_each(FakeCluster::behave);
            let began = Instant::now();
            while gateway.topology()["routes"]["indices_split"] != 1 {
                assert!(
                    began.elapsed() < Duration::from_secs(10),
                    "{:#}",
                    gateway.topology()
                );
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    for (group, cluster) in ["c0", "c1"].into_iter().zip(&clusters) {
        assert_eq!(drained(&gateway, group)["indexed"], 240);
        for (id, doc) in cluster.docs("logs") {
            let id: u64 = id.parse().unwrap();
            assert!(
                doc.source.contains(&format!("{}", 500 + id)),
                "{id}: {}",
                doc.source
            );
        }
    }
}

#[test]
fn an_index_that_is_not_there_yet_is_made_by_the_cluster_and_its_first_documents_reach_both() {
    let clusters: Vec<FakeCluster> = (0..2)
        .map(|_| FakeCluster::start(Spec::default().index("logs", 6).storing()).unwrap())
        .collect();
    let place = GatewayHome::before(&[&clusters[0], &clusters[1]], "");
    let gateway = place.start();
    let mixed = body(10) + &body(20).replace("logs", "new-1") + &body(30).replace("logs", "new-2");
    let answer = gateway.bulk(&mixed).ok().unwrap();
    assert!(
        answer.header("x-tidegate-ack").is_some(),
        "not queued: {}",
        answer.text()
    );
    for (group, cluster) in ["c0", "c1"].into_iter().zip(&clusters) {
        assert_eq!(drained(&gateway, group)["indexed"], 60);
        let counts = ["logs", "new-1", "new-2"].map(|index| cluster.docs(index).len());
        assert_eq!(counts, [10, 20, 30], "{group}");
    }
}

#[test]
fn an_index_that_the_cluster_will_not_make_is_its_own_to_refuse() {
    let spec = Spec {
        auto_create: false,
        ..Spec::default()
    };
    let cluster = FakeCluster::start(spec.index("logs", 6).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let answer = gateway.bulk(&body(3).replace("logs", "new")).ok().unwrap();
    assert!(answer.header("x-tidegate-ack").is_none());
    let error = answer.json().unwrap()["items"][2]["index"]["error"]["type"].clone();
    assert_eq!(error, "index_not_found_exception");
    // A delete does not create an index.
    let delete = "{\"delete\":{\"_index\":\"new\",\"_id\":\"1\"}}\n";
    let answer = gateway.bulk(delete).ok().unwrap();
    assert!(answer.header("x-tidegate-ack").is_none());
    assert_eq!(account(&queue(&gateway), "c0")["pending"], 0);
}
