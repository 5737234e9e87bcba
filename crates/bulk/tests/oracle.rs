//! Compares the fast reader with the slow one: for every body, valid or broken, both must plan alike, and a
//! plan must send what a plain, slow model of the servers predicts.

use std::collections::BTreeMap;
use std::sync::Arc;

use bulk::{
    Ask, Destination, Dialect, Flavour, Formula, Gather, IdMint, IndexRoute, Level, Merge, NodeIx, NullId,
    Plan, Reply, RouteTable, Scratch, Target, Verdict, Version, explain, plan,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const NODES: u16 = 4;

fn table() -> RouteTable {
    let route = |name: &str, shards: u16, formula| {
        let primaries: Vec<_> = (0..shards)
            .map(|shard| Some(NodeIx((shard * 7 + 1) % NODES)))
            .collect();
        IndexRoute::new(name, formula, primaries)
    };
    let logs = Arc::new(route(
        "logs",
        5,
        Formula::Classic {
            routing_num_shards: 640,
        },
    ));
    let modulo = Arc::new(route("modulo", 7, Formula::Modulo));
    let mut parted = route(
        "parted",
        8,
        Formula::Classic {
            routing_num_shards: 1024,
        },
    );
    parted.partition_size = 3;
    parted.routing_required = true;
    let mut holes = route(
        "holes",
        3,
        Formula::Classic {
            routing_num_shards: 3,
        },
    );
    holes.primaries[1] = None;
    let dialect = Dialect::new(Flavour::Elasticsearch, Version::new(8, 19, 0));
    let mut table = RouteTable::builder(dialect, NODES);
    table
        .index(logs.clone())
        .index(modulo.clone())
        .index(Arc::new(parted))
        .index(Arc::new(holes));
    table.name(
        "write",
        Target::Alias {
            write: logs.clone(),
            index_routing: None,
        },
    );
    table.name(
        "routed",
        Target::Alias {
            write: logs,
            index_routing: Some("r1".into()),
        },
    );
    table.name("stream", Target::DataStream { write: modulo });
    table.harmless_pipeline("harmless");
    table.build()
}

fn planned(body: &[u8], ask: &Ask<'_>, scratch: &mut Scratch) -> Verdict {
    let mut ids = IdMint::new(5);
    ids.tick(1_790_000_000_000);
    plan(body, ask, &table(), &mut ids, scratch)
}

fn gathered(plan: &Plan, body: &[u8], max: usize) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    for part in &plan.parts {
        let (mut gather, mut out, mut chunk) = (Gather::default(), Vec::new(), Vec::new());
        loop {
            chunk.clear();
            let count = gather.next(plan, part, body, &mut chunk, max);
            assert_eq!(count, chunk.len());
            assert!(count <= max);
            if count == 0 {
                break;
            }
            out.extend_from_slice(&chunk);
        }
        assert_eq!(out.len() as u64, part.bytes);
        parts.push(out);
    }
    parts
}

