//! Servers, their plugins and proxies refuse whole requests for one index or one document. Only what waits
//! for that is parked; for the account or the whole cluster, the lanes wait.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::fake::{FakeCluster, Fault, Injection, On};

use crate::gateway::{Gateway, PATIENCE};
use crate::home::{GatewayHome, account, drained, queue, wait};
use crate::parked::{BLOCKED, FLOOD, NO_RIGHT, all_are, docs, no_lane_waits, parked_for, send, two_indices};

const MISSING: &str =
    r#"{"type":"index_not_found_exception","reason":"no such index [blocked]","index":"blocked"}"#;
const UNREADY: &str = r#"{"type":"cluster_block_exception","reason":"index [blocked] blocked by: [SERVICE_UNAVAILABLE/14/index refresh];"}"#;
const NO_PRIMARY: &str = r#"{"type":"unavailable_shards_exception","reason":"[blocked][0] primary shard is not active Timeout: [3s], request: [x]"}"#;
/// A server's words that name no index.
const NO_PERMISSION: &str = r#"{"type":"security_exception","reason":"no permissions for [indices:data/write/bulk[s]] and User [name=gateway]"}"#;
/// The words of a plugin, which have no type, and those of a proxy.
const FORBIDDEN: &str = r#"{"error":{"reason":"forbidden","due_to":["OPERATION_NOT_ALLOWED"]},"status":403}"#;
const PAGE: &str = "<html>this is not allowed";

fn error(status: u16, error: &str) -> String {
    format!("{{\"error\":{error},\"status\":{status}}}")
}

/// Has a cluster refuse every bulk that holds a text.
fn refuse(cluster: &FakeCluster, text: &str, status: u16, body: String) {
    let text = text.to_owned();
    cluster.inject(Injection::bulk(Fault::StatusIfHolds { text, status, body }).always());
}

/// Sends five times 50 documents for each index; returns the account when nothing moves any more.
fn both_sent(gateway: &Gateway) -> Value {
    for n in 1..=5 {
        let both = docs("blocked", 50, n) + &docs("good", 50, n);
        gateway.bulk(&both).ok().unwrap();
    }
    let stuck = |one: &Value| one["paused_lanes"] == 4 || one["retrying_lanes"] == 4;
    wait(gateway, "c0", |one| one["pending"] == 0 || stuck(one))
}

#[test]
fn an_index_for_which_whole_requests_are_refused_holds_up_no_other() {
    for (status, words, key) in [
        (403, error(403, BLOCKED), "index:blocked"),
        (403, error(403, NO_RIGHT), "index:blocked"),
        (403, error(403, NO_PERMISSION), "index:blocked"),
        (403, FORBIDDEN.to_owned(), "index:blocked"),
        (403, PAGE.to_owned(), "index:blocked"),
        (404, error(404, MISSING), "index:blocked"),
        (404, PAGE.to_owned(), "index:blocked"),
        (429, error(429, FLOOD), "index:blocked"),
        (503, error(503, UNREADY), "index:blocked"),
        (503, error(503, NO_PRIMARY), "shards:blocked:0"),
    ] {
        let cluster = two_indices();
        let place = GatewayHome::before(&[&cluster], "");
        let gateway = place.start();
        refuse(&cluster, "\"blocked\"", status, words.clone());
        let one = both_sent(&gateway);
        assert_eq!(
            (&one["parked"], &one["indexed"], &one["dead"]),
            (&json!(250), &json!(250), &json!(0)),
            "{words}: {one}"
        );
        no_lane_waits(&one);
        assert!(all_are(&cluster, "good", 50, 5), "{words}");
        assert!(parked_for(&one, key), "{words}: {one}");
        cluster.behave();
        let one = drained(&gateway, "c0");
        assert_eq!((&one["indexed"], &one["dead"]), (&json!(500), &json!(0)));
        assert!(all_are(&cluster, "blocked", 50, 5), "{words}");
        assert_eq!(cluster.docs("blocked")["7"].version, 5, "each once");
    }
}

