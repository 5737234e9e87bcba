//! What `/metrics` has beside counters: the state of entries, memory, clusters and nodes.

use std::net::SocketAddr;
use std::sync::Arc;

use wire::ServerCounts;
use wire::lock;

use super::AdminState;
use super::process::write_process;
use crate::switches::admin;

impl AdminState {
    pub(super) fn counts(&self) -> Vec<(Arc<str>, SocketAddr, ServerCounts)> {
        let listeners = lock(&self.listeners);
        listeners.counts()
    }

    /// The certificate chain (PEM) that each entry with TLS shows now.
    pub(super) fn certificates(&self) -> Vec<(Arc<str>, Vec<u8>)> {
        let listeners = lock(&self.listeners);
        listeners.certificates()
    }

    pub(super) fn write_gauges(&self, out: &mut String) {
        use std::fmt::Write as _;
        // Writing to a String cannot fail.
        let mut whole = |name: &str, kind: &str, help: &str, samples: &[(String, f64)]| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in samples {
                let _ = writeln!(out, "{name}{labels} {value}");
            }
        };
        write_process(&mut whole);
        self.write_configuration(&mut whole);
        self.write_expiries(&mut whole);
        let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, f64)]| {
            whole(&format!("tidegate_{name}"), kind, help, samples);
        };
        let counts = self.counts();
        let by_entry = |of: fn(&ServerCounts) -> u64| -> Vec<(String, f64)> {
            let sample = |(name, _, counts): &(Arc<str>, SocketAddr, ServerCounts)| {
                (format!("{{entry=\"{}\"}}", escape(name)), of(counts) as f64)
            };
            counts.iter().map(sample).collect()
        };
        family(
            "connections",
            "gauge",
            "Open client connections.",
            &by_entry(|c| c.connections),
        );
        family(
            "in_flight",
            "gauge",
            "Requests being answered now.",
            &by_entry(|c| c.in_flight),
        );
        family(
            "accepted_total",
            "counter",
            "Client connections accepted.",
            &by_entry(|c| c.accepted),
        );
        family(
            "turned_away_total",
            "counter",
            "Client connections closed as they came: there were max_concurrency already.",
            &by_entry(|c| c.turned_away),
        );
        family(
            "made_room_total",
            "counter",
            "Client connections closed for new ones: there were max_concurrency, and they had no request under way.",
            &by_entry(|c| c.made_room),
        );
        family(
            "handshakes_failed_total",
            "counter",
            "TLS handshakes with clients that failed.",
            &by_entry(|c| c.handshakes_failed),
        );
        family(
            "buffers_bytes",
            "gauge",
            "Memory in pooled buffers, idle ones included, and in parts that wait for company.",
            &[(String::new(), self.budget.used() as f64)],
        );
        family(
            "buffers_bytes_max",
            "gauge",
            "Bound of tidegate_buffers_bytes.",
            &[(String::new(), self.budget.limit() as f64)],
        );
        family(
            "bodies_shrunk_total",
            "counter",
            "Request bodies that gave back memory which they had declared and not sent, since others waited for it.",
            &[(String::new(), self.budget.bodies_shrunk() as f64)],
        );
        family(
            "bodies_cut_total",
            "counter",
            "Request bodies that were cut off since others waited for the memory that they held.",
            &[(String::new(), self.budget.bodies_cut() as f64)],
        );
        let delivery = self.shared.delivery_memory.usage();
        family(
            "delivery_memory_bytes",
            "gauge",
            "Memory that deliveries hold for documents and long answers of nodes.",
            &[(String::new(), delivery.held as f64)],
        );
        family(
            "delivery_memory_bytes_max",
            "gauge",
            "Bound of tidegate_delivery_memory_bytes, which only one request that is larger than half of it exceeds.",
            &[(String::new(), delivery.max as f64)],
        );
        family(
            "delivery_memory_lanes_waiting",
            "gauge",
            "Lanes of queues that wait for delivery memory.",
            &[(String::new(), delivery.waiting as f64)],
        );
        let live = self.shared.live.load_full();
        let statuses: Vec<_> = live
            .clusters
            .iter()
            .map(|(name, cluster)| (escape(name), cluster.status()))
            .collect();
        let by_cluster = |of: &dyn Fn(&cluster::Status) -> Option<f64>| -> Vec<(String, f64)> {
            let sample = |(name, status): &(String, cluster::Status)| {
                Some((format!("{{cluster=\"{name}\"}}"), of(status)?))
            };
            statuses.iter().filter_map(sample).collect()
        };
        family(
            "cluster_polled_ago_seconds",
            "gauge",
            "Since the cluster last answered the watch.",
            &by_cluster(&|s| s.polled_ago_ms.map(|ms| ms as f64 / 1e3)),
        );
        family(
            "cluster_watched",
            "gauge",
            "Whether the cluster answers the watch; it is not there where discovery is off.",
            &by_cluster(&|s| match s.state {
                cluster::WatchState::Off => None,
                state => Some(f64::from(u8::from(state == cluster::WatchState::Watching))),
            }),
        );
        family(
            "cluster_rebuilt_total",
            "counter",
            "How often another cluster was found at the addresses of the one before: it was built anew.",
            &by_cluster(&|s| Some(s.polls.rebuilt as f64)),
        );
        family(
            "cluster_generation",
            "gauge",
            "Snapshots of the topology so far.",
            &by_cluster(&|s| Some(s.generation as f64)),
        );
        family(
            "cluster_predictions_checked_total",
            "counter",
            "Predicted shards compared with the cluster's own answer.",
            &by_cluster(&|s| Some(s.predictions.checked as f64)),
        );
        family(
            "cluster_predictions_right_total",
            "counter",
            "Predicted shards that the cluster's own answer agreed with.",
            &by_cluster(&|s| Some(s.predictions.right as f64)),
        );
        family(
            "cluster_account_refused",
            "gauge",
            "Whether the cluster refuses the gateway's account, or wants one and none is configured.",
            &by_cluster(&|s| {
                let refused = matches!(s.state, cluster::WatchState::Unauthorized);
                Some(f64::from(u8::from(refused)))
            }),
        );
        let gauges = admin::gauges(&live.config, &self.shared.switches);
        let by_panel = |of: fn(&admin::Gauges) -> usize| -> Vec<(String, f64)> {
            let sample = |(name, gauges): &(Arc<str>, admin::Gauges)| {
                (format!("{{cluster=\"{}\"}}", escape(name)), of(gauges) as f64)
            };
            gauges.iter().map(sample).collect()
        };
        family(
            "switches",
            "gauge",
            "Switches that were set at run time and come before the configuration.",
            &by_panel(|gauges| gauges.switches),
        );
        family(
            "combining_filters",
            "gauge",
            "Filters at which small parts of different bulks travel together now.",
            &by_panel(|gauges| gauges.combining),
        );
        family(
            "directing_filters",
            "gauge",
            "Filters that give documents with neither id nor routing a shard now, but for indices that are switched by themselves.",
            &by_panel(|gauges| gauges.directing),
        );
        let by_node = |value: fn(&cluster::HealthStatus) -> f64| -> Vec<(String, f64)> {
            let nodes = statuses.iter().flat_map(|(cluster, status)| {
                status.nodes.iter().map(move |node| {
                    let labels = format!("{{cluster=\"{cluster}\",node=\"{}\"}}", escape(&node.name));
                    (labels, value(&node.health))
                })
            });
            nodes.collect()
        };
        family(
            "node_up",
            "gauge",
            "Whether a node is in the rotation.",
            &by_node(|health| f64::from(u8::from(health.up))),
        );
        family(
            "node_slowness",
            "gauge",
            "How many times longer a node's answers take than the cluster's to requests of the same size.",
            &by_node(|health| health.slowness.into()),
        );
        family(
            "node_in_flight",
            "gauge",
            "Exchanges under way with a node.",
            &by_node(|health| health.in_flight.into()),
        );
        family(
            "node_limit",
            "gauge",
            "Requests from queues that a node is sent at once, as its answers have shown.",
            &by_node(|health| health.limit as f64),
        );
    }
}

/// Writes a metric: its name, kind, help, and samples with their labels.
pub(super) type Family<'a> = dyn FnMut(&str, &str, &str, &[(String, f64)]) + 'a;

/// As the text format wants label values.
pub(super) fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
