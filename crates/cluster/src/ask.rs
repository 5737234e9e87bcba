//! The gateway's own requests to the cluster: small GETs with its own credentials, one at a time.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::de::DeserializeOwned;
use wire::{Client, ClientConfig, Deadlines, Origin, Outgoing, Pool, RequestHead, SendError};

use crate::config::{BadConfig, ClusterConfig};
use crate::health::NodeOutcome;

/// Sends the watch's requests to nodes. Lives on the watch's thread.
#[derive(Clone)]
pub(crate) struct Asker {
    client: Client,
    headers: HeaderMap,
    timeout: Duration,
}

/// An answer that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// The exchange failed.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The answer is 401 or 403.
    #[error("{target} is answered with {status}: the cluster does not let the gateway read it")]
    Unauthorized {
        /// The path asked for, without its query.
        target: String,
        /// 401 or 403.
        status: StatusCode,
    },
    /// The answer has any other status that is no success.
    #[error("{target} is answered with {status}")]
    Status {
        /// The path asked for, without its query.
        target: String,
        /// The status of the answer.
        status: StatusCode,
        /// The outcome for the node's health.
        outcome: NodeOutcome,
    },
    /// The answer is a success with an unexpected body.
    #[error("{target} is answered with something unexpected: {why}")]
    Unexpected {
        /// The path asked for, without its query.
        target: String,
        /// The fault.
        why: String,
    },
}

impl Asker {
    pub(crate) fn new(config: &ClusterConfig, pool: Pool) -> Result<Self, BadConfig> {
        let client_config = ClientConfig {
            connections_per_origin_max: 4,
            connect_timeout: config.timeout.min(Duration::from_secs(3)),
            ..ClientConfig::default()
        };
        let headers = own_headers(config)?;
        Ok(Self {
            client: Client::new(client_config, pool),
            headers,
            timeout: config.timeout,
        })
    }

    /// Returns the same, with answers that take no longer than this.
    pub(crate) fn within(&self, time: Duration) -> Self {
        Self {
            timeout: self.timeout.min(time),
            ..self.clone()
        }
    }

    /// Checks that the configuration makes headers that can be sent.
    pub(crate) fn check(config: &ClusterConfig) -> Result<(), BadConfig> {
        own_headers(config).map(drop)
    }

    /// Sends `GET target` and parses the answer.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        origin: &Origin,
        target: &str,
    ) -> Result<T, AskError> {
        let body = self.get_bytes(origin, target).await?;
        serde_json::from_slice(&body).map_err(|e| AskError::Unexpected {
            target: without_query(target),
            why: e.to_string(),
        })
    }

    /// Sends `GET target` and returns the answer's body as it came. Statuses other than 2xx are errors.
    pub(crate) async fn get_bytes(&self, origin: &Origin, target: &str) -> Result<wire::Buffer, AskError> {
        let deadlines = Deadlines::within(self.timeout);
        let head = RequestHead {
            method: &Method::GET,
            target,
            headers: &self.headers,
        };
        let reply = self.client.send(origin, head, Outgoing::Empty, deadlines).await?;
        let (status, outcome) = (
            reply.status(),
            NodeOutcome::of_head(reply.status(), reply.headers()),
        );
        let body = reply.into_body().collect(REPLY_BYTES_MAX).await?;
        match status {
            _ if status.is_success() => Ok(body),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(AskError::Unauthorized {
                target: without_query(target),
                status,
            }),
            _ => Err(AskError::Status {
                target: without_query(target),
                status,
                outcome: outcome.unwrap_or_else(|| NodeOutcome::of_words(&body)),
            }),
        }
    }

    /// Closes idle connections to a node that is gone.
    pub(crate) fn forget(&self, origin: &Origin) {
        self.client.forget(origin);
    }
}

impl AskError {
    /// Returns the outcome for the node's health; `None` when the error says nothing about it (our own
    /// limits).
    pub(crate) fn outcome(&self) -> Option<NodeOutcome> {
        match self {
            Self::Send(error) => NodeOutcome::of_error(error),
            Self::Status { outcome, .. } => Some(*outcome),
            Self::Unauthorized { .. } | Self::Unexpected { .. } => Some(NodeOutcome::Answered),
        }
    }

    pub(crate) fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Unauthorized { .. })
    }

    /// Returns whether the error is a 4xx that means "this build has no such API" or "you may not": then the
    /// rest can continue without the answer.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Unauthorized { .. } => true,
            Self::Status { status, .. } => {
                status.is_client_error() && *status != StatusCode::TOO_MANY_REQUESTS
            }
            _ => false,
        }
    }
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").finish_non_exhaustive()
    }
}

fn own_headers(config: &ClusterConfig) -> Result<HeaderMap, BadConfig> {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    for (name, value) in &config.headers {
        let mut value =
            HeaderValue::from_str(value.expose()).map_err(|_| BadConfig::Header(name.to_string()))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    if let Some(value) = config.credentials.authorization()? {
        headers.insert(header::AUTHORIZATION, value);
    }
    Ok(headers)
}

fn without_query(target: &str) -> String {
    target.split('?').next().unwrap_or_default().to_owned()
}

const USER_AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));

/// The largest answer that is read, in bytes: a routing table of some 500,000 shards.
pub(crate) const REPLY_BYTES_MAX: usize = 128 << 20;
