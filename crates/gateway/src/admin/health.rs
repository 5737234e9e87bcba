//! Whether the gateway is alive, whether it is ready for what its entries promise, and how its clusters are.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use cluster::{Cluster, WatchState};
use config::{Config, FilterAction};
use serde_json::{Value, json};

use super::AdminState;
use crate::live::{GatewayState, Live};

/// Answers with a colour. `green`: every cluster is watched. `yellow`: some cluster is not watched, so its
/// bulks pass whole or follow an old topology. `red` (503): some cluster has no healthy node.
pub(super) async fn health(State(admin): State<Arc<AdminState>>) -> Response {
    let live = admin.shared.live.load_full();
    let mut worst = 0;
    let mut clusters = serde_json::Map::new();
    for (name, cluster) in &live.clusters {
        let status = cluster.status();
        let up = status.nodes.iter().filter(|node| node.health.up).count();
        let level = match (up, status.state) {
            (0, _) => 2,
            (_, WatchState::Watching | WatchState::Off) => 0,
            _ => 1,
        };
        worst = worst.max(level);
        clusters.insert(
            name.to_string(),
            json!({"status": COLOURS[level], "watch": status.state, "nodes": status.nodes.len(), "nodes_up": up}),
        );
    }
    answer(worst < 2, json!({"status": COLOURS[worst], "clusters": clusters}))
}

/// Answers 200 as long as the process answers. A supervisor that restarts a hanging process should ask this
/// endpoint only.
pub(super) async fn live(State(admin): State<Arc<AdminState>>) -> Response {
    answer(
        true,
        json!({
            "status": "live",
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_s": admin.started.elapsed().as_secs(),
            "started_ms": admin.started_ms,
            "put_back": admin.put_back,
        }),
    )
}

/// Answers 200 if this gateway can do what its entries promise, otherwise 503, with the reasons.
pub(super) async fn ready(State(admin): State<Arc<AdminState>>) -> Response {
    let found = Findings::of(&admin.shared);
    let ready = found.errors.is_empty();
    let status = if ready { "ready" } else { "not_ready" };
    answer(
        ready,
        json!({"status": status, "reasons": found.errors, "warnings": found.warnings}),
    )
}

/// Returns the reasons why this gateway cannot do what its entries promise.
pub(crate) fn why_not_ready(shared: &GatewayState) -> Vec<String> {
    let found = Findings::of(shared);
    let why = found.errors.iter().filter_map(|error| error["why"].as_str());
    why.map(str::to_owned).collect()
}

/// Whether this gateway can do what its entries promise, to be compared.
#[derive(Clone, Debug, Default)]
pub(super) struct Readiness {
    /// Why it cannot; empty if it can.
    pub(super) reasons: Vec<String>,
    /// What each reason is about. The reasons themselves may change every second with the words of a cluster.
    pub(super) about: Vec<(String, String)>,
}

/// Finds what prevents the gateway from serving a cluster that entries lead to. If the cluster's bulks are
/// queued, absent nodes are no error, since that is what the queue is for.
fn look_at(cluster: &Cluster, live: &Live, name: &Arc<str>, queued: bool, found: &mut Findings) {
    let status = cluster.status();
    let has_account = live
        .config
        .clusters
        .get(name)
        .is_some_and(|config| config.credentials.is_some());
    let told = status
        .warnings
        .last()
        .map(|why| format!(" ({why})"))
        .unwrap_or_default();
    let up = status.nodes.iter().any(|node| node.health.up);
    match status.state {
        WatchState::Unauthorized if has_account => found.error(
            "account",
            format!(
                "the cluster `{name}` refuses the gateway's account: correct `basic_auth` or `api_key`{told}"
            ),
        ),
        WatchState::Unauthorized if queued => found.error(
            "account",
            format!(
                "the cluster `{name}` requires an account and none is configured, so nothing is queued for it: configure \
                 `basic_auth` or `api_key`{told}"
            ),
        ),
        WatchState::Unauthorized => found.warning(
            "account",
            format!(
                "the cluster `{name}` requires an account and none is configured: bulks pass unsplit{told}"
            ),
        ),
        WatchState::Starting => found.error(
            "cluster",
            format!("the cluster `{name}` has not been read yet{told}"),
        ),
        WatchState::Unreachable if queued && cluster.snapshot().learnt() => found.warning(
            "cluster",
            format!("the cluster `{name}` does not answer; bulks are queued{told}"),
        ),
        WatchState::Unreachable if !up || queued => {
            found.error("cluster", format!("the cluster `{name}` does not answer{told}"));
        }
        _ if !up && !queued => found.error(
            "cluster",
            format!("no node of the cluster `{name}` is healthy{told}"),
        ),
        _ => {}
    }
}

