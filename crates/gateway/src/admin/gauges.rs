//! The metrics besides counters: the state of entries, memory, clusters and nodes.

use std::net::SocketAddr;
use std::sync::Arc;

use wire::{Budget, ServerCounts};

use super::AdminState;
use super::process::write_process;
use wire::exposition::{Exposition, Metric, escape};

use crate::delivery::Usage;
use crate::flow_counts::FlowSums;
use crate::metrics::PREFIX;
use crate::switches::admin;

impl AdminState {
    pub(super) fn counts(&self) -> Vec<(Arc<str>, SocketAddr, ServerCounts)> {
        let listeners = self.listeners.lock();
        listeners.counts()
    }

    /// Returns the names of the entries that have TLS.
    pub(super) fn secured(&self) -> Vec<Arc<str>> {
        self.listeners.lock().secured()
    }

    /// Returns the certificate chain (PEM) that each entry with TLS presents now.
    pub(super) fn certificates(&self) -> Vec<(Arc<str>, Vec<u8>)> {
        let listeners = self.listeners.lock();
        listeners.certificates()
    }

    pub(super) fn write_gauges(&self, page: &mut String) {
        let mut out = Exposition::new(page);
        write_process(&mut out);
        self.write_configuration(&mut out);
        self.write_expiries(&mut out);
        let of = |kind: &str, name: &str| format!("{kind}=\"{}\"", escape(name));
        let entries = self.counts();
        let entries = entries
            .iter()
            .map(|(name, _, counts)| (of("entry", name), counts));
        out.table(PREFIX, &OF_ENTRIES, &entries.collect::<Vec<_>>());
        let live = self.shared.live.load_full();
        let flows = live.config.flows.keys();
        let flows: Vec<_> = flows
            .map(|name| (of("flow", name), self.shared.metrics.flow(name)))
            .collect();
        let flows = flows.iter().map(|(labels, sums)| (labels.clone(), sums));
        out.table(PREFIX, &OF_FLOWS, &flows.collect::<Vec<_>>());
        out.table(PREFIX, &OF_BODIES, &[(String::new(), &*self.budget)]);
        out.table(
            PREFIX,
            &OF_DELIVERY,
            &[(String::new(), &self.shared.delivery_memory.usage())],
        );
        let spans = &self.shared.spans;
        let dropped = [
            ("queue_full", spans.overflowed()),
            ("not_exported", spans.failed()),
        ];
        out.metric(
            "tidegate_spans_exported_total",
            "counter",
            "Spans of traced requests that the collector has taken.",
            [(String::new(), spans.exported())],
        );
        out.metric(
            "tidegate_spans_dropped_total",
            "counter",
            "Spans of traced requests that were dropped, by reason.",
            dropped.map(|(why, count)| (of("why", why), count)),
        );
        let clusters = live.clusters.iter();
        let statuses: Vec<_> = clusters
            .map(|(name, cluster)| (of("cluster", name), cluster.status()))
            .collect();
        let clusters = statuses.iter().map(|(labels, status)| (labels.clone(), status));
        out.table(PREFIX, &OF_CLUSTERS, &clusters.collect::<Vec<_>>());
        let switches = admin::gauges(&live.config, &self.shared.switches);
        let switches = switches
            .iter()
            .map(|(name, gauges)| (of("cluster", name), gauges));
        out.table(PREFIX, &OF_SWITCHES, &switches.collect::<Vec<_>>());
        let nodes = statuses.iter().flat_map(|(cluster, status)| {
            let nodes = status.nodes.iter();
            nodes.map(move |node| (format!("{cluster},{}", of("node", &node.name)), &node.health))
        });
        out.table(PREFIX, &OF_NODES, &nodes.collect::<Vec<_>>());
    }
}

/// Metrics of each entry.
const OF_ENTRIES: [Metric<ServerCounts>; 6] = [
    ("connections", "gauge", "Open client connections.", |counts| {
        Some(counts.connections as f64)
    }),
    ("in_flight", "gauge", "Requests being answered now.", |counts| {
        Some(counts.in_flight as f64)
    }),
    (
        "accepted_total",
        "counter",
        "Client connections accepted.",
        |counts| Some(counts.accepted as f64),
    ),
    (
        "turned_away_total",
        "counter",
        "Client connections closed on arrival: there were max_concurrency already, all with requests under way.",
        |counts| Some(counts.turned_away as f64),
    ),
    (
        "made_room_total",
        "counter",
        "Client connections closed for new ones: there were max_concurrency, and they had no request under way.",
        |counts| Some(counts.made_room as f64),
    ),
    (
        "handshakes_failed_total",
        "counter",
        "TLS handshakes with clients that failed.",
        |counts| Some(counts.handshakes_failed as f64),
    ),
];

