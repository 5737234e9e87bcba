//! Positions of consumer groups, and records: shown, and set elsewhere.

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use testkit::fake::{Behaviour, Unfit};

use super::*;

const OFFSET: &str = "/queue/q/groups/c/offset";

/// Returns the status and the answer's text.
fn ask(gateway: &Gateway, method: &str, target: &str) -> (u16, String) {
    let answer = gateway.admin().send(method, target, &[], b"").unwrap();
    (answer.status, answer.text())
}

fn stop(gateway: &Gateway) {
    send(gateway, "POST", "/pipeline/p/_stop");
    let began = Instant::now();
    while queue(gateway)["groups"]["c"]["state"] != "stopped" {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", queue(gateway));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn bulk(gateway: &Gateway, prefix: &str) {
    let text = body(100).replace("\"_id\":\"", &format!("\"_id\":\"{prefix}"));
    gateway.bulk(&text).ok().unwrap();
}

#[test]
fn records_are_shown_and_a_group_goes_on_from_where_it_is_set_while_nobody_delivers_for_it() {
    let cluster = cluster();
    let place = GatewayHome::new(&cluster, broker(), "places", ", partitions: 2");
    let gateway = place.start();
    bulk(&gateway, "a");
    wait(&gateway, |one| one["indexed"] == 100);

    // Shows what is there.
    let (status, text) = ask(&gateway, "GET", "/queue/q/records");
    assert!(status == 400 && text.contains("`lane` from 0 to 1"), "{text}");
    let (mut documents, mut messages) = (0, 0);
    for lane in 0..2 {
        let path = format!("/queue/q/records?lane={lane}&limit=1");
        let page = send(&gateway, "GET", &path);
        let record = &page["records"][0];
        let group = &record["groups"][0];
        assert_eq!((&record["position"], &group["lane"]), (&json!(0), &json!(lane)));
        assert_eq!(record["params"]["target"], "/_bulk");
        let text = group["text"].as_str().unwrap();
        assert!(
            text.starts_with("{\"index\":{\"_index\":\"logs\",\"_id\":\"a"),
            "{text}"
        );
        documents += record["documents"].as_u64().unwrap();
        messages += 1;
        assert_eq!(page["next"], Value::Null, "{page}");
    }
    assert_eq!(documents, 100);
    let at = send(&gateway, "GET", OFFSET);
    assert_eq!(at["kafka_group"], "places.c");
    let positions: Vec<_> = (0..2).map(|lane| at["lanes"][lane]["position"].clone()).collect();
    assert_eq!(positions, [1, 1], "{at}");

    // The position cannot be set while the group delivers, without confirmation, or without a partition.
    let (status, text) = ask(&gateway, "POST", &format!("{OFFSET}?to=earliest&confirm=true"));
    assert!(
        status == 409 && text.contains("stop its pipeline first"),
        "{text}"
    );
    stop(&gateway);
    let (status, text) = ask(&gateway, "POST", &format!("{OFFSET}?to=earliest"));
    assert!(status == 400 && text.contains("confirm=true"), "{text}");
    let (status, text) = ask(&gateway, "POST", &format!("{OFFSET}?to=1&confirm=true"));
    assert!(status == 400 && text.contains("`lane`"), "{text}");

    // Sets the position back: everything is delivered once more.
    let now = send(&gateway, "POST", &format!("{OFFSET}?to=earliest&confirm=true"));
    let moved = json!({"skipped_messages": 0, "rewound_messages": messages});
    assert_eq!(now["moved"], moved, "{now}");
    assert_eq!(now["pending_messages"], json!(messages), "{now}");
    send(&gateway, "POST", "/pipeline/p/_start");
    wait(&gateway, |one| {
        one["indexed"] == 200 && one["pending_messages"] == 0
    });
    assert_eq!(cluster.counts().docs, 200);

    // Sets the position forward: past one partition, then to a time after everything that is there.
    stop(&gateway);
    bulk(&gateway, "b");
    let now = send(&gateway, "POST", &format!("{OFFSET}?to=2&lane=1&confirm=true"));
    let moved = json!({"skipped_messages": 1, "rewound_messages": 0});
    assert_eq!(now["moved"], moved, "{now}");
    let now = send(
        &gateway,
        "POST",
        &format!("{OFFSET}?to=2099-01-01T00:00:00Z&confirm=true"),
    );
    assert_eq!(now["moved"], moved, "{now}");
    send(&gateway, "POST", "/pipeline/p/_start");
    bulk(&gateway, "c");
    wait(&gateway, |one| {
        one["indexed"] == 300 && one["pending_messages"] == 0
    });
    let docs = cluster.docs("logs");
    assert!(!docs.keys().any(|id| id.starts_with('b')) && docs.len() == 200);

    // The position cannot be set while another gateway delivers, and nothing changes then.
    let other = GatewayHome::new(&cluster, broker(), "places", ", partitions: 2").start();
    stop(&gateway);
    wait(&other, |one| one["lanes_held"] == 2);
    let (status, text) = ask(&gateway, "POST", &format!("{OFFSET}?to=earliest&confirm=true"));
    assert!(
        status == 409 && text.contains("delivers for the consumer group places.c"),
        "{status} {text}"
    );
    bulk(&other, "d");
    wait(&other, |one| {
        one["indexed"] == 400 && one["pending_messages"] == 0
    });
    assert_eq!(cluster.counts().docs, 400);
}

/// Does something to the broker's topics.
fn administer<T>(act: impl AsyncFnOnce(&AdminClient<DefaultClientContext>, &AdminOptions) -> T) -> T {
    let mut config = ClientConfig::new();
    let client = config
        .set("bootstrap.servers", broker().address())
        .create()
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(act(&client, &AdminOptions::new()))
}

/// Deletes a topic of one partition, and makes it once more.
fn made_anew(name: &str) {
    administer(async |client, options| {
        client.delete_topics(&[name], options).await.unwrap();
        let began = Instant::now();
        loop {
            let topic = NewTopic::new(name, 1, TopicReplication::Fixed(1));
            let made = client.create_topics([&topic], options).await.unwrap();
            if made[0].is_ok() {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "{made:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    });
}

/// Waits until this many messages are in the topic, as the gateway sees it.
fn has_pending(gateway: &Gateway, messages: u64) {
    wait(gateway, |one| one["pending_messages"].as_u64() == Some(messages));
}

#[test]
fn what_retention_has_deleted_of_a_partition_counts_as_lost_and_not_as_pending() {
    let cluster = cluster();
    let place = GatewayHome::new(&cluster, broker(), "emptied", ", partitions: 1");
    let gateway = place.start();
    bulk(&gateway, "a");
    wait(&gateway, |one| one["indexed"] == 100);
    stop(&gateway);
    for prefix in ["b", "c", "d"] {
        bulk(&gateway, prefix);
    }
    has_pending(&gateway, 3);
    administer(async |client, options| {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset("emptied", 0, Offset::Offset(4))
            .unwrap();
        let done = client.delete_records(&list, options).await.unwrap();
        assert!(done.elements()[0].error().is_ok());
    });
    send(&gateway, "POST", "/pipeline/p/_start");
    let one = wait(&gateway, |one| one["pending_messages"] == 0);
    assert_eq!(one["lost_messages"], 3, "{one}");
    gateway.logged("Kafka has deleted messages before they were delivered");
    bulk(&gateway, "e");
    let one = wait(&gateway, |one| one["indexed"] == 200);
    assert_eq!((&one["lost_messages"], &one["dead"]), (&json!(3), &json!(0)));
    assert_eq!(cluster.docs("logs").len(), 200);
}

/// The topic is deleted and made anew while the gateway reads it, far behind the place that it has reached.
#[test]
fn a_topic_that_is_made_anew_is_delivered_from_its_beginning() {
    let cluster = cluster();
    let place = GatewayHome::new(&cluster, broker(), "anew", ", partitions: 1");
    let gateway = place.start();
    for round in 0..20 {
        bulk(&gateway, &format!("a{round}-"));
    }
    wait(&gateway, |one| one["indexed"] == 2_000);
    made_anew("anew");
    let began = Instant::now();
    let text = body(100).replace("\"_id\":\"", "\"_id\":\"b");
    while gateway.bulk(&text).status != 200 {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", gateway.log());
        std::thread::sleep(Duration::from_millis(200));
    }
    let came = |one: &Value| one["indexed"].as_u64().unwrap() >= 2_100;
    wait(&gateway, came);
    let docs = cluster.docs("logs");
    assert!(docs.keys().any(|id| id.starts_with('b')));
}

/// Nothing delivers again what the dead letters of a topic tell of that is not there any more.
#[test]
fn dead_letters_outlive_the_topic_and_the_group_that_the_brokers_have_forgotten() {
    let cluster = cluster();
    cluster.set_behaviour(Behaviour {
        unfit: Some(Unfit {
            holds: "unfit".to_owned(),
            status: 400,
            error: r#"{"type":"mapper_parsing_exception","reason":"failed to parse"}"#.to_owned(),
        }),
        ..Behaviour::default()
    });
    let place = GatewayHome::new(&cluster, broker(), "forgotten", ", partitions: 1");
    let gateway = place.start();
    bulk(&gateway, "a");
    let unfit = "{\"index\":{\"_index\":\"logs\",\"_id\":\"x\"}}\n{\"a\":\"unfit\"}\n";
    gateway.bulk(unfit).ok().unwrap();
    wait(&gateway, |one| one["dead"] == 1);
    let letters = |gateway: &Gateway| {
        let listed = send(gateway, "GET", "/dead_letters?queue=q");
        listed["dead_letters"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(
        letters(&gateway),
        1,
        "{}",
        send(&gateway, "GET", "/dead_letters?queue=q")
    );
    let mut gateway = gateway;
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    made_anew("forgotten");
    for _ in 0..2 {
        let gateway = place.start();
        bulk(&gateway, "b");
        wait(&gateway, |one| {
            one["pending_messages"] == 0 && one["lanes_held"] == 1
        });
        assert_eq!(letters(&gateway), 1, "{}", gateway.log());
        let mut gateway = gateway;
        gateway.signal("TERM");
        assert!(gateway.wait().success());
    }
}

/// Nothing delivers again what was parked of messages that are not there any more.
#[test]
fn what_is_parked_outlives_the_topic() {
    let cluster = cluster();
    let place = GatewayHome::new(&cluster, broker(), "parked-anew", ", partitions: 1");
    cluster.refuse_writes("logs", Some((403, super::concerns::BLOCKED)));
    let mut gateway = place.start();
    bulk(&gateway, "a");
    wait(&gateway, |one| {
        one["parked"] == 100 && one["pending_messages"] == 0
    });
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    made_anew("parked-anew");
    let gateway = place.start();
    bulk(&gateway, "b");
    wait(&gateway, |one| {
        one["parked"] == 200 && one["pending_messages"] == 0
    });
    cluster.refuse_writes("logs", None);
    send(&gateway, "POST", "/queue/q/parked/_release");
    wait(&gateway, |one| one["parked"] == 0);
    let documents = cluster.docs("logs");
    assert_eq!(documents.len(), 200, "{}", gateway.log());
}