/// Returns the obviously right hash: the servers' definition, over a byte array.
fn slow_hash(text: &str) -> i32 {
    let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut h = 0_u32;
    let mix = |k: u32| {
        k.wrapping_mul(0xcc9e_2d51)
            .rotate_left(15)
            .wrapping_mul(0x1b87_3593)
    };
    let whole = bytes.len() / 4 * 4;
    for block in bytes[..whole].chunks(4) {
        h ^= mix(u32::from_le_bytes([block[0], block[1], block[2], block[3]]));
        h = h.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let mut tail = 0;
    for (place, byte) in bytes[whole..].iter().enumerate() {
        tail |= u32::from(*byte) << (8 * place);
    }
    if whole < bytes.len() {
        h ^= mix(tail);
    }
    h ^= bytes.len() as u32;
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    (h ^ (h >> 16)) as i32
}

/// One valid operation, and the style of its action line.
#[derive(Clone, Debug)]
struct Doc {
    op: &'static str,
    index: Option<&'static str>,
    id: Option<String>,
    routing: Option<String>,
    source: String,
    style: u8,
}

impl Doc {
    fn write(&self, out: &mut String) {
        let mut members = Vec::new();
        let quoted = |text: &str| {
            if self.style & 1 == 0 {
                serde_json::to_string(text).expect("a string")
            } else {
                let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
                format!("\"{units}\"")
            }
        };
        let (space, colon) = if self.style & 2 == 0 {
            ("", ":")
        } else {
            (" ", " : ")
        };
        if let Some(index) = self.index {
            members.push(format!("\"_index\"{colon}{}", quoted(index)));
        }
        if let Some(id) = &self.id {
            members.push(format!("\"_id\"{colon}{}", quoted(id)));
        } else if self.style & 4 != 0 {
            members.push(format!("\"_id\"{colon}null"));
        }
        if let Some(routing) = &self.routing {
            members.push(format!("\"routing\"{colon}{}", quoted(routing)));
        } else if self.style & 4 != 0 {
            members.push(format!("\"routing\"{colon}null"));
        }
        if self.style & 8 != 0 {
            members.reverse();
        }
        let end = if self.style & 16 == 0 { "\n" } else { "\r\n" };
        let members = members.join(&format!(",{space}"));
        out.push_str(&format!("{{{space}\"{}\"{colon}{{{members}}}}}{end}", self.op));
        if self.op != "delete" {
            out.push_str(&self.source);
            out.push_str(end);
        }
        if self.style & 96 == 96 {
            out.push('\n');
        }
    }

    /// Returns the concrete index, and the shard if it is decided.
    fn aim(&self, default_index: &str) -> (&'static str, Option<u32>) {
        let name = self
            .index
            .unwrap_or(if default_index == "logs" { "logs" } else { "modulo" });
        let (index, shards, routing_num_shards, partition) = match name {
            "logs" | "write" | "routed" => ("logs", 5, 640, 1),
            "modulo" | "stream" => ("modulo", 7, 0, 1),
            "parted" => ("parted", 8, 1024, 3),
            _ => ("holes", 3, 3, 1),
        };
        let routing = self
            .routing
            .clone()
            .or((name == "routed").then(|| "r1".to_owned()));
        let hash = match (&self.id, &routing) {
            (Some(id), Some(routing)) if partition > 1 => {
                slow_hash(routing).wrapping_add(slow_hash(id).rem_euclid(partition))
            }
            (_, Some(routing)) if partition == 1 => slow_hash(routing),
            (Some(id), None) => slow_hash(id),
            _ => return (index, None),
        };
        let shard = match routing_num_shards {
            0 => hash.rem_euclid(shards),
            slots => hash.rem_euclid(slots) / (slots / shards),
        };
        (index, Some(shard as u32))
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-zA-Z0-9_.:-]{1,24}",
        1 => "[ -~]{1,40}",
        1 => "\\PC{1,12}",
        1 => any::<[char; 3]>().prop_map(|chars| chars.iter().collect()),
    ]
}

fn doc() -> impl Strategy<Value = Doc> {
    let names = ["logs", "write", "routed", "stream", "modulo", "parted", "holes"];
    (
        prop::sample::select(vec!["index", "create", "update", "delete"]),
        prop::option::of(prop::sample::select(names.to_vec())),
        prop::option::weighted(0.8, text()),
        prop::option::weighted(0.3, text()),
        "[ -~]{0,30}",
        any::<u8>(),
    )
        .prop_map(|(op, index, id, routing, filler, style)| {
            // Data streams take nothing else; anything else would make the body pass whole.
            let op = if index == Some("stream") { "create" } else { op };
            let needs_id = matches!(op, "update" | "delete");
            let id = if needs_id {
                Some(id.unwrap_or_else(|| "x".to_owned()))
            } else {
                id
            };
            let source = match op {
                "update" => json!({"doc": {"f": filler}}).to_string(),
                _ => json!({"f": filler}).to_string(),
            };
            Doc {
                op,
                index,
                id,
                routing,
                source,
                style,
            }
        })
}

fn written(docs: &[Doc]) -> String {
    let mut body = String::new();
    docs.iter().for_each(|doc| doc.write(&mut body));
    body
}

fn level() -> impl Strategy<Value = Level> {
    prop::sample::select(vec![Level::Cluster, Level::Node, Level::Index, Level::Shard])
}

fn same(fast: &Verdict, slow: &Verdict, body: &[u8]) {
    match (fast, slow) {
        (Verdict::Pass(fast), Verdict::Pass(slow)) => assert_eq!(fast, slow),
        (Verdict::Plan(fast), Verdict::Plan(slow)) => {
            assert_eq!(gathered(fast, body, 1 << 20), gathered(slow, body, 1 << 20));
            assert_eq!(fast.docs(), slow.docs());
            for doc in 0..fast.docs() {
                assert_eq!(fast.part_of(doc), slow.part_of(doc));
            }
            for (fast, slow) in fast.parts.iter().zip(&slow.parts) {
                assert_eq!(
                    (fast.destination, &fast.index, fast.shard),
                    (slow.destination, &slow.index, slow.shard)
                );
                assert_eq!(fast.docs, slow.docs);
            }
        }
        _ => panic!("{fast:?} is not {slow:?}"),
    }
}

