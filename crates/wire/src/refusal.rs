//! The reasons why a request is refused before (or while) it is read, each with its status and text.

use http::StatusCode;

/// The fault of a request. The gateway words the reply ([`Service::refuse`](crate::Service::refuse)); the
/// connection closes after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the error text is the documentation of each variant")]
pub enum Refusal {
    #[error("malformed request line")]
    BadRequestLine,
    #[error("this port speaks TLS, and the request came in plain HTTP: its URL should begin with https://")]
    PlainHttp,
    #[error("a TLS handshake came to a port that speaks plain HTTP: the URL should begin with http://")]
    TlsHello,
    #[error("malformed request target")]
    BadTarget,
    #[error("malformed header line")]
    BadHeader,
    #[error("header line folding is not supported")]
    FoldedHeader,
    #[error("carriage return or line feed out of place in the request head")]
    BareLineBreak,
    #[error("control character in the request head")]
    ControlCharacter,
    #[error("unsupported HTTP version")]
    UnsupportedVersion,
    #[error("request line is too long")]
    TargetTooLong,
    #[error("request head is too large")]
    HeadTooLarge,
    #[error("too many headers")]
    TooManyHeaders,
    #[error("missing Host header")]
    MissingHost,
    #[error("more than one Host header, a malformed one, or one that is not the host of the target")]
    BadHost,
    #[error("malformed Content-Length")]
    BadContentLength,
    #[error("more than one Content-Length")]
    RepeatedContentLength,
    #[error("Content-Length together with Transfer-Encoding")]
    AmbiguousLength,
    #[error("Transfer-Encoding in an HTTP/1.0 request")]
    TransferEncodingInHttp10,
    #[error("unsupported Transfer-Encoding (only chunked is)")]
    UnsupportedTransferEncoding,
    #[error("unsupported Expect")]
    UnsupportedExpect,
    #[error("malformed chunk in the request body")]
    BadChunk,
    #[error("malformed or too large trailers")]
    BadTrailers,
    #[error("request body is too large")]
    BodyTooLarge,
    #[error("unsupported method: CONNECT")]
    UnsupportedMethod,
    #[error("request head did not arrive in time")]
    HeadTimeout,
    #[error("no memory left for a request head of this size now")]
    OutOfMemory,
    #[error("request body did not arrive in time")]
    BodyTimeout,
    #[error("request body came too slowly while others waited for the memory that it held")]
    BodyHolds,
    #[error("the service failed to answer")]
    Failed,
}

// === impl Refusal ===

impl Refusal {
    /// Returns the status to answer with.
    pub fn status(self) -> StatusCode {
        match self {
            Refusal::UnsupportedVersion => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Refusal::TargetTooLong => StatusCode::URI_TOO_LONG,
            Refusal::HeadTooLarge | Refusal::TooManyHeaders => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Refusal::UnsupportedTransferEncoding => StatusCode::NOT_IMPLEMENTED,
            Refusal::UnsupportedMethod => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::UnsupportedExpect => StatusCode::EXPECTATION_FAILED,
            Refusal::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::HeadTimeout | Refusal::BodyTimeout | Refusal::BodyHolds => StatusCode::REQUEST_TIMEOUT,
            Refusal::OutOfMemory => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// Returns the reason as text, for the reply's `error.reason`.
    pub fn reason(self) -> String {
        self.to_string()
    }
}
