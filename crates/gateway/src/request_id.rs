//! The id of each request: the client's own `X-Request-Id` if it is well-formed, otherwise one made here. The
//! id appears in the logs and in the answer.

use std::fmt;

use http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use traces::{OpenSpan, SpanKind, Trace};

/// The header that carries the id, in requests and in answers.
pub(crate) static HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The id of one request, stored in the extensions of its head, and the trace of the request if that is
/// recorded. Both go along with all that is done for the request.
#[derive(Clone, Debug)]
pub(crate) struct RequestId {
    /// Printable ASCII. Every log line of a request carries it as `request_id`.
    header: HeaderValue,
    trace: Option<Trace>,
}

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
        RequestId::new(match headers.get(&HEADER) {
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
    /// Makes an id of a request that is not traced.
    pub(crate) fn new(header: HeaderValue) -> Self {
        Self { header, trace: None }
    }

    /// Returns the same id for a request that is part of this trace.
    pub(crate) fn traced(&self, trace: Option<Trace>) -> Self {
        Self {
            header: self.header.clone(),
            trace,
        }
    }

    /// Returns the id as the value of [`HEADER`], and lets go of the rest.
    pub(crate) fn into_header(self) -> HeaderValue {
        self.header
    }

    /// Returns the trace that the request is part of, if that is recorded.
    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// Begins a step of the request, if it is traced.
    pub(crate) fn begin(&self, name: &'static str, kind: SpanKind) -> Option<OpenSpan> {
        self.trace.as_ref().map(|trace| trace.begin(name, kind))
    }

    /// Begins a step of the request with these extensions, if it is traced.
    pub(crate) fn begin_in(extensions: &Extensions, name: &'static str) -> Option<OpenSpan> {
        extensions.get::<Self>()?.begin(name, SpanKind::Internal)
    }

    /// Returns the id that [`RequestIds::of`] gave to the request with these extensions.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        let id = extensions.get::<Self>();
        id.expect("every request gets its id before anything else")
            .clone()
    }
}

/// Returns the id of a request that does the work of several, `own` in the log, and the spans of those that
/// the request does not carry: it carries the first one that is traced.
pub(crate) fn together<'a>(
    mut traces: impl Iterator<Item = &'a Trace>,
    own: &RequestId,
) -> (RequestId, Vec<OpenSpan>) {
    let carried = traces.next().cloned();
    let beside = traces.map(|trace| {
        let mut open = trace.begin("part", SpanKind::Client);
        open.set("tidegate.carried_by_another", true);
        open
    });
    let beside = beside.collect();
    (own.traced(carried), beside)
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.header.to_str().unwrap_or_default())
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
