//! Parsing a request's head strictly, from bytes to `http` types.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::Scheme;
use http::{Method, Uri, Version};

use super::framing::{Declared, Framing, FramingFault, declared, keeps_alive};
use super::slots::Slots;
use crate::limits::Limits;
use crate::refusal::Refusal;

/// A parsed request head.
#[derive(Debug)]
pub struct RequestLine {
    /// The method.
    pub method: Method,
    /// The target, in origin, absolute or (for `OPTIONS`) asterisk form.
    pub uri: Uri,
    /// HTTP/1.0 or HTTP/1.1.
    pub version: Version,
    /// All headers, as sent.
    pub headers: HeaderMap,
    /// The end of the body.
    pub framing: Framing,
    /// Whether the client wants the connection to stay.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
}

/// Parses one complete head (up to and including its empty line, as [`HeadScan`](super::HeadScan) found it).
///
/// # Errors
/// If two HTTP implementations could understand the head differently, or if it exceeds a limit.
pub fn parse_request(head: &[u8], limits: &Limits) -> Result<RequestLine, Refusal> {
    if head.len() > limits.head_bytes_max {
        return Err(Refusal::HeadTooLarge);
    }
    let mut slots = Slots::new(head, limits.header_count_max);
    let mut parsed = httparse::Request::new(&mut []);
    match parsed.parse_with_uninit_headers(head, slots.get()) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Ok(_) => return Err(Refusal::BadRequestLine),
        Err(error) => return Err(refusal_of(error, head)),
    }
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(Refusal::BadRequestLine);
    };
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| Refusal::BadRequestLine)?;
    if target.len() > limits.target_bytes_max {
        return Err(Refusal::TargetTooLong);
    }
    // The head is copied once; names and values are slices of the copy.
    let shared = Bytes::copy_from_slice(head);
    let uri = parse_target(&method, target, &shared, head)?;
    let mut headers = HeaderMap::with_capacity(parsed.headers.len() + 4);
    for line in parsed.headers.iter() {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| Refusal::BadHeader)?;
        let value = if line.value.is_empty() {
            HeaderValue::from_static("")
        } else {
            HeaderValue::from_maybe_shared(shared.slice_ref(in_shared(&shared, head, line.value)))
                .map_err(|_| Refusal::BadHeader)?
        };
        headers.append(name, value);
    }
    let http_11 = version == 1;
    check_host(&headers, http_11)?;
    check_authority(&uri, &headers)?;
    let uri = with_path(uri)?;
    let framing = framing(&headers, http_11)?;
    let keep_alive = keeps_alive(http_11, &headers);
    let expects_continue = expects_continue(&headers)? && http_11 && framing != Framing::None;
    let version = if http_11 {
        Version::HTTP_11
    } else {
        Version::HTTP_10
    };
    Ok(RequestLine {
        method,
        uri,
        version,
        headers,
        framing,
        keep_alive,
        expects_continue,
    })
}

fn framing(headers: &HeaderMap, http_11: bool) -> Result<Framing, Refusal> {
    match declared(headers) {
        Ok(Declared::Nothing) => Ok(Framing::None),
        Ok(Declared::Length(length)) => Ok(Framing::Length(length)),
        Ok(Declared::Chunked) if http_11 => Ok(Framing::Chunked),
        Ok(Declared::Chunked) => Err(Refusal::TransferEncodingInHttp10),
        Err(FramingFault::BadLength) => Err(Refusal::BadContentLength),
        Err(FramingFault::RepeatedLength) => Err(Refusal::RepeatedContentLength),
        Err(FramingFault::Ambiguous) => Err(Refusal::AmbiguousLength),
        Err(FramingFault::UnsupportedCoding) if http_11 => Err(Refusal::UnsupportedTransferEncoding),
        Err(FramingFault::UnsupportedCoding) => Err(Refusal::TransferEncodingInHttp10),
    }
}

fn parse_target(method: &Method, target: &str, shared: &Bytes, head: &[u8]) -> Result<Uri, Refusal> {
    if *method == Method::CONNECT {
        return Err(Refusal::UnsupportedMethod);
    }
    let bytes = target.as_bytes();
    let absolute = || {
        let scheme = |scheme: &str| {
            bytes.len() > scheme.len() && bytes[..scheme.len()].eq_ignore_ascii_case(scheme.as_bytes())
        };
        scheme("http://") || scheme("https://")
    };
    let form_fits = match bytes.first() {
        Some(b'/') => true,
        Some(b'*') => bytes.len() == 1 && *method == Method::OPTIONS,
        _ => absolute(),
    };
    // A fragment is never sent; `http::Uri` would drop it silently, and two servers would disagree about the
    // path.
    if !form_fits || memchr::memchr(b'#', bytes).is_some() {
        return Err(Refusal::BadTarget);
    }
    Uri::from_maybe_shared(shared.slice_ref(in_shared(shared, head, bytes))).map_err(|_| Refusal::BadTarget)
}

