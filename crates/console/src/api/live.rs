//! Live data: the overview, once or every second, and a cluster's series and nodes.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Path, Query, State};
use axum::response::Sse;
use axum::response::sse::Event;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Deserialize;
use serde_json::Value;

use super::guard::Token;
use super::{ApiState, Refusal};
use crate::store::StoreError;

#[derive(Deserialize)]
pub(super) struct Span {
    minutes: Option<u32>,
}

pub(super) async fn overview(State(api): State<Arc<ApiState>>) -> Result<Json<Value>, Refusal> {
    let store = &api.polls.store;
    Ok(Json(
        api.polls.board.overview(&store.clusters()?, &store.gateways()?),
    ))
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
        let live = api.polls.store.session(&token, false).ok().flatten();
        live?;
        let told = overview.borrow_and_update().to_string();
        let event = Event::default().event("overview").data(told);
        Some((Ok(event), (overview, api, token)))
    });
    Sse::new(stream)
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
