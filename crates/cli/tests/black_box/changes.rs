//! `/changes` and `tidegate changes`: what becomes different is told, in order, once, and to who may know it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::client::{Answer, Client};
use testkit::fake::{Fault, Injection};

use crate::admin_tls::{self, Certificates, configured, tls};
use crate::gateway::{Gateway, PATIENCE, body, cluster, program, replace_text};
use crate::home::{GatewayHome, wait};
use crate::parked::{docs, two_indices};
use crate::terminal::at_a_terminal;

/// A client of the stream.
pub(crate) struct Stream {
    lines: BufReader<TcpStream>,
    /// The changes so far.
    seen: Vec<Value>,
}

impl Stream {
    /// Asks for the stream with these header lines. Returns the answer's status as well.
    pub(crate) fn ask(address: SocketAddr, target: &str, headers: &[&str]) -> (u16, Self) {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let head =
            format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{headers}\r\n");
        socket.write_all(head.as_bytes()).unwrap();
        let mut stream = Self {
            lines: BufReader::new(socket),
            seen: Vec::new(),
        };
        let status = stream.line().unwrap();
        let status = status.split(' ').nth(1).unwrap().parse().unwrap();
        while !stream.line().unwrap().is_empty() {}
        (status, stream)
    }

    /// Follows from now on; returns once nothing can be missed.
    pub(crate) fn follow(address: SocketAddr) -> Self {
        let (status, mut stream) = Self::ask(address, "/changes", &[]);
        assert_eq!(status, 200);
        assert_eq!(stream.next().unwrap()["kind"], "begin");
        stream
    }

    /// Returns the next line, without its end; `None` if the connection ends.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line);
        (read.unwrap() > 0).then(|| line.trim_end().to_owned())
    }

    /// Returns the next change; `None` if the connection ends.
    pub(crate) fn next(&mut self) -> Option<Value> {
        let (mut id, began) = (None, Instant::now());
        loop {
            // Heartbeats come all the time.
            assert!(
                began.elapsed() < 2 * PATIENCE,
                "nothing more than {:#?}",
                self.seen
            );
            let line = self.line()?;
            if let Some(number) = line.strip_prefix("id: ") {
                id = Some(number.parse::<u64>().unwrap());
            }
            // Other lines are the lengths of chunks, heartbeats, and empty.
            if let Some(data) = line.strip_prefix("data: ") {
                let change: Value = serde_json::from_str(data).unwrap();
                assert_eq!(change["id"].as_u64(), id, "{change}");
                self.seen.push(change.clone());
                return Some(change);
            }
        }
    }

    /// Waits for a change that has these fields.
    pub(crate) fn until(&mut self, wanted: &Value) -> Value {
        let began = Instant::now();
        loop {
            let is_over = began.elapsed() > 2 * PATIENCE;
            let Some(change) = self.next().filter(|_| !is_over) else {
                panic!("no {wanted} in {:#?}", self.seen);
            };
            if has(&change, wanted) {
                return change;
            }
        }
    }
}

fn has(change: &Value, wanted: &Value) -> bool {
    let mut wanted = wanted.as_object().unwrap().iter();
    wanted.all(|(field, value)| change[field] == *value)
}

/// Asks for changes in one answer.
fn asked(gateway: &Gateway, query: &str) -> Value {
    let answer = let_in(|| gateway.admin().get(&format!("/changes?{query}")));
    answer.unwrap().ok().unwrap().json().unwrap()
}

/// A question that takes a follower's place, and is answered at once, since there has been a change.
const FOR_A_MOMENT: &str = "/changes?since=0&wait_s=1";

/// Asks until there is room: a question that only looks whether there is some takes it for a moment.
fn let_in(ask: impl Fn() -> anyhow::Result<Answer>) -> anyhow::Result<Answer> {
    loop {
        let answer = ask();
        if !answer.as_ref().is_ok_and(|answer| answer.status == 503) {
            return answer;
        }
    }
}

