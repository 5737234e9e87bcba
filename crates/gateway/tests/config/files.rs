//! What whole files load as, and what is said about them.

use std::path::Path;

use gateway::config::*;

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
    assert!(parse(&open.replace("2900'", "2900', token: x")).is_ok());
    let same = format!("{guide}admin: {{binding: '127.0.0.1:8000'}}\n");
    assert!(
        parse(&same)
            .unwrap_err()
            .to_string()
            .contains("taken by entry `my_es_entry`")
    );
}
