//! Switches at run time: with the calls that users of the faster-bulk plug-in know, with the admin port, and
//! with the command line.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Barrier;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::client::{Answer, Client};
use testkit::fake::{Behaviour, FakeCluster, Fault, Flavour, Injection, On, Spec, User};

use crate::gateway::{Gateway, cluster};

/// A folder with a configuration file; the state is in the folder too.
struct Home(tempfile::TempDir);

impl Home {
    /// Makes a home with combining off in the file.
    fn of(cluster: &FakeCluster) -> Self {
        Self::with(cluster, ", combine: {enabled: false}")
    }

    fn with(cluster: &FakeCluster, combine: &str) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        let text = format!(
            "path.data: '{}'
admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow:
  - name: f
    filter:
      - bulk_reshuffle: {{elasticsearch: prod, mode: sync{combine}}}
      - elasticsearch: {{elasticsearch: prod}}
elasticsearch: [{{name: prod, endpoint: '{}'}}]
",
            home.data().display(),
            cluster.urls()[0]
        );
        std::fs::write(home.file(), text).unwrap();
        home
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("tidegate.yml")
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn kept(&self) -> PathBuf {
        self.data().join("switches.json")
    }

    fn start(&self) -> Gateway {
        let gateway = Gateway::start(&["--config", self.file().to_str().unwrap()]);
        gateway.wait_until("the topology is known", |status| status["state"] == "watching");
        gateway
    }
}

/// Makes nodes that are slow enough for parts to gather.
fn busy() -> FakeCluster {
    let behaviour = Behaviour {
        latency: Duration::from_millis(20),
        ..Behaviour::default()
    };
    let spec = Spec {
        behaviour,
        ..Spec::default()
    };
    FakeCluster::start(spec.index("logs", 6).storing()).unwrap()
}

/// Returns how many requests carried parts of several bulks, while many clients sent some at once.
fn combined(gateway: &Gateway) -> u64 {
    const CLIENTS: usize = 12;
    let before = gateway.counter("combined_requests");
    let start = Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (start, gateway) = (&start, &gateway);
            scope.spawn(move || {
                let connection = gateway.client();
                start.wait();
                for round in 0..3 {
                    let body: String = (0..5)
                        .map(|n| format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{client}-{round}-{n}\"}}}}\n{{}}\n"))
                        .collect();
                    let answer = connection.post_ndjson("/_bulk", body.as_bytes()).unwrap();
                    assert_eq!(answer.ok().unwrap().json().unwrap()["errors"], json!(false));
                }
            });
        }
    });
    gateway.counter("combined_requests") - before
}

fn value(answer: Answer) -> Value {
    answer.ok().unwrap().json().unwrap()
}

fn refused(answer: &Answer, status: u16) -> String {
    let body = answer.json().unwrap();
    assert_eq!(
        (answer.status, &body["status"]),
        (status, &json!(status)),
        "{body}"
    );
    assert_eq!(body["error"]["root_cause"][0]["type"], body["error"]["type"]);
    body["error"]["reason"].as_str().unwrap().to_owned()
}

/// Returns a client of the cluster itself, without the gateway.
fn direct(cluster: &FakeCluster) -> Client {
    Client::new(&cluster.urls()[0]).unwrap()
}

const SETTINGS: &str = "/_cluster/settings";

