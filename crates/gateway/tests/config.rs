//! Whole configuration files: what the published guide's does, what is said about everything that can be wrong,
//! and that examples and reference page are true.
//!
//! Golden files: `tests/config/NAME.yml` and `NAME.txt`, every problem and warning. `UPDATE=1 cargo test -p gateway
//! --test config` writes them (and `docs/configuration.md`) anew; read the difference before you commit it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use gateway::config::*;
use proptest::prelude::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/config")
        .join(name);
    std::fs::read_to_string(path).unwrap()
}

fn parse(text: &str) -> Result<Loaded, Rejected> {
    Config::parse(text, Some("gateway.yml"), &|_| None)
}

/// Compares with a file in the repository, or writes it.
fn expect_file(path: &Path, actual: &str) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, actual).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        expected,
        actual,
        "{} is out of date: UPDATE=1 writes it anew",
        path.display()
    );
}

#[test]
fn every_problem_is_reported_with_place_and_remedy() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config");
    let mut seen = 0;
    for file in std::fs::read_dir(&directory).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_none_or(|extension| extension != "yml") {
            continue;
        }
        seen += 1;
        let text = std::fs::read_to_string(&file).unwrap();
        let said = match parse(&text) {
            Ok(loaded) => {
                let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
                format!("loads\n{}\n", warnings.join("\n"))
            }
            Err(rejected) => format!("rejected\n{rejected}\n"),
        };
        assert!(
            !said.contains("hunter2"),
            "{}: a secret is printed:\n{said}",
            file.display()
        );
        expect_file(&file.with_extension("txt"), &said);
    }
    assert!(seen >= 9, "{seen} fixtures");
}

#[test]
fn the_published_guides_file_runs_once_it_says_mode_sync() {
    let config = parse(&fixture("guide.yml")).unwrap().config;
    let entry = &config.entries[0];
    assert_eq!(
        (entry.binding.to_string().as_str(), entry.connections_max),
        ("0.0.0.0:8000", 200_000)
    );
    assert_eq!(entry.tls, None);
    let router = &config.routers["my_router"];
    assert_eq!(
        *router.route(&http::Method::POST, "/logs/_bulk")[0],
        *"async_bulk"
    );
    let flow = &config.flows["async_bulk"];
    let FilterAction::BulkReshuffle(bulk) = &flow.filters[0].action else {
        panic!()
    };
    assert_eq!(
        (bulk.level, bulk.queue.as_deref(), bulk.fix_null_id),
        (Level::Node, None, true)
    );
    let FilterAction::Elasticsearch(forward) = &flow.filters[1].action else {
        panic!()
    };
    assert_eq!(forward.response_bytes_max, None);
    assert_eq!(forward.sending.connections_per_node_max, 1_000);
    assert_eq!(forward.nodes.roles.exclude, ["master".into()]);
    let cluster = &config.clusters["prod"];
    assert_eq!(cluster.endpoints[0].to_string(), "https://127.0.0.1:9221");
    assert!(
        !cluster.tls.insecure_skip_verify,
        "certificates are checked unless told otherwise"
    );
    assert_eq!(cluster.anonymous, Anonymous::Pass);

    // Without a mode, as in the guides, it is the asynchronous one, and the pipeline delivers.
    let config = parse(&fixture("guide-without-mode.yml")).unwrap().config;
    let FilterAction::BulkReshuffle(bulk) = &config.flows["async_bulk"].filters[0].action else {
        panic!()
    };
    assert_eq!(bulk.queue.as_deref(), Some("prod"));
    assert_eq!(
        (config.queues["prod"].lanes, config.queues["prod"].fsync),
        (16, Fsync::Always)
    );
    let [delivery] = &config.deliveries[..] else {
        panic!()
    };
    assert_eq!(
        (&*delivery.queue, &*delivery.cluster, &*delivery.group),
        ("prod", "prod", "prod")
    );
    assert_eq!(
        (delivery.batch_bytes_max, delivery.batch_docs_max),
        (10 << 20, 10_000)
    );
    assert_eq!(
        (delivery.workers_max, delivery.retry_delay.as_millis()),
        (30, 1000)
    );
}

#[test]
fn examples_load_without_errors_and_say_what_they_need() {
    let environment = |name: &str| match name {
        "ES_PASSWORD" | "ADMIN_TOKEN" => Some("hunter2".to_owned()),
        "CERTS" => Some(root().join("crates/gateway/tests/config").display().to_string()),
        _ => None,
    };
    let mut seen = 0;
    for file in std::fs::read_dir(root().join("examples")).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_none_or(|extension| extension != "yml") {
            continue;
        }
        seen += 1;
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.display().to_string();
        match Config::parse(&text, Some(&name), &environment) {
            Ok(loaded) => assert_eq!(loaded.warnings, [], "an example has nothing to warn of"),
            // The certificates of the example are not there.
            Err(rejected) => assert!(
                name.ends_with("tls.yml")
                    && rejected
                        .problems
                        .iter()
                        .all(|p| p.message.contains("can't be read")),
                "{rejected}"
            ),
        }
        let without = Config::parse(&text, Some(&name), &|_| None);
        let needs_environment = text.contains("No default for");
        assert_eq!(without.is_err(), needs_environment, "{name}");
    }
    assert!(seen >= 6, "{seen} examples");
}

