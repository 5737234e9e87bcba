//! The example load files on real clusters: what loadgen says was written is what is there.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use testkit::client::Client;
use testkit::real::{Kind, RealCluster};

#[test]
fn the_examples_run_on_opensearch() -> Result<()> {
    run_examples(Kind::OpenSearch)
}

#[test]
fn the_examples_run_on_elasticsearch() -> Result<()> {
    run_examples(Kind::Elasticsearch)
}

fn run_examples(kind: Kind) -> Result<()> {
    let cluster = RealCluster::shared(kind)?;
    let client = cluster.client()?;
    let index = cluster.fresh_name("loadgen");
    let settings = json!({"settings": {"number_of_shards": 3, "number_of_replicas": 0}});
    client.put(&format!("/{index}"), &settings)?.ok()?;

    let report = loadgen(&cluster, &index, "sequence", &["-l", "5", "-c", "2"])?;
    ensure!(report["documents"]["accepted"] == 5_000, "{report}");
    ensure!(report["documents"]["statuses"]["201"] == 5_000, "{report}");
    ensure!(count(&client, &index)? == 5_000);
    // The same ids once more: updates, and no document more.
    let report = loadgen(&cluster, &index, "sequence", &["-l", "5", "-compress"])?;
    ensure!(report["documents"]["statuses"]["200"] == 5_000, "{report}");
    ensure!(count(&client, &index)? == 5_000);

    let report = loadgen(&cluster, &index, "bulk", &["-l", "4", "-c", "2"])?;
    ensure!(report["documents"]["accepted"] == 4_000, "{report}");
    ensure!(count(&client, &index)? == 9_000);

    let report = loadgen(&cluster, &index, "search", &["-l", "40", "-c", "4"])?;
    ensure!(
        report["answers"] == 40 && report["invalid"] == 0 && report["statuses"]["200"] == 40,
        "{report}"
    );
    client.delete(&format!("/{index}"))?.ok()?;
    Ok(())
}

/// The report of a run that ended well.
fn loadgen(cluster: &RealCluster, index: &str, example: &str, arguments: &[&str]) -> Result<Value> {
    let (user, password) = cluster.credentials().unwrap_or(("admin", "admin"));
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "loadgen",
            "-config",
            &format!("examples/loadgen/{example}.yml"),
            "--json",
        ])
        .args(arguments)
        .envs([("ES_ENDPOINT", cluster.urls()[0].as_str()), ("INDEX", index)])
        .envs([("ES_USERNAME", user), ("ES_PASSWORD", password)])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{example}: {}: {said}", output.status);
    serde_json::from_slice(&output.stdout).with_context(|| format!("{example}: {said}"))
}

fn count(client: &Client, index: &str) -> Result<u64> {
    client
        .send("POST", &format!("/{index}/_refresh"), &[], b"")?
        .ok()?;
    let answer = client.get(&format!("/{index}/_count"))?.ok()?.json()?;
    answer["count"].as_u64().context("a count is a number")
}
