//! A dead letter: an operation that a cluster would not take, the reason, and where it came from.

use std::borrow::Cow;

use log::Browsed;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::encoding;

/// Why an operation is dead, and where it came from. It stands in the record's parameters, in clear.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cause {
    /// The consumer group that gave it up.
    pub(crate) group: String,
    /// The cluster that would not take it.
    pub(crate) cluster: String,
    /// Status of the item.
    pub(crate) status: u16,
    /// `type` of its error.
    pub(crate) kind: String,
    /// `reason` of its error; cut if it is long.
    pub(crate) reason: String,
    /// How often it was sent.
    pub(crate) attempts: u32,
    /// When its client was answered, ms since 1970.
    pub(crate) accepted_ms: u64,
    /// Position of its request in the queue, as its client was told.
    pub(crate) position: u64,
    /// Lane, and place in the request's part of that lane: with the position it says which operation it is.
    pub(crate) lane: u32,
    pub(crate) place: u32,
    /// Path and query that it was sent to.
    pub(crate) target: String,
    /// Content type that it was sent with; earlier versions wrote that of its client, which is not used
    /// again.
    #[serde(default = "ndjson")]
    pub(crate) content_type: String,
    /// If it was parked: its record there, and its number in it. Until it is gone from there it does not
    /// count as dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parked: Option<(u64, u32)>,
    /// If this record takes the place of the one that the letter was first put in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rewritten: Option<Rewritten>,
    /// Whether this is not all: the record's last group holds the whole cause.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) apart: bool,
}

/// What a record must still say of the one whose place it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rewritten {
    pub(super) id: u64,
    pub(super) died_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) edited_ms: Option<u64>,
}

/// A dead letter as it lies in the store.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    /// Its name for good: the position of the record that it was first put in.
    pub(crate) id: u64,
    /// Position of the record that it is in now.
    pub(super) at: u64,
    /// Bytes of that record.
    pub(super) bytes: u64,
    /// When it was given up, ms since 1970.
    pub(crate) died_ms: u64,
    /// When it was edited last, if it was.
    pub(crate) edited_ms: Option<u64>,
    pub(crate) cause: Cause,
    /// Action and source, each with its newline; none where the disk has damaged them.
    pub(crate) lines: Option<Vec<u8>>,
    /// The same as they were before the first edit.
    pub(crate) original: Option<Vec<u8>>,
}

/// A letter as the admin port shows it.
#[derive(Serialize)]
pub(crate) struct Shown<'a> {
    id: u64,
    died_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    edited_ms: Option<u64>,
    index: Option<Cow<'a, str>>,
    action: Option<Box<RawValue>>,
    source: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original: Option<Original>,
    status: u16,
    r#type: &'a str,
    reason: &'a str,
    attempts: u32,
    group: &'a str,
    cluster: &'a str,
    accepted_ms: u64,
    origin: Origin<'a>,
}

#[derive(Serialize)]
struct Original {
    action: Option<Box<RawValue>>,
    source: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct Origin<'a> {
    position: u64,
    lane: u32,
    place: u32,
    target: &'a str,
}

fn ndjson() -> String {
    "application/x-ndjson".to_owned()
}

// === impl Letter ===

impl Letter {
    /// The letter in a record; none if it is not one that this version knows.
    pub(super) fn of(mut record: Browsed) -> Option<Self> {
        let encoding::Read {
            cause,
            lines,
            original,
        } = encoding::read(&mut record)?;
        let at = record.receipt.position;
        let (id, died_ms, edited_ms) = match (record.kind, &cause.rewritten) {
            (FIRST, _) => (at, record.time_ms, None),
            (REWRITTEN, Some(before)) => (before.id, before.died_ms, before.edited_ms),
            _ => return None,
        };
        Some(Self {
            id,
            at,
            bytes: record.receipt.bytes,
            died_ms,
            edited_ms,
            cause,
            lines,
            original,
        })
    }

