//! Documents that are written one by one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::bulk::minted_id;
use super::http::Head;
use super::index::{Index, Write, WriteOutcome};
use super::refusal::{self, RequestError};
use super::state::ClusterContext;

/// Writes one document, as `operation` of a bulk would, and returns the answer; without an id an id is made.
pub(super) fn write(
    shared: &ClusterContext,
    node: usize,
    operation: &'static str,
    (name, id): (&str, Option<&str>),
    head: &Head,
    body: &[u8],
) -> (u16, Value) {
    if operation != "delete" && !serde_json::from_slice::<Value>(body).is_ok_and(|body| body.is_object()) {
        let reason = "request body is required, and has to be an object";
        let error = json!({"type": "parse_exception", "reason": reason});
        return (400, json!({"error": error, "status": 400}));
    }
    let index = match writable(shared, name) {
        Ok(index) => index,
        Err(error) => return error.answer(),
    };
    let routing = head.parameter("routing");
    if index.routing_required && routing.is_none() {
        return match id {
            None if shared.spec.flavour.wants_an_id_to_miss_a_routing() => refusal::null_id(),
            _ => (
                400,
                json!({"error": refusal::routing_missing(name, id), "status": 400}),
            ),
        };
    }
    shared.tally(node).writes.fetch_add(1, Ordering::Relaxed);
    shared.capacity.take(&shared.behaviour(), 1);
    let made;
    let id = match id {
        Some(id) => id,
        None => {
            made = minted_id(shared.seq_no.fetch_add(1, Ordering::Relaxed));
            &made
        }
    };
    let creates = operation == "index" && head.parameter("op_type").as_deref() == Some("create");
    let operation = if creates { "create" } else { operation };
    let write = Write {
        operation,
        id,
        routing: routing.as_deref(),
        if_seq_no: head.parameter("if_seq_no").and_then(|number| number.parse().ok()),
        source: body,
    };
    let outcome = match &index.store {
        Some(store) => store.lock().apply(&write, &index.name),
        None => counted(shared, &index, operation),
    };
    match outcome {
        WriteOutcome::Done {
            status,
            result,
            version,
            seq_no,
        } => {
            let mut answer = json!({"_index": index.name, "_id": id, "_version": version, "result": result});
            if shared.spec.flavour.has_types() {
                answer["_type"] = json!("_doc");
            }
            answer["_shards"] = json!({"total": 1, "successful": 1, "failed": 0});
            answer["_seq_no"] = json!(seq_no);
            answer["_primary_term"] = json!(1);
            (status, answer)
        }
        WriteOutcome::Failed { status, error } => (status, json!({"error": error, "status": status})),
    }
}

/// Returns the outcome in an index that counts documents and keeps none.
fn counted(shared: &ClusterContext, index: &Index, operation: &str) -> WriteOutcome {
    index.counted.fetch_add(1, Ordering::Relaxed);
    let (status, result) = match operation {
        "update" => (200, "updated"),
        "delete" => (200, "deleted"),
        _ => (201, "created"),
    };
    WriteOutcome::Done {
        status,
        result,
        version: 1,
        seq_no: shared.seq_no.fetch_add(1, Ordering::Relaxed),
    }
}

/// Returns the index that a document is written to.
fn writable<'a>(shared: &ClusterContext, name: &'a str) -> Result<Arc<Index>, RequestError<'a>> {
    let refused = refusal::of_name(&shared.state(), name);
    if let Some((status, error)) = refused {
        return Err(RequestError::Refused { status, error });
    }
    let index = find(shared, name).ok_or(RequestError::NoSuchIndex(name))?;
    if let Some((status, error)) = &index.refusing {
        return Err(RequestError::Refused {
            status: *status,
            error: serde_json::from_str(error).unwrap_or_default(),
        });
    }
    Ok(index)
}

/// Returns the index of this name; creates it if it is missing and may be created.
fn find(shared: &ClusterContext, name: &str) -> Option<Arc<Index>> {
    if let Some(index) = shared.state().index(name) {
        return Some(Arc::clone(index));
    }
    if !shared.spec.auto_create {
        return None;
    }
    shared.change(|state| {
        if state.index(name).is_none() {
            state.create(name, 1);
        }
    });
    shared.state().index(name).cloned()
}
