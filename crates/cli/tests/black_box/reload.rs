//! The file changes while the gateway runs: what is then in force, and that unaffected clients notice
//! nothing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testkit::client::Client;
use testkit::fake::FakeCluster;

use crate::gateway::{Gateway, PATIENCE, body, cluster, free_address as free, replace_text};

/// A gateway with a file that changes.
struct Changing {
    gateway: Gateway,
    cluster: FakeCluster,
    file: PathBuf,
    _directory: tempfile::TempDir,
}

impl Changing {
    /// Starts a gateway with these entries, and with `more` in the file.
    fn with(entries: &str, more: &str) -> Self {
        let (cluster, directory) = (cluster(), tempfile::tempdir().unwrap());
        let file = directory.path().join("tidegate.yml");
        std::fs::write(&file, text(&cluster, entries, more)).unwrap();
        let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
        gateway.wait_until("the topology is known", |status| status["state"] == "watching");
        Self {
            gateway,
            cluster,
            file,
            _directory: directory,
        }
    }

    /// Writes the file and waits until it is in force.
    fn change(&self, entries: &str, more: &str) {
        self.write(entries, more, "configuration reloaded");
    }

    /// Writes the file and waits until it has been refused. Returns what the log says.
    fn change_in_vain(&self, entries: &str, more: &str) -> String {
        self.write(entries, more, "configuration not reloaded")
    }

    fn write(&self, entries: &str, more: &str, wanted: &str) -> String {
        let since = self.gateway.log().len();
        replace_text(&self.file, &text(&self.cluster, entries, more));
        self.said(since, wanted)
    }

    /// Waits for a log line after this much of the log.
    fn said(&self, since: usize, wanted: &str) -> String {
        let began = Instant::now();
        loop {
            let log = self.gateway.log();
            if let Some(line) = log[since..].lines().find(|line| line.contains(wanted)) {
                return line.to_owned();
            }
            assert!(began.elapsed() < PATIENCE, "{wanted}: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn shown(&self) -> String {
        self.gateway.admin().get("/config").unwrap().text()
    }
}

fn text(cluster: &FakeCluster, entries: &str, more: &str) -> String {
    format!(
        "admin: {{binding: '127.0.0.1:0'}}
router: [{{name: r, default_flow: f}}, {{name: other, default_flow: whole}}]
flow:
  - {{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: c, mode: sync}}}}, {{elasticsearch: {{elasticsearch: c}}}}]}}
  - {{name: whole, filter: [{{elasticsearch: {{elasticsearch: c}}}}]}}
elasticsearch: [{{name: c, endpoint: '{}'}}]
entry:
{entries}
{more}
",
        cluster.urls()[0]
    )
}

fn entry(name: &str, binding: SocketAddr, more: &str) -> String {
    format!("  - {{name: {name}, router: r, network: {{binding: '{binding}'}}{more}}}\n")
}

/// Sends a request for this path over a kept connection. Returns the answer's first line, or nothing if there
/// is no answer.
fn ask(socket: &mut TcpStream, path: &str) -> String {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    if socket.write_all(request.as_bytes()).is_err() {
        return String::new();
    }
    let mut answer = vec![0; 64 << 10];
    let count = socket.read(&mut answer).unwrap_or_default();
    let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
    answer.lines().next().unwrap_or_default().to_owned()
}

fn post(address: SocketAddr) -> u16 {
    let client = Client::new(&format!("http://{address}")).unwrap();
    client.post_ndjson("/_bulk", body(3).as_bytes()).unwrap().status
}

#[test]
fn requests_are_counted_by_flow_and_a_reload_keeps_the_counts() {
    let one = free();
    let first = entry("one", one, "");
    let changing = Changing::with(&first, "");
    let counts = || {
        let admin = changing.gateway.admin();
        let stats: serde_json::Value = admin.get("/stats").unwrap().json().unwrap();
        let of = |flow: &str| stats["flows"][flow]["requests"].as_u64().unwrap();
        (of("f"), of("whole"))
    };
    assert_eq!(counts(), (0, 0));
    (0..3).for_each(|_| assert_eq!(post(one), 200));
    assert_eq!(counts(), (3, 0));
    changing.change(&first.replace("router: r,", "router: other,"), "");
    assert_eq!(post(one), 200);
    assert_eq!(counts(), (3, 1));
    let metrics = changing.gateway.admin().get("/metrics").unwrap().text();
    assert!(
        metrics.contains("tidegate_flow_requests_total{flow=\"f\"} 3\n"),
        "{metrics}"
    );
}

