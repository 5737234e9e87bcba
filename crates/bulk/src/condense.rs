//! Reduces a node's answer, while it arrives, to the parts that give the outcome: `took`, `errors`, and the
//! status and error of each item. A node may send much more than it is asked for, such as a document with
//! each item; a caller that reads through this never holds that. An error in the same words as the one before
//! it is kept only as [`SAME_ERROR`], since a cause that fails many operations is mostly given for each of
//! them.
//!
//! [`Reply::split`](crate::Reply::split) reads the result and decides whether it is a bulk answer at all.
//! This module refuses only answers that can't be reduced within bounds.

use std::ops::Range;

use crate::items::MergeError;

/// Stands, as a string, for an item's error that is the same as the one before it.
pub const SAME_ERROR: &str = "=";

/// Reduces one answer.
#[derive(Debug)]
pub struct Condense {
    /// Items that may still follow.
    items_left: u32,
    /// The most bytes that the error of one item may have.
    error_bytes_max: usize,
    /// Bytes that the current error was allowed, and those that it may still have.
    error_given: usize,
    error_left: usize,
    /// Bytes that all errors together may still have.
    errors_left: usize,
    /// Where the current item's error begins in the output.
    error_begins: usize,
    /// Where the last error that was kept stands in the output.
    last_error: Range<usize>,
    open: Vec<Frame>,
    expects: Expects,
    token: Token,
    key: Vec<u8>,
}

/// An object or array that is kept, at least in part.
#[derive(Debug)]
struct Frame {
    container: Container,
    is_object: bool,
    /// Whether something of it was kept, so that a comma precedes the next part.
    any: bool,
    /// The keys found so far: each is kept once.
    seen: u8,
}

/// The kind of an object or array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    Answer,
    Items,
    /// `{"index": …}`.
    Item,
    /// The fields of an item's operation.
    Fields,
    /// An error, or an object or array in it.
    Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expects {
    Value(ValueFate),
    KeyOrEnd,
    Colon(ValueFate),
    CommaOrEnd,
    Nothing,
}

/// The fate of the next value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueFate {
    Kept(Container),
    Skipped,
}

/// The token that the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    None,
    Key {
        escaped: bool,
    },
    /// A string that is kept, which begins at byte `from` of the output; `full`: the rest of it is left out.
    Text {
        from: usize,
        escaped: bool,
        full: bool,
    },
    Scalar {
        kept: usize,
    },
    /// A value that is left out, and the depth within it.
    Skipped {
        depth: u32,
        string: bool,
        escaped: bool,
    },
    SkippedScalar,
}

// === impl Condense ===

impl Condense {
    /// Makes a reducer for an answer about `docs` operations. At most `error_bytes_max` bytes of each error
    /// are kept, and at most `errors_bytes_max` of all of them together, but 256 bytes of each in any case. A
    /// longer error is cut where that leaves valid JSON.
    pub fn new(docs: u32, error_bytes_max: usize, errors_bytes_max: usize) -> Self {
        Self {
            items_left: docs,
            error_bytes_max,
            error_given: 0,
            error_left: 0,
            errors_left: errors_bytes_max,
            error_begins: 0,
            last_error: 0..0,
            open: Vec::new(),
            expects: Expects::Value(ValueFate::Kept(Container::Answer)),
            token: Token::None,
            key: Vec::new(),
        }
    }

