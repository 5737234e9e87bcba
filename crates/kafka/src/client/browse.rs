//! Reads messages without delivering them.

use std::collections::BTreeMap;
use std::time::Instant;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::{Message as _, Offset, TopicPartitionList};

use super::config::consumer_config;
use super::group::Quiet;
use super::hand_over::headers_of;
use super::topic::{ASK_TIMEOUT, OpenTopic};
use crate::{Browsed, Options, ReadError, Topic};

/// See [`Topic::browse`].
pub(crate) fn browse(
    topic: &OpenTopic,
    lane: u32,
    from: u64,
    each: &mut dyn FnMut(Browsed) -> bool,
) -> Result<(), ReadError> {
    if lane >= topic.lanes() {
        return Err(ReadError::NoLane(lane));
    }
    let failed = |error: KafkaError| ReadError::Kafka(error.to_string());
    let mut config = consumer_config(&topic.inner.options);
    config
        // The library requires a name. No group is joined and nothing is committed under this name.
        .set("group.id", format!("{}.browsing", topic.name()))
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("fetch.wait.max.ms", "100")
        .set("queued.max.messages.kbytes", "4096");
    let consumer: BaseConsumer<Quiet> = config.create_with_context(Quiet::default()).map_err(failed)?;
    let marks = consumer.fetch_watermarks(topic.name(), lane as i32, ASK_TIMEOUT);
    let (low, high) = marks.map_err(failed)?;
    let mut next = i64::try_from(from).unwrap_or(i64::MAX).max(low);
    let mut list = TopicPartitionList::new();
    let added = list.add_partition_offset(topic.name(), lane as i32, Offset::Offset(next));
    added.map_err(failed)?;
    if next >= high {
        return Ok(());
    }
    consumer.assign(&list).map_err(failed)?;
    let mut heard = Instant::now();
    while next < high {
        match consumer.poll(ASK_TIMEOUT / 10) {
            Some(Ok(message)) => {
                heard = Instant::now();
                next = message.offset() + 1;
                let (head, params) = headers_of(&message);
                let browsed = Browsed {
                    offset: u64::try_from(message.offset()).unwrap_or_default(),
                    time_ms: message.timestamp().to_millis().map_or(0, |ms| ms.max(0) as u64),
                    head,
                    params,
                    lines: message.payload().unwrap_or_default().to_vec(),
                };
                if !each(browsed) {
                    break;
                }
            }
            Some(Err(error)) if heard.elapsed() > ASK_TIMEOUT => return Err(failed(error)),
            None if heard.elapsed() > ASK_TIMEOUT => {
                let why = consumer.context().heard().why;
                let why = why.unwrap_or_else(|| "the brokers do not answer".to_owned());
                return Err(ReadError::Kafka(why));
            }
            Some(Err(_)) | None => {}
        }
    }
    Ok(())
}

/// Visits all messages of these lanes, each lane's in order, up to a place that is known to hold a message.
/// `from` derives the first offset from that place.
pub(crate) fn read_until(
    options: &Options,
    until: &[(u32, u64)],
    from: impl Fn(u64) -> Offset,
    each: &mut dyn FnMut(u32, Browsed),
) -> Result<(), ReadError> {
    if until.is_empty() {
        return Ok(());
    }
    let failed = |error: KafkaError| ReadError::Kafka(error.to_string());
    let mut config = consumer_config(options);
    config
        // The library requires a name. No group is joined and nothing is committed under this name.
        .set("group.id", format!("{}.reading", options.topic))
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("fetch.wait.max.ms", "100")
        .set("queued.max.messages.kbytes", "4096");
    let consumer: BaseConsumer<Quiet> = config.create_with_context(Quiet::default()).map_err(failed)?;
    let mut list = TopicPartitionList::new();
    for (lane, last) in until {
        let added = list.add_partition_offset(&options.topic, *lane as i32, from(*last));
        added.map_err(failed)?;
    }
    consumer.assign(&list).map_err(failed)?;
    let mut left: BTreeMap<u32, u64> = until.iter().copied().collect();
    let mut heard = Instant::now();
    while !left.is_empty() {
        match consumer.poll(ASK_TIMEOUT / 10) {
            Some(Ok(message)) => {
                heard = Instant::now();
                let lane = u32::try_from(message.partition()).unwrap_or(u32::MAX);
                let offset = u64::try_from(message.offset()).unwrap_or_default();
                let Some(last) = left.get(&lane).copied() else {
                    continue;
                };
                if offset >= last {
                    left.remove(&lane);
                }
                if offset > last {
                    continue;
                }
                let (head, params) = headers_of(&message);
                let record = Browsed {
                    offset,
                    time_ms: message.timestamp().to_millis().map_or(0, |ms| ms.max(0) as u64),
                    head,
                    params,
                    lines: message.payload().unwrap_or_default().to_vec(),
                };
                each(lane, record);
            }
            Some(Err(error)) if heard.elapsed() > ASK_TIMEOUT => return Err(failed(error)),
            None if heard.elapsed() > ASK_TIMEOUT => {
                let why = consumer.context().heard().why;
                let why = why.unwrap_or_else(|| "the brokers do not answer".to_owned());
                return Err(ReadError::Kafka(why));
            }
            Some(Err(_)) | None => {}
        }
    }
    Ok(())
}
