//! The console before real clusters, in a real browser: three nodes of OpenSearch behind two gateways, and a
//! second cluster.
//!
//! The walk itself is `web/test/real/walk.test.mjs`; this starts what it walks on. It wants Node, Chromium,
//! and the packages of `web/package-lock.json`, which `./dev test` brings.

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

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use gateway::Gateway;
use process::Console;
use testkit::real::{Kind, RealCluster};

#[test]
fn the_walk_through_runs_in_a_browser() -> Result<()> {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    ensure!(
        web.join("node_modules/playwright-core").is_dir(),
        "the page's packages are not there: `npm ci --prefix web`"
    );
    let cluster = RealCluster::shared(Kind::OpenSearch)?;
    let second = RealCluster::shared(Kind::Elasticsearch7)?;
    let home = tempfile::tempdir()?;
    let file = home.path().join("queueing.yml");
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
elasticsearch: [{{name: c, endpoint: '{}'}}]
",
        home.path().join("data").display(),
        cluster.url(1),
    );
    std::fs::write(&file, text)?;
    let queueing = Gateway::start(&["--config", &file.to_string_lossy()]);
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
    // Others have their indices there, too.
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
