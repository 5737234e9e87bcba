//! Answers to requests that pass whole, without what a node's errors quote from other clients
//! ([`crate::nodes::quote`]). A quote stays if all of it is the client's own: the head as it was sent, with
//! the client's credentials, and the beginning of its body.

use std::ops::Range;

use bulk::{Flavour, Version};
use cluster::Snapshot;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use wire::PooledBytes;

use crate::nodes::quote;

/// What a client may see quoted: its own request.
pub(crate) struct OwnRequest {
    /// The request line of the head; `None` for a request with the gateway's account, which may see no quote.
    line: Option<String>,
    authorization: Option<HeaderValue>,
    body: Option<PooledBytes>,
    answers_by_items: bool,
}

/// Returns whether a cluster's errors may quote. This is so for versions of Elasticsearch and OpenSearch with
/// the parser of version 7, and while the version is not known yet.
pub(crate) fn may_quote(snapshot: &Snapshot) -> bool {
    let Some(Version { major, .. }) = snapshot.versions.first() else {
        return true;
    };
    match snapshot.flavour {
        Some(Flavour::Elasticsearch) => *major < 8,
        Some(Flavour::OpenSearch) => *major < 2,
        None => true,
    }
}

/// Returns an answer without quotes of other clients, or `None` if it quotes nothing.
pub(crate) fn without_others(
    status: StatusCode,
    headers: &HeaderMap,
    answer: &[u8],
    asked: &OwnRequest,
) -> Option<Vec<u8>> {
    if !quote::has_mark(answer) {
        return None;
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.contains("json")) {
        return Some(quote::blank(answer));
    }
    let is_others = |quoted: &[u8]| !asked.has(quoted);
    if !status.is_success() {
        return Some(quote::cut_where(answer, is_others));
    }
    let (mut out, mut at) = (Vec::with_capacity(answer.len()), 0);
    for error in errors_of_items(answer) {
        out.extend_from_slice(&answer[at..error.start]);
        out.extend_from_slice(&quote::cut_where(&answer[error.clone()], is_others));
        at = error.end;
    }
    out.extend_from_slice(&answer[at..]);
    Some(out)
}

// === impl OwnRequest ===

impl OwnRequest {
    /// Describes a request that is about to be sent to `target`. `lent`: with the gateway's account.
    pub(crate) fn new(
        method: &Method,
        target: &str,
        headers: &HeaderMap,
        body: Option<PooledBytes>,
        lent: bool,
    ) -> Self {
        let path = target.split('?').next().unwrap_or_default();
        Self {
            line: (!lent).then(|| format!("{method} {target} HTTP/1.1")),
            authorization: headers.get(AUTHORIZATION).cloned(),
            body,
            answers_by_items: path.contains("_bulk") || path.contains("_msearch"),
        }
    }

    /// Returns whether an answer with this status may quote.
    pub(crate) fn may_be_quoted(&self, status: StatusCode) -> bool {
        self.answers_by_items || !status.is_success()
    }

    /// Returns whether all of a quote, in JSON form, is the client's own.
    pub(crate) fn has(&self, quoted: &[u8]) -> bool {
        let Some(line) = &self.line else { return false };
        let text = std::str::from_utf8(quoted).ok();
        let text = text.and_then(|text| serde_json::from_str::<String>(&format!("\"{text}\"")).ok());
        let Some(text) = text else { return false };
        let is_of_body = |text: &str| {
            let body = self.body.as_deref().unwrap_or_default();
            body.starts_with(text.as_bytes())
        };
        let Some(headers) = text.strip_prefix(&**line) else {
            return is_of_body(&text);
        };
        let (headers, body) = headers.split_once("\r\n\r\n").unwrap_or((headers, ""));
        let own = self.authorization.as_ref().map(HeaderValue::as_bytes);
        let mut given = headers.split("\r\n").filter_map(|line| line.split_once(':'));
        is_of_body(body)
            && given.all(|(name, value)| {
                let is_account = name.eq_ignore_ascii_case(AUTHORIZATION.as_str());
                !is_account || Some(value.trim().as_bytes()) == own
            })
    }
}

/// Returns where the errors are in an answer with an item for each operation or search. The documents that
/// the answer returns are outside of these ranges.
fn errors_of_items(answer: &[u8]) -> Vec<Range<usize>> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow, default)]
        items: Vec<&'a RawValue>,
        #[serde(borrow, default)]
        responses: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct One<'a> {
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Item<'a> {
        #[serde(borrow, alias = "create", alias = "update", alias = "delete")]
        index: Option<One<'a>>,
    }
    let Ok(read) = serde_json::from_slice::<Answer<'_>>(answer) else {
        return std::iter::once(0..answer.len()).collect();
    };
    let range_of = |text: &RawValue| {
        let start = text.get().as_ptr() as usize - answer.as_ptr() as usize;
        start..start + text.get().len()
    };
    let items = read.items.iter().filter_map(|item| {
        let item: Item<'_> = serde_json::from_str(item.get()).ok()?;
        item.index?.error.map(range_of)
    });
    let searches = read.responses.iter().filter_map(|one| {
        let one: One<'_> = serde_json::from_str(one.get()).ok()?;
        one.error.map(range_of)
    });
    items.chain(searches).collect()
}
