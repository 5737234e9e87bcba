//! One shard of an index that accepts nothing: only its own documents wait, through hand-overs, and no write
//! to a document passes an earlier one, even if documents come to be in other shards meanwhile.

use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use super::concerns::{until, with, writes};
use super::gateway::Gateway;
use super::moves::{ids_of, move_alias};
use super::{GatewayHome, broker, queue, send, wait};

const NO_PRIMARY: &str =
    r#"{"type":"unavailable_shards_exception","reason":"[i1][0] primary shard is not active Timeout: [3s]"}"#;
const DOCS: usize = 120;

/// Makes `i1` with a shard on each of three nodes, `i2` with other shards, and the alias `a` for `i1`.
fn cluster() -> FakeCluster {
    let cluster = FakeCluster::start(Spec::default().index("i1", 3).index("i2", 4).storing()).unwrap();
    cluster.alias("a", &["i1"]);
    cluster
}

/// Has the shard on the first node accept nothing.
fn loses_a_primary(cluster: &FakeCluster) {
    let refused = Fault::Items {
        every: 1,
        status: 503,
        error: NO_PRIMARY.to_owned(),
    };
    cluster.inject(Injection::bulk(refused).on_node(0).always());
}

fn write(gateway: &Gateway, v: usize) {
    let answer = gateway.bulk(&writes("index", "a", DOCS, v)).ok().unwrap();
    assert!(answer.header("x-tidegate-ack").is_some(), "{:?}", answer.json());
}

/// Waits until everything is indexed or parked; returns both numbers.
fn settled(gateway: &Gateway, documents: usize) -> (usize, usize) {
    let number = |one: &serde_json::Value, name: &str| one[name].as_u64().unwrap() as usize;
    let one = wait(gateway, |one| {
        number(one, "indexed") + number(one, "parked") == documents && one["pending_messages"] == 0
    });
    assert_eq!(one["dead"], 0, "{one}");
    (number(&one, "indexed"), number(&one, "parked"))
}

#[test]
fn documents_of_a_shard_without_primary_wait_and_those_of_the_others_do_not() {
    let cluster = cluster();
    let places = [(), ()].map(|()| GatewayHome::new(&cluster, broker(), "one-shard", ", partitions: 4"));
    let gateway = places[0].start();
    loses_a_primary(&cluster);
    write(&gateway, 1);
    let (indexed, parked) = settled(&gateway, DOCS);
    assert!(indexed > DOCS / 2 && parked > DOCS / 5, "{indexed} {parked}");
    write(&gateway, 2);
    assert_eq!(settled(&gateway, 2 * DOCS), (2 * indexed, 2 * parked));
    assert_eq!(with(&cluster, "i1", 2), indexed);
    let keys = send(&gateway, "GET", "/queue/q/parked")["groups"]["c"]["keys"].to_string();
    assert!(
        keys.contains("shards:i1:0:") && !keys.contains("index:i1"),
        "{keys}"
    );
    // The totals are committed within a moment.
    std::thread::sleep(std::time::Duration::from_millis(500));
    gateway.signal("KILL");
    drop(gateway);
    let gateway = places[1].start();
    wait(&gateway, |one| one["lanes_held"] == 4);
    write(&gateway, 3);
    assert_eq!(settled(&gateway, 3 * DOCS), (3 * indexed, 3 * parked));
    assert_eq!(with(&cluster, "i1", 3), indexed);
    cluster.behave();
    send(&gateway, "POST", "/queue/q/parked/_release");
    assert_eq!(settled_all(&gateway, 3 * DOCS), 0);
    assert_eq!(with(&cluster, "i1", 3), DOCS);
}

/// Waits until all is indexed; returns what is still parked then.
fn settled_all(gateway: &Gateway, documents: usize) -> u64 {
    let one = wait(gateway, |one| one["indexed"] == documents && one["parked"] == 0);
    one["parked"].as_u64().unwrap()
}

#[test]
fn the_newest_version_wins_if_the_alias_leads_to_other_shards_while_some_of_a_shard_wait() {
    let cluster = cluster();
    let place = GatewayHome::new(&cluster, broker(), "one-shard-moved", ", partitions: 4");
    let gateway = place.start();
    loses_a_primary(&cluster);
    write(&gateway, 1);
    let (indexed, parked) = settled(&gateway, DOCS);
    cluster.alias("a", &["i2"]);
    let probe = "{\"delete\":{\"_index\":\"a\",\"_id\":\"probe\"}}\n";
    until("the alias leads elsewhere", &gateway, || {
        let answer = gateway.bulk(probe).ok().unwrap().json().unwrap();
        answer["items"][0]["delete"]["_index"] == "i2"
    });
    write(&gateway, 2);
    write(&gateway, 3);
    cluster.behave();
    send(&gateway, "POST", "/queue/q/parked/_release");
    wait(&gateway, |one| {
        one["pending_messages"] == 0 && one["parked"] == 0 && one["pending"] == 0
    });
    assert_eq!((cluster.docs("i1").len(), indexed), (indexed, DOCS - parked));
    assert_eq!(with(&cluster, "i2", 3), DOCS);
}

#[test]
fn what_is_parked_behind_many_writes_that_wait_for_a_shard_and_is_not_of_it_does_not_wait_for_them() {
    let cluster = cluster();
    let place = GatewayHome::new(&cluster, broker(), "behind-a-shard", ", partitions: 2");
    let text = std::fs::read_to_string(&place.file).unwrap();
    let few = "{elasticsearch: c, bulk: {batch_size_in_docs: 5}}}]}";
    std::fs::write(
        &place.file,
        text.replace("{elasticsearch: c}}]}]", &format!("{few}]")),
    )
    .unwrap();
    let gateway = place.start();
    let [mut held, free] = ids_of(&gateway, 0);
    // What shows where the alias leads is of the lane that has parked something, too.
    let probe = held.pop().unwrap();
    let write = |ids: &[String], v: usize| {
        let line = |id| format!("{{\"index\":{{\"_index\":\"a\",\"_id\":\"{id}\"}}}}\n{{\"v\":{v}}}\n");
        gateway
            .bulk(&ids.iter().map(line).collect::<String>())
            .ok()
            .unwrap();
    };
    let settled = || {
        let all = queue(&gateway)["accepted"].as_u64().unwrap();
        settled(&gateway, all as usize)
    };
    // Of two lanes, that with the lower offsets comes first.
    (0..60).for_each(|_| write(&free, 0));
    settled();
    // Of either index, since what is parked goes where the alias leads.
    let refused = Fault::Items {
        every: 1,
        status: 503,
        error: NO_PRIMARY.replace("[i1][0] ", ""),
    };
    cluster.inject(Injection::bulk(refused).on_node(0).always());
    write(&held, 1);
    assert!(settled().1 > 0);
    move_alias(&cluster, &gateway, "i2", &probe);
    // All of the lane's documents may have been in that shard. They are more than are tried at once.
    write(&held, 2);
    settled();
    write(&free, 3);
    settled();
    until("those of the other lane get there", &gateway, || {
        with(&cluster, "i2", 3) > 4
    });
    assert_eq!(with(&cluster, "i2", 2), 0, "they wait");
    cluster.behave();
    send(&gateway, "POST", "/queue/q/parked/_release");
    wait(&gateway, |one| one["pending"] == 0 && one["parked"] == 0);
    assert_eq!(
        (with(&cluster, "i2", 2), with(&cluster, "i2", 3)),
        (held.len(), free.len())
    );
}
