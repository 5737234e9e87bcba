//! What the cluster says about an index: what makes no sense, and what changes although the index stays the
//! same one.

use bulk::{Target, Why};
use cluster::{Cluster, Snapshot};

use crate::fake::Fake;
use crate::{LONG, SECOND, config, homes, start, wait_for};

/// Returns why an index is not split, if it is known and not split.
fn why(snapshot: &Snapshot, name: &str) -> Option<Why> {
    match snapshot.table.target(name)? {
        Target::Opaque(why) => Some(*why),
        _ => None,
    }
}

#[test]
fn an_index_whose_metadata_make_no_sense_passes_and_others_are_split() {
    for (routing_shards, partition_size) in [(Some(1), None), (Some(0), None), (None, Some(4_000_000_000))] {
        let fake = Fake::start(1);
        fake.change(|s| {
            s.index("odd", "u1", &[0, 0]);
            s.of("odd").routing_shards = routing_shards;
            s.of("odd").partition_size = partition_size;
            s.index("zzz", "u2", &[0, 0]);
        });
        let cluster = start(config(&fake));
        let snapshot = wait_for(&cluster, LONG, "another index is split", |s| {
            homes(s, "zzz").is_some()
        });
        assert!(snapshot.learnt());
        assert_eq!(why(&snapshot, "odd"), Some(Why::UnknownFormula));
    }
}

/// Whether documents of an index need a routing, as far as the gateway knows.
fn requires_routing(cluster: &Cluster, name: &str) -> Option<bool> {
    let snapshot = cluster.snapshot();
    Some(snapshot.table.target(name)?.write().ok()?.routing_required)
}

#[test]
fn an_index_that_gets_its_first_mapping_later_is_read_again() {
    let fake = Fake::start(1);
    let cluster = start(config(&fake));
    wait_for(&cluster, LONG, "learnt", Snapshot::learnt);
    fake.change(|s| {
        s.index("logs", "u1", &[0, 0]);
        s.of("logs").mapping_version = Some(1);
    });
    wait_for(&cluster, LONG, "a new index", |s| homes(s, "logs").is_some());
    assert_eq!(requires_routing(&cluster, "logs"), Some(false));
    // Something else happens, and then the mapping comes and nothing more.
    fake.change(|s| s.index("else", "u3", &[0, 0]));
    wait_for(&cluster, LONG, "something else", |s| homes(s, "else").is_some());
    fake.change(|s| {
        s.of("logs").mapping_version = Some(2);
        s.of("logs").routing_required = true;
    });
    wait_for(&cluster, LONG, "the mapping", |_| {
        requires_routing(&cluster, "logs") == Some(true)
    });
    // It has a mapping now, and is read no more.
    fake.lock().asked.clear();
    fake.change(|s| s.index("logs-2", "u2", &[0, 0]));
    wait_for(&cluster, LONG, "a new index", |s| homes(s, "logs-2").is_some());
    let asked = fake.lock().asked.clone();
    assert!(
        !asked
            .iter()
            .any(|t| t.contains("/metadata/logs?") || t.contains("/metadata/logs,"))
    );
}

#[test]
fn an_index_that_was_restored_over_a_closed_one_is_read_and_checked_again() {
    for seen_closed in [true, false] {
        let fake = Fake::start(1);
        fake.change(|s| s.index("logs", "u1", &[0, 0, 0]));
        let cluster = start(config(&fake));
        wait_for(&cluster, LONG, "learnt", |s| homes(s, "logs").is_some());
        let before = cluster.status().predictions.checked;
        if seen_closed {
            fake.change(|s| s.of("logs").closed = true);
            wait_for(&cluster, LONG, "closed", |s| {
                why(s, "logs") == Some(Why::IndexClosed)
            });
        }
        // As a restore does: the same uuid, another history.
        fake.change(|s| {
            s.of("logs").closed = false;
            s.of("logs").routing_shards = Some(9);
            s.of("logs").history = (!seen_closed).then(|| "another".to_owned());
        });
        let snapshot = wait_for(&cluster, LONG, "restored", |s| {
            homes(s, "logs").is_some() && cluster.status().predictions.checked > before
        });
        let route = snapshot.table.target("logs").unwrap().write().unwrap();
        assert_eq!(
            route.formula,
            bulk::Formula::Classic {
                routing_num_shards: 9
            }
        );
        assert_eq!(cluster.status().predictions.hit_rate, Some(1.0));
    }
}

#[test]
fn metadata_are_read_again_once_before_a_prediction_counts_as_failed() {
    let fake = Fake::start(1);
    fake.change(|s| s.index("logs", "u1", &[0, 0, 0]));
    let cluster = start(config(&fake));
    let snapshot = wait_for(&cluster, LONG, "learnt", |s| homes(s, "logs").is_some());
    let known = snapshot.table.target("logs").unwrap().write().unwrap();
    // Something that changes the metadata without a trace elsewhere.
    fake.change(|s| s.of("logs").routing_shards = Some(9));
    std::thread::sleep(SECOND);
    let now = bulk::IndexRoute::new(
        "logs",
        bulk::Formula::Classic {
            routing_num_shards: 9,
        },
        vec![None; 3],
    );
    let id = (0..)
        .map(|n| n.to_string())
        .find(|id| now.shard(id, None) != known.shard(id, None));
    let id = id.unwrap();
    cluster.sample("logs", &id, known.shard(&id, None));
    let snapshot = wait_for(&cluster, LONG, "read again", |s| {
        let route = s.table.target("logs").and_then(|target| target.write().ok());
        route.is_some_and(|route| route.formula == now.formula && route.opaque.is_none())
    });
    assert_eq!(why(&snapshot, "logs"), None);
    assert!(!cluster.status().predictions.indices["logs"].failed);
}
