//! Another program in this one's place.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Json, Response};
use serde_json::json;

use super::AdminState;
use super::refusal::Refusal;

/// 202 once the new program was tried and takes over; it answers as soon as it is there.
pub(super) async fn upgrade(State(admin): State<Arc<AdminState>>) -> Result<Response, Refusal> {
    let asked = admin.shared.upgrades.ask().await;
    asked.map_err(|error| Refusal::conflict(error.to_string()))?;
    Ok((StatusCode::ACCEPTED, Json(json!({"accepted": true}))).into_response())
}
