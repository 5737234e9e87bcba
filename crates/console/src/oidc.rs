//! Logins at an OpenID provider: the authorization code flow with PKCE.
//!
//! # The story
//!
//! [`Oidc::begin`] sends the browser to the provider with a `state`, a `nonce` and a challenge. What belongs
//! to them is in a sealed cookie and not in memory, so that strangers who begin logins cost nothing. The
//! provider sends the browser back with a code, and [`Oidc::finish`] exchanges it for an ID token over a
//! verified connection, checks the token ([`token`]), and reads the user's name and roles from its claims
//! ([`claims`]). Nothing of the provider's is stored but the client's secret and the token that a logout
//! shows, both sealed.

mod claims;
mod provider;
mod settings;
mod token;
mod turns;

use std::net::IpAddr;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use settings::Settings;
use subtle::ConstantTimeEq as _;

use crate::clock::now_ms;
use crate::outbound::Outbound;
use crate::secrets;
use crate::store::{Store, StoreError};
use ::settings::Secret;

pub(crate) use claims::Person;
use provider::{Provider, ProviderError, encoded};
use turns::{Turn, Turns};

/// The logins at one provider.
pub(crate) struct Oidc {
    settings: Settings,
    provider: Provider,
    turns: Turns,
}

/// A login that has begun. The browser keeps it, sealed.
#[derive(Debug, Serialize, Deserialize)]
struct Begun {
    state: String,
    nonce: String,
    verifier: String,
    /// The page to show after the login.
    page: String,
    at_ms: i64,
}

/// The parameters with which the provider sends the browser back.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Returned {
    pub(crate) code: Option<String>,
    pub(crate) state: Option<String>,
    pub(crate) iss: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) error_description: Option<String>,
}

/// A login that has succeeded.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) person: Person,
    /// What a logout at the provider shows.
    pub(crate) id_token: Secret,
    /// The page to show.
    pub(crate) page: String,
}

