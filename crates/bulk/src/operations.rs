//! A body that was planned once, cut into its operations again: for those who send some of them, and some later.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use memchr::memchr;
use serde_json::Value;

use crate::action::Op;
use crate::{Ask, RouteTable, Target, scan};

/// One operation of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its lines in the body, newlines included.
    pub start: usize,
    /// After its last newline.
    pub end: usize,
    /// What it does.
    pub op: Op,
    /// It names a version or a sequence number: executed twice, it conflicts with itself.
    pub versioned: bool,
    /// The same number for operations on the same document. Others may share it, by rare chance.
    pub document: u64,
}

/// Cuts a body into its operations; `None` if it is not one that a [`crate::plan`] was made of, gathered.
///
/// It asks less than a plan: names that no longer stand for anything, and keys that this cluster does not know, are the
/// cluster's to judge.
pub fn operations(body: &[u8], ask: &Ask<'_>, table: &RouteTable) -> Option<Vec<Operation>> {
    let mut operations = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let start = at;
        let (op, versioned, document);
        if let Some((action, after)) = scan::action(body, at) {
            (op, versioned) = (action.op, action.versioned);
            document = key(action.index, action.id, action.routing, ask, table);
            at = after;
        } else {
            let length = memchr(b'\n', &body[at..])?;
            let line: Value = serde_json::from_slice(&body[at..at + length]).ok()?;
            let (name, meta) = line.as_object().filter(|line| line.len() == 1)?.iter().next()?;
            let text = |key: &str| {
                let value = meta.get(key)?;
                let text = value.as_str().map(str::to_owned);
                Some(text.unwrap_or_else(|| value.to_string())).filter(|_| !value.is_null())
            };
            op = match Op::parse(name.as_bytes())? {
                Op::Index if meta["op_type"] == "create" => Op::Create,
                op => op,
            };
            let keys = ["version", "_version", "if_seq_no", "if_primary_term"];
            versioned = keys.iter().any(|key| meta.get(*key).is_some());
            let (index, id, routing) = (
                text("_index"),
                text("_id"),
                text("routing").or_else(|| text("_routing")),
            );
            let bytes = |text: &'_ Option<String>| text.as_ref().map(|text| text.as_bytes().to_vec());
            document = key(
                bytes(&index).as_deref(),
                bytes(&id).as_deref(),
                bytes(&routing).as_deref(),
                ask,
                table,
            );
            at += length + 1;
        }
        if op != Op::Delete {
            at += memchr(b'\n', body.get(at..)?)? + 1;
        }
        operations.push(Operation {
            start,
            end: at,
            op,
            versioned,
            document,
        });
    }
    Some(operations)
}

fn key(
    index: Option<&[u8]>,
    id: Option<&[u8]>,
    routing: Option<&[u8]>,
    ask: &Ask<'_>,
    table: &RouteTable,
) -> u64 {
    let name = index.or(ask.default_index.map(str::as_bytes)).unwrap_or_default();
    let entry = table.entry(name);
    let write = entry.and_then(|entry| entry.target.write().ok());
    let of_alias = match entry.map(|entry| &entry.target) {
        Some(Target::Alias { index_routing, .. }) => index_routing.as_deref(),
        _ => None,
    };
    let routing = routing.or(ask.url_routing.or(of_alias).map(str::as_bytes));
    let mut hasher = DefaultHasher::new();
    write
        .map_or(name, |write| write.name.as_bytes())
        .hash(&mut hasher);
    (id, routing).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Dialect, Flavour, Formula, IndexRoute, NodeIx, Version};

    #[test]
    fn operations_are_cut_as_they_stand_and_one_document_has_one_number() {
        let mut table = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 1);
        let formula = Formula::Modulo;
        table.index(Arc::new(IndexRoute::new("logs", formula, [Some(NodeIx(0))])));
        let table = table.build();
        let ask = Ask {
            default_index: Some("logs"),
            ..Ask::default()
        };
        let texts = [
            "{\"index\":{\"_id\":\"1\"}}\n{\"a\":1}\n",
            "{\"delete\":{\"_index\":\"logs\",\"_id\":\"1\"}}\n",
            "{ \"index\" : {\"_id\":\"\\u0031\",\"op_type\":\"create\"}}\n{}\n",
            "{\"update\":{\"_id\":\"2\",\"_index\":\"gone\"}}\n{\"doc\":{}}\n",
            "{\"index\":{\"_id\":\"1\",\"routing\":\"r\",\"version\":3,\"version_type\":\"external\"}}\n{}\n",
        ];
        let body = texts.concat();
        let operations = operations(body.as_bytes(), &ask, &table).unwrap();
        let cut: Vec<_> = operations.iter().map(|one| &body[one.start..one.end]).collect();
        assert_eq!(cut, texts);
        let ops: Vec<_> = operations.iter().map(|one| one.op).collect();
        assert_eq!(ops, [Op::Index, Op::Delete, Op::Create, Op::Update, Op::Index]);
        let documents: Vec<_> = operations.iter().map(|one| one.document).collect();
        assert_eq!(documents[0], documents[1]);
        assert_eq!(documents[0], documents[2]);
        assert_ne!(documents[0], documents[3]);
        assert_ne!(documents[0], documents[4]);
        assert!(operations[4].versioned && !operations[0].versioned);
    }

    #[test]
    fn what_is_no_body_is_not_cut() {
        let table = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 1).build();
        for text in [
            "{\"index\":{}}\n",
            "{\"index\":{}}\n{}",
            "nonsense\n",
            "{\"what\":{}}\n{}\n",
        ] {
            assert_eq!(
                operations(text.as_bytes(), &Ask::default(), &table),
                None,
                "{text}"
            );
        }
    }
}
