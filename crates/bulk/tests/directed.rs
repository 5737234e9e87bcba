//! Directing documents with neither id nor routing: a plain reader of the servers' rules finds the sent
//! documents in the wanted shard, and all other documents are unchanged.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bulk::{
    Ask, Destination, Dialect, Direct, Directing, Flavour, Formula, Gather, ID_LENGTH, IdMint, IndexRoute,
    Level, NodeIx, NullId, Plan, RawError, Repeat, Reply, RouteTable, Run, Scratch, Target, Verdict, Version,
    plan,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const NODES: u16 = 3;

fn table() -> RouteTable {
    let route = |name: &str, shards: u16, formula| {
        let primaries: Vec<_> = (0..shards)
            .map(|shard| (shard != 4).then_some(NodeIx(shard % NODES)))
            .collect();
        IndexRoute::new(name, formula, primaries)
    };
    let classic = |routing_num_shards| Formula::Classic { routing_num_shards };
    let mut parted = route("parted", 4, classic(1024));
    parted.partition_size = 2;
    let mut strict = route("strict", 4, classic(1024));
    strict.routing_required = true;
    let mut table = RouteTable::builder(Dialect::new(Flavour::Elasticsearch, Version::new(9, 5, 3)), NODES);
    let modulo = Arc::new(route("modulo", 5, Formula::Modulo));
    table
        .index(Arc::new(route("logs", 6, classic(768))))
        .index(modulo.clone())
        .index(Arc::new(route("wide", 100, classic(800))))
        .index(Arc::new(route("single", 1, classic(1024))))
        .index(Arc::new(parted))
        .index(Arc::new(strict));
    table.name(
        "stream",
        Target::DataStream {
            write: modulo.clone(),
        },
    );
    table.name(
        "alias",
        Target::Alias {
            write: modulo,
            index_routing: Some("r".into()),
        },
    );
    table.build()
}

/// Gives runs of a few documents to shards in turn, and remembers what it gave.
#[derive(Debug)]
struct InTurn {
    direct: fn(&str) -> Direct,
    docs: u32,
    next: RefCell<HashMap<String, u32>>,
    given: RefCell<Vec<(String, u32, u32)>>,
}

impl InTurn {
    fn new(direct: fn(&str) -> Direct, docs: u32) -> Self {
        Self {
            direct,
            docs,
            next: RefCell::default(),
            given: RefCell::default(),
        }
    }
}

impl Directing for InTurn {
    fn directs(&self, index: &str) -> Direct {
        (self.direct)(index)
    }

    fn begin(&self, index: &IndexRoute) -> Option<Run> {
        let mut next = self.next.borrow_mut();
        let turn = next.entry(index.name.to_string()).or_default();
        *turn += 1;
        // Now and then no shard is known.
        (!turn.is_multiple_of(7)).then(|| Run {
            shard: *turn * 5 % index.shards(),
            docs: self.docs,
            bytes: u64::MAX,
        })
    }

    fn end(&self, index: &IndexRoute, shard: u32, docs: u32, bytes: u64) {
        assert!(docs > 0 && docs <= self.docs && bytes > 0);
        self.given
            .borrow_mut()
            .push((index.name.to_string(), shard, docs));
    }
}

/// Returns the servers' hash, from its definition.
fn slow_hash(text: &str) -> i32 {
    let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let scramble = |k: u32| {
        k.wrapping_mul(0xcc9e_2d51)
            .rotate_left(15)
            .wrapping_mul(0x1b87_3593)
    };
    let (blocks, tail) = bytes.as_chunks::<4>();
    let mut h = blocks.iter().fold(0_u32, |h, block| {
        (h ^ scramble(u32::from_le_bytes(*block)))
            .rotate_left(13)
            .wrapping_mul(5)
            .wrapping_add(0xe654_6b64)
    });
    if let [low, high] = tail {
        h ^= scramble(u32::from(*low) | u32::from(*high) << 8);
    }
    h ^= bytes.len() as u32;
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    (h ^ (h >> 16)) as i32
}

fn slow_shard(index: &str, key: &str) -> u32 {
    let hash = i64::from(slow_hash(key));
    let (shards, slots) = match index {
        "logs" => (6, 768),
        "modulo" => (5, 5),
        "wide" => (100, 800),
        "single" => return 0,
        other => panic!("{other}"),
    };
    (hash.rem_euclid(slots) / (slots / shards)) as u32
}

fn concrete(name: &str) -> &str {
    match name {
        "stream" | "alias" => "modulo",
        name => name,
    }
}

