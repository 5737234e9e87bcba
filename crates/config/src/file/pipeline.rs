//! `pipeline`: delivery from queues.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Ignored, Names, OneOrMany, Time, section};

section! {
    /// Background work: delivery from queues.
    #[schemars(extend("required" = ["name"]))]
    PipelineFile {
        /// Name of the pipeline.
        name: String = String::new(),
        /// Use this pipeline. `false`: as if it were not there.
        enabled: bool = true,
        /// Start the pipeline with the gateway. `false`: queued documents wait until somebody starts it
        /// (`tidegate pipelines start`).
        auto_start: bool = true,
        /// Go on when all queued documents are delivered. `false`: the pipeline then stops until somebody
        /// starts it again.
        keep_running: bool = true,
        /// Milliseconds before the first retry. Each further wait is doubled, up to 30 seconds, with jitter.
        #[schemars(range(min = 1, max = 600_000), extend("x-units" = "milliseconds"))]
        retry_delay_in_ms: u32 = 1000,
        /// Steps of the pipeline. There is one kind, `bulk_indexing`.
        processor: Vec<ProcessorFile> = Vec::new(),
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
    /// Delivers queued bulk requests to a cluster, as one consumer group, which has its own position in each
    /// queue.
    BulkIndexingFile {
        /// Name of the cluster. If empty, the cluster of the filter that filled the queue.
        elasticsearch: String = String::new(),
        /// Which queues to deliver from.
        queue_selector: QueueSelectorFile = QueueSelectorFile::default(),
        /// Which consumer group reads the queues, and from where.
        consumer: ConsumerFile = ConsumerFile::default(),
        /// How requests to the cluster are composed.
        bulk: BulkFile = BulkFile::default(),
        /// Older name of `queue_selector.labels`.
        queues: BTreeMap<String, String> = BTreeMap::new(),
        /// Largest number of requests of one queue under way to one node. `0`: no limit.
        #[schemars(range(max = 4096))]
        num_of_slices: u32 = 0,
        /// Largest number of connections to one node.
        #[schemars(range(min = 1, max = 1_000_000))]
        max_connection_per_node: u32 = 16,
        /// Find from a node's answers how many requests to send it at once: more while they do not wait at
        /// the node, fewer when they wait or are refused (429). `false`: as many as `max_connection_per_node`
        /// and `max_worker_size` allow.
        adaptive_concurrency: bool = true,
        /// Largest number of requests of one queue under way to the cluster. A node with none under way may
        /// still get one, so that a node that does not answer holds up no other.
        #[schemars(range(min = 1, max = 4096))]
        max_worker_size: u32 = 16,
        /// Longest wait for more documents, in seconds, if those of a lane would not fill a request. `0`:
        /// send queued documents at once.
        #[schemars(range(max = 3600), extend("x-units" = "seconds"))]
        idle_timeout_in_seconds: u32 = 0,
        /// Longest time from sending a request to its whole reply.
        timeout: Time = Time(Duration::from_secs(300)),
        /// Parts of a queue.
        #[schemars(extend("x-ignored" = "each gateway delivers all of its queues: they are on its own disk"))]
        slices: Ignored = Ignored,
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
        #[schemars(extend("x-ignored" = "lanes without documents cost nothing"))]
        skip_empty_queue: Ignored = Ignored,
        /// Size of requests.
        #[schemars(extend("x-ignored" = "write `bulk.batch_size_in_mb`"))]
        bulk_size_in_mb: Ignored = Ignored,
        /// Size of requests.
        #[schemars(extend("x-ignored" = "write `bulk.batch_size_in_kb`"))]
        bulk_size_in_kb: Ignored = Ignored,
    }
}

section! {
    /// Which queues to deliver from.
    QueueSelectorFile {
        /// Labels, all of which must match: `type: bulk_reshuffle`, which all queues have, `queue: NAME`,
        /// `elasticsearch: NAME` (the cluster of the filter that fills the queue) or `level: LEVEL` (of that
        /// filter).
        labels: BTreeMap<String, String> = BTreeMap::new(),
        /// Names of queues. None: all queues.
        keys: Names = OneOrMany(Vec::new()),
    }
}

section! {
    /// Which consumer group reads the queues, and from where.
    ConsumerFile {
        /// Name of the consumer group, under which its position in each queue is kept. If empty, the
        /// cluster's name.
        group: String = String::new(),
        /// Where a new group begins: `earliest`, with the oldest record that is still there; `latest`, with
        /// what is accepted from then on; or a time, as in `2026-11-21T10:00:00Z`. An existing group
        /// continues where it was.
        start: String = "earliest".to_owned(),
        /// Size of reads.
        #[schemars(extend("x-ignored" = "a lane reads what the next requests take: see `bulk.batch_size_in_mb` and `bulk.batch_size_in_docs`"))]
        fetch_max_messages: Ignored = Ignored,
        /// Size of reads.
        #[schemars(extend("x-ignored" = "a lane reads what the next requests take: see `bulk.batch_size_in_mb` and `bulk.batch_size_in_docs`"))]
        fetch_max_bytes: Ignored = Ignored,
        /// Size of reads.
        #[schemars(extend("x-ignored" = "what is queued is read at once; to wait for more, see `idle_timeout_in_seconds`"))]
        fetch_min_bytes: Ignored = Ignored,
        /// Wait for more.
        #[schemars(extend("x-ignored" = "what is queued is read at once; to wait for more, see `idle_timeout_in_seconds`"))]
        fetch_max_wait_ms: Ignored = Ignored,
        /// End of a queue.
        #[schemars(extend("x-ignored" = "a lane is told of new documents, and need not look for them"))]
        eof_retry_delay_in_ms: Ignored = Ignored,
        /// End of a queue.
        #[schemars(extend("x-ignored" = "a lane is told of new documents, and need not look for them"))]
        eof_max_retry_times: Ignored = Ignored,
        /// Identity of the reader.
        #[schemars(extend("x-ignored" = "a place in a queue is known by its `group`"))]
        name: Ignored = Ignored,
        /// Identity of the reader.
        #[schemars(extend("x-ignored" = "a place in a queue is known by its `group`"))]
        id: Ignored = Ignored,
        /// Identity of the reader.
        #[schemars(extend("x-ignored" = "a place in a queue is known by its `group`"))]
        source: Ignored = Ignored,
        /// Expiry of readers.
        #[schemars(extend("x-ignored" = "a consumer group is kept until somebody forgets it (`tidegate queues`)"))]
        client_expired_in_ms: Ignored = Ignored,
    }
}

section! {
    /// How requests to the cluster are composed.
    BulkFile {
        /// Compress requests with gzip: fewer bytes on the network for more CPU time in the gateway and the
        /// cluster.
        compress: bool = false,
        /// Largest size of a request, in megabytes; one client's part of a lane may exceed it. A lane reads
        /// that much ahead. Where many lanes are busy it reads less, down to 1 MB, since their documents are
        /// sent together.
        #[schemars(range(min = 1, max = 1024))]
        batch_size_in_mb: u32 = 5,
        /// The same size in kilobytes: write this or `batch_size_in_mb`, not both.
        #[schemars(range(min = 1, max = 1_048_576))]
        batch_size_in_kb: Option<u32> = None,
        /// Largest number of documents in a request; one client's part of a lane may exceed it.
        #[schemars(range(min = 1, max = 1_000_000))]
        batch_size_in_docs: u32 = 10_000,
        /// Seconds before the first retry after any failure except 429. Replaces `retry_delay_in_ms` of the
        /// pipeline.
        #[schemars(range(min = 1, max = 3600), extend("x-units" = "seconds"))]
        retry_delay_in_seconds: Option<u32> = None,
        /// Seconds before the first retry after a refusal with 429. Replaces `retry_delay_in_ms` of the
        /// pipeline.
        #[schemars(range(min = 1, max = 3600), extend("x-units" = "seconds"))]
        reject_retry_delay_in_seconds: Option<u32> = None,
        /// Number of retries of a document that the cluster refuses individually (429, 5xx) before it becomes
        /// a dead letter. `0`: no limit, except nine for 500. Failures of whole requests (no connection, no
        /// answer, 429, 503) never count, since no document causes them.
        #[schemars(range(max = 1_000_000))]
        max_retry_times: u32 = 0,
        /// How answers are handled.
        response_handle: ResponseHandleFile = ResponseHandleFile::default(),
        /// Queue of failures.
        #[schemars(extend("x-ignored" = "what the cluster refuses for good is a dead letter, with its reason: see `tidegate dead-letters`"))]
        invalid_queue: Ignored = Ignored,
        /// Queue of failures.
        #[schemars(extend("x-ignored" = "what fails for a time stays in its queue, and in its place there"))]
        failure_queue: Ignored = Ignored,
        /// Queue of failures.
        #[schemars(extend("x-ignored" = "what the cluster refuses for good is a dead letter, with its reason: see `tidegate dead-letters`"))]
        dead_letter_queue: Ignored = Ignored,
        /// Timeout.
        #[schemars(extend("x-ignored" = "write `timeout` of `bulk_indexing`"))]
        request_timeout_in_second: Ignored = Ignored,
        /// Parsing.
        #[schemars(extend("x-ignored" = "every action line was parsed when it was accepted"))]
        safety_parse: Ignored = Ignored,
        /// Parsing.
        #[schemars(extend("x-ignored" = "a document may be as long as the body"))]
        doc_buffer_size: Ignored = Ignored,
        /// Parsing.
        #[schemars(extend("x-ignored" = "documents are sent as they were accepted, without lines between them"))]
        remove_duplicated_newlines: Ignored = Ignored,
    }
}

section! {
    /// How answers are handled.
    ResponseHandleFile {
        /// Which refused documents are tried again.
        retry_rules: RetryRulesFile = RetryRulesFile::default(),
        /// Records of answers.
        #[schemars(extend("x-ignored" = "counters are always kept, see `/queue/stats`; what failed for good is a dead letter"))]
        save_success_results: Ignored = Ignored,
        /// Records of answers.
        #[schemars(extend("x-ignored" = "counters are always kept, see `/queue/stats`; what failed for good is a dead letter"))]
        save_error_results: Ignored = Ignored,
        /// Records of answers.
        #[schemars(extend("x-ignored" = "counters are always kept, see `/queue/stats`; what failed for good is a dead letter"))]
        save_busy_results: Ignored = Ignored,
        /// Records of answers.
        #[schemars(extend("x-ignored" = "counters are always kept, see `/queue/stats`; what failed for good is a dead letter"))]
        output_bulk_stats: Ignored = Ignored,
        /// Records of answers.
        #[schemars(extend("x-ignored" = "counters are always kept, see `/queue/stats`; what failed for good is a dead letter"))]
        include_index_stats: Ignored = Ignored,
        /// Records of answers.
        #[schemars(extend("x-ignored" = "counters are always kept, see `/queue/stats`; what failed for good is a dead letter"))]
        include_action_stats: Ignored = Ignored,
        /// Records of answers.
        #[schemars(extend("x-ignored" = "a dead letter has the cluster's whole reason"))]
        include_error_details: Ignored = Ignored,
        /// Records of answers.
        #[schemars(extend("x-ignored" = "a dead letter has the cluster's whole reason"))]
        max_error_details_count: Ignored = Ignored,
        /// Records of answers.
        #[schemars(extend("x-ignored" = "what failed for good is a dead letter, with its reason: see `tidegate dead-letters`"))]
        bulk_result_message_queue: Ignored = Ignored,
        /// Records of answers.
        #[schemars(extend("x-ignored" = "a dead letter is kept whole"))]
        max_request_body_size: Ignored = Ignored,
        /// Records of answers.
        #[schemars(extend("x-ignored" = "answers are read whole"))]
        max_response_body_size: Ignored = Ignored,
    }
}

section! {
    /// Which refused documents are tried again, and which become dead letters at once. docs/async.md
    /// describes what happens to whole requests, and to refusals that these rules do not cover.
    RetryRulesFile {
        /// Retry documents that were refused with 429. `false`: they become dead letters.
        retry_429: bool = true,
        /// Retry documents that were refused with any other 4xx, at most `max_retry_times` times (nine if
        /// that is 0). Their lane waits during all retries.
        retry_4xx: bool = false,
        /// Retry documents that failed in another way (5xx). `false`: they become dead letters.
        default: bool = true,
        /// Refusals that are retried, whatever the three keys above say.
        permitted: RetryMatchFile = RetryMatchFile::default(),
        /// Refusals that become dead letters at once, whatever the other keys say.
        denied: RetryMatchFile = RetryMatchFile::default(),
    }
}

section! {
    /// Which refusals match: by status, or by a text in the error.
    RetryMatchFile {
        /// Statuses of items, as in `400`.
        status: Vec<u16> = Vec::new(),
        /// Texts within an error's type or reason, as in `mapper_parsing_exception`.
        keyword: Names = OneOrMany(Vec::new()),
    }
}
