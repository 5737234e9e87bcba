//! A gateway shared with clients that hold memory or connections and give nothing in return.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::{Domain, Socket, Type};
use testkit::client::Client;
use testkit::fake::{FakeCluster, Fault, Injection, On, Spec, User};

use crate::gateway::{Gateway, PATIENCE, cluster};
use crate::home::GatewayHome;
use crate::memory::{large, peak_mib};

/// Starts a gateway with these settings of the entry and the workers, before a cluster.
fn gateway(cluster: &FakeCluster, entry: &str, worker: &str) -> (Gateway, tempfile::TempDir) {
    gateway_at(&cluster.urls()[0], entry, worker)
}

fn gateway_at(url: &str, entry: &str, worker: &str) -> (Gateway, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.yml");
    let text = format!(
        "path.data: '{}'
admin: {{binding: '127.0.0.1:0'}}
worker: {{count: 2{worker}}}
entry: [{{name: e, router: r, network: {{binding: '0.0.0.0:0'}}{entry}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: c, mode: sync}}}}, {{elasticsearch: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{url}'}}]
",
        folder.path().join("data").display(),
    );
    std::fs::write(&file, text).unwrap();
    let mut gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    gateway.address = SocketAddr::from((Ipv4Addr::LOCALHOST, gateway.address.port()));
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    (gateway, folder)
}

/// Connects from an address of this machine: each address is a peer of its own.
fn connect_from(last: u8, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let from = SocketAddr::from(([127, 0, 0, last], 0));
    socket.bind(&from.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    TcpStream::from(socket)
}

/// Declares a bulk of this many bytes, and sends the first of them.
fn begin_bulk(mut socket: TcpStream, declared: usize, sent: usize) -> TcpStream {
    let head = format!(
        "POST /_bulk HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nContent-Length: {declared}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(&vec![b' '; sent]).unwrap();
    socket
}

/// Sends a little of a body again and again, until told to stop or cut off. Returns what the gateway
/// answered.
fn trickle(mut socket: TcpStream, bytes: usize, every: Duration, stop: &AtomicBool) -> String {
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let mut answer = Vec::new();
    let mut some = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        match socket.read(&mut some) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&some[..count]),
            Err(_) => {}
        }
        if socket.write_all(&vec![b' '; bytes]).is_err() {
            break;
        }
        std::thread::sleep(every);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Tells threads to stop when the test ends, however it ends.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns a bulk of about this many bytes.
fn bulk_of(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 1_200);
    let padding = "x".repeat(1_000);
    let mut id = 0;
    while text.len() < bytes {
        text.push_str(&format!(
            "{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"p\":\"{padding}\"}}\n"
        ));
        id += 1;
    }
    text
}

/// Returns the longest of several exchanges, on this machine and with whatever else it does.
fn slowest_of(times: usize, exchange: impl Fn() -> Duration) -> Duration {
    (0..times).map(|_| exchange()).max().unwrap_or_default()
}

fn client(gateway: &Gateway) -> Client {
    Client::build(
        &format!("http://{}", gateway.address),
        None,
        Duration::from_secs(30),
    )
    .unwrap()
}

/// A client opens connections without end, and sends most of a large head on each.
#[test]
fn heads_that_do_not_end_take_no_memory_from_bodies() {
    let cluster = cluster();
    let (gateway, _folder) = gateway(&cluster, ", max_request_body_size: 20mb", ", body_memory: 32mb");
    let head = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}", "x".repeat(60_000));
    let begin = || {
        let mut socket = connect_from(2, gateway.address);
        // The gateway may have closed it by then.
        drop(socket.write_all(head.as_bytes()));
        socket
    };
    let mut open: Vec<TcpStream> = (0..800).map(|_| begin()).collect();
    let stop = AtomicBool::new(false);
    let bulk = bulk_of(3 << 20);
    std::thread::scope(|scope| {
        let _stops = StopAtEnd(&stop);
        scope.spawn(|| {
            for at in (0..800).cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                open[at] = begin();
            }
        });
        for _ in 0..5 {
            let answer = client(&gateway).post_ndjson("/_bulk", bulk.as_bytes()).unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    });
}

