//! Parts that no node answered, and the shapes of replies.

use std::sync::Arc;

use bulk::{
    Ask, Dialect, Flavour, Formula, IdMint, IndexRoute, Level, Merge, MergeError, NodeIx, NullId, Plan,
    RawError, Reply, RouteTable, Scratch, Target, Verdict, Version, Why, merge, plan,
};

const BODY: &[u8] = b"{\"index\":{\"_id\":\"a\\\"\xc3\xa9\"}}\n{}\n{\"create\":{\"_index\":\"alias\"}}\n{}\n{\"delete\":{\"_id\":\"3\"}}\n";
const ERROR: RawError<'_> = RawError {
    status: 503,
    kind: "unavailable_shards_exception",
    reason: "no \"node\"",
};

fn table(flavour: Flavour, major: u16) -> RouteTable {
    let primaries: Vec<_> = (0..4).map(|node| Some(NodeIx(node))).collect();
    let route = Arc::new(IndexRoute::new("logs", Formula::Modulo, primaries));
    let mut table = RouteTable::builder(Dialect::new(flavour, Version::new(major, 0, 0)), 4);
    table.index(route.clone()).name(
        "alias",
        Target::Alias {
            write: route,
            index_routing: None,
        },
    );
    table.build()
}

fn planned(ask: &Ask<'_>, table: &RouteTable) -> Plan {
    match plan(BODY, ask, table, &mut IdMint::new(1), &mut Scratch::default()) {
        Verdict::Plan(plan) => plan,
        Verdict::Pass(pass) => panic!("{pass:?}"),
    }
}

