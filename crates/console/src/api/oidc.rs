//! Logins at the OpenID provider: the way there and the way back. Both are pages that a browser goes to, so
//! they answer with another address and never with an error: the login page says what went wrong.

use axum::extract::{Extension, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{AppendHeaders, IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::json;

use super::guard::{LOGIN, cookie, login_cookie, named_cookie};
use super::input::Query;
use super::sessions::refused;
use super::{Peer, Refusal, Shared};
use crate::oidc::{Finished, LoginError, Oidc, Returned};
use crate::refused::Why;
use crate::roles::Role;
use crate::store::{AuditedChange, SESSION_MS_MAX};

#[derive(Deserialize)]
pub(super) struct Wanted {
    /// The page to show after the login.
    #[serde(default)]
    page: String,
}

/// Sends the browser to the provider.
pub(super) async fn begin(
    State(api): State<Shared>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Refusal> {
    let oidc = provider(&api)?;
    match oidc.begin(&api.polls.store, &wanted.page).await {
        Ok((place, kept)) => {
            let keep = login_cookie(&kept, api.tls, BEGUN_S);
            Ok((StatusCode::SEE_OTHER, [(LOCATION, place), (SET_COOKIE, keep)]).into_response())
        }
        Err(error) => {
            wire::rationed!(tracing::warn, %error, "a login at the OpenID provider cannot begin");
            Ok(back(&api, oidc, error.word(), None))
        }
    }
}

/// Takes the browser back from the provider.
pub(super) async fn finish(
    State(api): State<Shared>,
    Extension(Peer(address)): Extension<Peer>,
    headers: HeaderMap,
    Query(returned): Query<Returned>,
) -> Result<Response, Refusal> {
    let oidc = provider(&api)?;
    // Whoever has begun a login can send codes of any kind, each of which the provider is asked about.
    let kept = named_cookie(&headers, LOGIN, api.tls);
    let done = match oidc.returned(&api.polls.store, kept.as_deref(), &returned) {
        Err(error) => Err(error),
        Ok(brought) => {
            let Some(_turn) = oidc.turn(address.ip()).await else {
                refused(&api, FAILED_LOGIN, None, address, Why::Throttled)?;
                return Ok(back(&api, oidc, "throttled", None));
            };
            oidc.finish(&api.polls.store, brought).await
        }
    };
    match done {
        Ok(finished) => {
            let token = take_in(&api, oidc, &finished)?;
            Ok(back(&api, oidc, &finished.page, Some(&token)))
        }
        Err(error) => {
            wire::rationed!(tracing::warn, %address, %error, "a login at the OpenID provider failed");
            if !matches!(error, LoginError::Stale | LoginError::Provider(_)) {
                refused(&api, FAILED_LOGIN, None, address, Why::Wrong)?;
            }
            if let LoginError::NoRole { subject, .. } = &error {
                shut_out(&api, oidc, subject)?;
            }
            Ok(back(&api, oidc, error.word(), None))
        }
    }
}

/// Makes or changes the user, and begins a session.
fn take_in(api: &Shared, oidc: &Oidc, finished: &Finished) -> Result<String, Refusal> {
    let store = &api.polls.store;
    let (user, former) = store.take_in(&finished.person)?;
    let after = super::users::told(api, &user.roles)?;
    let before = former
        .as_ref()
        .map(|(_, roles)| super::users::told(api, roles))
        .transpose()?;
    let renamed = former.filter(|(name, _)| *name != user.name);
    let renamed = renamed.map(|(name, _)| [name, user.name.clone()].map(|name| json!({"name": name})));
    let note = |what, before, after| {
        store.note(&AuditedChange {
            user: &user.name,
            what,
            target: &user.name,
            before,
            after,
            reason: Some("as the OpenID provider says"),
        })
    };
    if let Some([before, after]) = &renamed {
        note("rename user", Some(before), Some(after))?;
    }
    match &before {
        None => note("add user", None, Some(&after))?,
        Some(before) if *before != after => note("change roles", Some(before), Some(&after))?,
        Some(_) => {}
    }
    // A longer one would not fit into the address that a logout leads to.
    let id_token = Some(&finished.id_token).filter(|token| token.expose().len() <= ID_TOKEN_BYTES_MAX);
    let token = store.begin_session_with(user.id, id_token, oidc.session_ms())?;
    store.note(&AuditedChange {
        user: &user.name,
        what: "log in",
        target: "console",
        reason: Some("by the OpenID provider"),
        ..AuditedChange::default()
    })?;
    Ok(token)
}

/// Takes roles and sessions from a user to whom the provider gives no role any more.
fn shut_out(api: &Shared, oidc: &Oidc, subject: &str) -> Result<(), Refusal> {
    let store = &api.polls.store;
    let Some((name, former)) = store.shut_out(oidc.issuer(), subject)? else {
        return Ok(());
    };
    let (before, after) = (
        super::users::told(api, &former)?,
        json!({"role": Role::None, "clusters": {}}),
    );
    if before != after {
        store.note(&AuditedChange {
            user: &name,
            what: "change roles",
            target: &name,
            before: Some(&before),
            after: Some(&after),
            reason: Some("as the OpenID provider says"),
        })?;
    }
    Ok(())
}

/// Leads to a page, with a session, or to the login page, which says what went wrong. The address is the one
/// of the settings, whatever the request says.
fn back(api: &Shared, oidc: &Oidc, page: &str, session: Option<&str>) -> Response {
    let place = match session {
        Some(_) => format!("{}{page}", oidc.url()),
        None => format!("{}/#login={page}", oidc.url()),
    };
    let forget = (SET_COOKIE, login_cookie("", api.tls, 0));
    let seconds = oidc.session_ms().unwrap_or(SESSION_MS_MAX) / 1000;
    let begin = session.map(|token| (SET_COOKIE, cookie(token, api.tls, seconds)));
    let cookies = AppendHeaders([Some(forget), begin].into_iter().flatten());
    (StatusCode::SEE_OTHER, cookies, [(LOCATION, place)]).into_response()
}

fn provider(api: &Shared) -> Result<&Oidc, Refusal> {
    api.oidc
        .as_ref()
        .ok_or_else(|| Refusal::conflict("no_provider", "this console has no OpenID provider (`--oidc`)"))
}

const FAILED_LOGIN: &str = "failed login by OpenID";
const BEGUN_S: i64 = 10 * 60;
const ID_TOKEN_BYTES_MAX: usize = 4 << 10;