/// Metrics of each flow.
const OF_FLOWS: [Metric<FlowSums>; 5] = [
    (
        "flow_requests_total",
        "counter",
        "Requests that went through a flow; of several flows, the first that had a filter for them counts.",
        |flow| Some(flow.requests as f64),
    ),
    (
        "flow_docs_total",
        "counter",
        "Documents of bulk requests that a flow has split, and of single writes that it has sent as bulks.",
        |flow| Some(flow.docs as f64),
    ),
    (
        "flow_docs_queued_total",
        "counter",
        "Documents that a flow has put into a queue.",
        |flow| Some(flow.docs_queued as f64),
    ),
    (
        "flow_bulk_passed_total",
        "counter",
        "Bulk requests that a flow has passed through whole.",
        |flow| Some(flow.bulk_passed() as f64),
    ),
    (
        "flow_single_passed_total",
        "counter",
        "Single-document writes that a flow has passed on as they came.",
        |flow| Some(flow.single_passed() as f64),
    ),
];

/// Metrics of request bodies.
const OF_BODIES: [Metric<Budget>; 4] = [
    (
        "buffers_bytes",
        "gauge",
        "Memory in pooled buffers, idle ones included, and in parts that wait to be combined.",
        |budget| Some(budget.used() as f64),
    ),
    (
        "buffers_bytes_max",
        "gauge",
        "Upper bound of tidegate_buffers_bytes.",
        |budget| Some(budget.limit() as f64),
    ),
    (
        "bodies_shrunk_total",
        "counter",
        "Request bodies that gave back memory which they had declared and not sent, because others waited for it.",
        |budget| Some(budget.bodies_shrunk() as f64),
    ),
    (
        "bodies_cut_total",
        "counter",
        "Request bodies, and answers that were read too slowly, that were cut off because others waited for the memory that they held.",
        |budget| Some(budget.bodies_cut() as f64),
    ),
];

/// Metrics of the memory that deliveries hold.
const OF_DELIVERY: [Metric<Usage>; 3] = [
    (
        "delivery_memory_bytes",
        "gauge",
        "Memory that deliveries hold for documents and long answers of nodes.",
        |memory| Some(memory.held as f64),
    ),
    (
        "delivery_memory_bytes_max",
        "gauge",
        "Upper bound of tidegate_delivery_memory_bytes, which only one request that is larger than half of it exceeds.",
        |memory| Some(memory.max as f64),
    ),
    (
        "delivery_memory_lanes_waiting",
        "gauge",
        "Lanes of queues that wait for delivery memory.",
        |memory| Some(memory.waiting as f64),
    ),
];

/// Metrics of each cluster.
const OF_CLUSTERS: [Metric<cluster::Status>; 7] = [
    (
        "cluster_polled_ago_seconds",
        "gauge",
        "Time since the cluster last answered the watch.",
        |status| status.polled_ago_ms.map(|ms| ms as f64 / 1e3),
    ),
    (
        "cluster_watched",
        "gauge",
        "Whether the cluster answers the watch; the metric is absent where discovery is off.",
        |status| match status.state {
            cluster::WatchState::Off => None,
            state => Some(f64::from(u8::from(state == cluster::WatchState::Watching))),
        },
    ),
    (
        "cluster_rebuilt_total",
        "counter",
        "How often another cluster was found at the addresses of the previous one, because the cluster was built anew.",
        |status| Some(status.polls.rebuilt as f64),
    ),
    (
        "cluster_generation",
        "gauge",
        "Snapshots of the topology so far.",
        |status| Some(status.generation as f64),
    ),
    (
        "cluster_predictions_checked_total",
        "counter",
        "Predicted shards compared with the cluster's own answer.",
        |status| Some(status.predictions.checked as f64),
    ),
    (
        "cluster_predictions_right_total",
        "counter",
        "Predicted shards that agreed with the cluster's own answer.",
        |status| Some(status.predictions.right as f64),
    ),
    (
        "cluster_account_refused",
        "gauge",
        "Whether the cluster refuses the gateway's account, or wants one and none is configured.",
        |status| {
            let refused = matches!(status.state, cluster::WatchState::Unauthorized);
            Some(f64::from(u8::from(refused)))
        },
    ),
];

/// Metrics of the switches of each cluster.
const OF_SWITCHES: [Metric<admin::Gauges>; 3] = [
    (
        "switches",
        "gauge",
        "Switches that were set at run time and take precedence over the configuration.",
        |gauges| Some(gauges.switches as f64),
    ),
    (
        "combining_filters",
        "gauge",
        "Filters that combine small parts of different bulks now.",
        |gauges| Some(gauges.combining as f64),
    ),
    (
        "directing_filters",
        "gauge",
        "Filters that give documents with neither id nor routing a shard now; indices with a switch of their own may differ.",
        |gauges| Some(gauges.directing as f64),
    ),
];

/// Metrics of each node.
const OF_NODES: [Metric<cluster::HealthStatus>; 4] = [
    (
        "node_up",
        "gauge",
        "Whether a node is in the rotation.",
        |health| Some(f64::from(u8::from(health.up))),
    ),
    (
        "node_slowness",
        "gauge",
        "How many times longer a node's answers take than the cluster's to requests of the same size.",
        |health| Some(health.slowness.into()),
    ),
    (
        "node_in_flight",
        "gauge",
        "Exchanges under way with a node.",
        |health| Some(health.in_flight.into()),
    ),
    (
        "node_limit",
        "gauge",
        "Requests from queues that a node is sent at once, as its answers have shown.",
        |health| Some(health.limit as f64),
    ),
];
