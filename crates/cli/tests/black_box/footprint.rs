//! The memory of the whole process, as it is configured by default: below 256 MiB whatever large bulks come
//! together, are delivered and are answered. It is the program of a development build.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::client::Client;
use testkit::fake::{FakeCluster, Fault, Flavour, Injection, Spec, User};

use crate::gateway::Gateway;
use crate::guides;
use crate::home::GatewayHome;
use crate::memory::{large, peak_mib};

/// What the process may have had at most, in MiB: 256 as an optimised program, and the 14 that the code of a
/// development build takes beyond all of that program.
const MOST_MIB: u64 = 256 + 14;

fn stayed_small(gateway: &Gateway, what: &str) {
    let peak = peak_mib(gateway);
    assert!(peak < MOST_MIB, "{what}: {peak} MiB");
}

/// Sends so many bulks by so many clients at once, each again for as long as there is no room for it.
fn all_are_queued(client: &Client, clients: usize, bulks: usize, body: impl Fn(usize) -> String + Sync) {
    let next = AtomicUsize::new(0);
    let send = || {
        let client = client.at(client.origin());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= bulks {
                return;
            }
            let body = body(number);
            loop {
                let answer = client.post_ndjson("/_bulk", body.as_bytes()).unwrap();
                if answer.status != 429 {
                    let answer = answer.ok().unwrap();
                    assert!(
                        answer.header("x-tidegate-ack").is_some(),
                        "{:.300}",
                        answer.text()
                    );
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    };
    std::thread::scope(|scope| (0..clients).for_each(|_| drop(scope.spawn(send))));
}

/// The accounts of the one queue's one group, once nothing is pending or parked.
fn drained(gateway: &Gateway) -> Value {
    let began = Instant::now();
    loop {
        let queues = gateway.admin().get("/queue/stats").unwrap().json().unwrap();
        let queue = queues.as_object().unwrap().values().next().unwrap();
        let group = queue["groups"].as_object().unwrap().values().next().unwrap();
        if group["pending"] == 0 && group["parked"] == 0 {
            return group.clone();
        }
        assert!(began.elapsed() < Duration::from_secs(180), "{queues:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A queue of 16 lanes before 16 indices of one shard: what a bulk has for one of them is one group.
fn before_sixteen(cluster: &FakeCluster) -> GatewayHome {
    let place = GatewayHome::before(&[cluster], "");
    let text = std::fs::read_to_string(&place.file).unwrap();
    std::fs::write(&place.file, text.replace("lanes: 4, ", "")).unwrap();
    place
}

fn sixteen_indices() -> FakeCluster {
    let spec = (0..16).fold(Spec::default(), |spec, n| spec.index(&format!("logs{n}"), 1));
    FakeCluster::start(spec).unwrap()
}

/// Sixteen bulks of 48 MB, with documents of so many KiB, while nodes do not answer; and once more after a
/// kill, when they do.
fn bulks_of_48_mb(kib: usize) {
    let cluster = sixteen_indices();
    let place = before_sixteen(&cluster);
    let documents = (48 << 10) / kib;
    cluster.inject(Injection::bulk(Fault::HangUnwritten).always());
    let mut gateway = place.start();
    let body = |n| large(&format!("logs{n}"), "d", documents, kib);
    all_are_queued(&gateway.client(), 4, 16, body);
    gateway.wait_for_struck(&cluster, 1);
    stayed_small(&gateway, "accepting, with one on its way");
    gateway.signal("KILL");
    gateway.wait();
    cluster.behave();
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_millis(300))).always());
    let gateway = place.start();
    assert_eq!(drained(&gateway)["indexed"], 16 * documents);
    stayed_small(&gateway, "delivering after the kill");
}

#[test]
fn bulks_of_48_mb_for_sixteen_indices_at_once_and_after_a_kill() {
    bulks_of_48_mb(64);
}

#[test]
fn bulks_of_48_mb_of_small_documents_at_once_and_after_a_kill() {
    bulks_of_48_mb(1);
}

#[test]
fn bulks_of_one_document_of_48_mb_at_once_and_after_a_kill() {
    bulks_of_48_mb(48 << 10);
}

/// Of 10,000 documents and 2.7 MB, as the load of the guide makes them.
fn bulk_of_the_guide() -> String {
    let line = |n: usize| {
        let (hash, nth) = (format!("{n:032x}"), n % 1000);
        format!(
            "{{\"index\": {{\"_index\": \"gateway_bulk_test\"}}}}\n{{\"timestamp\": \"2026-05-13T20:50:17.{n:06}\", \
             \"field1\": \"{hash}\", \"field2\": \"{hash}\", \"field3\": \"{hash}\", \"field4\": {nth}, \
             \"field5\": \"A\", \"field6\": 7.25}}\n"
        )
    };
    (0..10_000).map(line).collect()
}

#[test]
fn the_configuration_of_a_guide_with_its_bulks_by_many_clients_over_24_shards() {
    let user = User::new("elastic", "pass").may("*", &["index", "create", "manage"]);
    let spec = Spec::default().basic_auth("admin", "admin").user(user).tls();
    let spec = spec
        .flavour(Flavour::Elasticsearch7)
        .index("gateway_bulk_test", 24);
    let cluster = FakeCluster::start(spec).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let gateway = guides::gateway(folder.path(), &cluster);
    // Slow enough for requests to all nodes to be under way at once.
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_millis(1000))).always());
    let (body, bulks) = (bulk_of_the_guide(), 48);
    let client = gateway.client().basic_auth("elastic", "pass");
    all_are_queued(&client, 32, bulks, |_| body.clone());
    cluster.behave();
    assert_eq!(drained(&gateway)["indexed"], bulks * 10_000);
    stayed_small(&gateway, "32 clients with bulks of 2.7 MB");
}

