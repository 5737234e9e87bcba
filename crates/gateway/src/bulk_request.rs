//! Recognizes bulk requests and reads their heads. A request that its head alone excludes from the fast path
//! is found here, before a byte of its body is read.

use std::borrow::Cow;

use bulk::Ask;
use config::Level;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};

use crate::why::HeadWhy;
pub(crate) use config::router::decode;

/// What the head of a bulk request says about its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BulkHead<'a> {
    /// The index in the URL.
    pub(crate) index: Option<Cow<'a, str>>,
    /// `routing=`.
    pub(crate) routing: Option<Cow<'a, str>>,
    /// `pipeline=`.
    pub(crate) pipeline: Option<Cow<'a, str>>,
    /// The path is `/{index}/_doc/_bulk`, which servers with mapping types treat as `/{index}/_bulk`.
    pub(crate) typed: bool,
    /// `require_alias`: set unless the parameter says `false`.
    pub(crate) require_alias: bool,
    /// `require_data_stream`: set unless the parameter says `false`.
    pub(crate) require_data_stream: bool,
    /// The answer has to have the form of Elasticsearch 7 ([`wants_version_7`]).
    pub(crate) compatible_with_7: bool,
}

// === impl BulkHead ===

impl BulkHead<'_> {
    /// Returns the same head, independent of the request that it was read from.
    pub(crate) fn into_owned(self) -> BulkHead<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        BulkHead {
            index: self.index.map(owned),
            routing: self.routing.map(owned),
            pipeline: self.pipeline.map(owned),
            typed: self.typed,
            require_alias: self.require_alias,
            require_data_stream: self.require_data_stream,
            compatible_with_7: self.compatible_with_7,
        }
    }
}

/// The kind of a request, as far as `bulk_reshuffle` is concerned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestKind<'a> {
    /// Not a bulk request at all.
    Other,
    /// A bulk request that passes whole.
    Pass(HeadWhy),
    /// A bulk request whose body decides what happens to it.
    Bulk(BulkHead<'a>),
}

/// Classifies a request by its head. `target` is the path and query as sent.
///
/// Paths and methods are those that `RestBulkAction.routes()` registers: `POST` and `PUT` of `/_bulk` and
/// `/{index}/_bulk` (and, up to version 7, `/{index}/{type}/_bulk`), perhaps with a slash at the end.
/// Servers differ over empty segments: Elasticsearch ignores them (`PathTrie`), OpenSearch 3.8 refuses most
/// such paths and reads `//x` as a host. The cluster decides, so these pass.
pub(crate) fn classify<'a>(method: &Method, target: &'a str, headers: &HeaderMap) -> RequestKind<'a> {
    let kind = classify_recorded(method, target, headers);
    // Servers also separate parameters at semicolons (`RestUtils.decodeQueryString`): a pipeline or a routing
    // behind one would be theirs alone. And they read characters that are not escaped as Latin-1, except
    // where others beside them are (`RestUtils.decodeComponent`).
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match kind {
        RequestKind::Bulk(_) if query.contains(';') => RequestKind::Pass(HeadWhy::Parameter),
        RequestKind::Bulk(_) if !path.is_ascii() => RequestKind::Pass(HeadWhy::UrlIndex),
        RequestKind::Bulk(_) if !query.is_ascii() => RequestKind::Pass(HeadWhy::Parameter),
        kind => kind,
    }
}

/// Classifies a request like [`classify`], for the target of one that was queued by an earlier version: its
/// semicolons are parts of values, and are sent so that servers take them for that, too, and its characters
/// need not be escaped.
pub(crate) fn classify_recorded<'a>(
    method: &Method,
    target: &'a str,
    headers: &HeaderMap,
) -> RequestKind<'a> {
    if !matches!(*method, Method::POST | Method::PUT) {
        return RequestKind::Other;
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let first = segments.next();
    let (index, typed) = match (first, segments.next(), segments.next(), segments.next()) {
        (Some("_bulk"), None, ..) => (None, false),
        (Some(index), Some("_bulk"), None, _) => (Some(index), false),
        (Some(index), Some("_doc"), Some("_bulk"), None) => (Some(index), true),
        (Some(_), Some(_), Some("_bulk"), None) => return RequestKind::Pass(HeadWhy::TypedPath),
        _ => return RequestKind::Other,
    };
    if path.contains("//") {
        return RequestKind::Pass(HeadWhy::UrlIndex);
    }
    match read(index, query, headers) {
        Ok(head) => RequestKind::Bulk(BulkHead { typed, ..head }),
        Err(why) => RequestKind::Pass(why),
    }
}

