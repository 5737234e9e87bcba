//! Moves a group to another place, while no gateway delivers for it.

use std::time::Instant;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext};
use rdkafka::{Offset, TopicPartitionList};

use super::group::{Inner, is_refusal};
use super::topic::{ASK_TIMEOUT, SETTLE_TIMEOUT};
use crate::{Moved, ReadError, StartAt};

/// See [`Group::seek`](crate::Group::seek).
pub(crate) fn seek(group: &Inner, to: StartAt, only: Option<u32>) -> Result<Moved, ReadError> {
    let topic = &group.topic.options.topic;
    let lanes = match only {
        Some(lane) if lane >= group.topic.lanes => return Err(ReadError::NoLane(lane)),
        Some(lane) => vec![lane],
        None => (0..group.topic.lanes).collect(),
    };
    let _one = group.committing.lock();
    let known = group.committed(&group.probe, &lanes, ASK_TIMEOUT);
    let (mut list, mut moved) = (TopicPartitionList::new(), Moved::default());
    let mut cursors = Vec::with_capacity(lanes.len());
    for (lane, cursor) in known? {
        let marks = group.probe.fetch_watermarks(topic, lane as i32, ASK_TIMEOUT);
        let (low, high) = marks.map_err(|error| ReadError::Kafka(error.to_string()))?;
        let marks = (low.max(0) as u64, high.max(0) as u64);
        let find = |at| offset_of(&group.probe, topic, lane, at, marks);
        let was = match &cursor {
            // Messages that Kafka has deleted cannot be skipped.
            Some(cursor) => cursor.offset.clamp(marks.0, marks.1),
            None => find(group.start)?,
        };
        let mut cursor = cursor.unwrap_or_default();
        cursor.offset = find(to)?;
        moved.skipped_messages += cursor.offset.saturating_sub(was);
        moved.rewound_messages += was.saturating_sub(cursor.offset);
        group.add(&mut list, lane, &cursor);
        cursors.push((lane, cursor));
        // The number of pending messages is calculated from these offsets.
        group.topic.ends.found(lane, marks);
    }
    // This process may have left the group only just now.
    let until = Instant::now() + SETTLE_TIMEOUT;
    while let Err(error) = group.probe.commit(&list, CommitMode::Sync) {
        match is_refusal(&error) {
            true if Instant::now() < until => std::thread::sleep(SETTLE_TIMEOUT / 10),
            true => return Err(ReadError::InUse(group.id.clone())),
            false => return Err(ReadError::Kafka(error.to_string())),
        }
    }
    for (lane, cursor) in cursors {
        let mut lane = group.lane(lane);
        lane.committed = cursor;
        (lane.claimed, lane.doubted_from) = (cursor.offset, None);
        if !lane.held {
            lane.done = cursor;
        }
    }
    Ok(moved)
}

/// Returns the offset of a place in a partition whose first and next offset are given.
pub(crate) fn offset_of<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    lane: u32,
    at: StartAt,
    (low, high): (u64, u64),
) -> Result<u64, ReadError> {
    let ms = match at {
        StartAt::Oldest => return Ok(low),
        StartAt::Newest => return Ok(high),
        StartAt::Offset(offset) => return Ok(offset.clamp(low, high)),
        StartAt::Time(ms) => i64::try_from(ms).unwrap_or(i64::MAX),
    };
    let mut list = TopicPartitionList::new();
    let added = list.add_partition_offset(topic, lane as i32, Offset::Offset(ms));
    added?;
    let list = consumer.offsets_for_times(list, ASK_TIMEOUT)?;
    Ok(match list.elements().first().map(|one| one.offset()) {
        Some(Offset::Offset(offset)) => u64::try_from(offset).unwrap_or(high).clamp(low, high),
        _ => high,
    })
}
