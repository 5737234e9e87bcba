//! The HTTP API, as the page uses it: JSON in and out, and one stream of events.

mod access;
mod alerts;
mod answers;
mod audit;
mod bodies;
mod calls;
mod endpoints;
mod failed;
mod gateways;
mod guard;
mod heat;
mod indices;
mod input;
mod live;
mod oidc;
#[cfg(test)]
mod oidc_tests;
mod refusal;
mod registry;
#[cfg(test)]
mod role_tests;
mod sessions;
#[cfg(test)]
mod testing;
mod texts;
mod trials;
mod users;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use parking_lot::Mutex;
use serde_json::Value;
use settings::Secret;
use tokio::sync::watch;

use crate::StartError;
use crate::alerts::Alerts;
use crate::names::Names;
use crate::oidc::Oidc;
use crate::outbound::AnswerMemory;
use crate::page;
use crate::password::Passwords;
use crate::poll::Polls;
use crate::refused::Refused;
use crate::store::BY_START;
use crate::throttle::Throttle;
use crate::trials::Trials;

use access::Needs;
pub(crate) use bodies::BodyMemory;
use endpoints::ENDPOINTS;
pub(crate) use gateways::Asked;
pub(crate) use heat::Heats;
pub(crate) use indices::IndexLists;
pub(crate) use live::Streams;
pub(crate) use refusal::Refusal;
pub(crate) use trials::Leftovers;

/// The state as handlers get it.
type Shared = Arc<ApiState>;

/// The state that all requests share.
pub(crate) struct ApiState {
    pub(crate) polls: Polls,
    pub(crate) passwords: Passwords,
    pub(crate) throttle: Throttle,
    pub(crate) alerts: Arc<Alerts>,
    /// Refused logins of the last hour.
    pub(crate) refused: Arc<Refused>,
    /// The token in the one-time link, until there is a user.
    pub(crate) setup: Mutex<Option<Secret>>,
    pub(crate) names: Names,
    /// Recent answers of gateways about their queues.
    pub(crate) asked: Asked,
    /// Recent answers of gateways about shards.
    pub(crate) heats: Heats,
    /// Recent lists of clusters' indices.
    pub(crate) indices: IndexLists,
    pub(crate) trials: Arc<Trials>,
    /// Recent answers of clusters about indices that a trial may have left.
    pub(crate) leftovers: Leftovers,
    /// The overview as of this second.
    pub(crate) overview: watch::Receiver<Arc<Value>>,
    pub(crate) bodies: BodyMemory,
    /// Memory for long answers to calls.
    pub(crate) answers: AnswerMemory,
    /// Open streams of events.
    pub(crate) streams: Streams,
    /// Host names of this server, besides addresses and `localhost`.
    pub(crate) hosts: Vec<String>,
    /// Whether browsers connect with TLS, the console's or that of a proxy in front.
    pub(crate) tls: bool,
    /// Logins at an OpenID provider.
    pub(crate) oidc: Option<Oidc>,
}

impl ApiState {
    /// Returns whether users may log in with a password of the console's.
    pub(crate) fn takes_passwords(&self) -> bool {
        self.oidc.as_ref().is_none_or(Oidc::allows_passwords)
    }
}

/// The address that a request comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Registers the entries given on the command line, as an import does.
pub(crate) fn register(api: &ApiState, yaml: &str) -> Result<(), StartError> {
    let failed = |why: String| Err(StartError::Registry(why));
    match registry::take_in(api, BY_START, yaml) {
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
pub(crate) fn router(api: &Shared) -> Router {
    let mut routes = Router::new();
    for endpoint in ENDPOINTS {
        let most = endpoint.body_bytes_max;
        let served = (endpoint.route)().route_layer(DefaultBodyLimit::max(most));
        let served = match endpoint.needs {
            Needs::Nothing => served,
            // The role is asked for first: nobody takes memory who may not use it.
            needs => served
                .route_layer(from_fn_with_state((api.bodies.clone(), most), bodies::with_room))
                .route_layer(from_fn_with_state((Arc::clone(api), needs), access::admit)),
        };
        routes = routes.route(endpoint.path, served);
    }
    let routes = routes
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

/// The largest body of most requests of users: the texts of all tabs.
const BODY_BYTES_MAX: usize = 4 << 20;
