//! When the cluster is asked, and when it is left alone.

use std::time::{Duration, Instant};

use cluster::{ClusterConfig, NodeOutcome, Snapshot};
use serde_json::json;

use crate::fake::{Fake, Trick};
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

/// Returns how often something with this text in its target was asked for.
fn asked_for(fake: &Fake, text: &str) -> usize {
    let script = fake.lock();
    script.asked.iter().filter(|target| target.contains(text)).count()
}

#[test]
fn indices_that_cannot_be_checked_are_tried_less_and_less_and_the_cluster_is_left_alone() {
    for refused in [true, false] {
        let fake = Fake::start(1);
        fake.change(|s| {
            s.index("bad", "u1", &[0, 0, 0]);
            s.index("good", "u2", &[0, 0, 0]);
            match refused {
                true => s
                    .tricks
                    .push(("/bad/_search_shards".to_owned(), Trick::Status(403))),
                false => s.of("bad").red = true,
            }
        });
        let cluster = start(ClusterConfig {
            refresh: Some(60 * SECOND),
            ..config(&fake)
        });
        wait_for(&cluster, LONG, "the good one", |s| homes(s, "good").is_some());
        // The next try is due in about 6 s.
        std::thread::sleep(7 * SECOND);
        let (checks, all) = (asked_for(&fake, "/bad/_search_shards"), fake.lock().asked.len());
        assert!((2..=12).contains(&checks), "checks: {checks}, refused: {refused}");
        assert!(all < 50, "all: {all}, refused: {refused}");
        // When its primaries are back, it is checked at once.
        fake.change(|s| {
            s.tricks.clear();
            s.of("bad").red = false;
            s.of("bad").primaries = vec![0, 0, 0];
        });
        cluster.hint();
        let patience = if refused { LONG } else { 5 * SECOND };
        wait_for(&cluster, patience, "the bad one", |s| homes(s, "bad").is_some());
    }
}

#[test]
fn an_index_whose_check_is_slow_does_not_keep_others_from_theirs_nor_changes_from_being_seen() {
    let fake = Fake::start(1);
    fake.change(|s| {
        // Aliases make it the first that is checked.
        s.index("slow", "u1", &[0, 0, 0]);
        s.aliases
            .insert("slow".to_owned(), json!({"aliases": {"writes": {}}}));
        s.tricks
            .push(("/slow/_search_shards".to_owned(), Trick::Late(60 * SECOND)));
    });
    let begun = Instant::now();
    let cluster = start(config(&fake));
    wait_for(&cluster, LONG, "the topology is published before checks", |s| {
        s.table.target("slow").is_some()
    });
    assert!(begun.elapsed() < 8 * SECOND, "{:?}", begun.elapsed());
    for n in 0..5 {
        fake.change(|s| s.index(&format!("other-{n}"), &format!("o{n}"), &[0, 0]));
    }
    let begun = Instant::now();
    wait_for(&cluster, LONG, "the others are checked", |s| {
        (0..5).all(|n| homes(s, &format!("other-{n}")).is_some())
    });
    assert!(begun.elapsed() < 8 * SECOND, "{:?}", begun.elapsed());
}

#[test]
fn a_node_list_that_cannot_be_read_does_not_keep_changes_of_indices_from_being_seen() {
    let fake = Fake::start(3);
    fake.change(|s| s.index("logs", "u1", &[0, 1]));
    let cluster = start(config(&fake));
    wait_for(&cluster, LONG, "learnt", |s| homes(s, "logs").is_some());
    assert!(
        asked_for(&fake, "/_nodes/http,settings?timeout=2s&") > 0,
        "a node that hangs is waited for by the server: it has to know for how long"
    );
    fake.change(|s| {
        s.tricks
            .push(("/_nodes/http,settings".to_owned(), Trick::Status(500)));
        s.nodes.pop();
        s.index("logs", "u1", &[1, 0]);
    });
    wait_for(&cluster, LONG, "the move", |s| {
        homes(s, "logs").is_some_and(|homes| homes == ["node-1", "node-0"])
    });
    fake.change(|s| s.index("more", "u2", &[1, 1]));
    wait_for(&cluster, LONG, "a new index", |s| homes(s, "more").is_some());
    assert_eq!(
        cluster.snapshot().nodes.len(),
        3,
        "the nodes are those known before"
    );
    fake.lock().tricks.clear();
    wait_for(&cluster, LONG, "the nodes are asked again", |s| {
        s.nodes.len() == 2
    });
}

#[test]
fn what_was_read_because_of_a_sample_is_published_even_if_the_sample_cannot_be_asked_about_again() {
    let fake = Fake::start(2);
    fake.change(|s| s.index("logs", "u1", &[0, 1, 0]));
    let cluster = start(ClusterConfig {
        refresh: None,
        ..config(&fake)
    });
    let snapshot = wait_for(&cluster, LONG, "learnt", |s| homes(s, "logs").is_some());
    let route = snapshot.table.target("logs").unwrap().write().unwrap();
    let wrong = (route.shard("x", None) + 1) % 3;
    nothing_under_way(&fake);
    fake.lock().asked.clear();
    // The second question about the sample fails: the first is late enough for that.
    fake.change(|s| {
        s.index("new", "u2", &[1]);
        s.tricks.push((
            "/_cluster/state/version,master_node,nodes".to_owned(),
            Trick::Late(SECOND),
        ));
    });
    cluster.sample("logs", "x", wrong);
    while asked_for(&fake, "/_cluster/state/version,master_node,nodes") == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    fake.lock()
        .tricks
        .push(("/logs/_search_shards".to_owned(), Trick::Status(500)));
    wait_for(&cluster, LONG, "what was read", |s| homes(s, "new").is_some());
}

#[test]
fn a_cluster_that_a_sample_finds_rebuilt_is_learnt_anew() {
    let fake = Fake::start(2);
    fake.change(|s| s.index("logs", "u1", &[0, 1, 0]));
    let cluster = start(ClusterConfig {
        refresh: None,
        ..config(&fake)
    });
    let snapshot = wait_for(&cluster, LONG, "learnt", |s| homes(s, "logs").is_some());
    let route = snapshot.table.target("logs").unwrap().write().unwrap();
    let wrong = (route.shard("x", None) + 1) % 3;
    nothing_under_way(&fake);
    fake.change(|s| {
        s.cluster_uuid = "second".to_owned();
        s.index("logs", "u1", &[1, 0, 1]);
    });
    cluster.sample("logs", "x", wrong);
    wait_for(&cluster, LONG, "rebuilt", |s| {
        s.cluster_uuid.as_deref() == Some("second") && homes(s, "logs").is_some()
    });
    assert_eq!(cluster.status().polls.rebuilt, 1);
}
