//! Queues, which filters fill and describe, and pipelines, which empty them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Resolver;
use crate::file::*;
use crate::runtime::*;

/// Returns the name of the queue that a filter in asynchronous mode fills.
pub(super) fn queue_name(bulk: &BulkReshuffleFile) -> Arc<str> {
    match bulk.queue.name.as_str() {
        "" => bulk.elasticsearch.as_str().into(),
        name => name.into(),
    }
}

impl Resolver<'_> {
    pub(super) fn queues(&mut self, file: &ConfigFile) -> BTreeMap<Arc<str>, Queue> {
        let mut queues: BTreeMap<Arc<str>, Queue> = BTreeMap::new();
        for (at, flow) in file.flow.iter().enumerate() {
            let mut found = Vec::new();
            reshuffles(&format!("flow[{at}].filter"), &flow.filter, &mut found);
            for (path, bulk) in found {
                let queue = match bulk.mode {
                    Some(ModeFile::Sync) if bulk.idempotency.enabled => {
                        self.warning(
                            &format!("{path}.idempotency"),
                            "has no effect: nothing is queued with `mode: sync`",
                        );
                        continue;
                    }
                    Some(ModeFile::Sync) if bulk.queue != QueueFile::default() => {
                        self.warning(
                            &format!("{path}.queue"),
                            "has no effect: nothing is queued with `mode: sync`",
                        );
                        continue;
                    }
                    Some(ModeFile::Sync) => continue,
                    Some(ModeFile::Async) | None => self.queue(&path, bulk),
                };
                if let Some(known) = queues.get(&queue.name)
                    && *known != queue
                {
                    let message = format!("another filter says something else of the queue `{}`", queue.name);
                    self.error(&format!("{path}.queue"), message);
                }
                if bulk.level == Level::Cluster {
                    let message = "`cluster` passes every bulk whole, so nothing would be queued";
                    self.error(&format!("{path}.level"), message);
                }
                let topic = |queue: &Queue| queue.kafka.as_ref().map(|kafka| Arc::clone(&kafka.topic));
                let shares = |other: &&Queue| topic(other).is_some() && topic(other) == topic(&queue);
                if let Some(other) = queues
                    .values()
                    .find(shares)
                    .filter(|other| other.name != queue.name)
                {
                    let message = format!("the topic is that of the queue `{}`", other.name);
                    self.error(&format!("{path}.queue.topic"), message);
                }
                queues.insert(Arc::clone(&queue.name), queue);
            }
        }
        queues
    }

    fn queue(&mut self, path: &str, bulk: &BulkReshuffleFile) -> Queue {
        let (path, file) = (format!("{path}.queue"), &bulk.queue);
        let name = queue_name(bulk);
        self.group_name(&path, &name);
        if *name == *"stats" {
            let message = "`stats` is a word of the admin port's paths: a queue of this name could not be looked at; write another `name`";
            self.error(&path, message);
        }
        self.sizes(&path, file);
        let section = path.trim_end_matches("queue").to_owned();
        if bulk.idempotency.enabled && bulk.queue.r#type == QueueTypeFile::Kafka {
            let message =
                "keys are remembered on the disk of one gateway, and a queue with `type: kafka` has several";
            self.error(&format!("{section}idempotency"), message);
        }
        if bulk.idempotency.enabled && bulk.idempotency.window.0.is_zero() {
            self.error(&format!("{section}idempotency.window"), "must be more than 0");
        }
        if file.fsync == FsyncFile::Interval && file.fsync_interval.0.is_zero() {
            self.error(&format!("{path}.fsync_interval"), "must be more than 0");
        }
        let kafka = self.kafka(&path, file, &name);
        Queue {
            cluster: bulk.elasticsearch.as_str().into(),
            name,
            level: bulk.level,
            lanes: file.lanes,
            fsync: match file.fsync {
                FsyncFile::Always => Fsync::Always,
                FsyncFile::Interval => Fsync::Interval(file.fsync_interval.0),
                FsyncFile::Os => Fsync::Os,
            },
            compression: match file.compression {
                CompressionFile::None => Compression::None,
                CompressionFile::Lz4 => Compression::Lz4,
                CompressionFile::Zstd => Compression::Zstd,
            },
            bytes_max: file.max_size.0,
            free_bytes_min: file.min_free.0,
            spare_bytes: file.spare_size.0,
            dead_letters_bytes_max: file.dead_letters_max_size.0,
            parked_bytes_max: file.parked_max_size.0,
            parked_age_max: file.parked_max_age.0,
            idempotency: bulk.idempotency.enabled.then_some(Idempotency {
                window: bulk.idempotency.window.0,
                keys_max: bulk.idempotency.max_keys as usize,
            }),
            kafka,
            passing: Passing {
                waits: match file.passing {
                    PassingFile::Now => None,
                    PassingFile::Wait => Some(file.passing_timeout.0),
                },
                refused_with_second_cluster: file.passing_second_cluster == SecondClusterFile::Refuse,
            },
        }
    }

    /// Refuses sizes that are too small to work with.
    fn sizes(&mut self, path: &str, file: &QueueFile) {
        // Half of `min_free` is reserved for dead letters: without them, delivery from a queue that has
        // filled its disk would wait for room that only delivery can make.
        let bounds = [
            ("max_size", file.max_size.0, 4 * SEGMENT_BYTES_MIN),
            ("min_free", Some(file.min_free.0), 2 * SEGMENT_BYTES_MIN),
            (
                "dead_letters_max_size",
                Some(file.dead_letters_max_size.0),
                4 * SEGMENT_BYTES_MIN,
            ),
            (
                "parked_max_size",
                Some(file.parked_max_size.0),
                4 * SEGMENT_BYTES_MIN,
            ),
        ];
        for (key, bytes, least) in bounds {
            if bytes.is_some_and(|bytes| bytes < least) {
                self.error(
                    &format!("{path}.{key}"),
                    format!("is less than {}kb", least >> 10),
                );
            }
        }
    }

    /// Checks the name of a consumer group, which becomes part of file names.
    fn group_name(&mut self, path: &str, name: &str) {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !name.is_empty() && (name.len() > 64 || !name.bytes().all(plain)) {
            let message = format!(
                "`{name}` names files: at most 64 letters, digits, `-` and `_`; write another `name`"
            );
            self.error(path, message);
        }
    }

    pub(super) fn deliveries(
        &mut self,
        file: &ConfigFile,
        queues: &BTreeMap<Arc<str>, Queue>,
    ) -> Vec<Delivery> {
        self.names(
            "pipeline",
            file.pipeline.iter().map(|pipeline| pipeline.name.as_str()),
        );
        let mut deliveries: Vec<Delivery> = Vec::new();
        for (at, pipeline) in file.pipeline.iter().enumerate() {
            let path = format!("pipeline[{at}]");
            if !pipeline.enabled {
                continue;
            }
            if queues.is_empty() {
                let why = "has no effect: no filter has `mode: async`, so there is nothing to deliver";
                self.warning(&path, why);
                continue;
            }
            for (at, processor) in pipeline.processor.iter().enumerate() {
                let path = format!("{path}.processor[{at}].bulk_indexing");
                let Some(indexing) = &processor.bulk_indexing else {
                    continue;
                };
                for queue in self.selected(&path, indexing, queues) {
                    let delivery = self.delivery(&path, pipeline, indexing, queue, file);
                    let same =
                        |other: &&Delivery| other.queue == delivery.queue && other.group == delivery.group;
                    if let Some(other) = deliveries.iter().find(same) {
                        let (group, queue) = (&delivery.group, &delivery.queue);
                        let message = format!(
                            "the consumer group `{group}` delivers from the queue `{queue}` in the pipeline `{}` already",
                            other.pipeline
                        );
                        self.error(&path, message);
                    }
                    deliveries.push(delivery);
                }
            }
        }
        // A mode that cannot be read has already been reported.
        let readable = !self.problems.has_errors();
        for queue in queues.keys().filter(|_| readable) {
            if !deliveries.iter().any(|delivery| delivery.queue == *queue) && !queue.is_empty() {
                let help = "add a `pipeline` with `bulk_indexing`, or write `mode: sync`: clients then get the cluster's own answer";
                let message = format!(
                    "nothing would deliver what is accepted into the queue `{queue}`: a `bulk_reshuffle` with `mode: async` (or without `mode`) fills it, and no pipeline empties it"
                );
                self.error_with_help("pipeline", message, Some(help.to_owned()));
            }
        }
        deliveries
    }

    fn selected<'q>(
        &mut self,
        path: &str,
        indexing: &BulkIndexingFile,
        queues: &'q BTreeMap<Arc<str>, Queue>,
    ) -> Vec<&'q Queue> {
        let selector = &indexing.queue_selector;
        let mut chosen: Vec<&Queue> = queues.values().collect();
        if !selector.keys.0.is_empty() {
            let keys = &selector.keys.0;
            for name in keys {
                let known = queues.keys().map(|name| (&**name, true));
                self.refers(&format!("{path}.queue_selector.keys"), name, "queue", known);
            }
            chosen.retain(|queue| keys.iter().any(|key| **key == *queue.name));
        }
        for (key, labels) in [
            ("queue_selector.labels", &selector.labels),
            ("queues", &indexing.queues),
        ] {
            for (label, value) in labels {
                let path = format!("{path}.{key}");
                match (label.as_str(), value.as_str()) {
                    ("type", "bulk_reshuffle") => {}
                    ("queue", name) => {
                        let known = queues.keys().map(|name| (&**name, true));
                        self.refers(&path, name, "queue", known);
                        chosen.retain(|queue| *queue.name == *name);
                    }
                    ("elasticsearch", name) if queues.values().any(|queue| *queue.cluster == *name) => {
                        chosen.retain(|queue| *queue.cluster == *name);
                    }
                    ("level", level) if queues.values().any(|queue| queue.level.as_str() == level) => {
                        chosen.retain(|queue| queue.level.as_str() == level);
                    }
                    _ => {
                        let message = format!(
                            "no queue has the label `{label}: {value}`; there are `type: bulk_reshuffle`, `queue: NAME`, `elasticsearch: NAME` and `level: LEVEL`"
                        );
                        self.error(&path, message);
                    }
                }
            }
        }
        chosen
    }

    /// Returns the size of a request in kilobytes.
    fn kilobytes(&mut self, path: &str, bulk: &BulkFile) -> usize {
        let in_mb = format!("{path}.batch_size_in_mb");
        if bulk.batch_size_in_kb.is_some() && self.places.is_some_and(|places| places.has(&in_mb)) {
            let message = "`batch_size_in_kb` says the same; write one of the two";
            self.error(&in_mb, message);
        }
        let kilobytes = bulk.batch_size_in_kb.unwrap_or(bulk.batch_size_in_mb << 10);
        kilobytes as usize
    }

    /// Returns where a new group begins.
    fn start(&mut self, path: &str, text: &str) -> Start {
        match text {
            "earliest" => Start::Earliest,
            "latest" => Start::Latest,
            text => {
                let stamp: Option<jiff::Timestamp> = text.parse().ok();
                let ms = stamp.and_then(|stamp| u64::try_from(stamp.as_millisecond()).ok());
                if ms.is_none() {
                    let message = format!(
                        "`{text}` is neither `earliest` nor `latest` nor a time, as in `2026-11-21T10:00:00Z`"
                    );
                    self.error(path, message);
                }
                Start::Time(ms.unwrap_or_default())
            }
        }
    }

    /// Warns about a pipeline that leaves documents in its queue until somebody starts it.
    fn warn_of_standing_still(&mut self, path: &str, pipeline: &PipelineFile, queue: &Queue) {
        if !pipeline.auto_start {
            let message = format!(
                "what is accepted into the queue `{}` waits until somebody starts the pipeline: `auto_start: false`",
                queue.name
            );
            self.warning(path, message);
        }
        if !pipeline.keep_running {
            let message = format!(
                "what is accepted into the queue `{}` once the pipeline has delivered all waits until somebody starts it: `keep_running: false`",
                queue.name
            );
            self.warning(path, message);
        }
    }

    fn delivery(
        &mut self,
        path: &str,
        pipeline: &PipelineFile,
        indexing: &BulkIndexingFile,
        queue: &Queue,
        file: &ConfigFile,
    ) -> Delivery {
        let cluster: Arc<str> = match indexing.elasticsearch.as_str() {
            "" => Arc::clone(&queue.cluster),
            name => {
                let known = file.elasticsearch.iter();
                let known = known.map(|cluster| (cluster.name.as_str(), cluster.enabled));
                self.refers(&format!("{path}.elasticsearch"), name, "elasticsearch", known);
                name.into()
            }
        };
        let group: Arc<str> = match indexing.consumer.group.as_str() {
            "" => Arc::clone(&cluster),
            group => group.into(),
        };
        self.group_name(&format!("{path}.consumer.group"), &group);
        if *group == *REPLAYING {
            let message = format!("`{group}` is a name of the gateway's own; write another");
            self.error(&format!("{path}.consumer.group"), message);
        }
        let start = self.start(&format!("{path}.consumer.start"), &indexing.consumer.start);
        if indexing.timeout.0.is_zero() {
            self.error(
                &format!("{path}.timeout"),
                "must be more than 0: there is no \"for ever\"",
            );
        }
        self.warn_of_standing_still(path, pipeline, queue);
        let bulk = &indexing.bulk;
        let kilobytes = self.kilobytes(&format!("{path}.bulk"), bulk);
        Delivery {
            pipeline: pipeline.name.as_str().into(),
            queue: Arc::clone(&queue.name),
            cluster,
            group,
            start,
            enabled: pipeline.auto_start,
            keep_running: pipeline.keep_running,
            level: queue.level,
            batch_bytes_max: kilobytes << 10,
            batch_docs_max: bulk.batch_size_in_docs as usize,
            linger: Duration::from_secs(indexing.idle_timeout_in_seconds.into()),
            compress: bulk.compress,
            workers_max: indexing.max_worker_size as usize,
            slices_max: Some(indexing.num_of_slices as usize).filter(|slices| *slices > 0),
            adaptive: indexing.adaptive_concurrency,
            retry: retry(pipeline, bulk),
            sending: Sending {
                connections_per_node_max: indexing.max_connection_per_node as usize,
                // A lane retries by itself.
                retry_count_max: 0,
                retry_delay: Duration::from_millis(pipeline.retry_delay_in_ms.into()),
                connect_timeout: Duration::from_secs(3),
                response_timeout: indexing.timeout.0,
                write_timeout: Duration::from_secs(60),
                idle_timeout: Duration::from_secs(60),
            },
        }
    }
}

