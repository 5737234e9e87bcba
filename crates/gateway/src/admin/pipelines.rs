//! Pipelines: shows what they deliver, starts and stops them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Json, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::AdminState;
use super::dead_letters::blocking;
use super::refusal::Refusal;
use crate::queue::{Group, LaneActivity, Phase};

/// How long a stop may take before it is answered.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StopTimeout {
    wait_s: Option<u64>,
}

pub(super) async fn list(State(admin): State<Arc<AdminState>>) -> Json<Value> {
    let mut pipelines: BTreeMap<Arc<str>, Vec<Arc<Group>>> = BTreeMap::new();
    for group in admin.shared.queues.load().groups() {
        let name = Arc::clone(&group.settings.pipeline);
        pipelines.entry(name).or_default().push(Arc::clone(group));
    }
    let shown = pipelines
        .iter()
        .map(|(name, groups)| (name.to_string(), shown(groups)));
    Json(Value::Object(shown.collect()))
}

pub(super) async fn start(
    State(admin): State<Arc<AdminState>>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let groups = groups(&admin, &name)?;
    if groups.iter().any(|group| group.phase() == Phase::Stopping) {
        return Err(Refusal::conflict(format!(
            "{name} is stopping: its batches under way are not done"
        )));
    }
    blocking(move || {
        for group in &groups {
            let started = admin.deliveries.start_one(group);
            started.map_err(|error| match error.kind() {
                std::io::ErrorKind::ResourceBusy => Refusal::conflict(error.to_string()),
                _ => Refusal::failed(error),
            })?;
        }
        tracing::info!(pipeline = name, "pipeline started");
        Ok(Json(shown(&groups)).into_response())
    })
    .await
}

pub(super) async fn stop(
    State(admin): State<Arc<AdminState>>,
    Path(name): Path<String>,
    patience: Result<Query<StopTimeout>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(patience) = patience.map_err(|error| Refusal::invalid(error.body_text()))?;
    let groups = groups(&admin, &name)?;
    blocking(move || {
        let wait = Duration::from_secs(patience.wait_s.unwrap_or(WAIT_S).min(WAIT_S_MAX));
        let ended = admin.deliveries.stop_some(&groups, wait);
        tracing::info!(pipeline = name, ended, "pipeline told to stop");
        Ok(Json(shown(&groups)).into_response())
    })
    .await
}

fn groups(admin: &AdminState, pipeline: &str) -> Result<Vec<Arc<Group>>, Refusal> {
    let queues = admin.shared.queues.load();
    let groups: Vec<_> = queues
        .groups()
        .iter()
        .filter(|group| *group.settings.pipeline == *pipeline)
        .cloned()
        .collect();
    match groups.is_empty() {
        true => Err(Refusal::not_found(format!(
            "no pipeline {pipeline} delivers anything; `tidegate pipelines list` shows them"
        ))),
        false => Ok(groups),
    }
}

/// Shows a pipeline and each of its deliveries. The pipeline counts as stopping while one of them does.
fn shown(groups: &[Arc<Group>]) -> Value {
    let any = |phase| groups.iter().any(|group| group.phase() == phase);
    let state = match (any(Phase::Stopping), any(Phase::Running)) {
        (true, _) => Phase::Stopping,
        (false, true) => Phase::Running,
        (false, false) => Phase::Stopped,
    };
    let deliveries = groups.iter().map(|group| {
        let status = group.consumer.status();
        json!({
            "queue": group.settings.queue,
            "group": group.settings.group,
            "cluster": group.settings.cluster,
            "state": group.phase().as_str(),
            "pending": status.pending,
            "pending_bytes": status.pending_bytes,
            "paused_lanes": group.count(LaneActivity::Paused),
            "retrying_lanes": group.count(LaneActivity::Retrying),
            "why": group.why(),
        })
    });
    json!({
        "state": state.as_str(),
        "auto_start": groups.iter().all(|group| group.settings.enabled),
        "deliveries": deliveries.collect::<Vec<_>>(),
    })
}

/// How long a stop waits, in seconds, unless the request says otherwise.
const WAIT_S: u64 = 10;
const WAIT_S_MAX: u64 = 60;
