//! Operations that change nothing, however they end, and whose failure tells whether they were allowed:
//! `index` and `delete` of a document in a state that no document can have, and `update` of a document that
//! is nowhere. All servers look at rights first.

use std::collections::HashSet;

use bulk::{Op, RouteTable, Target};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

/// One bulk of such operations, all of one kind: OpenSearch and Elasticsearch refuse everything that travels
/// to a shard together if they refuse one operation of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Probe {
    /// The path and the parameters.
    pub(super) target: String,
    pub(super) body: String,
    /// The names that the probe asks about, in the order of its items.
    pub(super) names: Vec<Box<str>>,
}

/// Returns the bulks that ask about these names. Several names for one index do not travel together, for the
/// same reason.
pub(super) fn probes(op: Op, names: &[Box<str>], table: &RouteTable) -> Vec<Probe> {
    let explicit = table.dialect().allow_explicit_index;
    let mut left: Vec<&str> = names.iter().map(|name| &**name).collect();
    let mut all = Vec::new();
    while !left.is_empty() {
        let mut seen = HashSet::new();
        let (mut now, mut later) = (Vec::new(), Vec::new());
        for name in left {
            let concrete = concrete(name, table);
            let room = if explicit { NAMES_MAX } else { 1 };
            match now.len() < room && seen.insert(concrete) {
                true => now.push(name),
                false => later.push(name),
            }
        }
        all.push(probe(op, &now, table, explicit));
        left = later;
    }
    all
}

fn concrete<'a>(name: &'a str, table: &'a RouteTable) -> &'a str {
    match table.target(name).map(Target::write) {
        Some(Ok(write)) => &write.name,
        _ => name,
    }
}

fn probe(op: Op, names: &[&str], table: &RouteTable, explicit: bool) -> Probe {
    let mut body = String::new();
    for name in names {
        let target = table.target(name);
        // A data stream takes nothing but `create`, which has no such condition. Rights for a stream are
        // rights for the indices behind it.
        let stream = matches!(target, Some(Target::DataStream { .. }));
        let written = if stream { concrete(name, table) } else { name };
        let mut action = json!({"_id": format!("tidegate-{:016x}", fastrand::u64(..))});
        if explicit {
            action["_index"] = json!(written);
        }
        if let Some(Ok(write)) = target.map(Target::write)
            && write.routing_required
        {
            action["routing"] = json!("tidegate");
        }
        if op != Op::Update {
            (action["if_seq_no"], action["if_primary_term"]) = (json!(NO_SUCH_SEQ_NO), json!(1));
        }
        let operation = if op == Op::Create { Op::Index } else { op };
        body.push_str(&json!({ operation.as_str(): action }).to_string());
        body.push('\n');
        match op {
            Op::Delete => {}
            Op::Update => body.push_str("{\"doc\":{}}\n"),
            Op::Index | Op::Create if stream => body.push_str("{\"@timestamp\":0}\n"),
            Op::Index | Op::Create => body.push_str("{}\n"),
        }
    }
    let path = match (explicit, names) {
        (false, [name]) => format!(
            "/{}/_bulk",
            utf8_percent_encode(concrete_if_stream(name, table), NON_ALPHANUMERIC)
        ),
        _ => "/_bulk".to_owned(),
    };
    Probe {
        // The index's own pipeline would run before its rights are looked at; and a shard without a primary
        // is not waited for.
        target: format!("{path}?pipeline=_none&timeout=1s"),
        body,
        names: names.iter().map(|name| Box::from(*name)).collect(),
    }
}

fn concrete_if_stream<'a>(name: &'a str, table: &'a RouteTable) -> &'a str {
    match table.target(name) {
        Some(Target::DataStream { write }) => &write.name,
        _ => name,
    }
}

// === impl Probe ===

impl Probe {
    /// Returns whether each operation was allowed, by the answer's items; `None` for a name whose index is
    /// closed: a bulk says so before anybody looks at rights ([`super::closed`]).
    pub(super) fn read(&self, answer: &[u8]) -> Option<Vec<Option<bool>>> {
        let answer: Value = serde_json::from_slice(answer).ok()?;
        let items = answer["items"].as_array()?;
        let said = items.iter().map(|item| {
            let item = item.as_object().and_then(|item| item.values().next());
            let error = item.map_or(&Value::Null, |item| &item["error"]["type"]);
            (!is_closed(error)).then(|| was_allowed(error))
        });
        (items.len() == self.names.len()).then(|| said.collect())
    }
}

/// Whether an error says that the index is closed.
pub(super) fn is_closed(error: &Value) -> bool {
    error == "index_closed_exception"
}

