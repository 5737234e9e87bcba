//! The only place where an error becomes an HTTP response.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::draft::BadDraft;
use crate::outbound::AskError;
use crate::password::NotHashed;
use crate::roles::Role;
use crate::store::StoreError;

/// An unsuccessful answer.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    kind: &'static str,
    reason: String,
    more: Vec<(&'static str, Value)>,
}

impl From<BadDraft> for Refusal {
    fn from(error: BadDraft) -> Self {
        Self::bad(error.to_string())
    }
}

impl Refusal {
    fn new(status: StatusCode, kind: &'static str, reason: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            reason: reason.into(),
            more: Vec::new(),
        }
    }

    pub(crate) fn bad(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", reason)
    }

    pub(crate) fn conflict(kind: &'static str, reason: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, kind, reason)
    }

    /// A server that was asked did not answer.
    pub(crate) fn unreachable(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "unreachable", reason)
    }

    pub(crate) fn not_found(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", reason)
    }

    pub(crate) fn method() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            "this endpoint has no such method",
        )
    }

    pub(crate) fn forbidden(kind: &'static str, reason: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, kind, reason)
    }

    /// Refuses a role that is too low. The page says which role is missing.
    pub(crate) fn missing_role(needs: Role, has: Role, on: &str) -> Self {
        let reason = format!("this needs the role {needs} {on}, and yours is {has}");
        Self {
            more: vec![("missing", json!({"needs": needs, "has": has}))],
            ..Self::forbidden("missing_role", reason)
        }
    }

    /// Nobody is logged in. The page asks for a login, or for the first user.
    pub(crate) fn unauthorized(reason: impl Into<String>, first_start: Option<bool>) -> Self {
        let refusal = Self::new(StatusCode::UNAUTHORIZED, "unauthorized", reason);
        Self {
            more: first_start
                .map(|first| ("first_start", json!(first)))
                .into_iter()
                .collect(),
            ..refusal
        }
    }

    pub(crate) fn too_many(wait: std::time::Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let reason = format!("too many failed logins: try again in {seconds} s");
        let refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, "throttled", reason);
        Self {
            more: vec![("retry_after_s", json!(seconds))],
            ..refusal
        }
    }

    pub(crate) fn too_many_streams(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", reason)
    }

    /// Others take all of the memory for bodies or answers.
    pub(crate) fn no_memory(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "no_memory", reason)
    }

    /// The call would change something, so the user has to confirm it.
    pub(crate) fn confirm(index: &str) -> Self {
        let reason = format!("this cluster is protected: type `{index}` and say why");
        let refusal = Self::new(StatusCode::CONFLICT, "confirm", reason);
        Self {
            more: vec![("confirm", json!({"index": index}))],
            ..refusal
        }
    }

    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", reason)
    }

    /// Refuses a request that cannot be read, with the status that says why.
    pub(super) fn unreadable(status: StatusCode, reason: impl Into<String>) -> Self {
        Self::bad(reason).with_status(status)
    }

    /// Adds something that the page has to know.
    pub(crate) fn with(mut self, name: &'static str, value: Value) -> Self {
        self.more.push((name, value));
        self
    }

    fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut body = json!({
            "error": {"type": self.kind, "reason": self.reason}, "status": self.status.as_u16(),
        });
        for (name, value) in self.more {
            body[name] = value;
        }
        (self.status, Json(body)).into_response()
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Taken(_) => Self::new(StatusCode::CONFLICT, "taken", error.to_string()),
            StoreError::LastAdmin => Self::new(StatusCode::CONFLICT, "last_admin", error.to_string()),
            StoreError::Missing => Self::not_found(error.to_string()),
            _ => {
                tracing::error!(%error, "the store fails");
                Self::failed(error.to_string())
            }
        }
    }
}

impl From<NotHashed> for Refusal {
    fn from(error: NotHashed) -> Self {
        Self::failed(error.to_string()).with_status(StatusCode::SERVICE_UNAVAILABLE)
    }
}

impl From<AskError> for Refusal {
    fn from(error: AskError) -> Self {
        match error {
            AskError::NoRoom(_) => Self::no_memory(error.to_string()),
            _ => Self::unreachable(error.to_string()),
        }
    }
}
