//! Which parts may be sent again when nobody knows what became of them.

use serde_json::Value;

/// Whether executing this body twice leaves the same documents as executing it once, and answers the same but for
/// `result` and `_version`: every operation is an `index` with an id of its own and without version or sequence number.
///
/// - `index` without an id would write a second document.
/// - `create` would answer 409 to a document that the first try wrote; whether it was ours or somebody else's cannot be
///   told, so its 409 could be neither believed nor hidden.
/// - `delete` would answer `not_found` about a document that the first try deleted.
/// - `update` may be a script that counts.
/// - With `version` or `if_seq_no` the second try conflicts with the first.
/// - A pipeline may make ids.
///
/// Two operations on one document within the body stay in order, and so end the same.
pub(crate) fn is_repeatable(body: &[u8]) -> bool {
    let mut lines = body.split(|byte| *byte == b'\n');
    let mut operations = 0;
    while let Some(line) = lines.next() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        if !is_plain_index(line) || lines.next().is_none() {
            return false;
        }
        operations += 1;
    }
    operations > 0
}

fn is_plain_index(action: &[u8]) -> bool {
    let Ok(Value::Object(action)) = serde_json::from_slice(action) else {
        return false;
    };
    let Some(Value::Object(fields)) = action.get("index") else {
        return false;
    };
    action.len() == 1
        && fields.get("_id").is_some_and(|id| !id.is_null())
        && fields.keys().all(|key| {
            matches!(
                key.as_str(),
                "_index" | "_id" | "routing" | "_routing" | "require_alias" | "dynamic_templates"
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_index_operations_with_ids_are_repeatable() {
        let yes = [
            "{\"index\":{\"_id\":\"1\"}}\n{}\n",
            "{\"index\":{\"_index\":\"i\",\"_id\":1,\"routing\":\"r\"}}\n{}\n\n{\"index\":{\"_id\":\"2\"}}\n{\"delete\":{\"_id\":1}}\n",
        ];
        let no = [
            "",
            "{\"index\":{}}\n{}\n",
            "{\"index\":{\"_id\":null}}\n{}\n",
            "{\"create\":{\"_id\":\"1\"}}\n{}\n",
            "{\"delete\":{\"_id\":\"1\"}}\n",
            "{\"update\":{\"_id\":\"1\"}}\n{\"doc\":{}}\n",
            "{\"index\":{\"_id\":\"1\",\"version\":3,\"version_type\":\"external\"}}\n{}\n",
            "{\"index\":{\"_id\":\"1\",\"if_seq_no\":3,\"if_primary_term\":1}}\n{}\n",
            "{\"index\":{\"_id\":\"1\",\"pipeline\":\"p\"}}\n{}\n",
            "{\"index\":{\"_id\":\"1\",\"op_type\":\"create\"}}\n{}\n",
            "{\"index\":{\"_id\":\"1\"}}\n{}\n{\"delete\":{\"_id\":\"2\"}}\n",
        ];
        for body in yes {
            assert!(is_repeatable(body.as_bytes()), "{body}");
        }
        for body in no {
            assert!(!is_repeatable(body.as_bytes()), "{body}");
        }
    }
}
