//! The queues of asynchronous mode: durable logs, and how far each consumer group is in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use config::{Compression, Config, Fsync};
use log::{Codec, Event, LaneStatus, Log, Options, ReadError, RealDisk, Retention, StartAt};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::admission::form::Forms;
use crate::admission::keys::{Keys, SEGMENTS_STAY};
use crate::admission::plan_room::PlanRoom;
use crate::clock::now_ms;
use crate::metrics::Count;
use crate::queue::at_nodes::{AtNodes, tenths};
use crate::queue::dead_letters::{Committed, DeadLetters};
use crate::queue::entrance::Entrance;
use crate::queue::journal::{Consumer, Journal};
use crate::queue::parked::{Parked, ParkedOfQueue, ParkedTopic};
use crate::queue::phase::{Phase, WhenStopped};
use crate::queue::sent_marks::SentMarks;
use crate::queue::whereabouts::Whereabouts;
use crate::queue::{dead_letters, moving, parked, record};
use crate::start_error::StartError;

/// All open queues, and the consumer groups that deliver from them.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    queues: BTreeMap<Arc<str>, Arc<Queue>>,
    groups: Vec<Arc<Group>>,
}

/// One queue.
pub(crate) struct Queue {
    pub(crate) name: Arc<str>,
    /// The cluster that its clients write to.
    pub(crate) cluster: Arc<str>,
    pub(crate) log: Journal,
    pub(crate) dead_letters: DeadLetters,
    /// The operations that wait apart from their lanes.
    pub(crate) parked: Arc<ParkedOfQueue>,
    /// How long operations are parked before they are given up.
    parked_age_max: Mutex<Duration>,
    /// The idempotency keys that were used; `None` if the queue ignores keys.
    pub(crate) keys: Option<Arc<Keys>>,
    /// Where the names of its documents lead; `None` in Kafka, where lanes may be other gateways'.
    pub(crate) whereabouts: Option<Arc<Whereabouts>>,
    /// The folder that says how far each consumer group sends; `None` in Kafka.
    sent_marks: Option<PathBuf>,
    pub(crate) entrance: Entrance,
    /// Which requests the queue's cluster takes, by their heads.
    pub(crate) forms: Forms,
    /// The treatment of writes that cannot be queued.
    passing: Mutex<config::Passing>,
    /// The number of requests that wait for their turn behind the queue.
    pub(crate) behind: AtomicUsize,
    /// Where large bulks wait to be planned.
    pub(crate) plan_room: PlanRoom,
}

/// A consumer group of a queue: one target cluster.
pub(crate) struct Group {
    pub(crate) settings: config::Delivery,
    pub(crate) queue: Arc<Queue>,
    pub(crate) consumer: Consumer,
    /// The operations that wait apart from their lanes; unset while [`Group::cannot_park`] gives a reason.
    parked: OnceLock<Arc<Parked>>,
    cannot_park: Mutex<Option<CannotPark>>,
    /// The end of the queue when the group was opened, or 0 if it was empty: an earlier run can have sent
    /// nothing behind it.
    end_before: u64,
    /// How far each lane may have sent; none in Kafka, and none before delivery first begins. A group that a
    /// failed reload has opened must not take the file from the one that delivers.
    sent_marks: OnceLock<SentMarks>,
    /// For each lane, the end of the queue when delivery started. An earlier run may have delivered records
    /// before this position without committing them.
    doubtful_before: Vec<AtomicU64>,
    /// Whether something may have been sent that is not committed, or is to be sent again, while
    /// [`Group::doubtful_before`] does not say so yet.
    unsettled: AtomicBool,
    lanes: Vec<Mutex<LaneState>>,
    pub(crate) at_nodes: AtNodes,
    pub(super) phase: Mutex<(Phase, WhenStopped)>,
    /// Whether batches under way are broken off at a stop, because their end takes too long.
    pub(super) breaks_off: AtomicBool,
    /// Requests sent to the cluster.
    pub(crate) requests: Count,
    /// Parcels of lanes that were sent in those requests.
    pub(crate) parts: Count,
    /// Documents sent again after a failure.
    pub(crate) retried: Count,
    /// Operations in doubt that stayed in the index that had their documents, although their names had come
    /// to lead elsewhere.
    pub(crate) stayed: Count,
}

