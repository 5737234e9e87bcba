//! The prints by which a key and a request are known ([`Fingerprint`]).

use base64::Engine as _;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::fingerprint::{Fingerprint, fingerprint_of};

/// A header that is not a valid key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadKey;

/// The header by which a client names its request.
pub(crate) static HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// The key of a request, and its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamedKey {
    /// The print of the key and of its sender: keys of different clients have nothing to do with one another.
    pub(crate) key: Fingerprint,
    /// The print of the sender.
    pub(crate) client: Fingerprint,
}

/// Returns the key of a request, if it has one. `user` is who the client is, if the cluster says so: the same
/// user whatever the client shows, since passwords change and tokens are renewed.
///
/// # Errors
///
/// If there is more than one key, or the key is empty or too long.
pub(crate) fn key_of(headers: &HeaderMap, user: Option<Fingerprint>) -> Result<Option<NamedKey>, BadKey> {
    let mut keys = headers.get_all(&HEADER).iter();
    let Some(key) = keys.next() else { return Ok(None) };
    let key = key.as_bytes();
    if keys.next().is_some() || !(1..=KEY_BYTES_MAX).contains(&key.len()) {
        return Err(BadKey);
    }
    let client = user.unwrap_or_else(|| {
        let runs_as = headers
            .get("es-security-runas-user")
            .map_or(&b""[..], HeaderValue::as_bytes);
        fingerprint_of(&[&who(headers), runs_as])
    });
    Ok(Some(NamedKey {
        key: fingerprint_of(&[&client.to_bytes(), key]),
        client,
    }))
}

/// Returns the print of a request: its path and parameters, and its body, unpacked.
pub(crate) fn digest_of(target: &str, body: &[u8]) -> Fingerprint {
    fingerprint_of(&[target.as_bytes(), body])
}

/// Returns the sender of a request, by headers that are no secret: a password, or anything that could be
/// tried against it, must not come into a print that lies on the disk. The contents of a token cannot be
/// guessed.
fn who(headers: &HeaderMap) -> Vec<u8> {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return Vec::new();
    };
    let value = value.as_bytes();
    let public = |scheme: &str| {
        let (given, rest) = value.split_at_checked(scheme.len())?;
        let rest = given.eq_ignore_ascii_case(scheme.as_bytes()).then_some(rest)?;
        let decoded = base64::engine::general_purpose::STANDARD.decode(rest.trim_ascii());
        let name = decoded.ok()?.split(|byte| *byte == b':').next()?.to_vec();
        Some([scheme.as_bytes(), &name].concat())
    };
    public("Basic ")
        .or_else(|| public("ApiKey "))
        .unwrap_or_else(|| value.to_vec())
}

const KEY_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(key: &str, authorization: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if !authorization.is_empty() {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(authorization).unwrap());
        }
        headers.append(&HEADER, HeaderValue::from_str(key).unwrap());
        headers
    }

    fn basic(account: &str) -> String {
        format!(
            "Basic {}",
            base64::engine::general_purpose::STANDARD.encode(account)
        )
    }

    #[test]
    fn a_key_is_of_a_client_whatever_its_password() {
        let named = |key: &str, authorization: &str, user| {
            key_of(&headers(key, authorization), user).unwrap().unwrap()
        };
        let key = |key: &str, authorization: &str| named(key, authorization, None).key;
        let (one, other) = (basic("u:one"), basic("v:one"));
        assert_eq!(
            key("k", &one),
            key("k", &basic("u:changed").replace("Basic", "basic"))
        );
        let mut prints = vec![
            key("k", &one),
            key("l", &one),
            key("k", &other),
            key("k", ""),
            key("k", "Bearer a"),
            key("k", "Bearer b"),
            key("k", &one.replace("Basic", "ApiKey")),
        ];
        prints.sort_by_key(|print| print.to_bytes());
        prints.dedup();
        assert_eq!(prints.len(), 7);
        let user = Some(fingerprint_of(&[b"user"]));
        let renewed = [named("k", "Bearer a", user), named("k", "Bearer b", user)];
        assert_eq!(renewed[0], renewed[1], "whatever the user shows");
        assert_eq!(named("l", "Bearer a", user).client, renewed[0].client);
    }

    #[test]
    fn a_request_without_a_key_has_none_and_a_bad_one_is_told() {
        assert_eq!(key_of(&HeaderMap::new(), None), Ok(None));
        assert_eq!(key_of(&headers("", ""), None), Err(BadKey));
        assert_eq!(key_of(&headers(&"k".repeat(256), ""), None), Err(BadKey));
        assert!(key_of(&headers(&"k".repeat(255), ""), None).unwrap().is_some());
        let mut two = headers("k", "");
        two.append(&HEADER, HeaderValue::from_static("l"));
        assert_eq!(key_of(&two, None), Err(BadKey));
    }

    #[test]
    fn prints_are_those_of_sha_256_and_come_back_as_they_were() {
        // The print of no part at all is SHA-256 of nothing.
        let nothing = fingerprint_of(&[]);
        assert_eq!(
            serde_json::to_string(&nothing).unwrap(),
            "\"e3b0c44298fc1c149afbf4c8996fb924\""
        );
        let read: Fingerprint = serde_json::from_str("\"e3b0c44298fc1c149afbf4c8996fb924\"").unwrap();
        assert_eq!(read, nothing);
        assert_ne!(digest_of("/a", b"b"), digest_of("/", b"ab"));
    }
}
