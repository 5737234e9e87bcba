//! What the provider says of itself and its keys, and the exchange of a code.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Uri};
use jsonwebtoken::jwk::Jwk;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use settings::Secret;
use tokio::sync::Mutex;

use super::settings::{Settings, is_address};
use crate::outbound::{Ask, AskError, Outbound};
use crate::target::{BadTarget, Target};

/// The provider, with what is known of it.
pub(crate) struct Provider {
    outbound: Outbound,
    issuer: String,
    client_id: String,
    client_secret: Option<Secret>,
    ca_pem: Option<String>,
    known: Mutex<Known>,
}

/// What the provider has said.
#[derive(Default)]
struct Known {
    metadata: Option<(Arc<Metadata>, Instant)>,
    /// The last failure: a provider that is down is not asked for each login.
    failed: Option<Instant>,
    keys: Option<(Arc<Vec<Jwk>>, Instant)>,
    /// When the keys were last asked for because none of them had signed a token.
    renewed: Option<Instant>,
}

/// The provider's metadata (OpenID Connect Discovery 1.0, section 3), as far as a login needs it.
#[derive(Debug)]
pub(crate) struct Metadata {
    pub(super) authorization_endpoint: String,
    pub(super) end_session_endpoint: Option<String>,
    /// Whether each answer of the provider names its issuer (RFC 9207).
    pub(super) always_names_issuer: bool,
    token_endpoint: String,
    jwks_uri: String,
    /// Whether the client's secret goes into a header, or into the body.
    secret_in_header: bool,
}

