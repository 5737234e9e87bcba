//! A quick check for answers without errors.

use memchr::memmem;

/// Returns whether a node's answer to a bulk says of each of `docs` operations that it was executed. `false`
/// may also mean that only [`crate::Reply::split`] can decide.
///
/// Each item has to have a status that says so: an answer is not believed for its `errors` alone. A `delete`
/// that found nothing (404) is left to [`crate::Reply::split`], which knows the action. The items are counted
/// by their statuses: within a string the same bytes would have a backslash before the
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
        && statuses(answer) == Some(docs as usize)
}

/// How many statuses there are, if all of them are 2xx. Mostly all items are the same, and those that are
/// like the one before are not searched.
fn statuses(answer: &[u8]) -> Option<usize> {
    let finder = memmem::Finder::new(STATUS);
    let Some(mut at) = finder.find(answer) else {
        return Some(0);
    };
    let mut count = 1;
    loop {
        if answer.get(at + STATUS.len()) != Some(&b'2') {
            return None;
        }
        let Some(between) = finder.find(&answer[at + 1..]) else {
            return Some(count);
        };
        let length = between + 1;
        let mut next = at + length;
        count += 1;
        // From one status up to and with the next one it is the same again, so there is none in between
        // either.
        while answer.get(next..next + length) == Some(&answer[at..at + length])
            && answer[next + length..].starts_with(STATUS)
        {
            next += length;
            count += 1;
        }
        at = next;
    }
}

const STATUS: &[u8] = b"\"status\":";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_all_servers_without_errors_are_told() {
        let items = "\"items\":[{\"index\":{\"_id\":\"\\\"status\\\":1\",\"status\":201}},{\"delete\":{\"_id\":\"b\",\"status\":200}}]}";
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
    fn statuses_are_counted_as_a_search_counts_them() {
        let pieces = [
            "{\"create\":{\"status\":201}},",
            "{\"create\":{\"status\":200}},",
            "{\"delete\":{\"status\":404}},",
            "{\"delete\":{\"status\":200}},",
            "\"status\":2",
            "\"status\":",
            "\"status\":\"status\":",
            "\"status\"",
            "\"",
            "x",
        ];
        let mut random = 7_u64;
        let mut below = |end: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % end
        };
        for _ in 0..2_000 {
            let mut text = String::new();
            for _ in 0..below(12) {
                text.push_str(&pieces[below(pieces.len())].repeat(1 + below(4)));
            }
            let searched: Vec<usize> = memmem::find_iter(text.as_bytes(), STATUS).collect();
            let is_good = |at: &usize| text.as_bytes().get(at + STATUS.len()) == Some(&b'2');
            let expected = searched.iter().all(is_good).then_some(searched.len());
            assert_eq!(statuses(text.as_bytes()), expected, "{text}");
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
            "{\"took\":3,\"errors\":false,\"items\":[{\"index\":{\"status\":429}}]}",
            "{\"took\":3,\"errors\":false,\"items\":[{\"delete\":{\"status\":404}}]}",
            "{\"error\":\"\\\"errors\\\":false\",\"status\":500}]}",
            "{\"took\":3,\"errors\":false,\"items\":[{\"update\":{\"get\":{\"_source\":{\"status\":1}},\"status\":200}}]}",
        ] {
            assert!(!all_succeeded(answer.as_bytes(), 1), "{answer}");
        }
    }
}
