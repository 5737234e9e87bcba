//! A write of one document as a bulk of one operation.

use std::borrow::Cow;

use memchr::memchr2;

use crate::failed::write_string;
use crate::strict::Strict;
use crate::{Op, update};

/// The head of a single-document request, in the terms of an action line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Single<'a> {
    /// The operation.
    pub op: Op,
    /// The index's name, decoded.
    pub index: Cow<'a, str>,
    /// The document's id, decoded; without one the server makes an id.
    pub id: Option<Cow<'a, str>>,
    /// The other keys of the action line, each with a name that needs no escapes.
    pub keys: Vec<(&'static str, SingleValue<'a>)>,
}

/// The value of a key of an action line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SingleValue<'a> {
    /// A text, decoded.
    Text(Cow<'a, str>),
    /// Digits, `true` or `false`: written as given.
    Word(&'a str),
}

/// The reason why a document cannot have the same effect in a bulk as alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotALine {
    /// The document is not an object, as far as its ends show.
    NoObject,
    /// The document has line breaks, which `_source` would give back unchanged.
    LineBreak,
}

// === impl Single ===

impl Single<'_> {
    /// Returns the value of one of the other keys, if it is a text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.keys.iter().find_map(|(name, value)| match value {
            SingleValue::Text(text) if *name == key => Some(&**text),
            _ => None,
        })
    }

    /// Returns the most bytes that [`Self::write`] adds, except for texts with many escapes.
    pub fn bytes_expected(&self, source: &[u8]) -> usize {
        let keys = self.keys.iter().map(|(name, value)| {
            let value = match value {
                SingleValue::Text(text) => text.len(),
                SingleValue::Word(word) => word.len(),
            };
            name.len() + value + KEY_FRAME_BYTES
        });
        let id = self.id.as_ref().map_or(0, |id| id.len());
        source.len() + self.index.len() + id + keys.sum::<usize>() + LINE_FRAME_BYTES
    }

    /// Adds the operation to a body: an action line and, except for deletes, the line of `source`.
    ///
    /// The source of an index or a create is copied byte for byte, since that is how the servers keep it
    /// (`IndexRequest.source`). The source of an update is parsed and not kept, so its line breaks become
    /// spaces.
    ///
    /// # Errors
    /// If the source would not mean the same in a line of its own; `out` is unchanged then.
    pub fn write(&self, source: &[u8], out: &mut Vec<u8>) -> Result<(), NotALine> {
        self.write_as(source, self.op == Op::Update, out)
    }

    /// Like [`Self::write`], but line breaks of any source become spaces. The `_source` that is given back
    /// later means the same, and has spaces in their place.
    ///
    /// # Errors
    /// If the source would not mean the same in a line of its own; `out` is unchanged then.
    pub fn write_spaced(&self, source: &[u8], out: &mut Vec<u8>) -> Result<(), NotALine> {
        self.write_as(source, true, out)
    }

    fn write_as(&self, source: &[u8], spaced: bool, out: &mut Vec<u8>) -> Result<(), NotALine> {
        let line = match self.op {
            Op::Delete => None,
            op => Some(line(op, source, spaced)?),
        };
        out.extend_from_slice(b"{\"");
        out.extend_from_slice(self.op.as_str().as_bytes());
        out.extend_from_slice(b"\":{\"_index\":");
        write_string(out, &self.index);
        if let Some(id) = &self.id {
            out.extend_from_slice(b",\"_id\":");
            write_string(out, id);
        }
        for (name, value) in &self.keys {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            match value {
                SingleValue::Text(text) => write_string(out, text),
                SingleValue::Word(word) => out.extend_from_slice(word.as_bytes()),
            }
        }
        out.extend_from_slice(b"}}\n");
        if let Some(line) = line {
            out.extend_from_slice(&line);
            out.push(b'\n');
        }
        Ok(())
    }
}

/// Returns the source as one line.
fn line(op: Op, source: &[u8], spaced: bool) -> Result<Cow<'_, [u8]>, NotALine> {
    let text = source.trim_ascii();
    if !text.starts_with(b"{") || !text.ends_with(b"}") {
        return Err(NotALine::NoObject);
    }
    if memchr2(b'\n', b'\r', source).is_none() {
        return Ok(Cow::Borrowed(source));
    }
    // A line break within a string is an error, which must not be repaired.
    let acceptable = match op {
        _ if !spaced => false,
        Op::Update => update::acceptable(source, false),
        _ => is_json(source),
    };
    if !acceptable {
        return Err(NotALine::LineBreak);
    }
    let spaced = source.iter().map(|byte| match byte {
        b'\n' | b'\r' => b' ',
        _ => *byte,
    });
    Ok(Cow::Owned(spaced.collect()))
}

