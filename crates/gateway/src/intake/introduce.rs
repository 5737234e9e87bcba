//! Asynchronous mode and indices that do not exist yet. If a bulk for such an index passed, it would create
//! the index, and its documents would be in this cluster only, before what is queued. Therefore the gateway
//! first has the cluster create the index, by the cluster's own rules and with the client's rights: it sends
//! an update of a document that does not exist, which creates the index and fails.

use std::time::Duration;

use cluster::{PickReason, Snapshot};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use wire::{Chunk, Outgoing};

use crate::intake::filter::Intake;
use crate::nodes::{IDENTITY, Message, Purpose};
use crate::request_id::RequestId;

/// Returns the index of the operation on this line, if writing to it may create the index.
pub(crate) fn named(body: &[u8], line: Option<u32>, url_index: Option<&str>) -> Option<String> {
    let line = usize::try_from(line?).ok()?.checked_sub(1)?;
    let line = body.split(|byte| *byte == b'\n').nth(line)?;
    let action: Value = serde_json::from_slice(line).ok()?;
    let (operation, meta) = action.as_object()?.iter().next()?;
    if operation == "delete" || meta.get("require_alias").is_some() {
        return None;
    }
    meta["_index"].as_str().or(url_index).map(str::to_owned)
}

/// The outcome of an introduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Introduced {
    /// The topology has the index.
    Known,
    /// The cluster refuses to create the index, and gives its reason to a client that writes to it.
    Refused,
    /// The outcome is unknown at the moment.
    NotYet,
}

impl Intake {
    /// Has the cluster create an index, if the cluster is willing, and waits until the topology has the
    /// index.
    pub(crate) async fn introduce(&self, index: &str, head: &Parts, snapshot: &Snapshot) -> Introduced {
        let mut headers: HeaderMap = IDENTITY
            .iter()
            .filter_map(|name| Some((name.clone(), head.headers.get(name)?.clone())))
            .collect();
        self.fallback.fill(&mut headers);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        let target = format!("/{}/_bulk", utf8_percent_encode(index, NON_ALPHANUMERIC));
        let body = format!(
            "{{\"update\":{{\"_id\":\"tidegate-{:016x}\"}}}}\n{{\"doc\":{{}}}}\n",
            fastrand::u64(..)
        );
        let request_id = RequestId::of(&head.extensions);
        let message = Message {
            request_id: &request_id,
            purpose: Purpose::Ask,
            method: &Method::POST,
            target: &target,
            headers: &headers,
        };
        let outbound = &self.outbound;
        let node = outbound.pick(snapshot, PickReason::Documents, &[]);
        let body = Outgoing::Full(Chunk::Bytes(body.into_bytes().into()));
        let answer = outbound.whole(&node, message, body, outbound.deadline()).await;
        let said = answer.map_or(Introduced::NotYet, |(head, body)| said(head.status, &body));
        if said != Introduced::Known {
            return said;
        }
        let cluster = outbound.cluster();
        cluster.hint();
        let mut generations = cluster.generations();
        let known = generations.wait_for(|_| cluster.snapshot().table.target(index).is_some());
        match tokio::time::timeout(KNOWN_WITHIN, known).await {
            Ok(Ok(_)) => Introduced::Known,
            _ => Introduced::NotYet,
        }
    }
}

/// Returns what the answer to the update says about the index.
fn said(status: StatusCode, answer: &[u8]) -> Introduced {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let item = &answer["items"][0]["update"];
    let of_item = item["status"].as_u64().filter(|_| status == StatusCode::OK);
    match (
        of_item.unwrap_or(status.as_u16().into()),
        item["error"]["type"].as_str(),
    ) {
        // The document does not exist, or the name is a data stream, which accepts no updates.
        (_, Some("document_missing_exception" | "illegal_argument_exception")) => Introduced::Known,
        (429 | 500.., _) => Introduced::NotYet,
        _ => Introduced::Refused,
    }
}

/// How long to wait for the index to be known. A change of the cluster is usually seen within a fraction of a
/// second.
const KNOWN_WITHIN: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_make_its_index_is_told_from_what_would_not() {
        let body = b"{\"index\":{\"_index\":\"a\"}}\n{}\n{\"create\":{}}\n{}\n{\"delete\":{\"_index\":\"d\",\"_id\":\"1\"}}\n{\"index\":{\"_index\":\"e\",\"require_alias\":true}}\n{}\n";
        let named = |line| named(body, line, Some("of url"));
        assert_eq!(named(Some(1)).as_deref(), Some("a"));
        assert_eq!(named(Some(3)).as_deref(), Some("of url"));
        for none in [Some(0), Some(5), Some(6), Some(99), None] {
            assert_eq!(named(none), None);
        }
    }

    #[test]
    fn an_index_is_made_refused_or_nobody_knows() {
        let item = |status: u16, kind: &str| {
            let error = format!("{{\"type\":\"{kind}\"}}");
            let body = format!("{{\"items\":[{{\"update\":{{\"status\":{status},\"error\":{error}}}}}]}}");
            said(StatusCode::OK, body.as_bytes())
        };
        assert_eq!(item(404, "document_missing_exception"), Introduced::Known);
        assert_eq!(item(400, "illegal_argument_exception"), Introduced::Known);
        assert_eq!(item(404, "index_not_found_exception"), Introduced::Refused);
        assert_eq!(item(403, "security_exception"), Introduced::Refused);
        assert_eq!(item(503, "unavailable_shards_exception"), Introduced::NotYet);
        assert_eq!(said(StatusCode::TOO_MANY_REQUESTS, b"{}"), Introduced::NotYet);
        assert_eq!(said(StatusCode::UNAUTHORIZED, b""), Introduced::Refused);
    }
}
