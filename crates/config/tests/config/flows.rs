//! Tests of filters, conditions and the choice of nodes.

use config::*;

use crate::parse;

/// Loads a file with one flow that has these filters.
fn with_filters(filters: &str) -> Result<Loaded, Rejected> {
    let text = format!(
        "entry: [{{name: e, router: r, network.binding: '127.0.0.1:8000'}}]\n\
         router: [{{name: r, default_flow: f}}]\n\
         elasticsearch: [{{name: c, endpoint: 'http://127.0.0.1:9200'}}]\n\
         flow:\n  - name: f\n    filter:\n{filters}"
    );
    parse(&text)
}

fn request<'a>(
    method: &'a http::Method,
    path: &'a str,
    headers: &'a http::HeaderMap,
) -> config::when::Request<'a> {
    let client = std::net::Ipv4Addr::LOCALHOST.into();
    config::when::Request {
        method,
        path,
        query: "",
        headers,
        client,
        tls: false,
        body_length: Some(100),
    }
}

#[test]
fn if_then_else_runs_one_side_and_not_the_other() {
    let loaded = with_filters(
        "      - if: {prefix: {_ctx.request.path: /_cat}}
        then:
          - elasticsearch: {elasticsearch: c, timeout: 1s, when.equals: {_ctx.request.method: GET}}
        else:
          - elasticsearch: {elasticsearch: c, timeout: 2s}
",
    );
    let config = loaded.unwrap().config;
    let headers = http::HeaderMap::new();
    let timeouts = |method: http::Method, path| -> Vec<u64> {
        let filters = config.flows["f"].filters.iter();
        filters
            .filter(|filter| {
                filter
                    .when
                    .as_ref()
                    .is_none_or(|when| when.holds(&request(&method, path, &headers)))
            })
            .map(|filter| match &filter.action {
                FilterAction::Elasticsearch(forward) => forward.sending.response_timeout.as_secs(),
                FilterAction::BulkReshuffle(_) => 0,
            })
            .collect()
    };
    assert_eq!(timeouts(http::Method::GET, "/_cat/indices"), [1]);
    assert_eq!(timeouts(http::Method::POST, "/_cat/indices"), [0; 0]);
    assert_eq!(timeouts(http::Method::POST, "/_bulk"), [2]);
}

#[test]
fn rewriting_is_an_option_or_a_filter_before_in_the_same_list() {
    let bulk = "bulk_reshuffle: {elasticsearch: c, mode: sync}";
    let forward = "      - elasticsearch: {elasticsearch: c}\n";
    let options = "bulk_reshuffle: {elasticsearch: c, mode: sync, rewrite_to_bulk: true}";
    let below =
        format!("if: {{prefix: {{_ctx.request.path: /a}}}}\n        then: [rewrite_to_bulk: {{}}, {bulk}]");
    let above = format!("if: {{prefix: {{_ctx.request.path: /a}}}}\n        then: [{bulk}]");
    for (filters, expected) in [
        (vec![bulk], vec![false]),
        (vec![options], vec![true]),
        (vec!["rewrite_to_bulk: {}", bulk], vec![true]),
        (vec!["rewrite_to_bulk:", bulk, bulk], vec![true, true]),
        (vec![bulk, options, bulk], vec![false, true, false]),
        (vec!["rewrite_to_bulk: {}", &above], vec![true]),
        (vec![&below, bulk], vec![true, false]),
    ] {
        let filters: String = filters
            .iter()
            .map(|filter| format!("      - {filter}\n"))
            .collect();
        let loaded = with_filters(&(filters.clone() + forward)).unwrap();
        let found: Vec<bool> = loaded.config.flows["f"]
            .filters
            .iter()
            .filter_map(|filter| match &filter.action {
                FilterAction::BulkReshuffle(bulk) => Some(bulk.rewrite_to_bulk),
                FilterAction::Elasticsearch(_) => None,
            })
            .collect();
        assert_eq!(found, expected, "{filters}");
        assert!(loaded.warnings.is_empty(), "{filters}: {:?}", loaded.warnings);
    }
}

#[test]
fn rewriting_that_would_do_nothing_is_said() {
    let forward = "      - elasticsearch: {elasticsearch: c}\n";
    let after =
        "      - bulk_reshuffle: {elasticsearch: c, mode: sync}\n      - rewrite_to_bulk: {prefix: x}\n";
    let loaded = with_filters(&format!("{after}{forward}")).unwrap();
    let said: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert!(
        said.iter()
            .any(|told| told.contains("no `bulk_reshuffle` follows")),
        "{said:?}"
    );
    assert!(
        said.iter().any(|told| told.contains("rewrite_to_bulk.prefix")),
        "{said:?}"
    );
    let wrong = with_filters(&format!(
        "      - rewrite_to_bulk: {{prefixes: x}}\n{after}{forward}"
    ));
    assert!(wrong.unwrap_err().to_string().contains("did you mean `prefix`?"));
}

