//! Reads answers, in particular what became of each operation of a bulk.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bulk::Reply;
use memchr::memmem::{self, Finder};
use serde::Deserialize;

/// Counts of what became of operations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Items {
    /// Operations whose item has no error.
    pub(crate) succeeded: u64,
    /// Operations whose item has an error.
    pub(crate) failed: u64,
    /// Operations in requests that were refused as a whole.
    pub(crate) refused: u64,
    /// Operations whose fate is unknown: no answer came, or the answer does not mention them.
    pub(crate) unknown: u64,
    /// Items by their status.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// Failed items by the type of their error.
    pub(crate) errors: BTreeMap<String, u64>,
}

/// Why an answer does not belong to the bulk that was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error("the answer is not that of a bulk: {0}")]
    NotBulk(serde_json::Error),
    #[error("more operations than an answer can have")]
    TooMany,
    #[error("{0}")]
    Items(bulk::MergeError),
}

/// Reads the answer to a bulk of `operations` operations. Returns the server's own `took` in milliseconds.
///
/// # Errors
/// If it is not the answer to such a bulk; nothing is counted then.
pub(crate) fn look(answer: &[u8], operations: u64, items: &mut Items) -> Result<Option<u64>, AnswerError> {
    let head = Head::of(answer);
    if head.all_well && count_all_well(answer, &head, operations, items) {
        return Ok(head.took_ms);
    }
    if head.items_at.is_none() {
        return match serde_json::from_slice::<Bare>(answer) {
            // A `filter_path` left the items out, but kept `errors`.
            Ok(Bare {
                errors: Some(false), ..
            }) => {
                items.succeeded += operations;
                Ok(head.took_ms)
            }
            Ok(_) => {
                items.unknown += operations;
                Ok(head.took_ms)
            }
            Err(error) => Err(AnswerError::NotBulk(error)),
        };
    }
    let count = u32::try_from(operations).map_err(|_| AnswerError::TooMany)?;
    let reply = match Reply::split(answer, count) {
        Ok(reply) => reply,
        Err(error) if head.took_ms.is_some() => return Err(AnswerError::Items(error)),
        // An answer without `took` (again because of a `filter_path`) is read the slow way.
        Err(_) => return look_slowly(answer, operations, items),
    };
    for item in 0..reply.items() {
        let facts = reply.facts(item);
        if let Some(status) = facts.status {
            *items.statuses.entry(status).or_default() += 1;
        }
        if facts.failed {
            items.failed += 1;
            let kind = error_type(reply.item(item));
            *items.errors.entry(kind).or_default() += 1;
        } else {
            items.succeeded += 1;
        }
    }
    Ok(head.took_ms)
}

/// Counts the operations of a bulk body, by its action lines.
pub(crate) fn operations(body: &[u8]) -> u64 {
    let mut lines = body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.trim_ascii().is_empty());
    let mut count = 0;
    while let Some(action) = lines.next() {
        count += 1;
        let quote = memchr::memchr(b'"', action).map_or(action.len(), |at| at + 1);
        if !action[quote..].starts_with(b"delete\"") {
            lines.next();
        }
    }
    count
}

/// The part of an answer before its items.
#[derive(Debug, Default)]
struct Head {
    took_ms: Option<u64>,
    /// The head contains `"errors":false`.
    all_well: bool,
    /// The position at which the first item begins.
    items_at: Option<usize>,
}

/// An answer without items.
#[derive(Deserialize)]
struct Bare {
    errors: Option<bool>,
}

// === impl Head ===

impl Head {
    fn of(answer: &[u8]) -> Head {
        let start = &answer[..answer.len().min(HEAD_BYTES)];
        let items_at = memmem::find(start, b"\"items\":[").map(|at| at + 9);
        let head = &start[..items_at.unwrap_or(start.len())];
        let took = memmem::find(head, b"\"took\":").map(|at| {
            let digits = head[at + 7..].iter().take_while(|byte| byte.is_ascii_digit());
            digits.fold(0_u64, |sum, digit| {
                sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
            })
        });
        Head {
            took_ms: took,
            all_well: memmem::find(head, b"\"errors\":false").is_some(),
            items_at,
        }
    }
}

