//! Selects the client's headers that go to nodes with the parts of its request.

use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HOST};

/// Removes the headers that do not apply to the parts of a request: parts are sent decoded, and the gateway
/// reads their answers.
pub(crate) fn strip_for_parts(headers: &mut HeaderMap) {
    // Nodes must not compress the items that are merged here. Every client accepts uncompressed bodies too.
    wire::strip_hop_by_hop(headers, &[HOST, CONTENT_ENCODING, ACCEPT_ENCODING]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_sent_plain_and_ask_for_plain_answers_and_keep_all_other_headers() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("host", "gateway:8000"),
            ("accept", "application/json"),
            ("accept-encoding", "gzip, deflate"),
            ("authorization", "Basic dTpw"),
            ("connection", "keep-alive, x-hop"),
            ("content-encoding", "gzip"),
            ("content-type", "application/x-ndjson"),
            ("x-hop", "1"),
            ("x-opaque-id", "7"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        strip_for_parts(&mut headers);
        let left: Vec<_> = headers.keys().map(http::HeaderName::as_str).collect();
        assert_eq!(
            left,
            ["accept", "authorization", "content-type", "x-opaque-id"],
            "in their order"
        );
    }
}