#[test]
fn combining_is_switched_on_and_off_as_with_the_plug_in_and_outlives_a_restart() {
    let cluster = busy();
    let home = Home::of(&cluster);
    let gateway = home.start();
    assert_eq!(combined(&gateway), 0, "it is off in the file");
    let on = json!({"transient": {"apack.fasterbulk.combine.enabled": "true"}});
    let answer = value(gateway.client().put(SETTINGS, &on).unwrap());
    assert_eq!(
        answer,
        json!({
            "acknowledged": true, "persistent": {},
            "transient": {"apack": {"fasterbulk": {"combine": {"enabled": "true"}}}},
        })
    );
    assert!(combined(&gateway) > 0, "it is on");
    gateway.logged("transient.combine.enabled=true");
    drop(gateway);
    let gateway = home.start();
    assert!(combined(&gateway) > 0, "it is on after a restart");
    let shown = value(
        gateway
            .client()
            .get(&format!("{SETTINGS}?flat_settings=true"))
            .unwrap(),
    );
    assert_eq!(
        shown["transient"],
        json!({"apack.fasterbulk.combine.enabled": "true"})
    );
    let metrics = gateway.admin().get("/metrics").unwrap().text();
    assert!(
        metrics.contains("tidegate_combining_filters{cluster=\"prod\"} 1\n"),
        "{metrics}"
    );
    let off = json!({"transient": {"apack": {"fasterbulk.combine": {"enabled": false}}}});
    value(gateway.client().put(SETTINGS, &off).unwrap());
    assert_eq!(combined(&gateway), 0, "it is off");
    let reset = json!({"transient": {"apack.*": null}});
    value(gateway.client().put(SETTINGS, &reset).unwrap());
    let shown = value(gateway.client().get(SETTINGS).unwrap());
    assert_eq!(shown, json!({"persistent": {}, "transient": {}}));
    assert_eq!(value(direct(&cluster).get(SETTINGS).unwrap()), shown);
}

#[test]
fn what_is_configured_is_switched_off_while_parts_wait_and_none_is_lost() {
    let cluster = busy();
    let home = Home::with(&cluster, "");
    let gateway = home.start();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| (0..4).map(|_| combined(&gateway)).sum::<u64>());
        let client = gateway.client();
        while !sending.is_finished() {
            for on in ["false", "true"] {
                let switch = json!({"persistent": {"apack.fasterbulk.combine.enabled": on}});
                value(client.put(SETTINGS, &switch).unwrap());
            }
        }
        sending.join().unwrap();
    });
    assert_eq!(cluster.docs("logs").len(), 12 * 3 * 5);
    let off = json!({"persistent": {"apack.fasterbulk.combine.enabled": "false"}});
    value(gateway.client().put(SETTINGS, &off).unwrap());
    assert_eq!(combined(&gateway), 0);
}

#[test]
fn other_settings_of_the_same_body_reach_the_cluster_and_ours_do_not() {
    let cluster = cluster();
    let home = Home::of(&cluster);
    let gateway = home.start();
    let mixed = json!({
        "persistent": {"cluster.routing.allocation.enable": "all", "apack.fasterbulk.combine.interval": "20"},
        "transient": {"apack": {"fasterbulk": {"combine": {"flush_threshold_size": "2mb"}}}},
    });
    let answer = value(
        gateway
            .client()
            .put(&format!("{SETTINGS}?flat_settings"), &mixed)
            .unwrap(),
    );
    assert_eq!(
        answer,
        json!({
            "acknowledged": true,
            "persistent": {"cluster.routing.allocation.enable": "all", "apack.fasterbulk.combine.interval": "20"},
            "transient": {"apack.fasterbulk.combine.flush_threshold_size": "2mb"},
        })
    );
    let theirs = value(
        direct(&cluster)
            .get(&format!("{SETTINGS}?flat_settings"))
            .unwrap(),
    );
    assert_eq!(
        theirs,
        json!({"persistent": {"cluster.routing.allocation.enable": "all"}, "transient": {}})
    );
    let some = gateway.client().get(&format!(
        "{SETTINGS}?filter_path=persistent.apack,*.cluster.**.enable"
    ));
    assert_eq!(
        value(some.unwrap()),
        json!({"persistent": {
            "cluster": {"routing": {"allocation": {"enable": "all"}}},
            "apack": {"fasterbulk": {"combine": {"interval": "20"}}},
        }})
    );
    // If the cluster refuses one of its settings, the gateway's setting in the same call fails too.
    let wrong = json!({"persistent": {"no.such": 1, "apack.fasterbulk.combine.interval": "30"}});
    let reason = refused(&gateway.client().put(SETTINGS, &wrong).unwrap(), 400);
    assert!(reason.contains("no.such"), "{reason}");
    let now = value(gateway.admin().get("/switches").unwrap());
    assert_eq!(
        now["clusters"]["prod"]["switches"]["combine.interval"]["value"],
        "20"
    );
}

