//! Live data: the overview, once or every second, and a cluster's series and nodes.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::Sse;
use axum::response::sse::Event;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Deserialize;
use serde_json::{Value, json};

use super::guard::Token;
use super::input::{Path, Query};
use super::registry::seen;
use super::{ApiState, Refusal};
use crate::store::{StoreError, User};

#[derive(Deserialize)]
pub(super) struct Span {
    minutes: Option<u32>,
}

/// Returns the overview of what the user may see, with the user's roles, which may have changed since login.
pub(super) async fn overview(
    State(api): State<Arc<ApiState>>,
    Extension(user): Extension<User>,
) -> Result<Json<Value>, Refusal> {
    let (clusters, gateways) = seen(&api, &user)?;
    let mut told = api.polls.board.overview(&clusters, &gateways);
    told["you"] = json!(user);
    Ok(Json(told))
}

/// Sends an event every second, until the session ends.
pub(super) async fn stream(
    State(api): State<Arc<ApiState>>,
    Extension(Token(token)): Extension<Token>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let mut overview = api.overview.clone();
    // The present overview may be old, since nobody updates it while nobody looks.
    overview.mark_unchanged();
    let stream = unfold((overview, api, token), |(mut overview, api, token)| async move {
        overview.changed().await.ok()?;
        let user = api.polls.store.session(&token, false).ok().flatten()?;
        let all = Arc::clone(&overview.borrow_and_update());
        let told = seen_of(&api, &user, &all).ok()?.to_string();
        let event = Event::default().event("overview").data(told);
        Some((Ok(event), (overview, api, token)))
    });
    Sse::new(stream)
}

/// Returns what a user may see of the overview that was taken for all users.
fn seen_of(api: &ApiState, user: &User, all: &Value) -> Result<Value, StoreError> {
    let mut told = all.clone();
    if !user.roles.see_all()
        && let Some(rows) = told["rows"].as_array_mut()
    {
        let (clusters, gateways) = seen(api, user)?;
        rows.retain(|row| match row["kind"].as_str() {
            Some("cluster") => clusters.iter().any(|cluster| row["id"] == cluster.id),
            _ => gateways.iter().any(|gateway| row["id"] == gateway.id),
        });
    }
    told["you"] = json!(user);
    Ok(told)
}

pub(super) async fn series(
    State(api): State<Arc<ApiState>>,
    Path(id): Path<String>,
    Query(span): Query<Span>,
) -> Result<Json<Value>, Refusal> {
    let store = &api.polls.store;
    store.cluster(&id)?.ok_or(StoreError::Missing)?;
    let minutes = span.minutes.unwrap_or(15).clamp(1, MINUTES_MAX);
    Ok(Json(api.polls.board.series(&id, &store.gateways()?, minutes)))
}

pub(super) async fn nodes(
    State(api): State<Arc<ApiState>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    api.polls.store.cluster(&id)?.ok_or(StoreError::Missing)?;
    Ok(Json(api.polls.board.nodes(&id)))
}

const MINUTES_MAX: u32 = 30 * 24 * 60;
