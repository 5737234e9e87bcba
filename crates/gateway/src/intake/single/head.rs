//! Recognizes requests that write a single document, and reads their heads in the terms of a bulk.

use bulk::{Op, Single, SingleValue};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};

use crate::bulk_request::{BulkHead, check_accept, check_content_encoding, decode, wants_version_7};
use crate::why::SingleWhy;

/// The kind of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SingleKind<'a> {
    /// Not a write of a single document.
    Other,
    /// A write that goes on as it came.
    Pass(SingleWhy),
    /// A write that may join the bulks, depending on its body.
    Write(SingleHead<'a>),
}

/// A single-document write, as its head describes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SingleHead<'a> {
    pub(super) single: Single<'a>,
    /// The path and query of the bulk.
    pub(super) target: String,
    /// The content type of the bulk.
    pub(super) content_type: HeaderValue,
}

/// Classifies a request by its head. `target` is the path and query as sent.
///
/// Paths and methods are those that `RestIndexAction.routes()`, `RestUpdateAction.routes()` and
/// `RestDeleteAction.routes()` register for indices without types, perhaps with a slash at the end. Paths
/// with empty segments pass, as those of bulks do.
pub(super) fn classify<'a>(method: &Method, target: &'a str, headers: &HeaderMap) -> SingleKind<'a> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let (Some(index), Some(api), id, None) =
        (segments.next(), segments.next(), segments.next(), segments.next())
    else {
        return SingleKind::Other;
    };
    let op = match (method.as_str(), api, id) {
        // Such a document is only ever created, unless a parameter says otherwise
        // (`RestIndexAction.AutoIdHandler`).
        ("POST", "_doc", None) => Op::Create,
        ("PUT" | "POST", "_doc", Some(_)) => Op::Index,
        ("PUT" | "POST", "_create", Some(_)) => Op::Create,
        ("POST", "_update", Some(_)) => Op::Update,
        ("DELETE", "_doc", Some(_)) => Op::Delete,
        _ => return SingleKind::Other,
    };
    if index.starts_with('_') {
        return SingleKind::Other;
    }
    if path.contains("//") {
        return SingleKind::Pass(SingleWhy::Index);
    }
    read(op, api, index, id, query, headers).map_or_else(SingleKind::Pass, SingleKind::Write)
}

fn read<'a>(
    op: Op,
    api: &str,
    index: &'a str,
    id: Option<&'a str>,
    query: &'a str,
    headers: &HeaderMap,
) -> Result<SingleHead<'a>, SingleWhy> {
    check_content_encoding(headers).map_err(|_| SingleWhy::ContentEncoding)?;
    // Servers read what is not escaped as Latin-1.
    let decode = |segment: &'a str, why| {
        let plain = Some(segment).filter(|segment| segment.is_ascii());
        plain.and_then(|segment| decode(segment, false)).ok_or(why)
    };
    let index = decode(index, SingleWhy::Index)?;
    // Lists of names, patterns and date math: the cluster reads or rejects them.
    if index.contains([',', '*', '<', '>', ':']) || index.starts_with(['_', '-', '+']) {
        return Err(SingleWhy::Index);
    }
    let id = match id {
        Some(id) => Some(decode(id, SingleWhy::Id)?),
        None => None,
    };
    // `/{index}/_doc/_mapping` and similar paths are other APIs on servers with types.
    if id.as_ref().is_some_and(|id| id.starts_with('_')) {
        return Err(SingleWhy::Id);
    }
    let mut single = Single {
        op,
        index,
        id,
        keys: Vec::new(),
    };
    let target = read_parameters(query, api, &mut single)?;
    check_accept(headers).map_err(|_| SingleWhy::Accept)?;
    Ok(SingleHead {
        single,
        target,
        content_type: content_type(op, headers)?,
    })
}

