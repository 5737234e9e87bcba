//! The account that a request uses at the cluster: always the client's own, if the client sends one.

use cluster::Cluster;
use config::Anonymous;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The headers by which clusters know a client. A client that shows anything else is asked about without it,
/// and is nobody then.
pub(crate) static IDENTITY: [HeaderName; 5] = [
    AUTHORIZATION,
    HeaderName::from_static("es-security-runas-user"),
    HeaderName::from_static("opendistro_security_impersonate_as"),
    HeaderName::from_static("x-proxy-user"),
    HeaderName::from_static("x-proxy-roles"),
];

/// Returns whether any of a request's headers say who sends it.
pub(crate) fn shows_identity(headers: &HeaderMap) -> bool {
    IDENTITY.iter().any(|name| headers.contains_key(name))
}

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

    /// Returns whether there is an account to add. A client that shows who it is in another way than by an
    /// account gets none: with the gateway's, the cluster would let it act as anybody.
    pub(crate) fn would_fill(&self, headers: &HeaderMap) -> bool {
        self.0.is_some() && !shows_identity(headers)
    }

    /// Adds the account to a request that shows nobody. Returns whether it did.
    pub(crate) fn fill(&self, headers: &mut HeaderMap) -> bool {
        match &self.0 {
            Some(account) if !shows_identity(headers) => {
                headers.insert(AUTHORIZATION, account.clone());
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_shows_nothing_gets_the_account() {
        let fallback = Fallback(Some(HeaderValue::from_static("Basic Z2F0ZXdheTpodXNo")));
        let filled = |lines: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, HeaderValue::from_static(value));
            }
            let before = headers.clone();
            let would = fallback.would_fill(&headers);
            let did = fallback.fill(&mut headers);
            assert_eq!((would, did), (did, headers != before), "{lines:?}");
            did
        };
        assert!(filled(&[]));
        assert!(filled(&[("x-opaque-id", "7"), ("accept", "*/*")]));
        for shown in [
            "authorization",
            "es-security-runas-user",
            "opendistro_security_impersonate_as",
            "x-proxy-user",
            "x-proxy-roles",
        ] {
            assert!(!filled(&[(shown, "u")]), "{shown}");
        }
        assert!(!Fallback(None).would_fill(&HeaderMap::new()));
    }
}
