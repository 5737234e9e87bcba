//! OTLP over HTTP/1.1: each request is a post of protocol buffers.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::time::Instant;
use wire::{Client, ClientConfig, Deadlines, Origin, Outgoing, Pool, RequestHead};

use crate::export::Failure;
use crate::proto;

pub(crate) struct Http {
    client: Client,
    origin: Origin,
    path: String,
    headers: HeaderMap,
}

impl Http {
    pub(crate) fn new(origin: Origin, path: String, mut headers: HeaderMap, pool: &Pool) -> Self {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers.insert(USER_AGENT, HeaderValue::from_static(OWN_NAME));
        let config = ClientConfig {
            connections_per_origin_max: 1,
            ..ClientConfig::default()
        };
        Self {
            client: Client::new(config, pool.clone()),
            origin,
            path,
            headers,
        }
    }

    /// Sends one request. Returns how many spans the collector refused, if any, and why.
    pub(crate) async fn send(&self, body: Bytes, limit: Instant) -> Result<Option<(u64, String)>, Failure> {
        let head = RequestHead {
            method: &Method::POST,
            target: &self.path,
            headers: &self.headers,
        };
        let deadlines = Deadlines {
            overall: limit,
            head_timeout: None,
            start_by: None,
        };
        let passing = |error: wire::SendError| Failure::Passing(error.to_string(), None);
        let sent = self
            .client
            .send(&self.origin, head, Outgoing::from(body), deadlines);
        let (head, body) = sent.await.map_err(passing)?.into_parts();
        let answer = body.collect(ANSWER_BYTES_MAX).await.map_err(passing)?;
        if head.status.is_success() {
            return Ok(proto::refused(&answer));
        }
        let why = format!("the collector answers {}", head.status);
        Err(match passes(head.status) {
            true => Failure::Passing(why, asked(&head.headers)),
            false => Failure::Lasting(why),
        })
    }
}

/// Returns whether a request that got this status may succeed later, as OTLP's specification says.
fn passes(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

/// Returns the pause that the collector asks for.
fn asked(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The exporter's name.
pub(crate) const OWN_NAME: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));

const ANSWER_BYTES_MAX: usize = 1 << 20;
