//! The admin port: a small HTTP API on a thread of its own, off the data path. Loopback unless told otherwise.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, put};
use axum::{Router, serve};
use cluster::WatchState;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tokio::sync::oneshot;
use wire::{Budget, ServerCounts};

use crate::admin_listener::Few;
use crate::config::show;
use crate::listening::Listeners;
use crate::live::Shared;
use crate::request_id::RequestIds;
use crate::switches::NotSwitched;
use crate::switches::admin::{self, Refused};

/// The running admin port. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Admin {
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

/// What the endpoints look at.
struct Desk {
    shared: Arc<Shared>,
    listeners: Arc<Mutex<Listeners>>,
    budget: Arc<Budget>,
    started: Instant,
}

impl Admin {
    /// Listens at `binding` and serves on a thread of its own.
    pub(crate) fn start(
        binding: SocketAddr,
        shared: Arc<Shared>,
        listeners: Arc<Mutex<Listeners>>,
        budget: Arc<Budget>,
    ) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(binding)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let desk = Arc::new(Desk {
            shared,
            listeners,
            budget,
            started: Instant::now(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    let listener = match tokio::net::TcpListener::from_std(listener) {
                        Ok(listener) => listener,
                        Err(error) => return tracing::error!(%error, "admin port failed"),
                    };
                    let server = serve(Few::new(listener), router(desk));
                    tokio::select! {
                        served = server => if let Err(error) = served {
                            tracing::error!(%error, "admin port failed");
                        },
                        _ = stopped => {}
                    }
                });
            })?;
        Ok(Self { address, _stop: stop })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

fn router(desk: Arc<Desk>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/health", get(health))
        .route("/stats", get(stats))
        .route("/metrics", get(metrics))
        .route("/elasticsearch", get(elasticsearch))
        .route("/queue/stats", get(queue_stats))
        .route("/dead_letters", get(dead_letters))
        .route("/switches", get(switches))
        .route("/switches/{cluster}", put(switch))
        .route("/config", get(config))
        .layer(from_fn_with_state(Arc::clone(&desk), authorize))
        .fallback(not_found)
        .with_state(desk)
}

/// With a token configured, everybody needs it. Without one the port is on loopback, and a page in somebody's browser
/// must not reach it by a name of its own making: only loopback names are answered (DNS rebinding).
async fn authorize(State(desk): State<Arc<Desk>>, request: Request, next: Next) -> Response {
    let live = desk.shared.live.load_full();
    let admitted = match &live.config.admin.token {
        Some(token) => request.headers().get(AUTHORIZATION).is_some_and(|given| {
            given
                .as_bytes()
                .strip_prefix(b"Bearer ")
                .is_some_and(|given| given.ct_eq(token.expose().as_bytes()).into())
        }),
        None => request
            .headers()
            .get(axum::http::header::HOST)
            .and_then(|host| host.to_str().ok())
            .is_none_or(is_loopback_name),
    };
    if admitted {
        return next.run(request).await;
    }
    let mut refusal = (
        StatusCode::UNAUTHORIZED,
        Json(json!({"error": {"type": "security_exception", "reason": "send the admin token: Authorization: Bearer TOKEN"}, "status": 401})),
    )
        .into_response();
    refusal
        .headers_mut()
        .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    refusal
}

fn is_loopback_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

async fn not_found() -> Response {
    let reason = "no such endpoint; GET / lists them";
    let body = json!({"error": {"type": "not_found", "reason": reason}, "status": 404});
    (StatusCode::NOT_FOUND, Json(body)).into_response()
}

async fn index() -> Json<Value> {
    Json(json!({
        "name": "tidegate",
        "version": env!("CARGO_PKG_VERSION"),
        "endpoints": {
            "/health": "whether the gateway can do its work: 200 or 503",
            "/stats": "counters, entries, memory",
            "/metrics": "the same for Prometheus",
            "/elasticsearch": "each cluster: nodes and their health, versions, routes, hit rate",
            "/queue/stats": "each queue: accepted documents, and for each consumer group indexed, dead, pending, lag, lanes",
            "/dead_letters": "operations that a cluster would not take: ?queue=NAME, &from=POSITION, &limit=N (at most 10000)",
            "/switches": "what has been switched at run time; PUT /switches/CLUSTER switches",
            "/config": "the configuration in force, secrets masked",
        },
    }))
}