/// All of these heads together have less than bodies may take, so no other bound holds for them.
#[test]
fn heads_that_do_not_end_make_the_process_larger_by_a_bounded_amount() {
    let cluster = cluster();
    let (gateway, _folder) = gateway(&cluster, "", ", body_memory: 256mb");
    let connections = 3_000;
    let are_read = |accepted: u64| {
        let began = Instant::now();
        while entry_of(&gateway)["accepted"].as_u64() < Some(accepted) {
            assert!(began.elapsed() < PATIENCE, "{}", entry_of(&gateway));
            std::thread::sleep(Duration::from_millis(10));
        }
        // Each core comes to these after what had arrived before.
        for _ in 0..10 {
            assert_eq!(client(&gateway).get("/").unwrap().status, 200);
        }
    };
    let short = begin_heads(connections, 2, gateway.address);
    are_read(connections as u64);
    drop(short);
    let before = peak_mib(&gateway);
    let head = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}", "x".repeat(60_000));
    let begin = |_| {
        let mut socket = connect_from(2, gateway.address);
        // The gateway may have refused it by then.
        drop(socket.write_all(head.as_bytes()));
        socket
    };
    let long: Vec<TcpStream> = (0..connections).map(begin).collect();
    are_read(2 * connections as u64);
    let peak = peak_mib(&gateway);
    drop(long);
    // They may take 32 MiB, and have 172.
    assert!(peak < before + 110, "{peak} MiB, {before} MiB before");
}

#[test]
fn bodies_that_are_declared_and_trickle_take_no_memory_from_others() {
    let cluster = cluster();
    let (gateway, _folder) = gateway(&cluster, "", "");
    let stop = AtomicBool::new(false);
    let (bulk, search) = (
        bulk_of(3 << 20),
        format!("{{\"query\":{{}},\"p\":\"{}\"}}", "x".repeat(200_000)),
    );
    let client = client(&gateway);
    let exchange = || {
        let began = Instant::now();
        let answer = client.post_ndjson("/_bulk", bulk.as_bytes()).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = client.send(
            "POST",
            "/logs/_search",
            &[("content-type", "application/json")],
            search.as_bytes(),
        );
        assert_eq!(answer.unwrap().status, 200);
        began.elapsed()
    };
    let alone = slowest_of(6, exchange);
    std::thread::scope(|scope| {
        let _at_end = StopAtEnd(&stop);
        for (declared, sent) in [
            (100_000_000, 40_000),
            (8_000_000, 40_000),
            (100_000_000, 0),
            (8_000_000, 0),
            (8_000_000, 0),
            (4_000_000, 0),
            (2_000_000, 0),
        ] {
            let (socket, stop) = (
                begin_bulk(connect_from(1, gateway.address), declared, sent),
                &stop,
            );
            scope.spawn(move || trickle(socket, 200, Duration::from_millis(100), stop));
        }
        std::thread::sleep(Duration::from_millis(300));
        let slowest = slowest_of(12, exchange);
        stop.store(true, Ordering::Relaxed);
        assert!(
            slowest < Duration::from_secs(3) + 4 * alone,
            "the slowest took {slowest:?}, alone {alone:?}"
        );
    });
}

/// Users are known by their credentials, which the cluster has let in.
#[test]
fn a_user_has_one_share_of_the_memory_for_all_its_addresses() {
    let cluster = cluster_with_users(&["greedy", "modest"]);
    let place = GatewayHome::at(&[cluster.urls()[0].replace("http://", "http://u:p@")], "");
    let text = std::fs::read_to_string(&place.file).unwrap();
    let smaller = text.replace("router: r,", "router: r, max_request_body_size: 32mb,");
    std::fs::write(&place.file, smaller).unwrap();
    place.append("worker: {count: 2, body_memory: 64mb}\n");
    let gateway = place.start();
    for name in ["greedy", "modest"] {
        let client = client(&gateway).basic_auth(name, "p");
        let queued = client.post_ndjson("/_bulk", bulk_of(40_000).as_bytes());
        queued.unwrap().ok().unwrap();
    }
    greedy_is_refused_and_modest_is_served(&gateway, &GREEDY_AS_IT_IS_KNOWN);
    greedy_is_refused_and_modest_is_served(&gateway, &GREEDY_WITH_NEW_HEADERS);
}

