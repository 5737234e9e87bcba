//! The cluster of the demo, real or fake.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use testkit::client::Client;
use testkit::fake::{FakeCluster, Spec};
use testkit::real::{ClusterKind, Own, RealCluster};

use crate::terminal::{Look, paint, say};

/// Number of primaries of each of the demo's indices: two per node.
const SHARDS: u32 = 6;

pub(super) enum Target {
    Real(RealCluster),
    Fake(FakeCluster),
}

impl Target {
    pub(super) fn real(kind: ClusterKind) -> Result<Self> {
        say(&paint(
            Look::Bold,
            &format!(
                "starting three nodes of {} (fetched with Maven the first time) ...",
                kind.name()
            ),
        ));
        Ok(Self::Real(RealCluster::own(&Own::new(kind))?))
    }

    pub(super) fn fake() -> Result<Self> {
        Ok(Self::Fake(FakeCluster::start(Spec::default().storing())?))
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Real(cluster) => format!("{} {}", cluster.engine(), cluster.version()),
            Self::Fake(_) => "the fake cluster".to_owned(),
        }
    }

    pub(super) fn urls(&self) -> Vec<String> {
        match self {
            Self::Real(cluster) => cluster.urls(),
            Self::Fake(cluster) => cluster.urls(),
        }
    }

    pub(super) fn client(&self) -> Result<Client> {
        Client::new(&self.urls()[0])
    }

    /// Creates an empty index that holds up to `docs` documents.
    pub(super) fn create(&self, index: &str, docs: u32) -> Result<()> {
        let settings = json!({
            "number_of_shards": SHARDS, "number_of_replicas": 0, "refresh_interval": "-1",
            "max_result_window": docs.max(10_000),
        });
        let client = self.client()?;
        client
            .put(&format!("/{index}"), &json!({"settings": settings}))?
            .ok()?;
        if let Self::Real(cluster) = self {
            cluster.wait_green()?;
        }
        Ok(())
    }

    /// Returns the CPU seconds of all nodes since their start; the fake cluster's are those of its host
    /// process.
    pub(super) fn cpu_seconds(&self) -> Option<f64> {
        let Self::Real(cluster) = self else { return None };
        cluster
            .nodes()
            .iter()
            .map(|&node| cluster.cpu_seconds(node))
            .sum()
    }

    /// Returns a figure that grows with what the nodes pass on to one another: bytes between real nodes, or
    /// documents that came to a wrong fake node.
    pub(super) fn passed_on(&self) -> Result<u64> {
        match self {
            Self::Fake(cluster) => Ok(cluster.counts().misrouted),
            Self::Real(_) => {
                let stats = self.client()?.get("/_nodes/stats/transport")?.ok()?.json()?;
                let nodes = stats["nodes"]
                    .as_object()
                    .context("nodes in their own statistics")?;
                nodes
                    .values()
                    .map(|node| node["transport"]["tx_size_in_bytes"].as_u64())
                    .sum::<Option<u64>>()
                    .context("bytes sent in the nodes' statistics")
            }
        }
    }

    /// Returns for each id the number (from 0) of the node that holds it, by the cluster's own answer: every
    /// shard is searched. Fails unless exactly `docs` documents are there, by count and by id.
    pub(super) fn holders(&self, index: &str, docs: u32) -> Result<Vec<(String, usize)>> {
        let client = self.client()?;
        client
            .post(&format!("/{index}/_refresh"), &serde_json::Value::Null)?
            .ok()?;
        let count = client.get(&format!("/{index}/_count"))?.ok()?.json()?["count"].as_u64();
        ensure!(
            count == Some(docs.into()),
            "{index} counts {count:?} documents instead of {docs}"
        );
        let Self::Real(cluster) = self else {
            bail!("the fake cluster is asked by its own ways")
        };
        let shards = client
            .get(&format!("/_cat/shards/{index}?format=json&h=shard,prirep,node"))?
            .ok()?
            .json()?;
        let mut found = Vec::new();
        for shard in shards
            .as_array()
            .into_iter()
            .flatten()
            .filter(|shard| shard["prirep"] == "p")
        {
            let (number, node) = shard["shard"]
                .as_str()
                .zip(shard["node"].as_str())
                .context("a shard and its node")?;
            let node: usize = node.trim_start_matches("node-").parse()?;
            ensure!(
                cluster.nodes().len() >= node,
                "{} is no node of ours",
                shard["node"]
            );
            let path = format!("/{index}/_search?preference=_shards:{number}&_source=false&size={docs}");
            let hits = client.get(&path)?.ok()?.json()?;
            for hit in hits["hits"]["hits"].as_array().into_iter().flatten() {
                found.push((
                    hit["_id"].as_str().context("a hit has an id")?.to_owned(),
                    node - 1,
                ));
            }
        }
        Ok(found)
    }

    /// Returns how many of the documents have exactly the source given in `expected`.
    pub(super) fn verify(&self, index: &str, expected: &[(String, &[u8])]) -> Result<u32> {
        match self {
            Self::Fake(cluster) => {
                let kept = cluster.docs(index);
                let right = expected
                    .iter()
                    .filter(|(id, source)| kept.get(id).is_some_and(|doc| doc.source.as_bytes() == *source));
                let right = right.count();
                ensure!(
                    kept.len() == expected.len(),
                    "{} documents are in {index}, not {}",
                    kept.len(),
                    expected.len()
                );
                Ok(u32::try_from(right)?)
            }
            Self::Real(_) => {
                let client = self.client()?;
                let mut right = 0;
                for some in expected.chunks(1_000) {
                    let ids: Vec<&str> = some.iter().map(|(id, _)| id.as_str()).collect();
                    let answer = client
                        .post(&format!("/{index}/_mget"), &json!({"ids": ids}))?
                        .ok()?
                        .json()?;
                    let docs = answer["docs"].as_array().context("_mget answers with docs")?;
                    for (doc, (id, source)) in docs.iter().zip(some) {
                        let sent: serde_json::Value = serde_json::from_slice(source)?;
                        right += u32::from(doc["_id"] == id.as_str() && doc["_source"] == sent);
                    }
                }
                Ok(right)
            }
        }
    }
}
