//! Items for operations that are accepted and not yet executed.

use memchr::{memchr, memchr_iter, memmem};

use crate::action::Op;
use crate::failed::write_string;
use crate::ids::ID_MINT;
use crate::plan::{OperationObserver, plan_observed, plan_observed_in_turns};
use crate::walk::Doc;
use crate::{Ask, ID_LENGTH, IdMint, Ops, RouteTable, Scratch, Verdict, scan};

/// The ids that were minted for one body: all ids that one mint made from `first` to `last`, and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minted {
    /// The first id.
    pub first: [u8; ID_LENGTH],
    /// The last id.
    pub last: [u8; ID_LENGTH],
}

/// Like [`crate::plan`], and appends the items of an answer that is given before anything is executed, with
/// commas between them. The item of each operation has its action, the concrete index, its id (a minted one
/// too), `result` and `status`. An `index` is reported as created. Clients of Elasticsearch 7 fail without a
/// version and without shards, which are not known yet: the version is -1, which no document has and which
/// servers refuse as a condition (`Versions.NOT_FOUND`), and the shards say that none has executed anything.
/// The sequence number is left out, as servers leave out one that is not assigned.
///
/// Nothing is appended for a body that passes.
pub fn plan_acknowledged(
    body: &[u8],
    ask: &Ask<'_>,
    table: &RouteTable,
    ids: &mut IdMint,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Verdict {
    let start = out.len();
    let mut items = Items::new(out, ask, table);
    let verdict = plan_observed(body, ask, table, ids, scratch, &mut items);
    if let Verdict::Pass(_) = verdict {
        out.truncate(start);
    }
    verdict
}

/// Like [`plan_acknowledged`], for bodies with many operations: in turns, as [`crate::plan_in_turns`] makes
/// them.
pub async fn plan_acknowledged_in_turns(
    body: &[u8],
    ask: &Ask<'_>,
    table: &RouteTable,
    ids: &mut IdMint,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
    turn: impl AsyncFnMut(),
) -> Verdict {
    let start = out.len();
    let mut items = Items::new(out, ask, table);
    let verdict = plan_observed_in_turns(body, ask, table, ids, scratch, &mut items, turn).await;
    if let Verdict::Pass(_) = verdict {
        out.truncate(start);
    }
    verdict
}

/// Estimates the length of a body's items from the beginning of the body, rather too high than too low: if
/// all the room is reserved at once, nothing is copied later.
pub fn acknowledged_bytes(body: &[u8]) -> usize {
    // Whatever the rest is like, the items should not take more memory than the body does.
    acknowledged_bytes_likely(body).min(body.len())
}

/// Returns how many bytes the items of a body's answer have, if its operations are like the first ones: for
/// short documents, many times the body.
pub fn acknowledged_bytes_likely(body: &[u8]) -> usize {
    items_bytes_likely(body, ITEM_BYTES)
}

/// Returns how many bytes a cluster's answer to a body has, if its operations are like the first ones and
/// succeed.
pub fn answered_bytes_likely(body: &[u8]) -> usize {
    items_bytes_likely(body, ITEM_BYTES + ANSWERED_MORE_BYTES)
}

/// Returns how many bytes the items of a body have, if the rest of it is like its beginning. An item has
/// `item` bytes beside what its action line gives.
fn items_bytes_likely(body: &[u8], item: usize) -> usize {
    let sample = &body[..body.len().min(SAMPLE_BYTES)];
    let (mut ends, mut start, mut lines, mut short) = (memchr_iter(b'\n', sample), 0, 0, 0);
    // Every second line is an action line; a body with deletes is treated as one with shorter documents.
    while let Some(end) = ends.next() {
        let source_end = match ends.next() {
            None if lines > 0 => break,
            // The first document alone is longer than the sample.
            None if memmem::find(&sample[..end], b"delete").is_none() => {
                memchr(b'\n', &body[end + 1..]).map_or(body.len(), |more| end + 1 + more)
            }
            source_end => source_end.unwrap_or(end),
        };
        short += end - start;
        start = source_end + 1;
        lines += 1;
    }
    if lines == 0 {
        return item;
    }
    let docs = body.len().div_ceil(start / lines);
    docs.saturating_mul(item + short / lines) / 16 * 17
}

/// Bytes of a body's beginning that are looked at.
const SAMPLE_BYTES: usize = 16 << 10;
/// Bytes of an item beside what its action line gives.
const ITEM_BYTES: usize = CREATED.len() + 7;

/// Bytes that a cluster's item has beside those of an acknowledged one: its sequence number and term, a
/// larger version, the id and the index that the action line may lack.
const ANSWERED_MORE_BYTES: usize = 72;

/// The text after an item's id, whose closing quote is the first of it.
const CREATED: &[u8] = b"\",\"_version\":-1,\"result\":\"created\",\"_shards\":{\"total\":0,\"successful\":0,\"failed\":0},\"status\":201}}";
const UPDATED: &[u8] = b"\",\"_version\":-1,\"result\":\"updated\",\"_shards\":{\"total\":0,\"successful\":0,\"failed\":0},\"status\":200}}";
const DELETED: &[u8] = b"\",\"_version\":-1,\"result\":\"deleted\",\"_shards\":{\"total\":0,\"successful\":0,\"failed\":0},\"status\":200}}";

/// Items in the making.
struct Items<'o> {
    out: &'o mut Vec<u8>,
    /// The place where the first item begins.
    start: usize,
    typed: bool,
    /// The texts that items begin with, up to their ids, of recent indices and operations, each at its own
    /// place.
    openings: Vec<Opening>,
}