/// Why there can be no logins at a provider.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The settings are wrong.
    #[error(transparent)]
    Settings(#[from] settings::BadSettings),
    /// The client's secret cannot be kept, or opened.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a login fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    /// No login has begun in this browser, or it took too long.
    #[error(
        "no login was begun in this browser within ten minutes, or it was begun at another address than `url`"
    )]
    Stale,
    /// The answer belongs to another login.
    #[error("the state is not the one of the login that this browser has begun")]
    State,
    /// The user or the provider said no.
    #[error("the provider says `{error}`{}", .description.as_ref().map(|words| format!(": {words}")).unwrap_or_default())]
    Refused {
        error: String,
        description: Option<String>,
    },
    /// The answer comes from another provider.
    #[error("the answer names another issuer, or none although the provider always does")]
    Issuer,
    /// The provider did not do its part.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// The ID token is not accepted.
    #[error("the ID token is not accepted: {0}")]
    Token(#[from] token::BadToken),
    /// The claims give no role.
    #[error("`{name}` has none of the values that give a role (`{claim}` is {has})")]
    NoRole {
        name: String,
        subject: String,
        claim: String,
        has: String,
    },
    /// The store fails.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl Oidc ===

impl Oidc {
    /// Reads the settings, and keeps the client's secret.
    ///
    /// # Errors
    /// Returns what is wrong with them, with line and column.
    pub(crate) fn open(text: &str, store: &Store, outbound: Outbound) -> Result<Self, OpenError> {
        let mut settings = Settings::read(text)?;
        let (issuer, client) = (&settings.issuer, &settings.client_id);
        settings.client_secret = match settings.client_secret.take() {
            Some(secret) => {
                store.keep_client_secret(issuer, client, &secret)?;
                Some(secret)
            }
            None => store.client_secret(issuer, client)?,
        };
        let provider = Provider::new(&settings, outbound);
        Ok(Self {
            settings,
            provider,
            turns: Turns::default(),
        })
    }

    /// Returns the host name in the console's address.
    pub(crate) fn host(&self) -> String {
        self.settings.host()
    }

    /// Returns whether browsers reach the console with TLS, its own or that of a proxy in front.
    pub(crate) fn is_secured(&self) -> bool {
        self.settings.is_secured()
    }

    /// Returns the console's address, without a slash at its end.
    pub(crate) fn url(&self) -> &str {
        &self.settings.url
    }

    /// Returns the text of the button.
    pub(crate) fn label(&self) -> &str {
        &self.settings.label
    }

    /// Returns the provider's identifier.
    pub(crate) fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    /// Returns whether users may also log in with a password of the console's.
    pub(crate) fn allows_passwords(&self) -> bool {
        self.settings.password_login
    }

    /// Returns the time after which sessions of the provider's users end, if it is shorter than that of
    /// others.
    pub(crate) fn session_ms(&self) -> Option<i64> {
        self.settings.session_minutes.map(|minutes| minutes * 60_000)
    }

    /// Returns a digest of what decides which roles claims give.
    pub(crate) fn digest_of_rules(&self) -> String {
        secrets::encoded_digest_of(&self.settings.rules())
    }

    /// Begins a login that leads to `page`. Returns the provider's address and what the browser keeps.
    pub(crate) async fn begin(&self, store: &Store, page: &str) -> Result<(String, String), LoginError> {
        let begun = Begun {
            state: secrets::token(),
            nonce: secrets::token(),
            verifier: secrets::token(),
            page: if is_own_page(page) {
                page.to_owned()
            } else {
                "/".to_owned()
            },
            at_ms: now_ms(),
        };
        let provider = self.provider.metadata().await?;
        let settings = &self.settings;
        let challenge = secrets::encoded_digest_of(&begun.verifier);
        let redirect = settings.redirect_url();
        let query = encoded(&[
            ("response_type", "code"),
            ("client_id", &settings.client_id),
            ("redirect_uri", &redirect),
            ("scope", &settings.scopes.join(" ")),
            ("state", &begun.state),
            ("nonce", &begun.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let begins = if provider.authorization_endpoint.contains('?') {
            '&'
        } else {
            '?'
        };
        let sealed = store.seal(
            OWNER,
            &Secret::new(serde_json::to_string(&begun).map_err(StoreError::from)?),
        )?;
        Ok((
            format!("{}{begins}{query}", provider.authorization_endpoint),
            sealed,
        ))
    }

    /// Checks that a browser comes back from the login that it has begun, and that it brings a code. Costs
    /// nothing, so it comes before anything that does.
    pub(crate) fn returned(
        &self,
        store: &Store,
        kept: Option<&str>,
        returned: &Returned,
    ) -> Result<Back, LoginError> {
        let opened = kept.and_then(|kept| store.unseal(OWNER, kept).ok());
        let begun: Option<Begun> = opened.and_then(|text| serde_json::from_str(text.expose()).ok());
        let begun = begun.ok_or(LoginError::Stale)?;
        if !(0..BEGUN_MS_MAX).contains(&(now_ms() - begun.at_ms)) {
            return Err(LoginError::Stale);
        }
        let state = returned.state.as_deref().unwrap_or_default();
        if !bool::from(state.as_bytes().ct_eq(begun.state.as_bytes())) {
            return Err(LoginError::State);
        }
        if returned
            .iss
            .as_ref()
            .is_some_and(|issuer| *issuer != self.settings.issuer)
        {
            return Err(LoginError::Issuer);
        }
        if let Some(error) = &returned.error {
            return Err(LoginError::Refused {
                error: printable(error),
                description: returned.error_description.as_deref().map(printable),
            });
        }
        match &returned.code {
            Some(code) => Ok(Back {
                begun,
                code: Secret::new(code.as_str()),
                has_issuer: returned.iss.is_some(),
            }),
            None => Err(LoginError::Refused {
                error: "neither a code nor an error".to_owned(),
                description: None,
            }),
        }
    }

    /// Waits for the turn of a browser at this address to have its code exchanged. `None` if too many others
    /// have theirs exchanged.
    pub(crate) async fn turn(&self, address: IpAddr) -> Option<Turn> {
        self.turns.take(address).await
    }

    /// Exchanges the code for an ID token, and says who has logged in.
    pub(crate) async fn finish(&self, store: &Store, back: Back) -> Result<Finished, LoginError> {
        let login_began = Instant::now();
        let provider = self.provider.metadata().await?;
        if provider.always_names_issuer && !back.has_issuer {
            return Err(LoginError::Issuer);
        }
        let begun = back.begun;
        let redirect = self.settings.redirect_url();
        let id_token = self
            .provider
            .exchange(&provider, back.code.expose(), &begun.verifier, &redirect)
            .await?;
        let header = token::header(id_token.expose())?;
        let keys = self.provider.keys(&provider, header.kid.as_deref()).await?;
        let expected = token::Expected {
            issuer: &self.settings.issuer,
            client_id: &self.settings.client_id,
            nonce: &begun.nonce,
        };
        let mut claims = token::verified(id_token.expose(), &header, &keys, &expected);
        if let Err(token::BadToken::NoKey) = claims
            && let Some(newer) = self.provider.newer_keys(&provider, &keys, login_began).await?
        {
            claims = token::verified(id_token.expose(), &header, &newer, &expected);
        }
        let claims = claims?;
        let person = claims::person(&self.settings, &claims, &store.clusters()?)?;
        Ok(Finished {
            person,
            id_token,
            page: begun.page,
        })
    }

    /// Returns the address at which the provider ends its session too, if it has one and is known.
    pub(crate) async fn end_session(&self, id_token: Option<&Secret>) -> Option<String> {
        let provider = self.provider.metadata().await.ok()?;
        let place = provider.end_session_endpoint.as_deref()?;
        let back = format!("{}/", self.settings.url);
        let mut parameters = vec![
            ("client_id", &*self.settings.client_id),
            ("post_logout_redirect_uri", &back),
        ];
        parameters.extend(id_token.map(|token| ("id_token_hint", token.expose())));
        let begins = if place.contains('?') { '&' } else { '?' };
        Some(format!("{place}{begins}{}", encoded(&parameters)))
    }
}

/// A browser that has come back with a code.
#[derive(Debug)]
pub(crate) struct Back {
    begun: Begun,
    code: Secret,
    has_issuer: bool,
}

// === impl LoginError ===

impl LoginError {
    /// Returns the word by which the page knows the reason.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Stale | Self::State => "stale",
            Self::Refused { error, .. } if error == "access_denied" => "denied",
            Self::NoRole { .. } => "no_role",
            Self::Provider(ProviderError::Ask(_) | ProviderError::Url(_) | ProviderError::JustFailed) => {
                "provider"
            }
            _ => "failed",
        }
    }
}

/// Returns whether a path leads to a page of the console's and nowhere else: browsers take `//host` and
/// `/\host` for other servers.
fn is_own_page(page: &str) -> bool {
    let mut bytes = page.bytes();
    bytes.next() == Some(b'/')
        && !matches!(page.as_bytes().get(1), Some(b'/' | b'\\'))
        && page.len() <= PAGE_BYTES_MAX
        && bytes.all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

/// Returns a provider's text, or a stranger's, as it may be shown and logged.
fn printable(text: &str) -> String {
    let shown = text.chars().filter(|letter| !letter.is_control());
    shown.take(WORDS_MAX).collect()
}

/// The owner of what a browser keeps.
const OWNER: &str = "oidc/login";
/// How long a login may take.
const BEGUN_MS_MAX: i64 = 10 * 60 * 1000;
const PAGE_BYTES_MAX: usize = 1_000;
const WORDS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_pages_of_the_console_only() {
        for page in ["/", "/c/abc?minutes=5", "/g/x/q/y/letters?reason=a%20b#top"] {
            assert!(is_own_page(page), "{page}");
        }
        let long = format!("/{}", "a".repeat(PAGE_BYTES_MAX));
        for page in [
            "",
            "c",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "/a\\b",
            "/a b",
            "/a\nb",
            "/ä",
            &long,
        ] {
            assert!(!is_own_page(page), "{page}");
        }
    }
}
