//! `tidegate explain`.

use std::process::{Command, Output};

use serde_json::Value;

use testkit::fake::{Fault, Injection, On};

use crate::gateway::{body, cluster};

fn explain(url: &str, body: &str, more: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bulk.ndjson");
    std::fs::write(&file, body).unwrap();
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["explain", file.to_str().unwrap(), "--cluster", url])
        .args(more)
        .output()
        .unwrap()
}

#[test]
fn each_document_is_told_its_shard_and_node_as_the_cluster_has_it() {
    let cluster = cluster();
    let output = explain(&cluster.urls()[1], &body(50), &["--json"]);
    assert_eq!(output.status.code(), Some(0));
    let lines: Vec<Value> = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 50);
    for line in lines {
        let shard = u32::try_from(line["shard"].as_u64().unwrap()).unwrap();
        let node = cluster.node_of("logs", shard).unwrap();
        assert_eq!(line["node"], format!("node-{}", node + 1));
        assert_eq!(line["decided_by"], "id");
    }
}

#[test]
fn a_bulk_that_would_pass_is_told_the_line_and_the_reason() {
    let cluster = cluster();
    let broken = format!(
        "{}{{\"index\":{{\"_index\":\"nowhere\",\"_id\":\"1\"}}}}\n{{}}\n",
        body(2)
    );
    let output = explain(&cluster.urls()[0], &broken, &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("because of line 5: unknown_index"), "{text}");
    assert_eq!(cluster.counts().bulks, 0, "nothing is written");
}

#[test]
fn an_index_that_is_not_verified_yet_is_waited_for() {
    let cluster = cluster();
    let unanswered = Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::new(On::Path("/logs/_search_shards".to_owned()), unanswered).times(2));
    let output = explain(&cluster.urls()[0], &body(3), &["--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
}

#[test]
fn an_empty_bulk_would_pass() {
    let cluster = cluster();
    let output = explain(&cluster.urls()[0], "", &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\"passed_because\":\"empty\""), "{text}");
}

#[test]
fn a_password_in_the_url_is_not_repeated() {
    let output = explain("http://who:s3cret@127.0.0.1:9", &body(1), &[]);
    assert_eq!(output.status.code(), Some(3));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("s3cret"));
}

#[test]
fn an_unreachable_cluster_is_an_error() {
    let output = explain("http://127.0.0.1:9", &body(1), &[]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("could not be read"));
}
