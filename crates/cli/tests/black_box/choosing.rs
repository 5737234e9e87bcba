//! Which nodes get requests that have no destination of their own.

use testkit::fake::FakeCluster;

use crate::gateway::{Gateway, body, cluster};

/// Returns the `host:port` of a node, as filters name it.
fn host(cluster: &FakeCluster, node: usize) -> String {
    cluster.addresses()[node].to_string()
}

#[test]
fn each_filter_has_nodes_of_its_own() {
    let cluster = cluster();
    let (first, last) = (host(&cluster, 0), host(&cluster, 2));
    let gateway = Gateway::with_filters(
        &cluster,
        &format!(
            "      - elasticsearch: {{elasticsearch: c, filter.hosts.include: ['{last}'], when: {{exists: _ctx.request.header.x-last}}}}
      - elasticsearch: {{elasticsearch: c, weights: [{{host: '{first}', weight: 2}}, {{host: '{last}', weight: 0}}]}}"
        ),
    );
    for _ in 0..6 {
        let ndjson = ("content-type", "application/x-ndjson");
        let send = |headers: &[(&str, &str)]| {
            let answer = gateway
                .client()
                .send("POST", "/_bulk", headers, body(1).as_bytes());
            answer.unwrap().ok().unwrap();
        };
        send(&[ndjson]);
        send(&[ndjson, ("x-last", "yes")]);
    }
    // Two of the three nodes take turns; a node that looks slow for a while, on a busy machine, misses its
    // turn.
    let taken = cluster.counts().docs_by_node;
    assert_eq!((taken[0] + taken[1], taken[2]), (6, 6), "{taken:?}");
    assert!(taken[0] >= 3 && taken[1] >= 1, "{taken:?}");
    let choices = gateway.topology()["choices"].as_array().unwrap().clone();
    assert_eq!(choices.len(), 2, "{choices:?}");
    assert!(choices.iter().all(|choice| choice["ignored"] == false));
}

#[test]
fn documents_without_a_destination_go_where_the_flow_would_have_forwarded_them() {
    let cluster = cluster();
    let gateway = Gateway::with_filters(
        &cluster,
        &format!(
            "      - bulk_reshuffle: {{elasticsearch: c, mode: sync}}
      - elasticsearch: {{elasticsearch: c, filter.hosts.exclude: ['{}']}}",
            host(&cluster, 1)
        ),
    );
    for _ in 0..6 {
        gateway
            .bulk("{\"index\":{\"_index\":\"logs\"}}\n{}\n")
            .ok()
            .unwrap();
    }
    assert_eq!(cluster.counts().docs_by_node, [3, 0, 3]);
    cluster.reset_counts();
    gateway.bulk(&body(300)).ok().unwrap();
    assert_eq!(
        cluster.counts().misrouted,
        0,
        "primaries' nodes get theirs all the same"
    );
}

#[test]
fn a_choice_that_leaves_no_node_is_ignored_and_said() {
    let cluster = cluster();
    let gateway = Gateway::with_filters(
        &cluster,
        "      - elasticsearch: {elasticsearch: c, filter.hosts.include: ['10.9.9.9:9200']}",
    );
    gateway.client().get("/_cluster/health").unwrap().ok().unwrap();
    let topology = gateway.topology();
    assert_eq!(topology["choices"][0]["ignored"], true, "{topology:#}");
    assert!(
        topology["warnings"][0].as_str().unwrap().contains("are ignored"),
        "{topology:#}"
    );
    let log = gateway.logged("leave no node and are ignored");
    assert_eq!(log.matches("leave no node and are ignored").count(), 1, "{log}");
}
