//! Reads paths as servers do, and finds the indices that they name. A rule for certain indices applies
//! however a client spells them, and where it cannot be determined whether it applies, the request is
//! refused.
//!
//! Servers decode each segment of a path once, ignore empty segments, and accept lists of names, patterns and
//! date math in place of a name (`RestController`, `PathTrie`, `IndexNameExpressionResolver`).

use std::borrow::Cow;
use std::sync::Arc;

use http::Method;

use super::{Router, decode};

/// Why the flows of a request cannot be determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    /// A segment that no server can read either, or that servers read otherwise: they take what is not
    /// escaped for Latin-1.
    #[error("the path is not percent-encoded UTF-8")]
    Unreadable,
    /// Names that belong to different rules.
    #[error("it names indices that belong to different flows; send a request for each")]
    Several,
    /// A pattern, or date math, that covers indices of different rules.
    #[error(
        "a pattern in it covers indices that belong to different flows; name them, or a pattern that covers no others"
    )]
    Pattern,
    /// An index that is not in the path.
    #[error("an index is named beside the path that belongs to another flow; name it in the path")]
    Beside,
    /// Date math in a form that this reader does not understand.
    #[error("its date math cannot be read here; name the index")]
    DateMath,
    /// A statement in a query language.
    #[error("it has a statement, which may be for any index; the router needs a rule for this path")]
    Statement,
}

type Flows<'r> = &'r [Arc<str>];

/// Decodes the segments of a path and leaves out empty ones. A slash within a segment stays encoded. Returns
/// `None` if the path is not encoded UTF-8.
pub(super) fn canonical(path: &str) -> Option<Cow<'_, str>> {
    if !path.contains('%') && !path.contains("//") {
        return Some(Cow::Borrowed(path));
    }
    by_segment(path, |segment| decode(segment, false)).map(Cow::Owned)
}

/// Decodes a path whose characters are not all escaped, like [`canonical`], but as servers do: each byte is a
/// character, except in a segment that has an escape (Netty, `RestUtils.decodeComponent`).
pub(super) fn canonical_latin1(path: &str) -> Option<String> {
    by_segment(path, |segment| match segment.contains('%') {
        true => decode(segment, false),
        false => Some(segment.bytes().map(char::from).collect()),
    })
}

fn by_segment<'p>(path: &'p str, decode: impl Fn(&'p str) -> Option<Cow<'p, str>>) -> Option<String> {
    let mut whole = String::with_capacity(path.len());
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        whole.push('/');
        whole.push_str(&decode(segment)?.replace('/', "%2F"));
    }
    if path.ends_with('/') {
        whole.push('/');
    }
    Some(whole)
}

/// Returns the flows of a request at a router with rules for certain indices.
pub(super) fn decide<'r>(
    router: &'r Router,
    method: &Method,
    path: &str,
    query: Option<&str>,
) -> Result<Flows<'r>, Undecided> {
    let inner = path.strip_prefix('/').unwrap_or(path);
    let (first, rest) = inner.find('/').map_or((inner, ""), |end| inner.split_at(end));
    let of_path = || router.route(method, path);
    if first.is_empty() || (first.starts_with('_') && first != "_all") {
        let elsewhere = || router.has_indices_elsewhere(of_path()) && !router.has_rule_for_api(method, path);
        if is_statement(inner) && elsewhere() {
            return Err(Undecided::Statement);
        }
        let parameter = query.map_or(Ok(None), index_parameter)?;
        let behind = behind_api(inner).map(Cow::Borrowed);
        for names in [parameter, behind].into_iter().flatten() {
            match all(router, method, &names, path) {
                Ok(flows) if flows == of_path() => {}
                _ => return Err(Undecided::Beside),
            }
        }
        return Ok(of_path());
    }
    if first != "_all" && !first.contains([',', '*', '<']) {
        return Ok(of_path());
    }
    all(router, method, first, rest)
}

/// Returns whether a path is that of statements, which name their indices themselves: SQL, PPL and ES|QL. The
/// next page of an answer has the same path in SQL, and one of its own in ES|QL. The path is decoded.
fn is_statement(path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    matches!(
        segments.as_slice(),
        ["_sql"]
            | ["_sql", "translate"]
            | ["_xpack", "sql"]
            | ["_xpack", "sql", "translate"]
            | ["_query"]
            | ["_query", "async"]
            | ["_plugins" | "_opendistro", "_sql" | "_ppl"]
            | ["_plugins" | "_opendistro", "_sql" | "_ppl", "_explain"]
    )
}