#[test]
fn a_file_shown_with_its_defaults_loads_as_the_same_configuration() {
    for name in ["guide.yml", "old-words.yml"] {
        let first = parse(&fixture(name)).unwrap();
        let shown = show(&first.file);
        assert!(!shown.contains("hunter2") && !shown.contains("0123"), "{shown}");
        let masked = shown.replace(&format!("\"{MASK}\""), "\"admin\"");
        let second = parse(&masked).unwrap_or_else(|rejected| panic!("{rejected}\n{shown}"));
        if name == "guide.yml" {
            assert_eq!(first.config, second.config, "{shown}");
        } else {
            assert_eq!(first.config.entries, second.config.entries, "{shown}");
            assert_eq!(first.config.flows, second.config.flows, "{shown}");
        }
    }
    let shown = show(&parse(&fixture("open-door.yml")).unwrap().file);
    assert!(
        !shown.contains("hunter2") && shown.contains("http://gateway:"),
        "{shown}"
    );
}

#[test]
fn the_reference_page_is_the_schemas() {
    let path = root().join("docs/configuration.md");
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    let mark =
        "<!-- From here on generated from the schema: UPDATE=1 cargo test -p gateway --test config -->\n\n";
    let intro = page.split(mark).next().unwrap_or_default();
    assert!(
        !intro.is_empty(),
        "the introduction of docs/configuration.md is gone"
    );
    expect_file(&path, &format!("{intro}{mark}{}", markdown()));
}

#[test]
fn every_key_is_documented_and_can_be_explained() {
    fn walk(path: &str, seen: &mut usize) {
        let explained = explain(path).unwrap();
        assert!(
            path.is_empty() || !explained.description.is_empty(),
            "`{path}` has no documentation"
        );
        assert!(
            path.is_empty() || !explained.value.is_empty(),
            "`{path}` says not what may be written"
        );
        *seen += 1;
        // Conditions and filters hold themselves.
        if ["when", "if", "then", "else"]
            .iter()
            .any(|key| path.ends_with(key))
        {
            return;
        }
        for (key, _) in explained.keys {
            walk(
                &if path.is_empty() {
                    key
                } else {
                    format!("{path}.{key}")
                },
                seen,
            );
        }
    }
    let mut seen = 0;
    walk("", &mut seen);
    assert!(seen > 90, "{seen} keys");
    assert_eq!(
        explain("entry[0].read_timeout").unwrap().default.as_deref(),
        Some("30s")
    );
    assert!(
        explain("disk_queue")
            .unwrap()
            .ignored
            .unwrap()
            .contains("`queue` of `bulk_reshuffle`")
    );
    assert!(
        explain("entry.nmae")
            .unwrap_err()
            .contains("did you mean `name`?")
    );
}

#[test]
fn the_schema_is_one_and_takes_dotted_keys() {
    let schema = schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["additionalProperties"], false);
    assert!(schema["patternProperties"].is_object());
    assert!(
        schema["$defs"]["BulkReshuffleFile"]["required"]
            .as_array()
            .unwrap()
            .iter()
            .any(|key| key == "elasticsearch")
    );
}

fn quick(cluster: &str, listen: &str) -> QuickStart {
    QuickStart {
        cluster: cluster.to_owned(),
        listen: listen.parse().unwrap(),
        insecure_skip_verify: false,
        ca_file: None,
        anonymous: Anonymous::Pass,
        admin: None,
        account: None,
    }
}

#[test]
fn the_quick_start_splits_bulks_and_forwards_the_rest() {
    let loaded = Config::quick_start(&quick("https://admin:hunter2@es:9243", "127.0.0.1:0")).unwrap();
    assert_eq!(loaded.warnings, []);
    let config = loaded.config;
    let flow = config.routers[&config.entries[0].router].route(&http::Method::POST, "/_bulk");
    let filters = &config.flows[&flow[0]].filters;
    assert!(matches!(&filters[0].action, FilterAction::BulkReshuffle(bulk) if bulk.level == Level::Node));
    assert!(matches!(&filters[1].action, FilterAction::Elasticsearch(_)));
    let cluster = config.clusters.values().next().unwrap();
    assert_eq!(cluster.endpoints[0].to_string(), "https://es:9243");
    assert!(
        matches!(&cluster.credentials, Some(Credentials::Basic { password, .. }) if password.expose() == "hunter2")
    );
    assert!(!format!("{config:?}").contains("hunter2"));

    let rejected = Config::quick_start(&quick("es:9200", "127.0.0.1:0")).unwrap_err();
    assert!(
        rejected.to_string().contains("--cluster: has no `http://`"),
        "{rejected}"
    );
}

