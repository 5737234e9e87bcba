//! Registers, tests, changes and removes clusters and gateways.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::{EVERYTHING, demand, may_test};
use super::input::{Body, Path};
use super::{ApiState, Refusal};
use crate::draft::{ClusterDraft, GatewayDraft};
use crate::import;
use crate::poll::adopt;
use crate::probe::{ServerKind, probe};
use crate::roles::Role;
use crate::store::{AuditedChange, ClusterEntry, GatewayEntry, StoreError, User};
use crate::target::Target;

type Answer = Result<Json<Value>, Refusal>;

#[derive(Deserialize)]
pub(super) struct File {
    yaml: String,
}

/// Returns what the user may see of the registry, without secrets.
pub(super) async fn show(State(api): State<Arc<ApiState>>, Extension(user): Extension<User>) -> Answer {
    let (clusters, gateways) = seen(&api, &user)?;
    Ok(Json(json!({"clusters": clusters, "gateways": gateways})))
}

/// Returns the clusters and gateways that a user may see.
pub(super) fn seen(
    api: &ApiState,
    user: &User,
) -> Result<(Vec<ClusterEntry>, Vec<GatewayEntry>), StoreError> {
    let (mut clusters, mut gateways) = (api.polls.store.clusters()?, api.polls.store.gateways()?);
    clusters.retain(|cluster| user.roles.on_cluster(&cluster.id) >= Role::Viewer);
    gateways.retain(|gateway| user.roles.on_gateway(gateway) >= Role::Viewer);
    Ok((clusters, gateways))
}

pub(super) async fn add_cluster(
    State(api): State<Arc<ApiState>>,
    Extension(user): Extension<User>,
    Body(draft): Body<ClusterDraft>,
) -> Answer {
    let entry = draft.on(None)?;
    keep_cluster(&api, &user.name, None, &entry, &draft)?;
    told_cluster(&api, &entry.id)
}

pub(super) async fn change_cluster(
    State(api): State<Arc<ApiState>>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
    Body(draft): Body<ClusterDraft>,
) -> Answer {
    let stored = api.polls.store.cluster(&id)?.ok_or(StoreError::Missing)?;
    let entry = draft.on(Some(stored.clone()))?;
    may_lead_there(&user, Some(&stored), &entry)?;
    keep_cluster(&api, &user.name, Some(&stored), &entry, &draft)?;
    told_cluster(&api, &id)
}

pub(super) async fn remove_cluster(
    State(api): State<Arc<ApiState>>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
) -> Answer {
    let store = &api.polls.store;
    let stored = store.cluster(&id)?.ok_or(StoreError::Missing)?;
    store.forget_cluster(&id)?;
    api.indices.forget(&id);
    // Its page is gone, so that nobody could cancel it.
    api.trials.cancel_where(|trial| trial.cluster == id);
    let before = json!(stored);
    let change = AuditedChange {
        before: Some(&before),
        ..change(&user.name, "remove cluster", &stored.name)
    };
    store.note(&change)?;
    api.polls.changed.notify_one();
    Ok(Json(json!({})))
}

/// Tests a cluster as the form describes it, with the stored password if the form has none.
pub(super) async fn test_cluster(
    State(api): State<Arc<ApiState>>,
    Extension(user): Extension<User>,
    Body(draft): Body<ClusterDraft>,
) -> Answer {
    may_test(&user, draft.id.as_deref())?;
    let store = &api.polls.store;
    let stored = draft
        .id
        .as_deref()
        .map(|id| store.cluster(id))
        .transpose()?
        .flatten();
    let named = ClusterDraft {
        name: draft.name.clone().or(Some("new".to_owned())),
        ..draft
    };
    let entry = named.on(stored.clone())?;
    may_lead_there(&user, stored.as_ref(), &entry)?;
    let password = match named.secret() {
        Some(given) => given.cloned(),
        None => store.cluster_secret(&entry)?,
    };
    let target = Target::cluster(&entry, password);
    Ok(Json(
        probe(&api.polls.outbound, ServerKind::Cluster, target).await,
    ))
}

