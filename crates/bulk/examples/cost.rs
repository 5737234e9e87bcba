#![allow(clippy::print_stdout, reason = "it is a report")]
//! What each step costs, in nanoseconds a document: `cargo run --profile bench -p bulk --example cost`.
//!
//! Wall time on a shared machine: take the minimum of several runs, and compare with a run beside it.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use bulk::{
    Ask, Dialect, Flavour, Formula, Gather, IdMint, IndexRoute, Level, Merge, NodeIx, NullId, Plan, Reply,
    RouteTable, Scratch, Verdict, Version,
};

const DOCS: usize = 5_000;
const ROUNDS: usize = 60;

fn main() {
    println!(
        "{:34} {:>8} {:>8} {:>8} {:>8}",
        "ns a document (minimum)", "plan", "gather", "split", "merge"
    );
    for (name, shards, source_bytes, ids, null_id) in [
        ("600 B, ids, 3 shards", 3, 600, true, NullId::Keep),
        ("600 B, ids, 30 shards", 30, 600, true, NullId::Keep),
        ("600 B, ids, 300 shards", 300, 600, true, NullId::Keep),
        ("200 B, ids, 3 shards", 3, 200, true, NullId::Keep),
        ("600 B, no ids", 3, 600, false, NullId::Keep),
        ("600 B, ids minted", 3, 600, false, NullId::Mint),
    ] {
        for level in [Level::Node, Level::Shard] {
            if level == Level::Shard && shards < 300 {
                continue;
            }
            let costs = measure(shards, source_bytes, ids, null_id, level);
            let name = format!("{name}, by {level:?}").to_lowercase();
            println!(
                "{name:34} {:8.1} {:8.1} {:8.1} {:8.1}",
                costs[0], costs[1], costs[2], costs[3]
            );
        }
    }
}

fn measure(shards: u16, source_bytes: usize, ids: bool, null_id: NullId, level: Level) -> [f64; 4] {
    let body = body(source_bytes, ids);
    let table = table(shards);
    let ask = Ask {
        default_index: None,
        level,
        null_id,
        ..Ask::default()
    };
    let mut mint = IdMint::new(1);
    let mut scratch = Scratch::default();
    let mut best = [f64::MAX; 4];
    let (mut chunk, mut out) = (Vec::with_capacity(CHUNK), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let Verdict::Plan(plan) = bulk::plan(&body, &ask, &table, &mut mint, &mut scratch) else {
            panic!("the body is plain");
        };
        note(&mut best[0], begun);
        let begun = Instant::now();
        for part in &plan.parts {
            let mut gather = Gather::default();
            chunk.clear();
            while gather.next(&plan, part, &body, &mut chunk, CHUNK) > 0 {
                black_box(&chunk);
                chunk.clear();
            }
        }
        note(&mut best[1], begun);
        let texts = replies(&plan);
        let begun = Instant::now();
        let mut replies = Vec::new();
        for (text, part) in texts.iter().zip(&plan.parts) {
            replies.push(Reply::split(text.as_bytes(), part.docs).expect("a reply"));
        }
        note(&mut best[2], begun);
        let begun = Instant::now();
        let mut merge = Merge::new(&plan, replies, 1, table.dialect()).expect("a merge");
        out.clear();
        while merge.next(&mut out, CHUNK) > 0 {
            black_box(&out);
            out.clear();
        }
        note(&mut best[3], begun);
        drop(merge);
        scratch.recycle(plan);
    }
    best
}

const CHUNK: usize = 256 << 10;

fn note(best: &mut f64, begun: Instant) {
    *best = best.min(begun.elapsed().as_nanos() as f64 / DOCS as f64);
}

fn body(source_bytes: usize, ids: bool) -> Vec<u8> {
    let mut body = String::new();
    for number in 0..DOCS {
        match ids {
            true => body.push_str(&format!(
                "{{\"index\":{{\"_index\":\"nginx-logs\",\"_id\":\"doc-{:012}\"}}}}\n",
                number * 7919
            )),
            false => body.push_str("{\"index\":{\"_index\":\"nginx-logs\"}}\n"),
        }
        body.push_str(&format!("{{\"message\":\"{}\"}}\n", "x".repeat(source_bytes)));
    }
    body.into_bytes()
}

fn table(shards: u16) -> RouteTable {
    let dialect = Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0));
    let primaries: Vec<_> = (0..shards).map(|shard| Some(NodeIx(shard % 3))).collect();
    let formula = Formula::Classic {
        routing_num_shards: u32::from(shards) * 16,
    };
    let mut table = RouteTable::builder(dialect, 3);
    table.index(Arc::new(IndexRoute::new("nginx-logs", formula, primaries)));
    table.build()
}

fn replies(plan: &Plan) -> Vec<String> {
    let item = "{\"index\":{\"_index\":\"nginx-logs\",\"_id\":\"doc-000000123456\",\"_version\":1,\"result\":\"created\",\
                \"_shards\":{\"total\":2,\"successful\":2,\"failed\":0},\"_seq_no\":123456,\"_primary_term\":1,\"status\":201}}";
    plan.parts
        .iter()
        .map(|part| {
            let items = vec![item; part.docs as usize].join(",");
            format!("{{\"took\":30,\"errors\":false,\"items\":[{items}]}}")
        })
        .collect()
}
