//! What was accepted.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Deserialize;
use serde_json::Value;

/// Documents that were accepted, by index and id.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) indices: HashMap<String, HashMap<String, Entry>>,
}

/// The last that was accepted of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// As the server counts writes to the document; answers may come in another order.
    version: u64,
    pub(crate) expected: ExpectedDoc,
}

/// What must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpectedDoc {
    /// A source with this digest.
    Source(u64),
    /// A source, whatever it is (after an update).
    Some,
    /// Nothing.
    Nothing,
}

#[derive(Deserialize)]
struct Answer {
    items: Vec<HashMap<String, Item>>,
}

#[derive(Deserialize)]
struct Item {
    _index: String,
    _id: String,
    #[serde(default)]
    _version: u64,
    status: u16,
    error: Option<Value>,
}

// === impl Ledger ===

impl Ledger {
    /// Notes what the answer to a bulk accepted. An answer that isn't one notes nothing.
    pub(crate) fn note(&mut self, body: &[u8], answer: &[u8]) {
        let Ok(answer) = serde_json::from_slice::<Answer>(answer) else {
            return;
        };
        let mut lines = body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.trim_ascii().is_empty());
        for item in answer.items {
            let Some((operation, item)) = item.into_iter().next() else {
                return;
            };
            if lines.next().is_none() {
                return;
            }
            let source = if operation == "delete" { None } else { lines.next() };
            if item.error.is_some() || item.status >= 300 {
                continue;
            }
            let expected = match (operation.as_str(), source) {
                ("delete", _) => ExpectedDoc::Nothing,
                ("update", _) => ExpectedDoc::Some,
                (_, Some(source)) => digest(source).map_or(ExpectedDoc::Some, ExpectedDoc::Source),
                (_, None) => return,
            };
            self.put(
                item._index,
                item._id,
                Entry {
                    version: item._version,
                    expected,
                },
            );
        }
    }

    /// Adds another core's notes.
    pub(crate) fn add(&mut self, other: Ledger) {
        for (index, documents) in other.indices {
            for (id, entry) in documents {
                self.put(index.clone(), id, entry);
            }
        }
    }

    fn put(&mut self, index: String, id: String, entry: Entry) {
        let known = self.indices.entry(index).or_default().entry(id).or_insert(entry);
        if entry.version >= known.version {
            *known = entry;
        }
    }
}

/// A digest of a document's source that doesn't depend on spaces or on the order of keys.
pub(crate) fn digest(source: &[u8]) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    hash(&serde_json::from_slice(source).ok()?, &mut hasher);
    Some(hasher.finish())
}

fn hash(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort();
            (1_u8, keys.len()).hash(hasher);
            for key in keys {
                key.hash(hasher);
                hash(&map[key], hasher);
            }
        }
        Value::Array(items) => {
            (2_u8, items.len()).hash(hasher);
            items.iter().for_each(|item| hash(item, hasher));
        }
        Value::String(text) => (3_u8, text).hash(hasher),
        other => (4_u8, other.to_string()).hash(hasher),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_version_counts_whatever_the_order_of_answers() {
        let item = |operation: &str, version: u64, status: u16| {
            format!(r#"{{"{operation}":{{"_index":"i","_id":"1","_version":{version},"status":{status}}}}}"#)
        };
        let answer = |item: &str| format!(r#"{{"took":1,"errors":false,"items":[{item}]}}"#);
        let index = |value: u32| format!("{{\"index\":{{}}}}\n{{\"n\":{value}}}\n");
        let mut ledger = Ledger::default();
        ledger.note(index(2).as_bytes(), answer(&item("index", 2, 200)).as_bytes());
        ledger.note(index(1).as_bytes(), answer(&item("index", 1, 201)).as_bytes());
        assert_eq!(
            ledger.indices["i"]["1"].expected,
            ExpectedDoc::Source(digest(b"{ \"n\" :2}").unwrap())
        );
        ledger.note(b"{\"delete\":{}}\n", answer(&item("delete", 3, 200)).as_bytes());
        assert_eq!(ledger.indices["i"]["1"].expected, ExpectedDoc::Nothing);
        ledger.note(index(9).as_bytes(), answer(&item("index", 4, 429)).as_bytes());
        assert_eq!(ledger.indices["i"]["1"].expected, ExpectedDoc::Nothing);
    }

    #[test]
    fn digests_see_values_and_not_their_spelling() {
        assert_eq!(
            digest(br#"{"a":[1,"x"],"b":null}"#),
            digest(br#" {"b":null, "a":[1, "\u0078"]}"#)
        );
        assert_ne!(digest(br#"{"a":1}"#), digest(br#"{"a":"1"}"#));
        assert_eq!(digest(b"no json"), None);
    }
}