/// Updates whose answers hold the documents, from nodes that say so whatever they are asked for.
#[test]
fn replies_that_hold_documents_of_many_updates_at_once() {
    let spec = (0..16).fold(Spec::default(), |spec, n| spec.index(&format!("logs{n}"), 1));
    let cluster = FakeCluster::start(spec.storing()).unwrap();
    let place = before_sixteen(&cluster);
    let gateway = place.start();
    cluster.inject(Injection::bulk(Fault::Bloated(256 << 10)).always());
    let documents = 200;
    let body = |bulk: usize| -> String {
        let line = |n| {
            format!(
                "{{\"update\":{{\"_index\":\"logs{bulk}\",\"_id\":\"{n}\",\"_source\":true}}}}\n{{\"doc\":{{\"n\":1}},\"doc_as_upsert\":true}}\n"
            )
        };
        (0..documents).map(line).collect()
    };
    all_are_queued(&gateway.client(), 4, 16, body);
    let one = drained(&gateway);
    assert_eq!(
        (&one["indexed"], &one["dead"]),
        (&(16 * documents).into(), &0.into())
    );
    stayed_small(&gateway, "answers of 800 MiB");
}

/// Documents of 48 MB for eight indices that take nothing: parked, and tried again when they do, each by a
/// key of its own, with the same after a kill.
#[test]
fn documents_of_48_mb_that_are_parked_for_eight_indices_and_tried_again_at_once() {
    let cluster = sixteen_indices();
    let place = before_sixteen(&cluster);
    let text = std::fs::read_to_string(&place.file).unwrap();
    std::fs::write(
        &place.file,
        text.replace("min_free: 1mb", "min_free: 1mb, parked_max_size: 1gb"),
    )
    .unwrap();
    let blocked = r#"{"type":"cluster_block_exception","reason":"index [logsN] blocked by: [FORBIDDEN/8/index write (api)];"}"#;
    let block = |on: bool| {
        for n in 0..8 {
            let error = blocked.replace("logsN", &format!("logs{n}"));
            cluster.refuse_writes(&format!("logs{n}"), on.then_some((403, &*error)));
        }
    };
    block(true);
    let mut gateway = place.start();
    let body = |n| large(&format!("logs{n}"), "d", 1, 48 << 10);
    all_are_queued(&gateway.client(), 1, 8, body);
    let group = crate::home::wait(&gateway, "c0", |one| one["pending"] == 0);
    assert_eq!(group["parked"], 8);
    stayed_small(&gateway, "accepting and parking at once");
    gateway.signal("KILL");
    gateway.wait();
    block(false);
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_millis(300))).always());
    let gateway = place.start();
    let group = drained(&gateway);
    assert_eq!((&group["indexed"], &group["dead"]), (&8.into(), &0.into()));
    stayed_small(&gateway, "trying again");
}