/// What looks for attacks in requests refuses the whole request for one document.
#[test]
fn a_document_for_which_whole_requests_are_refused_holds_up_no_other() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    refuse(&cluster, "{\"n\":666}", 403, PAGE.to_owned());
    let bad = docs("good", 1, 666) + &docs("blocked", 1, 666);
    let others = docs("good", 100, 1) + &docs("blocked", 100, 1);
    let others = others.replace("\"_id\":\"", "\"_id\":\"x");
    gateway.bulk(&(bad + &others)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| {
        one["pending"] == 0 && parked_for(one, "documents") && one["indexed"] == 200
    });
    assert_eq!((&one["parked"], &one["dead"]), (&json!(2), &json!(0)), "{one}");
    no_lane_waits(&one);
    gateway.bulk(&docs("good", 1, 2)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["pending"] == 0);
    assert_eq!(
        one["parked"], 3,
        "a later write to the same document waits: {one}"
    );
    cluster.behave();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(203), &json!(0)));
    assert_eq!(cluster.docs("good")["0"].source, "{\"n\":2}");
}

/// What looks at requests on their way words its refusals as it likes, or cuts the connection.
#[test]
fn a_document_at_which_something_on_the_way_takes_offence_holds_up_no_other_however_that_shows() {
    let page = |status| Fault::StatusIfHolds {
        text: "{\"n\":666}".to_owned(),
        status,
        body: PAGE.to_owned(),
    };
    let statuses = [200, 302, 400, 405, 406, 451, 500, 501, 502, 503, 504].map(page);
    let cut = Fault::CloseIfHolds("{\"n\":666}".to_owned());
    for fault in statuses.into_iter().chain([cut]) {
        let cluster = two_indices();
        let place = GatewayHome::before(&[&cluster], "");
        let gateway = place.start();
        cluster.inject(Injection::bulk(fault.clone()).always());
        let others = docs("good", 100, 1) + &docs("blocked", 100, 1);
        let others = others.replace("\"_id\":\"", "\"_id\":\"x");
        gateway.bulk(&(docs("good", 1, 666) + &others)).ok().unwrap();
        let one = wait(&gateway, "c0", |one| one["pending"] == 0 && one["indexed"] == 200);
        assert_eq!(
            (&one["parked"], &one["dead"]),
            (&json!(1), &json!(0)),
            "{fault:?}: {one}"
        );
        assert!(parked_for(&one, "documents"), "{fault:?}: {one}");
        no_lane_waits(&one);
        cluster.behave();
        let one = drained(&gateway, "c0");
        assert_eq!((&one["indexed"], &one["dead"]), (&json!(201), &json!(0)));
        assert_eq!(cluster.docs("good")["0"].version, 1, "once: {fault:?}");
    }
}

/// Something on the way may answer in its own words although the cluster has executed the request.
#[test]
fn what_was_executed_before_something_on_the_way_answered_in_its_own_words_is_no_conflict() {
    for status in [302, 400, 403, 404, 406, 413, 429, 451, 502] {
        let cluster = two_indices();
        let place = GatewayHome::before(&[&cluster], "");
        let gateway = place.start();
        let body = PAGE.to_owned();
        cluster.inject(Injection::bulk(Fault::StatusWritten { status, body }).times(2));
        let creates = docs("good", 20, 1).replace("{\"index\"", "{\"create\"");
        gateway.bulk(&creates).ok().unwrap();
        let one = drained(&gateway, "c0");
        assert_eq!(
            (&one["indexed"], &one["dead"]),
            (&json!(20), &json!(0)),
            "{status}: {one}"
        );
        let there = cluster.docs("good");
        assert!(there.values().all(|doc| doc.version == 1), "once: {status}");
    }
}

