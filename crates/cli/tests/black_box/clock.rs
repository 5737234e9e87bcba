//! The time of day is set while a gateway runs: windows and ages have their length all the same.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::client::Answer;
use testkit::fake::{FakeCluster, Spec};

use crate::gateway::{Gateway, PATIENCE};
use crate::home::{GatewayHome, drained, wait};

/// The time of day of one gateway.
struct TimeOfDay {
    folder: tempfile::TempDir,
}

impl TimeOfDay {
    /// The system's time of day, until it is set.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("set_clock.c");
        fs::write(&source, include_str!("set_clock.c")).unwrap();
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-o"]);
        compile.arg(folder.path().join("set_clock.so")).arg(source);
        let output = compile.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        let time = Self { folder };
        fs::write(time.file(), 0_i64.to_ne_bytes()).unwrap();
        time
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("ahead_s")
    }

    /// Sets the clock this far ahead of the system's.
    fn set(&self, ahead_s: i64) {
        let file = OpenOptions::new().write(true).open(self.file()).unwrap();
        file.write_all_at(&ahead_s.to_ne_bytes(), 0).unwrap();
    }

    fn start(&self, place: &GatewayHome) -> Gateway {
        let (library, file) = (self.folder.path().join("set_clock.so"), self.file());
        let variables = [
            ("LD_PRELOAD", library.to_str().unwrap()),
            ("TIDEGATE_TEST_CLOCK", file.to_str().unwrap()),
        ];
        let gateway = Gateway::start_with(&["--config", place.file.to_str().unwrap()], &variables);
        gateway.wait_until("the topology is known", |status| status["state"] == "watching");
        gateway
    }
}

const HOUR_S: i64 = 3_600;

fn cluster() -> FakeCluster {
    FakeCluster::start(Spec::default().index("logs", 6).storing()).unwrap()
}

fn line(id: &str) -> String {
    format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"n\":1}}\n")
}

/// Returns when the last record of the queue was written, by the gateway's time of day.
fn last_ms(gateway: &Gateway) -> i64 {
    let page = gateway.admin().get("/queue/q/records?limit=1000").unwrap();
    let page = page.ok().unwrap().json().unwrap();
    page["records"].as_array().unwrap().last().unwrap()["time_ms"]
        .as_i64()
        .unwrap()
}

fn keyed(gateway: &Gateway, key: &str) -> (Answer, String) {
    let headers = [("content-type", "application/x-ndjson"), ("idempotency-key", key)];
    let answer = gateway
        .client()
        .send("POST", "/_bulk", &headers, line("k").as_bytes());
    let answer = answer.unwrap().ok().unwrap();
    let said = answer
        .header("x-tidegate-idempotency")
        .unwrap_or_default()
        .to_owned();
    (answer, said)
}

#[test]
fn the_window_of_an_idempotency_key_has_its_length_when_the_clock_is_set_back_or_forward() {
    let (cluster, time) = (cluster(), TimeOfDay::new());
    let place = GatewayHome::before(&[&cluster], "}, idempotency: {enabled: true, window: 10m");
    let gateway = time.start(&place);
    let (first, said) = keyed(&gateway, "forward");
    assert_eq!(said, "kept");
    let before = last_ms(&gateway);
    time.set(HOUR_S);
    gateway.bulk(&line("an hour later")).ok().unwrap();
    assert!(last_ms(&gateway) >= before + 1_000 * HOUR_S, "the clock was set");
    let (again, said) = keyed(&gateway, "forward");
    assert_eq!(
        (said.as_str(), again.text()),
        ("repeated", first.text()),
        "ten minutes have not passed"
    );
    drop(gateway);

    time.set(0);
    let place = GatewayHome::before(&[&cluster], "}, idempotency: {enabled: true, window: 2s");
    let gateway = time.start(&place);
    assert_eq!(keyed(&gateway, "back").1, "kept");
    let before = last_ms(&gateway);
    time.set(-HOUR_S);
    gateway.bulk(&line("an hour before")).ok().unwrap();
    assert!(last_ms(&gateway) < before, "the clock was set");
    let began = Instant::now();
    while keyed(&gateway, "back").1 != "kept" {
        assert!(began.elapsed() < PATIENCE, "the window is still open");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until parked operations of a key were tried two times more.
fn tried_twice(gateway: &Gateway) {
    let attempts = || {
        let listed = gateway.admin().get("/queue/q/parked").unwrap();
        let listed: Value = listed.ok().unwrap().json().unwrap();
        listed["groups"]["c0"]["keys"][0]["attempts"]
            .as_u64()
            .unwrap_or_default()
    };
    let (tried, began) = (attempts(), Instant::now());
    while attempts() < tried + 2 {
        let release = gateway.admin().send("POST", "/queue/q/parked/_release", &[], &[]);
        release.unwrap();
        assert!(began.elapsed() < PATIENCE, "it is not tried again");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn parked_operations_do_not_die_when_the_clock_is_set_forward() {
    let (cluster, time) = (cluster(), TimeOfDay::new());
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = time.start(&place);
    let error = r#"{"type":"cluster_block_exception","reason":"index [logs] blocked by: [FORBIDDEN/8/index write (api)];"}"#;
    cluster.refuse_writes("logs", Some((403, error)));
    for id in 0..10 {
        gateway.bulk(&line(&id.to_string())).ok().unwrap();
    }
    wait(&gateway, "c0", |one| one["parked"] == 10 && one["pending"] == 0);
    let before = last_ms(&gateway);
    // The longest that something is parked, and one hour more.
    time.set(25 * HOUR_S);
    gateway.bulk(&line("later")).ok().unwrap();
    assert!(last_ms(&gateway) >= before + 25_000 * HOUR_S, "the clock was set");
    tried_twice(&gateway);
    let one = wait(&gateway, "c0", |one| one["pending"] == 0);
    assert_eq!((&one["parked"], &one["dead"]), (&json!(11), &json!(0)), "{one}");
    let metrics = gateway.admin().get("/metrics").unwrap().text();
    let age = metrics
        .lines()
        .find_map(|line| line.strip_prefix("tidegate_queue_parked_seconds{"));
    let age: f64 = age.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(age < HOUR_S as f64, "{age}");
    // Nor if the clock was set while no gateway ran.
    drop(gateway);
    time.set(50 * HOUR_S);
    let gateway = time.start(&place);
    wait(&gateway, "c0", |one| one["parked"] == 11);
    tried_twice(&gateway);
    let one = wait(&gateway, "c0", |one| one["pending"] == 0);
    assert_eq!((&one["parked"], &one["dead"]), (&json!(11), &json!(0)), "{one}");
    cluster.refuse_writes("logs", None);
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(11), &json!(0)));
    assert_eq!(cluster.docs("logs").len(), 11);
}
