//! The configuration as the gateway runs it: every default filled in, every name resolved, every number in
//! one unit. Only sections that are switched on (`enabled: true`) are here.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use settings::Secret;

pub use super::retry::{Matching, Retry, RetryRules};
use crate::router::Router;
use crate::when::When;

/// A configuration that has passed every check.
///
/// The maps' keys are the sections' names. Every name that one section gives for another is a key here.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Directories.
    pub paths: Paths,
    /// Listeners, in the file's order. Bindings are distinct.
    pub entries: Vec<Entry>,
    /// Routers by name.
    pub routers: BTreeMap<Arc<str>, Arc<Router>>,
    /// Flows by name.
    pub flows: BTreeMap<Arc<str>, Arc<Flow>>,
    /// Clusters by name.
    pub clusters: BTreeMap<Arc<str>, Arc<Cluster>>,
    /// Queues of asynchronous mode by name.
    pub queues: BTreeMap<Arc<str>, Queue>,
    /// Who delivers from which queue to which cluster: one for each queue and consumer group.
    pub deliveries: Vec<Delivery>,
    /// The admin port.
    pub admin: Admin,
    /// Logging.
    pub logging: Logging,
    /// Cores and memory.
    pub worker: Worker,
    /// Whether a changed file is loaded by itself; `SIGHUP` always does it.
    pub auto_reload: bool,
}

/// Directories the gateway writes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Paths {
    /// `path.data`: queues, dead letters, what is switched at run time.
    pub data: PathBuf,
}

/// A listener.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its name.
    pub name: Arc<str>,
    /// The router its requests go through: a key of [`Config::routers`].
    pub router: Arc<str>,
    /// Address and port to listen on. Port 0 asks the system for a free one.
    pub binding: SocketAddr,
    /// When the port is taken: try the next ports (at most 100) instead of failing.
    pub skip_occupied_port: bool,
    /// Share the port with other processes (`SO_REUSEPORT`).
    pub reuse_port: bool,
    /// TLS towards clients, if any.
    pub tls: Option<EntryTls>,
    /// `max_concurrency`: connections at most; more are closed at accept.
    pub connections_max: usize,
    /// What a request may weigh.
    pub limits: Limits,
    /// How long a client may take.
    pub timeouts: EntryTimeouts,
}

/// TLS towards clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryTls {
    /// The certificate shown to clients.
    pub certificate: Certificate,
    /// Authorities (PEM) whose certificates clients must show; none: clients need no certificate.
    pub client_ca_file: Option<PathBuf>,
    /// Whether the files are watched and a changed certificate is used for new connections.
    pub hot_reload: bool,
}

/// Where an entry's certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// PEM files: the chain, leaf first, and its key.
    Files {
        /// The chain.
        cert_file: PathBuf,
        /// The key.
        key_file: PathBuf,
    },
    /// Made when the listener is opened, in memory, signed by itself: for trying things out. Start-up warns
    /// of it.
    SelfSigned,
}

/// What a request may weigh. Zero is nowhere "unlimited".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of request line and headers.
    pub head_bytes_max: usize,
    /// Number of headers.
    pub header_count_max: usize,
    /// Bytes of the body, after decompression.
    pub body_bytes_max: u64,
}

/// How long a client may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryTimeouts {
    /// From a request's first byte (or the connection's start, TLS handshake included) to the end of its
    /// head.
    pub header: Duration,
    /// Between two reads of a body.
    pub read: Duration,
    /// Between two writes of a reply that make progress.
    pub write: Duration,
    /// A connection with no request on it.
    pub idle: Duration,
    /// Slowest body accepted, bytes per second, measured after `read` has passed; 0: no such limit.
    pub body_bytes_per_second_min: u64,
}

/// A named list of filters, run in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Its name.
    pub name: Arc<str>,
    /// Run in order, until one answers the request.
    pub filters: Vec<Filter>,
}

/// One step of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// Run only if this holds; none: always.
    pub when: Option<When>,
    /// What it does.
    pub action: FilterAction,
}

/// What a filter does.
#[derive(Clone, Debug, PartialEq)]
pub enum FilterAction {
    /// `bulk_reshuffle`: answers bulk requests by splitting them. What isn't a bulk request goes on to the
    /// next filter.
    BulkReshuffle(BulkReshuffle),
    /// `elasticsearch`: answers any request by forwarding it to a node.
    Elasticsearch(Forward),
}

