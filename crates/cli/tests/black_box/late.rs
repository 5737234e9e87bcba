//! A node that keeps a request for long holds up nothing but what the request is about.

use std::cell::Cell;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::fake::{
    Behaviour, FakeCluster, Fault, Formula, HeldUp, Injection, Spec, Unfit, routing_num_shards, shard_of,
};

use crate::gateway::Gateway;
use crate::home::{GatewayHome, account, drained, queue, wait};
use crate::parked::{BLOCKED, all_are, docs, parked_for, send, two_indices};

/// The value of the documents whose requests a node keeps.
const KEPT: usize = 777;

/// Has nodes keep requests with such documents for this long, and refuse documents that hold `other`.
fn keep(cluster: &FakeCluster, wait: Duration) {
    cluster.set_behaviour(Behaviour {
        held_up: Some(HeldUp {
            holds: format!("{{\"n\":{KEPT}}}"),
            wait,
        }),
        unfit: Some(Unfit {
            holds: "other".to_owned(),
            status: 400,
            error: r#"{"type":"strict_dynamic_mapping_exception","reason":"not allowed"}"#.to_owned(),
        }),
        ..Behaviour::default()
    });
}

/// Waits for this, for as long as it may take at most.
fn within(time: Duration, holds: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < time {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    holds()
}

/// Returns the same operations on documents with other ids.
fn others(body: &str, prefix: &str) -> String {
    body.replace("\"_id\":\"", &format!("\"_id\":\"{prefix}"))
}

#[test]
fn others_documents_go_on_while_a_node_keeps_a_request_and_each_is_executed_once_and_in_order() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let began = Instant::now();
    keep(&cluster, Duration::from_secs(8));
    gateway.bulk(&docs("blocked", 50, KEPT)).ok().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    for n in 1..=5 {
        gateway.bulk(&docs("good", 50, n)).ok().unwrap();
        gateway.bulk(&docs("blocked", 50, n)).ok().unwrap();
        gateway.bulk(&others(&docs("blocked", 50, n), "x")).ok().unwrap();
    }
    let all = || {
        let blocked = cluster.docs("blocked");
        all_are(&cluster, "good", 50, 5)
            && (0..50).all(|id| {
                let doc = blocked.get(&format!("x{id}"));
                doc.is_some_and(|doc| doc.source == "{\"n\":5}")
            })
    };
    let arrived = within(Duration::from_secs(5), all);
    let one = account(&queue(&gateway), "c0");
    assert!(arrived && began.elapsed() < Duration::from_secs(7), "{one}");
    let blocked = cluster.docs("blocked");
    let is_early = |id: usize| blocked.get(&id.to_string()).is_some_and(|doc| doc.version > 1);
    assert!(!(0..50).any(is_early), "later versions wait: {blocked:?}");
    assert!(one["parked"].as_u64() > Some(0), "{one}");
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(800), &json!(0)));
    assert!(began.elapsed() >= Duration::from_secs(8));
    for (id, doc) in cluster.docs("blocked") {
        assert_eq!(doc.source, "{\"n\":5}", "{id}");
        let versions = if id.starts_with('x') { 5 } else { 6 };
        assert_eq!(doc.version, versions, "{id} each once");
    }
}

#[test]
fn an_index_whose_requests_are_all_kept_waits_in_a_line_of_its_own() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    place.replace("lanes: 4", "lanes: 1");
    let gateway = place.start();
    keep(&cluster, Duration::from_secs(6));
    let (mut arrived, mut has_line) = (Duration::ZERO, false);
    for n in 0..20 {
        let began = Instant::now();
        let kept = others(&docs("blocked", 50, KEPT), &format!("{n}-"));
        gateway.bulk(&kept).ok().unwrap();
        gateway.bulk(&docs("good", 50, n)).ok().unwrap();
        assert!(within(Duration::from_secs(10), || all_are(
            &cluster, "good", 50, n
        )));
        arrived = arrived.max(began.elapsed());
        has_line |= parked_for(&account(&queue(&gateway), "c0"), "index:blocked");
    }
    assert!(
        has_line && arrived < Duration::from_secs(5),
        "{has_line}, {arrived:?}"
    );
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(2_000), &json!(0)));
    let blocked = cluster.docs("blocked");
    assert!(blocked.len() == 1_000 && blocked.values().all(|doc| doc.version == 1));
}

