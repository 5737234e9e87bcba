//! Searches: small plausible answers. Stored documents are found by the simplest queries; documents that are
//! only counted give only their number.

use serde_json::{Map, Value, json};

use super::http::Head;
use super::index::{Index, Stored};
use super::refusal::RequestError;
use super::state::ClusterState;

/// The condition of a query. A query of another kind matches everything.
enum Query {
    All,
    /// A field has this value, or one of these values.
    Field(String, Vec<Value>),
    Ids(Vec<String>),
}

/// A slice of the found documents, by their ids.
#[derive(Clone, Copy)]
struct Slice {
    number: u64,
    of: u64,
}

/// Answers `_search` for one index, for several with commas between them, or for all.
pub(super) fn search(state: &ClusterState, names: Option<&str>, head: &Head, body: &[u8]) -> (u16, Value) {
    let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let query = match head.parameter("q") {
        Some(text) => Query::of_text(&text),
        None => Query::of(&body["query"]),
    };
    let number = |name: &str, default: u64| {
        let given = head.parameter(name).and_then(|text| text.parse().ok());
        given.or_else(|| body[name].as_u64()).unwrap_or(default) as usize
    };
    let (from, size) = (number("from", 0), number("size", 10));
    let slice = Slice::of(&body["slice"]);
    let (status, mut answer) = page(state, names, &query, slice, (from, size));
    if status == 200 && head.parameter("scroll").is_some() {
        answer["_scroll_id"] = json!(scroll_id(names, from + size, size, slice));
    }
    (status, answer)
}

/// Answers `_search/scroll`: the next page of a search, by a scroll id that describes it completely. The
/// pages do not show the documents as of one moment.
pub(super) fn scroll(state: &ClusterState, body: &[u8]) -> (u16, Value) {
    let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let id = body["scroll_id"].as_str().unwrap_or_default();
    let parts: Vec<&str> = id.split('/').collect();
    let &[names, from, size, number, slices] = parts.as_slice() else {
        let reason = format!("Cannot parse scroll id [{id}]");
        return (
            400,
            json!({"error": {"type": "illegal_argument_exception", "reason": reason}, "status": 400}),
        );
    };
    let (from, size) = (from.parse().unwrap_or(0), size.parse().unwrap_or(10));
    let slice = Slice {
        number: number.parse().unwrap_or(0),
        of: slices.parse().unwrap_or(1),
    };
    let names = (!names.is_empty()).then_some(names);
    let (status, mut answer) = page(state, names, &Query::All, slice, (from, size));
    answer["_scroll_id"] = json!(scroll_id(names, from + size, size, slice));
    (status, answer)
}

fn scroll_id(names: Option<&str>, from: usize, size: usize, slice: Slice) -> String {
    let (names, Slice { number, of }) = (names.unwrap_or_default(), slice);
    format!("{names}/{from}/{size}/{number}/{of}")
}

fn page(
    state: &ClusterState,
    names: Option<&str>,
    query: &Query,
    slice: Slice,
    (from, size): (usize, usize),
) -> (u16, Value) {
    let indices = match chosen(state, names) {
        Ok(indices) => indices,
        Err(error) => return error.answer(),
    };
    let (mut total, mut hits, mut shards) = (0, Vec::new(), 0);
    for index in indices {
        shards += index.shards();
        let fits = |id: &str, doc: &Stored| slice.has(id) && query.fits(id, doc);
        total += index.each_match(&fits, &mut |at, id, doc| {
            if (from..from.saturating_add(size)).contains(&(total + at)) {
                hits.push(hit(index, id, doc));
            }
        });
    }
    let best = if hits.is_empty() { Value::Null } else { json!(1.0) };
    let answer = json!({
        "took": 1, "timed_out": false,
        "_shards": {"total": shards, "successful": shards, "skipped": 0, "failed": 0},
        "hits": {"total": {"value": total, "relation": "eq"}, "max_score": best, "hits": hits},
    });
    (200, answer)
}

