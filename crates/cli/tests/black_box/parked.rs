//! A problem of an index, a request or a document holds up nothing else, and a temporary problem kills
//! nothing.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::fake::{Behaviour, FakeCluster, Fault, Injection, Spec, Unfit};

use crate::gateway::Gateway;
use crate::home::{GatewayHome, account, drained, queue, wait};

const BLOCKED: &str = r#"{"type":"cluster_block_exception","reason":"index [blocked] blocked by: [FORBIDDEN/8/index write (api)];"}"#;
const NO_RIGHT: &str = r#"{"type":"security_exception","reason":"action [indices:data/write/bulk[s]] is unauthorized for user [gateway] on indices [blocked]"}"#;
const CLOSED: &str = r#"{"type":"index_closed_exception","reason":"closed","index":"blocked"}"#;
const NO_WRITE_INDEX: &str = r#"{"type":"illegal_argument_exception","reason":"no write index is defined for alias [blocked]. The write index may be explicitly disabled using is_write_index=false or the alias points to multiple indices without one being designated as a write index"}"#;
const UNKNOWN_ALIAS: &str = r#"{"type":"invalid_index_name_exception","reason":"Invalid index name [blocked], already exists as alias"}"#;
const FLOOD: &str = r#"{"type":"cluster_block_exception","reason":"index [blocked] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark, index has read-only-allow-delete block];"}"#;

/// Makes two nodes, with a healthy index and one that a test may block.
pub(crate) fn two_indices() -> FakeCluster {
    let spec = Spec {
        nodes: 2,
        ..Spec::default()
    };
    let spec = spec.index("good", 6).index("blocked", 6).storing();
    FakeCluster::start(spec).unwrap()
}

/// Returns `docs` documents with ids and the same value.
pub(crate) fn docs(index: &str, docs: usize, n: usize) -> String {
    (0..docs)
        .map(|id| format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\"}}}}\n{{\"n\":{n}}}\n"))
        .collect()
}

fn send(gateway: &Gateway, target: &str, body: &str) {
    let headers = [("content-type", "application/x-ndjson")];
    gateway
        .client()
        .send("POST", target, &headers, body.as_bytes())
        .unwrap()
        .ok()
        .unwrap();
}

/// Whether all documents of an index have this value.
fn all_are(cluster: &FakeCluster, index: &str, docs: usize, n: usize) -> bool {
    let there = cluster.docs(index);
    there.len() == docs && there.values().all(|doc| doc.source == format!("{{\"n\":{n}}}"))
}

fn no_lane_waits(one: &Value) {
    assert_eq!(
        (&one["paused_lanes"], &one["retrying_lanes"]),
        (&json!(0), &json!(0)),
        "{one}"
    );
}

#[test]
fn an_index_that_takes_nothing_holds_up_no_other_and_gets_all_in_order_when_it_does() {
    for (status, error) in [
        (403, BLOCKED),
        (403, NO_RIGHT),
        (400, CLOSED),
        (400, NO_WRITE_INDEX),
        (400, UNKNOWN_ALIAS),
        (429, FLOOD),
    ] {
        let cluster = two_indices();
        let place = GatewayHome::before(&[&cluster], "");
        let gateway = place.start();
        cluster.refuse_writes("blocked", Some((status, error)));
        for n in 1..=5 {
            gateway.bulk(&docs("blocked", 50, n)).ok().unwrap();
            gateway.bulk(&docs("good", 50, n)).ok().unwrap();
        }
        let one = wait(&gateway, "c0", |one| one["pending"] == 0);
        assert_eq!(
            (&one["parked"], &one["indexed"], &one["dead"]),
            (&json!(250), &json!(250), &json!(0)),
            "{error}: {one}"
        );
        no_lane_waits(&one);
        assert!(all_are(&cluster, "good", 50, 5));
        assert!(cluster.docs("blocked").is_empty());
        cluster.refuse_writes("blocked", None);
        let one = drained(&gateway, "c0");
        assert_eq!((&one["indexed"], &one["dead"]), (&json!(500), &json!(0)));
        assert!(all_are(&cluster, "blocked", 50, 5), "{error}");
        assert_eq!(cluster.docs("blocked")["7"].version, 5, "each once");
    }
}