#[test]
fn what_cannot_be_is_refused_as_the_cluster_would_and_changes_nothing() {
    let cluster = cluster();
    let home = Home::of(&cluster);
    let gateway = home.start();
    for (settings, told) in [
        (json!({"apack.fasterbulk.combine.enabled": "maybe"}), "maybe"),
        (
            json!({"apack.fasterbulk.combine.flush_threshold_size": "-1mb"}),
            "-1mb",
        ),
        (json!({"apack.fasterbulk.combine.interval": -5}), "-5"),
        (json!({"apack.fasterbulk.combine.size": 1}), "unknown setting"),
        (
            json!({"cluster.routing.allocation.enable": "none", "index.direct_routing.global.enable": 1}),
            "index.direct_routing.global.enable",
        ),
    ] {
        let answer = gateway
            .client()
            .put(SETTINGS, &json!({"persistent": settings}))
            .unwrap();
        let reason = refused(&answer, 400);
        assert!(reason.contains(told), "{reason}");
    }
    let answer = gateway
        .client()
        .put("/logs/_settings", &json!({"index.direct_routing.enable": "on"}));
    refused(&answer.unwrap(), 400);
    let answer = gateway
        .client()
        .put("/-logs/_settings", &json!({"index.direct_routing.enable": true}));
    refused(&answer.unwrap(), 400);
    let settings = value(direct(&cluster).get(SETTINGS).unwrap());
    assert_eq!(settings, json!({"persistent": {}, "transient": {}}));
    assert!(!home.data().exists(), "nothing was written");
}

#[test]
fn whoever_may_not_change_the_clusters_settings_switches_nothing() {
    let cluster = cluster();
    let home = Home::of(&cluster);
    let gateway = home.start();
    let forbidden = r#"{"error":{"root_cause":[{"type":"security_exception","reason":"no permissions"}],"type":"security_exception","reason":"no permissions"},"status":403}"#;
    for path in ["/_cluster/settings", "/logs/_settings"] {
        // The topology is also watched on such paths, with no body.
        cluster.inject(
            Injection::new(
                On::Path(path.to_owned()),
                Fault::StatusIfHolds {
                    text: "null".to_owned(),
                    status: 403,
                    body: forbidden.to_owned(),
                },
            )
            .always(),
        );
    }
    let on = json!({"persistent": {"apack.fasterbulk.combine.enabled": true}});
    assert_eq!(gateway.client().put(SETTINGS, &on).unwrap().text(), forbidden);
    let on = json!({"index": {"direct_routing": {"enable": true}}});
    assert_eq!(
        gateway.client().put("/logs/_settings", &on).unwrap().text(),
        forbidden
    );
    cluster.behave();
    cluster.kill(0);
    cluster.kill(1);
    cluster.kill(2);
    assert_eq!(gateway.client().put("/logs/_settings", &on).unwrap().status, 503);
    assert!(!home.kept().exists());
}

