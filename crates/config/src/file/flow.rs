//! `flow`: filters.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{BytesOrUnlimited, Ignored, KafkaTlsFile, Names, OneOrMany, SaslFile, Time, section};
use crate::runtime::{Balancer, DirectRouting, Level};

section! {
    /// A flow.
    #[schemars(extend("required" = ["name", "filter"]))]
    FlowFile {
        /// Name of the flow.
        name: String = String::new(),
        /// Filters, run in order until one answers the request.
        filter: Vec<FilterFile> = Vec::new(),
    }
}

section! {
    /// One filter: exactly one of these keys, or `if` with `then`.
    FilterFile {
        /// Splits bulk requests by where their documents live, and answers them.
        bulk_reshuffle: Option<BulkReshuffleFile> = None,
        /// Switches `rewrite_to_bulk` on for each `bulk_reshuffle` that follows in the same list.
        rewrite_to_bulk: Option<RewriteToBulkFile> = None,
        /// Forwards any request to a node, and answers it.
        elasticsearch: Option<ForwardFile> = None,
        /// A condition. If it holds, `then` runs; otherwise, `else` runs.
        r#if: Option<Box<ConditionFile>> = None,
        /// Filters to run if the condition holds.
        then: Option<Vec<FilterFile>> = None,
        /// Filters to run if the condition does not hold.
        r#else: Option<Vec<FilterFile>> = None,
    }
}

/// How the client of a bulk request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModeFile {
    /// With the cluster's own answer.
    Sync,
    /// As soon as the request is in a durable log, from which a pipeline delivers it.
    Async,
}

/// When a request counts as safe on disk.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum FsyncFile {
    /// Once it is synced to the disk: neither kill -9 nor a power failure loses it. One sync serves all
    /// requests that came while the previous sync ran.
    #[default]
    Always,
    /// Once it is written. The log is synced every `fsync_interval`: a power failure may lose the requests of
    /// that time, kill -9 loses none.
    Interval,
    /// Once it is written. The operating system decides when to sync: a power failure may lose what is not
    /// synced, kill -9 loses nothing.
    Os,
}

/// When writes that cannot be queued go to the cluster.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum PassingFile {
    /// Once what was queued before them has been delivered to this cluster, so that they overtake nothing.
    #[default]
    Wait,
    /// At once: they may be executed before what is queued.
    Now,
}

/// What happens to writes that cannot be queued if the queue is also delivered to a second cluster.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum SecondClusterFile {
    /// They are refused with the reason: the second cluster would miss them.
    #[default]
    Refuse,
    /// They go to the filter's cluster only.
    Accept,
}

/// Where a queue's log is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum QueueTypeFile {
    /// On this machine's disk.
    #[default]
    Disk,
    /// In a Kafka topic, which several gateways can share.
    Kafka,
}

/// How documents are compressed on disk.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum CompressionFile {
    /// No compression, which takes the least CPU time.
    #[default]
    None,
    /// LZ4: fast, compresses to about a third.
    Lz4,
    /// Zstandard: compresses to about a fifth.
    Zstd,
}