/// One operation: its action line's members and its expected result.
#[derive(Clone, Debug)]
struct Doc {
    index: &'static str,
    op: &'static str,
    members: Vec<(&'static str, Value)>,
    spaced: bool,
}

impl Doc {
    fn lines(&self, number: usize) -> String {
        let mut members = vec![format!("\"_index\":\"{}\"", self.index)];
        members.extend(
            self.members
                .iter()
                .map(|(key, value)| format!("\"{key}\":{value}")),
        );
        if number.is_multiple_of(2) {
            members.reverse();
        }
        let comma = if self.spaced { " , " } else { "," };
        format!(
            "{{\"{}\":{{{}}}}}\n{{\"n\":{number}}}\n",
            self.op,
            members.join(comma)
        )
    }

    fn has(&self, key: &str) -> bool {
        self.members
            .iter()
            .any(|(name, value)| *name == key && !value.is_null())
    }

    fn is_directed(&self, direct: Direct) -> bool {
        let ordinary = matches!(self.index, "logs" | "modulo" | "wide" | "stream");
        ordinary
            && !self.has("_id")
            && !self.has("routing")
            && match direct {
                Direct::Off => false,
                Direct::Mint => true,
                Direct::Route => {
                    self.index != "stream" && !self.members.iter().any(|(name, _)| *name == "routing")
                }
            }
    }
}

fn docs() -> impl Strategy<Value = Vec<Doc>> {
    let index = prop::sample::select(vec![
        "logs", "logs", "modulo", "wide", "stream", "single", "parted", "strict", "alias",
    ]);
    let members = prop::sample::select(vec![
        vec![],
        vec![],
        vec![],
        vec![("_id", json!(null))],
        vec![("routing", json!(null))],
        vec![("_id", json!(null)), ("routing", json!(null))],
        vec![("_id", json!("é"))],
        vec![("routing", json!("r"))],
        vec![("_id", json!("a")), ("routing", json!("r"))],
        vec![("pipeline", json!("_none"))],
        vec![("op_type", json!("create"))],
    ]);
    let doc = (index, prop::bool::ANY, members, prop::bool::ANY);
    let doc = doc.prop_map(|(index, create, members, spaced)| Doc {
        op: if create || index == "stream" {
            "create"
        } else {
            "index"
        },
        index,
        members,
        spaced,
    });
    prop::collection::vec(doc, 1..120)
}

fn gathered(plan: &Plan, body: &[u8]) -> Vec<String> {
    let part = |part| {
        let (mut gather, mut out) = (Gather::default(), Vec::new());
        while gather.next(plan, part, body, &mut out, 1000) > 0 {}
        assert_eq!(out.len() as u64, part.bytes);
        String::from_utf8(out).expect("UTF-8")
    };
    plan.parts.iter().map(part).collect()
}

/// Directs by index: `wide` and `modulo` differ from the others.
fn mixed(index: &str) -> Direct {
    match index {
        "wide" => Direct::Route,
        "modulo" => Direct::Off,
        _ => Direct::Mint,
    }
}

proptest! {
    #[test]
    fn directed_documents_are_found_in_their_shards_and_all_others_are_as_they_were(
        docs in docs(),
        which in prop::sample::select(vec![
            (|_| Direct::Mint) as fn(&str) -> Direct,
            |_| Direct::Route,
            mixed,
        ]),
        run in 1_u32..40,
        mint_all in prop::bool::weighted(0.2),
        seed in any::<u64>(),
    ) {
        let body: String = docs.iter().enumerate().map(|(number, doc)| doc.lines(number)).collect();
        let (table, in_turn) = (table(), InTurn::new(which, run));
        let ask = Ask {
            direct: Some(&in_turn),
            null_id: if mint_all { NullId::Mint } else { NullId::Keep },
            ..Ask::default()
        };
        let (mut ids, mut scratch) = (IdMint::new(seed), Scratch::default());
        let Verdict::Plan(plan) = plan(body.as_bytes(), &ask, &table, &mut ids, &mut scratch) else {
            panic!("plain")
        };
        let mut counted: HashMap<(String, u32), u32> = HashMap::new();
        let mut made = HashSet::new();
        let mut seen = 0;
        let mut made_by_number = HashMap::new();
        for (number, (part, text)) in plan.parts.iter().zip(gathered(&plan, body.as_bytes())).enumerate() {
            let mut lines = text.lines();
            while let (Some(action), Some(source)) = (lines.next(), lines.next()) {
                seen += 1;
                let source: Value = serde_json::from_str(source).unwrap();
                let at = source["n"].as_u64().unwrap() as usize;
                prop_assert_eq!(plan.part_of(at as u32), number);
                let (doc, original) = (&docs[at], docs[at].lines(at));
                let original = original.lines().next().unwrap();
                let action: Value = serde_json::from_str(action).unwrap();
                let original: Value = serde_json::from_str(original).unwrap();
                let (meta, before) = (&action[doc.op], &original[doc.op]);
                let direct = which(concrete(doc.index));
                // If every document gets an id, a routing is of no use.
                let directed = doc.is_directed(direct) && !(mint_all && direct == Direct::Route);
                let index = concrete(doc.index);
                let mut expected = before.clone();
                let key = match (directed, direct) {
                    (true, Direct::Mint) => {
                        expected["_id"] = meta["_id"].clone();
                        meta["_id"].as_str()
                    }
                    (true, Direct::Route) if meta != before => {
                        expected["routing"] = meta["routing"].clone();
                        meta["routing"].as_str()
                    }
                    // No shard was known.
                    (true, _) => None,
                    (false, _) => {
                        let routed = doc.has("routing") || doc.index == "alias";
                        if mint_all && !doc.has("_id") && (!routed || doc.index == "parted") {
                            expected["_id"] = meta["_id"].clone();
                        }
                        None
                    }
                };
                prop_assert_eq!(meta, &expected, "{:?}", doc);
                if let Some(id) = meta["_id"].as_str().filter(|_| !doc.has("_id")) {
                    prop_assert!(id.len() == ID_LENGTH && made.insert(id.to_owned()), "{}", id);
                    made_by_number.insert(at, id.to_owned());
                }
                if let Some(key) = key {
                    let shard = slow_shard(index, key);
                    *counted.entry((index.to_owned(), shard)).or_default() += 1;
                    let home = (shard != 4).then_some(NodeIx(shard as u16 % NODES));
                    prop_assert_eq!(part.destination, home.map_or(Destination::Any, Destination::Node));
                } else if directed {
                    prop_assert!(direct == Direct::Route && part.destination == Destination::Any);
                }
            }
            // Items for a part that no node answers have the ids that were made.
            let error = RawError { status: 503, kind: "k", reason: "r" };
            let failed = Reply::failed(&plan, number, body.as_bytes(), &ask, &table, error);
            let own: Vec<usize> = (0..docs.len()).filter(|at| plan.part_of(*at as u32) == number).collect();
            for (item, at) in own.iter().enumerate() {
                let item: Value = serde_json::from_slice(failed.item(item as u32)).unwrap();
                let id = item.as_object().unwrap().values().next().unwrap()["_id"].as_str().map(str::to_owned);
                match made_by_number.get(at) {
                    Some(made) => prop_assert_eq!(id.as_ref(), Some(made)),
                    None => prop_assert_eq!(id.is_some(), docs[*at].has("_id")),
                }
            }
            // A part may be sent again only if each of its documents has an id.
            let all_have = own.iter().all(|at| docs[*at].has("_id") || made_by_number.contains_key(at));
            let repeat = Repeat::of(&plan, number, body.as_bytes(), &ask, &table, &table);
            prop_assert_eq!(repeat.is_some(), all_have);
        }
        prop_assert_eq!(seen, docs.len());
        let mut given: HashMap<(String, u32), u32> = HashMap::new();
        for (index, shard, docs) in in_turn.given.borrow().iter() {
            *given.entry((index.clone(), *shard)).or_default() += docs;
        }
        // The rest are ids that were made without a wanted shard.
        for (shard, docs) in given {
            prop_assert!(counted.get(&shard).is_some_and(|counted| *counted >= docs), "{:?}", shard);
        }
    }
}

#[test]
fn a_run_is_one_part_and_a_longer_request_has_several() {
    let (table, in_turn) = (table(), InTurn::new(|_| Direct::Mint, 25));
    let ask = Ask {
        default_index: Some("logs"),
        level: Level::Shard,
        direct: Some(&in_turn),
        ..Ask::default()
    };
    for (docs, parts) in [(10, 1), (25, 1), (60, 3)] {
        let body = "{\"index\":{}}\n{}\n".repeat(docs);
        let (mut ids, mut scratch) = (IdMint::new(1), Scratch::default());
        let Verdict::Plan(plan) = plan(body.as_bytes(), &ask, &table, &mut ids, &mut scratch) else {
            panic!("plain")
        };
        let known = plan.parts.iter().filter(|part| part.shard.is_some()).count();
        assert!(
            (1..=parts).contains(&plan.parts.len()),
            "{docs}: {}",
            plan.parts.len()
        );
        assert!(known >= plan.parts.len() - 1);
    }
}

#[test]
fn a_plan_that_is_given_up_gives_nothing() {
    let (table, in_turn) = (table(), InTurn::new(|_| Direct::Mint, 1000));
    let ask = Ask {
        default_index: Some("logs"),
        direct: Some(&in_turn),
        ..Ask::default()
    };
    let body = b"{\"index\":{}}\n{}\n{\"what\":{}}\n{}\n";
    let (mut ids, mut scratch) = (IdMint::new(1), Scratch::default());
    let verdict = plan(body, &ask, &table, &mut ids, &mut scratch);
    assert!(matches!(verdict, Verdict::Pass(_)));
    assert!(in_turn.given.borrow().is_empty());
}
