//! Asks a cluster what it has of some documents, for tools that look: in real time, and never for their
//! sources.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Cluster, NodeChoice, PickReason};
use config::Sending;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};
use wire::{Outgoing, SendError};

use super::{Message, Outbound, Purpose};
use crate::request_id::RequestId;

/// A document of a concrete index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DocumentName {
    pub(crate) index: String,
    pub(crate) id: String,
    pub(crate) routing: Option<String>,
}

/// Why nothing is known about the documents.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookError {
    #[error("the cluster has not been reached yet")]
    NotLearnt,
    #[error("the system gives no runtime: {0}")]
    Runtime(#[from] io::Error),
    #[error("no answer within {} s", WITHIN.as_secs())]
    Late,
    #[error("{0}")]
    Send(#[from] SendError),
    #[error("{status}: {words}")]
    Refused { status: StatusCode, words: String },
}

/// Asks with `_mget` and the gateway's account. Returns one answer for each name. Blocks for at most two
/// seconds.
pub(crate) fn look(cluster: &Arc<Cluster>, names: &[DocumentName]) -> Result<Vec<Value>, LookError> {
    let snapshot = cluster.snapshot();
    if !snapshot.learnt() {
        return Err(LookError::NotLearnt);
    }
    let docs = names.iter().map(|name| {
        let mut doc = json!({"_index": name.index, "_id": name.id});
        if let Some(routing) = &name.routing {
            doc["routing"] = json!(routing);
        }
        doc
    });
    let body = json!({"docs": docs.collect::<Vec<_>>()}).to_string();
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(account) = cluster.config().credentials.authorization().ok().flatten() {
        headers.insert(AUTHORIZATION, account);
    }
    let message = Message {
        request_id: &RequestId::new(HeaderValue::from_static("tidegate-trace")),
        purpose: Purpose::Ask,
        method: &Method::POST,
        target: "/_mget?_source=false&realtime=true",
        headers: &headers,
    };
    let asked = wire::run_local(MEMORY, |worker| async move {
        let pool = worker.pool().clone();
        let choice = NodeChoice::default();
        let outbound = Outbound::new(Arc::clone(cluster), choice, &sending(), 1, pool, Arc::default());
        let node = outbound.pick(&snapshot, PickReason::Documents, &[]);
        let answer = outbound.whole(
            &node,
            message,
            Outgoing::from(body.into_bytes()),
            outbound.deadline(),
        );
        tokio::time::timeout(WITHIN, answer)
            .await
            .map(|answer| answer.map(|(head, body)| (head.status, body.to_vec())))
    });
    let (status, body) = asked?.map_err(|_| LookError::Late)??;
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    match answer["docs"].as_array() {
        Some(docs) if status == StatusCode::OK && docs.len() == names.len() => Ok(docs.clone()),
        _ => {
            let words = String::from_utf8_lossy(&body).chars().take(WORDS).collect();
            Err(LookError::Refused { status, words })
        }
    }
}

fn sending() -> Sending {
    Sending {
        connections_per_node_max: 1,
        retry_count_max: 0,
        retry_delay: Duration::ZERO,
        connect_timeout: WITHIN,
        response_timeout: WITHIN,
        write_timeout: WITHIN,
        idle_timeout: WITHIN,
    }
}

const WITHIN: Duration = Duration::from_secs(2);
/// The memory for answers, in bytes.
const MEMORY: usize = 16 << 20;
/// The number of characters of a refusal that are reported.
const WORDS: usize = 500;