/// Puts each parameter where a bulk has it: a parameter of the operation goes into the action line, a
/// parameter of the request into the bulk's URL. Each may appear at most once, and only those whose meaning
/// is certain are accepted.
fn read_parameters<'a>(query: &'a str, api: &str, single: &mut Single<'a>) -> Result<String, SingleWhy> {
    let why = SingleWhy::Parameter;
    // Some servers also separate parameters at semicolons (`RestUtils.decodeQueryString`).
    if query.contains(';') || !query.is_ascii() {
        return Err(why);
    }
    let op = single.op;
    let writes = matches!(op, Op::Index | Op::Create);
    let mut seen = Vec::new();
    // In a fixed order, so that requests with the same parameters have the same URL.
    let mut of_request = [None; OF_REQUEST.len()];
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if seen.contains(&name) {
            return Err(why);
        }
        seen.push(name);
        if let Some(place) = OF_REQUEST.iter().position(|known| *known == name) {
            if name.starts_with("_source") && op != Op::Update {
                return Err(why);
            }
            of_request[place] = (pair != "refresh=false").then_some(pair);
            continue;
        }
        let text = || decode(value, true).map(SingleValue::Text).ok_or(why);
        let key = match name {
            "routing" => ("routing", text()?),
            "pipeline" if writes => ("pipeline", text()?),
            "version" if op != Op::Update => ("version", word(value)?),
            "version_type" if op != Op::Update => ("version_type", text()?),
            "if_seq_no" => ("if_seq_no", word(value)?),
            "if_primary_term" => ("if_primary_term", word(value)?),
            "retry_on_conflict" if op == Op::Update => ("retry_on_conflict", word(value)?),
            "require_alias" if op != Op::Delete => match value {
                "true" => ("require_alias", SingleValue::Word("true")),
                "false" => continue,
                _ => return Err(why),
            },
            "op_type" if writes => {
                single.op = match (api, value) {
                    (_, "create") => Op::Create,
                    ("_doc", "index") => Op::Index,
                    _ => return Err(why),
                };
                continue;
            }
            _ => return Err(why),
        };
        single.keys.push(key);
    }
    let mut target = "/_bulk".to_owned();
    for (nth, pair) in of_request.into_iter().flatten().enumerate() {
        target.push(if nth == 0 { '?' } else { '&' });
        target.push_str(pair);
    }
    Ok(target)
}

/// Accepts digits, up to a limited number.
fn word(value: &str) -> Result<SingleValue<'_>, SingleWhy> {
    match value.len() {
        1..=18 if value.bytes().all(|byte| byte.is_ascii_digit()) => Ok(SingleValue::Word(value)),
        _ => Err(SingleWhy::Parameter),
    }
}

/// Returns the content type of the bulk, chosen so that its answer has the content type that the request's
/// answer would have. It is also the content type that clients use for their own bulks, so that both may
/// travel together. A delete has no content type of its own.
fn content_type(op: Op, headers: &HeaderMap) -> Result<HeaderValue, SingleWhy> {
    let why = SingleWhy::ContentType;
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let said = match (types.next(), types.next()) {
        (Some(one), None) => one,
        (None, _) if op == Op::Delete => match headers.get(ACCEPT) {
            Some(accepted) if accepted.as_bytes().starts_with(VERSIONED.as_bytes()) => accepted,
            _ => return Ok(HeaderValue::from_static(NDJSON)),
        },
        _ => return Err(why),
    };
    let said = said.to_str().map_err(|_| why)?;
    if let Some(parameters) = said.strip_prefix(VERSIONED) {
        if !parameters.trim_start().starts_with(';') || parameters.contains(',') {
            return Err(why);
        }
        let versioned = format!("{VERSIONED_NDJSON}{parameters}");
        return HeaderValue::try_from(versioned).map_err(|_| why);
    }
    let (essence, parameter) = match said.split_once(';') {
        Some((essence, parameter)) => (essence.trim(), parameter.trim()),
        None => (said.trim(), ""),
    };
    let plain = parameter.is_empty() || parameter.eq_ignore_ascii_case("charset=utf-8");
    match essence.eq_ignore_ascii_case("application/json") && plain {
        true => Ok(HeaderValue::from_static(NDJSON)),
        false => Err(why),
    }
}

/// Returns what the bulk's head says of all of its lines: nothing, except for the form of the answer.
pub(super) fn no_defaults(headers: &HeaderMap) -> BulkHead<'static> {
    BulkHead {
        compatible_with_7: wants_version_7(headers),
        ..BulkHead::default()
    }
}

/// Returns the headers of the bulk: those of the request with the bulk's content type, which always comes
/// first, wherever it was before.
pub(super) fn bulk_headers(headers: &HeaderMap, content_type: HeaderValue) -> HeaderMap {
    let mut of_bulk = HeaderMap::with_capacity(headers.len() + 1);
    of_bulk.insert(CONTENT_TYPE, content_type);
    for (name, value) in headers {
        if *name != CONTENT_TYPE && *name != CONTENT_LENGTH {
            of_bulk.append(name, value.clone());
        }
    }
    of_bulk
}

