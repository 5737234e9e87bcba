//! Checks that what `ops/` watches exists: alerts and dashboards use metrics that a running gateway exports,
//! with their labels. Every alert has a page, and the rules' own tests test it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::fake::{Fault, Injection, Spec};

use crate::gateway::{Gateway, PATIENCE, body, cluster};
use crate::home::GatewayHome;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn metrics(gateway: &Gateway) -> String {
    gateway.admin().get("/metrics").unwrap().ok().unwrap().text()
}

/// Returns each metric with its samples, as Prometheus would name them.
fn exported(metrics: &str) -> BTreeMap<String, Vec<String>> {
    let mut families = BTreeMap::new();
    for line in metrics.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').unwrap();
            let names: &[&str] = match kind {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            let names = names.iter().map(|end| (format!("{name}{end}"), Vec::new()));
            families.extend(names);
        } else if let Some((name, _)) = line.split_once(['{', ' ']).filter(|_| !line.starts_with('#')) {
            families.get_mut(name).unwrap().push(line.to_owned());
        }
    }
    families
}

/// Returns the metrics that an expression uses, each with the text between its braces.
fn asked(expression: &str) -> Vec<(&str, &str)> {
    let part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_alphabetic() || letter == '_') {
        rest = &rest[at..];
        let end = rest.bytes().position(|byte| !part(byte)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        rest = after;
        if name.starts_with("tidegate_") || name.starts_with("process_") {
            let braces = after.strip_prefix('{').and_then(|after| after.split_once('}'));
            found.push((name, braces.map_or("", |(labels, _)| labels)));
        }
    }
    found
}

/// Returns what is wrong with an expression, for a gateway that exports these metrics.
fn wrong(expression: &str, exported: &BTreeMap<String, Vec<String>>) -> Option<String> {
    for (name, labels) in asked(expression) {
        let Some(samples) = exported.get(name) else {
            return Some(format!("there is no {name}"));
        };
        for matcher in labels.split(',').filter(|matcher| !matcher.is_empty()) {
            let (label, value) = matcher.split_once('=').unwrap();
            // These labels are Prometheus' own.
            if label == "instance" || label == "job" {
                continue;
            }
            let values: Vec<&str> = value
                .trim_start_matches('~')
                .trim_matches('"')
                .split('|')
                .collect();
            for value in values {
                let wanted = format!("{label}=\"{value}\"");
                if !samples.iter().any(|sample| sample.contains(&wanted)) {
                    return Some(format!("no sample of {name} has {wanted}"));
                }
            }
        }
    }
    None
}

/// Returns the values of a key in a YAML file, including those that continue over several lines.
fn values(text: &str, key: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut open = None;
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        if open.is_some_and(|at| depth > at) {
            let value = found.last_mut().unwrap();
            value.push(' ');
            value.push_str(line.trim());
            continue;
        }
        open = None;
        let line = line.trim_start().trim_start_matches("- ");
        if let Some(value) = line.strip_prefix(key).and_then(|rest| rest.strip_prefix(": ")) {
            if value == ">-" {
                open = Some(depth);
            }
            found.push(value.trim_start_matches(">-").to_owned());
        }
    }
    found
}

const RULES: &str = "ops/prometheus/tidegate.rules.yml";

#[test]
fn alerts_ask_for_metrics_that_are_there_and_each_has_a_page_and_a_test() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let exported = exported(&metrics(&place.start()));
    let (rules, tried) = (read(RULES), read("ops/prometheus/tidegate.test.yml"));
    let (alerts, pages) = (values(&rules, "alert"), values(&rules, "runbook"));
    let expressions = values(&rules, "expr");
    assert!(alerts.len() > 20, "{alerts:?}");
    assert_eq!((alerts.len(), alerts.len()), (pages.len(), expressions.len()));
    let overview = read("docs/runbooks/README.md");
    for ((alert, expression), page) in alerts.iter().zip(&expressions).zip(&pages) {
        if let Some(wrong) = wrong(expression, &exported) {
            panic!("{alert}: {wrong}: {expression}");
        }
        assert!(tried.contains(alert.as_str()), "{alert} is not tried");
        let text = read(page);
        for part in ["\n## Look\n", "\n## Do\n"] {
            assert!(text.contains(part), "{page}: {part}");
        }
        let file = page.rsplit('/').next().unwrap();
        let row = overview.lines().find(|row| row.contains(&format!("`{alert}`")));
        assert!(row.is_some_and(|row| row.contains(file)), "{alert}: {row:?}");
    }
    for (name, _) in asked(&tried.replace("series: '", " ")) {
        assert!(
            exported.contains_key(name),
            "the rules' tests: there is no {name}"
        );
    }
    let there = std::fs::read_dir(root().join("docs/runbooks")).unwrap();
    let there: BTreeSet<String> = there
        .map(|page| format!("docs/runbooks/{}", page.unwrap().file_name().to_str().unwrap()))
        .filter(|page| !page.ends_with("README.md"))
        .collect();
    assert_eq!(
        there,
        pages.into_iter().collect(),
        "a page for each alert, and no other"
    );
}

