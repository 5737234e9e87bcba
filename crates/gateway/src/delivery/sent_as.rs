//! The parameters with which a recorded request is delivered. Its client has its answer, so nothing is to
//! wait at a node that delivery can wait for better: the wait would hold up all that travels with it.

/// The path and query that are sent for those that the client's request had.
pub(crate) fn sent_as(target: &str) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut kept = Vec::new();
    let mut timeout = format!("timeout={TIMEOUT_S}s");
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=').unwrap_or((pair, "")) {
            // When what is written can be searched is nobody's answer any more, and may be never.
            ("refresh", "wait_for") => {}
            // What an answer is to hold besides is nobody's either.
            ("_source" | "_source_includes" | "_source_excludes", _) => {}
            ("timeout", value) => {
                if is_shorter(value) {
                    timeout = pair.to_owned();
                }
            }
            _ => kept.push(pair),
        }
    }
    kept.push(&timeout);
    format!("{path}?{}", kept.join("&"))
}

/// The same, asking for nothing of the answer but what delivery reads; what is read is [`sent_as`]. Errors of
/// the whole come whole all the same.
pub(crate) fn asked_as(sent: &str) -> String {
    let separator = if sent.contains('?') { '&' } else { '?' };
    format!("{sent}{separator}filter_path=took,errors,items.*.status,items.*.error")
}

/// Whether a node waits less long for this than it would be told to.
fn is_shorter(value: &str) -> bool {
    let unit = value.trim_start_matches(|c: char| c.is_ascii_digit());
    let Ok(number) = value[..value.len() - unit.len()].parse::<u64>() else {
        // The cluster says what is wrong with it, unless it waits without end (-1).
        return !value.starts_with('-');
    };
    match unit {
        "nanos" | "micros" => true,
        "ms" => number <= TIMEOUT_S * 1000,
        "s" => number <= TIMEOUT_S,
        "m" | "h" | "d" => number == 0,
        _ => true,
    }
}

/// So long a node waits at most for a primary, for the copies that a request wants, or for a new mapping;
/// delivery tries again itself. Servers wait a minute by default.
const TIMEOUT_S: u64 = 3;

#[cfg(test)]
mod tests {
    use super::{asked_as, sent_as};

    #[test]
    fn nothing_waits_long_at_a_node_and_all_else_goes_along() {
        for (target, sent) in [
            ("/_bulk", "/_bulk?timeout=3s"),
            ("/l/_bulk?refresh=wait_for", "/l/_bulk?timeout=3s"),
            (
                "/_bulk?refresh=true&routing=a",
                "/_bulk?refresh=true&routing=a&timeout=3s",
            ),
            ("/_bulk?timeout=1m", "/_bulk?timeout=3s"),
            ("/_bulk?timeout=-1", "/_bulk?timeout=3s"),
            ("/_bulk?timeout=500ms", "/_bulk?timeout=500ms"),
            ("/_bulk?timeout=2s&pipeline=p", "/_bulk?pipeline=p&timeout=2s"),
            ("/_bulk?timeout=banana", "/_bulk?timeout=banana"),
            (
                "/_bulk?_source=true&_source_includes=a&_source_excludes=b",
                "/_bulk?timeout=3s",
            ),
        ] {
            assert_eq!(sent_as(target), sent);
        }
        assert_eq!(
            asked_as("/_bulk?timeout=3s"),
            "/_bulk?timeout=3s&filter_path=took,errors,items.*.status,items.*.error"
        );
    }
}
