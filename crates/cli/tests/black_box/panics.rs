//! A bug of the gateway ends only the request, the record or the round of work in which it occurs. The bugs
//! are planted (`TIDEGATE_TEST_PANIC`), which anybody can do in builds with debug assertions, and in
//! releases with the feature `planted`. `./dev test` runs these tests on a build of each kind.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::fake::{Behaviour, FakeCluster, Fault, Injection, Spec, Unfit};

use crate::gateway::{Gateway, PATIENCE, free_address, program};
use crate::home::{GatewayHome, account, drained, queue, wait};

/// Makes two nodes that keep what they are sent.
fn storing() -> FakeCluster {
    let spec = Spec {
        nodes: 2,
        ..Spec::default()
    };
    FakeCluster::start(spec.index("logs", 24).storing()).unwrap()
}

/// Makes a home with a queue of 16 lanes.
fn sixteen_lanes(cluster: &FakeCluster) -> GatewayHome {
    let place = GatewayHome::before(&[cluster], "");
    let text = std::fs::read_to_string(&place.file).unwrap();
    std::fs::write(&place.file, text.replace("lanes: 4", "lanes: 16")).unwrap();
    place
}

/// Starts a gateway with planted bugs.
fn planted(place: &GatewayHome, bugs: &str) -> Gateway {
    let file = place.file.to_str().unwrap();
    let gateway = Gateway::start_with(&["--config", file], &[("TIDEGATE_TEST_PANIC", bugs)]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    gateway
}

/// Returns a document with this id.
fn doc(id: &str, n: usize) -> String {
    format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"n\":{n}}}\n")
}

fn docs(from: usize, to: usize, n: usize) -> String {
    (from..to).map(|id| doc(&format!("d{id}"), n)).collect()
}

/// Returns how many panics happened in a kind of work.
fn panics(gateway: &Gateway, work: &str) -> u64 {
    metric(gateway, &format!("tidegate_panics_total{{work=\"{work}\"}}")) as u64
}

fn letters(gateway: &Gateway) -> Vec<Value> {
    let letters = gateway.admin().get("/dead_letters").unwrap().ok().unwrap();
    letters.json().unwrap()["dead_letters"]
        .as_array()
        .unwrap()
        .clone()
}

#[test]
fn one_record_that_the_gateway_fails_on_dies_and_all_others_and_all_lanes_go_on() {
    let cluster = storing();
    let place = sixteen_lanes(&cluster);
    let gateway = planted(&place, "batch=poison");
    // The documents come together: most are in a batch with the bad one, or behind it in its lane.
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_millis(200))));
    gateway.bulk(&docs(0, 200, 1)).ok().unwrap();
    gateway.bulk(&doc("a-poison-secret", 1)).ok().unwrap();
    for n in 2..=4 {
        gateway.bulk(&docs(0, 200, n)).ok().unwrap();
    }
    let one = drained(&gateway, "c0");
    assert_eq!((&one["dead"], &one["indexed"]), (&json!(1), &json!(800)), "{one}");
    let there = cluster.docs("logs");
    assert_eq!(there.len(), 200);
    assert!(there.values().all(|doc| doc.source == "{\"n\":4}"));
    let letters = letters(&gateway);
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!(letters[0]["type"], "gateway_failure", "{letters:?}");
    let reason = letters[0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("planted at batch (crates/wire/src/guard/"),
        "{reason}"
    );
    assert!(panics(&gateway, "lane") >= 2);
    let log = gateway.logged("the gateway has a bug");
    assert!(log.contains("planted at batch"), "{log}");
    assert!(
        !gateway.log().contains("secret"),
        "no document in the log: {}",
        gateway.log()
    );

    // After `kill -9` it is dead once, and later documents are delivered.
    drop(gateway);
    let gateway = planted(&place, "batch=poison");
    gateway.bulk(&docs(0, 200, 5)).ok().unwrap();
    let one = drained(&gateway, "c0");
    assert_eq!(
        (&one["dead"], &one["indexed"]),
        (&json!(1), &json!(1000)),
        "{one}"
    );
    drop(gateway);

    // A gateway without the bug delivers it.
    let gateway = place.start();
    gateway
        .admin()
        .send("POST", "/dead_letters/_replay?all=true", &[], b"")
        .unwrap()
        .ok()
        .unwrap();
    let one = wait(&gateway, "c0", |one| one["pending"] == 0 && one["dead"] == 0);
    assert_eq!(one["replayed"], 1, "{one}");
    assert!(cluster.docs("logs").contains_key("a-poison-secret"));
}

