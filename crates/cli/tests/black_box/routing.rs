//! A router with a rule for certain indices, before two clusters: whatever a client writes in place of a
//! name, no request reaches the wrong cluster.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use testkit::client::Answer;
use testkit::fake::{FakeCluster, Fault, Injection, On, Spec};

use crate::gateway::Gateway;

/// Names that begin with `metrics-` belong to the second cluster.
struct Two {
    logs: FakeCluster,
    metrics: FakeCluster,
    gateway: Gateway,
    _folder: tempfile::TempDir,
}

fn two(rule: &str) -> Two {
    let cluster = || FakeCluster::start(Spec::default().index("logs-x", 2).storing()).unwrap();
    let (logs, metrics) = (cluster(), cluster());
    metrics.create_index("metrics-a", 2);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.yml");
    let flow = |name: &str| {
        format!(
            "  - name: {name}
    filter:
      - bulk_reshuffle: {{elasticsearch: {name}, mode: sync}}
      - elasticsearch: {{elasticsearch: {name}}}\n"
        )
    };
    let text = format!(
        "path.data: '{}'
admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router:
  - name: r
    default_flow: logs
{rule}
flow:
{}{}elasticsearch:
  - {{name: logs, endpoint: '{}'}}
  - {{name: metrics, endpoint: '{}'}}
",
        folder.path().join("data").display(),
        flow("logs"),
        flow("metrics"),
        logs.urls()[0],
        metrics.urls()[0]
    );
    std::fs::write(&file, text).unwrap();
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    let known = |all: Value| {
        all.as_object()
            .unwrap()
            .values()
            .all(|one| one["state"] == "watching")
    };
    let began = std::time::Instant::now();
    while !known(gateway.admin().get("/elasticsearch").unwrap().json().unwrap()) {
        assert!(began.elapsed() < crate::gateway::PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Two {
        logs,
        metrics,
        gateway,
        _folder: folder,
    }
}

const RULE: &str =
    "    rules: [{method: ['*'], pattern: ['/metrics-*', '/metrics-*/{any:*}'], flow: [metrics]}]";

impl Two {
    fn send(&self, method: &str, target: &str, body: &str) -> Answer {
        let headers = [("content-type", "application/x-ndjson")];
        self.gateway
            .client()
            .send(method, target, &headers, body.as_bytes())
            .unwrap()
    }
}

fn refused(answer: &Answer) -> bool {
    let reason = answer.json().map(|answer| answer["error"]["reason"].to_string());
    answer.status == 400 && reason.is_ok_and(|reason| reason.contains("gateway: nothing was executed"))
}

#[test]
fn a_rule_for_indices_holds_for_every_spelling_of_a_path() {
    let two = two(RULE);
    for (n, path) in [
        "/metrics-a/_doc/",
        "/%6Detrics-a/_doc/",
        "/metrics%2Da/_doc/",
        "/%6d%65%74%72%69%63%73%2d%61/_doc/",
        "//metrics-a/_doc/",
        "/metrics-a//_doc//",
    ]
    .into_iter()
    .enumerate()
    {
        let answer = two.send("PUT", &format!("{path}{n}"), "{}");
        assert!((200..300).contains(&answer.status), "{path}: {}", answer.text());
        assert!(
            two.metrics.docs("metrics-a").contains_key(&n.to_string()),
            "{path}"
        );
    }
    // The cluster that is asked would resolve it, but a fake one does not: it only matters which one is
    // asked.
    two.logs.reset_counts();
    two.send("PUT", "/%3Cmetrics-a%3E/_doc/1", "{}");
    two.send("PUT", "/%3Cmetrics-%7Bnow%2Fd%7D%3E/_doc/1", "{}");
    assert_eq!(two.logs.counts().writes, 0);
    assert_eq!(two.logs.docs("metrics-a").len(), 0);
}

#[test]
fn what_no_rule_can_decide_is_refused_and_nothing_of_it_reaches_a_cluster() {
    let two = two(RULE);
    for (method, target) in [
        ("GET", "/logs-x,metrics-a/_count"),
        ("GET", "/metrics-a%2Clogs-x/_count"),
        ("GET", "/_count?index=metrics-a"),
        ("GET", "/_count?%69ndex=metrics%2Da"),
        ("GET", "/m*/_count"),
        ("GET", "/%2A/_count"),
        ("GET", "/_all/_count"),
        ("DELETE", "/*-a"),
        ("PUT", "/%3Cmetrics-a/_doc/1"),
        ("PUT", "/%zz/_doc/1"),
    ] {
        let answer = two.send(method, target, if method == "PUT" { "{}" } else { "" });
        assert!(
            refused(&answer),
            "{method} {target}: {} {}",
            answer.status,
            answer.text()
        );
    }
    for (path, line) in [
        (
            "/_bulk",
            "{\"index\":{\"_index\":\"metrics-a\",\"_id\":\"1\"}}\n{}\n",
        ),
        (
            "/_bulk",
            "{\"index\":{\"_index\":\"logs-x\",\"_id\":\"1\"}}\n{}\n{\"delete\":{\"_index\":\"metrics-a\",\"_id\":\"1\"}}\n",
        ),
        (
            "/logs-x/_bulk",
            "{\"create\":{\"_index\":\"metr\\u0069cs-a\",\"_id\":\"1\"}}\n{}\n",
        ),
        (
            "/metrics-a/_bulk",
            "{\"index\":{\"_index\":\"logs-x\",\"_id\":\"1\"}}\n{}\n",
        ),
    ] {
        let answer = two.send("POST", path, line);
        assert!(refused(&answer), "{path}: {} {}", answer.status, answer.text());
    }
    let written = |cluster: &FakeCluster| cluster.counts().docs + cluster.counts().writes;
    assert_eq!((written(&two.logs), written(&two.metrics)), (0, 0));
    for path in ["/_sql", "/%5Fsql/", "/_plugins/_ppl", "/_query"] {
        let answer = two.send("POST", path, r#"{"query":"SELECT * FROM \"metrics-a\""}"#);
        assert!(refused(&answer), "{path}: {} {}", answer.status, answer.text());
    }
    // Unambiguous requests are passed on.
    for target in ["/logs-x,logs-y/_count", "/metrics-a*/_count"] {
        assert!(!refused(&two.send("GET", target, "")), "{target}");
    }
    let own = two.send(
        "POST",
        "/_bulk",
        "{\"index\":{\"_index\":\"logs-x\",\"_id\":\"1\"}}\n{}\n",
    );
    assert_eq!(
        (own.status, two.logs.docs("logs-x").len()),
        (200, 1),
        "{}",
        own.text()
    );
}

/// Servers skip what follows a gzip member, and the gateway takes it for the next one.
#[test]
fn a_bulk_that_only_servers_can_decode_or_that_passes_by_its_head_is_refused_like_others() {
    let two = two(RULE);
    let lines = "{\"index\":{\"_index\":\"metrics-a\",\"_id\":\"1\"}}\n{}\n";
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(lines.as_bytes()).unwrap();
    let mut packed = gzip.finish().unwrap();
    packed.push(b'x');
    let headers = [
        ("content-type", "application/x-ndjson"),
        ("content-encoding", "gzip"),
    ];
    let answer = two.gateway.client().send("POST", "/_bulk", &headers, &packed);
    let answer = answer.unwrap();
    assert!(refused(&answer), "{} {}", answer.status, answer.text());
    let answer = two.send("POST", "/_bulk?format=yaml", lines);
    assert!(refused(&answer), "{} {}", answer.status, answer.text());
    assert!(two.logs.docs("metrics-a").is_empty());
    assert!(two.metrics.docs("metrics-a").is_empty());
}

#[test]
fn names_in_bodies_belong_to_the_flow_of_the_path_or_are_refused() {
    let two = two(RULE);
    let (logs, metrics) = ("{\"index\":\"logs-x\"}\n{}\n", "{\"index\":\"metrics-a\"}\n{}\n");
    let refused_bodies = [
        ("/_msearch", metrics.to_owned()),
        ("/_msearch", format!("{logs}{metrics}")),
        (
            "/_msearch/template",
            "{\"index\":[\"logs-x\",\"metrics-a\"]}\n{}\n".to_owned(),
        ),
        ("/logs-x/_msearch", "{\"index\":\"m*\"}\n{}\n".to_owned()),
        (
            "/%5Fmsearch",
            "{\"\\u0069ndex\":\"metr\\u0069cs-a\"}\n{}\n".to_owned(),
        ),
        ("/metrics-a/_msearch", logs.to_owned()),
        ("/_msearch", "no json\n{}\n".to_owned()),
        (
            "/_mget",
            "{\"docs\":[{\"_index\":\"metrics-a\",\"_id\":\"1\"}]}".to_owned(),
        ),
        (
            "/logs-x/_mtermvectors",
            "{\"docs\":[{\"_index\":\"metrics-a\",\"_id\":\"1\"}]}".to_owned(),
        ),
        (
            "/logs-x/_mtermvectors",
            "{\"ids\":[\"1\"],\"parameters\":{\"_index\":\"metrics-a\"}}".to_owned(),
        ),
        (
            "/_bulk/stream",
            "{\"index\":{\"_index\":\"metrics-a\",\"_id\":\"1\"}}\n{}\n".to_owned(),
        ),
        (
            "/logs-x/_bulk/stream",
            "{\"index\":{\"_index\":\"metrics-a\",\"_id\":\"1\"}}\n{}\n".to_owned(),
        ),
        (
            "/_reindex",
            "{\"source\":{\"index\":\"metrics-a\"},\"dest\":{\"index\":\"logs-x\"}}".to_owned(),
        ),
        (
            "/_aliases",
            "{\"actions\":[{\"add\":{\"index\":\"metrics-a\",\"alias\":\"x\"}}]}".to_owned(),
        ),
    ];
    for (path, body) in &refused_bodies {
        let answer = two.send("POST", path, body);
        assert!(
            refused(&answer),
            "{path} {body}: {} {}",
            answer.status,
            answer.text()
        );
    }
    for (path, body) in [
        ("/_msearch", logs),
        ("/metrics-a/_msearch", "\n{}\n"),
        ("/metrics-a/_msearch", metrics),
        ("/_mget", "{\"docs\":[{\"_index\":\"logs-x\",\"_id\":\"1\"}]}"),
        ("/metrics-a/_mget", "{\"ids\":[\"1\"]}"),
        (
            "/logs-x/_mtermvectors",
            "{\"ids\":[\"1\"],\"parameters\":{\"_index\":\"logs-x\"}}",
        ),
        (
            "/_bulk/stream",
            "{\"index\":{\"_index\":\"logs-x\",\"_id\":\"1\"}}\n{}\n",
        ),
    ] {
        assert!(!refused(&two.send("POST", path, body)), "{path} {body}");
    }
}

#[test]
fn statements_go_where_a_rule_for_their_path_says() {
    let rule = "    rules: [{method: ['*'], pattern: ['/metrics-*/{any:*}', '/_sql', '/_plugins/*'], flow: [metrics]}]";
    let two = two(rule);
    let taken = Fault::Status {
        status: 418,
        body: "{}".to_owned(),
    };
    for path in ["/_sql", "/_plugins/_ppl"] {
        two.metrics
            .inject(Injection::new(On::Path(path.to_owned()), taken.clone()).always());
        assert_eq!(two.send("POST", path, "{}").status, 418, "{path}");
    }
    assert!(refused(&two.send("POST", "/_query", "{}")));
}

#[test]
fn a_router_without_rules_for_indices_refuses_nothing() {
    let two = two("    rules: [{method: ['*'], pattern: ['/{index}/_bulk', '/_bulk'], flow: [logs]}]");
    for target in [
        "/logs-x,metrics-a/_count",
        "/_count?index=metrics-a",
        "/*/_count",
        "/%zz/_count",
    ] {
        let answer = two.send("GET", target, "");
        assert!(!refused(&answer), "{target}: {}", answer.text());
    }
    let line = "{\"index\":{\"_index\":\"metrics-a\",\"_id\":\"1\"}}\n{}\n";
    assert_eq!(two.send("POST", "//_bulk", line).status, 200);
}
