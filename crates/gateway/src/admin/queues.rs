//! Queues: how deep they are, what they contain, and where each consumer group is.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Json, Response};
use log::{Browsed, StartAt};
use serde::Deserialize;
use serde_json::{Value, json};

use super::AdminState;
use super::dead_letters::{blocking, time_ms};
use super::refusal::Refusal;
use super::topics;
use crate::delivery::drop_unsettled;
use crate::queue::Queue;

/// The records to show, and how much of each.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Browsing {
    lane: Option<u32>,
    #[serde(default)]
    from: u64,
    limit: Option<usize>,
    text_bytes: Option<usize>,
}

/// The place where a consumer group is to continue.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Move {
    to: Option<String>,
    lane: Option<u32>,
    #[serde(default)]
    confirm: bool,
}

pub(super) async fn show(
    State(admin): State<Arc<AdminState>>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    admin.queue(Some(&name))?;
    blocking(move || {
        let mut all = admin.shared.queues.load().to_json(true);
        let mut queue = all[&name].take();
        admin.rates.add_to(&name, &mut queue);
        Ok(Json(queue).into_response())
    })
    .await
}

pub(super) async fn records(
    State(admin): State<Arc<AdminState>>,
    Path(name): Path<String>,
    query: Result<Query<Browsing>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(wanted) = query.map_err(|error| Refusal::invalid(error.body_text()))?;
    let queue = admin.queue(Some(&name))?;
    let lanes = queue.log.lanes();
    if wanted.lane.is_some_and(|lane| lane >= lanes) {
        return Err(Refusal::invalid(format!(
            "the queue has lanes 0 to {}",
            lanes - 1
        )));
    }
    blocking(move || {
        let (mut records, mut next, mut looked_at) = (Vec::new(), None, 0u64);
        let limit = wanted.limit.unwrap_or(RECORDS).min(RECORDS_MAX);
        let text_bytes = wanted.text_bytes.unwrap_or(TEXT_BYTES).min(TEXT_BYTES_MAX);
        let mut left = TEXT_BYTES_MAX;
        let Some(log) = queue.log.on_disk() else {
            let (records, next) = topics::records(&queue, wanted.lane, wanted.from, limit, text_bytes)?;
            return Ok(Json(json!({"records": records, "next": next})).into_response());
        };
        let browsed = log.browse(wanted.from).each(|record| {
            let is_of = |lane| record.groups.iter().any(|group| group.lane == lane);
            looked_at += record.receipt.bytes;
            if records.len() >= limit || left == 0 || looked_at > LOOKED_AT_MAX {
                next = Some(record.receipt.position);
                return ControlFlow::Break(());
            }
            if wanted.lane.is_none_or(is_of) {
                records.push(shown(&record, wanted.lane, text_bytes, &mut left));
            }
            ControlFlow::Continue(())
        });
        browsed.map_err(Refusal::failed)?;
        Ok(Json(json!({"records": records, "next": next})).into_response())
    })
    .await
}

