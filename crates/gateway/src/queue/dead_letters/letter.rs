//! A dead letter: an operation that a cluster would not take, the reason, and where it came from.

use std::borrow::Cow;

use log::Browsed;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::encoding;

/// Why an operation is dead, and where it came from. The cause stands in the record's parameters, in clear.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cause {
    /// The consumer group that gave the operation up.
    pub(crate) group: String,
    /// The cluster that would not take it.
    pub(crate) cluster: String,
    /// The status of the item.
    pub(crate) status: u16,
    /// The `type` of the item's error.
    pub(crate) kind: String,
    /// The `reason` of the item's error; cut if it is long.
    pub(crate) reason: String,
    /// How often the operation was sent.
    pub(crate) attempts: u32,
    /// When its client was answered, ms since 1970.
    pub(crate) accepted_ms: u64,
    /// The position of its request in the queue, as its client was told.
    pub(crate) position: u64,
    /// The lane, and the place in the request's part of that lane: together with the position they say which
    /// operation it is.
    pub(crate) lane: u32,
    pub(crate) place: u32,
    /// The path and query that the operation was sent to.
    pub(crate) target: String,
    /// The content type that the operation was sent with. Earlier versions wrote its client's, which is not
    /// used again.
    #[serde(default = "ndjson")]
    pub(crate) content_type: String,
    /// Set if the operation was parked: its record in that store, and its number in the record. Until the
    /// operation is gone from there, it does not count as dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parked: Option<(u64, u32)>,
    /// Set if this record replaces the one that the letter was first put in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rewritten: Option<Rewritten>,
    /// Whether this is not the whole cause: the record's last group holds that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) apart: bool,
}

/// The facts that a record must still have of the record that it replaces.
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
    /// The letter's name for good: the position of the record that it was first put in.
    pub(crate) id: u64,
    /// The position of the record that the letter is in now.
    pub(super) at: u64,
    /// The bytes of that record.
    pub(super) bytes: u64,
    /// When the operation was given up, in ms since 1970.
    pub(crate) died_ms: u64,
    /// When the letter was last edited, if it was.
    pub(crate) edited_ms: Option<u64>,
    pub(crate) cause: Cause,
    /// Action and source, each with its newline; `None` if the disk has damaged them.
    pub(crate) lines: Option<Vec<u8>>,
    /// Action and source as they were before the first edit.
    pub(crate) original: Option<Vec<u8>>,
}

/// A letter as the admin port shows it.
#[derive(Serialize)]
pub(crate) struct ShownLetter<'a> {
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
    /// Reads the letter in a record; `None` if this version does not know it.
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

    /// Returns the index that the operation was for: as its action says, or else its URL.
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

    /// Returns the letter as the admin port shows it. JSON is shown byte for byte.
    pub(crate) fn shown(&self) -> ShownLetter<'_> {
        let cause = &self.cause;
        let (action, source) = shown_lines(self.lines.as_deref());
        ShownLetter {
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
        // A line that is not JSON is shown as text.
        RawValue::from_string(line.clone())
            .or_else(|_| to_raw_value(&line))
            .ok()
    };
    (next(), next())
}

/// Returns the bytes up to the first newline.
pub(super) fn first_line(lines: &[u8]) -> &[u8] {
    lines.split(|byte| *byte == b'\n').next().unwrap_or_default()
}

/// The kind of a record that a letter was first put in.
pub(super) const FIRST: u8 = 0;
/// The kind of a record that replaces another: the letter was edited, or moved so that the other's segment
/// can go.
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
