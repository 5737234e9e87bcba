//! The identity of a client: a keyed hash of what the client shows to the cluster. The key lies on the disk,
//! readable only by the gateway's user; without it nobody can try passwords against a hash.

use std::fmt;

use aws_lc_rs::{hmac, rand};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::nodes::IDENTITY;

/// A client of one cluster, by its headers, or by its credentials alone ([`HashKey::accounts`]).
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
        let shown = IDENTITY.iter().flat_map(|name| {
            let values = headers.get_all(name).into_iter();
            values.flat_map(|value| [name.as_str().as_bytes(), value.as_bytes()])
        });
        self.hash(std::iter::once(cluster_uuid.as_bytes()).chain(shown))
    }

    /// Returns the identities of those who send these credentials to this cluster, whatever else they show
    /// and however they spell it: servers take no notice of that, but it is in [`HashKey::identity`].
    pub(super) fn accounts(
        &self,
        cluster_uuid: &str,
        headers: &HeaderMap,
    ) -> impl Iterator<Item = ClientIdentity> {
        let values = headers.get_all(AUTHORIZATION).into_iter();
        values.take(ACCOUNTS_MAX).map(move |value| {
            let (scheme, credentials) = credentials(value.as_bytes());
            self.hash([cluster_uuid.as_bytes(), ACCOUNT, &scheme, &credentials])
        })
    }

    fn hash<'p>(&self, parts: impl IntoIterator<Item = &'p [u8]>) -> ClientIdentity {
        let mut context = hmac::Context::with_key(&self.hmac);
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let tag = context.sign();
        let first = tag.as_ref().iter().take(16);
        ClientIdentity(first.fold(0, |print, byte| (print << 8) | u128::from(*byte)))
    }
}

/// Returns the scheme and the credentials of an `Authorization`, as servers read them: they take no notice
/// of the scheme's case and of further spaces, nor of what comes behind Base64, which OpenSearch and
/// Elasticsearch decode without padding too. In other schemes all words are credentials: the secret may be
/// the last of them.
fn credentials(value: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut words = value
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let scheme = words.next().unwrap_or_default().to_ascii_lowercase();
    let credentials = match &*scheme {
        b"basic" | b"apikey" => {
            let shown = words.next().unwrap_or_default();
            LENIENT.decode(shown).unwrap_or_else(|_| shown.to_vec())
        }
        _ => words.collect::<Vec<_>>().join(&b' '),
    };
    (scheme, credentials)
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
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

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);
/// Distinguishes credentials from a client's headers.
const ACCOUNT: &[u8] = b"account";
/// A client has one account; the others are looked at only lest somebody hides it among them.
const ACCOUNTS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_the_same_however_it_is_spelled_and_whatever_is_beside_it() {
        let key = HashKey::new();
        let of = |lines: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, value.parse().unwrap());
            }
            key.accounts("c", &headers).collect::<Vec<_>>()
        };
        // u:pw
        let account = of(&[("authorization", "Basic dTpwdw==")]);
        assert_eq!(account.len(), 1);
        for spelled in [
            "basic dTpwdw==",
            "BASIC   dTpwdw",
            "Basic dTpwdx==",
            "Basic dTpwdw== x",
        ] {
            assert_eq!(
                of(&[("authorization", spelled), ("x-proxy-user", spelled)]),
                account
            );
        }
        let hidden = of(&[
            ("authorization", "Basic eDp5"),
            ("authorization", "Basic dTpwdw=="),
        ]);
        assert_eq!(hidden[1..], account);
        for other in ["Basic dTpwdW==", "Bearer dTpwdw==", "Basic", "Basic !"] {
            assert_ne!(of(&[("authorization", other)]), account, "{other}");
        }
        // A realm of its own may have its secret behind the name, and a signature stands behind the key.
        for [one, other] in [
            ["Own user=u password=a", "Own user=u password=b"],
            [
                "AWS4-HMAC-SHA256 Credential=k, Signature=a",
                "AWS4-HMAC-SHA256 Credential=k, Signature=b",
            ],
        ] {
            assert_ne!(of(&[("authorization", one)]), of(&[("authorization", other)]));
        }
        let spaced = of(&[("authorization", "own  user=u   password=a")]);
        assert_eq!(of(&[("authorization", "Own user=u password=a")]), spaced);
        assert_eq!(of(&[("x-proxy-user", "u")]), []);
        let mut shown = HeaderMap::new();
        shown.append(AUTHORIZATION, "Basic dTpwdw==".parse().unwrap());
        assert_ne!(key.accounts("d", &shown).collect::<Vec<_>>(), account);
    }

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
