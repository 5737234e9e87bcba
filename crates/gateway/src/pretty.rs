//! Answers for people: JSON in the layout that the clusters produce with `?pretty`, with two spaces per level
//! and spaces around the colon.

use std::fmt;
use std::io::{self, Write};

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize as _};
use serde_json::Value;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use serde_json::value::RawValue;

/// Returns whether a query asks for such an answer.
pub(crate) fn is_asked(query: Option<&str>) -> bool {
    let mut pairs = query.into_iter().flat_map(|query| query.split('&'));
    pairs.any(|pair| matches!(pair, "pretty" | "pretty=" | "pretty=true"))
}

/// Lays out `value` and appends a line break.
pub(crate) fn pretty(value: &Value) -> String {
    let mut out = Vec::new();
    let layout = Layout(PrettyFormatter::new());
    // Writing cannot fail: a `Value` has only string keys, and the output is memory.
    let _ = value.serialize(&mut Serializer::with_formatter(&mut out, layout));
    out.push(b'\n');
    String::from_utf8(out).unwrap_or_default()
}

/// Lays out JSON that is given as text. The text is never parsed into a value, which would take many times
/// its length.
pub(crate) fn pretty_text(text: &RawValue) -> String {
    let mut out = String::with_capacity(text.get().len() * 2);
    lay_out(text, 0, &mut out);
    out.push('\n');
    out
}

fn lay_out(text: &RawValue, depth: usize, out: &mut String) {
    let line = |depth: usize, out: &mut String| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    match Piece::of(text) {
        Piece::Object(entries) if !entries.is_empty() => {
            out.push('{');
            for (place, (key, value)) in entries.iter().enumerate() {
                out.push_str(if place == 0 { "" } else { "," });
                line(depth + 1, out);
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push_str(" : ");
                lay_out(value, depth + 1, out);
            }
            line(depth, out);
            out.push('}');
        }
        Piece::Array(items) if !items.is_empty() => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                out.push_str(if place == 0 { "" } else { "," });
                line(depth + 1, out);
                lay_out(item, depth + 1, out);
            }
            line(depth, out);
            out.push(']');
        }
        Piece::Object(_) => out.push_str("{}"),
        Piece::Array(_) => out.push_str("[]"),
        Piece::Plain(text) => out.push_str(text),
    }
}

/// JSON as text, opened one level deep.
pub(crate) enum Piece<'a> {
    Object(Vec<(String, &'a RawValue)>),
    Array(Vec<&'a RawValue>),
    Plain(&'a str),
}

struct Entries<'a>(Vec<(String, &'a RawValue)>);

// === impl Piece ===

impl<'a> Piece<'a> {
    pub(crate) fn of(text: &'a RawValue) -> Self {
        let text = text.get();
        // The text is a valid value, so it can be opened, unless it is nested deeper than the parser allows.
        let opened = match text.as_bytes().first() {
            Some(b'{') => serde_json::from_str(text)
                .ok()
                .map(|Entries(all)| Self::Object(all)),
            Some(b'[') => serde_json::from_str(text).ok().map(Self::Array),
            _ => None,
        };
        opened.unwrap_or(Self::Plain(text))
    }
}

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;

        impl<'de> Visitor<'de> for Each {
            type Value = Entries<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<'de>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(Each)
    }
}

struct Layout(PrettyFormatter<'static>);

// === impl Layout ===

impl Formatter for Layout {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b" : ")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_look_as_the_clusters_do() {
        let value = json!({"error": {"root_cause": [{"type": "x"}]}, "status": 400});
        let wanted = "{\n  \"error\" : {\n    \"root_cause\" : [\n      {\n        \"type\" : \"x\"\n      }\n    ]\n  },\n  \"status\" : 400\n}\n";
        assert_eq!(pretty(&value), wanted);
        for value in [
            value,
            json!({"items": [{"index": {"_id": "a\"b\\", "status": 201}}, [], {}], "errors": false}),
            json!({}),
        ] {
            let text = RawValue::from_string(value.to_string()).unwrap();
            assert_eq!(pretty_text(&text), pretty(&value));
        }
        for (query, asked) in [
            (None, false),
            (Some("pretty"), true),
            (Some("a=b&pretty=true"), true),
            (Some("pretty=false&a=pretty"), false),
        ] {
            assert_eq!(is_asked(query), asked, "{query:?}");
        }
    }
}
