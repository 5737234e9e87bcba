//! Determines what a write by query may touch: the indices that its expression stands for in the known
//! topology, through aliases, patterns and data streams. The write waits for the lanes that have documents
//! for these indices, and for nothing else.

use std::borrow::Cow;
use std::collections::HashSet;

use bulk::{RouteTable, lanes_of};
use http::Uri;
use serde_json::Value;

use crate::intake::lines::actions;
use crate::queue::Queue;
use crate::switches::indices::matches;
use crate::turns::Turns;
use config::router::decode;

/// The lanes and names of what a request may touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TouchedLanes {
    pub(crate) lanes: HashSet<u32>,
    /// The indices, and all names that lead to one of them; `None` if they are too many to be kept for as
    /// long as the request waits.
    pub(crate) names: Option<HashSet<String>>,
}

impl TouchedLanes {
    /// Returns what a request may touch, or `None` if that cannot be determined, or would take long. Other
    /// tasks have their turns meanwhile: whoever sends such a request has not been asked who it is.
    pub(crate) async fn by(uri: &Uri, body: &[u8], table: &RouteTable, queue: &Queue) -> Option<Self> {
        // A pipeline may send documents anywhere.
        if uri
            .query()
            .is_some_and(|query| query.contains("pipeline") || query.contains('%'))
        {
            return None;
        }
        let expression = expression(uri.path(), body)?;
        let whereabouts = queue.whereabouts.as_ref()?;
        let lost = |name: &dyn Fn(&str) -> bool| whereabouts.may_have_lost(name);
        let mut touched = Self::of(&expression, table, queue.log.lanes(), lost).await?;
        whereabouts.add_earlier(&mut touched.lanes);
        Some(touched)
    }

    async fn of(
        expression: &str,
        table: &RouteTable,
        lanes: u32,
        may_have_lost: impl Fn(&dyn Fn(&str) -> bool) -> bool,
    ) -> Option<Self> {
        let mut turns = Turns::begin();
        let indices = indices_of(expression, table, may_have_lost, &mut turns).await?;
        let mut touched = Self::default();
        for index in &indices {
            // For an index whose own pipeline may send documents elsewhere, the lanes cannot be determined.
            let route = table.laned(index).and_then(|target| target.write().ok())?;
            touched.lanes.extend(lanes_of(&route.name, route.shards(), lanes));
        }
        let mut names = HashSet::new();
        for (number, name) in table.known_names().enumerate() {
            if number.is_multiple_of(NAMES_A_TURN) {
                turns.pass().await;
            }
            let leads_here = table.members_of(name);
            if leads_here.is_none_or(|members| members.iter().any(|index| indices.contains(index))) {
                names.insert(name.to_owned());
                if names.len() > NAMES_MAX {
                    return Some(touched);
                }
            }
        }
        touched.names = Some(names);
        Some(touched)
    }
}

/// Returns the indices that an expression stands for.
async fn indices_of<'t>(
    expression: &str,
    table: &'t RouteTable,
    may_have_lost: impl Fn(&dyn Fn(&str) -> bool) -> bool,
    turns: &mut Turns,
) -> Option<HashSet<&'t str>> {
    let mut indices: HashSet<&str> = HashSet::new();
    // Servers read a list without a name as all indices.
    if expression.split(',').all(str::is_empty) {
        return None;
    }
    let (mut seen, mut patterns) = (HashSet::new(), 0);
    let words = expression.split(',').filter(|name| !name.is_empty());
    for name in words.filter(|name| seen.insert(*name)) {
        // An exclusion after a name or pattern adds no index.
        if name.starts_with('-') && !indices.is_empty() {
            continue;
        }
        if name.starts_with(['<', '-']) || name.contains(':') {
            return None;
        }
        let pattern: Option<&str> = match name {
            "_all" => Some("*"),
            name => name.contains('*').then_some(name),
        };
        let Some(pattern) = pattern else {
            indices.extend(table.members_of(name)?);
            continue;
        };
        patterns += 1;
        // The documents of a deleted index will still be delivered, and may create it again.
        if patterns > PATTERNS_MAX || may_have_lost(&|gone| matches(pattern, gone)) {
            return None;
        }
        for (number, known) in table.known_names().enumerate() {
            if number.is_multiple_of(NAMES_A_TURN) {
                turns.pass().await;
            }
            if matches(pattern, known) {
                indices.extend(table.members_of(known)?);
            }
        }
    }
    Some(indices)
}