#[test]
fn dashboards_ask_for_metrics_that_are_there() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let exported = exported(&metrics(&place.start()));
    let mut looked_at = 0;
    for file in std::fs::read_dir(root().join("ops/grafana")).unwrap() {
        let file = file.unwrap().path();
        let board: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert!(board["uid"].is_string() && board["title"].is_string());
        let mut ids = BTreeSet::new();
        for panel in board["panels"].as_array().unwrap() {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}", panel["title"]);
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().unwrap();
                assert!(!asked(expression).is_empty(), "{expression}");
                if let Some(wrong) = wrong(expression, &exported) {
                    panic!("{}: {}: {wrong}: {expression}", file.display(), panel["title"]);
                }
                looked_at += 1;
            }
        }
        for variable in board["templating"]["list"].as_array().unwrap() {
            let query = variable["definition"].as_str().unwrap_or_default();
            assert_eq!(wrong(query, &exported), None, "{query}");
        }
    }
    assert!(looked_at > 50, "{looked_at}");
}

/// Whether a sample of the metrics gets this value in time.
pub(crate) fn shows(gateway: &Gateway, sample: &str) {
    let began = Instant::now();
    loop {
        let metrics = metrics(gateway);
        if metrics.lines().any(|line| line == sample) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{sample}: {metrics}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_full_queue_shows_why_it_accepts_nothing_and_how_full_it_is() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], ", max_size: 256kb");
    let gateway = place.start();
    shows(&gateway, "tidegate_queue_bytes_max{queue=\"q\"} 262144");
    shows(
        &gateway,
        "tidegate_queue_refuses{queue=\"q\",reason=\"max_size\"} 0",
    );
    let free = metrics(&gateway);
    let free = free
        .lines()
        .find_map(|line| line.strip_prefix("tidegate_queue_disk_free_bytes{queue=\"q\"} "));
    assert!(
        free.is_some_and(|bytes| bytes.parse::<f64>().unwrap() > 1e6),
        "{free:?}"
    );
    let down = Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::bulk(down).always());
    while gateway.bulk(&body(500)).status == 200 {}
    shows(
        &gateway,
        "tidegate_queue_refuses{queue=\"q\",reason=\"max_size\"} 1",
    );
    shows(&gateway, "tidegate_queue_refuses{queue=\"q\",reason=\"disk\"} 0");
    cluster.behave();
    shows(
        &gateway,
        "tidegate_queue_refuses{queue=\"q\",reason=\"max_size\"} 0",
    );
}

#[test]
fn a_cluster_that_is_built_anew_or_away_shows() {
    let cluster = testkit::fake::FakeCluster::start(Spec::default().index("logs", 2).storing()).unwrap();
    let gateway = Gateway::before(&cluster);
    shows(&gateway, "tidegate_cluster_watched{cluster=\"cluster\"} 1");
    shows(&gateway, "tidegate_cluster_rebuilt_total{cluster=\"cluster\"} 0");
    cluster.rebuild();
    shows(&gateway, "tidegate_cluster_rebuilt_total{cluster=\"cluster\"} 1");
    let told = gateway.logged("built anew");
    assert!(told.contains("tidegate queues offset"), "{told}");
    drop(cluster);
    shows(&gateway, "tidegate_cluster_watched{cluster=\"cluster\"} 0");
}

#[test]
fn a_certificate_that_ends_soon_is_told_of_with_what_to_do() {
    let (cluster, folder) = (cluster(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "3",
            "-subj",
            "/CN=localhost",
        ])
        .args(["-keyout", &path("key.pem"), "-out", &path("cert.pem")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let text = format!(
        "entry: [{{name: e, router: r, network.binding: '127.0.0.1:0', tls: {{enabled: true, cert_file: '{}', key_file: '{}'}}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{elasticsearch: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}'}}]
admin.binding: 127.0.0.1:0
",
        path("cert.pem"),
        path("key.pem"),
        cluster.urls()[0]
    );
    std::fs::write(path("gateway.yml"), text).unwrap();
    let gateway = Gateway::start(&["--config", &path("gateway.yml")]);
    let told = gateway.logged("a certificate ends soon");
    let line = told
        .lines()
        .find(|line| line.contains("a certificate ends soon"))
        .unwrap();
    assert!(
        line.contains("WARN") && line.contains("put a new one in its place"),
        "{line}"
    );
    assert!(line.contains("of=") && line.contains("entry"), "{line}");
}

/// Checks that the program logs what a page tells people to look for with `journalctl`.
#[test]
fn what_the_pages_look_for_in_the_log_is_said_there() {
    fn sources(folder: &Path, text: &mut String) {
        for file in std::fs::read_dir(folder).unwrap() {
            let file = file.unwrap().path();
            if file.is_dir() {
                sources(&file, text);
            } else if file.extension().is_some_and(|end| end == "rs") {
                text.push_str(&std::fs::read_to_string(&file).unwrap());
            }
        }
    }
    let mut said = String::new();
    for house in ["gateway", "cluster", "wire", "cli", "config", "traces"] {
        sources(&root().join("crates").join(house).join("src"), &mut said);
    }
    let mut looked_for = 0;
    for page in std::fs::read_dir(root().join("docs/runbooks")).unwrap() {
        let text = std::fs::read_to_string(page.unwrap().path()).unwrap();
        for rest in text.split("--grep \"").skip(1) {
            let words = rest.split('"').next().unwrap();
            assert!(said.contains(words), "nothing says `{words}`");
            looked_for += 1;
        }
    }
    assert!(looked_for > 2, "{looked_for}");
}
