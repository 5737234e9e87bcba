//! The HTTP API, as the page uses it: JSON in and out, and one stream of events.

mod calls;
mod gateways;
mod guard;
mod live;
mod refusal;
mod registry;
mod sessions;
mod texts;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post, put};
use parking_lot::Mutex;
use serde_json::Value;
use settings::Secret;
use tokio::sync::watch;

use crate::StartError;
use crate::names::Names;
use crate::page;
use crate::password::Passwords;
use crate::poll::Polls;
use crate::throttle::Throttle;

pub(crate) use gateways::Asked;
pub(crate) use refusal::Refusal;

/// The state that all requests share.
pub(crate) struct ApiState {
    pub(crate) polls: Polls,
    pub(crate) passwords: Passwords,
    pub(crate) throttle: Throttle,
    /// The token in the one-time link, until there is a user.
    pub(crate) setup: Mutex<Option<Secret>>,
    pub(crate) names: Names,
    /// Recent answers of gateways about their queues.
    pub(crate) asked: Asked,
    /// The overview as of this second.
    pub(crate) overview: watch::Receiver<Arc<Value>>,
    /// Host names of this server, besides addresses and `localhost`.
    pub(crate) hosts: Vec<String>,
    /// Whether browsers connect with TLS.
    pub(crate) tls: bool,
}

/// The address that a request comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Registers the entries given on the command line, as an import does.
pub(crate) fn register(api: &ApiState, yaml: &str) -> Result<(), StartError> {
    let failed = |why: String| Err(StartError::Registry(why));
    match registry::take_in(api, "(start)", yaml) {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(problems)) => {
            let told = problems.iter().map(|problem| {
                let reason = problem["reason"].as_str().unwrap_or_default();
                format!("line {}, column {}: {reason}", problem["line"], problem["column"])
            });
            failed(told.collect::<Vec<_>>().join("; "))
        }
        Err(error) => failed(error.to_string()),
    }
}

/// Returns the routes of everything below the base path.
pub(crate) fn router(api: &Arc<ApiState>) -> Router {
    let open = Router::new()
        .route("/session", get(sessions::show))
        .route("/setup", post(sessions::set_up))
        .route("/login", post(sessions::log_in));
    let closed = Router::new()
        .route("/logout", post(sessions::log_out))
        .route("/registry", get(registry::show))
        .route("/registry/_import", post(registry::import))
        .route("/clusters", post(registry::add_cluster))
        .route("/clusters/_test", post(registry::test_cluster))
        .route(
            "/clusters/{id}",
            put(registry::change_cluster).delete(registry::remove_cluster),
        )
        .route("/gateways", post(registry::add_gateway))
        .route("/gateways/_test", post(registry::test_gateway))
        .route(
            "/gateways/{id}",
            put(registry::change_gateway).delete(registry::remove_gateway),
        )
        .route("/overview", get(live::overview))
        .route("/live", get(live::stream))
        .route("/clusters/{id}/series", get(live::series))
        .route("/clusters/{id}/nodes", get(live::nodes))
        .route(
            "/clusters/{id}/call",
            post(calls::call).layer(DefaultBodyLimit::max(CALL_BYTES_MAX)),
        )
        .route("/clusters/{id}/names", get(calls::names))
        .route("/gateways/{id}/queues", get(gateways::queues))
        .route("/gateways/{id}/lag", get(gateways::lag))
        .route("/gateways/{id}/call", post(gateways::call))
        .route("/tabs", get(texts::tabs).put(texts::set_tabs))
        .route("/audit", get(texts::audit))
        .layer(from_fn_with_state(Arc::clone(api), guard::logged_in));
    let routes = open
        .merge(closed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn(guard::from_this_page))
        .fallback(async || Refusal::not_found("there is no such endpoint"))
        .method_not_allowed_fallback(async || Refusal::method())
        .with_state(Arc::clone(api));
    Router::new()
        .nest("/api", routes)
        .fallback(page::serve)
        .layer(from_fn(guard::guarded))
        .layer(from_fn_with_state(Arc::clone(api), guard::by_a_known_name))
        .layer(from_fn(guard::with_headers))
}

/// The largest body of a call: a bulk that somebody tries out. JSON needs some room around it.
const CALL_BYTES_MAX: usize = calls::BYTES_MAX + (14 << 20);
/// The largest body of any other request: the texts of all tabs.
const BODY_BYTES_MAX: usize = 4 << 20;
