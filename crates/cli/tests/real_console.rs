//! The console in a real browser: before three nodes of OpenSearch behind two gateways and a second cluster,
//! and before servers that misbehave.
//!
//! The walk itself is `web/test/real/walk.test.mjs`; this test starts the servers that it needs.
//! `broken.test.mjs` and `oidc.test.mjs` start their own. All need Node, Chromium, and the packages of
//! `web/package-lock.json`, which `./dev test` installs.
//!
//! Tests begin in the order of their names, two at a time on two cores. So those of 100,000 letters and the
//! walk, which take longest, come first.

#![allow(
    clippy::unwrap_used,
    reason = "helpers that meet something unexpected end the test"
)]

#[allow(dead_code, reason = "shared with tests that use more of it")]
#[path = "black_box/gateway.rs"]
mod gateway;
#[allow(dead_code, reason = "shared with tests that use more of it")]
#[path = "black_box/console/process.rs"]
mod process;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use gateway::Gateway;
use process::Console;
use serde_json::{Value, json};
use testkit::fake::{FakeCluster, Fault, Injection, Spec};
use testkit::real::{ClusterKind, RealCluster};

fn web() -> Result<PathBuf> {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    ensure!(
        web.join("node_modules/playwright-core").is_dir(),
        "the page's packages are not there: `npm ci --prefix web`"
    );
    Ok(web)
}

#[test]
fn what_misbehaves_and_a_proxy_before_it_in_a_browser() -> Result<()> {
    run_by_itself("test/real/broken.test.mjs")
}

#[test]
fn who_logs_in_at_an_openid_provider_in_a_browser() -> Result<()> {
    run_by_itself("test/real/oidc.test.mjs")
}

/// Runs a test that starts the servers that it needs.
fn run_by_itself(file: &str) -> Result<()> {
    let output = Command::new("node")
        .args(["--test", "--test-force-exit", file])
        .current_dir(web()?)
        .env("PROGRAM", env!("CARGO_BIN_EXE_tidegate"))
        .output()
        .context("Node cannot be run")?;
    ensure!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    Ok(())
}

#[test]
fn users_roles_and_the_audit_log_in_a_browser() -> Result<()> {
    let cluster = FakeCluster::start(Spec::default().storing())?;
    let console = Console::start(&[]);
    let output = Command::new("node")
        .args(["--test", "--test-force-exit", "test/real/users.test.mjs"])
        .current_dir(web()?)
        .env("CONSOLE_URL", format!("http://{}/", console.address()))
        .env("CONSOLE_LINK", console.link.as_ref().context("a one-time link")?)
        .env("CLUSTER_URL", &cluster.urls()[0])
        .output()
        .context("Node cannot be run")?;
    ensure!(
        output.status.success(),
        "{}\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        console.log()
    );
    Ok(())
}

/// Number of documents with a number as text, which the cluster refuses.
const LETTERS: usize = 100_000;
const BULK: usize = 5000;