fn retry(pipeline: &PipelineFile, bulk: &BulkFile) -> Retry {
    let usual = Duration::from_millis(pipeline.retry_delay_in_ms.into());
    let delay = |seconds: Option<u32>| seconds.map_or(usual, |s| Duration::from_secs(s.into()));
    let matching = |file: &RetryMatchFile| Matching {
        statuses: file.status.clone(),
        keywords: file.keyword.0.clone(),
    };
    let rules = &bulk.response_handle.retry_rules;
    Retry {
        delay: delay(bulk.retry_delay_in_seconds),
        busy_delay: delay(bulk.reject_retry_delay_in_seconds),
        times_max: Some(bulk.max_retry_times).filter(|times| *times > 0),
        rules: RetryRules {
            busy: rules.retry_429,
            client_errors: rules.retry_4xx,
            others: rules.default,
            permitted: matching(&rules.permitted),
            denied: matching(&rules.denied),
        },
    }
}

/// Collects all `bulk_reshuffle` filters of a flow, with their paths.
fn reshuffles<'f>(path: &str, filters: &'f [FilterFile], out: &mut Vec<(String, &'f BulkReshuffleFile)>) {
    for (at, filter) in filters.iter().enumerate() {
        let path = format!("{path}[{at}]");
        if let Some(bulk) = &filter.bulk_reshuffle {
            out.push((format!("{path}.bulk_reshuffle"), bulk));
        }
        for (key, below) in [("then", &filter.then), ("else", &filter.r#else)] {
            reshuffles(
                &format!("{path}.{key}"),
                below.as_deref().unwrap_or_default(),
                out,
            );
        }
    }
}

/// The smallest useful segment of a log. A quota is at least four of them.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;
