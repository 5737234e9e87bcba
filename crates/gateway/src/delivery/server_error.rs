//! Errors of operations and of requests, as servers word them.

use std::fmt::{Display, Formatter, Result};

use serde_json::Value;

/// An error as the cluster words it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    pub(crate) status: u16,
    pub(crate) kind: String,
    pub(crate) reason: String,
}

// === impl Error ===

impl Display for Error {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        write!(out, "{} {}: {}", self.status, self.kind, self.reason)
    }
}

/// Reads an error as the servers write it, with its causes.
pub(super) fn error_of(status: u16, body: &Value) -> Option<Error> {
    let error = body.get("error")?;
    let kind = error["type"].as_str()?.to_owned();
    let mut reason = error["reason"].as_str().unwrap_or_default().to_owned();
    let mut cause = &error["caused_by"];
    while let Some(text) = cause["reason"].as_str() {
        reason.push_str("; caused by ");
        reason.push_str(cause["type"].as_str().unwrap_or_default());
        reason.push_str(": ");
        reason.push_str(text);
        cause = &cause["caused_by"];
    }
    Some(Error { status, kind, reason })
}
