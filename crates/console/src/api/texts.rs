//! A user's tabs, and the audit log.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ApiState, Refusal};
use crate::store::User;

#[derive(Deserialize)]
pub(super) struct Limit {
    limit: Option<u32>,
}

pub(super) async fn tabs(
    State(api): State<Arc<ApiState>>,
    Extension(user): Extension<User>,
) -> Result<Json<Value>, Refusal> {
    let tabs = api.polls.store.tabs(user.id)?;
    Ok(Json(tabs.unwrap_or_else(|| json!({"tabs": [], "active": null}))))
}

pub(super) async fn set_tabs(
    State(api): State<Arc<ApiState>>,
    Extension(user): Extension<User>,
    Json(tabs): Json<Value>,
) -> Result<Json<Value>, Refusal> {
    let fits = tabs["tabs"].as_array().is_some_and(|list| {
        let texts =
            |tab: &Value| tab["id"].is_string() && tab["title"].is_string() && tab["text"].is_string();
        list.len() <= TABS_MAX && list.iter().all(texts)
    });
    if !fits {
        return Err(Refusal::bad(format!(
            "tabs: at most {TABS_MAX} with id, title and text are wanted"
        )));
    }
    let kept = json!({"tabs": tabs["tabs"], "active": tabs["active"]});
    api.polls.store.set_tabs(user.id, &kept)?;
    Ok(Json(json!({})))
}

pub(super) async fn audit(
    State(api): State<Arc<ApiState>>,
    Query(limit): Query<Limit>,
) -> Result<Json<Value>, Refusal> {
    let limit = limit.limit.unwrap_or(100).clamp(1, ENTRIES_MAX);
    Ok(Json(json!({"entries": api.polls.store.audit(limit)?})))
}

const TABS_MAX: usize = 100;
const ENTRIES_MAX: u32 = 10_000;
