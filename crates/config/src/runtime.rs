//! The configuration as the gateway runs it: all defaults filled in, all names resolved, all numbers in one
//! unit. It contains only sections that are switched on (`enabled: true`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use serde::Serialize;
use settings::Secret;

pub use super::retry::{Matching, Retry, RetryRules};
use crate::router::Router;
use crate::when::When;

/// A configuration that has passed every check.
///
/// The keys of the maps are the names of the sections. Every name by which one section refers to another is a
/// key here.
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
    /// The deliveries from a queue to a cluster, one for each queue and consumer group.
    pub deliveries: Vec<Delivery>,
    /// The admin port.
    pub admin: Admin,
    /// Logging.
    pub logging: Logging,
    /// Traces of requests. `None`: no request is traced.
    pub tracing: Option<Tracing>,
    /// Cores and memory.
    pub worker: Worker,
    /// Whether a changed file is loaded automatically. `SIGHUP` always loads it.
    pub auto_reload: bool,
}

/// Directories the gateway writes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Paths {
    /// `path.data`: queues, dead letters, and settings that were switched at run time.
    pub data: PathBuf,
}

/// A listener.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The name of the entry.
    pub name: Arc<str>,
    /// The router for the requests of this entry: a key of [`Config::routers`].
    pub router: Arc<str>,
    /// Address and port to listen on. Port 0 asks the system for a free one.
    pub binding: SocketAddr,
    /// Whether to try the next ports (at most 100) when the port is taken, instead of failing.
    pub skip_occupied_port: bool,
    /// Whether to share the port with other processes (`SO_REUSEPORT`).
    pub reuse_port: bool,
    /// TLS towards clients, if any.
    pub tls: Option<EntryTls>,
    /// `max_concurrency`: the most connections. A further one replaces a connection that waits, or is closed
    /// itself.
    pub connections_max: usize,
    /// The size limits of a request.
    pub limits: Limits,
    /// The time limits of a client.
    pub timeouts: EntryTimeouts,
}

/// TLS towards clients, of an entry or of the admin port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryTls {
    /// The certificate that clients are shown.
    pub certificate: Certificate,
    /// Authorities (PEM); clients must present a certificate of one of them. `None`: clients need no
    /// certificate.
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
    /// A self-signed certificate, made in memory when the listener is opened. It is meant for trying things
    /// out, and the gateway warns about it when it starts.
    SelfSigned,
}

/// The size limits of a request. Zero never means "unlimited".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of request line and headers.
    pub head_bytes_max: usize,
    /// Number of headers.
    pub header_count_max: usize,
    /// Bytes of the body, after decompression.
    pub body_bytes_max: u64,
}

/// The time limits of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryTimeouts {
    /// From a request's first byte (or the connection's start, TLS handshake included) to the end of its
    /// head.
    pub header: Duration,
    /// The time between two reads of a body.
    pub read: Duration,
    /// The time between two writes of a reply that make progress.
    pub write: Duration,
    /// The life of a connection without a request.
    pub idle: Duration,
    /// The slowest body that is accepted, in bytes per second, measured after `read` has passed; 0 means no
    /// such limit.
    pub body_bytes_per_second_min: u64,
}

/// A named list of filters, run in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The name of the flow.
    pub name: Arc<str>,
    /// The filters, run in order until one answers the request.
    pub filters: Vec<Filter>,
}

/// One step of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// The filter runs only if this holds. `None`: always.
    pub when: Option<When>,
    /// What the filter does.
    pub action: FilterAction,
}

/// What a filter does.
#[derive(Clone, Debug, PartialEq)]
pub enum FilterAction {
    /// `bulk_reshuffle`: answers bulk requests by splitting them. Other requests go on to the next filter.
    BulkReshuffle(BulkReshuffle),
    /// `elasticsearch`: answers any request by forwarding it to a node.
    Elasticsearch(Forward),
}

/// The filter `bulk_reshuffle`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkReshuffle {
    /// The cluster: a key of [`Config::clusters`].
    pub cluster: Arc<str>,
    /// The unit for which the gateway makes one part of a request.
    pub level: Level,
    /// The queue that requests are put into in asynchronous mode: a key of [`Config::queues`]. `None`:
    /// synchronous mode.
    pub queue: Option<Arc<str>>,
    /// Whether documents with neither id nor routing get an id made here (`true`), or from the server.
    pub fix_null_id: bool,
    /// When parts of different requests travel together, unless this is switched at run time.
    pub combine: Combine,
    /// What happens to documents that have neither id nor routing, unless this is switched at run time.
    pub direct_routing: DirectRouting,
    /// Whether writes of single documents are sent as bulks of one operation.
    pub rewrite_to_bulk: bool,
    /// Whether answers are compressed for clients that accept it, if the nodes do so.
    pub compress_answers: bool,
    /// How parts are sent.
    pub sending: Sending,
}