/// Whether a failure is the third in a row that nobody explains decides whether a document is suspected.
#[test]
fn a_failure_that_nobody_explains_blames_no_document_that_others_kept_waiting_before() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    place.retries_after_ms(60_000);
    let gateway = place.start();
    cluster.refuse_writes("blocked", Some((403, BLOCKED)));
    gateway.bulk(&docs("blocked", 1, 666)).ok().unwrap();
    wait(&gateway, "c0", |one| one["parked"] == 1 && one["pending"] == 0);
    let attempts = |one: &Value| one["parked_for"][0]["attempts"].as_u64();
    let release = || {
        let before = attempts(&account(&queue(&gateway), "c0"));
        let path = "/queue/q/parked/_release";
        gateway
            .admin()
            .send("POST", path, &[], &[])
            .unwrap()
            .ok()
            .unwrap();
        before
    };
    let tried = || {
        let before = release();
        wait(&gateway, "c0", |one| {
            attempts(one) > before || parked_for(one, "documents")
        })
    };
    for _ in 0..4 {
        tried();
    }
    cluster.inject(Injection::bulk(Fault::CloseIfHolds("{\"n\":666}".to_owned())).always());
    cluster.refuse_writes("blocked", None);
    let one = tried();
    assert!(
        parked_for(&one, "index:blocked") && !parked_for(&one, "documents"),
        "{one}"
    );
    cluster.behave();
    release();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(1), &json!(0)));
}

#[test]
fn failures_of_which_a_server_says_why_and_one_that_nobody_explains_are_not_three_in_a_row() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let holds = "{\"n\":666}".to_owned();
    let without_master = Fault::StatusIfHolds {
        text: holds.clone(),
        status: 503,
        body: error(503, r#"{"type":"master_not_discovered_exception","reason":null}"#),
    };
    cluster.inject(Injection::bulk(without_master).times(3));
    cluster.inject(Injection::bulk(Fault::CloseIfHolds(holds)).times(1));
    gateway.bulk(&docs("good", 1, 666)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["indexed"] == 1 || one["parked"] == 1);
    assert_eq!((&one["indexed"], &one["parked"]), (&json!(1), &json!(0)), "{one}");
    assert_eq!(cluster.struck(), 4, "all of them were for the document");
}

#[test]
fn documents_of_several_lanes_for_which_connections_are_cut_are_found_and_no_other_is_blamed() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    cluster.inject(Injection::bulk(Fault::CloseIfHolds("{\"n\":666}".to_owned())).always());
    // Each lane has some of these four, and shares requests with the others.
    let bad = docs("good", 4, 666).replace("\"_id\":\"", "\"_id\":\"bad");
    let body = docs("good", 150, 1) + &bad + &docs("blocked", 150, 1);
    gateway.bulk(&body).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["pending"] == 0);
    let told = (&one["indexed"], &one["parked"], &one["dead"]);
    assert_eq!(told, (&json!(300), &json!(4), &json!(0)), "{one}");
    assert!(parked_for(&one, "documents"), "{one}");
    cluster.behave();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(304), &json!(0)));
}

#[test]
fn a_document_that_is_too_long_for_something_on_the_way_holds_up_no_other() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let long = Fault::StatusIfLonger {
        bytes: 20_000,
        status: 403,
        body: PAGE.to_owned(),
    };
    cluster.inject(Injection::bulk(long).always());
    let source = format!("{{\"t\":\"{}\"}}", "x".repeat(50_000));
    let line = format!("{{\"index\":{{\"_index\":\"good\",\"_id\":\"long\"}}}}\n{source}\n");
    // In requests of its own, with nothing of its batch that goes through.
    gateway.bulk(&line).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["parked"] == 1 && one["pending"] == 0);
    assert!(parked_for(&one, "documents"), "{one}");
    gateway.bulk(&docs("good", 200, 1)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["pending"] == 0 && one["indexed"] == 200);
    assert_eq!((&one["parked"], &one["dead"]), (&json!(1), &json!(0)), "{one}");
    cluster.behave();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(201), &json!(0)));
}

