//! `/heat`: the documents that were sent to each shard, whether they were split at once, queued or single.

use serde_json::{Value, json};
use testkit::fake::{FakeCluster, Spec};

use crate::gateway::{Gateway, body, cluster};
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
    assert_eq!(heat(&gateway)["others"], json!({"docs": 0, "bytes": 0}));
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