/// The filter `bulk_reshuffle`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkReshuffle {
    /// The cluster: a key of [`Config::clusters`].
    pub cluster: Arc<str>,
    /// What a part of a request is made for.
    pub level: Level,
    /// The queue that requests are put into, in asynchronous mode: a key of [`Config::queues`]. None:
    /// synchronous mode.
    pub queue: Option<Arc<str>>,
    /// Give documents with neither id nor routing an id made here (`true`), or leave that to the server.
    pub fix_null_id: bool,
    /// When parts of different requests travel together, unless it is switched at run time.
    pub combine: Combine,
    /// What is done with documents that have neither id nor routing, unless it is switched at run time.
    pub direct_routing: DirectRouting,
    /// Send writes of single documents as bulks of one.
    pub rewrite_to_bulk: bool,
    /// Pack answers for clients that accept it, where nodes do.
    pub compress_answers: bool,
    /// How parts are sent.
    pub sending: Sending,
}

/// When parts of different bulk requests travel to a node together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Combine {
    /// Whether they do at all.
    pub enabled: bool,
    /// What waits is sent once it is as many bytes. A part of more than half of that never waits.
    pub flush_bytes: u64,
    /// What waits is sent once it is as many documents.
    pub docs_max: u32,
    /// What waits is sent once it is of as many requests.
    pub requests_max: u32,
    /// No part waits longer, unless its node has as many requests as it takes.
    pub interval: Duration,
    /// Whether how many requests a node is sent at once is found from its answers.
    pub adaptive: bool,
}

/// The filter `elasticsearch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The cluster: a key of [`Config::clusters`].
    pub cluster: Arc<str>,
    /// How a node is chosen.
    pub balancer: Balancer,
    /// Weight by `host:port`; nodes not named weigh 1, 0 takes a node out.
    pub weights: BTreeMap<Arc<str>, u32>,
    /// Which nodes may be chosen.
    pub nodes: NodeFilter,
    /// Only nodes that were there when the cluster was first read.
    pub frozen: bool,
    /// Bytes of a reply at most; none: no limit (replies are streamed).
    pub response_bytes_max: Option<u64>,
    /// How requests are sent.
    pub sending: Sending,
}

/// How requests are sent to nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Connections to one node at most, over all cores.
    pub connections_per_node_max: usize,
    /// Tries after the first, only where sending twice can't write twice.
    pub retry_count_max: u32,
    /// Wait before the first retry; doubled for each further one, with jitter.
    pub retry_delay: Duration,
    /// To establish a connection, TLS included.
    pub connect_timeout: Duration,
    /// From the request sent to the reply's last byte.
    pub response_timeout: Duration,
    /// Between two writes that make progress.
    pub write_timeout: Duration,
    /// An unused connection is closed after this.
    pub idle_timeout: Duration,
}

/// What a part of a bulk request is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The cluster: requests are not split.
    Cluster,
    /// A node: one part for each node that holds a primary of the request.
    #[default]
    Node,
    /// An index: one part for each index and node.
    Index,
    /// A shard: one part for each shard.
    Shard,
}

impl Level {
    /// As the file has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Cluster => "cluster",
            Level::Node => "node",
            Level::Index => "index",
            Level::Shard => "shard",
        }
    }
}

/// What is done with documents that have neither id nor routing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DirectRouting {
    /// They go to any node, and the server chooses a shard for each.
    #[default]
    Off,
    /// They get ids made here, so that a run of them is for one shard. GET by id finds them.
    MintPacked,
    /// They get a routing value, so that a run of them is for one shard, and the server makes the ids without
    /// looking for older versions. GET by id needs the routing then.
    Routing,
}

/// A durable log that bulk requests are put into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its name: letters, digits, `-`, `_`; at most 64.
    pub name: Arc<str>,
    /// The cluster whose topology decides about lanes: a key of [`Config::clusters`].
    pub cluster: Arc<str>,
    /// What a request is made for that delivers from it.
    pub level: Level,
    /// Lanes of a queue that is made now.
    pub lanes: u32,
    /// When an appended request counts as safe.
    pub fsync: Fsync,
    /// How documents are packed on disk.
    pub compression: Compression,
    /// Bytes on disk at most; none: no such limit.
    pub bytes_max: Option<u64>,
    /// Bytes that stay free on the disk.
    pub free_bytes_min: u64,
    /// Bytes of used-up files that are kept to be written again.
    pub spare_bytes: u64,
    /// Bytes of dead letters at most.
    pub dead_letters_bytes_max: u64,
    /// Bytes of parked operations at most, of one consumer group.
    pub parked_bytes_max: u64,
    /// How long an operation is parked before it becomes a dead letter.
    pub parked_age_max: Duration,
    /// Whether requests may have an `Idempotency-Key`, and for how long that counts.
    pub idempotency: Option<Idempotency>,
    /// The topic that it is; none: it is on this machine's disk. Only name, cluster and dead letters count
    /// then.
    pub kafka: Option<KafkaTopic>,
    /// What is done with writes that cannot be queued.
    pub passing: Passing,
}

