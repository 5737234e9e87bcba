//! The queues of asynchronous mode: durable logs, and how far each consumer group is in them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use log::{Consumer, ConsumerStatus, Event, Log, Options, RealDisk, StartAt, Status};
use serde_json::{Value, json};

use crate::config::{self, Config, Fsync};
use crate::dead_letters::DeadLetters;
use crate::metrics::Count;
use crate::start_error::StartError;

/// All queues, open, and who delivers from them.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    queues: BTreeMap<Arc<str>, Arc<Queue>>,
    groups: Vec<Arc<Group>>,
}

/// One queue.
pub(crate) struct Queue {
    pub(crate) name: Arc<str>,
    pub(crate) log: Log,
    pub(crate) dead_letters: DeadLetters,
}

/// A consumer group of a queue: one target cluster.
pub(crate) struct Group {
    pub(crate) settings: config::Delivery,
    pub(crate) queue: Arc<Queue>,
    pub(crate) consumer: Consumer,
    /// What lies before this was there when the process started: an earlier one may have delivered it, and ended before
    /// that was written down.
    pub(crate) doubtful_before: u64,
    lanes: Vec<Mutex<LaneState>>,
    /// Requests sent to the cluster.
    pub(crate) requests: Count,
    /// Documents sent again after a failure.
    pub(crate) retried: Count,
}

/// What a lane is doing.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneState {
    pub(crate) doing: Doing,
    /// Why it tries again, or waits.
    pub(crate) why: Option<Arc<str>>,
    /// When the oldest document that it works on was accepted, ms since 1970.
    pub(crate) since_ms: Option<u64>,
}

/// What a lane is doing, in a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Nothing: it is empty, or its pipeline is stopped.
    #[default]
    Idle,
    /// Sending.
    Delivering,
    /// Something failed that passes by itself.
    Retrying,
    /// Something is wrong that somebody has to put right. It goes on by itself then.
    Paused,
}

// === impl Queues ===

impl Queues {
    /// Opens, or makes, the logs and consumer groups of a configuration.
    pub(crate) fn open(config: &Config) -> Result<Self, StartError> {
        let mut queues = BTreeMap::new();
        for (name, settings) in &config.queues {
            let queue = Queue::open(settings, &config.paths.data)?;
            queues.insert(Arc::clone(name), Arc::new(queue));
        }
        let mut groups = Vec::new();
        for settings in &config.deliveries {
            let queue = Arc::clone(&queues[&settings.queue]);
            let consumer = queue.log.consumer(&settings.group, StartAt::Oldest);
            let consumer = consumer.map_err(|error| StartError::Queue {
                queue: Arc::clone(&queue.name),
                why: error.to_string(),
            })?;
            groups.push(Arc::new(Group {
                settings: settings.clone(),
                consumer,
                doubtful_before: queue.log.status().end,
                lanes: (0..queue.log.lanes()).map(|_| Mutex::default()).collect(),
                requests: Count::default(),
                retried: Count::default(),
                queue,
            }));
        }
        Ok(Self { queues, groups })
    }

