//! Parsing a reply's head as strictly as a request's: a node (or a proxy before it) must not be able to split
//! replies.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Version};

use super::framing::{Declared, Framing, FramingFault, declared, keeps_alive};
use super::slots::Slots;

/// A parsed reply head.
#[derive(Debug)]
pub struct ReplyHead {
    /// The status.
    pub status: StatusCode,
    /// HTTP/1.0 or HTTP/1.1.
    pub version: Version,
    /// All headers, as sent.
    pub headers: HeaderMap,
    /// The end of the body.
    pub framing: Framing,
    /// Whether the connection can be used again after the body.
    pub keep_alive: bool,
}

/// The fault because of which a reply is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyFault {
    /// The head has no end.
    #[error("incomplete head")]
    Incomplete,
    /// There are more header lines than are allowed.
    #[error("too many headers")]
    TooManyHeaders,
    /// The protocol is not HTTP/1.x.
    #[error("not HTTP/1.x")]
    Version,
    /// The head cannot be read as HTTP.
    #[error("malformed head")]
    Head,
    /// The status line lacks its status or its version.
    #[error("malformed status line")]
    StatusLine,
    /// The status is not a number from 100 to 999.
    #[error("malformed status code")]
    StatusCode,
    /// A header's name or value has bytes that are not allowed there.
    #[error("malformed header")]
    Header,
    /// HTTP/1.0 has no `Transfer-Encoding`.
    #[error("Transfer-Encoding in an HTTP/1.0 reply")]
    ChunkedTooEarly,
    /// A line break in the head is out of place.
    #[error("line break out of place in the head")]
    LineBreak,
    /// The head is larger than is allowed.
    #[error("head is too large")]
    HeadTooLarge,
    /// The node switches to another protocol without having been asked to.
    #[error("protocol switch that nobody asked for")]
    ProtocolSwitch,
    /// A chunk of the body has a malformed frame.
    #[error("chunk")]
    Chunk,
    /// The body is not what the request asks for; the text says what it is not.
    #[error("{0}")]
    Content(&'static str),
    /// The framing headers do not say where the body ends.
    #[error(transparent)]
    Framing(#[from] FramingFault),
}

/// Parses one complete head of a reply to a request with `method`.
///
/// # Errors
/// The fault that was found first.
pub fn parse_reply(head: &[u8], method: &Method, header_count_max: usize) -> Result<ReplyHead, ReplyFault> {
    let mut slots = Slots::new(head, header_count_max);
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    match config.parse_response_with_uninit_headers(&mut parsed, head, slots.get()) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Ok(_) => return Err(ReplyFault::Incomplete),
        Err(httparse::Error::TooManyHeaders) => return Err(ReplyFault::TooManyHeaders),
        Err(httparse::Error::Version) => return Err(ReplyFault::Version),
        Err(_) => return Err(ReplyFault::Head),
    }
    let (Some(code), Some(version)) = (parsed.code, parsed.version) else {
        return Err(ReplyFault::StatusLine);
    };
    let status = StatusCode::from_u16(code).map_err(|_| ReplyFault::StatusCode)?;
    let shared = Bytes::copy_from_slice(head);
    let mut headers = HeaderMap::with_capacity(parsed.headers.len() + 2);
    for line in parsed.headers.iter() {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| ReplyFault::Header)?;
        let value = if line.value.is_empty() {
            HeaderValue::from_static("")
        } else {
            let start = line.value.as_ptr() as usize - head.as_ptr() as usize;
            HeaderValue::from_maybe_shared(shared.slice(start..start + line.value.len()))
                .map_err(|_| ReplyFault::Header)?
        };
        headers.append(name, value);
    }
    let http_11 = version == 1;
    let framing = match declared(&headers) {
        Ok(_) if bodyless(status, method) => Framing::None,
        Ok(Declared::Nothing) => Framing::UntilClose,
        Ok(Declared::Length(0)) => Framing::None,
        Ok(Declared::Length(length)) => Framing::Length(length),
        Ok(Declared::Chunked) if http_11 => Framing::Chunked,
        Ok(Declared::Chunked) => return Err(ReplyFault::ChunkedTooEarly),
        Err(fault) => return Err(fault.into()),
    };
    let keep_alive = framing != Framing::UntilClose && keeps_alive(http_11, &headers);
    let version = if http_11 {
        Version::HTTP_11
    } else {
        Version::HTTP_10
    };
    Ok(ReplyHead {
        status,
        version,
        headers,
        framing,
        keep_alive,
    })
}

fn bodyless(status: StatusCode, method: &Method) -> bool {
    *method == Method::HEAD
        || status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(head: &str) -> Result<ReplyHead, ReplyFault> {
        parse_reply(head.as_bytes(), &Method::GET, 100)
    }

    #[test]
    fn framing_follows_the_headers() {
        let framing = |head| parse(head).expect("parses").framing;
        assert_eq!(
            framing("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"),
            Framing::Length(3)
        );
        assert_eq!(
            framing("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"),
            Framing::Chunked
        );
        assert_eq!(framing("HTTP/1.1 200 OK\r\n\r\n"), Framing::UntilClose);
        assert_eq!(framing("HTTP/1.1 204 No Content\r\n\r\n"), Framing::None);
        let head =
            parse_reply(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", &Method::HEAD, 9).expect("parses");
        assert_eq!(head.framing, Framing::None);
    }

    #[test]
    fn ambiguous_replies_are_refused() {
        for head in [
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length : 3\r\n\r\n",
            "HTTP/2 200 OK\r\n\r\n",
        ] {
            assert!(parse(head).is_err(), "{head:?}");
        }
    }
}
