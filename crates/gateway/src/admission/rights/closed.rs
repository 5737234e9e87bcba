//! Finds out whether a client may write to an index that is closed. A bulk answers for its documents that the
//! index is closed, whoever asks: rights are looked at by the shard, and there is none. A write of one
//! document is looked at before: it is answered with 403 if the client may not write, and only otherwise says
//! that the index is closed. (It does not ask for `bulk[s]`, without which nobody writes anything.)

use bulk::{Op, RouteTable, Target};
use bytes::Bytes;
use futures_util::future::join_all;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode, response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::ask::{Caller, Failure, Question, ask, turned_away};
use super::identity::shown;
use super::probe::{NO_SUCH_SEQ_NO, is_closed, was_allowed};

/// Returns for each name, whose index is closed, whether a client may do this there. Nothing is changed, even
/// if an index has been opened meanwhile.
pub(super) async fn may_write_when_open(
    caller: Caller<'_>,
    op: Op,
    names: &[Box<str>],
) -> Result<Vec<bool>, Failure> {
    let mut all = Vec::with_capacity(names.len());
    for few in names.chunks(AT_ONCE) {
        let asked = few.iter().map(|name| may(caller, op, name));
        for one in join_all(asked).await {
            all.push(one?);
        }
    }
    Ok(all)
}

async fn may(caller: Caller<'_>, op: Op, name: &str) -> Result<bool, Failure> {
    let (method, target, body) = write_of_one(op, name, &caller.snapshot.table);
    let mut headers = shown(caller.headers);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let question = Question {
        method: &method,
        target: &target,
        headers: &headers,
        body: &Bytes::from_static(body.as_bytes()),
    };
    let told = ask(caller, question, &|head: &response::Parts, body: &Bytes| {
        let answer: Value = serde_json::from_slice(body).unwrap_or_default();
        let error = &answer["error"]["type"];
        match head.status {
            StatusCode::UNAUTHORIZED => Some(Err(turned_away(head, body))),
            _ if is_closed(error) || was_allowed(error) => Some(Ok(true)),
            status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => Some(Ok(false)),
            _ => None,
        }
    });
    told.await?
}

/// Returns a write of one document that always fails: method, path and parameters, body.
fn write_of_one(op: Op, name: &str, table: &RouteTable) -> (Method, String, &'static str) {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let target = table.laned(name);
    let write = target.and_then(|target| target.write().ok());
    let stream = matches!(target, Some(Target::DataStream { .. }));
    // A data stream takes no condition; the index behind it does, with the same rights.
    let index = match write {
        Some(write) if stream => &*write.name,
        _ => name,
    };
    let (index, id) = (encode(index), format!("tidegate-{:016x}", fastrand::u64(..)));
    let mut parameters = "timeout=1s".to_owned();
    if write.is_some_and(|write| write.routing_required) {
        parameters.push_str("&routing=tidegate");
    }
    if op == Op::Update {
        return (
            Method::POST,
            format!("/{index}/_update/{id}?{parameters}"),
            "{\"doc\":{}}",
        );
    }
    parameters.push_str(&format!("&if_seq_no={NO_SUCH_SEQ_NO}&if_primary_term=1"));
    match op {
        Op::Delete => (Method::DELETE, format!("/{index}/_doc/{id}?{parameters}"), ""),
        _ => {
            let source = if stream { "{\"@timestamp\":0}" } else { "{}" };
            (
                Method::PUT,
                format!("/{index}/_doc/{id}?{parameters}&pipeline=_none"),
                source,
            )
        }
    }
}

/// The most names that are asked about at once.
const AT_ONCE: usize = 8;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bulk::{Dialect, Flavour, Formula, IndexRoute, Version, Why};

    use super::*;

    #[test]
    fn what_is_asked_of_a_closed_index_fails_if_it_is_open_again() {
        let mut table = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(2, 19, 0)), 1);
        table.index(Arc::new(IndexRoute {
            routing_required: true,
            opaque: Some(Why::IndexClosed),
            ..IndexRoute::new("a b", Formula::Modulo, [None])
        }));
        let table = table.build();
        let (method, target, body) = write_of_one(Op::Index, "a b", &table);
        assert_eq!((method, body), (Method::PUT, "{}"));
        assert!(target.starts_with("/a%20b/_doc/tidegate-"), "{target}");
        let rest = "?timeout=1s&routing=tidegate&if_seq_no=1000000000000000&if_primary_term=1&pipeline=_none";
        assert!(target.ends_with(rest), "{target}");
        let (method, target, body) = write_of_one(Op::Delete, "c", &table);
        assert_eq!((method, body), (Method::DELETE, ""));
        assert!(
            target.ends_with("?timeout=1s&if_seq_no=1000000000000000&if_primary_term=1"),
            "{target}"
        );
        let (method, target, _) = write_of_one(Op::Update, "c", &table);
        assert_eq!(method, Method::POST);
        assert!(target.starts_with("/c/_update/tidegate-") && !target.contains("if_seq_no"));
    }
}