#[test]
fn what_is_parked_outlives_kill_and_goes_out_in_order_and_once() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let mut gateway = place.start();
    cluster.refuse_writes("blocked", Some((403, BLOCKED)));
    for n in 1..=4 {
        gateway.bulk(&docs("blocked", 20, n)).ok().unwrap();
        wait(&gateway, "c0", |one| {
            one["parked"] == 20 * n && one["pending"] == 0
        });
        // The commit is written a little later; a batch that is not delivered again counts once all the same.
        drop(gateway);
        gateway = place.start();
        let one = wait(&gateway, "c0", |one| {
            one["parked"] == 20 * n && one["pending"] == 0
        });
        assert_eq!((&one["indexed"], &one["dead"]), (&json!(0), &json!(0)));
    }
    cluster.refuse_writes("blocked", None);
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(80), &json!(0)));
    assert!(all_are(&cluster, "blocked", 20, 4));
    drop(gateway);
    let gateway = place.start();
    // A commit that was not written yet is repeated.
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(80), &json!(0)));
}

#[test]
fn a_request_that_waits_for_copies_that_never_come_holds_up_nobody_else() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    send(&gateway, "/_bulk?wait_for_active_shards=99", &docs("good", 40, 1));
    // Documents of another client, with other ids and with the same ones.
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    let others = docs("good", 200, 2).replace("\"_id\":\"", "\"_id\":\"other-");
    gateway.bulk(&others).ok().unwrap();
    wait(&gateway, "c0", |one| one["indexed"] == 200);
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    let began = Instant::now();
    send(&gateway, "/_bulk?wait_for_active_shards=99", &docs("good", 60, 3));
    let others = docs("good", 200, 4).replace("\"_id\":\"", "\"_id\":\"other-");
    gateway.bulk(&others).ok().unwrap();
    wait(&gateway, "c0", |one| one["indexed"] == 400);
    // A node waits for copies for at least three seconds.
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "once known it holds up nobody: {:?}",
        began.elapsed()
    );
    // A write to a parked document comes after it, however it was sent.
    gateway.bulk(&docs("good", 1, 5)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["parked"] == 101 && one["pending"] == 0);
    assert_eq!(one["dead"], 0);
    assert!(!cluster.docs("good").contains_key("0"));
}

#[test]
fn an_update_between_other_writers_is_never_dead_and_stays_in_order() {
    let conflict = r#"{"type":"version_conflict_engine_exception","reason":"[7]: version conflict, required seqNo [1]"}"#;
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    gateway.bulk(&docs("good", 10, 1)).ok().unwrap();
    drained(&gateway, "c0");
    let held = |holds: Option<&str>| {
        cluster.set_behaviour(Behaviour {
            unfit: holds.map(|holds| Unfit {
                holds: holds.to_owned(),
                status: 409,
                error: conflict.to_owned(),
            }),
            ..Behaviour::default()
        });
    };
    held(Some("{\"doc\":{\"n\":2}}"));
    let update = |id: usize, n: usize| {
        format!("{{\"update\":{{\"_index\":\"good\",\"_id\":\"{id}\"}}}}\n{{\"doc\":{{\"n\":{n}}}}}\n")
    };
    gateway.bulk(&update(7, 2)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["parked"] == 1 && one["pending"] == 0);
    assert_eq!(one["dead"], 0, "{one}");
    // Writes behind the document, and beside it.
    gateway.bulk(&update(7, 3)).ok().unwrap();
    gateway.bulk(&update(8, 4)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["parked"] == 2 && one["pending"] == 0);
    no_lane_waits(&one);
    assert_eq!(cluster.docs("good")["8"].source, "{\"n\":4}");
    assert_eq!(cluster.docs("good")["7"].source, "{\"n\":1}");
    held(None);
    let one = drained(&gateway, "c0");
    assert_eq!(one["dead"], 0);
    assert_eq!(cluster.docs("good")["7"].source, "{\"n\":3}");
}

#[test]
fn a_document_that_a_node_always_fails_holds_up_nothing_and_dies_in_the_end() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let broken = Unfit {
        holds: "{\"n\":666}".to_owned(),
        status: 500,
        error: r#"{"type":"null_pointer_exception","reason":"oops"}"#.to_owned(),
    };
    cluster.set_behaviour(Behaviour {
        unfit: Some(broken),
        ..Behaviour::default()
    });
    let text = docs("good", 1, 666) + &docs("good", 100, 1).replace("\"_id\":\"", "\"_id\":\"x");
    gateway.bulk(&text).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["indexed"] == 100 && one["pending"] == 0);
    no_lane_waits(&one);
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(100), &json!(1)));
}