/// What is done with writes that cannot be put into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passing {
    /// How long they wait for what is queued before them; none: they don't.
    pub waits: Option<Duration>,
    /// They are refused where the queue has a second cluster, which would miss them.
    pub refused_with_second_cluster: bool,
}

/// Requests that are written once however often they come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// So long a key is remembered.
    pub window: Duration,
    /// So many are, at most.
    pub keys_max: usize,
}

/// A Kafka topic that is a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaTopic {
    /// `host:port` of some brokers; at least one.
    pub brokers: Vec<Arc<str>>,
    /// Its name.
    pub topic: Arc<str>,
    /// Partitions; none: those that it has, or 16 if it is made.
    pub partitions: Option<u32>,
    /// Replicas, if it is made; none: the brokers' default.
    pub replicas: Option<u16>,
    /// How long messages are kept, if it is made.
    pub retention: Duration,
    /// Bytes of a message at most, if it is made; none: the brokers' default.
    pub message_bytes_max: Option<u32>,
    /// A request that is not acknowledged after this is refused.
    pub ack_timeout: Duration,
    /// A gateway that is not heard of for so long loses its lanes.
    pub session_timeout: Duration,
    /// How brokers' certificates are checked; none: TLS is not spoken.
    pub tls: Option<ClusterTls>,
    /// The gateway's account at the brokers.
    pub sasl: Option<Sasl>,
}

/// An account at Kafka's brokers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sasl {
    /// How it is proved.
    pub mechanism: SaslMechanism,
    /// User name.
    pub username: String,
    /// Password.
    pub password: Secret,
}

/// How an account at Kafka's brokers is proved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub enum SaslMechanism {
    /// With the password itself, which must not travel without TLS.
    #[serde(rename = "PLAIN")]
    Plain,
    /// With the knowledge of it, and SHA-256.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// With the knowledge of it, and SHA-512.
    #[default]
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

impl SaslMechanism {
    /// Its name, as it is registered.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

/// When an appended request counts as safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Once it is synced.
    Always,
    /// Once it is written; synced this often.
    Interval(Duration),
    /// Once it is written.
    Os,
}

/// How documents are packed on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4.
    Lz4,
    /// Zstandard, level 1.
    Zstd,
}

/// Delivery from one queue to one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The pipeline's name.
    pub pipeline: Arc<str>,
    /// The queue: a key of [`Config::queues`].
    pub queue: Arc<str>,
    /// The cluster: a key of [`Config::clusters`].
    pub cluster: Arc<str>,
    /// The consumer group's name.
    pub group: Arc<str>,
    /// Where the group begins if it is new.
    pub start: Start,
    /// Whether it runs from the start.
    pub enabled: bool,
    /// Whether it goes on when everything is delivered.
    pub keep_running: bool,
    /// What a request is made for.
    pub level: Level,
    /// Bytes of a request, and of what a lane reads at once.
    pub batch_bytes_max: usize,
    /// Documents of a request, and of what a lane reads at once.
    pub batch_docs_max: usize,
    /// How long a lane waits for more than it has, if that would not fill a request.
    pub linger: Duration,
    /// Whether requests are compressed.
    pub compress: bool,
    /// Requests that are at the cluster at once; a node may be sent one in any case.
    pub workers_max: usize,
    /// Requests that are at one node at once, if that is bounded.
    pub slices_max: Option<usize>,
    /// Whether how many of them are at one node is found from its answers.
    pub adaptive: bool,
    /// How it tries again.
    pub retry: Retry,
    /// How requests are sent.
    pub sending: Sending,
}

/// Where a consumer group that is new begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the oldest record that is still there.
    #[default]
    Earliest,
    /// With what is accepted from now on.
    Latest,
    /// With what was accepted at this time or later, ms since 1970.
    Time(u64),
}

/// How a node is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Balancer {
    /// In turn, by weight.
    #[default]
    Weight,
}