/// Waits until a fault has struck this many times more.
pub(crate) fn struck(cluster: &FakeCluster, more: u64) {
    let (before, began) = (cluster.struck(), Instant::now());
    while cluster.struck() < before + more {
        assert!(began.elapsed() < PATIENCE, "it is not tried again");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_operation_that_was_damaged_on_the_way_once_does_not_die() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let words = r#"{"type":"illegal_argument_exception","reason":"The bulk request must be terminated by a newline [\\n]"}"#;
    let refused = Fault::StatusIfHolds {
        text: "{\"n\":7}".to_owned(),
        status: 400,
        body: error(400, words),
    };
    cluster.inject(Injection::bulk(refused.clone()));
    gateway.bulk(&docs("good", 1, 7)).ok().unwrap();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(1), &json!(0)));
    assert_eq!(cluster.struck(), 1);
    // What is refused again is dead.
    cluster.inject(Injection::bulk(refused).always());
    gateway.bulk(&docs("good", 1, 7)).ok().unwrap();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(1), &json!(1)));
    assert_eq!(cluster.struck(), 3);
}

#[test]
fn a_server_that_refuses_everything_makes_the_lanes_wait_whatever_it_says() {
    let invalid = error(400, r#"{"type":"illegal_argument_exception","reason":"no"}"#);
    let failed = error(500, r#"{"type":"null_pointer_exception","reason":"no"}"#);
    for (status, body) in [(413, String::new()), (400, invalid), (500, failed)] {
        let cluster = two_indices();
        let place = GatewayHome::before(&[&cluster], "");
        let gateway = place.start();
        gateway.bulk(&docs("good", 1, 1)).ok().unwrap();
        drained(&gateway, "c0");
        cluster.inject(Injection::bulk(Fault::Status { status, body }).always());
        gateway.bulk(&docs("good", 20, 2)).ok().unwrap();
        struck(&cluster, 60);
        let one = account(&queue(&gateway), "c0");
        let told = (&one["pending"], &one["parked"], &one["dead"]);
        assert_eq!(told, (&json!(20), &json!(0), &json!(0)), "{status}: {one}");
        cluster.behave();
        let one = drained(&gateway, "c0");
        assert_eq!(
            (&one["indexed"], &one["dead"]),
            (&json!(21), &json!(0)),
            "{status}"
        );
    }
}

#[test]
fn what_is_refused_for_a_usual_length_by_something_on_the_way_waits_in_its_lane() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    // Whatever is longer than a few words: short questions go through.
    let long = Fault::StatusIfLonger {
        bytes: 2_000,
        status: 500,
        body: PAGE.to_owned(),
    };
    cluster.inject(Injection::bulk(long).always());
    let source = format!("{{\"t\":\"{}\"}}", "x".repeat(3_000));
    let line = format!("{{\"index\":{{\"_index\":\"good\",\"_id\":\"long\"}}}}\n{source}\n");
    gateway.bulk(&line).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one.to_string().contains("500"));
    assert_eq!((&one["parked"], &one["dead"]), (&json!(0), &json!(0)), "{one}");
    // It is tried some times more, with questions each time, and is not parked for that.
    struck(&cluster, 12);
    let one = wait(&gateway, "c0", |_| true);
    let told = (&one["pending"], &one["parked"], &one["dead"]);
    assert_eq!(told, (&json!(1), &json!(0), &json!(0)), "{one}");
    cluster.behave();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(1), &json!(0)));
}