/// In synchronous mode, the cluster is asked about a client once it has let the client's bulk in.
#[test]
fn a_user_has_one_share_of_the_memory_in_synchronous_mode_too() {
    let cluster = cluster_with_users(&["greedy", "modest", "third"]);
    let who = On::Exactly("/_plugins/_security/authinfo".to_owned());
    let counted = Fault::StatusIfHolds {
        text: "no question holds this".to_owned(),
        status: 500,
        body: String::new(),
    };
    cluster.inject(Injection::new(who, counted).always());
    let url = cluster.urls()[0].replace("http://", "http://u:p@");
    let (gateway, folder) = gateway_at(&url, ", max_request_body_size: 32mb", ", body_memory: 64mb");
    let wrong = client(&gateway).basic_auth("greedy", "wrong");
    let refused = wrong.post_ndjson("/_bulk", bulk_of(40_000).as_bytes()).unwrap();
    assert_eq!(refused.status, 401);
    // Where a node breaks off, the gateway answers 200, and nobody has said that the credentials are right.
    const BROKEN_OFF: u64 = 12;
    cluster.inject(Injection::bulk(Fault::CloseUnwritten).times(BROKEN_OFF as u32));
    let (until, mut answers) = (Instant::now() + PATIENCE, Vec::new());
    while answers.last() != Some(&401) {
        let answer = wrong.post_ndjson("/_bulk", bulk_of(40_000).as_bytes());
        answers.push(answer.unwrap().status);
        assert!(Instant::now() < until, "{answers:?}");
    }
    assert_eq!(answers.first(), Some(&200), "{answers:?}");
    // A stranger asks where users are told, and then each client itself does. One question is asked at a
    // time, so the last one says that those before have been answered.
    for (name, asked) in [("greedy", 2), ("modest", 3), ("third", 4)] {
        let client = client(&gateway).basic_auth(name, "p");
        let until = Instant::now() + PATIENCE;
        while cluster.struck() < BROKEN_OFF + asked {
            let answer = client.post_ndjson("/_bulk", bulk_of(40_000).as_bytes());
            answer.unwrap().ok().unwrap();
            assert!(Instant::now() < until, "{name}: {}", cluster.struck());
        }
    }
    greedy_is_refused_and_modest_is_served(&gateway, &GREEDY_AS_IT_IS_KNOWN);
    assert_eq!(
        cluster.struck(),
        BROKEN_OFF + 4,
        "nobody is asked about anybody twice"
    );
    let rights = folder.path().join("data/rights");
    assert!(!rights.exists(), "no queue needs it");
    greedy_is_refused_and_modest_is_served(&gateway, &GREEDY_WITH_NEW_HEADERS);
    strangers_make_room_for_modest(&gateway);
}

/// Starts a cluster whose users have the password `p`.
fn cluster_with_users(names: &[&str]) -> FakeCluster {
    let spec = Spec::default().index("logs", 6).basic_auth("u", "p");
    let may_write = |spec: Spec, name: &&str| spec.user(User::new(name, "p").may("logs*", &["index"]));
    FakeCluster::start(names.iter().fold(spec, may_write)).unwrap()
}

