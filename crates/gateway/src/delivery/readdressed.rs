//! Lines of an operation that goes to another index than the one that it names.

use serde_json::{Value, json};

/// Rewrites an operation for the index in its request's path.
pub(super) fn readdressed(lines: &[u8], routing: Option<&str>) -> Option<Vec<u8>> {
    let end = memchr::memchr(b'\n', lines)?;
    let mut action: Value = serde_json::from_slice(&lines[..end]).ok()?;
    let meta = action.as_object_mut()?.values_mut().next()?.as_object_mut()?;
    for key in ["_index", "require_alias", "require_data_stream", "_routing"] {
        meta.shift_remove(key);
    }
    if let Some(routing) = routing {
        meta.insert("routing".to_owned(), json!(routing));
    }
    let mut out = action.to_string().into_bytes();
    out.extend_from_slice(&lines[end..]);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_readdressed_without_what_speaks_of_its_name() {
        let lines = b"{\"index\":{\"_index\":\"a\",\"_id\":\"1\",\"require_alias\":true,\"pipeline\":\"p\"}}\n{\"_index\":1}\n";
        let text = |routing| String::from_utf8(readdressed(lines, routing).unwrap()).unwrap();
        assert_eq!(
            text(None),
            "{\"index\":{\"_id\":\"1\",\"pipeline\":\"p\"}}\n{\"_index\":1}\n"
        );
        assert!(text(Some("r")).contains("\"routing\":\"r\""));
    }
}
