//! What passes through whole.

use crate::gateway::{Gateway, body, cluster};

#[test]
fn a_malformed_bulk_is_worded_by_the_cluster_and_writes_nothing() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let broken = format!("{}{{\"nonsense\"\n{{}}\n", body(10));
    let through = gateway.bulk(&broken);
    let direct = testkit::client::Client::new(&cluster.urls()[0]).unwrap();
    let direct = direct.post_ndjson("/_bulk", broken.as_bytes()).unwrap();
    assert_eq!(through.status, direct.status);
    assert_eq!(through.text(), direct.text());
    assert_eq!(gateway.counter("bulk_passed"), 1);
    assert_eq!(gateway.counter("bulk_requests"), 0);
}

#[test]
fn each_reason_to_pass_by_the_head_is_counted() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let client = gateway.client();
    let ndjson = ("content-type", "application/x-ndjson");
    let send = |path: &str, headers: &[(&str, &str)]| {
        client.send("POST", path, headers, body(2).as_bytes()).unwrap();
    };
    send("/_bulk?pretty", &[ndjson]);
    send("/_bulk?filter_path=items", &[ndjson]);
    send("/a,b/_bulk", &[ndjson]);
    send("/_bulk", &[("content-type", "application/cbor")]);
    send("/_bulk", &[ndjson, ("accept", "application/yaml")]);
    send("/logs/_doc/_bulk", &[ndjson]);
    for (why, count) in [
        ("url_parameter", 2),
        ("url_index", 1),
        ("content_type", 1),
        ("accept", 1),
        ("typed_path", 1),
    ] {
        assert_eq!(gateway.passed(why), count, "{why}");
    }
}

#[test]
fn an_unknown_index_passes_and_is_split_once_it_is_there() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let body = body(20).replace("\"logs\"", "\"fresh\"");
    gateway.bulk(&body).ok().unwrap();
    assert_eq!(gateway.passed("unknown_index"), 1);
    gateway.wait_until("the new index is known", |status| {
        status["routes"]["indices_split"] == 2
    });
    gateway.bulk(&body).ok().unwrap();
    assert_eq!(gateway.counter("bulk_requests"), 1);
}

#[test]
fn other_apis_are_forwarded_with_their_answers() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let direct = testkit::client::Client::new(&cluster.urls()[0]).unwrap();
    for path in [
        "/_cluster/health",
        "/logs/_count",
        "/nothing/_count",
        "/no/such/api/there",
    ] {
        let (through, direct) = (gateway.client().get(path).unwrap(), direct.get(path).unwrap());
        assert_eq!(
            (through.status, through.text()),
            (direct.status, direct.text()),
            "{path}"
        );
    }
    let head = gateway.client().send("HEAD", "/logs", &[], &[]).unwrap();
    assert_eq!(head.status, 200);
}
