//! A problem of an index, a request or a document holds up nothing else, and a temporary problem kills
//! nothing.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::fake::{Behaviour, FakeCluster, Fault, Injection, On, Spec, Unfit};

use crate::gateway::Gateway;
use crate::home::{GatewayHome, account, drained, queue, wait};
use crate::memory::large;

pub(crate) const BLOCKED: &str = r#"{"type":"cluster_block_exception","reason":"index [blocked] blocked by: [FORBIDDEN/8/index write (api)];"}"#;
pub(crate) const NO_RIGHT: &str = r#"{"type":"security_exception","reason":"action [indices:data/write/bulk[s]] is unauthorized for user [gateway] on indices [blocked]"}"#;
const CLOSED: &str = r#"{"type":"index_closed_exception","reason":"closed","index":"blocked"}"#;
const NO_WRITE_INDEX: &str = r#"{"type":"illegal_argument_exception","reason":"no write index is defined for alias [blocked]. The write index may be explicitly disabled using is_write_index=false or the alias points to multiple indices without one being designated as a write index"}"#;
const UNKNOWN_ALIAS: &str = r#"{"type":"invalid_index_name_exception","reason":"Invalid index name [blocked], already exists as alias"}"#;
pub(crate) const FLOOD: &str = r#"{"type":"cluster_block_exception","reason":"index [blocked] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark, index has read-only-allow-delete block];"}"#;

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

pub(crate) fn send(gateway: &Gateway, target: &str, body: &str) {
    let headers = [("content-type", "application/x-ndjson")];
    gateway
        .client()
        .send("POST", target, &headers, body.as_bytes())
        .unwrap()
        .ok()
        .unwrap();
}

/// Whether all documents of an index have this value.
pub(crate) fn all_are(cluster: &FakeCluster, index: &str, docs: usize, n: usize) -> bool {
    let there = cluster.docs(index);
    there.len() == docs && there.values().all(|doc| doc.source == format!("{{\"n\":{n}}}"))
}

