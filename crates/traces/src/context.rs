//! The identity of a span, and the header in which it travels.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header that carries a [`Context`] (W3C Trace Context).
pub static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The header with the state that tracing systems keep beside a [`Context`].
pub static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// A span's identity: its trace, its own id, and whether it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub(crate) trace: [u8; 16],
    pub(crate) span: [u8; 8],
    /// Whether whoever made the span records it.
    pub sampled: bool,
}

/// The length of a `traceparent` of version 00.
const LENGTH: usize = 55;

// === impl Context ===

impl Context {
    /// Makes the identity of a recorded span in a trace of its own.
    pub(crate) fn new() -> Self {
        Self {
            trace: nonzero(|| fastrand::u128(..)).to_be_bytes(),
            span: span_id(),
            sampled: true,
        }
    }

    /// Makes the identity of another recorded span of the same trace.
    pub(crate) fn another(self) -> Self {
        Self {
            span: span_id(),
            sampled: true,
            ..self
        }
    }

    /// Returns the context in a request's headers; `None` if there is none, or more than one, or if it is not
    /// well-formed.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(&TRACEPARENT).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => Self::parse(value.as_bytes()),
            _ => None,
        }
    }

    /// Reads a `traceparent`. A later version is read as far as version 00 goes, as W3C asks.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let well_separated = text.len() >= LENGTH && [2, 35, 52].iter().all(|at| text[*at] == b'-');
        if !well_separated {
            return None;
        }
        let [version] = hex(&text[..2])?;
        let ends = match version {
            0 => text.len() == LENGTH,
            255 => false,
            _ => text.len() == LENGTH || text[LENGTH] == b'-',
        };
        let (trace, span) = (hex::<16>(&text[3..35])?, hex::<8>(&text[36..52])?);
        let [flags] = hex(&text[53..LENGTH])?;
        let made = trace != [0; 16] && span != [0; 8];
        (ends && made).then_some(Self {
            trace,
            span,
            sampled: flags & SAMPLED != 0,
        })
    }

    /// Returns the context as the value of a `traceparent`.
    pub fn header(&self) -> HeaderValue {
        HeaderValue::from_bytes(&self.text()).expect("hexadecimal digits and hyphens make a header value")
    }

    fn text(&self) -> [u8; LENGTH] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hex(&self.trace, &mut text[3..35]);
        write_hex(&self.span, &mut text[36..52]);
        text[54] += u8::from(self.sampled);
        text
    }

    /// Returns the number that decides whether the trace is sampled: all programs that sample the same share
    /// of traces choose the same traces by it.
    pub(crate) fn lot(&self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.trace;
        u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1
    }
}

impl std::fmt::Display for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).unwrap_or_default())
    }
}

const SAMPLED: u8 = 1;

fn span_id() -> [u8; 8] {
    nonzero(|| fastrand::u64(..)).to_be_bytes()
}

/// Draws until the number is not zero, which is no id.
fn nonzero<T: Default + PartialEq>(mut draw: impl FnMut() -> T) -> T {
    loop {
        let drawn = draw();
        if drawn != T::default() {
            return drawn;
        }
    }
}

/// Reads lower-case hexadecimal digits.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut read = [0; N];
    for (byte, pair) in read.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(read)
}

fn write_hex(bytes: &[u8], out: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(out.chunks_exact_mut(2)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_written_as_it_was_read() {
        let context = Context::parse(GIVEN.as_bytes()).unwrap();
        assert!(context.sampled);
        assert_eq!(context.to_string(), GIVEN);
        assert_eq!(context.header(), GIVEN);
        let unsampled = GIVEN.replace("-01", "-00");
        let context = Context::parse(unsampled.as_bytes()).unwrap();
        assert!(!context.sampled);
        assert_eq!(context.to_string(), unsampled);
    }

    #[test]
    fn other_flags_and_later_versions_are_read_as_far_as_they_are_known() {
        for later in [
            GIVEN.replace("-01", "-03"),
            GIVEN.replacen("00-", "01-", 1),
            format!("{}-more", GIVEN.replacen("00-", "01-", 1)),
        ] {
            let read = Context::parse(later.as_bytes()).unwrap();
            assert_eq!(read.to_string(), GIVEN, "{later}");
        }
    }

    #[test]
    fn what_is_no_traceparent_is_not_read() {
        for broken in [
            String::new(),
            "00".to_owned(),
            GIVEN.to_uppercase(),
            GIVEN.replacen("00-", "ff-", 1),
            format!("{GIVEN}-more"),
            format!("{}x", GIVEN.replacen("00-", "01-", 1)),
            GIVEN.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            GIVEN.replace("00f067aa0ba902b7", &"0".repeat(16)),
            GIVEN.replace('-', "_"),
        ] {
            assert_eq!(Context::parse(broken.as_bytes()), None, "{broken}");
        }
        let mut headers = HeaderMap::new();
        headers.append(&TRACEPARENT, HeaderValue::from_static(GIVEN));
        assert!(Context::of(&headers).is_some());
        headers.append(&TRACEPARENT, HeaderValue::from_static(GIVEN));
        assert_eq!(Context::of(&headers), None, "nobody knows which one counts");
    }
}
