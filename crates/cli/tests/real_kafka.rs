//! Queues in Kafka, before a real Kafka broker. Several gateways share a topic, and whatever happens to one
//! of them, acknowledged documents arrive, each with its last version. The target is a fake cluster, so that
//! it is fast and misbehaves on demand.

#![allow(
    clippy::unwrap_used,
    reason = "helpers that meet something unexpected end the test"
)]

#[path = "real_kafka/concerns.rs"]
mod concerns;
#[path = "real_kafka/earlier.rs"]
mod earlier;
#[allow(dead_code, reason = "shared with tests that use more of it")]
#[path = "black_box/fake_broker.rs"]
mod fake_broker;
#[allow(dead_code, reason = "shared with tests that use more of it")]
#[path = "black_box/gateway.rs"]
mod gateway;
#[path = "real_kafka/late.rs"]
mod late;
#[path = "real_kafka/moves.rs"]
mod moves;
#[path = "real_kafka/parked.rs"]
mod parked;
#[path = "real_kafka/passing.rs"]
mod passing;
#[path = "real_kafka/places.rs"]
mod places;
#[path = "real_kafka/second_cluster.rs"]
mod second_cluster;
#[path = "real_kafka/secured.rs"]
mod secured;
#[path = "real_kafka/shards.rs"]
mod shards;
#[path = "real_kafka/too_large.rs"]
mod too_large;
#[path = "real_kafka/twice.rs"]
mod twice;

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use gateway::{Gateway, body, cluster};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::broker::Broker;
use testkit::client::Client;
use testkit::fake::{FakeCluster, Fault, Injection, Spec};

/// The broker that most tests share.
fn broker() -> &'static Broker {
    static BROKER: OnceLock<Broker> = OnceLock::new();
    BROKER.get_or_init(|| Broker::start().unwrap())
}

/// A folder with a configuration and data that outlive a gateway.
struct GatewayHome {
    _folder: tempfile::TempDir,
    file: PathBuf,
}

impl GatewayHome {
    /// Makes a home before a cluster, with a topic as its queue.
    fn new(cluster: &FakeCluster, broker: &Broker, topic: &str, more: &str) -> Self {
        Self::at(cluster, broker.address(), topic, more)
    }