/// Why a group in Kafka parks nothing: it has no topic for parked operations.
#[derive(Clone, Debug)]
pub(crate) struct CannotPark {
    pub(crate) why: String,
    /// True if the brokers did not answer; false if they refused the topic.
    pub(crate) is_untold: bool,
}

/// The state of a lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneState {
    pub(crate) activity: LaneActivity,
    /// Why the lane tries again, or waits.
    pub(crate) why: Option<Arc<str>>,
    /// When the oldest document that the lane works on was accepted, in ms since 1970.
    pub(crate) since_ms: Option<u64>,
    /// Since when the lane does this, for this reason.
    pub(crate) since_change: Option<Instant>,
    /// When the lane looks again at what it waits for.
    pub(crate) next_try: Option<Instant>,
}

/// The activity of a lane, in a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LaneActivity {
    /// Nothing: the lane is empty, or its pipeline is stopped.
    #[default]
    Idle,
    /// Sending.
    Delivering,
    /// Trying again after a failure that passes by itself.
    Retrying,
    /// Waiting for something that somebody has to put right. The lane then goes on by itself.
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
            let queue = &queues[&settings.queue];
            groups.push(Arc::new(Group::open(settings, queue)?));
        }
        Ok(Self { queues, groups })
    }

    /// Combines queues and groups that are open already.
    pub(crate) fn of(queues: BTreeMap<Arc<str>, Arc<Queue>>, groups: Vec<Arc<Group>>) -> Self {
        Self { queues, groups }
    }

    /// Returns all queues.
    pub(crate) fn by_name(&self) -> &BTreeMap<Arc<str>, Arc<Queue>> {
        &self.queues
    }

    /// Returns the queue of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Queue>> {
        self.queues.get(name)
    }

    pub(crate) fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// Closes all queues: records that were handed over are written, and marks are made durable.
    pub(crate) fn close(&self) {
        for queue in self.queues.values() {
            queue.close();
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.queues.values()
    }

    /// Returns the consumer group of this name that delivers from a queue.
    pub(crate) fn group(&self, queue: &str, name: &str) -> Option<&Arc<Group>> {
        let mut groups = self.groups.iter();
        groups.find(|group| *group.queue.name == *queue && *group.settings.group == *name)
    }
}

// === impl Queue ===

