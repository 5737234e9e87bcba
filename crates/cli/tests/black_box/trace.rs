//! Where a document is: what the queue knows about it, and what the cluster says; nothing is made up.

use std::process::Command;

use serde_json::{Value, json};
use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use crate::gateway::Gateway;
use crate::home::{GatewayHome, drained, wait};
use crate::parked::two_indices;

const BLOCKED: &str = r#"{"type":"cluster_block_exception","reason":"index [blocked] blocked by: [FORBIDDEN/8/index write (api)];"}"#;

fn get(gateway: &Gateway, path: &str) -> Value {
    gateway.admin().get(path).unwrap().ok().unwrap().json().unwrap()
}

fn trace(gateway: &Gateway, index: &str, id: &str) -> Value {
    let encoded: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
    get(gateway, &format!("/trace?index={index}&id={encoded}"))
}

/// Returns what is said about the only consumer group of the only queue.
fn group(traced: &Value) -> &Value {
    &traced["queues"][0]["groups"][0]
}

fn switch(gateway: &Gateway, verb: &str) {
    let path = format!("/pipeline/p0/_{verb}");
    gateway
        .admin()
        .send("POST", &path, &[], &[])
        .unwrap()
        .ok()
        .unwrap();
}

fn line(index: &str, id: &str) -> String {
    let action = json!({"index": {"_index": index, "_id": id}});
    format!("{action}\n{{\"n\":1}}\n")
}

fn send(gateway: &Gateway, body: &str) -> u64 {
    let headers = [("content-type", "application/x-ndjson")];
    let answer = gateway
        .client()
        .send("POST", "/_bulk", &headers, body.as_bytes())
        .unwrap();
    let answer = answer.ok().unwrap();
    let ack = answer.header("x-tidegate-ack").unwrap().to_owned();
    ack.split("position=").nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_document_is_told_in_each_of_its_five_states_over_kill() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let mut gateway = place.start();
    // The document was never sent.
    let traced = trace(&gateway, "good", "a");
    assert_eq!(group(&traced)["state"], "not_seen", "{traced:#}");
    assert_eq!(traced["clusters"]["c0"]["found"], false);
    // The document is in its lane, behind others.
    switch(&gateway, "stop");
    let others: String = (0..50).map(|n| line("good", &format!("o{n}"))).collect();
    send(&gateway, &others);
    let position = send(&gateway, &line("good", "a"));
    for round in 0..2 {
        let traced = trace(&gateway, "good", "a");
        let pending = &group(&traced)["pending"][0];
        assert_eq!(group(&traced)["state"], "pending", "{traced:#}");
        assert_eq!(pending["position"], position);
        let lane = pending["lane"].as_u64().unwrap() as usize;
        let all = get(&gateway, "/queue/q/groups/c0/offset");
        let in_lane = all["lanes"][lane]["pending"].as_u64().unwrap();
        assert_eq!(pending["documents_ahead"], in_lane - 1, "{traced:#}");
        assert_eq!(traced["queues"][0]["searched"]["complete"], true);
        assert_eq!(traced["clusters"]["c0"]["found"], false, "{traced:#}");
        if round == 0 {
            assert_eq!(pending["held_by"][0]["reason"], "stopped", "{traced:#}");
            gateway.signal("KILL");
            drop(gateway);
            // Nothing is delivered while the cluster accepts no write.
            cluster.inject(
                Injection::bulk(Fault::Status {
                    status: 503,
                    body: "{}".to_owned(),
                })
                .always(),
            );
            gateway = place.start();
        }
    }
    cluster.behave();
    drained(&gateway, "c0");
    let traced = trace(&gateway, "good", "a");
    let stored = &cluster.docs("good")["a"];
    assert_eq!(group(&traced)["state"], "indexed", "{traced:#}");
    let said = &traced["clusters"]["c0"];
    assert_eq!(
        (&said["version"], &said["seq_no"]),
        (&json!(stored.version), &json!(stored.seq_no))
    );
    // The document is parked.
    cluster.refuse_writes("blocked", Some((403, BLOCKED)));
    send(&gateway, &(line("blocked", "p") + &line("blocked", "other")));
    wait(&gateway, "c0", |one| one["parked"] == 2 && one["pending"] == 0);
    let traced = trace(&gateway, "blocked", "p");
    assert_eq!(group(&traced)["state"], "parked", "{traced:#}");
    let parked = group(&traced)["parked"].as_array().unwrap();
    assert_eq!(parked.len(), 1, "{traced:#}");
    assert_eq!(parked[0]["key"], "index:blocked");
    assert!(
        parked[0]["why"].as_str().unwrap().contains("FORBIDDEN/8"),
        "{traced:#}"
    );
    gateway.signal("KILL");
    drop(gateway);
    gateway = place.start();
    assert_eq!(group(&trace(&gateway, "blocked", "p"))["state"], "parked");
    // The document is given up.
    let give_up = "/queue/q/parked/_give_up?confirm=true";
    gateway
        .admin()
        .send("POST", give_up, &[], &[])
        .unwrap()
        .ok()
        .unwrap();
    wait(&gateway, "c0", |one| one["dead"] == 2);
    gateway.signal("KILL");
    drop(gateway);
    let gateway = place.start();
    let traced = trace(&gateway, "blocked", "p");
    assert_eq!(group(&traced)["state"], "dead", "{traced:#}");
    let letter = &group(&traced)["dead"][0];
    let shown = get(&gateway, &format!("/dead_letters/{}", letter["id"]));
    assert_eq!(shown["action"]["index"]["_id"], "p", "{shown:#}");
    assert_eq!(letter["reason"], shown["reason"]);
    assert_eq!(group(&traced)["dead"].as_array().unwrap().len(), 1);
}

