//! `pipeline`: delivery from queues.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Ignored, Names, OneOrMany, Time, section};

section! {
    /// Background work: delivery from queues.
    #[schemars(extend("required" = ["name"]))]
    PipelineFile {
        /// Its name.
        name: String = String::new(),
        /// Start it with the gateway. `false`: what is queued waits until somebody starts it (`tidegate pipelines start`).
        auto_start: bool = true,
        /// Milliseconds before the first retry; doubled for each further one up to 30 seconds, with jitter.
        #[schemars(range(min = 1, max = 600_000), extend("x-units" = "milliseconds"))]
        retry_delay_in_ms: u32 = 1000,
        /// Steps: only `bulk_indexing`.
        processor: Vec<ProcessorFile> = Vec::new(),
        /// Start it with the gateway.
        #[schemars(extend("x-ignored" = "write `auto_start: false` for a pipeline that is not to run"))]
        enabled: Ignored = Ignored,
        /// Start it again when it ends.
        #[schemars(extend("x-ignored" = "a pipeline runs until the gateway stops"))]
        keep_running: Ignored = Ignored,
        /// Only one in a cluster of gateways.
        #[schemars(extend("x-ignored" = "each gateway delivers from its own queues"))]
        singleton: Ignored = Ignored,
        /// Longest run, milliseconds.
        #[schemars(extend("x-ignored" = "a pipeline runs until the gateway stops"))]
        max_running_in_ms: Ignored = Ignored,
        /// Logging.
        #[schemars(extend("x-ignored" = "see `logging`"))]
        logging: Ignored = Ignored,
    }
}

section! {
    /// A step of a pipeline.
    ProcessorFile {
        /// Delivers queued bulk requests.
        bulk_indexing: Option<BulkIndexingFile> = None,
    }
}

section! {
    /// Delivers queued bulk requests to a cluster, as one consumer group: it has its own place in each queue.
    BulkIndexingFile {
        /// The cluster; if empty, the one of the filter that filled the queue.
        elasticsearch: String = String::new(),
        /// Which queues.
        queue_selector: QueueSelectorFile = QueueSelectorFile::default(),
        /// How queues are read.
        consumer: ConsumerFile = ConsumerFile::default(),
        /// The requests to the cluster.
        bulk: BulkFile = BulkFile::default(),
        /// Connections to one node at most.
        #[schemars(range(min = 1, max = 1_000_000))]
        max_connection_per_node: u32 = 16,
        /// Find from a node's answers how many requests it is sent at once: more while they don't wait there, fewer when
        /// they do or are refused (429). `false`: as many as `max_connection_per_node` and `max_worker_size` allow.
        adaptive_concurrency: bool = true,
        /// Requests that are at the cluster at once, at most; a lane has at most one at each node.
        #[schemars(range(min = 1, max = 4096))]
        max_worker_size: u32 = 16,
        /// Longest time from a request sent to its whole reply.
        timeout: Time = Time(Duration::from_secs(300)),
        /// Parallelism of a queue.
        #[schemars(extend("x-ignored" = "a queue is delivered by as many as it has lanes: see `queue.lanes` of `bulk_reshuffle`"))]
        num_of_slices: Ignored = Ignored,
        /// Parallelism of a queue.
        #[schemars(extend("x-ignored" = "a queue is delivered by as many as it has lanes: see `queue.lanes` of `bulk_reshuffle`"))]
        slices: Ignored = Ignored,
        /// End of a queue.
        #[schemars(extend("x-ignored" = "what is queued is delivered at once, and idle lanes cost nothing"))]
        idle_timeout_in_seconds: Ignored = Ignored,
        /// Queues.
        #[schemars(extend("x-ignored" = "queues are chosen by `queue_selector`"))]
        queues: Ignored = Ignored,
        /// Order of queues.
        #[schemars(extend("x-ignored" = "queues are independent"))]
        waiting_after: Ignored = Ignored,
        /// New queues.
        #[schemars(extend("x-ignored" = "queues are known from the configuration"))]
        detect_active_queue: Ignored = Ignored,
        /// New queues.
        #[schemars(extend("x-ignored" = "queues are known from the configuration"))]
        detect_interval: Ignored = Ignored,
        /// Missing nodes.
        #[schemars(extend("x-ignored" = "documents whose node is unknown go to any node"))]
        skip_info_missing: Ignored = Ignored,
        /// Empty queues.
        #[schemars(extend("x-ignored" = "what is queued is delivered at once, and idle lanes cost nothing"))]
        skip_empty_queue: Ignored = Ignored,
        /// Size of requests.
        #[schemars(extend("x-ignored" = "write `bulk.batch_size_in_mb`"))]
        bulk_size_in_mb: Ignored = Ignored,
        /// Size of requests.
        #[schemars(extend("x-ignored" = "write `bulk.batch_size_in_mb`"))]
        bulk_size_in_kb: Ignored = Ignored,
    }
}

section! {
    /// Which queues.
    QueueSelectorFile {
        /// By label: `type: bulk_reshuffle`, which all queues have, or `queue: NAME`.
        labels: BTreeMap<String, String> = BTreeMap::new(),
        /// By name; none: all.
        keys: Names = OneOrMany(Vec::new()),
    }
}

section! {
    /// How queues are read.
    ConsumerFile {
        /// The consumer group: its place in each queue is kept under this name. If empty, the cluster's name.
        group: String = String::new(),
        /// Where a group that is new begins: `earliest`, with the oldest record that is still there; `latest`, with what is
        /// accepted from then on; or a time, as in `2026-11-21T10:00:00Z`. One that exists goes on where it was.
        start: String = "earliest".to_owned(),
        /// Size of reads.
        #[schemars(extend("x-ignored" = "what is read at once follows from `bulk.batch_size_in_mb` and `bulk.batch_size_in_docs`"))]
        fetch_max_messages: Ignored = Ignored,
        /// Size of reads.
        #[schemars(extend("x-ignored" = "what is read at once follows from `bulk.batch_size_in_mb` and `bulk.batch_size_in_docs`"))]
        fetch_max_bytes: Ignored = Ignored,
        /// End of a queue.
        #[schemars(extend("x-ignored" = "what is queued is delivered at once, and idle lanes cost nothing"))]
        eof_retry_delay_in_ms: Ignored = Ignored,
    }
}

section! {
    /// The requests to the cluster.
    BulkFile {
        /// Megabytes of a lane that are delivered at once, at most (but one client's part of a lane, however large).
        #[schemars(range(min = 1, max = 1024))]
        batch_size_in_mb: u32 = 5,
        /// Documents of a lane that are delivered at once, at most (but one client's part of a lane, however large).
        #[schemars(range(min = 1, max = 1_000_000))]
        batch_size_in_docs: u32 = 10_000,
        /// Compression.
        #[schemars(extend("x-ignored" = "requests to nodes are sent as they are, not compressed"))]
        compress: Ignored = Ignored,
        /// Size of requests.
        #[schemars(extend("x-ignored" = "write `batch_size_in_mb`"))]
        batch_size_in_kb: Ignored = Ignored,
    }
}
