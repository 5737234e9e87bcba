//! Requests that pass through whole.

use testkit::fake::{Fault, Injection, On};

use crate::gateway::{Gateway, body, cluster};
use crate::raw_node::RawNode;

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
fn bodies_that_are_not_json_reach_the_node_byte_for_byte() {
    let node = RawNode::start();
    let gateway = node.gateway("", "");
    let answer = b"\x3a)\n\x05\xfa\xfb not for us to read";
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/smile\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        answer.len()
    );
    node.answer([head.as_bytes(), answer].concat());
    // A body that is held in memory on the way, and one that is streamed.
    let small: Vec<u8> = (0..=255).collect();
    let large: Vec<u8> = small.iter().copied().cycle().take(1 << 20).collect();
    let types = [
        "application/smile",
        "application/cbor",
        "application/yaml",
        "application/vnd.elasticsearch+cbor; compatible-with=8",
    ];
    let mut sent = Vec::new();
    for body in [&small, &large] {
        for kind in types {
            let through = gateway
                .client()
                .send("POST", "/t/_bulk", &[("content-type", kind)], body);
            let through = through.unwrap();
            assert_eq!(
                (through.status, through.body.as_slice()),
                (200, &answer[..]),
                "{kind}"
            );
            assert_eq!(through.header("content-type"), Some("application/smile"));
            sent.push(body.clone());
        }
    }
    assert_eq!(node.bodies(), sent);
    for (head, kind) in node.heads().iter().zip(types.iter().cycle()) {
        assert!(
            head.to_lowercase().contains(&format!("content-type: {kind}\r\n")),
            "{head}"
        );
    }
    assert_eq!(gateway.passed("content_type"), 8);
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
fn an_index_that_is_not_verified_yet_passes_and_says_so() {
    let cluster = cluster();
    let unanswered = Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::new(On::Path("/logs/_search_shards".to_owned()), unanswered).always());
    let gateway = Gateway::before(&cluster);
    gateway.bulk(&body(20)).ok().unwrap();
    assert_eq!(gateway.passed("unverified_index"), 1);
    assert_eq!(
        gateway.topology()["routes"]["indices_passed"]["unverified_index"],
        1
    );
    cluster.behave();
    gateway.wait_until("the index is verified", |status| {
        status["routes"]["indices_split"] == 1
    });
    gateway.bulk(&body(20)).ok().unwrap();
    assert_eq!(
        (gateway.counter("bulk_requests"), gateway.counter("bulk_passed")),
        (1, 1)
    );
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

/// Returns a bulk that is parsed, found to be broken, and passed on.
fn broken() -> String {
    format!("{}{{\"nonsense\"\n{{}}\n", body(10))
}

#[test]
fn conditions_know_the_client_of_a_bulk_that_was_read_before_it_passed() {
    let cluster = cluster();
    for (condition, admitted) in [
        ("in: {_ctx.remote_ip: [127.0.0.1]}", true),
        ("not: {in: {_ctx.remote_ip: [127.0.0.1]}}", false),
        ("equals: {_ctx.remote_ip: 0.0.0.0}", false),
        ("equals: {_ctx.tls: 'false'}", true),
    ] {
        let gateway = Gateway::with_filters(
            &cluster,
            &format!(
                "      - bulk_reshuffle: {{elasticsearch: c, mode: sync}}
      - elasticsearch: {{elasticsearch: c, when: {{{condition}}}}}"
            ),
        );
        let answer = gateway.bulk(&broken());
        let status = if admitted { 400 } else { 404 };
        assert_eq!(answer.status, status, "{condition}: {}", answer.text());
        assert_eq!(answer.text().contains("gateway:"), !admitted, "{condition}");
        assert_eq!(gateway.counter("bulk_passed"), 1, "{condition}");
    }
}

#[test]
fn a_condition_means_the_same_before_and_after_a_body_without_declared_length_was_read() {
    let cluster = cluster();
    let gateway = Gateway::with_filters(
        &cluster,
        "      - if: {range: {_ctx.request.body_length: {gte: 100}}}
        then: [{elasticsearch: {elasticsearch: c}}]
        else: [{bulk_reshuffle: {elasticsearch: c, mode: sync}}, {elasticsearch: {elasticsearch: c}}]",
    );
    let body = broken();
    let request = format!(
        "POST /_bulk HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\
         Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    let answer = crate::hardening::exchange(&gateway, request.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(
        gateway.counter("bulk_passed"),
        1,
        "it was read by the first filter of `else`"
    );
}
