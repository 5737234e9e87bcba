//! A second cluster, in which names lead elsewhere than in the one that clients see.

use std::time::Duration;

use serde_json::json;
use testkit::client::Client;
use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use super::concerns::{until, writes};
use super::gateway::Gateway;
use super::{GatewayHome, broker, queue, send};

/// Makes a home whose queue is delivered to a second cluster, too.
fn home(first: &FakeCluster, second: &FakeCluster, topic: &str) -> GatewayHome {
    let place = GatewayHome::new(first, broker(), topic, ", partitions: 8");
    let text = std::fs::read_to_string(&place.file).unwrap();
    let text = text
        .replace(
            "{elasticsearch: c}}]}]",
            "{elasticsearch: c}}]}, {name: p2, retry_delay_in_ms: 20, processor: [{bulk_indexing: {elasticsearch: d}}]}]",
        )
        .replace(
            "elasticsearch: [",
            &format!("elasticsearch: [{{name: d, endpoint: '{}'}}, ", second.urls()[0]),
        );
    std::fs::write(&place.file, text).unwrap();
    place
}

/// Waits until this many documents are done in the second cluster; returns how many of them are dead.
fn done(gateway: &Gateway, documents: u64) -> u64 {
    let number = |name: &str| queue(gateway)["groups"]["d"][name].as_u64().unwrap();
    until("all is done in the second cluster", gateway, || {
        number("indexed") + number("dead") == documents
    });
    number("dead")
}

#[test]
fn no_document_is_twice_in_a_second_cluster_whose_alias_moves_between_kill_9_and_the_resend() {
    let first = FakeCluster::start(Spec::default().index("i1", 2).storing()).unwrap();
    first.alias("a", &["i1"]);
    for operation in ["create", "update"] {
        let topic = format!("second-{operation}");
        let second = FakeCluster::start(Spec::default().index("j1", 2).index("j2", 5).storing()).unwrap();
        second.alias("a", &["j1"]);
        let place = home(&first, &second, &topic);
        let gateway = place.start();
        let probe = "{\"delete\":{\"_index\":\"a\",\"_id\":\"probe\"}}\n";
        gateway.bulk(probe).ok().unwrap();
        done(&gateway, 1);
        let mut body = writes(operation, "a", 100, 1);
        if operation == "update" {
            body = body.replace("{\"v\":1}", "{\"doc\":{\"v\":1},\"doc_as_upsert\":true}");
        }
        second.inject(Injection::bulk(Fault::HangWritten).always());
        let answer = gateway.bulk(&body).ok().unwrap();
        assert!(answer.header("x-tidegate-ack").is_some(), "{:?}", answer.json());
        // Each node holds the first request that it gets; later ones are not sent.
        until("some is written", &gateway, || !second.docs("j1").is_empty());
        std::thread::sleep(Duration::from_millis(300));
        gateway.signal("KILL");
        drop(gateway);
        let written = second.docs("j1");
        second.behave();
        // The old index is behind the alias no more.
        second.alias("a", &["j2"]);
        let other = home(&first, &second, &topic);
        let gateway = other.start();
        let dead = done(&gateway, 101);
        let later = second.docs("j2");
        let twice = written.keys().filter(|id| later.contains_key(*id)).count();
        assert_eq!((twice, dead), (0, 0), "{operation}: of {}", written.len());
        assert_eq!(second.docs("j1").len(), written.len());
        assert_eq!(written.len() + later.len(), 100, "{operation}");
        assert_eq!(queue(&gateway)["groups"]["c"]["pending_messages"], json!(0));
    }
}

#[test]
fn letters_put_back_for_a_second_cluster_are_looked_for_where_their_names_led_there_and_nowhere_else() {
    std::thread::scope(|scope| {
        scope.spawn(|| letters_put_back("second-letters", true));
        scope.spawn(|| letters_put_back("second-letters-like", false));
    });
}

/// Puts letters back, and kills the gateway that has sent them; `is_written` says whether the second cluster
/// has executed them by then.
fn letters_put_back(topic: &str, is_written: bool) {
    let first = FakeCluster::start(Spec::default().index("i1", 2).storing()).unwrap();
    first.alias("a", &["i1"]);
    let spec = Spec::default().index("j1", 2).index("j2", 5).index("i1", 2);
    let second = FakeCluster::start(spec.storing()).unwrap();
    second.alias("a", &["j1"]);
    if !is_written {
        // An index with the name of the first cluster's has what the letters say.
        let client = Client::build(&second.urls()[0], None, Duration::from_secs(10)).unwrap();
        let body = writes("index", "i1", 40, 1);
        client
            .post_ndjson("/_bulk", body.as_bytes())
            .unwrap()
            .ok()
            .unwrap();
    }
    let places = [(), ()].map(|()| home(&first, &second, topic));
    let gateway = places[0].start();
    second.inject(Injection::bulk(refused()).always());
    gateway.bulk(&writes("index", "a", 40, 1)).ok().unwrap();
    assert_eq!(done(&gateway, 40), 40);
    second.behave();
    let hangs = match is_written {
        true => Fault::HangWritten,
        false => Fault::HangUnwritten,
    };
    second.inject(Injection::bulk(hangs).always());
    let struck = second.struck();
    let replayed = send(&gateway, "POST", "/dead_letters/_replay?all=true");
    assert_eq!(replayed["replayed"], 40, "{replayed}");
    // Each node holds the first request that it gets; later ones are not sent.
    until("some is sent", &gateway, || {
        second.struck() > struck && !(is_written && second.docs("j1").is_empty())
    });
    std::thread::sleep(Duration::from_millis(300));
    gateway.signal("KILL");
    drop(gateway);
    second.behave();
    second.alias("a", &["j2"]);
    let gateway = places[1].start();
    until("all is done in the second cluster", &gateway, || {
        let group = &queue(&gateway)["groups"]["d"];
        group["lanes_held"] == 8 && group["pending_messages"] == 0
    });
    let (earlier, later) = (second.docs("j1"), second.docs("j2"));
    let twice = earlier.keys().filter(|id| later.contains_key(*id)).count();
    assert_eq!((twice, earlier.len() + later.len()), (0, 40), "{topic}");
}

fn refused() -> Fault {
    Fault::Items {
        every: 1,
        status: 400,
        error: r#"{"type":"mapper_parsing_exception","reason":"no number"}"#.to_owned(),
    }
}
