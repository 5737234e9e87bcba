//! The length of a body, according to the framing headers, and whether its connection can be used again.

use http::header::{self, HeaderMap, HeaderName};

/// The end of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// The body ends after this many bytes.
    Length(u64),
    /// The body ends after the last chunk.
    Chunked,
    /// The body ends with the connection (replies only).
    UntilClose,
}

/// The declaration that `Content-Length` and `Transfer-Encoding` make together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Declared {
    Nothing,
    Length(u64),
    Chunked,
}

/// The reason why the declaration can't be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FramingFault {
    /// The length is not a number of digits only.
    #[error("malformed Content-Length")]
    BadLength,
    /// There are several lengths, be they equal or not.
    #[error("more than one Content-Length")]
    RepeatedLength,
    /// There are a length and a coding.
    #[error("Content-Length together with Transfer-Encoding")]
    Ambiguous,
    /// The coding is not `chunked` alone.
    #[error("unsupported Transfer-Encoding")]
    UnsupportedCoding,
}

/// Reads the framing headers. Accepts one `Content-Length` of digits only, or one `Transfer-Encoding:
/// chunked`, or neither.
pub(super) fn declared(headers: &HeaderMap) -> Result<Declared, FramingFault> {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let length = lengths.next();
    if lengths.next().is_some() {
        return Err(FramingFault::RepeatedLength);
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else {
        return match length {
            None => Ok(Declared::Nothing),
            Some(value) => parse_length(value.as_bytes())
                .map(Declared::Length)
                .ok_or(FramingFault::BadLength),
        };
    };
    if length.is_some() {
        return Err(FramingFault::Ambiguous);
    }
    if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Err(FramingFault::UnsupportedCoding);
    }
    Ok(Declared::Chunked)
}

/// Parses `1*DIGIT` and nothing else: no sign, no list, no white space within.
fn parse_length(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    text.iter().try_fold(0u64, |sum, byte| match byte {
        b'0'..=b'9' => Some(sum * 10 + u64::from(byte - b'0')),
        _ => None,
    })
}

/// Returns whether the connection can carry another message after this one.
pub(super) fn keeps_alive(http_11: bool, headers: &HeaderMap) -> bool {
    let mut keep = http_11;
    for value in headers.get_all(header::CONNECTION) {
        for token in value.as_bytes().split(|byte| *byte == b',') {
            let token = token.trim_ascii();
            if token.eq_ignore_ascii_case(b"close") {
                return false;
            }
            keep |= token.eq_ignore_ascii_case(b"keep-alive");
        }
    }
    keep
}

/// Returns whether a header describes one hop or the framing; such headers are never taken from a caller's
/// map.
pub(super) fn is_ours(name: &HeaderName) -> bool {
    *name == header::CONTENT_LENGTH
        || *name == header::CONNECTION
        || *name == header::TRANSFER_ENCODING
        || *name == header::TE
        || *name == header::TRAILER
        || *name == header::UPGRADE
        || *name == header::EXPECT
        || name.as_str() == "http2-settings"
        || name.as_str() == "keep-alive"
        || name.as_str() == "proxy-connection"
}

/// Removes the headers of one hop: those that are known to be, those that `Connection` names, and `and`.
/// `Connection` cannot name what is meant for the server ([`is_end_to_end`]).
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap, and: &[HeaderName]) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok())
        .filter(|name| !is_end_to_end(name))
        .collect();
    let stays = |name: &HeaderName| {
        !HOP_BY_HOP.contains(&name.as_str()) && !named.contains(name) && !and.contains(name)
    };
    if headers.keys().all(stays) {
        return;
    }
    // The headers are copied, not removed: removing moves the last header to the freed place, and the words
    // of some servers follow the order of the headers.
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers.iter().filter(|(name, _)| stays(name)) {
        kept.append(name, value.clone());
    }
    *headers = kept;
}

/// Returns whether a header says what a request means, or who sends it. A client must not name such a header
/// in `Connection` (RFC 9110, section 7.6.1), and servers take no notice if it does. If the gateway removed
/// the header, the cluster would judge another request than the one that was admitted here.
fn is_end_to_end(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("content-") || name.starts_with("accept") || END_TO_END.contains(&name)
}

const END_TO_END: [&str; 9] = [
    "authorization",
    "cookie",
    "es-security-runas-user",
    "host",
    "opendistro_security_impersonate_as",
    "x-elastic-product-origin",
    "x-opaque-id",
    "x-proxy-roles",
    "x-proxy-user",
];

const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_length_is_digits_only() {
        for (text, length) in [
            ("0", Some(0)),
            ("42", Some(42)),
            ("007", Some(7)),
            ("9999999999999999999", Some(9_999_999_999_999_999_999)),
            ("99999999999999999999", None),
            ("+5", None),
            ("-5", None),
            ("5,5", None),
            ("5 5", None),
            ("0x5", None),
            ("", None),
        ] {
            assert_eq!(parse_length(text.as_bytes()), length, "{text}");
        }
    }

    #[test]
    fn hop_by_hop_headers_go_with_those_that_connection_names() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("host", "a"),
            ("connection", "close, X-Secret"),
            ("x-secret", "1"),
            ("te", "trailers"),
            // These are not named by Connection, as they would have to be: a node must not see them either.
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABk"),
            ("accept", "*/*"),
            ("x-first", "1"),
            ("x-last", "2"),
        ] {
            headers.append(name, value.parse().expect("value"));
        }
        strip_hop_by_hop(&mut headers, &[header::HOST]);
        assert_eq!(
            headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["accept", "x-first", "x-last"]
        );
    }

    #[test]
    fn connection_does_not_take_away_what_a_request_means() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "Content-Type, accept, authorization, x-hop"),
            ("connection", "Es-Security-Runas-User,content-encoding"),
            (
                "connection",
                "opendistro_security_impersonate_as, x-proxy-user, X-Proxy-Roles",
            ),
            ("content-type", "application/json"),
            ("content-encoding", "gzip"),
            ("accept", "*/*"),
            ("authorization", "Basic dTpw"),
            ("es-security-runas-user", "u"),
            ("opendistro_security_impersonate_as", "u"),
            ("x-proxy-user", "u"),
            ("x-proxy-roles", "r"),
            ("x-hop", "1"),
        ] {
            headers.append(name, value.parse().expect("value"));
        }
        let mut kept = headers.clone();
        strip_hop_by_hop(&mut kept, &[]);
        headers.remove("connection");
        headers.remove("x-hop");
        assert_eq!(kept, headers);
    }
}
