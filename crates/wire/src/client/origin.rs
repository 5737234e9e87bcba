//! The destination of a connection.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::Origin;
use crate::tls::ClientTls;

#[derive(Debug)]
pub(super) struct OriginParts {
    pub(super) host: Box<str>,
    pub(super) port: u16,
    pub(super) tls: Option<ClientTls>,
    pub(super) authority: Arc<str>,
}

// === impl Origin ===

impl Origin {
    /// Makes an origin in clear text. `host` is a name or an address (IPv6 with or without brackets).
    pub fn http(host: &str, port: u16) -> Self {
        Self::new(host, port, None)
    }

    /// Makes an origin with TLS. The certificate is checked against `host`.
    pub fn https(host: &str, port: u16, tls: ClientTls) -> Self {
        Self::new(host, port, Some(tls))
    }

    /// Returns `host:port`, as in a `Host` header.
    pub fn authority(&self) -> &str {
        &self.parts.authority
    }

    /// Returns an equal origin that counts references by itself, for another core.
    pub fn copied(&self) -> Self {
        Self::new(&self.parts.host, self.parts.port, self.parts.tls.clone())
    }

    fn new(host: &str, port: u16, tls: Option<ClientTls>) -> Self {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let authority = if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        Origin {
            parts: Arc::new(OriginParts {
                host: host.into(),
                port,
                tls,
                authority: authority.into(),
            }),
        }
    }
}

// Two origins are equal when the same connections can serve both.
impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        let (one, two) = (&self.parts, &other.parts);
        let same_tls = match (&one.tls, &two.tls) {
            (None, None) => true,
            (Some(one), Some(two)) => Arc::ptr_eq(&one.config, &two.config),
            _ => false,
        };
        Arc::ptr_eq(one, two) || (one.port == two.port && one.host == two.host && same_tls)
    }
}

impl Eq for Origin {}

impl Hash for Origin {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts.host.hash(state);
        self.parts.port.hash(state);
    }
}
