//! The check before an endpoint is served: which session a request has, and whether the role suffices.

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;

use super::guard::{Token, token_of};
use super::{ApiState, Refusal, Shared};
use crate::roles::{Role, Roles};
use crate::serve::Seat;
use crate::store::{StoreError, User};

/// The requirement of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// No session: the endpoint serves users who are not logged in.
    Nothing,
    /// A session. What the endpoint tells depends on the roles.
    Session,
    /// A session whose general role is at least this one.
    Everywhere(Role),
    /// A session whose role on the cluster in the path is at least this one.
    Cluster(Role),
    /// A session whose role on the gateway in the path is at least this one.
    Gateway(Role),
}

/// Serves a request that meets the requirement, and attaches the user to it.
pub(super) async fn admit(
    State((api, needs)): State<(Shared, Needs)>,
    path: Result<RawPathParams, RawPathParamsRejection>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let token = token_of(request.headers(), api.tls).ok_or_else(log_in_first)?;
    // A page that is merely open does not count as use.
    let used = !request.uri().path().ends_with("/live") && !is_poll(request.headers());
    let user = api.polls.store.session(&token, used)?.ok_or_else(log_in_first)?;
    if let Some(seat) = request.extensions().get::<Seat>() {
        seat.vouch();
    }
    api.polls.attention.look();
    let path = path?;
    let id = path
        .iter()
        .find(|(name, _)| *name == "id")
        .map_or("", |(_, id)| id);
    may(&api, &user.roles, needs, id)?;
    // It is registered, or it would not have passed.
    if matches!(needs, Needs::Cluster(_) | Needs::Gateway(_)) {
        api.polls.attention.look_at(id);
    }
    request.extensions_mut().insert(user);
    request.extensions_mut().insert(Token(token));
    Ok(next.run(request).await)
}

/// Whether a page asks by itself, as it does again and again while it is open. Whoever says so untruly has a
/// shorter session, and nothing else.
pub(super) fn is_poll(headers: &HeaderMap) -> bool {
    headers.contains_key("x-poll")
}

fn log_in_first() -> Refusal {
    Refusal::unauthorized("log in first", None)
}

fn may(api: &ApiState, roles: &Roles, needs: Needs, id: &str) -> Result<(), Refusal> {
    let store = &api.polls.store;
    match needs {
        Needs::Nothing | Needs::Session => Ok(()),
        Needs::Everywhere(role) => demand(role, roles.role, EVERYTHING),
        Needs::Cluster(role) => {
            store.cluster(id)?.ok_or(StoreError::Missing)?;
            demand(role, roles.on_cluster(id), ON_CLUSTER)
        }
        Needs::Gateway(role) => {
            let gateway = store.gateway(id)?.ok_or(StoreError::Missing)?;
            demand(role, roles.on_gateway(&gateway), ON_GATEWAY)
        }
    }
}

/// Refuses a role that is lower than the needed one, and names the needed one.
pub(super) fn demand(needs: Role, has: Role, on: &str) -> Result<(), Refusal> {
    if has >= needs {
        return Ok(());
    }
    Err(Refusal::missing_role(needs, has, on))
}

/// Checks whether a user may test a cluster: a new one, or a change of the one with this id.
pub(super) fn may_test(user: &User, id: Option<&str>) -> Result<(), Refusal> {
    match id {
        Some(id) => demand(Role::Admin, user.roles.on_cluster(id), ON_CLUSTER),
        None => demand(Role::Admin, user.roles.role, EVERYTHING),
    }
}

pub(super) const EVERYTHING: &str = "for everything";
pub(super) const ON_CLUSTER: &str = "on this cluster";
pub(super) const ON_GATEWAY: &str = "on all clusters of this gateway";

#[cfg(test)]
mod tests {
    use super::super::testing::{on_api, send, send_with};

    #[test]
    fn a_page_that_is_merely_open_keeps_no_session() {
        on_api(async |store, routes| {
            let token = store.begin_session(1).unwrap();
            let polls = async |path: &str| {
                let poll = send_with(&routes, "GET", path, Some(&token), "", &[("x-poll", "1")]);
                poll.await.status().as_u16()
            };
            let uses = async |path: &str| {
                send(&routes, "GET", path, Some(&token), "")
                    .await
                    .status()
                    .as_u16()
            };
            let twenty_minutes = || store.idle_sessions(20 * 60_000);
            for path in ["/alerts", "/session"] {
                twenty_minutes();
                assert_eq!(uses(path).await, 200);
                twenty_minutes();
                assert_eq!(polls(path).await, 200, "{path}");
                assert_eq!(uses(path).await, 200, "a user who comes in time goes on");
            }
            twenty_minutes();
            assert_eq!(polls("/alerts").await, 200);
            assert_eq!(polls("/session").await, 200);
            store.idle_sessions(11 * 60_000);
            assert_eq!(polls("/alerts").await, 401, "nobody has used it for half an hour");
        });
    }
}
