//! The messages that the webhook's receiver gets.

use serde::Serialize;
use serde_json::{Value, json};

use super::judge::{AlertState, Subject};
use crate::clock::iso;

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Firing,
    Resolved,
    Test,
}

/// Returns the message about an alert that begins or ends.
pub(super) fn message(
    status: Status,
    id: i64,
    subject: &Subject,
    state: &AlertState,
    name: &str,
    now_ms: i64,
) -> Value {
    let word = match status {
        Status::Resolved => "resolved",
        Status::Firing | Status::Test => "firing",
    };
    json!({
        "id": format!("{id}-{word}"),
        "status": status,
        "rule": subject.rule,
        "severity": subject.rule.severity(),
        "target": {"kind": subject.target.kind(), "id": subject.target.id(), "name": name},
        "part": subject.part,
        "words": state.words,
        "since": iso(state.since_ms),
        "at": iso(now_ms),
        "text": format!("[{word}] {} {name}: {}", subject.target.kind(), state.words),
    })
}

/// Returns the message with which an admin tries the webhook.
pub(super) fn test_message(user: &str, now_ms: i64) -> Value {
    json!({
        "id": format!("test-{now_ms}"), "status": Status::Test, "rule": null, "severity": "ok", "target": null,
        "part": "", "words": format!("{user} tries this webhook"), "since": iso(now_ms), "at": iso(now_ms),
        "text": format!("[test] {user} tries this webhook"),
    })
}