/// Checks a cluster that only pipelines deliver to. Whatever is wrong there, its documents wait in a queue.
fn look_at_second(cluster: &Cluster, name: &Arc<str>, found: &mut Findings) {
    let what = match cluster.status().state {
        WatchState::Unauthorized => "refuses the gateway's account",
        WatchState::Unreachable | WatchState::Starting => "does not answer",
        WatchState::Watching | WatchState::Off => return,
    };
    found.warning(
        "second_cluster",
        format!("the cluster `{name}` {what}; its documents are queued"),
    );
}

fn answer(well: bool, body: Value) -> Response {
    let code = match well {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, Json(body)).into_response()
}

/// The errors, and the warnings that are worth a look.
#[derive(Default)]
struct Findings {
    errors: Vec<Value>,
    warnings: Vec<Value>,
}

/// What the filters behind the entries lead to.
#[derive(Default)]
struct Promised<'a> {
    clusters: BTreeSet<&'a Arc<str>>,
    /// The clusters among these whose bulks are queued.
    queued: BTreeSet<&'a Arc<str>>,
    queues: BTreeSet<&'a Arc<str>>,
}

// === impl Readiness ===

impl Readiness {
    pub(super) fn of(shared: &GatewayState) -> Self {
        let found = Findings::of(shared);
        let said = found.errors.iter();
        let said = said.filter_map(|error| Some((error["of"].as_str()?, error["why"].as_str()?)));
        let (reasons, about) = said
            .map(|(of, why)| {
                let name = why.split('`').nth(1).unwrap_or_default();
                (why.to_owned(), (of.to_owned(), name.to_owned()))
            })
            .unzip();
        Self { reasons, about }
    }
}

// === impl Findings ===

impl Findings {
    /// Looks at everything that readiness depends on.
    fn of(shared: &GatewayState) -> Self {
        let live = shared.live.load_full();
        let mut found = Self::default();
        if shared.draining.load(Ordering::Relaxed) {
            found.error(
                "draining",
                "the gateway was told to stop and finishes the requests in flight".to_owned(),
            );
        }
        let promised = Promised::of(&live.config);
        for name in promised.queues.iter().copied() {
            if let Some(refusal) = live.queues.get(name).and_then(|queue| queue.log.refuses()) {
                found.error("queue", format!("the queue `{name}` accepts nothing: {refusal}"));
            }
        }
        for group in shared.queues.load().groups() {
            if let Some(cannot) = group.cannot_park() {
                let (queue, name) = (&group.queue.name, &group.settings.group);
                let why = format!(
                    "the queue `{queue}` can park nothing for `{name}`: {}",
                    cannot.why
                );
                found.warning("cannot_park", why);
            }
        }
        for (name, cluster) in &live.clusters {
            match (promised.clusters.contains(name), promised.queued.contains(name)) {
                (true, queued) => look_at(cluster, &live, name, queued, &mut found),
                (false, _) => look_at_second(cluster, name, &mut found),
            }
        }
        found
    }

    fn error(&mut self, of: &str, why: String) {
        self.errors.push(json!({"of": of, "why": why}));
    }

    fn warning(&mut self, of: &str, why: String) {
        self.warnings.push(json!({"of": of, "why": why}));
    }
}

// === impl Promised ===

impl<'a> Promised<'a> {
    fn of(config: &'a Config) -> Self {
        let mut promised = Self::default();
        let routers = config
            .entries
            .iter()
            .filter_map(|entry| config.routers.get(&entry.router));
        let flows = routers
            .flat_map(|router| router.flows())
            .filter_map(|name| config.flows.get(name));
        for action in flows.flat_map(|flow| &flow.filters).map(|filter| &filter.action) {
            match action {
                FilterAction::BulkReshuffle(filter) => {
                    promised.clusters.insert(&filter.cluster);
                    if let Some(queue) = &filter.queue {
                        promised.queues.insert(queue);
                        promised.queued.insert(&filter.cluster);
                    }
                }
                FilterAction::Elasticsearch(filter) => {
                    promised.clusters.insert(&filter.cluster);
                }
            }
        }
        promised
    }
}

const COLOURS: [&str; 3] = ["green", "yellow", "red"];
