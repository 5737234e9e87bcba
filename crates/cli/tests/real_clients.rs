//! The bulk helpers of the official client libraries, unchanged, through Tidegate.
//!
//! `clients/README.md` says what each program does. The tests prepare the programs with their toolchains' own
//! package clients, run them against a matching cluster, and compare their reports with the cluster's
//! contents.

#![allow(clippy::print_stdout, reason = "a proof tells what it has proven")]

#[path = "real_clients/programs.rs"]
mod programs;
mod real;

use std::process::Command;

use anyhow::{Context, Result, ensure};
use programs::{answer_of, go, java, javascript, javascript_program, python};
use real::gateway::Gateway;
use real::http::{Http, Request};
use real::server::Server;
use real::world;
use serde_json::{Value, json};
use testkit::real::ClusterKind;

/// Number of documents that each helper writes, plus the old one that it updates.
const KEPT: u64 = 1001;

/// Runs a program, and checks what its helpers reported and did.
fn proves(
    kind: ClusterKind,
    helpers: &[&str],
    program: impl FnOnce(&str, &str) -> Result<Command>,
) -> Result<()> {
    let server = Server::shared(kind)?;
    let mut gateway = Gateway::before(&server)?;
    does_its_work(&server, &mut gateway, helpers, 1002, program)?;
    gateway.split_at_least(0.9)
}

/// Does the same in asynchronous mode: every document that a helper takes for written is written, except for
/// the one that the cluster refuses, which is a dead letter.
fn queues(
    kind: ClusterKind,
    helpers: &[&str],
    program: impl FnOnce(&str, &str) -> Result<Command>,
) -> Result<()> {
    let server = Server::shared(kind)?;
    let mut gateway = Gateway::queueing(&server)?;
    does_its_work(&server, &mut gateway, helpers, 1003, program)
}

/// Checks that each helper reports this many successes, with or without the document that the cluster
/// refuses.
fn does_its_work(
    server: &Server,
    gateway: &mut Gateway,
    helpers: &[&str],
    ok: u64,
    program: impl FnOnce(&str, &str) -> Result<Command>,
) -> Result<()> {
    let mut http = server.http();
    let index = server.cluster.fresh_name("clients");
    let mapping = json!({"properties": {"n": {"type": "integer"}, "line": {"type": "keyword"}}});
    let settings = json!({"number_of_shards": 3, "number_of_replicas": 1});
    http.put(
        &format!("/{index}"),
        &json!({"settings": settings, "mappings": mapping}),
    )?;
    for helper in helpers {
        for id in [format!("old-{helper}"), format!("gone-{helper}")] {
            http.put(
                &format!("/{index}/_doc/{id}"),
                &json!({"n": 5, "line": "from before"}),
            )?;
        }
    }
    world::wait_green(&mut http)?;
    gateway.wait_for_now(&mut http)?;

    let told = answer_of(&mut program(&gateway.url(), &index)?)?;
    let told: Value = serde_json::from_str(told.lines().last().unwrap_or_default())
        .with_context(|| format!("not a line of JSON: {told}"))?;
    for helper in helpers {
        let failed: Vec<String> = (ok < 1003).then(|| format!("{helper}-bad")).into_iter().collect();
        let expected = json!({"ok": ok, "failed": failed});
        ensure!(
            told[helper] == expected,
            "{helper} reported {} and not {expected}",
            told[helper]
        );
    }
    if ok == 1003 {
        gateway.delivered(1002 * helpers.len() as u64, helpers.len() as u64)?;
    }
    for helper in helpers {
        holds_the_work_of(&mut http, &index, helper)?;
    }
    http.must(&Request::new("DELETE", &format!("/{index}"))).map(drop)
}

fn holds_the_work_of(http: &mut Http, index: &str, helper: &str) -> Result<()> {
    http.must(&Request::new("POST", &format!("/{index}/_refresh")))?;
    let ids = http.post(
        &format!("/{index}/_search?size=10000"),
        &json!({"_source": ["n", "line"]}),
    )?;
    let hits = ids["hits"]["hits"].as_array().context("hits")?;
    let of = |hit: &Value| {
        hit["_id"]
            .as_str()
            .and_then(|id| id.rsplit_once('-'))
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
    };
    let mut kept = 0;
    for hit in hits {
        match of(hit) {
            Some((name, n)) if name == helper => {
                let line = format!("line {n} of {helper}: é 日本 🦀 \"quoted\"");
                let expected = json!({"n": n.parse::<u64>()?, "line": line});
                ensure!(hit["_source"] == expected, "{hit} and not {expected}");
                kept += 1;
            }
            Some((name, of)) if name == "old" && of == helper => {
                ensure!(hit["_source"]["n"] == -1, "not updated: {hit}");
                kept += 1;
            }
            Some((name, of)) if name == "gone" && of == helper => anyhow::bail!("not deleted: {hit}"),
            _ => {}
        }
    }
    ensure!(kept == KEPT, "{kept} documents of {helper}");
    Ok(())
}

