//! A fake cluster for measurements and tests: several nodes that really answer bulk requests, at several
//! million documents per second and core, and misbehave on demand.
//!
//! The fake is no evidence of how a server behaves; only real clusters are. Instead it offers counts (of
//! documents by node and shard, and of those that reached a node without their primary), speed, and faults
//! that cannot be provoked in a real cluster. It has its own small HTTP server on blocking sockets, with one
//! thread per connection, so that it shares no code with the code under test.
//!
//! ```
//! use sink::{Injection, FakeCluster, Fault, Spec};
//!
//! let cluster = FakeCluster::start(Spec::default().index("logs", 6))?;
//! cluster.inject(Injection::bulk(Fault::Status { status: 429, body: "{}".into() }).on_node(1).times(2));
//! assert_eq!(cluster.urls().len(), 3);
//! assert_eq!(cluster.counts().docs, 0);
//! # std::io::Result::Ok(())
//! ```

mod api;
mod behaviour;
mod bulk;
mod document;
mod fault;
mod filter_path;
mod flavour;
mod form;
mod http;
mod index;
mod ingest;
mod item;
mod listing;
mod node;
mod refusal;
mod route;
mod search;
mod settings;
mod state;
mod statistics;
mod tls;
mod users;

pub use behaviour::{Behaviour, HeldUp, Refusal, Unfit, Workers};
pub use fault::{Fault, Injection, On};
pub use flavour::{Flavour, UnknownFlavour};
pub use index::Stored;
pub use route::{Formula, routing_num_shards, shard_of};
pub use users::User;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use node::Node;
use state::ClusterContext;
use tls::Identity;

/// The parts of a [`FakeCluster`].
#[derive(Debug, Clone)]
pub struct Spec {
    /// The number of nodes; all of them hold data.
    pub nodes: usize,
    /// The address that all nodes listen on, each on its own port.
    pub host: IpAddr,
    /// The port of the first node; the others follow it. 0 takes free ports.
    pub base_port: u16,
    /// The server whose answers the nodes imitate.
    pub flavour: Flavour,
    /// Indices that exist from the start: name and number of shards, which are spread over the nodes in turn.
    pub indices: Vec<(String, u32)>,
    /// Whether lines and headers may be long, as if `http.max_initial_line_length` and `http.max_header_size`
    /// were raised.
    pub long_heads: bool,
    /// The ingest pipelines that the cluster reports. None of them runs except the one named `stamps`, which
    /// adds a field.
    pub pipelines: serde_json::Map<String, serde_json::Value>,
    /// Whether documents are kept (for tests that look at contents), or only counted (for speed).
    pub store: bool,
    /// Whether a bulk to a missing index creates it, with one shard, as servers do by default.
    pub auto_create: bool,
    /// Whether the nodes speak TLS, with a certificate of their own ([`FakeCluster::ca_pem`]).
    pub tls: bool,
    /// The user and password that every request must carry.
    pub basic_auth: Option<(String, String)>,
    /// Users with few rights.
    pub users: Vec<User>,
    /// The largest body in bytes; larger ones are answered with 413.
    pub content_length_max: usize,
    /// `http.compression`: whether clients that accept gzip get it. Without a value, as by the servers'
    /// default, they get it only in clear text.
    pub compression: Option<bool>,
    /// How slow and how faulty answers are, all the time.
    pub behaviour: Behaviour,
    /// The documents a second that the nodes report beside those they were sent, as if somebody else wrote
    /// them: they make a cluster look alive without costing anything.
    pub claimed_docs_per_s: u32,
}

/// A running fake cluster; dropping it stops its nodes and ends its connections.
#[derive(Debug)]
pub struct FakeCluster {
    shared: Arc<ClusterContext>,
    nodes: Vec<Node>,
    identity: Option<Identity>,
}