#[test]
fn documents_and_what_passes_whole_are_counted_by_the_flow_that_has_taken_them() {
    let one = free();
    let changing = Changing::with(&entry("one", one, ""), "");
    let stats = || -> serde_json::Value { changing.gateway.admin().get("/stats").unwrap().json().unwrap() };
    (0..3).for_each(|_| assert_eq!(post(one), 200));
    let client = Client::new(&format!("http://{one}")).unwrap();
    let passed = client.post_ndjson("/_bulk?filter_path=items", body(2).as_bytes());
    assert_eq!(passed.unwrap().status, 200);
    let told = stats();
    let (all, flow) = (&told["gateway"], &told["flows"]["f"]);
    assert_eq!((&flow["docs"], &all["docs"]), (&9.into(), &9.into()), "{told:#}");
    for name in [
        "docs_queued",
        "bulk_passed",
        "passed_because",
        "single_passed_because",
    ] {
        assert_eq!(flow[name], all[name], "{name}: {told:#}");
    }
    assert_eq!(flow["bulk_passed"], 1);
    assert_eq!(told["flows"]["whole"]["docs"], 0);
    let metrics = changing.gateway.admin().get("/metrics").unwrap().text();
    for line in [
        "flow_docs_total{flow=\"f\"} 9\n",
        "flow_bulk_passed_total{flow=\"f\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[test]
fn added_entries_are_opened_and_removed_ones_finish_what_they_have_in_flight() {
    let (one, two) = (free(), free());
    let changing = Changing::with(&entry("one", one, ""), "");
    changing.change(&(entry("one", one, "") + &entry("two", two, "")), "");
    assert_eq!((post(one), post(two)), (200, 200));

    let mut idle = TcpStream::connect(two).unwrap();
    assert!(ask(&mut idle, "/").contains(" 200 "));
    // A client may have its answer before the gateway has counted it.
    changing.gateway.wait_for_in_flight(two, 0);
    // The request in flight is answered when this test lets the nodes go on, and not at an unknown time.
    let in_flight = {
        let mut socket = TcpStream::connect(two).unwrap();
        (0..3).for_each(|node| changing.cluster.pause(node));
        std::thread::spawn(move || ask(&mut socket, "/logs/_count"))
    };
    changing.gateway.wait_for_in_flight(two, 1);
    changing.change(&entry("one", one, ""), "");
    let began = Instant::now();
    while TcpStream::connect(two).is_ok() {
        assert!(began.elapsed() < PATIENCE, "it still listens");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!in_flight.is_finished(), "it is still being answered");
    // No request was sent on this connection: requests before the end are still answered, by nodes that are
    // paused.
    assert_eq!(idle.read(&mut [0]).unwrap(), 0, "an idle connection ends");
    (0..3).for_each(|node| changing.cluster.resume(node));
    let answer = in_flight.join().unwrap();
    assert!(answer.contains(" 200 "), "{answer:?}");
    changing.said(0, "\"connections_cut\":0");
    assert_eq!(post(one), 200);
}

#[test]
fn an_entry_with_another_name_keeps_its_listener_and_its_connections() {
    let (one, two) = (free(), free());
    let changing = Changing::with(&(entry("one", one, "") + &entry("two", two, "")), "");
    let mut kept = [TcpStream::connect(one).unwrap(), TcpStream::connect(two).unwrap()];
    for socket in &mut kept {
        assert!(ask(socket, "/logs/_count").contains(" 200 "));
    }
    // One entry takes the other's name, and its other router with it.
    let renamed = entry("two", one, "").replace("router: r", "router: other") + &entry("x", two, "");
    changing.change(&renamed, "");
    for socket in &mut kept {
        assert!(ask(socket, "/logs/_count").contains(" 200 "));
    }
    let passed = changing.gateway.counter("forwarded");
    assert_eq!((post(one), post(two)), (200, 200));
    assert_eq!(
        changing.gateway.counter("forwarded"),
        passed + 1,
        "by the other router"
    );
    let stats = changing.gateway.admin().get("/stats").unwrap().json().unwrap();
    let addresses = |name: &str| stats["entries"][name]["address"].clone();
    assert_eq!(addresses("two"), one.to_string());
    assert_eq!(addresses("x"), two.to_string());
    assert_eq!(stats["entries"].as_object().unwrap().len(), 2);
}

#[test]
fn a_binding_that_moves_to_every_address_and_back_leaves_no_gap() {
    let one = free();
    let every = SocketAddr::from(([0, 0, 0, 0], one.port()));
    let changing = Changing::with(&entry("one", one, ""), "");
    let over = AtomicBool::new(false);
    let asked = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut asked = 0;
            while !over.load(Ordering::Relaxed) {
                // A connection that is being made at that very moment may be reset; the next one succeeds.
                let mut attempts = (0..2).map(|_| {
                    let socket = TcpStream::connect(one);
                    socket.map_or_else(
                        |error| error.to_string(),
                        |mut socket| ask(&mut socket, "/logs/_count"),
                    )
                });
                assert!(attempts.any(|answer| answer.contains(" 200 ")), "after {asked}");
                asked += 1;
            }
            asked
        });
        for binding in [every, one, every] {
            changing.change(&entry("one", binding, ""), "");
            std::thread::sleep(Duration::from_millis(100));
        }
        over.store(true, Ordering::Relaxed);
        client.join().unwrap()
    });
    assert!(asked > 5, "{asked}");
}

