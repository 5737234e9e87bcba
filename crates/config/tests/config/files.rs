//! Tests of what whole files load as, and of their warnings and errors.

use std::path::Path;

use config::*;

use crate::{expect_file, fixture, parse, root};

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

    // Without a mode, as in the guides, the mode is asynchronous, and the pipeline delivers.
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
        (delivery.workers_max, delivery.retry.delay.as_millis()),
        (30, 1000)
    );
    assert_eq!(
        (delivery.slices_max, delivery.linger.as_secs(), delivery.compress),
        (Some(3), 10, false)
    );
}

/// Loads a file with two queues, `a` by nodes of `c` and `b` by shards of `d`, and this pipeline.
fn with_pipeline(pipeline: &str) -> Result<Vec<Delivery>, Rejected> {
    let text = format!(
        "entry: [{{name: e, router: r, network.binding: '127.0.0.1:8000'}}]
router: [{{name: r, default_flow: f}}]
flow:
  - name: f
    filter:
      - bulk_reshuffle: {{elasticsearch: c, mode: async, queue: {{name: a}}}}
      - bulk_reshuffle: {{elasticsearch: d, mode: async, level: shard, queue: {{name: b}}}}
      - elasticsearch: {{elasticsearch: c}}
pipeline:
  - {{name: all, processor: [{{bulk_indexing: {{consumer: {{group: others}}}}}}]}}
  - {{name: p, {pipeline}}}
elasticsearch: [{{name: c, endpoint: 'http://127.0.0.1:1'}}, {{name: d, endpoint: 'http://127.0.0.1:2'}}]
"
    );
    let config = parse(&text)?.config;
    let deliveries = config.deliveries.into_iter();
    Ok(deliveries.filter(|one| *one.pipeline == *"p").collect())
}

#[test]
fn a_pipeline_delivers_from_the_queues_that_its_selector_means() {
    let queues = |indexing: &str| -> Vec<String> {
        let pipeline = format!("processor: [{{bulk_indexing: {{{indexing}}}}}]");
        let deliveries = with_pipeline(&pipeline).unwrap();
        deliveries.iter().map(|one| one.queue.to_string()).collect()
    };
    assert_eq!(queues(""), ["a", "b"]);
    assert_eq!(
        queues("queue_selector.labels: {type: bulk_reshuffle}"),
        ["a", "b"]
    );
    assert_eq!(queues("queue_selector.labels: {queue: a}"), ["a"]);
    assert_eq!(queues("queue_selector.labels: {elasticsearch: d}"), ["b"]);
    assert_eq!(queues("queue_selector.labels: {level: shard}"), ["b"]);
    assert_eq!(queues("queues: {type: bulk_reshuffle, queue: b}"), ["b"]);
    assert_eq!(queues("queue_selector.keys: [b]"), ["b"]);
    assert_eq!(
        queues("queue_selector: {keys: [a, b], labels: {level: node}}"),
        ["a"]
    );
    for wrong in [
        "queue_selector.labels: {level: index}",
        "queue_selector.labels: {colour: red}",
        "queue_selector.keys: [c]",
    ] {
        let pipeline = format!("processor: [{{bulk_indexing: {{{wrong}}}}}]");
        assert!(with_pipeline(&pipeline).is_err(), "{wrong}");
    }
}