section! {
    /// The durable log of asynchronous mode: below `path.data`, in `queue/NAME`, or in Kafka. Filters that
    /// name the same queue share it, and must then configure it alike.
    QueueFile {
        /// Name of the queue. If empty, the cluster's name.
        name: String = String::new(),
        /// Where the queue is: `disk`, on this machine, or `kafka`, in a topic that several gateways can
        /// share. See docs/kafka.md.
        r#type: QueueTypeFile = QueueTypeFile::Disk,
        /// Number of lanes. Documents of one shard share a lane and are delivered in order; lanes are
        /// independent. The number is fixed when the queue is created.
        #[schemars(range(min = 1, max = 4096))]
        lanes: u32 = 16,
        /// When a request counts as safe on disk.
        fsync: FsyncFile = FsyncFile::Always,
        /// With `fsync: interval`: time between two syncs.
        fsync_interval: Time = Time(Duration::from_secs(1)),
        /// How documents are compressed on disk. A change applies to new records only. See docs/log.md.
        compression: CompressionFile = CompressionFile::None,
        /// Largest size on disk. Beyond it, clients get 429. `-1`: as much as `min_free` allows.
        max_size: BytesOrUnlimited = BytesOrUnlimited(None),
        /// Space that stays free on the disk, at least 128kb. Below it, clients get 429. Dead letters may
        /// take half of it.
        min_free: super::Bytes = super::Bytes(1 << 30),
        /// Size of used-up files that are kept, for at most an hour, and written again. Reusing a file costs
        /// a third of creating one, and syncs sooner. These files count neither for `max_size` nor for
        /// `min_free`. `0`: keep none.
        spare_size: super::Bytes = super::Bytes(1 << 30),
        /// Largest size of dead letters. No index takes more of it than is left for the others. Operations
        /// that find no room are parked; none is dropped.
        dead_letters_max_size: super::Bytes = super::Bytes(1 << 30),
        /// Largest size of the parked operations of one consumer group. Beyond it, operations become dead
        /// letters instead of being parked.
        parked_max_size: super::Bytes = super::Bytes(1 << 30),
        /// Time for which an operation is parked and tried again before it becomes a dead letter.
        parked_max_age: Time = Time(Duration::from_secs(24 * 3600)),
        /// With `type: kafka`: `host:port` of some brokers, from which the gateway learns the others.
        brokers: Names = OneOrMany(Vec::new()),
        /// With `type: kafka`: name of the topic. If empty, the queue's name. A missing topic is created.
        topic: String = String::new(),
        /// With `type: kafka`: number of the topic's partitions, which are the lanes. By default, those that
        /// the topic has, or 16 if it is created.
        #[schemars(range(min = 1, max = 4096))]
        partitions: Option<u32> = None,
        /// With `type: kafka`: number of copies of each message, in a topic that is created. By default, the
        /// brokers' setting. From 3 on, two copies must exist before a message counts as safe.
        #[schemars(range(min = 1, max = 15))]
        replication_factor: Option<u32> = None,
        /// With `type: kafka`: time for which messages are kept, delivered or not, in a topic that is
        /// created.
        retention: Time = Time(Duration::from_secs(7 * 24 * 3600)),
        /// With `type: kafka`: largest size of a message, in a topic that is created. By default, the
        /// brokers' limit. A document must fit into one message.
        max_message_size: Option<super::Bytes> = None,
        /// With `type: kafka`: time after which a request that the brokers have not acknowledged gets 503.
        ack_timeout: Time = Time(Duration::from_secs(10)),
        /// With `type: kafka`: time after which other gateways deliver instead of a gateway that the brokers
        /// have not heard of.
        session_timeout: Time = Time(Duration::from_secs(10)),
        /// With `type: kafka`: TLS to the brokers.
        tls: KafkaTlsFile = KafkaTlsFile::default(),
        /// With `type: kafka`: the gateway's account at the brokers.
        sasl: Option<SaslFile> = None,
        /// When the gateway passes on writes that cannot be queued (a malformed bulk, updates by query):
        /// `wait` until the documents queued before are delivered, `now` at once. See docs/async.md.
        passing: PassingFile = PassingFile::Wait,
        /// With `passing: wait`: longest wait. Then the client gets 503, and nothing was executed.
        passing_timeout: Time = Time(Duration::from_secs(10)),
        /// What happens to such writes if the queue is also delivered to a second cluster, which they do not
        /// reach.
        passing_second_cluster: SecondClusterFile = SecondClusterFile::Refuse,
    }
}

section! {
    /// In asynchronous mode: a client that gives its request an `Idempotency-Key` may send it again. It gets
    /// the same answer, and the request is written once. Filters with the same queue must configure this
    /// alike. See docs/async.md.
    IdempotencyFile {
        /// Honour idempotency keys.
        enabled: bool = false,
        /// Time for which a key is remembered.
        window: Time = Time(Duration::from_secs(600)),
        /// Largest number of keys to remember; each takes about 150 bytes of memory. Requests with further
        /// keys get 429 until the oldest are forgotten. A client gets no more keys than are left for all
        /// others: a single client has half.
        #[schemars(range(min = 1, max = 10_000_000))]
        max_keys: u32 = 200_000,
    }
}

