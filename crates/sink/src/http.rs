//! Just enough HTTP/1.1 to serve quickly: requests are read whole into one reused buffer, and replies are
//! sent in one write.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use memchr::memmem;

/// A connection, in clear text or TLS.
pub(super) trait Socket: Read + Write {}
impl<T: Read + Write> Socket for T {}

/// The head of a request.
#[derive(Debug, Default, Clone)]
pub(super) struct Head {
    pub(super) method: String,
    /// The path without parameters.
    pub(super) path: String,
    pub(super) query: String,
    pub(super) authorization: Option<String>,
    pub(super) accepts_gzip: bool,
    pub(super) content_type: Option<String>,
    pub(super) accept: Option<String>,
    pub(super) traceparent: Option<String>,
    /// The bytes of its first line, and of all its headers.
    pub(super) line_bytes: usize,
    pub(super) header_bytes: usize,
    content_length: usize,
    chunked: bool,
    gzip: bool,
    expects_continue: bool,
    pub(super) close: bool,
}

/// The reading side of one connection: the bytes that have arrived, from the first one that is not yet
/// consumed.
pub(super) struct Reader {
    buffer: Vec<u8>,
    filled: usize,
    /// The place where the body begins, once a head is read.
    body_at: usize,
    inflated: Vec<u8>,
}

/// The room left before a reply's body for its head, so that both are sent in one write.
const HEAD_ROOM: usize = 256;
const FIRST_READ: usize = 64 << 10;
const HEAD_BYTES_MAX: usize = 64 << 10;

// === impl Head ===

impl Head {
    fn parse(text: &str) -> Option<Head> {
        let mut lines = text.split("\r\n");
        let first = lines.next()?;
        let (line_bytes, header_bytes) = (first.len(), text.len() - first.len());
        let mut first = first.split(' ');
        let method = first.next()?.to_owned();
        let target = first.next()?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut head = Head {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            line_bytes,
            header_bytes,
            ..Head::default()
        };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => head.content_length = value.parse().ok()?,
                "transfer-encoding" => head.chunked = value.eq_ignore_ascii_case("chunked"),
                "content-encoding" => head.gzip = value.eq_ignore_ascii_case("gzip"),
                "expect" => head.expects_continue = value.eq_ignore_ascii_case("100-continue"),
                "connection" => head.close = value.eq_ignore_ascii_case("close"),
                "accept-encoding" => head.accepts_gzip = value.contains("gzip"),
                "content-type" => head.content_type = Some(value.to_owned()),
                "accept" => head.accept = Some(value.to_owned()),
                "traceparent" => head.traceparent = Some(value.to_owned()),
                "authorization" => head.authorization = Some(value.to_owned()),
                _ => {}
            }
        }
        Some(head)
    }

    pub(super) fn content_length(&self) -> usize {
        self.content_length
    }

    /// Returns the decoded value of a parameter.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let pair = |pair: &str| {
            pair.split_once('=')
                .map_or((pair.to_owned(), String::new()), |(k, v)| {
                    (k.to_owned(), v.to_owned())
                })
        };
        self.query
            .split('&')
            .map(pair)
            .find(|(key, _)| key == name)
            .map(|(_, value)| decode(&value, true))
    }
}

/// Undoes percent-encoding; `+` is a space only in parameters.
pub(super) fn decode(text: &str, plus_is_space: bool) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let hex = [bytes.next().unwrap_or(b'0'), bytes.next().unwrap_or(b'0')];
                out.push(u8::from_str_radix(&String::from_utf8_lossy(&hex), 16).unwrap_or(b'?'));
            }
            b'+' if plus_is_space => out.push(b' '),
            _ => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

// === impl Reader ===

impl Reader {
    pub(super) fn new() -> Reader {
        Reader {
            buffer: vec![0; FIRST_READ],
            filled: 0,
            body_at: 0,
            inflated: Vec::new(),
        }
    }

    /// Reads the next request's head; `None` when the peer has closed.
    pub(super) fn head(&mut self, socket: &mut dyn Socket) -> io::Result<Option<Head>> {
        let mut looked = 0;
        loop {
            if let Some(end) = memmem::find(&self.buffer[looked..self.filled], b"\r\n\r\n") {
                self.body_at = looked + end + 4;
                let text = String::from_utf8_lossy(&self.buffer[..looked + end]);
                return Head::parse(&text)
                    .map(Some)
                    .ok_or_else(|| io::ErrorKind::InvalidData.into());
            }
            looked = self.filled.saturating_sub(3);
            if self.filled > HEAD_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if self.fill(socket, usize::MAX)? == 0 {
                return Ok(None);
            }
        }
    }

