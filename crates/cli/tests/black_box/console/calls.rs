//! Calls to clusters: which are sent, and which are refused.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::Sender;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::fake::{FakeCluster, Spec};

use super::process::Console;

#[test]
fn a_call_reaches_its_cluster_and_its_answer_comes_back_as_it_is() {
    let cluster = FakeCluster::start(Spec::default().storing()).unwrap();
    let console = Console::start(&[]).set_up();
    let id = console.register(json!({"name": "prod", "endpoints": cluster.urls()}));
    let made = console.call(&id, "PUT", "/logs/_doc/1", Some(r#"{"a": 1}"#));
    assert_eq!(
        (made.status, &made.json["status"]),
        (200, &json!(201)),
        "{}",
        made.text
    );
    let found = console.call(&id, "get", "/logs/_doc/1?filter_path=_source", None);
    assert_eq!(found.json["body"], r#"{"_source":{"a":1}}"#, "{}", found.text);
    assert!(
        found.json["headers"]["content-type"]
            .as_str()
            .unwrap()
            .contains("json")
    );
    assert_eq!(found.json["truncated"], false);
    let missing = console.call(&id, "GET", "/logs/_doc/2", None);
    assert_eq!((missing.status, &missing.json["status"]), (200, &json!(404)));
    let writing = console.get("/api/audit?limit=1");
    assert_eq!(
        writing.json["entries"][0]["what"], "PUT /logs/_doc/1",
        "what writes is noted, what reads is not"
    );
    assert!(!writing.text.contains(r#"\"a\""#), "and the document is not");
    assert_eq!(console.call("nowhere", "GET", "/", None).status, 404);
}

#[test]
fn only_paths_methods_and_headers_of_a_cluster_go_out() {
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    let console = Console::start(&[]).set_up();
    let id = console.register(json!({"name": "prod", "endpoints": cluster.urls()}));
    for path in [
        "http://127.0.0.1:1/",
        "//127.0.0.1:1/",
        "/a/../_bulk",
        "/a/%2e%2e/b",
        "logs",
        "/a b",
        "/a\r\nb: c",
    ] {
        let refused = console.call(&id, "GET", path, None);
        assert_eq!(refused.status, 400, "{path}: {}", refused.text);
    }
    assert_eq!(console.call(&id, "CONNECT", "/", None).status, 400);
    let with_header = |name: &str| {
        let call = json!({"method": "GET", "path": "/", "headers": {name: "x"}});
        console.post(&format!("/api/clusters/{id}/call"), &call).status
    };
    assert_eq!(
        (
            with_header("X-Opaque-Id"),
            with_header("Authorization"),
            with_header("Host")
        ),
        (200, 400, 400)
    );
}

#[test]
fn a_read_only_cluster_is_not_written_to() {
    let cluster = FakeCluster::start(Spec::default().storing()).unwrap();
    let console = Console::start(&[]).set_up();
    let id = console.register(json!({"name": "prod", "endpoints": cluster.urls(), "read_only": true}));
    let document = r#"{"a": 1}"#;
    for (method, path) in [
        ("PUT", "/logs/_doc/1"),
        ("POST", "/_bulk"),
        ("POST", "/logs/_delete_by_query"),
        ("POST", "/logs/%5fdelete_by_query"),
        ("DELETE", "/logs"),
        ("PUT", "/_index_template/t"),
        ("GET", "/logs/_refresh"),
        ("PUT", "/_cluster/settings"),
    ] {
        let refused = console.call(&id, method, path, Some(document));
        assert_eq!(
            (refused.status, &refused.json["error"]["type"]),
            (403, &json!("read_only")),
            "{method} {path}"
        );
    }
    let read = console.call(
        &id,
        "POST",
        "/logs/_search",
        Some(r#"{"query": {"match_all": {}}}"#),
    );
    assert_eq!(read.status, 200, "{}", read.text);
    assert_eq!(cluster.counts().writes + cluster.counts().docs, 0);
}

#[test]
fn a_protected_cluster_is_written_to_by_who_types_the_name_and_says_why() {
    let cluster = FakeCluster::start(Spec::default().storing()).unwrap();
    let console = Console::start(&[]).set_up();
    let id = console.register(json!({"name": "prod", "endpoints": cluster.urls(), "protected": true}));
    let call = |path: &str, confirm: Value| {
        let body = r#"{"a": 1}"#;
        let call = json!({"method": "PUT", "path": path, "body": body, "confirm": confirm});
        console.post(&format!("/api/clusters/{id}/call"), &call)
    };
    let asked = call("/logs/_doc/1", Value::Null);
    assert_eq!(
        (asked.status, &asked.json["confirm"]["index"]),
        (409, &json!("logs"))
    );
    assert_eq!(asked.json["error"]["type"], "confirm");
    assert_eq!(
        call("/logs/_doc/1", json!({"index": "log", "reason": "because"})).status,
        409
    );
    assert_eq!(
        call("/logs/_doc/1", json!({"index": "logs", "reason": "  "})).status,
        409
    );
    assert_eq!(cluster.counts().writes, 0);
    assert_eq!(
        call("/logs/_doc/1", json!({"index": "logs", "reason": "a repair"})).json["status"],
        201
    );
    assert_eq!(
        console.get("/api/audit?limit=1").json["entries"][0]["reason"],
        "a repair"
    );
    let whole = call("/_cluster/settings", Value::Null);
    assert_eq!(
        whole.json["confirm"]["index"], "prod",
        "what is about no index is about the cluster"
    );
    assert_eq!(
        console.call(&id, "GET", "/logs/_doc/1", None).json["status"],
        200,
        "reading needs no word"
    );
}

#[test]
fn a_call_that_is_given_up_ends_at_the_cluster() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let tell = tell.clone();
            std::thread::spawn(move || hang_or_answer(stream.unwrap(), &tell));
        }
    });
    let console = Console::start(&[]).set_up();
    let id = console.register(json!({"name": "prod", "endpoints": [url]}));
    let within = Duration::from_secs(30);
    std::thread::scope(|scope| {
        let giving_up = scope.spawn(|| console.give_up_call(&id, "/slow/_search"));
        assert_eq!(told.recv_timeout(within), Ok("asked"));
        giving_up.join().unwrap();
    });
    assert_eq!(told.recv_timeout(within), Ok("gone"));
    assert_eq!(console.call(&id, "GET", "/", None).json["status"], 200);
}

/// Runs a node that answers everything but `/slow`: it reports when that is asked for, and when the caller is
/// gone.
fn hang_or_answer(mut stream: TcpStream, tell: &Sender<&'static str>) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        if buffer[..read].starts_with(b"GET /slow/") {
            tell.send("asked").unwrap();
            assert_eq!(stream.read(&mut buffer).unwrap_or(0), 0, "nothing more is sent");
            tell.send("gone").unwrap();
            return;
        }
        let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(answer).unwrap();
    }
}

