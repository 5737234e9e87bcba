//! Answers for clients that accept compressed ones.

use std::io::Read as _;

use flate2::read::{GzDecoder, ZlibDecoder};
use serde_json::Value;
use testkit::client::Answer;
use testkit::fake::{FakeCluster, Spec};

use crate::gateway::{Gateway, body, cluster, ids};

fn asking(gateway: &Gateway, target: &str, body: &str, accepts: &str) -> Answer {
    let headers = [
        ("content-type", "application/x-ndjson"),
        ("accept-encoding", accepts),
    ];
    gateway
        .client()
        .send("POST", target, &headers, body.as_bytes())
        .unwrap()
}

fn unpacked(answer: &Answer) -> Value {
    let mut text = String::new();
    match answer.header("content-encoding") {
        Some("gzip") => GzDecoder::new(&answer.body[..]).read_to_string(&mut text),
        Some("deflate") => ZlibDecoder::new(&answer.body[..]).read_to_string(&mut text),
        None => (&answer.body[..]).read_to_string(&mut text),
        Some(other) => panic!("{other}"),
    }
    .unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn split_bulks_answers_are_packed_for_those_who_accept_it_as_a_node_packs_them() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    // Each coding is tried with one document, which is a single part, with 30, and with 4,000, whose answer
    // is longer than a chunk.
    for (accepts, coding) in [
        ("gzip", Some("gzip")),
        ("gzip, deflate, br", Some("gzip")),
        ("identity, gzip;q=0.1", Some("gzip")),
        ("deflate;q=0.9, gzip;q=0.5", Some("deflate")),
        ("gzip;q=0", None),
        ("identity", None),
    ] {
        for docs in [1, 30, 4000] {
            let answer = asking(&gateway, "/_bulk", &body(docs), accepts);
            assert_eq!(
                (answer.status, answer.header("content-encoding")),
                (200, coding),
                "{accepts}"
            );
            let items = unpacked(&answer);
            assert_eq!(ids(&items, "index").len(), docs);
            let length: usize = answer.header("content-length").unwrap().parse().unwrap();
            assert_eq!(length, answer.body.len());
            if coding.is_some() && docs > 1 {
                assert!(length * 4 < items.to_string().len(), "{length} bytes for {docs}");
            }
        }
    }
    let passed = asking(&gateway, "/_bulk?pretty", &body(3), "gzip");
    assert_eq!(passed.header("content-encoding"), Some("gzip"));
    let plain = gateway.bulk(&body(30));
    assert_eq!(plain.header("content-encoding"), None);
}

#[test]
fn what_the_cluster_would_not_pack_is_not_packed_and_the_configuration_may_say_no() {
    let unwilling = Spec {
        compression: Some(false),
        ..Spec::default()
    };
    let unwilling = FakeCluster::start(unwilling.index("logs", 6).storing()).unwrap();
    let answer = asking(&Gateway::before(&unwilling), "/_bulk", &body(30), "gzip");
    assert_eq!(answer.header("content-encoding"), None);
    let willing = cluster();
    let filters = "      - bulk_reshuffle: {elasticsearch: c, mode: sync, compress_answers: false}
      - elasticsearch: {elasticsearch: c}";
    let gateway = Gateway::with_filters(&willing, filters);
    let answer = asking(&gateway, "/_bulk", &body(30), "gzip");
    assert_eq!(answer.header("content-encoding"), None);
    assert_eq!(ids(&unpacked(&answer), "index").len(), 30);
}
