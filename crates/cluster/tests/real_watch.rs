//! The watch with real clusters: a change there is in the snapshot within a second of the cluster's own
//! answer.

#![allow(
    clippy::disallowed_methods,
    reason = "tests sleep, lock and look at clocks as they like"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cluster::{Address, Cluster, ClusterConfig, Credentials, NodeChoice, NodeOutcome, PickReason, Snapshot};
use serde_json::json;
use testkit::real::{ClusterKind, RealCluster};

const SECOND: Duration = Duration::from_secs(1);

fn watch(real: &RealCluster) -> Result<Arc<Cluster>> {
    let mut config = ClusterConfig::new("real", vec![Address::from_endpoint(&real.url(1))?]);
    if let Some((username, password)) = real.credentials() {
        config.credentials = Credentials::Basic {
            username: username.to_owned(),
            password: settings::Secret::new(password),
        };
    }
    config.tls.ca_file = real.ca_path();
    Ok(Cluster::start(config)?)
}

fn wait_for(
    cluster: &Cluster,
    within: Duration,
    what: &str,
    holds: impl Fn(&Snapshot) -> bool,
) -> Result<Arc<Snapshot>> {
    let begun = Instant::now();
    loop {
        let snapshot = cluster.snapshot();
        if holds(&snapshot) {
            return Ok(snapshot);
        }
        let status = || serde_json::to_string(&cluster.status()).unwrap_or_default();
        ensure!(
            begun.elapsed() < within,
            "not within {within:?}: {what}; {}",
            status()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the id of the node with the first primary of the index that `name` writes to, once all its
/// primaries are known.
fn home(snapshot: &Snapshot, name: &str) -> Option<String> {
    let write = snapshot.table.target(name)?.write().ok()?;
    write.primaries.iter().all(Option::is_some).then_some(())?;
    Some(snapshot.node(write.node(0)?)?.id.clone())
}

/// Checks that changes are seen in time. A busy machine may be late, but not in every round.
fn changes_are_seen(kind: ClusterKind) -> Result<()> {
    let mut all = Vec::new();
    for _ in 0..4 {
        let took = changes(kind)?;
        if took.iter().all(|took| *took < SECOND) {
            return Ok(());
        }
        all.push(took);
    }
    anyhow::bail!("not within a second: {all:?}")
}

/// Changes a cluster in every possible way; returns how long it took until each change was seen.
fn changes(kind: ClusterKind) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    let mut seen = |cluster: &Cluster, what: &str, holds: &dyn Fn(&Snapshot) -> bool| {
        let begun = Instant::now();
        let snapshot = wait_for(cluster, 30 * SECOND, what, holds)?;
        took.push(begun.elapsed());
        anyhow::Ok(snapshot)
    };
    let real = RealCluster::shared(kind)?;
    let client = real.client()?;
    let cluster = watch(&real)?;
    wait_for(&cluster, 20 * SECOND, "learnt", Snapshot::learnt)?;

    let index = real.fresh_name("watch");
    let settings = json!({"settings": {"number_of_shards": 3, "number_of_replicas": 0}});
    client.put(&format!("/{index}"), &settings)?.ok()?;
    let snapshot = seen(&cluster, "new index", &|s| home(s, &index).is_some())?;
    ensure!(snapshot.nodes.len() == real.nodes().len(), "{:?}", snapshot.nodes);
    let predictions = cluster.status().predictions;
    ensure!(
        predictions.indices[&index].right == 1 && !predictions.indices[&index].failed,
        "{predictions:?}"
    );

    // It was made without a mapping, and the first one may still require routing.
    let mapping = json!({"_routing": {"required": true}});
    client.put(&format!("/{index}/_mapping"), &mapping)?.ok()?;
    wait_for(&cluster, 30 * SECOND, "the first mapping", |s| {
        let write = s.table.target(&index).and_then(|t| t.write().ok());
        write.is_some_and(|write| write.routing_required)
    })?;

    let from = home(&snapshot, &index).context("it has a home")?;
    let to = snapshot
        .nodes
        .iter()
        .find(|n| n.id != from)
        .context("there is another node")?
        .name
        .clone();
    let from = snapshot
        .nodes
        .iter()
        .find(|n| n.id == from)
        .context("its home is listed")?
        .name
        .clone();
    let route =
        json!({"commands": [{"move": {"index": index, "shard": 0, "from_node": from, "to_node": to}}]});
    client.post("/_cluster/reroute", &route)?.ok()?;
    let health = format!("/_cluster/health/{index}?wait_for_no_relocating_shards=true&timeout=30s");
    client.get(&health)?.ok()?;
    let moved =
        |s: &Snapshot| home(s, &index).is_some_and(|id| s.nodes.iter().any(|n| n.id == id && n.name == to));
    seen(&cluster, "relocation", &moved)?;

    let alias = real.fresh_name("rolling");
    let (first, second) = (format!("{alias}-000001"), format!("{alias}-000002"));
    let body = json!({"settings": {"number_of_shards": 2, "number_of_replicas": 0},
        "aliases": {alias.as_str(): {"is_write_index": true}}});
    client.put(&format!("/{first}"), &body)?.ok()?;
    let writes_to = |s: &Snapshot, to: &str| {
        s.table
            .target(&alias)
            .and_then(|t| t.write().ok())
            .is_some_and(|write| &*write.name == to)
    };
    seen(&cluster, "alias", &|s| writes_to(s, &first))?;
    let body = json!({"settings": {"number_of_shards": 2, "number_of_replicas": 0}});
    client.post(&format!("/{alias}/_rollover"), &body)?.ok()?;
    seen(&cluster, "rollover", &|s| writes_to(s, &second))?;

    client.delete(&format!("/{index}"))?.ok()?;
    let settings = json!({"settings": {"number_of_shards": 5, "number_of_replicas": 0}});
    client.put(&format!("/{index}"), &settings)?.ok()?;
    let shards = |s: &Snapshot| {
        s.table
            .target(&index)
            .and_then(|t| t.write().ok())
            .map(|w| w.shards())
    };
    seen(&cluster, "deleted and made anew", &|s| shards(s) == Some(5))?;

    client.delete(&format!("/{index}"))?.ok()?;
    seen(&cluster, "deleted", &|s| s.table.target(&index).is_none())?;
    client.delete(&format!("/{first}"))?.ok()?;
    client.delete(&format!("/{second}"))?.ok()?;
    Ok(took)
}

#[test]
fn changes_of_opensearch_are_seen_within_a_second() {
    changes_are_seen(ClusterKind::OpenSearch).unwrap();
}

#[test]
fn changes_of_opensearch_behind_tls_and_a_password_are_seen_within_a_second() {
    changes_are_seen(ClusterKind::OpenSearchSecure).unwrap();
}

#[test]
fn changes_of_elasticsearch_are_seen_within_a_second() {
    changes_are_seen(ClusterKind::Elasticsearch).unwrap();
}

#[test]
fn changes_of_elasticsearch_8_are_seen_within_a_second() {
    changes_are_seen(ClusterKind::Elasticsearch8).unwrap();
}

#[test]
fn changes_of_elasticsearch_7_are_seen_within_a_second() {
    changes_are_seen(ClusterKind::Elasticsearch7).unwrap();
}

#[test]
fn a_killed_node_leaves_and_returns() {
    let real = RealCluster::alone(ClusterKind::Elasticsearch7).unwrap();
    let cluster = watch(&real).unwrap();
    let snapshot = wait_for(&cluster, 20 * SECOND, "learnt", |s| s.nodes.len() == 3).unwrap();
    let dying = snapshot
        .nodes
        .iter()
        .find(|n| n.address.to_string() == real.url(3))
        .unwrap()
        .clone();
    real.kill_node(3).unwrap();
    let chooser = cluster.chooser(NodeChoice::default());
    cluster.report(&dying, NodeOutcome::ConnectRefused, Duration::ZERO);
    for _ in 0..6 {
        assert_ne!(
            chooser
                .pick(&cluster.snapshot(), PickReason::Request, &[])
                .address,
            dying.address
        );
    }
    wait_for(&cluster, 30 * SECOND, "gone from the topology", |s| {
        s.nodes.len() == 2
    })
    .unwrap();
    real.start_node(3).unwrap();
    // If there are no shards to wait for, the cluster is green before the node has joined.
    let joined = real
        .client()
        .unwrap()
        .get("/_cluster/health?wait_for_nodes=3&timeout=50s");
    joined.unwrap().ok().unwrap();
    wait_for(&cluster, 30 * SECOND, "back", |s| {
        s.nodes
            .iter()
            .any(|node| node.address == dying.address && node.health.is_up())
    })
    .unwrap();
}
