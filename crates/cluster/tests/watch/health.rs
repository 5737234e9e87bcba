//! Nodes that leave the rotation, and how they return.

use std::time::{Duration, Instant};

use cluster::{ClusterConfig, NodeChoice, NodeOutcome, PickReason};

use crate::fake::Fake;
use crate::{LONG, SECOND, config, start, wait_for};

#[test]
fn a_dead_node_leaves_the_rotation_at_once_and_returns_by_probe() {
    let fake = Fake::start(2);
    let cluster = start(config(&fake));
    let snapshot = wait_for(&cluster, LONG, "learnt", |s| s.nodes.len() == 2);
    fake.lock().nodes[1].alive = false;
    let chooser = cluster.chooser(NodeChoice::default());
    let dying = snapshot.nodes.iter().find(|n| n.name == "node-1").unwrap();
    cluster.report(dying, NodeOutcome::ConnectRefused, Duration::ZERO);
    for _ in 0..10 {
        assert_eq!(
            chooser.pick(&cluster.snapshot(), PickReason::Request, &[]).name,
            "node-0"
        );
    }
    std::thread::sleep(Duration::from_millis(700));
    assert!(
        !dying.health.is_up(),
        "a probe that is not answered brings nobody back"
    );
    fake.lock().nodes[1].alive = true;
    let begun = Instant::now();
    while !dying.health.is_up() {
        assert!(begun.elapsed() < LONG, "the probe never came");
        std::thread::sleep(Duration::from_millis(10));
    }
    let picked: Vec<_> = (0..4)
        .map(|_| {
            chooser
                .pick(&cluster.snapshot(), PickReason::Request, &[])
                .name
                .clone()
        })
        .collect();
    assert!(picked.contains(&"node-1".to_owned()), "{picked:?}");
}

#[test]
fn a_node_without_an_elected_node_is_out_until_it_follows_one_again() {
    let fake = Fake::start(2);
    let cluster = start(ClusterConfig {
        refresh: Some(60 * SECOND),
        ..config(&fake)
    });
    let snapshot = wait_for(&cluster, LONG, "learnt", |s| s.nodes.len() == 2);
    let lost = snapshot.nodes.iter().find(|node| node.name == "node-1").unwrap();
    fake.lock().nodes[1].lost = true;
    cluster.report(lost, NodeOutcome::Incapable, Duration::ZERO);
    std::thread::sleep(SECOND);
    assert!(
        !lost.health.is_up(),
        "it answers probes, and can do nothing all the same"
    );
    fake.lock().nodes[1].lost = false;
    let begun = Instant::now();
    while !lost.health.is_up() {
        assert!(begun.elapsed() < LONG, "the probe never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}
