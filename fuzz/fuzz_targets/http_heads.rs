//! Hostile heads of requests and replies, in pieces of any size: what is taken means what reading it line by
//! line says, and nothing is taken that two readers could understand differently.
#![no_main]

use http::{HeaderMap, Method};
use libfuzzer_sys::fuzz_target;
use wire::Limits;
use wire::codec::{Framing, HeadScan, parse_reply, parse_request};

fuzz_target!(|input: &[u8]| {
    let [kind, piece, bytes @ ..] = input else { return };
    let found = HeadScan::default().find(bytes);
    assert_eq!(found, in_pieces(bytes, usize::from(*piece).max(1)), "pieces matter");
    let Ok(Some(length)) = found else { return };
    let head = &bytes[..length];
    assert!(head.ends_with(b"\r\n"));
    match kind {
        0..128 => request(head),
        128.. => reply(head, if *kind < 192 { Method::GET } else { Method::HEAD }),
    }
});

fn in_pieces(bytes: &[u8], piece: usize) -> Result<Option<usize>, wire::codec::HeadFault> {
    let mut scan = HeadScan::default();
    let mut end = 0;
    loop {
        end = (end + piece).min(bytes.len());
        match scan.find(&bytes[..end]) {
            Ok(None) if end < bytes.len() => {}
            found => return found,
        }
    }
}

fn request(head: &[u8]) {
    let limits = Limits::default();
    let slow = Lines::read(head);
    let Ok(line) = parse_request(head, &limits) else {
        assert!(!slow.is_some_and(|slow| slow.is_plain_request()), "a plain request is refused");
        return;
    };
    let slow = slow.expect("what is taken can be read by lines");
    slow.agrees(&line.headers);
    let http_11 = line.version == http::Version::HTTP_11;
    let [method, target, version] = slow.first.split(|byte| *byte == b' ').collect::<Vec<_>>()[..] else {
        panic!("a request line has three words");
    };
    assert_eq!((method, version), (line.method.as_str().as_bytes(), if http_11 { &b"HTTP/1.1"[..] } else { b"HTTP/1.0" }));
    assert!(!target.contains(&b'#') && target.iter().all(|byte| *byte > b' ' && *byte != 127));
    let passed_on = line.uri.path_and_query().map_or("/", |both| both.as_str());
    assert!(passed_on.starts_with('/') || passed_on == "*", "{passed_on:?} is no target to pass on");
    let hosts = slow.all("host").count();
    assert!(hosts == 1 || (hosts == 0 && !http_11), "{hosts} hosts");
    assert_eq!(Some(line.framing), slow.framing(http_11, Framing::None));
    assert_eq!(line.keep_alive, slow.keeps_alive(http_11));
    let mut passed_on = line.headers.clone();
    wire::strip_hop_by_hop(&mut passed_on, &[]);
    for name in slow.all("connection").flat_map(|value| value.split(|byte| *byte == b',')) {
        let Ok(name) = http::HeaderName::from_bytes(name.trim_ascii()) else { continue };
        let (before, after) = (line.headers.get_all(&name), passed_on.get_all(&name));
        match is_for_the_server(name.as_str()) {
            true => assert_eq!(before, after, "what is meant for the server is not passed on"),
            false => assert!(after.iter().next().is_none(), "a header of one hop is passed on"),
        }
    }
    for name in ["connection", "transfer-encoding", "upgrade", "te", "http2-settings"] {
        assert!(!passed_on.contains_key(name), "{name} is passed on");
    }
}

/// Whether a header is passed on although `Connection` names it (RFC 9110, section 7.6.1): it says what a
/// request means, or who sends it.
fn is_for_the_server(name: &str) -> bool {
    let starts = ["content-", "accept"].iter().any(|start| name.starts_with(start));
    starts
        || matches!(name, "authorization" | "cookie" | "host")
        || matches!(name, "es-security-runas-user" | "opendistro_security_impersonate_as")
        || matches!(name, "x-elastic-product-origin" | "x-opaque-id" | "x-proxy-roles" | "x-proxy-user")
}

