//! Live data: the overview, once or every second, and a cluster's series and nodes.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::Sse;
use axum::response::sse::Event;
use futures_util::Stream;
use futures_util::stream::unfold;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::guard::Token;
use super::input::{Path, Query};
use super::registry::seen;
use super::{ApiState, Refusal};
use crate::store::{StoreError, User};

/// The open streams of each session, by its token.
#[derive(Clone, Default)]
pub(crate) struct Streams(Arc<Mutex<HashMap<String, usize>>>);

impl Streams {
    /// Counts a stream of a session, unless the session has too many.
    fn open(&self, token: &str) -> Option<OpenStream> {
        let mut open = self.0.lock();
        let count = open.get(token).copied().unwrap_or_default();
        if count >= STREAMS_MAX {
            return None;
        }
        open.insert(token.to_owned(), count + 1);
        Some(OpenStream {
            streams: self.clone(),
            token: token.to_owned(),
        })
    }
}

/// An open stream, which counts until this is dropped.
struct OpenStream {
    streams: Streams,
    token: String,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.streams.0.lock();
        if let Some(count) = open.get_mut(&self.token) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.token);
            }
        }
    }
}

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
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let open = api.streams.open(&token).ok_or_else(|| {
        Refusal::too_many_streams(format!("this session has {STREAMS_MAX} streams open already"))
    })?;
    let mut overview = api.overview.clone();
    // The present overview may be old, since nobody updates it while nobody looks.
    overview.mark_unchanged();
    let stream = unfold((overview, api, open), |(mut overview, api, open)| async move {
        overview.changed().await.ok()?;
        let user = api.polls.store.session(&open.token, false).ok().flatten()?;
        let all = Arc::clone(&overview.borrow_and_update());
        let told = seen_of(&api, &user, &all).ok()?.to_string();
        let event = Event::default().event("overview").data(told);
        Some((Ok(event), (overview, api, open)))
    });
    Ok(Sse::new(stream))
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

/// The largest number of open streams of a session: a browser's tabs share one where they can.
const STREAMS_MAX: usize = 16;
const MINUTES_MAX: u32 = 30 * 24 * 60;

#[cfg(test)]
mod tests {
    use super::super::testing::{on_api, send};
    use super::*;

    #[test]
    fn a_session_has_sixteen_streams_and_another_one_its_own() {
        on_api(async |store, routes| {
            let [token, other] = [(); 2].map(|()| store.begin_session(1).unwrap());
            let open = async |token: &str| send(&routes, "GET", "/live", Some(token), "").await;
            let mut streams = Vec::new();
            for _ in 0..STREAMS_MAX {
                streams.push(open(&token).await);
            }
            assert!(streams.iter().all(|answer| answer.status() == 200));
            assert_eq!(open(&token).await.status(), 429);
            assert_eq!(open(&other).await.status(), 200);
            streams.pop();
            assert_eq!(open(&token).await.status(), 200);
        });
    }
}
