//! Hostile bodies: the fast reader and the slow one plan alike, and the parts, laid together in the order of
//! the request, are the body.
#![no_main]

use std::sync::Arc;

use bulk::{
    Ask, Dialect, Flavour, Formula, Gather, IdMint, IndexRoute, Level, NodeIx, NullId, Plan, RouteTable, Scratch,
    Verdict, Version, explain,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [choice, body @ ..] = input else { return };
    let level = [Level::Cluster, Level::Node, Level::Index, Level::Shard][usize::from(choice & 3)];
    let null_id = if choice & 4 == 0 { NullId::Keep } else { NullId::Mint };
    let flavour = if choice & 8 == 0 { Flavour::OpenSearch } else { Flavour::Elasticsearch };
    let version = Version::new([1, 3, 7, 9][usize::from(choice >> 4 & 3)], 19, 0);
    let table = table(Dialect::new(flavour, version));
    let ask = Ask { default_index: Some("a"), level, null_id, ..Ask::default() };

    let verdict = |mut scratch: Scratch| bulk::plan(body, &ask, &table, &mut IdMint::new(1), &mut scratch);
    match (verdict(Scratch::default()), verdict(Scratch::without_fast_path())) {
        (Verdict::Pass(fast), Verdict::Pass(slow)) => assert_eq!(fast, slow),
        (Verdict::Plan(fast), Verdict::Plan(slow)) => {
            let parts = gathered(&fast, body);
            assert_eq!(parts, gathered(&slow, body));
            assert_eq!(fast.docs() as usize, explain(body, &ask, &table).map(Result::unwrap).count());
            if null_id == NullId::Keep {
                laid_together(&fast, &parts, body);
            }
        }
        (fast, slow) => panic!("{fast:?} is not {slow:?}"),
    }
});

fn table(dialect: Dialect) -> RouteTable {
    let mut table = RouteTable::builder(dialect, 3);
    for (name, shards) in [("a", 5), ("b", 2)] {
        let primaries: Vec<_> = (0..shards).map(|shard| (shard != 3).then_some(NodeIx(shard % 3))).collect();
        table.index(Arc::new(IndexRoute::new(name, Formula::Modulo, primaries)));
    }
    table.build()
}

fn gathered(plan: &Plan, body: &[u8]) -> Vec<Vec<u8>> {
    let gather = |part: &bulk::Part| {
        let (mut gather, mut out) = (Gather::default(), Vec::new());
        while gather.next(plan, part, body, &mut out, 7) > 0 {}
        assert_eq!(out.len() as u64, part.bytes);
        out
    };
    plan.parts.iter().map(gather).collect()
}

/// Taking operations from the parts in the order of the request gives the body, but for blank lines.
fn laid_together(plan: &Plan, parts: &[Vec<u8>], body: &[u8]) {
    let mut rest: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let mut at = 0;
    for doc in 0..plan.docs() {
        let part = &mut rest[plan.part_of(doc)];
        while !part.is_empty() && !body[at..].starts_with(&part[..line(part)]) {
            assert!(body[at..at + line(&body[at..])].iter().all(u8::is_ascii_whitespace), "a line is lost");
            at += line(&body[at..]);
        }
        let lines = if is_delete(part) { 1 } else { 2 };
        for _ in 0..lines {
            let length = line(part);
            assert_eq!(part[..length], body[at..at + length]);
            *part = &part[length..];
            at += length;
        }
    }
    assert!(rest.iter().all(|part| part.is_empty()));
}

fn line(text: &[u8]) -> usize {
    text.iter().position(|byte| *byte == b'\n').expect("a newline") + 1
}

fn is_delete(part: &[u8]) -> bool {
    let action: serde_json::Value = serde_json::from_slice(&part[..line(part)]).expect("JSON");
    action.get("delete").is_some()
}