#[test]
fn other_limits_hold_for_the_next_request_on_a_connection_that_is_open() {
    let one = free();
    let changing = Changing::with(&entry("one", one, ""), "");
    let client = Client::new(&format!("http://{one}")).unwrap();
    let post = || client.post_ndjson("/_bulk", body(100).as_bytes()).unwrap().status;
    let accepted = || {
        let stats = changing.gateway.admin().get("/stats").unwrap().json().unwrap();
        stats["entries"]["one"]["accepted"].as_u64().unwrap()
    };
    assert_eq!(post(), 200);
    changing.change(&entry("one", one, ", max_request_body_size: 1kb"), "");
    assert_eq!(post(), 413);
    changing.change(
        &entry("one", one, ", max_request_body_size: 1mb, max_concurrency: 1"),
        "",
    );
    assert_eq!(post(), 200);
    let before = accepted();
    assert_eq!((post(), accepted()), (200, before), "on the same connection");
    // A connection that only waits gives its place to a new one.
    let made_room = || {
        let stats = changing.gateway.admin().get("/stats").unwrap().json().unwrap();
        stats["entries"]["one"]["made_room"].as_u64().unwrap()
    };
    assert_eq!(made_room(), 0);
    let mut second = TcpStream::connect(one).unwrap();
    assert_eq!(ask(&mut second, "/logs/_count"), "HTTP/1.1 200 OK");
    assert_eq!(made_room(), 1, "one too many");
}

#[test]
fn a_reload_that_cannot_listen_changes_nothing_and_says_where_to_mend_the_file() {
    let one = free();
    let changing = Changing::with(&entry("one", one, ""), "");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let two = taken.local_addr().unwrap();
    let entries = entry("one", one, ", max_request_body_size: 1kb")
        + &entry("three", free(), "")
        + &entry("two", two, "");
    let before = changing.shown();
    let told = changing.change_in_vain(&entries, "logging.level: debug");
    let place = format!(
        "{}:10:47: error: entry[2].network.binding: ",
        changing.file.display()
    );
    assert!(told.contains(&place), "{place} is not in {told}");
    assert!(
        told.contains(&two.to_string()) && told.contains("in use"),
        "{told}"
    );
    assert_eq!(changing.shown(), before);
    let client = Client::new(&format!("http://{one}")).unwrap();
    assert_eq!(
        client.post_ndjson("/_bulk", body(100).as_bytes()).unwrap().status,
        200
    );
    assert_eq!(
        changing.gateway.admin().get("/stats").unwrap().json().unwrap()["entries"]
            .as_object()
            .unwrap()
            .len(),
        1
    );

    // The same file is loaded once more when the address is free: it was not in force, so it is new.
    drop(taken);
    changing.change(&entries, "logging.level: debug");
    assert_eq!(post(two), 200);
    assert_eq!(
        client.post_ndjson("/_bulk", body(100).as_bytes()).unwrap().status,
        413
    );
}

