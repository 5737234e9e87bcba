//! Delivery finds out how much a node takes at once, and follows changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use testkit::fake::{Behaviour, Counts, FakeCluster, Spec, Workers};

use crate::gateway::Gateway;

const WORKED_FOR: Duration = Duration::from_millis(60);

fn behaviour(at_once: usize) -> Behaviour {
    Behaviour {
        latency: WORKED_FOR,
        workers: Some(Workers {
            at_once,
            waiting_max: 2 * at_once,
        }),
        ..Behaviour::default()
    }
}

/// Starts a gateway with a queue before the cluster, more lanes than any node takes at once, and a backlog.
fn gateway(cluster: &FakeCluster, folder: &std::path::Path, indexing: &str) -> Gateway {
    let file = folder.join("tidegate.yml");
    let text = format!(
        "path.data: {}
admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow:
  - name: f
    filter:
      - bulk_reshuffle: {{elasticsearch: c, mode: async, queue: {{name: q, lanes: 64, min_free: 1mb, fsync: os}}}}
      - elasticsearch: {{elasticsearch: c}}
pipeline:
  - name: p
    retry_delay_in_ms: 50
    processor:
      - bulk_indexing: {{max_connection_per_node: 64, max_worker_size: 64, bulk.batch_size_in_docs: 10{indexing}}}
elasticsearch: [{{name: c, endpoint: '{}'}}]
",
        folder.join("data").display(),
        cluster.urls()[0]
    );
    std::fs::write(&file, text).unwrap();
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    for request in 0..130 {
        let line = |n: usize| {
            format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{request}-{n}\"}}}}\n{{\"n\":{n}}}\n")
        };
        let body: String = (0..640).map(line).collect();
        gateway.bulk(&body).ok().unwrap();
    }
    gateway
}

fn pending(gateway: &Gateway) -> u64 {
    let queues: Value = gateway.admin().get("/queue/stats").unwrap().json().unwrap();
    queues["q"]["groups"]["c"]["pending"].as_u64().unwrap()
}

/// Lets the delivery settle, then counts for a while.
fn count(cluster: &FakeCluster, settle: Duration, window: Duration) -> Counts {
    std::thread::sleep(settle);
    cluster.reset_counts();
    std::thread::sleep(window);
    cluster.counts()
}

