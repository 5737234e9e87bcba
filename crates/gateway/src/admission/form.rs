//! The form of a bulk is its head without its index: parameters, media types, lengths. In asynchronous mode a
//! form that this cluster refuses is refused before anything is queued, in the cluster's own words. Only the
//! cluster knows which forms those are, so it is asked, once for each form, with a bulk that changes nothing.

mod ask;
mod known;

use std::collections::BTreeSet;

use bulk::Dialect;
use http::header::{ACCEPT, CONTENT_TYPE, ORIGIN, WARNING};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) use ask::FormQuestion;
pub(crate) use known::Forms;

/// The form of one request.
struct Form<'a> {
    target: &'a str,
    /// The key by which the form is remembered. Two requests with the same key are both taken, or both
    /// refused.
    key: String,
    /// Whether all clusters take the form: no question is needed.
    plain: bool,
    /// The bytes of the request's target, and of its headers with their separators: servers bound both.
    target_bytes: usize,
    header_bytes: usize,
}

/// The head of the cluster's answers to requests of one form: their media type, and who answers. It is among
/// the extensions of a request that was admitted.
#[derive(Clone, Debug)]
pub(crate) struct AnswerHead(std::sync::Arc<HeaderMap>);

// === impl Form ===

impl<'a> Form<'a> {
    fn of(head: &Parts, target: &'a str) -> Self {
        let headers = &head.headers;
        let query = target.split_once('?').map_or("", |(_, query)| query);
        let pairs = || query.split('&').filter(|pair| !pair.is_empty());
        let said = [CONTENT_TYPE, ACCEPT, ORIGIN].map(|name| headers.get(name).map(HeaderValue::as_bytes));
        let repeated: BTreeSet<&str> = headers
            .keys()
            .filter(|name| headers.get_all(*name).iter().nth(1).is_some())
            .map(HeaderName::as_str)
            .collect();
        let plain = said[0].is_some_and(|kind| among(&PLAIN_TYPES, kind))
            && said[1].is_none_or(|kind| among(&PLAIN_ACCEPTED, kind))
            && said[2].is_none()
            && repeated.is_empty()
            && pairs().all(is_plain);
        let mut form = Self {
            target,
            key: String::new(),
            plain,
            target_bytes: target.len(),
            header_bytes: headers
                .iter()
                .map(|(name, value)| name.as_str().len() + value.len() + 4)
                .sum(),
        };
        if !plain {
            // The parameters are in one order, whatever the client's.
            let pairs: BTreeSet<&str> = pairs().map(without_free_text).collect();
            let said = said.map(|value| value.map(String::from_utf8_lossy));
            form.key = format!("{said:?} {repeated:?} {pairs:?}");
        }
        form
    }
}

/// Whether every server takes a parameter with this value.
fn is_plain(pair: &str) -> bool {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let digits = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    match name {
        "refresh" => matches!(value, "" | "true" | "false" | "wait_for"),
        "timeout" => ["ms", "s", "m", "h", "d"]
            .iter()
            .any(|unit| value.strip_suffix(unit).is_some_and(|number| digits(number, 4))),
        "wait_for_active_shards" => value == "all" || digits(value, 4),
        _ => FREE_TEXT.contains(&name) && !value.is_empty(),
    }
}

/// Returns a parameter without its value, if the value does not decide whether the parameter is taken, and
/// there are too many values to remember.
fn without_free_text(pair: &str) -> &str {
    match pair.split_once('=') {
        Some((name, value)) if FREE_TEXT.contains(&name) && !value.is_empty() => name,
        _ => pair,
    }
}

fn among(known: &[&str], value: &[u8]) -> bool {
    known
        .iter()
        .any(|known| value.eq_ignore_ascii_case(known.as_bytes()))
}

// === impl AnswerHead ===

impl AnswerHead {
    /// Gives a queued answer the headers that the cluster's answer would have. The client's name for its
    /// request is echoed, as servers do.
    pub(crate) fn put_on(answer: &mut HeaderMap, head: &Parts) {
        if let Some(Self(theirs)) = head.extensions.get() {
            for name in theirs.keys() {
                answer.remove(name);
            }
            for (name, value) in theirs.iter() {
                answer.append(name.clone(), value.clone());
            }
        }
        if let Some(opaque_id) = head.headers.get(&OPAQUE_ID) {
            answer.insert(OPAQUE_ID.clone(), opaque_id.clone());
        }
    }
}

