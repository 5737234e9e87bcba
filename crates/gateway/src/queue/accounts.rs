//! The accounts of queues: what was accepted, and what became of it for each consumer group.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use config::REPLAYING;
use log::{LaneStatus, Status};
use serde_json::{Value, json};

use crate::queue::journal::{Journal, REFUSALS, Sharing};
use crate::queue::parked::{Parked, now_ms};
use crate::queue::queues::{Doing, Group, Queue, Queues};
use crate::queue::standstill;

/// A queue at one instant.
pub(crate) struct Account<'a> {
    pub(crate) queue: &'a Arc<Queue>,
    pub(crate) status: Status,
    pub(crate) groups: Vec<GroupAccount>,
}

/// A consumer group at the same instant, in documents: the states add up to what was accepted and `rewound`.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupAccount {
    pub(crate) name: String,
    pub(crate) indexed: u64,
    /// Among the dead letters now.
    pub(crate) dead: u64,
    /// Waiting apart from their lanes.
    pub(crate) parked: u64,
    /// Dead letters that were put back into the queue, where each was accepted once more.
    pub(crate) replayed: u64,
    /// Dead letters that were thrown away.
    pub(crate) purged: u64,
    /// Passed over because somebody said so.
    pub(crate) skipped: u64,
    pub(crate) lost: u64,
    pub(crate) pending: u64,
    /// Gone back over because somebody said so: each is accounted for once more.
    pub(crate) rewound: u64,
    pub(crate) pending_bytes: u64,
    pub(crate) lanes: Vec<LaneStatus>,
}

// === impl Account ===

impl Account<'_> {
    /// Dead letters of all groups.
    pub(crate) fn dead_letters(&self) -> u64 {
        self.groups.iter().map(|group| group.dead).sum()
    }
}

// === impl GroupAccount ===

impl GroupAccount {
    /// What became of the documents, by state.
    pub(crate) fn states(&self) -> [(&'static str, u64); 8] {
        [
            ("indexed", self.indexed),
            ("dead", self.dead),
            ("parked", self.parked),
            ("replayed", self.replayed),
            ("purged", self.purged),
            ("skipped", self.skipped),
            ("lost", self.lost),
            ("pending", self.pending),
        ]
    }
}

// === impl Queue ===

impl Queue {
    /// The account of the queue: for each consumer group accepted + rewound is the sum of its states, at one
    /// instant.
    pub(crate) fn account(self: &Arc<Self>) -> Account<'_> {
        let (guard, tallies) = self.dead_letters.tallies();
        let parked = self.parked.all();
        // Held while the cursors are read: what is parked counts from the moment of its lane's commit.
        let states: Vec<_> = parked
            .iter()
            .map(|(name, parked)| (name, parked.state()))
            .collect();
        let (status, consumers) = self.log.accounts_with_parked();
        let parked: BTreeMap<&str, (u64, u64)> = states
            .iter()
            .map(|(name, state)| (name.as_str(), (state.counted, state.dead)))
            .collect();
        drop(guard);
        let groups = consumers
            .into_iter()
            .filter(|(one, _)| one.name != REPLAYING)
            .map(|(one, shared)| {
                let tally = tallies.get(&one.name).copied().unwrap_or_default();
                let here = || parked.get(one.name.as_str()).copied().unwrap_or_default();
                // In Kafka the cursors tell of it: other gateways have some.
                let (shared, (parked, died)) = match shared {
                    Some(parked) => (parked, (0, 0)),
                    None => (0, here()),
                };
                GroupAccount {
                    // The cursors are past what is parked, and past what died there.
                    indexed: one.indexed.saturating_sub(parked + died),
                    dead: (one.dead + died).saturating_sub(tally.replayed + tally.purged),
                    parked: parked + shared,
                    replayed: tally.replayed,
                    purged: tally.purged,
                    skipped: one.skipped,
                    lost: one.lost + status.lost,
                    pending: one.pending,
                    rewound: one.rewound,
                    pending_bytes: one.pending_bytes,
                    lanes: one.lanes,
                    name: one.name,
                }
            });
        Account {
            queue: self,
            groups: groups.collect(),
            status,
        }
    }
}

