//! Questions to a cluster besides the load: one at a time, each with a whole answer.

use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use wire::{Client, ClientConfig, ClientTls, Deadlines, Origin, Outgoing, RequestHead, Worker};

use crate::request::Server;
use crate::trouble::in_words;

/// Why a question was not answered.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No answer came.
    #[error("{0}: {1}")]
    Send(String, String),
    /// The cluster refused.
    #[error("{0} was answered with {1}: {2}")]
    Refused(String, StatusCode, String),
    /// The answer is not what was asked for.
    #[error("{0}: the answer is not what was asked for: {1}")]
    Answer(String, serde_json::Error),
}

/// Asks questions of one server.
pub(crate) struct Ask {
    client: Client,
    origin: Origin,
    headers: HeaderMap,
    timeout: Duration,
}

// === impl Ask ===

impl Ask {
    /// Prepares to ask `server` with the account of `authorization`; each answer must come within `timeout`.
    pub(crate) fn new(
        worker: &Worker,
        server: &Server,
        tls: ClientTls,
        authorization: Option<HeaderValue>,
        timeout: Duration,
    ) -> Ask {
        let json = HeaderValue::from_static("application/json");
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, json)]);
        if let Some(authorization) = authorization {
            headers.insert(AUTHORIZATION, authorization);
        }
        Ask {
            client: Client::new(ClientConfig::default(), worker.pool().clone()),
            origin: match server.tls {
                true => Origin::https(&server.host, server.port, tls),
                false => Origin::http(&server.host, server.port),
            },
            headers,
            timeout,
        }
    }

    /// Returns the answer to a question, if its status reports success.
    pub(crate) async fn bytes(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Vec<u8>, AskError> {
        let head = RequestHead {
            method,
            target: path,
            headers: &self.headers,
        };
        let body = body.map_or(Outgoing::Empty, |body| {
            Outgoing::from(body.to_string().into_bytes())
        });
        let lost =
            |error: wire::SendError| AskError::Send(format!("{}{path}", error.origin), in_words(&error.kind));
        let deadlines = Deadlines::within(self.timeout);
        let reply = self.client.send(&self.origin, head, body, deadlines).await;
        let reply = reply.map_err(lost)?;
        let status = reply.status();
        let answer = reply.into_body().collect(ANSWER_BYTES_MAX).await.map_err(lost)?;
        if !status.is_success() {
            let text = String::from_utf8_lossy(&answer).chars().take(300).collect();
            return Err(AskError::Refused(path.to_owned(), status, text));
        }
        Ok(answer.to_vec())
    }

    /// Returns the answer like [`bytes`](Self::bytes), parsed as JSON.
    pub(crate) async fn json<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, AskError> {
        let answer = self.bytes(method, path, body).await?;
        serde_json::from_slice(&answer).map_err(|error| AskError::Answer(path.to_owned(), error))
    }
}

const ANSWER_BYTES_MAX: usize = 512 << 20;