/// The text that items of one index and operation begin with: the comma after the item before, and all up to
/// the opening quote of the id.
#[derive(Clone, Default)]
struct Opening {
    text: Vec<u8>,
    of: Option<(u32, Op)>,
}

/// The number of openings that are kept.
const OPENINGS: usize = 64;

// === impl Items ===

impl<'o> Items<'o> {
    fn new(out: &'o mut Vec<u8>, ask: &Ask<'_>, table: &RouteTable) -> Self {
        Self {
            start: out.len(),
            out,
            typed: ask.items_have_type(table.dialect()),
            openings: Vec::new(),
        }
    }
}

impl OperationObserver for Items<'_> {
    #[inline]
    fn take(&mut self, doc: &Doc<'_, '_>, id: Option<&[u8]>) {
        let op = doc.op;
        let place = (doc.ordinal as usize * Ops::ALL.len() + op as usize) % OPENINGS;
        if self.openings.get(place).and_then(|opening| opening.of) != Some((doc.ordinal, op)) {
            self.open(doc, place);
        }
        let out = &mut *self.out;
        let opening = &self.openings[place].text[usize::from(out.len() == self.start)..];
        let closing = match op {
            Op::Index | Op::Create => CREATED,
            Op::Update => UPDATED,
            Op::Delete => DELETED,
        };
        match id {
            Some(id) if scan::is_plain(id) => {
                out.reserve(opening.len() + id.len() + closing.len());
                out.extend_from_slice(opening);
                out.extend_from_slice(id);
                out.extend_from_slice(closing);
            }
            _ => {
                out.extend_from_slice(&opening[..opening.len() - 1]);
                match id {
                    Some(id) => write_string(out, &String::from_utf8_lossy(id)),
                    None => out.extend_from_slice(b"null"),
                }
                out.extend_from_slice(&closing[1..]);
            }
        }
    }
}

impl Items<'_> {
    #[cold]
    fn open(&mut self, doc: &Doc<'_, '_>, place: usize) {
        if self.openings.is_empty() {
            self.openings.resize(OPENINGS, Opening::default());
        }
        self.openings[place].of = Some((doc.ordinal, doc.op));
        let opening = &mut self.openings[place].text;
        opening.clear();
        opening.extend_from_slice(b",{\"");
        opening.extend_from_slice(doc.op.as_str().as_bytes());
        opening.extend_from_slice(b"\":{\"_index\":");
        write_string(opening, &doc.route.name);
        if self.typed {
            opening.extend_from_slice(b",\"_type\":\"_doc\"");
        }
        opening.extend_from_slice(b",\"_id\":\"");
    }
}

// === impl Minted ===

impl Minted {
    /// Returns whether `id` is one of these ids.
    pub fn has(&self, id: &[u8]) -> bool {
        let mint = |id: &[u8]| id.get(ID_MINT).map(<[u8]>::to_vec);
        id.len() == ID_LENGTH
            && mint(id) == mint(&self.first)
            && self.first.as_slice() <= id
            && id <= self.last.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        Dialect, Flavour, Formula, Gather, IdMint, IndexRoute, Level, NodeIx, NullId, Reply, Scratch,
        Verdict, Version,
    };

