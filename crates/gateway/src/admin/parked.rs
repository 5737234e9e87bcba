//! The parked operations of a queue's consumer groups: shows them, retries them at once, gives them up.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Json, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::AdminState;
use super::dead_letters::blocking;
use super::refusal::Refusal;
use crate::queue::Queue;
use crate::queue::parked::Parked;

/// The keys that a request selects.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Keys {
    group: Option<String>,
    key: Option<String>,
    limit: Option<usize>,
    #[serde(default)]
    confirm: bool,
}

pub(super) async fn list(
    State(admin): State<Arc<AdminState>>,
    Path(name): Path<String>,
    query: Result<Query<Keys>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(wanted) = query.map_err(|error| Refusal::invalid(error.body_text()))?;
    let queue = admin.queue(Some(&name))?;
    let groups = groups(&queue, wanted.group.as_deref())?;
    blocking(move || {
        let limit = wanted.limit.unwrap_or(KEYS).min(KEYS_MAX);
        let groups = groups.into_iter().map(|(group, parked)| {
            let bytes = parked.bytes();
            let state = parked.state();
            let keys: Vec<Value> = state.shown(limit).into_iter().map(|key| key.0).collect();
            let shown = json!({
                "documents": state.counted,
                "bytes": bytes,
                "key_count": state.key_count(),
                "keys": keys,
            });
            (group, shown)
        });
        let groups: serde_json::Map<String, Value> = groups.collect();
        Ok(Json(json!({"queue": name, "groups": groups})).into_response())
    })
    .await
}

pub(super) async fn release(
    State(admin): State<Arc<AdminState>>,
    Path(name): Path<String>,
    query: Result<Query<Keys>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(wanted) = query.map_err(|error| Refusal::invalid(error.body_text()))?;
    let queue = admin.queue(Some(&name))?;
    let groups = groups(&queue, wanted.group.as_deref())?;
    let keys: usize = groups
        .iter()
        .map(|(_, parked)| parked.release(wanted.key.as_deref()))
        .sum();
    known(keys as u64, wanted.key.as_deref())?;
    Ok(Json(json!({"keys": keys})).into_response())
}

pub(super) async fn give_up(
    State(admin): State<Arc<AdminState>>,
    Path(name): Path<String>,
    query: Result<Query<Keys>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(wanted) = query.map_err(|error| Refusal::invalid(error.body_text()))?;
    if !wanted.confirm {
        let reason = "parked documents become dead letters by this: say `confirm=true`";
        return Err(Refusal::invalid(reason));
    }
    let queue = admin.queue(Some(&name))?;
    let groups = groups(&queue, wanted.group.as_deref())?;
    let documents: u64 = groups
        .iter()
        .map(|(_, parked)| parked.give_up(wanted.key.as_deref()))
        .sum();
    known(documents, wanted.key.as_deref())?;
    tracing::warn!(queue = name, documents, "parked documents are given up");
    Ok(Json(json!({"documents": documents})).into_response())
}

fn groups(queue: &Queue, group: Option<&str>) -> Result<Vec<(String, Arc<Parked>)>, Refusal> {
    let mut groups = queue.parked.all();
    if let Some(group) = group {
        groups.retain(|(name, _)| name == group);
        if groups.is_empty() {
            return Err(Refusal::not_found(format!(
                "the queue has no consumer group {group}"
            )));
        }
    }
    Ok(groups)
}

/// Refuses a key for which nothing is parked.
fn known(found: u64, key: Option<&str>) -> Result<(), Refusal> {
    match key {
        Some(key) if found == 0 => Err(Refusal::not_found(format!("nothing is parked for {key}"))),
        _ => Ok(()),
    }
}

/// The number of keys shown unless the request asks for more.
const KEYS: usize = 100;
const KEYS_MAX: usize = 10_000;
