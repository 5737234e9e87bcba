//! `tidegate queues list` says why documents do not move, for each possible reason.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use crate::gateway::{Gateway, body, cluster};
use crate::home::{GatewayHome, drained, queue};
use crate::terminal::at_a_terminal;

/// Runs `tidegate queues`. Returns its exit status and its output.
fn queues(gateway: &Gateway, arguments: &[&str]) -> (i32, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("queues")
        .args(arguments)
        .args(["--admin", &format!("http://{}", gateway.admin)])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
    (out.status.code().unwrap(), text)
}

/// Waits until a single line of `queues list` contains all of these.
fn told(gateway: &Gateway, wanted: &[&str]) -> String {
    let ends = Instant::now() + Duration::from_secs(60);
    loop {
        let (status, text) = queues(gateway, &["list"]);
        assert_eq!(status, 0, "{text}");
        let line = text
            .lines()
            .find(|line| wanted.iter().all(|word| line.contains(word)));
        if let Some(line) = line {
            return line.to_owned();
        }
        assert!(Instant::now() < ends, "{wanted:?} is not said:\n{text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn answering(status: u16, error: &str) -> Injection {
    let body = format!("{{\"error\":{{\"type\":\"{error}\",\"reason\":\"as cued\"}},\"status\":{status}}}");
    Injection::bulk(Fault::Status { status, body }).always()
}

#[test]
fn a_stopped_pipeline_a_busy_cluster_and_a_missing_right_are_told_apart() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let text = queues(&gateway, &["list"]).1;
    assert!(!text.contains("q, c0:"), "nothing waits: {text}");

    cluster.inject(answering(503, "unavailable"));
    gateway.bulk(&body(100)).ok().unwrap();
    let line = told(
        &gateway,
        &["q, c0: lanes ", " trying again, before the cluster c0, for "],
    );
    assert!(line.contains("next try in ") && line.contains("503"), "{line}");

    cluster.behave();
    drained(&gateway, "c0");
    cluster.inject(answering(403, "security_exception"));
    gateway.bulk(&body(100)).ok().unwrap();
    let line = told(
        &gateway,
        &[" paused, before the cluster c0, for ", "next try in "],
    );
    assert!(line.contains("as cued"), "{line}");
    let waits = queue(&gateway)["groups"]["c0"]["waits"].clone();
    assert_eq!(waits[0]["reason"], "paused", "{waits}");
    assert!(waits[0]["lanes"][0].is_number(), "{waits}");
    assert!(
        waits[0]["for_s"].is_number() && waits[0]["next_try_s"].is_number(),
        "{waits}"
    );

    cluster.behave();
    drained(&gateway, "c0");
    let stop = gateway
        .admin()
        .send("POST", "/pipeline/p0/_stop", &[], &[])
        .unwrap();
    stop.ok().unwrap();
    gateway.bulk(&body(100)).ok().unwrap();
    told(
        &gateway,
        &[
            "q, c0: 100 documents stopped",
            "the pipeline p0 is stopped: `tidegate pipelines start p0`",
        ],
    );
    let (status, shown) = queues(&gateway, &["show", "q"]);
    assert!(
        status == 0 && shown.contains("the pipeline p0 is stopped"),
        "{shown}"
    );
    let (_, json) = queues(&gateway, &["list", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json["q"]["groups"]["c0"]["waits"][0]["reason"], "stopped",
        "{json}"
    );
}

#[test]
fn a_cluster_that_is_away_is_said_to_be() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    gateway.bulk(&body(10)).ok().unwrap();
    drained(&gateway, "c0");
    drop(cluster);
    gateway.bulk(&body(100)).ok().unwrap();
    told(
        &gateway,
        &["trying again, before the cluster c0, for ", "next try in "],
    );
}

#[test]
fn what_is_parked_and_a_group_that_nobody_delivers_for_are_told() {
    let cluster = FakeCluster::start(Spec::default().index("blocked", 6).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let refusal = r#"{"type":"cluster_block_exception","reason":"index [blocked] blocked by: [FORBIDDEN/8/index write (api)];"}"#;
    cluster.refuse_writes("blocked", Some((403, refusal)));
    gateway.bulk(&body(40).replace("logs", "blocked")).ok().unwrap();
    told(
        &gateway,
        &[
            "q, c0: 40 documents parked",
            "`tidegate queues parked q` lists what for",
        ],
    );
    let (status, text) = queues(&gateway, &["parked", "q", "--give-up"]);
    assert_ne!(status, 0, "nobody can be asked: {text}");
    let line = format!(
        "{} queues --admin http://{} parked q --give-up",
        env!("CARGO_BIN_EXE_tidegate"),
        gateway.admin
    );
    let (status, said) = at_a_terminal(&line, "n\n");
    assert!(
        said.contains("turn what is parked for anything in the queue q into dead letters? [y/N]"),
        "{said}"
    );
    assert!(
        status == Some(1) && said.contains("nothing was done"),
        "{status:?} {said}"
    );
    told(&gateway, &["q, c0: 40 documents parked"]);

    // The pipeline gets another group: the old one keeps its place, and no pipeline delivers for it.
    cluster.refuse_writes("blocked", None);
    drained(&gateway, "c0");
    gateway
        .admin()
        .send("POST", "/pipeline/p0/_stop", &[], &[])
        .unwrap()
        .ok()
        .unwrap();
    gateway.bulk(&body(10).replace("logs", "blocked")).ok().unwrap();
    drop(gateway);
    let text = std::fs::read_to_string(&place.file).unwrap();
    let text = text.replace(
        "bulk_indexing: {elasticsearch: c0}",
        "bulk_indexing: {elasticsearch: c0, consumer.group: other}",
    );
    std::fs::write(&place.file, text).unwrap();
    let gateway = place.start();
    told(
        &gateway,
        &[
            "q, c0: 10 documents no_pipeline",
            "no pipeline of the configuration delivers for this group",
        ],
    );
}

#[test]
fn a_full_queue_says_what_it_has_no_room_for() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], ", max_size: 256kb");
    let gateway = place.start();
    cluster.inject(answering(503, "unavailable"));
    let ends = Instant::now() + Duration::from_secs(90);
    while gateway.bulk(&body(2_000)).status == 200 {
        assert!(Instant::now() < ends, "the queue takes everything");
    }
    let line = told(&gateway, &["q: nothing is accepted: "]);
    assert!(line.contains("full") || line.contains("room"), "{line}");
}

