//! The producer: the outcomes of messages, and what the client library logs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Message as _, OwnedHeaders};
use rdkafka::producer::{
    BaseRecord, DeliveryResult, NoCustomPartitioner, Producer as _, ProducerContext, PurgeConfig,
    ThreadedProducer,
};

use super::append::{Counts, Pending, refused};
use super::config::base_config;
use super::ends::Ends;
use super::late::Waiting;
use super::size_limit::SizeLimit;
use super::threads::caught;
use crate::{Append, AppendError, Head, Options, Part, Status};

/// Receives the outcomes of the messages that the producer was given.
pub(crate) struct Outcomes {
    log_limiter: LogLimiter,
    /// Whether no broker could be reached, according to the last report.
    away: AtomicBool,
    /// Why the library sends nothing more with this producer. Another one can.
    broken: FatalError,
    limit: Arc<SizeLimit>,
    ends: Arc<Ends>,
    /// The requests with messages that the producer still has.
    waiting: Waiting,
    ack_timeout: Duration,
}

/// The reason why nothing is accepted any more.
#[derive(Clone, Debug, Default)]
pub(crate) struct FatalError(Arc<(AtomicBool, Mutex<Option<String>>)>);

/// Passes on what the library logs, but only one line per interval.
#[derive(Default)]
pub(crate) struct LogLimiter {
    last: Mutex<Option<Instant>>,
}

/// Puts messages into a topic.
pub(crate) struct Producing {
    options: Options,
    /// Replaced when the topic comes to accept smaller messages than before, and after an error that is fatal
    /// for it.
    producer: Mutex<Arc<Producer>>,
    replaced: Mutex<Option<Instant>>,
    counts: Arc<Counts>,
    pub(crate) poison: FatalError,
    /// The largest message.
    pub(crate) limit: Arc<SizeLimit>,
    ends: Arc<Ends>,
}

type Producer = ThreadedProducer<Outcomes>;

// === impl Producing ===

impl Producing {
    pub(crate) fn open(options: &Options, limit: SizeLimit, ends: &Arc<Ends>) -> Result<Self, KafkaError> {
        let (limit, poison) = (Arc::new(limit), FatalError::default());
        Ok(Self {
            options: options.clone(),
            producer: Mutex::new(Arc::new(producer(options, &limit, ends)?)),
            replaced: Mutex::default(),
            counts: Arc::default(),
            poison,
            limit,
            ends: Arc::clone(ends),
        })
    }

    /// Goes on with a producer whose batches are no larger than the limit. Blocks until the outcomes of all
    /// messages are known that the earlier one was given, for no longer than messages may take.
    pub(crate) fn renew(&self) -> Result<(), KafkaError> {
        let old = Arc::clone(&self.producer.lock());
        self.replace(old, self.options.ack_timeout)
    }

    /// Gives up all messages if a request has waited too long: the library may not give up some of them.
    pub(crate) fn give_up_late(&self) {
        let producer = Arc::clone(&self.producer.lock());
        if producer.context().waiting.is_late(self.options.ack_timeout) {
            // Without waiting: one broker's thread may look for an address, and others' requests are late.
            producer.purge(PurgeConfig::default().queue().inflight().non_blocking());
        }
    }

    /// Goes on with another producer if this one sends nothing any more.
    pub(crate) fn replace_if_broken(&self) {
        let old = Arc::clone(&self.producer.lock());
        let Some(why) = old.context().broken.why() else {
            return;
        };
        let is_soon = self
            .replaced
            .lock()
            .is_some_and(|at| at.elapsed() < REPLACE_AGAIN);
        if is_soon {
            return;
        }
        *self.replaced.lock() = Some(Instant::now());
        let topic = &self.options.topic;
        tracing::error!(
            topic,
            why,
            "the Kafka client gives up its producer: it begins anew with another"
        );
        match self.replace(old, Duration::ZERO) {
            // Nobody has any hope for what it still had.
            Ok(()) | Err(KafkaError::Flush(_)) => {}
            Err(error) => {
                tracing::error!(topic, %error, "no other producer can be made: nothing is accepted")
            }
        }
    }