#[test]
fn what_finds_no_room_or_waits_too_long_is_a_dead_letter_that_says_so() {
    for (settings, kind) in [
        (", parked_max_size: 256kb", "parked_store_full"),
        (", parked_max_age: 300ms", "cluster_block_exception"),
    ] {
        let cluster = two_indices();
        let place = GatewayHome::before(&[&cluster], settings);
        let gateway = place.start();
        cluster.refuse_writes("blocked", Some((403, BLOCKED)));
        for n in 1..=20 {
            gateway.bulk(&docs("blocked", 500, n)).ok().unwrap();
        }
        gateway.bulk(&docs("good", 50, 1)).ok().unwrap();
        let one = wait(&gateway, "c0", |one| {
            one["pending"] == 0 && one["indexed"] == 50 && one["dead"].as_u64() > Some(100)
        });
        no_lane_waits(&one);
        let listed = gateway.admin().get("/dead_letters?queue=q&limit=5").unwrap();
        let listed: Value = listed.ok().unwrap().json().unwrap();
        assert_eq!(listed["dead_letters"][0]["type"], kind, "{listed}");
    }
}

#[test]
fn an_operator_sees_what_is_parked_and_releases_it_or_gives_it_up() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let text = std::fs::read_to_string(&place.file).unwrap();
    std::fs::write(
        &place.file,
        text.replace("retry_delay_in_ms: 20", "retry_delay_in_ms: 60000"),
    )
    .unwrap();
    let gateway = place.start();
    let parked = |n: u64| {
        cluster.refuse_writes("blocked", Some((403, BLOCKED)));
        gateway.bulk(&docs("blocked", 10, n as usize)).ok().unwrap();
        wait(&gateway, "c0", |one| one["parked"] == 10 && one["pending"] == 0);
        let began = Instant::now();
        loop {
            let listed = gateway.admin().get("/queue/q/parked").unwrap();
            let listed: Value = listed.ok().unwrap().json().unwrap();
            let key = listed["groups"]["c0"]["keys"][0].clone();
            // The first try is over.
            if key["attempts"].as_u64() > Some(0) {
                assert_eq!(
                    (&key["key"], &key["documents"]),
                    (&json!("index:blocked"), &json!(10))
                );
                assert!(
                    key["why"].as_str().unwrap().contains("index write (api)"),
                    "{key}"
                );
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "{listed}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let post = |what: &str| gateway.admin().send("POST", what, &[], &[]).unwrap();
    parked(1);
    cluster.refuse_writes("blocked", None);
    assert_eq!(post("/queue/q/parked/_release?key=index:gone").status, 404);
    post("/queue/q/parked/_release?key=index:blocked").ok().unwrap();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(10), &json!(0)));
    parked(2);
    assert_eq!(post("/queue/q/parked/_give_up").status, 400);
    post("/queue/q/parked/_give_up?confirm=true").ok().unwrap();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(10), &json!(10)));
    cluster.refuse_writes("blocked", None);
    post("/dead_letters/_replay?queue=q&all=true").ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["indexed"] == 20);
    assert_eq!((&one["dead"], &one["replayed"]), (&json!(0), &json!(10)));
    assert!(all_are(&cluster, "blocked", 10, 2));
}

#[test]
fn a_group_that_goes_back_keeps_what_is_parked_and_the_accounts_add_up() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    cluster.refuse_writes("blocked", Some((403, BLOCKED)));
    for n in 1..=3 {
        gateway.bulk(&docs("blocked", 10, n)).ok().unwrap();
    }
    wait(&gateway, "c0", |one| one["parked"] == 30 && one["pending"] == 0);
    let post = |what: &str| gateway.admin().send("POST", what, &[], &[]).unwrap();
    post("/pipeline/p0/_stop").ok().unwrap();
    post("/queue/q/groups/c0/offset?to=earliest&confirm=true")
        .ok()
        .unwrap();
    let one = account(&queue(&gateway), "c0");
    assert_eq!((&one["parked"], &one["rewound"]), (&json!(30), &one["pending"]));
    post("/pipeline/p0/_start").ok().unwrap();
    cluster.refuse_writes("blocked", None);
    let one = drained(&gateway, "c0");
    assert_eq!(one["dead"], 0);
    assert!(all_are(&cluster, "blocked", 10, 3));
}

