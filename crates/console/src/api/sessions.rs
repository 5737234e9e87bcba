//! Logging in and out, and making the first user.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::http::header::SET_COOKIE;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;

use super::access::is_poll;
use super::guard::{Token, cookie, token_of};
use super::input::Body;
use super::{ApiState, Peer, Refusal};
use crate::clock::now_ms;
use crate::refused::{Who, Why};
use crate::store::{AuditedChange, User, is_reserved};
use settings::Secret;

#[derive(Deserialize)]
pub(super) struct Setup {
    link: Secret,
    name: String,
    password: Secret,
}

#[derive(Deserialize)]
pub(super) struct Login {
    name: String,
    password: Secret,
}

/// Answers who is logged in.
pub(super) async fn show(
    State(api): State<Arc<ApiState>>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refusal> {
    let token = token_of(&headers, api.tls);
    let store = &api.polls.store;
    if let Some(user) = token
        .map(|token| store.session(&token, !is_poll(&headers)))
        .transpose()?
        .flatten()
    {
        return Ok(Json(told(&api, &user)));
    }
    let first_start = store.is_first_start()? && api.takes_passwords();
    Err(Refusal::unauthorized("nobody is logged in", Some(first_start)).with("login", ways(&api)))
}

fn only_at_the_provider(api: &ApiState) -> Result<(), Refusal> {
    match api.takes_passwords() {
        true => Ok(()),
        false => Err(Refusal::forbidden(
            "no_passwords",
            "this console takes logins of its OpenID provider only (`password_login: false`)",
        )),
    }
}

/// Makes the first user, if the request has the one-time link.
pub(super) async fn set_up(
    State(api): State<Arc<ApiState>>,
    Extension(Peer(address)): Extension<Peer>,
    Body(setup): Body<Setup>,
) -> Result<Response, Refusal> {
    only_at_the_provider(&api)?;
    let fits = {
        let link = api.setup.lock();
        link.as_ref()
            .is_some_and(|link| bool::from(link.expose().as_bytes().ct_eq(setup.link.expose().as_bytes())))
    };
    if !fits {
        refused(&api, "failed setup", None, address, Why::Wrong)?;
        return Err(Refusal::forbidden(
            "bad_link",
            "this link is not the one that this start has printed, or it was used",
        ));
    }
    let name = check_name(&setup.name)?;
    check_password(&setup.password)?;
    let hash = api.passwords.hash(setup.password).await?;
    if !api.polls.store.make_first_user(name, &hash)? {
        return Err(Refusal::forbidden("bad_link", "there is a user already"));
    }
    *api.setup.lock() = None;
    begin(&api, name, &hash, "set up")
}

/// Begins a session.
pub(super) async fn log_in(
    State(api): State<Arc<ApiState>>,
    Extension(Peer(address)): Extension<Peer>,
    Body(login): Body<Login>,
) -> Result<Response, Refusal> {
    only_at_the_provider(&api)?;
    if login.name.chars().count() > NAME_CHARS_MAX || login.password.expose().len() > PASSWORD_BYTES_MAX {
        refused(&api, FAILED_LOGIN, None, address, Why::Wrong)?;
        return Err(wrong());
    }
    let name = login.name.trim();
    let stored = api.polls.store.user(name)?;
    let account = stored.as_ref().map(|(user, _)| user.name.as_str());
    let asker = match api.throttle.admit(name, address.ip(), Instant::now()) {
        Ok(asker) => asker,
        Err(wait) => {
            refused(&api, FAILED_LOGIN, account, address, Why::Throttled)?;
            return Err(Refusal::too_many(wait));
        }
    };
    let hash = stored.as_ref().and_then(|(_, hash)| hash.as_deref());
    let is_right = api.passwords.matches(login.password, hash, asker).await?;
    let Some(hash) = hash.filter(|_| is_right) else {
        tracing::warn!(%address, "a login failed");
        refused(&api, FAILED_LOGIN, account, address, Why::Wrong)?;
        return Err(wrong());
    };
    api.throttle.forgive(name, address.ip());
    begin(&api, name, hash, "log in")
}

/// Ends the session. Tells where the OpenID provider ends its own, if it vouched for the user.
pub(super) async fn log_out(
    State(api): State<Arc<ApiState>>,
    Extension(user): Extension<User>,
    Extension(Token(token)): Extension<Token>,
) -> Result<Response, Refusal> {
    let id_token = api.polls.store.end_session(&token)?;
    api.polls.store.note(&AuditedChange {
        user: &user.name,
        what: "log out",
        target: "console",
        ..AuditedChange::default()
    })?;
    let end_session = match &api.oidc {
        Some(oidc) if user.oidc => oidc.end_session(id_token.as_ref()).await,
        _ => None,
    };
    let told = Json(json!({"end_session": end_session}));
    Ok(([(SET_COOKIE, cookie("", api.tls, 0))], told).into_response())
}

/// Counts a refusal for the audit log.
pub(super) fn refused(
    api: &ApiState,
    what: &'static str,
    account: Option<&str>,
    address: SocketAddr,
    why: Why,
) -> Result<(), Refusal> {
    let who = Who {
        what,
        account: account.map(str::to_owned),
        address: Some(address.ip()),
    };
    Ok(api.refused.count(&api.polls.store, who, why, now_ms())?)
}

fn wrong() -> Refusal {
    Refusal::unauthorized("name or password is wrong", None)
}

/// Begins a session of the user by this name, with the password of this hash.
fn begin(api: &ApiState, name: &str, hash: &str, what: &str) -> Result<Response, Refusal> {
    let store = &api.polls.store;
    let (user, _) = store.user(name)?.ok_or_else(wrong)?;
    let token = store.begin_session_by(user.id, hash)?.ok_or_else(wrong)?;
    store.note(&AuditedChange {
        user: &user.name,
        what,
        target: "console",
        ..AuditedChange::default()
    })?;
    let cookie = cookie(&token, api.tls, crate::store::SESSION_MS_MAX / 1000);
    Ok(([(SET_COOKIE, cookie)], Json(told(api, &user))).into_response())
}

fn told(api: &ApiState, user: &User) -> Value {
    json!({"user": user, "version": env!("CARGO_PKG_VERSION"), "login": ways(api)})
}

/// Returns how users may log in.
fn ways(api: &ApiState) -> Value {
    let oidc = api.oidc.as_ref().map(|oidc| json!({"label": oidc.label()}));
    json!({"password": api.takes_passwords(), "oidc": oidc})
}

/// Checks a user's name, and returns it as the store keeps it.
pub(super) fn check_name(name: &str) -> Result<&str, Refusal> {
    let name = name.trim();
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) {
        return Err(Refusal::bad(format!(
            "name: 1 to {NAME_CHARS_MAX} characters are wanted"
        )));
    }
    if is_reserved(name) {
        return Err(Refusal::bad(format!("name: the audit log itself uses `{name}`")));
    }
    Ok(name)
}