/// Returns the indices that a write by query, or a write of one document, names.
fn expression<'r>(path: &'r str, body: &[u8]) -> Option<Cow<'r, str>> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    // Servers read what is not escaped as Latin-1.
    let decode = |segment: &'r str| decode(segment, false).filter(|_| segment.is_ascii());
    match segments.as_slice() {
        ["_reindex"] => reindexed(body).map(Cow::Owned),
        // Servers with types accept one here too.
        [indices, "_update_by_query" | "_delete_by_query"]
        | [indices, _, "_update_by_query" | "_delete_by_query"] => decode(indices),
        // The index of one document is looked up as a plain name: a pattern or a list is not a known index.
        [index, "_doc" | "_create" | "_update", _] | [index, "_doc"] => {
            let index = decode(index)?;
            (!index.contains([',', '*']) && index != "_all").then_some(index)
        }
        ["_bulk"] => named_in_lines(None, body).map(Cow::Owned),
        [index, "_bulk"] => named_in_lines(Some(&decode(index)?), body).map(Cow::Owned),
        _ => None,
    }
}

/// Returns the indices that a bulk is for, or `None` if one of its lines does not tell.
fn named_in_lines(default: Option<&str>, body: &[u8]) -> Option<String> {
    // A compressed body is not read.
    if body.len() > LINES_BYTES_MAX || body.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    let mut names: HashSet<String> = HashSet::new();
    for action in actions(body) {
        let action = action.filter(|action| !action.has_pipeline())?;
        let name = action.index().or(default)?;
        // One operation is for one index, which cannot be a pattern or a list.
        if name.contains([',', '*', '<']) || name == "_all" {
            return None;
        }
        if !names.contains(name) {
            names.insert(name.to_owned());
        }
    }
    let names: Vec<String> = names.into_iter().collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// Returns the indices that a `_reindex` reads and writes.
fn reindexed(body: &[u8]) -> Option<String> {
    if body.len() > REINDEX_BYTES_MAX {
        return None;
    }
    let body: Value = serde_json::from_slice(body).ok()?;
    let mut names = vec![body["dest"]["index"].as_str()?.to_owned()];
    if body["source"].get("remote").is_none() {
        match &body["source"]["index"] {
            Value::String(one) => names.push(one.clone()),
            Value::Array(several) => {
                for one in several {
                    names.push(one.as_str()?.to_owned());
                }
            }
            _ => return None,
        }
    }
    // A pipeline may send documents anywhere, and so may a script, which can set `ctx._index`.
    let goes_elsewhere = body["dest"].get("pipeline").is_some() || body.get("script").is_some();
    (!goes_elsewhere).then(|| names.join(","))
}

/// The most patterns that are compared with all names.
const PATTERNS_MAX: usize = 16;

/// The most names that one request keeps while it waits.
const NAMES_MAX: usize = 256;

/// The names that are looked at between two looks at the clock.
const NAMES_A_TURN: usize = 256;

/// The longest bulk, in bytes, whose lines are read for their indices: no client should wait for a longer
/// one.
const LINES_BYTES_MAX: usize = 8 << 20;

/// The longest body of `_reindex`, in bytes, that is read: as a value it takes many times its size.
const REINDEX_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bulk::{Dialect, Flavour, Formula, IndexRoute, Target, Version, Why};

    use super::*;
    use crate::turns::in_any_slices;

    fn table() -> RouteTable {
        let dialect = Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0));
        let mut table = RouteTable::builder(dialect, 1);
        let route = |name: &str| Arc::new(IndexRoute::new(name, Formula::Modulo, vec![None]));
        for name in ["logs-1", "logs-2", "other", ".ds-s-1", ".ds-s-2"] {
            table.index(route(name));
        }
        let alias = |write: &str| Target::Alias {
            write: route(write),
            index_routing: None,
        };
        table
            .name("one", alias("logs-1"))
            .members("one", &["logs-1".into()]);
        table
            .name("both", Target::Opaque(Why::AmbiguousAlias))
            .members("both", &["logs-1".into(), "logs-2".into()]);
        let write = route(".ds-s-2");
        table
            .name("s", Target::DataStream { write })
            .members("s", &[".ds-s-1".into(), ".ds-s-2".into()]);
        table.name("unknown", Target::Opaque(Why::IndexUnavailable));
        table.build()
    }

    #[test]
    fn an_expression_is_the_indices_that_it_stands_for_and_the_names_that_lead_there() {
        let table = table();
        let names = |expression: &str| {
            let touched = TouchedLanes::of(expression, &table, 64, |is_gone| is_gone("gone-1"));
            let touched = in_any_slices(touched)?;
            let mut names: Vec<String> = touched.names.unwrap().into_iter().collect();
            names.sort_unstable();
            Some((names.join(" "), touched.lanes.len()))
        };
        let some = |names: &str, lanes: usize| Some((names.to_owned(), lanes));
        assert_eq!(names("logs-1"), some("both logs-1 one unknown", 1));
        assert_eq!(names("one"), names("logs-1"));
        assert_eq!(names("other"), some("other unknown", 1));
        assert_eq!(names("both"), some("both logs-1 logs-2 one unknown", 2));
        assert_eq!(
            names("logs-*,-logs-2"),
            names("both"),
            "the larger set is as good"
        );
        assert_eq!(names("s,other"), some(".ds-s-1 .ds-s-2 other s unknown", 3));
        assert_eq!(names("oth*"), names("other"));
        assert_eq!(
            names(&"oth*,".repeat(1_000)),
            names("other"),
            "each word counts once"
        );
        let many: Vec<String> = (0..=PATTERNS_MAX).map(|n| format!("oth{n}*")).collect();
        assert_eq!(names(&many.join(",")), None);
        for unknown in [
            "nowhere",
            "unknown",
            "unk*",
            "*",
            "_all",
            "gone*",
            "<logs-{now/d}>",
            "far:logs-1",
        ] {
            assert_eq!(names(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn the_indices_are_in_the_path_or_in_the_body() {
        let named = |path: &'static str, body: Value| {
            expression(path, body.to_string().as_bytes()).map(Cow::into_owned)
        };
        let none = Value::Null;
        for (path, expected) in [
            ("/a,b/_update_by_query", Some("a,b")),
            ("/%61*/_delete_by_query", Some("a*")),
            ("/a/_doc/_update_by_query", Some("a")),
            ("/_bulk", None),
            ("/a/_doc/1", Some("a")),
            ("/%61/_update/1", Some("a")),
            ("/a/_doc", Some("a")),
            ("/a,b/_doc/1", None),
            ("/a/_bulk", None),
            ("/a/_search", None),
            ("/\u{e9}/_update_by_query", None),
            ("/a/_doc/\u{e9}", Some("a")),
        ] {
            assert_eq!(named(path, none.clone()).as_deref(), expected, "{path}");
        }
        for (body, expected) in [
            ("{\"index\":{}}\n{}\n", Some("a")),
            ("{\"index\":{\"_index\":\"b\"}}\n{}\n", Some("b")),
            ("{\"index\":{\"\\u005findex\":\"b\"}}\n{}\n", Some("b")),
            ("{\"delete\":{\"_index\":\"b*\",\"_id\":\"1\"}}\n", None),
            ("{\"index\":{\"_index\":\"b\",\"pipeline\":\"p\"}}\n{}\n", None),
            ("{\"index\":{\"_index\":7}}\n{}\n", None),
            ("{\"index\":{}}\n{}\nno action", None),
            ("\u{1f}\u{8b}packed", None),
        ] {
            let named = expression("/a/_bulk", body.as_bytes());
            assert_eq!(named.as_deref(), expected, "{body:?}");
        }
        let reindex = |body| named("/_reindex", body);
        use serde_json::json;
        let dest = json!({"index": "b"});
        assert_eq!(
            reindex(json!({"source": {"index": ["a", "c*"]}, "dest": dest})).as_deref(),
            Some("b,a,c*")
        );
        let far = json!({"index": "a", "remote": {"host": "http://x:9200"}});
        assert_eq!(
            reindex(json!({"source": far, "dest": dest})).as_deref(),
            Some("b")
        );
        let piped = json!({"index": "b", "pipeline": "p"});
        assert_eq!(reindex(json!({"source": {"index": "a"}, "dest": piped})), None);
        let scripted =
            json!({"source": {"index": "a"}, "dest": dest, "script": {"source": "ctx._index='c'"}});
        assert_eq!(reindex(scripted), None);
        assert_eq!(reindex(none), None);
    }
}
