//! The endpoints of the switches.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Json, Response};
use serde_json::Value;

use super::AdminState;
use super::dead_letters::blocking;
use super::refusal::Refusal;
use crate::request_id::RequestIds;
use crate::switches::NotSwitched;
use crate::switches::admin::{self, Refused};

pub(super) async fn list(State(admin): State<Arc<AdminState>>) -> Json<Value> {
    let live = admin.shared.live.load_full();
    Json(admin::list(&live.config, &admin.shared.switches))
}

pub(super) async fn set(
    State(admin): State<Arc<AdminState>>,
    Path(cluster): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let request_id = RequestIds::new(fastrand::u32(..)).of(&headers);
    blocking(move || {
        let live = admin.shared.live.load_full();
        match admin::set(&live.config, &admin.shared.switches, &cluster, &body, &request_id) {
            Ok(now) => Ok(Json(now).into_response()),
            Err(error @ Refused::NoCluster(_)) => Err(Refusal::not_found(error.to_string())),
            Err(error @ Refused::NotSwitched(NotSwitched::Bad(_))) => {
                Err(Refusal::invalid(error.to_string()))
            }
            Err(error @ Refused::NotSwitched(NotSwitched::Unkept { .. })) => Err(Refusal::failed(error)),
        }
    })
    .await
}
