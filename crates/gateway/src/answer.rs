//! Answers that are put together from the answers of nodes.

use http::header::{CONTENT_LENGTH, WARNING};
use http::{HeaderMap, Response, response};
use wire::Outgoing;

/// Builds an answer with the head of one node: its headers, plus the warnings of other nodes that it lacks.
pub(crate) fn with_head(
    mut head: response::Parts,
    others: &[&response::Parts],
    body: Outgoing,
) -> Response<Outgoing> {
    wire::strip_hop_by_hop(&mut head.headers, &[CONTENT_LENGTH]);
    for other in others {
        add_warnings(&mut head.headers, &other.headers);
    }
    Response::from_parts(head, body)
}

fn add_warnings(headers: &mut HeaderMap, more: &HeaderMap) {
    for warning in more.get_all(WARNING) {
        if !headers.get_all(WARNING).iter().any(|known| known == warning) {
            headers.append(WARNING, warning.clone());
        }
    }
}

pub(crate) fn json_response(body: Outgoing) -> Response<Outgoing> {
    let mut response = Response::new(body);
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json; charset=UTF-8"),
    );
    response
}