fn read<'a>(index: Option<&'a str>, query: &'a str, headers: &HeaderMap) -> Result<BulkHead<'a>, HeadWhy> {
    check_content_encoding(headers)?;
    let mut head = BulkHead::default();
    if let Some(index) = index {
        let name = decode(index, false).ok_or(HeadWhy::UrlIndex)?;
        // Lists of names, patterns and date math: the cluster reads or rejects them.
        if name.contains([',', '*', '<', '>', ':']) || name.starts_with(['_', '-', '+']) {
            return Err(HeadWhy::UrlIndex);
        }
        head.index = Some(name);
    }
    read_parameters(query, &mut head)?;
    check_content_type(headers)?;
    check_accept(headers)?;
    head.compatible_with_7 = wants_version_7(headers);
    Ok(head)
}

/// Reads the parameters. Each may appear at most once, and must mean the same for a part as for the whole.
fn read_parameters<'a>(query: &'a str, head: &mut BulkHead<'a>) -> Result<(), HeadWhy> {
    let mut seen = 0u32;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let place = KNOWN_PARAMETERS
            .iter()
            .position(|known| *known == name)
            .ok_or(HeadWhy::Parameter)?;
        if seen & (1 << place) != 0 {
            return Err(HeadWhy::Parameter);
        }
        seen |= 1 << place;
        match name {
            "routing" => head.routing = Some(decode(value, true).ok_or(HeadWhy::Parameter)?),
            "pipeline" => head.pipeline = Some(decode(value, true).ok_or(HeadWhy::Parameter)?),
            "require_alias" => head.require_alias = value != "false",
            "require_data_stream" => head.require_data_stream = value != "false",
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether a request asks for an answer in the form of Elasticsearch 7, as clients of that version do
/// before Elasticsearch 8. Without an `Accept`, the type of the body decides
/// (`RestCompatibleVersionHelper.getCompatibleVersion`).
pub(crate) fn wants_version_7(headers: &HeaderMap) -> bool {
    let mut types = headers
        .get_all(ACCEPT)
        .iter()
        .chain(headers.get_all(CONTENT_TYPE));
    types.any(|media_type| {
        let Some((essence, parameters)) = media_type.to_str().ok().and_then(|text| text.split_once(';'))
        else {
            return false;
        };
        let is_seven = |parameter: &str| parameter.trim().eq_ignore_ascii_case("compatible-with=7");
        essence.trim().to_ascii_lowercase().starts_with(VERSIONED) && parameters.split(';').any(is_seven)
    })
}

/// The beginning of Elasticsearch's own media types.
const VERSIONED: &str = "application/vnd.elasticsearch+";

/// Returns whether a request sends JSON, if it names a content type at all, and accepts a JSON answer.
pub(crate) fn takes_json(headers: &HeaderMap) -> bool {
    let spoken = !headers.contains_key(CONTENT_TYPE) || check_content_type(headers).is_ok();
    spoken && check_accept(headers).is_ok()
}

pub(crate) fn check_content_encoding(headers: &HeaderMap) -> Result<(), HeadWhy> {
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    let known = |value: &HeaderValue| {
        let known: [&[u8]; 2] = [b"gzip", b"identity"];
        known
            .iter()
            .any(|known| value.as_bytes().eq_ignore_ascii_case(known))
    };
    match (encodings.next(), encodings.next()) {
        (None, _) => Ok(()),
        (Some(one), None) if known(one) => Ok(()),
        _ => Err(HeadWhy::ContentEncoding),
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<(), HeadWhy> {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    match (types.next(), types.next()) {
        (Some(one), None) if is_json(one.as_bytes()) => Ok(()),
        _ => Err(HeadWhy::ContentType),
    }
}

pub(crate) fn check_accept(headers: &HeaderMap) -> Result<(), HeadWhy> {
    let mut accepted = headers.get_all(ACCEPT).iter();
    match (accepted.next(), accepted.next()) {
        (None, _) => Ok(()),
        (Some(one), None) if one == "*/*" || is_json(one.as_bytes()) => Ok(()),
        _ => Err(HeadWhy::Accept),
    }
}

/// `application/json`, `application/x-ndjson`, or Elasticsearch's versioned forms of them, with or without
/// parameters.
fn is_json(media_type: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(media_type) else {
        return false;
    };
    let essence = text.split(';').next().unwrap_or_default().trim();
    JSON_TYPES.iter().any(|known| known.eq_ignore_ascii_case(essence)) && !text.contains(',')
}

const JSON_TYPES: [&str; 4] = [
    "application/json",
    "application/x-ndjson",
    "application/vnd.elasticsearch+json",
    "application/vnd.elasticsearch+x-ndjson",
];

/// Parameters that travel with every part and mean the same there (`RestBulkAction.prepareRequest`). Other
/// parameters change the shape of the answer (`filter_path`, `pretty`, `format`, …), change how the request
/// is run (`batch_size`), or are unknown.
const KNOWN_PARAMETERS: [&str; 12] = [
    "refresh",
    "timeout",
    "wait_for_active_shards",
    "routing",
    "pipeline",
    "require_alias",
    "require_data_stream",
    "_source",
    "_source_includes",
    "_source_excludes",
    "list_executed_pipelines",
    "include_source_on_error",
];

/// Returns what a request asks of a plan: what its URL says for all of its lines, and how finely it is split.
pub(crate) fn ask_of<'a>(head: &'a BulkHead<'_>, level: Level) -> Ask<'a> {
    Ask {
        default_index: head.index.as_deref(),
        url_routing: head.routing.as_deref(),
        url_pipeline: head.pipeline.as_deref(),
        level: match level {
            Level::Cluster | Level::Node => bulk::Level::Node,
            Level::Index => bulk::Level::Index,
            Level::Shard => bulk::Level::Shard,
        },
        null_id: bulk::NullId::Keep,
        ..Ask::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn ndjson() -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        headers
    }

    fn post(target: &str) -> RequestKind<'_> {
        classify(&Method::POST, target, &ndjson())
    }

    fn index_of(target: &str) -> Option<String> {
        match post(target) {
            RequestKind::Bulk(head) => head.index.map(Cow::into_owned),
            other => panic!("{target}: {other:?}"),
        }
    }

    #[test]
    fn bulk_paths_are_those_that_the_server_routes() {
        assert_eq!(index_of("/_bulk"), None);
        assert_eq!(index_of("/logs/_bulk"), Some("logs".into()));
        assert_eq!(index_of("/logs/_bulk/"), Some("logs".into()));
        assert_eq!(index_of("/caf%C3%A9/_bulk"), Some("café".into()));
        assert_eq!(post("/logs/other/_bulk"), RequestKind::Pass(HeadWhy::TypedPath));
        let RequestKind::Bulk(typed) = post("/logs/_doc/_bulk?timeout=1m") else {
            panic!("a bulk")
        };
        assert!(typed.typed && typed.index.as_deref() == Some("logs"));
        for other in ["/", "/_search", "/_bulk/stream", "/a/b/c/_bulk", "/_bulkx"] {
            assert_eq!(post(other), RequestKind::Other, "{other}");
        }
        assert_eq!(classify(&Method::GET, "/_bulk", &ndjson()), RequestKind::Other);
    }

    #[test]
    fn an_index_that_is_not_one_plain_name_passes() {
        for target in [
            "/a,b/_bulk",
            "/a*/_bulk",
            "/%3Clogs-%7Bnow%2Fd%7D%3E/_bulk",
            "/_all/_bulk",
            "//logs/_bulk",
            "/logs//_bulk",
            "//_bulk",
            "/%zz/_bulk",
            "/%ff/_bulk",
        ] {
            assert_eq!(post(target), RequestKind::Pass(HeadWhy::UrlIndex), "{target}");
        }
    }

    #[test]
    fn parameters_are_decoded_and_anything_odd_passes() {
        let RequestKind::Bulk(head) = post("/_bulk?routing=a%20b+c&pipeline=p&refresh&timeout=1m") else {
            panic!("a bulk")
        };
        assert_eq!(head.routing.as_deref(), Some("a b c"));
        assert_eq!(head.pipeline.as_deref(), Some("p"));
        for odd in [
            "pretty",
            "filter_path=items",
            "format=yaml",
            "routing=a&routing=b",
            "routing=%f",
            "x=1",
            "routing=a;pipeline=p",
            "refresh=true;routing=b",
            "timeout=1m;x",
            ";pipeline=p",
            "type=_doc",
            "%70retty",
        ] {
            assert_eq!(
                post(&format!("/_bulk?{odd}")),
                RequestKind::Pass(HeadWhy::Parameter),
                "{odd}"
            );
        }
    }

    #[test]
    fn clients_of_version_7_say_so() {
        let wants = |name: http::HeaderName, value: &'static str| {
            let mut headers = ndjson();
            headers.insert(name, HeaderValue::from_static(value));
            match classify(&Method::POST, "/_bulk", &headers) {
                RequestKind::Bulk(head) => head.into_owned().compatible_with_7,
                other => panic!("{value}: {other:?}"),
            }
        };
        let seven = "application/vnd.elasticsearch+json; compatible-with=7";
        assert!(wants(ACCEPT, seven) && wants(CONTENT_TYPE, seven));
        assert!(wants(
            ACCEPT,
            "application/vnd.elasticsearch+json;compatible-with=7"
        ));
        for other in [
            "application/vnd.elasticsearch+json; compatible-with=8",
            "application/vnd.elasticsearch+json",
            "application/json; compatible-with=7",
            "application/json",
        ] {
            assert!(!wants(ACCEPT, other), "{other}");
        }
    }

    #[test]
    fn what_servers_read_as_latin1_passes() {
        for (target, why) in [
            ("/\u{65e5}\u{5fd7}/_bulk", HeadWhy::UrlIndex),
            ("/caf\u{e9}/_doc/_bulk", HeadWhy::UrlIndex),
            ("/_bulk?routing=\u{e9}", HeadWhy::Parameter),
            ("/logs/_bulk?pipeline=\u{e9}%20", HeadWhy::Parameter),
        ] {
            assert_eq!(post(target), RequestKind::Pass(why), "{target}");
            // What an earlier version has queued is delivered all the same.
            let recorded = classify_recorded(&Method::POST, target, &ndjson());
            assert!(matches!(recorded, RequestKind::Bulk(_)), "{target}");
        }
        assert_eq!(post("/caf\u{e9}/_search"), RequestKind::Other);
    }

    #[test]
    fn only_json_in_and_out_is_split() {
        let with = |name: http::HeaderName, value: &'static str| {
            let mut headers = ndjson();
            headers.insert(name, HeaderValue::from_static(value));
            classify(&Method::POST, "/_bulk", &headers) == RequestKind::Bulk(BulkHead::default())
        };
        assert!(with(CONTENT_TYPE, "application/json"));
        assert!(with(CONTENT_TYPE, "application/json; charset=UTF-8"));
        assert!(with(
            CONTENT_TYPE,
            "application/vnd.elasticsearch+x-ndjson; compatible-with=8"
        ));
        assert!(!with(CONTENT_TYPE, "application/cbor"));
        assert!(with(ACCEPT, "*/*"));
        assert!(with(
            ACCEPT,
            "application/vnd.elasticsearch+json; compatible-with=9"
        ));
        assert!(!with(ACCEPT, "application/yaml"));
        assert!(!with(CONTENT_ENCODING, "br"));
        assert_eq!(
            classify(&Method::POST, "/_bulk", &HeaderMap::new()),
            RequestKind::Pass(HeadWhy::ContentType)
        );
    }
}