/// Operations that differ in small details; most bodies of a few of them are valid.
const ALIKE: [&str; 14] = [
    "{\"index\":{\"_index\":\"logs\",\"_id\":\"ID\"}}\n{}\n",
    "{\"index\":{\"_index\":\"logs\",\"_id\":\"ID\"}}\n{\"a\":1}\n",
    "{\"index\":{\"_index\":\"logs\",\"_id\":\"ID\"}}\r\n{}\n",
    "{\"index\":{\"_index\":\"logs\",\"_id\":\"ID\",\"routing\":\"r\"}}\n{}\n",
    "{\"index\":{\"_index\":\"logs\",\"_id\":\"ID\",\"routing\":null}}\n{}\n",
    "{\"index\":{\"_id\":\"ID\",\"_index\":\"logs\"}}\n{}\n",
    "{\"index\":{\"_id\":\"ID\",\"_index\":\"parted\",\"routing\":\"r\"}}\n{}\n",
    "{\"index\":{\"_index\":\"routed\",\"_id\":\"ID\"}}\n{}\n",
    "{\"create\":{\"_index\":\"stream\",\"_id\":\"ID\"}}\n{}\n",
    "{\"index\":{\"_index\":\"logs\",\"_id\":\"ID\",\"pipeline\":\"harmless\"}}\n{}\n",
    "{\"delete\":{\"_index\":\"logs\",\"_id\":\"ID\"}}\n",
    "{\"index\":{\"_index\":\"modulo\"}}\n{}\n",
    "{\"index\":{\"_id\":null}}\n{}\n",
    "{\"index\":{}}\n{}\n",
];