/// Counts of what the nodes have been sent since the start or the last [`FakeCluster::reset_counts`].
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Requests of every kind.
    pub requests: u64,
    /// Bulk requests that were read to the end and accepted.
    pub bulks: u64,
    /// Documents written one by one.
    pub writes: u64,
    /// Operations in bulks.
    pub docs: u64,
    /// Operations with an id or a routing that reached a node other than the one with their shard's primary.
    pub misrouted: u64,
    /// Operations of each node.
    pub docs_by_node: Vec<u64>,
    /// Bytes of bulk bodies, as sent over the wire.
    pub body_bytes: u64,
    /// Bulks refused because too many were waiting ([`Workers`]).
    pub bulks_refused: u64,
    /// Milliseconds for which bulks were worked on, in total.
    pub worked_ms: u64,
    /// Milliseconds for which bulks waited for a worker, in total.
    pub waited_ms: u64,
}

// === impl Spec ===

impl Default for Spec {
    /// Returns a cluster of three nodes of OpenSearch 3.8 on free ports, in clear text, without indices,
    /// which count documents and keep none.
    fn default() -> Spec {
        Spec {
            nodes: 3,
            host: Ipv4Addr::LOCALHOST.into(),
            base_port: 0,
            flavour: Flavour::OpenSearch3,
            indices: Vec::new(),
            long_heads: false,
            pipelines: serde_json::Map::new(),
            store: false,
            auto_create: true,
            tls: false,
            basic_auth: None,
            users: Vec::new(),
            content_length_max: 100 << 20,
            compression: None,
            behaviour: Behaviour::default(),
            claimed_docs_per_s: 0,
        }
    }
}

impl Spec {
    /// Adds an index of this many shards.
    #[must_use]
    pub fn index(mut self, name: &str, shards: u32) -> Spec {
        self.indices.push((name.to_owned(), shards));
        self
    }

    /// Sets the flavour.
    #[must_use]
    pub fn flavour(mut self, flavour: Flavour) -> Spec {
        self.flavour = flavour;
        self
    }

    /// Keeps documents, so that `GET /INDEX/_doc/ID`, `_count` and [`FakeCluster::docs`] return them.
    #[must_use]
    pub fn storing(mut self) -> Spec {
        self.store = true;
        self
    }

    /// Returns whether answers are compressed for clients that accept it.
    fn packs(&self) -> bool {
        self.compression.unwrap_or(!self.tls)
    }

    /// Makes the nodes speak TLS.
    #[must_use]
    pub fn tls(mut self) -> Spec {
        self.tls = true;
        self
    }

    /// Adds this user, who has only the rights given in it.
    #[must_use]
    pub fn user(mut self, user: User) -> Spec {
        self.users.push(user);
        self
    }

    /// Requires this user, who may do everything, for every request.
    #[must_use]
    pub fn basic_auth(mut self, user: &str, password: &str) -> Spec {
        self.basic_auth = Some((user.to_owned(), password.to_owned()));
        self
    }
}

// === impl FakeCluster ===

impl FakeCluster {
    /// Starts the nodes; they answer once this returns.
    ///
    /// # Errors
    /// When a port cannot be bound.
    pub fn start(spec: Spec) -> std::io::Result<FakeCluster> {
        let identity = if spec.tls {
            Some(tls::own_certificate().map_err(std::io::Error::other)?)
        } else {
            None
        };
        let config = identity.as_ref().map(|identity| Arc::clone(&identity.config));
        let mut listeners = Vec::new();
        for at in 0..spec.nodes {
            let port = if spec.base_port == 0 {
                0
            } else {
                spec.base_port + at as u16
            };
            listeners.push(std::net::TcpListener::bind((spec.host, port))?);
        }
        let addresses = listeners
            .iter()
            .map(std::net::TcpListener::local_addr)
            .collect::<Result<Vec<_>, _>>()?;
        let shared = Arc::new(ClusterContext::new(spec, addresses));
        let start = |(at, listener)| Node::start(at, listener, Arc::clone(&shared), config.clone());
        let nodes = listeners
            .into_iter()
            .enumerate()
            .map(start)
            .collect::<Result<Vec<_>, _>>()?;
        Ok(FakeCluster {
            shared,
            nodes,
            identity,
        })
    }

