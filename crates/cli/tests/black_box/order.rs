//! Names that come to lead elsewhere while writes through them are queued: an alias that is swapped, a
//! rollover, and an index that is made again with other shards.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::fake::{Behaviour, FakeCluster, Fault, Flavour, Injection, On, Spec, Stored, Unfit};

use crate::gateway::{Gateway, PATIENCE};
use crate::home::{GatewayHome, account, drained, queue, wait};
use crate::memory::large;

/// Makes `i1` with two shards and `i2` with five; `a` leads to the former.
fn cluster() -> FakeCluster {
    let cluster = FakeCluster::start(Spec::default().index("i1", 2).index("i2", 5).storing()).unwrap();
    cluster.alias("a", &["i1"]);
    cluster
}

/// Makes a home with a queue of 16 lanes before clusters; `pipeline` replaces the pipelines' delay.
fn place(clusters: &[&FakeCluster], pipeline: &str) -> GatewayHome {
    let place = GatewayHome::before(clusters, "");
    let text = std::fs::read_to_string(&place.file).unwrap();
    let text = text
        .replace("lanes: 4", "lanes: 16")
        .replace("retry_delay_in_ms: 20", pipeline);
    std::fs::write(&place.file, text).unwrap();
    place
}

fn begin(gateway: &Gateway, pipeline: &str) {
    let path = format!("/pipeline/{pipeline}/_start");
    let started = gateway.admin().send("POST", &path, &[], &[]);
    started.unwrap().ok().unwrap();
}

/// Returns operations on documents of `name` from 0, with the number `v` in them.
fn writes(operation: &str, name: &str, docs: usize, v: u32) -> String {
    let line = |n| format!("{{\"{operation}\":{{\"_index\":\"{name}\",\"_id\":\"{n}\"}}}}\n{{\"v\":{v}}}\n");
    (0..docs).map(line).collect()
}

fn queued(gateway: &Gateway, body: &str) {
    let answer = gateway.bulk(body).ok().unwrap();
    assert!(answer.header("x-tidegate-ack").is_some(), "{:?}", answer.json());
}