#[test]
fn a_lane_says_that_it_waits_since_the_node_does_not_answer_what_would_tell_whom_a_refusal_concerns() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let busy = Fault::Status {
        status: 429,
        body: PAGE.to_owned(),
    };
    let questions = On::BulkWith("pipeline=_none".to_owned());
    cluster.inject(Injection::new(questions, busy).always());
    refuse(&cluster, "{\"n\":666}", 403, PAGE.to_owned());
    gateway.bulk(&docs("good", 1, 666)).ok().unwrap();
    let told = |one: &Value| {
        let said = one.to_string();
        said.contains("cannot be told whether") && said.contains("429") && said.contains("403")
    };
    let one = wait(&gateway, "c0", told);
    assert_eq!((&one["parked"], &one["dead"]), (&json!(0), &json!(0)), "{one}");
    cluster.behave();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(1), &json!(0)));
}

#[test]
fn many_documents_for_which_whole_requests_are_refused_end_up_parked_by_themselves() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    refuse(&cluster, "{\"n\":666}", 403, PAGE.to_owned());
    let others = docs("good", 60, 1).replace("\"_id\":\"", "\"_id\":\"x");
    gateway
        .bulk(&(docs("good", 60, 666) + &others + &docs("blocked", 60, 1)))
        .ok()
        .unwrap();
    let one = wait(&gateway, "c0", |one| {
        let keys = one["parked_for"].as_array().map_or(0, Vec::len);
        one["indexed"] == 120 && keys == 1 && parked_for(one, "documents")
    });
    assert_eq!(
        (&one["parked"], &one["dead"], &one["pending"]),
        (&json!(60), &json!(0), &json!(0)),
        "{one}"
    );
    cluster.behave();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(180), &json!(0)));
}

/// An account may have the right to create documents alone.
#[test]
fn a_document_is_parked_by_itself_though_the_account_may_not_do_what_a_node_is_asked_for() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let on_questions = |fault| Injection::new(On::BulkWith("pipeline=_none".to_owned()), fault);
    let refused = Fault::Items {
        every: 1,
        status: 403,
        error: NO_PERMISSION.to_owned(),
    };
    cluster.inject(on_questions(refused).always());
    refuse(&cluster, "{\"n\":666}", 403, PAGE.to_owned());
    let others = docs("good", 100, 1).replace("\"_id\":\"", "\"_id\":\"x");
    let all = (docs("good", 1, 666) + &others).replace("{\"index\"", "{\"create\"");
    gateway.bulk(&all).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["indexed"] == 100 && one["pending"] == 0);
    no_lane_waits(&one);
    assert_eq!((&one["parked"], &one["dead"]), (&json!(1), &json!(0)), "{one}");
    assert!(parked_for(&one, "documents"), "{one}");
    cluster.behave();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(101), &json!(0)));
}

#[test]
fn a_node_that_does_not_say_whether_it_takes_an_index_is_asked_again_and_nothing_is_parked_for_the_index() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let away = Fault::StatusIfHolds {
        text: "\"good\"".to_owned(),
        status: 503,
        body: PAGE.to_owned(),
    };
    let questions = On::BulkWith("pipeline=_none".to_owned());
    cluster.inject(Injection::new(questions, away).always());
    refuse(&cluster, "{\"n\":666}", 403, PAGE.to_owned());
    gateway.bulk(&docs("good", 1, 666)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| {
        one["parked"] == 1 || one["retrying_lanes"] == 1 || one["paused_lanes"] == 1
    });
    assert_eq!((&one["parked"], &one["dead"]), (&json!(0), &json!(0)), "{one}");
    cluster.behave();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(1), &json!(0)));
}