#[test]
fn what_a_pipeline_says_of_requests_and_retries_is_taken_and_what_cannot_mean_anything_is_refused() {
    let one = |bulk: &str| {
        let pipeline = format!(
            "retry_delay_in_ms: 70, processor: [{{bulk_indexing: {{queue_selector.keys: a, bulk: {{{bulk}}}}}}}]"
        );
        with_pipeline(&pipeline)
    };
    let ms = |delivery: &Delivery| {
        (
            delivery.retry.delay.as_millis(),
            delivery.retry.busy_delay.as_millis(),
        )
    };
    let plain = &one("").unwrap()[0];
    assert_eq!(ms(plain), (70, 70));
    assert_eq!(
        (&plain.retry.times_max, &plain.retry.rules),
        (&None, &RetryRules::default())
    );
    assert_eq!(plain.batch_bytes_max, 5 << 20);
    let said = &one("batch_size_in_kb: 300, retry_delay_in_seconds: 2, reject_retry_delay_in_seconds: 3, max_retry_times: 4, response_handle.retry_rules: {retry_429: false, denied: {status: [400, 404], keyword: mapper_parsing}}").unwrap()[0];
    assert_eq!(ms(said), (2_000, 3_000));
    assert_eq!((said.retry.times_max, said.batch_bytes_max), (Some(4), 300 << 10));
    let rules = RetryRules {
        busy: false,
        denied: Matching {
            statuses: vec![400, 404],
            keywords: vec!["mapper_parsing".to_owned()],
        },
        ..RetryRules::default()
    };
    assert_eq!(said.retry.rules, rules);
    for (wrong, says) in [
        (
            "batch_size_in_kb: 300, batch_size_in_mb: 1",
            "write one of the two",
        ),
        ("retry_rules: {retry_429: false}", "response_handle.retry_rules"),
        ("batch_size_in_docs: 0", "less than 1"),
    ] {
        let error = one(wrong).unwrap_err();
        assert!(error.to_string().contains(says), "{wrong}: {error}");
    }
    for (wrong, says) in [
        ("waiting_after: [a]", "deliver what is to wait"),
        ("queue_selector.ids: [x]", "write `keys`"),
        ("num_of_slices: -1", "less than 0"),
    ] {
        let pipeline = format!("processor: [{{bulk_indexing: {{{wrong}}}}}]");
        let error = with_pipeline(&pipeline).unwrap_err().to_string();
        assert!(error.contains(says), "{wrong}: {error}");
    }
    let none = with_pipeline("enabled: false, processor: [{bulk_indexing: {}}]").unwrap();
    assert_eq!(none, [], "as if it were not there");
}