    /// Returns the origins of the nodes, `http://127.0.0.1:PORT` or `https://…`.
    pub fn urls(&self) -> Vec<String> {
        let scheme = if self.identity.is_some() { "https" } else { "http" };
        self.addresses()
            .iter()
            .map(|address| format!("{scheme}://{address}"))
            .collect()
    }

    /// Returns the addresses of the nodes.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.shared.addresses
    }

    /// Returns the certificate that the nodes show, for clients to trust; `None` in clear text.
    pub fn ca_pem(&self) -> Option<&str> {
        self.identity
            .as_ref()
            .map(|identity| identity.certificate_pem.as_str())
    }

    /// Returns the key of that certificate, for a proxy that shows the same one; `None` in clear text.
    pub fn key_pem(&self) -> Option<&str> {
        self.identity.as_ref().map(|identity| identity.key_pem.as_str())
    }

    /// Makes nodes misbehave. Cues are tried in the order in which they were given.
    pub fn inject(&self, injection: Injection) {
        self.shared.injections.add(injection);
    }

    /// Drops all injections.
    pub fn behave(&self) {
        self.shared.injections.clear();
    }

    /// Returns how many requests have been struck by an injection since the start. Requests struck by
    /// [`Fault::StatusIfHolds`], [`Fault::StatusIfLacks`] and [`Fault::StatusIfLonger`] count whatever they
    /// hold. A request counts when its head has arrived, before the fault does anything.
    pub fn struck(&self) -> u64 {
        self.shared.injections.struck()
    }

    /// Returns the latest `traceparent` headers of requests, 1,000 at most.
    pub fn traceparents(&self) -> Vec<String> {
        self.shared.traceparents()
    }

    /// Ends a node as `kill -9` does: its connections break, its port refuses, and it executes nothing once
    /// this returns. The cluster state stays as it was, unlike with [`FakeCluster::leave`].
    pub fn kill(&self, node: usize) {
        self.nodes[node].kill();
    }

    /// Brings a killed node back on its port.
    ///
    /// # Errors
    /// When the port has been taken meanwhile.
    pub fn restart(&self, node: usize) -> std::io::Result<()> {
        self.nodes[node].restart()?;
        self.shared.change(|state| state.nodes[node].gone = false);
        Ok(())
    }

    /// Pauses a node as SIGSTOP does: connections are accepted, and nothing is answered or executed until
    /// [`FakeCluster::resume`].
    pub fn pause(&self, node: usize) {
        self.shared.paused[node].store(true, Ordering::Release);
    }

    /// Lets a paused node continue with what it was sent meanwhile.
    pub fn resume(&self, node: usize) {
        self.shared.paused[node].store(false, Ordering::Release);
    }

    /// Kills a node and lets the cluster notice: the node is no longer listed, and its primaries move to the
    /// others in turn.
    pub fn leave(&self, node: usize) {
        self.kill(node);
        self.shared.change(|state| state.evict(node));
    }

    /// Moves a primary to another node.
    ///
    /// # Panics
    /// When there is no such index or shard.
    pub fn move_shard(&self, index: &str, shard: u32, node: usize) {
        self.shared
            .change(|state| state.index_mut(index).primaries[shard as usize] = Some(node));
    }

    /// Creates an index with its primaries on the nodes in turn. An index of the same name is deleted first,
    /// with its documents, and the new one gets another uuid.
    pub fn create_index(&self, name: &str, shards: u32) {
        self.shared.change(|state| state.create(name, shards));
    }

    /// Deletes an index.
    pub fn delete_index(&self, name: &str) {
        self.shared.change(|state| drop(state.indices.remove(name)));
    }

    /// Closes an index: writes to it fail from now on.
    ///
    /// # Panics
    /// When there is no such index.
    pub fn close_index(&self, name: &str) {
        self.shared.change(|state| state.index_mut(name).closed = true);
    }

    /// Gives an index a mapping whose `_routing` is required.
    ///
    /// # Panics
    /// When there is no such index.
    pub fn require_routing(&self, index: &str) {
        self.shared
            .change(|state| state.index_mut(index).routing_required = true);
    }

    /// Opens an index again.
    ///
    /// # Panics
    /// When there is no such index.
    pub fn open_index(&self, name: &str) {
        self.shared.change(|state| state.index_mut(name).closed = false);
    }

    /// Refuses every write to an index with this status and `error`, a JSON object, as a block or a missing
    /// right does; with `None`, takes writes again.
    ///
    /// # Panics
    /// When there is no such index.
    pub fn refuse_writes(&self, name: &str, refusal: Option<(u16, &str)>) {
        let refusal = refusal.map(|(status, error)| (status, error.to_owned()));
        self.shared
            .change(|state| state.index_mut(name).refusing = refusal);
    }

    /// Gives an alias to indices; the first of them takes the writes.
    pub fn alias(&self, alias: &str, indices: &[&str]) {
        self.shared.change(|state| state.alias(alias, indices));
    }

    /// Gives an alias to indices of which none takes the writes.
    pub fn alias_without_write_index(&self, alias: &str, indices: &[&str]) {
        self.shared.change(|state| {
            state.alias(alias, indices);
            state.unled.insert(alias.to_owned());
        });
    }

    /// Splits or shrinks the index that takes an alias's writes: a new index of `shards` shards gets its
    /// documents and its place, and the old one is deleted. A server takes no writes meanwhile; here it is
    /// one moment.
    ///
    /// # Panics
    /// When there is no such alias.
    pub fn split_behind(&self, alias: &str, name: &str, shards: u32) {
        self.shared.change(|state| {
            let mut indices = state.aliases[alias].clone();
            let source = std::mem::replace(&mut indices[0], name.to_owned());
            state.split(&source, name, shards);
            state.aliases.insert(alias.to_owned(), indices);
        });
    }

    /// Removes a user.
    pub fn remove_user(&self, name: &str) {
        self.shared.change_users(|users| users::remove(users, name));
    }

    /// Puts another cluster behind the same addresses: with new uuids and the same indices, without
    /// documents.
    pub fn rebuild(&self) {
        self.shared.change(|state| state.rebuild());
    }

    /// Returns the node that holds a primary.
    ///
    /// # Panics
    /// When there is no such index or shard.
    pub fn node_of(&self, index: &str, shard: u32) -> Option<usize> {
        self.shared
            .state()
            .index(index)
            .expect("the caller names an index that is there")
            .primaries[shard as usize]
    }

    /// Changes how slow and how faulty the nodes are. The request `POST
    /// /_fake/behaviour?latency_ms=…&capacity=…&workers=…&waiting=…` does the same.
    pub fn set_behaviour(&self, behaviour: Behaviour) {
        self.shared.set_behaviour(behaviour);
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Starts counting from zero again.
    pub fn reset_counts(&self) {
        self.shared.reset_counts();
    }

    /// Returns the number of connections open now, for each node.
    pub fn connections(&self) -> Vec<usize> {
        self.nodes.iter().map(Node::connections).collect()
    }

    /// Returns the version of the cluster state, which every change raises.
    pub fn state_version(&self) -> u64 {
        self.shared.version.load(Ordering::Relaxed)
    }

    /// Returns the documents of an index by id; empty unless the cluster is [`Spec::storing`].
    pub fn docs(&self, index: &str) -> BTreeMap<String, Stored> {
        self.shared
            .state()
            .index(index)
            .map(|index| index.docs())
            .unwrap_or_default()
    }
}

impl Drop for FakeCluster {
    fn drop(&mut self) {
        for node in &self.nodes {
            node.kill();
        }
    }
}
