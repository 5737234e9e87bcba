//! The span of a client's request, from its head to the head of its answer.

use http::{Request, Response};
use traces::OpenSpan;
use wire::{Incoming, Outgoing};

use crate::error::Fault;
use crate::live::Live;
use crate::request_id::RequestId;

/// Begins the span of a request, if the request is traced.
pub(super) fn begin(
    live: &Live,
    entry: &str,
    request: &Request<Incoming>,
    id: &RequestId,
) -> Option<OpenSpan> {
    let recorder = live.recorder.as_ref()?;
    let (method, path) = (request.method(), request.uri().path());
    let mut span = recorder.accept(request.headers(), || match api(path) {
        Some(api) => format!("{method} {api}"),
        None => method.to_string(),
    })?;
    let (body, peer) = (request.body(), request.body().peer());
    span.set("http.request.method", method.to_string());
    span.set("url.path", path.to_owned());
    span.set("url.scheme", if peer.tls { "https" } else { "http" });
    span.set("client.address", peer.address.ip().to_string());
    span.set("client.port", peer.address.port());
    if let Some(length) = body.length() {
        span.set("http.request.body.size", length);
    }
    span.set("tidegate.entry", entry.to_owned());
    span.set("tidegate.request_id", id.to_string());
    Some(span)
}

/// Records how a request was answered.
pub(super) fn answered(span: &mut OpenSpan, response: &Response<Outgoing>) {
    let status = response.status();
    span.set("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        let fault = response.extensions().get::<Fault>();
        span.fail(fault.map_or_else(String::new, |fault| fault.reason.clone()));
    }
}

/// Returns the API that a path belongs to. Names of spans are few, so a name that is not known is none.
fn api(path: &str) -> Option<&'static str> {
    let mut segments = path.split('/').filter(|segment| segment.starts_with('_'));
    let first = segments.next()?;
    APIS.iter().copied().find(|api| *api == first)
}

const APIS: [&str; 14] = [
    "_bulk",
    "_cat",
    "_cluster",
    "_count",
    "_create",
    "_delete_by_query",
    "_doc",
    "_mget",
    "_msearch",
    "_nodes",
    "_reindex",
    "_search",
    "_update",
    "_update_by_query",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_named_by_the_api_and_never_by_what_clients_make_up() {
        assert_eq!(api("/logs/_bulk"), Some("_bulk"));
        assert_eq!(api("/logs/_doc/_bulk"), Some("_doc"));
        assert_eq!(api("/logs/_doc/_made_up"), Some("_doc"));
        assert_eq!(api("/_made_up"), None);
        assert_eq!(api("/"), None);
    }
}
