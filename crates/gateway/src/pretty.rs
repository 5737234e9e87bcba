//! Answers for people: JSON in the layout that the clusters give it with `?pretty`, two spaces a level and spaces around
//! the colon.

use std::io::{self, Write};

use serde::Serialize as _;
use serde_json::Value;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// Whether a query asks for such an answer.
pub(crate) fn is_asked(query: Option<&str>) -> bool {
    let mut pairs = query.into_iter().flat_map(|query| query.split('&'));
    pairs.any(|pair| matches!(pair, "pretty" | "pretty=" | "pretty=true"))
}

/// `value`, with a line's end at its end.
pub(crate) fn pretty(value: &Value) -> String {
    let mut out = Vec::new();
    let layout = Layout(PrettyFormatter::new());
    // Values without maps of odd keys can always be written, and so can memory.
    let _ = value.serialize(&mut Serializer::with_formatter(&mut out, layout));
    out.push(b'\n');
    String::from_utf8(out).unwrap_or_default()
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
