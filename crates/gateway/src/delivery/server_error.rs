//! Errors of operations and of requests, as servers word them.

use std::borrow::Cow;
use std::fmt::{Display, Formatter, Result};

use http::StatusCode;
use serde_json::Value;

use crate::nodes::{is_unexecuted, quote};

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

/// Reads an error as the servers write it, with its causes and without quotes: these may be of the head of a
/// request that had the gateway's account, and errors are kept on disk and shown to operators.
pub(super) fn error_of(status: u16, body: &Value) -> Option<Error> {
    let error = body.get("error")?;
    let kind = error["type"].as_str()?.to_owned();
    let mut reason = unquoted(error["reason"].as_str().unwrap_or_default()).into_owned();
    let mut cause = &error["caused_by"];
    while let Some(text) = cause["reason"].as_str() {
        reason.push_str("; caused by ");
        reason.push_str(cause["type"].as_str().unwrap_or_default());
        reason.push_str(": ");
        reason.push_str(&unquoted(text));
        cause = &cause["caused_by"];
    }
    Some(Error { status, kind, reason })
}

/// Returns the beginning of what a server or something on the way said, as [`error_of`] without quotes.
pub(super) fn words_of(said: &[u8], bytes_max: usize) -> String {
    let said = &said[..said.len().min(bytes_max)];
    match quote::has_mark(said) {
        true => String::from_utf8_lossy(&quote::cut(said)).into_owned(),
        false => String::from_utf8_lossy(said).into_owned(),
    }
}

/// Returns a text of an error without its quotes.
fn unquoted(text: &str) -> Cow<'_, str> {
    if !quote::has_mark(text.as_bytes()) {
        return Cow::Borrowed(text);
    }
    let json = serde_json::to_vec(text).unwrap_or_default();
    Cow::Owned(serde_json::from_slice(&quote::cut(&json)).unwrap_or_default())
}

/// Whether the refusal of a whole request shows that nothing of it was executed. Something on the way may
/// answer in a server's place after the server has executed the request: only a server knows.
pub(super) fn is_refused_unexecuted(status: StatusCode, body: &[u8]) -> bool {
    // By these, nobody has acted on the request (RFC 9110, 15.5.2 and 15.5.8), whoever says so.
    let wants_credentials = matches!(
        status,
        StatusCode::UNAUTHORIZED | StatusCode::PROXY_AUTHENTICATION_REQUIRED
    );
    let is_servers = || status.is_server_error() || is_in_servers_words(status, body);
    is_unexecuted(status, body) && (wants_credentials || is_servers())
}

/// Whether an answer to a whole request has the form that servers and their plugins give to errors.
pub(super) fn is_in_servers_words(status: StatusCode, body: &[u8]) -> bool {
    // Servers refuse a body that is too long before they read it, without a word.
    if status == StatusCode::PAYLOAD_TOO_LARGE && body.is_empty() {
        return true;
    }
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let tells_status = said["status"] == status.as_u16();
    match &said["error"] {
        Value::Object(error) => {
            let is_text = |key| error.get(key).is_some_and(Value::is_string);
            is_text("type") || is_text("reason") && tells_status
        }
        // A method or a media type that servers do not know. Other programs say more, or less.
        Value::String(_) => tells_status && said.as_object().is_some_and(|said| said.len() == 2),
        _ => false,
    }
}

/// The type of an error that says that the account lacks a right.
pub(super) const NO_RIGHT: &str = "security_exception";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_read_without_what_it_quotes() {
        let reason = "bad\n at [Source: (byte[])\"POST /_bulk HTTP/1.1\r\nAuthorization: Basic c2VjcmV0\"[truncated 7 bytes]; line: 1, column: 9]";
        let said = serde_json::json!({"error": {
            "type": "mapper_parsing_exception",
            "reason": reason,
            "caused_by": {"type": "json_parse_exception", "reason": reason},
        }});
        let cut = "bad\n at [Source: (byte[]); line: 1, column: 9]";
        let error = error_of(400, &said).expect("an error");
        assert_eq!(
            error.reason,
            format!("{cut}; caused by json_parse_exception: {cut}")
        );
        let text = said.to_string();
        for bytes_max in 0..text.len() + 9 {
            let words = words_of(text.as_bytes(), bytes_max);
            assert!(!words.contains("Basic"), "{bytes_max}: {words}");
        }
        assert_eq!(words_of(b"plain", 3), "pla");
    }

    #[test]
    fn only_a_server_knows_that_it_has_executed_nothing() {
        let own = r#"{"error":{"root_cause":[],"type":"security_exception","reason":"no"},"status":403}"#;
        let plugin = r#"{"error":{"reason":"forbidden","due_to":["OPERATION_NOT_ALLOWED"]},"status":403}"#;
        let method = r#"{"error":"Incorrect HTTP method for uri [/_bulk]","status":405}"#;
        let spring = r#"{"timestamp":1,"status":405,"error":"Method Not Allowed","path":"/_bulk"}"#;
        let google = r#"{"error":{"code":403,"message":"no","status":"PERMISSION_DENIED"}}"#;
        for (status, body, is_unexecuted) in [
            (403, own, true),
            (429, own, true),
            (400, own, true),
            (403, plugin, true),
            (404, plugin, false),
            (405, method, true),
            (406, method, false),
            (405, spring, false),
            (403, google, false),
            (403, r#"{"message":"Forbidden"}"#, false),
            (403, r#"{"error":"forbidden"}"#, false),
            (403, "[]", false),
            (403, "", false),
            (403, "<html>", false),
            (404, "<html>", false),
            (302, "", false),
            (413, "", true),
            (413, "<html>", false),
            (429, "<html>", false),
            (429, "", false),
            (408, own, false),
            (401, "Unauthorized", true),
            (407, "<html>", true),
            (503, own, false),
            (502, "<html>", false),
            (202, "<html>", false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let told = is_refused_unexecuted(status, body.as_bytes());
            assert_eq!(told, is_unexecuted, "{status} {body}");
        }
    }
}
