//! A write that cannot be queued waits for what is in the topic, whichever gateway has put it there.

use std::time::Duration;

use serde_json::json;
use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use crate::concerns::{BLOCKED, until, writes};
use crate::gateway::{Gateway, cluster};
use crate::parked::parked_here;
use crate::{GatewayHome, broker, n_of, wait};

/// Sends a write whose answer would have to be YAML, which no queue gives.
fn unqueued(gateway: &Gateway, n: usize) -> u16 {
    let body = format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"1\"}}}}\n{{\"n\":{n}}}\n");
    let headers = [
        ("content-type", "application/x-ndjson"),
        ("accept", "application/yaml"),
    ];
    let answer = gateway.client().send("POST", "/_bulk", &headers, body.as_bytes());
    let answer = answer.unwrap();
    assert_eq!(answer.header("x-tidegate-ack"), None);
    answer.status
}

#[test]
fn what_cannot_be_queued_waits_for_what_any_gateway_has_put_into_the_topic() {
    let cluster = cluster();
    let places = ["", ""].map(|more| {
        let more = format!(", partitions: 2{more}");
        GatewayHome::new(&cluster, broker(), "passing", &more)
    });
    let gateways = [places[0].start(), places[1].start()];
    for gateway in &gateways {
        wait(gateway, |one| one["lanes_held"] == 1);
    }
    for (round, (first, second)) in [(0, 0), (0, 1), (1, 0)].into_iter().enumerate() {
        let away = Fault::Status {
            status: 503,
            body: "{}".to_owned(),
        };
        cluster.inject(Injection::bulk(away).always());
        let (queued, passed) = (10 * round + 1, 10 * round + 2);
        let body = format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"1\"}}}}\n{{\"n\":{queued}}}\n");
        let answer = gateways[first].bulk(&body).ok().unwrap();
        assert!(answer.header("x-tidegate-ack").is_some());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| unqueued(&gateways[second], passed));
            std::thread::sleep(Duration::from_secs(1));
            assert!(!waiting.is_finished(), "round {round}: it went round the queue");
            cluster.behave();
            assert_eq!(waiting.join().unwrap(), 200, "round {round}");
        });
        assert_eq!(n_of(&cluster, "1"), json!(passed), "round {round}");
    }
}

#[test]
fn what_cannot_be_queued_does_not_pass_what_another_gateway_has_parked() {
    let spec = Spec::default().index("logs", 6).index("blocked", 6).storing();
    let cluster = FakeCluster::start(spec).unwrap();
    let places = [(), ()].map(|()| GatewayHome::new(&cluster, broker(), "passing-parked", ", partitions: 2"));
    let mut gateways = places.each_ref().map(GatewayHome::start);
    for gateway in &gateways {
        wait(gateway, |one| one["lanes_held"] == 1);
    }
    cluster.refuse_writes("blocked", Some((403, BLOCKED)));
    gateways[0].bulk(&writes("index", "blocked", 1, 1)).ok().unwrap();
    until("somebody has parked it", &gateways[0], || {
        gateways.iter().any(|gateway| parked_here(gateway) == 1)
    });
    if parked_here(&gateways[0]) == 0 {
        gateways.swap(0, 1);
    }
    let [parker, asked] = &gateways;
    for gateway in [parker, asked] {
        wait(gateway, |one| one["parked"] == 1 && one["pending_messages"] == 0);
    }
    let by_query = |gateway: &Gateway| {
        let headers = [("content-type", "application/json")];
        let body = b"{\"query\":{\"match_all\":{}}}";
        let path = "/blocked/_update_by_query";
        gateway.client().send("POST", path, &headers, body).unwrap()
    };
    let answer = by_query(asked);
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.header("retry-after").is_some());
    // The lane's next owner has not heard about it from the previous owner.
    parker.signal("KILL");
    wait(asked, |one| one["lanes_held"] == 2);
    assert_eq!(by_query(asked).status, 503);
    cluster.refuse_writes("blocked", None);
    wait(asked, |one| one["parked"] == 0 && one["pending_messages"] == 0);
    until("it may go on", asked, || by_query(asked).status != 503);
    assert_eq!(cluster.docs("blocked").len(), 1);
}