impl Queue {
    /// Opens the queue, or makes it.
    pub(crate) fn open(settings: &config::Queue, data: &Path) -> Result<Self, StartError> {
        let failed = |error: &dyn std::error::Error| StartError::Queue {
            queue: Arc::clone(&settings.name),
            why: error.to_string(),
        };
        let log = match &settings.kafka {
            Some(topic) => Journal::in_topic(open_topic(topic).map_err(|error| failed(&error))?),
            None => Journal::Disk(open_log(settings, data).map_err(|error| failed(&error))?),
        };
        let options = letters_options(settings);
        let folder = data.join("dead_letters").join(&*settings.name);
        let dead_letters = DeadLetters::open(&folder, options).map_err(|error| failed(&error))?;
        if let Some(log) = log.on_disk() {
            dead_letters::recount(log, &dead_letters).map_err(|error| failed(&error))?;
        }
        let on_disk = log.on_disk().is_some();
        let options = parked_options(settings);
        let parked = match log.on_disk() {
            Some(_) => {
                let folder = parked::folder_of(data, &settings.name);
                ParkedOfQueue::open(folder, options, &log.committed()).map_err(|error| failed(&error))?
            }
            None => ParkedOfQueue::in_kafka(parked::copies_of(data, &settings.name), options),
        };
        let parked = Arc::new(parked);
        let open = || Whereabouts::open(data, &settings.name, &log, Arc::clone(&parked));
        let whereabouts = on_disk.then(open);
        let whereabouts = whereabouts.transpose().map_err(|error| failed(&error))?;
        let keyed = settings.idempotency.as_ref().zip(log.on_disk());
        let keys = keyed.map(|(idempotency, log)| {
            let options = Options {
                free_bytes_min: settings.free_bytes_min,
                on_event: teller(&settings.name, "idempotency keys"),
                ..Options::default()
            };
            let folder = data.join("idempotency").join(&*settings.name);
            let in_queue = |from| record::keys_from(log, from);
            Keys::open(&folder, idempotency, options, log.status().end, in_queue)
        });
        Ok(Self {
            name: Arc::clone(&settings.name),
            cluster: Arc::clone(&settings.cluster),
            log,
            dead_letters,
            parked,
            parked_age_max: Mutex::new(settings.parked_age_max),
            keys: keys.transpose().map_err(|error| failed(&error))?,
            whereabouts,
            sent_marks: on_disk.then(|| data.join("sent").join(&*settings.name)),
            entrance: Entrance::default(),
            forms: Forms::default(),
            passing: Mutex::new(settings.passing),
            behind: AtomicUsize::new(0),
            plan_room: PlanRoom::new(),
        })
    }

    /// Closes the queue: records that were handed over are written, marks are made durable, and nothing more
    /// is accepted.
    pub(crate) fn close(&self) {
        // Before the log lets go of its lock: another process may have the file then.
        if let Some(whereabouts) = &self.whereabouts {
            whereabouts.close();
        }
        self.log.close();
        self.dead_letters.close();
        self.parked.close();
        if let Some(keys) = &self.keys {
            keys.close();
        }
    }

    /// Takes over the settings that may change: when requests count as safe, how documents are packed, how
    /// much there may be, and how writes that cannot be queued are treated.
    pub(crate) fn adjust(&self, settings: &config::Queue) -> Result<(), log::OpenError> {
        *self.passing.lock() = settings.passing;
        // Kafka decides about the properties of a topic.
        let of_log = self
            .log
            .on_disk()
            .map_or(Ok(()), |log| log.adjust(&log_options(settings)));
        let of_letters = self.dead_letters.adjust(letters_options(settings));
        *self.parked_age_max.lock() = settings.parked_age_max;
        let of_parked = self.parked.adjust(&parked_options(settings));
        of_log.and(of_letters).and(of_parked)
    }

    /// Returns how long operations are parked before they are given up.
    pub(crate) fn parked_age_max(&self) -> Duration {
        *self.parked_age_max.lock()
    }

    /// Returns the parked operations of one of its consumer groups; `None` if the queue is in Kafka, and the
    /// brokers do not let the gateway have a topic for them.
    pub(crate) fn parked_of(&self, group: &str) -> Option<Arc<Parked>> {
        self.parked.group(group)
    }

    /// Returns the parked operations of a group that is about to deliver. Blocks on the brokers.
    fn parked_to_deliver(&self, name: &str, consumer: &Consumer) -> Result<Arc<Parked>, kafka::OpenError> {
        match (self.parked_of(name), consumer, self.log.in_kafka()) {
            (None, Consumer::Kafka(group), Some(topic)) => {
                let topic = ParkedTopic::open(topic, group, name)?;
                Ok(self.parked.add_in_topic(name, topic))
            }
            (Some(parked), ..) => Ok(parked),
            (None, ..) => unreachable!("only a group in Kafka has nothing to park in"),
        }
    }

    /// Returns the treatment of writes that cannot be queued.
    pub(crate) fn passing(&self) -> config::Passing {
        *self.passing.lock()
    }

