//! The accounts of queues as metrics.

use log::Status;
use wire::exposition::{Exposition, Metric};

use crate::clock::steady_ms;
use crate::metrics::PREFIX;
use crate::queue::accounts::{Account, GroupAccount};
use crate::queue::journal::{Journal, REFUSALS};
use crate::queue::parked::Parked;
use crate::queue::queues::{Group, LaneActivity, Queues};

impl Queues {
    /// Writes the accounts in Prometheus' text format.
    pub(crate) fn write_prometheus(&self, page: &mut String) {
        let mut out = Exposition::new(page);
        let accounts = self.accounts();
        let of = |account: &Account<'_>| format!("queue=\"{}\"", account.queue.name);
        let queues = accounts.iter().map(|account| (of(account), account));
        out.table(PREFIX, &of_queues(), &queues.collect::<Vec<_>>());
        let refusals = accounts.iter().flat_map(|account| {
            let found = account.queue.log.refuses_for();
            REFUSALS.iter().map(move |reason| {
                let labels = format!("{},reason=\"{reason}\"", of(account));
                (labels, u8::from(found == Some(*reason)))
            })
        });
        out.metric(
            "tidegate_queue_refuses",
            "gauge",
            "Whether a queue accepts nothing now: max_size has no room, the disk has none beside min_free, the disk has failed and the gateway must be restarted, or the disk is busy: slower than the requests that arrive.",
            refusals,
        );
        let consumers: Vec<_> = accounts
            .iter()
            .flat_map(|account| {
                let groups = account.groups.iter();
                groups.map(move |group| (format!("{},group=\"{}\"", of(account), group.name), group))
            })
            .collect();
        let documents = consumers.iter().flat_map(|(labels, group)| {
            let states = group.states().into_iter();
            states.map(move |(state, documents)| (format!("{labels},state=\"{state}\""), documents))
        });
        out.metric(
            "tidegate_queue_documents",
            "gauge",
            "Accepted documents, by outcome: indexed, dead, parked, replayed, purged, skipped, lost, pending; the states of a consumer group add up to tidegate_queue_accepted_total and tidegate_queue_rewound_total.",
            documents,
        );
        out.table(PREFIX, &OF_CONSUMERS, &consumers);
        let groups = self.groups().iter().map(|group| {
            let (queue, name) = (&group.queue.name, &group.settings.group);
            (format!("queue=\"{queue}\",group=\"{name}\""), &**group)
        });
        out.table(PREFIX, &OF_GROUPS, &groups.collect::<Vec<_>>());
        let parked: Vec<_> = accounts
            .iter()
            .flat_map(|account| {
                let groups = account.queue.parked.all().into_iter();
                groups.map(move |(group, parked)| (format!("{},group=\"{group}\"", of(account)), parked))
            })
            .collect();
        let parked = parked.iter().map(|(labels, parked)| (labels.clone(), &**parked));
        out.table(PREFIX, &OF_PARKED, &parked.collect::<Vec<_>>());
    }
}

/// Returns the metrics of each queue.
fn of_queues<'a>() -> [Metric<Account<'a>>; 9] {
    [
        (
            "queue_accepted_total",
            "counter",
            "Documents accepted into a queue since it was created (restarts included); for a queue in Kafka, by this gateway since it was started.",
            |account| Some(account.status.documents as f64),
        ),
        ("queue_bytes", "gauge", "Bytes of a queue on disk.", |account| {
            Some(account.status.bytes as f64)
        }),
        (
            "queue_spare_bytes",
            "gauge",
            "Bytes of a queue's files on disk that hold nothing any more and are kept to be written again.",
            |account| Some(account.status.spare_bytes as f64),
        ),
        (
            "queue_bytes_max",
            "gauge",
            "Bytes that a queue may take on disk (max_size), if configured.",
            |account| {
                on_disk(account, |status| {
                    Some(status.quota_bytes).filter(|bytes| *bytes > 0)
                })
            },
        ),
        (
            "queue_disk_free_bytes",
            "gauge",
            "Bytes free on the disk that a queue is on, when it last looked.",
            |account| on_disk(account, |status| Some(status.free_bytes)),
        ),
        (
            "queue_poisoned",
            "gauge",
            "Whether a queue accepts nothing any more because the disk failed.",
            |account| Some(u64::from(account.status.poisoned.is_some()) as f64),
        ),
        ("dead_letters", "gauge", "Dead letters of a queue.", |account| {
            Some(account.dead_letters() as f64)
        }),
        (
            "dead_letters_bytes",
            "gauge",
            "Bytes of a queue's dead letters on disk.",
            |account| Some(account.queue.dead_letters.bytes() as f64),
        ),
        (
            "queue_idempotency_keys",
            "gauge",
            "Idempotency-Keys that a queue remembers.",
            |account| Some((account.queue.keys.as_ref().map_or(0, |keys| keys.count() as u64)) as f64),
        ),
    ]
}

