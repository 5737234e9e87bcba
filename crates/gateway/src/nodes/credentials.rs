//! The account that a request uses at the cluster: always the client's own, if the client sends one.

use cluster::Cluster;
use config::Anonymous;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

/// The account for requests that bring none.
#[derive(Clone, Debug)]
pub(crate) struct Fallback(Option<HeaderValue>);

impl Fallback {
    /// Takes the gateway's own account if the configuration lends it to clients without one, otherwise none.
    pub(crate) fn new(cluster: &Cluster, anonymous: Anonymous) -> Self {
        match anonymous {
            Anonymous::Pass => Self(None),
            Anonymous::UseGatewayAccount => Self(cluster.config().credentials.authorization().ok().flatten()),
        }
    }

    /// Returns whether there is an account to add.
    pub(crate) fn would_fill(&self, headers: &HeaderMap) -> bool {
        self.0.is_some() && !headers.contains_key(AUTHORIZATION)
    }

    /// Adds the account to a request that carries none. Returns whether it did.
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
