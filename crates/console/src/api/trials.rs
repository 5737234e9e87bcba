//! Trials of a gateway: what may be compared, what is running, and what came out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::input::{Body, Path};
use super::{ApiState, Refusal};
use crate::clock::now_ms;
use crate::secrets;
use crate::store::{AuditedChange, ClusterEntry, GatewayEntry, Store, StoreError, TrialRow, User};
use crate::target::Target;
use crate::trials::{NotBegun, TrialLoad, TrialPlan};

/// Recent answers of clusters about indices that a trial may have left, by the trial's id.
#[derive(Default)]
pub(crate) struct Leftovers(Mutex<BTreeMap<i64, (Instant, Value)>>);

#[derive(Deserialize)]
pub(super) struct Wish {
    cluster: String,
    entry: String,
    /// What the names of the indices begin with, as the page has shown it.
    indices: String,
    load: TrialLoad,
}

/// Returns what may be compared, the progress of a running trial, and the last one that has ended.
pub(super) async fn show(
    State(api): State<Arc<ApiState>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let store = &api.polls.store;
    let gateway = store.gateway(&id)?.ok_or(StoreError::Missing)?;
    let trials = store.trials(&id)?;
    // The outcome of a trial of a cluster that is no longer the gateway's is not for its viewers.
    let is_linked = |row: &&TrialRow| clusters_of(&gateway).any(|cluster| cluster == row.cluster);
    let mut linked = trials.iter().filter(is_linked);
    let last = linked.find(|row| row.ended_ms.is_some());
    let running = trials.iter().find(|row| row.ended_ms.is_none());
    let progress = api.trials.progress(&id);
    let leftovers = match last {
        Some(row) if !matches!(&*row.state, "compared" | "flawed") => leftovers(&api, row).await,
        _ => json!([]),
    };
    let ways = ways(&api, &gateway)?;
    let clusters: BTreeMap<&str, Value> = ways
        .iter()
        .flat_map(|way| &way.clusters)
        .map(|one| {
            (
                &*one.id,
                json!({"id": one.id, "name": one.name, "refused": restriction(one)}),
            )
        })
        .collect();
    let mut by_name: Vec<&Value> = clusters.values().collect();
    by_name.sort_by_key(|one| one["name"].as_str());
    Ok(Json(json!({
        "can_run": api.trials.can_run(),
        "is_busy": api.trials.busy_with().is_some(),
        "running": running.zip(progress).map(|(row, progress)| json!({"trial": row, "progress": progress})),
        "last": last,
        "why": last.and_then(|row| api.trials.why_failed(row.id)),
        "leftovers": leftovers,
        "refused": refused(&api, &gateway, &ways),
        "clusters": by_name,
        "entries": ways.iter().map(|way| (&*way.entry, &*way.url)).collect::<BTreeMap<_, _>>(),
        "reach": ways.iter().map(|way| (&*way.entry, way.ids())).collect::<BTreeMap<_, _>>(),
        "indices": format!("{PREFIX}{:016x}", u64::from_ne_bytes(secrets::random())),
    })))
}

/// Begins a trial.
pub(super) async fn begin(
    State(api): State<Arc<ApiState>>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
    Body(wish): Body<Wish>,
) -> Result<Json<Value>, Refusal> {
    let store = &api.polls.store;
    let gateway = store.gateway(&id)?.ok_or(StoreError::Missing)?;
    let ways = ways(&api, &gateway)?;
    if let Some((kind, reason)) = refused(&api, &gateway, &ways) {
        return Err(Refusal::forbidden(kind, reason));
    }
    let way = ways.iter().find(|way| way.entry == wish.entry);
    let way = way.ok_or_else(|| {
        Refusal::bad("entry: the gateway has reported none of that name that delivers to one cluster")
    })?;
    let cluster = way.clusters.iter().find(|one| one.id == wish.cluster);
    let cluster = cluster.ok_or_else(|| Refusal::bad("cluster: the entry does not deliver to it"))?;
    if let Some((kind, reason)) = way.clusters.iter().find_map(restriction) {
        return Err(Refusal::forbidden(kind, reason));
    }
    if !is_prefix(&wish.indices) {
        return Err(Refusal::bad(format!(
            "indices: `{PREFIX}` and 8 to 40 letters and digits"
        )));
    }
    let plan = plan(store, &gateway, cluster, &way.url, &wish)?;
    let row = TrialRow {
        id: 0,
        gateway: id,
        cluster: cluster.id.clone(),
        user: user.name.clone(),
        indices: wish.indices.clone(),
        load: json!(wish.load),
        began_ms: now_ms(),
        ended_ms: None,
        state: String::new(),
        figures: None,
    };
    let row = api.trials.begin(store, &row, &plan)?;
    store.note(&AuditedChange {
        user: &user.name,
        what: "begin trial",
        target: &gateway.name,
        after: Some(&json!({"cluster": cluster.name, "indices": row.indices, "load": row.load})),
        ..AuditedChange::default()
    })?;
    Ok(Json(json!(row)))
}

