//! The example load files on real clusters: everything that loadgen reports as written is there. Also
//! compares a gateway with the cluster behind it.

mod guides;
mod real;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use loadgen::{Load, Options, Stop, VerifyOptions};
use parking_lot::Mutex;
use real::gateway::Gateway;
use real::server::Server;
use serde_json::{Value, json};
use testkit::client::Client;
use testkit::real::{ClusterKind, RealCluster};

#[test]
fn the_examples_run_on_opensearch() -> Result<()> {
    run_examples(ClusterKind::OpenSearch)
}

#[test]
fn the_examples_run_on_elasticsearch() -> Result<()> {
    run_examples(ClusterKind::Elasticsearch)
}

#[test]
fn the_examples_run_over_tls_on_a_secured_opensearch() -> Result<()> {
    run_examples(ClusterKind::OpenSearchSecure)
}

fn run_examples(kind: ClusterKind) -> Result<()> {
    let cluster = RealCluster::shared(kind)?;
    let client = cluster.client()?;
    let index = cluster.fresh_name("loadgen");
    let settings = json!({"settings": {"number_of_shards": 3, "number_of_replicas": 0}});
    client.put(&format!("/{index}"), &settings)?.ok()?;

    let report = report_of(&cluster, &index, "sequence", &["-l", "5", "-c", "2"])?;
    ensure!(report["documents"]["accepted"] == 5_000, "{report}");
    ensure!(report["documents"]["statuses"]["201"] == 5_000, "{report}");
    ensure!(count(&client, &index)? == 5_000);
    // The same ids once more are updates, which add no documents.
    let report = report_of(&cluster, &index, "sequence", &["-l", "5", "-compress"])?;
    ensure!(report["documents"]["statuses"]["200"] == 5_000, "{report}");
    ensure!(count(&client, &index)? == 5_000);

    let report = report_of(&cluster, &index, "bulk", &["-l", "4", "-c", "2", "-verify"])?;
    ensure!(report["documents"]["accepted"] == 4_000, "{report}");
    ensure!(report["verified"]["proven"] == 4_000, "{report}");
    ensure!(count(&client, &index)? == 9_000);

    let report = report_of(&cluster, &index, "search", &["-l", "40", "-c", "4"])?;
    ensure!(
        report["answers"] == 40 && report["invalid"] == 0 && report["statuses"]["200"] == 40,
        "{report}"
    );
    client.delete(&format!("/{index}"))?.ok()?;
    Ok(())
}

/// The verification finds everything that was tampered with after the run, and nothing else.
#[test]
fn the_proof_finds_what_is_missing_changed_or_doubled() -> Result<()> {
    let cluster = RealCluster::shared(ClusterKind::OpenSearch)?;
    let client = cluster.client()?;
    let index = cluster.fresh_name("proof");
    let settings = json!({"settings": {"number_of_shards": 5, "number_of_replicas": 0}});
    client.put(&format!("/{index}"), &settings)?.ok()?;
    let file = format!(
        r#"
variables:
  - {{name: id, type: sequence, from: 1, to: 700}}
  - {{name: any, type: range, to: 1000000}}
requests:
  - request:
      method: POST
      url: {}/{index}/_bulk
      body_repeat_times: 100
      body: |
        {{"index":{{"_id":"$[[id]]"}}}}
        {{"n":$[[any]]}}
"#,
        cluster.urls()[0]
    );
    let load = Arc::new(Load::parse(&file, None, Path::new(""), &|_| None)?.load);
    // 1,000 writes to 700 documents by several users at once: the last value of each document counts.
    let options = Options {
        users: 4,
        requests_max: Some(10),
        ledger: true,
        ..Options::default()
    };
    let report = loadgen::run(&load, &options, &Stop::default(), |_| ())?;
    let how = VerifyOptions::default();
    let verified = loadgen::verify(&load, &options, &report, &how)?;
    ensure!(verified.holds() && verified.documents == 700, "{verified:?}");

    client.delete(&format!("/{index}/_doc/7"))?.ok()?;
    client.put(&format!("/{index}/_doc/8"), &json!({"n": -1}))?.ok()?;
    // The same id on every shard that some routing leads to.
    for routing in 0..20 {
        client
            .put(&format!("/{index}/_doc/9?routing={routing}"), &json!({"n": 1}))?
            .ok()?;
    }
    let verified = loadgen::verify(&load, &options, &report, &how)?;
    let flaws = (
        verified.missing,
        verified.different,
        verified.repeated,
        verified.undead,
    );
    ensure!(flaws == (1, 1, 1, 0) && verified.proven == 697, "{verified:?}");
    let ids: Vec<&str> = verified.examples.iter().map(|flaw| flaw.id.as_str()).collect();
    ensure!(ids == ["7", "8", "9"], "{ids:?}");
    client.delete(&format!("/{index}"))?.ok()?;
    Ok(())
}

