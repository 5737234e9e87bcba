//! Requests with an `Idempotency-Key`: the same answer however often they come, and only one write.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::client::{Answer, Client};
use testkit::fake::{FakeCluster, Fault, Injection, On, Spec, User};

use crate::gateway::{Gateway, PATIENCE, cluster, ids};
use crate::home::{GatewayHome, drained, queue};

/// Settings besides the queue's own.
const KEYS: &str = "}, idempotency: {enabled: true, max_keys: 1000";

/// Two documents without ids, one with, and a delete.
const BODY: &str = "{\"index\":{\"_index\":\"logs\"}}\n{\"n\":1}\n{\"create\":{\"_index\":\"logs\"}}\n{\"n\":2}\n\
    {\"index\":{\"_index\":\"logs\",\"_id\":\"a\"}}\n{\"n\":3}\n{\"delete\":{\"_index\":\"logs\",\"_id\":\"b\"}}\n";

fn send(client: &Client, path: &str, key: &str, body: &str) -> Answer {
    let headers = [("content-type", "application/x-ndjson"), ("idempotency-key", key)];
    client.send("POST", path, &headers, body.as_bytes()).unwrap()
}

fn bulk(gateway: &Gateway, key: &str, body: &str) -> Answer {
    send(&gateway.client(), "/_bulk", key, body)
}

/// Returns what the answer says about the request: that it is kept, or repeats an earlier one, and its
/// position.
fn said(answer: &Answer) -> (u16, String, String) {
    let header = |name| answer.header(name).unwrap_or_default().to_owned();
    (
        answer.status,
        header("x-tidegate-idempotency"),
        header("x-tidegate-ack"),
    )
}

#[test]
fn a_repeated_request_is_answered_as_the_first_one_and_written_once() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], KEYS);
    let gateway = place.start();
    let first = bulk(&gateway, "k1", BODY);
    let (status, kept, ack) = said(&first);
    assert_eq!((status, kept.as_str()), (200, "kept"), "{}", first.text());
    assert!(ack.starts_with("queued; position="), "{ack}");
    for _ in 0..3 {
        let again = bulk(&gateway, "k1", BODY);
        assert_eq!(said(&again), (200, "repeated".to_owned(), ack.clone()));
        assert_eq!(again.text(), first.text(), "to the byte");
    }
    // Another key, or none, makes another request; the same key for something else is a mistake.
    let other = bulk(&gateway, "k2", BODY);
    assert_eq!(said(&other).1, "kept");
    assert_ne!(other.text(), first.text(), "other ids");
    let without = gateway.bulk(BODY);
    assert_eq!(
        (without.status, without.header("x-tidegate-idempotency")),
        (200, None)
    );
    let changed = BODY.replace(":3}", ":4}");
    for (path, body) in [
        ("/_bulk", changed.as_str()),
        ("/_bulk?timeout=1m", BODY),
        ("/logs/_bulk", BODY),
    ] {
        let refused = send(&gateway.client(), path, "k1", body);
        assert_eq!(refused.status, 422, "{path}: {}", refused.text());
        let reason = refused.json().unwrap()["error"]["reason"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            reason.contains("Idempotency-Key was used for a request with another"),
            "{reason}"
        );
    }
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(12), &json!(0)));
    assert_eq!(queue(&gateway)["idempotency_keys"], json!(2));
    let docs = cluster.docs("logs");
    assert_eq!(
        docs.len(),
        7,
        "two made ids a request that was written, and one that the client gave"
    );
    let answer = first.json().unwrap();
    let made = answer["items"][0]["index"]["_id"].as_str().unwrap();
    assert!(docs.contains_key(made), "{made}");
    assert_eq!(
        (
            gateway.counter("bulk_repeated"),
            gateway.counter("bulk_key_refused")
        ),
        (3, 3)
    );
    for bad in ["", &"x".repeat(256)] {
        assert_eq!(bulk(&gateway, bad, BODY).status, 400);
    }
}

#[test]
fn a_repeat_after_kill_9_finds_what_was_accepted_and_only_that() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], KEYS);
    let mut gateway = place.start();
    let mut answers = Vec::new();
    for round in 0..4 {
        for n in 0..20 {
            let key = format!("{round}-{n}");
            answers.push((key.clone(), bulk(&gateway, &key, BODY)));
        }
        // The kill comes right after the last answer: nothing has been tidied up.
        gateway.signal("KILL");
        drop(gateway);
        gateway = place.start();
        for (key, answer) in &answers {
            let again = bulk(&gateway, key, BODY);
            assert_eq!(
                said(&again),
                (200, "repeated".to_owned(), said(answer).2),
                "{key}"
            );
            assert_eq!(again.text(), answer.text(), "{key}");
        }
    }
    assert_eq!(queue(&gateway)["accepted"], json!(80 * 4));
    drained(&gateway, "c0");
    assert_eq!(cluster.docs("logs").len(), 80 * 2 + 1);
    // A graceful stop keeps them too.
    gateway.signal("TERM");
    assert!(gateway.wait().success(), "{}", gateway.log());
    let gateway = place.start();
    assert_eq!(said(&bulk(&gateway, "0-0", BODY)).1, "repeated");
}

