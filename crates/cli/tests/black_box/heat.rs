//! `/heat`: the documents that were sent to each shard, whether they were split at once, queued or single.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use crate::gateway::{Gateway, body, cluster, statuses};
use crate::home::{GatewayHome, drained};

fn heat(gateway: &Gateway) -> Value {
    let told = gateway.admin().get("/heat").unwrap().ok().unwrap();
    let told: Value = told.json().unwrap();
    told["clusters"]
        .as_object()
        .unwrap()
        .values()
        .next()
        .unwrap()
        .clone()
}

fn sum(of: &Value) -> u64 {
    of.as_array()
        .unwrap()
        .iter()
        .map(|one| one.as_u64().unwrap())
        .sum()
}

#[test]
fn each_document_is_counted_once_at_its_shard_and_shards_have_their_nodes() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    gateway.bulk(&body(30)).ok().unwrap();
    // Nobody has asked yet, so nothing was counted.
    assert_eq!(heat(&gateway)["indices"], json!({}));
    let text = body(300);
    gateway.bulk(&text).ok().unwrap();
    let told = heat(&gateway);
    let logs = &told["indices"]["logs"];
    let docs = logs["docs"].as_array().unwrap();
    assert_eq!((docs.len(), sum(&logs["docs"])), (6, 300));
    assert!(docs.iter().all(|docs| docs.as_u64().unwrap() > 20), "{docs:?}");
    assert_eq!(sum(&logs["bytes"]), text.len() as u64);
    let nodes = told["nodes"].as_array().unwrap();
    for shard in 0..6_u32 {
        let node = logs["nodes"][shard as usize].as_u64().unwrap() as usize;
        let named = gateway.topology()["nodes"][node]["name"].clone();
        assert_eq!(nodes[node]["name"], named);
        let address = gateway.topology()["nodes"][node]["address"].clone();
        let expected = &cluster.urls()[cluster.node_of("logs", shard).unwrap()];
        assert_eq!(
            address.as_str().unwrap().trim_end_matches('/'),
            expected.trim_end_matches('/')
        );
    }
    // One routing is one shard.
    let hot: String = (0..500)
        .map(|n| format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"h{n}\",\"routing\":\"r\"}}}}\n{{}}\n"))
        .collect();
    gateway.bulk(&hot).ok().unwrap();
    let after = heat(&gateway);
    let after = after["indices"]["logs"]["docs"].as_array().unwrap();
    let more: Vec<u64> = after
        .iter()
        .zip(docs)
        .map(|(after, before)| after.as_u64().unwrap() - before.as_u64().unwrap())
        .filter(|more| *more > 0)
        .collect();
    assert_eq!(more, [500]);
    // A bulk that passes whole has no shards that the gateway knows.
    gateway
        .client()
        .send(
            "POST",
            "/_bulk?pretty",
            &[("content-type", "application/json")],
            b"{\"delete\":{}}\n",
        )
        .unwrap();
    assert_eq!(sum(&heat(&gateway)["indices"]["logs"]["docs"]), 800);
    assert_eq!(
        heat(&gateway)["others"],
        json!({"docs": 0, "bytes": 0, "rejected": 0})
    );
}

/// A list of numbers by shard.
fn by_shard(told: &Value, name: &str) -> Vec<u64> {
    let list = told["indices"]["logs"][name].as_array().unwrap();
    list.iter().map(|one| one.as_u64().unwrap()).collect()
}