/// When parts of different bulk requests travel to a node together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Combine {
    /// Whether parts travel together at all.
    pub enabled: bool,
    /// The number of bytes at which waiting parts are sent. A part of more than half of this size never
    /// waits.
    pub flush_bytes: u64,
    /// The number of documents at which waiting parts are sent.
    pub docs_max: u32,
    /// The number of requests at which their waiting parts are sent.
    pub requests_max: u32,
    /// The longest wait of a part, unless its node has as many requests as it takes.
    pub interval: Duration,
    /// Whether the number of requests that a node is sent at once is found from its answers.
    pub adaptive: bool,
}

/// The filter `elasticsearch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The cluster: a key of [`Config::clusters`].
    pub cluster: Arc<str>,
    /// How a node is chosen.
    pub balancer: Balancer,
    /// Weights by `host:port`. Nodes that are not named have weight 1; weight 0 excludes a node.
    pub weights: BTreeMap<Arc<str>, u32>,
    /// Which nodes may be chosen.
    pub nodes: NodeFilter,
    /// Whether only nodes that were there when the cluster was first read may be chosen.
    pub frozen: bool,
    /// The largest reply in bytes. `None`: no limit (replies are streamed).
    pub response_bytes_max: Option<u64>,
    /// How requests are sent.
    pub sending: Sending,
}

/// How requests are sent to nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sending {
    /// The most connections to one node, over all cores.
    pub connections_per_node_max: usize,
    /// The most retries, which happen only where sending twice cannot write twice.
    pub retry_count_max: u32,
    /// The wait before the first retry. Each further wait is doubled, with jitter.
    pub retry_delay: Duration,
    /// The time to establish a connection, TLS included.
    pub connect_timeout: Duration,
    /// The time from sending the request to the last byte of the reply.
    pub response_timeout: Duration,
    /// The time between two writes that make progress.
    pub write_timeout: Duration,
    /// The time after which an unused connection is closed.
    pub idle_timeout: Duration,
}

/// The unit for which the gateway makes one part of a bulk request.
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
    /// Returns the level as the file names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Cluster => "cluster",
            Level::Node => "node",
            Level::Index => "index",
            Level::Shard => "shard",
        }
    }
}

/// What happens to documents that have neither id nor routing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DirectRouting {
    /// They go to any node, and the server chooses a shard for each.
    #[default]
    Off,
    /// They get ids that are made here, so that a run of them is for one shard. GET by id finds them.
    MintPacked,
    /// They get a routing value, so that a run of them is for one shard, and the server makes the ids without
    /// looking for older versions. GET by id then needs the routing.
    Routing,
}

/// A durable log that bulk requests are put into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The name of the queue: letters, digits, `-`, `_`; at most 64.
    pub name: Arc<str>,
    /// The cluster whose topology determines the lanes: a key of [`Config::clusters`].
    pub cluster: Arc<str>,
    /// The unit for which a delivering request is made.
    pub level: Level,
    /// The number of lanes of a queue that is created now.
    pub lanes: u32,
    /// When an appended request counts as safe.
    pub fsync: Fsync,
    /// How documents are compressed on disk.
    pub compression: Compression,
    /// The most bytes on disk. `None`: no such limit.
    pub bytes_max: Option<u64>,
    /// The number of bytes that stay free on the disk.
    pub free_bytes_min: u64,
    /// The bytes of used-up files that are kept to be written again.
    pub spare_bytes: u64,
    /// The most bytes of dead letters.
    pub dead_letters_bytes_max: u64,
    /// The most bytes of parked operations of one consumer group.
    pub parked_bytes_max: u64,
    /// How long an operation is parked before it becomes a dead letter.
    pub parked_age_max: Duration,
    /// Whether requests may have an `Idempotency-Key`, and for how long keys are remembered.
    pub idempotency: Option<Idempotency>,
    /// The topic that holds the queue. `None`: the queue is on this machine's disk. With a topic, only the
    /// name, the cluster and the settings of dead letters count.
    pub kafka: Option<KafkaTopic>,
    /// What happens to writes that cannot be queued.
    pub passing: Passing,
}