    /// Makes a home with brokers at this address.
    fn at(cluster: &FakeCluster, brokers: &str, topic: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tidegate.yml");
        let text = format!(
            "path.data: '{}'
admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow:
  - name: f
    filter:
      - bulk_reshuffle:
          elasticsearch: c
          queue: {{name: q, type: kafka, brokers: ['{}'], topic: {topic}, ack_timeout: 2s, session_timeout: 2s{more}}}
      - elasticsearch: {{elasticsearch: c}}
pipeline: [{{name: p, retry_delay_in_ms: 20, processor: [{{bulk_indexing: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}'}}]
",
            folder.path().join("data").display(),
            brokers,
            cluster.urls()[0]
        );
        std::fs::write(&file, text).unwrap();
        Self {
            _folder: folder,
            file,
        }
    }

    fn start(&self) -> Gateway {
        self.start_with(&[])
    }

    /// Starts a gateway with these additional environment variables.
    fn start_with(&self, variables: &[(&str, &str)]) -> Gateway {
        let gateway = Gateway::start_with(&["--config", self.file.to_str().unwrap()], variables);
        gateway.wait_until("the topology is known", |status| status["state"] == "watching");
        gateway
    }
}

impl GatewayHome {
    /// Starts a gateway that must end at once, and returns its output.
    fn does_not_start(&self) -> String {
        let refused = Command::new(gateway::program())
            .args(["gateway", "--config", self.file.to_str().unwrap()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{said}");
        said
    }

    /// Stops a gateway of this home in the usual way, and starts another.
    fn start_again(&self, mut gateway: Gateway) -> Gateway {
        gateway.signal("TERM");
        assert!(gateway.wait().success(), "{}", gateway.log());
        self.start()
    }
}

fn queue(gateway: &Gateway) -> Value {
    let stats = gateway.admin().get("/queue/stats").unwrap().ok().unwrap();
    stats.json().unwrap()["q"].clone()
}

/// Waits until the queue's group meets the condition.
fn wait(gateway: &Gateway, holds: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let queue = queue(gateway);
        let one = queue["groups"]["c"].clone();
        if holds(&one) {
            return one;
        }
        assert!(
            began.elapsed() < Duration::from_secs(90),
            "not so after 90 s: {queue:#}\n{}",
            gateway.log()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn send(gateway: &Gateway, method: &str, target: &str) -> Value {
    let answer = gateway.admin().send(method, target, &[], b"").unwrap();
    answer.ok().unwrap().json().unwrap()
}

fn n_of(cluster: &FakeCluster, id: &str) -> Value {
    let source: Value = serde_json::from_str(&cluster.docs("logs")[id].source).unwrap();
    source["n"].clone()
}

#[test]
fn a_bulk_is_answered_once_kafka_has_it_and_delivered_from_there_across_a_restart() {
    let cluster = cluster();
    let place = GatewayHome::new(&cluster, broker(), "restart", ", partitions: 4");
    let gateway = place.start();
    let answer = gateway.bulk(&body(300)).ok().unwrap();
    let ack = answer.header("x-tidegate-ack").unwrap();
    assert!(ack.starts_with("queued; partitions=0:0,"), "{ack}");
    assert_eq!(queue(&gateway)["accepted"], json!(300));
    let one = wait(&gateway, |one| one["indexed"] == 300);
    assert_eq!(
        (&one["dead"], &one["pending"], &one["lanes_held"]),
        (&json!(0), &json!(0), &json!(4))
    );
    assert_eq!(cluster.docs("logs").len(), 300);
    assert_eq!(cluster.counts().misrouted, 0, "each part went to its node");
    // Finished work is committed by then, and is not delivered again.
    let gateway = place.start_again(gateway);
    gateway.bulk(&body(100)).ok().unwrap();
    let one = wait(&gateway, |one| one["indexed"] == 400);
    assert_eq!(
        (&one["pending_messages"], &one["lost_messages"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(cluster.counts().docs, 400);
    let metrics = gateway.admin().get("/metrics").unwrap().ok().unwrap().text();
    let held = "tidegate_queue_lanes_held{queue=\"q\",group=\"c\"} 4";
    assert!(metrics.contains(held), "{metrics}");
}

#[test]
fn one_message_that_the_gateway_fails_on_dies_and_its_partition_goes_on() {
    let cluster = cluster();
    let place = GatewayHome::new(&cluster, broker(), "poison", ", partitions: 4");
    let arguments = ["--config", place.file.to_str().unwrap()];
    let gateway = Gateway::start_with(&arguments, &[("TIDEGATE_TEST_PANIC", "batch=poison")]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    let poison = "{\"index\":{\"_index\":\"logs\",\"_id\":\"poison\"}}\n{\"n\":1}\n";
    gateway.bulk(&body(100)).ok().unwrap();
    gateway.bulk(poison).ok().unwrap();
    gateway.bulk(&body(100)).ok().unwrap();
    let all = |one: &Value| one["indexed"] == 200 && one["dead"] == 1 && one["pending"] == 0;
    wait(&gateway, all);
    // With another gateway, the document is also dead only once.
    drop(gateway);
    let gateway = place.start();
    gateway.bulk(&body(10)).ok().unwrap();
    let one = wait(&gateway, |one| one["pending"] == 0 && one["indexed"] == 210);
    assert_eq!(one["dead"], 1, "{one}");
}

#[test]
fn after_a_panic_of_the_whole_delivery_the_gateway_takes_part_once_and_delivers_from_all_partitions() {
    let cluster = cluster();
    let place = GatewayHome::new(&cluster, broker(), "failing", ", partitions: 4");
    let gateway = place.start_with(&[("TIDEGATE_TEST_PANIC", "assigned=*2")]);
    gateway.bulk(&body(200)).ok().unwrap();
    wait(&gateway, |one| one["indexed"] == 200 && one["lanes_held"] == 4);
    let log = gateway.logged("planted at assigned");
    assert!(log.contains("the gateway has a bug"), "{log}");
    // A second member of the group that nobody polls would have got half of the partitions.
    let joined = gateway.log().matches("\"lanes\":4,").count();
    assert_eq!(joined, 3, "{}", gateway.log());
    let other = GatewayHome::new(&cluster, broker(), "failing", ", partitions: 4").start();
    for gateway in [&gateway, &other] {
        wait(gateway, |one| one["lanes_held"] == 2);
    }
}

#[test]
fn where_parked_operations_could_not_be_looked_for_the_gateway_takes_part_anew() {
    let cluster = cluster();
    let place = GatewayHome::new(&cluster, broker(), "searching", ", partitions: 4");
    let gateway = place.start_with(&[("TIDEGATE_TEST_PANIC", "parked-lanes=*2")]);
    gateway.bulk(&body(200)).ok().unwrap();
    wait(&gateway, |one| one["indexed"] == 200 && one["lanes_held"] == 4);
    let joined = gateway.log().matches("\"lanes\":4,").count();
    assert_eq!(joined, 3, "{}", gateway.log());
}

#[test]
fn several_gateways_share_a_topic_and_one_that_is_killed_loses_and_reorders_nothing() {
    let cluster = cluster();
    // The delay keeps something under way at all times.
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_millis(15))).always());
    let places = [(), ()].map(|()| GatewayHome::new(&cluster, broker(), "shared", ", partitions: 6"));
    let gateways = places.each_ref().map(|place| Mutex::new(Some(place.start())));
    let address = |at: usize| {
        let gateway = gateways[at].lock();
        gateway
            .as_ref()
            .map(|gateway| format!("http://{}", gateway.address))
    };
    let ends = Instant::now() + Duration::from_secs(9);
    let written: Vec<(usize, usize)> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|writer| scope.spawn(move || write(writer, ends, &address)))
            .collect();
        for at in [0, 1] {
            std::thread::sleep(Duration::from_millis(1500 + fastrand::u64(..700)));
            let killed = gateways[at].lock().take().unwrap();
            killed.signal("KILL");
            drop(killed);
            std::thread::sleep(Duration::from_millis(2500));
            *gateways[at].lock() = Some(places[at].start());
        }
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    cluster.behave();
    let both = gateways.map(|gateway| gateway.into_inner().unwrap());
    let accepted: usize = written.iter().map(|(rounds, _)| rounds * DOCUMENTS).sum();
    let drained = wait(&both[0], |one| {
        one["pending_messages"] == 0 && one["indexed"].as_u64().unwrap() >= accepted as u64
    });
    assert_eq!(
        (&drained["dead"], &drained["lost_messages"]),
        (&json!(0), &json!(0))
    );
    // Each lane belongs to one gateway, and both gateways have some.
    for gateway in &both {
        wait(gateway, |one| one["lanes_held"] == 3);
    }
    let docs = cluster.docs("logs");
    let n_of = |id: &str| -> u64 {
        let stored = docs
            .get(id)
            .unwrap_or_else(|| panic!("{id} was acknowledged and is not there"));
        serde_json::from_str::<Value>(&stored.source).unwrap()["n"]
            .as_u64()
            .unwrap()
    };
    for (writer, (rounds, repeated)) in written.into_iter().enumerate() {
        assert!(
            rounds > 5,
            "writer {writer}: {rounds} rounds, {repeated} repeated"
        );
        for id in 0..SHARED {
            let last = (rounds * 2 - 1) as u64;
            assert_eq!(
                n_of(&format!("w{writer}-{id}")),
                last,
                "the last acknowledged version"
            );
        }
        for round in 0..rounds {
            for id in 0..UNIQUE {
                assert_eq!(n_of(&format!("w{writer}-{round}-{id}")), round as u64);
            }
        }
    }
}

/// Number of documents in a round that are written once; the next constant is for those that each round
/// writes twice.
const UNIQUE: usize = 20;
const SHARED: usize = 10;
const DOCUMENTS: usize = UNIQUE + 2 * SHARED;

/// Writes one round after the other until the end, each until it is acknowledged, at any gateway that is up.
/// Returns the number of rounds, and how many of them it had to repeat.
fn write(writer: usize, ends: Instant, address: &impl Fn(usize) -> Option<String>) -> (usize, usize) {
    let (mut round, mut repeated) = (0, 0);
    while Instant::now() < ends {
        let mut text = String::new();
        let mut index = |id: &str, n: usize| {
            text.push_str(&format!(
                "{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"n\":{n}}}\n"
            ));
        };
        for half in 0..2 {
            for id in 0..SHARED {
                index(&format!("w{writer}-{id}"), 2 * round + half);
            }
        }
        for id in 0..UNIQUE {
            index(&format!("w{writer}-{round}-{id}"), round);
        }
        let mut tries = 0;
        loop {
            let at = (writer + round + tries) % 2;
            let answer = address(at).and_then(|origin| {
                let client = Client::build(&origin, None, Duration::from_secs(10)).unwrap();
                client.post_ndjson("/_bulk", text.as_bytes()).ok()
            });
            match answer {
                Some(answer) if answer.status == 200 && answer.header("x-tidegate-ack").is_some() => break,
                Some(answer) => assert!(
                    matches!(answer.status, 429 | 503),
                    "{} {}",
                    answer.status,
                    answer.text()
                ),
                None => {}
            }
            tries += 1;
            assert!(tries < 2000, "no gateway takes anything");
            std::thread::sleep(Duration::from_millis(10));
        }
        repeated += usize::from(tries > 0);
        round += 1;
    }
    (round, repeated)
}

#[test]
fn a_gateway_that_was_frozen_sends_nothing_that_another_has_delivered_since() {
    let cluster = cluster();
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_millis(20))).always());
    let places = [(), ()].map(|()| GatewayHome::new(&cluster, broker(), "frozen", ", partitions: 4"));
    let [frozen, other] = places.each_ref().map(GatewayHome::start);
    let half = |one: &Value| one["lanes_held"] == 2;
    wait(&frozen, half);
    wait(&other, half);
    let round = |gateway: &Gateway, n: usize| {
        let text: String = (0..50)
            .map(|id| format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"n\":{n}}}\n"))
            .collect();
        gateway.bulk(&text).ok().unwrap();
    };
    for n in 0..60 {
        round(&frozen, n);
    }
    // The gateway is frozen in the middle of the work: a document's versions travel one after the other.
    frozen.signal("STOP");
    wait(&other, |one| one["lanes_held"] == 4);
    round(&other, 1000);
    let all = |one: &Value| one["indexed"].as_u64().unwrap() >= 61 * 50 && one["pending_messages"] == 0;
    wait(&other, all);
    let is_last = || (0..50).all(|id| n_of(&cluster, &id.to_string()) == 1000);
    assert!(is_last());
    let sent = cluster.counts().docs;
    frozen.signal("CONT");
    wait(&frozen, half);
    wait(&other, half);
    assert!(is_last(), "nothing older came after");
    assert_eq!(cluster.counts().docs, sent, "nothing at all came");
}

#[test]
fn while_no_broker_is_there_nothing_is_acknowledged_and_what_was_arrives_when_it_is_back() {
    let cluster = cluster();
    let broker = Broker::start().unwrap();
    let place = GatewayHome::new(&cluster, &broker, "away", ", partitions: 2");
    let gateway = place.start();
    gateway.bulk(&body(50)).ok().unwrap();
    wait(&gateway, |one| one["indexed"] == 50);
    broker.kill().unwrap();
    for _ in 0..2 {
        let answer = gateway.bulk(&body(50).replace("\"_id\":\"", "\"_id\":\"a"));
        assert_eq!(
            (answer.status, answer.header("retry-after")),
            (503, Some("1")),
            "{}",
            answer.text()
        );
        assert!(
            answer.text().contains("not all of it was accepted"),
            "{}",
            answer.text()
        );
    }
    assert_eq!(queue(&gateway)["accepted"], json!(50));
    broker.start_again().unwrap();
    let began = Instant::now();
    while gateway
        .bulk(&body(50).replace("\"_id\":\"", "\"_id\":\"b"))
        .status
        != 200
    {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", gateway.log());
    }
    wait(&gateway, |one| {
        one["indexed"].as_u64().unwrap() >= 100 && one["pending_messages"] == 0
    });
    let docs = cluster.docs("logs");
    assert!((0..50).all(|id| docs.contains_key(&format!("b{id}"))));
}

#[test]
fn what_is_larger_than_a_message_is_cut_between_documents_and_a_document_that_is_gets_413() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 1).storing()).unwrap();
    let place = GatewayHome::new(&cluster, broker(), "small", ", max_message_size: 64kb");
    let gateway = place.start();
    let filler = "x".repeat(1000);
    let text: String = (0..600)
        .map(|n| {
            let id = n % 300;
            format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"n\":{n},\"filler\":\"{filler}\"}}\n")
        })
        .collect();
    let answer = gateway.bulk(&text).ok().unwrap();
    assert_eq!(answer.json().unwrap()["items"].as_array().unwrap().len(), 600);
    wait(&gateway, |one| one["indexed"] == 600);
    for id in 0..300 {
        assert_eq!(
            n_of(&cluster, &id.to_string()),
            json!(300 + id),
            "the pieces kept their order"
        );
    }
    let large = format!(
        "{}{{\"index\":{{\"_index\":\"logs\",\"_id\":\"large\"}}}}\n{{\"filler\":\"{}\"}}\n",
        body(3),
        "x".repeat(70_000)
    );
    let answer = gateway.bulk(&large);
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (413, None),
        "{}",
        answer.text()
    );
    assert_eq!(queue(&gateway)["accepted"], json!(600));
}