/// Checks the length of a password.
pub(super) fn check_password(password: &Secret) -> Result<(), Refusal> {
    let (chars, bytes) = (password.expose().chars().count(), password.expose().len());
    if chars < PASSWORD_CHARS_MIN || bytes > PASSWORD_BYTES_MAX {
        let reason = format!(
            "password: {PASSWORD_CHARS_MIN} characters or more are wanted, {PASSWORD_BYTES_MAX} bytes at most"
        );
        return Err(Refusal::bad(reason));
    }
    Ok(())
}

const FAILED_LOGIN: &str = "failed login";
const NAME_CHARS_MAX: usize = 100;
const PASSWORD_CHARS_MIN: usize = 10;
const PASSWORD_BYTES_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{on_shared, send};

    #[test]
    fn a_login_under_way_begins_no_session_after_another_password_was_set() {
        on_shared(None, async |api, routes| {
            let store = &api.polls.store;
            let [former, other] =
                ["the former one", "the other one"].map(|password| api.passwords.hash(Secret::new(password)));
            let (former, other) = (former.await.unwrap(), other.await.unwrap());
            store.set_password(1, &former).unwrap();
            let ask = |path: &'static str, token: Option<String>, body: Value| {
                let routes = routes.clone();
                async move { send(&routes, "POST", path, token.as_deref(), body.to_string()).await }
            };
            let login = || {
                ask(
                    "/login",
                    None,
                    json!({"name": "root", "password": "the former one"}),
                )
            };
            assert_eq!(login().await.status(), 200);
            let mine = store.begin_session(1).unwrap();
            let passwords = json!({"old": "the former one", "new": "one of the user"});
            // The admin is done while the passwords are being checked, each on a thread of its own.
            let set = async { store.set_password(1, &other).unwrap() };
            let change = ask("/password", Some(mine), passwords);
            let (login, change, ()) = tokio::join!(biased; login(), change, set);
            assert_eq!((login.status().as_u16(), change.status().as_u16()), (401, 403));
            let (_, kept) = store.user("root").unwrap().unwrap();
            assert_eq!(kept, Some(other));
            assert_eq!(store.users().unwrap()[0].seen_ms, None, "no session is left");
        });
    }

    #[test]
    fn names_of_the_audit_log_are_no_users_names() {
        for name in ["console", " Console ", "(start)", "(Unknown)", "(others)"] {
            let refused = format!("{:?}", check_name(name).unwrap_err());
            assert!(refused.contains("audit log"), "{refused}");
        }
        assert_eq!(check_name(" consoles ").unwrap(), "consoles");
    }
}
