//! A cluster that answers the watch's questions from a script: it has just enough of both engines' APIs, and
//! can die, lie, move, be rebuilt and refuse credentials on demand.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bulk::{Formula, IndexRoute};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value, json};

/// The cluster: one listener per node, one script for all.
#[derive(Clone)]
pub(crate) struct Fake {
    script: Arc<Mutex<Script>>,
}

/// The cluster's present state and behaviour.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) cluster_uuid: String,
    pub(crate) version: u64,
    pub(crate) nodes: Vec<FakeNode>,
    pub(crate) indices: BTreeMap<String, FakeIndex>,
    pub(crate) aliases: BTreeMap<String, Value>,
    pub(crate) data_streams: BTreeMap<String, Vec<String>>,
    /// The `Authorization` that is required.
    pub(crate) authorization: Option<String>,
    /// Whether `_search_shards` gives the wrong shard.
    pub(crate) lies: bool,
    /// Requests with such a text in their target are answered otherwise.
    pub(crate) tricks: Vec<(String, Trick)>,
    /// The paths asked for so far.
    pub(crate) asked: Vec<String>,
}

/// How a request is answered otherwise.
#[derive(Clone, Copy)]
pub(crate) enum Trick {
    /// By this status.
    Status(u16),
    /// As usual, but only after this time.
    Late(Duration),
}

pub(crate) struct FakeNode {
    pub(crate) id: String,
    pub(crate) port: u16,
    pub(crate) publish: String,
    /// Whether it answers at all; a dead node closes connections unanswered.
    pub(crate) alive: bool,
    /// Whether it is in the cluster state, but missing when all nodes are asked about themselves.
    pub(crate) silent: bool,
    /// Whether it reports an HTTP port: a node that has just joined does not yet.
    pub(crate) http: bool,
    /// Whether it follows no elected node.
    pub(crate) lost: bool,
}

#[derive(Default)]
pub(crate) struct FakeIndex {
    pub(crate) uuid: String,
    pub(crate) primaries: Vec<usize>,
    /// Another `routing_num_shards` than 16 for each shard.
    pub(crate) routing_shards: Option<u32>,
    pub(crate) partition_size: Option<u32>,
    pub(crate) routing_required: bool,
    pub(crate) mapping_version: Option<u32>,
    pub(crate) history: Option<String>,
    pub(crate) closed: bool,
    /// Whether no shard has an active copy; the routing table says so too.
    pub(crate) red: bool,
}

impl Fake {
    /// Starts `nodes` nodes on loopback ports of the system's choice.
    pub(crate) fn start(nodes: usize) -> Self {
        let fake = Self {
            script: Arc::default(),
        };
        for n in 0..nodes {
            let listener = TcpListener::bind("127.0.0.1:0").expect("loopback and a sound script");
            let port = listener.local_addr().expect("loopback and a sound script").port();
            let publish = format!("127.0.0.1:{port}");
            fake.lock().nodes.push(FakeNode {
                id: format!("id-{n}"),
                port,
                publish,
                alive: true,
                silent: false,
                http: true,
                lost: false,
            });
            let fake = fake.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let fake = fake.clone();
                    std::thread::spawn(move || fake.serve(stream, n));
                }
            });
        }
        let mut script = fake.lock();
        script.cluster_uuid = "first".to_owned();
        script.version = 1;
        drop(script);
        fake
    }

    /// Changes the script, and the state's version with it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Script)) {
        let mut script = self.lock();
        change(&mut script);
        script.version += 1;
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Script> {
        self.script.lock()
    }

    pub(crate) fn endpoint(&self, node: usize) -> cluster::Address {
        cluster::Address::from_endpoint(&format!("http://127.0.0.1:{}", self.lock().nodes[node].port))
            .expect("loopback and a sound script")
    }

    fn serve(&self, mut stream: TcpStream, node: usize) {
        let mut lines = BufReader::new(stream.try_clone().expect("loopback and a sound script")).lines();
        let Some(Ok(first)) = lines.next() else { return };
        let mut authorization = None;
        for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("authorization")
            {
                authorization = Some(value.trim().to_owned());
            }
        }
        let target = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let trick = {
            let mut script = self.lock();
            if !script.nodes[node].alive {
                return;
            }
            script.asked.push(target.clone());
            let mut tricks = script.tricks.iter();
            tricks
                .find(|(of, _)| target.contains(of.as_str()))
                .map(|(_, trick)| *trick)
        };
        if let Some(Trick::Late(time)) = trick {
            std::thread::sleep(time);
        }
        let (status, body) = {
            let script = self.lock();
            match script.authorization.is_some() && script.authorization != authorization {
                true => (401, json!({"error": "unauthorized"})),
                false => match trick {
                    Some(Trick::Status(status)) => (status, json!({"error": "a trick"})),
                    _ => script.answer(&target, node),
                },
            }
        };
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 {status} -\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let _ = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body.as_bytes()));
    }
}

impl Script {
    pub(crate) fn index(&mut self, name: &str, uuid: &str, primaries: &[usize]) {
        self.indices.insert(
            name.to_owned(),
            FakeIndex {
                uuid: uuid.to_owned(),
                primaries: primaries.to_vec(),
                ..FakeIndex::default()
            },
        );
    }

