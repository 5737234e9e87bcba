//! Requests that name indices in their bodies, at a router with rules for certain indices: each name has to
//! belong to the flows that the path has chosen. A body that cannot be read is refused, since servers accept
//! more than is read here.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use wire::Collected;

use crate::error::Fault;
use crate::intake::chosen_flows::{self, ChosenFlows};
use crate::nodes::{Body, Proxy};
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
    let (original, read) = match body {
        Body::Held(_) if form == Form::Bulk => return Ok(body),
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
        return match chosen_flows::elsewhere(head, &read) {
            Some(fault) => Err(fault),
            None => Ok(Body::Held(original)),
        };
    }
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let names = match kind {
        Some(kind) if !kind.contains("json") => None,
        _ => form.names(&read),
    };
    let Some(names) = names else {
        return Err(Fault::names_unreadable());
    };
    match names
        .iter()
        .find(|name| !chosen_flows.has(head, form.api(), name))
    {
        Some(name) => Err(Fault::named_elsewhere(name)),
        None => Ok(Body::Held(original)),
    }
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

    /// Returns the names in a body, or `None` if it cannot be read.
    fn names(self, body: &[u8]) -> Option<Vec<String>> {
        let mut names = Vec::new();
        if self == Self::Searches {
            // Servers skip a line break at the very beginning (`MultiSearchRequest.readMultiLineFormat`).
            let body = body.strip_prefix(b"\n").unwrap_or(body);
            let mut lines = body.split(|byte| *byte == b'\n');
            while let Some(line) = lines.next() {
                if !line.trim_ascii().is_empty() {
                    let header: Value = serde_json::from_slice(line).ok()?;
                    for key in ["index", "indices"] {
                        collect(header.as_object()?.get(key), &mut names)?;
                    }
                }
                lines.next();
            }
            return Some(names);
        }
        if body.trim_ascii().is_empty() {
            return Some(names);
        }
        if self == Self::Documents {
            let Documents { docs, parameters } = serde_json::from_slice(body).ok()?;
            names.extend(docs.0);
            names.extend(
                parameters
                    .and_then(|document| document.index)
                    .map(Cow::into_owned),
            );
            return Some(names);
        }
        if body.len() > VALUE_BYTES_MAX {
            return None;
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

fn list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Null => Some(&[]),
        value => value.as_array().map(Vec::as_slice),
    }
}

/// Adds a name, or a list of names. Returns `None` if the value is neither.
fn collect(named: Option<&Value>, names: &mut Vec<String>) -> Option<()> {
    match named {
        None | Some(Value::Null) => {}
        Some(Value::String(name)) => names.push(name.clone()),
        Some(Value::Array(several)) => {
            for one in several {
                names.push(one.as_str()?.to_owned());
            }
        }
        Some(_) => return None,
    }
    Some(())
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
struct Indices(HashSet<String>);

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
                    match index {
                        Some(index) if !indices.0.contains(&*index) => {
                            indices.0.insert(index.into_owned());
                        }
                        _ => {}
                    }
                }
                Ok(indices)
            }
        }

        deserializer.deserialize_any(Each)
    }
}

/// The longest body of `_reindex` and `_aliases` that is accepted, in bytes: as a value it takes many times
/// its size.
const VALUE_BYTES_MAX: usize = 4 << 20;

/// The longest body that is read for names, in bytes.
const BODY_BYTES_MAX: usize = 100 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_read_for_the_names_that_they_have() {
        let names = |path: &str, body: &str| {
            let names = Form::of(path).unwrap().names(body.as_bytes());
            names.map(|names| names.join(" "))
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
