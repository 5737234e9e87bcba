//! What a record says of its documents beside the documents, and the form that all of them are delivered in.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::queue::idempotency::Keyed;

/// What a record says about its documents beside the documents: never a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Params {
    /// Path and query of the client's request.
    pub(crate) target: String,
    /// [`DELIVERED_TYPE`], whatever its client called it: earlier versions want to read it.
    pub(crate) content_type: String,
    /// The first and the last id that were minted for it: its documents with ids between are known to be nobody else's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) minted: Option<(String, String)>,
    /// If these are dead letters that were put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replay: Option<Replay>,
    /// If its client gave it an `Idempotency-Key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idempotency: Option<Keyed>,
}

/// What a record says of the dead letters that it puts back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Replay {
    /// The consumer group that had given them up: no other delivers them, since it has done so already.
    pub(crate) group: String,
    /// Their ids.
    pub(crate) letters: Vec<u64>,
}

/// The headers of every bulk that is delivered, whatever its client called it: all servers take this type, and with it no
/// `Accept` is needed. What clients say beside it (`compatible-with=8`) changes how lines are read that are not queued,
/// and how answers look that nobody passes on.
pub(crate) fn delivered_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(DELIVERED_TYPE));
    headers
}

/// The content type of every bulk that is delivered. Records and dead letters say it too, for earlier versions that read
/// them.
pub(crate) const DELIVERED_TYPE: &str = "application/x-ndjson";