#[test]
fn a_cluster_that_is_away_is_told_as_such() {
    let console = Console::start(&[]).set_up();
    let id = console.register(json!({"name": "prod", "endpoints": ["http://127.0.0.1:9"]}));
    let told = console.call(&id, "GET", "/", None);
    assert_eq!(told.status, 502);
    assert!(
        told.json["error"]["reason"]
            .as_str()
            .unwrap()
            .contains("connect failed"),
        "{}",
        told.text
    );
}

#[test]
fn tabs_and_names_are_there_for_the_editor() {
    let cluster = FakeCluster::start(Spec::default().index("logs-1", 1).index("logs-2", 1)).unwrap();
    cluster.alias("everything", &["logs-1"]);
    let console = Console::start(&[]).set_up();
    let id = console.register(json!({"name": "prod", "endpoints": cluster.urls()}));
    let names = |kind: &str, prefix: &str| {
        let told = console.get(&format!("/api/clusters/{id}/names?kind={kind}&prefix={prefix}"));
        assert_eq!(told.status, 200, "{}", told.text);
        told.json["names"].clone()
    };
    assert_eq!(names("index", "logs-"), json!(["logs-1", "logs-2"]));
    assert_eq!(names("index", "logs-2"), json!(["logs-2"]));
    assert_eq!(names("alias", "every"), json!(["everything"]));
    assert_eq!(
        console
            .get(&format!("/api/clusters/{id}/names?kind=secret"))
            .status,
        400
    );
    // The console asks only once a minute, besides its polls.
    let asks_nothing = (0..5).any(|_| {
        let requests = cluster.counts().requests;
        let _ = names("index", "l");
        cluster.counts().requests - requests < 5
    });
    assert!(asks_nothing);
    assert_eq!(console.get("/api/tabs").json["tabs"], json!([]));
    let tabs =
        json!({"tabs": [{"id": "1", "title": "one", "cluster_id": id, "text": "GET /"}], "active": "1"});
    assert_eq!(console.put("/api/tabs", &tabs).status, 200);
    assert_eq!(console.get("/api/tabs").json, tabs);
    assert_eq!(console.put("/api/tabs", &json!({"tabs": [5]})).status, 400);
}
