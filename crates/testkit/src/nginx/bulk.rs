//! Bulk bodies made of generated lines.

use super::{Nginx, push};

/// A recipe for `_bulk` bodies.
///
/// ```
/// use testkit::nginx::{Bulk, Ids};
/// let body = Bulk { ids: Ids::None, ..Bulk::new("logs", 2) }.body(1);
/// assert!(body.starts_with(b"{\"index\":{\"_index\":\"logs\"}}\n{"));
/// ```
#[derive(Debug, Clone)]
pub struct Bulk {
    /// The index that each action names; `None` leaves it to the URL.
    pub index: Option<String>,
    /// Number of operations.
    pub docs: usize,
    /// Whether the operations carry ids.
    pub ids: Ids,
    /// The operation that all of them are.
    pub operation: Operation,
    /// The kind of the sources.
    pub documents: Documents,
    /// The style of actions and sources.
    pub style: Style,
    /// Number of indices that the operations are spread over; with more than one, `index` is followed by
    /// `-0`, `-1`, …
    pub indices: usize,
}

/// The source of the ids of a [`Bulk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// No ids: the server makes them.
    None,
    /// 20 characters of the URL-safe alphabet, different for every document of every seed.
    Given,
    /// The decimal numbers from this one on; bodies with the same numbers hit the same documents.
    From(u64),
}

/// The operation of a [`Bulk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `index`
    Index,
    /// `create`
    Create,
    /// `update` with `doc` and `doc_as_upsert`
    Update,
    /// `delete`: no source lines
    Delete,
}

/// The sources of a [`Bulk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Documents {
    /// Access-log lines of about 600 bytes.
    Nginx,
    /// Measurements of 200 bytes.
    Short,
}

/// The style of JSON. Each style is legal, and each is what some writer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// No spaces, `_index` before `_id`: the clients of Go, Rust and JavaScript.
    Compact,
    /// Spaces around every colon and inside the braces of the action, as people write it by hand and in load
    /// files.
    Spaced,
    /// As [`Style::Spaced`], with `"_type":"_doc"` after the index: load files for servers before version 8.
    Typed,
    /// A space after each colon and comma of actions and sources, as Python's `json.dumps` writes them.
    Python,
    /// `_id` first and a `routing` of `null`, as Logstash writes them.
    Logstash,
}

// === impl Style ===

impl std::str::FromStr for Style {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Ok(match text {
            "compact" => Self::Compact,
            "spaced" => Self::Spaced,
            "typed" => Self::Typed,
            "python" => Self::Python,
            "logstash" => Self::Logstash,
            _ => anyhow::bail!("no style is named {text}"),
        })
    }
}

impl std::fmt::Display for Style {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Compact => "compact",
            Self::Spaced => "spaced",
            Self::Typed => "typed",
            Self::Python => "python",
            Self::Logstash => "logstash",
        })
    }
}

// === impl Bulk ===

impl Bulk {
    /// Returns a recipe for `docs` access-log lines, to `index` by name, with ids.
    pub fn new(index: &str, docs: usize) -> Bulk {
        Bulk {
            index: Some(index.to_owned()),
            docs,
            ids: Ids::Given,
            operation: Operation::Index,
            documents: Documents::Nginx,
            style: Style::Compact,
            indices: 1,
        }
    }

    /// Returns the body for this seed, with its last newline.
    pub fn body(&self, seed: u64) -> Vec<u8> {
        let mut lines = Nginx::new(seed);
        let mut ids = fastrand::Rng::with_seed(seed ^ 0x1d5);
        let per_doc = if self.documents == Documents::Short {
            290
        } else {
            700
        };
        let mut out = Vec::with_capacity(self.docs * per_doc);
        for at in 0..self.docs {
            self.write_action(&mut out, at, &mut ids);
            match self.operation {
                Operation::Delete => {}
                Operation::Update => {
                    out.extend_from_slice(b"{\"doc\":");
                    self.write_source(&mut out, &mut lines);
                    out.extend_from_slice(b",\"doc_as_upsert\":true}\n");
                }
                Operation::Index | Operation::Create => {
                    self.write_source(&mut out, &mut lines);
                    out.push(b'\n');
                }
            }
        }
        out
    }