/// Returns the names that follow an API in a path. The path is decoded.
fn behind_api(path: &str) -> Option<&str> {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let mut next = || segments.next().unwrap_or_default();
    let names = match (next(), next()) {
        ("_cat", "indices" | "shards" | "segments" | "count" | "recovery") => next(),
        ("_cluster", "health") | ("_resolve", "index") => next(),
        ("_cluster", "state") => {
            next();
            next()
        }
        ("_data_stream", names) if !names.starts_with('_') => names,
        _ => "",
    };
    Some(names).filter(|names| !names.is_empty())
}

/// Returns the flows that all names of an expression lead to. `rest` is the path after the expression.
fn all<'r>(
    router: &'r Router,
    method: &Method,
    expression: &str,
    rest: &str,
) -> Result<Flows<'r>, Undecided> {
    let mut found: Option<Flows<'r>> = None;
    for name in expression.split(',').filter(|name| !name.is_empty()) {
        // An exclusion adds no index.
        if name.starts_with('-') && found.is_some() {
            continue;
        }
        let name = meant(name)?;
        let path = format!("/{name}{rest}");
        let flows = router.route(method, &path);
        if name.contains('*') {
            let mut covering = router.rules_that_may_cover(method, &path, &name);
            if covering.any(|others| others != flows) {
                return Err(Undecided::Pattern);
            }
        }
        match found {
            Some(others) if others != flows => return Err(Undecided::Several),
            _ => found = Some(flows),
        }
    }
    Ok(found.unwrap_or_else(|| router.route(method, &format!("/{expression}{rest}"))))
}

/// Returns a name in which stars replace what only the cluster knows: the date of date math.
fn meant(name: &str) -> Result<Cow<'_, str>, Undecided> {
    if name == "_all" {
        return Ok(Cow::Borrowed("*"));
    }
    let Some(math) = name.strip_prefix('<') else {
        return Ok(Cow::Borrowed(name));
    };
    let math = math.strip_suffix('>').ok_or(Undecided::DateMath)?;
    if math.contains(['\\', '<', '>']) {
        return Err(Undecided::DateMath);
    }
    let (mut text, mut depth) = (String::new(), 0_usize);
    for letter in math.chars() {
        match letter {
            '{' => {
                if depth == 0 {
                    text.push('*');
                }
                depth += 1;
            }
            '}' => depth = depth.checked_sub(1).ok_or(Undecided::DateMath)?,
            _ if depth == 0 => text.push(letter),
            _ => {}
        }
    }
    match depth {
        0 => Ok(Cow::Owned(text)),
        _ => Err(Undecided::DateMath),
    }
}

/// Returns the indices in the query; servers accept the parameters of the path there, too. All values are
/// returned, since servers use the last of several, and a semicolon separates parameters as well
/// (`RestUtils.decodeQueryString`).
fn index_parameter(query: &str) -> Result<Option<Cow<'_, str>>, Undecided> {
    let mut said: Option<Cow<'_, str>> = None;
    for pair in query.split(['&', ';']) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if decode(name, true).ok_or(Undecided::Unreadable)? != "index" {
            continue;
        }
        let value = decode(value, true).filter(|_| value.is_ascii());
        let value = value.ok_or(Undecided::Unreadable)?;
        said = match said {
            _ if value.is_empty() => said,
            None => Some(value),
            Some(before) => Some(Cow::Owned(format!("{before},{value}"))),
        };
    }
    Ok(said)
}

/// Returns whether some name may match both patterns. In each, a star stands for any characters.
pub(super) fn overlap(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len().saturating_mul(other.len()) > OVERLAP_MAX {
        return true;
    }
    // Whether the rest of `one` from here on matches the rest of `other` from each place on.
    let mut below = vec![false; other.len() + 1];
    for at in (0..=one.len()).rev() {
        let mut row = vec![false; other.len() + 1];
        for of in (0..=other.len()).rev() {
            row[of] = match (one.get(at), other.get(of)) {
                (None, None) => true,
                (Some(b'*'), None) => below[of],
                (None, Some(b'*')) => row[of + 1],
                (Some(b'*'), Some(_)) => below[of] || row[of + 1],
                (Some(_), Some(b'*')) => row[of + 1] || below[of],
                (Some(a), Some(b)) => a == b && below[of + 1],
                (None, Some(_)) | (Some(_), None) => false,
            };
        }
        below = row;
    }
    below[0]
}

