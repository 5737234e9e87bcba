//! A topic that comes to accept smaller messages than when the gateway started. Whatever the gateway says of
//! a bulk that is refused for its size is true, and small documents do not suffer from it.

use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, ResourceSpecifier};
use serde_json::json;

use super::gateway::{Gateway, cluster};
use super::{GatewayHome, broker, queue, send, wait};

/// Sets how large messages of a topic may be.
fn accepts(topic: &str, bytes: usize) {
    let client: AdminClient<_> = ClientConfig::new()
        .set("bootstrap.servers", broker().address())
        .create()
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let bytes = bytes.to_string();
    let change = AlterConfig::new(ResourceSpecifier::Topic(topic)).set("max.message.bytes", &bytes);
    let changed = runtime.block_on(client.alter_configs(&[change], &AdminOptions::new()));
    assert!(changed.unwrap().iter().all(Result::is_ok));
}

/// Returns the lines of a document with a text of this length.
fn line(id: &str, bytes: usize) -> String {
    let text = "x".repeat(bytes);
    format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"text\":\"{text}\"}}\n")
}

/// Returns the ids of all documents that are in the topic.
fn ids(gateway: &Gateway, lanes: u32) -> Vec<String> {
    let mut ids = Vec::new();
    for lane in 0..lanes {
        let page = send(
            gateway,
            "GET",
            &format!("/queue/q/records?lane={lane}&limit=1000"),
        );
        for record in page["records"].as_array().unwrap() {
            let text = record["groups"][0]["text"].as_str().unwrap();
            let said = text.split("\"_id\":\"").skip(1);
            ids.extend(said.map(|rest| rest.split('"').next().unwrap().to_owned()));
        }
    }
    ids
}

#[test]
fn a_bulk_of_which_the_brokers_refuse_one_part_is_not_said_to_be_refused_whole() {
    let cluster = cluster();
    let place = GatewayHome::new(
        &cluster,
        broker(),
        "lowered",
        ", partitions: 8, max_message_size: 64kb",
    );
    let gateway = place.start();
    gateway.bulk(&line("before", 10)).ok().unwrap();
    accepts("lowered", 4096);
    // Each part goes into a partition of its own, or nearly so.
    let small: Vec<String> = (0..30).map(|id| format!("s{id}")).collect();
    let mut body: String = small.iter().map(|id| line(id, 10)).collect();
    body.push_str(&line("large", 20_000));
    let answer = gateway.bulk(&body);
    let said = answer.text();
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (503, Some("1")),
        "{said}"
    );
    assert!(
        said.contains("not all of it was accepted; send it again"),
        "{said}"
    );
    assert!(
        said.contains("of its 8 parts are in the topic and are delivered"),
        "{said}"
    );
    assert_eq!(queue(&gateway)["accepted"], json!(1));
    let there = ids(&gateway, 8);
    assert!(there.iter().any(|id| small.contains(id)) && !there.contains(&"large".to_owned()));
    // Sent again, it is judged by what the topic accepts now, before anything of it is handed over.
    let began = Instant::now();
    let answer = loop {
        let answer = gateway.bulk(&body);
        if answer.status != 503 {
            break answer;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{}", gateway.log());
    };
    let (said, before) = (answer.text(), ids(&gateway, 8));
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (413, None),
        "{said}"
    );
    assert!(said.contains("nothing was accepted"), "{said}");
    assert_eq!(gateway.bulk(&body).status, 413);
    assert_eq!(ids(&gateway, 8), before, "nothing of it is in the topic");
    // What fits into several messages is cut by the new size.
    let many: String = (0..100).map(|id| line(&format!("m{id}"), 500)).collect();
    gateway.bulk(&many).ok().unwrap();
    let small: String = small.iter().map(|id| line(id, 10)).collect();
    gateway.bulk(&small).ok().unwrap();
    assert_eq!(queue(&gateway)["accepted"], json!(131));
    wait(&gateway, |one| {
        one["pending_messages"] == 0 && one["pending"] == 0
    });
    assert_eq!(cluster.docs("logs").len(), 131);
}

#[test]
fn small_documents_that_travel_together_are_not_too_large_when_their_batch_is() {
    let cluster = cluster();
    let place = GatewayHome::new(
        &cluster,
        broker(),
        "batched",
        ", partitions: 1, max_message_size: 64kb",
    );
    let gateway = place.start();
    gateway.bulk(&line("before", 10)).ok().unwrap();
    accepts("batched", 4096);
    let told: Vec<(u16, String)> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let gateway = &gateway;
                scope.spawn(move || {
                    let each = (0..25).map(|n| {
                        let line = line(&format!("w{writer}-{n}"), 1_000);
                        let began = Instant::now();
                        loop {
                            let answer = gateway.bulk(&line);
                            if answer.status != 503 || began.elapsed() > Duration::from_secs(30) {
                                return (answer.status, answer.text());
                            }
                        }
                    });
                    each.collect::<Vec<_>>()
                })
            })
            .collect();
        writers
            .into_iter()
            .flat_map(|writer| writer.join().unwrap())
            .collect()
    });
    let refused: Vec<_> = told.iter().filter(|(status, _)| *status != 200).collect();
    assert!(
        refused.is_empty(),
        "{} of {}: {:?}",
        refused.len(),
        told.len(),
        refused[0]
    );
    wait(&gateway, |one| {
        one["pending_messages"] == 0 && one["pending"] == 0
    });
    assert_eq!(cluster.docs("logs").len(), 201);
}
