//! The only place where an error becomes HTTP for the users of the admin port. The clients of entries have
//! [`crate::error`].

use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde_json::json;

/// An error of the admin port, in the shape of the clusters' errors.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    kind: &'static str,
    reason: String,
}

// === impl Refusal ===

impl Refusal {
    /// 400: the request cannot be understood, or asks for something impossible.
    pub(super) fn invalid(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "illegal_argument_exception", reason)
    }

    /// 401.
    pub(super) fn unauthorized(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "security_exception", reason)
    }

    /// 403.
    pub(super) fn forbidden(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "security_exception", reason)
    }

    /// 404: the named object does not exist.
    pub(super) fn not_found(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", reason)
    }

    /// 405.
    pub(super) fn method() -> Self {
        let reason = "this endpoint has other methods; GET / lists them";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", reason)
    }

    /// 409: not possible in the present state.
    pub(super) fn conflict(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", reason)
    }

    /// 421: the request is not for this connection, and may be repeated on a new one.
    pub(super) fn misdirected(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::MISDIRECTED_REQUEST, "misdirected", reason)
    }

    /// 503: the request may be repeated later.
    pub(super) fn unavailable(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", reason)
    }

    /// 500: the gateway failed.
    pub(super) fn failed(error: impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "exception", error.to_string())
    }

    fn new(status: StatusCode, kind: &'static str, reason: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            reason: reason.into(),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let error = json!({"type": self.kind, "reason": self.reason});
        let body = json!({"error": error, "status": self.status.as_u16()});
        (self.status, Json(body)).into_response()
    }
}