/// `green`: every cluster is watched. `yellow`: some cluster isn't, its bulks pass whole or go by an old topology.
/// `red` (503): no node of some cluster is well.
async fn health(State(desk): State<Arc<Desk>>) -> Response {
    let live = desk.shared.live.load_full();
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
    let code = if worst == 2 {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    (
        code,
        Json(json!({"status": COLOURS[worst], "clusters": clusters})),
    )
        .into_response()
}

async fn stats(State(desk): State<Arc<Desk>>) -> Json<Value> {
    let entries: serde_json::Map<String, Value> = desk
        .counts()
        .into_iter()
        .map(|(name, address, counts)| {
            let entry = json!({
                "address": address,
                "connections": counts.connections,
                "accepted": counts.accepted,
                "turned_away": counts.turned_away,
                "requests": counts.requests,
                "in_flight": counts.in_flight,
                "refused": counts.refused,
                "handshakes_failed": counts.handshakes_failed,
            });
            (name.to_string(), entry)
        })
        .collect();
    Json(json!({
        "uptime_s": desk.started.elapsed().as_secs(),
        "version": env!("CARGO_PKG_VERSION"),
        "gateway": desk.shared.metrics.to_json(),
        "entries": entries,
        "queues": desk.shared.queues.to_json(false),
        "memory": {"buffers_bytes": desk.budget.used(), "buffers_bytes_max": desk.budget.limit()},
    }))
}

async fn metrics(State(desk): State<Arc<Desk>>) -> Response {
    let mut text = String::with_capacity(16 << 10);
    desk.shared.metrics.write_prometheus(&mut text);
    desk.write_gauges(&mut text);
    desk.shared.queues.write_prometheus(&mut text);
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(CONTENT_TYPE, content_type)], text).into_response()
}

async fn elasticsearch(State(desk): State<Arc<Desk>>) -> Json<Value> {
    let live = desk.shared.live.load_full();
    let clusters: serde_json::Map<String, Value> = live
        .clusters
        .iter()
        .map(|(name, cluster)| (name.to_string(), json!(cluster.status())))
        .collect();
    Json(Value::Object(clusters))
}

async fn queue_stats(State(desk): State<Arc<Desk>>) -> Json<Value> {
    Json(desk.shared.queues.to_json(true))
}

/// What to list.
#[derive(serde::Deserialize)]
struct Wanted {
    queue: String,
    #[serde(default)]
    from: u64,
    #[serde(default)]
    limit: Option<usize>,
}

