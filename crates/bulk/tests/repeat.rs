//! Parts that are sent a second time, compared with a plain model of a shard: whatever the first try had
//! executed before it broke off, the second one leaves the same documents, and no item that the client gets
//! says anything untrue.

use std::collections::BTreeMap;
use std::sync::Arc;

use bulk::{
    Ask, Dialect, Flavour, Formula, Gather, IdMint, IndexRoute, Merge, NodeIx, NullId, Plan, Repeat, Reply,
    RouteTable, Scratch, Target, Verdict, Version, plan,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn route(name: &str) -> Arc<IndexRoute> {
    Arc::new(IndexRoute::new(name, Formula::Modulo, [Some(NodeIx(0))]))
}

/// Makes a table with `logs`, and with the alias `write` that leads to `of_alias`.
fn table(of_alias: &str) -> RouteTable {
    let mut table = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 1);
    table.index(route("logs")).index(route(of_alias));
    table.name(
        "write",
        Target::Alias {
            write: route(of_alias),
            index_routing: None,
        },
    );
    table.build()
}

const ASK: Ask<'static> = Ask {
    default_index: Some("logs"),
    url_routing: None,
    url_pipeline: None,
    level: bulk::Level::Node,
    lanes_by_id: false,
    nodes_apart: false,
    null_id: NullId::Keep,
    require_alias: false,
    require_data_stream: false,
    suppose_new: false,
    without_types: false,
    compatible_with_7: false,
    direct: None,
};

fn planned(body: &str, ask: &Ask<'_>) -> Plan {
    match plan(
        body.as_bytes(),
        ask,
        &table("logs"),
        &mut IdMint::new(5),
        &mut Scratch::default(),
    ) {
        Verdict::Plan(plan) => plan,
        Verdict::Pass(pass) => panic!("{pass:?}: {body}"),
    }
}

fn repeat_of(body: &str, ask: &Ask<'_>, now: &RouteTable) -> Option<Repeat> {
    Repeat::of(&planned(body, ask), 0, body.as_bytes(), ask, &table("logs"), now)
}

#[test]
fn only_operations_that_leave_the_same_documents_twice_may_be_sent_twice() {
    let minting = Ask {
        null_id: NullId::Mint,
        ..ASK
    };
    let may = |body: &str, ask: &Ask<'_>| repeat_of(body, ask, &table("logs")).is_some();
    for body in [
        "{\"index\":{\"_id\":\"1\"}}\n{}\n",
        "{\"index\":{\"_index\":\"write\",\"_id\":1,\"routing\":\"r\"}}\n{}\n\n{\"delete\":{\"_id\":\"2\"}}\n",
        "{\"create\":{\"_id\":\"1\"}}\n{}\n",
        "{\"index\":{\"_id\":\"1\",\"op_type\":\"create\"}}\n{}\n",
        "{\"index\":{\"_id\":\"1\",\"version_type\":\"internal\"}}\n{}\n",
    ] {
        assert!(may(body, &ASK) && may(body, &minting), "{body}");
    }
    for body in [
        "{\"update\":{\"_id\":\"1\"}}\n{\"doc\":{}}\n",
        "{\"index\":{\"routing\":\"r\"}}\n{}\n",
        "{\"index\":{\"_id\":\"1\",\"version\":3,\"version_type\":\"external\"}}\n{}\n",
        "{\"index\":{\"_id\":\"1\",\"if_seq_no\":3,\"if_primary_term\":1}}\n{}\n",
        "{\"delete\":{\"_id\":\"1\",\"version\":3,\"version_type\":\"external_gte\"}}\n",
        "{\"index\":{\"_id\":\"1\"}}\n{}\n{\"update\":{\"_id\":\"1\"}}\n{\"doc\":{}}\n",
    ] {
        assert!(!may(body, &ASK) && !may(body, &minting), "{body}");
    }
    for body in ["{\"index\":{}}\n{}\n", "{\"create\":{\"_id\":null}}\n{}\n"] {
        assert!(!may(body, &ASK) && may(body, &minting), "{body}");
    }
}

#[test]
fn a_name_that_leads_elsewhere_by_now_is_not_written_to_again() {
    let body = "{\"index\":{\"_index\":\"write\",\"_id\":\"1\"}}\n{}\n";
    assert!(repeat_of(body, &ASK, &table("logs")).is_some());
    assert!(repeat_of(body, &ASK, &table("logs-2")).is_none(), "rolled over");
    let gone = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 1).build();
    assert!(repeat_of(body, &ASK, &gone).is_none(), "deleted");
}

