//! In errors about unparsable documents, Elasticsearch 7 quotes what it has read from the network: a client
//! must not see the part that is not its own.

use std::sync::Barrier;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::fake::{Behaviour, FakeCluster, Fault, Flavour, Injection, Spec};

use crate::gateway::{Gateway, statuses};
use crate::home::{GatewayHome, drained};

const CLIENTS: usize = 12;

fn quoting() -> Spec {
    let behaviour = Behaviour {
        latency: Duration::from_millis(30),
        ..Behaviour::default()
    };
    let spec = Spec {
        behaviour,
        ..Spec::default().flavour(Flavour::Elasticsearch7)
    };
    spec.index("logs", 6).index("one", 1).storing()
}

fn combining(cluster: &FakeCluster, settings: &str) -> Gateway {
    Gateway::with_file(
        cluster,
        "      - bulk_reshuffle: {elasticsearch: c, mode: sync, combine: {enabled: true}}
      - elasticsearch: {elasticsearch: c}",
        settings,
    )
}

/// Returns a client's operations: five good ones, and one that is no JSON and is followed by another
/// document.
fn body(index: &str, who: usize, round: usize, ids: bool) -> String {
    let line = |n: usize, source: &str| {
        let id = if ids {
            format!(",\"_id\":\"{who}-{round}-{n}\"")
        } else {
            String::new()
        };
        format!("{{\"index\":{{\"_index\":\"{index}\"{id}}}}}\n{source}\n")
    };
    let fine = |n: usize| line(n, &format!("{{\"t\":\"secret-of-{who}-\"}}"));
    (0..3).map(fine).collect::<String>() + &line(3, r#"{"t":"\x"}"#) + &(4..6).map(fine).collect::<String>()
}

/// Returns each client's answers, as they came.
fn answers(gateway: &Gateway, index: &str, rounds: usize, ids: bool) -> Vec<(usize, Value, String)> {
    let start = Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        let clients = (0..CLIENTS).map(|who| {
            let start = &start;
            scope.spawn(move || {
                let client = gateway.client();
                start.wait();
                let answer = |round| {
                    let body = body(index, who, round, ids);
                    let answer = client.post_ndjson("/_bulk", body.as_bytes()).unwrap();
                    (who, answer.json().unwrap(), answer.ok().unwrap().text())
                };
                (0..rounds).map(answer).collect::<Vec<_>>()
            })
        });
        let clients: Vec<_> = clients.collect();
        clients
            .into_iter()
            .flat_map(|client| client.join().unwrap())
            .collect()
    })
}

fn reason(answer: &Value) -> &str {
    let error = &answer["items"][3]["index"]["error"];
    error["caused_by"]["reason"].as_str().unwrap()
}

#[test]
fn a_document_that_cannot_be_parsed_is_told_of_in_the_clusters_words_without_the_neighbours() {
    for ids in [true, false] {
        let cluster = FakeCluster::start(quoting()).unwrap();
        let gateway = combining(&cluster, "");
        let mut quoted = 0;
        for (who, answer, text) in answers(&gateway, "logs", 4, ids) {
            assert_eq!(statuses(&answer), [201, 201, 201, 400, 201, 201]);
            assert_eq!(answer["errors"], json!(true));
            for other in (0..CLIENTS).filter(|other| *other != who) {
                assert!(
                    !text.contains(&format!("secret-of-{other}-")),
                    "client {who} sees {other}: {text}"
                );
            }
            assert!(
                reason(&answer).starts_with("Unrecognized character escape"),
                "{answer}"
            );
            quoted += usize::from(reason(&answer).contains("POST /_bulk HTTP/1.1"));
        }
        assert!(gateway.counter("combined_requests") > 0);
        assert_eq!(quoted, CLIENTS * 4, "in the cluster's own words");
        assert_eq!(cluster.docs("logs").len(), CLIENTS * 4 * 5);
    }
}

#[test]
fn where_the_cluster_cannot_be_asked_again_the_quote_is_cut() {
    let cluster = FakeCluster::start(quoting()).unwrap();
    let gateway = combining(&cluster, "");
    // The repeated request has no document that can be parsed.
    let busy = Fault::StatusIfLacks {
        text: "secret".to_owned(),
        status: 503,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::bulk(busy).always());
    for (who, answer, text) in answers(&gateway, "one", 4, true) {
        assert_eq!(statuses(&answer), [201, 201, 201, 400, 201, 201]);
        for other in (0..CLIENTS).filter(|other| *other != who) {
            assert!(
                !text.contains(&format!("secret-of-{other}-")),
                "client {who} sees {other}: {text}"
            );
        }
        assert!(
            reason(&answer).starts_with("Unrecognized character escape"),
            "{answer}"
        );
    }
    assert!(gateway.counter("combined_requests") > 0);
}

