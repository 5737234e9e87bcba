//! The audit log: one page of it, or all of it as NDJSON.

use std::io;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::try_unfold;
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::demand;
use super::guard::Token;
use super::input::Query;
use super::{ApiState, Refusal, Shared};
use crate::roles::Role;
use crate::store::{AuditFilter, AuditPosition};

#[derive(Deserialize)]
pub(super) struct AuditQuery {
    limit: Option<usize>,
    /// The `next` of an earlier answer.
    before: Option<String>,
    // A flattened structure would take numbers as texts only.
    user: Option<String>,
    target: Option<String>,
    q: Option<String>,
    from_ms: Option<i64>,
    to_ms: Option<i64>,
}

impl AuditQuery {
    fn place(&self) -> Result<Option<AuditPosition>, Refusal> {
        let place = |text: &String| {
            AuditPosition::parse(text)
                .ok_or_else(|| Refusal::bad("before: what `next` of an earlier answer says is wanted"))
        };
        self.before.as_ref().map(place).transpose()
    }

    fn filter(self) -> AuditFilter {
        AuditFilter {
            user: self.user,
            target: self.target,
            q: self.q,
            from_ms: self.from_ms,
            to_ms: self.to_ms,
        }
    }
}

/// Returns a page of entries, newest first, and how far the search got.
pub(super) async fn show(
    State(api): State<Shared>,
    Query(asked): Query<AuditQuery>,
) -> Result<Json<Value>, Refusal> {
    let limit = asked.limit.unwrap_or(100).clamp(1, ENTRIES_MAX);
    let from = asked.place()?;
    let found = api.polls.store.audit(&asked.filter(), from, limit)?;
    Ok(Json(json!({
        "entries": found.entries, "searched": found.searched, "back_to_ms": found.back_to_ms,
        "next": found.next.map(|place| place.to_string()),
    })))
}

/// Returns all matching entries, one line each. A failure aborts the response, so that nobody takes half a
/// log for the whole.
pub(super) async fn download(
    State(api): State<Shared>,
    Extension(Token(token)): Extension<Token>,
    Query(asked): Query<AuditQuery>,
) -> Result<Response, Refusal> {
    let filter = asked.filter();
    let lines = try_unfold(Rest::From(None), move |rest| {
        let (api, token, filter) = (Shared::clone(&api), token.clone(), filter.clone());
        async move {
            let Rest::From(mut from) = rest else {
                return Ok::<_, io::Error>(None);
            };
            loop {
                let (lines, next) = piece(&api, &token, &filter, from)?;
                let rest = next.map_or(Rest::Nothing, |next| Rest::From(Some(next)));
                if !lines.is_empty() {
                    return Ok(Some((lines, rest)));
                }
                let Rest::From(next) = rest else { return Ok(None) };
                from = next;
                // Others are served between two pieces.
                tokio::task::yield_now().await;
            }
        }
    });
    let headers = [
        (CONTENT_TYPE, "application/x-ndjson"),
        (CONTENT_DISPOSITION, "attachment; filename=\"audit.ndjson\""),
    ];
    Ok((headers, Body::from_stream(lines)).into_response())
}

/// The rest of a download: from a place on (`None`: from the newest entry), or nothing.
enum Rest {
    From(Option<AuditPosition>),
    Nothing,
}

/// Returns the next lines and the place where they end. Fails once the session has ended or its user is no
/// longer an admin.
fn piece(
    api: &ApiState,
    token: &str,
    filter: &AuditFilter,
    from: Option<AuditPosition>,
) -> Result<(Bytes, Option<AuditPosition>), io::Error> {
    let user = api.polls.store.session(token, false).map_err(io::Error::other)?;
    let may = user.is_some_and(|user| demand(Role::Admin, user.roles.role, "").is_ok());
    if !may {
        return Err(io::Error::other("the session or its role is gone"));
    }
    let found = api
        .polls
        .store
        .audit(filter, from, ENTRIES_MAX)
        .map_err(io::Error::other)?;
    let mut lines = Vec::new();
    for entry in &found.entries {
        serde_json::to_writer(&mut lines, entry)?;
        lines.push(b'\n');
    }
    Ok((lines.into(), found.next))
}

/// Maximum number of entries of a page, and of one piece of a download.
const ENTRIES_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::super::testing::{on_api, send};
    use super::*;
    use crate::store::{AuditedChange, Store};

    fn fill(store: &Store, entries: usize) {
        for n in 0..entries {
            let user = if n % 100 == 0 { "ada" } else { "eve" };
            let target = format!("line\n\"{n}\"");
            let change = AuditedChange {
                user,
                what: "PUT /logs",
                target: &target,
                ..AuditedChange::default()
            };
            store.note(&change).unwrap();
        }
    }

    #[test]
    fn a_download_has_each_entry_once_in_a_line_of_its_own() {
        on_api(async |store, routes| {
            let entries = ENTRIES_MAX * 2 + 300;
            fill(&store, entries);
            let token = store.begin_session(1).unwrap();
            let answer = send(&routes, "GET", "/audit/_download", Some(&token), "").await;
            assert_eq!(answer.headers()[CONTENT_TYPE], "application/x-ndjson");
            assert!(
                answer.headers()[CONTENT_DISPOSITION]
                    .to_str()
                    .unwrap()
                    .contains("audit.ndjson")
            );
            let text = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            let lines: Vec<Value> = text
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .map(|line| serde_json::from_slice(line).unwrap())
                .collect();
            let expected = (0..entries).rev().map(|n| format!("line\n\"{n}\""));
            assert!(
                lines
                    .iter()
                    .map(|line| line["target"].as_str().unwrap())
                    .eq(expected)
            );
            let filtered = send(
                &routes,
                "GET",
                "/audit/_download?user=ada&q=put",
                Some(&token),
                "",
            )
            .await;
            let text = to_bytes(filtered.into_body(), usize::MAX).await.unwrap();
            assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 23);
            let none = send(&routes, "GET", "/audit/_download?user=nobody", Some(&token), "").await;
            assert!(to_bytes(none.into_body(), usize::MAX).await.unwrap().is_empty());
        });
    }

    #[test]
    fn a_download_breaks_off_when_the_session_ends() {
        on_api(async |store, routes| {
            fill(&store, ENTRIES_MAX + 1);
            let token = store.begin_session(1).unwrap();
            let answer = send(&routes, "GET", "/audit/_download", Some(&token), "").await;
            store.end_session(&token).unwrap();
            assert!(to_bytes(answer.into_body(), usize::MAX).await.is_err());
        });
    }
}