    /// Returns how far the queue's consumer groups have committed.
    pub(crate) fn committed(&self) -> Committed {
        let parked = self.parked.all().into_iter();
        Committed {
            lanes: self.log.committed().into_iter().collect(),
            unconfirmed_letters: parked
                .map(|(group, parked)| (group, Arc::clone(&parked.unconfirmed_letters)))
                .collect(),
        }
    }

    /// Makes the commits of the queue's consumer groups durable.
    pub(crate) fn flush(&self) -> Result<(), ReadError> {
        self.log.flush()
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Why a queue on this machine's disk has no log.
#[derive(Debug, thiserror::Error)]
enum NoLog {
    /// The queue was moved to another machine, or is not here as a whole yet.
    #[error("{0}")]
    NotOurs(String),
    #[error(transparent)]
    UnreadMark(#[from] moving::UnreadMark),
    #[error(transparent)]
    Open(#[from] log::OpenError),
}

/// Opens the log of a queue on this machine's disk.
fn open_log(settings: &config::Queue, data: &Path) -> Result<Log, NoLog> {
    if let Some(why) = moving::why_not_ours(data, &settings.name)? {
        return Err(NoLog::NotOurs(why));
    }
    let folder = data.join("queue").join(&*settings.name);
    let log = Log::open(&folder, log_options(settings), RealDisk::default())?;
    if log.lanes() != settings.lanes {
        let (lanes, asked) = (log.lanes(), settings.lanes);
        tracing::warn!(
            queue = &*settings.name,
            lanes,
            asked,
            "a queue keeps the lanes that it was made with"
        );
    }
    Ok(log)
}

/// Opens the topic of a queue in Kafka.
fn open_topic(settings: &config::KafkaTopic) -> Result<Arc<dyn kafka::Topic>, kafka::OpenError> {
    kafka::open(&kafka::Options {
        brokers: settings.brokers.iter().map(ToString::to_string).collect(),
        topic: settings.topic.to_string(),
        partitions: settings.partitions,
        replicas: settings.replicas,
        retention: settings.retention,
        message_bytes_max: settings.message_bytes_max,
        ack_timeout: settings.ack_timeout,
        session_timeout: settings.session_timeout,
        tls: settings.tls.as_ref().map(|tls| kafka::Tls {
            verify: !tls.insecure_skip_verify,
            ca_file: tls.ca_file.clone(),
            client_certificate: tls.client_certificate.clone(),
        }),
        sasl: settings.sasl.as_ref().map(|sasl| kafka::Sasl {
            mechanism: sasl.mechanism.as_str(),
            username: sasl.username.clone(),
            password: sasl.password.clone(),
        }),
    })
}

/// Returns how the log of a queue is kept.
fn log_options(settings: &config::Queue) -> Options {
    let quota_bytes = settings.bytes_max.unwrap_or(0);
    Options {
        lanes: settings.lanes,
        fsync: match settings.fsync {
            Fsync::Always => log::Fsync::Always,
            Fsync::Interval(interval) => log::Fsync::Interval(interval),
            Fsync::Os => log::Fsync::Os,
        },
        codec: match settings.compression {
            Compression::None => Codec::None,
            Compression::Lz4 => Codec::Lz4,
            Compression::Zstd => Codec::Zstd,
        },
        segment_bytes: match settings.bytes_max {
            None => SEGMENT_BYTES,
            // At least three quarters of a quota are used before the oldest segment has to go.
            Some(quota) => (quota / 4).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES),
        },
        quota_bytes,
        free_bytes_min: settings.free_bytes_min,
        retention: Retention {
            keep_for: settings
                .idempotency
                .as_ref()
                .map_or(Duration::ZERO, |_| SEGMENTS_STAY),
            ..Retention::default()
        },
        spare_bytes: settings.spare_bytes,
        on_event: teller(&settings.name, "queue"),
        ..Options::default()
    }
}

/// Returns how the dead letters of a queue are kept.
fn letters_options(settings: &config::Queue) -> Options {
    let quota_bytes = settings.dead_letters_bytes_max;
    Options {
        lanes: 1,
        segment_bytes: (quota_bytes / 4).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES / 4),
        quota_bytes,
        // A disk that the queue has filled still has room for letters: lanes that had to wait for room would
        // hold the records that fill the disk.
        free_bytes_min: settings.free_bytes_min / 2,
        on_event: teller(&settings.name, "dead letters"),
        ..Options::default()
    }
}

/// Returns how the parked operations of a consumer group are kept.
fn parked_options(settings: &config::Queue) -> Options {
    let quota_bytes = settings.parked_bytes_max;
    Options {
        // In Kafka the store is a copy, which is made anew.
        fsync: match settings.kafka {
            Some(_) => log::Fsync::Os,
            None => log::Fsync::Always,
        },
        on_event: teller(&settings.name, "parked operations"),
        segment_bytes: (quota_bytes / 8).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES / 4),
        quota_bytes,
        ..letters_options(settings)
    }
}

/// Returns a listener that logs events for the operator.
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
    /// Opens a consumer group of a queue. A new group begins where the settings say.
    pub(crate) fn open(settings: &config::Delivery, queue: &Arc<Queue>) -> Result<Self, StartError> {
        let start = match settings.start {
            config::Start::Earliest => StartAt::Oldest,
            config::Start::Latest => StartAt::Newest,
            config::Start::Time(ms) => StartAt::Time(ms),
        };
        let consumer = queue.log.consumer(&settings.group, start);
        let consumer = consumer.map_err(|error| StartError::Queue {
            queue: Arc::clone(&queue.name),
            why: error.to_string(),
        })?;
        let lanes = queue.log.lanes();
        let status = queue.log.status();
        let end_before = if status.documents == 0 { 0 } else { status.end };
        let group = Self {
            settings: settings.clone(),
            consumer,
            parked: OnceLock::new(),
            cannot_park: Mutex::default(),
            end_before,
            sent_marks: OnceLock::new(),
            doubtful_before: (0..lanes).map(|_| AtomicU64::default()).collect(),
            unsettled: AtomicBool::new(true),
            lanes: (0..lanes).map(|_| Mutex::default()).collect(),
            at_nodes: AtNodes::new(lanes),
            phase: Mutex::default(),
            breaks_off: AtomicBool::default(),
            requests: Count::default(),
            parts: Count::default(),
            retried: Count::default(),
            stayed: Count::default(),
            queue: Arc::clone(queue),
        };
        if let Some(parked) = group.ask_to_park() {
            group.parks_from_now_on(parked);
        }
        Ok(group)
    }