/// What happens to writes that cannot be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passing {
    /// How long such writes wait for what is queued before them. `None`: they do not wait.
    pub waits: Option<Duration>,
    /// Whether such writes are refused if the queue has a second cluster, which would miss them.
    pub refused_with_second_cluster: bool,
}

/// The settings of requests that are written once, however often they come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// How long a key is remembered.
    pub window: Duration,
    /// The most keys that are remembered.
    pub keys_max: usize,
}

/// A Kafka topic that is used as a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaTopic {
    /// `host:port` of some brokers; at least one.
    pub brokers: Vec<Arc<str>>,
    /// The name of the topic.
    pub topic: Arc<str>,
    /// The number of partitions. `None`: those that the topic has, or 16 if it is created.
    pub partitions: Option<u32>,
    /// The number of replicas, if the topic is created. `None`: the brokers' default.
    pub replicas: Option<u16>,
    /// How long messages are kept, if the topic is created.
    pub retention: Duration,
    /// The largest message in bytes, if the topic is created. `None`: the brokers' default.
    pub message_bytes_max: Option<u32>,
    /// The time after which a request that is not acknowledged is refused.
    pub ack_timeout: Duration,
    /// The time after which a gateway that the brokers have not heard of loses its lanes.
    pub session_timeout: Duration,
    /// How brokers' certificates are checked. `None`: no TLS.
    pub tls: Option<ClusterTls>,
    /// The gateway's account at the brokers.
    pub sasl: Option<Sasl>,
}

/// An account at Kafka's brokers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sasl {
    /// How the account is proved.
    pub mechanism: SaslMechanism,
    /// The user name.
    pub username: String,
    /// The password.
    pub password: Secret,
}

/// How an account at Kafka's brokers is proved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub enum SaslMechanism {
    /// The password itself, which must not travel without TLS.
    #[serde(rename = "PLAIN")]
    Plain,
    /// Proof of knowing the password, with SHA-256.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// Proof of knowing the password, with SHA-512.
    #[default]
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

impl SaslMechanism {
    /// Returns the registered name of the mechanism.
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
    /// Once it is written. The log is synced at this interval.
    Interval(Duration),
    /// Once it is written.
    Os,
}

/// How documents are compressed on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
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
    /// The name of the pipeline.
    pub pipeline: Arc<str>,
    /// The queue: a key of [`Config::queues`].
    pub queue: Arc<str>,
    /// The cluster: a key of [`Config::clusters`].
    pub cluster: Arc<str>,
    /// The name of the consumer group.
    pub group: Arc<str>,
    /// Where the group begins if it is new.
    pub start: Start,
    /// Whether the delivery runs from the start.
    pub enabled: bool,
    /// Whether the delivery continues when everything is delivered.
    pub keep_running: bool,
    /// The unit for which a request is made.
    pub level: Level,
    /// The most bytes of a request, and of what a lane reads at once.
    pub batch_bytes_max: usize,
    /// The most documents of a request, and of what a lane reads at once.
    pub batch_docs_max: usize,
    /// How long a lane waits for further documents, if those it has would not fill a request.
    pub linger: Duration,
    /// Whether requests are compressed.
    pub compress: bool,
    /// The most requests under way to the cluster. A node may be sent one in any case.
    pub workers_max: usize,
    /// The most requests under way to one node, if that is limited.
    pub slices_max: Option<usize>,
    /// Whether the number of requests under way to one node is found from its answers.
    pub adaptive: bool,
    /// How delivery retries.
    pub retry: Retry,
    /// How requests are sent.
    pub sending: Sending,
}

/// Where a new consumer group begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// The oldest record that is still there.
    #[default]
    Earliest,
    /// What is accepted from now on.
    Latest,
    /// What was accepted at this time or later, ms since 1970.
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

/// Which nodes may be chosen: those of every `include` list that is not empty, except those in `exclude`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFilter {
    /// By `host:port`.
    pub hosts: Choice<Arc<str>>,
    /// By role (`master`, `data`, `ingest`…).
    pub roles: Choice<Arc<str>>,
    /// By node attribute, `name` and `value`.
    pub tags: Choice<(Arc<str>, Arc<str>)>,
}

/// What is included, and what is excluded.
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
    /// The name of the cluster.
    pub name: Arc<str>,
    /// The addresses of the cluster: at least one, all with the same scheme.
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
    /// Whether to use TLS.
    pub tls: bool,
    /// The name or address, without brackets.
    pub host: Arc<str>,
    /// The port.
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

/// What happens to client requests without credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Anonymous {
    /// They are sent as they are, and the cluster decides.
    #[default]
    Pass,
    /// They are sent with the gateway's own account (`basic_auth` or `api_key`): anyone who reaches the port
    /// acts with this account.
    UseGatewayAccount,
}