/// Whether an operation came past the question for rights, by the error that it ended with. An error that is
/// not known to come later may have come before.
pub(super) fn was_allowed(error: &Value) -> bool {
    matches!(
        error.as_str(),
        Some(
            "version_conflict_engine_exception"
                | "document_missing_exception"
                | "mapper_parsing_exception"
                | "document_parsing_exception"
                | "strict_dynamic_mapping_exception"
                | "cluster_block_exception"
                | "unavailable_shards_exception"
                | "es_rejected_execution_exception"
                | "rejected_execution_exception"
        )
    )
}

/// No shard ever has this many operations with this primary term.
pub(super) const NO_SUCH_SEQ_NO: u64 = 1_000_000_000_000_000;
/// The most names in one bulk.
const NAMES_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bulk::{Dialect, Flavour, Formula, IndexRoute, NodeIx, Version};

    use super::*;

    fn table(explicit: bool) -> RouteTable {
        let mut dialect = Dialect::new(Flavour::OpenSearch, Version::new(2, 19, 0));
        dialect.allow_explicit_index = explicit;
        let mut table = RouteTable::builder(dialect, 1);
        let route = |name: &str, routing_required| {
            Arc::new(IndexRoute {
                routing_required,
                ..IndexRoute::new(name, Formula::Modulo, [Some(NodeIx(0))])
            })
        };
        let (a, b, s) = (route("a", false), route("b", true), route(".ds-s-1", false));
        table.index(Arc::clone(&a)).index(b).index(Arc::clone(&s));
        table.name(
            "also a",
            Target::Alias {
                write: a,
                index_routing: None,
            },
        );
        table.name("s", Target::DataStream { write: s });
        table.build()
    }

    fn names(names: &[&str]) -> Vec<Box<str>> {
        names.iter().map(|name| (*name).into()).collect()
    }

    #[test]
    fn each_name_is_asked_about_once_and_an_index_once_in_a_bulk() {
        let all = probes(
            Op::Create,
            &names(&["a", "also a", "b", "s", "nowhere"]),
            &table(true),
        );
        let asked: Vec<Vec<&str>> = all
            .iter()
            .map(|probe| probe.names.iter().map(|name| &**name).collect())
            .collect();
        assert_eq!(asked, [vec!["a", "b", "s", "nowhere"], vec!["also a"]]);
        let lines: Vec<Value> = all[0]
            .body
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 8);
        let of = |line: usize| &lines[line]["index"];
        assert_eq!(
            (&of(0)["_index"], &of(4)["_index"]),
            (&json!("a"), &json!(".ds-s-1"))
        );
        assert_eq!(
            (&of(0)["routing"], &of(2)["routing"]),
            (&Value::Null, &json!("tidegate"))
        );
        assert_eq!((&lines[1], &lines[5]), (&json!({}), &json!({"@timestamp": 0})));
        assert!(of(0)["if_seq_no"].is_u64());
        let updates = probes(Op::Update, &names(&["a"]), &table(true));
        assert!(
            updates[0].body.starts_with("{\"update\":{\"_id\":\"tidegate-")
                && !updates[0].body.contains("seq_no")
        );
        assert_eq!(
            probes(Op::Delete, &names(&["a"]), &table(true))[0]
                .body
                .lines()
                .count(),
            1
        );
    }

    #[test]
    fn where_lines_may_name_no_index_the_path_does() {
        let all = probes(Op::Index, &names(&["a b", "s"]), &table(false));
        let targets: Vec<&str> = all.iter().map(|probe| probe.target.as_str()).collect();
        assert_eq!(
            targets,
            [
                "/a%20b/_bulk?pipeline=_none&timeout=1s",
                "/%2Eds%2Ds%2D1/_bulk?pipeline=_none&timeout=1s"
            ]
        );
        assert!(!all[0].body.contains("_index"));
    }

    #[test]
    fn an_answer_tells_what_was_allowed() {
        let probe = Probe {
            target: String::new(),
            body: String::new(),
            names: names(&["a", "b", "c", "d"]),
        };
        let item = |status: u16, kind: &str| json!({"index": {"status": status, "error": {"type": kind}}});
        let answer = json!({"items": [
            item(409, "version_conflict_engine_exception"),
            item(403, "security_exception"),
            item(400, "index_closed_exception"),
            {"index": {"status": 200, "result": "noop"}},
        ]});
        assert_eq!(
            probe.read(answer.to_string().as_bytes()),
            Some(vec![Some(true), Some(false), None, Some(false)])
        );
        assert_eq!(probe.read(b"{\"items\":[]}"), None);
        assert_eq!(probe.read(b"no JSON"), None);
    }
}