fn reply(head: &[u8], method: Method) {
    let Ok(reply) = parse_reply(head, &method, 100) else { return };
    let slow = Lines::read(head).expect("what is taken can be read by lines");
    slow.agrees(&reply.headers);
    let http_11 = reply.version == http::Version::HTTP_11;
    assert!(slow.first.starts_with(if http_11 { b"HTTP/1.1 " } else { b"HTTP/1.0 " }));
    assert_eq!(&slow.first[9..12], reply.status.as_str().as_bytes());
    let without_body = method == Method::HEAD || matches!(reply.status.as_u16(), 100..200 | 204 | 304);
    let framing = match slow.framing(http_11, Framing::UntilClose) {
        Some(_) if without_body => Some(Framing::None),
        Some(Framing::Length(0)) => Some(Framing::None),
        framing => framing,
    };
    assert_eq!(Some(reply.framing), framing);
    assert_eq!(reply.keep_alive, slow.keeps_alive(http_11) && reply.framing != Framing::UntilClose);
}

/// A head as RFC 9112, sections 2 to 6, has it read, without any leniency.
struct Lines<'a> {
    first: &'a [u8],
    headers: Vec<(String, &'a [u8])>,
}

impl<'a> Lines<'a> {
    fn read(head: &'a [u8]) -> Option<Self> {
        let mut rest = head;
        let mut lines = Vec::new();
        while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
            lines.push(&rest[..end]);
            rest = &rest[end + 2..];
        }
        assert!(rest.is_empty() && lines.pop().is_some_and(<[u8]>::is_empty), "a head ends with an empty line");
        let mut lines = lines.into_iter();
        let first = lines.next()?;
        let headers = lines.map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            let name_fits = !name.is_empty()
                && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte));
            let value_fits = line[colon + 1..].iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~' | 0x80..));
            (name_fits && value_fits).then(|| (String::from_utf8_lossy(name).to_lowercase(), value))
        });
        Some(Self { first, headers: headers.collect::<Option<_>>()? })
    }

    fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'a [u8]> + 's {
        self.headers.iter().filter(move |(other, _)| other == name).map(|(_, value)| *value)
    }

    fn agrees(&self, headers: &HeaderMap) {
        assert_eq!(headers.len(), self.headers.len(), "a line is lost or invented");
        for name in headers.keys() {
            let values: Vec<_> = headers.get_all(name).iter().map(|value| value.as_bytes()).collect();
            assert_eq!(values, self.all(name.as_str()).collect::<Vec<_>>(), "{name}");
        }
    }

    /// Where the body ends; `None` where that could be understood in two ways.
    fn framing(&self, http_11: bool, without: Framing) -> Option<Framing> {
        let lengths: Vec<_> = self.all("content-length").collect();
        let codings: Vec<_> = self.all("transfer-encoding").collect();
        match (&lengths[..], &codings[..]) {
            ([], []) => Some(without),
            ([length], []) if !length.is_empty() && length.iter().all(u8::is_ascii_digit) => {
                std::str::from_utf8(length).ok()?.parse().ok().map(Framing::Length)
            }
            ([], [coding]) if http_11 && coding.eq_ignore_ascii_case(b"chunked") => Some(Framing::Chunked),
            _ => None,
        }
    }

    fn keeps_alive(&self, http_11: bool) -> bool {
        let tokens: Vec<_> = self
            .all("connection")
            .flat_map(|value| value.split(|byte| *byte == b','))
            .map(|token| token.trim_ascii().to_ascii_lowercase())
            .collect();
        let has = |token: &[u8]| tokens.iter().any(|other| other == token);
        !has(b"close") && (http_11 || has(b"keep-alive"))
    }

    /// Nothing about it is unusual: it has to be taken.
    fn is_plain_request(&self) -> bool {
        let words: Vec<_> = self.first.split(|byte| *byte == b' ').collect();
        let [b"GET" | b"PUT" | b"POST" | b"HEAD" | b"DELETE", [b'/', path @ ..], b"HTTP/1.1"] = words[..] else {
            return false;
        };
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/_-.".contains(byte);
        let hosts: Vec<_> = self.all("host").collect();
        path.iter().all(plain)
            && path.len() < 1000
            && self.headers.len() < 100
            && hosts.len() == 1
            && hosts[0].iter().all(u8::is_ascii_alphanumeric)
            && self.all("expect").count() == 0
            && self.all("content-length").all(|length| length.len() < 19)
            && self.framing(true, Framing::None).is_some()
    }
}