/// What looks at requests may have an answer of its own for a name that nobody has.
#[test]
fn a_node_is_asked_about_other_names_if_it_does_not_take_the_one_that_nobody_has() {
    for status in [400, 401, 405] {
        let cluster = two_indices();
        let place = GatewayHome::before(&[&cluster], "");
        let gateway = place.start();
        let unheard_of = Fault::StatusIfHolds {
            text: "tidegate-asks-what-is-refused".to_owned(),
            status,
            body: PAGE.to_owned(),
        };
        let questions = On::BulkWith("pipeline=_none".to_owned());
        cluster.inject(Injection::new(questions, unheard_of).always());
        refuse(&cluster, "\"blocked\"", 403, error(403, BLOCKED));
        gateway.bulk(&docs("blocked", 50, 1)).ok().unwrap();
        let one = wait(&gateway, "c0", |one| {
            one["pending"] == 0 || one["paused_lanes"] == 4
        });
        assert_eq!((&one["parked"], &one["dead"]), (&json!(50), &json!(0)), "{one}");
        assert!(parked_for(&one, "index:blocked"), "{one}");
        cluster.behave();
        let one = drained(&gateway, "c0");
        assert_eq!((&one["indexed"], &one["dead"]), (&json!(50), &json!(0)));
    }
}

/// Operations that failed by themselves at first, and of which one has its requests refused later.
#[test]
fn an_operation_for_which_requests_are_refused_keeps_no_other_parked() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    place.retries_after_ms(60_000);
    // All are parked together.
    place.replace("lanes: 4", "lanes: 1");
    let gateway = place.start();
    let failing = Fault::Items {
        every: 1,
        status: 500,
        error: r#"{"type":"node_not_connected_exception","reason":"no"}"#.to_owned(),
    };
    cluster.inject(Injection::bulk(failing).always());
    let others = docs("good", 40, 1).replace("\"_id\":\"", "\"_id\":\"x");
    gateway.bulk(&(docs("good", 2, 666) + &others)).ok().unwrap();
    let attempts = |one: &Value| {
        let keys = one["parked_for"].as_array();
        keys.and_then(|keys| keys.first()?["attempts"].as_u64())
    };
    let one = wait(&gateway, "c0", |one| {
        one["parked"] == 42 && one["pending"] == 0 && attempts(one) > Some(0)
    });
    assert!(parked_for(&one, "documents"), "{one}");
    cluster.behave();
    refuse(&cluster, "{\"n\":666}", 403, PAGE.to_owned());
    let release = "/queue/q/parked/_release?key=documents";
    let released = gateway.admin().send("POST", release, &[], &[]).unwrap();
    released.ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["indexed"] == 40);
    assert_eq!((&one["parked"], &one["dead"]), (&json!(2), &json!(0)), "{one}");
    cluster.behave();
    let released = gateway.admin().send("POST", release, &[], &[]).unwrap();
    released.ok().unwrap();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(42), &json!(0)));
}

/// A proxy refuses requests with a parameter, whatever they hold.
#[test]
fn parameters_with_which_requests_are_refused_hold_up_no_request_without_them() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let with = "/_bulk?refresh=true";
    send(&gateway, with, &docs("good", 50, 1));
    drained(&gateway, "c0");
    let refused = Fault::Status {
        status: 403,
        body: PAGE.to_owned(),
    };
    let on = On::BulkWith("refresh=true".to_owned());
    cluster.inject(Injection::new(on, refused).always());
    let others = docs("good", 50, 1).replace("\"_id\":\"", "\"_id\":\"x");
    send(&gateway, with, &docs("good", 50, 2));
    gateway.bulk(&others).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["indexed"] == 100 && one["pending"] == 0);
    no_lane_waits(&one);
    assert_eq!((&one["parked"], &one["dead"]), (&json!(50), &json!(0)), "{one}");
    assert!(
        parked_for(&one, "request:good:/_bulk?refresh=true&timeout=1s"),
        "{one}"
    );
    send(&gateway, with, &others.replace("{\"n\":1}", "{\"n\":3}"));
    let one = wait(&gateway, "c0", |one| one["pending"] == 0);
    assert_eq!(one["parked"], 100, "{one}");
    cluster.behave();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(200), &json!(0)));
    assert_eq!(cluster.docs("good")["7"].source, "{\"n\":2}");
    assert_eq!(cluster.docs("good")["x7"].source, "{\"n\":3}");
}