    /// Goes on with another producer than `old`, which may take so much longer for what it has. Nobody knows
    /// the fate of what it still has then.
    fn replace(&self, old: Arc<Producer>, within: Duration) -> Result<(), KafkaError> {
        let new = Arc::new(producer(&self.options, &self.limit, &self.ends)?);
        {
            let mut current = self.producer.lock();
            if !Arc::ptr_eq(&current, &old) {
                return Ok(());
            }
            *current = new;
        }
        // Requests that are being handed over have it still, and nobody else gets it.
        while Arc::strong_count(&old) > 1 {
            thread::sleep(Duration::from_millis(1));
        }
        // Dropped, it sends nothing any more, and says so of each message.
        old.flush(within)
    }

    /// Hands all parts to the producer, in order.
    pub(crate) fn append(
        &self,
        topic: &str,
        kind: u8,
        (lanes, by_id): (u32, bool),
        params: &[u8],
        parts: Vec<Part>,
    ) -> Append {
        if let Some(why) = self.poison.why() {
            return refused(AppendError::Poisoned(why));
        }
        let bytes = parts
            .iter()
            .map(|part| part.bytes.len() as u64 + params.len() as u64);
        let bytes: u64 = bytes.sum();
        let waiting = self.counts.waiting_bytes.load(Ordering::Relaxed);
        if waiting > 0 && waiting + bytes > WAITING_BYTES_MAX {
            let most = WAITING_BYTES_MAX;
            return refused(AppendError::Full { waiting, most });
        }
        let producer = Arc::clone(&self.producer.lock());
        let context = producer.context();
        if let Some(why) = context.broken.why() {
            return refused(AppendError::Away(why));
        }
        if waiting > 0 && context.away.load(Ordering::Relaxed) {
            // The messages that already wait will show when a broker is back.
            let why = "no broker can be reached".to_owned();
            return refused(AppendError::Away(why));
        }
        let documents = parts.iter().map(|part| u64::from(part.documents)).sum();
        let pending = Pending::new(
            &self.counts,
            context.waiting.begin(),
            (parts.len(), documents, bytes),
        );
        let count = parts.len();
        for (number, part) in parts.iter().enumerate() {
            let head = Head {
                kind,
                documents: part.documents,
                lanes,
                by_id,
            };
            let headers = OwnedHeaders::new_with_capacity(2)
                .insert(Header {
                    key: Head::NAME,
                    value: Some(head.write().as_str()),
                })
                .insert(Header {
                    key: Head::PARAMS,
                    value: Some(params),
                });
            let record: BaseRecord<'_, (), [u8], Arc<Pending>> =
                BaseRecord::with_opaque_to(topic, Arc::clone(&pending))
                    .partition(part.lane as i32)
                    .payload(part.bytes.as_slice())
                    .headers(headers);
            if let Err((error, _)) = producer.send(record) {
                // The earlier parts are under way; the answer waits for them.
                pending.failed(count - number, refusal(&error, part.bytes.len() as u64, waiting));
                break;
            }
        }
        pending.outcome()
    }

    pub(crate) fn ack_timeout(&self) -> Duration {
        self.options.ack_timeout
    }

    pub(crate) fn status(&self) -> Status {
        Status {
            documents: self.counts.documents.load(Ordering::Relaxed),
            records: self.counts.records.load(Ordering::Relaxed),
            waiting_bytes: self.counts.waiting_bytes.load(Ordering::Relaxed),
            messages: 0,
            poisoned: self
                .poison
                .why()
                .or_else(|| self.producer.lock().context().broken.why()),
        }
    }

    /// Refuses further messages, and waits until those that were handed over are settled.
    pub(crate) fn close(&self, within: Duration) {
        self.poison.set("the gateway is stopping");
        let producer = Arc::clone(&self.producer.lock());
        if let Err(error) = producer.flush(within) {
            tracing::warn!(%error, "messages were under way to Kafka as the gateway stopped; their clients were told so");
        }
    }
}

