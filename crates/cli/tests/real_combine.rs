//! Clients whose bulks travel to the nodes together get the same answers as each would get alone.
//!
//! Each client writes the same bulks directly into one index and through Tidegate into another; through
//! Tidegate all clients send at the same moment. Answers and contents must be the same byte for byte,
//! including sequence numbers. A second proof does the same with random bulks, valid and broken ones, as
//! `real_differential` does with one client (`SEED=n` changes its bulks). A third has neighbours that harm
//! one another where they can ([`neighbours`]). Finally, Tidegate must understand the calls with which users
//! of the faster-bulk plug-in switch combining.

#![allow(clippy::print_stdout, reason = "a proof tells what it has proven")]

#[path = "real_combine/neighbours.rs"]
mod neighbours;
mod real;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use real::bulks::Inventor;
use real::compare::{Order, among_others, answers_differ, contents_differ};
use real::gateway::Gateway;
use real::http::{Http, Request};
use real::server::Server;
use real::world::{self, Prefixes};
use serde_json::{Value, json};
use testkit::real::ClusterKind;

const CLIENTS: usize = 12;
const ROUNDS: usize = 15;
/// The end of the name of each client's second index.
const SECOND: &str = "-2";
/// Longer than indices are new to the gateway.
const SETTLED_AFTER: std::time::Duration = std::time::Duration::from_secs(3);

/// Returns a body with new documents, existing ones, unparsable ones, deletes of existing and missing
/// documents, and updates with and without a document. The failures differ from client to client and from
/// round to round. One document is for a second index, so that bulks of different clients may travel
/// together.
fn body(index: &str, client: usize, round: usize) -> String {
    let second = json!({"index": {"_index": format!("{index}{SECOND}"), "_id": round.to_string()}});
    let mut lines = format!("{second}\n{{\"n\":{client}}}\n");
    let mut push = |action: &str, meta: Value, source: Option<Value>| {
        let mut meta = meta;
        meta["_index"] = json!(index);
        lines.push_str(&format!("{}\n", json!({ action: meta })));
        if let Some(source) = source {
            lines.push_str(&format!("{source}\n"));
        }
    };
    for n in 0..8 {
        push(
            "index",
            json!({"_id": format!("{client}-{round}-{n}")}),
            Some(json!({"n": n})),
        );
    }
    let fails = (client + round) % 3;
    if fails == 0 {
        push(
            "create",
            json!({"_id": format!("{client}-0-1")}),
            Some(json!({"n": 1})),
        );
        push("index", json!({"_id": "bad"}), Some(json!({"n": "not a number"})));
    }
    if fails != 1 {
        push("delete", json!({"_id": format!("{client}-{round}-2")}), None);
        push("delete", json!({"_id": "never"}), None);
    }
    if fails == 2 {
        push("update", json!({"_id": "absent"}), Some(json!({"doc": {"n": 1}})));
    }
    push(
        "update",
        json!({"_id": format!("{client}-0-3"), "routing": if round.is_multiple_of(2) { Value::Null } else { json!("r") }}),
        Some(json!({"doc": {"n": round}, "doc_as_upsert": true})),
    );
    lines
}

