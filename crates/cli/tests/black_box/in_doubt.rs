//! Writes whose answers were lost are looked for before they are sent again, and what is there may be any
//! size.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::client::Client;
use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use crate::gateway::{Gateway, PATIENCE};
use crate::home::{GatewayHome, drained};
use crate::memory::{large, peak_mib};

/// Makes `i1` and `i2`, which keep documents; `a` leads to the former.
fn cluster() -> FakeCluster {
    let cluster = FakeCluster::start(Spec::default().index("i1", 2).index("i2", 5).storing()).unwrap();
    cluster.alias("a", &["i1"]);
    cluster
}

/// Starts a gateway that sends lost writes again only after the test has rolled the alias over.
fn start(cluster: &FakeCluster) -> (GatewayHome, Gateway) {
    let place = GatewayHome::before(&[cluster], "");
    place.append("worker: {count: 1, delivery_memory: 8mb}\n");
    let text = std::fs::read_to_string(&place.file).unwrap();
    let text = text.replace("retry_delay_in_ms: 20", "retry_delay_in_ms: 4000");
    std::fs::write(&place.file, text).unwrap();
    let gateway = place.start();
    (place, gateway)
}

fn direct(cluster: &FakeCluster, body: &str) {
    let client = Client::new(&cluster.urls()[0]).unwrap();
    let answer = client.post_ndjson("/_bulk", body.as_bytes());
    answer.unwrap().ok().unwrap();
}

/// Queues writes, which the nodes execute without an answer, and waits until `i1` has all of them in this
/// version or a later one.
fn lose(cluster: &FakeCluster, gateway: &Gateway, body: &str, docs: usize, version: u64) {
    cluster.inject(Injection::bulk(Fault::CloseWritten).always());
    let answer = gateway.bulk(body).ok().unwrap();
    assert!(answer.header("x-tidegate-ack").is_some(), "{:?}", answer.json());
    let began = Instant::now();
    let written = || {
        let stored = cluster.docs("i1");
        stored.values().filter(|doc| doc.version >= version).count()
    };
    while written() < docs {
        assert!(began.elapsed() < PATIENCE, "{} of {docs}", written());
        std::thread::sleep(Duration::from_millis(50));
    }
    cluster.behave();
}

fn roll_over(cluster: &FakeCluster) {
    cluster.alias("a", &["i2", "i1"]);
}

#[test]
fn small_updates_of_large_documents_are_looked_for_in_little_memory() {
    let cluster = cluster();
    for n in 0..60 {
        direct(&cluster, &large("i1", &format!("{n}-"), 1, 1000));
    }
    let (_place, gateway) = start(&cluster);
    let before = peak_mib(&gateway);
    let update = |n| {
        format!(
            "{{\"update\":{{\"_index\":\"a\",\"_id\":\"{n}-0\"}}}}\n{{\"doc\":{{\"v\":{{\"w\":{n}}}}}}}\n"
        )
    };
    let updates: String = (0..60).map(update).collect();
    lose(&cluster, &gateway, &updates, 60, 2);
    roll_over(&cluster);
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(60), &json!(0)));
    assert!(cluster.docs("i2").is_empty());
    let docs = cluster.docs("i1");
    assert!(
        docs.values().all(|doc| doc.version == 2),
        "each was executed once"
    );
    let peak = peak_mib(&gateway);
    assert!(
        peak < before + 30,
        "{peak} MiB, {before} MiB before, for updates of 60 MiB"
    );
}

#[test]
fn writes_whose_documents_others_have_made_large_are_looked_for_in_little_memory() {
    let cluster = cluster();
    let (_place, gateway) = start(&cluster);
    let before = peak_mib(&gateway);
    lose(&cluster, &gateway, &large("a", "d", 60, 0), 60, 1);
    for n in 0..60 {
        let other = large("i1", "d", 1, 1000).replace("\"d0\"", &format!("\"d{n}\""));
        direct(&cluster, &other);
    }
    roll_over(&cluster);
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(60), &json!(0)));
    // Other documents are there: nobody can say that these were ever written.
    assert_eq!(cluster.docs("i2").len(), 60);
    let peak = peak_mib(&gateway);
    assert!(
        peak < before + 30,
        "{peak} MiB, {before} MiB before, for documents of 60 MiB"
    );
}

#[test]
fn large_documents_that_were_written_are_found_and_not_written_again() {
    for operation in ["index", "create"] {
        let cluster = cluster();
        let (_place, gateway) = start(&cluster);
        let operations = |index, kib| {
            large(index, index, 4, kib).replace(
                "{\"index\":{\"_index\"",
                &format!("{{\"{operation}\":{{\"_index\""),
            )
        };
        lose(&cluster, &gateway, &operations("a", 1500), 4, 1);
        // A conflict, and not a look, shows that these were written.
        lose(&cluster, &gateway, &operations("i1", 1200), 8, 1);
        roll_over(&cluster);
        let one = drained(&gateway, "c0");
        assert_eq!(
            (&one["indexed"], &one["dead"]),
            (&json!(8), &json!(0)),
            "{operation}"
        );
        assert!(cluster.docs("i2").is_empty(), "{operation}");
    }
}

/// Its second try finds a version that the first one has made.
#[test]
fn a_versioned_update_that_was_executed_without_an_answer_is_done_unless_another_writer_came_after_it() {
    let cluster = cluster();
    for id in ["kept", "other"] {
        direct(&cluster, &document(id, 1));
    }
    let (_place, gateway) = start(&cluster);
    let written = cluster.docs("i1");
    let update = |id| {
        let seq_no = written[id].seq_no;
        format!(
            "{{\"update\":{{\"_index\":\"i1\",\"_id\":\"{id}\",\"if_seq_no\":{seq_no},\"if_primary_term\":1}}}}\n{{\"doc\":{{\"n\":2}}}}\n"
        )
    };
    lose(&cluster, &gateway, &(update("kept") + &update("other")), 2, 2);
    direct(&cluster, &document("other", 3));
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(1), &json!(1)), "{one}");
    let docs = cluster.docs("i1");
    assert_eq!(docs["kept"].source, r#"{"n":2,"more":"x"}"#);
    assert_eq!(docs["other"].source, r#"{"n":3,"more":"x"}"#);
}

fn document(id: &str, n: usize) -> String {
    format!("{{\"index\":{{\"_index\":\"i1\",\"_id\":\"{id}\"}}}}\n{{\"n\":{n},\"more\":\"x\"}}\n")
}
