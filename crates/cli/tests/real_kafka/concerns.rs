//! Problems of an index or a document as opposed to the cluster, and names that come to lead elsewhere:
//! queues in Kafka behave like those on disk.

use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions};
use serde_json::{Value, json};
use testkit::broker::Broker;
use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use super::gateway::Gateway;
use super::{GatewayHome, broker, queue, send, wait};

pub(super) const BLOCKED: &str = r#"{"type":"cluster_block_exception","reason":"index [blocked] blocked by: [FORBIDDEN/8/index write (api)];"}"#;
const NO_RIGHT: &str = r#"{"type":"security_exception","reason":"action [indices:data/write/bulk[s]] is unauthorized for user [gateway] on indices [blocked]"}"#;
const FLOOD: &str = r#"{"type":"cluster_block_exception","reason":"index [blocked] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark, index has read-only-allow-delete block];"}"#;
const NO_SHARD: &str = r#"{"type":"unavailable_shards_exception","reason":"[blocked][0] primary shard is not active Timeout: [1m]"}"#;
const CLOSED: &str = r#"{"type":"index_closed_exception","reason":"closed","index":"blocked"}"#;
const NO_WRITE_INDEX: &str = r#"{"type":"illegal_argument_exception","reason":"no write index is defined for alias [blocked]. The write index may be explicitly disabled using is_write_index=false or the alias points to multiple indices without one being designated as a write index"}"#;

/// Returns operations on documents of `index` from 0, with the number `v` in them.
pub(super) fn writes(operation: &str, index: &str, docs: usize, v: usize) -> String {
    let line =
        |id| format!("{{\"{operation}\":{{\"_index\":\"{index}\",\"_id\":\"{id}\"}}}}\n{{\"v\":{v}}}\n");
    (0..docs).map(line).collect()
}

/// Returns how many documents of an index have this number.
pub(super) fn with(cluster: &FakeCluster, index: &str, v: usize) -> usize {
    let source = format!("{{\"v\":{v}}}");
    cluster
        .docs(index)
        .values()
        .filter(|doc| doc.source == source)
        .count()
}

