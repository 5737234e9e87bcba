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
        /// Switch it on. `false`: as if it were not there.
        enabled: bool = true,
        /// Start it with the gateway. `false`: what is queued waits until somebody starts it (`tidegate pipelines start`).
        auto_start: bool = true,
        /// Go on when all that was queued is delivered. `false`: it stops then, until somebody starts it again.
        keep_running: bool = true,
        /// Milliseconds before the first retry; doubled for each further one up to 30 seconds, with jitter.
        #[schemars(range(min = 1, max = 600_000), extend("x-units" = "milliseconds"))]
        retry_delay_in_ms: u32 = 1000,
        /// Steps: only `bulk_indexing`.
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
        /// Older name of `queue_selector.labels`.
        queues: BTreeMap<String, String> = BTreeMap::new(),
        /// Requests of one queue that are at one node at once, at most: deliveries of what is for a node that go on side by
        /// side. `0`: no such bound.
        #[schemars(range(max = 4096))]
        num_of_slices: u32 = 0,
        /// Connections to one node at most.
        #[schemars(range(min = 1, max = 1_000_000))]
        max_connection_per_node: u32 = 16,
        /// Find from a node's answers how many requests it is sent at once: more while they don't wait there, fewer when
        /// they do or are refused (429). `false`: as many as `max_connection_per_node` and `max_worker_size` allow.
        adaptive_concurrency: bool = true,
        /// Requests of one queue that are at the cluster at once, at most. A node that has none may be sent one all the
        /// same, so that one that doesn't answer holds up no other.
        #[schemars(range(min = 1, max = 4096))]
        max_worker_size: u32 = 16,
        /// Longest wait for more documents where those that a lane has would not fill a request, in seconds. `0`: none,
        /// what is queued is sent at once.
        #[schemars(range(max = 3600), extend("x-units" = "seconds"))]
        idle_timeout_in_seconds: u32 = 0,
        /// Longest time from a request sent to its whole reply.
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
    /// Which queues.
    QueueSelectorFile {
        /// By label, all of which must fit: `type: bulk_reshuffle`, which all queues have, `queue: NAME`,
        /// `elasticsearch: NAME` (the cluster of the filter that fills it) or `level: LEVEL` (of that filter).
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
        /// Who reads.
        #[schemars(extend("x-ignored" = "a place in a queue is known by its `group`"))]
        name: Ignored = Ignored,
        /// Who reads.
        #[schemars(extend("x-ignored" = "a place in a queue is known by its `group`"))]
        id: Ignored = Ignored,
        /// Who reads.
        #[schemars(extend("x-ignored" = "a place in a queue is known by its `group`"))]
        source: Ignored = Ignored,
        /// Who reads no more.
        #[schemars(extend("x-ignored" = "a consumer group is kept until somebody forgets it (`tidegate queues`)"))]
        client_expired_in_ms: Ignored = Ignored,
    }
}

section! {
    /// The requests to the cluster.
    BulkFile {
        /// Compress them (gzip): fewer bytes on the network for more CPU time here and in the cluster.
        compress: bool = false,
        /// Megabytes of a request, at most (but one client's part of a lane, however large). A lane reads as much ahead, or
        /// less, down to 1 MB, where many lanes are busy: theirs travel together.
        #[schemars(range(min = 1, max = 1024))]
        batch_size_in_mb: u32 = 5,
        /// The same in kilobytes, in place of `batch_size_in_mb`.
        #[schemars(range(min = 1, max = 1_048_576))]
        batch_size_in_kb: Option<u32> = None,
        /// Documents of a request, at most (but one client's part of a lane, however large).
        #[schemars(range(min = 1, max = 1_000_000))]
        batch_size_in_docs: u32 = 10_000,
        /// Seconds before the first retry of what failed otherwise than by 429, in place of `retry_delay_in_ms` of the
        /// pipeline.
        #[schemars(range(min = 1, max = 3600), extend("x-units" = "seconds"))]
        retry_delay_in_seconds: Option<u32> = None,
        /// Seconds before the first retry of what was refused with 429, in place of `retry_delay_in_ms` of the pipeline.
        #[schemars(range(min = 1, max = 3600), extend("x-units" = "seconds"))]
        reject_retry_delay_in_seconds: Option<u32> = None,
        /// How often a document is sent again that the cluster refuses by itself (429, 5xx), until it is a dead letter. `0`: as
        /// long as it takes; one that fails with 500 nine times. What happens to whole requests (no connection, no answer,
        /// 429, 503) never counts: it is no document's fault.
        #[schemars(range(max = 1_000_000))]
        max_retry_times: u32 = 0,
        /// What becomes of answers.
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
    /// What becomes of answers.
    ResponseHandleFile {
        /// Which refusals of single documents are tried again.
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
    /// Which refusals of single documents are tried again, and which make dead letters at once. What is not said here goes by
    /// docs/async.md; what happens to whole requests always does.
    RetryRulesFile {
        /// Try again what was refused with 429. `false`: it is a dead letter.
        retry_429: bool = true,
        /// Try again what was refused with any other 4xx, `max_retry_times` times at most (nine if that is 0); its lane waits
        /// all the while.
        retry_4xx: bool = false,
        /// Try again what failed otherwise (5xx). `false`: it is a dead letter.
        default: bool = true,
        /// What is tried again whatever the three above say.
        permitted: RetryMatchFile = RetryMatchFile::default(),
        /// What is a dead letter at once, whatever else is said.
        denied: RetryMatchFile = RetryMatchFile::default(),
    }
}

section! {
    /// What a refusal says: one of the numbers or one of the words.
    RetryMatchFile {
        /// Statuses of items, as `400`.
        status: Vec<u16> = Vec::new(),
        /// Text within an error's type or reason, as `mapper_parsing_exception`.
        keyword: Names = OneOrMany(Vec::new()),
    }
}
