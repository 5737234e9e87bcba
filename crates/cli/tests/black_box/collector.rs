//! A collector of traces that speaks OTLP over HTTP, and keeps what it is sent.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;

use crate::gateway::PATIENCE;

/// A running collector.
pub(crate) struct Collector {
    kept: Arc<Mutex<Kept>>,
    port: u16,
}

#[derive(Default)]
struct Kept {
    heads: Vec<String>,
    resource: Vec<KeyValue>,
    spans: Vec<Span>,
    /// The statuses of the next answers; 200 when there are none.
    statuses: VecDeque<u16>,
}

impl Collector {
    pub(crate) fn start() -> Self {
        Self::listening(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    pub(crate) fn listening(listener: TcpListener) -> Self {
        let port = listener.local_addr().unwrap().port();
        let kept = Arc::new(Mutex::new(Kept::default()));
        let shared = Arc::clone(&kept);
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let kept = Arc::clone(&shared);
                std::thread::spawn(move || serve(socket, &kept));
            }
        });
        Self { kept, port }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Answers the next requests with these statuses, and keeps nothing of them.
    pub(crate) fn answer(&self, statuses: &[u16]) {
        self.kept.lock().statuses.extend(statuses);
    }

    /// Returns the heads of the requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.kept.lock().heads.clone()
    }

    /// Returns an attribute of the program that sent the spans.
    pub(crate) fn resource(&self, key: &str) -> Option<String> {
        text(&self.kept.lock().resource, key)
    }

    /// Returns the spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.kept.lock().spans.clone()
    }

    /// Waits until the spans are as they should be, and returns them.
    pub(crate) fn wait(&self, what: &str, holds: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let began = Instant::now();
        loop {
            let spans = self.spans();
            if holds(&spans) {
                return spans;
            }
            let names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
            assert!(
                began.elapsed() < PATIENCE,
                "not so in {PATIENCE:?}: {what}: {names:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the value of a text.
pub(crate) fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    match value(attributes, key)? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

/// Returns the value of a number.
pub(crate) fn number(attributes: &[KeyValue], key: &str) -> Option<i64> {
    match value(attributes, key)? {
        Value::IntValue(number) => Some(number),
        _ => None,
    }
}

fn value(attributes: &[KeyValue], key: &str) -> Option<Value> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    attribute.value.clone()?.value
}

fn serve(mut socket: TcpStream, kept: &Mutex<Kept>) {
    let mut bytes = Vec::new();
    while let Some(head) = head(&mut socket, &mut bytes) {
        let length = head.to_lowercase();
        let length = length.split_once("content-length: ").unwrap().1;
        let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
        let mut piece = [0; 4096];
        while bytes.len() < length {
            match socket.read(&mut piece) {
                Ok(count) if count > 0 => bytes.extend_from_slice(&piece[..count]),
                _ => return,
            }
        }
        let rest = bytes.split_off(length);
        let message = std::mem::replace(&mut bytes, rest);
        let status = keep(&mut kept.lock(), head, &message);
        let answer = format!("HTTP/1.1 {status} Status\r\nContent-Length: 0\r\n\r\n");
        if socket.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Reads the head of a request, up to the empty line.
fn head(socket: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<String> {
    let mut piece = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            let head = std::mem::replace(bytes, rest);
            return Some(String::from_utf8_lossy(&head[..end + 2]).into_owned());
        }
        match socket.read(&mut piece) {
            Ok(count) if count > 0 => bytes.extend_from_slice(&piece[..count]),
            _ => return None,
        }
    }
}

fn keep(kept: &mut Kept, head: String, message: &[u8]) -> u16 {
    let is_packed = head.contains("content-encoding: gzip\r\n");
    kept.heads.push(head);
    if let Some(status) = kept.statuses.pop_front() {
        return status;
    }
    let mut unpacked = Vec::new();
    if is_packed {
        GzDecoder::new(message).read_to_end(&mut unpacked).unwrap();
    } else {
        unpacked.extend_from_slice(message);
    }
    let request = ExportTraceServiceRequest::decode(&*unpacked).unwrap();
    for group in request.resource_spans {
        kept.resource = group.resource.unwrap_or_default().attributes;
        for scope in group.scope_spans {
            kept.spans.extend(scope.spans);
        }
    }
    200
}