fn post(gateway: &Gateway, path: &str, body: &str) {
    let headers = [("content-type", "application/yaml"), ("x-actor", "ada")];
    let answer = gateway.admin().send("POST", path, &headers, body.as_bytes());
    answer.unwrap().ok().unwrap();
}

fn reasons(change: &Value) -> String {
    change["text"].as_str().unwrap().to_owned()
}

#[test]
fn nodes_clusters_topologies_and_readiness_are_told_as_they_change() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let mut stream = Stream::follow(gateway.admin);
    cluster.create_index("more", 2);
    let topology = stream.until(&json!({"kind": "topology"}));
    assert_eq!(
        (&topology["level"], &topology["indices_split"]),
        (&json!("info"), &json!(2))
    );
    cluster.kill(1);
    gateway.bulk(&body(30)).ok().unwrap();
    let down = stream.until(&json!({"kind": "node", "what": "down"}));
    let name = gateway.topology()["nodes"][1]["name"].clone();
    assert_eq!(
        (&down["node"], &down["level"], &down["up"]),
        (&name, &json!("error"), &json!(false))
    );
    assert!(reasons(&down).contains(name.as_str().unwrap()), "{down}");
    cluster.restart(1).unwrap();
    stream.until(&json!({"kind": "node", "what": "up", "node": name, "level": "good"}));
    (0..3).for_each(|node| cluster.kill(node));
    stream.until(&json!({"kind": "cluster", "state": "unreachable", "level": "error"}));
    let (mut ready, mut watching) = (false, false);
    (0..3).for_each(|node| cluster.restart(node).unwrap());
    while !(ready && watching) {
        let change = stream.next().unwrap();
        ready |= has(&change, &json!({"kind": "readiness", "ready": true}));
        watching |= has(&change, &json!({"kind": "cluster", "state": "watching"}));
    }
    let not_ready = json!({"kind": "readiness", "ready": false, "level": "error"});
    let not_ready = stream.seen.iter().find(|change| has(change, &not_ready)).unwrap();
    assert!(
        not_ready["reasons"][0].as_str().unwrap().contains("cluster"),
        "{not_ready}"
    );
    cluster.rebuild();
    stream.until(&json!({"kind": "cluster", "what": "rebuilt", "level": "warning"}));
    // Ids increase by one, and no change says what the one before it said.
    for pair in stream.seen.windows(2) {
        assert_eq!(
            pair[0]["id"].as_u64().unwrap() + 1,
            pair[1]["id"].as_u64().unwrap()
        );
    }
}

#[test]
fn pauses_dead_letters_parked_keys_and_pipelines_are_told_as_they_change() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let mut stream = Stream::follow(gateway.admin);
    let of = |kind: &str| json!({"kind": kind, "queue": "q", "group": "c0"});
    let with = |kind: &str, field: &str, value: Value| {
        let mut wanted = of(kind);
        wanted[field] = value;
        wanted
    };
    let error = r#"{"type":"cluster_block_exception","reason":"index [blocked] blocked by: [FORBIDDEN/8/index write (api)];"}"#;
    cluster.refuse_writes("blocked", Some((403, error)));
    gateway.bulk(&docs("blocked", 3, 1)).ok().unwrap();
    let parked = stream.until(&with("parked", "documents", json!(3)));
    assert_eq!(
        (&parked["keys"][0]["key"], &parked["level"]),
        (&json!("index:blocked"), &json!("warning"))
    );
    assert!(reasons(&parked).contains("index write (api)"), "{parked}");
    cluster.refuse_writes("blocked", None);
    stream.until(&with("parked", "documents", json!(0)));

    let error = r#"{"type": "document_parsing_exception", "reason": "failed to parse"}"#.to_owned();
    let refused = Fault::Items {
        every: 1,
        status: 400,
        error,
    };
    cluster.inject(Injection::bulk(refused).always());
    gateway.bulk(&docs("good", 2, 1)).ok().unwrap();
    stream.until(&with("dead_letters", "documents", json!(2)));
    cluster.behave();

    let unauthorized = Fault::Status {
        status: 401,
        body: r#"{"error":{"type":"security_exception","reason":"unable to authenticate"},"status":401}"#
            .to_owned(),
    };
    cluster.inject(Injection::bulk(unauthorized).always());
    gateway.bulk(&docs("good", 2, 2)).ok().unwrap();
    let waits = stream.until(&with("waits", "paused", json!(true)));
    assert_eq!(waits["level"], "error");
    assert!(reasons(&waits).contains("unable to authenticate"), "{waits}");
    assert!(
        reasons(&parked).contains("has 3 documents parked for c0, for 1 key: index:blocked"),
        "{parked}"
    );
    cluster.behave();
    stream.until(&with("waits", "waits", json!([])));

    post(&gateway, "/pipeline/p0/_stop?wait_s=10", "");
    let stopped = stream.until(&with("group", "state", json!("stopped")));
    assert_eq!(stopped["pipeline"], "p0");
    post(&gateway, "/pipeline/p0/_start", "");
    stream.until(&with("group", "state", json!("running")));
    wait(&gateway, "c0", |one| one["pending"] == 0);
}