#[test]
fn a_lane_that_waits_for_memory_says_so() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    place.append("worker: {delivery_memory: 1mb}\n");
    let gateway = place.start();
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_secs(2))).always());
    let text = "x".repeat(300 << 10);
    let large: String = (0..12)
        .map(|id| format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"t\":\"{text}\"}}\n"))
        .collect();
    gateway.bulk(&large).ok().unwrap();
    told(
        &gateway,
        &[" waiting, before the cluster c0, for ", "worker.delivery_memory"],
    );
}

#[test]
fn a_node_that_does_not_answer_is_named_with_the_lanes_that_wait_for_it() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 12).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    cluster.inject(Injection::bulk(Fault::HangUnwritten).on_node(1).always());
    gateway.bulk(&body(300)).ok().unwrap();
    // Sooner or later the other nodes answer, and the last lane gets to the node that does not, however busy
    // this machine is.
    let ends = Instant::now() + Duration::from_secs(60);
    let (slow, lanes) = loop {
        let group = queue(&gateway)["groups"]["c0"].clone();
        let lanes = group["lanes"].as_array().unwrap();
        let mut at = lanes
            .iter()
            .flat_map(|lane| lane["waits_for"].as_array().unwrap());
        if let [only] = &group["waits"].as_array().unwrap()[..]
            && only["reason"] == "slow_node"
            && at.all(|one| one["for_s"].as_f64().unwrap() > 1.1)
        {
            break (only.clone(), group["lanes"].clone());
        }
        assert!(Instant::now() < ends, "{group:#}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let name = slow["node"].as_str().unwrap();
    told(
        &gateway,
        &[
            "q, c0: lane",
            " waiting for ",
            &format!("the node {name} has not answered"),
        ],
    );
    assert!(slow["for_s"].as_f64().unwrap() >= 1.0, "{slow}");
    let lanes = lanes.as_array().unwrap();
    let at: Vec<&Value> = lanes
        .iter()
        .flat_map(|lane| lane["waits_for"].as_array().unwrap())
        .collect();
    assert!(at.iter().all(|one| one["node"] == name), "{at:?}");
    let held: u64 = at.iter().map(|one| one["documents"].as_u64().unwrap()).sum();
    assert_eq!(slow["documents"], held);
    let waiting = lanes
        .iter()
        .enumerate()
        .filter(|(_, lane)| lane["waits_for"] != Value::Array(Vec::new()));
    let waiting: Vec<Value> = waiting.map(|(number, _)| number.into()).collect();
    assert_eq!(slow["lanes"], Value::Array(waiting));
    cluster.behave();
}