/// The headers of two bodies of the user `greedy`.
const GREEDY_AS_IT_IS_KNOWN: [&str; 2] = ["Authorization: Basic Z3JlZWR5OnA="; 2];
/// The same user, with headers and spellings that the gateway has not seen before. The cluster does not look
/// at them.
const GREEDY_WITH_NEW_HEADERS: [&str; 2] = [
    "Authorization: Basic Z3JlZWR5OnA=\r\nX-Proxy-User: somebody",
    "Authorization: basic  Z3JlZWR5OnA\r\nX-Proxy-Roles: else",
];
/// Checks that whoever sends these headers cannot hold more than one share from two addresses, before a
/// gateway with 64 MB of memory: 48 are for bodies, 24 for a user.
fn greedy_is_refused_and_modest_is_served(gateway: &Gateway, [first, second]: &[&str; 2]) {
    let modest = client(gateway).basic_auth("modest", "p");
    let begin = |last: u8, headers: &str, declared: usize| {
        let mut socket = connect_from(last, gateway.address);
        let head = format!(
            "POST /_bulk HTTP/1.1\r\nHost: x\r\n{headers}\r\n\
             Content-Type: application/x-ndjson\r\nContent-Length: {declared}\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(&[b' '; 100_000]).unwrap();
        socket
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _at_end = StopAtEnd(&stop);
        // It is not so slow that it would have to make room.
        let (held, stop) = (begin(2, first, 20 << 20), &stop);
        scope.spawn(move || trickle(held, 40_000, Duration::from_millis(20), stop));
        std::thread::sleep(Duration::from_millis(300));
        // Another user wants memory, too.
        let queued = modest.post_ndjson("/_bulk", bulk_of(1 << 20).as_bytes());
        queued.unwrap().ok().unwrap();
        let mut over = begin(3, second, 10 << 20);
        std::thread::sleep(Duration::from_millis(300));
        let answer = modest.post_ndjson("/_bulk", bulk_of(16 << 20).as_bytes());
        let answer = answer.unwrap();
        assert_eq!(answer.status, 200, "there is room for it: {}", answer.text());
        over.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut told = [0; 4096];
        let read = over.read(&mut told).unwrap();
        let told = String::from_utf8_lossy(&told[..read]);
        assert!(told.starts_with("HTTP/1.1 429 "), "{told}");
    });
}

/// Returns the bytes that bodies and answers take.
fn buffers(gateway: &Gateway) -> usize {
    let metrics = gateway.admin().get("/metrics").unwrap().text();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("tidegate_buffers_bytes "));
    line.unwrap().parse().unwrap()
}

/// Checks that two addresses with credentials that the cluster has not let in give back room that a user
/// waits for.
fn strangers_make_room_for_modest(gateway: &Gateway) {
    let modest = client(gateway).basic_auth("modest", "p");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _at_end = StopAtEnd(&stop);
        // greedy:1 and greedy:2
        let held = [(2, "Z3JlZWR5OjE="), (3, "Z3JlZWR5OjI=")].map(|(last, wrong)| {
            let mut socket = connect_from(last, gateway.address);
            let head = format!(
                "POST /_bulk HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {wrong}\r\n\
                 Content-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n",
                20 << 20
            );
            socket.write_all(head.as_bytes()).unwrap();
            socket.write_all(&[b' '; 100_000]).unwrap();
            let stop = &stop;
            scope.spawn(move || trickle(socket, 20_000, Duration::from_millis(20), stop))
        });
        let until = Instant::now() + PATIENCE;
        while buffers(gateway) < 40 << 20 {
            assert!(Instant::now() < until, "{}", gateway.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        let answer = modest.post_ndjson("/_bulk", bulk_of(16 << 20).as_bytes());
        let answer = answer.unwrap();
        assert_eq!(answer.status, 200, "they make room: {}", answer.text());
        stop.store(true, Ordering::Relaxed);
        let told = held.map(|held| held.join().unwrap());
        assert!(
            told.iter().any(|told| told.starts_with("HTTP/1.1 429 ")),
            "{told:?}"
        );
    });
}

