//! ID tokens: their signature, and for whom they are (OpenID Connect Core 1.0, section 3.1.3.7).

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation};
use serde_json::{Map, Value};
use subtle::ConstantTimeEq as _;

use crate::clock::now_ms;

/// What a token has to say.
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
}

/// Why a token is not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadToken {
    /// It cannot be read, or a claim that every token has is wrong.
    #[error("{0}")]
    Jwt(#[from] jsonwebtoken::errors::Error),
    /// It is signed in a way that is not accepted.
    #[error("it is signed by {0:?}, and RS256, ES256 or their longer forms are accepted")]
    Algorithm(Algorithm),
    /// No key of the provider has signed it.
    #[error("none of the provider's keys has signed it")]
    NoKey,
    /// The token has several issuers, which the library accepts if one of them is the right one.
    #[error("its issuer (`iss`) is not the provider alone")]
    Issuer,
    /// The token is an answer to another login.
    #[error("its nonce is another login's")]
    Nonce,
    /// The token was made for another client.
    #[error("it was made for another client (`azp`)")]
    Party,
    /// The token is about nobody.
    #[error("its subject (`sub`) is empty")]
    Subject,
    /// The token comes from the future, or has no time.
    #[error("the time at which it was made (`iat`) is missing, or to come")]
    Time,
}

/// The kind of key that a signature is made with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    Rsa,
    Curve,
}

/// Returns the kind of key of a signature that is accepted. Only asymmetric ones are: `none` is no algorithm
/// here, and a key that everybody knows must not be taken for a secret.
fn kind_of(algorithm: Algorithm) -> Option<KeyKind> {
    match algorithm {
        Algorithm::RS256
        | Algorithm::RS384
        | Algorithm::RS512
        | Algorithm::PS256
        | Algorithm::PS384
        | Algorithm::PS512 => Some(KeyKind::Rsa),
        Algorithm::ES256 | Algorithm::ES384 => Some(KeyKind::Curve),
        _ => None,
    }
}

/// Reads the header, which says how a token is signed.
pub(super) fn header(token: &str) -> Result<Header, BadToken> {
    let header = jsonwebtoken::decode_header(token)?;
    match kind_of(header.alg) {
        Some(_) => Ok(header),
        None => Err(BadToken::Algorithm(header.alg)),
    }
}

/// Verifies a token, and returns its claims.
pub(super) fn verified(
    token: &str,
    header: &Header,
    keys: &[Jwk],
    expected: &Expected<'_>,
) -> Result<Map<String, Value>, BadToken> {
    let mut validation = Validation::new(header.alg);
    validation.set_issuer(&[expected.issuer]);
    validation.set_audience(&[expected.client_id]);
    validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
    validation.validate_nbf = true;
    validation.leeway = LEEWAY_S;
    for key in keys.iter().filter(|key| fits(key, header)) {
        // A key that cannot be used is no reason to refuse what another one has signed.
        let Ok(key) = DecodingKey::from_jwk(key) else {
            continue;
        };
        match jsonwebtoken::decode::<Map<String, Value>>(token, &key, &validation) {
            Ok(decoded) => {
                check(&decoded.claims, expected)?;
                return Ok(decoded.claims);
            }
            Err(error) if is_about_the_key(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(BadToken::NoKey)
}

/// Returns whether another key might verify the token.
fn is_about_the_key(error: &jsonwebtoken::errors::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidSignature
            | ErrorKind::InvalidEcdsaKey
            | ErrorKind::InvalidRsaKey(_)
            | ErrorKind::InvalidKeyFormat
            | ErrorKind::InvalidAlgorithm
    )
}

fn fits(key: &Jwk, header: &Header) -> bool {
    let kind = match key.algorithm {
        AlgorithmParameters::RSA(_) => Some(KeyKind::Rsa),
        AlgorithmParameters::EllipticCurve(_) => Some(KeyKind::Curve),
        _ => None,
    };
    let is_named = header.kid.is_none() || key.common.key_id == header.kid;
    kind.is_some()
        && kind == kind_of(header.alg)
        && is_named
        && !matches!(key.common.public_key_use, Some(PublicKeyUse::Encryption))
}

/// Checks what is particular to ID tokens.
fn check(claims: &Map<String, Value>, expected: &Expected<'_>) -> Result<(), BadToken> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("iss") != expected.issuer {
        return Err(BadToken::Issuer);
    }
    if !bool::from(text("nonce").as_bytes().ct_eq(expected.nonce.as_bytes())) {
        return Err(BadToken::Nonce);
    }
    if text("sub").trim().is_empty() {
        return Err(BadToken::Subject);
    }
    let several = claims
        .get("aud")
        .and_then(Value::as_array)
        .is_some_and(|audience| audience.len() > 1);
    if (several || claims.contains_key("azp")) && text("azp") != expected.client_id {
        return Err(BadToken::Party);
    }
    let made_s = claims.get("iat").and_then(Value::as_f64).ok_or(BadToken::Time)?;
    match made_s * 1e3 <= (now_ms() + LEEWAY_S as i64 * 1000) as f64 {
        true => Ok(()),
        false => Err(BadToken::Time),
    }
}

/// How far the provider's clock may be from this one's.
const LEEWAY_S: u64 = 60;
