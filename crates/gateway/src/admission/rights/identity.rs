//! The identity of a client: a keyed hash of what the client shows to the cluster. The key lies on the disk,
//! readable only by the gateway's user; without it nobody can try passwords against a hash.

use std::fmt;

use aws_lc_rs::{hmac, rand};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};

/// The headers by which clusters know a client. A client that shows anything else is asked about without it,
/// and is nobody then.
pub(crate) static IDENTITY: [HeaderName; 5] = [
    AUTHORIZATION,
    HeaderName::from_static("es-security-runas-user"),
    HeaderName::from_static("opendistro_security_impersonate_as"),
    HeaderName::from_static("x-proxy-user"),
    HeaderName::from_static("x-proxy-roles"),
];

/// A client of one cluster, by its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ClientIdentity(pub(super) u128);

/// The key that hashes are made with.
#[derive(Clone)]
pub(super) struct HashKey {
    bytes: [u8; HashKey::BYTES],
    hmac: hmac::Key,
}

// === impl HashKey ===

impl HashKey {
    pub(super) const BYTES: usize = 32;

    /// Makes a key that differs from any before.
    pub(super) fn new() -> Self {
        let mut bytes = [0; Self::BYTES];
        if rand::fill(&mut bytes).is_err() {
            // This never happens where the system has random bytes at all, which TLS needs, too.
            bytes.fill_with(|| fastrand::u8(..));
        }
        Self::of(bytes)
    }

    pub(super) fn of(bytes: [u8; Self::BYTES]) -> Self {
        Self {
            bytes,
            hmac: hmac::Key::new(hmac::HMAC_SHA256, &bytes),
        }
    }

    pub(super) fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.bytes
    }

    /// Returns the identity of the client that sends these headers to this cluster. A cluster that is built
    /// anew has other clients.
    pub(super) fn identity(&self, cluster_uuid: &str, headers: &HeaderMap) -> ClientIdentity {
        let mut context = hmac::Context::with_key(&self.hmac);
        let mut update = |part: &[u8]| {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        };
        update(cluster_uuid.as_bytes());
        for name in &IDENTITY {
            for value in headers.get_all(name) {
                update(name.as_str().as_bytes());
                update(value.as_bytes());
            }
        }
        let tag = context.sign();
        let first = tag.as_ref().iter().take(16);
        ClientIdentity(first.fold(0, |print, byte| (print << 8) | u128::from(*byte)))
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}

/// Returns whether any of a request's headers say who sends it.
pub(super) fn is_shown(headers: &HeaderMap) -> bool {
    IDENTITY.iter().any(|name| headers.contains_key(name))
}

/// Returns those of a request's headers that say who sends it.
pub(super) fn shown(headers: &HeaderMap) -> HeaderMap {
    let mut shown = HeaderMap::new();
    for name in &IDENTITY {
        for value in headers.get_all(name) {
            shown.append(name.clone(), value.clone());
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_apart_by_all_that_they_show_and_only_with_the_key() {
        let key = HashKey::new();
        let of = |lines: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, value.parse().unwrap());
            }
            headers
        };
        let one = of(&[("authorization", "Basic a"), ("x-opaque-id", "1")]);
        assert_eq!(
            key.identity("c", &one),
            key.identity("c", &of(&[("authorization", "Basic a"), ("x-opaque-id", "2")]))
        );
        let mut prints = vec![
            key.identity("c", &one),
            key.identity("d", &one),
            HashKey::new().identity("c", &one),
            key.identity("c", &of(&[])),
            key.identity("c", &of(&[("authorization", "Basic b")])),
            key.identity("c", &of(&[("x-proxy-user", "Basic a")])),
            key.identity(
                "c",
                &of(&[("authorization", "Basic a"), ("authorization", "Basic b")]),
            ),
            key.identity(
                "c",
                &of(&[("authorization", "Basic a"), ("es-security-runas-user", "b")]),
            ),
        ];
        prints.sort();
        prints.dedup();
        assert_eq!(prints.len(), 8);
    }
}