    /// Reads the next bytes, and appends the parts to keep to `out`, which must be the same each time and
    /// unchanged in between.
    ///
    /// # Errors
    ///
    /// [`MergeError`] when the bytes are no JSON that could be a bulk's answer, or have more items than
    /// operations.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), MergeError> {
        let mut at = 0;
        while at < bytes.len() {
            at += match self.token {
                Token::None => {
                    self.begin(bytes[at], out)?;
                    1
                }
                Token::Key { escaped } => self.key(bytes[at], escaped, out)?,
                Token::Text { .. } => self.text(&bytes[at..], out),
                Token::Scalar { kept } => self.scalar(bytes[at], kept, out)?,
                Token::Skipped { .. } => self.skipped(&bytes[at..]),
                Token::SkippedScalar => self.skipped_scalar(bytes[at]),
            };
        }
        Ok(())
    }

    /// Reads a byte between tokens.
    fn begin(&mut self, byte: u8, out: &mut Vec<u8>) -> Result<(), MergeError> {
        if byte.is_ascii_whitespace() {
            return Ok(());
        }
        match (self.expects, byte) {
            (Expects::Value(_), b']') => self.end(byte, out)?,
            (Expects::Value(ValueFate::Kept(container)), _) => self.value(container, byte, out)?,
            (Expects::Value(ValueFate::Skipped), _) => {
                self.token = match byte {
                    b'"' | b'{' | b'[' => Token::Skipped {
                        depth: u32::from(byte != b'"'),
                        string: byte == b'"',
                        escaped: false,
                    },
                    _ => Token::SkippedScalar,
                };
                self.expects = Expects::CommaOrEnd;
            }
            (Expects::KeyOrEnd, b'"') => {
                self.key.clear();
                self.token = Token::Key { escaped: false };
            }
            (Expects::Colon(fate), b':') => self.expects = Expects::Value(fate),
            (Expects::CommaOrEnd, b',') => self.next(),
            (Expects::KeyOrEnd | Expects::CommaOrEnd, b'}' | b']') => self.end(byte, out)?,
            _ => return Err(MALFORMED),
        }
        Ok(())
    }

    /// Sets what is expected after a comma.
    fn next(&mut self) {
        self.expects = match self.open.last() {
            Some(frame) if frame.is_object => Expects::KeyOrEnd,
            Some(frame) => Expects::Value(match frame.container {
                Container::Items => ValueFate::Kept(Container::Item),
                container if self.error_left > 0 => ValueFate::Kept(container),
                _ => ValueFate::Skipped,
            }),
            None => Expects::Nothing,
        };
    }

    /// Reads the first byte of a value that is kept.
    fn value(&mut self, container: Container, byte: u8, out: &mut Vec<u8>) -> Result<(), MergeError> {
        self.comma(out);
        if container == Container::Item {
            self.items_left = self
                .items_left
                .checked_sub(1)
                .ok_or(MergeError::Malformed("more items than operations"))?;
        }
        self.expects = Expects::CommaOrEnd;
        if container == Container::Error && self.stands_in(Container::Fields) {
            self.error_begins = out.len();
        }
        self.write(byte, out);
        match byte {
            b'{' | b'[' => {
                if self.open.len() >= DEPTH_MAX {
                    return Err(MALFORMED);
                }
                self.open.push(Frame {
                    container,
                    is_object: byte == b'{',
                    any: false,
                    seen: 0,
                });
                self.next();
            }
            b'"' => {
                self.token = Token::Text {
                    from: out.len(),
                    escaped: false,
                    full: false,
                }
            }
            _ => self.token = Token::Scalar { kept: 1 },
        }
        Ok(())
    }

    /// Writes a comma before an element of an array; an object's keys bring their own.
    fn comma(&mut self, out: &mut Vec<u8>) {
        let Some(frame) = self.open.last_mut().filter(|frame| !frame.is_object) else {
            return;
        };
        if std::mem::replace(&mut frame.any, true) {
            self.write(b',', out);
        }
    }

    fn end(&mut self, byte: u8, out: &mut Vec<u8>) -> Result<(), MergeError> {
        let frame = self.open.pop().ok_or(MALFORMED)?;
        if frame.is_object != (byte == b'}') {
            return Err(MALFORMED);
        }
        self.write(byte, out);
        if frame.container == Container::Error && !self.stands_in(Container::Error) {
            let is_item = self.stands_in(Container::Fields);
            if !(is_item && self.is_said_again(out)) {
                let used = self.error_given - self.error_left;
                self.errors_left = self.errors_left.saturating_sub(used);
            }
        }
        self.expects = match self.open.is_empty() {
            true => Expects::Nothing,
            false => Expects::CommaOrEnd,
        };
        Ok(())
    }

    /// Returns whether the present value stands in such a container.
    fn stands_in(&self, container: Container) -> bool {
        self.open.last().is_some_and(|outer| outer.container == container)
    }

    /// Returns whether an item's error that has just ended is the same as the one before it, and if so
    /// replaces it in the output by [`SAME_ERROR`].
    fn is_said_again(&mut self, out: &mut Vec<u8>) -> bool {
        let error = self.error_begins..out.len();
        if out[error.clone()] != out[self.last_error.clone()] {
            self.last_error = error;
            return false;
        }
        out.truncate(error.start);
        out.push(b'"');
        out.extend_from_slice(SAME_ERROR.as_bytes());
        out.push(b'"');
        true
    }

    /// Reads a byte of a key; its end decides the fate of the value.
    fn key(&mut self, byte: u8, escaped: bool, out: &mut Vec<u8>) -> Result<usize, MergeError> {
        if escaped || byte != b'"' {
            if self.key.len() <= KEY_BYTES_MAX {
                self.key.push(byte);
            }
            self.token = Token::Key {
                escaped: !escaped && byte == b'\\',
            };
            return Ok(1);
        }
        self.token = Token::None;
        let fate = self.fate()?;
        if let ValueFate::Kept(_) = fate {
            let frame = self.open.last_mut().ok_or(MALFORMED)?;
            if std::mem::replace(&mut frame.any, true) {
                self.write(b',', out);
            }
            self.write(b'"', out);
            out.extend_from_slice(&self.key);
            self.error_left = self.error_left.saturating_sub(self.key.len());
            out.extend_from_slice(b"\":");
        }
        self.expects = Expects::Colon(fate);
        Ok(1)
    }

    /// Decides the fate of the value whose key was read.
    fn fate(&mut self) -> Result<ValueFate, MergeError> {
        let too_long = self.key.len() > KEY_BYTES_MAX;
        let frame = self.open.last_mut().ok_or(MALFORMED)?;
        let (container, bit) = match (frame.container, self.key.as_slice()) {
            _ if too_long => return Ok(ValueFate::Skipped),
            (Container::Answer, b"took") => (Container::Answer, 1),
            (Container::Answer, b"errors") => (Container::Answer, 2),
            (Container::Answer, b"items") => (Container::Items, 4),
            (Container::Answer | Container::Fields, b"error") => (Container::Error, 8),
            (Container::Answer | Container::Fields, b"status") => (frame.container, 16),
            (Container::Item, _) => (Container::Fields, 32),
            (Container::Error, _) if self.error_left > 0 => return Ok(ValueFate::Kept(Container::Error)),
            _ => return Ok(ValueFate::Skipped),
        };
        if frame.seen & bit != 0 {
            return Err(MergeError::Malformed("a key stands twice"));
        }
        frame.seen |= bit;
        if container == Container::Error {
            let most = self.error_bytes_max;
            self.error_given = self.errors_left.max(ERROR_BYTES_MIN.min(most)).min(most);
            self.error_left = self.error_given;
        }
        Ok(ValueFate::Kept(container))
    }

    /// Reads the next bytes of a string that is kept; returns how many were read.
    fn text(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let Token::Text {
            from,
            mut escaped,
            mut full,
        } = self.token
        else {
            return 0;
        };
        for (at, byte) in bytes.iter().enumerate() {
            if *byte == b'"' && !escaped {
                if full {
                    out.truncate(from + whole(&out[from..]));
                }
                out.push(b'"');
                self.token = Token::None;
                return at + 1;
            }
            escaped = !escaped && *byte == b'\\';
            match self.error_left {
                0 => full = true,
                _ if !full => self.write(*byte, out),
                _ => {}
            }
        }
        self.token = Token::Text { from, escaped, full };
        bytes.len()
    }

    /// Reads a byte of a number or a word that is kept; returns 0 if it is none.
    fn scalar(&mut self, byte: u8, kept: usize, out: &mut Vec<u8>) -> Result<usize, MergeError> {
        if ends_scalar(byte) {
            self.token = Token::None;
            return Ok(0);
        }
        if kept >= SCALAR_BYTES_MAX {
            return Err(MALFORMED);
        }
        self.write(byte, out);
        self.token = Token::Scalar { kept: kept + 1 };
        Ok(1)
    }

    /// Reads the next bytes of a value that is left out; returns how many were read.
    fn skipped(&mut self, bytes: &[u8]) -> usize {
        let Token::Skipped {
            mut depth,
            mut string,
            mut escaped,
        } = self.token
        else {
            return 0;
        };
        let mut at = 0;
        while at < bytes.len() {
            if string && !escaped {
                match memchr::memchr2(b'"', b'\\', &bytes[at..]) {
                    Some(found) => at += found,
                    None => {
                        at = bytes.len();
                        break;
                    }
                }
            }
            let byte = bytes[at];
            at += 1;
            match byte {
                _ if escaped => escaped = false,
                b'\\' if string => escaped = true,
                b'"' => string = !string,
                b'{' | b'[' if !string => depth += 1,
                b'}' | b']' if !string => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && !string {
                self.token = Token::None;
                return at;
            }
        }
        self.token = Token::Skipped {
            depth,
            string,
            escaped,
        };
        at
    }

    fn skipped_scalar(&mut self, byte: u8) -> usize {
        if ends_scalar(byte) {
            self.token = Token::None;
            return 0;
        }
        1
    }

    fn write(&mut self, byte: u8, out: &mut Vec<u8>) {
        out.push(byte);
        // This counts only in errors, and is set where one begins.
        self.error_left = self.error_left.saturating_sub(1);
    }
}

