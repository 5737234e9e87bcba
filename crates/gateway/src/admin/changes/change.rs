//! One change, as followers get it.

use serde_json::{Value, json};

/// Something that has become different.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    pub(super) kind: &'static str,
    pub(super) level: Level,
    /// The change in a sentence.
    pub(super) text: String,
    /// More fields: an object.
    pub(super) details: Value,
}

/// How a change is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Info,
    /// Something is well again.
    Good,
    Warning,
    Error,
}

// === impl Change ===

impl Change {
    pub(super) fn new(kind: &'static str, level: Level, text: String, details: Value) -> Self {
        Self {
            kind,
            level,
            text,
            details,
        }
    }

    /// Writes the change as a line of JSON. Clusters choose some of its texts, so their length is limited.
    pub(super) fn to_line(&self, id: u64, at_ms: u64) -> String {
        let mut line = json!({
            "id": id,
            "at_ms": at_ms,
            "kind": self.kind,
            "level": self.level.as_str(),
            "text": shortened(&self.text, TEXT_CHARS_MAX),
        });
        let details = self.details.to_string();
        if details.len() > DETAILS_BYTES_MAX {
            line["cut"] = json!(true);
        } else if let (Some(line), Some(details)) = (line.as_object_mut(), self.details.as_object()) {
            line.extend(details.clone());
        }
        line.to_string()
    }
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Good => "good",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// Returns the beginning of a text, with dots if there is more.
fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

const TEXT_CHARS_MAX: usize = 1_000;
const DETAILS_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_one_line_of_limited_length_whatever_a_cluster_says() {
        let long = "é\n".repeat(50_000);
        let change = Change::new("node", Level::Error, long.clone(), json!({"node": long}));
        let line = change.to_line(7, 8);
        assert!(line.len() < 4_500 && !line.contains('\n'), "{}", line.len());
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&read["cut"], &read["node"]), (&json!(true), &Value::Null));
        let change = Change::new("node", Level::Good, "n is up".to_owned(), json!({"node": "n"}));
        let read: Value = serde_json::from_str(&change.to_line(7, 8)).unwrap();
        let expected =
            json!({"id": 7, "at_ms": 8, "kind": "node", "level": "good", "text": "n is up", "node": "n"});
        assert_eq!(read, expected);
    }
}
