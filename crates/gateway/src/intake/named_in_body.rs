//! Requests that name indices in their bodies, at a router with rules for certain indices: each name has to
//! belong to the flows that the path has chosen. A body that cannot be read is refused, since servers accept
//! more than is read here.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use wire::Collected;

use crate::error::Fault;
use crate::intake::chosen_flows::{self, ChosenFlows, LinesChecked, NAMES_MAX};
use crate::nodes::{Body, Proxy};
use crate::turns::Turns;
use config::router::decode;

/// The way in which a body names indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `_bulk`, in a flow without `bulk_reshuffle`, which has its own check.
    Bulk,
    /// `_bulk/stream`, which OpenSearch has from version 2.17 on.
    Stream,
    /// `_msearch`: every second line names indices.
    Searches,
    /// `_mget`, `_mtermvectors`: each entry of `docs` names one.
    Documents,
    /// `_reindex`: the source and the destination name indices.
    Reindex,
    /// `_aliases`: each entry of `actions` names indices.
    Aliases,
}

/// Checks a request whose body names indices. Returns the body to send, or the fault to answer.
pub(crate) async fn admit(proxy: &Proxy, head: &Parts, body: Body) -> Result<Body, Fault> {
    let Some(chosen_flows) = head.extensions.get::<ChosenFlows>() else {
        return Ok(body);
    };
    let Some(form) = Form::of(head.uri.path()) else {
        return Ok(body);
    };
    let is_checked = head.extensions.get::<LinesChecked>().is_some();
    let (original, read) = match body {
        Body::Held(_) if form == Form::Bulk && is_checked => return Ok(body),
        // A bulk that passes by its head, or since it cannot be decoded; the nodes may read it.
        Body::Held(_) if head.headers.contains_key(CONTENT_ENCODING) => {
            return Err(Fault::names_unreadable());
        }
        Body::Held(held) => (held.clone(), held),
        Body::Streamed(incoming) => {
            let collected = incoming.collect_with_original(BODY_BYTES_MAX).await;
            let Collected { original, decoded } = match collected {
                Ok(collected) => collected,
                Err(error) => return Err(proxy.unread(&error)),
            };
            let original = original.freeze();
            match decoded {
                None => (original.clone(), original),
                Some(Ok(decoded)) => (original, decoded.freeze()),
                Some(Err(_)) => return Err(Fault::names_unreadable()),
            }
        }
    };
    if matches!(form, Form::Bulk | Form::Stream) {
        return match chosen_flows::elsewhere(head, &read).await {
            Some(fault) => Err(fault),
            None => Ok(Body::Held(original)),
        };
    }
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let names = match kind {
        Some(kind) if !kind.contains("json") => None,
        _ => form.names(&read).await,
    };
    let Some(Names(names)) = names else {
        return Err(Fault::names_unreadable());
    };
    let mut turns = Turns::begin();
    for (number, name) in names.iter().enumerate() {
        if number.is_multiple_of(NAMES_A_TURN) {
            turns.pass().await;
        }
        if !chosen_flows.has(head, form.api(), name) {
            return Err(Fault::named_elsewhere(name));
        }
    }
    Ok(Body::Held(original))
}

// === impl Form ===

impl Form {
    fn of(path: &str) -> Option<Self> {
        let segments = path.split('/').filter(|segment| !segment.is_empty());
        let decoded: Vec<Cow<'_, str>> = segments
            .map(|segment| decode(segment, false))
            .collect::<Option<_>>()?;
        let decoded: Vec<&str> = decoded.iter().map(|segment| &**segment).collect();
        match decoded.as_slice() {
            ["_reindex"] => Some(Self::Reindex),
            ["_aliases"] => Some(Self::Aliases),
            // With an index, or with an index and a type.
            [.., "_bulk"] => Some(Self::Bulk),
            [.., "_bulk", "stream"] => Some(Self::Stream),
            [.., "_msearch"] | [.., "_msearch", "template"] => Some(Self::Searches),
            [.., "_mget"] | [.., "_mtermvectors"] => Some(Self::Documents),
            _ => None,
        }
    }

