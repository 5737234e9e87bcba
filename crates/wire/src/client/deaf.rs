//! Connections to which a server has stopped listening.
//!
//! Elasticsearch and OpenSearch refuse a head that is too long for them (`http.max_initial_line_length`,
//! `http.max_header_size`) with 400, without `Connection: close`, and from then on ignore all bytes of the
//! connection (netty's `HttpObjectDecoder`, state `BAD_MESSAGE`): the next request on it would never be
//! answered. A server may be told to refuse heads that are short, so the answer decides wherever it can be
//! read: its error has a type that begins with `too_long_`.

use http::header::CONTENT_ENCODING;
use http::{Method, StatusCode};

use crate::codec::ReplyHead;

/// Whether a connection is used again after a reply.
#[derive(Debug)]
pub(super) enum Reuse {
    Yes,
    No,
    /// Unless the body says that the request's head was too long; what has come of its beginning.
    Unless(Vec<u8>),
}

// === impl Reuse ===

impl Reuse {
    /// Decides by the head of a reply to a request whose head had this many bytes.
    pub(super) fn after(head: &ReplyHead, method: &Method, head_bytes: usize) -> Self {
        match head.status {
            StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::URI_TOO_LONG
            | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => Reuse::No,
            StatusCode::BAD_REQUEST if head_bytes > HEAD_BYTES_SAFE => Reuse::No,
            StatusCode::BAD_REQUEST => {
                // Nothing that can be read says why it was refused.
                let is_mute = *method == Method::HEAD || head.headers.contains_key(CONTENT_ENCODING);
                if is_mute {
                    Reuse::No
                } else {
                    Reuse::Unless(Vec::new())
                }
            }
            _ => Reuse::Yes,
        }
    }

    /// Takes note of the next bytes of the body.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        if let Reuse::Unless(begun) = self {
            let more = BEGINNING_BYTES.saturating_sub(begun.len()).min(bytes.len());
            begun.extend_from_slice(&bytes[..more]);
        }
    }

    /// Returns the decision, once the body has come.
    pub(super) fn is_wanted(&self) -> bool {
        match self {
            Reuse::Yes => true,
            Reuse::No => false,
            Reuse::Unless(begun) => !begun.is_empty() && memchr::memmem::find(begun, TOO_LONG).is_none(),
        }
    }
}

/// How the type of the error begins.
const TOO_LONG: &[u8] = b"\"too_long_";
/// An answer names its type within this many bytes.
const BEGINNING_BYTES: usize = 1 << 10;
/// Servers read heads of this size, in bytes: by default, lines of 4,096 and headers of 8,192 or more. A
/// server or a proxy that refuses a longer one may say so in words of its own.
const HEAD_BYTES_SAFE: usize = 2 << 10;
