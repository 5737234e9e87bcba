//! The producer: the outcomes of messages, and what the client library logs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Message as _, OwnedHeaders};
use rdkafka::producer::{
    BaseRecord, DeliveryResult, NoCustomPartitioner, Producer as _, ProducerContext, ThreadedProducer,
};

use super::append::{Counts, Pending, refused};
use super::threads::caught;
use crate::{Append, AppendError, Head, Part, Status};

/// Receives the outcomes of the messages that the producer was given.
#[derive(Default)]
pub(crate) struct Outcomes {
    log_limiter: LogLimiter,
    /// Whether no broker could be reached, according to the last report.
    away: AtomicBool,
    poison: FatalError,
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
    pub(crate) producer: ThreadedProducer<Outcomes>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) poison: FatalError,
}

// === impl Producing ===

impl Producing {
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
        let context = self.producer.context();
        if waiting > 0 && context.away.load(Ordering::Relaxed) {
            // The messages that already wait will show when a broker is back.
            let why = "no broker can be reached".to_owned();
            return refused(AppendError::Away(why));
        }
        let documents = parts.iter().map(|part| u64::from(part.documents)).sum();
        let pending = Pending::new(&self.counts, parts.len(), documents, bytes);
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
            if let Err((error, _)) = self.producer.send(record) {
                // The earlier parts are under way; the answer waits for them.
                pending.failed(count - number, refusal(&error, part.bytes.len() as u64, waiting));
                break;
            }
        }
        pending.outcome()
    }

    pub(crate) fn status(&self) -> Status {
        Status {
            documents: self.counts.documents.load(Ordering::Relaxed),
            records: self.counts.records.load(Ordering::Relaxed),
            waiting_bytes: self.counts.waiting_bytes.load(Ordering::Relaxed),
            messages: 0,
            poisoned: self.poison.why(),
        }
    }

    /// Refuses further messages, and waits until those that were handed over are settled.
    pub(crate) fn close(&self, within: Duration) {
        self.poison.set("the gateway is stopping");
        if let Err(error) = self.producer.flush(within) {
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

// === impl Outcomes ===

impl Outcomes {
    pub(crate) fn poisoning(poison: &FatalError) -> Self {
        Self {
            poison: poison.clone(),
            ..Self::default()
        }
    }
}

impl ClientContext for Outcomes {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.log_limiter.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AllBrokersDown) => self.away.store(true, Ordering::Relaxed),
            Some(RDKafkaErrorCode::Fatal) => self.poison.set(reason),
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
                pending.stored(lane, u64::try_from(message.offset()).unwrap_or_default());
            }
            Err((error, message)) => {
                if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
                    self.poison.set(&error.to_string());
                }
                let bytes = message.payload().map_or(0, <[u8]>::len) as u64;
                pending.failed(1, refusal(error, bytes, 0));
            }
        }
    }
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
/// The time between two lines of the library in the log.
const SAY_AGAIN: Duration = Duration::from_secs(5);
