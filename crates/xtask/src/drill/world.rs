//! The clusters of a run, fake or real, with the same functions to break and mend them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::client::Client;
use testkit::fake::{Behaviour, FakeCluster, Fault, Flavour, Injection, Spec, Unfit};
use testkit::real::RealCluster;

use super::CLUSTERS;
use super::check::Doc;
use super::names;
use super::schedule::Setup;

/// The text in documents that the clusters refuse.
pub(crate) const UNFIT: &str = "unfit";

/// A cluster.
pub(crate) struct Cluster {
    engine: Engine,
    pub(crate) index: String,
    shards: u32,
    /// Nodes that are down at the moment.
    down: Mutex<BTreeSet<usize>>,
    /// The indices that the alias has led to.
    behind_alias: Mutex<Vec<String>>,
}

enum Engine {
    Fake(FakeCluster),
    Real(RealCluster),
}

impl Cluster {
    /// Starts the fake clusters of a setup: an OpenSearch and an Elasticsearch, with different numbers of
    /// shards.
    pub(crate) fn fakes(setup: &Setup) -> Result<Vec<Self>> {
        let flavours = [Flavour::OpenSearch3, Flavour::Elasticsearch9];
        let clusters = (0..2).map(|number| {
            let behaviour = Behaviour {
                unfit: Some(Unfit {
                    holds: format!("\"n\":\"{UNFIT}"),
                    status: 400,
                    error: r#"{"type":"mapper_parsing_exception","reason":"failed to parse field [n]"}"#
                        .to_owned(),
                }),
                ..Behaviour::default()
            };
            let spec = Spec {
                nodes: setup.nodes[number],
                behaviour,
                ..Spec::default()
            };
            let spec = spec.flavour(flavours[number]).index(INDEX, setup.shards[number]);
            let cluster = FakeCluster::start(spec.storing())?;
            let first = format!("{}-0", alias(INDEX));
            cluster.create_index(&first, setup.shards[number]);
            cluster.alias(&alias(INDEX), &[&first]);
            cluster.create_index(&made_again(INDEX), setup.shards[number]);
            Ok(Self {
                engine: Engine::Fake(cluster),
                behind_alias: Mutex::new(vec![first]),
                index: INDEX.to_owned(),
                shards: setup.shards[number],
                down: Mutex::default(),
            })
        });
        clusters.collect()
    }

    /// Takes real clusters for itself.
    pub(crate) fn reals(setup: &Setup) -> Result<Vec<Self>> {
        let mut index = String::new();
        let mut clusters = Vec::new();
        for (number, kind) in CLUSTERS.into_iter().enumerate() {
            let real = RealCluster::alone(kind).with_context(|| format!("the cluster {}", kind.name()))?;
            if number == 0 {
                index = real.fresh_name("drill");
            }
            let settings = json!({
                "settings": {
                    "number_of_shards": setup.shards[number],
                    "number_of_replicas": if number == 0 { setup.replicas } else { 0 },
                    "index.unassigned.node_left.delayed_timeout": "0s",
                },
                "mappings": {"properties": {
                    "w": {"type": "long"}, "n": {"type": "long"}, "p": {"type": "keyword", "index": false},
                }},
            });
            let client = real.client()?;
            // An interrupted run may have left an index.
            client.delete(&format!("/{index}"))?;
            client.put(&format!("/{index}"), &settings)?.ok()?;
            let first = format!("{}-0", alias(&index));
            names::prepare(&real, &index, (&alias(&index), &first), setup.shards[number])?;
            names::make_again(&real, &made_again(&index), setup.shards[number])?;
            real.wait_green()?;
            clusters.push(Self {
                engine: Engine::Real(real),
                behind_alias: Mutex::new(vec![first]),
                index: index.clone(),
                shards: setup.shards[number],
                down: Mutex::default(),
            });
        }
        Ok(clusters)
    }

    pub(crate) fn shown(&self) -> String {
        match &self.engine {
            Engine::Fake(cluster) => format!("fake, {} nodes", cluster.urls().len()),
            Engine::Real(cluster) => {
                let nodes = cluster.nodes().len();
                format!("{} {}, {nodes} nodes", cluster.engine(), cluster.version())
            }
        }
    }

