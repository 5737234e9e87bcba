//! Bodies as client libraries and shippers write them: each is split as its `.snap` file says.
//!
//! `UPDATE=1 cargo test -p bulk --test golden` rewrites the snapshots: read the difference before you keep
//! it.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use bulk::{
    Ask, Dialect, Flavour, Formula, IdMint, IndexRoute, NodeIx, RouteTable, Scratch, Target, Verdict,
    Version, explain, plan,
};

fn table(flavour: Flavour, version: Version) -> RouteTable {
    let route = |name: &str| {
        let primaries: Vec<_> = (0..5).map(|shard| Some(NodeIx(shard % 3))).collect();
        Arc::new(IndexRoute::new(
            name,
            Formula::Classic {
                routing_num_shards: 640,
            },
            primaries,
        ))
    };
    let mut table = RouteTable::builder(Dialect::new(flavour, version), 3);
    table.index(route("test")).index(route("logs-2026.11.21"));
    table.name(
        "logs-app-default",
        Target::DataStream {
            write: route(".ds-logs-app-default-2026.11.21-000001"),
        },
    );
    table.name(
        "current",
        Target::Alias {
            write: route("logs-2026.11.21"),
            index_routing: None,
        },
    );
    table.harmless_pipeline("geo");
    table.build()
}

fn described(body: &[u8], ask: &Ask<'_>, table: &RouteTable) -> String {
    let mut text = String::new();
    let verdict = plan(body, ask, table, &mut IdMint::new(1), &mut Scratch::default());
    match verdict {
        Verdict::Pass(pass) => writeln!(text, "pass: {} (line {:?})", pass.why, pass.line).expect("a String"),
        Verdict::Plan(plan) => {
            for part in &plan.parts {
                writeln!(
                    text,
                    "{:?}: {} documents, {} bytes",
                    part.destination, part.docs, part.bytes
                )
                .expect("a String");
            }
        }
    }
    for doc in explain(body, ask, table) {
        match doc {
            Ok(doc) => {
                let (op, by) = (doc.op.as_str(), doc.by.as_str());
                let (id, routing, shard) = (doc.id, doc.routing, doc.shard);
                let line = format!(
                    "line {}: {op} {} id {id:?} routing {routing:?}",
                    doc.line, doc.index
                );
                writeln!(text, "{line} -> shard {shard:?} by {by}").expect("a String");
            }
            Err(pass) => writeln!(text, "line {:?}: {}", pass.line, pass.why).expect("a String"),
        }
    }
    text
}

#[test]
fn clients_bodies_are_split_as_recorded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|ending| ending != "ndjson") {
            continue;
        }
        seen += 1;
        let body = std::fs::read(&path).expect("a body");
        let mut text = String::new();
        for (flavour, version) in [
            (Flavour::OpenSearch, Version::new(3, 8, 0)),
            (Flavour::Elasticsearch, Version::new(7, 9, 3)),
            (Flavour::Elasticsearch, Version::new(9, 5, 3)),
        ] {
            writeln!(text, "# {flavour:?} {}", version.major).expect("a String");
            let ask = Ask {
                default_index: Some("test"),
                ..Ask::default()
            };
            text.push_str(&described(&body, &ask, &table(flavour, version)));
        }
        let snapshot = path.with_extension("snap");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&snapshot, &text).expect("written");
        }
        let recorded = std::fs::read_to_string(&snapshot).expect("a snapshot: run with UPDATE=1");
        assert_eq!(text, recorded, "{}", path.display());
    }
    assert!(seen >= 12, "{seen} golden bodies");
}