#[test]
fn operations_that_a_late_answer_refuses_are_dead_letters_and_the_others_are_done() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    place.replace("lanes: 4", "lanes: 1");
    let gateway = place.start();
    keep(&cluster, Duration::from_secs(5));
    let unfit = "{\"index\":{\"_index\":\"blocked\",\"_id\":\"unfit\"}}\n{\"other\":1}\n";
    gateway.bulk(&(docs("blocked", 50, KEPT) + unfit)).ok().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    gateway.bulk(&docs("good", 50, 1)).ok().unwrap();
    assert!(within(Duration::from_secs(4), || all_are(
        &cluster, "good", 50, 1
    )));
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(100), &json!(1)), "{one}");
    assert!(cluster.docs("blocked").values().all(|doc| doc.version == 1));
}

#[test]
fn what_was_under_way_at_a_kill_is_sent_again_and_later_writes_on_its_document_follow() {
    let cluster = FakeCluster::start(Spec::default().index("good", 1).index("blocked", 1).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    place.replace("lanes: 4", "lanes: 1");
    let gateway = place.start();
    cluster.inject(Injection::bulk(Fault::HangWritten));
    gateway.bulk(&docs("blocked", 1, 1)).ok().unwrap();
    assert!(within(Duration::from_secs(5), || cluster.struck() == 1));
    gateway.bulk(&docs("good", 50, 1)).ok().unwrap();
    gateway.bulk(&docs("blocked", 1, 2)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["pending"] == 0);
    assert_eq!(
        (&one["parked"], &one["indexed"]),
        (&json!(2), &json!(50)),
        "{one}"
    );
    drop(gateway);
    let gateway = place.start();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(52), &json!(0)), "{one}");
    assert!(all_are(&cluster, "blocked", 1, 2));
    // The name leads nowhere else, so nobody looks for the first one: to write the same again does no harm.
    let versions: Vec<u64> = cluster.docs("blocked").values().map(|doc| doc.version).collect();
    assert_eq!(versions, [3]);
}

#[test]
fn a_gateway_that_stops_writes_down_what_a_kept_request_has_done() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    place.replace("lanes: 4", "lanes: 1");
    let mut gateway = place.start();
    keep(&cluster, Duration::from_secs(5));
    gateway.bulk(&docs("blocked", 50, KEPT)).ok().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    gateway.bulk(&docs("good", 50, 1)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["pending"] == 0);
    assert_eq!(one["parked"], 50, "{one}");
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    cluster.set_behaviour(Behaviour::default());
    let gateway = place.start();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(100), &json!(0)), "{one}");
    assert!(
        cluster.docs("blocked").values().all(|doc| doc.version == 1),
        "each once"
    );
}

#[test]
fn writes_on_documents_of_a_kept_request_wait_in_their_lanes_once_many_are_parked() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], ", parked_max_size: 100mb");
    let gateway = place.start();
    keep(&cluster, Duration::from_secs(8));
    gateway.bulk(&docs("blocked", 20, KEPT)).ok().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    gateway.bulk(&docs("good", 50, 1)).ok().unwrap();
    let padding = "x".repeat(100_000);
    for n in 0..40 {
        let text = docs("blocked", 20, n).replace("{\"n\":", &format!("{{\"p\":\"{padding}\",\"n\":"));
        gateway.bulk(&text).ok().unwrap();
    }
    let most = Cell::new(0);
    let one = wait(&gateway, "c0", |one| {
        most.set(most.get().max(one["parked"].as_u64().unwrap()));
        one["parked"] == 0 && one["pending"] == 0
    });
    assert!(most.get() < 600, "8 MiB and what lanes had read then: {most:?}");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(870), &json!(0)), "{one}");
    for (id, doc) in cluster.docs("blocked") {
        assert!(
            doc.source.ends_with("\"n\":39}") && doc.version == 41,
            "{id}: {}",
            doc.version
        );
    }
}