#[test]
fn hostile_names_and_aliases_are_found_by_the_port_and_by_the_command() {
    let cluster = FakeCluster::start(Spec::default().index("logs-1", 3).storing()).unwrap();
    cluster.alias("logs", &["logs-1"]);
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    switch(&gateway, "stop");
    let ids = [
        "a/b?c=d&e#f",
        "\"\\\u{1}\u{202e}é",
        "../../x",
        "%2e%20",
        "{\"index\":{}}",
        "7",
    ];
    for id in ids {
        let routed = json!({"index": {"_index": "logs", "_id": id, "routing": "r/&\"1"}});
        send(
            &gateway,
            &format!("{routed}\n{{\"text\":\"another \\\"_id\\\": 7\"}}\n"),
        );
    }
    let told = |state: &str| {
        for id in ids {
            for name in ["logs", "logs-1"] {
                let traced = trace(&gateway, name, id);
                assert_eq!(group(&traced)["state"], state, "{traced:#}");
                assert_eq!(traced["queues"][0]["write_count"], 1, "{traced:#}");
                assert_eq!(traced["queues"][0]["writes"][0]["routing"], "r/&\"1");
            }
        }
    };
    told("pending");
    switch(&gateway, "start");
    drained(&gateway, "c0");
    told("indexed");
    let (code, out) = run(&gateway, &["trace", "logs", "a/b?c=d&e#f"]);
    assert_eq!(code, 0, "{out}");
    assert!(
        out.contains("q / c0: indexed") && out.contains("has it, in logs-1"),
        "{out}"
    );
    assert!(
        out.contains("  1 write of it in 6 records, searched from position "),
        "{out}"
    );
    let (code, out) = run(&gateway, &["trace", "logs", "a"]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("not seen") && out.contains("6 records"), "{out}");
    let (code, out) = run(&gateway, &["trace", "none", "a"]);
    assert!(code == 1 && out.contains("has no such index"), "{out}");
    for (path, status) in [
        ("/trace", 400),
        ("/trace?index=logs", 400),
        ("/trace?id=a", 400),
        ("/trace?index=logs&id=a&position=1", 400),
        ("/trace?index=logs&id=a&queue=none", 404),
        ("/trace?queue=q&position=1", 404),
        ("/trace?index=logs&id=a&other=1", 400),
    ] {
        assert_eq!(gateway.admin().get(path).unwrap().status, status, "{path}");
    }
}

#[test]
fn nothing_is_called_indexed_that_the_cluster_did_not_say() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    send(&gateway, &line("logs", "a"));
    drained(&gateway, "c0");
    for node in 0..cluster.urls().len() {
        cluster.kill(node);
    }
    let traced = trace(&gateway, "logs", "a");
    assert_eq!(group(&traced)["state"], "unknown", "{traced:#}");
    assert_eq!(traced["clusters"]["c0"]["asked"], false);
    assert!(!traced["clusters"]["c0"]["why"].as_str().unwrap().is_empty());
    let (code, out) = run(&gateway, &["trace", "logs", "a"]);
    assert!(code == 1 && out.contains("could not be asked"), "{code} {out}");
}

#[test]
fn a_request_is_traced_by_the_position_that_its_answer_told() {
    let cluster = two_indices();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    cluster.refuse_writes("blocked", Some((403, BLOCKED)));
    let body = line("good", "1") + &line("good", "2") + &line("blocked", "3");
    let position = send(&gateway, &body);
    wait(&gateway, "c0", |one| one["parked"] == 1 && one["pending"] == 0);
    let path = format!("/trace?queue=q&position={position}");
    let traced = get(&gateway, &path);
    let one = &traced["groups"][0];
    assert_eq!(
        (&traced["documents"], &one["parked_count"]),
        (&json!(3), &json!(1)),
        "{traced:#}"
    );
    let lanes = one["lanes"].as_array().unwrap();
    assert!(
        lanes.iter().all(|lane| lane["state"] == "delivered"),
        "{traced:#}"
    );
    assert_eq!(one["parked"][0]["position"], position);
    let (code, out) = run(
        &gateway,
        &["trace", "--queue", "q", "--position", &position.to_string()],
    );
    assert_eq!(code, 0, "{out}");
    assert!(
        out.contains("0 pending, 3 have left their lanes; of these, 1 parked, 0 dead letters"),
        "{out}"
    );
}

fn run(gateway: &Gateway, arguments: &[&str]) -> (i32, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .env("TIDEGATE_ADMIN", format!("http://{}", gateway.admin))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.code().unwrap(), text)
}