#[test]
fn a_document_that_is_written_again_later_in_its_bulk_is_not_sent_a_second_time() {
    let cluster = FakeCluster::start(quoting()).unwrap();
    let gateway = combining(&cluster, "");
    let start = Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        for who in 0..CLIENTS {
            let (start, gateway) = (&start, &gateway);
            scope.spawn(move || {
                let client = gateway.client();
                start.wait();
                for round in 0..4 {
                    let body = body("one", who, round, true)
                        .replace(&format!("{who}-{round}-5"), &format!("{who}-{round}-3"));
                    let answer = client
                        .post_ndjson("/_bulk", body.as_bytes())
                        .unwrap()
                        .ok()
                        .unwrap();
                    let (text, answer) = (answer.text(), answer.json().unwrap());
                    assert_eq!(statuses(&answer), [201, 201, 201, 400, 201, 201]);
                    for other in (0..CLIENTS).filter(|other| *other != who) {
                        assert!(!text.contains(&format!("secret-of-{other}-")), "{text}");
                    }
                }
            });
        }
    });
    assert!(gateway.counter("combined_requests") > 0);
    // Five of each bulk's six documents are there; only the one that could not be parsed is missing.
    let docs = (CLIENTS * 4 * 6) as u64;
    let counts = cluster.counts();
    let again = counts.docs - docs;
    assert!(again < (CLIENTS * 4) as u64, "{again} documents were sent again");
}

#[test]
fn the_gateways_own_credentials_are_not_quoted_either() {
    let cluster = FakeCluster::start(quoting().basic_auth("gateway", "hush")).unwrap();
    let gateway = combining(
        &cluster,
        ", basic_auth: {username: gateway, password: hush}, anonymous: use_gateway_account",
    );
    let answers = answers(&gateway, "logs", 2, true);
    let alone = gateway.bulk(&body("logs", 99, 0, true)).ok().unwrap();
    let texts = answers.into_iter().map(|(_, answer, text)| (answer, text));
    for (answer, text) in texts.chain([(alone.json().unwrap(), alone.text())]) {
        assert_eq!(statuses(&answer), [201, 201, 201, 400, 201, 201]);
        assert!(!text.contains("Z2F0ZXdheTpodXNo"), "{text}");
        assert!(
            reason(&answer).starts_with("Unrecognized character escape"),
            "{answer}"
        );
    }
}

/// What is delivered has the gateway's account in its head; letters are on the disk and at the admin port.
#[test]
fn dead_letters_quote_nothing() {
    let cluster = FakeCluster::start(quoting().basic_auth("gateway", "hush")).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let account = ", basic_auth: {username: gateway, password: hush}, anonymous: use_gateway_account}";
    let endpoint = format!("endpoint: '{}'", cluster.urls()[0]);
    place.replace(&format!("{endpoint}}}"), &format!("{endpoint}{account}"));
    let gateway = place.start();
    gateway.bulk(&body("logs", 0, 0, true)).ok().unwrap();
    assert_eq!(drained(&gateway, "c0")["dead"], 1);
    let letters = gateway.admin().get("/dead_letters?queue=q").unwrap().text();
    assert!(letters.contains("Unrecognized character escape"), "{letters}");
    for quoted in ["Z2F0ZXdheTpodXNo", "HTTP/1.1", "secret-of-0-"] {
        assert!(!letters.contains(quoted), "{letters}");
    }
}

/// Starts a gateway that forwards everything as it came.
fn forwarding(cluster: &FakeCluster, settings: &str) -> Gateway {
    Gateway::with_file(cluster, "      - elasticsearch: {elasticsearch: c}", settings)
}

#[test]
fn what_passes_whole_with_the_gateways_account_does_not_quote_it() {
    let cluster = FakeCluster::start(quoting().basic_auth("gateway", "hush")).unwrap();
    let gateway = forwarding(
        &cluster,
        ", basic_auth: {username: gateway, password: hush}, anonymous: use_gateway_account",
    );
    let answer = gateway.bulk(&body("logs", 1, 0, true)).ok().unwrap();
    let read = answer.json().unwrap();
    assert_eq!(statuses(&read), [201, 201, 201, 400, 201, 201]);
    assert!(!answer.text().contains("Z2F0ZXdheTpodXNo"), "{}", answer.text());
    assert!(!answer.text().contains("secret"), "{}", answer.text());
    assert!(
        reason(&read).starts_with("Unrecognized character escape"),
        "{read}"
    );
}

