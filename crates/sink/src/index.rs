//! One index: the places of its primaries and, if the cluster stores documents, its documents.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::route::{Formula, shard_of};

/// A stored document.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// The version: 1 at creation, raised by each write.
    pub version: u64,
    /// The document's sequence number in the index.
    pub seq_no: u64,
    /// The source as it was sent.
    pub source: String,
    /// The routing with which it was written.
    pub routing: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Index {
    pub(super) name: String,
    pub(super) uuid: String,
    pub(super) closed: bool,
    /// The mapping's `_routing.required`.
    pub(super) routing_required: bool,
    /// The status and `error` with which every write to it is refused.
    pub(super) refusing: Option<(u16, String)>,
    /// The node of each shard's primary; `None` when unassigned.
    pub(super) primaries: Vec<Option<usize>>,
    pub(super) formula: Formula,
    pub(super) store: Option<Arc<Mutex<Store>>>,
    /// The writes taken, where documents are only counted.
    pub(super) counted: Arc<AtomicU64>,
}

/// Documents, and the versions of deleted ones.
#[derive(Debug, Default, Clone)]
pub(super) struct Store {
    docs: BTreeMap<String, Stored>,
    next_seq_no: u64,
}

/// A single write, as an action line asks for it.
#[derive(Debug)]
pub(super) struct Write<'a> {
    pub(super) operation: &'static str,
    pub(super) id: &'a str,
    pub(super) routing: Option<&'a str>,
    /// The sequence number that the document must have now.
    pub(super) if_seq_no: Option<u64>,
    pub(super) source: &'a [u8],
}

/// The outcome of a write.
#[derive(Debug)]
pub(super) enum WriteOutcome {
    Done {
        status: u16,
        result: &'static str,
        version: u64,
        seq_no: u64,
    },
    Failed {
        status: u16,
        error: Value,
    },
}

// === impl Index ===

impl Index {
    pub(super) fn new(
        name: &str,
        uuid: String,
        primaries: Vec<Option<usize>>,
        formula: Formula,
        store: bool,
    ) -> Index {
        let store = store.then(Arc::default);
        Index {
            name: name.to_owned(),
            uuid,
            closed: false,
            routing_required: false,
            refusing: None,
            primaries,
            formula,
            store,
            counted: Arc::default(),
        }
    }

    pub(super) fn shards(&self) -> u32 {
        self.primaries.len() as u32
    }

    pub(super) fn shard(&self, routing: &str) -> u32 {
        shard_of(routing, self.shards(), self.formula)
    }

    pub(super) fn docs(&self) -> BTreeMap<String, Stored> {
        self.with_store(|store| store.docs.clone()).unwrap_or_default()
    }

    pub(super) fn doc(&self, id: &str) -> Option<Stored> {
        self.with_store(|store| store.docs.get(id).cloned()).flatten()
    }

    /// Passes each document that fits to `see`, with its number among them, and returns how many there are.
    /// Documents that are only counted all fit, and none is passed.
    pub(super) fn each_match(
        &self,
        fits: &dyn Fn(&str, &Stored) -> bool,
        see: &mut dyn FnMut(usize, &str, &Stored),
    ) -> usize {
        let matches = self.with_store(|store| {
            let matching = store.docs.iter().filter(|(id, doc)| fits(id, doc));
            matching
                .enumerate()
                .map(|(at, (id, doc))| see(at, id, doc))
                .count()
        });
        matches.unwrap_or_else(|| self.counted.load(Ordering::Relaxed) as usize)
    }

    fn with_store<T>(&self, look: impl FnOnce(&Store) -> T) -> Option<T> {
        self.store.as_ref().map(|store| look(&store.lock()))
    }
}

// === impl Store ===

impl Store {
    pub(super) fn apply(&mut self, write: &Write<'_>, index: &str) -> WriteOutcome {
        let now = self.docs.get(write.id);
        if let Some(wanted) = write.if_seq_no
            && now.map(|doc| doc.seq_no) != Some(wanted)
        {
            return conflict(index, write.id, &format!("required seqNo [{wanted}]"));
        }
        match write.operation {
            "create" if now.is_some() => conflict(index, write.id, "document already exists"),
            "delete" => self.delete(write),
            "update" => self.update(write, index),
            _ => {
                let source = String::from_utf8_lossy(write.source).into_owned();
                self.put(write, source)
            }
        }
    }

    fn put(&mut self, write: &Write<'_>, source: String) -> WriteOutcome {
        let seq_no = self.seq_no();
        let version = self.docs.get(write.id).map_or(1, |doc| doc.version + 1);
        let routing = write.routing.map(str::to_owned);
        self.docs.insert(
            write.id.to_owned(),
            Stored {
                version,
                seq_no,
                source,
                routing,
            },
        );
        let (status, result) = if version == 1 {
            (201, "created")
        } else {
            (200, "updated")
        };
        WriteOutcome::Done {
            status,
            result,
            version,
            seq_no,
        }
    }

    fn delete(&mut self, write: &Write<'_>) -> WriteOutcome {
        let seq_no = self.seq_no();
        match self.docs.remove(write.id) {
            Some(doc) => WriteOutcome::Done {
                status: 200,
                result: "deleted",
                version: doc.version + 1,
                seq_no,
            },
            None => WriteOutcome::Done {
                status: 404,
                result: "not_found",
                version: 1,
                seq_no,
            },
        }
    }

    fn update(&mut self, write: &Write<'_>, index: &str) -> WriteOutcome {
        let Ok(request) = serde_json::from_slice::<Value>(write.source) else {
            return WriteOutcome::Failed {
                status: 400,
                error: json!({"type": "x_content_parse_exception", "reason": "not JSON"}),
            };
        };
        let Some(doc) = self.docs.get(write.id) else {
            let first = if request["doc_as_upsert"] == true {
                &request["doc"]
            } else {
                &request["upsert"]
            };
            if first.is_null() {
                let reason = format!("[{}]: document missing", write.id);
                return WriteOutcome::Failed {
                    status: 404,
                    error: json!({"type": "document_missing_exception", "reason": reason, "index": index}),
                };
            }
            return self.put(write, first.to_string());
        };
        let before: Value = serde_json::from_str(&doc.source).unwrap_or(Value::Null);
        let mut after = before.clone();
        match request.get("script") {
            // Whatever a script says, it is executed as a counter.
            Some(_) => after["n"] = json!(after["n"].as_u64().unwrap_or_default() + 1),
            None => overlay(&mut after, &request["doc"]),
        }
        if after == before {
            return WriteOutcome::Done {
                status: 200,
                result: "noop",
                version: doc.version,
                seq_no: doc.seq_no,
            };
        }
        self.put(write, after.to_string())
    }

    fn seq_no(&mut self) -> u64 {
        self.next_seq_no += 1;
        self.next_seq_no - 1
    }
}

/// Merges objects key by key; anything else replaces.
fn overlay(onto: &mut Value, from: &Value) {
    match (onto, from) {
        (Value::Object(onto), Value::Object(from)) => {
            for (key, value) in from {
                overlay(onto.entry(key).or_insert(Value::Null), value);
            }
        }
        (onto, from) => *onto = from.clone(),
    }
}

fn conflict(index: &str, id: &str, why: &str) -> WriteOutcome {
    let reason = format!("[{id}]: version conflict, {why}");
    let error = json!({"type": "version_conflict_engine_exception", "reason": reason, "index": index});
    WriteOutcome::Failed { status: 409, error }
}
