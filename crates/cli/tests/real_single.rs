//! Writes of single documents that travel as bulks get the same answers as directly from the cluster.
//!
//! The same requests go to a cluster directly and through Tidegate with `rewrite_to_bulk` and `combine`, into
//! equal index sets: every status, header and body must be the same, and so must all contents, `_source` byte
//! for byte.
//!
//! `SEED=n` replays one seed, `SEEDS=n` tries that many (default 2). `TIDEGATE_PROOF_AGAINST=direct` sends
//! both sides to the cluster itself (to two of its nodes): what differs then is the test's own fault.

#![allow(clippy::print_stdout, reason = "a proof tells what it has proven")]

mod real;

use std::collections::BTreeMap;
use std::sync::Barrier;

use anyhow::{Result, ensure};
use real::bulks::replaced;
use real::compare::{Order, answers_differ, contents_differ};
use real::gateway::Gateway;
use real::http::{Answer, Http, Origin, Request};
use real::server::Server;
use real::singles::Inventor;
use real::world::{self, AUTO, Prefixes};
use serde_json::json;
use testkit::real::ClusterKind;

/// Number of requests of one seed.
const REQUESTS: u32 = 150;
/// Number of clients that write at the same moment.
const CLIENTS: usize = 12;
const ROUNDS: usize = 25;
/// The index that these clients write to.
const SHARED: &str = "shared";

/// Returns the request worded for the other index set.
fn twin(request: &Request, prefixes: &Prefixes) -> Request {
    let reword = |text: &[u8]| replaced(text, prefixes.direct.as_bytes(), prefixes.other.as_bytes());
    Request {
        target: request.target.replace(&prefixes.direct, &prefixes.other),
        body: reword(&request.body),
        ..request.clone()
    }
}

fn differ(direct: &Answer, other: &Answer, prefixes: &Prefixes) -> Option<String> {
    let plain = |answer: &Answer, prefix: &str| {
        let mut answer = answer.clone();
        answer.body = unnumbered(&answer.text(), prefix).into_bytes();
        answer
    };
    let location = |answer: &Answer, prefix: &str| {
        let location = answer.header("location")?.replace(prefix, "");
        let (path, parameters) = location.split_once('?').unwrap_or((&location, ""));
        Some(match path.strip_prefix(&format!("/{AUTO}/_doc/")) {
            Some(made_up) if made_up.len() == 20 => format!("/{AUTO}/_doc/*?{parameters}"),
            _ => location,
        })
    };
    let (a, b) = (
        location(direct, &prefixes.direct),
        location(other, &prefixes.other),
    );
    if a != b {
        return Some(format!("location {a:?} and {b:?}"));
    }
    answers_differ(
        &plain(direct, &prefixes.direct),
        &plain(other, &prefixes.other),
        &prefixes.direct,
        &prefixes.other,
    )
}

/// Removes sequence numbers. They differ where documents get their ids, and therefore their shards, at
/// random, and where several clients write.
fn unnumbered(body: &str, prefix: &str) -> String {
    let keys = ["\"_seq_no\":", "\"_seq_no\" : "];
    let by_chance = |before: &str| {
        before.contains(&format!("{prefix}{AUTO}")) || before.contains(&format!("{prefix}{SHARED}"))
    };
    match keys.iter().find_map(|key| body.split_once(key)) {
        Some((before, after)) if by_chance(before) => {
            let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}\"_seq_no\":0{after}")
        }
        _ => body.to_owned(),
    }
}

fn one_by_one(server: &Server, gateway: &mut Gateway) -> Result<()> {
    let seeds = real::seeds(2)?;
    let prefixes = Prefixes::fresh();
    let mut http = server.http();
    for prefix in [&prefixes.direct, &prefixes.other] {
        world::create(&mut http, server, prefix)?;
    }
    gateway.wait_for_now(&mut http)?;
    let began = std::time::Instant::now();
    let mut through = gateway.http();
    let mut failures = Vec::new();
    let mut statuses = BTreeMap::<u16, u32>::new();
    for seed in seeds {
        let mut inventor = Inventor::new(seed, &prefixes.direct, server);
        for n in 0..REQUESTS {
            let request = inventor.next();
            let direct = http.send(&request)?;
            let other = through.send(&twin(&request, &prefixes))?;
            *statuses.entry(direct.status).or_default() += 1;
            inventor.learn(&direct);
            // A refused request changes nothing, so each node can be asked for its wording: a cause that
            // crossed from one node to another reads differently.
            let by_another = |node: &Origin| -> Option<String> {
                let direct = Http::to(node).send(&request).ok()?;
                differ(&direct, &other, &prefixes)
            };
            let refused = direct.status >= 400 && direct.text().contains("\"error\"");
            let difference = differ(&direct, &other, &prefixes)
                .filter(|_| !refused || server.nodes[1..].iter().all(|node| by_another(node).is_some()));
            if let Some(difference) = difference {
                failures.push(format!(
                    "SEED={seed} request {n}, {} {} {}\n {difference}",
                    request.method,
                    request.target,
                    String::from_utf8_lossy(&request.body)
                ));
            }
        }
    }
    let (contents, documents) =
        contents_differ(&mut http, server, &prefixes.direct, &prefixes.other, Order::Same)?;
    println!(
        "{}: statuses {statuses:?}, {documents} documents, {:?}",
        server.name(),
        began.elapsed()
    );
    for prefix in [&prefixes.direct, &prefixes.other] {
        world::remove(&mut http, server, prefix)?;
    }
    let count = failures.len() + contents.len();
    let shown: Vec<String> = failures
        .into_iter()
        .take(20)
        .chain(contents.into_iter().take(10))
        .collect();
    ensure!(
        count == 0,
        "{count} differences; replay with SEED=n\n{}",
        shown.join("\n")
    );
    for status in [200, 201, 400, 404, 409] {
        ensure!(
            statuses.get(&status).is_some_and(|n| *n > 3),
            "hardly any answer was {status}: {statuses:?}"
        );
    }
    Ok(())
}

