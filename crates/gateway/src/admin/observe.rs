//! What is asked for most: counters, what the clusters look like, the configuration.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Json, Response};
use config::show;
use serde_json::{Value, json};

use super::{Desk, endpoints};

/// What there is.
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

pub(super) async fn stats(State(desk): State<Arc<Desk>>) -> Json<Value> {
    let entries: serde_json::Map<String, Value> = desk
        .counts()
        .into_iter()
        .map(|(name, address, counts)| {
            let entry = json!({
                "address": address,
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
    let delivery = desk.shared.delivery_memory.usage();
    Json(json!({
        "uptime_s": desk.started.elapsed().as_secs(),
        "version": env!("CARGO_PKG_VERSION"),
        "gateway": desk.shared.metrics.to_json(),
        "entries": entries,
        "queues": desk.shared.queues.load().to_json(false),
        "memory": {"buffers_bytes": desk.budget.used(), "buffers_bytes_max": desk.budget.limit()},
        "delivery_memory": {"bytes": delivery.held, "bytes_max": delivery.max, "lanes_waiting": delivery.waiting},
    }))
}

pub(super) async fn metrics(State(desk): State<Arc<Desk>>) -> Response {
    let mut text = String::with_capacity(16 << 10);
    desk.shared.metrics.write_prometheus(&mut text);
    desk.write_gauges(&mut text);
    desk.shared.queues.load().write_prometheus(&mut text);
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(CONTENT_TYPE, content_type)], text).into_response()
}

pub(super) async fn elasticsearch(State(desk): State<Arc<Desk>>) -> Json<Value> {
    let live = desk.shared.live.load_full();
    let clusters: serde_json::Map<String, Value> = live
        .clusters
        .iter()
        .map(|(name, cluster)| (name.to_string(), json!(cluster.status())))
        .collect();
    Json(Value::Object(clusters))
}

pub(super) async fn queue_stats(State(desk): State<Arc<Desk>>) -> Json<Value> {
    Json(desk.shared.queues.load().to_json(true))
}

/// As YAML: it can be read by people, and started from once the secrets are filled in.
pub(super) async fn config(State(desk): State<Arc<Desk>>) -> Response {
    let content_type = HeaderValue::from_static("application/yaml; charset=utf-8");
    (
        [(CONTENT_TYPE, content_type)],
        show(&desk.shared.live.load().file),
    )
        .into_response()
}