#[test]
fn examples_load_without_errors_and_say_what_they_need() {
    let environment = |name: &str| match name {
        "ES_PASSWORD" | "ADMIN_TOKEN" => Some("hunter2".to_owned()),
        "CERTS" => Some(root().join("crates/config/tests/config").display().to_string()),
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
            // The certificates of the example do not exist.
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
fn a_file_that_is_not_there_is_an_error_with_its_name() {
    let rejected = Config::load(Path::new("/nowhere/gateway.yml")).unwrap_err();
    assert!(
        rejected
            .to_string()
            .starts_with("/nowhere/gateway.yml: error: can't be read"),
        "{rejected}"
    );
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
    let in_clear = parse(&open.replace("2900'", "2900', token: x"));
    let told = in_clear.unwrap_err().to_string();
    assert!(
        told.contains("tokens would travel in clear text") && told.contains("admin.tls.enabled: false"),
        "{told}"
    );
    let forgotten = open.replace(
        "2900'",
        "2900', token: x, tls: {cert_file: Cargo.toml, key_file: Cargo.toml}",
    );
    assert!(
        parse(&forgotten)
            .unwrap_err()
            .to_string()
            .contains("in clear text")
    );
    for unsaid in ["tls: {}", "tls: {hot_reload: true}"] {
        let unsaid = parse(&open.replace("2900'", &format!("2900', token: x, {unsaid}")));
        assert!(unsaid.unwrap_err().to_string().contains("in clear text"));
    }
    for openly in [
        "tls.enabled: false",
        "tls: {enabled: false}",
        "tls: {enabled: false, cert_file: Cargo.toml, key_file: Cargo.toml}",
    ] {
        let openly = parse(&open.replace("2900'", &format!("2900', token: x, {openly}")));
        assert_eq!(openly.unwrap().config.admin.tls, None);
    }
    let secured = open.replace("2900'", "2900', tokens: [{name: a, token: x}], tls.enabled: true");
    let secured = parse(&secured).unwrap();
    assert!(secured.config.admin.tls.is_some_and(|tls| tls.hot_reload));
    assert!(secured.warnings.iter().any(|warning| {
        warning
            .to_string()
            .contains("admin.tls: a certificate signed by itself")
    }));
    let same = format!("{guide}admin: {{binding: '127.0.0.1:8000'}}\n");
    assert!(
        parse(&same)
            .unwrap_err()
            .to_string()
            .contains("taken by entry `my_es_entry`")
    );
}

#[test]
fn a_collectors_url_gets_the_path_and_the_port_of_its_protocol() {
    let tracing = |otlp: &str| {
        let text = fixture("tracing-plain.yml");
        let (before, _) = text.split_once("tracing:").unwrap();
        let text = format!("{before}tracing: {{enabled: true, otlp: {{{otlp}}}}}\n");
        parse(&text).unwrap().config.tracing.unwrap()
    };
    for (otlp, collector, path) in [
        ("endpoint: 'http://c'", "http://c:4318", "/v1/traces"),
        ("endpoint: 'http://c:80/otlp/'", "http://c:80", "/otlp/v1/traces"),
        ("endpoint: 'https://c/v1/traces'", "https://c:4318", "/v1/traces"),
        (
            "endpoint: 'http://[::1]', protocol: grpc",
            "http://[::1]:4317",
            "/v1/traces",
        ),
    ] {
        let tracing = tracing(otlp);
        assert_eq!(
            (tracing.collector.to_string().as_str(), &*tracing.path),
            (collector, path)
        );
    }
    let tracing = tracing("endpoint: 'http://c', headers: {x-token: hunter2}");
    assert_eq!(tracing.sample, 0.01);
    assert!(!format!("{tracing:?}").contains("hunter2"), "secrets never print");
}

#[test]
fn tokens_of_the_admin_port_are_told_apart_and_never_shown() {
    let guide = fixture("guide.yml");
    let loaded = parse(&format!(
        "{guide}admin.tokens: [{{name: watch, token: t0ken}}, {{name: ops, token: '$[[env.T]]', right: operate}}]\nenv.T: 0ther\n"
    ))
    .unwrap();
    let tokens = &loaded.config.admin.tokens;
    let told: Vec<(&str, &str, String)> = tokens
        .iter()
        .map(|one| (&*one.name, one.token.expose(), one.right.to_string()))
        .collect();
    assert_eq!(
        told,
        [
            ("watch", "t0ken", "read".to_owned()),
            ("ops", "0ther", "operate".to_owned())
        ]
    );
    assert!(loaded.config.admin.needs_token());
    let shown = config::show(&loaded.file);
    assert!(
        !shown.contains("t0ken") && !shown.contains("0ther") && shown.contains("name: watch"),
        "{shown}"
    );
    for (section, told) in [
        (
            "tokens: [{name: a, token: x}, {name: a, token: y}]",
            "`a` is the name of admin.tokens[0] too",
        ),
        (
            "tokens: [{name: a, token: x}, {name: b, token: x}]",
            "is another token of the port, too",
        ),
        (
            "token: x, tokens: [{name: a, token: x}]",
            "is another token of the port, too",
        ),
        ("tokens: [{name: a, token: ''}]", "is empty"),
        ("tokens: [{token: x}]", "name"),
        ("tokens: [{name: a}]", "token"),
        ("tokens: [{name: 'a b', token: x}]", "letters, digits"),
        ("tokens: [{name: a, token: x, right: write}]", "operate"),
    ] {
        let rejected = parse(&format!("{guide}admin: {{{section}}}\n"))
            .unwrap_err()
            .to_string();
        assert!(rejected.contains(told), "{section}: {rejected}");
        assert!(!rejected.contains("token: x"), "{rejected}");
    }
}
