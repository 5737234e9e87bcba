//! Hostile and broken clients, on raw sockets.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::gateway::{Gateway, body, cluster};
use crate::raw_node::RawNode;

/// Sends bytes, closes that side of the connection, and returns everything that came back.
pub(crate) fn exchange(gateway: &Gateway, request: &[u8]) -> String {
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.write_all(request).unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn post(headers: &str, body: &str) -> String {
    format!("POST /_bulk HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n{headers}\r\n{body}")
}

#[test]
fn ambiguous_framing_is_refused_in_the_clusters_error_shape_and_reaches_no_node() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let before = cluster.counts().docs;
    for headers in [
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "X: a\r\n b\r\nContent-Length: 5\r\n",
        "Content-Length : 5\r\n",
    ] {
        let answer = exchange(&gateway, post(headers, "12345").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400 "), "{headers:?}: {answer}");
        assert!(answer.contains("\"root_cause\""), "{headers:?}: {answer}");
        assert!(
            answer.to_lowercase().contains("connection: close"),
            "{headers:?}: {answer}"
        );
    }
    let twice = post(
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "0\r\n\r\n",
    );
    assert!(exchange(&gateway, twice.as_bytes()).starts_with("HTTP/1.1 501 "));
    let bad_chunk = post("Transfer-Encoding: chunked\r\n", "zz\r\nhello\r\n0\r\n\r\n");
    assert!(exchange(&gateway, bad_chunk.as_bytes()).starts_with("HTTP/1.1 400 "));
    assert_eq!(cluster.counts().docs, before);
    assert!(gateway.counter("refused") >= 9);
}

#[test]
fn a_body_that_breaks_on_its_way_through_is_the_clients_fault_and_no_nodes() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    for body in [
        "5\r\n{\"a\":\r\nzz\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX",
    ] {
        let request = format!(
            "POST /logs/_search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        );
        let answer = exchange(&gateway, request.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400 "), "{body:?}: {answer}");
        assert!(answer.contains("malformed chunk"), "{body:?}: {answer}");
    }
    assert_eq!(gateway.counter("exchanges_failed"), 0);
}

#[test]
fn a_wish_for_another_protocol_is_ignored_and_no_node_hears_of_it() {
    let node = RawNode::start();
    let gateway = node.gateway("", "");
    node.answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    for wish in [
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
        "Connection: X-Hop\r\nX-Hop: upgrade\r\nTE: trailers\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\n",
    ] {
        let request = format!("GET /t HTTP/1.0\r\n{wish}\r\n");
        let answer = exchange(&gateway, request.as_bytes());
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok"),
            "{answer}"
        );
        let head = node.heads().pop().unwrap().to_lowercase();
        for word in [
            "upgrade",
            "http2-settings",
            "connection",
            "x-hop",
            "te:",
            "keep-alive",
        ] {
            assert!(!head.contains(word), "{wish:?} reached the node: {head}");
        }
    }
}

#[test]
fn what_passes_keeps_its_accept_encoding_and_the_packed_answer_comes_as_it_is() {
    let node = RawNode::start();
    let gateway = node.gateway("", "");
    node.answer("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nzzzz");
    let request = "GET /t HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept-Encoding: gzip, br\r\nA: 1\r\nB: 2\r\n\r\n";
    let answer = exchange(&gateway, request.as_bytes());
    assert!(
        answer.contains("content-encoding: gzip\r\n") && answer.ends_with("zzzz"),
        "{answer}"
    );
    let head = node.heads().pop().unwrap();
    assert!(
        head.ends_with("\r\naccept-encoding: gzip, br\r\na: 1\r\nb: 2"),
        "{head}"
    );
}

#[test]
fn an_absolute_target_is_passed_on_in_origin_form() {
    let node = RawNode::start();
    let gateway = node.gateway("", "");
    node.answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let get = |target: &str, host: &str| {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        exchange(&gateway, request.as_bytes())
    };
    for (target, host) in [
        ("http://other/t", "a"),
        ("http://a:99?x=1", "a"),
        ("https://u:p@a/t", "a"),
    ] {
        let answer = get(target, host);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{target}: {answer}");
    }
    assert_eq!(node.heads().len(), 0, "two could read these differently");
    for (target, host, passed_on) in [
        ("http://a/t?x=1", "A", "/t?x=1"),
        ("https://a:99/t", "a:99", "/t"),
        ("http://a?x=1", "a:80", "/?x=1"),
    ] {
        let answer = get(target, host);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{target}: {answer}");
        let head = node.heads().pop().unwrap();
        assert!(
            head.starts_with(&format!("GET {passed_on} HTTP/1.1\r\nhost: 127.0.0.1:")),
            "{target}: {head}"
        );
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_its_body_has_written_nothing() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let body = body(100);
    let head = post(&format!("Content-Length: {}\r\n", body.len()), "");
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(&body.as_bytes()[..body.len() - 1]).unwrap();
    drop(socket);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!((cluster.counts().docs, cluster.counts().bulks), (0, 0));
}

#[test]
fn a_body_over_the_clusters_own_limit_is_refused_at_once() {
    let spec = testkit::fake::Spec {
        content_length_max: 10_000,
        ..testkit::fake::Spec::default()
    };
    let cluster = testkit::fake::FakeCluster::start(spec.index("logs", 6)).unwrap();
    let gateway = Gateway::before(&cluster);
    let answer = exchange(
        &gateway,
        post("Content-Length: 10001\r\nConnection: close\r\n", "").as_bytes(),
    );
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[test]
fn a_gzip_bomb_is_refused() {
    let spec = testkit::fake::Spec {
        content_length_max: 1_000_000,
        ..testkit::fake::Spec::default()
    };
    let cluster = testkit::fake::FakeCluster::start(spec.index("logs", 6)).unwrap();
    let gateway = Gateway::before(&cluster);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&vec![b' '; 50_000_000]).unwrap();
    let bomb = gzip.finish().unwrap();
    let headers = [
        ("content-type", "application/x-ndjson"),
        ("content-encoding", "gzip"),
    ];
    let answer = gateway.client().send("POST", "/_bulk", &headers, &bomb).unwrap();
    assert_eq!(answer.status, 413, "{}", answer.text());
    assert_eq!(cluster.counts().bulks, 0);
}

#[test]
fn a_packed_body_is_held_to_the_limit_of_the_entry_that_it_came_in_at() {
    let cluster = cluster();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.yml");
    let text = format!(
        "admin: {{binding: '127.0.0.1:0'}}
entry:
  - {{name: large, router: r, network: {{binding: '127.0.0.1:0'}}}}
  - {{name: small, router: r, network: {{binding: '127.0.0.1:0'}}, max_request_body_size: 2kb}}
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: c, mode: sync}}}}, {{elasticsearch: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}'}}]
",
        cluster.urls()[0]
    );
    std::fs::write(&file, text).unwrap();
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(body(100).as_bytes()).unwrap();
    let packed = gzip.finish().unwrap();
    assert!(
        packed.len() < 2_000 && body(100).len() > 4_000,
        "{}",
        packed.len()
    );
    let headers = [
        ("content-type", "application/x-ndjson"),
        ("content-encoding", "gzip"),
    ];
    let stats = gateway.admin().get("/stats").unwrap().json().unwrap();
    let status_at = |entry: &str| {
        let address = stats["entries"][entry]["address"].as_str().unwrap();
        let client = testkit::client::Client::new(&format!("http://{address}")).unwrap();
        client.send("POST", "/_bulk", &headers, &packed).unwrap().status
    };
    assert_eq!((status_at("large"), status_at("small")), (200, 413));
}

