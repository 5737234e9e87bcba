//! A topic: found or created, written to, and watched.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::Offset;
use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::append::refused;
use super::browse::{browse, read_until};
use super::config::{base_config, consumer_config};
use super::doubt::explained;
use super::ends::Ends;
use super::group::{OpenGroup, Quiet, listen};
use super::late;
use super::produce::{FatalError, Producing, SMALLER_NOW};
use super::size_limit::{SizeLimit, Trust};
use super::watch;
use crate::{
    Append, AppendError, Browsed, Group, Head, OpenError, Options, Part, ReadError, Receipt, SideTopic,
    StartAt, Status, Topic,
};

/// An open topic.
pub(crate) struct OpenTopic {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) lanes: u32,
    /// Whether the topic deletes old or excess messages, according to its settings.
    forgets: bool,
    /// Whether a document's lane follows from its id.
    by_id: bool,
    /// Whether it was already logged that other gateways choose lanes differently.
    told_otherwise: AtomicBool,
    pub(crate) producing: Arc<Producing>,
    /// A consumer without a group, which asks about the topic.
    pub(crate) probe: BaseConsumer<Quiet>,
    pub(crate) groups: Mutex<Vec<Arc<OpenGroup>>>,
    pub(crate) ends: Arc<Ends>,
    /// How often the ends and the places of the groups were looked up.
    pub(crate) looks: AtomicU64,
    closed: AtomicBool,
}

// === impl OpenTopic ===

impl OpenTopic {
    /// See [`open`](super::open).
    pub(crate) fn open(options: &Options) -> Result<Self, OpenError> {
        let topic = Self::open_unwatched(options, true)?;
        watch::start(&topic.inner).map_err(|error| OpenError::Client(error.to_string()))?;
        Ok(topic)
    }

    /// Opens a topic that must keep all of its messages. Its length is not watched.
    pub(crate) fn open_aside(options: &Options) -> Result<Self, OpenError> {
        let topic = Self::open_unwatched(options, false)?;
        match topic.inner.forgets {
            false => Ok(topic),
            true => Err(about(
                options,
                "it deletes what is old, delivered or not: set its `retention.ms` and `retention.bytes` to -1"
                    .to_owned(),
            )),
        }
    }

    fn open_unwatched(options: &Options, is_queue: bool) -> Result<Self, OpenError> {
        let failed = |error: KafkaError| OpenError::Client(error.to_string());
        let probe: BaseConsumer<Quiet> = consumer_config(options)
            .create_with_context(Quiet::default())
            .map_err(failed)?;
        let admin: AdminClient<Quiet> = base_config(options)
            .create_with_context(Quiet::default())
            .map_err(failed)?;
        let mut lanes = partitions(&probe, options)?;
        if lanes.is_none() {
            make(&admin, options)?;
        }
        // Not every broker knows immediately what was created.
        let until = Instant::now() + OPEN_TIMEOUT;
        let lanes = loop {
            match lanes {
                Some(lanes) => break lanes,
                None if Instant::now() > until => {
                    return Err(away(options, "the topic was made and is not there".to_owned()));
                }
                None => lanes = partitions(&probe, options)?,
            }
            thread::sleep(Duration::from_millis(50));
        };
        if let Some(said) = options.partitions.filter(|said| *said != lanes) {
            return Err(OpenError::Partitions {
                topic: options.topic.clone(),
                has: lanes,
                said,
            });
        }
        let Settings {
            message_bytes_max,
            forgets,
            is_guess,
        } = look_at_settings(&admin, options, is_queue)?;
        let by_id = is_queue && lanes_are_by_id(&probe, options, lanes)?;
        // Only a queue's topic is watched, and asked again.
        let trust = match is_queue && !is_guess {
            true => Trust::Read,
            false => Trust::Final,
        };
        let limit = SizeLimit::new(message_bytes_max, trust);
        let ends = Arc::new(Ends::new(lanes));
        let producing = Arc::new(Producing::open(options, limit, &ends).map_err(failed)?);
        late::start(&producing).map_err(|error| OpenError::Client(error.to_string()))?;
        let inner = Arc::new(Inner {
            options: options.clone(),
            lanes,
            forgets,
            by_id,
            told_otherwise: AtomicBool::default(),
            producing,
            probe,
            groups: Mutex::default(),
            ends,
            looks: AtomicU64::default(),
            closed: AtomicBool::new(false),
        });
        Ok(Self { inner })
    }
}

impl Topic for OpenTopic {
    fn lanes(&self) -> u32 {
        self.inner.lanes
    }

