//! The only ingest pipeline that runs here, `stamps`, and the way in which OpenSearch runs it: for all
//! documents of a request and index at once, so that one document that cannot be read fails them all.

use std::collections::HashSet;

use memchr::memchr;
use serde_json::{Value, json};

use super::bulk::any_action;
use super::http::Head;
use super::state::ClusterContext;

/// Returns a document as the pipeline leaves it, if it goes through the pipeline.
pub(super) fn stamped(head: &Head, operation: &str, source: &[u8]) -> Option<Vec<u8>> {
    let runs = operation != "update" && runs(head);
    let mut document: Value = serde_json::from_slice(source).ok().filter(|_| runs)?;
    document["stamped"] = json!(true);
    Some(document.to_string().into_bytes())
}

fn runs(head: &Head) -> bool {
    head.parameter("pipeline").as_deref() == Some("stamps")
}

/// Returns the names for which some document cannot be read, if all their documents go through the pipeline.
pub(super) fn names_unread(
    shared: &ClusterContext,
    head: &Head,
    body: &[u8],
    default: Option<&str>,
) -> HashSet<String> {
    let mut names = HashSet::new();
    if !shared.spec.flavour.is_opensearch() || !runs(head) {
        return names;
    }
    let mut at = 0;
    while let Some(end) = memchr(b'\n', &body[at..]).map(|found| at + found) {
        let Some(action) = any_action(&body[at..end]) else {
            break;
        };
        at = end + 1;
        if action.operation == "delete" {
            continue;
        }
        let Some(end) = memchr(b'\n', &body[at..]).map(|found| at + found) else {
            break;
        };
        let readable = serde_json::from_slice::<serde::de::IgnoredAny>(&body[at..end]).is_ok();
        at = end + 1;
        if let Some(name) = action.index.as_deref().or(default)
            && action.operation != "update"
            && !readable
        {
            names.insert(name.to_owned());
        }
    }
    names
}

/// Returns the error that all documents get in that case (OpenSearch 2.19).
pub(super) fn unread() -> Value {
    let cause = json!({"type": "json_e_o_f_exception",
        "reason": "Unexpected end-of-input within/between Object entries\n at [Source: REDACTED (`StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION` disabled); line: 1, column: 6]"});
    json!({"type": "parse_exception", "reason": "Failed to parse content to map", "caused_by": cause})
}
