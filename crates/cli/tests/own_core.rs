//! Requests that pass, or are split, stay on the core of their connection: they write nothing that other
//! cores read or write for their requests. Each place that does write such state says so to `wire::shared`,
//! in builds with debug assertions; these tests send requests to two cores and look at what was touched.

#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use config::Config;
use gateway::Gateway;
use parking_lot::Mutex;
use testkit::client::Client;
use testkit::fake::{FakeCluster, Spec};

/// The counts are those of the process, so only one test at a time has a gateway.
static ALONE: Mutex<()> = Mutex::new(());

const CORES: usize = 2;
/// The requests of each kind that each core gets.
const REQUESTS: usize = 1_000;

/// A request that is sent again and again.
struct Kind {
    method: &'static str,
    path: &'static str,
    body: String,
}

/// A gateway in this process, on two cores.
struct Started {
    _gateway: Gateway,
    _cluster: FakeCluster,
    _folder: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
    address: SocketAddr,
}

fn start(combine: bool) -> Started {
    let cluster = FakeCluster::start(Spec::default().index("logs", 6)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.yml");
    let text = format!(
        "path.data: '{}'
worker: {{count: {CORES}}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow:
  - name: f
    filter:
      - bulk_reshuffle: {{elasticsearch: c, mode: sync, combine: {{enabled: {combine}}}}}
      - elasticsearch: {{elasticsearch: c}}
elasticsearch: [{{name: c, endpoint: '{}'}}]
",
        folder.path().join("data").display(),
        cluster.urls()[0]
    );
    std::fs::write(&file, text).unwrap();
    let loaded = Config::load(&file).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let entered = runtime.enter();
    let gateway = Gateway::start(&loaded).unwrap();
    assert!(runtime.block_on(gateway.learnt(Duration::from_secs(60))));
    let address = gateway.entries()[0].1;
    drop(entered);
    Started {
        _gateway: gateway,
        _cluster: cluster,
        _folder: folder,
        _runtime: runtime,
        address,
    }
}

/// Bulks of this many documents with ids, so that each has a node.
fn bulk(docs: usize, filling: usize) -> String {
    let (mut body, filling) = (String::new(), "x".repeat(filling));
    for id in 0..docs {
        writeln!(body, r#"{{"index":{{"_index":"logs","_id":"{id}"}}}}"#).unwrap();
        writeln!(body, r#"{{"filling":"{filling}"}}"#).unwrap();
    }
    body
}

fn send(client: &Client, kind: &Kind) {
    let headers = [("content-type", "application/x-ndjson")];
    let answer = client.send(kind.method, kind.path, &headers, kind.body.as_bytes());
    answer.unwrap().ok().unwrap();
}

/// Sends requests on one connection for each core, and returns what the cores have touched meanwhile. The
/// first requests do not count: they find pools and caches empty.
fn touched(address: SocketAddr, kind: &Kind, requests: usize) -> BTreeMap<&'static str, u64> {
    let all_there = std::sync::Barrier::new(CORES + 1);
    std::thread::scope(|scope| {
        let clients = (0..CORES).map(|_| {
            scope.spawn(|| {
                let client = Client::new(&format!("http://{address}")).unwrap();
                // The acceptor gives a connection to the core with the fewest.
                send(&client, kind);
                all_there.wait();
                (0..20).for_each(|_| send(&client, kind));
                all_there.wait();
                all_there.wait();
                (0..requests).for_each(|_| send(&client, kind));
            })
        });
        let clients: Vec<_> = clients.collect();
        all_there.wait();
        all_there.wait();
        let before = wire::shared::by_cores();
        all_there.wait();
        clients.into_iter().for_each(|client| client.join().unwrap());
        let mut touched = wire::shared::by_cores();
        for (state, count) in before {
            *touched.entry(state).or_default() -= count;
        }
        touched.retain(|_, count| *count > 0);
        touched
    })
}

#[test]
fn a_request_touches_nothing_that_another_core_uses() {
    let _alone = ALONE.lock();
    let started = start(false);
    let get = |path| Kind {
        method: "GET",
        path,
        body: String::new(),
    };
    let post = |path, body| Kind {
        method: "POST",
        path,
        body,
    };
    let kinds = [
        ("passes", get("/logs/_search")),
        ("passes with a small body", post("/logs/_search", "{}".to_owned())),
        (
            "passes with a large body",
            post("/logs/_search", format!("{{\"x\":\"{}\"}}", "x".repeat(60_000))),
        ),
        ("is split", post("/_bulk", bulk(20, 10))),
        ("is split, and large", post("/_bulk", bulk(300, 300))),
        (
            "is planned, and passes",
            post(
                "/_bulk",
                bulk(100, 200).replace("\"_id\"", "\"pipeline\":\"stamps\",\"_id\""),
            ),
        ),
    ];
    for (name, kind) in &kinds {
        let mut touched = touched(started.address, kind, REQUESTS);
        // Time passes: pools give back idle memory and get it anew, what is known of a client is looked up
        // each second, and a node may look slow or the topology change on a busy machine.
        let now_and_then = ["memory in use", "rights of clients", "snapshot of a cluster"];
        touched.retain(|state, count| !now_and_then.contains(state) || *count > REQUESTS as u64 / 20);
        assert!(touched.is_empty(), "a request that {name}: {touched:?}");
    }
}

/// Parts of bulks from all cores gather, so they are behind locks: as many as `docs/adr/0007` says.
#[test]
fn only_parts_that_may_gather_meet_those_of_other_cores() {
    let _alone = ALONE.lock();
    let started = start(true);
    let kind = Kind {
        method: "POST",
        path: "/_bulk",
        body: bulk(20, 10),
    };
    let touched = touched(started.address, &kind, REQUESTS);
    let requests = (CORES * REQUESTS) as u64;
    let count = |state| touched.get(state).copied().unwrap_or_default();
    assert_eq!(count("families of parts"), requests);
    assert_eq!(count("room for bodies"), 0);
}
