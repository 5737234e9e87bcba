//! Users and their roles. A change takes effect with the user's next request, and within a second in an open
//! stream.

use std::collections::BTreeMap;
use std::time::Instant;

use axum::Json;
use axum::extract::{Extension, State};
use serde::Deserialize;
use serde_json::{Value, json};
use settings::Secret;

use super::guard::Token;
use super::input::{Body, Path};
use super::sessions::{check_name, check_password, refused};
use super::{ApiState, Peer, Refusal, Shared};
use crate::refused::Why;
use crate::roles::Roles;
use crate::store::{AuditedChange, StoreError, User};
use crate::throttle::Asker;

type Answer = Result<Json<Value>, Refusal>;

#[derive(Deserialize)]
pub(super) struct New {
    name: String,
    password: Secret,
    #[serde(flatten)]
    roles: Roles,
}

/// A change of a user. An absent field keeps its value.
#[derive(Deserialize)]
pub(super) struct Draft {
    password: Option<Secret>,
    roles: Option<Roles>,
    /// The roles that `roles` are a change of: if the user has others by now, nothing is changed.
    was: Option<Roles>,
}

#[derive(Deserialize)]
pub(super) struct Passwords {
    old: Secret,
    new: Secret,
}

pub(super) async fn list(State(api): State<Shared>) -> Answer {
    Ok(Json(json!({"users": api.polls.store.users()?})))
}

pub(super) async fn add(
    State(api): State<Shared>,
    Extension(admin): Extension<User>,
    Body(new): Body<New>,
) -> Answer {
    let name = check_name(&new.name)?;
    check_password(&new.password)?;
    let after = told(&api, &new.roles)?;
    let hash = api.passwords.hash(new.password).await?;
    api.polls.store.add_user(name, &hash, &new.roles)?;
    note(&api, &admin, "add user", name, None, Some(&after))?;
    Ok(Json(json!({})))
}

pub(super) async fn change(
    State(api): State<Shared>,
    Extension(admin): Extension<User>,
    Path(name): Path<String>,
    Body(draft): Body<Draft>,
) -> Answer {
    let store = &api.polls.store;
    let (user, _) = store.user(&name)?.ok_or(StoreError::Missing)?;
    if let Some(password) = &draft.password {
        check_password(password)?;
    }
    if user.oidc {
        return Err(of_the_provider());
    }
    if draft.roles.is_some() && draft.was.is_some_and(|was| was != user.roles) {
        let reason = "somebody else has changed the roles of this user meanwhile";
        return Err(Refusal::conflict("roles_changed", reason));
    }
    if let Some(roles) = draft.roles.filter(|roles| *roles != user.roles) {
        let (before, after) = (told(&api, &user.roles)?, told(&api, &roles)?);
        store.set_roles(user.id, &roles)?;
        note(
            &api,
            &admin,
            "change roles",
            &user.name,
            Some(&before),
            Some(&after),
        )?;
    }
    if let Some(password) = draft.password {
        let hash = api.passwords.hash(password).await?;
        store.set_password(user.id, &hash)?;
        note(&api, &admin, "set password", &user.name, None, None)?;
    }
    Ok(Json(json!({})))
}

pub(super) async fn remove(
    State(api): State<Shared>,
    Extension(admin): Extension<User>,
    Path(name): Path<String>,
) -> Answer {
    let store = &api.polls.store;
    let (user, _) = store.user(&name)?.ok_or(StoreError::Missing)?;
    let before = told(&api, &user.roles)?;
    store.remove_user(user.id)?;
    note(&api, &admin, "remove user", &user.name, Some(&before), None)?;
    Ok(Json(json!({})))
}

/// Changes the password of the user who asks. The old password is required, since somebody may have left the
/// page open; wrong ones are throttled as those of logins are. All other sessions of the user end.
pub(super) async fn change_own_password(
    State(api): State<Shared>,
    Extension(Peer(address)): Extension<Peer>,
    Extension(user): Extension<User>,
    Extension(Token(token)): Extension<Token>,
    Body(given): Body<Passwords>,
) -> Answer {
    if user.oidc {
        return Err(of_the_provider());
    }
    check_password(&given.new)?;
    let store = &api.polls.store;
    let count = |why| refused(&api, "failed change of password", Some(&user.name), address, why);
    if let Err(wait) = api.throttle.admit(&user.name, address.ip(), Instant::now()) {
        count(Why::Throttled)?;
        return Err(Refusal::too_many(wait));
    }
    let (_, former) = store.user(&user.name)?.ok_or(StoreError::Missing)?;
    let wrong = || Refusal::forbidden("wrong_password", "the old password is wrong");
    let is_right = api
        .passwords
        .matches(given.old, former.as_deref(), Asker::Known)
        .await?;
    let Some(former) = former.as_deref().filter(|_| is_right) else {
        count(Why::Wrong)?;
        return Err(wrong());
    };
    api.throttle.forgive(&user.name, address.ip());
    let hash = api.passwords.hash(given.new).await?;
    if !store.change_password(user.id, former, &hash, &token)? {
        return Err(wrong());
    }
    note(&api, &user, "set password", &user.name, None, None)?;
    Ok(Json(json!({})))
}

fn of_the_provider() -> Refusal {
    let reason =
        "this user logs in at the OpenID provider, which has the password and says which roles the user has";
    Refusal::conflict("of_the_provider", reason)
}

/// Returns roles as the audit log has them: with names of clusters, because the id of a removed cluster says
/// nothing.
pub(super) fn told(api: &ApiState, roles: &Roles) -> Result<Value, Refusal> {
    let mut clusters = BTreeMap::new();
    for (id, role) in &roles.clusters {
        let cluster = api.polls.store.cluster(id)?;
        let cluster =
            cluster.ok_or_else(|| Refusal::bad(format!("clusters: there is none with the id `{id}`")))?;
        clusters.insert(cluster.name, *role);
    }
    Ok(json!({"role": roles.role, "clusters": clusters}))
}

fn note(
    api: &ApiState,
    user: &User,
    what: &str,
    target: &str,
    before: Option<&Value>,
    after: Option<&Value>,
) -> Result<(), StoreError> {
    api.polls.store.note(&AuditedChange {
        user: &user.name,
        what,
        target,
        before,
        after,
        reason: None,
    })
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use crate::api::testing::{on_api, send, session_of};
    use crate::roles::{Role, Roles};

    #[test]
    fn roles_are_not_changed_by_who_has_not_seen_what_they_are() {
        let of = |role| Roles {
            role,
            clusters: [].into(),
        };
        on_api(async |store, routes| {
            let admin = session_of(&store, "ann", &of(Role::Admin));
            store.add_user("zoe", "hash", &of(Role::Viewer)).unwrap();
            let put = async |body: &'static str| {
                let answer = send(&routes, "PUT", "/users/zoe", Some(&admin), body).await;
                (answer.status(), store.user("zoe").unwrap().unwrap().0.roles.role)
            };
            let overtaken = r#"{"roles": {"role": "admin"}, "was": {"role": "operator"}}"#;
            assert_eq!(put(overtaken).await, (StatusCode::CONFLICT, Role::Viewer));
            let seen = r#"{"roles": {"role": "operator"}, "was": {"role": "viewer"}}"#;
            assert_eq!(put(seen).await, (StatusCode::OK, Role::Operator));
            // Who says nothing of it, such as a script, means it whatever the roles are.
            let plain = r#"{"roles": {"role": "none"}}"#;
            assert_eq!(put(plain).await, (StatusCode::OK, Role::None));
        });
    }
}