/// Why the provider's part could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProviderError {
    /// The provider did not answer, or not with what was asked for.
    #[error("the provider: {0}")]
    Ask(#[from] AskError),
    /// An address of the provider cannot be used.
    #[error("the provider: `{0}` is not an address that can be asked")]
    Url(String),
    /// The provider's certificate authorities cannot be used.
    #[error("the provider: {0}")]
    Target(#[from] BadTarget),
    /// The metadata are another provider's, or incomplete.
    #[error("the provider's metadata: {0}")]
    Metadata(String),
    /// The code was not exchanged.
    #[error("the provider does not exchange the code: {0}")]
    Exchange(String),
    /// The provider failed a moment ago.
    #[error("the provider did not answer a moment ago")]
    JustFailed,
}

// === impl Provider ===

impl Provider {
    pub(super) fn new(settings: &Settings, outbound: Outbound) -> Self {
        Self {
            outbound,
            issuer: settings.issuer.clone(),
            client_id: settings.client_id.clone(),
            client_secret: settings.client_secret.clone(),
            ca_pem: settings.ca_pem.clone(),
            known: Mutex::default(),
        }
    }

    /// Returns the metadata. They are asked for once an hour; if that fails, the former ones stay.
    pub(super) async fn metadata(&self) -> Result<Arc<Metadata>, ProviderError> {
        let mut known = self.known.lock().await;
        if let Some((metadata, at)) = &known.metadata
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(metadata));
        }
        let former = known.metadata.as_ref().map(|(metadata, _)| Arc::clone(metadata));
        if known.failed.is_some_and(|at| at.elapsed() < PAUSE) {
            return former.ok_or(ProviderError::JustFailed);
        }
        match self.discover().await {
            Ok(metadata) => {
                let metadata = Arc::new(metadata);
                known.metadata = Some((Arc::clone(&metadata), Instant::now()));
                known.failed = None;
                Ok(metadata)
            }
            Err(error) => {
                known.failed = Some(Instant::now());
                tracing::warn!(%error, "the OpenID provider cannot be asked");
                former.ok_or(error)
            }
        }
    }

    /// Returns the provider's keys, asked for anew if they are old or the one by this name is not among them.
    pub(super) async fn keys(
        &self,
        metadata: &Metadata,
        kid: Option<&str>,
    ) -> Result<Arc<Vec<Jwk>>, ProviderError> {
        let mut known = self.known.lock().await;
        let has = |keys: &[Jwk]| kid.is_none() || keys.iter().any(|key| key.common.key_id.as_deref() == kid);
        if let Some((keys, at)) = &known.keys
            && at.elapsed() < FRESH
            && has(keys)
        {
            return Ok(Arc::clone(keys));
        }
        self.ask_for_keys(&mut known, metadata).await
    }

    /// Returns newer keys than these, none of which has signed a token. A token need not name its key, and a
    /// provider may give a new key the name of a former one. None if these are of this login, or if newer
    /// ones were asked for a moment ago.
    pub(super) async fn newer_keys(
        &self,
        metadata: &Metadata,
        keys: &Arc<Vec<Jwk>>,
        login_began: Instant,
    ) -> Result<Option<Arc<Vec<Jwk>>>, ProviderError> {
        let mut known = self.known.lock().await;
        match &known.keys {
            Some((latest, _)) if !Arc::ptr_eq(latest, keys) => return Ok(Some(Arc::clone(latest))),
            Some((_, at)) if *at >= login_began => return Ok(None),
            _ => {}
        }
        if known.renewed.is_some_and(|at| at.elapsed() < RENEWED_EVERY) {
            return Ok(None);
        }
        known.renewed = Some(Instant::now());
        self.ask_for_keys(&mut known, metadata).await.map(Some)
    }

    async fn ask_for_keys(
        &self,
        known: &mut Known,
        metadata: &Metadata,
    ) -> Result<Arc<Vec<Jwk>>, ProviderError> {
        let told = self.get(&metadata.jwks_uri).await?;
        let keys = told["keys"].as_array().into_iter().flatten();
        // A key of a kind that is not known here is no reason to refuse the others.
        let keys = keys.filter_map(|key| serde_json::from_value(key.clone()).ok());
        let keys = Arc::new(keys.take(KEYS_MAX).collect());
        known.keys = Some((Arc::clone(&keys), Instant::now()));
        Ok(keys)
    }

    /// Exchanges a code for an ID token.
    pub(super) async fn exchange(
        &self,
        metadata: &Metadata,
        code: &str,
        verifier: &str,
        redirect: &str,
    ) -> Result<Secret, ProviderError> {
        let mut parameters = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect),
            ("code_verifier", verifier),
        ];
        let mut headers = HeaderMap::new();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
        match &self.client_secret {
            Some(secret) if metadata.secret_in_header => {
                let account = format!("{}:{}", escaped(&self.client_id), escaped(secret.expose()));
                let value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(account)));
                let mut value =
                    value.map_err(|_| ProviderError::Exchange("the secret fits no header".to_owned()))?;
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
            }
            Some(secret) => parameters.extend([
                ("client_id", &*self.client_id),
                ("client_secret", secret.expose()),
            ]),
            None => parameters.push(("client_id", &self.client_id)),
        }
        let (target, path) = self.target(&metadata.token_endpoint)?;
        let ask = Ask {
            method: Method::POST,
            path,
            headers,
            body: encoded(&parameters).into_bytes(),
            within: WITHIN,
            bytes_max: ANSWER_BYTES_MAX,
            memory: None,
        };
        let answer = self.outbound.send(&Arc::new(target), ask).await?;
        let told: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if !answer.status.is_success() {
            let words = ["error", "error_description"].map(|key| told[key].as_str().map(super::printable));
            let words: Vec<String> = words.into_iter().flatten().collect();
            return Err(ProviderError::Exchange(format!(
                "{} {}",
                answer.status,
                words.join(": ")
            )));
        }
        match told["id_token"].as_str() {
            Some(token) if !answer.truncated => Ok(Secret::new(token)),
            _ => Err(ProviderError::Exchange("its answer has no ID token".to_owned())),
        }
    }

    async fn discover(&self) -> Result<Metadata, ProviderError> {
        let place = format!(
            "{}/.well-known/openid-configuration",
            self.issuer.trim_end_matches('/')
        );
        let told = self.get(&place).await?;
        let text = |key: &str| told[key].as_str().map(str::to_owned);
        if text("issuer").as_deref() != Some(&self.issuer) {
            let is = text("issuer").map_or_else(
                || "none".to_owned(),
                |issuer| format!("`{}`", super::printable(&issuer)),
            );
            let why = format!("its issuer is {is}, and not `{}`", self.issuer);
            return Err(ProviderError::Metadata(why));
        }
        let endpoint = |key: &str| match text(key) {
            Some(place) if is_endpoint(&place) => Ok(place),
            Some(place) => Err(ProviderError::Url(super::printable(&place))),
            None => Err(ProviderError::Metadata(format!("`{key}` is missing"))),
        };
        let ways = told["token_endpoint_auth_methods_supported"].as_array();
        let has = |way: &str| ways.is_some_and(|ways| ways.iter().any(|one| one == way));
        Ok(Metadata {
            authorization_endpoint: endpoint("authorization_endpoint")?,
            end_session_endpoint: text("end_session_endpoint").filter(|place| is_endpoint(place)),
            always_names_issuer: told["authorization_response_iss_parameter_supported"] == true,
            token_endpoint: endpoint("token_endpoint")?,
            jwks_uri: endpoint("jwks_uri")?,
            secret_in_header: has("client_secret_basic") || !has("client_secret_post"),
        })
    }

    async fn get(&self, place: &str) -> Result<Value, ProviderError> {
        let (target, path) = self.target(place)?;
        let ask = Ask {
            bytes_max: ANSWER_BYTES_MAX,
            ..Ask::get(&path, WITHIN)
        };
        let answer = self.outbound.send(&Arc::new(target), ask).await?;
        if answer.truncated {
            let bytes_max = ANSWER_BYTES_MAX;
            return Err(AskError::TooLong { path, bytes_max }.into());
        }
        Ok(answer.json(&path)?)
    }

    fn target(&self, place: &str) -> Result<(Target, String), ProviderError> {
        let bad = || ProviderError::Url(place.to_owned());
        let uri: Uri = place.parse().map_err(|_| bad())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(bad());
        };
        let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let server = format!("{scheme}://{}:{port}", authority.host());
        Ok((
            Target::receiver(server, None, self.ca_pem.as_deref(), true)?,
            path,
        ))
    }
}

/// Returns whether an endpoint in the metadata may be used. It may have a query.
fn is_endpoint(place: &str) -> bool {
    is_address(place.split('?').next().unwrap_or_default()) && !place.contains('#')
}

/// Returns parameters as a query, or as a form's body.
pub(super) fn encoded(parameters: &[(&str, &str)]) -> String {
    let pairs = parameters
        .iter()
        .map(|(name, value)| format!("{name}={}", escaped(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// How long metadata and keys are used.
const FRESH: Duration = Duration::from_secs(60 * 60);
/// How often keys are asked for at most because no known one has signed a token.
const RENEWED_EVERY: Duration = Duration::from_secs(10);
/// How long a provider that has failed is left alone.
const PAUSE: Duration = Duration::from_secs(2);
const WITHIN: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 256 << 10;
const KEYS_MAX: usize = 64;