#[test]
fn an_indexs_switch_is_taken_kept_and_shown() {
    let cluster = cluster();
    cluster.create_index("other", 2);
    cluster.alias("written", &["logs"]);
    let home = Home::of(&cluster);
    let gateway = home.start();
    gateway.wait_until("the alias is known", |status| status["routes"]["aliases"] == 1);
    let on = json!({"index.direct_routing.enable": "true", "index.refresh_interval": "5s"});
    let answer = gateway.client().put("/written/_settings", &on);
    assert_eq!(value(answer.unwrap()), json!({"acknowledged": true}));
    drop(gateway);
    let gateway = home.start();
    let directed = |index: &str| {
        let before = gateway.counter("docs_directed");
        let body = format!("{{\"index\":{{\"_index\":\"{index}\"}}}}\n{{}}\n").repeat(10);
        value(gateway.bulk(&body));
        gateway.counter("docs_directed") - before
    };
    assert_eq!((directed("logs"), directed("other")), (10, 0));
    let all = json!({"transient": {"index.direct_routing.global.enable": "true"}});
    value(gateway.client().put(SETTINGS, &all).unwrap());
    assert_eq!((directed("logs"), directed("other")), (10, 10));
    let metrics = gateway.admin().get("/metrics").unwrap().text();
    assert!(
        metrics.contains("tidegate_directing_filters{cluster=\"prod\"} 1\n"),
        "{metrics}"
    );
    let shown = value(
        gateway
            .client()
            .get("/logs,other/_settings?flat_settings=true")
            .unwrap(),
    );
    assert_eq!(shown["logs"]["settings"]["index.direct_routing.enable"], "true");
    assert_eq!(
        shown["other"]["settings"]["index.direct_routing.enable"],
        Value::Null
    );
    let named = gateway.client().get("/_settings/index.direct_routing.*");
    assert_eq!(
        value(named.unwrap()),
        json!({"logs": {"settings": {"index": {"direct_routing": {"enable": "true"}}}}})
    );
    let filtered = gateway
        .client()
        .get("/logs/_settings?filter_path=*.settings.index.direct*");
    assert_eq!(
        value(filtered.unwrap()),
        json!({"logs": {"settings": {"index": {"direct_routing": {"enable": "true"}}}}})
    );
    let theirs = value(
        direct(&cluster)
            .get("/logs/_settings?flat_settings=true")
            .unwrap(),
    );
    assert_eq!(
        theirs["logs"]["settings"]["index.direct_routing.enable"],
        Value::Null
    );
    let answer = gateway
        .client()
        .put("/absent/_settings", &json!({"index.direct_routing.enable": true}));
    assert_eq!(answer.unwrap().status, 404, "an index that is not there");
    let reset = gateway
        .client()
        .put("/_all/_settings", &json!({"index.direct_routing.enable": null}));
    value(reset.unwrap());
    let now = value(gateway.admin().get("/switches").unwrap());
    assert_eq!(now["clusters"]["prod"]["indices"], json!([]));
}

#[test]
fn calls_that_are_none_of_ours_pass_as_they_came() {
    let cluster = cluster();
    let home = Home::of(&cluster);
    let gateway = home.start();
    let theirs = json!({"persistent": {"cluster.routing.allocation.enable": "all"}});
    value(gateway.client().put(SETTINGS, &theirs).unwrap());
    assert_eq!(
        value(gateway.client().get(SETTINGS).unwrap()),
        value(direct(&cluster).get(SETTINGS).unwrap())
    );
    let broken = br#"{"transient": {"apack.fasterbulk.combine.enabled": true"#;
    let json = [("content-type", "application/json")];
    let answer = gateway.client().send("PUT", SETTINGS, &json, broken).unwrap();
    assert_eq!(refused(&answer, 400), "not a JSON object", "the cluster says so");
    assert!(!home.data().exists());
}

#[test]
fn the_operator_switches_at_the_admin_port() {
    let cluster = busy();
    let home = Home::of(&cluster);
    let gateway = home.start();
    let admin = gateway.admin();
    let on = json!({
        "combine.enabled": true, "combine.interval": "20ms",
        "direct_routing.indices": [{"index": "logs-*,other", "enabled": true}],
    });
    let headers = [
        ("content-type", "application/json"),
        ("x-request-id", "by-hand-1"),
    ];
    let answer = admin.send("PUT", "/switches/prod", &headers, on.to_string().as_bytes());
    let now = value(answer.unwrap());
    gateway.logged("by-hand-1");
    assert_eq!(
        now["switches"]["combine.enabled"],
        json!({"value": "true", "section": "persistent"})
    );
    assert_eq!(now["filters"][0]["combine"]["interval"], "20ms");
    assert!(combined(&gateway) > 0);
    let all = value(admin.get("/switches").unwrap());
    assert_eq!(all["clusters"], json!({"prod": now}));
    assert_eq!(all["kept_in"], json!(home.kept()));
    let shown = value(
        gateway
            .client()
            .get(&format!("{SETTINGS}?flat_settings"))
            .unwrap(),
    );
    assert_eq!(shown["persistent"]["apack.fasterbulk.combine.interval"], "20ms");
    for (path, body, status, told) in [
        (
            "/switches/none",
            json!({"combine.enabled": true}),
            404,
            "no cluster none",
        ),
        (
            "/switches/prod",
            json!({"combine": true}),
            400,
            "no switch [combine]",
        ),
        ("/switches/prod", json!({"combine.enabled": "on"}), 400, "neither"),
        ("/switches/prod", json!([]), 400, "JSON object"),
    ] {
        let answer = admin.put(path, &body).unwrap();
        assert_eq!(answer.status, status, "{path} {body}");
        assert!(answer.text().contains(told), "{}", answer.text());
    }
    assert_eq!(value(admin.get("/switches").unwrap()), all);
    // A reload concerns only the configuration.
    let text = std::fs::read_to_string(home.file()).unwrap();
    std::fs::write(home.file(), text + "logging.level: debug\n").unwrap();
    gateway.signal("HUP");
    gateway.logged("configuration reloaded");
    assert_eq!(value(admin.get("/switches").unwrap()), all);
    assert!(combined(&gateway) > 0);
}

