//! Cuts a planned body into its operations again, for callers that send some of them now and some later.

use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;

use memchr::memchr;
use serde_json::Value;

use crate::action::Op;
use crate::fingerprint::Fingerprint;
use crate::plan::{OperationObserver, plan_observed};
use crate::walk::Doc;
use crate::{Ask, IdMint, RouteTable, Scratch, Target, Verdict, scan};

/// One operation of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The start of the operation's lines in the body.
    pub start: usize,
    /// The place after the operation's last newline.
    pub end: usize,
    /// The kind of the operation.
    pub op: Op,
    /// Whether the operation names a version or a sequence number: executed twice, it conflicts with itself.
    pub versioned: bool,
    /// A number that operations on the same document share. Very rarely, by chance, others share it too.
    pub document: u64,
}

/// Like [`crate::plan`], and replaces the contents of `operations` by the body's operations, or by none if
/// the body passes.
pub fn plan_cut(
    body: &[u8],
    ask: &Ask<'_>,
    table: &RouteTable,
    ids: &mut IdMint,
    scratch: &mut Scratch,
    operations: &mut Vec<Operation>,
) -> Verdict {
    operations.clear();
    let mut cuts = Cuts {
        operations,
        fingerprint: Fingerprint::default(),
    };
    let verdict = plan_observed(body, ask, table, ids, scratch, &mut cuts);
    if let Verdict::Pass(_) = verdict {
        operations.clear();
    }
    verdict
}

/// Cuts operations into runs in which no document comes twice; each run is as long as possible.
pub fn runs(operations: &[Operation]) -> Vec<Range<usize>> {
    let mut last = LastOf::new(operations);
    let (mut runs, mut start) = (Vec::new(), 0);
    for at in 0..operations.len() {
        if last.replace(at).is_some_and(|last| last >= start) {
            runs.push(start..at);
            start = at;
        }
    }
    if start < operations.len() {
        runs.push(start..operations.len());
    }
    runs
}

/// Which operation on a document was the last, found by the document's number. The numbers are hashes
/// already, with keys that nobody knows, so they say where to look.
struct LastOf<'o> {
    operations: &'o [Operation],
    /// A power of two of places, more than twice as many as there are operations: half of a document's number
    /// and an operation's, counted from 1; 0 where there is none.
    places: Vec<u64>,
}

impl<'o> LastOf<'o> {
    fn new(operations: &'o [Operation]) -> Self {
        let places = (2 * operations.len() + 1).next_power_of_two();
        Self {
            operations,
            places: vec![0; places],
        }
    }

    /// Says that this operation is the last on its document so far; which one was before it.
    #[inline]
    fn replace(&mut self, at: usize) -> Option<usize> {
        let document = self.operations[at].document;
        let (half, last) = (document & HALF, self.places.len() - 1);
        let mut place = document as usize & last;
        loop {
            let there = self.places[place];
            let before = (there & !HALF) as usize;
            let same = there & HALF == half && before > 0 && self.operations[before - 1].document == document;
            if there == 0 || same {
                self.places[place] = half | (at as u64 + 1);
                return before.checked_sub(1);
            }
            place = (place + 1) & last;
        }
    }
}

/// The upper half of a document's number. A body has fewer operations than the lower half can count.
const HALF: u64 = !0 << 32;

/// Operations in the making.
struct Cuts<'o> {
    operations: &'o mut Vec<Operation>,
    fingerprint: Fingerprint,
}

impl OperationObserver for Cuts<'_> {
    #[inline]
    fn take(&mut self, doc: &Doc<'_, '_>, id: Option<&[u8]>) {
        self.operations.push(Operation {
            start: doc.start,
            end: doc.end,
            op: doc.op,
            versioned: doc.versioned,
            document: self.fingerprint.of(doc.ordinal, id, doc.routing),
        });
    }
}