    /// Returns the operations that wait apart from their lanes; `None` if nothing can be parked, see
    /// [`Group::cannot_park`].
    pub(crate) fn parked(&self) -> Option<&Arc<Parked>> {
        self.parked.get()
    }

    /// Returns why nothing can be parked, if so.
    pub(crate) fn cannot_park(&self) -> Option<CannotPark> {
        self.cannot_park.lock().clone()
    }

    /// Asks once for the store of parked operations. Blocks on the brokers, if the queue is in Kafka.
    pub(crate) fn ask_to_park(&self) -> Option<Arc<Parked>> {
        let asked = self.queue.parked_to_deliver(&self.settings.group, &self.consumer);
        let error = match asked {
            Ok(parked) => return Some(parked),
            Err(error) => error,
        };
        let why = error.to_string();
        let known = self.cannot_park.lock().replace(CannotPark {
            why: why.clone(),
            is_untold: error.says_nothing_of_the_topic(),
        });
        if known.is_none_or(|known| known.why != why) {
            tracing::warn!(
                queue = &*self.queue.name,
                group = &*self.settings.group,
                %error,
                "nothing of this queue can be parked: what concerns one index or document stops its lane; it is tried again"
            );
        }
        None
    }

    /// Parks operations from now on. To be called only while nothing is under way.
    pub(crate) fn parks_from_now_on(&self, parked: Arc<Parked>) {
        if self.cannot_park.lock().take().is_some() {
            let (queue, group) = (&*self.queue.name, &*self.settings.group);
            tracing::info!(queue, group, "the topic of what is parked can be used now");
        }
        self.parked.get_or_init(|| parked);
    }

