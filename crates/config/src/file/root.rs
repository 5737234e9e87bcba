//! The file as a whole, and its small sections.

use std::collections::BTreeMap;

use settings::Secret;

use super::{
    Bytes, ElasticsearchFile, EntryFile, EntryTlsFile, FlowFile, Ignored, OneOrMany, PipelineFile,
    RouterFile, Time, TracingFile, section,
};
use crate::runtime::{AdminRight, LogFormat, LogLevel};

section! {
    /// Configuration of the gateway. Keys may be nested or dotted: `path: {data: x}` is `path.data: x`.
    /// Anywhere in a value, `$[[env.NAME]]` stands for the environment variable `NAME`, or, if there is none,
    /// for `NAME` in the section `env`.
    #[schemars(title = "Tidegate configuration")]
    #[schemars(extend("required" = ["entry", "router", "flow", "elasticsearch"]))]
    ConfigFile {
        /// Defaults for `$[[env.NAME]]`. The process environment takes precedence.
        env: BTreeMap<String, String> = BTreeMap::new(),
        /// Directories.
        path: PathFile = PathFile::default(),
        /// Listeners.
        entry: Vec<EntryFile> = Vec::new(),
        /// Which requests take which flow.
        router: Vec<RouterFile> = Vec::new(),
        /// What happens to requests, filter by filter.
        flow: Vec<FlowFile> = Vec::new(),
        /// Clusters of Elasticsearch or OpenSearch.
        elasticsearch: Vec<ElasticsearchFile> = Vec::new(),
        /// Background work: pipelines of `bulk_indexing` deliver what asynchronous mode has queued.
        pipeline: Vec<PipelineFile> = Vec::new(),
        /// The admin port.
        admin: Option<AdminFile> = None,
        /// The admin port, in the older vocabulary; write `admin` in new files. Not both.
        api: Option<ApiFile> = None,
        /// Logging.
        logging: LoggingFile = LoggingFile::default(),
        /// Logging, in the older vocabulary; write `logging` in new files.
        log: LogFile = LogFile::default(),
        /// Traces of requests.
        tracing: TracingFile = TracingFile::default(),
        /// Cores and memory.
        worker: WorkerFile = WorkerFile::default(),
        /// Loading of configuration files.
        configs: ConfigsFile = ConfigsFile::default(),
        /// Queues on disk.
        #[schemars(extend("x-ignored" = "queues are described where they are filled: `queue` of `bulk_reshuffle`"))]
        disk_queue: Ignored = Ignored,
        /// Key-value store.
        #[schemars(extend("x-ignored" = "there is no key-value store to configure"))]
        badger: Ignored = Ignored,
        /// Statistics.
        #[schemars(extend("x-ignored" = "counters are always kept, and served at /stats and /metrics of the admin port"))]
        stats: Ignored = Ignored,
        /// Export of statistics.
        #[schemars(extend("x-ignored" = "metrics are not pushed to statsd; collect /metrics of the admin port"))]
        statsd: Ignored = Ignored,
        /// Collection of metrics.
        #[schemars(extend("x-ignored" = "metrics are always collected; see /metrics of the admin port"))]
        metrics: Ignored = Ignored,
        /// Virtual address.
        #[schemars(extend("x-ignored" = "no address is moved between machines; use keepalived or your platform's load balancer"))]
        floating_ip: Ignored = Ignored,
        /// Built-in modules.
        #[schemars(extend("x-ignored" = "there are no modules to switch on or off"))]
        modules: Ignored = Ignored,
        /// Plugins.
        #[schemars(extend("x-ignored" = "there are no plugins to switch on or off"))]
        plugins: Ignored = Ignored,
        /// General settings.
        #[schemars(extend("x-ignored" = "write `reuse_port` at each entry's `network`"))]
        gateway: Ignored = Ignored,
        /// General settings of clusters.
        #[schemars(extend("x-ignored" = "health and metadata are set for each cluster, in `elasticsearch[].discovery`"))]
        elastic: Ignored = Ignored,
        /// Several instances on one machine.
        #[schemars(extend("x-ignored" = "any number of instances may run; a queue belongs to the one that has opened it"))]
        allow_multi_instance: Ignored = Ignored,
        /// Logging to the terminal.
        #[schemars(extend("x-ignored" = "see `logging.format`"))]
        disable_log_to_console: Ignored = Ignored,
    }
}

section! {
    /// Directories. Relative paths start at the working directory of the process.
    PathFile {
        /// Directory for state. Synchronous mode stores only the switches set at run time there.
        data: String = "data".to_owned(),
        /// Directory for log files.
        #[schemars(extend("x-ignored" = "the log goes to standard error, never to files: redirect it, or leave it to the service manager"))]
        logs: Ignored = Ignored,
        /// Directory of further configuration files.
        #[schemars(extend("x-ignored" = "one file is the whole configuration"))]
        configs: Ignored = Ignored,
    }
}

section! {
    /// Loading of configuration files.
    ConfigsFile {
        /// Reload the file when it changes. A file with an error changes nothing.
        auto_reload: bool = true,
        /// Configuration from a server.
        #[schemars(extend("x-ignored" = "configuration comes from this file only"))]
        managed: Ignored = Ignored,
    }
}

