//! Tests the driver of real clusters with a real cluster: the lightest kind, so that this takes only seconds.

use testkit::real::{ClusterKind, Own, RealCluster};

#[test]
fn a_killed_node_is_missed_and_comes_back_when_the_cluster_is_let_go() {
    let cluster = RealCluster::alone(ClusterKind::Elasticsearch7).expect("the cluster is there");
    cluster.wait_green().expect("green");
    assert_eq!(cluster.urls().len(), 3);
    assert!(cluster.cpu_seconds(2).expect("node 2 runs") > 0.0);
    cluster.kill_node(3).expect("killed");
    assert_eq!((cluster.pid(3), cluster.cpu_seconds(3)), (None, None));
    assert!(cluster.client_of(3).expect("a client").get("/").is_err());
    cluster.pause_node(2).expect("paused");
    drop(cluster);

    let cluster = RealCluster::shared(ClusterKind::Elasticsearch7).expect("the cluster is there");
    cluster.wait_green().expect("green again");
    for node in [1, 2, 3] {
        let seen = cluster
            .client_of(node)
            .expect("a client")
            .get("/_cluster/health")
            .expect("an answer");
        assert_eq!(seen.json().expect("JSON")["number_of_nodes"], 3, "node {node}");
    }
}

#[test]
fn a_cluster_of_ones_own_has_its_settings_and_is_gone_afterwards() {
    let own = Own {
        nodes: 1,
        settings: vec!["http.max_content_length=1mb".into()],
        ..Own::new(ClusterKind::Elasticsearch7)
    };
    let cluster = RealCluster::own(&own).expect("started");
    let client = cluster.client().expect("a client");
    assert_eq!(
        client
            .post_ndjson("/_bulk", &vec![b'\n'; 1 << 21])
            .expect("an answer")
            .status,
        413
    );
    let pid = cluster.pid(1).expect("it runs");
    drop(cluster);
    assert!(
        testkit::real::cpu_seconds(pid).is_none(),
        "process {pid} still runs"
    );
    assert!(client.get("/").is_err());
}

#[test]
#[should_panic(expected = "RealCluster::alone")]
fn a_shared_cluster_cannot_be_disturbed() {
    let cluster = RealCluster::shared(ClusterKind::Elasticsearch7).expect("the cluster is there");
    let _ = cluster.kill_node(1);
}
