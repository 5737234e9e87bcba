//! The present state of a cluster: discovery, cluster state, health, flavour and version, watch.
//!
//! # The story
//!
//! [`Cluster::start`] begins to watch a cluster from any of its endpoints, on a thread of its own. The watch
//! asks `_nodes` which nodes there are and which engine and version they run, then polls the version of the
//! cluster state a few times a second, which costs a node next to nothing. Only when the version has changed
//! does it read where the primaries are, what the indices' settings say about routing, and which aliases,
//! data streams and pipelines there are. Mappings, the expensive part of a large state, are read only for new
//! indices. The result is an immutable [`Snapshot`], which is swapped in.
//!
//! The gateway takes one snapshot for each request. The parts of a split bulk go where the snapshot's route
//! table says; every other request goes to the node that a [`Chooser`] picks. The outcome is
//! [reported](Cluster::end), so that a dead node leaves the rotation at once, until a probe brings it back,
//! and a slow node gets less.
//!
//! Predictions are not trusted: those for each index are checked against the cluster's own answer before the
//! first split, and a sample of those for live traffic after that. An index that fails a check passes through
//! until its metadata changes.
//!
//! ```no_run
//! use std::time::Duration;
//! use cluster::{Address, Cluster, ClusterConfig, NodeChoice, NodeOutcome, PickReason};
//!
//! # async fn story() -> Result<(), Box<dyn std::error::Error>> {
//! let endpoints = vec![Address::from_endpoint("http://127.0.0.1:9200")?];
//! let cluster = Cluster::start(ClusterConfig::new("prod", endpoints))?;
//! cluster.learnt(Duration::from_secs(5)).await;
//!
//! let snapshot = cluster.snapshot();
//! let node = cluster.chooser(NodeChoice::default()).pick(&snapshot, PickReason::Request, &[]);
//! let exchange = cluster.begin(&node, true, Some(0));
//! println!("ask {}", node.address);
//! cluster.end(exchange, &node, NodeOutcome::Answered);
//! # Ok(())
//! # }
//! ```

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests sleep, lock and look at clocks as they like"
    )
)]

mod address;
mod ask;
mod chooser;
mod cluster;
mod config;
mod discover;
mod flavour;
mod health;
mod inner;
mod limiter;
mod needs;
mod node;
mod own_snapshot;
mod pace;
mod pick;
mod pipelines;
mod probe;
mod role;
mod routes;
mod snapshot;
mod state;
mod status;
#[cfg(test)]
mod testing;
mod tls_files;
mod topology;
mod verify;
mod watch;

pub use address::{Address, AddressFault, BadAddress};
pub use chooser::Chooser;
pub use cluster::Cluster;
pub use config::{BadConfig, ClusterConfig, Credentials, HealthRules, NodeChoice, NodeFilter, Terms, Verify};
pub use health::{Health, HealthStatus, NodeOutcome};
pub use limiter::{Ended, Limiter, Permit};
pub use needs::{NEEDS, Need};
pub use node::Node;
pub use pace::Exchange;
pub use pick::PickReason;
pub use role::Role;
pub use routes::RoutesStatus;
pub use snapshot::Snapshot;
pub use status::{ChoiceStatus, NodeStatus, Polls, Status, WatchState};
pub use tls_files::{TlsContents, TlsFiles};
pub use verify::{IndexPredictions, PredictionsStatus};
