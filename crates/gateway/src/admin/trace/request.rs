//! The outcome of a request, found by the position that its client was told.

use std::sync::Arc;
use std::time::Instant;

use axum::response::{IntoResponse, Json, Response};
use log::Browsed;
use serde_json::{Value, json};

use super::SEARCH;
use crate::admin::AdminState;
use crate::admin::refusal::Refusal;
use crate::queue::dead_letters::LettersSought;
use crate::queue::parked::ParkedSought;
use crate::queue::{GroupAccount, Params, Queue};

/// Traces a request. This reads the disk.
pub(super) fn trace(admin: &AdminState, queue: &Arc<Queue>, position: u64) -> Result<Response, Refusal> {
    let began = Instant::now();
    let Some(log) = queue.log.on_disk() else {
        let topic = queue.log.topic().unwrap_or_default();
        return Err(Refusal::conflict(format!(
            "this queue is the Kafka topic {topic}: its positions are looked at with Kafka's own tools"
        )));
    };
    let accounts = queue.account().groups;
    let status = log.status();
    let record = log.browse(position).read().map_err(Refusal::failed)?;
    let record = record.filter(|record| record.receipt.position == position);
    if record.is_none() && position >= status.start {
        let (start, end) = (status.start, status.end);
        return Err(Refusal::not_found(format!(
            "no request begins at position {position}; the queue has positions {start} to {end}"
        )));
    }
    let letters = queue
        .dead_letters
        .find(
            LettersSought::Position(position),
            &queue.committed(),
            began + SEARCH,
        )
        .map_err(Refusal::failed)?;
    let mut groups = Vec::new();
    for account in &accounts {
        let parked = queue
            .parked_of(&account.name)
            .map(|parked| parked.find(ParkedSought::Position(position), began + SEARCH));
        let parked = parked.transpose().map_err(Refusal::failed)?.unwrap_or_default();
        let of_group = letters
            .letters
            .iter()
            .filter(|letter| letter.cause.group == account.name);
        let dead: Vec<u64> = of_group.map(|letter| letter.id).collect();
        let queues = admin.shared.queues.load();
        let group = queues.group(&queue.name, &account.name);
        groups.push(json!({
            "group": account.name,
            "cluster": group.map(|group| &group.settings.cluster),
            "lanes": record.as_ref().map(|record| lanes(record, account)),
            "parked": parked.operations.iter().take(SHOWN).map(|(_, told)| told).collect::<Vec<_>>(),
            "parked_count": parked.operations.len(),
            "dead": dead,
            "complete": !parked.is_partial && !letters.is_partial,
        }));
    }
    Ok(Json(json!({
        "queue": queue.name,
        "position": position,
        // Records are removed once all groups are past them.
        "in_log": record.is_some(),
        "start": status.start,
        "end": status.end,
        "documents": record.as_ref().map(|record| record.receipt.documents),
        "time_ms": record.as_ref().map(|record| record.time_ms),
        "target": record.as_ref().and_then(|record| Some(Params::read(&record.params)?.target)),
        "groups": groups,
        "took_ms": began.elapsed().as_millis() as u64,
    }))
    .into_response())
}

/// Shows how far a group is with each lane of a record. What the group is past has been executed, is parked,
/// or is dead.
fn lanes(record: &Browsed, account: &GroupAccount) -> Vec<Value> {
    let lanes = record.groups.iter().map(|part| {
        let lane = account.lanes.get(part.lane as usize);
        let is_pending = lane.is_some_and(|lane| record.receipt.position >= lane.position);
        json!({
            "lane": part.lane,
            "documents": part.documents,
            "state": if is_pending { "pending" } else { "delivered" },
        })
    });
    lanes.collect()
}

/// The number of parked operations that are shown one by one.
const SHOWN: usize = 100;