/// Returns the headers of an answer that is made here because no node has given one: clients of Elasticsearch
/// read nothing that does not say that Elasticsearch answers.
pub(crate) fn head_of_our_own(dialect: &Dialect, asked: &HeaderMap) -> HeaderMap {
    let mut head = known::plain_head(dialect);
    if let Some(opaque_id) = asked.get(&OPAQUE_ID) {
        head.insert(OPAQUE_ID.clone(), opaque_id.clone());
    }
    head
}

/// Keeps the headers that the answers to all requests of a form have alike.
fn alike(headers: &HeaderMap) -> HeaderMap {
    let kept = headers.iter().filter(|(name, _)| KEPT.contains(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

static KEPT: [HeaderName; 4] = [CONTENT_TYPE, WARNING, PRODUCT, OPENSEARCH_VERSION];
/// The header by which clients of Elasticsearch know that Elasticsearch answers.
const PRODUCT: HeaderName = HeaderName::from_static("x-elastic-product");
const OPENSEARCH_VERSION: HeaderName = HeaderName::from_static("x-opensearch-version");
static OPAQUE_ID: HeaderName = HeaderName::from_static("x-opaque-id");

const PLAIN_TYPES: [&str; 4] = [
    "application/x-ndjson",
    "application/json",
    "application/json; charset=utf-8",
    "application/json;charset=utf-8",
];
const PLAIN_ACCEPTED: [&str; 2] = ["*/*", "application/json"];

/// Parameters whose value may be any text.
const FREE_TEXT: [&str; 5] = [
    "routing",
    "pipeline",
    "_source",
    "_source_includes",
    "_source_excludes",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(target: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::post(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    const NDJSON: (&str, &str) = ("content-type", "application/x-ndjson");

    #[test]
    fn what_every_server_takes_is_plain_and_nothing_else() {
        let plain = |target: &str, headers: &[(&str, &str)]| Form::of(&parts(target, headers), target).plain;
        for target in [
            "/_bulk",
            "/i/_bulk?refresh&timeout=90s&wait_for_active_shards=all&pipeline=p&routing=r",
            "/_bulk?refresh=wait_for&wait_for_active_shards=2&_source=true&_source_excludes=a,b",
        ] {
            assert!(plain(target, &[NDJSON]), "{target}");
            assert!(plain(
                target,
                &[NDJSON, ("accept", "application/json"), ("x-any", "1")]
            ));
        }
        for target in [
            "/_bulk?refresh=banana",
            "/_bulk?timeout=5",
            "/_bulk?timeout=1.5m",
            "/_bulk?timeout=1M",
            "/_bulk?timeout=",
            "/_bulk?wait_for_active_shards=-1",
            "/_bulk?require_alias=true",
            "/_bulk?banana=1",
            "/_bulk?routing=",
            "/_bulk?pretty",
        ] {
            assert!(!plain(target, &[NDJSON]), "{target}");
        }
        let vendor = "application/vnd.elasticsearch+x-ndjson; compatible-with=8";
        assert!(!plain("/_bulk", &[("content-type", vendor)]));
        assert!(!plain("/_bulk", &[]));
        assert!(!plain("/_bulk", &[NDJSON, ("accept", "application/yaml")]));
        assert!(!plain("/_bulk", &[NDJSON, ("origin", "http://elsewhere")]));
        assert!(!plain(
            "/_bulk",
            &[NDJSON, ("x-opaque-id", "1"), ("x-opaque-id", "2")]
        ));
    }

    #[test]
    fn a_form_has_one_key_whatever_its_index_its_order_and_its_free_text() {
        let key = |target: &str| Form::of(&parts(target, &[NDJSON]), target).key;
        let one = key("/a/_bulk?require_alias=true&routing=x&refresh=true");
        assert_eq!(one, key("/b/_bulk?refresh=true&routing=y&require_alias=true"));
        for other in [
            "/a/_bulk?require_alias=false&routing=x&refresh=true",
            "/a/_bulk?require_alias=true&routing=&refresh=true",
            "/a/_bulk?require_alias=true&refresh=true",
        ] {
            assert_ne!(one, key(other), "{other}");
        }
    }
}