const PYTHON: [&str; 3] = ["bulk", "streaming", "parallel"];

#[test]
fn opensearch_py() -> Result<()> {
    proves(ClusterKind::OpenSearch, &PYTHON, python("opensearch"))
}

#[test]
fn elasticsearch_py_8() -> Result<()> {
    proves(ClusterKind::Elasticsearch8, &PYTHON, python("elasticsearch-8"))
}

#[test]
fn elasticsearch_py_9() -> Result<()> {
    proves(ClusterKind::Elasticsearch, &PYTHON, python("elasticsearch-9"))
}

#[test]
fn opensearch_go() -> Result<()> {
    proves(ClusterKind::OpenSearch, &["indexer"], go("opensearch"))
}

#[test]
fn go_elasticsearch() -> Result<()> {
    proves(ClusterKind::Elasticsearch, &["indexer"], go("elasticsearch"))
}

#[test]
fn opensearch_js() -> Result<()> {
    proves(
        ClusterKind::OpenSearch,
        &["helper"],
        javascript("@opensearch-project/opensearch"),
    )
}

#[test]
fn elasticsearch_js_8() -> Result<()> {
    proves(
        ClusterKind::Elasticsearch8,
        &["helper"],
        javascript("elasticsearch-8"),
    )
}

#[test]
fn elasticsearch_js_9() -> Result<()> {
    proves(
        ClusterKind::Elasticsearch,
        &["helper"],
        javascript("elasticsearch-9"),
    )
}

#[test]
fn opensearch_java() -> Result<()> {
    proves(ClusterKind::OpenSearch, &["request"], java("opensearch", None))
}

#[test]
fn elasticsearch_java_8() -> Result<()> {
    proves(
        ClusterKind::Elasticsearch8,
        &["ingester"],
        java("elasticsearch", Some("8.19.12")),
    )
}

#[test]
fn elasticsearch_java_9() -> Result<()> {
    proves(
        ClusterKind::Elasticsearch,
        &["ingester"],
        java("elasticsearch", None),
    )
}

/// Clients in asynchronous mode, each before a server that it is made for.
#[test]
fn clients_of_opensearch_are_queued() -> Result<()> {
    let kind = ClusterKind::OpenSearch;
    queues(kind, &PYTHON, python("opensearch"))?;
    queues(kind, &["indexer"], go("opensearch"))?;
    queues(kind, &["helper"], javascript("@opensearch-project/opensearch"))?;
    queues(kind, &["request"], java("opensearch", None))?;
    queues(kind, &["processor"], java("opensearch-high-level", None))
}

#[test]
fn clients_of_elasticsearch_8_are_queued() -> Result<()> {
    let kind = ClusterKind::Elasticsearch8;
    queues(kind, &PYTHON, python("elasticsearch-8"))?;
    queues(kind, &["indexer"], go("elasticsearch8"))?;
    queues(kind, &["helper"], javascript("elasticsearch-8"))?;
    queues(kind, &["ingester"], java("elasticsearch", Some("8.19.12")))
}

#[test]
fn clients_of_elasticsearch_9_are_queued() -> Result<()> {
    let kind = ClusterKind::Elasticsearch;
    queues(kind, &PYTHON, python("elasticsearch-9"))?;
    queues(kind, &["indexer"], go("elasticsearch"))?;
    queues(kind, &["helper"], javascript("elasticsearch-9"))?;
    queues(kind, &["ingester"], java("elasticsearch", None))
}

/// pino-elasticsearch writes only lines without ids.
#[test]
fn lines_of_pino_are_queued() -> Result<()> {
    let server = Server::shared(ClusterKind::Elasticsearch)?;
    let mut gateway = Gateway::queueing(&server)?;
    let mut http = server.http();
    let index = server.cluster.fresh_name("pino");
    http.put(
        &format!("/{index}"),
        &json!({"settings": {"number_of_shards": 3, "number_of_replicas": 0}}),
    )?;
    world::wait_green(&mut http)?;
    gateway.wait_for_now(&mut http)?;
    let told = answer_of(&mut javascript_program("pino.js", "elasticsearch-9")(
        &gateway.url(),
        &index,
    )?)?;
    let told: Value = serde_json::from_str(told.lines().last().unwrap_or_default())?;
    ensure!(told["pino"] == json!({"ok": 1000, "failed": []}), "{told}");
    gateway.delivered(1000, 0)?;
    http.must(&Request::new("POST", &format!("/{index}/_refresh")))?;
    let count = http.get(&format!("/{index}/_count"))?;
    ensure!(count["count"] == 1000, "{count}");
    http.must(&Request::new("DELETE", &format!("/{index}"))).map(drop)
}