fn proof(kind: ClusterKind) -> Result<()> {
    let server = Server::shared(kind)?;
    let prefixes = Prefixes::fresh();
    let mut http = server.http();
    for prefix in [&prefixes.direct, &prefixes.other] {
        for (client, which) in (0..CLIENTS).flat_map(|client| [(client, ""), (client, SECOND)]) {
            http.put(
                &format!("/{prefix}{client:02}{which}"),
                &json!({
                    "settings": {"number_of_shards": 3, "number_of_replicas": 0},
                    "mappings": {"properties": {"n": {"type": "integer"}}}
                }),
            )?;
        }
    }
    let mut gateway = Gateway::before(&server)?;
    gateway.wait_for_now(&mut http)?;
    let together = Barrier::new(CLIENTS);
    let failures: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (server, gateway, prefixes, together) = (&server, &gateway, &prefixes, &together);
                scope.spawn(move || write(server, gateway, prefixes, client, together))
            })
            .collect();
        let joined = clients
            .into_iter()
            .map(|client| client.join().expect("no client panics"));
        joined.flatten().collect()
    });
    for (client, which) in (0..CLIENTS).flat_map(|client| [(client, ""), (client, SECOND)]) {
        let mut contents = Vec::new();
        for prefix in [&prefixes.direct, &prefixes.other] {
            let index = format!("{prefix}{client:02}{which}");
            http.send(&Request::new("POST", &format!("/{index}/_refresh")))?;
            let found = http.get(&format!("/{index}/_search?size=1000&version=true"))?;
            let hits = found["hits"]["hits"].as_array().cloned().unwrap_or_default();
            let mut documents: Vec<String> = hits
                .iter()
                .map(|hit| format!("{} {} {}", hit["_id"], hit["_version"], hit["_source"]))
                .collect();
            documents.sort();
            contents.push(documents);
            http.send(&Request::new("DELETE", &format!("/{index}")))?;
        }
        ensure!(
            contents[0].len() + usize::from(!which.is_empty()) > ROUNDS && contents[0] == contents[1],
            "client {client}: other contents"
        );
    }
    ensure!(
        failures.is_empty(),
        "{} differences\n{}",
        failures.len(),
        failures[..failures.len().min(10)].join("\n")
    );
    let counters = gateway.counters()?;
    let count = |name: &str| counters[name].as_u64().unwrap_or(0);
    let (requests, parts) = (count("combined_requests"), count("combined_parts"));
    println!("{}: {parts} parts in {requests} requests", server.name());
    ensure!(
        requests > 0 && parts > 2 * requests,
        "hardly any part had company: {counters}"
    );
    Ok(())
}

fn write(
    server: &Server,
    gateway: &Gateway,
    prefixes: &Prefixes,
    client: usize,
    together: &Barrier,
) -> Vec<String> {
    let (mut http, mut through) = (server.http(), gateway.http());
    let mut failures = Vec::new();
    for round in 0..ROUNDS {
        let bulk = |prefix: &str| {
            Request::new("POST", "/_bulk")
                .ndjson(body(&format!("{prefix}{client:02}"), client, round).into_bytes())
        };
        let direct = http.send(&bulk(&prefixes.direct));
        if round == 1 {
            // From then on no index is new to the gateway.
            std::thread::sleep(SETTLED_AFTER);
        }
        together.wait();
        // A client without an answer goes on all the same: the others wait for it.
        let answer = through.send(&bulk(&prefixes.other));
        let difference = match (&direct, &answer) {
            (Ok(direct), Ok(answer)) => answers_differ(direct, answer, &prefixes.direct, &prefixes.other),
            _ => Some(format!("{direct:?} and {answer:?}")),
        };
        failures.extend(difference.map(|difference| format!("client {client}, round {round}: {difference}")));
    }
    failures
}

