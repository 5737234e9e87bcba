//! Dead letters for which there is no room hold up no other document: they are parked, by index, until there
//! is room.

use serde_json::{Value, json};
use testkit::fake::{Behaviour, FakeCluster, Unfit};

use crate::gateway::Gateway;
use crate::home::{GatewayHome, drained, wait};
use crate::parked::two_indices;

/// Makes a cluster with two indices that refuse the documents' value for good.
fn two_indices_that_refuse() -> FakeCluster {
    let cluster = two_indices();
    cluster.set_behaviour(Behaviour {
        unfit: Some(Unfit {
            holds: "\"n\":\"".to_owned(),
            status: 400,
            error: r#"{"type":"mapper_parsing_exception","reason":"no number"}"#.to_owned(),
        }),
        ..Behaviour::default()
    });
    cluster
}

/// Returns `docs` documents; the value of every `unfit`th one does not fit.
fn docs(index: &str, name: &str, docs: usize, unfit: usize) -> String {
    let padding = "x".repeat(400);
    let lines = (0..docs).map(|n| {
        let value = if n % unfit == 0 { "\"x\"" } else { "7" };
        format!(
            "{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{name}-{n}\"}}}}\n{{\"p\":\"{padding}\",\"n\":{value}}}\n"
        )
    });
    lines.collect()
}

fn no_lane_waits(one: &Value) {
    assert_eq!(
        (&one["paused_lanes"], &one["retrying_lanes"]),
        (&json!(0), &json!(0)),
        "{one}"
    );
}

fn purge(gateway: &Gateway) -> u64 {
    let purge = "/dead_letters/_purge?confirm=true&all=true";
    let purged = gateway.admin().send("POST", purge, &[], &[]).unwrap();
    let purged: Value = purged.ok().unwrap().json().unwrap();
    purged["purged"].as_u64().unwrap()
}

#[test]
fn an_index_whose_dead_letters_fill_their_store_holds_up_no_other_and_keeps_them_all() {
    let cluster = two_indices_that_refuse();
    let place = GatewayHome::before(&[&cluster], ", dead_letters_max_size: 1mb");
    let mut gateway = place.start();
    for bulk in 0..20 {
        gateway
            .bulk(&docs("blocked", &bulk.to_string(), 200, 1))
            .ok()
            .unwrap();
    }
    gateway.bulk(&docs("good", "g", 200, 10)).ok().unwrap();
    let settles = |gateway: &Gateway| wait(gateway, "c0", |one| one["pending"] == 0);
    let one = settles(&gateway);
    no_lane_waits(&one);
    assert_eq!(cluster.docs("good").len(), 180, "{one}");
    assert_eq!(one["indexed"], 180);
    let parked = one["parked"].as_u64().unwrap();
    assert!(
        parked > 1000 && one["dead"].as_u64().unwrap() + parked == 4020,
        "{one}"
    );
    let key = &one["parked_for"][0];
    assert_eq!(key["key"], "letters:blocked", "{one}");
    let why = key["why"].as_str().unwrap();
    assert!(why.contains("dead_letters_max_size"), "{why}");
    // The letters of the index take a share, and another index has room of its own.
    let listed = gateway
        .admin()
        .get("/dead_letters?queue=q&index=good&limit=100")
        .unwrap();
    let listed: Value = listed.ok().unwrap().json().unwrap();
    assert_eq!(listed["dead_letters"].as_array().unwrap().len(), 20, "{listed}");
    gateway.signal("KILL");
    drop(gateway);
    gateway = place.start();
    let one = settles(&gateway);
    assert_eq!(
        one["dead"].as_u64().unwrap() + one["parked"].as_u64().unwrap(),
        4020,
        "{one}"
    );
    // They become letters, with the cluster's reason, when there is room.
    let (mut purged, began) = (0, std::time::Instant::now());
    while one_of(&gateway, "parked") > 0 || one_of(&gateway, "dead") > 0 {
        let listed = gateway.admin().get("/dead_letters?queue=q&limit=1").unwrap();
        let listed: Value = listed.ok().unwrap().json().unwrap();
        if let Some(letter) = listed["dead_letters"].get(0) {
            assert_eq!(
                (&letter["type"], &letter["reason"], &letter["status"]),
                (
                    &json!("mapper_parsing_exception"),
                    &json!("no number"),
                    &json!(400)
                )
            );
        }
        purged += purge(&gateway);
        assert!(
            began.elapsed().as_secs() < 90,
            "{purged}: {:#}\n{}",
            wait(&gateway, "c0", |_| true),
            gateway.log()
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let one = drained(&gateway, "c0");
    assert_eq!(
        (purged, &one["purged"], &one["indexed"]),
        (4020, &json!(4020), &json!(180))
    );
}

fn one_of(gateway: &Gateway, state: &str) -> u64 {
    wait(gateway, "c0", |_| true)[state].as_u64().unwrap()
}

#[test]
fn an_index_whose_refused_documents_find_no_room_anywhere_is_refused_alone() {
    let cluster = two_indices_that_refuse();
    let place = GatewayHome::before(
        &[&cluster],
        ", dead_letters_max_size: 256kb, parked_max_size: 256kb",
    );
    let gateway = place.start();
    let mut accepted = 0;
    let refused = loop {
        let answer = gateway.bulk(&docs("blocked", &accepted.to_string(), 100, 1));
        if answer.status != 200 {
            break answer;
        }
        accepted += 1;
        assert!(accepted < 200, "there is no bound");
        wait(&gateway, "c0", |one| one["pending"] == 0);
    };
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    assert!(
        refused.text().contains("dead letters of [blocked]"),
        "{}",
        refused.text()
    );
    // Other documents are not parked.
    gateway.bulk(&docs("good", "g", 300, 10)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["pending"] == 0);
    no_lane_waits(&one);
    assert_eq!(
        (&one["indexed"], cluster.docs("good").len()),
        (&json!(270), 270),
        "{one}"
    );
    // They wait until there is room.
    let began = std::time::Instant::now();
    while one_of(&gateway, "parked") > 0 {
        purge(&gateway);
        assert!(began.elapsed().as_secs() < 90);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    gateway.bulk(&docs("blocked", "later", 10, 100)).ok().unwrap();
}