#[test]
fn rejected_documents_and_slow_answers_are_counted_at_the_shards_of_the_node_to_blame() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    heat(&gateway);
    gateway.bulk(&body(300)).ok().unwrap();
    let docs = by_shard(&heat(&gateway), "docs");
    let is_its: Vec<bool> = (0..6)
        .map(|shard| cluster.node_of("logs", shard) == Some(1))
        .collect();
    let its = |list: &[u64]| -> u64 {
        let pairs = list.iter().zip(&is_its);
        pairs.filter(|(_, is_its)| **is_its).map(|(one, _)| one).sum()
    };
    let error = r#"{"type": "es_rejected_execution_exception", "reason": "rejected execution"}"#;
    let items = |every| Fault::Items {
        every,
        status: 429,
        error: error.to_owned(),
    };
    cluster.inject(Injection::bulk(items(1)).on_node(1).times(1));
    gateway.bulk(&body(300)).ok().unwrap();
    let rejected = by_shard(&heat(&gateway), "rejected");
    assert_eq!(
        rejected,
        docs.iter()
            .zip(&is_its)
            .map(|(docs, is_its)| docs * u64::from(*is_its))
            .collect::<Vec<_>>()
    );
    // Each rejected item is counted, and no other.
    cluster.inject(Injection::bulk(items(3)).on_node(1).times(1));
    let answer = gateway.bulk(&body(300)).json().unwrap();
    let refused = statuses(&answer).iter().filter(|status| **status == 429).count() as u64;
    let more = by_shard(&heat(&gateway), "rejected");
    assert!(refused > 10 && refused < its(&docs), "{refused}");
    assert_eq!(
        (sum(&json!(more)), its(&more)),
        (its(&rejected) + refused, its(&rejected) + refused)
    );
    // A part that is rejected as a whole, and the answer of a slow node.
    let body_of = format!(r#"{{"error": {error}, "status": 429}}"#);
    cluster.inject(
        Injection::bulk(Fault::Status {
            status: 429,
            body: body_of,
        })
        .on_node(1)
        .times(1),
    );
    gateway.bulk(&body(300)).ok().unwrap();
    let whole = by_shard(&heat(&gateway), "rejected");
    assert_eq!(its(&whole), its(&more) + its(&docs));
    let before = heat(&gateway);
    cluster.inject(Injection::bulk(Fault::Delay(SLOW)).on_node(1).times(1));
    gateway.bulk(&body(300)).ok().unwrap();
    let told = heat(&gateway);
    let more = |name: &str| -> Vec<u64> {
        let pairs = by_shard(&told, name).into_iter().zip(by_shard(&before, name));
        pairs.map(|(after, before)| after - before).collect()
    };
    assert_eq!(more("answers"), [1; 6]);
    for (took, is_its) in more("answer_us").into_iter().zip(is_its) {
        assert!(
            took > 0 && (!is_its || u128::from(took) >= SLOW.as_micros()),
            "{told:#}"
        );
    }
    assert_eq!(told["others"]["rejected"], 0);
}

#[test]
fn documents_of_a_queue_are_counted_as_rejected_each_time_that_a_node_rejects_them() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 6).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    heat(&gateway);
    let error = r#"{"type": "es_rejected_execution_exception", "reason": "rejected execution"}"#;
    let items = Fault::Items {
        every: 1,
        status: 429,
        error: error.to_owned(),
    };
    cluster.inject(Injection::bulk(items).on_node(1).times(1));
    gateway.bulk(&body(120)).ok().unwrap();
    drained(&gateway, "c0");
    let told = heat(&gateway);
    let (docs, rejected) = (by_shard(&told, "docs"), by_shard(&told, "rejected"));
    let refused: u64 = rejected.iter().sum();
    assert!(refused > 0 && told["others"]["rejected"] == 0, "{told:#}");
    // What was rejected is sent once more.
    assert_eq!(docs.iter().sum::<u64>(), 120 + refused);
    for (shard, rejected) in rejected.iter().enumerate() {
        let node = cluster.node_of("logs", shard as u32);
        assert!(*rejected == 0 || node == Some(1), "{told:#}");
    }
    let answers = by_shard(&told, "answers");
    assert!(answers.iter().all(|answers| *answers > 0), "{told:#}");
}

#[test]
fn what_was_queued_is_counted_when_it_is_delivered() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 6).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    assert_eq!(heat(&gateway)["indices"], json!({}), "counting begins");
    gateway.bulk(&body(120)).ok().unwrap();
    drained(&gateway, "c0");
    let told = heat(&gateway);
    assert_eq!(sum(&told["indices"]["logs"]["docs"]), 120, "{told:#}");
    assert_eq!(told["indices"]["logs"]["docs"].as_array().unwrap().len(), 6);
}

#[test]
fn the_command_prints_the_hottest_shards_of_the_seconds_that_it_waits() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let admin = format!("http://{}", gateway.admin);
    let command = |more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(["heat", "--seconds", "1", "--admin", &admin])
            .args(more);
        command
    };
    let idle = command(&[]).output().unwrap();
    assert_eq!(idle.status.code(), Some(1), "{idle:?}");
    let writes = |more: &[&str]| {
        let child = command(more)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // It began to count at the first question, so some of these are between its two.
        let hot: String = (0..50)
            .map(|n| {
                format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"h{n}\",\"routing\":\"r\"}}}}\n{{}}\n")
            })
            .collect();
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(1500) {
            gateway.bulk(&body(6)).ok().unwrap();
            gateway.bulk(&hot).ok().unwrap();
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = writes(&["--top", "2"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[0].ends_with("latency ms") && lines[1].contains("logs"),
        "{text}"
    );
    let told: Value = serde_json::from_str(&writes(&["--json", "--by", "bytes"])).unwrap();
    let shards = told["shards"].as_array().unwrap();
    let of = |at: usize, name: &str| shards[at][name].as_f64().unwrap();
    assert!(of(0, "docs_per_s") > 3.0 * of(1, "docs_per_s"), "{told:#}");
    assert!(
        of(0, "latency_ms") > 0.0 && shards[0]["node"].is_string(),
        "{told:#}"
    );
}

const SLOW: Duration = Duration::from_millis(400);
