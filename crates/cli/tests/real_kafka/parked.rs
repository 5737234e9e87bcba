//! Parked documents of a queue in Kafka, through kills and hand-overs: the next owner of a lane has them, in
//! order, counts them once, and lets nothing overtake them.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use serde_json::{Value, json};
use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use super::concerns::{BLOCKED, until, with, writes};
use super::gateway::Gateway;
use super::{GatewayHome, broker, queue, send, wait};

/// Makes an index that accepts nothing beside a healthy one, and the homes of two gateways before them.
fn places(topic: &str) -> (FakeCluster, [GatewayHome; 2]) {
    let spec = Spec::default().index("good", 6).index("blocked", 6).storing();
    let cluster = FakeCluster::start(spec).unwrap();
    let more = ", partitions: 4";
    let places = [(), ()].map(|()| GatewayHome::new(&cluster, broker(), topic, more));
    cluster.refuse_writes("blocked", Some((403, BLOCKED)));
    (cluster, places)
}

fn write(gateway: &Gateway, index: &str, v: usize) {
    gateway.bulk(&writes("index", index, 50, v)).ok().unwrap();
}

fn of(one: &Value, names: [&str; 4]) -> [u64; 4] {
    names.map(|name| one[name].as_u64().unwrap())
}

/// Returns what became of documents, and how many messages wait.
fn account(one: &Value) -> [u64; 4] {
    of(one, ["indexed", "parked", "dead", "pending_messages"])
}

/// Returns the parked documents of this gateway's own lanes.
pub(super) fn parked_here(gateway: &Gateway) -> u64 {
    let parked = send(gateway, "GET", "/queue/q/parked");
    parked["groups"]["c"]["documents"].as_u64().unwrap()
}

fn here(gateway: &Gateway, documents: u64) {
    until("what is parked is here", gateway, || {
        parked_here(gateway) == documents
    });
}

fn kill(gateway: Gateway) {
    gateway.signal("KILL");
    drop(gateway);
}

#[test]
fn what_a_gateway_has_parked_the_next_one_has_after_kill_9_and_delivers_it_in_order() {
    let (cluster, [first, second]) = places("parked-kill");
    let gateway = first.start();
    for v in 1..=5 {
        write(&gateway, "blocked", v);
        write(&gateway, "good", v);
    }
    wait(&gateway, |one| account(one) == [250, 250, 0, 0]);
    // The totals are committed within a moment.
    std::thread::sleep(Duration::from_millis(500));
    kill(gateway);
    // The gateway shares no disk with the first one, and has the lanes to itself.
    let gateway = second.start();
    wait(&gateway, |one| one["lanes_held"] == 4);
    wait(&gateway, |one| account(one) == [250, 250, 0, 0]);
    here(&gateway, 250);
    // Later writes wait behind the parked ones; no other index waits.
    write(&gateway, "blocked", 6);
    write(&gateway, "good", 6);
    wait(&gateway, |one| account(one) == [300, 300, 0, 0]);
    assert!(cluster.docs("blocked").is_empty());
    cluster.refuse_writes("blocked", None);
    wait(&gateway, |one| account(one) == [600, 0, 0, 0]);
    assert_eq!(with(&cluster, "blocked", 6), 50);
    // Nothing comes back.
    std::thread::sleep(Duration::from_millis(500));
    let sent = cluster.counts().docs;
    kill(gateway);
    let gateway = first.start();
    wait(&gateway, |one| one["lanes_held"] == 4);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(wait(&gateway, |_| true)["parked"], 0);
    assert_eq!(cluster.counts().docs, sent, "nothing was executed again");
    // Nothing is needed of what former owners have written.
    until("records are deleted", &gateway, || {
        let records = records_of("parked-kill.c.parked", 4);
        records.iter().all(|records| *records <= 3)
    });
}

/// Returns how many records each partition of a topic has.
pub(super) fn records_of(topic: &str, partitions: i32) -> Vec<i64> {
    let asking: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", broker().address())
        .set("group.id", "nobody")
        .create()
        .unwrap();
    let of = |partition| {
        let ends = asking.fetch_watermarks(topic, partition, Duration::from_secs(10));
        ends.map(|(first, end)| end - first).unwrap()
    };
    (0..partitions).map(of).collect()
}

