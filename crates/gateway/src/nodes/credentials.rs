//! Whose account a request uses at the cluster: the client's own, always, if it brings one.

use cluster::Cluster;
use config::Anonymous;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

/// The account for requests that bring none.
#[derive(Clone, Debug)]
pub(crate) struct Fallback(Option<HeaderValue>);

impl Fallback {
    /// The gateway's own account if the configuration lets strangers use it, else none.
    pub(crate) fn new(cluster: &Cluster, anonymous: Anonymous) -> Self {
        match anonymous {
            Anonymous::Pass => Self(None),
            Anonymous::UseGatewayAccount => Self(cluster.config().credentials.authorization().ok().flatten()),
        }
    }

    /// Whether there is something to add.
    pub(crate) fn would_fill(&self, headers: &HeaderMap) -> bool {
        self.0.is_some() && !headers.contains_key(AUTHORIZATION)
    }

    /// Adds the account to a request that carries none; whether it did.
    pub(crate) fn fill(&self, headers: &mut HeaderMap) -> bool {
        match &self.0 {
            Some(account) if !headers.contains_key(AUTHORIZATION) => {
                headers.insert(AUTHORIZATION, account.clone());
                true
            }
            _ => false,
        }
    }
}
