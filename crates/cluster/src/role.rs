//! The roles of a node.

use std::fmt;

use serde::{Serialize, Serializer};

/// A role, normalised: OpenSearch's `cluster_manager` and Elasticsearch's `master` are the same role.
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
    /// Any other role, by its own name.
    Other(String),
}

// === impl Role ===

impl Role {
    /// Parses the name that a node reports or a user writes.
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

    /// Returns whether a node with this role holds shards.
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
