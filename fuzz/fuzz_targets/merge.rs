//! Hostile replies: what is cut into items is what a JSON parser sees, and a merge of it is JSON again.
#![no_main]

use std::sync::Arc;

use bulk::{
    Ask, Dialect, Flavour, Formula, IdMint, IndexRoute, Merge, NodeIx, Reply, RouteTable, Scratch, Verdict, Version,
};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|input: &[u8]| {
    let [docs, text @ ..] = input else { return };
    let docs = u32::from(docs % 8);
    let Ok(reply) = Reply::split(text, docs) else { return };
    assert_eq!(reply.items(), docs);
    for item in 0..docs {
        let _ = reply.facts(item);
    }
    // The splitter follows JSON without judging it: only what is JSON can be compared.
    let Ok(value) = serde_json::from_slice::<Value>(text) else { return };
    let items = value["items"].as_array().expect("an array");
    assert_eq!(items.len(), docs as usize);
    for (number, expected) in items.iter().enumerate() {
        let item: Value = serde_json::from_slice(reply.item(number as u32)).expect("an item");
        assert_eq!(&item, expected);
    }
    if docs == 0 {
        return;
    }

    let mut table = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 1);
    table.index(Arc::new(IndexRoute::new("a", Formula::Modulo, [Some(NodeIx(0))])));
    let table = table.build();
    let body = "{\"index\":{\"_id\":\"1\"}}\n{}\n".repeat(docs as usize);
    let ask = Ask { default_index: Some("a"), ..Ask::default() };
    let verdict = bulk::plan(body.as_bytes(), &ask, &table, &mut IdMint::new(1), &mut Scratch::default());
    let Verdict::Plan(plan) = verdict else { panic!("the body is plain") };
    let mut merge = Merge::new(&plan, vec![reply], 7, table.dialect()).expect("it fits");
    let (bytes, mut out) = (merge.bytes(), Vec::new());
    while merge.next(&mut out, 5) > 0 {}
    assert_eq!(out.len() as u64, bytes);
    let merged: Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(merged["items"], value["items"]);
    assert_eq!(merged["took"], 7);
});