    /// The URLs of all nodes, so that any one of them is enough for a start.
    pub(crate) fn urls(&self) -> Vec<String> {
        match &self.engine {
            Engine::Fake(cluster) => cluster.urls(),
            Engine::Real(cluster) => cluster.urls(),
        }
    }

    fn down(&self) -> parking_lot::MutexGuard<'_, BTreeSet<usize>> {
        self.down.lock()
    }

    // === breaking and mending

    pub(crate) fn kill(&self, nodes: &[usize]) -> Result<()> {
        for &node in nodes {
            match &self.engine {
                Engine::Fake(cluster) => cluster.kill(node),
                Engine::Real(cluster) => cluster.kill_node(number(node))?,
            }
            self.down().insert(node);
        }
        Ok(())
    }

    /// Kills a node; a real cluster notices that by itself.
    pub(crate) fn lose(&self, node: usize) -> Result<()> {
        match &self.engine {
            Engine::Fake(cluster) => {
                cluster.leave(node);
                self.down().insert(node);
                Ok(())
            }
            Engine::Real(_) => self.kill(&[node]),
        }
    }

    pub(crate) fn start(&self, nodes: &[usize]) -> Result<()> {
        match &self.engine {
            Engine::Fake(cluster) => nodes.iter().try_for_each(|&node| restart(cluster, node))?,
            Engine::Real(cluster) => {
                let numbers: Vec<u16> = nodes.iter().map(|&node| number(node)).collect();
                cluster.start_nodes(&numbers)?;
            }
        }
        self.down().retain(|node| !nodes.contains(node));
        Ok(())
    }

    pub(crate) fn pause(&self, node: usize) -> Result<()> {
        match &self.engine {
            Engine::Fake(cluster) => cluster.pause(node),
            Engine::Real(cluster) => cluster.pause_node(number(node))?,
        }
        Ok(())
    }

    pub(crate) fn resume(&self, node: usize) -> Result<()> {
        match &self.engine {
            Engine::Fake(cluster) => cluster.resume(node),
            Engine::Real(cluster) => cluster.resume_node(number(node))?,
        }
        Ok(())
    }

    /// Moves some shards; `random` decides which ones, and where to.
    pub(crate) fn move_shards(&self, random: &mut fastrand::Rng) -> Result<()> {
        match &self.engine {
            Engine::Fake(cluster) => {
                let up: Vec<usize> = (0..cluster.urls().len())
                    .filter(|node| !self.down().contains(node))
                    .collect();
                for shard in 0..self.shards {
                    if let (true, Some(&node)) = (random.bool(), random.choice(&up)) {
                        cluster.move_shard(&self.index, shard, node);
                    }
                }
                Ok(())
            }
            Engine::Real(cluster) => {
                let node = 1 + random.usize(..cluster.nodes().len());
                let exclude = |name: Value| {
                    let setting = json!({"index.routing.allocation.exclude._name": name});
                    let client = cluster.client()?;
                    client
                        .put(&format!("/{}/_settings", self.index), &setting)?
                        .ok()?;
                    anyhow::Ok(())
                };
                exclude(json!(format!("node-{node}")))?;
                let until = Instant::now() + Duration::from_secs(20);
                let path = format!(
                    "/_cluster/health/{}?wait_for_no_relocating_shards=true&timeout=20s",
                    self.index
                );
                // It matters that shards moved under load, but not whether all of them did.
                while cluster.client()?.get(&path)?.json()?["relocating_shards"] != 0
                    && Instant::now() < until
                {
                    std::thread::sleep(Duration::from_millis(200));
                }
                exclude(Value::Null)
            }
        }
    }

    /// Answers writes with 429 until [`Cluster::calm`]: all of them, or some items.
    pub(crate) fn busy(&self, items: bool) -> Result<()> {
        match &self.engine {
            Engine::Fake(cluster) => {
                let error = r#"{"type":"es_rejected_execution_exception","reason":"too busy"}"#;
                let fault = match items {
                    true => Fault::Items {
                        every: 3,
                        status: 429,
                        error: error.to_owned(),
                    },
                    false => Fault::Status {
                        status: 429,
                        body: format!("{{\"error\":{error},\"status\":429}}"),
                    },
                };
                cluster.inject(Injection::bulk(fault).always());
            }
            Engine::Real(cluster) => {
                // Each item is answered with 429, as when the disk is full to the flood stage.
                let block = json!({"index.blocks.read_only_allow_delete": true});
                cluster
                    .client()?
                    .put(&format!("/{}/_settings", self.index), &block)?
                    .ok()?;
            }
        }
        Ok(())
    }

    pub(crate) fn calm(&self) -> Result<()> {
        match &self.engine {
            Engine::Fake(cluster) => cluster.behave(),
            Engine::Real(cluster) => {
                let block = json!({"index.blocks.read_only_allow_delete": null});
                cluster
                    .client()?
                    .put(&format!("/{}/_settings", self.index), &block)?
                    .ok()?;
            }
        }
        Ok(())
    }

    /// Closes the index that all clients write to, or opens it again.
    pub(crate) fn close(&self, close: bool) -> Result<()> {
        match (&self.engine, close) {
            (Engine::Fake(cluster), true) => cluster.close_index(&self.index),
            (Engine::Fake(cluster), false) => cluster.open_index(&self.index),
            (Engine::Real(cluster), close) => {
                let action = if close { "_close" } else { "_open" };
                let path = format!("/{}/{action}?timeout=30s", self.index);
                cluster.client()?.post(&path, &Value::Null)?.ok()?;
            }
        }
        Ok(())
    }

    /// Lets the index that is made again refuse all writes as one without primaries does, until it is made
    /// again, or stops that.
    pub(crate) fn lose_primaries(&self, lose: bool) {
        if let Engine::Fake(cluster) = &self.engine {
            let name = made_again(&self.index);
            let reason =
                format!("[{name}][0] primary shard is not active Timeout: [1m], request: [BulkShardRequest]");
            let error = json!({"type": "unavailable_shards_exception", "reason": reason}).to_string();
            cluster.refuse_writes(&name, lose.then_some((503, &error)));
        }
    }

    /// Loses the answers to this many requests after their execution.
    pub(crate) fn lose_answers(&self, times: u32) {
        if let Engine::Fake(cluster) = &self.engine {
            cluster.inject(Injection::bulk(Fault::CloseWritten).times(times));
        }
    }

    /// Waits until nothing is being executed any more that a dead gateway had sent.
    pub(crate) fn settle(&self) {
        if let Engine::Fake(cluster) = &self.engine {
            let until = Instant::now() + Duration::from_secs(5);
            // A connection that no thread has taken yet is not counted. Threads take connections in turn:
            // once a later one is answered, all earlier ones are counted.
            for url in cluster.urls() {
                let answer =
                    Client::build(&url, None, Duration::from_secs(5)).and_then(|client| client.get("/"));
                // A node that is down has no connections.
                drop(answer);
            }
            while cluster.connections().iter().any(|open| *open > 0) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Makes the alias lead to a new index of this many shards; with `roll`, it keeps the earlier ones too.
    pub(crate) fn move_alias(&self, shards: u32, roll: bool) -> Result<()> {
        let mut behind = self.behind_alias();
        let next = format!("{}-{}", alias(&self.index), behind.len());
        match &self.engine {
            Engine::Fake(cluster) => {
                cluster.create_index(&next, shards);
                behind.push(next);
                let newest = behind.iter().rev().map(String::as_str);
                let leads_to: Vec<&str> = newest.take(if roll { behind.len() } else { 1 }).collect();
                cluster.alias(&alias(&self.index), &leads_to);
            }
            Engine::Real(cluster) => {
                let last = behind.last().context("the alias leads somewhere")?;
                names::move_alias(cluster, &alias(&self.index), last, (&next, shards), roll)?;
                behind.push(next);
            }
        }
        Ok(())
    }

    /// Splits or shrinks the index behind the alias: a fake one to this many shards, a real one to twice as
    /// many, or to one.
    pub(crate) fn split(&self, shards: u32) -> Result<()> {
        let mut behind = self.behind_alias();
        let next = format!("{}-{}", alias(&self.index), behind.len());
        match &self.engine {
            Engine::Fake(cluster) => cluster.split_behind(&alias(&self.index), &next, shards),
            Engine::Real(cluster) => {
                let last = behind.last().context("the alias leads somewhere")?;
                names::split_behind(cluster, &alias(&self.index), last, &next)?;
            }
        }
        behind.push(next);
        Ok(())
    }

    pub(crate) fn make_again(&self, shards: u32) -> Result<()> {
        let name = made_again(&self.index);
        match &self.engine {
            Engine::Fake(cluster) => cluster.create_index(&name, shards),
            Engine::Real(cluster) => names::make_again(cluster, &name, shards)?,
        }
        Ok(())
    }

    fn behind_alias(&self) -> parking_lot::MutexGuard<'_, Vec<String>> {
        self.behind_alias.lock()
    }

    // === what it has

    /// Returns every document of the shared index and of these others, with its token. All shards must be
    /// available.
    pub(crate) fn documents(&self, others: &BTreeSet<String>) -> Result<Vec<Doc>> {
        let mut docs = Vec::new();
        if let Engine::Real(cluster) = &self.engine {
            cluster.wait_green()?;
        }
        let behind_alias = self.behind_alias();
        let others = others.iter().filter(|index| **index != alias(&self.index));
        for index in others.chain([&self.index]).chain(&*behind_alias) {
            let found: Vec<(String, u64)> = match &self.engine {
                Engine::Fake(cluster) => {
                    let token = |source: &str| token_of(&serde_json::from_str(source).unwrap_or_default());
                    let all = cluster.docs(index).into_iter();
                    all.map(|(id, doc)| (id, token(&doc.source))).collect()
                }
                Engine::Real(cluster) => scroll(&cluster.client()?, index)?,
            };
            docs.extend(found.into_iter().map(|(id, token)| Doc {
                index: index.clone(),
                id,
                token,
            }));
        }
        Ok(docs)
    }

    /// Removes what the run left.
    pub(crate) fn clear(&self, others: &BTreeSet<String>) -> Result<()> {
        if let Engine::Real(cluster) = &self.engine {
            let (behind, again) = (self.behind_alias(), made_again(&self.index));
            let names = others.iter().filter(|name| **name != alias(&self.index));
            for index in names.chain([&self.index, &again]).chain(&*behind) {
                cluster.client()?.delete(&format!("/{index}"))?;
            }
            names::forget(cluster, &self.index)?;
        }
        Ok(())
    }
}