/// How nodes' certificates are checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterTls {
    /// Whether any certificate is accepted. The default is `false`.
    pub insecure_skip_verify: bool,
    /// Authorities (PEM) that replace the system's.
    pub ca_file: Option<PathBuf>,
    /// The certificate and key that the gateway presents.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

/// How a cluster is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// Whether to ask the cluster for its nodes and routing (`true`), or to use only the given endpoints.
    pub enabled: bool,
    /// The time between two looks at the cluster. `None`: only when something hints at a change.
    pub interval: Option<Duration>,
    /// The timeout of each look.
    pub timeout: Duration,
}

/// The admin port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// The address of the admin port. `None`: the port is switched off.
    pub binding: Option<SocketAddr>,
    /// `admin.token`: a token with the right to operate and without a name.
    pub token: Option<Secret>,
    /// `admin.tokens`. Names are distinct, and so are tokens.
    pub tokens: Vec<AdminToken>,
    /// TLS towards clients of the port, if any.
    pub tls: Option<EntryTls>,
}

/// A token of the admin port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminToken {
    /// The name, for the log.
    pub name: Arc<str>,
    /// The token, as `Authorization: Bearer` carries it.
    pub token: Secret,
    /// What requests with the token may do.
    pub right: AdminRight,
}

/// What a request to the admin port may do. Each right includes those before it.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum AdminRight {
    /// Ask: every `GET`, documents in queues and dead letters included.
    #[default]
    Read,
    /// Ask and act: every request.
    Operate,
}

/// Logging.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Logging {
    /// The lowest level that is written.
    pub level: LogLevel,
    /// The format of log lines.
    pub format: LogFormat,
    /// The duration beyond which a request is logged as slow. `None`: never.
    pub slow_request: Option<Duration>,
    /// One request in this many gets a line of the access log. `None`: there is no access log.
    pub access: Option<u32>,
}

/// The lowest level of log lines to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Everything.
    Trace,
    /// For debugging.
    Debug,
    /// Normal events.
    #[default]
    Info,
    /// Events that may need attention.
    Warn,
    /// Failures.
    Error,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// Text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Traces of requests, and the collector that gets them.
#[derive(Clone, Debug, PartialEq)]
pub struct Tracing {
    /// The share of requests that are traced, from 0 to 1.
    pub sample: f64,
    /// Whether a client that says whether its request is traced is followed.
    pub follow_clients: bool,
    /// The collector.
    pub collector: Endpoint,
    /// The path of its requests; of no use with gRPC.
    pub path: Arc<str>,
    /// The protocol that the collector speaks.
    pub protocol: TracingProtocol,
    /// How each request is compressed.
    pub compression: TracingCompression,
    /// The headers of each request. All of them are marked as sensitive.
    pub headers: HeaderMap,
    /// The longest time that the collector may take for a request.
    pub timeout: Duration,
    /// How the collector's certificate is checked.
    pub tls: ClusterTls,
    /// `service.name` of the gateway.
    pub service_name: String,
    /// Further attributes of the gateway.
    pub attributes: BTreeMap<String, String>,
}

/// A protocol of OpenTelemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub enum TracingProtocol {
    /// Protocol buffers over HTTP.
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
    /// gRPC.
    #[serde(rename = "grpc")]
    Grpc,
}

/// A compression of what is sent to a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TracingCompression {
    /// None.
    None,
    /// Gzip.
    Gzip,
}

/// Cores and memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Worker {
    /// The number of data-path threads. `None`: one for each core that the process may use.
    pub count: Option<usize>,
    /// The most bytes of request bodies held at once, over all entries. Requests beyond it wait, then get
    /// 429.
    pub body_memory_bytes_max: u64,
    /// The rules by which clients share this memory.
    #[serde(skip)]
    pub fairness: wire::Fairness,
    /// The most bytes of documents that delivery of all queues holds at once.
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
            tokens: Vec::new(),
            tls: None,
        }
    }
}

impl Admin {
    /// Returns whether requests need a token. Without one, only this machine may reach the port.
    pub fn needs_token(&self) -> bool {
        self.token.is_some() || !self.tokens.is_empty()
    }
}

// === impl AdminRight ===

impl std::fmt::Display for AdminRight {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Read => "read",
            Self::Operate => "operate",
        })
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

/// The name of a consumer of a queue's log that exists while dead letters are replayed. No consumer group may
/// have this name.
pub const REPLAYING: &str = "_replay";