pub(super) async fn offset(
    State(admin): State<Arc<AdminState>>,
    Path((name, group)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let queue = admin.queue(Some(&name))?;
    known(&queue, &group)?;
    blocking(move || Ok(Json(place(&queue, &group)).into_response())).await
}

pub(super) async fn set_offset(
    State(admin): State<Arc<AdminState>>,
    Path((name, group)): Path<(String, String)>,
    query: Result<Query<Move>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(wanted) = query.map_err(|error| Refusal::invalid(error.body_text()))?;
    let queue = admin.queue(Some(&name))?;
    known(&queue, &group)?;
    let shared = queue.log.topic_group(&group);
    if wanted.lane.is_some() && shared.is_none() {
        let reason = "positions are those of the whole log here, so `lane` means nothing";
        return Err(Refusal::invalid(reason));
    }
    let to = match wanted.to.as_deref() {
        None => {
            return Err(Refusal::invalid(
                "say where: `to=earliest`, `latest`, a position, or a time",
            ));
        }
        Some("earliest") => StartAt::Oldest,
        Some("latest") => StartAt::Newest,
        Some(text) => match text.parse() {
            Ok(position) => StartAt::Position(position),
            Err(_) => StartAt::Time(time_ms(text)?),
        },
    };
    if !wanted.confirm {
        let reason =
            "documents are passed over for good, or delivered once more, by this: say `confirm=true`";
        return Err(Refusal::invalid(reason));
    }
    blocking(move || {
        let moved = admin.deliveries.while_stopped(&name, &group, || {
            let letters = &queue.dead_letters;
            if let Some(log) = queue.log.on_disk() {
                is_there(log, to)?;
            }
            drop_unsettled(&queue, &group).map_err(Refusal::failed)?;
            if let Some(parked) = queue.parked_of(&group) {
                parked.settle().map_err(Refusal::failed)?;
            }
            letters.settle(&group).map_err(Refusal::failed)?;
            if let Some(shared) = &shared {
                return topics::seek(&**shared, to, wanted.lane);
            }
            let log = on_disk(&queue, "its consumer groups are set elsewhere")?;
            let consumer = log.consumer(&group, StartAt::Oldest).map_err(Refusal::failed)?;
            let moved = consumer.seek(to).map_err(Refusal::failed)?;
            Ok(json!({"skipped": moved.skipped, "rewound": moved.rewound}))
        });
        let moved = moved.ok_or_else(|| delivers(&group))??;
        tracing::warn!(queue = name, group, %moved, "a consumer group was set elsewhere");
        let mut now = place(&queue, &group);
        now["moved"] = moved;
        Ok(Json(now).into_response())
    })
    .await
}

pub(super) async fn remove_group(
    State(admin): State<Arc<AdminState>>,
    Path((name, group)): Path<(String, String)>,
    query: Result<Query<Move>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(wanted) = query.map_err(|error| Refusal::invalid(error.body_text()))?;
    let queue = admin.queue(Some(&name))?;
    if wanted.to.is_some() || wanted.lane.is_some() {
        let reason = "a group is removed as a whole: `to` and `lane` mean nothing here";
        return Err(Refusal::invalid(reason));
    }
    if admin.shared.queues.load().group(&name, &group).is_some() {
        return Err(Refusal::conflict(format!(
            "a pipeline of the configuration delivers as {group}"
        )));
    }
    if !wanted.confirm {
        let reason = "what the group has not delivered is not kept for it any more: say `confirm=true`";
        return Err(Refusal::invalid(reason));
    }
    blocking(move || {
        // A removal that the disk broke off may have left the tally of the group's letters.
        if !queue.dead_letters.tallies().1.contains_key(&group) {
            known(&queue, &group)?;
        }
        let account = queue.account();
        let one = account.groups.iter().find(|one| one.name == group);
        let (dead, parked) = one.map_or((0, 0), |one| (one.dead, one.parked));
        if dead > 0 {
            let reason = format!("{dead} dead letters of {group} are there: purge them first");
            return Err(Refusal::conflict(reason));
        }
        if parked > 0 {
            let reason = format!("{parked} documents of {group} are parked: give them up first");
            return Err(Refusal::conflict(reason));
        }
        let pending = one.map_or(0, |one| one.pending);
        let letters = &queue.dead_letters;
        drop_unsettled(&queue, &group).map_err(Refusal::failed)?;
        let log = on_disk(&queue, "its consumer groups are removed")?;
        // Nothing is parked. This goes first, since nobody can ask for it once the group is gone.
        queue.parked.remove(&group).map_err(Refusal::failed)?;
        log.remove_consumer(&group).map_err(Refusal::failed)?;
        letters.forget(&group).map_err(Refusal::failed)?;
        tracing::warn!(queue = name, group, pending, "a consumer group was removed");
        Ok(Json(json!({"removed": group, "pending": pending})).into_response())
    })
    .await
}

/// Refuses a position that the log does not have: one digit too many would pass over all that is pending.
fn is_there(log: &log::Log, to: StartAt) -> Result<(), Refusal> {
    let (StartAt::Position(position), status) = (to, log.status()) else {
        return Ok(());
    };
    match (status.start..=status.end).contains(&position) {
        true => Ok(()),
        false => Err(Refusal::invalid(format!(
            "the queue has positions {} to {}",
            status.start, status.end
        ))),
    }
}

/// Returns the place of a consumer group, lane by lane.
fn place(queue: &Arc<Queue>, group: &str) -> Value {
    if let Some(shared) = queue.log.topic_group(group) {
        return topics::place(queue, group, &*shared);
    }
    let account = queue.account();
    let one = account.groups.iter().find(|one| one.name == group);
    let lanes = one.into_iter().flat_map(|one| &one.lanes);
    let lanes = lanes.map(|lane| {
        json!({
            "position": lane.position,
            "pending": lane.accepted - lane.done,
            "pending_bytes": lane.pending_bytes,
            "skipped": lane.skipped,
            "rewound": lane.rewound,
        })
    });
    json!({
        "queue": queue.name,
        "group": group,
        "start": account.status.start,
        "end": account.status.end,
        "pending": one.map_or(0, |one| one.pending),
        "lanes": lanes.collect::<Vec<_>>(),
    })
}

/// Shows a record: its head, its directory, and up to `text_bytes` bytes of its documents.
fn shown(record: &Browsed, lane: Option<u32>, text_bytes: usize, left: &mut usize) -> Value {
    let mut room = text_bytes;
    let groups = record
        .groups
        .iter()
        .filter(|group| lane.is_none_or(|lane| group.lane == lane));
    let groups = groups.map(|group| {
        let bytes = group.bytes.as_deref().unwrap_or_default();
        let shown = &bytes[..bytes.len().min(room).min(*left)];
        room -= shown.len();
        *left -= shown.len();
        json!({
            "lane": group.lane,
            "documents": group.documents,
            "bytes": bytes.len(),
            "damaged": group.bytes.is_none(),
            "text": String::from_utf8_lossy(shown),
            "cut": shown.len() < bytes.len(),
        })
    });
    let groups: Vec<_> = groups.collect();
    let params: Value = serde_json::from_slice(&record.params)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&record.params).into_owned()));
    json!({
        "position": record.receipt.position,
        "bytes": record.receipt.bytes,
        "documents": record.receipt.documents,
        "time_ms": record.time_ms,
        "kind": record.kind,
        "params": params,
        "groups": groups,
    })
}