/// Waits until answers say that writes to `name` are queued for `index`.
fn leads(gateway: &Gateway, name: &str, index: &str) {
    let began = Instant::now();
    let probe = format!("{{\"delete\":{{\"_index\":\"{name}\",\"_id\":\"probe\"}}}}\n");
    loop {
        let answer = gateway.bulk(&probe).ok().unwrap().json().unwrap();
        if answer["items"][0]["delete"]["_index"] == index {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{answer:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the gateway has read the cluster's state again.
fn noticed(gateway: &Gateway, cluster: &FakeCluster) {
    let version = cluster.state_version();
    gateway.wait_until("the change is known", |status| {
        status["state_version"].as_u64() >= Some(version)
    });
}

fn newest(docs: &std::collections::BTreeMap<String, Stored>, v: u32) -> usize {
    let source = format!("{{\"v\":{v}}}");
    docs.values().filter(|doc| doc.source == source).count()
}

/// Refuses requests that contain version `v` for a while, so that newer ones can overtake them.
fn hold_back(cluster: &FakeCluster, v: u32) {
    let fault = Fault::StatusIfHolds {
        text: format!("{{\"v\":{v}}}"),
        status: 503,
        body: "{}".to_owned(),
    };
    for node in 0..3 {
        cluster.inject(Injection::bulk(fault.clone()).on_node(node).times(12));
    }
}

#[test]
fn the_newer_version_wins_when_an_alias_is_swapped_while_writes_through_it_are_queued() {
    let cluster = cluster();
    let place = place(&[&cluster], "auto_start: false, retry_delay_in_ms: 30");
    let gateway = place.start();
    queued(&gateway, &writes("index", "a", 8, 1));
    cluster.alias("a", &["i2"]);
    leads(&gateway, "a", "i2");
    queued(&gateway, &writes("index", "a", 8, 2));
    hold_back(&cluster, 1);
    begin(&gateway, "p0");
    drained(&gateway, "c0");
    let docs = cluster.docs("i2");
    assert_eq!((docs.len(), newest(&docs, 2)), (8, 8), "{docs:?}");
}

#[test]
fn the_newer_version_wins_after_a_restart_too_and_in_every_cluster() {
    let clusters = [cluster(), cluster()];
    let stopped = "auto_start: false, retry_delay_in_ms: 30";
    let place = place(&[&clusters[0], &clusters[1]], stopped);
    let gateway = place.start();
    queued(&gateway, &writes("index", "a", 8, 1));
    gateway.signal("KILL");
    drop(gateway);
    clusters.iter().for_each(|cluster| cluster.alias("a", &["i2"]));
    let gateway = place.start();
    leads(&gateway, "a", "i2");
    gateway.signal("KILL");
    drop(gateway);
    let gateway = place.start();
    queued(&gateway, &writes("index", "a", 8, 2));
    for (at, cluster) in clusters.iter().enumerate() {
        hold_back(cluster, 1);
        begin(&gateway, &format!("p{at}"));
        drained(&gateway, &format!("c{at}"));
        let docs = cluster.docs("i2");
        assert_eq!((docs.len(), newest(&docs, 2)), (8, 8), "{docs:?}");
    }
}

#[test]
fn the_newest_version_wins_when_an_index_is_made_again_with_other_shards_and_again() {
    let cluster = cluster();
    let place = place(&[&cluster], "auto_start: false, retry_delay_in_ms: 30");
    let gateway = place.start();
    for (v, shards) in [(1, 7), (2, 3), (3, 5)] {
        cluster.create_index("i1", shards);
        noticed(&gateway, &cluster);
        // Bulks for an index pass until it is proven, but lanes need no proof.
        queued(&gateway, &writes("index", "i1", 30, v));
    }
    hold_back(&cluster, 1);
    hold_back(&cluster, 2);
    begin(&gateway, "p0");
    drained(&gateway, "c0");
    let docs = cluster.docs("i1");
    assert_eq!((docs.len(), newest(&docs, 3)), (30, 30), "{docs:?}");
}

/// Refuses documents that contain version `v` as a shard without a primary does; `None`: no documents.
fn without_primary(cluster: &FakeCluster, v: Option<u32>) {
    let reason = "[i1][0] primary shard is not active Timeout: [1m], request: [BulkShardRequest [[i1][0]]]";
    refuses(cluster, v, (503, "unavailable_shards_exception", reason));
}

fn refuses(cluster: &FakeCluster, v: Option<u32>, (status, kind, reason): (u16, &str, &str)) {
    cluster.set_behaviour(Behaviour {
        unfit: v.map(|v| Unfit {
            holds: format!("{{\"v\":{v}}}"),
            status,
            error: json!({"type": kind, "reason": reason}).to_string(),
        }),
        ..Behaviour::default()
    });
}

/// A refusal that parks a document by itself.
const OF_A_PIPELINE: (u16, &str, &str) = (404, "index_not_found_exception", "no such index [elsewhere]");

/// Parks the first version of documents for shards of `i1` that have no primary, lets `name` lead elsewhere,
/// and checks that later versions neither overtake the first nor are lost, also after a restart.
fn what_is_parked_is_not_overtaken(name: &str, moves: impl Fn(&FakeCluster), index: &str) {
    let refuse = |cluster: &FakeCluster| without_primary(cluster, Some(1));
    what_waits_is_not_overtaken((refuse, "shards:i1:"), (name, name), moves, index);
}

/// The same with what a refusal parks, and the name that later versions have.
fn what_waits_is_not_overtaken(
    (refuse, key): (impl Fn(&FakeCluster), &str),
    (name, later): (&str, &str),
    moves: impl Fn(&FakeCluster),
    index: &str,
) {
    let cluster = cluster();
    let place = place(&[&cluster], "retry_delay_in_ms: 30");
    let mut gateway = place.start();
    refuse(&cluster);
    queued(&gateway, &writes("index", name, 60, 1));
    let one = wait(&gateway, "c0", |one| one["parked"] == 60 && one["pending"] == 0);
    assert!(one["parked_for"].to_string().contains(key), "{one}");
    moves(&cluster);
    noticed(&gateway, &cluster);
    queued(&gateway, &writes("index", later, 60, 2));
    let one = wait(&gateway, "c0", |one| one["pending"] == 0);
    assert_eq!(newest(&cluster.docs(index), 2), 0, "{one}");
    gateway.signal("KILL");
    drop(gateway);
    gateway = place.start();
    queued(&gateway, &writes("index", later, 60, 3));
    wait(&gateway, "c0", |one| one["pending"] == 0);
    assert_eq!(newest(&cluster.docs(index), 3), 0);
    without_primary(&cluster, None);
    let one = drained(&gateway, "c0");
    let docs = cluster.docs(index);
    assert_eq!((docs.len(), newest(&docs, 3)), (60, 60), "{docs:?}");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(180), &json!(0)), "{one}");
}

#[test]
fn a_newer_version_waits_for_the_older_one_that_a_shard_took_not_before_its_index_was_made_again() {
    what_is_parked_is_not_overtaken("i1", |cluster| cluster.create_index("i1", 7), "i1");
}

#[test]
fn a_newer_version_waits_for_the_older_one_that_a_shard_took_not_before_its_alias_was_swapped() {
    what_is_parked_is_not_overtaken("a", |cluster| cluster.alias("a", &["i2"]), "i2");
}

/// What is parked by itself goes where the alias leads when it is tried.
#[test]
fn a_newer_version_waits_for_the_older_one_of_an_alias_that_was_swapped_to_its_index() {
    let refuse = |cluster: &FakeCluster| refuses(cluster, Some(1), OF_A_PIPELINE);
    let moves = |cluster: &FakeCluster| cluster.alias("a", &["i2"]);
    what_waits_is_not_overtaken((refuse, "documents"), ("a", "i2"), moves, "i2");
}

/// Nothing comes after the restart that would have the names of parked operations looked up.
#[test]
fn a_newer_version_waits_for_the_older_one_of_a_swapped_alias_from_the_first_try_after_a_restart() {
    let cluster = cluster();
    let place = place(&[&cluster], "retry_delay_in_ms: 30");
    let mut gateway = place.start();
    refuses(&cluster, Some(1), OF_A_PIPELINE);
    queued(&gateway, &writes("index", "a", 60, 1));
    wait(&gateway, "c0", |one| one["parked"] == 60 && one["pending"] == 0);
    cluster.alias("a", &["i2"]);
    noticed(&gateway, &cluster);
    queued(&gateway, &writes("index", "i2", 60, 2));
    wait(&gateway, "c0", |one| one["parked"] == 120 && one["pending"] == 0);
    gateway.signal("KILL");
    drop(gateway);
    let tried = cluster.counts().bulks + 5;
    gateway = place.start();
    wait(&gateway, "c0", |_| cluster.counts().bulks >= tried);
    assert_eq!(newest(&cluster.docs("i2"), 2), 0);
    refuses(&cluster, None, OF_A_PIPELINE);
    drained(&gateway, "c0");
    assert_eq!(newest(&cluster.docs("i2"), 2), 60);
}

/// Writes of one document wait in the line of their index, the older one of another lane than the newer one,
/// for whose lane there is a line, too.
#[test]
fn a_newer_version_does_not_pass_the_older_one_by_the_line_of_its_own_lane() {
    let cluster = cluster();
    let place = place(&[&cluster], "retry_delay_in_ms: 30");
    let gateway = place.start();
    without_primary(&cluster, Some(1));
    queued(
        &gateway,
        "{\"index\":{\"_index\":\"i1\",\"_id\":\"one\"}}\n{\"v\":1}\n",
    );
    let one = wait(&gateway, "c0", |one| one["parked"] == 1);
    assert!(one["parked_for"].to_string().contains("shards:i1:"), "{one}");
    let reason = "index [i1] blocked by: [FORBIDDEN/8/index write (api)];";
    refuses(&cluster, Some(1), (403, "cluster_block_exception", reason));
    queued(&gateway, &writes("index", "i1", 200, 1));
    let one = wait(&gateway, "c0", |one| one["parked"] == 201);
    assert!(one["parked_for"].to_string().contains("index:i1"), "{one}");
    cluster.create_index("i1", 7);
    noticed(&gateway, &cluster);
    without_primary(&cluster, Some(1));
    queued(&gateway, &writes("index", "i1", 200, 2));
    wait(&gateway, "c0", |one| one["pending"] == 0);
    // The lines are tried some times.
    let tried = cluster.counts().bulks + 20;
    wait(&gateway, "c0", |_| cluster.counts().bulks >= tried);
    without_primary(&cluster, None);
    let one = drained(&gateway, "c0");
    assert_eq!(newest(&cluster.docs("i1"), 2), 200, "{one}");
}

/// The refusal of an index that takes no writes.
fn blocked(cluster: &FakeCluster, index: &str, is_blocked: bool) {
    let reason = format!("index [{index}] blocked by: [FORBIDDEN/8/index write (api)];");
    let error = json!({"type": "cluster_block_exception", "reason": reason}).to_string();
    cluster.refuse_writes(index, is_blocked.then_some((403, error.as_str())));
}

fn one(name: &str, id: &str, v: u32) -> String {
    format!("{{\"index\":{{\"_index\":\"{name}\",\"_id\":\"{id}\"}}}}\n{{\"v\":{v}}}\n")
}

/// Blocks `first` and `second`, parks a write for each, moves `a` from the former to the latter, and checks
/// that two versions of a document go to `second` in their order: `older` is written by this name before the
/// alias moves, and the newer one through the alias afterwards.
fn a_moved_alias_keeps_order_between_blocked_indices(first: &str, second: &str, older: &str) {
    let cluster = cluster();
    cluster.alias("a", &[first]);
    let place = place(&[&cluster], "retry_delay_in_ms: 30");
    let gateway = place.start();
    leads(&gateway, "a", first);
    drained(&gateway, "c0");
    blocked(&cluster, first, true);
    blocked(&cluster, second, true);
    let parked = |docs| {
        drop(wait(&gateway, "c0", |one| {
            one["parked"] == docs && one["pending"] == 0
        }))
    };
    queued(&gateway, &one("a", "other", 7));
    queued(&gateway, &one(second, "another", 7));
    queued(&gateway, &one(older, "n", 1));
    parked(3);
    cluster.alias("a", &[second]);
    noticed(&gateway, &cluster);
    queued(&gateway, &one("a", "n", 2));
    parked(4);
    // The index takes everything but the older version for a while.
    let reason = format!("index [{second}] blocked by: [FORBIDDEN/8/index write (api)];");
    refuses(&cluster, Some(1), (403, "cluster_block_exception", &reason));
    blocked(&cluster, second, false);
    let one = wait(&gateway, "c0", |one| one["parked"] == 2);
    assert_eq!(newest(&cluster.docs(second), 7), 2, "{one}");
    refuses(&cluster, None, OF_A_PIPELINE);
    let one = drained(&gateway, "c0");
    assert_eq!(
        newest(&cluster.docs(second), 2),
        1,
        "{one} {:?}",
        cluster.docs(second)
    );
    assert_eq!(one["dead"], 0, "{one}");
}

#[test]
fn a_newer_version_does_not_pass_the_older_one_by_the_line_of_the_index_that_its_alias_has_left() {
    a_moved_alias_keeps_order_between_blocked_indices("i1", "i2", "i2");
    a_moved_alias_keeps_order_between_blocked_indices("i1", "i2", "a");
}

#[test]
fn a_newer_version_does_not_pass_the_older_one_that_waits_where_its_alias_led_before() {
    a_moved_alias_keeps_order_between_blocked_indices("i2", "i1", "i1");
    a_moved_alias_keeps_order_between_blocked_indices("i2", "i1", "a");
}

/// What was parked through an alias goes where the alias leads when it is tried. Writes through the alias do
/// not wait for what names the old index itself.
#[test]
fn a_rollover_frees_what_waits_through_the_alias_and_nothing_waits_for_the_old_index_but_its_own() {
    let cluster = cluster();
    let place = place(&[&cluster], "retry_delay_in_ms: 30");
    // More than 128 KB are not tried together.
    place.append("worker: {delivery_memory: 8mb}\n");
    let gateway = place.start();
    leads(&gateway, "a", "i1");
    drained(&gateway, "c0");
    blocked(&cluster, "i1", true);
    queued(&gateway, &large("i1", "", 600, 1));
    queued(&gateway, &writes("index", "a", 60, 1));
    queued(&gateway, &writes("index", "i1", 40, 2));
    wait(&gateway, "c0", |one| one["parked"] == 700 && one["pending"] == 0);
    roll_over(&cluster);
    wait(&gateway, "c0", |one| one["parked"] == 640);
    assert_eq!(newest(&cluster.docs("i2"), 1), 60);
    for v in 3..6 {
        noticed(&gateway, &cluster);
        queued(&gateway, &writes("index", "a", 60, v));
        let one = wait(&gateway, "c0", |one| one["pending"] == 0 && one["parked"] == 640);
        assert_eq!(newest(&cluster.docs("i2"), v), 60, "{one}");
    }
    assert!(cluster.docs("i1").is_empty());
    blocked(&cluster, "i1", false);
    let one = drained(&gateway, "c0");
    let docs = cluster.docs("i1");
    assert_eq!((docs.len(), newest(&docs, 2), &one["dead"]), (600, 40, &json!(0)));
}

#[test]
fn a_name_that_leads_elsewhere_holds_up_nothing_but_the_lanes_it_leads_to() {
    let cluster = cluster();
    cluster.create_index("other", 16);
    let place = place(&[&cluster], "auto_start: false, retry_delay_in_ms: 30");
    let gateway = place.start();
    leads(&gateway, "other", "other");
    queued(&gateway, &writes("index", "a", 8, 1));
    cluster.alias("a", &["i2"]);
    leads(&gateway, "a", "i2");
    queued(&gateway, &writes("index", "a", 8, 2));
    queued(&gateway, &writes("index", "other", 200, 7));
    // Nothing of the older version gets through until it may.
    let fault = Fault::StatusIfHolds {
        text: "{\"v\":1}".to_owned(),
        status: 503,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::bulk(fault).always());
    begin(&gateway, "p0");
    // Two lanes have the older versions, and five wait for them.
    wait(&gateway, "c0", |_| newest(&cluster.docs("other"), 7) >= 60);
    wait(&gateway, "c0", |one| {
        one["lanes"].to_string().contains("a name leads to another index")
    });
    assert_eq!(newest(&cluster.docs("i2"), 2), 0, "held back");
    cluster.behave();
    drained(&gateway, "c0");
    assert_eq!(newest(&cluster.docs("i2"), 2), 8);
    assert_eq!(newest(&cluster.docs("other"), 7), 200);
}

/// Rolls `a` over from `i1` to `i2`.
fn roll_over(cluster: &FakeCluster) {
    cluster.alias("a", &["i2", "i1"]);
}

/// Waits until this many documents are in an index.
fn arrived(cluster: &FakeCluster, index: &str, docs: usize) {
    let began = Instant::now();
    while cluster.docs(index).len() < docs {
        assert!(began.elapsed() < PATIENCE, "{:?}", cluster.docs(index));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn no_document_is_in_two_indices_after_a_rollover_between_a_lost_answer_and_the_resend() {
    for (operation, delay) in [("create", 1_500), ("index", 1_500), ("create", 20), ("index", 20)] {
        let cluster = cluster();
        let place = place(&[&cluster], &format!("retry_delay_in_ms: {delay}"));
        let gateway = place.start();
        leads(&gateway, "a", "i1");
        drained(&gateway, "c0");
        for node in 0..3 {
            cluster.inject(Injection::bulk(Fault::CloseWritten).on_node(node).times(4));
        }
        queued(&gateway, &writes(operation, "a", 100, 1));
        arrived(&cluster, "i1", 100);
        roll_over(&cluster);
        let one = drained(&gateway, "c0");
        let docs = ["i1", "i2"].map(|index| cluster.docs(index).len());
        assert_eq!((docs, &one["dead"]), ([100, 0], &json!(0)), "{operation} {delay}");
    }
}

#[test]
fn no_document_is_in_two_indices_after_a_rollover_between_kill_9_and_the_resend() {
    for operation in ["create", "index", "update"] {
        let cluster = cluster();
        let place = place(&[&cluster], "retry_delay_in_ms: 20");
        let gateway = place.start();
        leads(&gateway, "a", "i1");
        drained(&gateway, "c0");
        let mut body = writes(operation, "a", 100, 1);
        if operation == "update" {
            body = body.replace("{\"v\":1}", "{\"doc\":{\"v\":1},\"doc_as_upsert\":true}");
        }
        // The gateway makes the id of this document.
        body.push_str("{\"create\":{\"_index\":\"a\"}}\n{\"v\":1}\n");
        cluster.inject(Injection::bulk(Fault::HangWritten).always());
        queued(&gateway, &body);
        arrived(&cluster, "i1", 101);
        // Later ones are not written: they were read by nobody, or refused.
        queued(&gateway, &writes("index", "a", 3, 2));
        gateway.signal("KILL");
        drop(gateway);
        cluster.behave();
        roll_over(&cluster);
        let gateway = place.start();
        let one = drained(&gateway, "c0");
        assert_eq!(one["dead"], 0, "{operation}");
        assert_eq!(cluster.docs("i1").len(), 101, "{operation}");
        let second = cluster.docs("i2");
        // What was accepted after and is in doubt too was not found, and goes where the alias leads.
        assert_eq!(
            (second.len(), newest(&second, 2)),
            (3, 3),
            "{operation}: {second:?}"
        );
    }
}

/// A topology that was read in the middle of a swap may know that the alias leads elsewhere, but not where.
/// The queue knows where the alias led, and looks there before it sends anything again.
#[test]
fn no_document_is_in_two_indices_after_kill_9_and_a_swap_that_the_topology_has_seen_half_of() {
    let cluster = cluster();
    let place = place(&[&cluster], "auto_start: false, retry_delay_in_ms: 20");
    let text = std::fs::read_to_string(&place.file).unwrap();
    let text = text.replace("endpoint: ", "discovery: {refresh: {interval: 60s}}, endpoint: ");
    std::fs::write(&place.file, text).unwrap();
    let gateway = place.start();
    leads(&gateway, "a", "i1");
    begin(&gateway, "p0");
    drained(&gateway, "c0");
    cluster.inject(Injection::bulk(Fault::HangWritten).always());
    queued(&gateway, &writes("create", "a", 100, 1));
    arrived(&cluster, "i1", 100);
    gateway.signal("KILL");
    drop(gateway);
    cluster.behave();
    cluster.alias_without_write_index("a", &["i2"]);
    let gateway = place.start();
    noticed(&gateway, &cluster);
    cluster.alias("a", &["i2"]);
    begin(&gateway, "p0");
    let one = drained(&gateway, "c0");
    let docs = ["i1", "i2"].map(|index| cluster.docs(index).len());
    assert_eq!((docs, &one["dead"]), ([100, 0], &json!(0)));
}

/// What was written and not synced is gone then: the marks of what was sent, and the lanes' places. And a
/// rollover after the start is known to nobody here for a while.
#[test]
fn no_document_is_in_two_indices_after_the_machine_went_down_and_a_rollover() {
    let cluster = cluster();
    let place = place(&[&cluster], "auto_start: false, retry_delay_in_ms: 20");
    let text = std::fs::read_to_string(&place.file).unwrap();
    let text = text.replace(
        "{elasticsearch: c0}}]",
        "{elasticsearch: c0, bulk: {batch_size_in_kb: 100}}}]",
    );
    let text = text.replace("endpoint: ", "discovery: {refresh: {interval: 60s}}, endpoint: ");
    std::fs::write(&place.file, text).unwrap();
    let (cursor, sent) = (
        place.data().join("queue/q/c0.cursor"),
        place.data().join("sent/q/c0"),
    );
    let gateway = place.start();
    leads(&gateway, "a", "i1");
    begin(&gateway, "p0");
    drained(&gateway, "c0");
    let (cursor_before, sent_before) = (std::fs::read(&cursor).unwrap(), std::fs::read(&sent).unwrap());
    // There is so much that a lane takes it in many batches.
    let padding = "x".repeat(40_000);
    for n in 0..100 {
        let line = |at| {
            format!("{{\"create\":{{\"_index\":\"a\",\"_id\":\"{n}-{at}\"}}}}\n{{\"v\":\"{padding}\"}}\n")
        };
        queued(&gateway, &(0..5).map(line).collect::<String>());
    }
    drained(&gateway, "c0");
    gateway.signal("KILL");
    drop(gateway);
    std::fs::write(&cursor, cursor_before).unwrap();
    // Only the mark for all lanes, at the end, is synced, and the boot is another one.
    let mut marks = std::fs::read(&sent).unwrap();
    let lanes = 8 + 16 + 8..marks.len() - 8;
    marks[lanes.clone()].copy_from_slice(&sent_before[lanes]);
    marks[8] ^= 1;
    std::fs::write(&sent, marks).unwrap();
    let gateway = place.start();
    roll_over(&cluster);
    begin(&gateway, "p0");
    let one = drained(&gateway, "c0");
    let docs = ["i1", "i2"].map(|index| cluster.docs(index).len());
    assert_eq!((docs, &one["dead"]), ([500, 0], &json!(0)));
}

#[test]
fn what_a_script_or_a_pipeline_has_changed_stays_in_the_index_that_has_it() {
    let scripted = "{\"script\":\"ctx._source.n++\",\"upsert\":{\"n\":1}}";
    for killed in [false, true] {
        for operation in ["update", "index"] {
            let spec = Spec::default().flavour(Flavour::Elasticsearch9);
            let mut spec = spec.index("i1", 2).index("i2", 5).storing();
            spec.pipelines.insert(
                "stamps".to_owned(),
                json!({"processors": [{"set": {"field": "at", "value": "x"}}]}),
            );
            let cluster = FakeCluster::start(spec).unwrap();
            cluster.alias("a", &["i1"]);
            // The delay is long enough for the gateway to see that the alias has moved before it sends again.
            let place = place(&[&cluster], "retry_delay_in_ms: 4000");
            let gateway = place.start();
            leads(&gateway, "a", "i1");
            drained(&gateway, "c0");
            let body = match operation {
                "update" => writes("update", "a", 50, 1).replace("{\"v\":1}", scripted),
                // The fake cluster stamps documents that come through a pipeline.
                _ => writes("index", "a", 50, 1),
            };
            let path = if operation == "index" {
                "/_bulk?pipeline=stamps"
            } else {
                "/_bulk"
            };
            let queued = |gateway: &Gateway, body: &str| {
                let answer = gateway
                    .client()
                    .post_ndjson(path, body.as_bytes())
                    .unwrap()
                    .ok()
                    .unwrap();
                assert!(answer.header("x-tidegate-ack").is_some(), "{:?}", answer.json());
            };
            match killed {
                true => cluster.inject(Injection::bulk(Fault::HangWritten).always()),
                false => (0..3).for_each(|node| {
                    cluster.inject(Injection::bulk(Fault::CloseWritten).on_node(node).times(1))
                }),
            }
            queued(&gateway, &body);
            arrived(&cluster, "i1", 50);
            let gateway = if killed {
                gateway.signal("KILL");
                drop(gateway);
                cluster.behave();
                roll_over(&cluster);
                place.start()
            } else {
                roll_over(&cluster);
                gateway
            };
            let one = drained(&gateway, "c0");
            let docs = ["i1", "i2"].map(|index| cluster.docs(index).len());
            assert_eq!(
                (docs, &one["dead"]),
                ([50, 0], &json!(0)),
                "{operation}, killed: {killed}"
            );
            // Operations that were never executed go where the name leads.
            queued(&gateway, &body.replace("\"_id\":\"", "\"_id\":\"new"));
            drained(&gateway, "c0");
            let docs = ["i1", "i2"].map(|index| cluster.docs(index).len());
            assert_eq!(docs, [50, 50], "{operation}, killed: {killed}");
        }
    }
}

#[test]
fn what_cannot_be_looked_up_waits_and_is_not_written_twice() {
    let cluster = cluster();
    let place = place(&[&cluster], "retry_delay_in_ms: 300");
    let gateway = place.start();
    leads(&gateway, "a", "i1");
    drained(&gateway, "c0");
    for node in 0..3 {
        cluster.inject(Injection::bulk(Fault::CloseWritten).on_node(node).times(2));
    }
    let away = Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::new(On::Path("/_mget".to_owned()), away).times(3));
    queued(&gateway, &writes("create", "a", 20, 1));
    arrived(&cluster, "i1", 20);
    roll_over(&cluster);
    drained(&gateway, "c0");
    let docs = ["i1", "i2"].map(|index| cluster.docs(index).len());
    assert_eq!(docs, [20, 0]);
    account(&queue(&gateway), "c0");
}

/// The shard that may have the document is away: the document waits for it, and the lane does not.
#[test]
fn a_document_that_cannot_be_looked_up_is_parked_and_its_lane_goes_on() {
    let cluster = cluster();
    let place = place(&[&cluster], "retry_delay_in_ms: 30");
    let text = std::fs::read_to_string(&place.file).unwrap();
    std::fs::write(&place.file, text.replace("lanes: 16", "lanes: 1")).unwrap();
    let gateway = place.start();
    leads(&gateway, "a", "i1");
    drained(&gateway, "c0");
    let error = json!({"type": "no_shard_available_action_exception", "reason": "away"});
    // It is asked for in both indices, once the rollover is known.
    let away = json!({"docs": [
        {"_index": "i1", "_id": "0", "error": error},
        {"_index": "i2", "_id": "0", "found": false},
    ]});
    let away = Fault::Status {
        status: 200,
        body: away.to_string(),
    };
    cluster.inject(Injection::new(On::Path("/_mget".to_owned()), away).always());
    cluster.inject(Injection::bulk(Fault::CloseWritten).times(1));
    queued(&gateway, &writes("create", "a", 1, 1));
    arrived(&cluster, "i1", 1);
    roll_over(&cluster);
    wait(&gateway, "c0", |one| one["parked"] == 1);
    queued(&gateway, &writes("index", "other", 50, 2));
    arrived(&cluster, "other", 50);
    assert_eq!(queue(&gateway)["groups"]["c0"]["parked"], 1);
    cluster.behave();
    let one = drained(&gateway, "c0");
    let docs = ["i1", "i2"].map(|index| cluster.docs(index).len());
    assert_eq!((docs, &one["dead"]), ([1, 0], &json!(0)));
    account(&queue(&gateway), "c0");
}

/// The account may not look, or something on the way does not let it.
#[test]
fn what_may_not_be_looked_up_stops_no_lane() {
    let no_right = json!({"error": {
        "type": "security_exception",
        "reason": "no permissions for [indices:data/read/mget] and User [name=gateway]",
    }, "status": 403});
    for (status, words, parked) in [
        (403, no_right.to_string(), 0),
        (403, "<html>not allowed".to_owned(), 20),
        (406, "<html>not acceptable".to_owned(), 20),
    ] {
        let cluster = cluster();
        let place = place(&[&cluster], "retry_delay_in_ms: 30");
        let gateway = place.start();
        leads(&gateway, "a", "i1");
        drained(&gateway, "c0");
        let body = words.clone();
        let refused = Fault::Status { status, body };
        cluster.inject(Injection::new(On::Path("/_mget".to_owned()), refused).always());
        // One for each of the nodes: all of the documents were written.
        for node in 0..3 {
            cluster.inject(Injection::bulk(Fault::CloseWritten).on_node(node).times(1));
        }
        queued(&gateway, &writes("create", "a", 20, 1));
        arrived(&cluster, "i1", 20);
        queued(&gateway, &writes("index", "other", 50, 2));
        arrived(&cluster, "other", 50);
        let one = wait(&gateway, "c0", |one| one["pending"] == 0);
        assert!(one["parked"].as_u64() <= Some(parked), "{status} {words}: {one}");
        if parked > 0 {
            let why = one["parked_for"][0]["why"].as_str().unwrap_or_default();
            assert!(
                why.contains(&status.to_string()) && why.contains("documents that may have been written"),
                "{one}"
            );
        }
        cluster.behave();
        let one = drained(&gateway, "c0");
        assert_eq!(one["dead"], 0, "{status} {words}: {one}");
        assert_eq!(cluster.docs("i1").len(), 20);
    }
}
