//! What handlers take from a request. Unlike axum's own extractors of the same names, these refuse with the
//! API's JSON error.

use std::time::Duration;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection, RawPathParamsRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::Refusal;

/// A body of JSON, which has to come within [`BODY_WITHIN`]: whoever sends a part of it must not keep the
/// seat.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let read = timeout(BODY_WITHIN, axum::Json::from_request(request, state)).await;
        let late = |_| Refusal::unreadable(StatusCode::REQUEST_TIMEOUT, "the body took more than a minute");
        let axum::Json(body) = read.map_err(late)??;
        Ok(Self(body))
    }
}

/// The parameters of the query.
pub(super) struct Query<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let axum::extract::Query(query) = axum::extract::Query::from_request_parts(parts, state).await?;
        Ok(Self(query))
    }
}

/// The parameters of the path.
pub(super) struct Path<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let axum::extract::Path(path) = axum::extract::Path::from_request_parts(parts, state).await?;
        Ok(Self(path))
    }
}

impl From<JsonRejection> for Refusal {
    fn from(rejection: JsonRejection) -> Self {
        Self::unreadable(rejection.status(), rejection.body_text())
    }
}

impl From<QueryRejection> for Refusal {
    fn from(rejection: QueryRejection) -> Self {
        Self::unreadable(rejection.status(), rejection.body_text())
    }
}

impl From<PathRejection> for Refusal {
    fn from(rejection: PathRejection) -> Self {
        Self::unreadable(rejection.status(), rejection.body_text())
    }
}

impl From<RawPathParamsRejection> for Refusal {
    fn from(rejection: RawPathParamsRejection) -> Self {
        Self::unreadable(rejection.status(), rejection.body_text())
    }
}

/// Enough for the longest body over a slow line.
const BODY_WITHIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::api::testing::{on_api, send, session_of};
    use crate::roles::{Role, Roles};

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_refused() {
        let request = axum::http::Request::post("/")
            .header("content-type", "application/json")
            .body(axum::body::Body::from_stream(futures_util::stream::pending::<
                Result<Vec<u8>, std::io::Error>,
            >()))
            .unwrap();
        let read = Body::<Value>::from_request(request, &()).await;
        let Err(refusal) = read else {
            panic!("there is no body")
        };
        let answer = axum::response::IntoResponse::into_response(refusal);
        assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
    }

    #[test]
    fn what_cannot_be_read_is_refused_in_the_api_s_own_form() {
        on_api(async |store, routes| {
            let roles = Roles {
                role: Role::Admin,
                clusters: [].into(),
            };
            let token = session_of(&store, "ann", &roles);
            for (method, path, body, status, about) in [
                ("POST", "/users", "{", 400, "JSON"),
                ("POST", "/users", "[]", 422, "JSON"),
                ("PUT", "/tabs", "\u{0}", 400, "JSON"),
                ("GET", "/audit?before=now", "", 400, "before"),
                ("DELETE", "/users/%ff", "", 400, "UTF-8"),
            ] {
                let answer = send(&routes, method, path, Some(&token), body).await;
                assert_eq!(answer.status(), status, "{method} {path}");
                let answer = axum::body::to_bytes(answer.into_body(), 10_000).await.unwrap();
                let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
                assert_eq!(answer["status"], status, "{method} {path}: {answer}");
                assert_eq!(
                    answer["error"]["type"], "bad_request",
                    "{method} {path}: {answer}"
                );
                let reason = answer["error"]["reason"].as_str().unwrap_or_default();
                assert!(reason.contains(about), "{method} {path}: {answer}");
            }
            let large = "x".repeat(super::super::BODY_BYTES_MAX + 1);
            let answer = send(&routes, "PUT", "/tabs", Some(&token), format!("\"{large}\"")).await;
            assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
            assert_eq!(answer.headers()["content-type"], "application/json");
        });
    }
}