pub(super) fn until(what: &str, gateway: &Gateway, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{what}: {:#}\n{}",
            queue(gateway),
            gateway.log()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Makes a healthy index beside one that accepts nothing, and writes to each of them five times.
fn blocked(topic: &str, status: u16, error: &'static str) -> (FakeCluster, GatewayHome, Gateway) {
    let spec = Spec::default().index("good", 6).index("blocked", 6).storing();
    let cluster = FakeCluster::start(spec).unwrap();
    let place = GatewayHome::new(&cluster, broker(), topic, ", partitions: 4");
    let gateway = place.start();
    wait(&gateway, |one| one["lanes_held"] == 4);
    cluster.refuse_writes("blocked", Some((status, error)));
    for v in 1..=5 {
        gateway.bulk(&writes("index", "blocked", 50, v)).ok().unwrap();
        gateway.bulk(&writes("index", "good", 50, v)).ok().unwrap();
    }
    (cluster, place, gateway)
}

#[test]
fn an_index_that_takes_nothing_holds_up_no_other_and_nothing_dies_of_what_passes() {
    for (number, (status, error)) in [
        (403, BLOCKED),
        (403, NO_RIGHT),
        (429, FLOOD),
        (503, NO_SHARD),
        (400, CLOSED),
        (400, NO_WRITE_INDEX),
    ]
    .into_iter()
    .enumerate()
    {
        let (cluster, _place, gateway) = blocked(&format!("parked-{number}"), status, error);
        let one = wait(&gateway, |one| {
            // Messages are read before their documents are counted.
            let is_through = one["pending_messages"] == 0 && one["pending"] == 0;
            one["paused_lanes"].as_u64().unwrap() + one["retrying_lanes"].as_u64().unwrap() == 4 || is_through
        });
        let good = with(&cluster, "good", 5);
        assert_eq!((good, &one["dead"]), (50, &json!(0)), "{error}: {one}");
        assert_eq!(
            (&one["indexed"], &one["parked"], &one["pending"]),
            (&json!(250), &json!(250), &json!(0)),
            "{error}: {one}"
        );
        cluster.refuse_writes("blocked", None);
        until("all of it arrives", &gateway, || {
            with(&cluster, "blocked", 5) == 50
        });
        let one = wait(&gateway, |one| one["parked"] == 0);
        assert_eq!((&one["indexed"], &one["dead"]), (&json!(500), &json!(0)), "{one}");
    }
}

#[test]
fn where_the_brokers_let_no_topic_be_used_for_it_lanes_wait_and_all_arrives_in_order() {
    // A queue with this name has another number of partitions.
    let cluster = super::cluster();
    let other = GatewayHome::new(&cluster, broker(), "refused.c.parked", ", partitions: 1");
    drop(other.start());
    for (number, (status, error)) in [(403, BLOCKED), (429, FLOOD)].into_iter().enumerate() {
        let (cluster, _place, gateway) = blocked("refused", status, error);
        assert!(
            gateway.log().contains("nothing of this queue can be parked"),
            "{}",
            gateway.log()
        );
        wait(&gateway, |one| {
            one["paused_lanes"].as_u64().unwrap() + one["retrying_lanes"].as_u64().unwrap() == 4
        });
        cluster.refuse_writes("blocked", None);
        let all = 500 * (number as u64 + 1);
        let one = wait(&gateway, |one| {
            one["indexed"].as_u64() >= Some(all) && one["pending_messages"] == 0
        });
        assert_eq!(one["dead"], json!(0), "{error}: {one}");
        assert_eq!(
            (with(&cluster, "good", 5), with(&cluster, "blocked", 5)),
            (50, 50),
            "{error}"
        );
    }
}

/// Whether documents of the group do not move, or soon may not, for this reason.
fn waits_for(gateway: &Gateway, reason: &str) -> bool {
    let waits = queue(gateway)["groups"]["c"]["waits"].clone();
    waits
        .as_array()
        .unwrap()
        .iter()
        .any(|wait| wait["reason"] == reason)
}

fn deletes(topic: &str) {
    let client: AdminClient<_> = ClientConfig::new()
        .set("bootstrap.servers", broker().address())
        .create()
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let options = AdminOptions::new();
    let deleted = runtime
        .block_on(client.delete_topics(&[topic], &options))
        .unwrap();
    assert!(deleted.iter().all(Result::is_ok), "{deleted:?}");
}

#[test]
fn a_topic_that_cannot_be_used_is_asked_for_again_and_operations_are_parked_once_it_can() {
    let cluster = super::cluster();
    let other = GatewayHome::new(&cluster, broker(), "late.c.parked", ", partitions: 1");
    drop(other.start());
    let (cluster, _place, gateway) = blocked("late", 403, BLOCKED);
    wait(&gateway, |one| {
        one["paused_lanes"].as_u64().unwrap() + one["retrying_lanes"].as_u64().unwrap() == 4
    });
    assert!(waits_for(&gateway, "cannot_park"));
    let warnings = || send(&gateway, "GET", "/health/ready")["warnings"].to_string();
    assert!(warnings().contains("can park nothing"), "{}", warnings());
    deletes("late.c.parked");
    // The documents wait without a restart, and without the index.
    let one = wait(&gateway, |one| one["indexed"] == 250 && one["parked"] == 250);
    assert_eq!(
        (with(&cluster, "good", 5), &one["dead"]),
        (50, &json!(0)),
        "{one}"
    );
    assert!(!waits_for(&gateway, "cannot_park"));
    assert!(!warnings().contains("can park nothing"), "{}", warnings());
    cluster.refuse_writes("blocked", None);
    let one = wait(&gateway, |one| one["indexed"] == 500 && one["parked"] == 0);
    assert_eq!(
        (with(&cluster, "blocked", 5), &one["dead"]),
        (50, &json!(0)),
        "{one}"
    );
}

#[test]
fn an_update_that_another_writer_comes_between_is_tried_again_and_does_not_die() {
    let cluster = FakeCluster::start(Spec::default().index("good", 6).storing()).unwrap();
    let place = GatewayHome::new(&cluster, broker(), "conflicts", ", partitions: 2");
    let gateway = place.start();
    gateway.bulk(&writes("index", "good", 20, 1)).ok().unwrap();
    done(&gateway, 20);
    let error = r#"{"type":"version_conflict_engine_exception","reason":"[1]: version conflict, required seqNo [1], primary term [1]. current document has seqNo [2] and primary term [1]"}"#;
    for node in 0..3 {
        let conflict = Fault::Items {
            every: 1,
            status: 409,
            error: error.to_owned(),
        };
        // The error occurs more often than the gateway tries at once.
        cluster.inject(Injection::bulk(conflict).on_node(node).times(8));
    }
    let updates = writes("update", "good", 20, 2).replace("{\"v\":2}", "{\"doc\":{\"v\":2}}");
    gateway.bulk(&updates).ok().unwrap();
    let one = done(&gateway, 40);
    assert_eq!(
        (&one["dead"], with(&cluster, "good", 2)),
        (&json!(0), 20),
        "{one}"
    );
}

/// Makes `i1` with two shards, `i2` with five, the alias `a` for `i1`, and a queue before them.
fn names(topic: &str, pipeline: &str) -> (FakeCluster, GatewayHome) {
    let cluster = FakeCluster::start(Spec::default().index("i1", 2).index("i2", 5).storing()).unwrap();
    cluster.alias("a", &["i1"]);
    let place = GatewayHome::new(&cluster, broker(), topic, ", partitions: 16");
    let text = std::fs::read_to_string(&place.file).unwrap();
    let text = text.replace("retry_delay_in_ms: 20", pipeline);
    std::fs::write(&place.file, text).unwrap();
    (cluster, place)
}

fn queued(gateway: &Gateway, body: &str) {
    let answer = gateway.bulk(body).ok().unwrap();
    assert!(answer.header("x-tidegate-ack").is_some(), "{:?}", answer.json());
}

/// Waits until answers say that writes to `a` are queued for `index`.
fn leads(gateway: &Gateway, index: &str) {
    let probe = "{\"delete\":{\"_index\":\"a\",\"_id\":\"probe\"}}\n";
    until("the alias leads elsewhere", gateway, || {
        let answer = gateway.bulk(probe).ok().unwrap().json().unwrap();
        answer["items"][0]["delete"]["_index"] == index
    });
}

/// Returns how many documents this gateway told its clients are accepted.
fn accepted(gateway: &Gateway) -> u64 {
    queue(gateway)["accepted"].as_u64().unwrap()
}

/// Waits until this many documents are done, by any of the gateways.
fn done(gateway: &Gateway, documents: u64) -> Value {
    let of = |one: &Value, name: &str| one[name].as_u64().unwrap();
    wait(gateway, |one| of(one, "indexed") + of(one, "dead") == documents)
}

#[test]
fn the_newer_version_wins_when_an_alias_is_swapped_while_writes_through_it_are_queued() {
    let (cluster, place) = names("swapped", "auto_start: false, retry_delay_in_ms: 30");
    let gateway = place.start();
    queued(&gateway, &writes("index", "a", 8, 1));
    cluster.alias("a", &["i2"]);
    leads(&gateway, "i2");
    queued(&gateway, &writes("index", "a", 8, 2));
    let older = Fault::StatusIfHolds {
        text: "{\"v\":1}".to_owned(),
        status: 503,
        body: "{}".to_owned(),
    };
    for node in 0..3 {
        cluster.inject(Injection::bulk(older.clone()).on_node(node).times(3));
    }
    send(&gateway, "POST", "/pipeline/p/_start");
    done(&gateway, accepted(&gateway));
    let newest = with(&cluster, "i2", 2);
    assert_eq!(
        (cluster.docs("i2").len(), newest),
        (8, 8),
        "{:?}",
        cluster.docs("i2")
    );
}

#[test]
fn the_newer_version_wins_through_another_name_and_another_gateway_and_another_routing_of_the_index() {
    let (cluster, place) = names("swapped-often", "auto_start: false, retry_delay_in_ms: 30");
    let other = GatewayHome::new(&cluster, broker(), "swapped-often", ", partitions: 16");
    let text = std::fs::read_to_string(&other.file).unwrap();
    std::fs::write(
        &other.file,
        text.replace("retry_delay", "auto_start: false, retry_delay"),
    )
    .unwrap();
    let (gateway, second) = (place.start(), other.start());
    queued(&gateway, &writes("index", "a", 30, 1));
    cluster.alias("a", &["i2"]);
    leads(&second, "i2");
    // The second gateway knows that the alias leads elsewhere; the index is also written to by its own name.
    queued(&second, &writes("index", "a", 30, 2));
    queued(&second, &writes("index", "i2", 30, 3));
    cluster.alias("a", &["i2", "i1"]);
    leads(&gateway, "i2");
    queued(&gateway, &writes("index", "a", 30, 4));
    for node in 0..3 {
        for v in 1..=3 {
            let older = Fault::StatusIfHolds {
                text: format!("{{\"v\":{v}}}"),
                status: 503,
                body: "{}".to_owned(),
            };
            cluster.inject(Injection::bulk(older).on_node(node).times(4));
        }
    }
    let all = accepted(&gateway) + accepted(&second);
    send(&gateway, "POST", "/pipeline/p/_start");
    send(&second, "POST", "/pipeline/p/_start");
    done(&gateway, all);
    assert_eq!(
        (cluster.docs("i2").len(), with(&cluster, "i2", 4)),
        (30, 30),
        "{:?}",
        cluster.docs("i2")
    );
}

#[test]
fn no_document_is_in_two_indices_after_a_rollover_between_a_lost_answer_and_the_resend() {
    for (number, (operation, delay)) in [("create", 1_500), ("index", 1_500), ("create", 20), ("index", 20)]
        .into_iter()
        .enumerate()
    {
        let (cluster, place) = names(&format!("lost-{number}"), &format!("retry_delay_in_ms: {delay}"));
        let gateway = place.start();
        leads(&gateway, "i1");
        done(&gateway, accepted(&gateway));
        for node in 0..3 {
            cluster.inject(Injection::bulk(Fault::CloseWritten).on_node(node).times(2));
        }
        queued(&gateway, &writes(operation, "a", 100, 1));
        until("all is written", &gateway, || cluster.docs("i1").len() == 100);
        cluster.alias("a", &["i2", "i1"]);
        let one = done(&gateway, accepted(&gateway));
        let docs = ["i1", "i2"].map(|index| cluster.docs(index).len());
        assert_eq!((docs, &one["dead"]), ([100, 0], &json!(0)), "{operation} {delay}");
    }
}

#[test]
fn no_document_is_in_two_indices_after_its_alias_moves_between_kill_9_and_the_resend_by_another_gateway() {
    let rolled: &[&str] = &["i2", "i1"];
    // The old index is behind the alias no more.
    let swapped: &[&str] = &["i2"];
    for (operation, moved) in [
        ("create", rolled),
        ("index", rolled),
        ("update", rolled),
        ("create", swapped),
        ("index", swapped),
    ] {
        let topic = format!("moved-{operation}-{}", moved.len());
        let (cluster, place) = names(&topic, "retry_delay_in_ms: 20");
        let gateway = place.start();
        leads(&gateway, "i1");
        done(&gateway, accepted(&gateway));
        let mut body = writes(operation, "a", 100, 1);
        if operation == "update" {
            body = body.replace("{\"v\":1}", "{\"doc\":{\"v\":1},\"doc_as_upsert\":true}");
        }
        // The gateway makes the id of this document.
        body.push_str("{\"create\":{\"_index\":\"a\"}}\n{\"v\":1}\n");
        cluster.inject(Injection::bulk(Fault::HangWritten).always());
        queued(&gateway, &body);
        // Each node holds the first request that it gets; later ones are not sent.
        until("some is written", &gateway, || !cluster.docs("i1").is_empty());
        std::thread::sleep(Duration::from_millis(300));
        let told = accepted(&gateway);
        gateway.signal("KILL");
        drop(gateway);
        let written = cluster.docs("i1");
        cluster.behave();
        cluster.alias("a", moved);
        // The other gateway shares no disk with this one.
        let other = GatewayHome::new(&cluster, broker(), &topic, ", partitions: 16");
        let gateway = other.start();
        let one = done(&gateway, told);
        let later = cluster.docs("i2");
        assert_eq!(cluster.docs("i1").len(), written.len(), "{topic}");
        assert!(written.keys().all(|id| !later.contains_key(id)), "{topic}");
        assert_eq!(
            (written.len() + later.len(), &one["dead"]),
            (101, &json!(0)),
            "{topic}: {one}"
        );
    }
}

/// The index that an alias had left before a write was accepted cannot have that write, whatever it has.
#[test]
fn a_write_after_a_swap_is_executed_although_the_old_index_has_its_like() {
    let (cluster, place) = names("swapped-like", "retry_delay_in_ms: 20");
    let gateway = place.start();
    leads(&gateway, "i1");
    done(&gateway, accepted(&gateway));
    cluster.inject(Injection::bulk(Fault::HangWritten).always());
    let body = writes("index", "a", 100, 1);
    queued(&gateway, &body);
    until("some is written", &gateway, || !cluster.docs("i1").is_empty());
    std::thread::sleep(Duration::from_millis(300));
    cluster.alias("a", &["i2"]);
    leads(&gateway, "i2");
    queued(&gateway, &body);
    let told = accepted(&gateway);
    gateway.signal("KILL");
    drop(gateway);
    cluster.behave();
    let other = GatewayHome::new(&cluster, broker(), "swapped-like", ", partitions: 16");
    let gateway = other.start();
    let one = done(&gateway, told);
    let docs = cluster.docs("i2");
    assert_eq!((docs.len(), &one["dead"]), (100, &json!(0)), "{one}");
}

#[test]
fn all_that_was_sent_since_the_last_commit_is_looked_for_wherever_a_gateway_believes_its_name_to_lead() {
    let cluster = FakeCluster::start(Spec::default().index("i1", 2).index("i2", 5).storing()).unwrap();
    cluster.alias("a", &["i1"]);
    let broker = Broker::start().unwrap();
    let place = |pipeline: &str, discovery: &str| {
        let place = GatewayHome::at(&cluster, broker.address(), "ahead", ", partitions: 1");
        let text = std::fs::read_to_string(&place.file).unwrap();
        let text = text
            .replace("session_timeout: 2s", "session_timeout: 20s")
            .replace(
                "retry_delay_in_ms: 20",
                &format!("{pipeline}retry_delay_in_ms: 1"),
            )
            .replace(
                "{elasticsearch: c}}]}",
                "{elasticsearch: c, bulk: {batch_size_in_docs: 1}}}]}",
            )
            .replace("{name: c, ", &format!("{{name: c, {discovery}"));
        std::fs::write(&place.file, text).unwrap();
        place
    };
    let first = place("", "");
    let gateway = first.start();
    leads(&gateway, "i1");
    done(&gateway, accepted(&gateway));
    let away = Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::bulk(away).always());
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let gateway = &gateway;
            scope.spawn(move || {
                for id in 0..AHEAD_DOCS / 4 {
                    let action = format!("{{\"create\":{{\"_index\":\"a\",\"_id\":\"{writer}-{id}\"}}}}");
                    queued(gateway, &format!("{action}\n{{\"v\":1}}\n"));
                }
            });
        }
    });
    wait(&gateway, |one| one["pending"] == AHEAD_DOCS);
    // From here on nothing can be committed, but the gateway has everything that it needs to go on.
    broker.pause_one(1).unwrap();
    cluster.behave();
    until("more is sent than some batches", &gateway, || {
        cluster.docs("i1").len() > 20
    });
    let (mut sent, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_secs(1) {
        if cluster.docs("i1").len() > sent {
            (sent, since) = (cluster.docs("i1").len(), Instant::now());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let told = accepted(&gateway);
    gateway.signal("KILL");
    drop(gateway);
    broker.resume_one(1).unwrap();
    // The alias rolls over, and the next owner does not know yet.
    let other = place("auto_start: false, ", "discovery: {refresh: {interval: 600s}}, ");
    let gateway = other.start();
    cluster.alias("a", &["i2", "i1"]);
    send(&gateway, "POST", "/pipeline/p/_start");
    let one = done(&gateway, told);
    let (earlier, later) = (cluster.docs("i1"), cluster.docs("i2"));
    let twice = earlier.keys().filter(|id| later.contains_key(*id)).count();
    assert_eq!((twice, &one["dead"]), (0, &json!(0)), "of {sent}: {one}");
    assert_eq!(earlier.len() + later.len(), AHEAD_DOCS);
    assert!(sent <= 1024, "{sent} are sent, and none of them is committed");
}

/// More than a lane sends beyond what is committed.
const AHEAD_DOCS: usize = 1_100;
