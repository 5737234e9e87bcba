//! Checks who may ask: under which host name, from which page, and with which session.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use wire::guard::Work;

use super::{ApiState, Refusal};

/// Answers with 500 if a handler panics.
pub(super) async fn guarded(request: Request, next: Next) -> Response {
    let handled = wire::guard::guarded(Work::Admin, next.run(request)).await;
    handled.unwrap_or_else(|panicked| {
        panicked.report(Work::Admin, "its client gets 500, other requests go on");
        Refusal::failed("the console has a bug that this request has met").into_response()
    })
}

/// Refuses unknown host names: a foreign page must not reach this server under a name of its own choice (DNS
/// rebinding). Addresses cannot be rebound, `localhost` leads nowhere else, and any other name has to be
/// given on the command line.
pub(super) async fn by_a_known_name(
    State(api): State<Arc<ApiState>>,
    request: Request,
    next: Next,
) -> Response {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).map(name_of);
    let known = host.is_some_and(|host| {
        host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok()
            || api.hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
    });
    if known && hosts.next().is_none() {
        return next.run(request).await;
    }
    Refusal::forbidden(
        "unknown_host",
        "this name is not one of the console's; `--host NAME` adds one",
    )
    .into_response()
}

fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

/// Allows only the console's own page to use the API: browsers say which page a request comes from. A request
/// that changes something must carry this proof and must be JSON, which forms of other pages cannot send. The
/// OpenID provider's page sends browsers back, so logins there have a proof of their own: the `state`.
pub(super) async fn from_this_page(request: Request, next: Next) -> Response {
    if request.uri().path().starts_with("/oidc/") && *request.method() == Method::GET {
        return next.run(request).await;
    }
    let headers = request.headers();
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let own_origin = || {
        let host = headers.get(HOST)?.to_str().ok()?;
        let origin = headers.get(ORIGIN)?.to_str().ok()?;
        let authority = origin
            .strip_prefix("https://")
            .or_else(|| origin.strip_prefix("http://"))?;
        Some(authority == host)
    };
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    let own = match text("sec-fetch-site") {
        Some("same-origin") => true,
        // The address was typed into the address bar: no page has sent the request.
        Some("none") => !changes,
        Some(_) => false,
        None => own_origin().unwrap_or(!changes),
    };
    if !own {
        let reason =
            "only the console's own page may ask this: `Sec-Fetch-Site: same-origin`, or its `Origin`";
        return Refusal::forbidden("cross_origin", reason).into_response();
    }
    let json = text(CONTENT_TYPE.as_str()).is_some_and(|value| {
        value
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .eq_ignore_ascii_case("application/json")
    });
    if changes && !json {
        let reason = "send it with `Content-Type: application/json`";
        return Refusal::forbidden("not_json", reason).into_response();
    }
    next.run(request).await
}

/// The session's token, for handlers that end the session or check whether it still exists.
#[derive(Clone)]
pub(super) struct Token(pub(super) String);

/// Returns the session's token from the cookie.
pub(super) fn token_of(headers: &HeaderMap, tls: bool) -> Option<String> {
    named_cookie(headers, SESSION, tls)
}

/// Returns the value of one of the console's cookies.
pub(super) fn named_cookie(headers: &HeaderMap, name: &str, tls: bool) -> Option<String> {
    let name = cookie_name(name, tls);
    let cookies = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut pairs = cookies
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(given, _)| *given == name)
        .map(|(_, token)| token.to_owned())
}

/// Returns the cookie that begins or ends a session.
pub(super) fn cookie(token: &str, tls: bool, seconds: i64) -> String {
    made(SESSION, token, tls, seconds, "Strict")
}

/// Returns the cookie with a login that has begun. The provider's page leads back, so it cannot be `Strict`.
pub(super) fn login_cookie(kept: &str, tls: bool, seconds: i64) -> String {
    made(LOGIN, kept, tls, seconds, "Lax")
}

fn made(name: &str, value: &str, tls: bool, seconds: i64, same_site: &str) -> String {
    let name = cookie_name(name, tls);
    let secure = if tls { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite={same_site}{secure}")
}

/// Browsers accept `__Host-` only with `Secure`, which plain HTTP cannot have.
fn cookie_name(name: &str, tls: bool) -> String {
    let prefix = if tls { "__Host-" } else { "" };
    format!("{prefix}{name}")
}

const SESSION: &str = "tidegate-console";
pub(super) const LOGIN: &str = "tidegate-console-login";

/// Adds the headers that all answers have. Browsers must never cache answers of the API.
pub(super) async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; worker-src 'self'; \
         base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_have_their_flags_and_are_found_among_others() {
        assert_eq!(
            cookie("t", true, 5),
            "__Host-tidegate-console=t; Path=/; Max-Age=5; HttpOnly; SameSite=Strict; Secure"
        );
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_static("a=b; tidegate-console=t; c=d"));
        assert_eq!(token_of(&headers, false).as_deref(), Some("t"));
        assert_eq!(token_of(&headers, true), None);
    }

    #[test]
    fn a_hosts_name_is_without_its_port() {
        for (host, name) in [
            ("a:9000", "a"),
            ("a", "a"),
            ("[::1]:9000", "::1"),
            ("127.0.0.1:1", "127.0.0.1"),
        ] {
            assert_eq!(name_of(host), name);
        }
    }
}