/// The alias that clients write through.
pub(crate) fn alias(index: &str) -> String {
    format!("{index}-alias")
}

/// The index that is deleted and made again.
pub(crate) fn made_again(index: &str) -> String {
    format!("{index}-again")
}

/// Returns the token of a document; 0, which nobody sends, if it has none.
pub(crate) fn token_of(source: &Value) -> u64 {
    source["w"].as_u64().unwrap_or(0)
}

/// Reads all documents of a real index, each shard once, and checks that they are as many as the index
/// counts.
pub(crate) fn scroll(client: &Client, index: &str) -> Result<Vec<(String, u64)>> {
    let refreshed = client.post(&format!("/{index}/_refresh"), &Value::Null)?;
    if refreshed.status == 404 {
        // No accepted write created the index; if one should have, the checker misses its documents.
        return Ok(Vec::new());
    }
    refreshed.ok()?;
    let query = json!({"size": 5_000, "sort": ["_doc"], "_source": ["w"], "track_total_hits": true});
    let mut page = client
        .post(&format!("/{index}/_search?scroll=1m"), &query)?
        .ok()?
        .json()?;
    let total = page["hits"]["total"]["value"].as_u64().context("a total")?;
    let mut docs = Vec::new();
    loop {
        ensure!(
            page["_shards"]["failed"] == 0,
            "{index}: a shard could not be read: {:.300}",
            page["_shards"]
        );
        let hits = page["hits"]["hits"].as_array().context("hits")?;
        if hits.is_empty() {
            break;
        }
        for hit in hits {
            let id = hit["_id"].as_str().context("a hit has an id")?;
            docs.push((id.to_owned(), token_of(&hit["_source"])));
        }
        let next = json!({"scroll": "1m", "scroll_id": page["_scroll_id"]});
        page = client.post("/_search/scroll", &next)?.ok()?.json()?;
    }
    ensure!(
        docs.len() as u64 == total,
        "{index}: {} of {total} documents could be read",
        docs.len()
    );
    Ok(docs)
}

/// Restarts a killed node, whose port may be taken by another connection for a moment.
fn restart(cluster: &FakeCluster, node: usize) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match cluster.restart(node) {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > until => return Err(error).context("a fake node's port is taken"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Real nodes are numbered from 1.
fn number(node: usize) -> u16 {
    u16::try_from(node + 1).expect("clusters are small")
}

const INDEX: &str = "drill";