#[test]
fn clients_of_elasticsearch_7_are_queued() -> Result<()> {
    let kind = ClusterKind::Elasticsearch7;
    queues(kind, &["processor"], java("elasticsearch-high-level", None))?;
    queues(kind, &["olivere"], go("olivere"))
}

/// Bulks in formats other than JSON are passed on unchanged: the server treats them the same with and without
/// Tidegate.
fn formats_prove(kind: ClusterKind) -> Result<()> {
    let server = Server::shared(kind)?;
    let mut gateway = Gateway::before(&server)?;
    let mut direct = server.http();
    let names = ["a", "b"].map(|side| server.cluster.fresh_name(&format!("formats-{side}")));
    for name in &names {
        direct.put(&format!("/{name}"), &json!({"settings": {"number_of_shards": 3}}))?;
    }
    world::wait_green(&mut direct)?;
    gateway.wait_for_now(&mut direct)?;
    let action = json!({"index": {"_id": "1"}});
    let source = json!({"word": "tide", "n": 7});
    // Elasticsearch and OpenSearch know SMILE's end of a document, but not CBOR's and YAML's.
    let smile = [&smile(&action)[..], b"\xff", &smile(&source), b"\xff"].concat();
    let cbor = [&cbor(&action)[..], b"\xff", &cbor(&source), b"\xff"].concat();
    let yaml = b"---\nindex:\n  _id: '1'\n---\nword: tide\n".to_vec();
    for (media_type, body, status) in [
        ("application/smile", smile, Some(200)),
        ("application/cbor", cbor, None),
        ("application/yaml", yaml, None),
    ] {
        let mut answers = Vec::new();
        for (http, name) in [&mut direct, &mut gateway.http()].into_iter().zip(&names) {
            let mut request = Request::new("POST", &format!("/{name}/_bulk"))
                .header("content-type", media_type)
                .header("accept", "application/json");
            request.body.clone_from(&body);
            let answer = http.send(&request)?;
            let mut value = answer.value()?;
            if let Some(answer) = value.as_object_mut() {
                answer.remove("took");
            }
            answers.push((answer.status, value.to_string().replace(name, "NAME")));
        }
        ensure!(
            answers[0] == answers[1],
            "{media_type}: {:?} directly, {:?} through Tidegate",
            answers[0],
            answers[1]
        );
        ensure!(
            status.is_none_or(|status| status == answers[0].0),
            "{media_type}: {:?}",
            answers[0]
        );
        println!("{media_type}: {}", answers[0].0);
    }
    for name in &names {
        let kept = direct.get(&format!("/{name}/_doc/1"))?;
        ensure!(kept["_source"] == source, "{kept}");
        direct.must(&Request::new("DELETE", &format!("/{name}")))?;
    }
    Ok(())
}

/// Encodes a value as SMILE (specification 1.0), without shared names: objects, short ASCII texts and small
/// numbers.
fn smile(value: &Value) -> Vec<u8> {
    fn write(out: &mut Vec<u8>, value: &Value) {
        match value {
            Value::Object(members) => {
                out.push(0xfa);
                for (name, value) in members {
                    out.push(0x7f + name.len() as u8);
                    out.extend_from_slice(name.as_bytes());
                    write(out, value);
                }
                out.push(0xfb);
            }
            Value::String(text) => {
                out.push(0x3f + text.len() as u8);
                out.extend_from_slice(text.as_bytes());
            }
            other => out.push(0xc0 + 2 * other.as_u64().expect("a small number") as u8),
        }
    }
    let mut out = b":)\n\0".to_vec();
    write(&mut out, value);
    out
}

/// Encodes a value of the same few kinds as CBOR (RFC 8949).
fn cbor(value: &Value) -> Vec<u8> {
    match value {
        Value::Object(members) => {
            let members = members
                .iter()
                .flat_map(|(name, value)| [cbor(&json!(name)), cbor(value)]);
            std::iter::once(vec![0xbf])
                .chain(members)
                .chain([vec![0xff]])
                .flatten()
                .collect()
        }
        Value::String(text) => [&[0x60 + text.len() as u8], text.as_bytes()].concat(),
        other => vec![other.as_u64().expect("a small number") as u8],
    }
}

#[test]
fn bulks_in_other_formats_are_answered_as_directly() -> Result<()> {
    formats_prove(ClusterKind::OpenSearch)?;
    formats_prove(ClusterKind::Elasticsearch)
}