#[test]
fn what_waits_for_a_restart_is_said_at_each_reload_and_what_does_not_is_in_force() {
    let one = free();
    let changing = Changing::with(&entry("one", one, ""), "logging.level: info");
    let gateway = &changing.gateway;
    let waits = |since: usize| {
        let log = gateway.log();
        let lines = log[since..].lines();
        lines.filter(|line| line.contains("waits for a restart")).count()
    };
    let since = gateway.log().len();
    let debug = "logging.level: debug\nworker: {count: 7, drain_timeout: 3s}";
    changing.change(&entry("one", one, ""), debug);
    assert_eq!(waits(since), 1);
    let told = changing.said(since, "waits for a restart");
    assert!(told.contains("\"key\":\"worker.count\",\"line\":11"), "{told}");
    assert!(!changing.shown().contains("count: 7"), "{}", changing.shown());
    // The file is compared with what is in force, not with the previous file.
    let since = gateway.log().len();
    changing.change(
        &entry("one", one, ""),
        &format!("{debug}\nlogging.slow_request: 1h"),
    );
    assert_eq!(waits(since), 1);
    assert_eq!(post(one), 200);
    changing.said(since, "\"level\":\"DEBUG\"");
    let since = gateway.log().len();
    changing.change(
        &entry("one", one, ""),
        "logging.level: info\nworker.drain_timeout: 2s",
    );
    assert_eq!(waits(since), 0);
    let since = gateway.log().len();
    assert_eq!(post(one), 200);
    assert!(
        !gateway.log()[since..].contains("\"level\":\"DEBUG\""),
        "{}",
        &gateway.log()[since..]
    );
    gateway.signal("TERM");
    let told = changing.said(since, "stopping");
    assert!(told.contains("\"deadline_s\":2"), "{told}");
}

#[test]
fn sighup_reads_the_file_even_where_changes_alone_do_not() {
    let one = free();
    let changing = Changing::with(&entry("one", one, ""), "configs.auto_reload: false");
    let two = free();
    let entries = entry("one", one, "") + &entry("two", two, "");
    let text = text(&changing.cluster, &entries, "configs.auto_reload: false");
    std::fs::write(&changing.file, text).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(TcpStream::connect(two).is_err());
    let since = changing.gateway.log().len();
    changing.gateway.signal("HUP");
    changing.said(since, "configuration reloaded");
    assert_eq!(post(two), 200);
}

#[test]
fn sighup_without_a_file_is_noted_and_ends_nothing() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    gateway.signal("HUP");
    let began = Instant::now();
    while !gateway
        .log()
        .contains("there is no configuration file to read again")
    {
        assert!(began.elapsed() < PATIENCE, "{}", gateway.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(gateway.bulk(&body(3)).status, 200);
}

/// Passes connections on to `node`, and counts them.
fn relay(node: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut node) = (client.unwrap(), TcpStream::connect(node).unwrap());
            counted.fetch_add(1, Ordering::Relaxed);
            let (mut back, mut to) = (node.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut client, &mut node);
                let _ = node.shutdown(std::net::Shutdown::Both);
            });
            std::thread::spawn(move || std::io::copy(&mut back, &mut to));
        }
    });
    (address, count)
}

#[test]
fn flows_that_come_to_the_same_keep_their_connections_to_nodes() {
    let cluster = cluster();
    let node = cluster.urls()[0]
        .strip_prefix("http://")
        .unwrap()
        .parse()
        .unwrap();
    let (address, connections) = relay(node);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.yml");
    let one = free();
    let text = format!(
        "admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: one, router: r, network: {{binding: '{one}'}}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{elasticsearch: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: 'http://{address}', discovery.enabled: false}}]
"
    );
    std::fs::write(&file, &text).unwrap();
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    let mut client = TcpStream::connect(one).unwrap();
    let mut asked = || assert!(ask(&mut client, "/logs/_count").contains(" 200 "));
    let reload = |text: &str| {
        let since = gateway.log().len();
        replace_text(&file, text);
        let began = Instant::now();
        while !gateway.log()[since..].contains("configuration reloaded") {
            assert!(began.elapsed() < PATIENCE, "{}", gateway.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    asked();
    let before = connections.load(Ordering::Relaxed);
    reload(&format!("{text}logging.slow_request: 1h\n"));
    asked();
    assert_eq!(connections.load(Ordering::Relaxed), before);
    reload(&text.replace("{elasticsearch: c}", "{elasticsearch: c, dial_timeout: 1s}"));
    asked();
    assert!(
        connections.load(Ordering::Relaxed) > before,
        "another flow has its own"
    );
}

#[test]
fn a_new_admin_token_is_asked_for_at_once() {
    let one = free();
    let changing = Changing::with(&entry("one", one, ""), "");
    let file = std::fs::read_to_string(&changing.file).unwrap();
    let since = changing.gateway.log().len();
    let guarded = file.replace(
        "binding: '127.0.0.1:0'}\nrouter",
        "binding: '127.0.0.1:0', token: t}\nrouter",
    );
    replace_text(&changing.file, &guarded);
    changing.said(since, "changed: admin.token");
    let admin = changing.gateway.admin();
    assert_eq!(admin.get("/health").unwrap().status, 401);
    let shown = [("authorization", "Bearer t")];
    assert_eq!(admin.send("GET", "/health", &shown, b"").unwrap().status, 200);
}