    /// Records what a lane is doing; writes a line to the log when that has changed for the worse.
    pub(crate) fn set(&self, lane: u32, activity: LaneActivity, why: Option<&str>) {
        let mut state = self.lane(lane);
        let changed = state.activity != activity || state.why.as_deref() != why;
        state.activity = activity;
        if changed {
            (state.since_change, state.next_try) = (Some(Instant::now()), None);
        }
        if state.why.as_deref() != why {
            state.why = why.map(Into::into);
        }
        drop(state);
        if !changed {
            return;
        }
        let (queue, group) = (&*self.queue.name, &*self.settings.group);
        match activity {
            LaneActivity::Paused => {
                wire::rationed!(
                    tracing::error,
                    queue,
                    group,
                    lane,
                    why,
                    "lane paused: nothing is lost, it goes on by itself once this is put right"
                );
            }
            LaneActivity::Retrying => {
                wire::rationed!(tracing::warn, queue, group, lane, why, "lane tries again");
            }
            LaneActivity::Idle | LaneActivity::Delivering => {}
        }
    }

    /// Records that no lane does anything for now.
    pub(crate) fn rest_lanes(&self) {
        for lane in 0..self.lanes.len() as u32 {
            *self.lane(lane) = LaneState::default();
        }
    }

    /// Returns the position before which a lane's records may have been delivered already, by an earlier run
    /// or another gateway.
    pub(crate) fn doubtful_before(&self, lane: u32) -> u64 {
        match &self.consumer {
            Consumer::Disk(_) => self.doubtful_before[lane as usize].load(Ordering::Relaxed),
            Consumer::Kafka(group) => group.end_when_taken(lane),
        }
    }

    /// Prepares for delivery to start. An earlier run of this process has committed everything that it
    /// delivered, unless somebody has said otherwise since; an earlier process may have ended anywhere.
    pub(crate) fn begins(&self) {
        if let Some(folder) = &self.queue.sent_marks {
            let path = folder.join(&*self.settings.group);
            let lanes = self.queue.log.lanes();
            self.sent_marks
                .get_or_init(|| SentMarks::open(&path, lanes, self.end_before));
        }
        if self.unsettled.swap(false, Ordering::Relaxed) {
            self.doubt_all();
        }
    }

    /// Records that a lane ends with a batch under way, or that somebody moves the group: after the next
    /// start everything may have been delivered.
    pub(crate) fn leave_in_doubt(&self) {
        self.unsettled.store(true, Ordering::Relaxed);
    }

    /// Records that everything may have been delivered already that is in the queue now and that lanes have
    /// come to.
    pub(crate) fn doubt_all(&self) {
        let end = self.queue.log.status().end;
        for (before, lane) in self.doubtful_before.iter().zip(0..) {
            let sent = self.sent_marks.get().map_or(end, |marks| marks.before(lane));
            before.store(sent.min(end), Ordering::Relaxed);
        }
    }

    /// Whether a lane's record at `position`, before [`Group::doubtful_before`], is likely to have been sent:
    /// on disk lanes write down how far they send, and in Kafka they send only so far beyond their last
    /// commit.
    pub(crate) fn is_likely_sent(&self, lane: u32, position: u64) -> bool {
        match &self.consumer {
            Consumer::Disk(_) => true,
            Consumer::Kafka(group) => position < group.sent_when_taken(lane),
        }
    }

