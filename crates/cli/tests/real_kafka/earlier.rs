//! Gateways of earlier versions, which do not know parked documents, in the same consumer group. The gateway
//! continues from what they have committed, and where something is parked, they refuse the group. A consumer
//! plays them: it joins as they do, and reads what is committed as they do.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use testkit::fake::{FakeCluster, Spec};

use super::concerns::{BLOCKED, until, with, writes};
use super::{GatewayHome, broker, wait};

const LANES: i32 = 4;
const ASK: Duration = Duration::from_secs(10);

/// Makes a member of the group of `topic`, which has not joined yet.
fn earlier(topic: &str) -> BaseConsumer {
    ClientConfig::new()
        .set("bootstrap.servers", broker().address())
        .set("group.id", format!("{topic}.c"))
        .set("session.timeout.ms", "2000")
        .set("heartbeat.interval.ms", "500")
        .set("partition.assignment.strategy", "range")
        .set("enable.auto.commit", "false")
        .create()
        .unwrap()
}

fn all_lanes(topic: &str) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    list.add_partition_range(topic, 0, LANES - 1);
    list
}

/// Returns the committed offsets with their metadata.
fn committed(member: &BaseConsumer, topic: &str) -> Vec<(i64, String)> {
    let list = member.committed_offsets(all_lanes(topic), ASK).unwrap();
    let lanes = list.elements().into_iter();
    lanes
        .map(|lane| (lane.offset().to_raw().unwrap(), lane.metadata().to_owned()))
        .collect()
}

/// Returns the number of partitions that an earlier version reads from an offset. The version goes on if the
/// number is the topic's (or if there is none: then its totals begin again), and refuses the group otherwise.
fn lanes_as_read(metadata: &str) -> Option<u32> {
    let words: Vec<u64> = metadata
        .strip_prefix("tidegate ")?
        .split(' ')
        .map(|word| word.parse().ok())
        .collect::<Option<_>>()?;
    match words[..] {
        [1, lanes, _, _, _, _, _] => u32::try_from(lanes).ok(),
        _ => None,
    }
}

#[test]
fn a_gateway_goes_on_from_what_an_earlier_version_committed_and_refuses_to_it_what_is_parked() {
    let topic = "earlier";
    let spec = Spec::default().index("good", 6).index("blocked", 6).storing();
    let cluster = FakeCluster::start(spec).unwrap();
    let place = GatewayHome::new(&cluster, broker(), topic, ", partitions: 4");
    let gateway = place.start();
    gateway.bulk(&writes("index", "good", 50, 1)).ok().unwrap();
    wait(&gateway, |one| {
        one["indexed"] == 50 && one["pending_messages"] == 0
    });
    let mut gateway = gateway;
    gateway.signal("TERM");
    assert!(gateway.wait().success());

    // This is what an earlier version would have committed there.
    let member = earlier(topic);
    let mut list = TopicPartitionList::new();
    for (lane, (offset, metadata)) in committed(&member, topic).into_iter().enumerate() {
        assert_eq!(lanes_as_read(&metadata), Some(4), "it can go on: {metadata}");
        let mut one = list.add_partition(topic, lane as i32);
        one.set_offset(Offset::Offset(offset)).unwrap();
        one.set_metadata("tidegate 1 4 300 9000 20 10 0");
    }
    member.commit(&list, CommitMode::Sync).unwrap();
    let gateway = place.start();
    let one = wait(&gateway, |one| one["lanes_held"] == 4);
    assert_eq!(
        [&one["indexed"], &one["dead"], &one["skipped"]],
        [4 * 270, 4 * 20, 4 * 10],
        "{one}"
    );

    cluster.refuse_writes("blocked", Some((403, BLOCKED)));
    gateway.bulk(&writes("index", "blocked", 50, 1)).ok().unwrap();
    wait(&gateway, |one| {
        one["parked"] == 50 && one["pending_messages"] == 0
    });
    until("the totals are committed", &gateway, || {
        let lanes = committed(&member, topic);
        lanes
            .iter()
            .all(|(_, metadata)| lanes_as_read(metadata).is_some_and(|lanes| lanes != 4))
    });

    // The earlier version joins all the same. The lanes that it gets wait, since it delivers none of their
    // documents.
    member.subscribe(&[topic]).unwrap();
    until("it has its share of the lanes", &gateway, || {
        // Messages are fetched, but not delivered.
        drop(member.poll(Duration::from_millis(50)));
        member.assignment().unwrap().count() == 2
    });
    for v in 2..=3 {
        gateway.bulk(&writes("index", "blocked", 50, v)).ok().unwrap();
        gateway.bulk(&writes("index", "good", 50, v)).ok().unwrap();
    }
    wait(&gateway, |one| {
        drop(member.poll(Duration::ZERO));
        let is_some_done = one["parked"].as_u64() > Some(50) && one["pending"] == 0;
        one["lanes_held"] == 2 && is_some_done && one["pending_messages"].as_u64() > Some(0)
    });
    assert!(
        (1..50).contains(&with(&cluster, "good", 3)),
        "of the other two nothing is"
    );
    drop(member);
    wait(&gateway, |one| {
        one["parked"] == 150 && one["pending_messages"] == 0
    });
    cluster.refuse_writes("blocked", None);
    let one = wait(&gateway, |one| one["parked"] == 0);
    assert_eq!([&one["indexed"], &one["dead"]], [4 * 270 + 250, 4 * 20], "{one}");
    assert_eq!(
        [with(&cluster, "good", 3), with(&cluster, "blocked", 3)],
        [50, 50]
    );
}