#[test]
fn a_node_that_fails_a_whole_bulk_for_one_document_gets_the_others() {
    let cluster = FakeCluster::start(Spec {
        nodes: 1,
        ..Spec::default().index("good", 4).storing()
    })
    .unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let whole = r#"{"error":{"type":"null_pointer_exception","reason":"routing is required"},"status":500}"#;
    cluster.inject(
        Injection::bulk(Fault::StatusIfHolds {
            text: "{\"n\":666}".to_owned(),
            status: 500,
            body: whole.to_owned(),
        })
        .always(),
    );
    let text = docs("good", 1, 666) + &docs("good", 100, 1).replace("\"_id\":\"", "\"_id\":\"x");
    gateway.bulk(&text).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["indexed"] == 100 && one["pending"] == 0);
    assert_eq!((&one["parked"], &one["dead"]), (&json!(1), &json!(0)));
    no_lane_waits(&one);
    cluster.behave();
    drained(&gateway, "c0");
}

#[test]
fn a_write_that_is_not_queued_does_not_overtake_what_is_parked() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], ", passing_timeout: 300ms");
    let gateway = place.start();
    cluster.refuse_writes("blocked", Some((403, BLOCKED)));
    gateway.bulk(&docs("blocked", 20, 1)).ok().unwrap();
    wait(&gateway, "c0", |one| one["parked"] == 20 && one["pending"] == 0);
    let by_query = || {
        let client = gateway.client();
        let headers = [("content-type", "application/json")];
        let body = b"{\"query\":{\"match_all\":{}}}";
        client
            .send("POST", "/blocked/_delete_by_query", &headers, body)
            .unwrap()
    };
    let answer = by_query();
    assert_eq!(answer.status, 503, "{}", answer.text());
    cluster.refuse_writes("blocked", None);
    drained(&gateway, "c0");
    assert_ne!(by_query().status, 503);
}

#[test]
fn what_a_client_can_write_into_a_reason_stops_nobody_but_its_own_document() {
    let alias = "no write index is defined for alias [good]";
    let shards = "[good][0] primary shard is not active Timeout: [3s], request: [index {[good][7], source[x] Not enough active copies to meet shard count of [9]}]";
    let cases = [
        // A script or a pipeline fails with a value of the document.
        (400, "illegal_argument_exception", format!("cannot parse [{alias}]"), "dead"),
        (400, "mapper_parsing_exception", format!("cannot parse [{alias}]"), "dead"),
        (400, "validation_exception", "no shards open".to_owned(), "dead"),
        (500, "script_exception", "timed out while waiting for a dynamic mapping update".to_owned(), "documents"),
        (500, "mapper_exception", "it says: timed out while waiting for a dynamic mapping update".to_owned(), "documents"),
        // A pipeline uses a value of the document as an index.
        (404, "index_not_found_exception", "no such index [elsewhere]".to_owned(), "documents"),
        (403, "cluster_block_exception", "index [elsewhere] blocked by: [FORBIDDEN/8/index write (api)];".to_owned(), "documents"),
        (403, "security_exception", "action [indices:data/write/bulk[s]] is unauthorized for user [gateway] on indices [elsewhere], this action".to_owned(), "documents"),
        (503, "unavailable_shards_exception", shards.replace("good", "elsewhere"), "documents"),
        (503, "unavailable_shards_exception", shards.to_owned(), "shards:good:"),
    ];
    for (status, kind, reason, expected) in cases {
        let cluster = two_indices();
        let place = GatewayHome::before(&[&cluster], "");
        let gateway = place.start();
        cluster.set_behaviour(Behaviour {
            unfit: Some(Unfit {
                holds: "{\"n\":666}".to_owned(),
                status,
                error: json!({"type": kind, "reason": reason}).to_string(),
            }),
            ..Behaviour::default()
        });
        send(&gateway, "/_bulk?wait_for_active_shards=1", &docs("good", 1, 666));
        wait(&gateway, "c0", |one| one["pending"] == 0);
        let others = docs("good", 200, 1).replace("\"_id\":\"", "\"_id\":\"x");
        send(&gateway, "/_bulk?wait_for_active_shards=1", &others);
        let one = wait(&gateway, "c0", |one| one["pending"] == 0);
        no_lane_waits(&one);
        if expected == "dead" {
            assert_eq!(
                (&one["dead"], &one["indexed"]),
                (&json!(1), &json!(200)),
                "{reason}: {one}"
            );
            continue;
        }
        let key = one["parked_for"][0]["key"].as_str().unwrap_or_default();
        assert!(key.starts_with(expected), "{kind} {reason}: {one}");
        if expected == "documents" {
            assert_eq!(
                (&one["parked"], &one["indexed"]),
                (&json!(1), &json!(200)),
                "{reason}: {one}"
            );
        }
    }
}