    fn has_lanes_by_id(&self) -> bool {
        self.inner.by_id
    }

    fn name(&self) -> &str {
        &self.inner.options.topic
    }

    fn part_bytes_max(&self, params: usize) -> usize {
        let most = usize::try_from(self.inner.message_bytes_max()).unwrap_or(usize::MAX);
        most.saturating_sub(params + OVERHEAD_BYTES)
    }

    fn append(&self, kind: u8, params: &[u8], parts: Vec<Part>) -> Append {
        let inner = &self.inner;
        let most = self.part_bytes_max(params.len());
        if let Some(part) = parts.iter().find(|part| part.bytes.len() > most) {
            let (bytes, most) = (part.bytes.len() as u64, most as u64);
            return refused(match part.documents {
                0 | 1 => AppendError::TooLarge { bytes, most },
                // It was cut by what the topic accepted a moment ago.
                _ => AppendError::Away(SMALLER_NOW.to_owned()),
            });
        }
        inner.producing.append(
            &inner.options.topic,
            kind,
            (inner.lanes, inner.by_id),
            params,
            parts,
        )
    }

    fn append_blocking(&self, kind: u8, params: &[u8], parts: Vec<Part>) -> Result<Receipt, AppendError> {
        wait(self.append(kind, params, parts))
    }

    fn group(&self, name: &str, start: StartAt) -> Result<Arc<dyn Group>, OpenError> {
        let group = Arc::new(OpenGroup::open(&self.inner, name, start)?);
        self.inner.groups.lock().push(Arc::clone(&group));
        Ok(group)
    }

    fn side_topic(&self, name: &str) -> Result<Arc<dyn SideTopic>, OpenError> {
        Ok(Arc::new(self.open_beside(name)?))
    }

    fn browse(&self, lane: u32, from: u64, each: &mut dyn FnMut(Browsed) -> bool) -> Result<(), ReadError> {
        browse(self, lane, from, each)
    }

    fn status(&self) -> Status {
        Status {
            messages: self.inner.ends.all().iter().map(|(low, high)| high - low).sum(),
            ..self.inner.producing.status()
        }
    }

    fn looks(&self) -> u64 {
        self.inner.looks.load(Ordering::Acquire)
    }

    fn close(&self) {
        self.inner.closed.store(true, Ordering::Relaxed);
        self.inner.producing.close(self.inner.options.ack_timeout);
        self.inner.groups.lock().clear();
    }
}

// === impl Inner ===

impl Inner {
    /// Logs, once, that a message of another gateway was put into its lane by another rule than this
    /// gateway's.
    pub(crate) fn notice(&self, head: &Head) {
        if head.by_id != self.by_id && !self.told_otherwise.swap(true, Ordering::Relaxed) {
            tracing::error!(
                topic = self.options.topic,
                "gateways of several versions put documents into this topic, and not into the same partitions: they may overtake each other; have all gateways be of one version, and start them again"
            );
        }
    }

    /// Returns the largest message in bytes, according to the topic's settings.
    pub(crate) fn message_bytes_max(&self) -> u64 {
        self.producing.limit.bytes()
    }

    /// Reads again how large messages may be, after a broker has refused some. Blocks on the brokers.
    pub(crate) fn ask_for_size(&self) {
        let (limit, topic) = (&self.producing.limit, &self.options.topic);
        // The broker that is asked may hear of the new setting later than the one that refuses.
        for ask in 0..SIZE_ASKS {
            if ask > 0 {
                thread::sleep(ASK_AGAIN);
            }
            let admin = base_config(&self.options).create_with_context(Quiet::default());
            let described = admin.and_then(|admin: AdminClient<Quiet>| describe(&admin, &self.options));
            let bytes = match described {
                Ok(settings) => largest_message(&settings),
                // It is doubted still, and asked again.
                Err(error) if passes(&error) => return,
                Err(_) => None,
            };
            let Some(bytes) = bytes.filter(|bytes| limit.lower(*bytes)) else {
                continue;
            };
            tracing::warn!(topic, bytes, "the topic accepts smaller messages than before");
            if let Err(error) = self.producing.renew() {
                tracing::warn!(topic, %error, "messages were under way to a topic that accepts smaller ones now");
            }
            limit.trust(Trust::Read);
            return;
        }
        tracing::warn!(
            topic,
            "the brokers refuse messages for their size, and the topic's settings do not say why"
        );
        limit.trust(Trust::Final);
    }