#[test]
fn conditions_of_a_file_hold_as_written() {
    let headers = http::HeaderMap::from_iter([(http::header::HOST, "es".parse().unwrap())]);
    for (condition, expected) in [
        ("contains: {_ctx.request.path: _bulk}", true),
        ("contains: {_ctx.request.path: [_search, _bulk]}", true),
        ("contains: {_ctx.request.path: _search}", false),
        ("equals: {_ctx.tls: false}", true),
        ("in: {_ctx.request.method: [PUT, POST]}", true),
        ("regexp: {_ctx.request.path: '^/l.+k$'}", true),
        (
            "suffix: {_ctx.request.path: _bulk}, prefix: {_ctx.request.path: /x}",
            false,
        ),
        ("range: {_ctx.request.body_length: {gte: 100, lt: 101}}", true),
        ("range: {_ctx.request.body_length.gte: 101}", false),
        (
            "range: {_ctx.request.body_length.gt: 99, _ctx.request.body_length.lte: 100}",
            true,
        ),
        ("exists: [_ctx.request.host]", true),
        ("has_fields: _ctx.request.header.x-none", false),
        ("not: {exists: _ctx.request.header.x-none}", true),
        (
            "or: [{equals: {_ctx.request.method: GET}}, {equals: {_ctx.request.host: es}}]",
            true,
        ),
        (
            "and: [{equals: {_ctx.request.method: GET}}, {equals: {_ctx.request.host: es}}]",
            false,
        ),
    ] {
        let text = format!("      - elasticsearch: {{elasticsearch: c, when: {{{condition}}}}}\n");
        let config = with_filters(&text)
            .unwrap_or_else(|rejected| panic!("{condition}: {rejected}"))
            .config;
        let when = config.flows["f"].filters[0].when.clone().unwrap();
        assert_eq!(
            when.holds(&request(&http::Method::POST, "/logs/_bulk", &headers)),
            expected,
            "{condition}"
        );
    }
    let rejected = with_filters("      - elasticsearch: {elasticsearch: c, when: {}}\n").unwrap_err();
    assert!(rejected.to_string().contains("holds no condition"), "{rejected}");
}

#[test]
fn each_filter_chooses_its_nodes_by_itself() {
    let config = with_filters(
        "      - elasticsearch: {elasticsearch: c, filter.roles.exclude: [master], when: {exists: _ctx.request.host}}
      - elasticsearch: {elasticsearch: c, weights: [{host: 'a:9200', weight: 3}]}\n",
    )
    .unwrap()
    .config;
    let of = |at: usize| match &config.flows["f"].filters[at].action {
        FilterAction::Elasticsearch(forward) => forward.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(of(0).nodes.roles.exclude, ["master".into()]);
    assert!(of(0).weights.is_empty() && of(1).nodes.roles.exclude.is_empty());
    assert_eq!(of(1).weights["a:9200"], 3);
}

#[test]
fn what_does_not_choose_nodes_is_said() {
    let rejected =
        with_filters("      - elasticsearch: {elasticsearch: c, balancer: round_robin}\n").unwrap_err();
    assert!(
        rejected.to_string().contains("there is only `weight`"),
        "{rejected}"
    );
    let loaded =
        with_filters("      - elasticsearch: {elasticsearch: c, filter.roles.exclude: [mastre, ml]}\n");
    let warnings = loaded.unwrap().warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].to_string().contains("did you mean `master`?"),
        "{}",
        warnings[0]
    );
}

#[test]
fn names_of_node_attributes_keep_their_dots() {
    let loaded = with_filters(
        "      - elasticsearch: {elasticsearch: c, filter.tags.exclude: [{box.type.x: cold}]}\n",
    );
    let config = loaded.unwrap().config;
    let FilterAction::Elasticsearch(forward) = &config.flows["f"].filters[0].action else {
        panic!()
    };
    assert_eq!(forward.nodes.tags.exclude, [("box.type.x".into(), "cold".into())]);
}

#[test]
fn a_routing_for_documents_whose_ids_are_made_here_is_refused() {
    let with = |keys: &str| {
        with_filters(&format!(
            "      - bulk_reshuffle: {{elasticsearch: c, {keys}}}\n      - elasticsearch: {{elasticsearch: c}}\n"
        ))
    };
    for (keys, expected) in [
        ("mode: sync, direct_routing: off", DirectRouting::Off),
        ("mode: sync, direct_routing: routing", DirectRouting::Routing),
        (
            "mode: sync, direct_routing: mint-packed, fix_null_id: true",
            DirectRouting::MintPacked,
        ),
    ] {
        let config = with(keys).unwrap().config;
        let FilterAction::BulkReshuffle(bulk) = &config.flows["f"].filters[0].action else {
            panic!("{config:?}")
        };
        assert_eq!(bulk.direct_routing, expected);
    }
    for (keys, expected) in [
        (
            "mode: sync, direct_routing: packed",
            "is none of off, mint-packed, routing",
        ),
        (
            "mode: sync, direct_routing: routing, fix_null_id: true",
            "`fix_null_id: true` makes ids",
        ),
        (
            "mode: async, direct_routing: routing",
            "ids are made before the answer",
        ),
    ] {
        let rejected = with(keys).unwrap_err().to_string();
        assert!(rejected.contains("bulk_reshuffle.direct_routing"), "{rejected}");
        assert!(rejected.contains(expected), "{rejected}");
    }
}