/// Gives a target a path, if it has none.
fn with_path(uri: Uri) -> Result<Uri, Refusal> {
    match uri.query() {
        // `http://host?query` has no path; the origin form that is passed on needs one.
        Some(query)
            if uri
                .path_and_query()
                .is_some_and(|both| both.as_str().starts_with('?')) =>
        {
            format!("/?{query}").parse().map_err(|_| Refusal::BadTarget)
        }
        _ => Ok(uri),
    }
}

/// Returns the same bytes in the copy of the head.
fn in_shared<'a>(shared: &'a Bytes, head: &[u8], part: &[u8]) -> &'a [u8] {
    let start = part.as_ptr() as usize - head.as_ptr() as usize;
    &shared[start..start + part.len()]
}

fn check_host(headers: &HeaderMap, http_11: bool) -> Result<(), Refusal> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let Some(host) = hosts.next() else {
        return if http_11 {
            Err(Refusal::MissingHost)
        } else {
            Ok(())
        };
    };
    if hosts.next().is_some() || !is_host(host.as_bytes()) {
        return Err(Refusal::BadHost);
    }
    Ok(())
}

/// Checks that a target in absolute form is for the host that the header names. RFC 9112, section 3.2.2, has
/// servers ignore the header then; not all do, and here conditions read it.
fn check_authority(uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(authority) = uri.authority() else {
        return Ok(());
    };
    let default_port = match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTPS => "443",
        _ => "80",
    };
    let named = |text: &str| {
        // Not the colon of an IPv6 address.
        let at = text.rfind(':').filter(|at| !text[*at..].contains(']'));
        let (name, port) = at.map_or((text, ""), |at| (&text[..at], &text[at + 1..]));
        let port = if port.is_empty() { default_port } else { port };
        (name.to_ascii_lowercase(), port.to_owned())
    };
    let authority = authority.as_str();
    let host = headers.get(header::HOST).map(HeaderValue::to_str);
    let is_same = match host {
        None => true,
        Some(Ok(host)) => named(host) == named(authority),
        Some(Err(_)) => false,
    };
    match is_same && !authority.contains('@') {
        true => Ok(()),
        false => Err(Refusal::BadHost),
    }
}

/// Checks for `uri-host [":" port]` of RFC 9110, section 7.2; it is empty if the client knows no name.
fn is_host(text: &[u8]) -> bool {
    let (name_fits, port) = match text.strip_prefix(b"[") {
        Some(rest) => {
            let Some(end) = memchr::memchr(b']', rest) else {
                return false;
            };
            let (address, after) = rest.split_at(end);
            let mut halves = address.splitn(2, |byte| *byte == b'%'); // a zone id may follow
            let digits = halves.next().unwrap_or_default();
            let fits = |byte: &u8| byte.is_ascii_hexdigit() || b":.".contains(byte);
            let zone_fits = halves.next().is_none_or(|zone| zone.iter().all(is_name_byte));
            (
                digits.contains(&b':') && digits.iter().all(fits) && zone_fits,
                &after[1..],
            )
        }
        None => {
            let end = memchr::memchr(b':', text).unwrap_or(text.len());
            (text[..end].iter().all(is_name_byte), &text[end..])
        }
    };
    let port_fits = match port.split_first() {
        None => true,
        Some((colon, digits)) => *colon == b':' && digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
    };
    name_fits && port_fits
}

fn is_name_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=".contains(byte)
}

fn expects_continue(headers: &HeaderMap) -> Result<bool, Refusal> {
    let mut expects = false;
    for value in headers.get_all(header::EXPECT) {
        if !value.as_bytes().eq_ignore_ascii_case(b"100-continue") {
            return Err(Refusal::UnsupportedExpect);
        }
        expects = true;
    }
    Ok(expects)
}

fn refusal_of(error: httparse::Error, head: &[u8]) -> Refusal {
    // Apart from DEL, only a byte below space (other than tab) in a line makes a value invalid.
    let control = || {
        head.iter()
            .any(|byte| matches!(byte, 0..=8 | 11 | 12 | 14..=31 | 127))
    };
    match error {
        httparse::Error::TooManyHeaders => Refusal::TooManyHeaders,
        httparse::Error::Version => Refusal::UnsupportedVersion,
        httparse::Error::HeaderName | httparse::Error::HeaderValue if control() => Refusal::ControlCharacter,
        httparse::Error::HeaderName | httparse::Error::HeaderValue => Refusal::BadHeader,
        _ => Refusal::BadRequestLine,
    }
}
