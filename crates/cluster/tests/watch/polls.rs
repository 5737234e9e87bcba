//! When the cluster is asked, and when it is left alone.

use std::time::{Duration, Instant};

use cluster::{ClusterConfig, NodeOutcome, Snapshot};

use crate::fake::Fake;
use crate::{LONG, SECOND, config, homes, start, wait_for, wait_status};

#[test]
fn a_hint_is_faster_than_the_refresh() {
    let fake = Fake::start(1);
    let cluster = start(ClusterConfig {
        refresh: Some(60 * SECOND),
        ..config(&fake)
    });
    wait_for(&cluster, LONG, "learnt", Snapshot::learnt);
    fake.change(|s| s.index("logs", "u1", &[0, 0]));
    cluster.hint();
    wait_for(&cluster, LONG, "new index", |s| homes(s, "logs").is_some());
}

/// Waits until a cluster has not been asked anything for a while.
fn nothing_under_way(fake: &Fake) {
    let asked = || fake.lock().asked.len();
    let (begun, mut before) = (Instant::now(), asked());
    loop {
        std::thread::sleep(SECOND / 2);
        if asked() == before {
            return;
        }
        assert!(begun.elapsed() < LONG, "it is asked again and again");
        before = asked();
    }
}

#[test]
fn a_cluster_that_is_not_polled_is_read_at_the_start_and_when_something_hints_at_a_change() {
    let fake = Fake::start(2);
    fake.change(|s| s.index("logs", "u1", &[0, 1]));
    let cluster = start(ClusterConfig {
        refresh: None,
        ..config(&fake)
    });
    let snapshot = wait_for(&cluster, LONG, "learnt", |s| homes(s, "logs").is_some());
    nothing_under_way(&fake);
    fake.lock().asked.clear();
    fake.change(|s| s.index("new", "u2", &[1]));
    std::thread::sleep(2 * SECOND);
    let asked = fake.lock().asked.clone();
    assert!(
        asked.is_empty(),
        "nothing is asked unless there is a reason: {asked:?}"
    );
    cluster.hint();
    wait_for(&cluster, LONG, "an answer hinted at it", |s| {
        homes(s, "new").is_some()
    });

    fake.change(|s| s.index("logs", "u1", &[1, 0]));
    let node = snapshot.nodes.iter().find(|node| node.name == "node-1").unwrap();
    cluster.report(node, NodeOutcome::ConnectRefused, Duration::ZERO);
    wait_for(&cluster, LONG, "a node failed", |s| {
        homes(s, "logs").is_some_and(|homes| homes == ["node-1", "node-0"])
    });

    fake.change(|s| s.index("logs", "u3", &[1, 0, 1, 0, 1]));
    std::thread::sleep(SECOND / 2);
    cluster.sample("logs", "a-routing-value", 9);
    wait_for(&cluster, LONG, "a prediction was wrong", |s| {
        homes(s, "logs").is_some_and(|homes| homes.len() == 5)
    });
}

#[test]
fn a_cluster_that_is_not_polled_is_tried_until_it_answers() {
    let fake = Fake::start(1);
    fake.lock().nodes[0].alive = false;
    let cluster = start(ClusterConfig {
        refresh: None,
        ..config(&fake)
    });
    wait_status(&cluster, LONG, |s| s.polls.failed > 1);
    fake.lock().nodes[0].alive = true;
    wait_for(&cluster, LONG, "learnt", Snapshot::learnt);
}

#[test]
fn a_watch_that_is_stopped_asks_nothing_more() {
    let fake = Fake::start(1);
    let cluster = start(config(&fake));
    wait_for(&cluster, LONG, "learnt", Snapshot::learnt);
    cluster.stop();
    nothing_under_way(&fake);
    fake.lock().asked.clear();
    std::thread::sleep(SECOND);
    let asked = fake.lock().asked.clone();
    assert!(asked.is_empty(), "{asked:?}");
}

#[test]
fn an_unchanged_cluster_is_asked_for_its_version_only() {
    let fake = Fake::start(1);
    let cluster = start(ClusterConfig {
        refresh: Some(Duration::from_millis(20)),
        ..config(&fake)
    });
    wait_for(&cluster, LONG, "learnt", Snapshot::learnt);
    wait_status(&cluster, LONG, |s| s.polls.total > 3);
    fake.lock().asked.clear();
    let before = cluster.status().polls.total;
    wait_status(&cluster, LONG, |s| s.polls.total > before + 12);
    let asked = fake.lock().asked.clone();
    assert!(
        asked.len() > 5
            && asked
                .iter()
                .all(|t| t.starts_with("/_cluster/state/version,master_node?")),
        "{asked:?}"
    );
}