#[test]
fn a_body_of_unknown_length_that_is_read_for_its_names_is_held_to_the_limit_of_its_entry() {
    let cluster = cluster();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.yml");
    let text = format!(
        "admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}, max_request_body_size: 2kb}}]
router: [{{name: r, default_flow: f, rules: [{{method: ['*'], pattern: ['/of-others/*'], flow: [g]}}]}}]
flow:
  - {{name: f, filter: [{{elasticsearch: {{elasticsearch: c}}}}]}}
  - {{name: g, filter: [{{elasticsearch: {{elasticsearch: c}}}}]}}
elasticsearch: [{{name: c, endpoint: '{}'}}]
",
        cluster.urls()[0]
    );
    std::fs::write(&file, text).unwrap();
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    for (method, path) in [("POST", "/_mget"), ("PUT", "/_cluster/settings")] {
        for (bytes, too_large) in [(10, false), (3_000, true)] {
            let body = format!("{{{}}}", " ".repeat(bytes));
            let request = format!(
                "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
                 Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
                body.len()
            );
            let answer = exchange(&gateway, request.as_bytes());
            assert!(answer.starts_with("HTTP/1.1 "), "{path}: {answer}");
            assert_eq!(
                answer.starts_with("HTTP/1.1 413 "),
                too_large,
                "{path}, {bytes}: {answer}"
            );
        }
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let one = body(3);
    let request = post(&format!("Content-Length: {}\r\n", one.len()), &one);
    let last = "GET /_cluster/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = exchange(&gateway, format!("{request}{request}{last}").as_bytes());
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 3, "{answer}");
    assert!(answer.find("\"items\"").unwrap() < answer.find("cluster_name").unwrap());
}
