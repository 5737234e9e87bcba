//! The operations that are not put into a log, because they would be answered before anybody has checked
//! them: names that a request requires to be aliases or data streams, and pipelines that write the sender of
//! the request.

#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

use std::sync::Arc;

use bulk::{
    Ask, Dialect, Flavour, Formula, IdMint, IndexRoute, Level, NodeIx, NullId, RouteTable, Scratch, Target,
    Verdict, Version, Why, plan,
};

fn table() -> RouteTable {
    let dialect = Dialect::new(Flavour::Elasticsearch, Version::new(9, 5, 3));
    let mut builder = RouteTable::builder(dialect, 1);
    let index = |name: &str| IndexRoute::new(name, Formula::Modulo, [Some(NodeIx(0))]);
    let plain = Arc::new(index("plain"));
    builder.index(Arc::clone(&plain));
    builder.index(Arc::new(IndexRoute {
        tells_caller: true,
        ..index("who")
    }));
    builder.name(
        "alias",
        Target::Alias {
            write: plain,
            index_routing: None,
        },
    );
    builder.name(
        "stream",
        Target::DataStream {
            write: Arc::new(index("backing")),
        },
    );
    for pipeline in ["harmless", "who"] {
        builder.harmless_pipeline(pipeline);
    }
    builder.telling_pipeline("who");
    builder.build()
}

const LANES: Ask<'static> = Ask {
    default_index: Some("plain"),
    level: Level::Lane(4),
    lanes_by_id: false,
    nodes_apart: false,
    null_id: NullId::Always,
    url_routing: None,
    url_pipeline: None,
    require_alias: false,
    require_data_stream: false,
    suppose_new: false,
    without_types: false,
    compatible_with_7: false,
    direct: None,
};

fn why(body: &str, ask: &Ask<'_>) -> Option<Why> {
    let (mut ids, mut scratch) = (IdMint::new(1), Scratch::default());
    match plan(body.as_bytes(), ask, &table(), &mut ids, &mut scratch) {
        Verdict::Pass(pass) => Some(pass.why),
        Verdict::Plan(_) => None,
    }
}

#[test]
fn a_name_that_is_not_what_a_request_requires_is_not_queued() {
    let alias = Ask {
        require_alias: true,
        ..LANES
    };
    let stream = Ask {
        require_data_stream: true,
        ..LANES
    };
    let to = |index: &str, more: &str| format!("{{\"create\":{{\"_index\":\"{index}\"{more}}}}}\n{{}}\n");
    for (body, ask, expected) in [
        (to("plain", ""), alias, Some(Why::RequiredTarget)),
        (to("new", ""), alias, Some(Why::RequiredTarget)),
        (to("stream", ""), alias, Some(Why::RequiredTarget)),
        (to("alias", ""), alias, None),
        (to("plain", ",\"require_alias\":false"), alias, None),
        (
            to("plain", ",\"require_alias\":true"),
            LANES,
            Some(Why::RequiredTarget),
        ),
        (to("alias", ",\"require_alias\":true"), LANES, None),
        (to("plain", ""), stream, Some(Why::RequiredTarget)),
        (to("new", ""), stream, Some(Why::RequiredTarget)),
        (to("stream", ""), stream, None),
        (
            to("new", ",\"require_data_stream\":true"),
            LANES,
            Some(Why::RequiredTarget),
        ),
        ("{\"delete\":{\"_id\":\"1\"}}\n".to_owned(), alias, None),
        (
            format!("{}{}", to("alias", ""), to("plain", "")),
            alias,
            Some(Why::RequiredTarget),
        ),
    ] {
        assert_eq!(why(&body, &ask), expected, "{body}");
        let split = Ask {
            level: Level::Node,
            ..ask
        };
        let expected = body.contains("\"new\"").then_some(Why::UnknownIndex);
        assert_eq!(
            why(&body, &split),
            expected,
            "split, the cluster's items say it: {body}"
        );
    }
}

#[test]
fn a_pipeline_that_writes_the_caller_is_not_queued_but_split() {
    let doc = "{\"index\":{}}\n{}\n";
    for (body, ask) in [
        (
            doc,
            Ask {
                url_pipeline: Some("who"),
                ..LANES
            },
        ),
        ("{\"index\":{\"pipeline\":\"who\"}}\n{}\n", LANES),
        (
            doc,
            Ask {
                default_index: Some("who"),
                ..LANES
            },
        ),
    ] {
        assert_eq!(why(body, &ask), Some(Why::CallersPipeline), "{body}");
        let split = Ask {
            level: Level::Node,
            ..ask
        };
        assert_eq!(why(body, &split), None, "{body}");
    }
    let harmless = Ask {
        url_pipeline: Some("harmless"),
        ..LANES
    };
    assert_eq!(why(doc, &harmless), None);
}

#[test]
fn a_body_is_looked_at_to_its_end_before_an_index_is_made_for_it() {
    let supposed = Ask {
        suppose_new: true,
        ..LANES
    };
    let new = "{\"index\":{\"_index\":\"new\"}}\n{}\n";
    let newer = "{\"index\":{\"_index\":\"newer\"}}\n{}\n";
    assert_eq!(why(&format!("{new}{newer}"), &LANES), Some(Why::UnknownIndex));
    assert_eq!(why(&format!("{new}{newer}"), &supposed), None);
    for (bad, expected) in [
        ("{\"index\":{\"_id\":1,}}\n{}\n", Why::MalformedAction),
        ("{\"upsert\":{}}\n{}\n", Why::UnknownAction),
        (
            "{\"create\":{\"_index\":\"n\",\"if_seq_no\":1}}\n{}\n",
            Why::Versioning,
        ),
        ("{\"delete\":{}}\n", Why::NoId),
        (
            "{\"index\":{\"pipeline\":\"nobodys\"}}\n{}\n",
            Why::UnknownPipeline,
        ),
    ] {
        assert_eq!(why(&format!("{new}{bad}"), &supposed), Some(expected), "{bad}");
    }
}