#[test]
fn a_packed_body_is_understood_and_its_others_reach_the_cluster_plain() {
    let cluster = cluster();
    let home = Home::of(&cluster);
    let gateway = home.start();
    let mixed = json!({"persistent": {"cluster.name.x": "y", "apack.fasterbulk.combine.interval": "7"}});
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(mixed.to_string().as_bytes()).unwrap();
    let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
    let answer = gateway
        .client()
        .send("PUT", SETTINGS, &headers, &packer.finish().unwrap());
    value(answer.unwrap());
    let theirs = value(
        direct(&cluster)
            .get(&format!("{SETTINGS}?flat_settings"))
            .unwrap(),
    );
    assert_eq!(theirs["persistent"], json!({"cluster.name.x": "y"}));
    let now = value(gateway.admin().get("/switches").unwrap());
    assert_eq!(
        now["clusters"]["prod"]["switches"]["combine.interval"]["value"],
        "7"
    );
}

#[test]
fn a_file_that_cannot_be_read_keeps_the_gateway_from_starting_and_says_what_to_do() {
    let cluster = cluster();
    let home = Home::of(&cluster);
    std::fs::create_dir(home.data()).unwrap();
    std::fs::write(home.kept(), "{\"version\":1,\"clus").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["gateway", "--config", home.file().to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    for word in ["switches.json", "mend the file, or remove it", "path.data"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    std::fs::remove_file(home.kept()).unwrap();
    home.start();
}

#[test]
fn what_cannot_be_kept_is_not_switched() {
    let cluster = cluster();
    let home = Home::of(&cluster);
    let gateway = home.start();
    std::fs::write(home.data(), "a file in the place of the folder").unwrap();
    let on = json!({"persistent": {"apack.fasterbulk.combine.enabled": true}});
    let reason = refused(&gateway.client().put(SETTINGS, &on).unwrap(), 500);
    assert!(reason.contains("no switch was changed"), "{reason}");
    let shown = value(gateway.client().get(SETTINGS).unwrap());
    assert_eq!(shown["persistent"], json!({}));
}

fn switch(admin: &str, arguments: &[&str], token_file: Option<&Path>) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("switch").args(arguments).args(["--admin", admin]);
    if let Some(file) = token_file {
        command.arg("--token-file").arg(file);
    }
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn the_command_line_lists_sets_and_resets() {
    let cluster = cluster();
    let home = Home::of(&cluster);
    let text = std::fs::read_to_string(home.file()).unwrap();
    let text = text.replace(
        "binding: '127.0.0.1:0'}\nentry",
        "binding: '127.0.0.1:0', token: 's3cret'}\nentry",
    );
    std::fs::write(home.file(), text).unwrap();
    let token = home.0.path().join("token");
    std::fs::write(&token, "s3cret\n").unwrap();
    let gateway = Gateway::start(&["--config", home.file().to_str().unwrap()]);
    let admin = gateway.admin().origin().to_owned();
    let (code, _, said) = switch(&admin, &["list"], None);
    assert_eq!(code, Some(3));
    assert!(said.contains("TIDEGATE_ADMIN_TOKEN"), "{said}");
    let run = |arguments: &[&str]| switch(&admin, arguments, Some(&token));
    let (code, listed, said) = run(&["list"]);
    assert_eq!(code, Some(0), "{said}");
    let words = |text: &str, name: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.contains(name)).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(
        words(&listed, "combine.enabled"),
        ["prod", "combine.enabled", "-", "false"]
    );
    let (code, listed, said) = run(&["set", "combine.enabled=true", "combine.interval=20"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        words(&listed, "combine.enabled"),
        ["prod", "combine.enabled", "true", "true"]
    );
    assert_eq!(
        words(&listed, "combine.interval"),
        ["prod", "combine.interval", "20", "20ms"]
    );
    let (code, listed, _) = run(&[
        "set",
        "direct_routing.enabled=true",
        "--index",
        "logs-*",
        "--json",
    ]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(
        (code, &listed["clusters"]["prod"]["indices"]),
        (Some(0), &json!([{"index": "logs-*", "enabled": true}]))
    );
    for (arguments, code, told) in [
        (
            &["set", "combine.enabled=maybe"][..],
            2,
            "neither `true` nor `false`",
        ),
        (&["set", "nonsense=1"], 2, "there is no switch [nonsense]"),
        (
            &["set", "combine.enabled=true", "--index", "logs"],
            2,
            "--index works with",
        ),
        (&["set", "combine.enabled"], 2, "SWITCH=VALUE"),
        (
            &["reset", "--cluster", "none"],
            1,
            "there is no cluster none; the clusters are prod",
        ),
    ] {
        let (status, _, said) = run(arguments);
        assert_eq!(status, Some(code), "{arguments:?}: {said}");
        assert!(said.contains(told), "{arguments:?}: {said}");
    }
    let (_, listed, _) = run(&["reset", "combine.interval"]);
    assert_eq!(
        words(&listed, "combine.interval"),
        ["prod", "combine.interval", "-", "50ms"]
    );
    let (code, listed, said) = run(&["reset"]);
    assert_eq!((code, listed.contains("logs-*")), (Some(0), false), "{said}");
    assert_eq!(
        words(&listed, "combine.enabled"),
        ["prod", "combine.enabled", "-", "false"]
    );
    drop(gateway);
    let (code, _, said) = run(&["list"]);
    assert_eq!(code, Some(3));
    assert!(said.contains("no gateway answers at"), "{said}");
}

#[test]
fn a_pattern_is_switched_by_whoever_has_the_right_for_all_that_it_covers() {
    let spec = Spec::default().index("logs-1", 3).index("metrics-1", 3).storing();
    let spec = spec
        .flavour(Flavour::Elasticsearch9)
        .basic_auth("u", "p")
        .user(User::new("of-logs", "p").may("logs-*", &["manage"]));
    let cluster = FakeCluster::start(spec).unwrap();
    let filters = "      - bulk_reshuffle: {elasticsearch: c, mode: sync}
      - elasticsearch: {elasticsearch: c}";
    let gateway = Gateway::with_file(&cluster, filters, ", basic_auth: {username: u, password: p}");
    let on = json!({"index.direct_routing.enable": true});
    let put = |user: &str, path: &str, body: &Value| {
        gateway.client().basic_auth(user, "p").put(path, body).unwrap()
    };
    // Elasticsearch itself narrows the pattern, and answers 200.
    let theirs = json!({"index.refresh_interval": "7s"});
    assert_eq!(put("of-logs", "/*/_settings", &theirs).status, 200);
    for pattern in [
        "/*/_settings",
        "/_settings",
        "/_all/_settings",
        "/logs-*,*-1/_settings",
        "/lo*/_settings",
    ] {
        let refused = put("of-logs", pattern, &on);
        assert_eq!(refused.status, 403, "{pattern}: {}", refused.text());
        assert_eq!(refused.json().unwrap()["error"]["type"], "security_exception");
    }
    let mixed = json!({"index.direct_routing.enable": true, "index.refresh_interval": "9s"});
    assert_eq!(put("of-logs", "/*/_settings", &mixed).status, 403);
    let shown = || {
        gateway
            .client()
            .basic_auth("u", "p")
            .get("/_settings")
            .unwrap()
            .text()
    };
    assert!(
        !shown().contains("direct_routing") && !shown().contains("9s"),
        "{}",
        shown()
    );
    assert_eq!(put("of-logs", "/logs-*/_settings", &on).status, 200);
    assert_eq!(put("of-logs", "/metrics-1/_settings", &on).status, 403);
    assert_eq!(put("u", "/*/_settings", &on).status, 200);
    assert_eq!(put("stranger", "/*/_settings", &on).status, 401);
}
