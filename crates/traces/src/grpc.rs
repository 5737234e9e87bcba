//! OTLP over gRPC: calls of `TraceService/Export` on one HTTP/2 connection, which is kept until it fails.

use std::cell::RefCell;

use bytes::{BufMut, Bytes, BytesMut};
use h2::RecvStream;
use h2::client::SendRequest;
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Version};
use wire::Origin;
use wire::guard::{self, Work};

use crate::export::{Failure, GRPC_ENCODING};
use crate::gzip;
use crate::http1::OWN_NAME;
use crate::proto;

pub(crate) struct Grpc {
    origin: Origin,
    uri: String,
    headers: HeaderMap,
    connection: RefCell<Option<SendRequest<Bytes>>>,
}

/// What stands before a message: whether it is compressed, and its length.
pub(crate) const PREFIX_BYTES: usize = 5;

impl Grpc {
    pub(crate) fn new(origin: Origin, tls: bool, mut headers: HeaderMap) -> Self {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(USER_AGENT, HeaderValue::from_static(OWN_NAME));
        let scheme = if tls { "https" } else { "http" };
        Self {
            uri: format!("{scheme}://{}{CALL}", origin.authority()),
            origin,
            headers,
            connection: RefCell::default(),
        }
    }

    /// Calls once; `body` has [`PREFIX_BYTES`] free before its message. Returns how many spans the collector
    /// refused, if any, and why.
    pub(crate) async fn send(&self, body: Bytes) -> Result<Option<(u64, String)>, Failure> {
        let failed = |error: h2::Error| Failure::Passing(error.to_string(), None);
        let connection = self.connection().await?;
        let mut connection = connection.ready().await.map_err(failed)?;
        let (answer, mut stream) = connection.send_request(self.request()?, false).map_err(failed)?;
        stream
            .send_data(framed(body, self.headers.contains_key(GRPC_ENCODING)), true)
            .map_err(failed)?;
        let (head, mut answer) = answer.await.map_err(failed)?.into_parts();
        if !head.status.is_success() {
            return Err(Failure::Passing(
                format!("the collector answers {}", head.status),
                None,
            ));
        }
        let message = read(&mut answer).await.map_err(failed)?;
        let trailers = answer.trailers().await.map_err(failed)?;
        // An answer without a message has its status among its headers.
        let told = trailers.as_ref().unwrap_or(&head.headers);
        ended(told)?;
        // The next call goes on the same connection.
        *self.connection.borrow_mut() = Some(connection);
        Ok(refused(&message))
    }

    /// Takes the connection, or makes one. It is put back only after a call that came to its end.
    async fn connection(&self) -> Result<SendRequest<Bytes>, Failure> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let socket = wire::dial(&self.origin);
        let socket = socket
            .await
            .map_err(|kind| Failure::Passing(kind.to_string(), None))?;
        let shaken = h2::client::handshake(socket).await;
        let (connection, driver) = shaken.map_err(|error| Failure::Passing(error.to_string(), None))?;
        guard::spawn(Work::Traces, async move {
            // A call that this breaks off fails by itself.
            let _ = driver.await;
        });
        Ok(connection)
    }

    fn request(&self) -> Result<Request<()>, Failure> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(&*self.uri)
            .version(Version::HTTP_2);
        let mut request = request
            .body(())
            .map_err(|error| Failure::Lasting(error.to_string()))?;
        *request.headers_mut() = self.headers.clone();
        Ok(request)
    }
}

/// Returns how many spans the collector refused, and why, from the message of its answer, which it may
/// compress as the request was.
fn refused(message: &[u8]) -> Option<(u64, String)> {
    let (prefix, message) = message.split_at_checked(PREFIX_BYTES)?;
    match prefix[0] {
        0 => proto::refused(message),
        _ => proto::refused(&gzip::decompressed(message, ANSWER_BYTES_MAX)?),
    }
}

/// Returns the message with its length before it, and whether it is compressed.
fn framed(body: Bytes, compressed: bool) -> Bytes {
    let length = u32::try_from(body.len() - PREFIX_BYTES).expect("a request is far below 4 GiB");
    let mut framed = BytesMut::from(body);
    framed[0] = u8::from(compressed);
    (&mut framed[1..PREFIX_BYTES]).put_u32(length);
    framed.freeze()
}

/// Reads an answer's message.
async fn read(answer: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut message = Vec::new();
    while let Some(more) = answer.data().await {
        let more = more?;
        answer.flow_control().release_capacity(more.len())?;
        if message.len() < ANSWER_BYTES_MAX {
            message.extend_from_slice(&more);
        }
    }
    Ok(message)
}

