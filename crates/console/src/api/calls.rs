//! Calls to a registered cluster, as the dev tools and the template page make them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::access::{ON_CLUSTER, demand};
use super::input::{Body, Path, Query};
use super::{ApiState, Refusal, answers};
use crate::outbound::Ask;
use crate::rights::CallPath;
use crate::roles::Role;
use crate::serve::Seat;
use crate::store::{AuditedChange, ClusterEntry, StoreError, User};
use crate::target::Target;

#[derive(Deserialize)]
pub(super) struct Call {
    method: String,
    path: String,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    confirm: Option<Confirm>,
}

/// The user's confirmation of a call.
#[derive(Deserialize)]
pub(super) struct Confirm {
    index: String,
    pub(super) reason: String,
}

impl Confirm {
    /// Whether the confirmation names this index and gives a reason.
    pub(super) fn means(&self, index: &str) -> bool {
        self.index == index && !self.reason.trim().is_empty()
    }
}

#[derive(Deserialize)]
pub(super) struct NamesQuery {
    kind: String,
    #[serde(default)]
    prefix: String,
}

/// Sends a call and returns the answer. If the page gives up, the call ends at the cluster too.
pub(super) async fn call(
    State(api): State<Arc<ApiState>>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
    seat: Option<Extension<Seat>>,
    Body(call): Body<Call>,
) -> Result<Response, Refusal> {
    let store = &api.polls.store;
    let cluster = store.cluster(&id)?.ok_or(StoreError::Missing)?;
    let method = call.method.to_uppercase();
    let known = METHODS.iter().any(|known| *known == method);
    let method = Method::from_bytes(method.as_bytes()).ok().filter(|_| known);
    let method =
        method.ok_or_else(|| Refusal::bad(format!("method: one of {} is wanted", METHODS.join(", "))))?;
    let path = CallPath::parse(&call.path).map_err(|error| Refusal::bad(format!("path: {error}")))?;
    let body = call.body.unwrap_or_default().into_bytes();
    if body.len() > BYTES_MAX {
        return Err(Refusal::bad(format!("body: {BYTES_MAX} bytes at most")));
    }
    let is_reading = path.only_reads(&method);
    if !is_reading {
        demand(Role::Operator, user.roles.on_cluster(&id), ON_CLUSTER)?;
        admit(&cluster, &path, call.confirm.as_ref())?;
        let what = format!("{method} {}", call.path);
        store.note(&AuditedChange {
            user: &user.name,
            what: &what,
            target: &cluster.name,
            reason: call.confirm.as_ref().map(|confirm| confirm.reason.trim()),
            ..AuditedChange::default()
        })?;
        forget_lists(&api, &id);
    }
    let headers = headers_of(&call.headers, !body.is_empty())?;
    let target = Target::of_cluster(store, &cluster).map_err(|error| Refusal::bad(error.to_string()))?;
    let ask = Ask {
        method,
        path: call.path,
        headers,
        body,
        within: WITHIN,
        bytes_max: BYTES_MAX,
        memory: Some(api.answers.clone()),
    };
    let began = Instant::now();
    let sent = api.polls.outbound.send(&Arc::new(target), ask).await;
    if !is_reading {
        // Somebody may have asked for the lists meanwhile.
        forget_lists(&api, &id);
    }
    let answer = sent?;
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let kept = answer
        .headers
        .iter()
        .filter(|(name, _)| **name != axum::http::header::SET_COOKIE);
    let headers: BTreeMap<&str, String> = kept.map(|(name, value)| (name.as_str(), text(value))).collect();
    let headers = json!(headers);
    answers::told(answer, took_ms, headers, seat.map(|Extension(seat)| seat))
}

/// Forgets what is known of a cluster's indices and templates, since a call may change them.
fn forget_lists(api: &ApiState, cluster: &str) {
    api.names.forget(cluster);
    api.indices.forget(cluster);
}

/// Checks whether a call that writes may be sent.
fn admit(cluster: &ClusterEntry, path: &CallPath, confirm: Option<&Confirm>) -> Result<(), Refusal> {
    if cluster.read_only {
        let reason = "this cluster is registered as read-only, and the call is not known to only read";
        return Err(Refusal::forbidden("read_only", reason));
    }
    if cluster.protected {
        let index = path.index().unwrap_or(&cluster.name);
        if !confirm.is_some_and(|confirm| confirm.means(index)) {
            return Err(Refusal::confirm(index));
        }
    }
    Ok(())
}

/// Returns the headers of a call: only those that describe the body, and never credentials, which come from
/// the registry.
fn headers_of(given: &BTreeMap<String, String>, has_body: bool) -> Result<HeaderMap, Refusal> {
    let mut headers = HeaderMap::new();
    if has_body {
        headers.insert("content-type", HeaderValue::from_static("application/json"));
    }
    for (name, value) in given {
        let name = name.to_lowercase();
        if !HEADERS.iter().any(|known| *known == name) {
            return Err(Refusal::bad(format!(
                "headers: only {} may be given",
                HEADERS.join(", ")
            )));
        }
        let broken = || Refusal::bad(format!("headers: {name} has a value that no header can have"));
        let value = HeaderValue::from_str(value).map_err(|_| broken())?;
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| broken())?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Returns names with a prefix, for the editor's completion.
pub(super) async fn names(
    State(api): State<Arc<ApiState>>,
    Path(id): Path<String>,
    Query(wanted): Query<NamesQuery>,
) -> Result<Json<Value>, Refusal> {
    let store = &api.polls.store;
    let cluster = store.cluster(&id)?.ok_or(StoreError::Missing)?;
    let target = Target::of_cluster(store, &cluster).map_err(|error| Refusal::bad(error.to_string()))?;
    let known = api
        .names
        .of(&api.polls.outbound, &id, &Arc::new(target), &wanted.kind)
        .await?;
    let known =
        known.ok_or_else(|| Refusal::bad("kind: index, alias, template, pipeline or field is wanted"))?;
    let from = known.partition_point(|name| **name < *wanted.prefix);
    let names: Vec<&str> = known[from..]
        .iter()
        .take_while(|name| name.starts_with(&wanted.prefix))
        .take(NAMES_MAX)
        .map(String::as_str)
        .collect();
    Ok(Json(json!({"names": names})))
}

/// The largest body of a call, and of its answer.
pub(super) const BYTES_MAX: usize = 50 << 20;
const WITHIN: Duration = Duration::from_secs(120);
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"];
const HEADERS: [&str; 3] = ["accept", "content-type", "x-opaque-id"];
const NAMES_MAX: usize = 200;
