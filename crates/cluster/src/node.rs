//! One node: what it says about itself, and how it has been doing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use wire::Origin;

use crate::address::Address;
use crate::config::NodeFilter;
use crate::health::Health;

/// A node of the cluster. Shared between snapshots, so its health outlives a change of the topology.
#[derive(Debug)]
pub struct Node {
    /// The node's id in the cluster state; empty for an endpoint that was never discovered.
    pub id: String,
    /// `node.name`; the endpoint's authority for one that was never discovered.
    pub name: String,
    /// Where it listens.
    pub address: Address,
    /// The same, as a client takes it (TLS set up).
    pub origin: Origin,
    /// What it does. Empty when unknown, and for a coordinating-only node.
    pub roles: Vec<Role>,
    /// `node.attr.*`.
    pub attributes: BTreeMap<String, String>,
    /// Whether the roles, id and name were learnt from the cluster.
    pub discovered: bool,
    /// Weight in the rotation; 0 keeps it out.
    pub weight: u32,
    /// Whether the configured filter lets it take traffic that no primary calls for.
    pub admitted: bool,
    /// How it has been doing; shared by all cores.
    pub health: Arc<Health>,
}

/// A role, normalised: OpenSearch's `cluster_manager` and Elasticsearch's `master` are one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// May be elected (`master`, `cluster_manager`).
    Master,
    /// Holds shards (`data`).
    Data,
    /// Holds shards of a tier: `hot`, `warm`, `cold`, `frozen`, `content`.
    DataTier(String),
    /// Runs ingest pipelines.
    Ingest,
    /// Any other, by its own name.
    Other(String),
}

impl Node {
    /// Whether the node can hold shards. A node whose roles are unknown might.
    pub fn holds_data(&self) -> bool {
        !self.discovered || self.roles.iter().any(Role::is_data)
    }

    /// Whether the node runs ingest pipelines itself. A node whose roles are unknown might.
    pub fn runs_pipelines(&self) -> bool {
        !self.discovered || self.roles.contains(&Role::Ingest)
    }

    /// Whether `text` names this node: its name, id, host or `host:port`.
    pub fn is_called(&self, text: &str) -> bool {
        text == self.name
            || (!text.is_empty() && text == self.id)
            || text == self.address.host
            || text == self.address.authority()
    }
}

impl Role {
    /// Reads the name that a node reports or a user writes.
    pub fn parse(name: &str) -> Self {
        match name {
            "master" | "cluster_manager" => Self::Master,
            "data" => Self::Data,
            "ingest" => Self::Ingest,
            _ => match name.strip_prefix("data_") {
                Some(tier) => Self::DataTier(tier.to_owned()),
                None => Self::Other(name.to_owned()),
            },
        }
    }

    /// Whether it means shards.
    pub fn is_data(&self) -> bool {
        matches!(self, Self::Data | Self::DataTier(_))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Master => f.write_str("master"),
            Self::Data => f.write_str("data"),
            Self::DataTier(tier) => write!(f, "data_{tier}"),
            Self::Ingest => f.write_str("ingest"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl NodeFilter {
    /// Whether the filter lets a node with these properties take part.
    pub fn admits(
        &self,
        name: &str,
        address: &Address,
        roles: &[Role],
        attributes: &BTreeMap<String, String>,
    ) -> bool {
        let called = |text: &String| *text == name || *text == address.host || *text == address.authority();
        self.roles.admits(|role| roles.contains(role))
            && self.hosts.admits(called)
            && self
                .tags
                .admits(|(key, value)| attributes.get(key) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Terms;

    fn admits(filter: &NodeFilter, roles: &[&str]) -> bool {
        let address = Address::from_endpoint("http://10.0.0.1:9200").unwrap();
        let roles: Vec<Role> = roles.iter().map(|r| Role::parse(r)).collect();
        let attributes = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        filter.admits("es-1", &address, &roles, &attributes)
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
