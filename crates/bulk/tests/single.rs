//! Writes of single documents as bulks of one: what goes in is what the plan of a bulk reads, and what comes
//! back is the item without its frame, compared with a slow and obvious version on `serde_json`.

use std::sync::Arc;

use bulk::{
    Ask, Dialect, Flavour, Formula, IdMint, IndexRoute, NodeIx, Op, RouteTable, Scratch, Single, SingleValue,
    Turned, Verdict, Version, explain, plan, single_answer,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn table() -> RouteTable {
    let mut table = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 2);
    let shards = [Some(NodeIx(0)), Some(NodeIx(1)), Some(NodeIx(0))];
    for name in ["logs", "café \"1\""] {
        table.index(Arc::new(IndexRoute::new(name, Formula::Modulo, shards)));
    }
    table.build()
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9]{1,12}",
        "\\PC{1,20}",
        any::<String>().prop_filter("not empty", |text| !text.is_empty()),
        "[\"\\\\\u{0}-\u{1f}\u{7f}\u{2028}é😀]{1,8}",
    ]
    .prop_filter("servers take 512 bytes", |text| text.len() <= 512)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        Just(Op::Index),
        Just(Op::Create),
        Just(Op::Update),
        Just(Op::Delete)
    ]
}

proptest! {
    #[test]
    fn the_plan_reads_what_the_head_of_the_request_said(
        op in op(),
        index in prop_oneof![Just("logs"), Just("café \"1\"")],
        id in proptest::option::of(text()),
        routing in proptest::option::of(text()),
        cas in any::<bool>(),
        source in proptest::collection::btree_map("[a-z]{1,4}", any::<String>(), 0..3),
    ) {
        let needs_id = matches!(op, Op::Update | Op::Delete);
        let id = if needs_id { Some(id.unwrap_or_else(|| "1".to_owned())) } else { id };
        let mut single = Single { op, index: index.into(), id: id.clone().map(Into::into), keys: Vec::new() };
        if let Some(routing) = &routing {
            single.keys.push(("routing", SingleValue::Text(routing.into())));
        }
        if cas && id.is_some() && op != Op::Create {
            single.keys.push(("if_seq_no", SingleValue::Word("17")));
            single.keys.push(("if_primary_term", SingleValue::Word("1")));
        }
        let document = json!(source);
        let source = match op {
            Op::Update => json!({"doc": document}).to_string(),
            _ => document.to_string(),
        };
        let mut body = Vec::new();
        prop_assert_eq!(single.write(source.as_bytes(), &mut body), Ok(()));
        let (ask, table) = (Ask::default(), table());
        let verdict = plan(&body, &ask, &table, &mut IdMint::new(1), &mut Scratch::default());
        let Verdict::Plan(plan) = verdict else { panic!("{verdict:?}: {}", String::from_utf8_lossy(&body)) };
        prop_assert_eq!((plan.docs(), plan.parts.len(), plan.parts[0].bytes), (1, 1, body.len() as u64));
        let explained = explain(&body, &ask, &table).next().unwrap().unwrap();
        prop_assert_eq!((explained.op, &*explained.index), (op, index));
        prop_assert_eq!((explained.id, explained.routing), (id, routing));
        let lines: Vec<&[u8]> = body.split(|byte| *byte == b'\n').collect();
        let expected = if op == Op::Delete { None } else { Some(source.as_bytes()) };
        prop_assert_eq!(lines.get(1).copied().filter(|line| !line.is_empty()), expected);
    }

    #[test]
    fn the_answer_is_the_item_without_its_frame(
        op in op(),
        id in text(),
        status in prop_oneof![Just(200), Just(201), Just(404)],
        result in prop_oneof![Just("created"), Just("updated"), Just("noop"), Just("deleted")],
        forced in any::<bool>(),
        get in any::<bool>(),
    ) {
        let shards = json!({"total": 2, "successful": 1, "failed": 0});
        let mut inner = Map::new();
        let mut put = |key: &str, value: Value| drop(inner.insert(key.to_owned(), value));
        put("_index", json!("logs"));
        put("_id", json!(id));
        put("result", json!(result));
        if forced {
            put("forced_refresh", json!(true));
        }
        put("_shards", shards);
        if get {
            put("get", json!({"_source": {"status": 1, "}}": "\"status\":201}}"}}));
        }
        put("status", json!(status));
        let item = json!({op.as_str(): inner}).to_string();
        let Turned::Answer(answer) = single_answer(item.as_bytes()) else { panic!("{item}") };
        prop_assert_eq!(answer.status, status);
        prop_assert_eq!(answer.created, (status == 201).then(|| ("logs".to_owned(), id)));
        inner.remove("status");
        if op == Op::Update && result == "noop" {
            inner.remove("forced_refresh");
            inner.insert("_shards".to_owned(), json!({"total": 0, "successful": 0, "failed": 0}));
        }
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        prop_assert_eq!(body, Value::Object(inner));
    }

    #[test]
    fn nothing_that_nodes_may_say_is_too_odd(item in "\\PC{0,60}") {
        prop_assert_eq!(single_answer(item.as_bytes()), Turned::Unread);
    }
}