#[test]
fn clients_that_give_up_and_ask_again_while_the_gateway_is_killed_write_once() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], KEYS);
    let mut gateway = place.start();
    let mut told = Vec::new();
    for round in 0..3 {
        let keys: Vec<String> = (0..8).map(|n| format!("{round}-{n}")).collect();
        let client = gateway.client();
        let sent: Vec<_> = keys
            .iter()
            .map(|key| {
                let (client, key) = (client.clone(), key.clone());
                std::thread::spawn(move || {
                    let headers = [
                        ("content-type", "application/x-ndjson"),
                        ("idempotency-key", &*key),
                    ];
                    client.send("POST", "/_bulk", &headers, BODY.as_bytes()).ok()
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(2 * round));
        gateway.signal("KILL");
        drop(gateway);
        let first: Vec<_> = sent.into_iter().map(|thread| thread.join().unwrap()).collect();
        gateway = place.start();
        for (key, first) in keys.iter().zip(first) {
            let again = bulk(&gateway, key, BODY);
            assert_eq!(again.status, 200, "{}", again.text());
            if let Some(first) = first.filter(|first| first.status == 200) {
                assert_eq!(first.text(), again.text(), "{key}");
            }
            told.extend(ids(
                &json!({"items": [again.json().unwrap()["items"][0]]}),
                "index",
            ));
        }
    }
    // Whether or not the first try got through, each request is there once.
    assert_eq!(queue(&gateway)["accepted"], json!(24 * 4));
    drained(&gateway, "c0");
    let docs = cluster.docs("logs");
    assert_eq!(docs.len(), 24 * 2 + 1);
    assert!(told.iter().all(|id| docs.contains_key(id)), "{told:?}");
}

#[test]
fn requests_at_the_same_time_with_one_key_are_one() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], KEYS);
    let gateway = place.start();
    let threads: Vec<_> = (0..12)
        .map(|n| {
            let client = gateway.client();
            std::thread::spawn(move || send(&client, "/_bulk", &format!("k{}", n % 3), BODY))
        })
        .collect();
    let answers: Vec<Answer> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let kept = answers.iter().filter(|answer| said(answer).1 == "kept").count();
    assert_eq!(
        (kept, answers.iter().all(|answer| answer.status == 200)),
        (3, true)
    );
    for n in 0..12 {
        assert_eq!(answers[n].text(), answers[n % 3].text());
    }
    assert_eq!(queue(&gateway)["accepted"], json!(12));
}

#[test]
fn keys_are_of_one_client_and_strangers_are_told_nothing_of_them() {
    let cluster =
        FakeCluster::start(Spec::default().index("logs", 6).storing().basic_auth("u", "p")).unwrap();
    let url = cluster.urls()[0].replace("http://", "http://u:p@");
    let place = GatewayHome::at(&[url], KEYS);
    let gateway = place.start();
    let right = gateway.client().basic_auth("u", "p");
    assert_eq!(said(&send(&right, "/_bulk", "k", BODY)).1, "kept");
    for stranger in [gateway.client(), gateway.client().basic_auth("u", "x")] {
        for body in [BODY, "{\"delete\":{\"_index\":\"logs\",\"_id\":\"1\"}}\n"] {
            assert_eq!(send(&stranger, "/_bulk", "k", body).status, 401);
        }
    }
    assert_eq!(said(&send(&right, "/_bulk", "k", BODY)).1, "repeated");
}