#[test]
fn what_is_parked_goes_along_as_lanes_change_hands() {
    let (cluster, places) = places("parked-shared");
    let [first, second] = &places;
    let one = first.start();
    for v in 1..=3 {
        write(&one, "blocked", v);
    }
    wait(&one, |group| account(group) == [0, 150, 0, 0]);
    let two = second.start();
    for gateway in [&one, &two] {
        wait(gateway, |group| group["lanes_held"] == 2);
    }
    // Each gateway has its lanes' share, and both count all of it.
    for gateway in [&one, &two] {
        wait(gateway, |group| account(group) == [0, 150, 0, 0]);
        until("some of it is here", gateway, || {
            (1..150).contains(&parked_here(gateway))
        });
    }
    assert_eq!(parked_here(&one) + parked_here(&two), 150);
    write(&two, "blocked", 4);
    write(&one, "good", 4);
    for gateway in [&one, &two] {
        wait(gateway, |group| account(group) == [50, 200, 0, 0]);
    }
    // The first gateway stops in the usual way.
    let mut one = one;
    one.signal("TERM");
    assert!(one.wait().success(), "{}", one.log());
    here(&two, 200);
    cluster.refuse_writes("blocked", None);
    wait(&two, |group| account(group) == [250, 0, 0, 0]);
    assert_eq!(with(&cluster, "blocked", 4), 50);
}

#[test]
fn a_gateway_that_is_killed_again_and_again_while_it_parks_loses_nothing_and_keeps_the_order() {
    let (cluster, [place, _]) = places("parked-often");
    let mut written = 0;
    for round in 0..4 {
        let gateway = place.start();
        wait(&gateway, |one| one["lanes_held"] == 4);
        for _ in 0..3 {
            written += 1;
            write(&gateway, "blocked", written);
            write(&gateway, "good", written);
        }
        std::thread::sleep(Duration::from_millis([0, 40, 120, 300][round]));
        kill(gateway);
    }
    let gateway = place.start();
    let documents = written as u64 * 50;
    // Work under way may have been delivered and counted once more.
    let one = wait(&gateway, |one| {
        one["pending_messages"] == 0 && one["parked"] == documents && one["lanes_held"] == 4
    });
    assert_eq!(
        (&one["dead"], &one["indexed"]),
        (&json!(0), &json!(documents)),
        "{one}"
    );
    cluster.refuse_writes("blocked", None);
    let one = wait(&gateway, |one| one["parked"] == 0);
    assert_eq!(account(&one), [2 * documents, 0, 0, 0], "{one}");
    let newest = ["good", "blocked"].map(|index| with(&cluster, index, written));
    assert_eq!(newest, [50, 50]);
}

#[test]
fn what_is_parked_is_given_up_or_tried_at_once_when_the_operator_says_so() {
    let (cluster, [place, other]) = places("parked-operator");
    let gateway = place.start();
    write(&gateway, "blocked", 1);
    wait(&gateway, |one| account(one) == [0, 50, 0, 0]);
    let given = send(
        &gateway,
        "POST",
        "/queue/q/parked/_give_up?key=index:blocked&confirm=true",
    );
    assert_eq!(given["documents"], 50, "{given}");
    wait(&gateway, |one| account(one) == [0, 0, 50, 0]);
    write(&gateway, "blocked", 2);
    wait(&gateway, |one| account(one) == [0, 50, 50, 0]);
    std::thread::sleep(Duration::from_millis(500));
    kill(gateway);
    // The letters are on the first gateway, and its deaths count for the group.
    let gateway = other.start();
    here(&gateway, 50);
    assert_eq!(account(&wait(&gateway, |_| true)), [0, 50, 50, 0]);
    // By then it is tried only seldom.
    std::thread::sleep(Duration::from_secs(2));
    cluster.refuse_writes("blocked", None);
    let released = send(&gateway, "POST", "/queue/q/parked/_release");
    assert!(released["keys"].as_u64().unwrap() > 0, "{released}");
    until("it arrives", &gateway, || with(&cluster, "blocked", 2) == 50);
    let one = wait(&gateway, |one| account(one) == [50, 0, 50, 0]);
    assert_eq!(queue(&gateway)["groups"]["c"]["indexed"], one["indexed"]);
}

