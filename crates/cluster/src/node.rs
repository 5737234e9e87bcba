//! A node: its description of itself, and its health.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::Origin;

use crate::address::Address;
use crate::config::{NodeChoice, NodeFilter};
use crate::health::Health;
use crate::role::Role;

/// A node of the cluster. Each thread has its own `Node`s for the same nodes, so that requests count
/// references without touching what other cores write; [`Node::is`] compares nodes.
#[derive(Clone, Debug)]
pub struct Node {
    /// The node's id in the cluster state; empty for an endpoint that was never discovered.
    pub id: String,
    /// The `node.name`; for an endpoint that was never discovered, the endpoint's authority.
    pub name: String,
    /// The address on which it listens.
    pub address: Address,
    /// The same address as a client's origin (with TLS set up).
    pub origin: Origin,
    /// The node's roles. Empty when unknown, and for a coordinating-only node.
    pub roles: Vec<Role>,
    /// The attributes `node.attr.*`.
    pub attributes: BTreeMap<String, String>,
    /// Whether the roles, id and name were learnt from the cluster.
    pub discovered: bool,
    /// The health of the node. All cores and all snapshots share it, so it outlives a change of the topology.
    pub health: Arc<Health>,
}

impl Node {
    /// Returns whether this and the other are the same node, in whatever snapshots.
    pub fn is(&self, other: &Node) -> bool {
        Arc::ptr_eq(&self.health, &other.health)
    }

    /// Returns whether the node can hold shards. A node whose roles are unknown might.
    pub fn holds_data(&self) -> bool {
        !self.discovered || self.roles.iter().any(Role::is_data)
    }

    /// Returns whether `text` names this node: its name, id, host or `host:port`.
    pub fn is_called(&self, text: &str) -> bool {
        text == self.name
            || (!text.is_empty() && text == self.id)
            || text == self.address.host
            || text == self.address.authority()
    }
}

impl NodeChoice {
    /// Returns the node's weight, without regard to the filter.
    pub(crate) fn weight(&self, node: &Node) -> u32 {
        let names = [&node.address.authority(), &node.address.host, &node.name];
        let said = names.into_iter().find_map(|name| self.weights.get(name));
        said.map_or(1, |weight| *weight)
    }
}

impl NodeFilter {
    /// Returns whether the filter lets a node take part. Unknown roles and attributes are no obstacle.
    pub fn admits(&self, node: &Node) -> bool {
        self.hosts.admits(|text| node.is_called(text))
            && (!node.discovered
                || self.roles.admits(|role| node.roles.contains(role))
                    && self
                        .tags
                        .admits(|(key, value)| node.attributes.get(key) == Some(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Terms;

    fn node(roles: &[&str]) -> Node {
        let node = Arc::into_inner(crate::testing::node("es-1", roles)).unwrap();
        Node {
            address: Address::from_endpoint("http://10.0.0.1:9200").unwrap(),
            attributes: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
            ..node
        }
    }

    fn admits(filter: &NodeFilter, roles: &[&str]) -> bool {
        filter.admits(&node(roles))
    }

    #[test]
    fn a_node_of_whom_nothing_is_known_is_judged_by_its_address_alone() {
        let unknown = Node {
            discovered: false,
            ..node(&[])
        };
        let mut filter = NodeFilter::default();
        filter.roles.include = vec![Role::parse("ingest")];
        assert!(filter.admits(&unknown));
        filter.hosts.exclude = vec!["10.0.0.1:9200".to_owned()];
        assert!(!filter.admits(&unknown));
    }

    #[test]
    fn a_weight_is_found_by_address_host_or_name_and_is_1_if_nobody_says_it() {
        for (key, weight) in [("10.0.0.1:9200", 7), ("10.0.0.1", 7), ("es-1", 7), ("es-2", 1)] {
            let choice = NodeChoice {
                weights: BTreeMap::from([(key.to_owned(), 7)]),
                ..NodeChoice::default()
            };
            assert_eq!(choice.weight(&node(&["data"])), weight, "{key}");
        }
    }

    #[test]
    fn excluding_master_excludes_cluster_managers_too() {
        let filter = NodeFilter {
            roles: Terms {
                exclude: vec![Role::parse("master")],
                ..Terms::default()
            },
            ..NodeFilter::default()
        };
        assert!(!admits(&filter, &["cluster_manager"]));
        assert!(!admits(&filter, &["master", "data"]));
        assert!(admits(&filter, &["data_hot", "ingest"]));
        assert!(admits(&filter, &[]));
    }

    #[test]
    fn exclude_wins_over_include_and_every_kind_of_term_must_agree() {
        let mut filter = NodeFilter::default();
        filter.hosts.include = vec!["10.0.0.1:9200".to_owned()];
        assert!(admits(&filter, &["data"]));
        filter.tags.include = vec![("zone".to_owned(), "b".to_owned())];
        assert!(!admits(&filter, &["data"]));
        filter.tags = Terms::default();
        filter.hosts.exclude = vec!["es-1".to_owned()];
        assert!(!admits(&filter, &["data"]));
    }
}