#[test]
fn an_open_door_is_a_loud_warning() {
    let mut from = quick("http://admin:hunter2@127.0.0.1:9200", "0.0.0.0:8000");
    assert_eq!(
        Config::quick_start(&from).unwrap().warnings,
        [],
        "clients bring their own accounts"
    );
    from.anonymous = Anonymous::UseGatewayAccount;
    let loaded = Config::quick_start(&from).unwrap();
    assert!(
        loaded.warnings[0].message.starts_with("ANYONE who reaches"),
        "{:?}",
        loaded.warnings
    );

    from.listen = "127.0.0.1:8000".parse().unwrap();
    let loaded = Config::quick_start(&from).unwrap();
    assert_eq!(loaded.warnings, []);

    from.cluster = "http://127.0.0.1:9200".to_owned();
    let rejected = Config::quick_start(&from).unwrap_err();
    assert!(rejected.to_string().contains("no gateway account"), "{rejected}");
}

#[test]
fn a_file_that_is_not_there_is_an_error_with_its_name() {
    let rejected = Config::load(Path::new("/nowhere/gateway.yml")).unwrap_err();
    assert!(
        rejected
            .to_string()
            .starts_with("/nowhere/gateway.yml: error: can't be read"),
        "{rejected}"
    );
}

/// A file whose one flow has these filters.
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
) -> gateway::when::Request<'a> {
    let client = std::net::Ipv4Addr::LOCALHOST.into();
    gateway::when::Request {
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
fn what_is_switched_off_is_not_run_and_needs_no_files() {
    let text = fixture("guide.yml").replace(
        "tls:\n      enabled: false",
        "tls: {enabled: true, cert_file: /no, key_file: /no}",
    );
    assert!(
        parse(&text)
            .unwrap_err()
            .to_string()
            .contains("`/no` can't be read")
    );
    let off = text.replace(
        "name: my_es_entry\n    enabled: true",
        "name: my_es_entry\n    enabled: false",
    );
    let rejected = parse(&off).unwrap_err().to_string();
    assert!(
        rejected.contains("no entry is switched on") && !rejected.contains("/no"),
        "{rejected}"
    );
}

#[test]
fn the_admin_port_is_on_loopback_unless_there_is_a_token() {
    let guide = fixture("guide.yml");
    let admin = parse(&guide).unwrap().config.admin;
    assert_eq!(admin.binding.unwrap().to_string(), "127.0.0.1:2900");
    let off = parse(&format!("{guide}admin.enabled: false\n"))
        .unwrap()
        .config
        .admin;
    assert_eq!(off.binding, None);
    let open = format!("{guide}admin: {{binding: '0.0.0.0:2900'}}\n");
    assert!(
        parse(&open)
            .unwrap_err()
            .to_string()
            .contains("there is no token")
    );
    assert!(parse(&open.replace("2900'", "2900', token: x")).is_ok());
    let same = format!("{guide}admin: {{binding: '127.0.0.1:8000'}}\n");
    assert!(
        parse(&same)
            .unwrap_err()
            .to_string()
            .contains("taken by entry `my_es_entry`")
    );
}

/// A good file with something done to it: bytes put in, taken out or doubled.
fn mangled() -> impl Strategy<Value = String> {
    let names = [
        "guide.yml",
        "old-words.yml",
        "slips.yml",
        "references.yml",
        "open-door.yml",
    ];
    let scraps = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        "- ",
        "\n",
        " ",
        "&a ",
        "*a",
        "<<: ",
        "null",
        "~",
        "'",
        "\"",
        "$[[env.X]]",
        "$[[",
        "-1",
        "99999999999999999999",
        "0",
        "é",
        ".",
        "..",
        "a.b.c: 1\n",
        "_ctx.",
        "!!str ",
        "%",
        "#",
        "|",
        ">",
        "\t",
        "true",
    ]);
    (
        prop::sample::select(names.to_vec()),
        prop::collection::vec((any::<prop::sample::Index>(), scraps, 0usize..40), 1..6),
    )
        .prop_map(|(name, edits)| {
            let mut text: Vec<char> = fixture(name).chars().collect();
            for (at, scrap, cut) in edits {
                let at = at.index(text.len() + 1);
                let end = (at + cut).min(text.len());
                text.splice(at..end, scrap.chars());
            }
            text.into_iter().collect()
        })
}

proptest! {
    #[test]
    fn no_file_however_mangled_panics_or_is_refused_without_a_place(text in mangled()) {
        let lines = text.lines().count() as u32 + 1;
        match parse(&text) {
            Ok(loaded) => {
                prop_assert!(!loaded.config.entries.is_empty());
                prop_assert!(loaded.warnings.iter().all(|problem| problem.severity == Severity::Warning));
                // What is loaded can be shown.
                prop_assert!(show(&loaded.file).contains("entry:"));
            }
            Err(rejected) => {
                prop_assert!(rejected.problems.iter().any(|problem| problem.severity == Severity::Error));
                for problem in &rejected.problems {
                    let place = problem.place.unwrap();
                    prop_assert!(place.line >= 1 && place.line <= lines && place.column >= 1, "{}", problem);
                }
            }
        }
    }
}