    /// The index of this name, to be changed.
    pub(crate) fn of(&mut self, name: &str) -> &mut FakeIndex {
        self.indices.get_mut(name).expect("an index of the script")
    }

    fn answer(&self, target: &str, node: usize) -> (u16, Value) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let version = json!({
            "cluster_name": "fake", "cluster_uuid": self.cluster_uuid, "version": self.version,
            "state_uuid": format!("{}-{}", self.cluster_uuid, self.version), "master_node": (!self.nodes[node].lost).then_some("id-0"),
        });
        let body = match path {
            "/_nodes/http,settings" => {
                json!({"cluster_name": "fake", "nodes": self.each_node(|n| !n.silent, |n| json!({
                    "name": n.id.replace("id", "node"), "version": "3.8.0", "roles": ["cluster_manager", "data", "ingest"],
                    "http": n.http.then(|| json!({"publish_address": n.publish, "max_content_length_in_bytes": 104_857_600})),
                }))})
            }
            "/_nodes/_local/http" => {
                let id = &self.nodes[node].id;
                json!({"nodes": {id.as_str(): {"name": id}}})
            }
            "/_cluster/state/version,master_node" => version,
            "/_cluster/state/version,master_node,nodes,blocks,routing_table" => {
                let mut body = version;
                body["nodes"] = self.each_node(|_| true, |n| json!({"ephemeral_id": format!("{}-e", n.id)}));
                body["routing_table"] = json!({"indices": self.each_index(|index| {
                    let shard = |(n, node): (usize, &usize)| {
                        let state = if index.red { "UNASSIGNED" } else { "STARTED" };
                        (n.to_string(), json!([{"primary": true, "state": state, "node": self.nodes[*node].id}]))
                    };
                    json!({"shards": index.primaries.iter().enumerate().map(shard).collect::<Map<_, _>>()})
                })});
                let closed = self.indices.iter().filter(|(_, index)| index.closed);
                body["blocks"] = json!({"indices": closed
                    .map(|(name, _)| (name.clone(), json!({"4": {}}))).collect::<Map<_, _>>()});
                body
            }
            "/_alias" => json!(self.aliases),
            "/_resolve/index/*" => json!({"data_streams": self.data_streams.iter()
                .map(|(name, backing)| json!({"name": name, "backing_indices": backing})).collect::<Vec<_>>()}),
            "/_ingest/pipeline" => json!({}),
            _ if path.starts_with("/_all/_settings/") => self.each_index(|index| {
                let mut settings = json!({
                    "index.uuid": index.uuid, "index.version.created": "137297827",
                    "index.number_of_shards": index.primaries.len().to_string(),
                });
                if let Some(size) = index.partition_size {
                    settings["index.routing_partition_size"] = json!(size.to_string());
                }
                if let Some(history) = &index.history {
                    settings["index.history.uuid"] = json!(history);
                }
                json!({"settings": settings})
            }),
            _ if path.starts_with("/_cluster/state/metadata/") => {
                json!({"metadata": {"indices": self.each_index(|index| {
                    let mut metadata = json!({
                        "settings": {"index": {"uuid": index.uuid}}, "routing_num_shards": routing_shards(index),
                    });
                    if index.routing_required {
                        metadata["mappings"] = json!({"_doc": {"_routing": {"required": true}}});
                    }
                    if let Some(version) = index.mapping_version {
                        metadata["mapping_version"] = json!(version);
                    }
                    metadata
                })}})
            }
            _ if path.ends_with("/_search_shards") => self.search_shards(path, query),
            _ => return (404, json!({"error": "no such thing"})),
        };
        (200, body)
    }

    fn search_shards(&self, path: &str, query: &str) -> Value {
        let index = &self.indices[path.split('/').nth(1).expect("loopback and a sound script")];
        let formula = Formula::Classic {
            routing_num_shards: routing_shards(index),
        };
        let route = IndexRoute::new("-", formula, vec![None; index.primaries.len()]);
        if index.red {
            return json!({"shards": index.primaries.iter().map(|_| json!([])).collect::<Vec<_>>()});
        }
        let values = query
            .strip_prefix("routing=")
            .and_then(|q| q.split('&').next())
            .expect("loopback and a sound script");
        let mut shards: Vec<u32> = values
            .split(',')
            .map(|value| (route.shard(value, None) + u32::from(self.lies)) % route.shards())
            .collect();
        shards.sort_unstable();
        shards.dedup();
        json!({"shards": shards.iter().map(|shard| json!([{"shard": shard}])).collect::<Vec<_>>()})
    }

    fn each_node(&self, wanted: impl Fn(&FakeNode) -> bool, describe: impl Fn(&FakeNode) -> Value) -> Value {
        let wanted = self.nodes.iter().filter(|n| wanted(n));
        Value::Object(wanted.map(|n| (n.id.clone(), describe(n))).collect())
    }

    fn each_index(&self, describe: impl Fn(&FakeIndex) -> Value) -> Value {
        Value::Object(
            self.indices
                .iter()
                .map(|(name, index)| (name.clone(), describe(index)))
                .collect(),
        )
    }
}

fn routing_shards(index: &FakeIndex) -> u32 {
    let usual = u32::try_from(index.primaries.len()).expect("loopback and a sound script") * 16;
    index.routing_shards.unwrap_or(usual)
}