#[test]
fn a_full_queue_is_told_and_that_it_accepts_again() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], ", max_size: 256kb");
    let gateway = place.start();
    let mut stream = Stream::follow(gateway.admin);
    let down = Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::bulk(down).always());
    while gateway.bulk(&body(500)).status == 200 {}
    let refuses =
        stream.until(&json!({"kind": "queue", "queue": "q", "accepts": false, "reason": "max_size"}));
    assert!(refuses["why"].is_string(), "{refuses}");
    cluster.behave();
    stream.until(&json!({"kind": "queue", "queue": "q", "accepts": true, "level": "good"}));
}

#[test]
fn configurations_and_switches_are_told_as_they_change_without_secrets() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let mut stream = Stream::follow(gateway.admin);
    let switches = json!({"combine.enabled": true});
    gateway
        .admin()
        .put("/switches/c0", &switches)
        .unwrap()
        .ok()
        .unwrap();
    let switched = stream.until(&json!({"kind": "switches", "cluster": "c0"}));
    assert!(
        switched["switches"]
            .as_str()
            .unwrap()
            .contains("combine.enabled=true")
    );

    let text = std::fs::read_to_string(&place.file).unwrap();
    let version = |gateway: &Gateway| {
        let file = gateway.admin().get("/config/_file").unwrap().json().unwrap();
        file["version"].as_str().unwrap().to_owned()
    };
    let apply = |text: &str| {
        let path = format!("/config/_apply?version={}&within_s=60", version(&gateway));
        post(&gateway, &path, text);
    };
    let second = text.clone()
        + &format!(
            "  - {{name: c9, endpoint: '{}', basic_auth: {{username: u, password: open-sesame-9}}}}\n",
            cluster.urls()[0]
        );
    apply(&second);
    let applied = stream.until(&json!({"kind": "applied", "state": "unconfirmed", "actor": "ada"}));
    assert!(applied["changes"].as_str().unwrap().contains("c9"), "{applied}");
    stream.until(&json!({"kind": "cluster", "cluster": "c9", "what": "added"}));
    post(&gateway, "/config/_revert", "");
    stream.until(&json!({"kind": "applied", "state": "reverted"}));
    apply(&second);
    post(&gateway, "/config/_confirm", "");
    stream.until(&json!({"kind": "applied", "state": "confirmed", "level": "good"}));
    let told = stream
        .seen
        .iter()
        .filter(|change| change["kind"] == "configuration");
    assert!(told.count() >= 2, "{:#?}", stream.seen);

    replace_text(&place.file, "entry: [");
    gateway.signal("HUP");
    stream.until(&json!({"kind": "configuration", "in_force": false, "level": "error"}));
    replace_text(&place.file, &second);
    gateway.signal("HUP");
    stream.until(&json!({"kind": "configuration", "in_force": true}));
    let all = json!(stream.seen).to_string();
    assert!(!all.contains("open-sesame-9"), "{all}");
}