    /// Returns the API that follows an index in the path of a request for that index alone.
    fn api(self) -> &'static str {
        match self {
            Self::Bulk | Self::Stream => "_bulk",
            Self::Searches => "_msearch",
            Self::Documents => "_mget",
            Self::Reindex => "_reindex",
            Self::Aliases => "_alias",
        }
    }

    /// Returns the names in a body, or `None` if it cannot be read, or names too many.
    async fn names(self, body: &[u8]) -> Option<Names> {
        if self == Self::Searches {
            return names_of_searches(body).await;
        }
        let mut names = Names::default();
        if body.trim_ascii().is_empty() {
            return Some(names);
        }
        let most = match self {
            Self::Documents => DOCUMENTS_BYTES_MAX,
            _ => VALUE_BYTES_MAX,
        };
        if body.len() > most {
            return None;
        }
        if self == Self::Documents {
            let Documents { docs, parameters } = serde_json::from_slice(body).ok()?;
            names = docs.0;
            if let Some(index) = parameters.and_then(|document| document.index) {
                names.add(&index)?;
            }
            return Some(names);
        }
        let body: Value = serde_json::from_slice(body).ok()?;
        match self {
            Self::Reindex => {
                collect(body["source"].get("index"), &mut names)?;
                collect(body["dest"].get("index"), &mut names)?;
            }
            Self::Aliases => {
                for action in list(&body["actions"])? {
                    for of in action.as_object()?.values() {
                        collect(of.get("index"), &mut names)?;
                        collect(of.get("indices"), &mut names)?;
                    }
                }
            }
            Self::Bulk | Self::Stream | Self::Searches | Self::Documents => return None,
        }
        Some(names)
    }
}

/// Returns the names in the body of `_msearch`.
async fn names_of_searches(body: &[u8]) -> Option<Names> {
    // Servers skip a line break at the very beginning (`MultiSearchRequest.readMultiLineFormat`).
    let body = body.strip_prefix(b"\n").unwrap_or(body);
    let mut lines = body.split(|byte| *byte == b'\n');
    let (mut names, mut turns, mut bytes) = (Names::default(), Turns::begin(), 0);
    while let Some(line) = lines.next() {
        bytes += line.len();
        if bytes > BYTES_A_TURN {
            bytes = 0;
            turns.pass().await;
        }
        if line.len() > VALUE_BYTES_MAX {
            return None;
        }
        if !line.trim_ascii().is_empty() {
            let SearchHead { index, indices } = serde_json::from_slice(line).ok()?;
            names.take(index)?;
            names.take(indices)?;
        }
        bytes += lines.next().map_or(0, <[u8]>::len);
    }
    Some(names)
}

fn list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Null => Some(&[]),
        value => value.as_array().map(Vec::as_slice),
    }
}

/// Adds a name, or a list of names. Returns `None` if the value is neither, or there are too many.
fn collect(named: Option<&Value>, names: &mut Names) -> Option<()> {
    match named {
        None | Some(Value::Null) => {}
        Some(Value::String(name)) => names.add(name)?,
        Some(Value::Array(several)) => {
            for one in several {
                names.add(one.as_str()?)?;
            }
        }
        Some(_) => return None,
    }
    Some(())
}

/// The names in a body, each once.
#[derive(Default)]
struct Names(BTreeSet<String>);

impl Names {
    /// Returns `None` if there are too many.
    fn add(&mut self, name: &str) -> Option<()> {
        if !self.0.contains(name) {
            if self.0.len() >= NAMES_MAX || name.len() > NAME_BYTES_MAX {
                return None;
            }
            self.0.insert(name.to_owned());
        }
        Some(())
    }

    fn take(&mut self, other: Names) -> Option<()> {
        other.0.iter().try_for_each(|name| self.add(name))
    }
}

/// A name, a list of names, or nothing.
impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrSeveral;

        impl<'de> Visitor<'de> for OneOrSeveral {
            type Value = Names;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("names")
            }

            fn visit_unit<E>(self) -> Result<Names, E> {
                Ok(Names::default())
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Names, E> {
                let mut names = Names::default();
                names.add(name).ok_or_else(|| E::custom(TOO_MANY))?;
                Ok(names)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut several: A) -> Result<Names, A::Error> {
                let mut names = Names::default();
                while let Some(name) = several.next_element::<Cow<'_, str>>()? {
                    names.add(&name).ok_or_else(|| A::Error::custom(TOO_MANY))?;
                }
                Ok(names)
            }
        }

        deserializer.deserialize_any(OneOrSeveral)
    }
}

/// A line of `_msearch` that says where to search.
#[derive(Deserialize)]
struct SearchHead {
    #[serde(default)]
    index: Names,
    #[serde(default)]
    indices: Names,
}

/// The body of `_mget` and `_mtermvectors`, of which only the names of the documents' indices are kept.
#[derive(Deserialize)]
struct Documents<'a> {
    #[serde(default)]
    docs: Indices,
    /// For `_mtermvectors`: what applies to all of its `ids` (`MultiTermVectorsRequest.add`).
    #[serde(borrow, default)]
    parameters: Option<Document<'a>>,
}

#[derive(Default)]
struct Indices(Names);

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow, default, rename = "_index")]
    index: Option<Cow<'a, str>>,
}