#[test]
fn accounts_add_up_however_often_it_is_killed_meanwhile() {
    let cluster = storing();
    let place = sixteen_lanes(&cluster);
    let mut gateway = planted(&place, "batch=poison");
    for round in 0..5_u64 {
        gateway.bulk(&docs(0, 50, 1)).ok().unwrap();
        gateway.bulk(&doc(&format!("poison-{round}"), 1)).ok().unwrap();
        gateway.bulk(&docs(0, 50, 2)).ok().unwrap();
        std::thread::sleep(Duration::from_millis(40 * round));
        drop(gateway);
        gateway = planted(&place, "batch=poison");
        account(&queue(&gateway), "c0");
    }
    let one = drained(&gateway, "c0");
    assert_eq!((&one["dead"], &one["indexed"]), (&json!(5), &json!(500)), "{one}");
    assert_eq!(letters(&gateway).len(), 5);
}

#[test]
fn a_nodes_answer_that_the_gateway_fails_on_costs_one_record_and_no_lane() {
    let cluster = storing();
    let place = sixteen_lanes(&cluster);
    let gateway = planted(&place, "reply=poison");
    // The answer about successful operations does not distinguish one document from another.
    cluster.set_behaviour(Behaviour {
        unfit: Some(Unfit {
            holds: "{\"n\":666}".to_owned(),
            status: 400,
            error: r#"{"type":"mapper_parsing_exception","reason":"poison"}"#.to_owned(),
        }),
        ..Behaviour::default()
    });
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_millis(100))));
    gateway.bulk(&docs(0, 100, 1)).ok().unwrap();
    gateway.bulk(&doc("a", 666)).ok().unwrap();
    gateway.bulk(&docs(0, 200, 2)).ok().unwrap();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["dead"], &one["indexed"]), (&json!(1), &json!(300)), "{one}");
    let reason = letters(&gateway)[0]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("it may have been executed"), "{reason}");
    gateway.bulk(&docs(0, 200, 3)).ok().unwrap();
    drained(&gateway, "c0");
    assert_eq!(cluster.docs("logs")["d7"].source, "{\"n\":3}");
}

#[test]
fn a_fault_that_is_no_records_does_not_drain_a_queue_into_dead_letters() {
    let cluster = storing();
    let place = sixteen_lanes(&cluster);
    let gateway = planted(&place, "reply=");
    for n in 0..40 {
        gateway.bulk(&docs(0, 100, n)).ok().unwrap();
    }
    std::thread::sleep(Duration::from_secs(4));
    let one = wait(&gateway, "c0", |one| one["retrying_lanes"].as_u64().unwrap() > 8);
    let dead = one["dead"].as_u64().unwrap();
    assert!(dead < 1_500, "{one}");
    let lanes = one["lanes"].as_array().unwrap().iter();
    let mut whys = lanes.filter_map(|lane| lane["why"].as_str());
    assert!(whys.any(|why| why.contains("planted at reply")), "{one}");
    drop(gateway);
    let gateway = place.start();
    let one = drained(&gateway, "c0");
    let indexed = one["indexed"].as_u64().unwrap();
    assert_eq!(indexed + one["dead"].as_u64().unwrap(), 4_000, "{one}");
}

#[test]
fn a_delivery_that_fails_as_a_whole_begins_anew_with_what_is_committed() {
    let cluster = storing();
    let place = sixteen_lanes(&cluster);
    let gateway = planted(&place, "delivery=*2,tend=*2");
    gateway.bulk(&docs(0, 200, 1)).ok().unwrap();
    let one = drained(&gateway, "c0");
    assert_eq!(one["indexed"], 200);
    assert_eq!(panics(&gateway, "delivery"), 2);
    let began = Instant::now();
    while panics(&gateway, "parked") < 2 && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(panics(&gateway, "parked"), 2);
}