section! {
    /// The admin port: health, statistics, metrics, topology.
    AdminFile {
        /// Switch the port on.
        enabled: bool = true,
        /// Address and port.
        binding: String = "127.0.0.1:2900".to_owned(),
        /// Token that every request must carry as `Authorization: Bearer`, unless it carries one of `tokens`.
        /// It has the right `operate`. One or the other is required if `binding` is not loopback.
        token: Option<Secret> = None,
        /// Further tokens, each with a name and a right.
        tokens: Vec<AdminTokenFile> = Vec::new(),
        /// TLS towards clients of the port. Required if `binding` is not loopback, unless `enabled: false` is
        /// written here: then tokens can be read on the network path.
        tls: Option<EntryTlsFile> = None,
    }
}

section! {
    /// A token of the admin port.
    #[schemars(extend("required" = ["name", "token"]))]
    AdminTokenFile {
        /// Name of the token, which the log says. Letters, digits and `.`, `_`, `-`.
        name: String = String::new(),
        /// The token.
        token: Secret = Secret::default(),
        /// What requests with the token may do.
        right: AdminRight = AdminRight::Read,
    }
}

section! {
    /// The admin port, in the older vocabulary.
    ApiFile {
        /// Switch the port on.
        enabled: bool = true,
        /// Address to listen on.
        network: ApiNetworkFile = ApiNetworkFile::default(),
        /// Token that every request must carry as `Authorization: Bearer`. Required if `binding` is not
        /// loopback.
        token: Option<Secret> = None,
        /// Accounts of the admin port.
        #[schemars(extend("x-ignored" = "the admin port has no accounts but tokens: `admin.token` and `admin.tokens`"))]
        security: Ignored = Ignored,
        /// TLS towards clients of the port. Required if `binding` is not loopback, unless `enabled: false` is
        /// written here: then tokens can be read on the network path.
        tls: Option<EntryTlsFile> = None,
    }
}

section! {
    /// Where the admin port listens.
    ApiNetworkFile {
        /// Address and port.
        binding: String = "127.0.0.1:2900".to_owned(),
        /// Try the next ports when the port is taken.
        #[schemars(extend("x-ignored" = "an admin port that moves is not found again; a taken port is an error"))]
        skip_occupied_port: Ignored = Ignored,
    }
}

section! {
    /// Logging. No line ever holds a secret.
    LoggingFile {
        /// Lowest level of log lines to write.
        level: LogLevel = LogLevel::Info,
        /// Format of log lines: `auto` is text on a terminal and JSON elsewhere.
        format: LogFormat = LogFormat::Auto,
        /// Time beyond which a request is logged as slow. None: never.
        slow_request: Option<Time> = None,
        /// The access log: a line for each request.
        access: AccessFile = AccessFile::default(),
    }
}

section! {
    /// The access log: a line for each request, answered or refused, among the other lines and in their
    /// format, whatever `logging.level` is. docs/logging.md lists its fields.
    AccessFile {
        /// Write the access log.
        enabled: bool = false,
        /// Log one request in this many. `1`: all of them.
        #[schemars(range(min = 1, max = 1_000_000))]
        sample: u32 = 1,
    }
}

section! {
    /// Logging, in the older vocabulary.
    LogFile {
        /// Lowest level of log lines to write, unless `logging.level` is set.
        level: Option<LogLevel> = None,
        /// Shape of the lines.
        #[schemars(extend("x-ignored" = "see `logging.format`"))]
        format: Ignored = Ignored,
        /// Log files.
        #[schemars(extend("x-ignored" = "the log goes to standard error, never to files"))]
        disable_file_output: Ignored = Ignored,
    }
}

section! {
    /// Cores and memory.
    WorkerFile {
        /// Number of data-path threads. None: one for each core that the process may use.
        #[schemars(range(min = 1, max = 1024))]
        count: Option<u32> = None,
        /// Memory for request bodies and the answers to them, over all entries. Requests beyond it wait, then
        /// get 429.
        body_memory: Bytes = Bytes(144 << 20),
        /// Share of `body_memory` that one client address (of IPv6, its first 64 bits) may hold while there
        /// are others, in percent; also the share of one user over all addresses. All senders whose
        /// credentials the cluster has not confirmed have half of it together when somebody else waits. One
        /// body is always allowed.
        #[schemars(range(min = 1, max = 100))]
        body_memory_peer_share: u8 = 50,
        /// Lowest rate of a body, in bytes per second, while others wait for memory. A slower body keeps
        /// memory only for what has arrived, and gets 408 if that is not enough for those who wait; an answer
        /// that is read more slowly for ten seconds is cut. `0`: no limit.
        body_memory_min_rate: Bytes = Bytes(64 << 10),
        /// Memory for delivery of all queues: documents, and long answers of nodes.
        delivery_memory: Bytes = Bytes(48 << 20),
        /// Longest time that a stop waits for requests under way.
        drain_timeout: Time = Time(std::time::Duration::from_secs(30)),
    }
}

/// Names that may be given singly or as a list.
pub type Names = OneOrMany<String>;