fn ends_scalar(byte: u8) -> bool {
    matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace()
}

/// Returns how many bytes of the inside of a string make whole characters, without half an escape, surrogate
/// pair or UTF-8 sequence.
fn whole(text: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let is_high = |escape: &[u8]| {
            matches!(
                escape[2..4],
                [b'd' | b'D', b'8' | b'9' | b'a'..=b'b' | b'A'..=b'B']
            )
        };
        let length = match rest {
            [] => return at,
            [b'\\', b'u', ..] if rest.len() >= 6 && is_high(rest) => 12,
            [b'\\', b'u', ..] => 6,
            [b'\\', ..] => 2,
            [0xf0..=0xff, ..] => 4,
            [0xe0..=0xef, ..] => 3,
            [0xc0..=0xdf, ..] => 2,
            _ => 1,
        };
        if length > rest.len() {
            return at;
        }
        at += length;
    }
}

const MALFORMED: MergeError = MergeError::Malformed("an answer that cannot be reduced");
/// The most frames that are kept open.
const DEPTH_MAX: usize = 32;
/// Bytes of an error that are kept, however many errors there are.
const ERROR_BYTES_MIN: usize = 256;
const KEY_BYTES_MAX: usize = 128;
const SCALAR_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Reply, all_succeeded};

    fn condensed(answer: &str, docs: u32, error_bytes: usize, piece: usize) -> Result<String, MergeError> {
        let (mut condense, mut out) = (Condense::new(docs, error_bytes, 1 << 20), Vec::new());
        for piece in answer.as_bytes().chunks(piece) {
            condense.feed(piece, &mut out)?;
        }
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn statuses_and_errors_are_left_however_the_answer_is_cut() {
        let noise = json!({"status": 500, "error": [{"a\"}],[": "\\\"}"}, -1.5e3, null], "errors": true});
        let answer = json!({"took": 3, "ingest_took": 1, "errors": true, "items": [
            {"update": {"_index": "l", "get": noise, "_version": 3, "status": 200}},
            {"index": {"_id": "}\\\"{", "status": 400, "error": {"type": "t", "reason": "é \"quoted\"", "caused_by": {"reason": [1, {"x": null}]}}}},
            {"delete": {"status": 404, "_shards": {"failures": []}}},
        ], "noise": noise});
        let left = json!({"took": 3, "errors": true, "items": [
            {"update": {"status": 200}},
            {"index": {"status": 400, "error": answer["items"][1]["index"]["error"]}},
            {"delete": {"status": 404}},
        ]});
        for text in [answer.to_string(), format!("{answer:#}\n")] {
            for piece in [1, 2, 3, 7, 64, 4096] {
                let out = condensed(&text, 3, 4096, piece).unwrap();
                assert_eq!(
                    serde_json::from_str::<Value>(&out).unwrap(),
                    left,
                    "{piece}: {out}"
                );
                let reply = Reply::split(out.as_bytes(), 3).unwrap();
                let statuses: Vec<_> = (0..3).map(|item| reply.status(item).unwrap()).collect();
                assert_eq!(statuses, [200, 400, 404]);
            }
        }
        let good = condensed(
            r#"{"errors":false,"took":0,"items":[{"index":{"_id":"1","status":201}}]}"#,
            1,
            99,
            5,
        );
        assert!(all_succeeded(good.unwrap().as_bytes(), 1));
    }

    #[test]
    fn an_error_is_cut_where_json_is_left() {
        let reason = "aé\u{1F600}\"\\".repeat(50);
        for ascii in [false, true] {
            let mut text = json!({"type": "t", "reason": reason, "caused_by": {"type": "c", "reason": reason}, "more": [1, 2, [3]]}).to_string();
            if ascii {
                text = text.replace('\u{1F600}', "\\ud83d\\ude00");
            }
            for error_bytes in 1..400 {
                let answer = format!(
                    "{{\"took\":1,\"errors\":true,\"items\":[{{\"index\":{{\"error\":{text},\"status\":400}}}}]}}"
                );
                let out = condensed(&answer, 1, error_bytes, 11).unwrap();
                assert!(out.len() < error_bytes + 300, "{out}");
                let value: Value =
                    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
                assert_eq!(value["items"][0]["index"]["status"], 400);
                let kept = value["items"][0]["index"]["error"]["reason"]
                    .as_str()
                    .unwrap_or_default();
                assert!(reason.starts_with(kept));
            }
        }
    }

    #[test]
    fn many_errors_share_what_there_is_for_all() {
        let item = |number| {
            format!(
                "{{\"index\":{{\"status\":400,\"error\":{{\"type\":\"t\",\"reason\":\"{number}{}\"}}}}}}",
                "x".repeat(5000)
            )
        };
        let items = (0..1000).map(item).collect::<Vec<_>>().join(",");
        let answer = format!("{{\"took\":1,\"errors\":true,\"items\":[{items}]}}");
        let (mut condense, mut out) = (Condense::new(1000, 4000, 100_000), Vec::new());
        condense.feed(answer.as_bytes(), &mut out).unwrap();
        assert!(out.len() < 100_000 + 1000 * (256 + 64), "{}", out.len());
        let value: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["items"][999]["index"]["error"]["type"], "t");
    }

    #[test]
    fn an_error_that_many_have_is_kept_once() {
        let item = |status: u16, reason: &str| {
            let reason = reason.repeat(500);
            json!({"index": {"error": {"type": "t", "caused_by": {"reason": reason}}, "status": status}})
        };
        let items = [
            (503, "a"),
            (503, "a"),
            (429, "a"),
            (503, "b"),
            (503, "b"),
            (503, "a"),
        ];
        let items = items.map(|(status, reason)| item(status, reason));
        let answer = json!({"took": 1, "errors": true, "items": items}).to_string();
        for piece in [1, 7, 4096] {
            let out = condensed(&answer, 6, 4096, piece).unwrap();
            let value: Value = serde_json::from_str(&out).unwrap();
            let same = json!(SAME_ERROR);
            for (at, is_same) in [false, true, true, false, true, false].into_iter().enumerate() {
                let (left, was) = (&value["items"][at]["index"], &items[at]["index"]);
                assert_eq!(
                    left["error"],
                    if is_same {
                        same.clone()
                    } else {
                        was["error"].clone()
                    }
                );
                assert_eq!(left["status"], was["status"]);
            }
            let reply = Reply::split(out.as_bytes(), 6).unwrap();
            assert!((0..6).all(|item| reply.facts(item).failed));
        }
        // All errors share one budget, of which an error that is not kept takes nothing.
        let items = vec![item(503, "a").to_string(); 1000].join(",");
        let answer = format!("{{\"took\":1,\"errors\":true,\"items\":[{items}]}}");
        let (mut condense, mut out) = (Condense::new(1000, 4000, 1000), Vec::new());
        condense.feed(answer.as_bytes(), &mut out).unwrap();
        assert!(out.len() < 1000 * 50 + 1000, "{}", out.len());
    }

    #[test]
    fn what_no_bulk_answers_is_refused_or_never_read_as_one() {
        for answer in [
            "<html>",
            "[]",
            "\"x\"",
            "{]",
            r#"{"took":1,"took":2}"#,
            r#"{"items":[{"index":{"status":1}},{"index":{"status":1}}]}"#,
            r#"{"items":[{"index":{"status":1,"status":2}}]}"#,
            r#"{"took":1,"errors":false,"items":[{"index":{"status":201}}]}}"#,
            r#"{"took":1,"errors":false,"items":[{"index":{"status":201}}"#,
        ] {
            let read = condensed(answer, 1, 100, 4);
            let is_reply = read
                .as_ref()
                .is_ok_and(|out| Reply::split(out.as_bytes(), 1).is_ok());
            assert!(!is_reply, "{answer}: {read:?}");
        }
        let deep = format!(r#"{{"error":{}1"#, "[".repeat(100_000));
        assert!(condensed(&deep, 1, 1 << 20, 999).is_err());
        let long = format!(r#"{{"took":{}}}"#, "1".repeat(100_000));
        assert!(condensed(&long, 1, 1 << 20, 999).is_err());
    }
}
