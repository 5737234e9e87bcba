//! The most used endpoints: counters, the state of the clusters, the configuration.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Json, Response};
use config::show;
use serde_json::{Value, json};

use super::guard::Asker;
use super::{AdminState, endpoints};

/// Lists the endpoints.
pub(super) async fn index() -> Json<Value> {
    let mut listed = serde_json::Map::new();
    for endpoint in endpoints::all() {
        let name = match endpoint.method {
            "GET" => endpoint.path.to_owned(),
            method => format!("{method} {}", endpoint.path),
        };
        listed.insert(name, json!(endpoint.says));
    }
    Json(json!({
        "name": "tidegate",
        "version": env!("CARGO_PKG_VERSION"),
        "endpoints": listed,
    }))
}

pub(super) async fn stats(
    State(admin): State<Arc<AdminState>>,
    Extension(asker): Extension<Asker>,
) -> Json<Value> {
    let secured = admin.secured();
    let live = admin.shared.live.load_full();
    let clusters_behind = |name: &str| {
        let entry = live.config.entries.iter().find(|entry| *entry.name == *name);
        entry.map(|entry| live.config.clusters_behind(entry))
    };
    let entries: serde_json::Map<String, Value> = admin
        .counts()
        .into_iter()
        .map(|(name, address, counts)| {
            let entry = json!({
                "address": address,
                "tls": secured.contains(&name),
                "clusters": clusters_behind(&name),
                "connections": counts.connections,
                "accepted": counts.accepted,
                "turned_away": counts.turned_away,
                "made_room": counts.made_room,
                "requests": counts.requests,
                "in_flight": counts.in_flight,
                "refused": counts.refused,
                "handshakes_failed": counts.handshakes_failed,
            });
            (name.to_string(), entry)
        })
        .collect();
    let flows: serde_json::Map<String, Value> = live
        .config
        .flows
        .keys()
        .map(|name| {
            let flow = admin.shared.metrics.flow(name);
            (name.to_string(), flow.to_json())
        })
        .collect();
    let delivery = admin.shared.delivery_memory.usage();
    Json(json!({
        "uptime_s": admin.started.elapsed().as_secs(),
        "version": env!("CARGO_PKG_VERSION"),
        "right": asker.right,
        "gateway": admin.shared.metrics.to_json(),
        "entries": entries,
        "flows": flows,
        "queues": admin.shared.queues.load().to_json(false),
        "memory": {"buffers_bytes": admin.budget.used(), "buffers_bytes_max": admin.budget.limit()},
        "delivery_memory": {"bytes": delivery.held, "bytes_max": delivery.max, "lanes_waiting": delivery.waiting},
    }))
}

pub(super) async fn metrics(State(admin): State<Arc<AdminState>>) -> Response {
    let mut text = String::with_capacity(16 << 10);
    admin.shared.metrics.write_prometheus(&mut text);
    admin.write_gauges(&mut text);
    admin.shared.queues.load().write_prometheus(&mut text);
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(CONTENT_TYPE, content_type)], text).into_response()
}

pub(super) async fn elasticsearch(State(admin): State<Arc<AdminState>>) -> Json<Value> {
    let live = admin.shared.live.load_full();
    let clusters: serde_json::Map<String, Value> = live
        .clusters
        .iter()
        .map(|(name, cluster)| (name.to_string(), json!(cluster.status())))
        .collect();
    Json(Value::Object(clusters))
}

/// Shards are in the order of their numbers, and their nodes are positions in the list of nodes.
pub(super) async fn heat(State(admin): State<Arc<AdminState>>) -> Json<Value> {
    let live = admin.shared.live.load_full();
    let since = admin.shared.metrics.ask_for_heat();
    let clusters: serde_json::Map<String, Value> = live
        .clusters
        .iter()
        .map(|(name, cluster)| {
            let heat = admin.shared.metrics.heat(name);
            (name.to_string(), heat.to_json(&cluster.snapshot()))
        })
        .collect();
    Json(json!({"counted_s": since.elapsed().as_secs_f64(), "clusters": clusters}))
}

pub(super) async fn queue_stats(State(admin): State<Arc<AdminState>>) -> Json<Value> {
    Json(admin.shared.queues.load().to_json(true))
}

/// Answers with YAML, which people can read, and which can serve as a configuration file once the secrets are
/// filled in.
pub(super) async fn config(State(admin): State<Arc<AdminState>>) -> Response {
    let content_type = HeaderValue::from_static("application/yaml; charset=utf-8");
    (
        [(CONTENT_TYPE, content_type)],
        show(&admin.shared.live.load().file),
    )
        .into_response()
}