/// Requests with parameters that wait for their index, and are refused for the parameters later.
#[test]
fn parameters_with_which_requests_are_refused_do_not_keep_the_index_of_these_parked() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    cluster.refuse_writes("blocked", Some((403, BLOCKED)));
    send(&gateway, "/_bulk?refresh=true", &docs("blocked", 30, 1));
    wait(&gateway, "c0", |one| one["parked"] == 30 && one["pending"] == 0);
    let others = docs("blocked", 30, 1).replace("\"_id\":\"", "\"_id\":\"x");
    gateway.bulk(&(docs("blocked", 5, 2) + &others)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["parked"] == 65 && one["pending"] == 0);
    assert!(parked_for(&one, "index:blocked"), "{one}");
    let refused = Fault::Status {
        status: 403,
        body: PAGE.to_owned(),
    };
    let on = On::BulkWith("refresh=true".to_owned());
    cluster.inject(Injection::new(on, refused).always());
    cluster.refuse_writes("blocked", None);
    let key = "request:blocked:/_bulk?refresh=true&timeout=1s";
    let one = wait(&gateway, "c0", |one| one["indexed"] == 30);
    assert_eq!((&one["parked"], &one["dead"]), (&json!(35), &json!(0)), "{one}");
    assert!(parked_for(&one, key), "{one}");
    cluster.behave();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(65), &json!(0)));
    let there = cluster.docs("blocked");
    assert_eq!((&*there["0"].source, there["0"].version), ("{\"n\":2}", 2));
    assert_eq!((&*there["9"].source, there["9"].version), ("{\"n\":1}", 1));
}

#[test]
fn an_account_that_may_write_nothing_pauses_the_lanes_and_parks_nothing() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    // What was taken before is asked for again.
    gateway.bulk(&docs("good", 50, 0)).ok().unwrap();
    drained(&gateway, "c0");
    for words in [error(403, NO_PERMISSION), PAGE.to_owned()] {
        let refused = Fault::Status {
            status: 403,
            body: words.clone(),
        };
        cluster.inject(Injection::bulk(refused).always());
        let before = cluster.docs("good").len();
        for n in 1..=5 {
            let both = docs("blocked", 50, n) + &docs("good", 50, n);
            gateway.bulk(&both).ok().unwrap();
        }
        let one = wait(&gateway, "c0", |one| one["paused_lanes"] == 4);
        assert_eq!((&one["parked"], &one["dead"]), (&json!(0), &json!(0)), "{one}");
        assert_eq!(
            (&one["pending"], cluster.docs("good").len()),
            (&json!(500), before)
        );
        let struck = cluster.struck();
        let requests = account(&queue(&gateway), "c0")["requests"].as_u64().unwrap();
        assert!(struck <= 9 * requests, "{struck} of {requests} requests");
        cluster.behave();
        let one = drained(&gateway, "c0");
        assert_eq!(one["dead"], 0, "{one}");
        assert!(all_are(&cluster, "good", 50, 5) && all_are(&cluster, "blocked", 50, 5));
    }
}

/// A plugin may refuse requests for all indices but a few, without a word about indices.
#[test]
fn a_server_that_takes_few_names_is_asked_about_one_of_them() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let all_but_good = Fault::StatusIfLacks {
        text: "\"good\"".to_owned(),
        status: 403,
        body: FORBIDDEN.to_owned(),
    };
    cluster.inject(Injection::bulk(all_but_good).always());
    gateway.bulk(&docs("blocked", 50, 1)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| {
        one["pending"] == 0 || one["paused_lanes"] == 4
    });
    assert_eq!(
        (&one["parked"], &one["pending"]),
        (&json!(50), &json!(0)),
        "{one}"
    );
    assert!(parked_for(&one, "index:blocked"), "{one}");
    gateway.bulk(&docs("good", 50, 1)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["indexed"] == 50);
    no_lane_waits(&one);
    cluster.behave();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(100), &json!(0)));
}