    /// Reads the topic's settings again, and accepts nothing more if the brokers now compress messages in a
    /// way that this build cannot read.
    pub(crate) fn look_at_compression(&self) {
        let admin = base_config(&self.options).create_with_context(Quiet::default());
        let described = admin.and_then(|admin: AdminClient<Quiet>| describe(&admin, &self.options));
        if let Some(why) = described.ok().as_ref().and_then(unreadable) {
            self.poison().set(&format!("topic {}: {why}", self.options.topic));
        }
    }

    pub(crate) fn poison(&self) -> &FatalError {
        &self.producing.poison
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

/// Returns the number of partitions, or `None` if there is no topic. Waits for brokers, and for partitions
/// that have no leader yet.
fn partitions(probe: &BaseConsumer<Quiet>, options: &Options) -> Result<Option<u32>, OpenError> {
    let began = Instant::now();
    loop {
        listen(probe);
        let heard = probe.context().heard();
        // Another broker may accept the gateway. If none does soon, waiting is useless.
        if let Some(why) = heard.refusal
            && began.elapsed() > REFUSED_TIMEOUT
        {
            return Err(OpenError::Refused {
                brokers: options.brokers.join(", "),
                why: explained(options, &why).unwrap_or(why),
            });
        }
        let late = began.elapsed() > OPEN_TIMEOUT;
        match probe.fetch_metadata(Some(&options.topic), METADATA_TIMEOUT) {
            Err(error) if late => {
                return Err(away(options, heard.why.unwrap_or_else(|| error.to_string())));
            }
            Err(_) => {}
            Ok(metadata) => {
                let topic = metadata
                    .topics()
                    .iter()
                    .find(|topic| topic.name() == options.topic);
                let error = topic.and_then(|topic| topic.error()).map(RDKafkaErrorCode::from);
                let partitions = topic.map(|topic| topic.partitions()).unwrap_or_default();
                let led = partitions.iter().all(|partition| partition.leader() >= 0);
                match error {
                    None if !partitions.is_empty() && (led || late) => {
                        return Ok(u32::try_from(partitions.len()).ok());
                    }
                    Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                        return Ok(None);
                    }
                    Some(error) if late => return Err(failed(options, &KafkaError::MetadataFetch(error))),
                    _ if late => return Err(away(options, "the topic has no partitions yet".to_owned())),
                    _ => {}
                }
            }
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Returns whether the newest message of each partition, if there is one, is in its lane by id.
fn lanes_are_by_id(probe: &BaseConsumer<Quiet>, options: &Options, lanes: u32) -> Result<bool, OpenError> {
    let failed = |why: String| about(options, format!("its newest messages cannot be read: {why}"));
    let mut newest = Vec::new();
    for lane in 0..lanes {
        // For a topic that was just created, not every broker knows immediately which broker leads a
        // partition.
        let until = Instant::now() + OPEN_TIMEOUT;
        let (low, high) = loop {
            match probe.fetch_watermarks(&options.topic, lane as i32, ASK_TIMEOUT) {
                Ok(marks) => break marks,
                Err(error) if Instant::now() > until => return Err(failed(error.to_string())),
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        };
        if high > low {
            newest.push((lane, u64::try_from(high - 1).unwrap_or_default()));
        }
    }
    let mut by_id = true;
    let from = |newest: u64| i64::try_from(newest).map_or(Offset::End, Offset::Offset);
    let read = read_until(options, &newest, from, &mut |_, message| {
        // A message that is not a gateway's tells nothing here, and stops its lane later.
        by_id &= !message.head.is_ok_and(|head| !head.by_id);
    });
    read.map_err(|error| failed(error.to_string()))?;
    Ok(by_id)
}

/// Creates the topic. Another gateway may have done so in the meantime.
fn make(admin: &AdminClient<Quiet>, options: &Options) -> Result<(), OpenError> {
    let retention = match options.retention {
        Duration::MAX => "-1".to_owned(),
        retention => retention.as_millis().to_string(),
    };
    let bytes = options.message_bytes_max.map(|bytes| bytes.to_string());
    let partitions = i32::try_from(options.partitions.unwrap_or(PARTITIONS)).unwrap_or(i32::MAX);
    let replicas = options.replicas.map_or(-1, i32::from);
    let mut topic = NewTopic::new(&options.topic, partitions, TopicReplication::Fixed(replicas))
        .set("cleanup.policy", "delete")
        .set("retention.ms", &retention);
    if options.retention == Duration::MAX {
        topic = topic.set("retention.bytes", "-1");
    }
    if let Some(bytes) = &bytes {
        topic = topic.set("max.message.bytes", bytes);
    }
    if replicas >= 3 {
        // An acknowledged message is on at least two machines.
        topic = topic.set("min.insync.replicas", "2");
    }
    let asking = AdminOptions::new()
        .request_timeout(Some(OPEN_TIMEOUT))
        .operation_timeout(Some(OPEN_TIMEOUT));
    let made = wait(admin.create_topics([&topic], &asking));
    match made.map_err(|error| failed(options, &error))?.into_iter().next() {
        Some(Err((_, error))) if error != RDKafkaErrorCode::TopicAlreadyExists => {
            Err(failed(options, &KafkaError::AdminOp(error)))
        }
        _ => {
            let (topic, partitions) = (&options.topic, options.partitions.unwrap_or(PARTITIONS));
            tracing::info!(topic, partitions, "a Kafka topic was made for a queue");
            Ok(())
        }
    }
}

/// What a topic's settings say.
struct Settings {
    /// The largest message in bytes.
    message_bytes_max: u64,
    /// Whether the brokers do not let the gateway read that.
    is_guess: bool,
    /// Whether old messages are deleted.
    forgets: bool,
}

/// Reads the settings of a topic, and refuses those that a queue cannot work with.
fn look_at_settings(
    admin: &AdminClient<Quiet>,
    options: &Options,
    is_queue: bool,
) -> Result<Settings, OpenError> {
    let until = Instant::now() + OPEN_TIMEOUT;
    let described = loop {
        match describe(admin, options) {
            // Another broker may know, or the same one a little later.
            Err(error) if passes(&error) && Instant::now() < until => thread::sleep(ASK_AGAIN),
            described => break described,
        }
    };
    let settings = match described {
        Ok(settings) => settings,
        // Settings that cannot be read are unknown: the topic may delete what has to stay.
        Err(error) if passes(&error) || !is_queue && !is_answer(&error) => {
            return Err(away(options, error.to_string()));
        }
        Err(error) if !is_queue => {
            let why = format!("its settings cannot be read, and it may delete what is old: {error}");
            return Err(about(options, why));
        }
        Err(error) => {
            tracing::warn!(
                topic = options.topic,
                %error,
                "the topic's settings cannot be read; messages are taken to be 1000000 bytes at most"
            );
            return Ok(Settings {
                message_bytes_max: MESSAGE_BYTES,
                is_guess: true,
                forgets: false,
            });
        }
    };
    let value = |name: &str| settings.get(name).and_then(|entry| entry.value.as_deref());
    if value("cleanup.policy").is_some_and(|policy| policy.contains("compact")) {
        let why =
            "it is compacted (`cleanup.policy`), which deletes messages that were not delivered".to_owned();
        return Err(about(options, why));
    }
    if let Some(why) = unreadable(&settings) {
        return Err(about(options, why));
    }
    let bytes = largest_message(&settings);
    let forgets =
        ["retention.ms", "retention.bytes"].map(|name| value(name).is_some_and(|most| most != "-1"));
    Ok(Settings {
        message_bytes_max: bytes.unwrap_or(MESSAGE_BYTES),
        is_guess: bytes.is_none(),
        forgets: forgets.contains(&true),
    })
}

/// Returns why this build cannot read what the brokers store from now on, if it cannot.
fn unreadable(settings: &ConfigResource) -> Option<String> {
    match settings.get("compression.type")?.value.as_deref() {
        Some(codec @ ("gzip" | "zstd")) => Some(format!(
            "its messages are compressed with {codec} (`compression.type`), which this build cannot read"
        )),
        _ => None,
    }
}

fn largest_message(settings: &ConfigResource) -> Option<u64> {
    let entry = settings.get("max.message.bytes")?;
    let bytes: u64 = entry.value.as_deref()?.parse().ok()?;
    Some(bytes.clamp(1000, 1_000_000_000))
}

fn describe(admin: &AdminClient<Quiet>, options: &Options) -> Result<ConfigResource, KafkaError> {
    let asking = AdminOptions::new().request_timeout(Some(ASK_TIMEOUT));
    let resource = ResourceSpecifier::Topic(&options.topic);
    let mut described = wait(admin.describe_configs([&resource], &asking))?;
    let one = described.pop().unwrap_or(Err(RDKafkaErrorCode::UnknownTopic));
    one.map_err(KafkaError::AdminOp)
}

/// Returns whether the brokers may answer differently soon: one of them is away, or does not know yet.
fn passes(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code_of(error),
        Some(
            Code::OperationTimedOut
                | Code::RequestTimedOut
                | Code::MessageTimedOut
                | Code::TimedOutQueue
                | Code::BrokerTransportFailure
                | Code::AllBrokersDown
                | Code::BrokerNotAvailable
                | Code::NetworkException
                | Code::NotController
                | Code::LeaderNotAvailable
                | Code::UnknownTopic
                | Code::UnknownTopicOrPartition
        )
    )
}

/// Returns whether an error is the brokers' answer about the topic, which holds until somebody changes their
/// settings. All other errors are about brokers that are away, about the way to them, or about this process.
fn is_answer(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code_of(error),
        Some(
            Code::TopicAuthorizationFailed
                | Code::GroupAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::InvalidTopic
                | Code::InvalidPartitions
                | Code::InvalidReplicaAssignment
                | Code::InvalidConfig
                | Code::InvalidRequest
                | Code::InvalidArgument
                | Code::PolicyViolation
                | Code::SecurityDisabled
                | Code::UnsupportedVersion
                | Code::UnsupportedFeature
                | Code::NotImplemented
        )
    )
}

/// Returns the code of an error. The library itself tells none for what it was asked as an administrator.
fn code_of(error: &KafkaError) -> Option<RDKafkaErrorCode> {
    match error {
        KafkaError::AdminOp(code) => Some(*code),
        error => error.rdkafka_error_code(),
    }
}

/// Returns what an error about the topic means: one that is no answer says nothing about the topic.
fn failed(options: &Options, error: &KafkaError) -> OpenError {
    match is_answer(error) {
        true => about(options, format!("it cannot be used: {error}")),
        false => away(options, error.to_string()),
    }
}

fn away(options: &Options, why: String) -> OpenError {
    OpenError::Away {
        brokers: options.brokers.join(", "),
        why,
    }
}

fn about(options: &Options, why: String) -> OpenError {
    OpenError::Topic {
        topic: options.topic.clone(),
        why,
    }
}

/// Waits for a future on this thread.
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// The number of partitions of a topic that is created, if none is configured.
const PARTITIONS: u32 = 16;
/// How long brokers may take to answer when a gateway starts.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(15);
/// The pause before a question that a broker could not answer is repeated.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How often the brokers are asked for a setting that does not explain what they do.
const SIZE_ASKS: u32 = 5;
/// How long brokers that refuse the gateway are asked again.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of the first question to the brokers: short, so that reports of the library are read soon.
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a gateway that has just left a group may still count as a member.
pub(crate) const SETTLE_TIMEOUT: Duration = Duration::from_secs(1);
/// The timeout of one question to the brokers.
pub(crate) const ASK_TIMEOUT: Duration = Duration::from_secs(3);
/// The bytes of a message besides parameters and lines, and of a batch besides its messages.
const OVERHEAD_BYTES: usize = 512;
/// The limit of Kafka's clients and brokers by default.
const MESSAGE_BYTES: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_brokers_say_of_a_topic_for_a_moment_says_nothing_about_the_topic() {
        let options = Options {
            brokers: vec!["b:9092".to_owned()],
            topic: "t".to_owned(),
            partitions: None,
            replicas: None,
            retention: Duration::MAX,
            message_bytes_max: None,
            ack_timeout: Duration::ZERO,
            session_timeout: Duration::ZERO,
            tls: None,
            sasl: None,
        };
        for error in [KafkaError::MetadataFetch, KafkaError::AdminOp] {
            let is_away = |code| {
                let told = failed(&options, &error(code));
                matches!(told, OpenError::Away { .. })
            };
            let for_a_moment = [
                RDKafkaErrorCode::LeaderNotAvailable,
                RDKafkaErrorCode::NotController,
                RDKafkaErrorCode::OperationTimedOut,
                RDKafkaErrorCode::RequestTimedOut,
                RDKafkaErrorCode::BrokerTransportFailure,
                RDKafkaErrorCode::UnknownTopicOrPartition,
                RDKafkaErrorCode::NotEnoughReplicas,
                RDKafkaErrorCode::KafkaStorageError,
                // So many brokers are there, and others may come back.
                RDKafkaErrorCode::InvalidReplicationFactor,
                RDKafkaErrorCode::ThrottlingQuotaExceeded,
                RDKafkaErrorCode::Unknown,
            ];
            for code in for_a_moment {
                assert!(is_away(code), "{code:?}");
            }
            let until_changed = [
                RDKafkaErrorCode::TopicAuthorizationFailed,
                RDKafkaErrorCode::ClusterAuthorizationFailed,
                RDKafkaErrorCode::InvalidTopic,
                RDKafkaErrorCode::PolicyViolation,
            ];
            for code in until_changed {
                assert!(!is_away(code), "{code:?}");
            }
        }
        assert!(passes(&KafkaError::AdminOp(RDKafkaErrorCode::OperationTimedOut)));
    }
}