/// Which nodes may be chosen: those of every `include` list that isn't empty, but for those that `exclude`
/// names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFilter {
    /// By `host:port`.
    pub hosts: Choice<Arc<str>>,
    /// By role (`master`, `data`, `ingest`…).
    pub roles: Choice<Arc<str>>,
    /// By node attribute, `name` and `value`.
    pub tags: Choice<(Arc<str>, Arc<str>)>,
}

/// What is in and what is out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice<T> {
    /// If not empty: only these.
    pub include: Vec<T>,
    /// Never these.
    pub exclude: Vec<T>,
}

/// A cluster of Elasticsearch or OpenSearch.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Its name.
    pub name: Arc<str>,
    /// Where to reach it; at least one, all with the same scheme.
    pub endpoints: Vec<Endpoint>,
    /// The gateway's own account.
    pub credentials: Option<Credentials>,
    /// What happens to client requests that carry no credentials.
    pub anonymous: Anonymous,
    /// How nodes' certificates are checked (with `https` endpoints).
    pub tls: ClusterTls,
    /// How the cluster is watched.
    pub discovery: Discovery,
}

/// One address of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Whether TLS is spoken there.
    pub tls: bool,
    /// Name or address, without brackets.
    pub host: Arc<str>,
    /// Port.
    pub port: u16,
}

/// An account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// `Authorization: Basic`.
    Basic {
        /// User name.
        username: String,
        /// Password.
        password: Secret,
    },
    /// `Authorization: ApiKey`, already in base64 (`id:api_key` encoded).
    ApiKey(Secret),
}

/// What happens to client requests that carry no credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Anonymous {
    /// They travel as they came, and the cluster decides.
    #[default]
    Pass,
    /// They are sent with the gateway's own account (`basic_auth` or `api_key`): whoever reaches the port
    /// writes with that account.
    UseGatewayAccount,
}

/// How nodes' certificates are checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterTls {
    /// `true`: any certificate is taken. Default `false`.
    pub insecure_skip_verify: bool,
    /// Authorities (PEM) in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// Certificate and key that the gateway shows.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

/// How a cluster is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// Ask the cluster for its nodes and routing (`true`), or use the given endpoints only.
    pub enabled: bool,
    /// Between two looks at them; none: only when something hints at a change.
    pub interval: Option<Duration>,
    /// For each of these looks.
    pub timeout: Duration,
}

/// The admin port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where it listens; none: switched off.
    pub binding: Option<SocketAddr>,
    /// `Authorization: Bearer` expected of everyone; required when `binding` isn't loopback.
    pub token: Option<Secret>,
}

/// Logging.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Logging {
    /// Least level written.
    pub level: LogLevel,
    /// Shape of lines.
    pub format: LogFormat,
    /// Requests slower than this are logged; none: never.
    pub slow_request: Option<Duration>,
    /// One request in so many gets a line of the access log; none: there is no access log.
    pub access: Option<u32>,
}

/// Least level written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Everything.
    Trace,
    /// For debugging.
    Debug,
    /// What happens.
    #[default]
    Info,
    /// What may need a look.
    Warn,
    /// What went wrong.
    Error,
}

/// Shape of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// Text.
    Text,
    /// One JSON object a line.
    Json,
}

/// Cores and memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Worker {
    /// Data-path threads; none: one for each core that the process may use.
    pub count: Option<usize>,
    /// Bytes of request bodies held at once, over all entries; more wait, then get 429.
    pub body_memory_bytes_max: u64,
    /// The rules between clients that want of them.
    #[serde(skip)]
    pub fairness: wire::Fairness,
    /// Bytes of documents that delivery of all queues holds at once.
    pub delivery_memory_bytes_max: u64,
    /// How long a graceful stop waits for requests under way.
    pub drain_timeout: Duration,
}

// === impl Choice ===

impl<T> Default for Choice<T> {
    fn default() -> Self {
        Self {
            include: Vec::new(),
            exclude: Vec::new(),
        }
    }
}

// === impl Admin ===

impl Default for Admin {
    fn default() -> Self {
        Self {
            binding: Some(SocketAddr::from(([127, 0, 0, 1], 2900))),
            token: None,
        }
    }
}

// === impl Endpoint ===

impl std::fmt::Display for Endpoint {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        let (open, close) = if self.host.contains(':') {
            ("[", "]")
        } else {
            ("", "")
        };
        write!(out, "{scheme}://{open}{}{close}:{}", self.host, self.port)
    }
}

/// The consumer of a queue's log that is there while dead letters go back; no consumer group may have its
/// name.
pub const REPLAYING: &str = "_replay";