/// The cluster admits or refuses the plug-in's calls, and keeps its own settings.
fn switches(kind: ClusterKind) -> Result<()> {
    let server = Server::shared(kind)?;
    let gateway = Gateway::before(&server)?;
    if gateway.counters()?.is_null() {
        return Ok(()); // clusters do not know these settings
    }
    let index = format!("{}switched", Prefixes::fresh().direct);
    let (mut direct, mut through) = (server.http(), gateway.http());
    direct.put(
        &format!("/{index}"),
        &json!({"settings": {"number_of_replicas": 0}}),
    )?;

    let nothing = json!({"acknowledged": true, "persistent": {}, "transient": {}});
    let cluster = "/_cluster/settings?flat_settings=true";
    let before = direct.get(cluster)?;
    let ours = json!({"apack.fasterbulk.combine.enabled": "true", "apack.fasterbulk.combine.interval": "50"});
    let mut expected = nothing.clone();
    expected["transient"] = ours.clone();
    same(&through.put(cluster, &json!({"transient": ours}))?, &expected)?;
    same(&direct.get(cluster)?, &before)?;
    let shown = through.get(cluster)?;
    same(
        &shown["transient"]["apack.fasterbulk.combine.interval"],
        &json!("50"),
    )?;

    // Another setting in the same body is the cluster's own.
    const THEIRS: &str = "cluster.routing.allocation.node_concurrent_recoveries";
    let mixed = json!({"persistent": {THEIRS: "3", "index": {"direct_routing": {"global.enable": true}}}});
    let mut expected = nothing.clone();
    expected["persistent"] = json!({THEIRS: "3", "index.direct_routing.global.enable": "true"});
    same(&through.put(cluster, &mixed)?, &expected)?;
    let theirs = direct.get(cluster)?;
    same(&theirs["persistent"][THEIRS], &json!("3"))?;
    same(
        &theirs["persistent"]["index.direct_routing.global.enable"],
        &Value::Null,
    )?;
    let reset =
        json!({"persistent": {THEIRS: null, "index.direct_routing.*": null}, "transient": {"apack.*": null}});
    same(&through.put(cluster, &reset)?, &nothing)?;
    same(&through.get(cluster)?, &before)?;

    let settings = format!("/{index}/_settings");
    let on = json!({"index.direct_routing.enable": true});
    same(&through.put(&settings, &on)?, &json!({"acknowledged": true}))?;
    let shown = json!({&index: {"settings": {"index": {"direct_routing": {"enable": "true"}}}}});
    same(
        &through.get(&format!("{settings}/index.direct_routing.enable"))?,
        &shown,
    )?;
    let mut whole = direct.get(&settings)?;
    whole[&index]["settings"]["index"]["direct_routing"] = json!({"enable": "true"});
    same(&through.get(&settings)?, &whole)?;
    let absent = |http: &mut Http, body: &Value| {
        http.send(&Request::new("PUT", &format!("/{index}-absent/_settings")).json(body))
    };
    let refused = absent(&mut through, &on)?;
    let likewise = absent(&mut direct, &json!({"index.refresh_interval": "1s"}))?;
    ensure!(refused.status == 404, "{}", refused.text());
    same(&refused.value()?, &likewise.value()?)?;

    if kind == ClusterKind::OpenSearchSecure {
        direct.put(
            "/_plugins/_security/api/internalusers/onlooker",
            &json!({"password": "Tidegate-On-Looker-7", "backend_roles": []}),
        )?;
        for (user, password, status) in [("onlooker", "Tidegate-On-Looker-7", 403), ("admin", "wrong", 401)] {
            let mut origin = gateway.origin.clone();
            origin.basic_auth = Some((user.to_owned(), password.to_owned()));
            let mut stranger = Http::to(&origin);
            for (target, body) in [(cluster, json!({"persistent": ours})), (&*settings, on.clone())] {
                let answer = stranger.send(&Request::new("PUT", target).json(&body))?;
                ensure!(answer.status == status, "{user} at {target}: {}", answer.text());
            }
        }
        same(&through.get(cluster)?, &before)?;
    }
    direct.send(&Request::new("DELETE", &format!("/{index}")))?;
    println!("{}: the plug-in's calls are understood", server.name());
    Ok(())
}

fn same(found: &Value, expected: &Value) -> Result<()> {
    ensure!(found == expected, "found {found}\nexpected {expected}");
    Ok(())
}

/// Number of clients with random bulks.
const CROWD: usize = 8;
/// The least number of bulks of each client.
const BULKS: usize = 40;
/// The most. Who travels together depends on the moment; most runs need no more than the least.
const MOST_BULKS: usize = 5 * BULKS;
/// The least number of requests that must carry parts of several clients.
const COMBINED: u64 = 20;

