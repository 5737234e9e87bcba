//! The same random bulks go to a cluster directly and through Tidegate, into equal index sets. Every status,
//! header, item, error and all contents must be the same.
//!
//! `SEED=n` replays one seed, `SEEDS=n` tries that many from 1 on; by default each kind of cluster has four
//! seeds of its own. `TIDEGATE_PROOF_AGAINST=direct` sends
//! both sides to the cluster itself (to two of its nodes): what differs then is the test's own fault.

#![allow(clippy::print_stdout, reason = "a proof tells what it has proven")]

mod real;

use anyhow::{Result, ensure};
use real::bulks::Inventor;
use real::compare::{Order, answers_differ, contents_differ};
use real::gateway::Gateway;
use real::server::Server;
use real::world::{self, Prefixes};
use testkit::real::ClusterKind;

/// Number of bulks of one seed.
const BULKS: u32 = 40;
/// Number of seeds of each kind of cluster.
const SEEDS: u64 = 4;

fn first_seed(kind: ClusterKind) -> u64 {
    let place = ClusterKind::ALL.iter().position(|other| *other == kind);
    1 + SEEDS * place.unwrap_or_default() as u64
}

fn differential(kind: ClusterKind, server: &Server, gateway: &mut Gateway) -> Result<()> {
    let seeds = real::seeds_from(first_seed(kind), SEEDS)?;
    let prefixes = Prefixes::fresh();
    let mut http = server.http();
    for prefix in [&prefixes.direct, &prefixes.other] {
        world::create(&mut http, server, prefix)?;
    }
    let began = std::time::Instant::now();
    gateway.wait_for_now(&mut http)?;
    let mut through = gateway.http();
    let mut failures = Vec::new();
    let mut statuses = std::collections::BTreeMap::<u16, u32>::new();
    let mut items = 0;
    for seed in &seeds {
        let mut inventor = Inventor::new(*seed, &prefixes.direct, server);
        for n in 0..BULKS {
            let invented = inventor.next();
            let direct = http.send(&invented.worded(&prefixes.direct, &prefixes.direct))?;
            let twin = invented.worded(&prefixes.direct, &prefixes.other);
            let answer = through.send(&twin)?;
            if direct.status != 200
                && invented.what.starts_with("valid")
                && std::env::var_os("SHOW").is_some()
            {
                println!(
                    "{} {} {}: {}",
                    twin.method,
                    twin.target,
                    invented.what,
                    direct.text()
                );
            }
            *statuses.entry(direct.status).or_default() += 1;
            if let Ok(value) = direct.value() {
                items += value["items"].as_array().map_or(0, Vec::len);
                inventor.memory.learn(&prefixes.direct, &value);
            }
            if let Some(difference) = answers_differ(&direct, &answer, &prefixes.direct, &prefixes.other) {
                failures.push(format!(
                    "SEED={seed} bulk {n}, {} {}: {}\n {difference}",
                    twin.method, twin.target, invented.what
                ));
            }
        }
    }
    let (contents, documents) =
        contents_differ(&mut http, server, &prefixes.direct, &prefixes.other, Order::Same)?;
    println!(
        "{}: {} bulks, {items} items, statuses {statuses:?}, {documents} documents",
        server.name(),
        seeds.len() as u32 * BULKS
    );
    println!("{:?} for the bulks", began.elapsed());
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
    ensure!(
        statuses.get(&200).is_some_and(|n| *n > 10),
        "hardly any bulk was valid: {statuses:?}"
    );
    Ok(())
}

fn on(kind: ClusterKind) -> Result<()> {
    let server = Server::shared(kind)?;
    let mut gateway = Gateway::before(&server)?;
    differential(kind, &server, &mut gateway)?;
    gateway.split_at_least(0.3)
}

#[test]
fn opensearch_3() -> Result<()> {
    on(ClusterKind::OpenSearch)
}

#[test]
fn opensearch_1() -> Result<()> {
    on(ClusterKind::OpenSearch1)
}

#[test]
fn opensearch_2_with_tls_and_basic_auth() -> Result<()> {
    on(ClusterKind::OpenSearchSecure)
}

#[test]
fn elasticsearch_9() -> Result<()> {
    on(ClusterKind::Elasticsearch)
}

#[test]
fn elasticsearch_9_with_tls_and_basic_auth() -> Result<()> {
    on(ClusterKind::ElasticsearchSecure)
}

#[test]
fn elasticsearch_8() -> Result<()> {
    on(ClusterKind::Elasticsearch8)
}

#[test]
fn elasticsearch_7() -> Result<()> {
    on(ClusterKind::Elasticsearch7)
}