fn known(queue: &Queue, group: &str) -> Result<(), Refusal> {
    let names = queue.log.consumers();
    let is = |name: &String| name == group && name != config::REPLAYING;
    names.iter().any(is).then_some(()).ok_or_else(|| no_group(group))
}

/// Returns the log of a queue that is on this machine's disk.
fn on_disk<'q>(queue: &'q Queue, what: &str) -> Result<&'q log::Log, Refusal> {
    queue.log.on_disk().ok_or_else(|| {
        let topic = queue.log.topic().unwrap_or_default();
        Refusal::conflict(format!(
            "this queue is the Kafka topic {topic}: {what} with Kafka's own tools"
        ))
    })
}

fn no_group(group: &str) -> Refusal {
    Refusal::not_found(format!("the queue has no consumer group {group}"))
}

fn delivers(group: &str) -> Refusal {
    Refusal::conflict(format!("{group} delivers: stop its pipeline first"))
}

/// The number of records shown unless the request asks for more.
const RECORDS: usize = 20;
const RECORDS_MAX: usize = 1000;
/// The bytes of documents shown per record unless the request asks for more, and the most bytes of all
/// together.
const TEXT_BYTES: usize = 4 << 10;
pub(super) const TEXT_BYTES_MAX: usize = 16 << 20;
/// The most bytes of the log that one request searches for records of a lane.
const LOOKED_AT_MAX: u64 = 256 << 20;
