//! The table of all endpoints, with the role that each of them needs.

use axum::routing::{MethodRouter, delete, get, post, put};

use super::access::Needs::{self, Cluster, Everywhere, Gateway, Nothing, Session};
use super::bodies::STRANGERS_BYTES_MAX;
use super::{
    BODY_BYTES_MAX, Shared, alerts, audit, calls, gateways, heat, indices, live, oidc, registry, sessions,
    texts, trials, users,
};
use crate::roles::Role::{Admin, Operator, Viewer};

/// One method of one path.
pub(super) struct Endpoint {
    /// The method, for the tests of roles; `route` serves it.
    #[cfg_attr(not(test), expect(dead_code, reason = "the router has it in `route`"))]
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) needs: Needs,
    /// The largest body.
    pub(super) body_bytes_max: usize,
    pub(super) route: fn() -> MethodRouter<Shared>,
}

const fn endpoint(
    method: &'static str,
    path: &'static str,
    needs: Needs,
    route: fn() -> MethodRouter<Shared>,
) -> Endpoint {
    Endpoint {
        method,
        path,
        needs,
        body_bytes_max: match needs {
            Nothing => STRANGERS_BYTES_MAX,
            _ => BODY_BYTES_MAX,
        },
        route,
    }
}

impl Endpoint {
    const fn with_bodies_to(self, bytes: usize) -> Self {
        Self {
            body_bytes_max: bytes,
            ..self
        }
    }
}

/// Three endpoints need more than the table says, which depends on the request's body: calls that write, and
/// silences, need `Operator`; a test of a cluster needs `Admin` on that cluster, or in general for a new one.
pub(super) const ENDPOINTS: &[Endpoint] = &[
    endpoint("GET", "/session", Nothing, || get(sessions::show)),
    endpoint("POST", "/setup", Nothing, || post(sessions::set_up)),
    endpoint("POST", "/login", Nothing, || post(sessions::log_in)),
    endpoint("GET", "/oidc/login", Nothing, || get(oidc::begin)),
    endpoint("GET", "/oidc/callback", Nothing, || get(oidc::finish)),
    endpoint("POST", "/logout", Session, || post(sessions::log_out)),
    endpoint("POST", "/password", Session, || post(users::change_own_password)),
    endpoint("GET", "/tabs", Session, || get(texts::tabs)),
    endpoint("PUT", "/tabs", Session, || put(texts::set_tabs)),
    endpoint("GET", "/registry", Session, || get(registry::show)),
    endpoint("GET", "/overview", Session, || get(live::overview)),
    endpoint("GET", "/live", Session, || get(live::stream)),
    endpoint("GET", "/users", Everywhere(Admin), || get(users::list)),
    endpoint("POST", "/users", Everywhere(Admin), || post(users::add)),
    endpoint("PUT", "/users/{name}", Everywhere(Admin), || put(users::change)),
    endpoint("DELETE", "/users/{name}", Everywhere(Admin), || {
        delete(users::remove)
    }),
    endpoint("GET", "/audit", Everywhere(Admin), || get(audit::show)),
    endpoint("GET", "/audit/_download", Everywhere(Admin), || {
        get(audit::download)
    }),
    endpoint("GET", "/alerts", Session, || get(alerts::show)),
    endpoint("POST", "/alerts/_silence", Session, || post(alerts::silence)),
    endpoint("GET", "/alerts/webhook", Everywhere(Admin), || {
        get(alerts::webhook)
    }),
    endpoint("PUT", "/alerts/webhook", Everywhere(Admin), || {
        put(alerts::set_webhook)
    }),
    endpoint("DELETE", "/alerts/webhook", Everywhere(Admin), || {
        delete(alerts::remove_webhook)
    }),
    endpoint("POST", "/alerts/webhook/_test", Everywhere(Admin), || {
        post(alerts::test_webhook)
    }),
    endpoint("POST", "/registry/_import", Everywhere(Admin), || {
        post(registry::import)
    }),
    endpoint("POST", "/clusters", Everywhere(Admin), || {
        post(registry::add_cluster)
    }),
    endpoint("POST", "/clusters/_test", Session, || {
        post(registry::test_cluster)
    }),
    endpoint("PUT", "/clusters/{id}", Cluster(Admin), || {
        put(registry::change_cluster)
    }),
    endpoint("DELETE", "/clusters/{id}", Cluster(Admin), || {
        delete(registry::remove_cluster)
    }),
    endpoint("GET", "/clusters/{id}/series", Cluster(Viewer), || {
        get(live::series)
    }),
    endpoint("GET", "/clusters/{id}/nodes", Cluster(Viewer), || {
        get(live::nodes)
    }),
    endpoint("GET", "/clusters/{id}/heat", Cluster(Viewer), || get(heat::show)),
    endpoint("GET", "/clusters/{id}/indices", Cluster(Viewer), || {
        get(indices::list)
    }),
    endpoint("GET", "/clusters/{id}/names", Cluster(Viewer), || {
        get(calls::names)
    }),
    endpoint("POST", "/clusters/{id}/call", Cluster(Viewer), || {
        post(calls::call)
    })
    .with_bodies_to(CALL_BYTES_MAX),
    endpoint("POST", "/gateways", Everywhere(Admin), || {
        post(registry::add_gateway)
    }),
    endpoint("POST", "/gateways/_test", Everywhere(Admin), || {
        post(registry::test_gateway)
    }),
    endpoint("PUT", "/gateways/{id}", Everywhere(Admin), || {
        put(registry::change_gateway)
    }),
    endpoint("DELETE", "/gateways/{id}", Everywhere(Admin), || {
        delete(registry::remove_gateway)
    }),
    endpoint("GET", "/gateways/{id}/queues", Gateway(Viewer), || {
        get(gateways::queues)
    }),
    endpoint("GET", "/gateways/{id}/lag", Gateway(Viewer), || {
        get(gateways::lag)
    }),
    endpoint("GET", "/gateways/{id}/traffic", Gateway(Viewer), || {
        get(gateways::traffic)
    }),
    endpoint("GET", "/gateways/{id}/trial", Gateway(Viewer), || {
        get(trials::show)
    }),
    endpoint("POST", "/gateways/{id}/trial", Gateway(Operator), || {
        post(trials::begin)
    }),
    endpoint("DELETE", "/gateways/{id}/trial", Gateway(Operator), || {
        delete(trials::cancel)
    }),
    endpoint("POST", "/gateways/{id}/call", Gateway(Viewer), || {
        post(gateways::call)
    }),
];

/// The largest body of a call: a bulk that somebody tries out. JSON needs some room around it.
const CALL_BYTES_MAX: usize = calls::BYTES_MAX + (14 << 20);