/// Answers `_count` for one index, for several with commas between them, or for all.
pub(super) fn count(state: &ClusterState, names: Option<&str>, body: &[u8]) -> (u16, Value) {
    let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let query = Query::of(&body["query"]);
    let indices = match chosen(state, names) {
        Ok(indices) => indices,
        Err(error) => return error.answer(),
    };
    let (mut total, mut shards) = (0, 0);
    for index in indices {
        shards += index.shards();
        total += index.each_match(&|id, doc| query.fits(id, doc), &mut |_, _, _| ());
    }
    let answer = json!({
        "count": total, "_shards": {"total": shards, "successful": shards, "skipped": 0, "failed": 0},
    });
    (200, answer)
}

/// Answers `_msearch`, with an answer for each pair of lines.
pub(super) fn msearch(state: &ClusterState, name: Option<&str>, head: &Head, body: &[u8]) -> (u16, Value) {
    let lines: Vec<&[u8]> = body.split(|byte| *byte == b'\n').collect();
    let pairs = lines.chunks_exact(2);
    let responses: Vec<Value> = pairs
        .map(|pair| {
            let about: Value = serde_json::from_slice(pair[0]).unwrap_or(Value::Null);
            let (status, mut answer) = search(state, about["index"].as_str().or(name), head, pair[1]);
            answer["status"] = json!(status);
            answer
        })
        .collect();
    (200, json!({"took": 1, "responses": responses}))
}

fn chosen<'s>(state: &'s ClusterState, names: Option<&'s str>) -> Result<Vec<&'s Index>, RequestError<'s>> {
    match names {
        None | Some("_all" | "*") => Ok(state.indices.values().map(AsRef::as_ref).collect()),
        Some(names) => names
            .split(',')
            .map(|name| {
                state
                    .index(name)
                    .map(AsRef::as_ref)
                    .ok_or(RequestError::NoSuchIndex(name))
            })
            .collect(),
    }
}

fn hit(index: &Index, id: &str, doc: &Stored) -> Value {
    let source: Value = serde_json::from_str(&doc.source).unwrap_or(Value::Null);
    let mut hit = json!({"_index": index.name, "_id": id, "_score": 1.0, "_source": source});
    if let Some(routing) = &doc.routing {
        hit["_routing"] = json!(routing);
    }
    hit
}

// === impl Slice ===

impl Slice {
    fn of(slice: &Value) -> Slice {
        Slice {
            number: slice["id"].as_u64().unwrap_or(0),
            of: slice["max"].as_u64().unwrap_or(1).max(1),
        }
    }

    fn has(self, id: &str) -> bool {
        let digits = id.bytes().map(u64::from);
        digits.fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(byte)) % self.of == self.number
    }
}

// === impl Query ===

impl Query {
    fn of(query: &Value) -> Query {
        let Some((kind, inner)) = query.as_object().and_then(|query| query.iter().next()) else {
            return Query::All;
        };
        let field = || {
            inner
                .as_object()
                .and_then(|fields: &Map<String, Value>| fields.iter().next())
        };
        match (kind.as_str(), field()) {
            ("ids", _) => {
                let values = inner["values"].as_array().into_iter().flatten();
                Query::Ids(values.map(text_of).collect())
            }
            ("term" | "match", Some((field, value))) => {
                let value = value.get("value").or(value.get("query")).unwrap_or(value);
                Query::Field(field.clone(), vec![value.clone()])
            }
            ("terms", Some((field, values))) => {
                Query::Field(field.clone(), values.as_array().cloned().unwrap_or_default())
            }
            _ => Query::All,
        }
    }

    /// Parses `field:value`.
    fn of_text(text: &str) -> Query {
        match text.split_once(':') {
            Some((field, value)) if field != "*" => Query::Field(field.to_owned(), vec![json!(value)]),
            _ => Query::All,
        }
    }

    fn fits(&self, id: &str, doc: &Stored) -> bool {
        match self {
            Query::All => true,
            Query::Ids(ids) => ids.iter().any(|wanted| wanted == id),
            Query::Field(field, values) => {
                let source: Value = serde_json::from_str(&doc.source).unwrap_or(Value::Null);
                let found = field.split('.').fold(&source, |at, key| &at[key]);
                let found = text_of(found);
                values.iter().any(|value| text_of(value) == found)
            }
        }
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
