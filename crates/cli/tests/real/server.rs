//! A running real cluster, as the proofs see it: its origins, its engine and what it can do.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::http::{Http, Origin};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    OpenSearch,
    Elasticsearch,
}

/// A cluster that is up and green.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) engine: Engine,
    /// Major and minor.
    pub(crate) version: (u32, u32),
    /// One origin a node, in the launcher's order.
    pub(crate) nodes: Vec<Origin>,
}

impl Server {
    /// The cluster that the launcher started in `dir`, as its `cluster.json` tells.
    pub(crate) fn in_dir(dir: &Path) -> Result<Self> {
        let file = dir.join("cluster.json");
        let text = std::fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
        let state: Value = serde_json::from_slice(&text)?;
        let secure = state["secure"].as_bool().unwrap_or(false);
        let engine = if state["engine"] == "opensearch" {
            Engine::OpenSearch
        } else {
            Engine::Elasticsearch
        };
        let mut numbers = state["version"]
            .as_str()
            .context("a version")?
            .split('.')
            .map(|n| n.parse().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let base_port = state["base_port"].as_u64().context("a base port")?;
        let nodes = state["node_numbers"]
            .as_array()
            .context("node numbers")?
            .iter()
            .filter_map(Value::as_u64)
            .map(|number| Origin {
                address: format!("127.0.0.1:{}", base_port + number - 1),
                tls: secure,
                basic_auth: secure.then(|| ("admin".to_owned(), "admin".to_owned())),
            })
            .collect();
        Ok(Self {
            engine,
            version,
            nodes,
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

    /// Ingest processors such as `set`, and painless: Elasticsearch's published builds from 8 on lack them.
    pub(crate) fn has_processors(&self) -> bool {
        !self.is_es((8, 0))
    }
}