/// Counts the items of a compact answer whose head says that none failed. Returns false if it can't be sure
/// of their number.
///
/// Each boundary between two items reads `}},{"`. The text may occur elsewhere too, but every true boundary
/// matches: as many matches as boundaries mean that there is no false one.
fn count_all_well(answer: &[u8], head: &Head, operations: u64, items: &mut Items) -> bool {
    let Some(inner) = head
        .items_at
        .and_then(|at| answer.get(at..)?.strip_suffix(b"}}]}"))
    else {
        return false;
    };
    let (mut count, mut last, mut run, mut other) = (1_u64, 0_u16, 0_u64, false);
    let mut statuses: Vec<(u16, u64)> = Vec::new();
    let mut add = |status: Option<u16>| match status {
        Some(status) if status == last => run += 1,
        Some(status) => {
            statuses.push((last, run));
            (last, run) = (status, 1);
        }
        None => other = true,
    };
    for boundary in BOUNDARY.find_iter(inner) {
        count += 1;
        add(status_before(&inner[..boundary]));
    }
    add(status_before(inner));
    statuses.push((last, run));
    if count != operations || other {
        return false;
    }
    for (status, count) in statuses.into_iter().filter(|(_, count)| *count > 0) {
        *items.statuses.entry(status).or_default() += count;
    }
    items.succeeded += operations;
    true
}

/// Returns the status with which an item ends.
fn status_before(text: &[u8]) -> Option<u16> {
    let [.., one, two, three] = text else {
        return None;
    };
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u16::from(byte - b'0'));
    let status = digit(one)? * 100 + digit(two)? * 10 + digit(three)?;
    text[..text.len() - 3].ends_with(b"\"status\":").then_some(status)
}

/// Returns the type of a failed item's error.
fn error_type(item: &[u8]) -> String {
    let parsed = serde_json::from_slice::<BTreeMap<String, FailedItem>>(item).unwrap_or_default();
    match parsed.into_values().next().map(|item| item.error) {
        Some(Some(FailedError::Object { kind })) => kind,
        // Elasticsearch 1 and some proxies write a sentence here.
        Some(Some(FailedError::Text(text))) => text,
        _ => "unknown".to_owned(),
    }
}