fn refusal(error: &KafkaError, bytes: u64, waiting: u64) -> AppendError {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::QueueFull) => AppendError::Full {
            waiting,
            most: WAITING_BYTES_MAX,
        },
        Some(RDKafkaErrorCode::MessageSizeTooLarge) => AppendError::TooLarge { bytes, most: 0 },
        _ => AppendError::Away(error.to_string()),
    }
}

/// Makes a producer whose batches the topic accepts.
fn producer(options: &Options, limit: &Arc<SizeLimit>, ends: &Arc<Ends>) -> Result<Producer, KafkaError> {
    let bytes = limit.bytes();
    let context = Outcomes {
        log_limiter: LogLimiter::default(),
        away: AtomicBool::default(),
        broken: FatalError::default(),
        limit: Arc::clone(limit),
        ends: Arc::clone(ends),
        waiting: Waiting::default(),
        ack_timeout: options.ack_timeout,
    };
    let never = options.ack_timeout * 2 + NEVER_WITHIN;
    // A connection on which nothing comes back is closed before a request is late: the messages are sent
    // again, to whoever leads the partition by then, and brokers recognise those that they have.
    let silent = options.ack_timeout / 4 * 3;
    base_config(options)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("max.in.flight.requests.per.connection", "5")
        .set("socket.timeout.ms", silent.as_millis().to_string())
        .set("message.timeout.ms", never.as_millis().to_string())
        .set("linger.ms", "1")
        .set("message.max.bytes", bytes.to_string())
        .set("batch.size", bytes.min(BATCH_BYTES_MAX).to_string())
        // The gateway itself limits the bytes, so that a request is refused as a whole.
        .set("queue.buffering.max.kbytes", "1048576")
        .set("queue.buffering.max.messages", "1000000")
        .create_with_context(context)
}

// === impl Outcomes ===

impl ClientContext for Outcomes {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.log_limiter.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AllBrokersDown) => self.away.store(true, Ordering::Relaxed),
            Some(RDKafkaErrorCode::Fatal) => self.broken.set(reason),
            _ => {}
        }
        self.log_limiter.say(&format!("{error}: {reason}"));
    }
}

impl ProducerContext<NoCustomPartitioner> for Outcomes {
    type DeliveryOpaque = Arc<Pending>;

    fn delivery(&self, result: &DeliveryResult<'_>, pending: Arc<Pending>) {
        let told = || self.delivered(result, &pending);
        caught("a request's client hears nothing of it, and times out", told);
    }
}

impl Outcomes {
    fn delivered(&self, result: &DeliveryResult<'_>, pending: &Pending) {
        match result {
            Ok(message) => {
                self.away.store(false, Ordering::Relaxed);
                let lane = u32::try_from(message.partition()).unwrap_or_default();
                // A broker may know that it has the message already, and not where.
                let Ok(offset) = u64::try_from(message.offset()) else {
                    pending.failed(1, AppendError::Away(NO_PLACE.to_owned()));
                    return;
                };
                // Before the client hears of it.
                self.ends.stored(lane, offset);
                pending.stored(lane, offset);
            }
            Err((error, message)) => {
                if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
                    self.broken.set(&error.to_string());
                }
                let bytes = message.payload().map_or(0, <[u8]>::len) as u64;
                let is_size = error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageSizeTooLarge);
                // The whole batch was too large, which says nothing about this message.
                let why = match is_size && !self.limit.refused() {
                    true => AppendError::Away(SMALLER_NOW.to_owned()),
                    false if is_late(error) => {
                        let within = self.ack_timeout.as_secs_f64();
                        AppendError::Away(format!("it was not acknowledged within {within} s"))
                    }
                    false => refusal(error, bytes, 0),
                };
                pending.failed(1, why);
            }
        }
    }
}