/// Cuts a body into its operations; `None` if it is not a body that could have been gathered from a
/// [`crate::plan`].
///
/// This is less strict than a plan: the cluster itself judges names that no longer exist and keys that it
/// does not know.
pub fn operations(body: &[u8], ask: &Ask<'_>, table: &RouteTable) -> Option<Vec<Operation>> {
    let mut operations = Vec::new();
    let random = RandomState::new();
    let key = |at: usize, index: Option<&[u8]>, id: Option<&[u8]>, routing: Option<&[u8]>| match id {
        Some(_) => key(index, id, routing, ask, table, &random),
        // It is a document of its own.
        None => random.hash_one(at),
    };
    let mut at = 0;
    while at < body.len() {
        let start = at;
        let (op, versioned, document);
        if let Some((action, after)) = scan::action(body, at) {
            (op, versioned) = (action.op, action.versioned);
            document = key(start, action.index, action.id, action.routing);
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
                start,
                bytes(&index).as_deref(),
                bytes(&id).as_deref(),
                bytes(&routing).as_deref(),
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
    random: &RandomState,
) -> u64 {
    let name = index.or(ask.default_index.map(str::as_bytes)).unwrap_or_default();
    let entry = table.entry(name);
    let write = entry.and_then(|entry| entry.target.write().ok());
    let of_alias = match entry.map(|entry| &entry.target) {
        Some(Target::Alias { index_routing, .. }) => index_routing.as_deref(),
        _ => None,
    };
    let routing = routing.or(ask.url_routing.or(of_alias).map(str::as_bytes));
    let name = write.map_or(name, |write| write.name.as_bytes());
    random.hash_one((name, id, routing))
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
    fn a_plan_cuts_as_the_cutting_does_and_runs_end_before_a_document_comes_again() {
        let mut table = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 1);
        let routes = ["logs", "other"].map(|name| {
            let primaries = [Some(NodeIx(0)), Some(NodeIx(0))];
            Arc::new(IndexRoute::new(name, Formula::Modulo, primaries))
        });
        for route in &routes {
            table.index(Arc::clone(route));
        }
        let table = table.build();
        let ask = Ask {
            default_index: Some("logs"),
            ..Ask::default()
        };
        let ids = [
            "1",
            "a long id of one document",
            "a long id of another one",
            "é",
            "2",
        ];
        let mut body = String::new();
        for number in 0..200_usize {
            let id = ids[number * number % 7 % ids.len()];
            let rest = match number % 5 {
                0 => ",\"_index\":\"other\"",
                1 => ",\"routing\":\"r\"",
                2 => ",\"version\":3,\"version_type\":\"external\"",
                _ => "",
            };
            body.push_str(&match number % 3 {
                0 => format!("{{\"delete\":{{\"_id\":\"{id}\"{rest}}}}}\n"),
                _ => format!("{{\"index\":{{\"_id\":\"{id}\"{rest}}}}}\n{{\"n\":{number}}}\n"),
            });
        }
        let mut cut = vec![];
        let (mut mint, mut scratch) = (IdMint::new(1), Scratch::default());
        let verdict = plan_cut(body.as_bytes(), &ask, &table, &mut mint, &mut scratch, &mut cut);
        assert!(matches!(verdict, Verdict::Plan(plan) if plan.docs() == 200));
        let slowly = operations(body.as_bytes(), &ask, &table).unwrap();
        let places = |operations: &[Operation]| -> Vec<_> {
            operations
                .iter()
                .map(|one| (one.start, one.end, one.op, one.versioned))
                .collect()
        };
        assert_eq!(places(&cut), places(&slowly));
        // The numbers differ, but they distinguish the same documents.
        for (one, other) in cut.iter().zip(&slowly) {
            for (two, another) in cut.iter().zip(&slowly) {
                let (same, slowly) = (one.document == two.document, other.document == another.document);
                assert_eq!(same, slowly);
            }
        }
        let mut expected = vec![];
        let mut from = 0;
        while from < cut.len() {
            let mut documents = std::collections::HashSet::new();
            let alone = cut[from..]
                .iter()
                .take_while(|one| documents.insert(one.document));
            let end = from + alone.count();
            expected.push(from..end);
            from = end;
        }
        assert!(expected.len() > 10);
        assert_eq!((runs(&cut), runs(&slowly)), (expected.clone(), expected));
        assert_eq!(runs(&[]), []);
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