    fn write_action(&self, out: &mut Vec<u8>, at: usize, ids: &mut fastrand::Rng) {
        let name = match self.operation {
            Operation::Index => "index",
            Operation::Create => "create",
            Operation::Update => "update",
            Operation::Delete => "delete",
        };
        let index = self.index.as_deref().map(|index| match self.indices {
            0 | 1 => index.to_owned(),
            many => format!("{index}-{}", at % many),
        });
        let id = match self.ids {
            Ids::None => None,
            Ids::From(first) => Some((first + at as u64).to_string()),
            Ids::Given => Some(id(ids)),
        };
        // Keys are in this order, with values as they are written.
        let quoted = |text: String| format!("\"{text}\"");
        // The type follows the index without a space, as in the files that people copy.
        let typed = |index: String| match self.style {
            Style::Typed => format!("\"{index}\",\"_type\":\"_doc\""),
            _ => quoted(index),
        };
        let mut metadata = vec![
            ("_index", index.map(typed)),
            ("_id", id.map(quoted)),
            (
                "routing",
                (self.style == Style::Logstash).then(|| "null".to_owned()),
            ),
        ];
        if self.style == Style::Logstash {
            metadata.swap(0, 1);
        }
        let (colon, comma, open, close) = match self.style {
            Style::Compact | Style::Logstash => (":", ",", "{", "}"),
            Style::Python => (": ", ", ", "{", "}"),
            Style::Spaced | Style::Typed => (" : ", ", ", "{ ", " }"),
        };
        let fields: Vec<String> = metadata
            .into_iter()
            .filter_map(|(key, value)| Some(format!("\"{key}\"{colon}{}", value?)))
            .collect();
        let inner = match fields.is_empty() {
            true => "{}".to_owned(),
            false => format!("{open}{}{close}", fields.join(comma)),
        };
        push(out, format_args!("{open}\"{name}\"{colon}{inner}{close}\n"));
    }

    fn write_source(&self, out: &mut Vec<u8>, lines: &mut Nginx) {
        let start = out.len();
        match self.documents {
            Documents::Nginx => lines.write_source(out),
            Documents::Short => write_short(out, &mut lines.rng),
        }
        if self.style == Style::Python {
            let spaced = spaced(&out[start..]);
            out.truncate(start);
            out.extend_from_slice(&spaced);
        }
    }
}

/// Returns the same JSON with a space after each colon and comma that is not in a string.
fn spaced(json: &[u8]) -> Vec<u8> {
    let (mut out, mut in_string, mut escaped) = (Vec::with_capacity(json.len() + 64), false, false);
    for &byte in json {
        out.push(byte);
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            b':' | b',' if !in_string => out.push(b' '),
            _ => {}
        }
    }
    out
}

fn id(rng: &mut fastrand::Rng) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = rng.u128(..);
    (0..20)
        .map(|at| char::from(ALPHABET[(bits >> (6 * at)) as usize & 63]))
        .collect()
}