#[test]
fn a_gateway_that_was_frozen_with_parked_operations_neither_loses_nor_repeats_nor_overtakes_any() {
    // Parked documents arrive while the gateway is frozen, or after it has its share of the lanes again.
    for (topic, cured_while_frozen) in [("parked-frozen", true), ("parked-thawed", false)] {
        let (cluster, places) = places(topic);
        let [frozen, other] = places.each_ref().map(GatewayHome::start);
        for gateway in [&frozen, &other] {
            wait(gateway, |group| group["lanes_held"] == 2);
        }
        for v in 1..=3 {
            write(&frozen, "blocked", v);
            write(&frozen, "good", v);
        }
        wait(&other, |group| account(group) == [150, 150, 0, 0]);
        until("both have some", &frozen, || {
            let here = [&frozen, &other].map(parked_here);
            here.iter().sum::<u64>() == 150 && !here.contains(&0)
        });
        std::thread::sleep(Duration::from_millis(500));
        frozen.signal("STOP");
        wait(&other, |group| group["lanes_held"] == 4);
        here(&other, 150);
        write(&other, "blocked", 4);
        write(&other, "good", 4);
        wait(&other, |group| account(group) == [200, 200, 0, 0]);
        if cured_while_frozen {
            cluster.refuse_writes("blocked", None);
            wait(&other, |group| account(group) == [400, 0, 0, 0]);
        }
        let sent = cluster.counts().docs;
        frozen.signal("CONT");
        for gateway in [&frozen, &other] {
            wait(gateway, |group| group["lanes_held"] == 2);
        }
        if cured_while_frozen {
            std::thread::sleep(Duration::from_secs(1));
            assert_eq!(cluster.counts().docs, sent, "nothing was executed again");
        } else {
            until("both have some again", &frozen, || {
                let here = [&frozen, &other].map(parked_here);
                here.iter().sum::<u64>() == 200 && !here.contains(&0)
            });
            // Documents that come now wait behind those parked by either gateway.
            write(&frozen, "blocked", 5);
            wait(&other, |group| account(group) == [200, 250, 0, 0]);
            cluster.refuse_writes("blocked", None);
        }
        let (last, all) = if cured_while_frozen { (4, 400) } else { (5, 450) };
        for gateway in [&frozen, &other] {
            wait(gateway, |group| account(group) == [all, 0, 0, 0]);
        }
        assert_eq!(
            (with(&cluster, "blocked", last), with(&cluster, "good", 4)),
            (50, 50)
        );
    }
}

#[test]
fn what_is_to_be_parked_while_no_broker_is_there_is_parked_once_they_are_back() {
    let spec = Spec::default().index("good", 6).index("blocked", 6).storing();
    let cluster = FakeCluster::start(spec).unwrap();
    let broker = testkit::broker::Broker::start().unwrap();
    let place = GatewayHome::new(&cluster, &broker, "parked-away", ", partitions: 4");
    let gateway = place.start();
    wait(&gateway, |one| one["lanes_held"] == 4);
    cluster.refuse_writes("blocked", Some((403, BLOCKED)));
    // By the time that the cluster refuses them, the brokers are away.
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_millis(1_200))).always());
    for v in 1..=3 {
        write(&gateway, "blocked", v);
        write(&gateway, "good", v);
    }
    broker.kill().unwrap();
    gateway.logged("cannot");
    std::thread::sleep(Duration::from_secs(2));
    cluster.behave();
    cluster.refuse_writes("blocked", Some((403, BLOCKED)));
    broker.start_again().unwrap();
    // Uncommitted work may have been delivered and counted once more, but nothing of it is lost.
    wait(&gateway, |one| {
        let [indexed, parked, dead, messages] = account(one);
        indexed >= 150 && (parked, dead, messages) == (150, 0, 0)
    });
    assert_eq!(with(&cluster, "good", 3), 50);
    assert!(cluster.docs("blocked").is_empty());
    until("it takes writes again", &gateway, || {
        gateway.bulk(&writes("index", "blocked", 50, 4)).status == 200
    });
    cluster.refuse_writes("blocked", None);
    wait(&gateway, |one| account(one)[1..] == [0, 0, 0]);
    assert_eq!(with(&cluster, "blocked", 4), 50);
}