/// A queue answers before there are versions; its documents are followed all the same.
#[test]
fn the_proof_follows_documents_through_a_queue() -> Result<()> {
    let server = Server::shared(ClusterKind::OpenSearch)?;
    let client = server.cluster.client()?;
    let index = server.cluster.fresh_name("queued-proof");
    let settings = json!({"settings": {"number_of_shards": 3, "number_of_replicas": 0}});
    client.put(&format!("/{index}"), &settings)?.ok()?;
    let mut gateway = Gateway::queueing(&server)?;
    gateway.wait_for_now(&mut server.http())?;
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["loadgen", "-config", "examples/loadgen/bulk.yml", "--json"])
        .args(["-l", "4", "-c", "2", "--verify", "--verify-wait", "60"])
        .envs([("ES_ENDPOINT", gateway.url()), ("INDEX", index.clone())])
        .envs([("ES_USERNAME", "admin"), ("ES_PASSWORD", "admin")])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(output.status.success(), "{report}");
    ensure!(
        report["verified"]["documents"] == 4_000 && report["verified"]["proven"] == 4_000,
        "{report}"
    );
    ensure!(count(&client, &index)? == 4_000);
    client.delete(&format!("/{index}"))?.ok()?;
    Ok(())
}

/// Returns the report of a run that succeeded.
fn report_of(cluster: &RealCluster, index: &str, example: &str, arguments: &[&str]) -> Result<Value> {
    let (user, password) = cluster.credentials().unwrap_or(("admin", "admin"));
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "loadgen",
            "-config",
            &format!("examples/loadgen/{example}.yml"),
            "--json",
        ])
        .args(arguments)
        .args(cluster.ca_path().iter().flat_map(|ca| ["-ca".into(), ca.clone()]))
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
    // An index that was made just now answers 503 until one of its shards has started.
    let ends = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let answer = client.get(&format!("/{index}/_count"))?;
        if answer.status == 503 && std::time::Instant::now() < ends {
            std::thread::sleep(std::time::Duration::from_millis(100));
            continue;
        }
        return answer.ok()?.json()?["count"]
            .as_u64()
            .context("a count is a number");
    }
}

#[test]
fn a_gateway_is_compared_with_the_opensearch_behind_it() -> Result<()> {
    compare(ClusterKind::OpenSearch, 2)
}

#[test]
fn a_gateway_is_compared_with_the_secured_elasticsearch_behind_it() -> Result<()> {
    compare(ClusterKind::ElasticsearchSecure, 1)
}

/// Checks that every document is accepted and counted both ways, new and updated, that the nodes report their
/// CPU times, and that nothing is left. A test on a busy machine cannot say which way is faster.
fn compare(kind: ClusterKind, rounds: usize) -> Result<()> {
    let server = Server::shared(kind)?;
    let gateway = Gateway::before(&server)?;
    let name = server.cluster.fresh_name("compare");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args(["compare", "--direct", &server.cluster.urls().join(",")])
        .args(["--gateway", &gateway.url(), "--index", &name])
        .args([
            "--docs",
            "4000",
            "--batch",
            "500",
            "--rounds",
            &rounds.to_string(),
        ])
        .args(["--warm-up", "500", "--pause", "0", "--json"]);
    if let (Some((user, password)), Some(ca)) = (server.cluster.credentials(), server.cluster.ca_path()) {
        command.args(["--user", user]).arg("--ca").arg(ca);
        command.env("TIDEGATE_PASSWORD", password);
    }
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    let outcome: Value = serde_json::from_slice(&output.stdout).with_context(|| said.to_string())?;
    let runs = outcome["runs"].as_array().context("there are runs")?;
    ensure!(runs.len() == 4 * rounds, "{outcome}");
    for run in runs {
        let status = if run["phase"] == "new" { "201" } else { "200" };
        ensure!(
            run["accepted"] == 4_000 && run["statuses"][status] == 4_000,
            "{run}"
        );
        ensure!(run["counted"] == 4_000 && run["flaw"].is_null(), "{run}");
        ensure!(
            run["cpu_s"].as_f64().is_some_and(|seconds| seconds > 0.0),
            "{run}"
        );
        ensure!(
            run["counted_s"].as_f64() >= run["acknowledged_s"].as_f64(),
            "{run}"
        );
    }
    let left = server
        .cluster
        .client()?
        .get(&format!("/_cat/indices/{name}*"))?
        .ok()?;
    ensure!(left.body.is_empty(), "{}", String::from_utf8_lossy(&left.body));
    Ok(())
}

/// The guides fix the names of their indices, and all tests share one cluster.
static GUIDES_INDICES: Mutex<()> = Mutex::new(());