section! {
    /// Small parts of different bulk requests with the same path, parameters, headers and indices wait while
    /// their node is busy with a request, and are then sent as one. Each client gets its own items. This has
    /// no effect in asynchronous mode, where the log gathers documents. See docs/combine.md.
    CombineFile {
        /// Combine small parts.
        enabled: bool = true,
        /// Size at which waiting parts are sent. A part of more than half of this size never waits.
        flush_threshold_size: super::Bytes = super::Bytes(8 << 20),
        /// Longest wait for other parts. A part waits only if there are others to wait for.
        interval: Time = Time(Duration::from_millis(50)),
        /// Number of documents at which waiting parts are sent.
        #[schemars(range(min = 1))]
        max_docs: u32 = 100_000,
        /// Number of requests at which their waiting parts are sent.
        #[schemars(range(min = 1))]
        max_wait_requests: u32 = 1024,
        /// Find from a node's answers how many requests to send it at once.
        adaptive_concurrency: bool = true,
    }
}

section! {
    /// Switches `rewrite_to_bulk` on for each `bulk_reshuffle` that follows in the same list.
    RewriteToBulkFile {
        /// Ids.
        #[schemars(extend("x-ignored" = "documents without an id get one from the cluster, or here with `fix_null_id` of `bulk_reshuffle`"))]
        auto_generate_doc_id: Ignored = Ignored,
        /// Prefix of ids.
        #[schemars(extend("x-ignored" = "ids that are made here are plain, so that they stay short and unique"))]
        prefix: Ignored = Ignored,
        /// Types.
        #[schemars(extend("x-ignored" = "requests with types in their paths are forwarded as they are"))]
        type_removed: Ignored = Ignored,
    }
}