#[test]
fn who_comes_back_gets_what_it_has_missed_once_or_is_told_that_it_cannot() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let now = asked(&gateway, "");
    assert_eq!((&now["changes"], &now["more"]), (&json!([]), &json!(false)));
    let since = now["next"].as_u64().unwrap();
    // Nobody is connected meanwhile.
    for interval in [30, 31, 32] {
        let switch = json!({"combine.interval": format!("{interval}ms")});
        gateway
            .admin()
            .put("/switches/c0", &switch)
            .unwrap()
            .ok()
            .unwrap();
        let told = |since: u64| asked(&gateway, &format!("since={since}&wait_s=30"));
        let last = now["next"].as_u64().unwrap() + interval - 30;
        assert_eq!(told(last)["changes"][0]["id"], last + 1);
    }
    let read = |mut stream: Stream, until: u64| {
        while stream.next().unwrap()["id"].as_u64().unwrap() < until {}
        let ids = stream.seen.iter().map(|change| change["id"].as_u64().unwrap());
        ids.collect::<Vec<_>>()
    };
    let last = since + 3;
    let target = format!("/changes?since={since}");
    assert_eq!(
        read(Stream::ask(gateway.admin, &target, &[]).1, last),
        [since + 1, since + 2, last]
    );
    // A browser repeats the first URL, and says how far it was in a header.
    let header = format!("Last-Event-ID: {}", since + 2);
    assert_eq!(
        read(Stream::ask(gateway.admin, &target, &[&header]).1, last),
        [last]
    );
    for (query, headers) in [
        ("?since=x", &[][..]),
        ("", &["Last-Event-ID: x"]),
        ("?wait_s=1", &[]),
        ("?no=1", &[]),
    ] {
        let (status, _) = Stream::ask(gateway.admin, &format!("/changes{query}"), headers);
        assert_eq!(status, 400, "{query}");
    }
    // An id of the future, and the gateway's next life.
    let unknown = asked(&gateway, &format!("since={}", last + 1_000_000));
    assert_eq!(
        (&unknown["changes"][0]["kind"], &unknown["changes"][0]["reason"]),
        (&json!("missed"), &json!("unknown"))
    );
    drop(gateway);
    let gateway = place.start();
    let (_, mut stream) = Stream::ask(gateway.admin, &format!("/changes?since={last}"), &[]);
    let missed = stream.next().unwrap();
    assert_eq!(
        (&missed["kind"], &missed["reason"]),
        (&json!("missed"), &json!("restarted"))
    );
    assert!(missed["id"].as_u64().unwrap() > last, "{missed}");
}

#[test]
fn an_answer_waits_for_a_change_and_no_longer_than_it_was_told() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let began = Instant::now();
    let none = asked(&gateway, "wait_s=1");
    assert_eq!(none["changes"], json!([]));
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    let since = none["next"].as_u64().unwrap();
    let waiting = std::thread::scope(|scope| {
        let waits = scope.spawn(|| asked(&gateway, &format!("since={since}&wait_s=60")));
        cluster.create_index("more", 2);
        waits.join().unwrap()
    });
    assert_eq!(waiting["changes"][0]["kind"], "topology", "{waiting:#}");
    assert_eq!(waiting["next"], waiting["changes"][0]["id"]);
}

#[test]
fn a_seventeenth_follower_is_refused_until_one_leaves() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let mut streams: Vec<_> = (0..16).map(|_| Stream::follow(gateway.admin)).collect();
    assert_eq!(Stream::ask(gateway.admin, "/changes", &[]).0, 503);
    let refused = gateway.admin().get("/changes?wait_s=1").unwrap();
    let said = refused.text();
    assert!(
        refused.status == 503 && said.contains("16 clients follow the changes already"),
        "{said}"
    );
    // Everything else is answered, also who asks for changes without waiting; those who follow get what
    // there is.
    gateway.topology();
    for query in ["", "?since=0", "?wait_s=0"] {
        let answer = gateway.admin().get(&format!("/changes{query}")).unwrap();
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    }
    streams.pop();
    let began = Instant::now();
    while Stream::ask(gateway.admin, "/changes", &[]).0 == 503 {
        assert!(began.elapsed() < PATIENCE, "the one that left still counts");
    }
    cluster.create_index("more", 2);
    for stream in &mut streams {
        stream.until(&json!({"kind": "topology"}));
    }
}