/// One operation of a made-up body.
#[derive(Clone, Copy, Debug)]
enum Made {
    Index(u8),
    Create(u8),
    Delete(u8),
    Update(u8),
    IndexOfVersion(u8, u8),
    /// Without an id.
    CreateAny,
}

fn made() -> impl Strategy<Value = Made> {
    let id = 0..3_u8;
    prop_oneof![
        8 => id.clone().prop_map(Made::Index),
        8 => id.clone().prop_map(Made::Create),
        8 => id.clone().prop_map(Made::Delete),
        1 => id.clone().prop_map(Made::Update),
        1 => (id, 1..4_u8).prop_map(|(id, version)| Made::IndexOfVersion(id, version)),
        4 => Just(Made::CreateAny),
    ]
}

fn line(nth: usize, made: Made) -> String {
    match made {
        Made::Index(id) => format!("{{\"index\":{{\"_id\":\"{id}\"}}}}\n{{\"n\":{nth}}}\n"),
        Made::Create(id) => format!("{{\"create\":{{\"_id\":\"{id}\"}}}}\n{{\"n\":{nth}}}\n"),
        Made::Delete(id) => format!("{{\"delete\":{{\"_id\":\"{id}\"}}}}\n"),
        Made::Update(id) => {
            format!("{{\"update\":{{\"_id\":\"{id}\"}}}}\n{{\"script\":\"ctx._source.n++\"}}\n")
        }
        Made::IndexOfVersion(id, version) => format!(
            "{{\"index\":{{\"_id\":\"{id}\",\"version\":{version},\"version_type\":\"external\"}}}}\n{{\"n\":{nth}}}\n"
        ),
        Made::CreateAny => format!("{{\"create\":{{}}}}\n{{\"n\":{nth}}}\n"),
    }
}

/// A shard: version and content by id.
#[derive(Clone, Debug, Default, PartialEq)]
struct Shard {
    docs: BTreeMap<String, Value>,
    versions: BTreeMap<String, u64>,
    without_id: usize,
}

impl Shard {
    /// Executes the first `count` operations of a part and answers them.
    fn execute(&mut self, part: &str, count: usize) -> Vec<Value> {
        let mut lines = part.lines();
        let mut items = Vec::new();
        while let (true, Some(action)) = (items.len() < count, lines.next()) {
            let action: Value = serde_json::from_str(action).expect("made here");
            let (op, fields) = action
                .as_object()
                .expect("made here")
                .iter()
                .next()
                .expect("made here");
            let source = if op == "delete" {
                "null"
            } else {
                lines.next().expect("made here")
            };
            let source: Value = serde_json::from_str(source).expect("made here");
            items.push(self.apply(op, fields, source));
        }
        items
    }

    fn apply(&mut self, op: &str, fields: &Value, source: Value) -> Value {
        let id = fields["_id"].as_str().map_or_else(
            || {
                self.without_id += 1;
                format!("made by the server {}", self.without_id)
            },
            str::to_owned,
        );
        let (there, version) = (
            self.docs.get(&id).cloned(),
            self.versions.entry(id.clone()).or_default(),
        );
        let external = fields["version"].as_u64();
        if (op == "create" && there.is_some()) || external.is_some_and(|external| external <= *version) {
            let error = json!({"type": "version_conflict_engine_exception", "reason": "conflict"});
            return json!({op: {"_index": "logs", "_id": id, "status": 409, "error": error}});
        }
        *version = external.unwrap_or(*version + 1);
        let (result, status) = match (op, &there) {
            ("delete", Some(_)) => ("deleted", 200),
            ("delete", None) => ("not_found", 404),
            (_, Some(_)) => ("updated", 200),
            (_, None) => ("created", 201),
        };
        match op {
            "delete" => drop(self.docs.remove(&id)),
            "update" => {
                let n = there.map_or(0, |doc| doc["n"].as_u64().unwrap_or(0) + 1);
                self.docs.insert(id.clone(), json!({"n": n}));
            }
            _ => drop(self.docs.insert(id.clone(), source)),
        }
        json!({op: {"_index": "logs", "_id": id, "_version": 1, "result": result, "status": status}})
    }
}