    /// Whether a lane may send the records before `end`; if not, it may once more is committed, which happens
    /// soon.
    pub(crate) fn may_send_to(&self, lane: u32, end: u64) -> bool {
        let Consumer::Kafka(group) = &self.consumer else {
            return true;
        };
        let may = end <= group.may_send_before(lane);
        if !may {
            group.commit_soon();
        }
        may
    }

    /// Records that a lane is about to send the records before `end`.
    pub(crate) fn sends(&self, lane: u32, end: u64) {
        if let Some(marks) = self.sent_marks.get() {
            marks.sends(lane, end);
        }
    }

    /// Records when the oldest document was accepted that a lane works on.
    pub(crate) fn works_on(&self, lane: u32, since_ms: Option<u64>) {
        self.lane(lane).since_ms = since_ms;
    }

    /// Records when a lane is going to try again.
    pub(crate) fn rests_until(&self, lane: u32, next_try: Instant) {
        self.lane(lane).next_try = Some(next_try);
    }

    /// Returns the states of all lanes.
    pub(crate) fn states(&self) -> Vec<LaneState> {
        (0..self.lanes.len() as u32)
            .map(|lane| self.lane(lane).clone())
            .collect()
    }

    fn lane(&self, lane: u32) -> parking_lot::MutexGuard<'_, LaneState> {
        self.lanes[lane as usize].lock()
    }

    /// Returns how old the oldest document is that a lane works on, or that waits while nothing delivers.
    pub(crate) fn lag(&self) -> Option<Duration> {
        let oldest = match self.phase() {
            Phase::Stopped => self.consumer.oldest_pending_ms().ok().flatten()?,
            _ => (0..self.lanes.len() as u32)
                .filter_map(|lane| self.lane(lane).since_ms)
                .min()?,
        };
        Some(Duration::from_millis(now_ms().saturating_sub(oldest)))
    }

    /// Returns why some lane waits or tries again, if one does; a paused lane comes first.
    pub(crate) fn why(&self) -> Option<Arc<str>> {
        let states = (0..self.lanes.len() as u32).map(|lane| self.lane(lane).clone());
        let waiting = states.filter(|state| state.why.is_some());
        waiting
            .max_by_key(|state| state.activity == LaneActivity::Paused)?
            .why
    }

    pub(crate) fn count(&self, activity: LaneActivity) -> usize {
        (0..self.lanes.len() as u32)
            .filter(|lane| self.lane(*lane).activity == activity)
            .count()
    }

    pub(crate) fn lanes_to_json(&self, lanes: &[LaneStatus]) -> Value {
        let shared = self.consumer.lanes_shared();
        let lanes = lanes.iter().zip(&self.lanes).enumerate();
        let lanes = lanes.map(|(number, (lane, state))| {
            let state = state.lock().clone();
            let mut value = json!({
                "accepted": lane.accepted,
                "done": lane.done,
                "dead": lane.dead,
                "lost": lane.lost,
                "skipped": lane.skipped,
                "rewound": lane.rewound,
                "pending_bytes": lane.pending_bytes,
                "position": lane.position,
                "doing": state.activity.as_str(),
                "why": state.why,
            });
            let at = self.at_nodes.of(number).into_iter().map(|one| {
                json!({
                    "node": one.node.name,
                    "documents": one.documents,
                    "for_s": tenths(one.since.elapsed()),
                })
            });
            value["waits_for"] = at.collect();
            if let Some((held, messages)) = shared.as_ref().and_then(|shared| shared.get(number)) {
                value["held"] = json!(held);
                value["pending_messages"] = json!(messages);
            }
            value
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

impl LaneActivity {
    fn as_str(self) -> &'static str {
        match self {
            LaneActivity::Idle => "idle",
            LaneActivity::Delivering => "delivering",
            LaneActivity::Retrying => "retrying",
            LaneActivity::Paused => "paused",
        }
    }
}

/// Bytes of a segment, where no quota asks for smaller ones.
const SEGMENT_BYTES: u64 = 256 << 20;
const SEGMENT_BYTES_MIN: u64 = 64 << 10;
