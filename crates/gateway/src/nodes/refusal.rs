//! Determines what the answer to a bulk request as a whole, without items, shows about its operations.

use http::StatusCode;
use serde_json::Value;

/// Returns whether a whole request with this answer has certainly not been executed, not even in part.
/// Without this certainty a request must not be sent again if that may write twice.
///
/// A 4xx is an answer to the request before any of it is done; but a 408 may come from a proxy that gave up
/// waiting for a node that goes on. Of the 5xx answers, only those count that `TransportBulkAction` throws
/// before it hands the first operation to a shard.
pub(crate) fn is_unexecuted(status: StatusCode, body: &[u8]) -> bool {
    if status == StatusCode::REQUEST_TIMEOUT {
        return false;
    }
    if status.is_client_error() || status.is_redirection() {
        return true;
    }
    let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
    let word = |key: &str| parsed["error"][key].as_str().unwrap_or_default();
    match (status.as_u16(), word("type"), word("reason")) {
        // A document without id whose routing is missing (`RoutingMissingException`).
        (500, "null_pointer_exception", "id must not be null") => true,
        // The cluster as a whole accepts no writes, or no node can create an index.
        (
            503,
            "cluster_block_exception"
            | "master_not_discovered_exception"
            | "cluster_manager_not_discovered_exception",
            _,
        ) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_servers_say_before_they_execute_anything_counts_as_not_executed() {
        let error = |kind: &str, reason: &str| {
            serde_json::json!({"error": {"type": kind, "reason": reason}, "status": 0}).to_string()
        };
        let null_id = error("null_pointer_exception", "id must not be null");
        let other = error("null_pointer_exception", "Cannot invoke \"Object.hashCode()\"");
        let block = error("cluster_block_exception", "blocked by: [no master]");
        for (status, body, expected) in [
            (400, "", true),
            (401, "", true),
            (413, "", true),
            (429, "<html>", true),
            (408, "", false),
            (302, "", true),
            (500, &*null_id, true),
            (500, &*other, false),
            (502, &*null_id, false),
            (503, &*block, true),
            (503, "<html>no server is available</html>", false),
            (504, "", false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(
                is_unexecuted(status, body.as_bytes()),
                expected,
                "{status} {body}"
            );
        }
    }
}