/// Parameters of a request that mean the same for a bulk (`RestBulkAction.prepareRequest`), in the order in
/// which the bulk has them.
const OF_REQUEST: [&str; 6] = [
    "refresh",
    "timeout",
    "wait_for_active_shards",
    "_source",
    "_source_includes",
    "_source_excludes",
];

const NDJSON: &str = "application/x-ndjson";
/// The content type of Elasticsearch's clients, which append a version.
const VERSIONED: &str = "application/vnd.elasticsearch+json";
const VERSIONED_NDJSON: &str = "application/vnd.elasticsearch+x-ndjson";

#[cfg(test)]
mod tests {
    use super::*;

    fn json() -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers
    }

    fn of<'a>(method: &str, target: &'a str) -> SingleKind<'a> {
        classify(&method.parse().unwrap(), target, &json())
    }

    /// Returns the bulk's target and its lines.
    fn written(method: &str, target: &str) -> (String, String) {
        match of(method, target) {
            SingleKind::Write(head) => {
                let mut lines = Vec::new();
                head.single.write(b"{}", &mut lines).unwrap();
                (head.target, String::from_utf8(lines).unwrap())
            }
            other => panic!("{method} {target}: {other:?}"),
        }
    }

    #[test]
    fn paths_and_methods_are_those_that_the_server_routes() {
        for (method, target, lines) in [
            ("PUT", "/i/_doc/1", r#"{"index":{"_index":"i","_id":"1"}}"#),
            ("POST", "/i/_doc/1/", r#"{"index":{"_index":"i","_id":"1"}}"#),
            ("POST", "/i/_doc", r#"{"create":{"_index":"i"}}"#),
            ("POST", "/i/_doc?op_type=index", r#"{"index":{"_index":"i"}}"#),
            (
                "PUT",
                "/i/_create/a%2Fb+c",
                r#"{"create":{"_index":"i","_id":"a/b+c"}}"#,
            ),
            (
                "PUT",
                "/i/_doc/1?op_type=create",
                r#"{"create":{"_index":"i","_id":"1"}}"#,
            ),
            (
                "POST",
                "/i/_update/%C3%A9%22",
                r#"{"update":{"_index":"i","_id":"é\""}}"#,
            ),
        ] {
            assert_eq!(
                written(method, target),
                ("/_bulk".to_owned(), format!("{lines}\n{{}}\n")),
                "{method} {target}"
            );
        }
        assert_eq!(
            written("DELETE", "/i/_doc/1?routing=a+b").1,
            "{\"delete\":{\"_index\":\"i\",\"_id\":\"1\",\"routing\":\"a b\"}}\n"
        );
        for (method, target) in [
            ("GET", "/i/_doc/1"),
            ("HEAD", "/i/_doc/1"),
            ("PUT", "/i/_doc"),
            ("DELETE", "/i/_doc"),
            ("PUT", "/i/_update/1"),
            ("POST", "/i/_create"),
            ("POST", "/i/_search"),
            ("PUT", "/i/type/1"),
            ("POST", "/i/type/1/_update"),
            ("PUT", "/i"),
            ("PUT", "/_ingest/_doc/1"),
            ("POST", "/_bulk"),
        ] {
            assert_eq!(of(method, target), SingleKind::Other, "{method} {target}");
        }
    }

    #[test]
    fn parameters_go_where_a_bulk_has_them_in_one_order() {
        let (target, lines) = written(
            "PUT",
            "/i/_doc/1?timeout=5s&version=7&routing=%C3%A9&refresh=wait_for&version_type=external&pipeline=p",
        );
        assert_eq!(target, "/_bulk?refresh=wait_for&timeout=5s");
        assert!(
            lines.contains(r#""version":7,"routing":"é","version_type":"external","pipeline":"p"}}"#),
            "{lines}"
        );
        assert_eq!(written("DELETE", "/i/_doc/1?refresh").0, "/_bulk?refresh");
        assert_eq!(written("DELETE", "/i/_doc/1?refresh=false").0, "/_bulk");
        let (target, lines) = written(
            "POST",
            "/i/_update/1?_source=a,b&retry_on_conflict=3&require_alias=true&wait_for_active_shards=all",
        );
        assert_eq!(target, "/_bulk?wait_for_active_shards=all&_source=a,b");
        assert!(
            lines.contains(r#""retry_on_conflict":3,"require_alias":true}}"#),
            "{lines}"
        );
    }

    #[test]
    fn anything_odd_passes() {
        for (method, target, why) in [
            ("PUT", "/a,b/_doc/1", SingleWhy::Index),
            ("PUT", "/-a/_doc/1", SingleWhy::Index),
            ("PUT", "/%3Ca-%7Bnow%7D%3E/_doc/1", SingleWhy::Index),
            ("PUT", "/i/_doc/_mapping", SingleWhy::Id),
            ("PUT", "/i/_doc/%ff", SingleWhy::Id),
            ("PUT", "/i/_doc/%5fx", SingleWhy::Id),
            // Servers read what is not escaped as Latin-1.
            ("PUT", "/caf\u{e9}/_doc/1", SingleWhy::Index),
            ("PUT", "/i/_doc/\u{65e5}", SingleWhy::Id),
            ("PUT", "/i/_doc/1?routing=\u{e9}", SingleWhy::Parameter),
            ("PUT", "/i/_doc/1?pretty", SingleWhy::Parameter),
            ("PUT", "/i/_doc/1?filter_path=result", SingleWhy::Parameter),
            ("PUT", "/i/_doc/1?error_trace=true", SingleWhy::Parameter),
            ("PUT", "/i/_doc/1?refresh;pretty", SingleWhy::Parameter),
            ("PUT", "/i/_doc/1?routing=a&routing=a", SingleWhy::Parameter),
            ("PUT", "/i/_doc/1?routing=%f", SingleWhy::Parameter),
            ("PUT", "/i/_doc/1?version=-1", SingleWhy::Parameter),
            ("PUT", "/i/_doc/1?version=+1", SingleWhy::Parameter),
            ("PUT", "/i/_doc/1?op_type=Create", SingleWhy::Parameter),
            ("PUT", "/i/_create/1?op_type=index", SingleWhy::Parameter),
            ("PUT", "/i/_doc/1?require_alias", SingleWhy::Parameter),
            ("PUT", "/i/_doc/1?_source=a", SingleWhy::Parameter),
            ("PUT", "/i/_doc/1?retry_on_conflict=1", SingleWhy::Parameter),
            ("POST", "/i/_update/1?version=1", SingleWhy::Parameter),
            ("POST", "/i/_update/1?doc_as_upsert=true", SingleWhy::Parameter),
            ("DELETE", "/i/_doc/1?pipeline=p", SingleWhy::Parameter),
        ] {
            assert_eq!(of(method, target), SingleKind::Pass(why), "{method} {target}");
        }
    }

    #[test]
    fn the_content_type_is_that_of_bulks() {
        let of = |op, said: Option<&'static str>, accepted: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            let pairs = [(CONTENT_TYPE, said), (ACCEPT, accepted)];
            for (name, value) in pairs {
                headers.extend(value.map(|value| (name, HeaderValue::from_static(value))));
            }
            content_type(op, &headers).map(|value| value.to_str().unwrap().to_owned())
        };
        let plain = Ok(NDJSON.to_owned());
        let nine = Ok("application/vnd.elasticsearch+x-ndjson;compatible-with=9".to_owned());
        let accepted = Some("application/vnd.elasticsearch+json;compatible-with=9");
        assert_eq!(of(Op::Index, Some("application/json"), None), plain);
        assert_eq!(
            of(Op::Index, Some("Application/JSON; charset=UTF-8"), None),
            plain
        );
        assert_eq!(of(Op::Index, accepted, accepted), nine);
        assert_eq!(of(Op::Delete, None, None), plain);
        assert_eq!(of(Op::Delete, None, accepted), nine);
        for odd in [
            "application/cbor",
            "text/plain",
            "application/x-ndjson",
            "application/json; charset=latin1",
            "application/vnd.elasticsearch+json",
        ] {
            assert_eq!(
                of(Op::Index, Some(odd), None),
                Err(SingleWhy::ContentType),
                "{odd}"
            );
        }
        assert_eq!(of(Op::Index, None, None), Err(SingleWhy::ContentType));
    }

    #[test]
    fn headers_are_kept_and_the_content_type_stands_first() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("accept", "*/*"), ("content-length", "2"), ("x-opaque-id", "7")] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let of_bulk = bulk_headers(&headers, HeaderValue::from_static(NDJSON));
        let names: Vec<_> = of_bulk.keys().map(http::HeaderName::as_str).collect();
        assert_eq!(names, ["content-type", "accept", "x-opaque-id"]);
    }
}
