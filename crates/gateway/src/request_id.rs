//! The id of each request: the client's own `X-Request-Id` if it is well-formed, otherwise one made here. The
//! id appears in the logs and in the answer.

use std::fmt;

use http::{Extensions, HeaderMap, HeaderName, HeaderValue};

/// The header that carries the id, in requests and in answers.
pub(crate) static HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The id of one request, stored in the extensions of its head. It is printable ASCII. Every log line of a
/// request carries it as `request_id`.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) HeaderValue);

/// Makes ids on one core, in the form `PPPPPPPP-NNNNNNNN`: a prefix drawn at random for the process and core,
/// then a count.
#[derive(Debug)]
pub(crate) struct RequestIds {
    prefix: u32,
    count: std::cell::Cell<u32>,
}

impl RequestIds {
    pub(crate) fn new(random: u32) -> Self {
        Self {
            prefix: random,
            count: std::cell::Cell::new(0),
        }
    }

    /// Returns the id of a request with these headers.
    pub(crate) fn of(&self, headers: &HeaderMap) -> RequestId {
        RequestId(match headers.get(&HEADER) {
            Some(theirs) if is_sane(theirs.as_bytes()) => theirs.clone(),
            _ => self.make(),
        })
    }

    fn make(&self) -> HeaderValue {
        let count = self.count.get();
        self.count.set(count.wrapping_add(1));
        let mut text = [b'-'; 17];
        write_hex(self.prefix, &mut text[..8]);
        write_hex(count, &mut text[9..]);
        HeaderValue::from_bytes(&text).expect("hexadecimal digits and a hyphen make a header value")
    }
}

impl RequestId {
    /// Returns the id that [`RequestIds::of`] gave to the request with these extensions.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        let id = extensions.get::<Self>();
        id.expect("every request gets its id before anything else")
            .clone()
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_str().unwrap_or_default())
    }
}

/// Returns whether an id may appear in logs and answers: printable ASCII without quotes, of a sensible
/// length.
fn is_sane(id: &[u8]) -> bool {
    (1..=128).contains(&id.len())
        && id
            .iter()
            .all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\'))
}

fn write_hex(mut value: u32, out: &mut [u8]) {
    for place in out.iter_mut().rev() {
        *place = b"0123456789abcdef"[(value & 15) as usize];
        value >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sane_id_of_the_client_is_kept_and_others_are_replaced() {
        let ids = RequestIds::new(0xabc);
        let mut headers = HeaderMap::new();
        assert_eq!(ids.of(&headers).to_string(), "00000abc-00000000");
        headers.insert(&HEADER, HeaderValue::from_static("trace-7"));
        assert_eq!(ids.of(&headers).to_string(), "trace-7");
        headers.insert(&HEADER, HeaderValue::from_static("two words"));
        assert_eq!(ids.of(&headers).to_string(), "00000abc-00000001");
    }
}