proptest! {
    #[test]
    fn a_second_try_leaves_what_one_try_leaves_and_tells_no_lie(
        before in prop::collection::vec(0..3_u8, 0..3),
        made in prop::collection::vec(made(), 1..8),
        broke_off in 0..9_usize,
        refused in (prop::sample::select(vec![0, 400, 403, 429, 500, 503]), 0..9_usize),
        mint in any::<bool>(),
    ) {
        let body: String = made.iter().enumerate().map(|(nth, made)| line(nth, *made)).collect();
        let ask = Ask { null_id: if mint { NullId::Mint } else { NullId::Keep }, ..ASK };
        let plan = planned(&body, &ask);
        let table = table("logs");
        for part in 0..plan.parts.len() {
            let Some(repeat) = Repeat::of(&plan, part, body.as_bytes(), &ask, &table, &table) else { continue };
            let mut sent = Vec::new();
            Gather::default().next(&plan, &plan.parts[part], body.as_bytes(), &mut sent, usize::MAX);
            let sent = String::from_utf8(sent).expect("UTF-8");
            let mut once = Shard::default();
            for id in &before {
                once.apply("index", &json!({"_id": id.to_string()}), json!({"n": "before"}));
            }
            let mut twice = once.clone();
            once.execute(&sent, usize::MAX);
            let first = twice.execute(&sent, broke_off);
            let mut second = twice.execute(&sent, usize::MAX);
            prop_assert_eq!(&once.docs, &twice.docs);
            // One of the operations may be refused this time.
            if let (status @ 1.., Some(item)) = (refused.0, second.get_mut(refused.1)) {
                let (op, id) = item.as_object().map(|item| {
                    let (op, fields) = item.iter().next().expect("an operation");
                    (op.clone(), fields["_id"].clone())
                }).expect("an item");
                let error = json!({"type": "es_rejected_execution_exception", "reason": "no"});
                *item = json!({op: {"_index": "logs", "_id": id, "status": status, "error": error}});
            }

            let answer = json!({"took": 1, "errors": true, "items": second}).to_string();
            let mut reply = Reply::split(answer.as_bytes(), plan.parts[part].docs).expect("a bulk answer");
            repeat.settle(&mut reply);
            for nth in 0..second.len() {
                let item: Value = serde_json::from_slice(reply.item(nth as u32)).expect("JSON");
                let (op, told) = item.as_object().expect("an item").iter().next().expect("an operation");
                let tries = [first.get(nth), second.get(nth)];
                let done = |result: &str| tries.iter().flatten().any(|item| item[op]["result"] == result);
                prop_assert_eq!(&told["_id"], &second[nth][op]["_id"]);
                match told["status"].as_u64() {
                    Some(201) => prop_assert!(done("created")),
                    Some(200) => prop_assert!(done("updated") || done("deleted")),
                    // Only the document itself can be to blame, and was so the first time.
                    Some(400) => prop_assert_eq!((refused.0, refused.1), (400, nth)),
                    Some(503) => {
                        let by_node = refused.1 == nth && refused.0 > 400;
                        prop_assert!(by_node || op == "create" || op == "delete");
                    }
                    other => prop_assert!(false, "{:?}: {}", other, item),
                }
            }
        }
    }
}

#[test]
fn a_conflict_with_the_first_try_is_success_for_minted_ids_and_unknown_for_the_clients() {
    let body = "{\"create\":{}}\n{}\n{\"create\":{\"_id\":\"mine\"}}\n{}\n{\"delete\":{\"_id\":\"gone\"}}\n";
    let ask = Ask {
        null_id: NullId::Mint,
        ..ASK
    };
    let (plan, table) = (planned(body, &ask), table("logs"));
    let repeat = Repeat::of(&plan, 0, body.as_bytes(), &ask, &table, &table).expect("may be sent again");
    let mut sent = Vec::new();
    Gather::default().next(&plan, &plan.parts[0], body.as_bytes(), &mut sent, usize::MAX);
    let (sent, mut shard) = (String::from_utf8(sent).expect("UTF-8"), Shard::default());
    shard.execute(&sent, usize::MAX);
    let answer = json!({"took": 1, "errors": true, "items": shard.execute(&sent, usize::MAX)}).to_string();
    let mut reply = Reply::split(answer.as_bytes(), 3).expect("a bulk answer");
    repeat.settle(&mut reply);
    let mut merge = Merge::new(&plan, vec![reply], 7, table.dialect()).expect("as many items as operations");
    let mut out = Vec::new();
    merge.next(&mut out, usize::MAX >> 1);
    let answer: Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(answer["errors"], true);
    let items = &answer["items"];
    assert_eq!(
        (&items[0]["create"]["status"], &items[0]["create"]["result"]),
        (&json!(201), &json!("created"))
    );
    for (item, op, id) in [(1, "create", "mine"), (2, "delete", "gone")] {
        let item = &items[item][op];
        assert_eq!((&item["status"], &item["_id"]), (&json!(503), &json!(id)));
        assert_eq!(item["error"]["type"], "unavailable_shards_exception");
    }
}
