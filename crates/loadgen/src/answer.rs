//! Reads answers, in particular what became of each operation of a bulk.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bulk::{Op, Reply};
use memchr::memmem::{self, Finder};
use serde::Deserialize;
use serde::de::IgnoredAny;

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

// === impl Items ===

impl Items {
    /// Counts an item. `error` is the type of its error, if its operation failed.
    fn add(&mut self, status: Option<u16>, error: Option<String>, head: &Head) {
        if let Some(status) = status {
            *self.statuses.entry(status).or_default() += 1;
        }
        match error {
            Some(kind) => {
                self.failed += 1;
                *self.errors.entry(kind).or_default() += 1;
            }
            // A `filter_path` may have left out both the status and the error.
            None if status.is_none() && !head.all_well => self.unknown += 1,
            None => self.succeeded += 1,
        }
    }
}

/// Why an answer cannot be counted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error("the answer is not that of a bulk: {0}")]
    NotBulk(serde_json::Error),
    #[error("more operations than an answer can have")]
    TooMany,
    #[error("documents failed, and the answer does not say which")]
    FailedUnnamed,
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
        return look_without_head(answer, operations, items);
    }
    let count = u32::try_from(operations).map_err(|_| AnswerError::TooMany)?;
    let reply = match Reply::split(answer, count) {
        Ok(reply) => reply,
        Err(error) if head.is_whole() => return Err(AnswerError::Items(error)),
        // An answer without `took` or `errors` (again because of a `filter_path`) is read the slow way.
        Err(_) => return look_slowly(answer, operations, &head, items),
    };
    let failed = |item| {
        let facts = reply.facts(item);
        has_failed(facts.op == Some(Op::Delete), facts.status, facts.failed)
    };
    if head.has_errors && !(0..reply.items()).any(failed) {
        return Err(AnswerError::FailedUnnamed);
    }
    for item in 0..reply.items() {
        let kind = failed(item).then(|| error_type(reply.item(item)));
        items.add(reply.facts(item).status, kind, &head);
    }
    Ok(head.took_ms)
}

/// Reads an answer that does not begin as servers usually write it: a `filter_path` left its items out, or it
/// is laid out for people.
fn look_without_head(answer: &[u8], operations: u64, items: &mut Items) -> Result<Option<u64>, AnswerError> {
    let bare: Bare = serde_json::from_slice(answer).map_err(AnswerError::NotBulk)?;
    let head = Head {
        took_ms: bare.took,
        all_well: bare.errors == Some(false),
        has_errors: bare.errors == Some(true),
        items_at: None,
    };
    match bare.items {
        Some(_) => look_slowly(answer, operations, &head, items),
        None if head.has_errors => Err(AnswerError::FailedUnnamed),
        None if head.all_well => {
            items.succeeded += operations;
            Ok(head.took_ms)
        }
        None => {
            items.unknown += operations;
            Ok(head.took_ms)
        }
    }
}

/// Whether an item's operation failed. A `filter_path` may have left the item's error out.
fn has_failed(is_delete: bool, status: Option<u16>, has_error: bool) -> bool {
    // A delete that found nothing has status 404 and no error.
    has_error || status.is_some_and(|status| status >= 400 && !(is_delete && status == 404))
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
    /// The head contains `"errors":true`.
    has_errors: bool,
    /// The position at which the first item begins.
    items_at: Option<usize>,
}

/// An answer without the details of its items.
#[derive(Deserialize)]
struct Bare {
    took: Option<u64>,
    items: Option<IgnoredAny>,
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
            has_errors: memmem::find(head, b"\"errors\":true").is_some(),
            items_at,
        }
    }

    /// Whether no `filter_path` left a part of the head out.
    fn is_whole(&self) -> bool {
        self.took_ms.is_some() && (self.all_well || self.has_errors)
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
    kind_of(parsed.into_values().next().and_then(|item| item.error))
}

/// Returns the type of an error.
fn kind_of(error: Option<FailedError>) -> String {
    match error {
        Some(FailedError::Object { kind }) => kind,
        // Elasticsearch 1 and some proxies write a sentence here.
        Some(FailedError::Text(text)) => text,
        None => "unknown".to_owned(),
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
fn look_slowly(
    answer: &[u8],
    operations: u64,
    head: &Head,
    items: &mut Items,
) -> Result<Option<u64>, AnswerError> {
    let filtered: Filtered = serde_json::from_slice(answer).map_err(AnswerError::NotBulk)?;
    if filtered.items.len() as u64 != operations {
        items.unknown += operations;
        return Ok(head.took_ms);
    }
    let failed =
        |(name, item): &(String, FailedItem)| has_failed(name == "delete", item.status, item.error.is_some());
    let of_items = filtered
        .items
        .into_iter()
        .filter_map(|item| item.into_iter().next());
    let of_items: Vec<(String, FailedItem)> = of_items.collect();
    if head.has_errors && !of_items.iter().any(failed) {
        return Err(AnswerError::FailedUnnamed);
    }
    for item in of_items {
        let has_failed = failed(&item);
        let (_, FailedItem { status, error }) = item;
        items.add(status, has_failed.then(|| kind_of(error)), head);
    }
    Ok(head.took_ms)
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
    fn an_answer_with_errors_that_names_none_is_no_success() {
        let mut items = Items::default();
        for unnamed in [
            r#"{"took":1,"errors":true}"#,
            r#"{"took":1,"errors":true,"items":[{"index":{"_id":"1"}},{"index":{"_id":"2"}}]}"#,
            r#"{"errors":true,"items":[{"index":{"_id":"1"}},{"index":{"_id":"2"}}]}"#,
        ] {
            let looked = look(unnamed.as_bytes(), 2, &mut items);
            assert!(matches!(looked, Err(AnswerError::FailedUnnamed)), "{unnamed}");
        }
        assert_eq!(items, Items::default());
    }

    #[test]
    fn items_without_their_errors_count_by_status_and_without_both_as_unknown() {
        for head in [r#""took":1,"#, ""] {
            let mut items = Items::default();
            let answer = format!(
                r#"{{{head}"items":[{{"index":{{"status":400}}}},{{"delete":{{"status":404}}}},{{"index":{{"_id":"3"}}}}]}}"#
            );
            look(answer.as_bytes(), 3, &mut items).unwrap();
            assert_eq!(
                (items.succeeded, items.failed, items.unknown),
                (1, 1, 1),
                "{answer}"
            );
            assert_eq!(items.errors, BTreeMap::from([("unknown".to_owned(), 1)]));
        }
        let mut items = Items::default();
        let well = br#"{"took":1,"errors":false,"items":[{"index":{"_id":"1"}}]}"#;
        look(well, 1, &mut items).unwrap();
        assert_eq!((items.succeeded, items.unknown), (1, 0));
    }

    #[test]
    fn an_answer_laid_out_for_people_counts_as_the_compact_one() {
        let compact = answer(true, &[CREATED, REJECTED]);
        let value: serde_json::Value = serde_json::from_str(&compact).unwrap();
        let (mut items, mut wanted) = (Items::default(), Items::default());
        look(compact.as_bytes(), 2, &mut wanted).unwrap();
        let took = look(format!("{value:#}").as_bytes(), 2, &mut items).unwrap();
        assert_eq!((took, items), (Some(7), wanted));
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
