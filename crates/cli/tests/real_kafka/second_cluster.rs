//! A second cluster, in which names lead elsewhere than in the one that clients see.

use std::time::Duration;

use serde_json::json;
use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use super::concerns::{until, writes};
use super::gateway::Gateway;
use super::{GatewayHome, broker, queue};

/// Makes a home whose queue is delivered to a second cluster, too.
fn home(first: &FakeCluster, second: &FakeCluster, topic: &str) -> GatewayHome {
    let place = GatewayHome::new(first, broker(), topic, ", partitions: 8");
    let text = std::fs::read_to_string(&place.file).unwrap();
    let text = text
        .replace(
            "{elasticsearch: c}}]}]",
            "{elasticsearch: c}}]}, {name: p2, retry_delay_in_ms: 20, processor: [{bulk_indexing: {elasticsearch: d}}]}]",
        )
        .replace(
            "elasticsearch: [",
            &format!("elasticsearch: [{{name: d, endpoint: '{}'}}, ", second.urls()[0]),
        );
    std::fs::write(&place.file, text).unwrap();
    place
}

/// Waits until this many documents are done in the second cluster; returns how many of them are dead.
fn done(gateway: &Gateway, documents: u64) -> u64 {
    let number = |name: &str| queue(gateway)["groups"]["d"][name].as_u64().unwrap();
    until("all is done in the second cluster", gateway, || {
        number("indexed") + number("dead") == documents
    });
    number("dead")
}

#[test]
fn no_document_is_twice_in_a_second_cluster_whose_alias_moves_between_kill_9_and_the_resend() {
    let first = FakeCluster::start(Spec::default().index("i1", 2).storing()).unwrap();
    first.alias("a", &["i1"]);
    for operation in ["create", "update"] {
        let topic = format!("second-{operation}");
        let second = FakeCluster::start(Spec::default().index("j1", 2).index("j2", 5).storing()).unwrap();
        second.alias("a", &["j1"]);
        let place = home(&first, &second, &topic);
        let gateway = place.start();
        let probe = "{\"delete\":{\"_index\":\"a\",\"_id\":\"probe\"}}\n";
        gateway.bulk(probe).ok().unwrap();
        done(&gateway, 1);
        let mut body = writes(operation, "a", 100, 1);
        if operation == "update" {
            body = body.replace("{\"v\":1}", "{\"doc\":{\"v\":1},\"doc_as_upsert\":true}");
        }
        second.inject(Injection::bulk(Fault::HangWritten).always());
        let answer = gateway.bulk(&body).ok().unwrap();
        assert!(answer.header("x-tidegate-ack").is_some(), "{:?}", answer.json());
        // Each node holds the first request that it gets; later ones are not sent.
        until("some is written", &gateway, || !second.docs("j1").is_empty());
        std::thread::sleep(Duration::from_millis(300));
        gateway.signal("KILL");
        drop(gateway);
        let written = second.docs("j1");
        second.behave();
        // The old index is behind the alias no more.
        second.alias("a", &["j2"]);
        let other = home(&first, &second, &topic);
        let gateway = other.start();
        let dead = done(&gateway, 101);
        let later = second.docs("j2");
        let twice = written.keys().filter(|id| later.contains_key(*id)).count();
        assert_eq!((twice, dead), (0, 0), "{operation}: of {}", written.len());
        assert_eq!(second.docs("j1").len(), written.len());
        assert_eq!(written.len() + later.len(), 100, "{operation}");
        assert_eq!(queue(&gateway)["groups"]["c"]["pending_messages"], json!(0));
    }
}