    fn table() -> RouteTable {
        let mut table = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 2);
        let formula = Formula::Classic {
            routing_num_shards: 1024,
        };
        // One primary is unassigned: its documents have a lane all the same.
        table.index(Arc::new(IndexRoute::new(
            "logs",
            formula,
            [Some(NodeIx(0)), None, Some(NodeIx(1)), Some(NodeIx(0))],
        )));
        table.build()
    }

    #[test]
    fn every_operation_is_acknowledged_in_order_with_the_id_that_its_lane_holds() {
        let table = table();
        let body = b"{\"index\":{}}\n{}\n{\"create\":{\"routing\":\"r\"}}\n{}\n{\"update\":{\"_id\":\"u\"}}\n{\"doc\":{}}\n{\"delete\":{\"_id\":\"d\"}}\n";
        let ask = Ask {
            default_index: Some("logs"),
            level: Level::Lane(5),
            null_id: NullId::Always,
            ..Ask::default()
        };
        let mut scratch = Scratch::default();
        let (mut ids, mut items) = (IdMint::new(7), Vec::new());
        let verdict = plan_acknowledged(body, &ask, &table, &mut ids, &mut scratch, &mut items);
        let Verdict::Plan(plan) = verdict else {
            panic!("plain")
        };
        let minted = plan.minted().unwrap();
        let answer = [
            b"{\"took\":0,\"errors\":false,\"items\":[",
            items.as_slice(),
            b"]}",
        ]
        .concat();
        let reply = Reply::split(&answer, 4).unwrap();
        let statuses: Vec<_> = (0..4).map(|item| reply.status(item)).collect();
        assert_eq!(statuses, [Some(201), Some(201), Some(200), Some(200)]);

        let mut logged = String::new();
        for part in &plan.parts {
            assert!(part.lane < 5);
            let (mut gather, mut chunk) = (Gather::default(), Vec::new());
            while gather.next(&plan, part, body, &mut chunk, 1 << 20) > 0 {}
            logged.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        for item in 0..2 {
            let item: serde_json::Value = serde_json::from_slice(reply.item(item)).unwrap();
            let id = item.as_object().unwrap().values().next().unwrap()["_id"]
                .as_str()
                .unwrap();
            assert!(minted.has(id.as_bytes()));
            assert!(logged.contains(&format!("\"_id\":\"{id}\"")), "{id} in {logged}");
        }
        assert!(!minted.has(b"u") && !minted.has(&[b'-'; ID_LENGTH]));
    }

    #[test]
    fn items_have_a_type_where_the_server_gives_them_one() {
        use Flavour::{Elasticsearch, OpenSearch};
        let typed = |flavour, major, compatible_with_7| {
            let mut table = RouteTable::builder(Dialect::new(flavour, Version::new(major, 4, 0)), 1);
            let primaries = [Some(NodeIx(0))];
            table.index(Arc::new(IndexRoute::new("logs", Formula::Modulo, primaries)));
            let ask = Ask {
                level: Level::Lane(1),
                null_id: NullId::Always,
                compatible_with_7,
                ..Ask::default()
            };
            let body = b"{\"index\":{\"_index\":\"logs\",\"_id\":\"1\"}}\n{}\n";
            let (mut ids, mut scratch, mut out) = (IdMint::new(7), Scratch::default(), Vec::new());
            let table = table.build();
            let verdict = plan_acknowledged(body, &ask, &table, &mut ids, &mut scratch, &mut out);
            let Verdict::Plan(plan) = verdict else {
                panic!("plain")
            };
            let has_type = |item: &[u8]| {
                let item: serde_json::Value = serde_json::from_slice(item).unwrap();
                item["index"]["_type"] == "_doc"
            };
            let error = crate::RawError {
                status: 503,
                kind: "x",
                reason: "y",
            };
            let failed = Reply::failed(&plan, 0, body, &ask, &table, error);
            (has_type(&out), has_type(failed.item(0)))
        };
        assert_eq!(typed(Elasticsearch, 7, false), (true, true));
        assert_eq!(typed(Elasticsearch, 8, false), (false, false));
        assert_eq!(typed(Elasticsearch, 8, true), (true, true));
        // They do not know, or refuse, such a request.
        assert_eq!(typed(Elasticsearch, 9, true), (false, false));
        assert_eq!(typed(OpenSearch, 2, true), (false, false));
    }

    #[test]
    fn room_for_the_items_is_enough_and_not_much_more() {
        let table = table();
        let ask = Ask {
            default_index: Some("logs"),
            level: Level::Lane(5),
            null_id: NullId::Always,
            ..Ask::default()
        };
        let source = |bytes: usize| format!("{{\"m\":\"{}\"}}\n", "x".repeat(bytes));
        let bodies = [100, 614, 9_000].map(|bytes| {
            let doc = |n: usize| {
                let bytes = bytes + n * 37 % (bytes / 2 + 1);
                let action = ["index", "create"][n % 2];
                let line = format!(
                    "{{ \"{action}\" : {{ \"_index\" : \"logs\", \"_id\" : \"{:020}\" }} }}\n",
                    n
                );
                line + &source(bytes)
            };
            (0..3_000).map(doc).collect::<String>()
        });
        for body in bodies {
            let (mut ids, mut items, mut scratch) = (IdMint::new(7), Vec::new(), Scratch::default());
            plan_acknowledged(body.as_bytes(), &ask, &table, &mut ids, &mut scratch, &mut items);
            let room = acknowledged_bytes(body.as_bytes());
            assert!(
                (items.len()..items.len() * 3 / 2).contains(&room),
                "{room} for {}",
                items.len()
            );
        }
        assert_eq!(acknowledged_bytes(&[b'\n'; 100_000]), 100_000);
        let large = format!(
            "{{\"index\":{{\"_id\":\"1\"}}}}\n{{\"t\":\"{}\"}}\n",
            "x".repeat(500_000)
        )
        .repeat(20);
        assert!((20..50).contains(&(answered_bytes_likely(large.as_bytes()) / 200)));
        assert!(acknowledged_bytes(&[b'x'; 100_000]) < 1_000);
    }

    #[test]
    fn a_plan_by_lanes_tells_each_name_once_and_the_next_one_begins_anew() {
        let mut builder = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 1);
        let route = Arc::new(IndexRoute::new("logs", Formula::Modulo, [Some(NodeIx(0)), None]));
        builder.index(Arc::clone(&route));
        for alias in ["a", "b"] {
            let write = Arc::clone(&route);
            let target = crate::Target::Alias {
                write,
                index_routing: None,
            };
            builder.name(alias, target);
        }
        let table = builder.build();
        let ask = Ask {
            level: Level::Lane(5),
            null_id: NullId::Always,
            ..Ask::default()
        };
        let (mut ids, mut scratch) = (IdMint::new(7), Scratch::default());
        let mut names = |names: &[&str]| {
            let line = |name: &&str| format!("{{\"index\":{{\"_index\":\"{name}\"}}}}\n{{}}\n");
            let body: String = names.iter().map(line).collect();
            let verdict = crate::plan(body.as_bytes(), &ask, &table, &mut ids, &mut scratch);
            let Verdict::Plan(plan) = verdict else {
                panic!("plain")
            };
            let told: Vec<_> = plan
                .names()
                .iter()
                .map(|name| table.name_of(*name).to_owned())
                .collect();
            scratch.recycle(plan);
            told
        };
        assert_eq!(names(&["a", "a", "logs", "a", "b", "logs"]), ["a", "logs", "b"]);
        assert_eq!(names(&["b", "b"]), ["b"]);
        assert_eq!(table.laned("b").unwrap().write().unwrap().name, route.name);
        assert!(table.laned("c").is_none());
    }

    #[test]
    fn ids_are_written_as_json_has_them_and_nothing_is_for_a_body_that_passes() {
        let table = table();
        let ask = Ask {
            default_index: Some("logs"),
            level: Level::Lane(5),
            null_id: NullId::Always,
            ..Ask::default()
        };
        let items = |body: &str| {
            let mut items = b"before".to_vec();
            let (mut ids, mut scratch) = (IdMint::new(7), Scratch::default());
            let verdict =
                plan_acknowledged(body.as_bytes(), &ask, &table, &mut ids, &mut scratch, &mut items);
            (verdict, String::from_utf8(items).unwrap())
        };
        let (verdict, text) = items(
            "{\"delete\":{\"_id\":\"a\\\"\\u0001é\"}}\n{\"delete\":{\"_id\":\"plain, and long enough\"}}\n",
        );
        assert!(matches!(verdict, Verdict::Plan(_)));
        let items_of: Vec<serde_json::Value> =
            serde_json::from_str(&format!("[{}]", &text["before".len()..])).unwrap();
        assert_eq!(items_of[0]["delete"]["_id"], "a\"\u{1}é");
        assert_eq!(items_of[1]["delete"]["_id"], "plain, and long enough");
        let (verdict, text) = items("{\"delete\":{\"_id\":\"a\"}}\n{\"delete\":{}}\n");
        assert!(matches!(verdict, Verdict::Pass(_)));
        assert_eq!(text, "before");
    }

    #[test]
    fn by_its_id_a_document_has_one_lane_in_every_index_and_with_every_routing() {
        let dialect = Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0));
        let mut builder = RouteTable::builder(dialect, 1);
        for (name, shards) in [("i1", 2), ("i2", 5)] {
            let primaries = vec![Some(NodeIx(0)); shards];
            builder.index(Arc::new(IndexRoute::new(name, Formula::Modulo, primaries)));
        }
        let table = builder.build();
        let lane = |action: &str, lanes_by_id: bool| {
            let body = format!("{{\"index\":{{{action}}}}}\n{{}}\n");
            let ask = Ask {
                level: Level::Lane(16),
                lanes_by_id,
                null_id: NullId::Always,
                ..Ask::default()
            };
            let (mut ids, mut scratch) = (IdMint::new(1), Scratch::default());
            match crate::plan(body.as_bytes(), &ask, &table, &mut ids, &mut scratch) {
                Verdict::Plan(plan) => plan.parts[0].lane,
                Verdict::Pass(pass) => panic!("{pass:?}"),
            }
        };
        let mut seen = std::collections::HashSet::new();
        for id in 0..100 {
            let ways = [
                format!(r#""_index":"i1","_id":"{id}""#),
                format!(r#""_index":"i2","_id":"{id}""#),
                format!(r#""_index":"i2","_id":"{id}","routing":"r""#),
            ];
            let lanes = ways.each_ref().map(|action| lane(action, true));
            assert!(lanes.iter().all(|lane| *lane == lanes[0]), "{lanes:?}");
            seen.insert(lanes[0]);
        }
        assert!(seen.len() == 16, "{seen:?}");
        let minted: std::collections::HashSet<u32> = (0..3).map(|_| lane(r#""_index":"i1""#, true)).collect();
        assert_eq!(minted.len(), 1, "the same id is made each time here");
        let of_shards: std::collections::HashSet<u32> = (0..100)
            .map(|id| lane(&format!(r#""_index":"i1","_id":"{id}""#), false))
            .collect();
        assert_eq!(of_shards.len(), 2);
    }

    #[test]
    fn a_shard_has_one_lane_wherever_its_primary_is() {
        let lanes = |primaries: [Option<NodeIx>; 4]| {
            let mut table = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 2);
            let formula = Formula::Classic {
                routing_num_shards: 1024,
            };
            table.index(Arc::new(IndexRoute::new("logs", formula, primaries)));
            let table = table.build();
            let ask = Ask {
                default_index: Some("logs"),
                level: Level::Lane(3),
                null_id: NullId::Always,
                ..Ask::default()
            };
            let lane = |id: u32| {
                let body = format!("{{\"delete\":{{\"_id\":\"{id}\"}}}}\n");
                let verdict = crate::plan(
                    body.as_bytes(),
                    &ask,
                    &table,
                    &mut IdMint::new(7),
                    &mut Scratch::default(),
                );
                let Verdict::Plan(plan) = verdict else {
                    panic!("plain")
                };
                plan.parts[0].lane
            };
            (0..50).map(lane).collect::<Vec<_>>()
        };
        let (here, there) = (lanes([Some(NodeIx(0)); 4]), lanes([None; 4]));
        assert_eq!(here, there);
        assert!((0..3).all(|lane| here.contains(&lane)), "{here:?}");
    }
}