/// Cancels the gateway's trial, if one is running. Its indices are removed.
pub(super) async fn cancel(
    State(api): State<Arc<ApiState>>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let store = &api.polls.store;
    let gateway = store.gateway(&id)?.ok_or(StoreError::Missing)?;
    let is_cancelled = api.trials.cancel(&id);
    if is_cancelled {
        store.note(&AuditedChange {
            user: &user.name,
            what: "cancel trial",
            target: &gateway.name,
            ..AuditedChange::default()
        })?;
    }
    Ok(Json(json!({"cancelled": is_cancelled})))
}

impl From<NotBegun> for Refusal {
    fn from(error: NotBegun) -> Self {
        match error {
            NotBegun::Bounds { .. } => Self::bad(error.to_string()),
            NotBegun::Busy => Self::conflict("busy", error.to_string()),
            NotBegun::Store(error) => error.into(),
            NotBegun::NoProgram | NotBegun::Start(_) => Self::failed(error.to_string()),
        }
    }
}

fn clusters_of(gateway: &GatewayEntry) -> impl Iterator<Item = &str> {
    gateway
        .clusters
        .iter()
        .filter_map(|link| link.cluster_id.as_deref())
}

/// An entry all of whose writes go to one cluster: an index that is made through it can be removed there.
struct Way {
    entry: String,
    url: String,
    /// The registered clusters that stand for the one; several, if it is registered with several accounts.
    clusters: Vec<ClusterEntry>,
}

impl Way {
    fn ids(&self) -> Vec<&str> {
        self.clusters.iter().map(|cluster| &*cluster.id).collect()
    }
}

/// Returns the ways that the gateway has reported and whose cluster is registered. Older gateways do not say
/// to which clusters an entry delivers, so it may be all.
fn ways(api: &ApiState, gateway: &GatewayEntry) -> Result<Vec<Way>, StoreError> {
    let told = api.polls.board.entries(&gateway.id);
    let mut ways = Vec::new();
    for (entry, url) in entries(gateway, &told) {
        let all: BTreeSet<&str> = match told[&entry]["clusters"].as_array() {
            Some(names) => names.iter().filter_map(Value::as_str).collect(),
            None => gateway.clusters.iter().map(|link| &*link.name).collect(),
        };
        if all.len() > 1 {
            continue;
        }
        let links = gateway.clusters.iter().filter(|link| all.contains(&*link.name));
        let ids = links.filter_map(|link| link.cluster_id.as_deref());
        let clusters = ids
            .map(|id| api.polls.store.cluster(id))
            .filter_map(Result::transpose);
        let clusters = clusters.collect::<Result<Vec<_>, _>>()?;
        if !clusters.is_empty() {
            ways.push(Way { entry, url, clusters });
        }
    }
    Ok(ways)
}

/// Returns why no trial of this gateway is allowed.
fn refused(api: &ApiState, gateway: &GatewayEntry, ways: &[Way]) -> Option<(&'static str, String)> {
    if clusters_of(gateway).next().is_none() {
        let reason = "no cluster of this gateway is registered";
        return Some(("no_cluster", reason.to_owned()));
    }
    if ways.is_empty() {
        let has_entries = !entries(gateway, &api.polls.board.entries(&gateway.id)).is_empty();
        let mut names: Vec<&str> = gateway.clusters.iter().map(|link| &*link.name).collect();
        names.dedup();
        let reason = format!(
            "the gateway delivers to several clusters ({}), and no entry to one of them only that is registered here: \
             the index could stay on another one; run `tidegate compare` where you know which",
            names.join(", ")
        );
        return (has_entries && names.len() > 1).then_some(("several_clusters", reason));
    }
    let mut reasons = ways.iter().map(|way| way.clusters.iter().find_map(restriction));
    match reasons.clone().any(|reason| reason.is_none()) {
        true => None,
        false => reasons.find_map(|reason| reason),
    }
}