#[test]
fn delivery_finds_a_nodes_capacity_and_follows_it_both_ways_without_a_storm_of_refusals() {
    let spec = Spec {
        nodes: 1,
        behaviour: behaviour(8),
        ..Spec::default()
    };
    let cluster = FakeCluster::start(spec.index("logs", 64)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(&cluster, folder.path(), "");
    let window = Duration::from_secs(2);
    for at_once in [8, 3, 12] {
        cluster.set_behaviour(behaviour(at_once));
        cluster.reset_counts();
        std::thread::sleep(Duration::from_millis(2_500));
        let turning = cluster.counts();
        let (mut bulks, mut refused) = (turning.bulks, turning.bulks_refused);
        let could = at_once as u64 * window.as_millis() as u64;
        let mut seen = vec![format!("{at_once} at once: {turning:?}")];
        // On a busy machine, neither the gateway nor the node may be at work in a window.
        let found = (0..5).any(|_| {
            let counts = count(&cluster, Duration::ZERO, window);
            assert!(pending(&gateway) > 1_000, "there is work all the while");
            let limit = gateway.topology()["nodes"][0]["health"]["limit"].clone();
            seen.push(format!("limit {limit}: {counts:?}"));
            (bulks, refused) = (bulks + counts.bulks, refused + counts.bulks_refused);
            counts.worked_ms * 10 > could * 7 && refused * 50 <= bulks
        });
        assert!(found, "{seen:#?}");
    }
}

#[test]
fn without_it_a_node_gets_all_that_connections_allow() {
    let spec = Spec {
        nodes: 1,
        behaviour: behaviour(3),
        ..Spec::default()
    };
    let cluster = FakeCluster::start(spec.index("logs", 64)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let _gateway = gateway(&cluster, folder.path(), ", adaptive_concurrency: false");
    let counts = count(&cluster, Duration::ZERO, Duration::from_secs(1));
    assert!(counts.bulks_refused > 10, "{counts:?}");
}

/// Returns the counts of two seconds, after `settle`, for clients whose bulks of this many documents travel
/// together. On a busy machine, neither the gateway nor the node may be at work in a window, so there are
/// further windows while it is not `enough`.
fn together(
    behaviour: Behaviour,
    (clients, docs): (usize, usize),
    combine: &str,
    settle: Duration,
    enough: impl Fn(&Counts) -> bool,
) -> Counts {
    let spec = Spec {
        nodes: 1,
        behaviour,
        ..Spec::default()
    };
    let cluster = FakeCluster::start(spec.index("logs", 64)).unwrap();
    let gateway = Gateway::with_filters(
        &cluster,
        &format!(
            "      - bulk_reshuffle: {{elasticsearch: c, mode: sync, combine: {{enabled: true, {combine}}}}}
      - elasticsearch: {{elasticsearch: c}}"
        ),
    );
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (stop, gateway) = (&stop, &gateway);
            scope.spawn(move || {
                let connection = gateway.client();
                let line = |n: usize| {
                    format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{client}-{n}\"}}}}\n{{\"n\":{n}}}\n")
                };
                let body: String = (0..docs).map(line).collect();
                while !stop.load(Ordering::Relaxed) {
                    connection.post_ndjson("/_bulk", body.as_bytes()).unwrap();
                }
            });
        }
        let window = Duration::from_secs(2);
        let mut counts = count(&cluster, settle, window);
        for _ in 1..WINDOWS {
            if enough(&counts) {
                break;
            }
            counts = count(&cluster, Duration::ZERO, window);
        }
        stop.store(true, Ordering::Relaxed);
        counts
    })
}

/// The most windows in which one measurement may succeed.
const WINDOWS: usize = 5;

#[test]
fn what_travels_together_waits_for_a_node_that_has_enough_and_is_not_refused() {
    let small = |adaptive: bool, enough: fn(&Counts) -> bool| {
        let combine = format!("flush_threshold_size: 1kb, adaptive_concurrency: {adaptive}");
        let settle = Duration::from_millis(2_500);
        together(behaviour(3), (48, 8), &combine, settle, enough)
    };
    let full = |counts: &Counts| {
        let could = 3 * 2_000;
        counts.bulks_refused * 50 <= counts.bulks && counts.worked_ms * 10 > could * 7
    };
    let counts = small(true, full);
    assert!(full(&counts), "{counts:?}");
    let otherwise = small(false, |counts| counts.bulks_refused > 50);
    assert!(otherwise.bulks_refused > 50, "{otherwise:?}");
}

/// The node has eight threads. Each of them takes 2 ms for the hundred documents of one client, and 16 ms for
/// those of all eight.
#[test]
fn a_node_with_threads_to_spare_is_sent_several_requests_at_once() {
    let indexed = |adaptive: bool, settle: Duration, enough: u64| {
        let behaviour = Behaviour {
            latency: Duration::ZERO,
            work: Duration::from_micros(20),
            ..behaviour(8)
        };
        let combine = format!("adaptive_concurrency: {adaptive}");
        let counts = together(behaviour, (8, 100), &combine, settle, |counts| {
            counts.docs > enough
        });
        assert_eq!(counts.bulks_refused, 0, "{counts:?}");
        counts.docs
    };
    // The two are measured one after the other, and the machine may be busy with other things meanwhile.
    let mut seen = Vec::new();
    let finds_more = (0..3).any(|_| {
        let one = indexed(false, Duration::from_millis(500), 0);
        let found = indexed(true, Duration::from_secs(3), one * 3 / 2);
        seen.push((found, one));
        found * 2 > one * 3
    });
    assert!(finds_more, "documents, and one request at a time: {seen:?}");
}