/// Whether a message was given up because it, or another one, was not acknowledged in time.
fn is_late(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::PurgeInflight
                | RDKafkaErrorCode::PurgeQueue
                | RDKafkaErrorCode::MessageTimedOut
        )
    )
}

// === impl FatalError ===

impl FatalError {
    /// Sets the reason. The first reason stays.
    pub(crate) fn set(&self, why: &str) {
        let mut reason = self.0.1.lock();
        if reason.is_none() {
            *reason = Some(why.to_owned());
            self.0.0.store(true, Ordering::Release);
        }
    }

    pub(crate) fn why(&self) -> Option<String> {
        if !self.0.0.load(Ordering::Acquire) {
            return None;
        }
        let reason = self.0.1.lock();
        reason.clone()
    }
}

// === impl LogLimiter ===

impl LogLimiter {
    pub(crate) fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error
            | RDKafkaLogLevel::Warning => self.say(message),
            _ => tracing::debug!(facility, "{message}"),
        }
    }

    pub(crate) fn say(&self, message: &str) {
        let mut last = self.last.lock();
        if last.is_some_and(|last| last.elapsed() < SAY_AGAIN) {
            tracing::debug!("{message}");
            return;
        }
        *last = Some(Instant::now());
        drop(last);
        tracing::warn!("Kafka: {message}");
    }
}

/// The most bytes of all requests that are handed over and not acknowledged.
const WAITING_BYTES_MAX: u64 = 64 << 20;
const NO_PLACE: &str = "the brokers have it, and do not say where";
/// The least time between two producers that were made because one was broken.
const REPLACE_AGAIN: Duration = Duration::from_secs(5);
/// The time beyond twice `ack_timeout` after which the library gives messages up by itself. They have
/// been given up long before.
const NEVER_WITHIN: Duration = Duration::from_secs(60);
/// The most bytes of messages that go to a broker together.
const BATCH_BYTES_MAX: u64 = 1_000_000;
pub(crate) const SMALLER_NOW: &str = "the topic accepts smaller messages than before (`max.message.bytes`), and is asked how large they may be";
/// The time between two lines of the library in the log.
const SAY_AGAIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::size_limit::Trust;

    fn append(producing: &Producing) -> Result<(), AppendError> {
        let part = Part {
            lane: 0,
            documents: 1,
            bytes: b"{}".to_vec(),
        };
        let mut append = producing.append("t", 0, (1, true), b"{}", vec![part]);
        let waker = std::task::Waker::noop();
        match append.as_mut().poll(&mut std::task::Context::from_waker(waker)) {
            std::task::Poll::Ready(told) => told.map(drop),
            std::task::Poll::Pending => Ok(()),
        }
    }

    #[test]
    fn a_producer_that_the_library_has_given_up_is_replaced_and_ends_nothing_else() {
        let options = Options {
            // Nobody listens there.
            brokers: vec!["127.0.0.1:1".to_owned()],
            topic: "t".to_owned(),
            partitions: None,
            replicas: None,
            retention: Duration::MAX,
            message_bytes_max: None,
            ack_timeout: Duration::from_secs(60),
            session_timeout: Duration::from_secs(10),
            tls: None,
            sasl: None,
        };
        let limit = SizeLimit::new(1 << 20, Trust::Read);
        let producing = Producing::open(&options, limit, &Arc::new(Ends::new(1))).unwrap();
        assert_eq!(append(&producing), Ok(()), "it waits for the brokers");
        let producer = Arc::clone(&producing.producer.lock());
        let fatal = KafkaError::Global(RDKafkaErrorCode::Fatal);
        producer.context().error(fatal, "desynchronized");
        drop(producer);
        let why = "desynchronized".to_owned();
        assert_eq!(append(&producing), Err(AppendError::Away(why.clone())));
        assert_eq!(producing.status().poisoned, Some(why));
        producing.replace_if_broken();
        assert_eq!((append(&producing), producing.status().poisoned), (Ok(()), None));
        assert_eq!(producing.poison.why(), None);
    }
}