fn restriction(cluster: &ClusterEntry) -> Option<(&'static str, String)> {
    match (cluster.read_only, cluster.protected) {
        (true, _) => Some((
            "read_only",
            format!("{} is registered as read-only", cluster.name),
        )),
        (_, true) => Some((
            "protected",
            format!("{} is registered as protected", cluster.name),
        )),
        _ => None,
    }
}

/// Returns the gateway's entries with their URLs. An entry that listens on all addresses is reached where the
/// admin API is. One that listens on the loopback address of another machine is not reached.
fn entries(gateway: &GatewayEntry, told: &Value) -> BTreeMap<String, String> {
    let Ok(admin) = cluster::Address::from_endpoint(&gateway.url) else {
        return BTreeMap::new();
    };
    let url = |entry: &Value| {
        let address: SocketAddr = entry["address"].as_str()?.parse().ok()?;
        if address.ip().is_loopback() && !admin.is_loopback() {
            return None;
        }
        let scheme = if entry["tls"] == true { "https" } else { "http" };
        Some(match address.ip().is_unspecified() {
            true if admin.host.contains(':') => format!("{scheme}://[{}]:{}", admin.host, address.port()),
            true => format!("{scheme}://{}:{}", admin.host, address.port()),
            false => format!("{scheme}://{address}"),
        })
    };
    let entries = told.as_object().into_iter().flatten();
    entries
        .filter_map(|(name, entry)| Some((name.clone(), url(entry)?)))
        .collect()
}

fn plan(
    store: &Store,
    gateway: &GatewayEntry,
    cluster: &ClusterEntry,
    entry: &str,
    wish: &Wish,
) -> Result<TrialPlan, Refusal> {
    let is_tls = |url: &str| url.starts_with("https://");
    let direct_tls = cluster.endpoints.iter().any(|url| is_tls(url));
    let secured: Vec<(&Option<String>, bool)> = [
        (direct_tls, (&cluster.ca_pem, cluster.verify)),
        (is_tls(entry), (&gateway.ca_pem, gateway.verify)),
    ]
    .into_iter()
    .filter_map(|(is_tls, how)| is_tls.then_some(how))
    .collect();
    let differ = secured
        .windows(2)
        .any(|pair| pair[0].1 != pair[1].1 || pair[0].0.is_some() != pair[1].0.is_some());
    if differ {
        return Err(Refusal::bad(
            "cluster and gateway both use TLS, and are registered with different ways to check certificates",
        ));
    }
    if cluster.username.is_some() && cluster.has_password && would_tell(cluster, entry) {
        return Err(Refusal::forbidden(
            "in_clear",
            format!(
                "the entry `{}` has no TLS ({entry}), and others could read the password of {} on the way there: \
                 give the entry TLS, or run `tidegate compare` on the gateway's machine",
                wish.entry, cluster.name
            ),
        ));
    }
    let authorities: Vec<&str> = secured.iter().filter_map(|(ca, _)| ca.as_deref()).collect();
    let password = store.cluster_secret(cluster)?;
    let account = match (&cluster.username, password) {
        (Some(user), password) => Some((user.clone(), password.unwrap_or_default())),
        (None, None) => None,
        (None, Some(_)) => {
            return Err(Refusal::bad(
                "the cluster is registered with an API key, and a comparison takes a user name and a password",
            ));
        }
    };
    Ok(TrialPlan {
        direct: cluster.endpoints.clone(),
        gateway: entry.to_owned(),
        account,
        ca_pem: (!authorities.is_empty()).then(|| authorities.join("\n")),
        insecure: secured.iter().any(|(_, verify)| !verify),
        indices: wish.indices.clone(),
        load: wish.load,
    })
}