#[derive(Deserialize)]
struct FailedItem {
    status: Option<u16>,
    error: Option<FailedError>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum FailedError {
    Object {
        #[serde(rename = "type")]
        kind: String,
    },
    Text(String),
}

#[derive(Deserialize)]
struct Filtered {
    items: Vec<BTreeMap<String, FailedItem>>,
}

/// Reads an answer whose keys were filtered.
fn look_slowly(answer: &[u8], operations: u64, items: &mut Items) -> Result<Option<u64>, AnswerError> {
    let filtered: Filtered = serde_json::from_slice(answer).map_err(AnswerError::NotBulk)?;
    if filtered.items.len() as u64 != operations {
        items.unknown += operations;
        return Ok(None);
    }
    for item in filtered
        .items
        .into_iter()
        .filter_map(|item| item.into_values().next())
    {
        if let Some(status) = item.status {
            *items.statuses.entry(status).or_default() += 1;
        }
        match item.error {
            Some(error) => {
                let kind = match error {
                    FailedError::Object { kind } => kind,
                    FailedError::Text(text) => text,
                };
                items.failed += 1;
                *items.errors.entry(kind).or_default() += 1;
            }
            None => items.succeeded += 1,
        }
    }
    Ok(None)
}

static BOUNDARY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"}},{\""));
const HEAD_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(errors: bool, items: &[&str]) -> String {
        format!(
            "{{\"took\":7,\"errors\":{errors},\"items\":[{}]}}",
            items.join(",")
        )
    }

    const CREATED: &str = r#"{"index":{"_index":"i","_id":"1","result":"created","status":201}}"#;
    const UPDATED: &str = r#"{"index":{"_index":"i","_id":"}},{\"","result":"updated","status":200}}"#;
    const REJECTED: &str = r#"{"index":{"_index":"i","_id":"3","status":429,"error":{"type":"es_rejected_execution_exception","reason":"x"}}}"#;

    #[test]
    fn every_item_is_counted_by_its_status() {
        let mut items = Items::default();
        let answer = answer(false, &[CREATED, CREATED, UPDATED]);
        assert_eq!(look(answer.as_bytes(), 3, &mut items).unwrap(), Some(7));
        assert_eq!((items.succeeded, items.failed), (3, 0));
        assert_eq!(items.statuses, BTreeMap::from([(200, 1), (201, 2)]));
    }

    #[test]
    fn errors_inside_a_200_are_found_and_named() {
        let mut items = Items::default();
        let answer = answer(true, &[CREATED, REJECTED, REJECTED]);
        assert_eq!(look(answer.as_bytes(), 3, &mut items).unwrap(), Some(7));
        assert_eq!((items.succeeded, items.failed), (1, 2));
        assert_eq!(items.errors["es_rejected_execution_exception"], 2);
        assert_eq!(items.statuses, BTreeMap::from([(201, 1), (429, 2)]));
    }

    #[test]
    fn an_answer_with_too_few_items_is_no_success() {
        let mut items = Items::default();
        let answer = answer(false, &[CREATED, CREATED]);
        assert!(look(answer.as_bytes(), 3, &mut items).is_err());
        assert!(look(b"<html>", 3, &mut items).is_err());
        assert_eq!(items, Items::default());
    }

    #[test]
    fn filtered_answers_count_as_what_they_say() {
        let mut items = Items::default();
        assert_eq!(
            look(br#"{"took":1,"errors":false}"#, 3, &mut items).unwrap(),
            Some(1)
        );
        assert_eq!(look(br#"{"took":1}"#, 4, &mut items).unwrap(), Some(1));
        let statuses =
            br#"{"items":[{"index":{"status":201}},{"index":{"status":400,"error":{"type":"x"}}}]}"#;
        assert_eq!(look(statuses, 2, &mut items).unwrap(), None);
        assert_eq!((items.succeeded, items.failed, items.unknown), (4, 1, 4));
    }

    #[test]
    fn operations_are_counted_by_their_actions() {
        let body = b"{\"index\":{}}\n{\"delete\":1}\n{ \"delete\" :{}}\n{\"create\":{}}\n{}\n\n";
        assert_eq!(operations(body), 3);
    }

    proptest! {
        /// The fast count and the slow one agree.
        #[test]
        fn fast_and_slow_agree(picks in prop::collection::vec(0_usize..3, 1..20), off in 0_u64..2) {
            let texts = [CREATED, UPDATED, r#"{"delete":{"_id":"a","result":"not_found","status":404}}"#];
            let chosen: Vec<&str> = picks.iter().map(|at| texts[*at]).collect();
            let answer = answer(false, &chosen);
            let operations = chosen.len() as u64 + off;
            let (mut fast, mut slow) = (Items::default(), Items::default());
            let head = Head::of(answer.as_bytes());
            let sure = count_all_well(answer.as_bytes(), &head, operations, &mut fast);
            let split = Reply::split(answer.as_bytes(), operations as u32);
            prop_assert!(!sure || split.is_ok());
            if let (true, Ok(reply)) = (sure, split) {
                for item in 0..reply.items() {
                    slow.succeeded += 1;
                    *slow.statuses.entry(reply.status(item).unwrap()).or_default() += 1;
                }
                prop_assert_eq!(fast, slow);
            }
        }
    }
}
