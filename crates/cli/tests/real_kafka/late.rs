//! Requests that a node keeps for long hold up no other documents of their lanes, also where lanes are handed
//! over meanwhile.

use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::fake::{Behaviour, FakeCluster, Fault, HeldUp, Injection, Spec};

use super::concerns::{until, with, writes};
use super::gateway::Gateway;
use super::{GatewayHome, broker, wait};

/// The value of the documents whose requests a node keeps.
const KEPT: usize = 777;

/// Makes two indices of one shard each, and the homes of two gateways before their cluster.
fn places(topic: &str) -> (FakeCluster, [GatewayHome; 2]) {
    let spec = Spec::default().index("good", 1).index("blocked", 1).storing();
    let cluster = FakeCluster::start(spec).unwrap();
    let places = [(), ()].map(|()| GatewayHome::new(&cluster, broker(), topic, ", partitions: 2"));
    (cluster, places)
}

fn keep(cluster: &FakeCluster, wait: Duration) {
    cluster.set_behaviour(Behaviour {
        held_up: Some(HeldUp {
            holds: format!("{{\"v\":{KEPT}}}"),
            wait,
        }),
        ..Behaviour::default()
    });
}

fn write(gateway: &Gateway, index: &str, v: usize) {
    gateway.bulk(&writes("index", index, 50, v)).ok().unwrap();
}

/// Has the node keep a request, and others' documents pass it.
fn kept_and_passed(cluster: &FakeCluster, gateway: &Gateway, time: Duration) {
    keep(cluster, time);
    let began = Instant::now();
    write(gateway, "blocked", KEPT);
    // They must not be in one batch with the others.
    let is_sent = |lane: &Value| !lane["waits_for"].as_array().unwrap().is_empty();
    wait(gateway, |group| {
        group["lanes"].as_array().unwrap().iter().all(is_sent)
    });
    for v in 1..=3 {
        write(gateway, "good", v);
        write(gateway, "blocked", v);
    }
    until("others pass", gateway, || with(cluster, "good", 3) == 50);
    assert!(
        began.elapsed() < time - Duration::from_secs(1),
        "{}",
        gateway.log()
    );
    // Later versions of the kept documents wait.
    assert!((1..=3).all(|v| with(cluster, "blocked", v) == 0));
}

#[test]
fn others_documents_go_on_while_a_node_keeps_a_request_of_lanes_that_then_change_hands() {
    let (cluster, [first, second]) = places("late-shared");
    let one = first.start();
    wait(&one, |group| group["lanes_held"] == 2);
    kept_and_passed(&cluster, &one, Duration::from_secs(10));
    wait(&one, |group| group["parked"].as_u64() >= Some(50));
    // The brokers take all lanes from the first gateway, which has a request under way.
    let two = second.start();
    for gateway in [&one, &two] {
        wait(gateway, |group| group["lanes_held"] == 1);
    }
    for gateway in [&one, &two] {
        wait(gateway, |group| {
            let is = |name: &str, n: u64| group[name] == n;
            is("parked", 0) && is("dead", 0) && is("pending_messages", 0) && is("indexed", 350)
        });
    }
    assert_eq!(with(&cluster, "blocked", 3), 50);
    for (id, doc) in cluster.docs("blocked") {
        assert_eq!(doc.version, 4, "{id} each once");
    }
}

#[test]
fn what_was_under_way_without_its_lane_at_a_kill_is_looked_for_by_the_next_owner() {
    let (cluster, [first, second]) = places("late-kill");
    let gateway = first.start();
    wait(&gateway, |group| group["lanes_held"] == 2);
    cluster.inject(Injection::bulk(Fault::HangWritten));
    gateway.bulk(&writes("index", "blocked", 1, 1)).ok().unwrap();
    until("a request hangs", &gateway, || cluster.struck() == 1);
    write(&gateway, "good", 1);
    gateway.bulk(&writes("index", "blocked", 1, 2)).ok().unwrap();
    wait(&gateway, |group| {
        group["parked"] == 2 && group["pending_messages"] == 0
    });
    gateway.signal("KILL");
    drop(gateway);
    let next = second.start();
    wait(&next, |group| {
        group["parked"] == 0 && group["dead"] == 0 && group["pending_messages"] == 0
    });
    assert_eq!(with(&cluster, "blocked", 2), 1);
    assert_eq!(with(&cluster, "good", 1), 50);
}

#[test]
fn a_gateway_that_stops_writes_down_for_the_next_owner_what_a_kept_request_has_done() {
    let (cluster, [first, second]) = places("late-stop");
    let mut gateway = first.start();
    wait(&gateway, |group| group["lanes_held"] == 2);
    kept_and_passed(&cluster, &gateway, Duration::from_secs(8));
    gateway.signal("TERM");
    assert!(gateway.wait().success(), "{}", gateway.log());
    cluster.set_behaviour(Behaviour::default());
    let next = second.start();
    wait(&next, |group| group["parked"] == 0 && group["indexed"] == 350);
    for (id, doc) in cluster.docs("blocked") {
        assert_eq!((&*doc.source, doc.version), ("{\"v\":3}", 4), "{id} each once");
    }
}
