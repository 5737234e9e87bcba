//! Reads refusals of whole requests: which of them may be due to a part of the request only
//! ([`refused_whole`] finds out whether they are).
//!
//! [`refused_whole`]: super::refused_whole

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use crate::delivery::error_scope::concerned;
use crate::delivery::server_error::{Error, error_of};

/// What a node says of a whole request, if only an index or a document of the request may be to blame.
pub(super) struct PartialRefusal {
    /// The error; `None` if it is not in a server's words.
    pub(super) error: Option<Arc<Error>>,
    /// The index that the error names outside its reason.
    pub(super) index: Option<Box<str>>,
}

/// Reads the refusal of a whole request; `None` if it concerns the whole cluster, the account, or the load of
/// the node. An answer that is no server's may be that of something on the way which looks at what is sent.
pub(super) fn partial_refusal(status: StatusCode, body: &[u8]) -> Option<PartialRefusal> {
    let status = status.as_u16();
    if matches!(status, 401 | 407 | 408 | 413 | 502 | 504) {
        return None;
    }
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = error_of(status, &said);
    let may_be_partial = match &error {
        // A block on the whole cluster names no index, and a busy node has another error.
        Some(error) if matches!(status, 403 | 429 | 503) && error.kind == BLOCK => concerned(error).is_some(),
        Some(error) if status == 503 => concerned(error).is_some(),
        _ => !matches!(status, 429 | 503),
    };
    may_be_partial.then(|| PartialRefusal {
        error: error.map(Arc::new),
        index: said["error"]["index"].as_str().map(Into::into),
    })
}

/// Whether a node refuses a whole request because of a block on an index.
pub(super) fn is_block_of_index(status: StatusCode, body: &[u8]) -> bool {
    let refusal = partial_refusal(status, body);
    refusal.is_some_and(|refusal| refusal.error.is_some_and(|error| error.kind == BLOCK))
}

const BLOCK: &str = "cluster_block_exception";

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use http::HeaderMap;

    use super::*;
    use crate::delivery::outcome::{Outcome, outcomes};

    #[test]
    fn a_refusal_of_a_whole_request_may_concern_a_part_of_it_or_not() {
        let error = |kind: &str, reason: &str| {
            format!("{{\"error\":{{\"type\":\"{kind}\",\"reason\":\"{reason}\",\"index\":\"i\"}}}}")
        };
        let block = error("cluster_block_exception", "index [i] blocked by: [x];");
        let all = error("cluster_block_exception", "blocked by: [x];");
        let shards = error(
            "unavailable_shards_exception",
            "[i][0] primary shard is not active",
        );
        for (status, body, may_be_partial) in [
            (403, &block, true),
            (429, &block, true),
            (503, &block, true),
            (403, &all, false),
            (429, &all, false),
            (503, &all, false),
            (503, &shards, true),
            (403, &error("security_exception", "no"), true),
            (403, &"<html>".to_owned(), true),
            (404, &"<html>".to_owned(), true),
            (401, &error("security_exception", "no"), false),
            (429, &error("es_rejected_execution_exception", "no"), false),
            (503, &error("master_not_discovered_exception", "no"), false),
            (503, &"<html>".to_owned(), false),
            (200, &"<html>".to_owned(), true),
            (302, &String::new(), true),
            (400, &"<html>".to_owned(), true),
            (405, &"<html>".to_owned(), true),
            (406, &error("media_type_header_exception", "no"), true),
            (407, &"<html>".to_owned(), false),
            (500, &"<html>".to_owned(), true),
            (501, &"<html>".to_owned(), true),
            (502, &"<html>".to_owned(), false),
        ] {
            let all = outcomes(
                StatusCode::from_u16(status).unwrap(),
                &HeaderMap::new(),
                body.as_bytes(),
                2,
                ("n", Instant::now()),
            );
            assert_eq!(all.refused_at().is_some(), may_be_partial, "{status} {body}");
            let busy = status == 429 && !may_be_partial;
            assert_eq!(all.are_busy(), busy, "{status} {body}");
            for outcome in all.whole() {
                match outcome {
                    Outcome::Whole(again) if may_be_partial => {
                        // Whoever it is that answers so, it is no server.
                        let is_foreign = !body.starts_with('{');
                        let may_be_executed = status >= 500 || is_foreign;
                        assert_eq!((again.doubt, again.own_error()), (may_be_executed, None));
                        let plain = Outcome::Whole(again).without_parking();
                        assert!(matches!(plain, Outcome::Again(_)), "nothing dies: {plain:?}");
                    }
                    outcome => assert!(
                        // What nobody has explained is asked about only once it has come several times.
                        !may_be_partial && (matches!(outcome, Outcome::Again(_)) || status >= 502),
                        "{outcome:?}"
                    ),
                }
            }
        }
    }
}