/// Demands the role for everything from a user who changes the addresses of a cluster, or how they are
/// verified: the console sends calls, and the stored password, to whatever is there, and links gateways to
/// clusters by their addresses.
fn may_lead_there(user: &User, stored: Option<&ClusterEntry>, entry: &ClusterEntry) -> Result<(), Refusal> {
    let Some(stored) = stored else { return Ok(()) };
    let same =
        entry.endpoints == stored.endpoints && entry.ca_pem == stored.ca_pem && entry.verify == stored.verify;
    match same {
        true => Ok(()),
        false => demand(Role::Admin, user.roles.role, EVERYTHING),
    }
}

pub(super) async fn add_gateway(
    State(api): State<Arc<ApiState>>,
    Extension(user): Extension<User>,
    Body(draft): Body<GatewayDraft>,
) -> Answer {
    let entry = draft.on(None)?;
    draft.check_client_pem()?;
    keep_gateway(&api, &user.name, None, &entry, &draft)?;
    bring_along(&api, &entry).await?;
    told_gateway(&api, &entry.id)
}

pub(super) async fn change_gateway(
    State(api): State<Arc<ApiState>>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
    Body(draft): Body<GatewayDraft>,
) -> Answer {
    let stored = api.polls.store.gateway(&id)?.ok_or(StoreError::Missing)?;
    let entry = draft.on(Some(stored.clone()))?;
    draft.check_client_pem()?;
    keep_gateway(&api, &user.name, Some(&stored), &entry, &draft)?;
    bring_along(&api, &entry).await?;
    told_gateway(&api, &id)
}

pub(super) async fn remove_gateway(
    State(api): State<Arc<ApiState>>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
) -> Answer {
    let store = &api.polls.store;
    let stored = store.gateway(&id)?.ok_or(StoreError::Missing)?;
    store.forget_gateway(&id)?;
    api.trials.cancel(&id);
    let before = json!(stored);
    let change = AuditedChange {
        before: Some(&before),
        ..change(&user.name, "remove gateway", &stored.name)
    };
    store.note(&change)?;
    api.polls.changed.notify_one();
    Ok(Json(json!({})))
}

/// Tests a gateway as the form describes it, with the stored secrets if the form has none.
pub(super) async fn test_gateway(
    State(api): State<Arc<ApiState>>,
    Body(draft): Body<GatewayDraft>,
) -> Answer {
    let store = &api.polls.store;
    let stored = draft
        .id
        .as_deref()
        .map(|id| store.gateway(id))
        .transpose()?
        .flatten();
    let named = GatewayDraft {
        name: draft.name.clone().or(Some("new".to_owned())),
        ..draft
    };
    let entry = named.on(stored)?;
    let token = match named.token() {
        Some(given) => given.cloned(),
        None => store.gateway_token(&entry)?,
    };
    let client_pem = match named.client_pem() {
        Some(given) => given.cloned(),
        None => store.gateway_client_pem(&entry)?,
    };
    let target = Target::gateway(&entry, token, client_pem);
    Ok(Json(
        probe(&api.polls.outbound, ServerKind::Gateway, target).await,
    ))
}

/// Imports a file: all of its entries, or none if there are problems.
pub(super) async fn import(
    State(api): State<Arc<ApiState>>,
    Extension(user): Extension<User>,
    Body(file): Body<File>,
) -> Answer {
    Ok(Json(match take_in(&api, &user.name, &file.yaml)? {
        Ok(taken) => json!({"added": taken.added, "changed": taken.changed, "problems": []}),
        Err(problems) => json!({"added": [], "changed": [], "problems": problems}),
    }))
}

/// The names of the entries that a file has added, and of those that it has changed.
#[derive(Default)]
pub(crate) struct Taken {
    added: Vec<String>,
    changed: Vec<String>,
}