#[test]
fn keys_are_forgotten_in_time_and_too_many_are_refused_until_then() {
    let cluster = cluster();
    let place = GatewayHome::before(
        &[&cluster],
        "}, idempotency: {enabled: true, window: 2s, max_keys: 2",
    );
    let gateway = place.start();
    // A busy machine may take longer than the window for three requests.
    let (first, key) = (0..5)
        .find_map(|n| {
            let key = |name: &str| format!("{name}{n}");
            let began = Instant::now();
            let first = bulk(&gateway, &key("a"), BODY);
            bulk(&gateway, &key("b"), BODY);
            let refused = bulk(&gateway, &key("c"), BODY);
            if began.elapsed() < Duration::from_secs(2) {
                assert_eq!((refused.status, refused.header("retry-after")), (429, Some("10")));
                return Some((first, key("a")));
            }
            std::thread::sleep(Duration::from_millis(2_100));
            None
        })
        .unwrap();
    assert_eq!(said(&first).1, "kept");
    let began = Instant::now();
    let anew = loop {
        let anew = bulk(&gateway, &key, BODY);
        if said(&anew).1 == "kept" {
            break anew;
        }
        assert!(began.elapsed() < PATIENCE, "{}", anew.text());
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_ne!(anew.text(), first.text());
}

#[test]
fn what_cannot_be_repeated_is_not_written_a_second_time() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], KEYS);
    let gateway = place.start();
    bulk(&gateway, "k", BODY).ok().unwrap();
    drained(&gateway, "c0");
    // Now the request would pass to the cluster, which would create the index again.
    cluster.delete_index("logs");
    gateway.wait_until("the index is gone", |_| {
        let answer = bulk(&gateway, "k", BODY);
        answer.status == 409 && answer.text().contains("nothing was written now")
    });
    assert_eq!(cluster.docs("logs").len(), 0);
    // While it is unknown where documents belong, nothing with a key is accepted at all.
    gateway.signal("KILL");
    drop(gateway);
    let down = Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::new(On::Path("/_cluster/state".to_owned()), down.clone()).always());
    cluster.inject(Injection::new(On::Path("/_nodes".to_owned()), down).always());
    let gateway = Gateway::start(&["--config", place.file.to_str().unwrap()]);
    let answer = bulk(&gateway, "k", BODY);
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (503, Some("1")),
        "{}",
        answer.text()
    );
}

#[test]
fn a_user_is_one_client_whatever_token_it_shows_and_keys_are_shared_out_among_users() {
    let spec = Spec::default().index("logs", 6).storing().basic_auth("u", "p");
    let everything = ["index", "create", "update", "delete"];
    let user = |name: &str| User::new(name, "p").may("logs", &everything);
    let spec = spec.user(user("w").token("old").token("new")).user(user("x"));
    let cluster = FakeCluster::start(spec).unwrap();
    let url = cluster.urls()[0].replace("http://", "http://u:p@");
    let place = GatewayHome::at(&[url], "}, idempotency: {enabled: true, max_keys: 10");
    let gateway = place.start();
    let by_token = |token: &str, key: &str| {
        let authorization = format!("Bearer {token}");
        let headers = [
            ("content-type", "application/x-ndjson"),
            ("idempotency-key", key),
            ("authorization", &authorization),
        ];
        gateway
            .client()
            .send("POST", "/_bulk", &headers, BODY.as_bytes())
            .unwrap()
    };
    assert_eq!(said(&by_token("old", "k")).1, "kept");
    assert_eq!(said(&by_token("new", "k")).1, "repeated", "the token was renewed");
    let other = gateway.client().basic_auth("x", "p");
    assert_eq!(
        said(&send(&other, "/_bulk", "k", BODY)).1,
        "kept",
        "another user's key"
    );
    let took = (0..20)
        .map(|n| by_token("new", &n.to_string()).status)
        .collect::<Vec<_>>();
    let (taken, refused): (Vec<u16>, Vec<u16>) = took.iter().partition(|status| **status == 200);
    assert!((3..=6).contains(&taken.len()), "about half: {took:?}");
    assert!(refused.iter().all(|status| *status == 429), "{took:?}");
    assert_eq!(
        said(&send(&other, "/_bulk", "l", BODY)).1,
        "kept",
        "there is room for others"
    );
}

#[test]
fn a_repeated_write_of_a_single_document_is_answered_as_the_first_one_and_written_once() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], KEYS);
    let gateway = place.start();
    let send = |method: &str, path: &str, key: &str, body: &str| {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        let client = gateway.client();
        client.send(method, path, &headers, body.as_bytes()).unwrap()
    };
    for (key, method, path, body) in [
        ("a", "POST", "/logs/_doc", "{\"n\":1}"),
        ("b", "PUT", "/logs/_doc/1", "{\"n\":2}"),
        ("c", "PUT", "/logs/_create/2", "{\"n\":3}"),
        ("d", "POST", "/logs/_update/1", "{\"doc\":{\"n\":4}}"),
        ("e", "DELETE", "/logs/_doc/2", ""),
    ] {
        let first = send(method, path, key, body);
        let (status, kept, ack) = said(&first);
        assert!(status < 300, "{method} {path}: {}", first.text());
        assert_eq!(kept, "kept", "{method} {path}");
        let again = send(method, path, key, body);
        assert_eq!(said(&again), (status, "repeated".to_owned(), ack));
        assert_eq!(again.text(), first.text(), "{method} {path}: the id too");
        let other = send("PUT", "/logs/_doc/9", key, "{\"n\":9}");
        assert_eq!(other.status, 422, "{}", other.text());
    }
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(5));
    let documents = cluster.docs("logs");
    assert_eq!(documents.len(), 2, "the one without an id is there once");
    assert_eq!(documents["1"].source, "{\"n\":4}");
}