section! {
    /// Splits bulk requests by where their documents live. Requests that are not bulk requests go on to the
    /// next filter.
    #[schemars(extend("required" = ["elasticsearch"]))]
    BulkReshuffleFile {
        /// Condition under which the filter runs.
        when: Option<ConditionFile> = None,
        /// Name of the cluster.
        elasticsearch: String = String::new(),
        /// When the client is answered: `sync` with the cluster's own answer, `async` (the default) once the
        /// request is in a durable log, from which a pipeline with `bulk_indexing` delivers it.
        mode: Option<ModeFile> = None,
        /// In asynchronous mode: the queue, which is a durable log.
        queue: QueueFile = QueueFile::default(),
        /// In asynchronous mode: requests that are written once, however often clients send them.
        idempotency: IdempotencyFile = IdempotencyFile::default(),
        /// Unit for which the gateway makes one part of a request.
        level: Level = Level::Node,
        /// In synchronous mode: how small parts of different requests are sent together.
        combine: CombineFile = CombineFile::default(),
        /// How documents with neither id nor routing are assigned: runs of them go to one shard after
        /// another, so that a small bulk touches one shard and not all. `mint-packed` makes ids that lead to
        /// the shard. `routing` leaves ids to the server and sets a routing, without which such a document
        /// cannot be read by its id. See docs/directed.md.
        direct_routing: DirectRouting = DirectRouting::Off,
        /// In synchronous mode: writes of single documents (`_doc`, `_create`, `_update`) are sent as bulks
        /// of one operation, straight to the node of their shard, and with `combine` together with other
        /// writes. Answers are those of the single-document API. See docs/combine.md.
        rewrite_to_bulk: bool = false,
        /// Make an id for documents that have neither id nor routing, and route them by it. `false` leaves
        /// the ids to the server, which then writes such documents without looking for an older version.
        fix_null_id: bool = false,
        /// Compress answers for clients that accept gzip or deflate, if the cluster's nodes compress theirs
        /// (`http.compression`). `false` leaves answers uncompressed, which takes less CPU time and more
        /// network bandwidth.
        compress_answers: bool = true,
        /// Largest number of connections to one node.
        #[schemars(range(min = 1, max = 1_000_000))]
        max_connection_per_node: u32 = 512,
        /// Largest number of retries, which happen only where sending twice cannot write twice. A request
        /// that could not be sent at all may go to every node once in any case.
        #[schemars(range(max = 100))]
        max_retry_times: u32 = 3,
        /// Milliseconds before the first retry. Each further wait is doubled.
        #[schemars(range(max = 600_000), extend("x-units" = "milliseconds"))]
        retry_delay_in_ms: u32 = 100,
        /// Longest time from sending a part to its whole reply.
        timeout: Time = Time(Duration::from_secs(300)),
        /// Longest time to establish a connection, TLS included.
        dial_timeout: Time = Time(Duration::from_secs(3)),
        /// Longest wait for a node to take more of a request.
        write_timeout: Time = Time(Duration::from_secs(60)),
        /// Time after which an unused connection is closed.
        max_idle_conn_duration: Time = Time(Duration::from_secs(60)),
        /// Without topology.
        #[schemars(extend("x-ignored" = "while the cluster's topology isn't known, bulk requests are always forwarded whole"))]
        continue_metadata_missing: Ignored = Ignored,
        /// Partitions of queues.
        #[schemars(extend("x-ignored" = "queues have lanes: see `queue.lanes`"))]
        partition_size: Ignored = Ignored,
        /// Names of queues.
        #[schemars(extend("x-ignored" = "queues are named by `queue.name`"))]
        queue_name_prefix: Ignored = Ignored,
        /// Whether to go on after queueing.
        #[schemars(extend("x-ignored" = "a bulk request that was split is answered, so nothing is left for later filters"))]
        continue_after_reshuffle: Ignored = Ignored,
        /// Statistics.
        #[schemars(extend("x-ignored" = "counters are always kept; see /stats of the admin port"))]
        index_stats_analysis: Ignored = Ignored,
        /// Statistics.
        #[schemars(extend("x-ignored" = "counters are always kept; see /stats of the admin port"))]
        action_stats_analysis: Ignored = Ignored,
        /// Validation.
        #[schemars(extend("x-ignored" = "every action line is parsed; what can't be understood goes to the cluster whole, which words its own rejection"))]
        validate_request: Ignored = Ignored,
        /// Validation.
        #[schemars(extend("x-ignored" = "the cluster validates documents, and its answer is the client's"))]
        validate_each_line: Ignored = Ignored,
        /// Validation.
        #[schemars(extend("x-ignored" = "every action line is parsed anyway"))]
        validate_metadata: Ignored = Ignored,
        /// Validation.
        #[schemars(extend("x-ignored" = "the cluster validates documents, and its answer is the client's"))]
        validate_payload: Ignored = Ignored,
        /// Node lookup.
        #[schemars(extend("x-ignored" = "documents of a shard without a known node go along with any other part"))]
        skip_info_missing: Ignored = Ignored,
        /// Buffers.
        #[schemars(extend("x-ignored" = "a document may be as long as the body"))]
        doc_buffer_size: Ignored = Ignored,
        /// Tags.
        #[schemars(extend("x-ignored" = "requests carry no tags"))]
        tag_on_success: Ignored = Ignored,
    }
}