pub(crate) fn no_lane_waits(one: &Value) {
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

/// A server may refuse a whole request for one index of it.
#[test]
fn a_request_that_is_refused_whole_for_one_of_its_indices_kills_nothing_and_holds_up_no_other() {
    for (status, error) in [(400, CLOSED), (400, NO_WRITE_INDEX)] {
        let cluster = two_indices();
        let place = GatewayHome::before(&[&cluster], "");
        let gateway = place.start();
        let whole = Fault::StatusIfHolds {
            text: "\"blocked\"".to_owned(),
            status,
            body: format!("{{\"error\":{error},\"status\":{status}}}"),
        };
        cluster.inject(Injection::bulk(whole).always());
        for n in 1..=5 {
            let both = docs("blocked", 50, n) + &docs("good", 50, n);
            gateway.bulk(&both).ok().unwrap();
        }
        let one = wait(&gateway, "c0", |one| {
            one["pending"] == 0 || one["paused_lanes"] == 4
        });
        assert_eq!(
            (&one["parked"], &one["indexed"], &one["dead"]),
            (&json!(250), &json!(250), &json!(0)),
            "{error}: {one}"
        );
        no_lane_waits(&one);
        assert!(all_are(&cluster, "good", 50, 5), "{error}");
        assert!(parked_for(&one, "index:blocked"), "{error}: {one}");
        cluster.behave();
        let one = drained(&gateway, "c0");
        assert_eq!((&one["indexed"], &one["dead"]), (&json!(500), &json!(0)));
        assert!(all_are(&cluster, "blocked", 50, 5), "{error}");
    }
}

#[test]
fn what_is_parked_is_tried_again_after_waits_that_grow() {
    let cluster = two_indices();
    cluster.refuse_writes("blocked", Some((403, BLOCKED)));
    let key = grows(&cluster, || cluster.refuse_writes("blocked", None));
    let attempts = key["attempts"].as_u64();
    assert!(Some(5) <= attempts && attempts <= Some(12), "{key}");
}

/// Each try is halved down to single operations, and nothing is gone.
#[test]
fn what_is_refused_whole_is_tried_again_after_waits_that_grow() {
    let cluster = two_indices();
    let whole = Fault::StatusIfHolds {
        text: "\"blocked\"".to_owned(),
        status: 400,
        body: format!("{{\"error\":{CLOSED},\"status\":400}}"),
    };
    cluster.inject(Injection::bulk(whole).always());
    grows(&cluster, || cluster.behave());
}

/// Checks that the waits of an index that takes nothing grow, until it is cured. Returns its key before that.
fn grows(cluster: &FakeCluster, cure: impl FnOnce()) -> Value {
    let place = GatewayHome::before(&[cluster], "");
    let gateway = place.start();
    gateway.bulk(&docs("blocked", 10, 1)).ok().unwrap();
    wait(&gateway, "c0", |one| one["parked"] == 10);
    // The first wait is 20 ms. Each of the next ones is twice as long, less up to half of it.
    let began = Instant::now();
    let key = loop {
        let listed = gateway.admin().get("/queue/q/parked").unwrap();
        let listed: Value = listed.ok().unwrap().json().unwrap();
        let key = listed["groups"]["c0"]["keys"][0].clone();
        if key["next_try_s"].as_f64() > Some(0.7) {
            break key;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{listed}");
        std::thread::sleep(Duration::from_millis(20));
    };
    cure();
    assert_eq!(
        drained(&gateway, "c0")["indexed"],
        10,
        "it is tried without being told to"
    );
    key
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

/// Flips a bit of the first text like this in the store of parked operations.
fn damage_parked(place: &GatewayHome, text: &str) {
    let folder = place.data().join("parked/q/c0");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let segments = files.filter(|file| file.extension().is_some_and(|extension| extension == "segment"));
    for file in segments {
        let mut bytes = std::fs::read(&file).unwrap();
        let found = bytes
            .windows(text.len())
            .position(|window| window == text.as_bytes());
        if let Some(at) = found {
            bytes[at] ^= 1;
            return std::fs::write(file, bytes).unwrap();
        }
    }
    panic!("{text} is not parked");
}

/// What the disk loses is lost and no more, whether it is tried again or the gateway starts first.
#[test]
fn a_parked_document_that_the_disk_has_damaged_counts_as_lost_and_holds_up_no_other() {
    for is_stopped in [false, true] {
        let cluster = two_indices();
        cluster.refuse_writes("blocked", Some((403, BLOCKED)));
        let place = GatewayHome::before(&[&cluster], "");
        let mut gateway = place.start();
        for n in 1..=2 {
            gateway.bulk(&docs("blocked", 1, n)).ok().unwrap();
            wait(&gateway, "c0", |one| one["parked"] == n && one["pending"] == 0);
        }
        let damage = || damage_parked(&place, "{\"n\":1}");
        if is_stopped {
            gateway.signal("TERM");
            assert!(gateway.wait().success());
            damage();
            gateway = place.start();
            let one = wait(&gateway, "c0", |_| true);
            let counts = ["lost", "parked", "indexed"].map(|state| one[state].as_u64().unwrap());
            assert_eq!(counts, [1, 1, 0], "{one}");
        } else {
            damage();
        }
        cluster.refuse_writes("blocked", None);
        for _ in 0..3 {
            let one = drained(&gateway, "c0");
            let counts = ["lost", "indexed", "dead"].map(|state| one[state].as_u64().unwrap());
            assert_eq!(counts, [1, 1, 0], "{one}");
            assert!(all_are(&cluster, "blocked", 1, 2));
            gateway = restarted(gateway, &place);
        }
    }
}

/// Makes the indices `users-1`, to which the alias `users` leads, and `orders`, and a queue of one lane. More
/// than 100 KB of what is parked is not tried again together.
fn users_and_orders() -> (FakeCluster, GatewayHome) {
    let spec = Spec::default().index("users-1", 2).index("orders", 2).storing();
    let cluster = FakeCluster::start(spec).unwrap();
    cluster.alias("users", &["users-1"]);
    let place = GatewayHome::before(&[&cluster], "");
    let text = std::fs::read_to_string(&place.file).unwrap();
    std::fs::write(&place.file, text.replace("lanes: 4", "lanes: 1")).unwrap();
    place.append("worker: {delivery_memory: 8mb}\n");
    (cluster, place)
}

fn block_users(cluster: &FakeCluster) {
    let error = BLOCKED.replace("[blocked]", "[users-1]");
    cluster.refuse_writes("users-1", Some((403, &error)));
}

/// Has the cluster refuse documents that contain `holds`, in a way that parks each by itself.
fn fail_alone(cluster: &FakeCluster, holds: Option<&str>) {
    cluster.set_behaviour(Behaviour {
        unfit: holds.map(|holds| Unfit {
            holds: holds.to_owned(),
            status: 404,
            error: r#"{"type":"index_not_found_exception","reason":"no such index [elsewhere]"}"#.to_owned(),
        }),
        ..Behaviour::default()
    });
}

/// Stops a gateway, so that what it has committed is durable and is not delivered again, and starts it again.
fn restarted(mut gateway: Gateway, place: &GatewayHome) -> Gateway {
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    place.start()
}

pub(crate) fn parked_for(one: &Value, key: &str) -> bool {
    let keys = one["parked_for"].as_array();
    keys.is_some_and(|keys| keys.iter().any(|parked| parked["key"] == key))
}

#[test]
fn an_index_that_takes_nothing_holds_up_no_other_after_a_restart_though_ids_are_the_same() {
    let (cluster, place) = users_and_orders();
    let gateway = place.start();
    block_users(&cluster);
    fail_alone(&cluster, Some("{\"n\":666}"));
    gateway.bulk(&large("users", "", 300, 1)).ok().unwrap();
    gateway.bulk(&docs("orders", 20, 666)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["parked"] == 320 && one["pending"] == 0);
    assert!(
        parked_for(&one, "index:users-1") && parked_for(&one, "documents"),
        "{one}"
    );
    let gateway = restarted(gateway, &place);
    let others = docs("orders", 20, 2).replace("\"_id\":\"", "\"_id\":\"x");
    gateway.bulk(&others).ok().unwrap();
    wait(&gateway, "c0", |one| one["indexed"] == 20);
    fail_alone(&cluster, None);
    let one = wait(&gateway, "c0", |one| one["indexed"] == 40);
    assert_eq!((&one["parked"], &one["dead"]), (&json!(300), &json!(0)), "{one}");
    assert!(cluster.docs("users-1").is_empty());
    cluster.refuse_writes("users-1", None);
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(340), &json!(0)));
}

/// Operations on two indices are parked together, and one of them follows an earlier one into the line of its
/// index after a restart.
#[test]
fn an_index_that_takes_nothing_does_not_hold_up_one_that_was_parked_beside_it_after_a_restart() {
    let (cluster, place) = users_and_orders();
    let gateway = place.start();
    block_users(&cluster);
    gateway.bulk(&large("users", "", 300, 1)).ok().unwrap();
    wait(&gateway, "c0", |one| {
        parked_for(one, "index:users-1") && one["pending"] == 0
    });
    fail_alone(&cluster, Some("{\"t\":"));
    cluster.refuse_writes("users-1", None);
    wait(&gateway, "c0", |one| {
        parked_for(one, "documents") && !parked_for(one, "index:users-1")
    });
    gateway.bulk(&large("orders", "", 1, 1)).ok().unwrap();
    wait(&gateway, "c0", |one| one["parked"] == 301 && one["pending"] == 0);
    let both = docs("users", 1, 2) + &docs("orders", 1, 2);
    gateway.bulk(&both).ok().unwrap();
    wait(&gateway, "c0", |one| one["parked"] == 303 && one["pending"] == 0);
    block_users(&cluster);
    let gateway = restarted(gateway, &place);
    let others = docs("orders", 20, 3).replace("\"_id\":\"", "\"_id\":\"x");
    gateway.bulk(&others).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["indexed"] == 20);
    assert!(parked_for(&one, "index:users-1"), "{one}");
    fail_alone(&cluster, None);
    cluster.refuse_writes("users-1", None);
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(323), &json!(0)));
    assert_eq!(cluster.docs("users-1")["0"].source, "{\"n\":2}");
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