impl<'de> Deserialize<'de> for Indices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;

        impl<'de> Visitor<'de> for Each {
            type Value = Indices;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("documents")
            }

            fn visit_unit<E>(self) -> Result<Indices, E> {
                Ok(Indices::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut documents: A) -> Result<Indices, A::Error> {
                let mut indices = Indices::default();
                while let Some(Document { index }) = documents.next_element()? {
                    if let Some(index) = index {
                        indices.0.add(&index).ok_or_else(|| A::Error::custom(TOO_MANY))?;
                    }
                }
                Ok(indices)
            }
        }

        deserializer.deserialize_any(Each)
    }
}

/// The longest body of `_reindex` and `_aliases`, and the longest line of `_msearch`, in bytes: it is read in
/// one go, and as a value it takes many times its size.
const VALUE_BYTES_MAX: usize = 1 << 20;
/// The longest body of `_mget` and `_mtermvectors`, in bytes, which is read in one go, too.
const DOCUMENTS_BYTES_MAX: usize = 8 << 20;
/// The longest name: an index has at most 255 bytes; expressions with several names are longer.
const NAME_BYTES_MAX: usize = 4 << 10;
const TOO_MANY: &str = "too many names";
/// What is done between two looks at the clock.
const BYTES_A_TURN: usize = 64 << 10;
const NAMES_A_TURN: usize = 64;
/// The longest body that is read for names, in bytes.
const BODY_BYTES_MAX: usize = 100 << 20;

#[cfg(test)]
mod tests {
    use crate::turns::in_any_slices;

    use super::*;

    #[test]
    fn a_body_with_too_many_or_too_long_names_is_not_read() {
        let names = |path: &str, body: String| {
            let names = Form::of(path).unwrap().names(body.as_bytes());
            let names = in_any_slices(names);
            names.map(|names| names.0.len())
        };
        let list = |count: usize, distinct: usize| -> String {
            let names: Vec<String> = (0..count).map(|n| format!("\"{}\"", n % distinct)).collect();
            names.join(",")
        };
        let searches = |count, distinct| format!("{{\"index\":[{}]}}\n{{}}\n", list(count, distinct));
        assert_eq!(names("/_msearch", searches(50_000, 3)), Some(3), "each once");
        assert_eq!(names("/_msearch", searches(20_000, 20_000)), None);
        assert_eq!(
            names("/_msearch", searches(300_000, 3)),
            None,
            "a line of more than 1 MiB"
        );
        let aliases = |count| {
            format!(
                "{{\"actions\":[{{\"add\":{{\"indices\":[{}]}}}}]}}",
                list(count, count)
            )
        };
        assert_eq!(names("/_aliases", aliases(10)), Some(10));
        assert_eq!(names("/_aliases", aliases(20_000)), None);
        let long = format!("{{\"index\":\"{}\"}}\n{{}}\n", "x".repeat(5_000));
        assert_eq!(names("/_msearch", long), None);
    }

    #[test]
    fn bodies_are_read_for_the_names_that_they_have() {
        let names = |path: &str, body: &str| {
            let names = Form::of(path).unwrap().names(body.as_bytes());
            let names = in_any_slices(names);
            names.map(|names| names.0.into_iter().collect::<Vec<_>>().join(" "))
        };
        for (path, body, expected) in [
            (
                "/_msearch",
                "{\"index\":\"a\"}\n{\"query\":{}}\n{}\n{}\n",
                Some("a"),
            ),
            (
                "/x/_msearch/template",
                "\n{\"index\":[\"a\",\"b*\"]}\n{\"index\":\"no\"}\n{}",
                Some("a b*"),
            ),
            ("/_msearch", "{\"indices\":\"a,b\"}\n{}\n", Some("a,b")),
            ("/_msearch", "{\"\\u0069ndex\":\"\\u0061\"}\n{}\n", Some("a")),
            ("/_msearch", "{\"index\":7}\n{}\n", None),
            ("/_msearch", "nonsense\n{}\n", None),
            (
                "/%5Fmget",
                "{\"docs\":[{\"_index\":\"a\",\"_id\":\"1\"},{\"_id\":\"2\"}]}",
                Some("a"),
            ),
            ("/x/_mget", "{\"ids\":[\"1\"]}", Some("")),
            ("/_mtermvectors", "{\"docs\":{}}", None),
            ("/_mget", "", Some("")),
            (
                "/_reindex",
                "{\"source\":{\"index\":[\"a\",\"b\"]},\"dest\":{\"index\":\"c\"}}",
                Some("a b c"),
            ),
            (
                "/_aliases",
                "{\"actions\":[{\"add\":{\"index\":\"a\",\"alias\":\"x\"}},{\"remove_index\":{\"indices\":[\"b\"]}}]}",
                Some("a b"),
            ),
        ] {
            assert_eq!(names(path, body).as_deref(), expected, "{path} {body}");
        }
        for path in ["/_search", "/a/_doc/_search", "/_alias/a", "/a/_search/template"] {
            assert_eq!(Form::of(path), None, "{path}");
        }
    }
}