/// Opens a stream and reads nothing of it, with little room for what is not read.
fn stalled(address: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut socket = TcpStream::from(socket);
    socket
        .write_all(b"GET /changes HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        .unwrap();
    socket
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_nobody_waits_for_it() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let mut stalled = stalled(gateway.admin);
    let mut reads = Stream::follow(gateway.admin);
    let text = std::fs::read_to_string(&place.file).unwrap();
    // Each reload adds or removes 150 clusters, which is a change for each.
    let filler: String = (0..150)
        .map(|n| {
            format!(
                "  - {{name: {}{n}, endpoint: 'http://127.0.0.1:9', discovery: {{enabled: false}}}}\n",
                "c".repeat(200)
            )
        })
        .collect();
    let began = Instant::now();
    let mut is_long = true;
    while !gateway.log().contains("a client is cut off") {
        assert!(began.elapsed() < 6 * PATIENCE, "{}", gateway.log());
        let more = if is_long { filler.as_str() } else { "" };
        replace_text(&place.file, &format!("{text}{more}"));
        gateway.signal("HUP");
        let what = if is_long { "added" } else { "removed" };
        reads.until(&json!({"kind": "cluster", "cluster": format!("{}149", "c".repeat(200)), "what": what}));
        is_long = !is_long;
    }
    // The connection is closed, and what had been sent until then was little.
    let mut got = Vec::new();
    stalled.set_read_timeout(Some(PATIENCE)).unwrap();
    let ends = stalled.read_to_end(&mut got);
    assert!(
        ends.as_ref().map_or_else(
            |error| error.kind() == std::io::ErrorKind::ConnectionReset,
            |_| true
        ),
        "{ends:?}"
    );
    assert!(got.len() < 200_000, "{}", got.len());
}

#[test]
fn a_stream_needs_a_token_and_ends_when_the_token_does() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let text = std::fs::read_to_string(&place.file).unwrap();
    let with = |tokens: &str| {
        let admin = format!("admin: {{binding: '127.0.0.1:0', tokens: [{tokens}]}}");
        replace_text(
            &place.file,
            &text.replace("admin: {binding: '127.0.0.1:0'}", &admin),
        );
    };
    let ops = "{name: ops, token: may-act-9, right: operate}";
    with(&format!(
        "{{name: watch, token: only-looks-9, right: read}}, {ops}"
    ));
    let gateway = Gateway::start(&["--config", place.file.to_str().unwrap()]);
    let bearer = |token: &str| format!("Authorization: Bearer {token}");
    for headers in [&[][..], &[&*bearer("something-else")]] {
        assert_eq!(Stream::ask(gateway.admin, "/changes", headers).0, 401);
    }
    let post = [("authorization", "Bearer only-looks-9")];
    let answer = gateway.admin().send("POST", "/changes", &post, b"{}").unwrap();
    assert_eq!(answer.status, 403);
    let (status, mut reads) = Stream::ask(gateway.admin, "/changes", &[&bearer("only-looks-9")]);
    assert_eq!(status, 200);
    let (status, mut operates) = Stream::ask(gateway.admin, "/changes", &[&bearer("may-act-9")]);
    assert_eq!(status, 200);
    for stream in [&mut reads, &mut operates] {
        assert_eq!(stream.next().unwrap()["kind"], "begin");
    }
    with(ops);
    gateway.signal("HUP");
    let end = reads.until(&json!({"kind": "end"}));
    assert!(end["why"].as_str().unwrap().contains("token"), "{end}");
    // Nothing that happened since the token ended is in it.
    let kinds: Vec<_> = reads.seen.iter().map(|change| change["kind"].clone()).collect();
    assert_eq!(kinds, ["begin", "end"]);
    while let Some(line) = reads.line() {
        assert!(["", "0"].contains(&&*line), "{line}");
    }
    operates.until(&json!({"kind": "configuration"}));
}