#[test]
fn a_node_that_pauses_sends_no_stream_to_one_index_through_the_store() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    gateway.bulk(&docs("good", 50, 0)).ok().unwrap();
    drained(&gateway, "c0");
    cluster.pause(0);
    cluster.pause(1);
    let began = Instant::now();
    let mut n = 0;
    while began.elapsed() < Duration::from_secs(3) {
        n += 1;
        gateway.bulk(&docs("good", 50, n)).ok().unwrap();
        assert_eq!(account(&queue(&gateway), "c0")["parked"], 0);
        std::thread::sleep(Duration::from_millis(20));
    }
    cluster.resume(0);
    cluster.resume(1);
    wait(&gateway, "c0", |one| {
        assert_eq!(one["parked"], 0, "{one}");
        one["pending"] == 0
    });
    assert!(all_are(&cluster, "good", 50, n));
}

#[test]
fn a_kept_try_of_one_parked_document_keeps_no_other_from_its_turn() {
    let cluster = FakeCluster::start(Spec::default().index("good", 1).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let refuse = |value: Option<usize>| {
        let unfit = value.map(|value| Unfit {
            holds: format!("\"n\":{value}}}"),
            status: 429,
            error: r#"{"type":"es_rejected_execution_exception","reason":"no"}"#.to_owned(),
        });
        cluster.set_behaviour(Behaviour {
            unfit,
            ..Behaviour::default()
        });
    };
    let write = |documents: &[(&str, usize)]| {
        let line =
            |(id, n)| format!("{{\"index\":{{\"_index\":\"good\",\"_id\":\"{id}\"}}}}\n{{\"n\":{n}}}\n");
        let lines: String = documents.iter().copied().map(line).collect();
        gateway.bulk(&lines).ok().unwrap();
    };
    let has = |id: &str, n: usize| {
        let docs = cluster.docs("good");
        docs.get(id)
            .is_some_and(|doc| doc.source == format!("{{\"n\":{n}}}"))
    };
    refuse(Some(666));
    write(&[("kept", 666)]);
    wait(&gateway, "c0", |one| one["parked"] == 1);
    // The next request is its try.
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_secs(20))));
    assert!(within(Duration::from_secs(10), || cluster.struck() == 1));
    let began = Instant::now();
    refuse(Some(667));
    write(&[("other", 667)]);
    write(&[("other", 668)]);
    // In another batch; the two that are parked together do not go together.
    wait(&gateway, "c0", |one| one["parked"] == 3);
    write(&[("kept", 669), ("third", 667)]);
    let one = wait(&gateway, "c0", |one| one["parked"] == 5);
    assert!(parked_for(&one, "documents"), "{one}");
    refuse(None);
    let arrived = within(Duration::from_secs(15), || has("other", 668) && has("third", 667));
    assert!(arrived, "{:#}", queue(&gateway));
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    assert!(!has("kept", 669), "it waits for the earlier one");
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(5), &json!(0)), "{one}");
    assert!(has("kept", 669) && has("other", 668));
    for (id, doc) in cluster.docs("good") {
        let versions = if id == "third" { 1 } else { 2 };
        assert_eq!(doc.version, versions, "{id} each once");
    }
}

