//! `tidegate sink`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use serde_json::Value;

#[test]
fn a_sink_takes_a_load_with_the_mix_of_errors_that_was_asked_for_and_counts_it() {
    let mut sink = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["sink", "--port", "0", "--nodes", "2", "--index", "loadgen:4"])
        .args([
            "--fail",
            "429:10",
            "--fail",
            "400:100",
            "--latency-ms",
            "1",
            "--capacity",
            "100000",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(sink.stdout.take().unwrap());
    let mut url = String::new();
    said.read_line(&mut url).unwrap();
    let load = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "loadgen",
            "-config",
            "examples/loadgen/bulk.yml",
            "-l",
            "5",
            "--json",
        ])
        .env("ES_ENDPOINT", url.trim())
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .unwrap();
    let kill = Command::new("kill").arg(sink.id().to_string()).status().unwrap();
    assert!(kill.success() && sink.wait().unwrap().success());
    let report: Value = serde_json::from_slice(&load.stdout).unwrap();
    assert_eq!(load.status.code(), Some(1), "the example says assert_invalid");
    let documents = &report["documents"];
    assert_eq!(
        (&documents["accepted"], &documents["failed"]),
        (&4_450.into(), &550.into())
    );
    assert_eq!(documents["errors"]["es_rejected_execution_exception"], 500);
    assert_eq!(documents["errors"]["mapper_parsing_exception"], 50);
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    let counts: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&counts["bulks"], &counts["docs"]),
        (&5.into(), &5_000.into()),
        "{rest}"
    );
}

#[test]
fn a_sink_has_as_many_clusters_as_asked_for_which_report_documents_that_nobody_sends() {
    let mut sink = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["sink", "--port", "0", "--clusters", "3", "--nodes", "2"])
        .args(["--indices", "4:5", "--claim", "100000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(sink.stdout.take().unwrap());
    let lines: Vec<String> = said.by_ref().lines().take(3).map(Result::unwrap).collect();
    for line in &lines {
        let nodes: Vec<&str> = line.split(' ').collect();
        assert_eq!(nodes.len(), 2, "{line}");
        let asked = |path: &str| -> Value {
            let answer = testkit::client::Client::new(nodes[0]).unwrap().get(path).unwrap();
            answer.ok().unwrap().json().unwrap()
        };
        let health = asked("/_cluster/health");
        assert_eq!(
            (&health["number_of_nodes"], &health["active_shards"]),
            (&2.into(), &20.into())
        );
        let written = || asked("/_stats/indexing")["_all"]["primaries"]["indexing"]["index_total"].as_u64();
        let (began, first) = (std::time::Instant::now(), written());
        while written() == first {
            assert!(began.elapsed().as_secs() < 20, "{first:?}");
        }
    }
    let kill = Command::new("kill").arg(sink.id().to_string()).status().unwrap();
    assert!(kill.success() && sink.wait().unwrap().success());
    assert_eq!(said.lines().count(), 3, "each cluster has its counts");
}

/// Documents may be as deep as a parser takes, and deeper.
#[test]
fn a_sink_that_keeps_documents_answers_deep_ones_and_lives_on() {
    let mut sink = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["sink", "--port", "0", "--store", "--index", "logs:2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(sink.stdout.take().unwrap());
    let mut url = String::new();
    said.read_line(&mut url).unwrap();
    let at = |path: &str| format!("{}{path}", url.trim());
    for depth in [100, 126, 140, 100_000] {
        let document = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        for action in ["index", "update"] {
            let document = match action {
                "update" => format!("{{\"doc\":{document},\"doc_as_upsert\":true}}"),
                _ => document.clone(),
            };
            let body = format!("{{\"{action}\":{{\"_index\":\"logs\",\"_id\":\"{depth}\"}}}}\n{document}\n");
            let answer = ureq::post(at("/_bulk"))
                .content_type("application/x-ndjson")
                .send(body);
            assert_eq!(answer.unwrap().status(), 200, "{action} {depth}");
        }
    }
    let kill = Command::new("kill").arg(sink.id().to_string()).status().unwrap();
    assert!(kill.success() && sink.wait().unwrap().success());
}
