//! What brokers have, and whose acknowledgement is late, is in the topic once, and not behind what came
//! later.

use std::time::Duration;

use serde_json::json;
use testkit::broker::Broker;

use super::gateway::cluster;
use super::{GatewayHome, n_of, wait};

#[test]
fn what_is_acknowledged_late_is_in_the_topic_once_and_comes_behind_nothing_that_came_later() {
    let cluster = cluster();
    let broker = Broker::cluster(3).unwrap();
    let more = ", partitions: 1, replication_factor: 3";
    let place = GatewayHome::at(
        &cluster,
        &broker.address().replace(',', "', '"),
        "late_acks",
        more,
    );
    let gateway = place.start();
    let write = |op: &str, id: &str, n: u32| {
        format!("{{\"{op}\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"n\":{n}}}\n")
    };
    gateway.bulk(&write("create", "first", 1)).ok().unwrap();
    wait(&gateway, |one| one["indexed"] == 1);
    let leader = broker.leader_of("late_acks", 0).unwrap();
    let followers: Vec<usize> = (1..=3).filter(|number| *number != leader).collect();
    for follower in &followers {
        broker.pause_one(*follower).unwrap();
    }
    let (late, later) = std::thread::scope(|scope| {
        let (gateway, write) = (&gateway, &write);
        let early = scope.spawn(move || gateway.bulk(&write("create", "early", 1)));
        std::thread::sleep(Duration::from_millis(1300));
        // The leader has these, or has not read them yet, because it answers each connection's requests in
        // turn; and nobody acknowledges them.
        let ways = (0..20).map(|n| (["create", "index"][n % 2], format!("late-{n}")));
        let late: Vec<_> = ways
            .map(|(op, id)| scope.spawn(move || gateway.bulk(&write(op, &id, 1))))
            .collect();
        let early = early.join().unwrap();
        assert_eq!(early.status, 503, "{}", early.text());
        assert!(
            early.text().contains("not acknowledged within 2 s"),
            "{}",
            early.text()
        );
        let late: Vec<_> = late.into_iter().map(|late| late.join().unwrap().status).collect();
        let ids = (1..20).step_by(2).map(|n| format!("late-{n}"));
        let later: Vec<_> = ids
            .map(|id| scope.spawn(move || (gateway.bulk(&write("index", &id, 2)).status, id)))
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        for follower in &followers {
            broker.resume_one(*follower).unwrap();
        }
        let later: Vec<_> = later.into_iter().map(|later| later.join().unwrap()).collect();
        (late, later)
    });
    assert!(late.iter().all(|status| [200, 503].contains(status)), "{late:?}");
    assert!(later.iter().any(|(status, _)| *status == 200), "{later:?}");
    gateway.bulk(&write("create", "last", 1)).ok().unwrap();
    let one = wait(&gateway, |one| {
        cluster.docs("logs").contains_key("last") && one["pending_messages"] == 0
    });
    assert_eq!((&one["dead"], &one["pending"]), (&json!(0), &json!(0)), "{one}");
    assert!(cluster.docs("logs").contains_key("early"));
    for (_, id) in later.iter().filter(|(status, _)| *status == 200) {
        assert_eq!(n_of(&cluster, id), 2, "{id} has an older version");
    }
}
