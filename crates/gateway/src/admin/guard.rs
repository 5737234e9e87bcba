//! Decides who may use the admin port.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use super::AdminState;
use super::refusal::Refusal;

/// Admits a request. If a token is configured, every request needs it. Without a token the port is on
/// loopback, and a page in a browser must not reach it under a name that the page's owner controls: only
/// loopback names are answered (DNS rebinding). Such a page must not make the browser send a change either;
/// the browser states the origin of the page.
pub(super) async fn admit(State(admin): State<Arc<AdminState>>, request: Request, next: Next) -> Response {
    let live = admin.shared.live.load_full();
    let admitted = match &live.config.admin.token {
        Some(token) => request.headers().get(AUTHORIZATION).is_some_and(|given| {
            given
                .as_bytes()
                .strip_prefix(b"Bearer ")
                .is_some_and(|given| given.ct_eq(token.expose().as_bytes()).into())
        }),
        None => request
            .headers()
            .get(HOST)
            .and_then(|host| host.to_str().ok())
            .is_none_or(is_loopback_name),
    };
    if admitted && !is_of_another_page(&request) {
        return next.run(request).await;
    }
    if admitted {
        return Refusal::forbidden("a page of another origin cannot change anything here").into_response();
    }
    let mut refusal =
        Refusal::unauthorized("send the admin token: Authorization: Bearer TOKEN").into_response();
    refusal
        .headers_mut()
        .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    refusal
}

/// Returns whether a browser sends this request for a page of another origin, and the request changes
/// something.
fn is_of_another_page(request: &Request) -> bool {
    let headers = request.headers();
    let Some(origin) = headers.get(ORIGIN) else {
        return false;
    };
    let host = headers.get(HOST).map(HeaderValue::as_bytes).unwrap_or_default();
    let own = origin.as_bytes().strip_prefix(b"http://") == Some(host);
    !own && !matches!(*request.method(), Method::GET | Method::HEAD)
}

fn is_loopback_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

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