fn all_failed(flavour: Flavour, major: u16, null_id: NullId) -> String {
    let (table, ask) = (
        table(flavour, major),
        Ask {
            default_index: Some("logs"),
            null_id,
            ..Ask::default()
        },
    );
    let plan = planned(&ask, &table);
    let parts = 0..plan.parts.len();
    let replies = parts
        .map(|part| Reply::failed(&plan, part, BODY, &ask, &table, ERROR))
        .collect();
    let mut out = Vec::new();
    merge(&plan, replies, 7, table.dialect(), &mut out).expect("as many items as operations");
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn unanswered_parts_fail_item_by_item_in_the_servers_shape() {
    let error = r#""error":{"type":"unavailable_shards_exception","reason":"no \"node\""}"#;
    assert_eq!(
        all_failed(Flavour::OpenSearch, 3, NullId::Keep),
        format!(
            r#"{{"took":7,"errors":true,"items":[{{"index":{{"_index":"logs","_id":"a\"é","status":503,{error}}}}},{{"create":{{"_index":"logs","_id":null,"status":503,{error}}}}},{{"delete":{{"_index":"logs","_id":"3","status":503,{error}}}}}]}}"#
        )
    );
    let typed = all_failed(Flavour::Elasticsearch, 7, NullId::Keep);
    assert!(
        typed.starts_with(
            r#"{"took":7,"errors":true,"items":[{"index":{"_index":"logs","_type":"_doc","_id":"#
        )
    );
    let newer = all_failed(Flavour::Elasticsearch, 9, NullId::Keep);
    assert!(newer.starts_with(r#"{"errors":true,"took":7,"items":[{"index":{"_index":"logs","_id":"#));
}

#[test]
fn unanswered_documents_keep_the_ids_that_were_minted() {
    let text = all_failed(Flavour::OpenSearch, 2, NullId::Mint);
    let reply: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        reply["items"][1]["create"]["_id"].as_str().map(str::len),
        Some(bulk::ID_LENGTH),
        "{text}"
    );
}

#[test]
fn replies_must_fit_their_parts() {
    let (table, ask) = (
        table(Flavour::OpenSearch, 3),
        Ask {
            default_index: Some("logs"),
            ..Ask::default()
        },
    );
    let plan = planned(&ask, &table);
    let none = Merge::new(&plan, Vec::new(), 1, table.dialect()).expect_err("no replies");
    assert_eq!(
        none,
        MergeError::Replies {
            parts: plan.parts.len(),
            replies: 0
        }
    );
    let empty = r#"{"took":1,"errors":false,"items":[]}"#;
    let replies = plan
        .parts
        .iter()
        .map(|_| Reply::split(empty.as_bytes(), 0).expect("a reply"))
        .collect();
    assert!(matches!(
        Merge::new(&plan, replies, 1, table.dialect()),
        Err(MergeError::Count { items: 0, .. })
    ));
}

#[test]
fn a_replaced_item_changes_errors_and_bytes() {
    let (table, ask) = (
        table(Flavour::OpenSearch, 3),
        Ask {
            default_index: Some("logs"),
            level: Level::Cluster,
            ..Ask::default()
        },
    );
    let plan = planned(&ask, &table);
    let text = r#"{"took":1,"errors":true,"items":[{"index":{"status":201}},{"create":{"status":409,"error":{}}},{"delete":{"status":404}}]}"#;
    let mut reply = Reply::split(text.as_bytes(), 3).expect("a reply");
    reply.replace(1, br#"{"create":{"status":201}}"#.to_vec());
    let mut out = Vec::new();
    merge(&plan, vec![reply], 2, table.dialect(), &mut out).expect("merged");
    let expected = r#"{"took":2,"errors":false,"items":[{"index":{"status":201}},{"create":{"status":201}},{"delete":{"status":404}}]}"#;
    assert_eq!(String::from_utf8(out).expect("UTF-8"), expected);
}

#[test]
fn requests_that_cannot_be_told_pass_with_their_reason() {
    let mut builder = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 1);
    let odd = Formula::Classic {
        routing_num_shards: 5,
    };
    builder.index(Arc::new(IndexRoute::new("odd", odd, [Some(NodeIx(0)), None])));
    builder.index(Arc::new(IndexRoute::new(
        "fine",
        Formula::Modulo,
        [Some(NodeIx(0))],
    )));
    builder
        .name("series", Target::Opaque(Why::RoutedByContent))
        .name(
            "stream",
            Target::DataStream {
                write: Arc::new(IndexRoute::new("backing", Formula::Modulo, [Some(NodeIx(0))])),
            },
        )
        .harmless_pipeline("known");
    let mut table = builder.build();
    let pass = |body: &str, ask: &Ask<'_>, table: &RouteTable| match plan(
        body.as_bytes(),
        ask,
        table,
        &mut IdMint::new(1),
        &mut Scratch::default(),
    ) {
        Verdict::Pass(pass) => Some((pass.why, pass.line)),
        Verdict::Plan(_) => None,
    };
    let fine = Ask {
        default_index: Some("fine"),
        ..Ask::default()
    };
    let doc = "{\"index\":{\"_id\":\"1\"}}\n{}\n";
    for (body, ask, expected) in [
        ("", fine, Some((Why::Empty, None))),
        ("\n\n", fine, Some((Why::Empty, None))),
        (doc, fine, None),
        (doc, Ask::default(), Some((Why::NoIndex, Some(1)))),
        (
            doc,
            Ask {
                default_index: Some("odd"),
                ..fine
            },
            Some((Why::UnknownFormula, Some(1))),
        ),
        (
            doc,
            Ask {
                default_index: Some("series"),
                ..fine
            },
            Some((Why::RoutedByContent, Some(1))),
        ),
        (
            doc,
            Ask {
                default_index: Some("stream"),
                ..fine
            },
            Some((Why::StreamNotCreate, Some(1))),
        ),
        (
            doc,
            Ask {
                default_index: Some("a,b"),
                ..fine
            },
            Some((Why::UnknownIndex, Some(1))),
        ),
        (
            doc,
            Ask {
                default_index: Some("<logs-{now}>"),
                ..fine
            },
            Some((Why::DateMath, Some(1))),
        ),
        (
            doc,
            Ask {
                url_routing: Some(""),
                ..fine
            },
            Some((Why::EmptyRouting, None)),
        ),
        (
            doc,
            Ask {
                url_pipeline: Some(""),
                ..fine
            },
            Some((Why::EmptyPipeline, None)),
        ),
        (
            doc,
            Ask {
                url_pipeline: Some("known"),
                ..fine
            },
            Some((Why::BatchedIngest, None)),
        ),
        (
            "{\"index\":{\"pipeline\":\"known\"}}\n{}\n",
            fine,
            Some((Why::BatchedIngest, Some(1))),
        ),
        ("{\"index\":{\"pipeline\":\"_none\"}}\n{}\n", fine, None),
        (
            "{\"index\":{}}\n{}\n{\"index\":{}}\n{}",
            fine,
            Some((Why::NotTerminated, Some(4))),
        ),
        (
            "{\"index\":{}}\n{}\n{\"index\":{}}\n",
            fine,
            Some((Why::NoSource, Some(4))),
        ),
        (
            "{\"index\":{}}\n\n{\"index\":{}}\n{}\n",
            fine,
            Some((Why::EmptySource, Some(2))),
        ),
        ("{\"index\":{}}\n\r\n", fine, Some((Why::EmptySource, Some(2)))),
        ("\n{\"delete\":{}}\n", fine, Some((Why::NoId, Some(2)))),
        (
            "{\"update\":{\"_id\":\"1\"}}\n{\"a\":1}\n",
            fine,
            Some((Why::UpdateBody, Some(2))),
        ),
    ] {
        assert_eq!(pass(body, &ask, &table), expected, "{body:?}");
    }
    let long = format!("{{\"index\":{{\"_id\":\"{}\"}}}}\n{{}}\n", "é".repeat(257));
    assert_eq!(pass(&long, &fine, &table), Some((Why::IdTooLong, Some(1))));
    let mut builder = RouteTable::builder(
        Dialect {
            allow_explicit_index: false,
            ..*table.dialect()
        },
        1,
    );
    builder.index(Arc::new(IndexRoute::new(
        "fine",
        Formula::Modulo,
        [Some(NodeIx(0))],
    )));
    table = builder.build();
    let named = "{\"index\":{\"_index\":\"fine\"}}\n{}\n";
    assert_eq!(pass(named, &fine, &table), Some((Why::ExplicitIndex, Some(1))));
    assert_eq!(pass(doc, &fine, &table), None);
}