/// The metrics of each consumer group, from its account.
const OF_CONSUMERS: [Metric<GroupAccount>; 2] = [
    (
        "queue_rewound_total",
        "counter",
        "Documents that a consumer group was moved back over, and counts once more.",
        |group| Some(group.rewound as f64),
    ),
    (
        "queue_pending_bytes",
        "gauge",
        "Bytes of pending documents.",
        |group| Some(group.pending_bytes as f64),
    ),
];

/// The metrics of each consumer group that delivers, as it is now.
const OF_GROUPS: [Metric<Group>; 10] = [
    (
        "queue_lag_seconds",
        "gauge",
        "Age of the oldest document that a consumer group works on, or that waits for it while its pipeline is stopped.",
        |group| Some(group.lag().unwrap_or_default().as_secs_f64()),
    ),
    (
        "queue_lanes_paused",
        "gauge",
        "Lanes that wait until an operator corrects something.",
        |group| Some(group.count(LaneActivity::Paused) as f64),
    ),
    (
        "queue_lanes_retrying",
        "gauge",
        "Lanes that are retrying.",
        |group| Some(group.count(LaneActivity::Retrying) as f64),
    ),
    (
        "queue_pending_messages",
        "gauge",
        "Messages that a consumer group in Kafka has yet to deliver, whichever gateway accepted them.",
        |group| Some(group.consumer.sharing()?.pending_messages as f64),
    ),
    (
        "queue_lost_messages",
        "gauge",
        "Messages that Kafka deleted before a consumer group had delivered them.",
        |group| Some(group.consumer.sharing()?.lost_messages as f64),
    ),
    (
        "queue_lanes_held",
        "gauge",
        "Lanes of a queue in Kafka that this gateway holds now.",
        |group| Some(group.consumer.sharing()?.lanes_held as f64),
    ),
    (
        "queue_requests_total",
        "counter",
        "Bulk requests that a consumer group has sent since the start.",
        |group| Some(group.requests.get() as f64),
    ),
    (
        "queue_parts_total",
        "counter",
        "Parts in those requests; a part is one lane's documents for one node, and the parts of several lanes may travel in one request.",
        |group| Some(group.parts.get() as f64),
    ),
    (
        "queue_docs_retried_total",
        "counter",
        "Documents that a consumer group has sent again since the start.",
        |group| Some(group.retried.get() as f64),
    ),
    (
        "queue_docs_stayed_total",
        "counter",
        "Documents in doubt that a script or a pipeline may have changed: they were sent to the index that has them, and not to the index that their name leads to now.",
        |group| Some(group.stayed.get() as f64),
    ),
];

/// The metrics of the parked operations of each consumer group.
const OF_PARKED: [Metric<Parked>; 4] = [
    (
        "queue_parked_keys",
        "gauge",
        "Indices, requests and documents that operations of a consumer group wait for, apart from their lanes.",
        |parked| Some(parked.state().key_count() as f64),
    ),
    (
        "queue_parked_bytes",
        "gauge",
        "Bytes of a consumer group's parked operations on disk.",
        |parked| Some(parked.bytes() as f64),
    ),
    (
        "queue_parked_letters",
        "gauge",
        "Parked documents of a consumer group that are refused for good and wait for room among the dead letters.",
        |parked| Some(parked.state().letters() as f64),
    ),
    (
        "queue_parked_seconds",
        "gauge",
        "Age of the operations of a consumer group that have been parked longest.",
        |parked| Some(age_s(parked)),
    ),
];

/// Returns a figure of a queue on this machine's disk; `None` for a queue in Kafka.
fn on_disk(account: &Account<'_>, of: impl Fn(&Status) -> Option<u64>) -> Option<f64> {
    match account.queue.log {
        Journal::Disk(_) => of(&account.status).map(|bytes| bytes as f64),
        Journal::Kafka(_) => None,
    }
}

/// Returns the age in seconds of the operations that have been parked longest.
fn age_s(parked: &Parked) -> f64 {
    let since = parked.state().since_ms();
    since.map_or(0.0, |since| steady_ms().saturating_sub(since) as f64 / 1000.0)
}