section! {
    /// Forwards any request to a node.
    #[schemars(extend("required" = ["elasticsearch"]))]
    ForwardFile {
        /// Condition under which the filter runs.
        when: Option<ConditionFile> = None,
        /// Name of the cluster.
        elasticsearch: String = String::new(),
        /// How a node is chosen: in turn, by weight, among healthy nodes. Slow nodes are passed over.
        balancer: Balancer = Balancer::Weight,
        /// Weights of nodes. Nodes that are not named have weight 1.
        weights: Vec<WeightFile> = Vec::new(),
        /// Which nodes take the requests of this filter. Parts of split bulks still go to the nodes of their
        /// primaries; parts without a primary follow the next `elasticsearch` filter of the flow for that
        /// cluster. If no node is left, `filter` and `weights` are ignored, and the log says so.
        filter: NodeFilterFile = NodeFilterFile::default(),
        /// Largest reply to pass on. `-1`: no limit. A larger reply becomes 502. If its size was not
        /// declared and a part has been passed on already, the client's connection is cut
        /// (`tidegate_replies_broken_total` counts these).
        max_response_size: BytesOrUnlimited = BytesOrUnlimited(None),
        /// Largest number of connections to one node.
        #[schemars(range(min = 1, max = 1_000_000))]
        max_connection_per_node: u32 = 512,
        /// Largest number of retries, which happen only where sending twice cannot write twice. A request
        /// that could not be sent at all may go to every node once in any case.
        #[schemars(range(max = 100))]
        max_retry_times: u32 = 3,
        /// Milliseconds before the first retry. Each further wait is doubled.
        #[schemars(range(max = 600_000), extend("x-units" = "milliseconds"))]
        retry_delay_in_ms: u32 = 100,
        /// Longest time from sending a request to its whole reply.
        timeout: Time = Time(Duration::from_secs(300)),
        /// Longest time to establish a connection, TLS included.
        dial_timeout: Time = Time(Duration::from_secs(3)),
        /// Longest wait for a node to take more of a request.
        write_timeout: Time = Time(Duration::from_secs(60)),
        /// Time after which an unused connection is closed.
        max_idle_conn_duration: Time = Time(Duration::from_secs(60)),
        /// How this filter follows the cluster's nodes.
        refresh: RefreshFile = RefreshFile::default(),
        /// Waiting for a reply.
        #[schemars(extend("x-ignored" = "`timeout` covers a request from its sending to its whole reply"))]
        read_timeout: Ignored = Ignored,
        /// Waiting for a connection.
        #[schemars(extend("x-ignored" = "a request waits for a connection within its `timeout`"))]
        max_conn_wait_timeout: Ignored = Ignored,
        /// Life of connections.
        #[schemars(extend("x-ignored" = "connections live until they are idle for `max_idle_conn_duration` or fail"))]
        max_conn_duration: Ignored = Ignored,
        /// Buffers.
        #[schemars(extend("x-ignored" = "buffers are sized from the traffic"))]
        read_buffer_size: Ignored = Ignored,
        /// Buffers.
        #[schemars(extend("x-ignored" = "buffers are sized from the traffic"))]
        write_buffer_size: Ignored = Ignored,
        /// Check of certificates.
        #[schemars(extend("x-ignored" = "certificates are checked unless the cluster says `tls.insecure_skip_verify: true`"))]
        tls_insecure_skip_verify: Ignored = Ignored,
        /// Retries.
        #[schemars(extend("x-ignored" = "what could not be sent at all always goes to another node"))]
        retry_on_backend_failure: Ignored = Ignored,
        /// Retries.
        #[schemars(extend("x-ignored" = "reads are retried within `max_retry_times`"))]
        retry_readonly_on_backend_failure: Ignored = Ignored,
        /// Retries.
        #[schemars(extend("x-ignored" = "a write whose fate is unknown is sent again only where that can't write twice"))]
        retry_writes_on_backend_failure: Ignored = Ignored,
        /// Retries.
        #[schemars(extend("x-ignored" = "429 is the cluster's answer, and reaches the client"))]
        retry_on_backend_busy: Ignored = Ignored,
        /// Availability.
        #[schemars(extend("x-ignored" = "nodes that fail leave the rotation at once and return by probe"))]
        skip_available_check: Ignored = Ignored,
        /// Availability.
        #[schemars(extend("x-ignored" = "nodes that fail leave the rotation at once and return by probe"))]
        check_cluster_health_when_not_available: Ignored = Ignored,
        /// Metadata.
        #[schemars(extend("x-ignored" = "replies are passed on as they are, with one header for the request's id"))]
        skip_metadata_enrich: Ignored = Ignored,
        /// Connections.
        #[schemars(extend("x-ignored" = "connections are kept alive and pooled for each core"))]
        skip_keepalive: Ignored = Ignored,
        /// Clients.
        #[schemars(extend("x-ignored" = "there is one kind of client"))]
        client_mode: Ignored = Ignored,
        /// Clients.
        #[schemars(extend("x-ignored" = "nodes are chosen for each request; see `balancer`"))]
        fixed_client: Ignored = Ignored,
    }
}

