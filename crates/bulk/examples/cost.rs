//! The cost of each step, in nanoseconds per document: `cargo run --profile bench -p bulk --example cost`.
//!
//! The numbers are wall time on a shared machine: minima of many rounds, to be compared only with another run
//! at the same time.
#![allow(clippy::disallowed_methods, reason = "it measures time")]
#![allow(clippy::print_stdout, reason = "it is a report")]

use std::hint::black_box;
use std::time::Instant;

use bulk::{Ask, Formula, Gather, IdMint, IndexRoute, Merge, Reply, Scratch, Verdict};

#[path = "../benches/load/mod.rs"]
mod load;

const DOCS: usize = 5_000;
const ROUNDS: usize = 60;
const CHUNK: usize = 256 << 10;

fn main() {
    println!(
        "{:34} {:>8} {:>8} {:>8} {:>8}",
        "ns a document, minima", "plan", "gather", "split", "merge"
    );
    for case in load::CASES {
        let [plan, gather, split, merge] = measure(&case);
        println!("{:34} {plan:8.1} {gather:8.1} {split:8.1} {merge:8.1}", case.name);
    }
    println!(
        "\n{:34} {:>8} {:>8}",
        "ns an id for a wanted shard, minima", "classic", "modulo"
    );
    for shards in [1, 2, 6, 12, 16, 17, 30, 100, 300, 1024] {
        let slots = shards * (1024 / shards).max(1);
        let classic = made(
            Formula::Classic {
                routing_num_shards: slots,
            },
            shards,
        );
        println!(
            "{:34} {classic:8.1} {:8.1}",
            format!("{shards} shards"),
            made(Formula::Modulo, shards)
        );
    }
}

/// Returns the cost of an id for a wanted shard, where shards take turns with runs of 100 documents.
fn made(formula: Formula, shards: u32) -> f64 {
    let index = IndexRoute::new("i", formula, vec![None; shards as usize]);
    let mut mint = IdMint::new(7);
    let mut best = f64::MAX;
    // Each round is at least a turn of all shards, so ids that were made ahead are used up.
    let docs = 100 * shards.max(1_000);
    for round in 0..8 {
        mint.tick(1_790_000_000_000 + round);
        let begun = Instant::now();
        for doc in 0..docs {
            black_box(mint.mint_for(&index, doc / 100 % shards));
        }
        best = best.min(begun.elapsed().as_nanos() as f64 / f64::from(docs));
    }
    best
}

fn measure(case: &load::Case) -> [f64; 4] {
    let (body, table) = (load::body(case, DOCS), load::table(case));
    let in_turn = load::InTurn::new(case.direct);
    let ask = Ask {
        level: case.level,
        null_id: case.null_id,
        direct: Some(&in_turn),
        ..Ask::default()
    };
    let (mut mint, mut scratch) = (IdMint::new(1), Scratch::default());
    let mut best = [f64::MAX; 4];
    let (mut chunk, mut out) = (Vec::with_capacity(CHUNK), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let verdict = bulk::plan(&body, &ask, &table, &mut mint, &mut scratch);
        note(&mut best[0], begun);
        let Verdict::Plan(plan) = verdict else {
            panic!("the body is plain")
        };

        let begun = Instant::now();
        for part in &plan.parts {
            let mut gather = Gather::default();
            while gather.next(&plan, part, &body, &mut chunk, CHUNK) > 0 {
                black_box(&chunk);
                chunk.clear();
            }
        }
        note(&mut best[1], begun);

        let texts = load::replies(&plan);
        let mut replies = Vec::new();
        let begun = Instant::now();
        for (text, part) in texts.iter().zip(&plan.parts) {
            replies.push(Reply::split(text.as_bytes(), part.docs).expect("a reply"));
        }
        note(&mut best[2], begun);

        let begun = Instant::now();
        let mut merge = Merge::new(&plan, replies, 1, table.dialect()).expect("a merge");
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

fn note(best: &mut f64, begun: Instant) {
    *best = best.min(begun.elapsed().as_nanos() as f64 / DOCS as f64);
}
