//! Encoding heads. Framing headers follow from the body and are never taken from a caller's map.

use std::io::Write;

use http::header::{self, HeaderMap};
use http::{Method, StatusCode};

use super::framing::{Framing, is_ours};

/// Appends a request head.
pub(crate) fn encode_request_head(
    out: &mut Vec<u8>,
    method: &Method,
    target: &str,
    authority: &str,
    headers: &HeaderMap,
    framing: Framing,
) {
    put(
        out,
        &[
            method.as_str().as_bytes(),
            b" ",
            target.as_bytes(),
            b" HTTP/1.1\r\n",
        ],
    );
    let host = headers
        .get(header::HOST)
        .map_or(authority.as_bytes(), |host| host.as_bytes());
    put(out, &[b"host: ", host, b"\r\n"]);
    for (name, value) in headers {
        if *name != header::HOST && !is_ours(name) {
            put(out, &[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
        }
    }
    put_framing(out, framing);
    out.extend_from_slice(b"\r\n");
}

/// Appends a reply head. A caller's `Content-Length` is kept only where there is no body to contradict it
/// (answers to `HEAD`, and 304).
pub(crate) fn encode_reply_head(
    out: &mut Vec<u8>,
    status: StatusCode,
    headers: &HeaderMap,
    framing: Framing,
    declares_only: bool,
    connection: Option<&'static str>,
) {
    // `write!` into a vector can't fail.
    let _ = write!(
        out,
        "HTTP/1.1 {} {}\r\n",
        status.as_str(),
        status.canonical_reason().unwrap_or("")
    );
    for (name, value) in headers {
        if !is_ours(name) || (declares_only && *name == header::CONTENT_LENGTH) {
            put(out, &[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
        }
    }
    put_framing(out, framing);
    if let Some(connection) = connection {
        put(out, &[b"connection: ", connection.as_bytes(), b"\r\n"]);
    }
    out.extend_from_slice(b"\r\n");
}

fn put_framing(out: &mut Vec<u8>, framing: Framing) {
    match framing {
        Framing::Length(length) => {
            let _ = write!(out, "content-length: {length}\r\n");
        }
        Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Framing::None | Framing::UntilClose => {}
    }
}

fn put(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}