// === impl Queues ===

impl Queues {
    /// The accounts of all queues.
    pub(crate) fn accounts(&self) -> Vec<Account<'_>> {
        self.all().map(Queue::account).collect()
    }

    /// The accounts in Prometheus' text format 0.0.4.
    pub(crate) fn write_prometheus(&self, out: &mut String) {
        let accounts = self.accounts();
        let mut family = |name: &str, kind: &str, help: &str, samples: Vec<(String, f64)>| {
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "# HELP tidegate_{name} {help}\n# TYPE tidegate_{name} {kind}"
            );
            for (labels, value) in samples {
                let _ = writeln!(out, "tidegate_{name}{{{labels}}} {value}");
            }
        };
        let by_queue = |of: &dyn Fn(&Account<'_>) -> u64| -> Vec<(String, f64)> {
            let samples = accounts
                .iter()
                .map(|account| (format!("queue=\"{}\"", account.queue.name), of(account) as f64));
            samples.collect()
        };
        let consumers = || {
            accounts.iter().flat_map(|account| {
                account.groups.iter().map(move |group| {
                    let labels = format!("queue=\"{}\",group=\"{}\"", account.queue.name, group.name);
                    (labels, group)
                })
            })
        };
        let documents = consumers().flat_map(|(labels, group)| {
            let states = group.states();
            states.map(|(state, documents)| (format!("{labels},state=\"{state}\""), documents as f64))
        });
        let on_disk = |of: &dyn Fn(&Status) -> Option<u64>| -> Vec<(String, f64)> {
            let on_disk = accounts
                .iter()
                .filter(|account| matches!(account.queue.log, Journal::Disk(_)));
            let samples = on_disk.filter_map(|account| {
                let bytes = of(&account.status)?;
                Some((format!("queue=\"{}\"", account.queue.name), bytes as f64))
            });
            samples.collect()
        };
        let refusals = accounts.iter().flat_map(|account| {
            let found = account.queue.log.refuses_for();
            REFUSALS.iter().map(move |reason| {
                let labels = format!("queue=\"{}\",reason=\"{reason}\"", account.queue.name);
                (labels, f64::from(u8::from(found == Some(*reason))))
            })
        });
        let shared = |of: &dyn Fn(Sharing) -> u64| -> Vec<(String, f64)> {
            let groups = self.groups().iter();
            let samples = groups.filter_map(|group| {
                let labels = format!(
                    "queue=\"{}\",group=\"{}\"",
                    group.queue.name, group.settings.group
                );
                Some((labels, of(group.consumer.sharing()?) as f64))
            });
            samples.collect()
        };
        let running = |of: &dyn Fn(&Group) -> f64| -> Vec<(String, f64)> {
            let samples = self.groups().iter().map(|group| {
                let labels = format!(
                    "queue=\"{}\",group=\"{}\"",
                    group.queue.name, group.settings.group
                );
                (labels, of(group))
            });
            samples.collect()
        };
        family(
            "queue_accepted_total",
            "counter",
            "Documents accepted into a queue since it was made.",
            by_queue(&|account| account.status.documents),
        );
        family(
            "queue_documents",
            "gauge",
            "Those documents, by what became of them; the states of a consumer group add up to tidegate_queue_accepted_total and tidegate_queue_rewound_total.",
            documents.collect(),
        );
        family(
            "queue_rewound_total",
            "counter",
            "Documents that a consumer group was set back over, and counts once more.",
            consumers()
                .map(|(labels, group)| (labels, group.rewound as f64))
                .collect(),
        );
        family(
            "queue_pending_bytes",
            "gauge",
            "Bytes of pending documents.",
            consumers()
                .map(|(labels, group)| (labels, group.pending_bytes as f64))
                .collect(),
        );
        family(
            "queue_bytes",
            "gauge",
            "Bytes of a queue on disk.",
            by_queue(&|account| account.status.bytes),
        );
        family(
            "queue_spare_bytes",
            "gauge",
            "Bytes of a queue's files on disk that hold nothing any more and are kept to be written again.",
            by_queue(&|account| account.status.spare_bytes),
        );
        family(
            "queue_bytes_max",
            "gauge",
            "Bytes that a queue may take on disk (max_size), where that is said.",
            on_disk(&|status| Some(status.quota_bytes).filter(|bytes| *bytes > 0)),
        );
        family(
            "queue_disk_free_bytes",
            "gauge",
            "Bytes free on the disk that a queue is on, when it last looked.",
            on_disk(&|status| Some(status.free_bytes)),
        );
        family(
            "queue_refuses",
            "gauge",
            "Whether a queue accepts nothing now, by reason: no room below max_size, none on the disk, a disk that failed, or one that is slower than what comes.",
            refusals.collect(),
        );
        family(
            "queue_poisoned",
            "gauge",
            "Whether a queue accepts nothing any more because the disk failed.",
            by_queue(&|account| u64::from(account.status.poisoned.is_some())),
        );
        family(
            "queue_lag_seconds",
            "gauge",
            "Age of the oldest document that a consumer group works on, or that waits for it while its pipeline is stopped.",
            running(&|group| group.lag().unwrap_or_default().as_secs_f64()),
        );
        family(
            "queue_lanes_paused",
            "gauge",
            "Lanes that wait for something to be put right.",
            running(&|group| group.count(Doing::Paused) as f64),
        );
        family(
            "queue_lanes_retrying",
            "gauge",
            "Lanes that try again.",
            running(&|group| group.count(Doing::Retrying) as f64),
        );
        let parked = |of: &dyn Fn(&Parked) -> f64| -> Vec<(String, f64)> {
            let groups = accounts.iter().flat_map(|account| {
                let all = account.queue.parked.all();
                all.into_iter()
                    .map(move |(group, parked)| (&account.queue.name, group, parked))
            });
            let samples = groups
                .map(|(queue, group, parked)| (format!("queue=\"{queue}\",group=\"{group}\""), of(&parked)));
            samples.collect()
        };
        family(
            "queue_parked_keys",
            "gauge",
            "Indices, requests and documents that operations of a consumer group wait for, apart from their lanes.",
            parked(&|parked| parked.state().key_count() as f64),
        );
        family(
            "queue_parked_bytes",
            "gauge",
            "Bytes of a consumer group's parked operations on disk.",
            parked(&|parked| parked.bytes() as f64),
        );
        family(
            "queue_parked_letters",
            "gauge",
            "Parked documents of a consumer group that are refused, and wait for room among the dead letters.",
            parked(&|parked| parked.state().letters() as f64),
        );
        family(
            "queue_parked_seconds",
            "gauge",
            "Age of the operations of a consumer group that have been parked longest.",
            parked(&|parked| {
                let since = parked.state().since_ms();
                since.map_or(0.0, |since| now_ms().saturating_sub(since) as f64 / 1000.0)
            }),
        );
        family(
            "queue_pending_messages",
            "gauge",
            "Messages that a consumer group in Kafka has yet to deliver, whichever gateway accepted them.",
            shared(&|sharing| sharing.pending_messages),
        );
        family(
            "queue_lost_messages",
            "gauge",
            "Messages that Kafka deleted before a consumer group had delivered them.",
            shared(&|sharing| sharing.lost_messages),
        );
        family(
            "queue_lanes_held",
            "gauge",
            "Lanes of a queue in Kafka that are this gateway's now.",
            shared(&|sharing| sharing.lanes_held),
        );
        family(
            "queue_requests_total",
            "counter",
            "Bulk requests that a consumer group has sent.",
            running(&|group| group.requests.get() as f64),
        );
        family(
            "queue_parts_total",
            "counter",
            "What lanes had for one node, carried by those requests: several lanes travel in one.",
            running(&|group| group.parts.get() as f64),
        );
        family(
            "queue_docs_retried_total",
            "counter",
            "Documents that a consumer group has sent again.",
            running(&|group| group.retried.get() as f64),
        );
        family(
            "queue_docs_stayed_total",
            "counter",
            "Documents in doubt that a script or a pipeline may have changed: sent to the index that has them, and not to where their name leads now.",
            running(&|group| group.stayed.get() as f64),
        );
        family(
            "dead_letters",
            "gauge",
            "Dead letters of a queue.",
            by_queue(&|account| account.dead_letters()),
        );
        family(
            "dead_letters_bytes",
            "gauge",
            "Bytes of a queue's dead letters on disk.",
            by_queue(&|account| account.queue.dead_letters.bytes()),
        );
        family(
            "queue_idempotency_keys",
            "gauge",
            "Idempotency-Keys that a queue remembers.",
            by_queue(&|account| account.queue.keys.as_ref().map_or(0, |keys| keys.count() as u64)),
        );
    }

    /// The accounts as `/stats` shows them; with `lanes` as `/queue/stats` does.
    pub(crate) fn to_json(&self, lanes: bool) -> Value {
        let queues = self.accounts().into_iter().map(|account| {
            let Account {
                queue,
                status,
                groups,
            } = &account;
            let groups = groups.iter().map(|one| {
                let states = one.states();
                let mut value: Value = states
                    .map(|(state, documents)| (state, json!(documents)))
                    .into_iter()
                    .collect();
                value["rewound"] = json!(one.rewound);
                value["pending_bytes"] = json!(one.pending_bytes);
                if let Some(parked) = queue.parked_of(&one.name) {
                    let state = parked.state();
                    value["parked_keys"] = json!(state.key_count());
                    if lanes {
                        let shown = state.shown(PARKED_SHOWN).into_iter().map(|key| key.0);
                        value["parked_for"] = shown.collect();
                    }
                }
                let group = self.group(&queue.name, &one.name);
                value["waits"] = standstill::of_group(one, group.map(|group| &**group));
                if let Some(group) = group {
                    value["cluster"] = json!(group.settings.cluster);
                    value["pipeline"] = json!(group.settings.pipeline);
                    value["state"] = json!(group.phase().as_str());
                    value["requests"] = json!(group.requests.get());
                    value["parts"] = json!(group.parts.get());
                    value["docs_retried"] = json!(group.retried.get());
                    value["lag_s"] = json!(group.lag().map(|lag| lag.as_secs_f64()));
                    value["paused_lanes"] = json!(group.count(Doing::Paused));
                    value["retrying_lanes"] = json!(group.count(Doing::Retrying));
                    if let Some(sharing) = group.consumer.sharing() {
                        value["pending_messages"] = json!(sharing.pending_messages);
                        value["lost_messages"] = json!(sharing.lost_messages);
                        value["lanes_held"] = json!(sharing.lanes_held);
                    }
                    if lanes {
                        value["lanes"] = group.lanes_to_json(&one.lanes);
                    }
                }
                (one.name.clone(), value)
            });
            let mut value = json!({
                "accepted": status.documents,
                "records": status.records,
                "bytes": status.bytes,
                "spare_bytes": status.spare_bytes,
                "waiting_bytes": status.waiting_bytes,
                "segments": status.segments,
                "syncs": status.syncs,
                "start": status.start,
                "end": status.end,
                "poisoned": status.poisoned,
                "refuses": standstill::of_queue(queue),
                "dead_letters": account.dead_letters(),
                "dead_letters_bytes": queue.dead_letters.bytes(),
                "idempotency_keys": queue.keys.as_ref().map(|keys| keys.count()),
                "groups": groups.collect::<serde_json::Map<_, _>>(),
            });
            if let Some(topic) = queue.log.topic() {
                value["topic"] = json!(topic);
            }
            (queue.name.to_string(), value)
        });
        Value::Object(queues.collect())
    }
}

/// Keys of parked operations that are shown beside the accounts.
const PARKED_SHOWN: usize = 10;
