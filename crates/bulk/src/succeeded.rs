//! A quick check for answers without errors.

use memchr::memmem;

/// Returns whether a node's answer to a bulk says of each of `docs` operations that it was executed. `false`
/// may also mean that only [`crate::Reply::split`] can decide.
///
/// The items are counted by their statuses: within a string the same bytes would have a backslash before the
/// second quote. An answer that quotes documents with such a key of their own has too many of them, and is
/// left to [`crate::Reply::split`].
pub fn all_succeeded(answer: &[u8], docs: u32) -> bool {
    let Some(head) = answer.strip_prefix(b"{") else {
        return false;
    };
    let mut head = head;
    for key in [b"\"took\":".as_slice(), b"\"ingest_took\":"] {
        if let Some(value) = head.strip_prefix(key) {
            let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let Some(rest) = value[digits..].strip_prefix(b",") else {
                return false;
            };
            head = rest;
        }
    }
    head.starts_with(b"\"errors\":false,")
        && answer.ends_with(b"]}")
        && memmem::find_iter(answer, b"\"status\":").count() == docs as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_all_servers_without_errors_are_told() {
        let items = "\"items\":[{\"index\":{\"_id\":\"\\\"status\\\":1\",\"status\":201}},{\"delete\":{\"_id\":\"b\",\"status\":404}}]}";
        for head in [
            "{\"took\":3,\"errors\":false,",
            "{\"errors\":false,\"took\":3,",
            "{\"took\":30,\"ingest_took\":2,\"errors\":false,",
            "{\"errors\":false,\"took\":0,\"ingest_took\":2,",
        ] {
            let answer = format!("{head}{items}");
            assert!(all_succeeded(answer.as_bytes(), 2), "{answer}");
            assert!(!all_succeeded(answer.as_bytes(), 1));
            assert!(!all_succeeded(answer.as_bytes(), 3));
            assert!(!all_succeeded(&answer.as_bytes()[..answer.len() - 1], 2));
        }
    }

    #[test]
    fn anything_else_is_left_to_the_careful_reader() {
        for answer in [
            "",
            "{",
            "{\"took\":,\"errors\":true,\"items\":[{\"index\":{\"status\":400}}]}",
            "{\"took\":3,\"errors\":true,\"items\":[{\"index\":{\"status\":400}}]}",
            "{ \"took\" : 3, \"errors\":false,\"items\":[{\"index\":{\"status\":200}}]}",
            "{\"items\":[{\"index\":{\"status\":200}}],\"errors\":false}",
            "{\"error\":\"\\\"errors\\\":false\",\"status\":500}]}",
            "{\"took\":3,\"errors\":false,\"items\":[{\"update\":{\"get\":{\"_source\":{\"status\":1}},\"status\":200}}]}",
        ] {
            assert!(!all_succeeded(answer.as_bytes(), 1), "{answer}");
        }
    }
}