    /// Reads the body of `head`. The bytes are counted as they travelled; [`Reader::body`] returns them
    /// decompressed.
    pub(super) fn read_body(
        &mut self,
        head: &Head,
        socket: &mut dyn Socket,
        bytes_a_s: Option<u64>,
    ) -> io::Result<Body> {
        if head.expects_continue {
            socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let (range, travelled) = if head.chunked {
            self.read_chunks(socket)?
        } else {
            let end = self.body_at + head.content_length;
            while self.filled < end {
                let step = bytes_a_s.map_or(usize::MAX, |rate| {
                    std::thread::sleep(Duration::from_millis(10));
                    (rate / 100).max(1) as usize
                });
                if self.buffer.len() < end {
                    self.buffer.resize(end, 0);
                }
                if self.fill(socket, step)? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            (self.body_at..end, head.content_length)
        };
        self.inflated.clear();
        if head.gzip {
            GzDecoder::new(&self.buffer[range.clone()]).read_to_end(&mut self.inflated)?;
        }
        Ok(Body {
            range,
            consumed: if head.chunked {
                travelled
            } else {
                self.body_at + head.content_length
            },
            gzip: head.gzip,
            travelled,
        })
    }

    pub(super) fn body(&self, body: &Body) -> &[u8] {
        if body.gzip {
            &self.inflated
        } else {
            &self.buffer[body.range.clone()]
        }
    }

    /// Drops a request; the bytes that the peer has already sent of the next one stay.
    pub(super) fn consume(&mut self, body: &Body) {
        self.buffer.copy_within(body.consumed..self.filled, 0);
        self.filled -= body.consumed;
    }

    /// Decodes chunks in place. Returns the body's place and where the request ends.
    fn read_chunks(&mut self, socket: &mut dyn Socket) -> io::Result<(std::ops::Range<usize>, usize)> {
        let (mut at, mut end) = (self.body_at, self.body_at);
        loop {
            let line_end = loop {
                if let Some(found) = memmem::find(&self.buffer[at..self.filled], b"\r\n") {
                    break at + found;
                }
                self.fill_more(socket)?;
            };
            let size = std::str::from_utf8(&self.buffer[at..line_end])
                .ok()
                .and_then(|text| text.split(';').next());
            let size = size
                .and_then(|hex| usize::from_str_radix(hex.trim(), 16).ok())
                .ok_or(io::ErrorKind::InvalidData)?;
            at = line_end + 2;
            while self.filled < at + size + 2 {
                self.fill_more(socket)?;
            }
            self.buffer.copy_within(at..at + size, end);
            end += size;
            at += size + 2;
            if size == 0 {
                return Ok((self.body_at..end, at));
            }
        }
    }

    fn fill_more(&mut self, socket: &mut dyn Socket) -> io::Result<()> {
        if self.fill(socket, usize::MAX)? == 0 {
            Err(io::ErrorKind::UnexpectedEof.into())
        } else {
            Ok(())
        }
    }

    fn fill(&mut self, socket: &mut dyn Socket, bytes_max: usize) -> io::Result<usize> {
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let end = self.buffer.len().min(self.filled.saturating_add(bytes_max));
        let got = socket.read(&mut self.buffer[self.filled..end])?;
        self.filled += got;
        Ok(got)
    }
}

/// The place of a request's body, and where the request ends.
pub(super) struct Body {
    range: std::ops::Range<usize>,
    consumed: usize,
    gzip: bool,
    pub(super) travelled: usize,
}

// === Reply ===

/// A reply that is being built. The body is appended to [`Reply::body`]; the head is written before it at the
/// end.
pub(super) struct Reply {
    out: Vec<u8>,
    pub(super) status: u16,
    packed: bool,
    /// A media type other than the usual one.
    pub(super) media_type: Option<String>,
}

impl Reply {
    pub(super) fn new() -> Reply {
        Reply {
            out: vec![0; HEAD_ROOM],
            status: 200,
            packed: false,
            media_type: None,
        }
    }

    pub(super) fn clear(&mut self) {
        self.out.truncate(HEAD_ROOM);
        self.status = 200;
        self.packed = false;
        self.media_type = None;
    }

    pub(super) fn body(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    pub(super) fn json(&mut self, status: u16, value: &serde_json::Value) {
        self.clear();
        self.status = status;
        serde_json::to_writer(&mut self.out, value).expect("a Vec takes every write");
    }

    pub(super) fn text(&mut self, status: u16, text: &str) {
        self.clear();
        self.status = status;
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Compresses the body as the servers do: with gzip's level 3, whatever its length.
    pub(super) fn pack(&mut self) {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(3));
        let packed = encoder
            .write_all(&self.out[HEAD_ROOM..])
            .and_then(|()| encoder.finish());
        self.out.truncate(HEAD_ROOM);
        self.out
            .extend_from_slice(&packed.expect("a Vec takes every write"));
        self.packed = true;
    }

    /// Returns the whole reply. `HEAD` gets the head of the reply to `GET`.
    pub(super) fn finish(&mut self, method: &str, elasticsearch: bool, close: bool) -> &[u8] {
        let length = self.out.len() - HEAD_ROOM;
        let head = format!(
            "HTTP/1.1 {} {}\r\n{}content-type: {}\r\n{}{}content-length: {length}\r\n\r\n",
            self.status,
            reason(self.status),
            if elasticsearch {
                "X-elastic-product: Elasticsearch\r\n"
            } else {
                ""
            },
            self.media_type
                .as_deref()
                .unwrap_or("application/json; charset=UTF-8"),
            if self.packed {
                "content-encoding: gzip\r\n"
            } else {
                ""
            },
            if close { "connection: close\r\n" } else { "" },
        );
        let start = HEAD_ROOM - head.len();
        self.out[start..HEAD_ROOM].copy_from_slice(head.as_bytes());
        if method == "HEAD" {
            &self.out[start..HEAD_ROOM]
        } else {
            &self.out[start..]
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        406 => "Not Acceptable",
        405 => "Method Not Allowed",
        409 => "Conflict",
        413 => "Request Entity Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Status",
    }
}

/// Breaks a connection in both directions.
pub(super) fn break_off(stream: &TcpStream) {
    // The connection may be gone already, which is the desired state.
    let _ = stream.shutdown(std::net::Shutdown::Both);
}
