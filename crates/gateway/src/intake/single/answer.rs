//! The answer to a write of a single document.

use std::fmt::Write as _;

use bulk::{RouteTable, Single, SingleAnswer, Target};
use http::header::LOCATION;
use http::{HeaderValue, Response, StatusCode, response};
use wire::Outgoing;

use crate::answer::with_head;

/// Returns the routing that the server used: the request's own, or the alias's.
pub(super) fn routing<'a>(single: &'a Single<'_>, table: &'a RouteTable) -> Option<&'a str> {
    let of_alias = || match table.target(&single.index) {
        Some(Target::Alias { index_routing, .. }) => index_routing.as_deref(),
        _ => None,
    };
    single.text("routing").or_else(of_alias)
}

/// Builds the answer, with the head of the bulk's answer.
pub(super) fn response(
    mut head: response::Parts,
    answer: SingleAnswer,
    routing: Option<&str>,
) -> Response<Outgoing> {
    // A cluster wrote this status; an item with an invalid status would have been refused earlier.
    head.status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
    if let Some((index, id)) = &answer.created {
        let location = location(index, id, routing);
        head.headers.extend(
            HeaderValue::try_from(location)
                .ok()
                .map(|value| (LOCATION, value)),
        );
    }
    with_head(head, &[], Outgoing::from(answer.body))
}

/// Builds the location as `DocWriteResponse.getLocation` does.
fn location(index: &str, id: &str, routing: Option<&str>) -> String {
    let mut location = String::with_capacity(index.len() + id.len() + 8);
    location.push('/');
    encode(index, &mut location);
    location.push_str("/_doc/");
    encode(id, &mut location);
    if let Some(routing) = routing {
        location.push_str("?routing=");
        encode(routing, &mut location);
    }
    location
}

/// Encodes a text as `java.net.URLEncoder` does.
fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_encoded_as_the_servers_encode_it() {
        assert_eq!(location("logs", "1", None), "/logs/_doc/1");
        assert_eq!(
            location("café", "a b/c~(*)", Some("r+1 é")),
            "/caf%C3%A9/_doc/a+b%2Fc%7E%28*%29?routing=r%2B1+%C3%A9"
        );
    }
}