/// Writes a sensor's reading, which its note pads to 200 bytes.
fn write_short(out: &mut Vec<u8>, rng: &mut fastrand::Rng) {
    let start = out.len();
    push(
        out,
        format_args!(
            "{{\"@timestamp\":{},\"sensor\":\"s-{:05}\",",
            1_772_323_200_000_u64 + rng.u64(0..86_400_000),
            rng.u32(0..50_000)
        ),
    );
    push(
        out,
        format_args!(
            "\"temperature\":{:.2},\"humidity\":{:.1},\"battery\":{}",
            rng.f32() * 40.0,
            rng.f32() * 100.0,
            rng.u8(0..=100)
        ),
    );
    out.extend_from_slice(b",\"note\":\"");
    while out.len() - start < 198 {
        out.push(rng.lowercase() as u8);
    }
    out.extend_from_slice(b"\"}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(body: &[u8]) -> Vec<serde_json::Value> {
        assert_eq!(body.last(), Some(&b'\n'));
        body.split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    #[test]
    fn ids_are_given_and_differ() {
        let body = lines(&Bulk::new("logs", 500).body(1));
        let ids: std::collections::HashSet<_> = body
            .iter()
            .step_by(2)
            .map(|action| action["index"]["_id"].to_string())
            .collect();
        assert_eq!((body.len(), ids.len()), (1000, 500));
    }

    #[test]
    fn without_index_and_ids_the_action_is_empty() {
        let bulk = Bulk {
            index: None,
            ids: Ids::None,
            operation: Operation::Create,
            ..Bulk::new("", 1)
        };
        assert!(bulk.body(1).starts_with(b"{\"create\":{}}\n"));
    }

    #[test]
    fn updates_carry_a_doc_and_deletes_nothing() {
        let update = Bulk {
            operation: Operation::Update,
            ids: Ids::From(7),
            ..Bulk::new("logs", 2)
        };
        assert_eq!(lines(&update.body(1))[3]["doc_as_upsert"], true);
        let delete = Bulk {
            operation: Operation::Delete,
            ..update
        };
        assert_eq!(delete.body(1), b"{\"delete\":{\"_index\":\"logs\",\"_id\":\"7\"}}\n{\"delete\":{\"_index\":\"logs\",\"_id\":\"8\"}}\n");
    }

    #[test]
    fn every_style_says_the_same() {
        let plain = lines(&Bulk::new("logs", 40).body(3));
        for style in ["compact", "spaced", "typed", "python", "logstash"] {
            let bulk = Bulk {
                style: style.parse().unwrap(),
                ..Bulk::new("logs", 40)
            };
            assert_eq!(bulk.style.to_string(), style);
            let mut written = lines(&bulk.body(3));
            for action in written.iter_mut().step_by(2) {
                let metadata = action["index"].as_object_mut().unwrap();
                let extra = (metadata.remove("_type"), metadata.remove("routing"));
                assert_eq!(extra.0.is_some(), style == "typed");
                assert_eq!(extra.1, (style == "logstash").then_some(serde_json::Value::Null));
            }
            assert_eq!(written, plain, "{style}");
        }
        let first = |style| {
            let bulk = Bulk {
                style,
                ids: Ids::From(7),
                operation: Operation::Create,
                ..Bulk::new("logs", 1)
            };
            let body = String::from_utf8(bulk.body(1)).unwrap();
            body.lines().next().unwrap().to_owned()
        };
        assert_eq!(
            first(Style::Typed),
            r#"{ "create" : { "_index" : "logs","_type":"_doc", "_id" : "7" } }"#
        );
        assert_eq!(
            first(Style::Python),
            r#"{"create": {"_index": "logs", "_id": "7"}}"#
        );
        assert_eq!(
            first(Style::Logstash),
            r#"{"create":{"_id":"7","_index":"logs","routing":null}}"#
        );
    }

    #[test]
    fn operations_are_spread_over_indices() {
        let body = lines(
            &Bulk {
                indices: 3,
                ..Bulk::new("logs", 5)
            }
            .body(1),
        );
        let names: Vec<_> = body
            .iter()
            .step_by(2)
            .map(|line| line["index"]["_index"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["logs-0", "logs-1", "logs-2", "logs-0", "logs-1"]);
    }

    #[test]
    fn short_documents_have_200_bytes() {
        let body = Bulk {
            documents: Documents::Short,
            ..Bulk::new("logs", 50)
        }
        .body(9);
        assert!(
            body.split(|&byte| byte == b'\n')
                .skip(1)
                .step_by(2)
                .all(|line| line.is_empty() || line.len() == 200)
        );
        assert_eq!(lines(&body).len(), 100);
    }
}
