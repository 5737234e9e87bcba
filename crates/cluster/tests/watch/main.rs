//! The watch's promises, with a cluster that follows a script.

#![allow(
    clippy::disallowed_methods,
    reason = "tests sleep, lock and look at clocks as they like"
)]

mod fake;
mod health;
mod metadata;
mod polls;
mod tls;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bulk::{NodeIx, Target, Why};
use cluster::{Cluster, ClusterConfig, Credentials, NodeChoice, PickReason, Snapshot, Status, WatchState};
use fake::{Fake, FakeNode};
use serde_json::json;

const SECOND: Duration = Duration::from_secs(1);

/// How long to wait for something that happens by itself: the machine may be busy.
const LONG: Duration = Duration::from_secs(30);

fn config(fake: &Fake) -> ClusterConfig {
    ClusterConfig::new("test", vec![fake.endpoint(0)])
}

fn start(config: ClusterConfig) -> Arc<Cluster> {
    Cluster::start(config).expect("the configuration is sound")
}

/// Waits until something holds of the snapshot; after `within`, panics with what is there instead.
fn wait_for(
    cluster: &Cluster,
    within: Duration,
    what: &str,
    holds: impl Fn(&Snapshot) -> bool,
) -> Arc<Snapshot> {
    let begun = Instant::now();
    loop {
        let snapshot = cluster.snapshot();
        if holds(&snapshot) {
            return snapshot;
        }
        assert!(
            begun.elapsed() < within,
            "not within {within:?}: {what}; {snapshot:#?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wait_status(cluster: &Cluster, within: Duration, holds: impl Fn(&Status) -> bool) -> Status {
    let begun = Instant::now();
    loop {
        let status = cluster.status();
        if holds(&status) {
            return status;
        }
        assert!(begun.elapsed() < within, "not within {within:?}: {status:#?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the names of the nodes that hold the primaries of the index that `name` writes to.
fn homes(snapshot: &Snapshot, name: &str) -> Option<Vec<String>> {
    let write = snapshot.table.target(name)?.write().ok()?;
    let name = |ix: &Option<NodeIx>| {
        ix.and_then(|ix| Some(snapshot.node(ix)?.name.clone()))
            .unwrap_or_default()
    };
    Some(write.primaries.iter().map(name).collect())
}

#[test]
fn a_cluster_is_learnt_from_any_endpoint() {
    let fake = Fake::start(3);
    fake.change(|s| s.index("logs", "u1", &[0, 1, 2, 0]));
    let cluster = start(ClusterConfig::new("test", vec![fake.endpoint(2)]));
    let snapshot = wait_for(&cluster, LONG, "logs is learnt", |s| homes(s, "logs").is_some());
    assert_eq!(
        homes(&snapshot, "logs").unwrap(),
        ["node-0", "node-1", "node-2", "node-0"]
    );
    assert_eq!(snapshot.nodes.len(), 3);
    assert_eq!(snapshot.cluster_uuid.as_deref(), Some("first"));
    assert_eq!(snapshot.max_content_length_bytes, Some(104_857_600));
    let status = cluster.status();
    assert_eq!(
        (status.state, status.flavour),
        (WatchState::Watching, Some("opensearch"))
    );
    assert_eq!(status.predictions.hit_rate, Some(1.0));
    assert!(status.warnings.is_empty(), "{:?}", status.warnings);
}

#[test]
fn an_endpoint_that_is_dead_at_start_is_passed_over() {
    let fake = Fake::start(2);
    let dead = cluster::Address::from_endpoint("http://127.0.0.1:1").unwrap();
    let cluster = start(ClusterConfig::new("test", vec![dead, fake.endpoint(1)]));
    wait_for(&cluster, LONG, "learnt", Snapshot::learnt);
}

#[test]
fn changes_are_seen_within_a_second() {
    // A busy machine may be late, but not in every round.
    let mut all = Vec::new();
    let in_time = (0..4).any(|_| {
        let took = changes();
        let in_time = took.iter().all(|took| *took < SECOND);
        all.push(took);
        in_time
    });
    assert!(in_time, "{all:?}");
}

/// Changes a cluster in every possible way; returns how long it took until each change was seen.
fn changes() -> Vec<Duration> {
    let mut took = Vec::new();
    let mut seen = |cluster: &Cluster, what: &str, holds: &dyn Fn(&Snapshot) -> bool| {
        let begun = Instant::now();
        let snapshot = wait_for(cluster, LONG, what, holds);
        took.push(begun.elapsed());
        snapshot
    };
    let fake = Fake::start(3);
    fake.change(|s| s.index("logs", "u1", &[0, 1]));
    let cluster = start(config(&fake));
    wait_for(&cluster, LONG, "logs is learnt", |s| homes(s, "logs").is_some());

    fake.change(|s| s.index("logs", "u1", &[0, 2]));
    seen(&cluster, "relocation", &|s| {
        homes(s, "logs").is_some_and(|h| h == ["node-0", "node-2"])
    });

    fake.change(|s| s.index("fresh", "u2", &[1, 1, 1]));
    seen(&cluster, "new index", &|s| {
        homes(s, "fresh").is_some_and(|h| h.len() == 3)
    });

    fake.change(|s| {
        s.index(".ds-a-1", "u3", &[0]);
        s.data_streams.insert("a".to_owned(), vec![".ds-a-1".to_owned()]);
    });
    seen(&cluster, "data stream", &|s| {
        homes(s, "a").is_some_and(|h| h == ["node-0"])
    });
    fake.change(|s| {
        s.index(".ds-a-2", "u4", &[1]);
        s.data_streams
            .insert("a".to_owned(), vec![".ds-a-1".to_owned(), ".ds-a-2".to_owned()]);
    });
    seen(&cluster, "rollover", &|s| {
        homes(s, "a").is_some_and(|h| h == ["node-1"])
    });

    fake.change(|s| {
        s.index("logs", "u5", &[2, 2, 2, 2]);
        s.aliases.insert(
            "logs".to_owned(),
            json!({"aliases": {"writes": {"index_routing": "r"}}}),
        );
    });
    let snapshot = seen(&cluster, "made anew", &|s| {
        homes(s, "logs").is_some_and(|h| h.len() == 4)
    });
    assert!(
        matches!(snapshot.table.target("writes"), Some(Target::Alias { index_routing: Some(r), .. }) if &**r == "r")
    );

    fake.change(|s| drop(s.indices.remove("logs")));
    seen(&cluster, "deleted", &|s| s.table.target("logs").is_none());
    took
}

#[test]
fn mappings_are_read_for_new_indices_only() {
    let fake = Fake::start(1);
    fake.change(|s| s.index("old", "u1", &[0, 0]));
    let cluster = start(config(&fake));
    wait_for(&cluster, LONG, "learnt", |s| homes(s, "old").is_some());
    fake.lock().asked.clear();
    fake.change(|s| s.index("new", "u2", &[0, 0]));
    wait_for(&cluster, LONG, "new index", |s| homes(s, "new").is_some());
    let asked = fake.lock().asked.clone();
    let metadata: Vec<_> = asked
        .iter()
        .filter(|t| t.starts_with("/_cluster/state/metadata/"))
        .collect();
    assert!(
        metadata.len() == 1 && metadata[0].starts_with("/_cluster/state/metadata/new?"),
        "{metadata:?}"
    );
}

#[test]
fn a_cluster_rebuilt_behind_the_same_address_is_learnt_anew() {
    let fake = Fake::start(2);
    fake.change(|s| s.index("logs", "u1", &[0, 1]));
    let cluster = start(config(&fake));
    wait_for(&cluster, LONG, "learnt", |s| homes(s, "logs").is_some());
    assert_eq!(cluster.status().predictions.checked, 1);
    fake.change(|s| {
        s.cluster_uuid = "second".to_owned();
        s.version = 0;
        s.indices.clear();
        s.index("other", "u9", &[1, 0]);
    });
    let snapshot = wait_for(&cluster, LONG, "rebuilt", |s| homes(s, "other").is_some());
    assert!(snapshot.table.target("logs").is_none());
    assert_eq!(snapshot.cluster_uuid.as_deref(), Some("second"));
    let predictions = cluster.status().predictions;
    assert_eq!(
        (predictions.checked, predictions.indices.len()),
        (1, 1),
        "statistics begin anew: {predictions:?}"
    );
}

#[test]
fn publish_addresses_out_of_reach_fall_back_to_the_endpoints_and_say_so() {
    let fake = Fake::start(2);
    fake.change(|s| {
        s.nodes[0].publish = "127.0.0.1:1".to_owned();
        s.nodes[1].publish = "127.0.0.1:2".to_owned();
        s.index("logs", "u1", &[0, 1]);
    });
    // Each of both endpoints leads to one node: parts still go to their primaries' nodes.
    let both = vec![fake.endpoint(0), fake.endpoint(1)];
    let cluster = start(ClusterConfig::new("test", both.clone()));
    let snapshot = wait_for(&cluster, LONG, "learnt", |s| homes(s, "logs").is_some());
    assert_eq!(homes(&snapshot, "logs").unwrap(), ["node-0", "node-1"]);
    assert_eq!(
        snapshot
            .nodes
            .iter()
            .map(|n| n.address.clone())
            .collect::<Vec<_>>(),
        both
    );
    assert!(
        snapshot
            .warnings
            .iter()
            .any(|w| w.contains("127.0.0.1:1") && w.contains("endpoint")),
        "{snapshot:#?}"
    );
}

#[test]
fn endpoints_that_hang_are_waited_for_together_and_once() {
    let fake = Fake::start(2);
    fake.change(|s| {
        s.nodes[1].publish = "127.0.0.1:1".to_owned();
        s.index("logs", "u1", &[0, 1]);
    });
    // They accept connections, and never answer.
    let hang: Vec<_> = (0..4)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let hanging = hang.iter().map(|listener| {
        let address = listener.local_addr().unwrap();
        cluster::Address::from_endpoint(&format!("http://{address}")).unwrap()
    });
    let mut endpoints = vec![fake.endpoint(0), fake.endpoint(1)];
    endpoints.extend(hanging);
    let mut config = ClusterConfig::new("test", endpoints);
    config.timeout = 5 * SECOND;
    let begun = Instant::now();
    let cluster = start(config);
    let snapshot = wait_for(&cluster, 2 * LONG, "learnt", |s| homes(s, "logs").is_some());
    assert_eq!(homes(&snapshot, "logs").unwrap(), ["node-0", "node-1"]);
    // One by one, that takes 20 seconds at least.
    assert!(begun.elapsed() < 15 * SECOND, "{:?}", begun.elapsed());
}

#[test]
fn refused_credentials_are_said_clearly_and_requests_still_find_a_node() {
    let fake = Fake::start(1);
    fake.lock().authorization = Some("Basic YWRtaW46YWRtaW4=".to_owned());
    let cluster = start(config(&fake));
    let status = wait_status(&cluster, LONG, |s| s.state == WatchState::Unauthorized);
    assert!(
        status
            .warnings
            .iter()
            .any(|w| w.contains("401") && w.contains("does not let the gateway read")),
        "{:?}",
        status.warnings
    );
    let (snapshot, chooser) = (cluster.snapshot(), cluster.chooser(NodeChoice::default()));
    assert!(!snapshot.learnt());
    assert_eq!(
        chooser.pick(&snapshot, PickReason::Request, &[]).address,
        fake.endpoint(0)
    );

    let credentials = Credentials::Basic {
        username: "admin".to_owned(),
        password: settings::Secret::new("admin"),
    };
    let cluster = start(ClusterConfig {
        credentials,
        ..config(&fake)
    });
    wait_for(&cluster, LONG, "learnt", Snapshot::learnt);
}

#[test]
fn a_node_that_joins_and_cannot_be_reached_yet_is_asked_again() {
    for at_first in [
        |n: &mut FakeNode| n.silent = true,
        |n: &mut FakeNode| n.http = false,
    ] {
        let fake = Fake::start(3);
        fake.change(|s| {
            s.index("logs", "u1", &[0, 1, 2]);
            at_first(&mut s.nodes[2]);
        });
        let cluster = start(config(&fake));
        wait_for(&cluster, LONG, "two nodes are known", |s| s.nodes.len() == 2);
        let warnings = cluster.status().warnings;
        assert!(warnings[0].contains("1 of 3 nodes"), "{warnings:?}");
        // The cluster state does not change when the node's port opens.
        fake.lock().nodes[2].silent = false;
        fake.lock().nodes[2].http = true;
        let snapshot = wait_for(&cluster, LONG, "three nodes are known", |s| s.nodes.len() == 3);
        assert_eq!(homes(&snapshot, "logs").unwrap(), ["node-0", "node-1", "node-2"]);
        let warnings = cluster.status().warnings;
        assert!(warnings.is_empty(), "{warnings:?}");
    }
}

#[test]
fn the_watch_goes_on_by_another_node_when_its_own_dies() {
    let fake = Fake::start(3);
    let cluster = start(config(&fake));
    wait_for(&cluster, LONG, "learnt", |s| s.nodes.len() == 3);
    fake.change(|s| {
        s.nodes[0].alive = false;
        s.index("logs", "u1", &[1, 2]);
    });
    wait_for(&cluster, LONG, "seen by another node", |s| {
        homes(s, "logs").is_some()
    });
}

#[test]
fn an_index_whose_prediction_fails_passes_through_until_it_is_made_anew() {
    let fake = Fake::start(2);
    fake.change(|s| {
        s.lies = true;
        s.index("logs", "u1", &[0, 1, 0]);
    });
    let cluster = start(config(&fake));
    let failed = |s: &Snapshot| {
        matches!(
            s.table.target("logs"),
            Some(Target::Opaque(Why::PredictionFailed))
        )
    };
    wait_for(&cluster, LONG, "failed", failed);
    let status = cluster.status();
    assert_eq!(status.predictions.hit_rate, Some(0.0));
    assert!(status.predictions.indices["logs"].failed);
    fake.change(|s| s.lies = false);
    std::thread::sleep(SECOND);
    assert!(failed(&cluster.snapshot()), "nothing of the index changed");
    fake.change(|s| s.index("logs", "u2", &[0, 1, 0]));
    wait_for(&cluster, LONG, "another chance", |s| homes(s, "logs").is_some());
    assert!(!cluster.status().predictions.indices["logs"].failed);
}

#[test]
fn a_sample_of_the_live_traffic_finds_an_index_that_went_wrong() {
    let fake = Fake::start(2);
    fake.change(|s| s.index("logs", "u1", &[0, 1, 0]));
    let cluster = start(config(&fake));
    let snapshot = wait_for(&cluster, LONG, "learnt", |s| homes(s, "logs").is_some());
    assert!(
        cluster.wants_sample() && !cluster.wants_sample(),
        "one caller at a time"
    );
    let route = snapshot.table.target("logs").unwrap().write().unwrap();
    cluster.sample("logs", "an-id", route.shard("an-id", None));
    let status = wait_status(&cluster, LONG, |s| s.predictions.checked == 2);
    assert_eq!(status.predictions.hit_rate, Some(1.0));
    fake.lock().lies = true;
    cluster.sample("logs", "x", route.shard("x", None));
    wait_for(&cluster, LONG, "failed", |s| {
        matches!(
            s.table.target("logs"),
            Some(Target::Opaque(Why::PredictionFailed))
        )
    });
    assert!(cluster.status().predictions.hit_rate.unwrap() < 1.0);
}

#[test]
fn without_discovery_the_endpoints_are_all_there_is() {
    let fake = Fake::start(2);
    let cluster = start(ClusterConfig {
        discovery: false,
        ..config(&fake)
    });
    std::thread::sleep(Duration::from_millis(300));
    assert!(!cluster.snapshot().learnt() && fake.lock().asked.is_empty());
    assert_eq!(cluster.status().state, WatchState::Off);
}
