//! Decides who may use the admin port, and writes down who told it to act.

use std::fmt;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use config::{AdminRight, Secret};
use subtle::ConstantTimeEq;

use super::AdminState;
use super::bounded_listener::OfConnection;
use super::refusal::Refusal;

/// Who sends a request, as far as that is known, and what the request may do.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    /// What the client says.
    said: Option<String>,
    /// The name of the token. `None`: `admin.token`, or the port needs no token.
    token: Option<Arc<str>>,
    pub(super) right: AdminRight,
}

/// Admits a request. If there are tokens, every request needs one, with the right for what it does. Without a
/// token the port is on loopback, and a page in a browser must not reach it under a name that the page's
/// owner controls: only loopback names are answered (DNS rebinding). Such a page must not make the browser
/// send a change either; the browser states the origin of the page.
pub(super) async fn admit(
    State(admin): State<Arc<AdminState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let live = admin.shared.live.load_full();
    let Some(asker) = Asker::of(request.headers(), &live.config.admin) else {
        return unknown();
    };
    let needed = right_for(request.method());
    if needed == AdminRight::Read {
        request.extensions_mut().insert(asker);
        return next.run(request).await;
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let answer = if is_of_another_page(&request) {
        Refusal::forbidden("a page of another origin cannot change anything here").into_response()
    } else if asker.right < needed {
        asker.lacks(needed).into_response()
    } else {
        request.extensions_mut().insert(asker.clone());
        next.run(request).await
    };
    let status = answer.status().as_u16();
    tracing::info!(actor = %asker, %method, path, status, "admin call");
    answer
}

/// Returns the right that a method needs. The table of endpoints has no GET that changes anything, so an
/// endpoint that is added later needs `operate` unless it only reads.
pub(super) fn right_for(method: &Method) -> AdminRight {
    match *method {
        Method::GET | Method::HEAD => AdminRight::Read,
        _ => AdminRight::Operate,
    }
}

/// Returns whether a request with these headers may still read. What it was admitted by may have changed.
pub(super) fn is_admitted(headers: &HeaderMap, admin: &AdminState) -> bool {
    Asker::of(headers, &admin.shared.live.load().config.admin).is_some()
}

pub(super) fn unknown() -> Response {
    let mut refusal =
        Refusal::unauthorized("send an admin token: Authorization: Bearer TOKEN").into_response();
    refusal
        .headers_mut()
        .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    refusal
}

// === impl Asker ===

const BEARER: &[u8] = b"Bearer";

impl Asker {
    /// Returns who sends a request with these headers; `None` if the port does not know the request's token.
    fn of(headers: &HeaderMap, admin: &config::Admin) -> Option<Self> {
        let (token, right) = match admin.needs_token() {
            true => {
                let given = headers.get(AUTHORIZATION)?.as_bytes();
                // The scheme's name may be written in any case (RFC 9110, section 11.1).
                let (scheme, token) = given.split_at_checked(BEARER.len())?;
                known(token.strip_prefix(b" ")?, admin).filter(|_| scheme.eq_ignore_ascii_case(BEARER))?
            }
            false => {
                let host = headers.get(HOST).and_then(|host| host.to_str().ok());
                host.is_none_or(is_loopback_name)
                    .then_some((None, AdminRight::Operate))?
            }
        };
        let said = headers
            .get(ACTOR)
            .map(|said| String::from_utf8_lossy(said.as_bytes()));
        let said: String = said
            .unwrap_or_default()
            .trim()
            .chars()
            .take(ACTOR_CHARS_MAX)
            .collect();
        Some(Self {
            said: (!said.is_empty()).then_some(said),
            token,
            right,
        })
    }

    fn lacks(&self, needed: AdminRight) -> Refusal {
        let name = self.token.as_deref().unwrap_or_default();
        let right = self.right;
        Refusal::forbidden(format!(
            "the token `{name}` has the right `{right}`; this call needs `{needed}`"
        ))
    }
}

/// Writes the actor of a line of the log: what the client says of itself is marked off from the token, which
/// the port has checked.
impl fmt::Display for Asker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = self.said.as_deref().unwrap_or("unknown");
        match &self.token {
            Some(token) => write!(out, "{said} (token {token})"),
            None => out.write_str(said),
        }
    }
}

/// Returns the name and the right of a token. The time that it takes does not depend on which token it is.
fn known(given: &[u8], admin: &config::Admin) -> Option<(Option<Arc<str>>, AdminRight)> {
    let is = |token: &Secret| bool::from(token.expose().as_bytes().ct_eq(given));
    let single = admin.token.as_ref().filter(|token| is(token));
    let mut known = single.map(|_| (None, AdminRight::Operate));
    for one in &admin.tokens {
        if is(&one.token) {
            known = Some((Some(Arc::clone(&one.name)), one.right));
        }
    }
    known
}

/// Returns whether a browser sends this request for a page of another origin.
fn is_of_another_page(request: &Request) -> bool {
    let headers = request.headers();
    let Some(origin) = headers.get(ORIGIN) else {
        return false;
    };
    let host = headers.get(HOST).map(HeaderValue::as_bytes).unwrap_or_default();
    let connection = request.extensions().get::<ConnectInfo<OfConnection>>();
    let scheme: &[u8] = match connection.is_some_and(|ConnectInfo(connection)| connection.is_secured()) {
        true => b"https://",
        false => b"http://",
    };
    origin.as_bytes().strip_prefix(scheme) != Some(host)
}

fn is_loopback_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

const ACTOR: &str = "x-actor";
const ACTOR_CHARS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_reach_a_port_without_a_token() {
        for name in [
            "localhost",
            "localhost:2900",
            "127.0.0.1:2900",
            "127.8.9.1",
            "[::1]:2900",
            "[::1]",
        ] {
            assert!(is_loopback_name(name), "{name}");
        }
        for name in [
            "evil.example:2900",
            "10.0.0.1",
            "localhost.evil.example",
            "[2001:db8::1]:2900",
            "",
        ] {
            assert!(!is_loopback_name(name), "{name}");
        }
    }
}