#[test]
fn a_body_for_which_there_is_room_does_not_wait_behind_a_larger_one() {
    let cluster = cluster();
    let (gateway, _folder) = gateway(&cluster, ", max_request_body_size: 32mb", ", body_memory: 64mb");
    let (stop, first_stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let address = gateway.address;
    let small = bulk_of(5 << 20);
    // The time that it takes on this machine, with whatever else it does.
    let alone = slowest_of(3, || {
        let began = Instant::now();
        let answer = client(&gateway).post_ndjson("/_bulk", small.as_bytes());
        assert_eq!(answer.unwrap().status, 200);
        began.elapsed()
    });
    std::thread::scope(|scope| {
        let _at_end = (StopAtEnd(&stop), StopAtEnd(&first_stop));
        // This is 36 of the 40 MB that bodies may take, and not slow enough to have to give memory back.
        let held = begin_bulk(connect_from(1, address), 28 << 20, 100_000);
        let stop = &stop;
        scope.spawn(move || trickle(held, 40_000, Duration::from_millis(20), stop));
        let leaves = begin_bulk(connect_from(1, address), 8 << 20, 100_000);
        let leaving = &first_stop;
        scope.spawn(move || trickle(leaves, 10_000, Duration::from_millis(20), leaving));
        std::thread::sleep(Duration::from_millis(300));
        let large = bulk_of(24 << 20);
        let gateway = &gateway;
        scope.spawn(move || client(gateway).post_ndjson("/_bulk", large.as_bytes()));
        std::thread::sleep(Duration::from_millis(300));
        let began = Instant::now();
        let waits = scope.spawn(move || client(gateway).post_ndjson("/_bulk", small.as_bytes()).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        first_stop.store(true, Ordering::Relaxed);
        let answer = waits.join().unwrap();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(
            answer.status,
            200,
            "after {:?}: {}",
            began.elapsed(),
            answer.text()
        );
        assert!(
            began.elapsed() < Duration::from_secs(3) + 4 * alone,
            "{:?}, alone {alone:?}",
            began.elapsed()
        );
    });
}

#[test]
fn a_peer_with_many_bodies_leaves_room_for_another_peer() {
    let cluster = cluster();
    let (gateway, _folder) = gateway(&cluster, "", "");
    let stop = AtomicBool::new(false);
    let bulk = bulk_of(5 << 20);
    let client = client(&gateway);
    let exchange = || {
        let began = Instant::now();
        let answer = client.post_ndjson("/_bulk", bulk.as_bytes()).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        began.elapsed()
    };
    let alone = slowest_of(4, exchange);
    std::thread::scope(|scope| {
        let _at_end = StopAtEnd(&stop);
        // Each is faster than what counts as slow, so the gateway has to notice their number.
        for _ in 0..50 {
            let (socket, stop) = (
                begin_bulk(connect_from(2, gateway.address), 4 << 20, 1 << 20),
                &stop,
            );
            scope.spawn(move || trickle(socket, 15_000, Duration::from_millis(100), stop));
        }
        std::thread::sleep(Duration::from_millis(500));
        for round in 0..6 {
            let most = Duration::from_millis(if round == 0 { 4_000 } else { 1_500 }) + 4 * alone;
            let took = exchange();
            assert!(took < most, "round {round}: {took:?}, alone {alone:?}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn thousands_of_bodies_of_one_peer_that_wait_keep_no_other_peer_waiting() {
    beside_thousands_of_bodies(20_000);
}

#[test]
fn thousands_of_bodies_of_one_peer_that_stop_at_their_beginning_keep_no_other_peer_waiting() {
    beside_thousands_of_bodies(15_000);
}

/// Checks that a peer is served beside 3,000 connections of another one, each of which holds a read buffer
/// with the first bytes of its body.
fn beside_thousands_of_bodies(sent: usize) {
    let cluster = cluster();
    let (gateway, _folder) = gateway(&cluster, ", max_request_body_size: 24mb", ", body_memory: 48mb");
    let stop = AtomicBool::new(false);
    let bulk = bulk_of(1 << 20);
    let client = client(&gateway);
    let exchange = || {
        let began = Instant::now();
        let answer = client.post_ndjson("/_bulk", bulk.as_bytes()).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        began.elapsed()
    };
    let alone = slowest_of(4, exchange);
    std::thread::scope(|scope| {
        let _at_end = StopAtEnd(&stop);
        // These hold what one peer may hold, and are not slow.
        for _ in 0..2 {
            let (socket, stop) = (
                begin_bulk(connect_from(2, gateway.address), 16 << 20, 1 << 20),
                &stop,
            );
            scope.spawn(move || trickle(socket, 40_000, Duration::from_millis(100), stop));
        }
        let mut waiting: Vec<TcpStream> = (0..3_000)
            .map(|_| begin_bulk(connect_from(2, gateway.address), 8 << 20, sent))
            .collect();
        // The first finds a peer that holds more than its share, which is noticed after a second.
        exchange();
        let slowest = slowest_of(10, exchange);
        let most = Duration::from_millis(1_500) + 4 * alone;
        assert!(slowest < most, "the slowest took {slowest:?}, alone {alone:?}");
        // Most of them find no place to wait, and are told to come again.
        let (mut refused, mut answer) = (0, [0; 1024]);
        for socket in &mut waiting {
            socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
            let count = socket.read(&mut answer).unwrap_or_default();
            let answer = String::from_utf8_lossy(&answer[..count]);
            if answer.starts_with("HTTP/1.1 429") {
                assert!(answer.to_lowercase().contains("retry-after: 1"), "{answer}");
                assert!(answer.contains("circuit_breaking_exception"), "{answer}");
                refused += 1;
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(refused > 2_000, "{refused} of 3,000");
    });
}

/// Many clients behind one address, as behind a balancer: each finds a place, since each keeps little more
/// than the 16 KiB for which a body gets room.
#[test]
fn hundreds_of_bodies_of_an_address_that_is_alone_all_find_a_place_to_wait() {
    let cluster = cluster();
    let (gateway, _folder) = gateway(&cluster, ", max_request_body_size: 24mb", ", body_memory: 48mb");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _at_end = StopAtEnd(&stop);
        for _ in 0..2 {
            let socket = begin_bulk(connect_from(1, gateway.address), 16 << 20, 1 << 20);
            let stop = &stop;
            scope.spawn(move || trickle(socket, 40_000, Duration::from_millis(100), stop));
        }
        // A body waits for five seconds at most. A machine that is too busy to tell in time tries again.
        let refused = (0..5).find_map(|_| {
            let began = Instant::now();
            let mut waiting: Vec<TcpStream> = (0..270)
                .map(|_| begin_bulk(connect_from(1, gateway.address), 8 << 20, 40_000))
                .collect();
            std::thread::sleep(Duration::from_millis(300));
            let mut answer = [0; 12];
            let refused = waiting.iter_mut().filter(|socket| {
                socket.set_nonblocking(true).unwrap();
                (&**socket).read(&mut answer).is_ok()
            });
            let refused = refused.count();
            (began.elapsed() < Duration::from_secs(4)).then_some(refused)
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!(refused, Some(0), "of 270");
    });
}

/// Begins heads, and never ends them.
fn begin_heads(count: usize, from: u8, to: SocketAddr) -> Vec<TcpStream> {
    let begin = |_| {
        let mut socket = connect_from(from, to);
        let _ = socket.write_all(b"GET / HTTP/1.1\r\nHost: local");
        socket
    };
    (0..count).map(begin).collect()
}

#[test]
fn connections_that_trickle_do_not_keep_health_checks_from_the_admin_port() {
    let cluster = cluster();
    let (gateway, _folder) = gateway(&cluster, "", "");
    let mut held = begin_heads(400, 1, gateway.admin);
    for round in 0..20 {
        for socket in held.iter_mut().rev().take(130) {
            let _ = socket.write_all(b"h"); // sockets that are closed by now fail
        }
        let began = Instant::now();
        let admin = Client::build(
            &format!("http://{}", gateway.admin),
            None,
            Duration::from_secs(30),
        )
        .unwrap();
        let health = admin
            .get("/health")
            .unwrap_or_else(|error| panic!("round {round}: {error:#}"));
        assert_eq!(health.status, 200);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        held.extend(begin_heads(10, 1, gateway.admin));
    }
}

/// Returns what the admin port says about the entry.
fn entry_of(gateway: &Gateway) -> Value {
    let stats = gateway.admin().get("/stats").unwrap().json().unwrap();
    stats["entries"]["e"].clone()
}

#[test]
fn whoever_trickles_heads_does_not_keep_others_out_of_an_entry() {
    let cluster = cluster();
    let (gateway, _folder) = gateway(&cluster, ", max_concurrency: 50, header_timeout: 60s", "");
    for from in [1, 2] {
        let before = entry_of(&gateway);
        let _held = begin_heads(200, from, gateway.address);
        // During the burst a new connection may be turned away. Nobody has to wait for the end of the burst,
        // but its length depends on the speed of the machine.
        let began = Instant::now();
        let came =
            |entry: &Value| entry["accepted"].as_u64().unwrap() + entry["turned_away"].as_u64().unwrap();
        while came(&entry_of(&gateway)) < came(&before) + 200
            || entry_of(&gateway)["connections"].as_u64() > Some(50)
        {
            assert!(began.elapsed() < PATIENCE, "{}", entry_of(&gateway));
            std::thread::sleep(Duration::from_millis(10));
        }
        let trickles = begin_bulk(connect_from(from, gateway.address), 1 << 20, 100);
        for _ in 0..10 {
            let bulk = || client(&gateway).post_ndjson("/_bulk", bulk_of(1).as_bytes());
            let answer = bulk().or_else(|_| bulk()).or_else(|_| bulk()).unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        drop(trickles);
    }
    let entry = entry_of(&gateway);
    // How many connections come while there is no room depends on the speed of the machine.
    assert!(entry["made_room"].as_u64() > Some(100), "{entry}");
}

#[test]
fn a_peer_with_many_connections_does_not_drive_out_one_with_few() {
    let cluster = cluster();
    let (gateway, _folder) = gateway(&cluster, ", max_concurrency: 50", "");
    let kept = client(&gateway);
    assert_eq!(kept.get("/").unwrap().status, 200);
    let mut socket = connect_from(1, gateway.address);
    let mut held = Vec::new();
    for _ in 0..5 {
        held.extend(begin_heads(60, 2, gateway.address));
        let request = b"GET /_cluster/health HTTP/1.1\r\nHost: x\r\n\r\n";
        socket.write_all(request).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut answer = [0; 4096];
        let count = socket.read(&mut answer).unwrap();
        assert!(
            answer[..count].starts_with(b"HTTP/1.1 200"),
            "its connection is kept"
        );
    }
}

/// Returns the longest time that a small bulk took while another client's bulk of many tiny actions was under
/// way, and how long that one took. The gateway has one core.
fn wait_beside_many_actions(place: &GatewayHome, target: &str, actions: usize) -> (Duration, Duration) {
    place.append("worker: {count: 1}\n");
    let gateway = place.start();
    let delete = |n| format!("{{\"delete\":{{\"_index\":\"logs\",\"_id\":\"{n}\"}}}}\n");
    let many: String = (0..actions).map(delete).collect();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let large = scope.spawn(|| {
            let began = Instant::now();
            let answer = client(&gateway).post_ndjson(target, many.as_bytes());
            ended.store(true, Ordering::Relaxed);
            assert_eq!(answer.unwrap().status, 200);
            began.elapsed()
        });
        let (small, mut longest) = (client(&gateway), Duration::ZERO);
        while !ended.load(Ordering::Relaxed) {
            let began = Instant::now();
            let line = "{\"index\":{\"_index\":\"logs\",\"_id\":\"a\"}}\n{}\n";
            assert_eq!(small.post_ndjson("/_bulk", line.as_bytes()).unwrap().status, 200);
            longest = longest.max(began.elapsed());
            std::thread::sleep(Duration::from_millis(2));
        }
        (longest, large.join().unwrap())
    })
}

/// Shaping the answer once took seven eighths of all the time, and nobody else on the core got a turn
/// meanwhile.
#[test]
fn an_answer_of_many_items_that_is_filtered_holds_up_nobody_on_its_core() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3)).unwrap();
    // A busy machine may hold up anybody once.
    let mut tries = Vec::new();
    let held_up_nobody = (0..3).any(|_| {
        let place = GatewayHome::before(&[&cluster], "");
        let (longest, all) = wait_beside_many_actions(&place, "/_bulk?filter_path=errors", 200_000);
        tries.push((longest, all));
        longest < all / 2
    });
    assert!(held_up_nobody, "the longest, of all: {tries:?}");
}

/// Returns an entry's client that waits long enough for the slowest answers here.
fn patient(gateway: &Gateway) -> Client {
    let url = format!("http://{}", gateway.address);
    Client::build(&url, None, Duration::from_secs(120)).unwrap()
}

#[test]
fn answers_to_many_short_documents_take_no_more_memory_than_is_configured() {
    let cluster = cluster();
    let (gateway, _folder) = gateway(&cluster, ", max_request_body_size: 8mb", ", body_memory: 48mb");
    let before = peak_mib(&gateway);
    let bulk = "{\"index\":{}}\n{\"a\":1}\n".repeat(20_000);
    let done = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..40)
            .map(|_| {
                scope.spawn(|| {
                    let answer = patient(&gateway)
                        .post_ndjson("/logs/_bulk", bulk.as_bytes())
                        .unwrap();
                    assert!([200, 429].contains(&answer.status), "{}", answer.status);
                    let text = answer.text();
                    assert!(
                        answer.status == 429 || text.contains("\"errors\":false"),
                        "{}",
                        &text[..200]
                    );
                    usize::from(answer.status == 200)
                })
            })
            .collect();
        clients.into_iter().map(|one| one.join().unwrap()).sum::<usize>()
    });
    let peak = peak_mib(&gateway);
    assert!(done >= 4, "{done} of 40 were executed");
    assert!(
        peak < before + 120,
        "{peak} MiB, {before} MiB before 40 answers of 8 MB, each from several nodes"
    );
}

#[test]
fn an_answer_for_which_there_is_no_memory_leaves_its_documents_in_doubt_and_they_are_written_once() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3).storing()).unwrap();
    let (gateway, _folder) = gateway(&cluster, ", max_request_body_size: 8mb", ", body_memory: 32mb");
    cluster.inject(Injection::bulk(Fault::Bloated(64 << 10)).always());
    let before = peak_mib(&gateway);
    let bulk = large("logs", "d", 3_000, 0);
    let answer = patient(&gateway).post_ndjson("/_bulk", bulk.as_bytes()).unwrap();
    let items = answer.json().unwrap()["items"].as_array().unwrap().clone();
    assert_eq!((answer.status, items.len()), (200, 3_000));
    for item in &items {
        assert_eq!(item["index"]["status"], 503);
        let reason = item["index"]["error"]["reason"].as_str().unwrap();
        assert!(
            reason.contains("may or may not") && reason.contains("memory"),
            "{reason}"
        );
    }
    let peak = peak_mib(&gateway);
    assert!(
        peak < before + 100,
        "{peak} MiB, {before} MiB before answers of 190 MiB"
    );
    let documents = cluster.docs("logs");
    assert_eq!(documents.len(), 3_000);
    assert!(
        documents.values().all(|one| one.version == 1),
        "each was sent once"
    );
    cluster.behave();
    let again = patient(&gateway).post_ndjson("/_bulk", bulk.as_bytes()).unwrap();
    assert!(
        again.text().contains("\"errors\":false"),
        "the memory is free again"
    );
}