/// Registers everything that a file names, in the name of `actor`. If something is wrong with the file,
/// returns the problems and registers nothing.
pub(crate) fn take_in(
    api: &ApiState,
    actor: &str,
    yaml: &str,
) -> Result<Result<Taken, Vec<Value>>, StoreError> {
    let store = &api.polls.store;
    let (clusters, gateways) = (store.clusters()?, store.gateways()?);
    let import = match import::read(yaml, &clusters, &gateways) {
        Ok(import) => import,
        Err(problems) => return Ok(Err(problems)),
    };
    let mut taken = Taken::default();
    let mut tell = |is_new: bool, name: &str| {
        let names = if is_new {
            &mut taken.added
        } else {
            &mut taken.changed
        };
        names.push(name.to_owned());
    };
    for (draft, entry) in &import.clusters {
        let stored = clusters.iter().find(|known| known.id == entry.id);
        keep_cluster(api, actor, stored, entry, draft)?;
        tell(stored.is_none(), &entry.name);
    }
    for (draft, entry) in &import.gateways {
        let stored = gateways.iter().find(|known| known.id == entry.id);
        keep_gateway(api, actor, stored, entry, draft)?;
        tell(stored.is_none(), &entry.name);
    }
    Ok(Ok(taken))
}

fn keep_cluster(
    api: &ApiState,
    actor: &str,
    stored: Option<&ClusterEntry>,
    entry: &ClusterEntry,
    draft: &ClusterDraft,
) -> Result<(), StoreError> {
    let store = &api.polls.store;
    store.keep_cluster(entry, draft.secret())?;
    // Another cluster may be at its addresses.
    api.indices.forget(&entry.id);
    let what = if stored.is_some() {
        "change cluster"
    } else {
        "register cluster"
    };
    let (before, after) = (
        stored.map(|stored| json!(stored)),
        store.cluster(&entry.id)?.map(|kept| json!(kept)),
    );
    let change = AuditedChange {
        before: before.as_ref(),
        after: after.as_ref(),
        ..change(actor, what, &entry.name)
    };
    store.note(&change)?;
    api.polls.changed.notify_one();
    Ok(())
}

fn keep_gateway(
    api: &ApiState,
    actor: &str,
    stored: Option<&GatewayEntry>,
    entry: &GatewayEntry,
    draft: &GatewayDraft,
) -> Result<(), StoreError> {
    let store = &api.polls.store;
    store.keep_gateway(entry, draft.token(), draft.client_pem())?;
    let what = if stored.is_some() {
        "change gateway"
    } else {
        "register gateway"
    };
    let (before, after) = (
        stored.map(|stored| json!(stored)),
        store.gateway(&entry.id)?.map(|kept| json!(kept)),
    );
    let change = AuditedChange {
        before: before.as_ref(),
        after: after.as_ref(),
        ..change(actor, what, &entry.name)
    };
    store.note(&change)?;
    api.polls.changed.notify_one();
    Ok(())
}

/// Registers a gateway's clusters at once if the gateway answers; otherwise its poll does so later.
async fn bring_along(api: &ApiState, entry: &GatewayEntry) -> Result<(), Refusal> {
    let store = &api.polls.store;
    let Some(stored) = store.gateway(&entry.id)? else {
        return Ok(());
    };
    let Ok(target) = Target::of_gateway(store, &stored) else {
        return Ok(());
    };
    let told = api
        .polls
        .outbound
        .get(&Arc::new(target), "/elasticsearch", WITHIN)
        .await;
    if let Ok(told) = told
        && adopt(store, &entry.id, &told)?
    {
        api.polls.changed.notify_one();
    }
    Ok(())
}

fn told_cluster(api: &ApiState, id: &str) -> Answer {
    let entry = api.polls.store.cluster(id)?.ok_or(StoreError::Missing)?;
    Ok(Json(json!(entry)))
}

fn told_gateway(api: &ApiState, id: &str) -> Answer {
    let entry = api.polls.store.gateway(id)?.ok_or(StoreError::Missing)?;
    Ok(Json(json!(entry)))
}

fn change<'a>(actor: &'a str, what: &'a str, target: &'a str) -> AuditedChange<'a> {
    AuditedChange {
        user: actor,
        what,
        target,
        ..AuditedChange::default()
    }
}

const WITHIN: Duration = Duration::from_secs(5);