#[test]
fn what_passes_whole_quotes_the_client_alone() {
    let cluster = FakeCluster::start(quoting()).unwrap();
    let gateway = forwarding(&cluster, "");
    let answer = gateway.bulk(&body("logs", 1, 0, true)).ok().unwrap();
    let read = answer.json().unwrap();
    assert!(reason(&read).contains("POST /_bulk HTTP/1.1"), "{read}");
    assert!(reason(&read).contains("secret-of-1-"), "{read}");

    // Connections are shared: what a node read before belongs to somebody else.
    for quoted in OF_OTHERS {
        let reason =
            format!("bad\n at [Source: (byte[])\"{quoted}\"[truncated 7 bytes]; line: 1, column: 9]");
        let error = json!({"type": "json_parse_exception", "reason": reason});
        let told = json!({"error": error, "status": 400});
        cluster.inject(Injection::bulk(Fault::Status {
            status: 400,
            body: told.to_string(),
        }));
        let answer = gateway.bulk(&body("logs", 1, 1, true));
        assert_eq!(answer.status, 400);
        let told = answer.json().unwrap();
        assert_eq!(
            told["error"]["reason"],
            "bad\n at [Source: (byte[]); line: 1, column: 9]"
        );
    }
}

/// The heads and bodies that a node may have read before a request on the same connection.
const OF_OTHERS: [&str; 3] = [
    "POST /_bulk HTTP/1.1\r\nAuthorization: Basic b3RoZXI6eA==\r\n\r\n",
    "POST /_bulk HTTP/1.1\r\n\r\n{\"t\":\"secret-of-7\"}\n",
    "{\"t\":\"secret-of-7\"}\n",
];

#[test]
fn a_part_that_travels_alone_quotes_its_client_alone() {
    let cluster = FakeCluster::start(quoting()).unwrap();
    let splitting = Gateway::with_file(
        &cluster,
        "      - bulk_reshuffle: {elasticsearch: c, mode: sync}
      - elasticsearch: {elasticsearch: c}",
        "",
    );
    let combining = combining(&cluster, "");
    for (who, gateway) in [&splitting, &combining].into_iter().enumerate() {
        for index in ["one", "logs"] {
            let answer = gateway.bulk(&body(index, who, 0, true)).ok().unwrap();
            let read = answer.json().unwrap();
            assert_eq!(statuses(&read), [201, 201, 201, 400, 201, 201]);
            assert!(reason(&read).contains("POST /_bulk HTTP/1.1"), "{read}");
            assert!(reason(&read).contains(r#"{"t":"\x"}"#), "{read}");
        }
        for quoted in OF_OTHERS {
            let quotes = |quoted: &str| {
                format!("bad\n at [Source: (byte[])\"{quoted}\"[truncated 7 bytes]; line: 1, column: 9]")
            };
            let bad = |reason: &str| json!({"type": "json_parse_exception", "reason": reason});
            let told = json!({"error": bad(&quotes(quoted)), "status": 400});
            cluster.inject(Injection::bulk(Fault::Status {
                status: 400,
                body: told.to_string(),
            }));
            let answer = gateway.bulk(&body("one", 1, 1, true));
            assert_eq!(answer.status, 400);
            let told = answer.json().unwrap();
            let cut = "bad\n at [Source: (byte[]); line: 1, column: 9]";
            assert_eq!(told["error"]["reason"], cut);

            let fine = json!({"index": {"_index": "one", "_id": "1", "status": 201}});
            let failed = |reason: &str| {
                let error =
                    json!({"type": "mapper_parsing_exception", "reason": "no", "caused_by": bad(reason)});
                json!({"index": {"_index": "one", "_id": "1", "status": 400, "error": error}})
            };
            let told = json!({"took": 1, "errors": true, "items":
                [fine, fine, fine, failed(&quotes(quoted)), fine, fine]});
            cluster.inject(Injection::bulk(Fault::Status {
                status: 200,
                body: told.to_string(),
            }));
            let answer = gateway.bulk(&body("one", 1, 1, true)).ok().unwrap();
            assert!(!answer.text().contains("secret"), "{}", answer.text());
            let read = answer.json().unwrap();
            assert_eq!(statuses(&read), [201, 201, 201, 400, 201, 201]);
            assert_eq!(reason(&read), cut);
        }
    }
}
