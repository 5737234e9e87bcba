//! The ledger of accepted documents.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Deserialize;
use serde_json::Value;

/// The documents that were accepted, by index and id.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) indices: HashMap<String, HashMap<String, LastWrite>>,
    /// Number of answers that accepted something but do not say what.
    pub(crate) unread: u64,
}

/// The last accepted write of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastWrite {
    /// The server's version of the document; answers may come in another order. A queue answers before there
    /// is a version, with -1.
    version: i64,
    pub(crate) expected: ExpectedDoc,
}

/// The state in which verification must find a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpectedDoc {
    /// A source with this digest.
    Source(u64),
    /// Any source (after an update).
    Some,
    /// No document.
    Nothing,
    /// Unknown: requests wrote different values to the document, and no answer says which was the last.
    Unknown,
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
    _version: i64,
    status: u16,
    error: Option<Value>,
}

// === impl Ledger ===

impl Ledger {
    /// Notes what the answer to a bulk accepted. A successful answer that cannot be read is counted.
    pub(crate) fn note(&mut self, body: &[u8], status: u16, answer: &[u8]) {
        let succeeded = (200..300).contains(&status);
        let answer = serde_json::from_slice::<Answer>(answer).ok();
        let read = answer.and_then(|answer| self.note_items(body, answer));
        if succeeded && read.is_none() {
            self.unread += 1;
        }
    }

    /// Notes the items. Returns none if the answer does not belong to this body.
    fn note_items(&mut self, body: &[u8], answer: Answer) -> Option<()> {
        let mut lines = body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.trim_ascii().is_empty());
        // Within a request the last line of a document counts, whether or not the answer has versions.
        let mut last: HashMap<(String, String), LastWrite> = HashMap::with_capacity(answer.items.len());
        for item in answer.items {
            let (operation, item) = item.into_iter().next()?;
            lines.next()?;
            let source = if operation == "delete" { None } else { lines.next() };
            if item.error.is_some() || item.status >= 300 {
                continue;
            }
            let expected = match (operation.as_str(), source) {
                ("delete", _) => ExpectedDoc::Nothing,
                ("update", _) => ExpectedDoc::Some,
                (_, Some(source)) => digest(source).map_or(ExpectedDoc::Some, ExpectedDoc::Source),
                (_, None) => return None,
            };
            let version = item._version;
            last.insert((item._index, item._id), LastWrite { version, expected });
        }
        for ((index, id), entry) in last {
            self.put(index, id, entry);
        }
        Some(())
    }

    /// Adds another core's notes.
    pub(crate) fn add(&mut self, other: Ledger) {
        self.unread += other.unread;
        for (index, documents) in other.indices {
            for (id, entry) in documents {
                self.put(index.clone(), id, entry);
            }
        }
    }

    fn put(&mut self, index: String, id: String, entry: LastWrite) {
        let known = self.indices.entry(index).or_default().entry(id).or_insert(entry);
        match (known.version, entry.version) {
            (1.., 1..) if entry.version >= known.version => *known = entry,
            (1.., 1..) => {}
            _ if entry.expected == known.expected => {}
            _ => known.expected = ExpectedDoc::Unknown,
        }
    }
}

/// Returns a digest of a document's source that does not depend on spaces or on the order of keys.
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
        let item = |operation: &str, version: i64, status: u16| {
            format!(r#"{{"{operation}":{{"_index":"i","_id":"1","_version":{version},"status":{status}}}}}"#)
        };
        let answer = |item: &str| format!(r#"{{"took":1,"errors":false,"items":[{item}]}}"#);
        let index = |value: u32| format!("{{\"index\":{{}}}}\n{{\"n\":{value}}}\n");
        let mut ledger = Ledger::default();
        ledger.note(
            index(2).as_bytes(),
            200,
            answer(&item("index", 2, 200)).as_bytes(),
        );
        ledger.note(
            index(1).as_bytes(),
            200,
            answer(&item("index", 1, 201)).as_bytes(),
        );
        assert_eq!(
            ledger.indices["i"]["1"].expected,
            ExpectedDoc::Source(digest(b"{ \"n\" :2}").unwrap())
        );
        ledger.note(
            b"{\"delete\":{}}\n",
            200,
            answer(&item("delete", 3, 200)).as_bytes(),
        );
        assert_eq!(ledger.indices["i"]["1"].expected, ExpectedDoc::Nothing);
        ledger.note(
            index(9).as_bytes(),
            200,
            answer(&item("index", 4, 429)).as_bytes(),
        );
        assert_eq!(ledger.indices["i"]["1"].expected, ExpectedDoc::Nothing);
    }

    #[test]
    fn queued_answers_have_no_versions_and_their_documents_are_noted_all_the_same() {
        let item = r#"{"index":{"_index":"i","_id":"1","_version":-1,"status":201}}"#;
        let queued = format!(r#"{{"items":[{item},{item}]}}"#);
        let body = "{\"index\":{}}\n{\"n\":1}\n{\"index\":{}}\n{\"n\":2}\n";
        let mut ledger = Ledger::default();
        ledger.note(body.as_bytes(), 200, queued.as_bytes());
        let last = ExpectedDoc::Source(digest(b"{\"n\":2}").unwrap());
        assert_eq!(
            ledger.indices["i"]["1"].expected, last,
            "the last line of a request"
        );
        ledger.note(body.as_bytes(), 200, queued.as_bytes());
        assert_eq!(ledger.indices["i"]["1"].expected, last, "the same once more");
        let other = body.replace('2', "3");
        ledger.note(other.as_bytes(), 200, queued.as_bytes());
        assert_eq!(ledger.indices["i"]["1"].expected, ExpectedDoc::Unknown);
    }

    #[test]
    fn an_answer_that_accepts_and_does_not_say_what_is_counted() {
        let mut ledger = Ledger::default();
        ledger.note(b"{\"index\":{}}\n{}\n", 200, b"{\"took\":1}");
        ledger.note(b"{\"index\":{}}\n{}\n", 503, b"not now");
        assert_eq!(ledger.unread, 1);
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