section! {
    /// How a filter follows the cluster's nodes.
    RefreshFile {
        /// Follow the nodes. `false`: nodes that join later get nothing from this filter, unless all nodes
        /// that were there when the cluster was first read are gone or down. Nodes that leave are left out,
        /// and nodes that were down return.
        enabled: bool = true,
        /// Time between two looks at the cluster. If empty, `elasticsearch[].discovery.refresh.interval`. If
        /// several intervals apply to one cluster, the shortest is used.
        interval: Option<Time> = None,
    }
}

section! {
    /// The weight of a node.
    #[schemars(extend("required" = ["host", "weight"]))]
    WeightFile {
        /// The node, as `host:port`.
        host: String = String::new(),
        /// Weight of the node. 0 excludes it.
        #[schemars(range(max = 1_000_000))]
        weight: u32 = 1,
    }
}

section! {
    /// Which nodes may be chosen.
    NodeFilterFile {
        /// By `host:port`.
        hosts: ChoiceFile = ChoiceFile::default(),
        /// By role: `master`, `data`, `ingest`… Roles are taken literally: `exclude: [master]` is for
        /// clusters with dedicated masters, and excludes every node that has the role, whatever else it does.
        roles: ChoiceFile = ChoiceFile::default(),
        /// By node attribute.
        tags: TagChoiceFile = TagChoiceFile::default(),
    }
}

section! {
    /// Which nodes are included, and which are excluded.
    ChoiceFile {
        /// If not empty: only these nodes.
        include: Names = OneOrMany(Vec::new()),
        /// Never these nodes.
        exclude: Names = OneOrMany(Vec::new()),
    }
}

section! {
    /// Which nodes are included, and which are excluded, by node attribute.
    TagChoiceFile {
        /// If not empty: only nodes with one of these attributes.
        include: Vec<BTreeMap<String, String>> = Vec::new(),
        /// Never nodes with one of these attributes.
        exclude: Vec<BTreeMap<String, String>> = Vec::new(),
    }
}

section! {
    /// A condition on a request. Several keys must all hold. Fields are `_ctx.request.method`, `.path`,
    /// `.uri`, `.host`, `.header.NAME`, `.query_args.NAME`, `.body_length`, and `_ctx.tls`, `_ctx.remote_ip`.
    ConditionFile {
        /// The field's text contains this.
        contains: Option<BTreeMap<String, Names>> = None,
        /// The field equals this.
        equals: Option<BTreeMap<String, String>> = None,
        /// The field's text begins with this.
        prefix: Option<BTreeMap<String, Names>> = None,
        /// The field's text ends with this.
        suffix: Option<BTreeMap<String, Names>> = None,
        /// The regular expression is found in the field's text.
        regexp: Option<BTreeMap<String, Names>> = None,
        /// The field is a number within these bounds, which are written either nested, or dotted after the
        /// field's name.
        range: Option<BTreeMap<String, RangeOrNumber>> = None,
        /// The field equals one of these.
        r#in: Option<BTreeMap<String, Names>> = None,
        /// The request has this field.
        exists: Option<Names> = None,
        /// The request has these fields.
        has_fields: Option<Names> = None,
        /// This condition does not hold.
        not: Option<Box<ConditionFile>> = None,
        /// All of these conditions hold.
        and: Option<Vec<ConditionFile>> = None,
        /// At least one of these conditions holds.
        or: Option<Vec<ConditionFile>> = None,
    }
}

section! {
    /// Bounds.
    RangeFile {
        /// At least.
        gte: Option<i64> = None,
        /// More than.
        gt: Option<i64> = None,
        /// At most.
        lte: Option<i64> = None,
        /// Less than.
        lt: Option<i64> = None,
    }
}

/// Bounds, or one bound if the field's name ends in `.gte`, `.gt`, `.lte` or `.lt`.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum RangeOrNumber {
    /// One bound.
    Number(i64),
    /// Bounds.
    Range(RangeFile),
}