#[test]
fn lanes_do_not_change_under_a_queue() {
    let cluster = cluster();
    let place = GatewayHome::new(&cluster, broker(), "fixed", ", partitions: 3");
    let gateway = place.start();
    let other = GatewayHome::new(&cluster, broker(), "fixed", ", partitions: 5");
    let said = other.does_not_start();
    assert!(
        said.contains("topic fixed has 3 partitions and the configuration says 5"),
        "{said}"
    );
    // Without a number, the topic's existing partitions are used.
    let third = GatewayHome::new(&cluster, broker(), "fixed", "");
    let third = third.start();
    wait(&gateway, |one| one["lanes_held"].as_u64().unwrap() < 3);
    let lanes = queue(&third)["groups"]["c"]["lanes"].as_array().unwrap().len();
    assert_eq!(lanes, 3);
}

#[test]
fn dead_letters_are_kept_by_the_gateway_that_gave_them_up_and_replayed_through_kafka() {
    let cluster = cluster();
    let place = GatewayHome::new(&cluster, broker(), "letters", ", partitions: 2");
    let gateway = place.start();
    let error = r#"{"type":"mapper_parsing_exception","reason":"failed to parse field [n]"}"#;
    cluster.inject(
        Injection::bulk(Fault::Items {
            every: 1,
            status: 400,
            error: error.to_owned(),
        })
        .always(),
    );
    gateway.bulk(&body(5)).ok().unwrap();
    wait(&gateway, |one| one["dead"] == 5);
    let gateway = place.start_again(gateway);
    cluster.behave();
    let letters = send(&gateway, "GET", "/dead_letters?queue=q");
    let letters = letters["dead_letters"].as_array().unwrap();
    assert_eq!(letters.len(), 5, "{letters:#?}");
    assert!(
        letters
            .iter()
            .all(|letter| letter["reason"] == "failed to parse field [n]")
    );
    wait(&gateway, |one| one["lanes_held"] == 2);
    let done = send(&gateway, "POST", "/dead_letters/_replay?all=true");
    assert_eq!(
        (&done["replayed"], &done["refused"]),
        (&json!(5), &json!(0)),
        "{done}"
    );
    let one = wait(&gateway, |one| one["indexed"] == 5);
    assert_eq!(
        (&one["dead"], &one["replayed"]),
        (&json!(0), &json!(5)),
        "{one:#}"
    );
    assert_eq!(cluster.docs("logs").len(), 5);
}