#[test]
fn many_dead_letters_are_changed_and_replayed_in_a_browser_and_every_count_is_exact() -> Result<()> {
    let cluster = FakeCluster::start(Spec::default().index("logs", 6).storing())?;
    let home = tempfile::tempdir()?;
    let file = queueing_file(home.path(), &cluster.urls()[0])?;
    let gateway = Gateway::start(&["--config", &file]);
    gateway.wait_until("it watches the cluster", |status| status["state"] == "watching");
    let reason =
        "failed to parse field [n] of type [long] in document with id '1'. Preview of field's value: '12'";
    cluster.inject(
        Injection::bulk(Fault::Items {
            every: 1,
            status: 400,
            error: json!({"type": "mapper_parsing_exception", "reason": reason}).to_string(),
        })
        .always(),
    );
    for bulk in 0..LETTERS / BULK {
        let lines = (0..BULK).map(|n| {
            let id = bulk * BULK + n;
            format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"n\":\"{id}\",\"f\":1.10,\"b\":{bulk}}}\n")
        });
        gateway.bulk(&lines.collect::<String>()).ok()?;
    }
    let began = Instant::now();
    loop {
        let told: Value = gateway.admin().get("/queue/stats")?.ok()?.json()?;
        if told["q"]["dead_letters"] == LETTERS {
            break;
        }
        ensure!(began.elapsed() < Duration::from_secs(120), "{told:#}");
        std::thread::sleep(Duration::from_millis(200));
    }
    cluster.behave();
    let console = Console::start(&[]);
    let output = Command::new("node")
        .args(["--test", "--test-force-exit", "test/real/letters.test.mjs"])
        .current_dir(web()?)
        .env("CONSOLE_URL", format!("http://{}/", console.address()))
        .env("CONSOLE_LINK", console.link.as_ref().context("a one-time link")?)
        .env("GATEWAY_URL", format!("http://{}", gateway.admin))
        .env("LETTERS", LETTERS.to_string())
        .output()
        .context("Node cannot be run")?;
    ensure!(
        output.status.success(),
        "{}\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        console.log()
    );
    let docs = cluster.docs("logs");
    ensure!(docs.len() == LETTERS, "{} documents", docs.len());
    for (id, doc) in &docs {
        let bulk = id.parse::<usize>()? / BULK;
        ensure!(
            doc.source == format!("{{\"n\":{id},\"f\":1.10,\"b\":{bulk}}}"),
            "{id}: {}",
            doc.source
        );
    }
    Ok(())
}

/// Returns the file of a configuration that queues writes.
fn queueing_file(home: &Path, endpoint: &str) -> Result<String> {
    let file = home.join("queueing.yml");
    let text = format!(
        "path.data: '{}'
admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow:
  - name: f
    filter:
      - bulk_reshuffle: {{elasticsearch: c, mode: async, queue: {{name: q, min_free: 1mb}}}}
      - elasticsearch: {{elasticsearch: c}}
pipeline: [{{name: p, processor: [{{bulk_indexing: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{endpoint}'}}]
",
        home.join("data").display(),
    );
    std::fs::write(&file, text)?;
    Ok(file.to_string_lossy().into_owned())
}

#[test]
fn the_walk_through_runs_in_a_browser() -> Result<()> {
    let web = web()?;
    let cluster = RealCluster::shared(ClusterKind::OpenSearch)?;
    let second = RealCluster::shared(ClusterKind::Elasticsearch7)?;
    let home = tempfile::tempdir()?;
    let file = queueing_file(home.path(), &cluster.url(1))?;
    let queueing = Gateway::start(&["--config", &file]);
    let splitting = Gateway::start(&[
        "--cluster",
        &cluster.url(2),
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
    ]);
    for gateway in [&queueing, &splitting] {
        gateway.wait_until("it watches the cluster", |status| status["state"] == "watching");
    }
    let console = Console::start(&[]);
    let prefix = cluster.fresh_name("console");
    let url = |address: std::net::SocketAddr| format!("http://{address}");
    let output = Command::new("node")
        .args(["--test", "--test-force-exit", "test/real/walk.test.mjs"])
        .current_dir(&web)
        .env("CONSOLE_URL", format!("http://{}/", console.address()))
        .env("CONSOLE_LINK", console.link.as_ref().context("a one-time link")?)
        .env("CLUSTER_URL", cluster.url(1))
        .env("SECOND_URL", second.url(1))
        .env("GATEWAY_URL", url(queueing.admin))
        .env("GATEWAY_ENTRY", url(queueing.address))
        .env("GATEWAY2_URL", url(splitting.admin))
        .env("GATEWAY2_ENTRY", url(splitting.address))
        .env("PREFIX", &prefix)
        .output()
        .context("Node cannot be run")?;
    // Other tests have their indices there, too.
    let _ = cluster.client()?.delete(&format!("/{prefix}-walk"));
    ensure!(
        output.status.success(),
        "{}\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        console.log()
    );
    Ok(())
}
