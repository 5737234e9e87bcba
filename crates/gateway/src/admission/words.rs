//! Whose words an answer is in.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Returns whether an answer is an error in a server's words: an object with an `error` (`RestController`,
/// `BytesRestResponse`), or one of the other forms that servers have. What stands between the gateway and the
/// cluster has pages of its own for what it cannot reach, and these say nothing of the cluster.
pub(crate) fn is_a_servers_error(headers: &HeaderMap, body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Told<'b> {
        #[serde(borrow)]
        error: Option<&'b RawValue>,
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_other = |kind: &str| ["yaml", "smile", "cbor"].iter().any(|form| kind.contains(form));
    kind.is_some_and(is_other)
        || serde_json::from_slice::<Told<'_>>(body).is_ok_and(|told| told.error.is_some())
}