/// Makes two nodes, with the indices `hung-0`, `hung-1` and so on on the first, `sound` on the second, and
/// `both` on both, and a gateway whose requests may take 40 s.
fn one_node_that_will_hang(hung: usize) -> (FakeCluster, GatewayHome) {
    let spec = Spec {
        nodes: 2,
        ..Spec::default()
    };
    let spec = (0..hung).fold(spec.storing(), |spec, at| spec.index(&format!("hung-{at}"), 1));
    let cluster = FakeCluster::start(spec.index("sound", 1).index("both", 2)).unwrap();
    (0..hung).for_each(|at| cluster.move_shard(&format!("hung-{at}"), 0, 0));
    cluster.move_shard("sound", 0, 1);
    (0..2).for_each(|shard| cluster.move_shard("both", shard, shard as usize));
    let place = GatewayHome::before(&[&cluster], "");
    place.replace(
        "{bulk_indexing: {elasticsearch: c0}}",
        "{bulk_indexing: {elasticsearch: c0, timeout: 40s}}",
    );
    // What is parked is tried when it is told to.
    place.retries_after_ms(60_000);
    (cluster, place)
}

/// Waits until this many parked documents were tried, and has the first node keep all bulks without an answer
/// while all that is parked is tried again; these indices take writes then.
fn hangs_while_all_is_tried(cluster: &FakeCluster, gateway: &Gateway, tried: u64, blocked: &[String]) {
    wait(gateway, "c0", |one| one["docs_retried"].as_u64() >= Some(tried));
    cluster.inject(Injection::bulk(Fault::HangUnwritten).on_node(0).always());
    cluster.set_behaviour(Behaviour::default());
    blocked
        .iter()
        .for_each(|index| cluster.refuse_writes(index, None));
    release_all(gateway);
}

fn release_all(gateway: &Gateway) {
    let path = "/queue/q/parked/_release";
    gateway.admin().send("POST", path, &[], &[]).unwrap();
}

/// Lets the node answer again, and checks that all documents were executed once.
fn all_is_executed_once(cluster: &FakeCluster, gateway: &Gateway, indices: &[String], all: usize) {
    cluster.behave();
    let one = wait(gateway, "c0", |one| {
        let is_done = one["pending"] == 0 && one["parked"] == 0;
        if !is_done {
            std::thread::sleep(Duration::from_millis(500));
            release_all(gateway);
        }
        is_done
    });
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(all), &json!(0)), "{one}");
    let docs = indices.iter().map(|index| cluster.docs(index));
    let versions: Vec<u64> = docs
        .flat_map(|docs| docs.into_values().map(|doc| doc.version))
        .collect();
    assert_eq!(versions, vec![1; all]);
}

#[test]
fn a_node_that_answers_nothing_keeps_no_parked_document_for_another_node_from_its_turn() {
    let (cluster, place) = one_node_that_will_hang(1);
    let gateway = place.start();
    cluster.set_behaviour(Behaviour {
        unfit: Some(Unfit {
            holds: "{\"n\":".to_owned(),
            status: 404,
            error: r#"{"type":"index_not_found_exception","reason":"no such index [elsewhere]"}"#.to_owned(),
        }),
        ..Behaviour::default()
    });
    // Requests with different parameters are not tried together.
    for at in 0..12 {
        let text = others(&docs("hung-0", 1, at), &format!("{at}-"));
        send(&gateway, &format!("/_bulk?routing=r{at}"), &text);
    }
    wait(&gateway, "c0", |one| one["parked"] == 12 && one["pending"] == 0);
    gateway.bulk(&docs("sound", 1, 1)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["parked"] == 13 && one["pending"] == 0);
    assert!(parked_for(&one, "documents"), "{one}");
    hangs_while_all_is_tried(&cluster, &gateway, 1, &[]);
    let arrived = within(Duration::from_secs(30), || all_are(&cluster, "sound", 1, 1));
    assert!(arrived, "{:#}\n{}", queue(&gateway), gateway.log());
    all_is_executed_once(&cluster, &gateway, &["hung-0".into(), "sound".into()], 13);
}

