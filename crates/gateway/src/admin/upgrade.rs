//! The upgrade endpoint, which replaces this program with another one.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Json, Response};
use serde_json::json;

use super::AdminState;
use super::refusal::Refusal;

/// Answers 202 once the new program has been tried and is about to take over. The new program answers as soon
/// as it is ready.
pub(super) async fn upgrade(State(admin): State<Arc<AdminState>>) -> Result<Response, Refusal> {
    let asked = admin.shared.upgrades.ask().await;
    asked.map_err(|error| Refusal::conflict(error.to_string()))?;
    Ok((StatusCode::ACCEPTED, Json(json!({"accepted": true}))).into_response())
}