#[test]
fn the_walk_throughs_load_with_types_is_split_before_elasticsearch_7_and_queued() -> Result<()> {
    let server = Server::shared(ClusterKind::Elasticsearch7)?;
    let client = server.cluster.client()?;
    let _alone = GUIDES_INDICES.lock();
    let indices = ["test-10", "test-11", "test-12", "test-13"];
    let settings = json!({"settings": {"number_of_shards": 3, "number_of_replicas": 0}});
    // A test that failed before this one may have left them.
    client.delete("/test-*?ignore_unavailable=true")?.ok()?;
    for index in indices {
        client.put(&format!("/{index}"), &settings)?.ok()?;
    }
    let mut expected = 0;
    for queued in [false, true] {
        let mut gateway = match queued {
            false => Gateway::before(&server)?,
            true => Gateway::queueing(&server)?,
        };
        gateway.wait_for_now(&mut server.http())?;
        let report = walk_through(&gateway.url())?;
        ensure!(report["documents"]["accepted"] == 10_000, "{report}");
        // The warm-up sends one more request.
        expected += 15_000;
        if queued {
            gateway.delivered(15_000, 0)?;
        } else {
            gateway.split_at_least(0.9)?;
        }
        let there: Result<u64> = indices.iter().map(|index| count(&client, index)).sum();
        ensure!(there? == expected, "{expected} documents were accepted");
    }
    for index in indices {
        client.delete(&format!("/{index}"))?.ok()?;
    }
    Ok(())
}

fn walk_through(url: &str) -> Result<Value> {
    let places = [("http://10.0.128.58:8000", url)];
    guide_load(
        &guides::as_written(guides::WALK),
        &places,
        &["-l", "2", "-c", "2", "--compress"],
    )
}

/// Returns the report of a successful run of a guide's load file.
fn guide_load(file: &str, places: &[(&str, &str)], how: &[&str]) -> Result<Value> {
    let folder = guides::folder()?;
    let output = guides::run(folder.path(), file, places, how)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    serde_json::from_slice(&output.stdout).context("a report")
}

/// Starts the guides' gateway, word for word except for hosts and ports: this cluster has no TLS and requires
/// no account.
fn guide_gateway(server: &Server) -> Result<Gateway> {
    let mut gateway = Gateway::from_file(server, |listen, admin| {
        let mut text = guides::GATEWAY.replace("0.0.0.0:8000", listen);
        for (at, node) in server.nodes.iter().enumerate() {
            text = text.replace(&format!("https://127.0.0.1:922{}", at + 1), &node.url());
        }
        format!("{text}admin.binding: {admin}\n")
    })?;
    gateway.wait_for_now(&mut server.http())?;
    Ok(gateway)
}

/// Sends each file of the guides through the guides' gateway: all documents are accepted, and all are there.
#[test]
fn every_load_of_the_guides_goes_through_their_gateway_to_elasticsearch_7() -> Result<()> {
    let server = Server::shared(ClusterKind::Elasticsearch7)?;
    let client = server.cluster.client()?;
    let _alone = GUIDES_INDICES.lock();
    let mut gateway = guide_gateway(&server)?;
    let url = gateway.url();
    let here = url.trim_start_matches("http://");
    let bulks = format!("{}{}", guides::SEARCH, guides::BULK);
    let (limit, sequence) = (
        guides::with_requests(guides::SEARCH, guides::LIMIT),
        guides::with_requests(guides::SEARCH, guides::SEQUENCE),
    );
    let walk = guides::WALK_DIRECT.map(guides::as_written);
    // The file, its host and port, its arguments, its target, and the number of documents, including the
    // warm-up's.
    let loads: [(&str, &str, &[&str], &str, u64); 6] = [
        (
            &walk[0],
            "10.0.1.2:9200",
            &["-c", "100", "-l", "1"],
            "test-*",
            20_000,
        ),
        (
            &walk[1],
            "10.0.1.2:9200",
            &["-c", "100", "-l", "1"],
            "test-*",
            10_000,
        ),
        (
            &bulks,
            "localhost:8000",
            &["-d", "30", "-c", "1", "-compress", "-l", "10"],
            "medcl-y4",
            6_000,
        ),
        (
            &limit,
            "localhost:8000",
            &["-d", "600", "-c", "100", "-l", "500"],
            "medcl-test",
            501,
        ),
        (
            &sequence,
            "localhost:8000",
            &["-c", "1", "-l", "50"],
            "medcl-test",
            51,
        ),
        (
            guides::ROUTING,
            "192.168.3.188:9206",
            &["-c", "2", "-l", "20"],
            "test-*",
            210,
        ),
    ];
    client.delete("/test-*,medcl*?ignore_unavailable=true")?.ok()?; // of a run that failed
    // Searches of a missing index are 404, in the guide's world too.
    client.put("/medcl", &json!({}))?.ok()?;
    for (file, guides_place, how, indices, documents) in loads {
        client
            .delete("/test-*,medcl-y4,medcl-test?ignore_unavailable=true")?
            .ok()?;
        gateway.wait_for_now(&mut server.http())?;
        let report = guide_load(file, &[(guides_place, here)], how)?;
        ensure!(
            report["documents"]["refused"].as_u64().unwrap_or(0) == 0,
            "{report}"
        );
        let ends = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while count(&client, indices)? != documents {
            let there = count(&client, indices)?;
            ensure!(
                std::time::Instant::now() < ends,
                "{there} of {documents} in {indices}: {report}"
            );
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
    client.delete("/test-*,medcl*")?.ok()?;
    Ok(())
}
