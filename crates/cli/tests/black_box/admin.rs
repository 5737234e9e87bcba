//! The admin port, request ids, reload and stop.

use serde_json::Value;
use testkit::fake::{FakeCluster, Spec};

use crate::gateway::{Gateway, PATIENCE, body, cluster, replace_text};

#[test]
fn health_stats_metrics_and_config_are_there_and_hold_no_secret() {
    let cluster = cluster();
    let url = cluster.urls()[0].replace("http://", "http://who:s3cret@");
    let gateway = Gateway::start(&[
        "--cluster",
        &url,
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
    ]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    gateway.bulk(&body(50)).ok().unwrap();
    let admin = gateway.admin();
    let health = admin.get("/health").unwrap().ok().unwrap().json().unwrap();
    assert_eq!(health["status"], "green");
    let metrics = admin.get("/metrics").unwrap().ok().unwrap().text();
    assert!(metrics.contains("tidegate_docs_total 50\n"), "{metrics}");
    assert!(metrics.contains("tidegate_node_up{"), "{metrics}");
    for path in ["/", "/stats", "/elasticsearch", "/config", "/metrics"] {
        let answer = admin.get(path).unwrap().ok().unwrap().text();
        assert!(!answer.contains("s3cret"), "{path}: {answer}");
    }
    assert_eq!(admin.get("/nothing").unwrap().status, 404);
}

#[test]
fn every_metric_is_documented_and_every_documented_metric_is_there() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let metrics = gateway.admin().get("/metrics").unwrap().ok().unwrap().text();
    let mut served: Vec<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).unwrap();
    let mut documented: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    served.sort_unstable();
    documented.sort_unstable();
    assert_eq!(served, documented);
}

#[test]
fn every_reason_to_pass_is_documented_and_every_documented_one_is_there() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let metrics = gateway.admin().get("/metrics").unwrap().ok().unwrap().text();
    let mut counted: Vec<&str> = metrics
        .lines()
        .filter_map(|line| {
            let labelled = line.strip_prefix("tidegate_bulk_passed_because_total{why=\"")?;
            labelled.split('"').next()
        })
        .collect();
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bulk.md")).unwrap();
    let (_, tables) = page.split_once("## Every reason to pass").unwrap();
    let mut documented: Vec<&str> = tables
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    counted.sort_unstable();
    documented.sort_unstable();
    assert_eq!(counted, documented);
}

#[test]
fn an_open_admin_port_without_a_token_does_not_start() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "gateway",
            "--cluster",
            "http://127.0.0.1:9",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "0.0.0.0:0",
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("token"));
}

#[test]
fn what_is_not_there_is_behind_the_token_too() {
    let cluster = cluster();
    let place = crate::home::GatewayHome::before(&[&cluster], "");
    let text = std::fs::read_to_string(&place.file).unwrap();
    let text = text.replace(
        "admin: {binding: '127.0.0.1:0'}",
        "admin: {binding: '127.0.0.1:0', token: open-sesame-9}",
    );
    std::fs::write(&place.file, text).unwrap();
    let gateway = Gateway::start(&["--config", place.file.to_str().unwrap()]);
    let asked = |method: &str, path: &str, token: &str| {
        let given = format!("Bearer {token}");
        let answer = gateway
            .admin()
            .send(method, path, &[("authorization", &given)], b"");
        answer.unwrap().status
    };
    for (method, path, status) in [
        ("GET", "/stats", 200),
        ("GET", "/no/such/endpoint", 404),
        ("DELETE", "/stats", 405),
    ] {
        assert_eq!(asked(method, path, "open-sesame-9"), status, "{method} {path}");
        assert_eq!(asked(method, path, "wrong"), 401, "{method} {path}");
        let without = gateway.admin().send(method, path, &[], b"").unwrap();
        assert_eq!(without.status, 401, "{method} {path}");
    }
}

#[test]
fn the_clients_request_id_comes_back_and_others_are_made() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let given = gateway
        .client()
        .send("GET", "/_cluster/health", &[("x-request-id", "abc-1")], &[])
        .unwrap();
    assert_eq!(given.header("x-request-id"), Some("abc-1"));
    let made = gateway.client().get("/_cluster/health").unwrap();
    assert_eq!(made.header("x-request-id").unwrap().len(), 17);
}