/// The most steps of a comparison. A longer text is not a name.
const OVERLAP_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::{Pattern, Rule};

    fn router(patterns: &[(&str, &str)]) -> Router {
        let rules = patterns.iter().map(|(pattern, flow)| {
            Rule::new(
                None,
                vec![Pattern::compile(pattern).unwrap()],
                vec![(*flow).into()],
            )
        });
        Router::new("r".into(), "default".into(), rules.collect())
    }

    #[test]
    fn a_rule_for_indices_holds_however_they_are_spelt() {
        let router = router(&[
            ("/metrics-*/{any:*}", "metrics"),
            ("/metrics-*", "metrics"),
            ("/m\u{e9}trics/{any:*}", "accents"),
            ("/t\u{c3}\u{a9}l\u{c3}\u{a9}/{any:*}", "twice"),
        ]);
        let flow = |target: &str| {
            let (path, query) = target
                .split_once('?')
                .map_or((target, None), |(path, query)| (path, Some(query)));
            router
                .decide(&Method::POST, path, query)
                .map(|flows| flows[0].to_string())
        };
        for (target, expected) in [
            ("/metrics-a/_doc/1", Ok("metrics")),
            ("/%6Detrics-a/_doc/1", Ok("metrics")),
            ("/%6detrics%2da/_doc/1", Ok("metrics")),
            ("//metrics-a//_doc/1", Ok("metrics")),
            ("/metrics-a/", Ok("metrics")),
            ("/metrics-a", Ok("metrics")),
            ("/%3Cmetrics-a%3E/_doc/1", Ok("metrics")),
            ("/%3Cmetrics-%7Bnow%2Fd%7D%3E/_doc/1", Ok("metrics")),
            ("/%3Clogs-%7Bnow%2Fd%7Byyyy.MM%7D%7D%3E/_doc/1", Ok("default")),
            ("/%3Cm%7Bnow%7D%3E/_doc/1", Err(Undecided::Pattern)),
            ("/%3Cmetrics-a/_doc/1", Err(Undecided::DateMath)),
            ("/metrics-a,metrics-b/_count", Ok("metrics")),
            ("/logs-x,logs-y/_count", Ok("default")),
            ("/logs-x,metrics-a/_count", Err(Undecided::Several)),
            ("/logs-x%2Cmetrics-a/_count", Err(Undecided::Several)),
            ("/metrics-*,-metrics-b/_count", Ok("metrics")),
            ("/metrics-a*/_count", Ok("metrics")),
            ("/m*/_count", Err(Undecided::Pattern)),
            ("/_all/_count", Err(Undecided::Pattern)),
            ("/*-a/_count", Err(Undecided::Pattern)),
            ("/logs-*/_count", Ok("default")),
            ("/_count", Ok("default")),
            ("/_count?index=metrics-a", Err(Undecided::Beside)),
            ("/_count?q=a&%69ndex=metrics%2Da", Err(Undecided::Beside)),
            ("/_count?index=logs-a", Ok("default")),
            ("/_cat/indices/metrics-a", Err(Undecided::Beside)),
            ("/_cat/%69ndices/logs-a,m*", Err(Undecided::Beside)),
            ("/_cat/indices/logs-a", Ok("default")),
            ("/_cat/indices", Ok("default")),
            ("/_cat/nodes/metrics-a", Ok("default")),
            ("/_cluster/state/metadata/metrics-a", Err(Undecided::Beside)),
            ("/_cluster/health/metrics-a?index=logs-a", Err(Undecided::Beside)),
            ("/_data_stream/metrics-a", Err(Undecided::Beside)),
            ("/_data_stream/_stats", Ok("default")),
            ("/_bulk", Ok("default")),
            ("/_sql?format=txt", Err(Undecided::Statement)),
            ("/%5Fsql/translate", Err(Undecided::Statement)),
            ("//_xpack/sql/", Err(Undecided::Statement)),
            ("/_plugins/_sql", Err(Undecided::Statement)),
            ("/_opendistro/_ppl/_explain", Err(Undecided::Statement)),
            ("/_query", Err(Undecided::Statement)),
            ("/_query/async", Err(Undecided::Statement)),
            ("/_query/async/an-id", Ok("default")),
            ("/_sql/close", Ok("default")),
            ("/_plugins/_sql/stats", Ok("default")),
            ("/%zz/_doc/1", Err(Undecided::Unreadable)),
            ("/%ff/_doc/1", Err(Undecided::Unreadable)),
            ("/metrics+a/_doc/1", Ok("default")),
            // Servers read what is not escaped as Latin-1.
            ("/m\u{e9}trics/_doc/1", Err(Undecided::Unreadable)),
            ("/m%C3%A9trics/_doc/1", Ok("accents")),
            ("/m%C3%83%C2%A9trics/_doc/1", Ok("default")),
            ("/_cat/indices/m\u{e9}trics", Err(Undecided::Beside)),
            ("/t\u{e9}l\u{e9}/_doc/1", Err(Undecided::Unreadable)),
            ("/_cat/indices/t\u{e9}l\u{e9}", Err(Undecided::Beside)),
            ("/_count?index=m\u{e9}trics", Err(Undecided::Unreadable)),
            ("/_count?q=\u{e9}", Ok("default")),
            ("/metrics-a/_doc/\u{e9}", Ok("metrics")),
            ("/logs/_doc/\u{e9}", Ok("default")),
            ("/metrics-\u{e9}/_doc/1", Ok("metrics")),
            ("/", Ok("default")),
        ] {
            assert_eq!(flow(target), expected.map(str::to_owned), "{target}");
        }
    }

    #[test]
    fn statements_belong_where_a_rule_for_their_path_says() {
        let router = router(&[
            ("/metrics-*/{any:*}", "metrics"),
            ("/{any}/_explain", "explain"),
            ("/_sql", "metrics"),
            ("/_plugins/*", "plugins"),
            ("/{any:*}", "all"),
        ]);
        for (path, expected) in [
            ("/_sql", Ok("metrics")),
            ("/_plugins/_ppl", Ok("plugins")),
            ("/_sql/translate", Err(Undecided::Statement)),
            ("/_query", Err(Undecided::Statement)),
        ] {
            let flow = router.decide(&Method::POST, path, None);
            assert_eq!(flow.map(|flows| &*flows[0]), expected, "{path}");
        }
    }

    #[test]
    fn statements_pass_if_all_indices_belong_where_they_go() {
        let router = router(&[("/metrics-*/{any:*}", "default"), ("/_cat/*", "cat")]);
        let flows = router.decide(&Method::POST, "/_sql", None);
        assert_eq!(flows.map(|flows| &*flows[0]), Ok("default"));
    }

    #[test]
    fn without_a_rule_for_certain_indices_nothing_is_refused() {
        let router = router(&[("/{index}/_bulk", "bulk"), ("/_bulk", "bulk"), ("/_cat/*", "cat")]);
        let flow = |path: &str| {
            router
                .decide(&Method::POST, path, Some("index=%zz"))
                .map(|flows| flows[0].to_string())
        };
        for (path, expected) in [
            ("/%zz/_bulk", "bulk"),
            ("/a,b*/_bulk", "bulk"),
            ("//_bulk", "bulk"),
            ("/_all/_count", "default"),
            ("/%3Cbroken/_count", "default"),
            ("/a%2Fb/_bulk", "bulk"),
            ("/_cat/", "cat"),
            ("/_sql", "default"),
        ] {
            assert_eq!(flow(path), Ok(expected.to_owned()), "{path}");
        }
    }

    #[test]
    fn patterns_overlap_if_some_name_fits_both() {
        for (one, other, expected) in [
            ("a*", "*b", true),
            ("a*", "b*", false),
            ("*", "", true),
            ("", "", true),
            ("a", "a", true),
            ("a", "b", false),
            ("a*c", "ab*", true),
            ("a*c", "*d", false),
            ("logs-*", "metrics-*", false),
            ("**", "x", true),
        ] {
            assert_eq!(
                (overlap(one, other), overlap(other, one)),
                (expected, expected),
                "{one} {other}"
            );
        }
    }
}