/// Whether a conflict is with an operation's own first sending is known only from the document.
#[test]
fn a_conflict_that_cannot_be_read_dies_with_words_that_name_the_right_that_is_missing() {
    let no_right = r#"{"error":{"type":"security_exception","reason":"no permissions for [indices:data/read/get]"},"status":403}"#;
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], ", parked_max_age: 300ms");
    let gateway = place.start();
    let refused = Fault::Status {
        status: 403,
        body: no_right.to_owned(),
    };
    cluster.inject(Injection::new(On::Path("/good/_doc".to_owned()), refused).always());
    cluster.inject(Injection::bulk(Fault::CloseWritten).times(1));
    let create = docs("good", 1, 1).replace("{\"index\"", "{\"create\"");
    gateway.bulk(&create).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["dead"] == 1);
    no_lane_waits(&one);
    let listed = gateway.admin().get("/dead_letters?queue=q").unwrap();
    let listed: Value = listed.ok().unwrap().json().unwrap();
    let reason = listed["dead_letters"][0]["reason"].as_str().unwrap_or_default();
    for words in [
        "it was parked for",
        "version conflict",
        "[good]",
        "`read`",
        "indices:data/read/get",
    ] {
        assert!(reason.contains(words), "{words}: {listed}");
    }
}

#[test]
fn an_operator_sees_what_is_parked_and_releases_it_or_gives_it_up() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    place.retries_after_ms(60_000);
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
    let thirty = json!(30);
    assert_eq!(
        (&one["parked"], &one["rewound"], &one["pending"]),
        (&thirty, &thirty, &thirty)
    );
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
        (500, "mapper_exception", "timed out while waiting for a dynamic mapping update".to_owned(), "index:good"),
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