#[test]
fn a_reload_changes_flows_and_a_broken_file_changes_nothing() {
    let cluster = cluster();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.yml");
    let write = |level: &str| {
        let text = format!(
            "admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: c, mode: sync, level: {level}}}}}, {{elasticsearch: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}'}}]
",
            cluster.urls()[0]
        );
        replace_text(&file, &text);
    };
    write("node");
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    gateway.bulk(&body(20)).ok().unwrap();
    assert_eq!(gateway.counter("bulk_requests"), 1);
    let passes_after = |change: &dyn Fn(), logged: &str| {
        let seen = gateway.log().len();
        change();
        gateway.signal("HUP");
        let began = std::time::Instant::now();
        while !gateway.log()[seen..].contains(logged) {
            assert!(began.elapsed() < PATIENCE, "{}", gateway.log());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        gateway.bulk(&body(20)).ok().unwrap();
        gateway.counter("bulk_passed")
    };
    assert_eq!(
        passes_after(&|| write("nonsense"), "not reloaded"),
        0,
        "the old flow is in force"
    );
    assert_eq!(passes_after(&|| write("cluster"), "configuration reloaded"), 1);
    let log_format = || {
        let text = std::fs::read_to_string(&file).unwrap() + "logging.format: json\n";
        std::fs::write(&file, text).unwrap();
    };
    passes_after(&log_format, "waits for a restart");
}

#[test]
fn a_stop_lets_requests_under_way_finish() {
    let cluster = cluster();
    let mut gateway = Gateway::before(&cluster);
    let delay = testkit::fake::Fault::Delay(std::time::Duration::from_millis(1_500));
    cluster.inject(testkit::fake::Injection::bulk(delay).always());
    let client = gateway.client();
    let answer = std::thread::scope(|scope| {
        let answer = scope.spawn(|| client.post_ndjson("/_bulk", body(60).as_bytes()).unwrap());
        gateway.wait_for_struck(&cluster, 1);
        gateway.signal("TERM");
        answer.join().unwrap()
    });
    let answer: Value = answer.ok().unwrap().json().unwrap();
    assert_eq!(answer["items"].as_array().unwrap().len(), 60);
    assert!(gateway.wait().success());
}

/// The time at which fake clusters' certificates expire: rcgen's default.
const IN_4096: f64 = 67_090_118_400.0;

/// Returns a metric's value, by its name and labels.
fn metric(gateway: &Gateway, name: &str) -> Option<f64> {
    let metrics = gateway.admin().get("/metrics").unwrap().ok().unwrap().text();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

#[test]
fn metrics_tell_of_the_process_and_its_build() {
    let gateway = Gateway::before(&cluster());
    // The system counts in hundredths of a second, and a start may have taken less, so the test asks until
    // the process has used more.
    let began = std::time::Instant::now();
    while metric(&gateway, "process_cpu_seconds_total") == Some(0.0) {
        assert!(began.elapsed().as_secs() < 20, "no CPU time is counted");
    }
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs_f64();
    let build = concat!(
        "tidegate_build_info{version=\"",
        env!("CARGO_PKG_VERSION"),
        "\",commit=\"unknown\"}"
    );
    for (name, least, most) in [
        (build, 1.0, 1.0),
        ("process_cpu_seconds_total", 0.01, 60.0),
        ("process_resident_memory_bytes", 1e6, 1e9),
        ("process_open_fds", 5.0, 500.0),
        ("process_max_fds", 64.0, 1e18),
        ("process_start_time_seconds", now - 60.0, now + 2.0),
        (
            "tidegate_config_last_reload_success_timestamp_seconds",
            now - 60.0,
            now,
        ),
        ("tidegate_config_last_reload_successful", 1.0, 1.0),
        ("tidegate_config_reloads_failed_total", 0.0, 0.0),
        ("tidegate_cluster_account_refused{cluster=\"cluster\"}", 0.0, 0.0),
    ] {
        let value = metric(&gateway, name).unwrap_or_else(|| panic!("{name} is not there"));
        assert!((least..=most).contains(&value), "{name} {value}");
    }
}

#[test]
fn metrics_tell_of_refused_reloads_certificates_and_accounts() {
    let cluster = FakeCluster::start(Spec::default().basic_auth("u", "right")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let other = FakeCluster::start(Spec::default().tls()).unwrap();
    std::fs::write(path("cert.pem"), other.ca_pem().unwrap()).unwrap();
    std::fs::write(path("key.pem"), other.key_pem().unwrap()).unwrap();
    std::fs::write(path("ca.pem"), other.ca_pem().unwrap()).unwrap();
    let text = format!(
        "entry:  [{{name: e, router: r, network.binding: '127.0.0.1:0', tls: {{enabled: true, cert_file: '{cert}', key_file: '{key}'}}}}]\n\
         router: [{{name: r, default_flow: f}}]\n\
         flow:   [{{name: f, filter: [{{elasticsearch: {{elasticsearch: c}}}}]}}]\n\
         elasticsearch: [{{name: c, endpoint: '{url}', basic_auth: {{username: u, password: wrong}}, tls.ca_file: '{ca}'}}]\n\
         admin.binding: 127.0.0.1:0\n",
        cert = path("cert.pem"),
        key = path("key.pem"),
        ca = path("ca.pem"),
        url = cluster.urls()[0],
    );
    let file = path("gateway.yml");
    std::fs::write(&file, &text).unwrap();
    let gateway = Gateway::start(&["--config", &file]);
    let value = |name: &str| metric(&gateway, name).unwrap_or_else(|| panic!("{name} is not there"));
    let expiry = |of: &str| value(&format!("tidegate_certificate_expiry_timestamp_seconds{{{of}}}"));
    assert_eq!(expiry("of=\"entry\",name=\"e\""), IN_4096);
    assert_eq!(expiry("of=\"cluster_ca\",name=\"c\""), IN_4096);
    let until = |name: &str, wanted: f64| {
        let ends = std::time::Instant::now() + PATIENCE;
        while value(name) != wanted {
            assert!(
                std::time::Instant::now() < ends,
                "{name} is {} and not {wanted}",
                value(name)
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    until("tidegate_cluster_account_refused{cluster=\"c\"}", 1.0);
    let file = std::path::Path::new(&file);
    replace_text(file, &text.replace("default_flow: f", "default_flow: nowhere"));
    until("tidegate_config_reloads_failed_total", 1.0);
    until("tidegate_config_last_reload_successful", 0.0);
    replace_text(file, &format!("{text}worker.count: 3\n"));
    until("tidegate_config_reloads_total", 1.0);
    until("tidegate_config_last_reload_successful", 1.0);
    until("tidegate_config_waits_for_restart", 1.0);
}

#[test]
fn answers_of_the_gateways_own_are_laid_out_when_they_are_asked_to_be() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    for (path, first) in [
        ("/health/live?pretty", "{\n  \"status\" : \"live\""),
        ("/nothing?pretty=true", "{\n  \"error\" : {\n    \"type\" : "),
        ("/queue/none?pretty", "{\n  \"error\" : {\n"),
    ] {
        let text = gateway.admin().get(path).unwrap().text();
        assert!(text.starts_with(first) && text.ends_with("}\n"), "{path}: {text}");
    }
    let text = gateway.admin().get("/health/live?pretty=false").unwrap().text();
    assert!(text.starts_with("{\"status\":"), "{text}");
    // No node answers, but the gateway does.
    (0..3).for_each(|node| cluster.kill(node));
    let answer = gateway.client().get("/_cat/indices?pretty").unwrap();
    assert_eq!(answer.status, 503);
    let text = answer.text();
    assert!(text.starts_with("{\n  \"error\" : {\n"), "{text}");
    assert!(text.contains("\"status\" : 503"), "{text}");
    let text = gateway.client().get("/_cat/indices").unwrap().text();
    assert!(text.starts_with("{\"error\":"), "{text}");
}