#[test]
fn parked_operations_that_the_gateway_fails_on_stay_parked_and_hold_up_nobody() {
    let cluster = storing();
    let place = sixteen_lanes(&cluster);
    let gateway = planted(&place, "parked=poison*3");
    cluster.refuse_writes("logs", Some((403, r#"{"type":"cluster_block_exception","reason":"index [logs] blocked by: [FORBIDDEN/8/index write (api)];"}"#)));
    gateway.bulk(&doc("poison", 1)).ok().unwrap();
    wait(&gateway, "c0", |one| one["parked"] == 1 && one["pending"] == 0);
    cluster.refuse_writes("logs", None);
    let one = drained(&gateway, "c0");
    assert_eq!((&one["dead"], &one["indexed"]), (&json!(0), &json!(1)), "{one}");
    assert_eq!(panics(&gateway, "parked"), 3);
}

/// Starts a gateway in synchronous mode, with planted bugs.
fn synchronous(cluster: &FakeCluster, bugs: &str) -> (Gateway, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.yml");
    let text = format!(
        "path.data: '{}'
admin: {{binding: '127.0.0.1:0'}}
worker: {{count: 2}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: c, mode: sync}}}}, {{elasticsearch: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}'}}]
",
        folder.path().join("data").display(),
        cluster.urls()[0]
    );
    std::fs::write(&file, text).unwrap();
    let arguments = ["--config", file.to_str().unwrap()];
    let gateway = Gateway::start_with(&arguments, &[("TIDEGATE_TEST_PANIC", bugs)]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    (gateway, folder)
}

fn metric(gateway: &Gateway, name: &str) -> f64 {
    let text = gateway
        .admin()
        .get("/metrics")
        .unwrap()
        .ok()
        .unwrap()
        .text()
        .to_owned();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} ")));
    value.unwrap().parse().unwrap()
}

/// Sends bulks from several clients at once, one of which is poison. Returns the statuses that the poison
/// got.
fn beside_each_other(gateway: &Gateway, rounds: usize) -> Vec<u16> {
    std::thread::scope(|scope| {
        for client in 0..6 {
            scope.spawn(move || {
                for round in 0..rounds {
                    let one = gateway.bulk(&doc(&format!("c{client}-{round}"), 1));
                    assert_eq!(one.status, 200, "{}", one.text());
                    assert_eq!(one.json().unwrap()["errors"], false, "{}", one.text());
                }
            });
        }
        let poison = scope.spawn(|| {
            let sent = (0..rounds).map(|round| gateway.bulk(&doc(&format!("poison-{round}"), 1)).status);
            sent.collect()
        });
        poison.join().unwrap()
    })
}

#[test]
fn one_request_that_the_gateway_fails_on_gets_500_and_all_others_their_answers() {
    let cluster = storing();
    let (gateway, _folder) = synchronous(&cluster, "request=poison");
    let answer = gateway.bulk(&doc("poison", 1));
    assert_eq!(answer.status, 500);
    let error = answer.json().unwrap();
    assert_eq!(error["status"], 500);
    assert!(
        error["error"]["reason"]
            .as_str()
            .unwrap()
            .contains("the gateway failed"),
        "{error}"
    );
    assert_eq!(beside_each_other(&gateway, 20), [500; 20]);
    assert_eq!(cluster.docs("logs").len(), 120);
    assert_eq!(panics(&gateway, "request"), 21);
    let began = Instant::now();
    // Idle buffers are given back after some seconds.
    while metric(&gateway, "tidegate_buffers_bytes") > 0.0 {
        assert!(
            began.elapsed() < PATIENCE,
            "{}",
            metric(&gateway, "tidegate_buffers_bytes")
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_gathered_request_that_the_gateway_fails_on_is_sent_again_apart() {
    let cluster = storing();
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_millis(20))).always());
    let (gateway, _folder) = synchronous(&cluster, "combined=poison");
    assert_eq!(beside_each_other(&gateway, 20), [200; 20]);
    assert_eq!(cluster.docs("logs").len(), 140, "each once");
    assert!(panics(&gateway, "combined") > 0);
}

#[test]
fn what_goes_on_in_the_background_is_started_again() {
    let cluster = storing();
    let (gateway, _folder) = synchronous(&cluster, "probe=*2,watch=*2,admin=/stats*1");
    let began = Instant::now();
    while panics(&gateway, "watch") < 4 {
        assert!(began.elapsed() < PATIENCE, "{}", gateway.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(gateway.admin().get("/stats").unwrap().status, 500);
    assert_eq!(gateway.admin().get("/stats").unwrap().status, 200);
    assert_eq!(panics(&gateway, "admin"), 1);
    // A node that was down is found again by the probe.
    gateway.bulk(&docs(0, 10, 1)).ok().unwrap();
    let stats = gateway
        .admin()
        .get("/stats")
        .unwrap()
        .ok()
        .unwrap()
        .json()
        .unwrap();
    assert_eq!(
        stats["gateway"]["panics"],
        json!({"watch": 4, "admin": 1}),
        "{stats}"
    );
}

#[test]
fn a_reload_that_the_gateway_fails_on_is_refused_and_the_next_one_goes_through() {
    let cluster = storing();
    let (gateway, folder) = synchronous(&cluster, "reload=*1");
    let file = folder.path().join("tidegate.yml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}logging: {{level: debug}}\n")).unwrap();
    gateway.signal("HUP");
    let line = gateway.logged("configuration not reloaded");
    assert!(line.contains("planted at reload"), "{line}");
    gateway.bulk(&docs(0, 10, 1)).ok().unwrap();
    gateway.signal("HUP");
    gateway.logged("configuration reloaded");
    gateway.bulk(&docs(0, 10, 2)).ok().unwrap();
}

/// Starts a gateway that must end by itself, and does something meanwhile. Returns its status and its output.
fn ends_by_itself(cluster: &FakeCluster, bugs: &str, meanwhile: impl FnOnce(&str)) -> (Option<i32>, String) {
    let place = GatewayHome::before(&[cluster], "");
    let port = free_address();
    let text = std::fs::read_to_string(&place.file).unwrap();
    let entry = "router: r, network: {binding: '127.0.0.1:0'}";
    assert!(text.contains(entry), "{text}");
    let text = text.replace(entry, &format!("router: r, network: {{binding: '{port}'}}"));
    std::fs::write(&place.file, text).unwrap();
    let log = place.file.with_extension("log");
    let mut running = std::process::Command::new(program())
        .args(["gateway", "--config", place.file.to_str().unwrap()])
        .env("TIDEGATE_TEST_PANIC", bugs)
        .stdout(std::process::Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    meanwhile(&port.to_string());
    let began = Instant::now();
    let status = loop {
        if let Some(status) = running.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > PATIENCE {
            running.kill().unwrap();
            running.wait().unwrap();
            panic!("it goes on: {}", std::fs::read_to_string(&log).unwrap());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    (status.code(), std::fs::read_to_string(&log).unwrap())
}

#[test]
fn a_gateway_that_lost_a_core_ends_to_be_started_again() {
    let (status, said) = ends_by_itself(&storing(), "core=0*1", |_| {});
    assert_eq!(status, Some(4), "{said}");
    assert!(
        said.contains("the gateway is broken by a bug of its own"),
        "{said}"
    );
    assert!(said.contains("planted at core"), "{said}");
}

#[test]
fn a_gateway_that_takes_no_connections_any_more_ends_to_be_started_again() {
    let connect = |address: &str| {
        let began = Instant::now();
        while std::net::TcpStream::connect(address).is_err() && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let (status, said) = ends_by_itself(&storing(), "accept=*1", connect);
    assert_eq!(status, Some(4), "{said}");
    assert!(said.contains("planted at accept"), "{said}");
}

#[test]
fn one_document_that_the_gateway_fails_on_dies_and_not_what_its_request_has_beside_it() {
    let cluster = storing();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = planted(&place, "batch=poison");
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_millis(100))));
    gateway.bulk(&docs(0, 200, 1)).ok().unwrap();
    // A request whose documents depend on their order, with two bad ones among them.
    let mut request = String::new();
    for n in 2..5 {
        request.push_str(&docs(0, 100, n));
        if n < 4 {
            request.push_str(&doc(&format!("poison-{n}"), n));
        }
        request.push_str("{\"delete\":{\"_index\":\"logs\",\"_id\":\"d3\"}}\n");
    }
    gateway.bulk(&request).ok().unwrap();
    gateway.bulk(&docs(100, 200, 5)).ok().unwrap();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["dead"], &one["indexed"]), (&json!(2), &json!(603)), "{one}");
    let there = cluster.docs("logs");
    assert_eq!(there.len(), 199);
    assert!(
        (0..100)
            .filter(|n| *n != 3)
            .all(|n| there[&format!("d{n}")].source == "{\"n\":4}")
    );
    assert!((100..200).all(|n| there[&format!("d{n}")].source == "{\"n\":5}"));
    let letters = letters(&gateway);
    assert_eq!(letters.len(), 2, "{letters:?}");
    for letter in &letters {
        assert_eq!(letter["type"], "gateway_failure", "{letter}");
    }

    // Committed documents stay committed.
    drop(gateway);
    let gateway = place.start();
    account(&queue(&gateway), "c0");
    gateway
        .admin()
        .send("POST", "/dead_letters/_replay?all=true", &[], b"")
        .unwrap()
        .ok()
        .unwrap();
    let one = wait(&gateway, "c0", |one| one["pending"] == 0 && one["dead"] == 0);
    assert_eq!(one["replayed"], 2, "{one}");
    let there = cluster.docs("logs");
    assert!(there.contains_key("poison-2") && there.contains_key("poison-3"));
}

/// A panic takes the same path in every build that unwinds: the code that catches it is the same, and
/// `wire::guard` asserts the rest at compile time. Only planted bugs differ, and no default enables them.
#[test]
fn every_profile_unwinds_and_no_release_has_planted_panics() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let text = std::fs::read_to_string(manifest).unwrap();
    let profiles = &text[text.find("[profile.").unwrap()..];
    let settings = profiles
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    for line in settings {
        assert!(!line.starts_with("panic"), "{line}");
        assert!(!line.starts_with("debug-assertions"), "{line}");
    }
    let manifest = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    let defaults = manifest.lines().find(|line| line.starts_with("default = "));
    assert_eq!(defaults, Some("default = [\"console\", \"kafka\"]"));
    const { assert!(cfg!(panic = "unwind")) };
}
