//! The servers' refusals and their words: of whole requests before any part of them is executed, and of
//! single documents. Seen on OpenSearch 3.8 and Elasticsearch 7.10.

use memchr::{memchr, memmem};
use serde_json::{Value, json};

use super::api::no_such_index;
use super::bulk::{Action, Defaults, any_action};
use super::flavour::Flavour;
use super::http::Head;
use super::index::Index;
use super::state::{ClusterContext, ClusterState};

/// Why a request is not executed.
#[derive(Debug)]
pub(super) enum RequestError<'a> {
    NoSuchIndex(&'a str),
    /// The request is refused with this status and error.
    Refused {
        status: u16,
        error: Value,
    },
}

// === impl RequestError ===

impl RequestError<'_> {
    /// Returns the server's answer.
    pub(super) fn answer(self) -> (u16, Value) {
        match self {
            RequestError::NoSuchIndex(name) => no_such_index(name),
            RequestError::Refused { status, error } => (status, json!({"error": error, "status": status})),
        }
    }
}

/// Returns the answer to a whole bulk that is refused because of one of its lines. Lines are searched only
/// where there may be such a line.
pub(super) fn of_whole(shared: &ClusterContext, body: &[u8], defaults: &Defaults) -> Option<(u16, Value)> {
    let flavour = shared.spec.flavour;
    let state = shared.state();
    let strict =
        flavour.wants_an_id_to_miss_a_routing() && state.indices.values().any(|index| index.routing_required);
    if !strict && memmem::find(body, b"\"retry_on_conflict\"").is_none() {
        return None;
    }
    let mut lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut null_id_at_last = false;
    while let Some(line) = lines.next() {
        if let Some(retries) = retries(line)
            && i32::try_from(retries).is_err()
        {
            return Some(out_of_range(flavour, retries));
        }
        let Some(action) = any_action(line) else { break };
        if action.operation != "delete" {
            lines.next();
        }
        let name = action.index.as_deref().or(defaults.index.as_deref());
        let index = name.and_then(|name| state.index(name));
        null_id_at_last |= strict
            && index.is_some_and(|index| index.routing_required)
            && action.id.is_none()
            && action
                .routing
                .as_deref()
                .or(defaults.routing.as_deref())
                .is_none();
    }
    // Lines are parsed before any document is looked at.
    null_id_at_last.then(null_id)
}

fn retries(line: &[u8]) -> Option<u64> {
    let key = b"\"retry_on_conflict\"";
    let at = memmem::find(line, key)? + key.len();
    let rest = &line[at + memchr(b':', &line[at..])? + 1..];
    let digits: Vec<u8> = rest
        .iter()
        .copied()
        .skip_while(|byte| *byte == b' ')
        .take_while(u8::is_ascii_digit)
        .collect();
    String::from_utf8(digits).ok()?.parse().ok()
}

fn out_of_range(flavour: Flavour, number: u64) -> (u16, Value) {
    let status = if flavour == Flavour::Elasticsearch7 {
        500
    } else {
        400
    };
    let reason = format!("Numeric value ({number}) out of range of int (-2147483648 - 2147483647)");
    (status, whole(status, "input_coercion_exception", &reason))
}

/// Returns the answer when a `RoutingMissingException` gets no id.
pub(super) fn null_id() -> (u16, Value) {
    (500, whole(500, "null_pointer_exception", "id must not be null"))
}

fn whole(status: u16, kind: &str, reason: &str) -> Value {
    let cause = json!({"type": kind, "reason": reason});
    json!({"error": {"root_cause": [cause], "type": kind, "reason": reason}, "status": status})
}

/// Returns why no write to this name is taken, whatever the document: its index is closed, or it is an alias
/// without an index that takes the writes.
pub(super) fn of_name(state: &ClusterState, name: &str) -> Option<(u16, Value)> {
    if state.unled.contains(name) {
        let reason = format!(
            "no write index is defined for alias [{name}]. The write index may be explicitly disabled using \
             is_write_index=false or the alias points to multiple indices without one being designated as a write index"
        );
        return Some((
            400,
            json!({"type": "illegal_argument_exception", "reason": reason}),
        ));
    }
    let closed = state.index(name).is_some_and(|index| index.closed);
    closed.then(|| {
        let error = json!({"type": "index_closed_exception", "reason": "closed", "index": name});
        (400, error)
    })
}

/// Returns the error of a document whose routing is missing.
pub(super) fn of_document(
    shared: &ClusterContext,
    index: &Index,
    action: &Action<'_>,
    routing: Option<&str>,
) -> Option<Value> {
    let missing = index.routing_required && routing.is_none();
    let named = action.id.is_some() || !shared.spec.flavour.wants_an_id_to_miss_a_routing();
    (missing && named).then(|| routing_missing(&index.name, action.id.as_deref()))
}

pub(super) fn routing_missing(index: &str, id: Option<&str>) -> Value {
    let reason = format!("routing is required for [{index}]/[{}]", id.unwrap_or("made"));
    json!({"type": "routing_missing_exception", "reason": reason, "index": index, "index_uuid": "_na_"})
}

/// Returns the error of a document that is not JSON, in the words of Elasticsearch 7: they quote the
/// beginning of the bytes read from the network, with the head and the neighbouring documents. Other servers
/// quote nothing, and take any document here.
pub(super) fn of_source(shared: &ClusterContext, head: &Head, body: &[u8], source: &[u8]) -> Option<Value> {
    let reads = shared.spec.flavour == Flavour::Elasticsearch7 && shared.spec.store && !source.is_empty();
    if !reads || serde_json::from_slice::<serde::de::IgnoredAny>(source).is_ok() {
        return None;
    }
    let account = head.authorization.as_deref();
    let account = account.map_or(String::new(), |account| format!("Authorization: {account}\r\n"));
    let mut read = format!("{} {} HTTP/1.1\r\n{account}\r\n", head.method, head.path);
    read.push_str(&String::from_utf8_lossy(
        &body[..body.len().min(QUOTED_BYTES_MAX)],
    ));
    let reason = format!(
        "Unrecognized character escape 'x' (code 120)\n at [Source: (byte[])\"{read}\"[truncated {} bytes]; line: 1, column: 9]",
        body.len().saturating_sub(QUOTED_BYTES_MAX)
    );
    let cause = json!({"type": "json_parse_exception", "reason": reason});
    Some(json!({"type": "mapper_parsing_exception", "reason": "failed to parse", "caused_by": cause}))
}

const QUOTED_BYTES_MAX: usize = 500;