/// Clients with documents of their own write at the same moment, so that their writes travel together.
fn all_at_once(server: &Server, gateway: &mut Gateway) -> Result<()> {
    let prefixes = Prefixes::fresh();
    let mut http = server.http();
    for prefix in [&prefixes.direct, &prefixes.other] {
        http.put(
            &format!("/{prefix}{SHARED}"),
            &json!({
                "settings": {"number_of_shards": 3, "number_of_replicas": 0},
                "mappings": {"properties": {"n": {"type": "integer"}}}
            }),
        )?;
    }
    gateway.wait_for_now(&mut http)?;
    let together = Barrier::new(CLIENTS);
    let failures: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (gateway, prefixes, together) = (&*gateway, &prefixes, &together);
                scope.spawn(move || {
                    let (mut http, mut through) = (server.http(), gateway.http());
                    let mut failures = Vec::new();
                    for round in 0..ROUNDS {
                        let request = write_of(&format!("{}{SHARED}", prefixes.direct), client, round);
                        let direct = http.send(&request);
                        together.wait();
                        // A client without an answer goes on all the same: the others wait for it.
                        let other = through.send(&twin(&request, prefixes));
                        let difference = match (&direct, &other) {
                            (Ok(direct), Ok(other)) => differ(direct, other, prefixes),
                            _ => Some(format!("{direct:?} and {other:?}")),
                        };
                        failures
                            .extend(difference.map(|told| format!("client {client}, round {round}: {told}")));
                    }
                    failures
                })
            })
            .collect();
        let joined = clients
            .into_iter()
            .map(|client| client.join().expect("no client panics"));
        joined.flatten().collect()
    });
    let (contents, documents) =
        contents_differ(&mut http, server, &prefixes.direct, &prefixes.other, Order::Any)?;
    for prefix in [&prefixes.direct, &prefixes.other] {
        http.send(&Request::new("DELETE", &format!("/{prefix}{SHARED}")))?;
    }
    ensure!(
        contents.is_empty() && documents > CLIENTS,
        "{documents} documents\n{}",
        contents.join("\n")
    );
    ensure!(
        failures.is_empty(),
        "{} differences\n{}",
        failures.len(),
        failures[..failures.len().min(10)].join("\n")
    );
    Ok(())
}

/// Returns what a client writes in a round: new documents, conflicts, unparsable documents, deletes, updates.
fn write_of(index: &str, client: usize, round: usize) -> Request {
    let id = format!("{client}-{}", round / 5);
    let document = json!({"n": round, "client": client});
    match (client + round) % 7 {
        0 | 1 => Request::new("PUT", &format!("/{index}/_doc/{id}")).json(&document),
        2 => Request::new("PUT", &format!("/{index}/_create/{id}")).json(&document),
        3 => Request::new("DELETE", &format!("/{index}/_doc/{id}")),
        4 => Request::new("POST", &format!("/{index}/_update/{id}")).json(&json!({"doc": document})),
        5 => Request::new("POST", &format!("/{index}/_update/{id}-u"))
            .json(&json!({"doc": document, "doc_as_upsert": true})),
        _ if round.is_multiple_of(4) => {
            Request::new("PUT", &format!("/{index}/_doc/{id}")).json(&json!({"n": "not a number"}))
        }
        _ => Request::new("PUT", &format!("/{index}/_doc/{id}?refresh=true")).json(&document),
    }
}

fn proof(kind: ClusterKind) -> Result<()> {
    let server = Server::shared(kind)?;
    let mut gateway = Gateway::rewriting(&server)?;
    one_by_one(&server, &mut gateway)?;
    all_at_once(&server, &mut gateway)?;
    let counters = gateway.counters()?;
    if counters.is_null() {
        return Ok(());
    }
    let count = |name: &str| counters[name].as_u64().unwrap_or(0);
    let (joined, passed) = (count("single_joined"), count("single_passed"));
    println!(
        "{}: {joined} joined, {passed} passed: {}; {} asked again; {} parts in {} requests",
        server.name(),
        counters["single_passed_because"],
        count("single_again"),
        count("combined_parts"),
        count("combined_requests")
    );
    ensure!(joined > passed, "hardly any write joined: {counters}");
    ensure!(count("combined_parts") > 0, "no write had company: {counters}");
    Ok(())
}

#[test]
fn opensearch_3() -> Result<()> {
    proof(ClusterKind::OpenSearch)
}

#[test]
fn opensearch_2_with_tls_and_basic_auth() -> Result<()> {
    proof(ClusterKind::OpenSearchSecure)
}

#[test]
fn elasticsearch_9() -> Result<()> {
    proof(ClusterKind::Elasticsearch)
}

#[test]
fn elasticsearch_7() -> Result<()> {
    proof(ClusterKind::Elasticsearch7)
}