#[test]
fn a_node_that_answers_nothing_keeps_no_parked_index_on_another_node_from_its_turn() {
    const HUNG: usize = 12;
    let (cluster, place) = one_node_that_will_hang(HUNG);
    let gateway = place.start();
    let mut indices: Vec<String> = (0..HUNG).map(|at| format!("hung-{at}")).collect();
    // The keys are looked at in the order of their names.
    indices.push("sound".to_owned());
    for index in &indices {
        cluster.refuse_writes(
            index,
            Some((403, &BLOCKED.replace("blocked]", &format!("{index}]")))),
        );
        gateway.bulk(&docs(index, 1, 1)).ok().unwrap();
    }
    let one = wait(&gateway, "c0", |one| one["parked"] == 13 && one["pending"] == 0);
    assert_eq!(one["parked_keys"], 13, "{one}");
    hangs_while_all_is_tried(&cluster, &gateway, 13, &indices);
    let arrived = within(Duration::from_secs(30), || all_are(&cluster, "sound", 1, 1));
    assert!(arrived, "{:#}\n{}", queue(&gateway), gateway.log());
    all_is_executed_once(&cluster, &gateway, &indices, HUNG + 1);
}

#[test]
fn documents_of_a_parked_index_do_not_wait_for_a_node_that_has_other_shards_of_it() {
    let (cluster, place) = one_node_that_will_hang(0);
    let gateway = place.start();
    cluster.refuse_writes("both", Some((403, &BLOCKED.replace("blocked]", "both]"))));
    for at in 0..5 {
        // Requests with different parameters are not tried together.
        let text = others(&docs("both", 20, at), &format!("{at}-"));
        send(
            &gateway,
            &format!("/_bulk?require_alias=false&_source=x{at}"),
            &text,
        );
    }
    let one = wait(&gateway, "c0", |one| one["parked"] == 100 && one["pending"] == 0);
    assert!(parked_for(&one, "index:both"), "{one}");
    let formula = Formula::Classic {
        routing_num_shards: routing_num_shards(2),
    };
    let ids = (0..5).flat_map(|at| (0..20).map(move |id| format!("{at}-{id}")));
    let sound: Vec<String> = ids.filter(|id| shard_of(id, 2, formula) == 1).collect();
    assert!((1..100).contains(&sound.len()));
    hangs_while_all_is_tried(&cluster, &gateway, 1, &["both".into()]);
    let arrived = within(Duration::from_secs(30), || {
        let docs = cluster.docs("both");
        sound.iter().all(|id| docs.contains_key(id))
    });
    assert!(arrived, "{:#}\n{}", queue(&gateway), gateway.log());
    all_is_executed_once(&cluster, &gateway, &["both".into()], 100);
}

#[test]
fn what_the_late_answer_to_a_try_says_counts_and_nothing_is_sent_again_for_it() {
    let (cluster, place) = one_node_that_will_hang(1);
    let gateway = place.start();
    let refuse = |status: u16, kind: &str, wait: Duration| {
        let held_up = HeldUp {
            holds: "{\"n\":".to_owned(),
            wait,
        };
        cluster.set_behaviour(Behaviour {
            held_up: Some(held_up),
            unfit: Some(Unfit {
                holds: "{\"n\":1}".to_owned(),
                status,
                error: format!("{{\"type\":\"{kind}\",\"reason\":\"no such index [elsewhere]\"}}"),
            }),
            ..Behaviour::default()
        });
    };
    refuse(404, "index_not_found_exception", Duration::ZERO);
    gateway.bulk(&docs("hung-0", 1, 1)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| {
        one["parked"] == 1 && one["docs_retried"].as_u64() >= Some(1)
    });
    let tried = one["docs_retried"].as_u64().unwrap();
    refuse(400, "strict_dynamic_mapping_exception", Duration::from_secs(6));
    release_all(&gateway);
    let one = wait(&gateway, "c0", |one| one["parked"] == 0 && one["pending"] == 0);
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(0), &json!(1)), "{one}");
    assert_eq!(one["docs_retried"], tried + 1, "{one}");
}