    /// The index that it was for: as its action says, or else its URL.
    pub(crate) fn index(&self) -> Option<Cow<'_, str>> {
        let action: Option<Value> = serde_json::from_slice(first_line(self.lines.as_deref()?)).ok();
        let named = action.as_ref().and_then(|action| {
            let meta = action.as_object()?.values().next()?;
            Some(meta.get("_index")?.as_str()?.to_owned())
        });
        if let Some(named) = named {
            return Some(Cow::Owned(named));
        }
        let path = self.cause.target.split('?').next().unwrap_or_default();
        let index = path.split('/').find(|segment| !segment.is_empty())?;
        let decoded = percent_encoding::percent_decode_str(index).decode_utf8().ok()?;
        (index != "_bulk").then_some(decoded)
    }

    /// As the admin port shows it. What is JSON is shown byte for byte.
    pub(crate) fn shown(&self) -> Shown<'_> {
        let cause = &self.cause;
        let (action, source) = shown_lines(self.lines.as_deref());
        Shown {
            id: self.id,
            died_ms: self.died_ms,
            edited_ms: self.edited_ms,
            index: self.index(),
            action,
            source,
            original: self.original.as_deref().map(|lines| {
                let (action, source) = shown_lines(Some(lines));
                Original { action, source }
            }),
            status: cause.status,
            r#type: &cause.kind,
            reason: &cause.reason,
            attempts: cause.attempts,
            group: &cause.group,
            cluster: &cause.cluster,
            accepted_ms: cause.accepted_ms,
            origin: Origin {
                position: cause.position,
                lane: cause.lane,
                place: cause.place,
                target: &cause.target,
            },
        }
    }
}

fn shown_lines(lines: Option<&[u8]>) -> (Option<Box<RawValue>>, Option<Box<RawValue>>) {
    let text = lines.map(String::from_utf8_lossy).unwrap_or_default();
    let mut lines = text.lines();
    let mut next = || {
        let line = lines.next()?.to_owned();
        // What is no JSON is shown as text.
        RawValue::from_string(line.clone())
            .or_else(|_| to_raw_value(&line))
            .ok()
    };
    (next(), next())
}

/// Up to the first newline.
pub(super) fn first_line(lines: &[u8]) -> &[u8] {
    lines.split(|byte| *byte == b'\n').next().unwrap_or_default()
}

/// Kind of a record that a letter was first put in.
pub(super) const FIRST: u8 = 0;
/// Kind of one that takes another's place: edited, or moved so that the other's segment can go.
pub(super) const REWRITTEN: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(target: &str, lines: &str) -> Letter {
        Letter {
            id: 7,
            at: 7,
            bytes: 0,
            died_ms: 0,
            edited_ms: None,
            cause: Cause {
                target: target.to_owned(),
                ..Cause::default()
            },
            lines: Some(lines.as_bytes().to_vec()),
            original: None,
        }
    }

    #[test]
    fn a_letters_index_is_its_actions_or_else_its_urls() {
        let index = |target, lines| letter(target, lines).index().map(Cow::into_owned);
        let named = "{\"index\":{\"_index\":\"a\",\"_id\":\"1\"}}\n{}\n";
        assert_eq!(index("/b/_bulk?timeout=1m", named).as_deref(), Some("a"));
        assert_eq!(
            index("/b%20c/_bulk?timeout=1m", "{\"delete\":{}}\n").as_deref(),
            Some("b c")
        );
        assert_eq!(index("/_bulk", "{\"delete\":{}}\n"), None);
    }

    #[test]
    fn what_is_json_is_shown_as_it_was_sent_and_anything_else_as_text() {
        let exact = letter(
            "/_bulk",
            "{\"index\":{}}\n{\"n\":1.10,\"big\":123456789012345678901234567890}\n",
        );
        let text = serde_json::to_string(&exact.shown()).unwrap();
        assert!(
            text.contains("\"source\":{\"n\":1.10,\"big\":123456789012345678901234567890}"),
            "{text}"
        );
        let broken = letter("/_bulk", "{\"index\":{}}\n{\"n\":\n");
        let text = serde_json::to_string(&broken.shown()).unwrap();
        assert!(text.contains(r#""source":"{\"n\":""#), "{text}");
    }
}