/// Returns whether every server certainly takes this for one JSON value.
fn is_json(text: &[u8]) -> bool {
    let strict = Strict::of_document(text);
    strict.is_some_and(|mut strict| strict.value().and_then(|()| strict.end()).is_some())
}

/// Quotes, colon and comma of a key, and the quotes of its value.
const KEY_FRAME_BYTES: usize = 6;
/// Bytes around them in an action line.
const LINE_FRAME_BYTES: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(single: &Single<'_>, source: &str) -> Result<String, NotALine> {
        let mut out = b"before ".to_vec();
        let result = single.write(source.as_bytes(), &mut out);
        assert!(out.starts_with(b"before ") && (result.is_ok() || out.len() == 7));
        result.map(|()| String::from_utf8(out[7..].to_vec()).unwrap())
    }

    fn single(op: Op) -> Single<'static> {
        Single {
            op,
            index: "logs".into(),
            id: Some("1".into()),
            keys: Vec::new(),
        }
    }

    #[test]
    fn an_operation_is_an_action_line_and_its_source_byte_for_byte() {
        let mut write = single(Op::Index);
        write.id = Some("a\"\\\n\u{1}é😀/".into());
        write.keys = vec![
            ("routing", SingleValue::Text("r\t".into())),
            ("if_seq_no", SingleValue::Word("7")),
        ];
        let lines = written(&write, " {\"a\":  1}\t").unwrap();
        assert_eq!(
            lines,
            "{\"index\":{\"_index\":\"logs\",\"_id\":\"a\\\"\\\\\\n\\u0001é😀/\",\"routing\":\"r\\t\",\"if_seq_no\":7}}\n {\"a\":  1}\t\n"
        );
        assert!(lines.len() <= write.bytes_expected(b" {\"a\":  1}\t") + 12);
        assert_eq!(
            written(&single(Op::Delete), "").unwrap(),
            "{\"delete\":{\"_index\":\"logs\",\"_id\":\"1\"}}\n"
        );
    }

    #[test]
    fn a_source_that_would_not_mean_the_same_is_refused() {
        for (source, why) in [
            ("", NotALine::NoObject),
            (" \n", NotALine::NoObject),
            ("[1]", NotALine::NoObject),
            ("{\"a\":1", NotALine::NoObject),
            ("{\n}", NotALine::LineBreak),
            ("{}\n", NotALine::LineBreak),
            ("{}\r", NotALine::LineBreak),
        ] {
            assert_eq!(written(&single(Op::Index), source), Err(why), "{source:?}");
            assert_eq!(written(&single(Op::Create), source), Err(why), "{source:?}");
        }
    }

    #[test]
    fn line_breaks_of_a_document_become_spaces_where_that_is_asked_for() {
        let spaced = |source: &str| {
            let mut out = Vec::new();
            let written = single(Op::Index).write_spaced(source.as_bytes(), &mut out);
            written.map(|()| String::from_utf8(out).unwrap())
        };
        let written = spaced("{\n  \"a\": \"x\\n\"\r\n}\n").unwrap();
        assert!(written.ends_with("\n{   \"a\": \"x\\n\"  } \n"), "{written:?}");
        for odd in ["{\"a\":\"x\ny\"}", "{\n\"a\":1 // one\n}", "{\n\"a\":1,}"] {
            assert_eq!(spaced(odd), Err(NotALine::LineBreak), "{odd:?}");
        }
        // Long texts are refused for the document alone.
        assert!(spaced(&format!("{{\n\"a\":\"{}\"}}", "x".repeat(5_000_000))).is_ok());
    }

    #[test]
    fn line_breaks_of_an_update_become_spaces_unless_they_are_an_error() {
        let spaced = written(&single(Op::Update), "{\r\n \"doc\": {\"a\": \"x\\n\"}\n}\n").unwrap();
        assert!(
            spaced.ends_with("\n{   \"doc\": {\"a\": \"x\\n\"} } \n"),
            "{spaced}"
        );
        assert_eq!(
            written(&single(Op::Update), "{\"doc\":{\"a\":\"x\ny\"}}"),
            Err(NotALine::LineBreak)
        );
    }
}
