//! Queues in Kafka at the admin port: records of a partition, and consumer groups that gateways share.

use std::sync::Arc;

use kafka::{Browsed, Group, ReadError};
use log::StartAt;
use serde_json::{Value, json};

use super::refusal::Refusal;
use crate::queue::Queue;

/// Returns the place of a consumer group, partition by partition.
pub(super) fn place(queue: &Arc<Queue>, name: &str, group: &dyn Group) -> Value {
    let lanes = group.status();
    let pending: u64 = lanes.iter().map(|lane| lane.messages).sum();
    let lanes = lanes.iter().map(|lane| {
        json!({
            "position": lane.done.offset,
            "pending_messages": lane.messages,
            "pending": lane.fetched_documents,
            "pending_bytes": lane.fetched_bytes,
            "skipped": lane.done.skipped,
            "rewound": 0,
            "lost_messages": lane.done.lost_messages,
            "held": lane.held,
        })
    });
    json!({
        "queue": queue.name,
        "group": name,
        "kafka_group": group.id(),
        "pending_messages": pending,
        "lanes": lanes.collect::<Vec<_>>(),
    })
}

/// Moves a consumer group to another place, for all gateways.
pub(super) fn seek(group: &dyn Group, to: StartAt, lane: Option<u32>) -> Result<Value, Refusal> {
    let to = match to {
        StartAt::Oldest => kafka::StartAt::Oldest,
        StartAt::Newest => kafka::StartAt::Newest,
        StartAt::Time(ms) => kafka::StartAt::Time(ms),
        StartAt::Position(_) if lane.is_none() => {
            let reason = "a position is one partition's: say which with `lane`";
            return Err(Refusal::invalid(reason));
        }
        StartAt::Position(offset) => kafka::StartAt::Offset(offset),
    };
    let moved = group.seek(to, lane).map_err(refusal)?;
    Ok(json!({
        "skipped_messages": moved.skipped_messages,
        "rewound_messages": moved.rewound_messages,
    }))
}

/// Returns messages of a partition, and the offset to continue from if there are more.
pub(super) fn records(
    queue: &Arc<Queue>,
    lane: Option<u32>,
    from: u64,
    limit: usize,
    text_bytes: usize,
) -> Result<(Vec<Value>, Option<u64>), Refusal> {
    let (Some(topic), Some(lane)) = (queue.log.in_kafka(), lane) else {
        let last = queue.log.lanes() - 1;
        let reason =
            format!("this queue is in Kafka, and read by partition: say which, `lane` from 0 to {last}");
        return Err(Refusal::invalid(reason));
    };
    let (mut records, mut next, mut left) = (Vec::new(), None, super::queues::TEXT_BYTES_MAX);
    let browsed = topic.browse(lane, from, &mut |message| {
        if records.len() >= limit || left == 0 {
            next = Some(message.offset);
            return false;
        }
        let text = &message.lines[..message.lines.len().min(text_bytes).min(left)];
        left -= text.len();
        records.push(shown(&message, lane, text));
        true
    });
    browsed.map_err(refusal)?;
    Ok((records, next))
}

/// Shows a message in the shape of a record on disk with a single group. For a message that is not a
/// gateway's, the reason is given.
fn shown(message: &Browsed, lane: u32, text: &[u8]) -> Value {
    let documents = message.head.as_ref().map_or(0, |head| head.documents);
    let params: Value = serde_json::from_slice(&message.params)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&message.params).into_owned()));
    json!({
        "position": message.offset,
        "bytes": message.lines.len(),
        "documents": documents,
        "time_ms": message.time_ms,
        "kind": message.head.as_ref().ok().map(|head| head.kind),
        "params": params,
        "why": message.head.as_ref().err().map(ToString::to_string),
        "groups": [{
            "lane": lane,
            "documents": documents,
            "bytes": message.lines.len(),
            "damaged": message.head.is_err(),
            "text": String::from_utf8_lossy(text),
            "cut": text.len() < message.lines.len(),
        }],
    })
}

fn refusal(error: ReadError) -> Refusal {
    match error {
        ReadError::NoLane(_) => Refusal::invalid(error.to_string()),
        ReadError::InUse(_) => Refusal::conflict(error.to_string()),
        ReadError::Foreign { .. } | ReadError::Kafka(_) => Refusal::unavailable(error.to_string()),
    }
}