/// Returns whether what is sent to an entry can be read on the way, while nothing of it can be on the way to
/// the cluster. Who has registered a cluster without TLS sends the password in clear text anyway.
fn would_tell(cluster: &ClusterEntry, entry: &str) -> bool {
    let is_kept = |url: &str| {
        let address = cluster::Address::from_endpoint(url);
        address.is_ok_and(|address| address.tls || address.is_loopback())
    };
    !is_kept(entry) && cluster.endpoints.iter().all(|url| is_kept(url))
}

/// Asks the cluster which indices of a trial are still there; `null` if it does not say.
async fn leftovers(api: &ApiState, row: &TrialRow) -> Value {
    let known = |(at, told): &(Instant, Value)| (at.elapsed() < KEPT).then(|| told.clone());
    if let Some(told) = api.leftovers.0.lock().get(&row.id).and_then(known) {
        return told;
    }
    let told = json!(ask(api, row).await);
    let mut kept = api.leftovers.0.lock();
    kept.retain(|_, (at, _)| at.elapsed() < KEPT);
    kept.insert(row.id, (Instant::now(), told.clone()));
    told
}

async fn ask(api: &ApiState, row: &TrialRow) -> Option<Vec<String>> {
    let store = &api.polls.store;
    let cluster = store.cluster(&row.cluster).ok()??;
    let target = Arc::new(Target::of_cluster(store, &cluster).ok()?);
    let path = format!("/{}-*/_settings/index.uuid?flat_settings=true", row.indices);
    let told = api.polls.outbound.get(&target, &path, WITHIN).await.ok()?;
    let names = told
        .as_object()?
        .keys()
        .filter(|name| name.starts_with(&row.indices));
    Some(names.take(NAMES_MAX).cloned().collect())
}

fn is_prefix(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|rest| {
        (8..=40).contains(&rest.len())
            && rest
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    })
}

const PREFIX: &str = "tidegate-trial-";
const KEPT: Duration = Duration::from_secs(10);
const WITHIN: Duration = Duration::from_secs(5);
const NAMES_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_goes_to_no_entry_where_others_can_read_it_and_is_not_even_opened() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let wish: Wish = serde_json::from_value(json!({
            "cluster": "c", "entry": "front", "indices": "tidegate-trial-12345678",
            "load": {
                "documents": 1, "batch": 1, "rounds": 1, "clients": 1, "shards": 1, "replicas": 0, "ids": true,
            },
        }))
        .unwrap();
        let gateway = GatewayEntry {
            verify: true,
            ..GatewayEntry::default()
        };
        let mut cluster = ClusterEntry {
            name: "prod".to_owned(),
            username: Some("tide".to_owned()),
            has_password: true,
            verify: true,
            // Nothing can open it.
            sealed: Some(b"x".to_vec()),
            ..ClusterEntry::default()
        };
        let outcome =
            |cluster: &ClusterEntry, entry: &str| match plan(&store, &gateway, cluster, entry, &wish) {
                Ok(_) => "planned".to_owned(),
                Err(refusal) => format!("{refusal:?}"),
            };
        for (endpoints, entry, is_refused) in [
            (&["https://es1:9200"][..], "http://10.0.0.1:9200", true),
            (&["https://es1:9200"], "http://edge:9200", true),
            (&["http://127.0.0.1:9200"], "http://10.0.0.1:9200", true),
            (&["https://es1:9200"], "https://10.0.0.1:9200", false),
            (&["https://es1:9200"], "http://127.0.0.1:9200", false),
            (&["https://es1:9200"], "http://[::1]:9200", false),
            (
                &["https://es1:9200", "http://es2:9200"],
                "http://10.0.0.1:9200",
                false,
            ),
        ] {
            cluster.endpoints = endpoints.iter().map(|url| (*url).to_owned()).collect();
            let told = outcome(&cluster, entry);
            assert_eq!(
                told.contains("\"in_clear\""),
                is_refused,
                "{endpoints:?} {entry}: {told}"
            );
            // All others fail as late as when the password is opened.
            assert_eq!(
                told.contains("\"failed\""),
                !is_refused,
                "{endpoints:?} {entry}: {told}"
            );
        }
        cluster.endpoints = vec!["https://es1:9200".to_owned()];
        (cluster.has_password, cluster.sealed) = (false, None);
        assert_eq!(
            outcome(&cluster, "http://10.0.0.1:9200"),
            "planned",
            "there is nothing to read"
        );
    }
}
