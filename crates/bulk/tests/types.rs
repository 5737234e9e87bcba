//! Lines kept for servers that may not know types have no type, and are the same otherwise.

#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

use std::sync::Arc;

use bulk::{
    Ask, Dialect, Flavour, Formula, Gather, IdMint, IndexRoute, Level, NodeIx, NullId, RouteTable, Scratch,
    Verdict, Version,
};
use serde_json::Value;

#[test]
fn types_are_left_out_of_action_lines_and_nothing_else_changes() {
    let dialect = Dialect::new(Flavour::Elasticsearch, Version::new(7, 10, 2));
    let mut builder = RouteTable::builder(dialect, 1);
    for name in ["a", "bb"] {
        let primaries = [Some(NodeIx(0)), Some(NodeIx(0))];
        builder.index(Arc::new(IndexRoute::new(name, Formula::Modulo, primaries)));
    }
    let table = builder.build();
    let ask = Ask {
        default_index: Some("a"),
        level: Level::Lane(1),
        null_id: NullId::Always,
        without_types: true,
        ..Ask::default()
    };
    // The type first, last, in the middle, alone and missing; lines of the fast reader and of the slow one.
    let lines = [
        "{\"index\":{\"_index\":\"a\",\"_type\":\"_doc\",\"_id\":\"ID\"}}",
        "{ \"create\" : { \"_index\" : \"bb\",\"_type\":\"_doc\", \"_id\" : \"ID\" } }",
        "{\"index\":{\"_type\":\"_doc\",\"_id\":\"ID\"}}",
        "{\"index\":{ \"_type\" : \"_doc\" , \"_id\":\"ID\"}}\r",
        "{\"delete\":{\"_id\":\"ID\",\"_type\":\"_doc\"}}",
        "{\"delete\":{\"_id\":\"ID\" , \"_type\" : \"_doc\" , \"_index\":\"bb\"}}",
        "{\"delete\":{\"_id\":\"ID\"}}",
        "{\"index\":{\"_type\":\"_doc\"}}",
        "{\"index\":{ \"_type\":\"_doc\" }}",
        "{\"index\":{\"_id\":null,\"_type\":\"_doc\"}}",
        "{\"index\":{\"_type\":\"_doc\", \"_id\": null}}",
        "{\"index\":{\"_index\":\"bb\",\"_type\":\"_doc\"}}",
        "{\"index\":{\"_type\":\"_doc\",\"routing\":\"r\"}}",
        "{\"index\":{\"\\u005ftype\":\"_doc\",\"_id\":\"ID\"}}",
        "{\"index\":{\"_id\":7 , \"_type\":\"_doc\"}}",
        " {\"index\": {\"_type\" : \"_doc\" , \"_id\":\"\\u0031\"}}",
        "{\"index\":{\"version\":3,\"_type\":\"_doc\",\"version_type\":\"external\",\"_id\":\"ID\"}}",
        " {\"index\": {\"_type\" : \"_doc\"}}",
    ];
    let source = "{\"_type\":\"_doc\"}";
    for mut scratch in [Scratch::default(), Scratch::without_fast_path()] {
        for seed in 0..400_usize {
            let (mut body, mut wanted) = (String::new(), Vec::new());
            for n in 0..1 + seed % 9 {
                let id = "x".repeat(1 + (seed * 31 + n * 17) % 23);
                let line = lines[(seed + n * (1 + seed / 20)) % lines.len()].replace("ID", &id);
                let mut read: Value = serde_json::from_str(&line).unwrap();
                let inner = read.as_object_mut().unwrap().values_mut().next().unwrap();
                inner.as_object_mut().unwrap().shift_remove("_type");
                body += &format!("{line}\n");
                wanted.push(read.clone());
                if read.get("delete").is_none() {
                    body += &format!("{source}\n");
                    wanted.push(serde_json::from_str(source).unwrap());
                }
            }
            let verdict = bulk::plan(body.as_bytes(), &ask, &table, &mut IdMint::new(7), &mut scratch);
            let Verdict::Plan(plan) = verdict else {
                panic!("{verdict:?} {body}")
            };
            let (mut gather, mut out) = (Gather::default(), Vec::new());
            while gather.next(&plan, &plan.parts[0], body.as_bytes(), &mut out, 50) > 0 {}
            assert_eq!(out.len() as u64, plan.parts[0].bytes);
            let text = String::from_utf8(out).unwrap();
            let got: Vec<&str> = text.lines().collect();
            assert_eq!(got.len(), wanted.len(), "{body}{text}");
            for (got, wanted) in got.iter().zip(&mut wanted) {
                let mut read: Value = serde_json::from_str(got).expect(got);
                for read in [&mut read, &mut *wanted] {
                    // Ids that were made here, or are still to be made.
                    let inner = read.as_object_mut().unwrap().values_mut().next().unwrap();
                    if let Some(inner) = inner.as_object_mut()
                        && inner.get("_id").is_none_or(|id| {
                            id.is_null() || id.as_str().is_some_and(|id| id.len() == 20 && !id.contains('x'))
                        })
                    {
                        inner.insert("_id".to_owned(), "made".into());
                    }
                }
                assert_eq!(read, *wanted, "{body}{text}");
            }
            scratch.recycle(plan);
        }
    }
}