async fn dead_letters(
    State(desk): State<Arc<Desk>>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Response {
    let refused = |code: StatusCode, kind: &str, reason: String| {
        let body = json!({"error": {"type": kind, "reason": reason}, "status": code.as_u16()});
        (code, Json(body)).into_response()
    };
    let Query(wanted) = match wanted {
        Ok(wanted) => wanted,
        Err(error) => {
            return refused(
                StatusCode::BAD_REQUEST,
                "illegal_argument_exception",
                error.body_text(),
            );
        }
    };
    let Some(queue) = desk.shared.queues.get(&wanted.queue).cloned() else {
        let reason = format!("there is no queue {}", wanted.queue);
        return refused(StatusCode::NOT_FOUND, "not_found", reason);
    };
    let limit = wanted.limit.unwrap_or(LETTERS).min(LETTERS_MAX);
    let listed = tokio::task::spawn_blocking(move || queue.dead_letters.list(wanted.from, limit)).await;
    let failed = |reason: String| refused(StatusCode::INTERNAL_SERVER_ERROR, "exception", reason);
    match listed {
        Ok(Ok(letters)) => Json(letters).into_response(),
        Ok(Err(error)) => failed(error.to_string()),
        Err(error) => failed(error.to_string()),
    }
}

async fn switches(State(desk): State<Arc<Desk>>) -> Json<Value> {
    let live = desk.shared.live.load_full();
    Json(admin::list(&live.config, &desk.shared.switches))
}

async fn switch(
    State(desk): State<Arc<Desk>>,
    Path(cluster): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let request_id = RequestIds::new(fastrand::u32(..)).of(&headers);
    let switched = tokio::task::spawn_blocking(move || {
        let live = desk.shared.live.load_full();
        admin::set(&live.config, &desk.shared.switches, &cluster, &body, &request_id)
    });
    let (code, kind, reason) = match switched.await {
        Ok(Ok(now)) => return Json(now).into_response(),
        Ok(Err(error)) => {
            let (code, kind) = match &error {
                Refused::NoCluster(_) => (StatusCode::NOT_FOUND, "not_found"),
                Refused::NotSwitched(NotSwitched::Bad(_)) => {
                    (StatusCode::BAD_REQUEST, "illegal_argument_exception")
                }
                Refused::NotSwitched(NotSwitched::Unkept { .. }) => {
                    (StatusCode::INTERNAL_SERVER_ERROR, "exception")
                }
            };
            (code, kind, error.to_string())
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, "exception", error.to_string()),
    };
    let body = json!({"error": {"type": kind, "reason": reason}, "status": code.as_u16()});
    (code, Json(body)).into_response()
}

/// As YAML: it can be read by people, and started from once the secrets are filled in.
async fn config(State(desk): State<Arc<Desk>>) -> Response {
    let content_type = HeaderValue::from_static("application/yaml; charset=utf-8");
    (
        [(CONTENT_TYPE, content_type)],
        show(&desk.shared.live.load().file),
    )
        .into_response()
}

impl Desk {
    fn counts(&self) -> Vec<(Arc<str>, SocketAddr, ServerCounts)> {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.counts()
    }

    fn write_gauges(&self, out: &mut String) {
        use std::fmt::Write as _;
        // Writing to a String cannot fail.
        let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, f64)]| {
            let _ = writeln!(
                out,
                "# HELP tidegate_{name} {help}\n# TYPE tidegate_{name} {kind}"
            );
            for (labels, value) in samples {
                let _ = writeln!(out, "tidegate_{name}{labels} {value}");
            }
        };
        let counts = self.counts();
        let by_entry = |of: fn(&ServerCounts) -> u64| -> Vec<(String, f64)> {
            let sample = |(name, _, counts): &(Arc<str>, SocketAddr, ServerCounts)| {
                (format!("{{entry=\"{}\"}}", escape(name)), of(counts) as f64)
            };
            counts.iter().map(sample).collect()
        };
        family(
            "connections",
            "gauge",
            "Open client connections.",
            &by_entry(|c| c.connections),
        );
        family(
            "in_flight",
            "gauge",
            "Requests being answered now.",
            &by_entry(|c| c.in_flight),
        );
        family(
            "accepted_total",
            "counter",
            "Client connections accepted.",
            &by_entry(|c| c.accepted),
        );
        family(
            "turned_away_total",
            "counter",
            "Client connections closed as they came: there were max_concurrency already.",
            &by_entry(|c| c.turned_away),
        );
        family(
            "handshakes_failed_total",
            "counter",
            "TLS handshakes with clients that failed.",
            &by_entry(|c| c.handshakes_failed),
        );
        family(
            "buffers_bytes",
            "gauge",
            "Memory in pooled buffers, idle ones included.",
            &[(String::new(), self.budget.used() as f64)],
        );
        family(
            "buffers_bytes_max",
            "gauge",
            "Bound of tidegate_buffers_bytes.",
            &[(String::new(), self.budget.limit() as f64)],
        );
        let live = self.shared.live.load_full();
        let statuses: Vec<_> = live
            .clusters
            .iter()
            .map(|(name, cluster)| (escape(name), cluster.status()))
            .collect();
        let by_cluster = |of: &dyn Fn(&cluster::Status) -> Option<f64>| -> Vec<(String, f64)> {
            let sample = |(name, status): &(String, cluster::Status)| {
                Some((format!("{{cluster=\"{name}\"}}"), of(status)?))
            };
            statuses.iter().filter_map(sample).collect()
        };
        family(
            "cluster_polled_ago_seconds",
            "gauge",
            "Since the cluster last answered the watch.",
            &by_cluster(&|s| s.polled_ago_ms.map(|ms| ms as f64 / 1e3)),
        );
        family(
            "cluster_generation",
            "gauge",
            "Snapshots of the topology so far.",
            &by_cluster(&|s| Some(s.generation as f64)),
        );
        family(
            "cluster_predictions_checked_total",
            "counter",
            "Predicted shards compared with the cluster's own answer.",
            &by_cluster(&|s| Some(s.predictions.checked as f64)),
        );
        family(
            "cluster_predictions_right_total",
            "counter",
            "Predicted shards that the cluster's own answer agreed with.",
            &by_cluster(&|s| Some(s.predictions.right as f64)),
        );
        let gauges = admin::gauges(&live.config, &self.shared.switches);
        let by_panel = |of: fn(&admin::Gauges) -> usize| -> Vec<(String, f64)> {
            let sample = |(name, gauges): &(Arc<str>, admin::Gauges)| {
                (format!("{{cluster=\"{}\"}}", escape(name)), of(gauges) as f64)
            };
            gauges.iter().map(sample).collect()
        };
        family(
            "switches",
            "gauge",
            "Switches that were set at run time and come before the configuration.",
            &by_panel(|gauges| gauges.switches),
        );
        family(
            "combining_filters",
            "gauge",
            "Filters at which small parts of different bulks travel together now.",
            &by_panel(|gauges| gauges.combining),
        );
        family(
            "directing_filters",
            "gauge",
            "Filters that give documents with neither id nor routing a shard now, but for indices that are switched by themselves.",
            &by_panel(|gauges| gauges.directing),
        );
        let by_node = |value: fn(&cluster::HealthStatus) -> f64| -> Vec<(String, f64)> {
            let nodes = statuses.iter().flat_map(|(cluster, status)| {
                status.nodes.iter().map(move |node| {
                    let labels = format!("{{cluster=\"{cluster}\",node=\"{}\"}}", escape(&node.name));
                    (labels, value(&node.health))
                })
            });
            nodes.collect()
        };
        family(
            "node_up",
            "gauge",
            "Whether a node is in the rotation.",
            &by_node(|health| f64::from(u8::from(health.up))),
        );
        family(
            "node_slowness",
            "gauge",
            "How many times longer a node's answers take than the cluster's to requests of the same size.",
            &by_node(|health| health.slowness.into()),
        );
        family(
            "node_in_flight",
            "gauge",
            "Exchanges under way with a node.",
            &by_node(|health| health.in_flight.into()),
        );
        family(
            "node_limit",
            "gauge",
            "Requests from queues that a node is sent at once, as its answers have shown.",
            &by_node(|health| health.limit as f64),
        );
    }
}

/// As the text format wants label values.
fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Dead letters listed at once, unless more are asked for.
const LETTERS: usize = 100;
const LETTERS_MAX: usize = 10_000;

const COLOURS: [&str; 3] = ["green", "yellow", "red"];

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