/// Returns how a call ended, by its status.
fn ended(told: &HeaderMap) -> Result<(), Failure> {
    let text = |name: &str| told.get(name).and_then(|value| value.to_str().ok());
    let Some(status) = text("grpc-status").and_then(|status| status.parse::<u32>().ok()) else {
        return Err(Failure::Lasting("the answer is not one of gRPC".to_owned()));
    };
    if status == 0 {
        return Ok(());
    }
    let message = text("grpc-message").unwrap_or_default();
    let why = format!("the collector answers with status {status} of gRPC: {message}");
    Err(match PASSING.contains(&status) {
        true => Failure::Passing(why, None),
        false => Failure::Lasting(why),
    })
}

/// The statuses after which OTLP's specification wants the call to be repeated: cancelled, deadline exceeded,
/// aborted, out of range, unavailable, data loss. Resource exhausted is among them only if the collector says
/// when to come again, which a message in the trailers does that is not read here.
const PASSING: [u32; 6] = [1, 4, 10, 11, 14, 15];

const CALL: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

const ANSWER_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use opentelemetry_proto::tonic::collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
    };
    use prost::Message as _;
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;

    /// What a server was called with: the head's path and one of its headers, and the message.
    type Called = (String, Option<HeaderValue>, Vec<u8>);

    /// Answers each call with the next of these statuses, an answer without a message for all but 0.
    async fn serve(listener: TcpListener, statuses: Vec<&'static str>, called: mpsc::Sender<Called>) {
        let mut statuses = statuses.into_iter();
        while let Ok((socket, _)) = listener.accept().await {
            let mut connection = h2::server::handshake(socket).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let (head, mut body) = request.into_parts();
                let (called, status) = (called.clone(), statuses.next().unwrap());
                guard::spawn(Work::Other, async move {
                    let message = read(&mut body).await.unwrap();
                    let token = head.headers.get("authorization").cloned();
                    called
                        .send((head.uri.path().to_owned(), token, message))
                        .await
                        .unwrap();
                    let answer = http::Response::builder().header(CONTENT_TYPE, "application/grpc");
                    if status != "0" {
                        let answer = answer.header("grpc-status", status).header("grpc-message", "no");
                        respond.send_response(answer.body(()).unwrap(), true).unwrap();
                        return;
                    }
                    let mut stream = respond.send_response(answer.body(()).unwrap(), false).unwrap();
                    stream
                        .send_data(Bytes::from_static(&[0; PREFIX_BYTES]), false)
                        .unwrap();
                    let status = HeaderValue::from_static(status);
                    stream
                        .send_trailers(HeaderMap::from_iter([("grpc-status".parse().unwrap(), status)]))
                        .unwrap();
                });
            }
        }
    }

    #[test]
    fn an_answer_that_is_compressed_is_read() {
        let answer = ExportTraceServiceResponse {
            partial_success: Some(ExportTracePartialSuccess {
                rejected_spans: 3,
                error_message: "too old".to_owned(),
            }),
        };
        let plain = framed(
            [&[0; PREFIX_BYTES][..], &answer.encode_to_vec()].concat().into(),
            false,
        );
        let packed = framed(gzip::compressed(&plain, PREFIX_BYTES).into(), true);
        assert_eq!((plain[0], packed[0]), (0, 1));
        for message in [plain, packed] {
            assert_eq!(refused(&message), Some((3, "too old".to_owned())));
        }
        assert_eq!(refused(&[1, 0, 0, 0, 2, 7, 7]), None);
        assert_eq!(refused(&[0]), None);
    }

    #[test]
    fn calls_go_on_one_connection_and_their_statuses_say_whether_to_call_again() {
        wire::run_local(1 << 20, |_| async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let (tell, mut called) = mpsc::channel(8);
            guard::spawn(Work::Other, serve(listener, vec!["0", "0", "14", "3", "0"], tell));
            let headers =
                HeaderMap::from_iter([("authorization".parse().unwrap(), HeaderValue::from_static("x"))]);
            let grpc = Grpc::new(Origin::http("127.0.0.1", port), false, headers);
            let body = || {
                Bytes::from(proto::request(
                    &[],
                    &[("a".to_owned(), "b".to_owned())],
                    PREFIX_BYTES,
                ))
            };
            for status in ["0", "0", "14", "3", "0"] {
                let sent = grpc.send(body()).await;
                let as_expected = match status {
                    "0" => matches!(sent, Ok(None)),
                    "14" => matches!(sent, Err(Failure::Passing(..))),
                    _ => matches!(sent, Err(Failure::Lasting(_))),
                };
                assert!(as_expected, "{status}");
                let (path, token, message) = called.recv().await.unwrap();
                assert_eq!(path, CALL);
                assert_eq!(token.unwrap(), "x");
                let length = u32::from_be_bytes(message[1..PREFIX_BYTES].try_into().unwrap());
                assert_eq!(length as usize, message.len() - PREFIX_BYTES);
                let read = ExportTraceServiceRequest::decode(&message[PREFIX_BYTES..]).unwrap();
                assert_eq!(read.resource_spans.len(), 1);
            }
        })
        .unwrap();
    }
}