#[test]
fn a_gateway_that_stops_ends_its_streams_and_says_so() {
    let cluster = cluster();
    let mut gateway = Gateway::before(&cluster);
    let mut streams: Vec<_> = (0..15).map(|_| Stream::follow(gateway.admin)).collect();
    let since = streams[0].seen[0]["id"].as_u64().unwrap();
    let told = std::thread::scope(|scope| {
        let waits = scope.spawn(|| asked(&gateway, &format!("since={since}&wait_s=60")));
        // It is the last one that is let in.
        let began = Instant::now();
        while gateway.admin().get(FOR_A_MOMENT).unwrap().status != 503 {
            assert!(began.elapsed() < PATIENCE, "{}", gateway.log());
        }
        gateway.signal("TERM");
        waits.join().unwrap()
    });
    // It has an end, or the change before it.
    let last = told["changes"].as_array().unwrap().last().unwrap().clone();
    assert!(
        ["end", "readiness"].contains(&last["kind"].as_str().unwrap()),
        "{told:#}"
    );
    for stream in &mut streams {
        let end = stream.until(&json!({"kind": "end"}));
        assert_eq!(end["why"], "the gateway stops");
        while let Some(line) = stream.line() {
            assert!(["", "0"].contains(&&*line), "{line}");
        }
    }
    assert!(gateway.wait().success());
}

#[test]
fn a_stream_under_tls_is_one_too_and_ends_with_the_connections_of_before() {
    let (cluster, certificates) = (cluster(), Certificates::of(&["port"]));
    let clear = ", tls: {enabled: false}";
    let secured = tls(&certificates, "port", "");
    let gateway = admin_tls::start(&configured(&certificates, &cluster, clear));
    let mut in_clear = Stream::follow(gateway.admin);
    configured(&certificates, &cluster, &secured);
    gateway.signal("HUP");
    let end = in_clear.until(&json!({"kind": "end"}));
    assert_eq!(end["why"], "the TLS of this port has changed");
    while let Some(line) = in_clear.line() {
        assert!(["", "0"].contains(&&*line), "{line}");
    }
    let ca = certificates.file("port.pem");
    let client = Client::trusting(&format!("https://{}", gateway.admin), &ca).unwrap();
    let accept = [("accept", "text/html, text/event-stream;q=0.9")];
    let told = std::thread::scope(|scope| {
        let stream = scope.spawn(|| let_in(|| client.send("GET", "/changes", &accept, b"")));
        // All are let in once the next one is not.
        let began = Instant::now();
        let waits = || let_in(|| client.get("/changes?wait_s=60"));
        let others: Vec<_> = (0..15).map(|_| scope.spawn(waits)).collect();
        while client.get(FOR_A_MOMENT).unwrap().status != 503 {
            assert!(began.elapsed() < PATIENCE, "{}", gateway.log());
        }
        configured(&certificates, &cluster, clear);
        gateway.signal("HUP");
        others.into_iter().for_each(|waits| drop(waits.join()));
        stream.join().unwrap().unwrap().text()
    });
    assert!(told.starts_with("retry: 2000\n\nid: "), "{told}");
    assert!(
        told.contains("\"kind\":\"begin\"") && told.contains("\"why\":\"the TLS of this port has changed\""),
        "{told}"
    );
}

/// `tidegate changes` with these arguments.
fn command(gateway: &Gateway, more: &[&str]) -> Command {
    let mut command = Command::new(program());
    command
        .args(["changes", "--admin", &format!("http://{}", gateway.admin)])
        .args(more);
    command
}

