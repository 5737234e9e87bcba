//! The items of a bulk's answer, as `filter_path` selects them.

use std::io::Write as _;

use serde_json::{Value, json};

use super::fault::Fault;
use super::filter_path::filter;
use super::http::Head;
use super::index::Index;

/// The wanted parts of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shape {
    All,
    /// Statuses and errors of the items. They are written in this form at once, since filtering a complete
    /// answer takes long.
    Bare,
    /// The parts that this `filter_path` selects.
    Filtered(String),
}

impl Shape {
    pub(super) fn of(head: &Head) -> Self {
        let Some(paths) = head.parameter("filter_path").filter(|paths| !paths.is_empty()) else {
            return Self::All;
        };
        let mut wanted: Vec<&str> = paths.split(',').collect();
        wanted.sort_unstable();
        match wanted == ["errors", "items.*.error", "items.*.status", "took"] {
            true => Self::Bare,
            false => Self::Filtered(paths),
        }
    }

    /// Filters an answer that is already written.
    pub(super) fn apply(&self, answer: &mut Vec<u8>) {
        if let Self::Filtered(paths) = self
            && let Ok(value) = serde_json::from_slice::<Value>(answer)
        {
            *answer = filter(&value, paths).to_string().into_bytes();
        }
    }
}

/// Writes an item with nothing but the outcome.
pub(super) fn bare(items: &mut Vec<u8>, operation: &str, status: u16, error: Option<&str>) {
    items.extend_from_slice(b",{\"");
    items.extend_from_slice(operation.as_bytes());
    items.extend_from_slice(b"\":{\"status\":");
    write!(items, "{status}").expect("a Vec takes every write");
    if let Some(error) = error {
        items.extend_from_slice(b",\"error\":");
        items.extend_from_slice(error.as_bytes());
    }
    items.extend_from_slice(b"}}");
}

/// Returns whether an update's answer is to hold the document: its line, its body or the URL asks for that.
pub(super) fn wants_document(head: &Head, of_line: Option<bool>, source: &[u8]) -> bool {
    let asks = |value: &Value| !value.is_null() && *value != false;
    let of_url = ["_source", "_source_includes", "_source_excludes"]
        .iter()
        .any(|name| head.parameter(name).is_some_and(|value| value != "false"));
    let in_body = memchr::memmem::find(source, b"\"_source\"").is_some();
    of_line.unwrap_or(of_url)
        || in_body && serde_json::from_slice::<Value>(source).is_ok_and(|body| asks(&body["_source"]))
}

/// Returns the `get` of an update's item, which precedes its `status`: the whole document, whatever fields
/// are asked for.
pub(super) fn document(index: &Index, id: &str) -> String {
    let doc = index.doc(id);
    let source = doc.map_or_else(|| "{}".to_owned(), |doc| doc.source);
    format!("\"get\":{{\"found\":true,\"_source\":{source}}},")
}

/// Returns the `get` of an item from a node that sends more than it is asked for.
pub(super) fn bloat(fault: Option<&Fault>) -> Option<String> {
    let Some(Fault::Bloated(bytes)) = fault else {
        return None;
    };
    let text = json!("é\\\"status\":500}},{".repeat(bytes / 20 + 1));
    Some(format!(
        "\"get\":{{\"status\":500,\"error\":{{}},\"_source\":{{\"t\":{text}}}}},"
    ))
}