/// Ids, and texts in place of an id that are none.
const IDS: [&str; 12] = [
    "a",
    "7",
    "abcdefghijklmnopqrst",
    "abcdefghijklmnopqrstu",
    "bcdefghi",
    "d\",\"routing\":\"s",
    "e\",\"routing\":null,\"pipeline\":\"harmless",
    "\\u0061",
    "é",
    "",
    "c\\",
    "long",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn valid_bodies_are_split_as_the_model_says(
        docs in prop::collection::vec(doc(), 1..40),
        level in level(),
        url_index in prop::sample::select(vec!["logs", "modulo"]),
        chunk in 1_usize..200,
    ) {
        let body = written(&docs);
        let ask = Ask { default_index: Some(url_index), level, ..Ask::default() };
        let mut scratch = Scratch::default();
        let verdict = planned(body.as_bytes(), &ask, &mut scratch);
        let Verdict::Plan(plan) = &verdict else { panic!("{verdict:?}\n{body}") };
        same(&verdict, &planned(body.as_bytes(), &ask, &mut Scratch::without_fast_path()), body.as_bytes());

        // The operations that each destination must get, in order.
        let (table, mut expected, mut order) = (table(), BTreeMap::<_, String>::new(), Vec::new());
        let of_index = |index: &str, known: bool| {
            docs.iter().map(|doc| doc.aim(url_index)).any(|(of, shard)| of == index && shard.is_some() == known)
        };
        for doc in &docs {
            let (index, shard) = doc.aim(url_index);
            // A document whose shard the server chooses may get into the same shard as any other, so they are
            // kept together.
            let shard = shard.filter(|_| !of_index(index, false));
            let Some(Target::Index(route)) = table.target(index) else { panic!("{index}") };
            let node = shard.and_then(|shard| route.node(shard));
            let key = match (level, node) {
                (Level::Cluster | Level::Lane(_), _) | (_, None) => (None, None, None),
                (Level::Node, Some(_)) => (node, None, None),
                (Level::Index, Some(_)) => (node, Some(index.into()), None),
                (Level::Shard, Some(_)) => (node, Some(Box::<str>::from(index)), shard),
            };
            let text = expected.entry(key.clone()).or_default();
            Doc { style: doc.style & !96, ..doc.clone() }.write(text);
            order.push(key);
        }
        let parts = gathered(plan, body.as_bytes(), chunk);
        prop_assert_eq!(parts.len(), expected.len());
        let mut key_of_part = Vec::new();
        for (part, text) in plan.parts.iter().zip(&parts) {
            let node = match part.destination { Destination::Node(node) => Some(node), Destination::Any => None };
            let key = (node, part.index.clone(), part.shard);
            prop_assert_eq!(std::str::from_utf8(text).expect("UTF-8"), expected[&key].as_str());
            key_of_part.push(key);
        }
        for (number, key) in order.iter().enumerate() {
            prop_assert_eq!(&key_of_part[plan.part_of(number as u32)], key);
        }

        let explained: Vec<_> = explain(body.as_bytes(), &ask, &table).collect::<Result<_, _>>().expect("a plan");
        prop_assert_eq!(explained.len(), docs.len());
        for (explained, doc) in explained.iter().zip(&docs) {
            let (index, shard) = doc.aim(url_index);
            prop_assert_eq!((explained.index.as_str(), explained.shard), (index, shard));
            prop_assert_eq!(&explained.id, &doc.id);
            let line = body.lines().nth(explained.line as usize - 1).expect("a line");
            prop_assert!(line.contains(doc.op), "{line}");
        }
    }

    #[test]
    fn damaged_bodies_are_read_alike_by_both_readers(
        docs in prop::collection::vec(doc(), 1..6),
        level in level(),
        mint in any::<bool>(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 0..4),
    ) {
        let mut body = written(&docs).into_bytes();
        for (place, byte, what) in cuts {
            if body.is_empty() { break; }
            let at = place.index(body.len());
            match what {
                0 => body[at] = byte,
                1 => { body.remove(at); }
                2 => body.insert(at, b"{}[]\",: \n\\0n"[byte as usize % 12]),
                _ => body.truncate(at),
            }
        }
        let null_id = if mint { NullId::Mint } else { NullId::Keep };
        let ask = Ask { default_index: Some("logs"), level, null_id, ..Ask::default() };
        let fast = planned(&body, &ask, &mut Scratch::default());
        same(&fast, &planned(&body, &ask, &mut Scratch::without_fast_path()), &body);
    }

    #[test]
    fn lines_like_and_almost_like_the_one_before_are_read_alike_by_both_readers(
        lines in prop::collection::vec((0..ALIKE.len(), 0..IDS.len()), 1..12),
        url_routing in prop::option::of(Just("u")),
        mint in any::<bool>(),
    ) {
        let long = "x".repeat(513);
        let body: String = lines
            .iter()
            .map(|(line, id)| ALIKE[*line].replace("ID", if IDS[*id] == "long" { &long } else { IDS[*id] }))
            .collect();
        let null_id = if mint { NullId::Mint } else { NullId::Keep };
        let ask = Ask { default_index: Some("logs"), url_routing, level: Level::Shard, null_id, ..Ask::default() };
        let fast = planned(body.as_bytes(), &ask, &mut Scratch::default());
        same(&fast, &planned(body.as_bytes(), &ask, &mut Scratch::without_fast_path()), body.as_bytes());
    }

    #[test]
    fn lines_by_turns_are_read_alike_by_both_readers(
        turns in prop::collection::vec((0..ALIKE.len(), 0_u8..40), 1..30),
        rounds in 1_usize..9,
        left_out in 2_usize..9,
        by_lane in any::<bool>(),
    ) {
        let mut body = String::new();
        for round in 0..rounds {
            for (n, (line, routing)) in turns.iter().enumerate() {
                if (round * 5 + n) % left_out != 1 {
                    let line = ALIKE[*line].replace("\"ID\"", &format!("\"{}\"", round * 1000 + n));
                    body += &line.replace("\"r\"", &format!("\"r{routing}\""));
                }
            }
        }
        let level = if by_lane { Level::Lane(5) } else { Level::Shard };
        let ask = Ask { default_index: Some("logs"), level, null_id: NullId::Always, ..Ask::default() };
        let fast = planned(body.as_bytes(), &ask, &mut Scratch::default());
        let slow = planned(body.as_bytes(), &ask, &mut Scratch::without_fast_path());
        if let (Verdict::Plan(fast), Verdict::Plan(slow)) = (&fast, &slow) {
            prop_assert_eq!((fast.writes(), fast.names()), (slow.writes(), slow.names()));
        }
        same(&fast, &slow, body.as_bytes());
    }

    #[test]
    fn minted_ids_are_written_and_decide_the_shard(docs in prop::collection::vec(doc(), 1..20)) {
        let body = written(&docs);
        let ask = Ask { default_index: Some("logs"), level: Level::Shard, null_id: NullId::Mint, ..Ask::default() };
        let Verdict::Plan(plan) = planned(body.as_bytes(), &ask, &mut Scratch::default()) else { panic!("{body}") };
        let keep = Ask { null_id: NullId::Keep, ..ask };
        for (part, text) in plan.parts.iter().zip(gathered(&plan, body.as_bytes(), 77)) {
            // Planned again as it is sent, each part must go whole to its destination, with an id for each
            // document.
            let Verdict::Plan(again) = planned(&text, &keep, &mut Scratch::default()) else { panic!("{body}") };
            prop_assert_eq!(again.parts.len(), 1);
            prop_assert_eq!(again.parts[0].destination, part.destination);
            prop_assert_eq!(again.parts[0].docs, part.docs);
            for explained in explain(&text, &keep, &table()) {
                let explained = explained.expect("a plan");
                prop_assert!(explained.id.is_some() || explained.routing.is_some());
            }
        }
    }

    #[test]
    fn merged_replies_equal_the_obvious_merge(
        docs in prop::collection::vec(doc(), 1..40),
        reasons in prop::collection::vec(prop::option::weighted(0.3, text()), 40),
        shape in 0_u8..4,
        chunk in 1_usize..300,
        ingest in prop::option::of(0_u64..50),
    ) {
        let body = written(&docs);
        let ask = Ask { default_index: Some("logs"), ..Ask::default() };
        let Verdict::Plan(plan) = planned(body.as_bytes(), &ask, &mut Scratch::default()) else { panic!("{body}") };
        let mut items = Vec::new();
        let mut answers = vec![Vec::new(); plan.parts.len()];
        for (number, doc) in docs.iter().enumerate() {
            let mut inner = json!({"_index": "logs", "_id": doc.id, "status": 201});
            if let Some(reason) = &reasons[number] {
                inner["status"] = json!(400);
                inner["error"] = json!({"type": "x", "reason": reason, "caused_by": {"list": [{"a": {"b": 1}}, {"c": 2}]}});
            }
            let item = json!({doc.op: inner}).to_string();
            answers[plan.part_of(number as u32)].push(item.clone());
            items.push(item);
        }
        let errors = reasons[..docs.len()].iter().any(Option::is_some);
        let texts: Vec<String> = answers.iter().map(|answer| {
            let errors = answer.iter().any(|item| item.contains("caused_by"));
            let extra = ingest.map_or(String::new(), |ms| format!(",\"ingest_took\":{ms}"));
            match shape {
                0 => format!("{{\"took\":1{extra},\"errors\":{errors},\"items\":[{}]}}", answer.join(",")),
                1 => format!("{{\"errors\":{errors},\"took\":1{extra},\"items\":[{}]}}", answer.join(",")),
                2 => format!("{{\"took\":1{extra},\"errors\":{errors},\"items\":[{}]}}\n", answer.join(" , ")),
                _ => format!("{{\"took\":1{extra},\"errors\":{errors},\"items\":[{}],\"x\":1}}", answer.join(",")),
            }
        }).collect();
        let replies: Vec<_> = texts.iter().zip(&plan.parts)
            .map(|(text, part)| Reply::split(text.as_bytes(), part.docs).expect("a reply")).collect();
        let mut merge = Merge::new(&plan, replies, 42, table().dialect()).expect("a merge");
        prop_assert_eq!(merge.errors(), errors);
        let bytes = merge.bytes();
        let mut out = Vec::new();
        loop {
            let count = merge.next(&mut out, chunk);
            prop_assert!(count <= chunk);
            if count == 0 { break; }
        }
        prop_assert_eq!(out.len() as u64, bytes);
        let out = String::from_utf8(out).expect("UTF-8");
        let extra = ingest.map_or(String::new(), |ms| format!(",\"ingest_took\":{ms}"));
        let items = items.join(",");
        let expected = match shape {
            0 | 2 => format!("{{\"took\":42{extra},\"errors\":{errors},\"items\":[{items}]}}"),
            1 => format!("{{\"errors\":{errors},\"took\":42{extra},\"items\":[{items}]}}"),
            _ => format!("{{\"took\":42{extra},\"errors\":{errors},\"items\":[{items}],\"x\":1}}"),
        };
        prop_assert_eq!(&out, &expected);
        let _: Value = serde_json::from_str(&out).expect("JSON");
    }

    #[test]
    fn hostile_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..300), docs in 0_u32..5) {
        let _ = planned(&body, &Ask::default(), &mut Scratch::default());
        let _ = Reply::split(&body, docs);
    }
}