/// A running command, and its output line by line.
struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn until(&mut self, text: &str) -> String {
        let mut seen = Vec::new();
        for line in self.lines.by_ref().map_while(Result::ok) {
            if line.contains(text) {
                return line;
            }
            seen.push(line);
        }
        panic!("no `{text}` in {seen:#?}");
    }

    /// Interrupts it, and returns its status and what it said of itself.
    fn stop(mut self) -> (Option<i32>, String) {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-s", "INT", &pid]).status();
        assert!(told.unwrap().success());
        let mut said = String::new();
        let mut errors = self.child.stderr.take().unwrap();
        errors.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

#[test]
fn the_command_prints_a_line_each_goes_on_after_a_restart_and_ends_with_the_usual_statuses() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let admin = crate::gateway::free_address();
    let text = std::fs::read_to_string(&place.file).unwrap();
    replace_text(&place.file, &text.replacen("127.0.0.1:0", &admin.to_string(), 1));
    let mut gateway = place.start();
    let since = asked(&gateway, "")["next"].as_u64().unwrap().to_string();
    let switch = |gateway: &Gateway, interval: &str| {
        let switch = json!({"combine.interval": interval});
        gateway
            .admin()
            .put("/switches/c0", &switch)
            .unwrap()
            .ok()
            .unwrap();
    };
    let mut running = Running::start(command(&gateway, &["--since", &since]));
    switch(&gateway, "31ms");
    let line = running.until("switches");
    let words: Vec<&str> = line.split("  ").filter(|word| !word.is_empty()).collect();
    assert!(words[0].ends_with('Z') && !line.contains('\x1b'), "{line}");
    assert_eq!(words[1].trim(), "switches", "{line}");
    assert!(words[2].contains("combine.interval=31ms"), "{line}");
    // It is followed through a restart.
    gateway.signal("TERM");
    running.until("the gateway stops");
    assert!(gateway.wait().success());
    let gateway = place.start();
    running.until("missed");
    switch(&gateway, "32ms");
    running.until("combine.interval=32ms");
    let (status, said) = running.stop();
    assert_eq!(status, Some(130), "{said}");
    assert!(
        said.contains("it is asked again until it answers") && said.contains("the gateway answers again"),
        "{said}"
    );

    let json = command(&gateway, &["--since", "0", "--json", "--seconds", "1"])
        .output()
        .unwrap();
    assert_eq!(json.status.code(), Some(0), "{json:?}");
    for line in String::from_utf8(json.stdout).unwrap().lines() {
        let change: Value = serde_json::from_str(line).unwrap();
        assert!(change["id"].is_u64() && change["kind"].is_string(), "{line}");
    }
    let none = command(&gateway, &["--seconds", "1"]).output().unwrap();
    assert_eq!((none.status.code(), none.stdout), (Some(1), Vec::new()));
    let wrong = command(&gateway, &["--seconds", "0"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let line = format!(
        "{} changes --admin http://{} --since 0 --seconds 1",
        program().display(),
        gateway.admin
    );
    let (status, told) = at_a_terminal(&line, "");
    assert_eq!(status, Some(0), "{told}");
    assert!(told.contains("\x1b[33mmissed"), "{told}");
    drop(gateway);
    // That the changes of another life are not known is told, and is no change.
    let gateway = place.start();
    wait(&gateway, "c0", |one| one["pending"] == 0);
    let missed = command(&gateway, &["--since", "0", "--seconds", "1"])
        .output()
        .unwrap();
    let told = String::from_utf8(missed.stdout).unwrap();
    assert_eq!(
        (missed.status.code(), told.lines().count()),
        (Some(1), 1),
        "{told}"
    );
    assert!(told.contains("missed"), "{told}");
    drop(gateway);
    let mut away = Command::new(program());
    away.args(["changes", "--admin", &format!("http://{admin}")]);
    let away = away.output().unwrap();
    assert_eq!(away.status.code(), Some(3), "{away:?}");
}