fn random_proof(kind: ClusterKind) -> Result<()> {
    let server = Server::shared(kind)?;
    let seed: u64 = std::env::var("SEED").map_or(Ok(1), |seed| seed.parse())?;
    let mut http = server.http();
    let prefixes = Prefixes::fresh();
    for prefix in [&prefixes.direct, &prefixes.other] {
        world::create(&mut http, &server, prefix)?;
    }
    let mut gateway = Gateway::before(&server)?;
    gateway.wait_for_now(&mut http)?;
    let (together, enough) = (Barrier::new(CROWD), AtomicBool::new(false));
    let mut failures: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CROWD as u64)
            .map(|client| {
                let (server, gateway, prefixes) = (&server, &gateway, &prefixes);
                let crowd = (&together, &enough);
                // Ids contain the seed, so each client has documents of its own.
                let inventor = Inventor::new(seed * 100 + client, &prefixes.direct, server).in_company();
                scope.spawn(move || write_random(server, gateway, prefixes, inventor, crowd))
            })
            .collect();
        let joined = clients
            .into_iter()
            .map(|client| client.join().expect("no client panics"));
        joined.flatten().collect()
    });
    let (differences, documents) =
        contents_differ(&mut http, &server, &prefixes.direct, &prefixes.other, Order::Any)?;
    failures.extend(differences);
    for prefix in [&prefixes.direct, &prefixes.other] {
        world::remove(&mut http, &server, prefix)?;
    }
    ensure!(
        failures.is_empty(),
        "{} differences, SEED={seed}\n{}",
        failures.len(),
        failures[..failures.len().min(10)].join("\n")
    );
    let counters = gateway.counters()?;
    let count = |name: &str| counters[name].as_u64().unwrap_or(0);
    let (requests, parts) = (count("combined_requests"), count("combined_parts"));
    println!(
        "{}: {documents} documents, {parts} parts in {requests} requests",
        server.name()
    );
    ensure!(
        documents > 100 && requests > COMBINED,
        "hardly any part had company: {counters}"
    );
    Ok(())
}

fn write_random(
    server: &Server,
    gateway: &Gateway,
    prefixes: &Prefixes,
    mut inventor: Inventor<'_>,
    (together, enough): (&Barrier, &AtomicBool),
) -> Vec<String> {
    let (mut http, mut through) = (server.http(), gateway.http());
    let (direct_prefix, other_prefix) = (&prefixes.direct, &prefixes.other);
    let mut failures = Vec::new();
    for n in 0..MOST_BULKS {
        let invented = inventor.next();
        let direct = http.send(&invented.worded(direct_prefix, direct_prefix));
        let twin = invented.worded(direct_prefix, other_prefix);
        if n == 10 {
            // From then on hardly any index is new to the gateway.
            std::thread::sleep(SETTLED_AFTER);
        }
        // One client asks for all, so that all end after the same bulk.
        if together.wait().is_leader() && n + 1 >= BULKS {
            let counters = gateway.counters().ok();
            let combined = counters.and_then(|counters| counters["combined_requests"].as_u64());
            enough.store(combined.is_none_or(|n| n > COMBINED), Ordering::SeqCst);
        }
        together.wait();
        let last = enough.load(Ordering::SeqCst);
        let answer = through.send(&twin);
        let difference = match (direct, answer) {
            (Ok(direct), Ok(answer)) => {
                let (direct, answer) = (among_others(direct), among_others(answer));
                answers_differ(&direct, &answer, direct_prefix, other_prefix)
            }
            (direct, answer) => Some(format!("{direct:?} and {answer:?}")),
        };
        failures.extend(difference.map(|difference| {
            format!(
                "bulk {n}, {} {}: {}\n {difference}",
                twin.method, twin.target, invented.what
            )
        }));
        if last {
            break;
        }
    }
    failures
}

#[test]
fn random_bulks_on_opensearch_3() -> Result<()> {
    random_proof(ClusterKind::OpenSearch)
}

#[test]
fn random_bulks_on_elasticsearch_9() -> Result<()> {
    random_proof(ClusterKind::Elasticsearch)
}

#[test]
fn opensearch_3() -> Result<()> {
    proof(ClusterKind::OpenSearch)?;
    switches(ClusterKind::OpenSearch)
}

#[test]
fn opensearch_2_with_tls_and_basic_auth() -> Result<()> {
    proof(ClusterKind::OpenSearchSecure)?;
    switches(ClusterKind::OpenSearchSecure)
}

#[test]
fn elasticsearch_9() -> Result<()> {
    proof(ClusterKind::Elasticsearch)?;
    switches(ClusterKind::Elasticsearch)
}

#[test]
fn elasticsearch_7() -> Result<()> {
    proof(ClusterKind::Elasticsearch7)?;
    switches(ClusterKind::Elasticsearch7)
}
