//! A user's tabs.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use serde_json::{Value, json};

use super::input::Body;
use super::{ApiState, Refusal};
use crate::store::User;

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
    Body(tabs): Body<Value>,
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

const TABS_MAX: usize = 100;
