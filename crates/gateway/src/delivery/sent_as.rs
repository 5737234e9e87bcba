//! The parameters with which a recorded request is delivered. Its client already has an answer, so nothing
//! may wait at a node if delivery can wait for it better: the wait would hold up everything that travels with
//! the request.

/// Returns the path and query that are sent for those of the client's request.
pub(crate) fn sent_as(target: &str) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut kept = Vec::new();
    let mut timeout = format!("timeout={TIMEOUT_S}s");
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=').unwrap_or((pair, "")) {
            // No answer tells a client any more when its documents can be searched, which may be never.
            ("refresh", "wait_for") => {}
            // No client reads the part of an answer that these parameters add.
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
    // Servers also separate parameters at semicolons. An earlier version queued requests with some, and read
    // them as parts of values: so shall the servers.
    let query = kept.join("&").replace(';', "%3B");
    format!("{path}?{query}")
}

/// Returns `sent`, which is the result of [`sent_as`], asking only for the parts of the answer that delivery
/// reads. Errors of the whole request come whole all the same.
pub(crate) fn asked_as(sent: &str) -> String {
    let separator = if sent.contains('?') { '&' } else { '?' };
    format!("{sent}{separator}filter_path=took,errors,items.*.status,items.*.error")
}

/// Returns `asked`, which is the result of [`asked_as`], asking for the ids of the documents, too.
pub(crate) fn with_ids(asked: &str) -> String {
    format!("{asked},items.*._id")
}

/// Whether a node waits less long with this value than with delivery's own timeout.
fn is_shorter(value: &str) -> bool {
    let unit = value.trim_start_matches(|c: char| c.is_ascii_digit());
    let Ok(number) = value[..value.len() - unit.len()].parse::<u64>() else {
        // The cluster says what is wrong with the value, unless the value asks for an endless wait (-1).
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

/// The most seconds that a node waits for a primary, for the copies that a request wants, or for a new
/// mapping; delivery tries again itself. Servers wait a minute by default.
const TIMEOUT_S: u64 = 1;

#[cfg(test)]
mod tests {
    use super::{asked_as, sent_as};

    #[test]
    fn nothing_waits_long_at_a_node_and_all_else_goes_along() {
        for (target, sent) in [
            ("/_bulk", "/_bulk?timeout=1s"),
            ("/l/_bulk?refresh=wait_for", "/l/_bulk?timeout=1s"),
            (
                "/_bulk?refresh=true&routing=a",
                "/_bulk?refresh=true&routing=a&timeout=1s",
            ),
            ("/_bulk?timeout=1m", "/_bulk?timeout=1s"),
            ("/_bulk?timeout=-1", "/_bulk?timeout=1s"),
            ("/_bulk?timeout=500ms", "/_bulk?timeout=500ms"),
            (
                "/_bulk?timeout=900ms&pipeline=p",
                "/_bulk?pipeline=p&timeout=900ms",
            ),
            ("/_bulk?timeout=2s", "/_bulk?timeout=1s"),
            (
                "/_bulk?routing=a;pipeline=p&refresh=true;b",
                "/_bulk?routing=a%3Bpipeline=p&refresh=true%3Bb&timeout=1s",
            ),
            ("/_bulk?timeout=banana", "/_bulk?timeout=banana"),
            (
                "/_bulk?_source=true&_source_includes=a&_source_excludes=b",
                "/_bulk?timeout=1s",
            ),
        ] {
            assert_eq!(sent_as(target), sent);
        }
        assert_eq!(
            asked_as("/_bulk?timeout=1s"),
            "/_bulk?timeout=1s&filter_path=took,errors,items.*.status,items.*.error"
        );
    }
}
