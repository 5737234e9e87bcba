//! Published walk-throughs, word for word but for addresses: the gateway starts from their file, and their load, with
//! `_type` and lines of an access log, is accepted and delivered.

use std::path::Path;
use std::process::Command;

use testkit::fake::{FakeCluster, Flavour, Spec};

use crate::gateway::Gateway;

const GATEWAY: &str = include_str!("../../../gateway/tests/config/guide-without-mode.yml");
const LOAD: &str = include_str!("guides/nginx.yml");
/// As the walk-through has it: quotes are escaped already.
const LOG_LINE: &str = r#"175.10.75.216 - - [28/Jul/2020:21:20:26 +0800] \"GET / HTTP/1.1\" 200 8676 \"-\" \"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_6) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/84.0.4147.89 Safari/537.36\"
"#;

#[test]
fn the_walk_throughs_load_goes_through_the_gateway_of_its_guide() {
    let mut spec = Spec::default().basic_auth("admin", "admin").tls().storing();
    spec.flavour = Flavour::Elasticsearch7;
    for suffix in 10..=13 {
        spec = spec.index(&format!("test-{suffix}"), 6);
    }
    let cluster = FakeCluster::start(spec).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("dict")).unwrap();
    std::fs::write(path("dict/ip.txt"), "192.168.0.1\n192.168.0.2\n").unwrap();
    std::fs::write(path("dict/user.txt"), "medcl\nelastic\n").unwrap();
    std::fs::write(path("nginx.log"), LOG_LINE).unwrap();
    std::fs::write(path("ca.pem"), cluster.ca_pem().unwrap()).unwrap();
    let text = GATEWAY
        .replace(
            "path.data: data",
            &format!("path.data: '{}'", path("data").display()),
        )
        .replace("binding: 0.0.0.0:8000", "binding: 127.0.0.1:0")
        .replace("https://127.0.0.1:9221", &cluster.urls()[0])
        // The guide's servers have certificates that nobody checks.
        .replace(
            "    basic_auth:",
            &format!("    tls.ca_file: '{}'\n    basic_auth:", path("ca.pem").display()),
        );
    std::fs::write(path("gateway.yml"), text + "admin.binding: 127.0.0.1:0\n").unwrap();
    let gateway = Gateway::start(&["-config", path("gateway.yml").to_str().unwrap()]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");

    let load = LOAD
        .replace("10.0.128.58:8000", &gateway.address.to_string())
        .replace("username: elastic", "username: admin")
        .replace("password: xxxx", "password: admin");
    std::fs::write(path("loadgen.yml"), load).unwrap();
    let output = run_load(folder.path());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["documents"]["accepted"], 10_000, "{report}");
    let queue = drained(&gateway);
    assert_eq!(
        (&queue["indexed"], &queue["dead"]),
        (&15_000.into(), &0.into()),
        "with the warm-up's: {queue}"
    );
    let there: usize = (10..=13)
        .map(|suffix| cluster.docs(&format!("test-{suffix}")).len())
        .sum();
    assert_eq!(there, 15_000);
    let metrics = gateway.admin().get("/metrics").unwrap().text();
    assert!(
        metrics.contains("tidegate_bulk_queued_total 3\n"),
        "each is queued: {metrics}"
    );
}

/// The accounts of the one queue's one group, once nothing is pending.
fn drained(gateway: &Gateway) -> serde_json::Value {
    let ends = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let queues = gateway.admin().get("/queue/stats").unwrap().json().unwrap();
        let queue = queues.as_object().unwrap().values().next().unwrap();
        let group = queue["groups"].as_object().unwrap().values().next().unwrap();
        if group["pending"] == 0 {
            return group.clone();
        }
        assert!(std::time::Instant::now() < ends, "{queues:#}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn run_load(folder: &Path) -> std::process::Output {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["loadgen", "-l", "2", "-c", "2", "--compress", "--json"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
