//! A running real cluster as the proofs use it: its origins, its engine, and its abilities.

use anyhow::Result;
use testkit::real::{ClusterKind, RealCluster};

use super::http::{Http, Origin};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    OpenSearch,
    Elasticsearch,
}

/// A cluster that is up and green for as long as this value lives.
pub(crate) struct Server {
    pub(crate) engine: Engine,
    /// The major and minor version.
    pub(crate) version: (u32, u32),
    /// One origin per node, in the launcher's order.
    pub(crate) nodes: Vec<Origin>,
    pub(crate) cluster: RealCluster,
}

impl Server {
    /// Joins the cluster of this kind that all tests share.
    pub(crate) fn shared(kind: ClusterKind) -> Result<Self> {
        Self::of(RealCluster::shared(kind)?)
    }

    /// Takes the cluster of this kind alone; its nodes may be killed.
    pub(crate) fn alone(kind: ClusterKind) -> Result<Self> {
        Self::of(RealCluster::alone(kind)?)
    }

    pub(crate) fn of(cluster: RealCluster) -> Result<Self> {
        let engine = if cluster.engine() == "opensearch" {
            Engine::OpenSearch
        } else {
            Engine::Elasticsearch
        };
        let mut numbers = cluster.version().split('.').map(|n| n.parse().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let account = cluster
            .credentials()
            .map(|(user, password)| (user.to_owned(), password.to_owned()));
        let nodes = cluster
            .urls()
            .iter()
            .map(|url| Origin::of_url(url, account.clone()))
            .collect::<Result<_>>()?;
        Ok(Self {
            engine,
            version,
            nodes,
            cluster,
        })
    }

    pub(crate) fn name(&self) -> String {
        format!("{:?} {}.{}", self.engine, self.version.0, self.version.1)
    }

    pub(crate) fn http(&self) -> Http {
        Http::to(&self.nodes[0])
    }

    pub(crate) fn is_es(&self, from: (u32, u32)) -> bool {
        self.engine == Engine::Elasticsearch && self.version >= from
    }

    pub(crate) fn has_data_streams(&self) -> bool {
        self.engine == Engine::OpenSearch || self.is_es((8, 0))
    }

    /// Whether there are ingest processors such as `set`, and painless: Elasticsearch's published builds from
    /// 8 on lack them, and so do those of OpenSearch 1.
    pub(crate) fn has_processors(&self) -> bool {
        !self.is_es((8, 0)) && (self.engine == Engine::Elasticsearch || self.version >= (2, 0))
    }
}