    /// The queue of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Queue>> {
        self.queues.get(name)
    }

    pub(crate) fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// Ends it: what was handed over is written, marks are made durable.
    pub(crate) fn close(&self) {
        for queue in self.queues.values() {
            queue.log.close();
            queue.dead_letters.close();
        }
    }

    /// The accounts: in each queue accepted = indexed + dead + lost + pending for each consumer group, at one instant.
    pub(crate) fn accounts(&self) -> Vec<(&Arc<Queue>, Status, Vec<ConsumerStatus>)> {
        let accounts = self.queues.values().map(|queue| {
            let (status, consumers) = queue.log.accounts();
            (queue, status, consumers)
        });
        accounts.collect()
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
        let by_queue = |of: &dyn Fn(&Queue, &Status) -> u64| -> Vec<(String, f64)> {
            let samples = accounts
                .iter()
                .map(|(queue, status, _)| (format!("queue=\"{}\"", queue.name), of(queue, status) as f64));
            samples.collect()
        };
        let consumers = || {
            accounts.iter().flat_map(|(queue, status, groups)| {
                groups.iter().map(move |group| {
                    (
                        format!("queue=\"{}\",group=\"{}\"", queue.name, group.name),
                        group,
                        status,
                    )
                })
            })
        };
        let documents = consumers().flat_map(|(labels, group, status)| {
            let states = [
                ("indexed", group.indexed),
                ("dead", group.dead),
                ("lost", group.lost + status.lost),
                ("pending", group.pending),
            ];
            states.map(|(state, documents)| (format!("{labels},state=\"{state}\""), documents as f64))
        });
        let running = |of: &dyn Fn(&Group) -> f64| -> Vec<(String, f64)> {
            let samples = self.groups.iter().map(|group| {
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
            by_queue(&|_, status| status.documents),
        );
        family(
            "queue_documents",
            "gauge",
            "Those documents, by what became of them; the states of a consumer group add up to tidegate_queue_accepted_total.",
            documents.collect(),
        );
        family(
            "queue_pending_bytes",
            "gauge",
            "Bytes of pending documents.",
            consumers()
                .map(|(labels, group, _)| (labels, group.pending_bytes as f64))
                .collect(),
        );
        family(
            "queue_bytes",
            "gauge",
            "Bytes of a queue on disk.",
            by_queue(&|_, status| status.bytes),
        );
        family(
            "queue_poisoned",
            "gauge",
            "Whether a queue accepts nothing any more because the disk failed.",
            by_queue(&|_, status| u64::from(status.poisoned.is_some())),
        );
        family(
            "queue_lag_seconds",
            "gauge",
            "Age of the oldest document that a consumer group works on.",
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
        family(
            "queue_requests_total",
            "counter",
            "Bulk requests that a consumer group has sent.",
            running(&|group| group.requests.get() as f64),
        );
        family(
            "queue_docs_retried_total",
            "counter",
            "Documents that a consumer group has sent again.",
            running(&|group| group.retried.get() as f64),
        );
        family(
            "dead_letters",
            "gauge",
            "Dead letters of a queue.",
            by_queue(&|queue, _| queue.dead_letters.count()),
        );
    }

    /// The accounts as `/stats` shows them; with `lanes` as `/queue/stats` does.
    pub(crate) fn to_json(&self, lanes: bool) -> Value {
        let queues = self.accounts().into_iter().map(|(queue, status, consumers)| {
            let groups = consumers.iter().map(|consumer| {
                let running = self.groups.iter();
                let mut running = running.filter(|group| {
                    group.queue.name == queue.name && *group.settings.group == *consumer.name
                });
                let group = running.next();
                let mut value = json!({
                    "indexed": consumer.indexed,
                    "dead": consumer.dead,
                    "lost": consumer.lost + status.lost,
                    "pending": consumer.pending,
                    "pending_bytes": consumer.pending_bytes,
                });
                if let Some(group) = group {
                    value["cluster"] = json!(group.settings.cluster);
                    value["pipeline"] = json!(group.settings.pipeline);
                    value["running"] = json!(group.settings.enabled);
                    value["requests"] = json!(group.requests.get());
                    value["docs_retried"] = json!(group.retried.get());
                    value["lag_s"] = json!(group.lag().map(|lag| lag.as_secs_f64()));
                    value["paused_lanes"] = json!(group.count(Doing::Paused));
                    value["retrying_lanes"] = json!(group.count(Doing::Retrying));
                    if lanes {
                        value["lanes"] = group.lanes_to_json(consumer);
                    }
                }
                (consumer.name.clone(), value)
            });
            let value = json!({
                "accepted": status.documents,
                "records": status.records,
                "bytes": status.bytes,
                "waiting_bytes": status.waiting_bytes,
                "segments": status.segments,
                "syncs": status.syncs,
                "start": status.start,
                "end": status.end,
                "poisoned": status.poisoned,
                "dead_letters": queue.dead_letters.count(),
                "groups": groups.collect::<serde_json::Map<_, _>>(),
            });
            (queue.name.to_string(), value)
        });
        Value::Object(queues.collect())
    }
}

// === impl Queue ===

impl Queue {
    fn open(settings: &config::Queue, data: &Path) -> Result<Self, StartError> {
        let failed = |why: String| StartError::Queue {
            queue: Arc::clone(&settings.name),
            why,
        };
        let quota_bytes = settings.bytes_max.unwrap_or(0);
        let segment_bytes = match settings.bytes_max {
            None => SEGMENT_BYTES,
            // A quota is used to three quarters at least before the oldest segment has to go.
            Some(quota) => (quota / 4).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES),
        };
        let options = Options {
            lanes: settings.lanes,
            fsync: match settings.fsync {
                Fsync::Always => log::Fsync::Always,
                Fsync::Interval(interval) => log::Fsync::Interval(interval),
                Fsync::Os => log::Fsync::Os,
            },
            segment_bytes,
            quota_bytes,
            free_bytes_min: settings.free_bytes_min,
            on_event: teller(&settings.name, "queue"),
            ..Options::default()
        };
        let folder = data.join("queue").join(&*settings.name);
        let log =
            Log::open(&folder, options, RealDisk::default()).map_err(|error| failed(error.to_string()))?;
        if log.lanes() != settings.lanes {
            let (lanes, asked) = (log.lanes(), settings.lanes);
            tracing::warn!(
                queue = &*settings.name,
                lanes,
                asked,
                "a queue keeps the lanes that it was made with"
            );
        }
        let segment_bytes = (settings.dead_letters_bytes_max / 4).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES / 4);
        let options = Options {
            lanes: 1,
            segment_bytes,
            quota_bytes: settings.dead_letters_bytes_max,
            free_bytes_min: settings.free_bytes_min,
            on_event: teller(&settings.name, "dead letters"),
            ..Options::default()
        };
        let folder = data.join("dead_letters").join(&*settings.name);
        let dead_letters =
            Log::open(&folder, options, RealDisk::default()).map_err(|error| failed(error.to_string()))?;
        Ok(Self {
            name: Arc::clone(&settings.name),
            log,
            dead_letters: DeadLetters::new(dead_letters),
        })
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Says in the log what an operator must know.
fn teller(queue: &Arc<str>, of: &'static str) -> Arc<dyn Fn(&Event) + Send + Sync> {
    let queue = Arc::clone(queue);
    Arc::new(move |event| match event {
        Event::TornTail { .. } | Event::IndexRebuilt { .. } => {
            tracing::warn!(
                queue = &*queue,
                of,
                ?event,
                "put right after a crash; nothing acknowledged was lost"
            );
        }
        event => tracing::error!(queue = &*queue, of, ?event, "the log needs an operator"),
    })
}

// === impl Group ===

impl Group {
    /// Says what a lane is doing; a line in the log when that has changed for the worse.
    pub(crate) fn set(&self, lane: u32, doing: Doing, why: Option<&str>) {
        let mut state = self.lane(lane);
        let changed = state.doing != doing || state.why.as_deref() != why;
        state.doing = doing;
        if state.why.as_deref() != why {
            state.why = why.map(Into::into);
        }
        drop(state);
        if !changed {
            return;
        }
        let (queue, group) = (&*self.queue.name, &*self.settings.group);
        match doing {
            Doing::Paused => {
                wire::rationed!(
                    tracing::error,
                    queue,
                    group,
                    lane,
                    why,
                    "lane paused: nothing is lost, it goes on by itself once this is put right"
                );
            }
            Doing::Retrying => {
                wire::rationed!(tracing::warn, queue, group, lane, why, "lane tries again");
            }
            Doing::Idle | Doing::Delivering => {}
        }
    }

    /// Says since when the documents have waited that a lane works on.
    pub(crate) fn works_on(&self, lane: u32, since_ms: Option<u64>) {
        self.lane(lane).since_ms = since_ms;
    }

    fn lane(&self, lane: u32) -> std::sync::MutexGuard<'_, LaneState> {
        self.lanes[lane as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// How old the oldest document is that a lane works on.
    pub(crate) fn lag(&self) -> Option<Duration> {
        let oldest = (0..self.lanes.len() as u32)
            .filter_map(|lane| self.lane(lane).since_ms)
            .min()?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(now.saturating_sub(Duration::from_millis(oldest)))
    }

    pub(crate) fn count(&self, doing: Doing) -> usize {
        (0..self.lanes.len() as u32)
            .filter(|lane| self.lane(*lane).doing == doing)
            .count()
    }

    fn lanes_to_json(&self, consumer: &ConsumerStatus) -> Value {
        let lanes = consumer.lanes.iter().zip(&self.lanes).map(|(lane, state)| {
            let state = state.lock().unwrap_or_else(PoisonError::into_inner).clone();
            json!({
                "accepted": lane.accepted,
                "done": lane.done,
                "dead": lane.dead,
                "lost": lane.lost,
                "pending_bytes": lane.pending_bytes,
                "position": lane.position,
                "doing": state.doing.as_str(),
                "why": state.why,
            })
        });
        Value::Array(lanes.collect())
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Doing {
    fn as_str(self) -> &'static str {
        match self {
            Doing::Idle => "idle",
            Doing::Delivering => "delivering",
            Doing::Retrying => "retrying",
            Doing::Paused => "paused",
        }
    }
}

/// Bytes of a segment, where no quota asks for smaller ones.
const SEGMENT_BYTES: u64 = 256 << 20;
const SEGMENT_BYTES_MIN: u64 = 64 << 10;
