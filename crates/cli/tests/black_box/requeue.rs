//! A reload that changes queues and pipelines: what it may change, at once and without losing anything, and
//! what it refuses.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use crate::gateway::{Gateway, PATIENCE, body, cluster};
use crate::home::{GatewayHome, account, drained, queue};

/// Makes a home whose file is loaded only on request, not by itself.
fn place(clusters: &[&FakeCluster], queue: &str) -> GatewayHome {
    let place = GatewayHome::before(clusters, queue);
    let text = std::fs::read_to_string(&place.file).unwrap();
    std::fs::write(&place.file, text + "configs: {auto_reload: false}\n").unwrap();
    place
}

/// Changes the file, has it loaded, and waits until the log says so.
fn reload(gateway: &Gateway, place: &GatewayHome, changes: &[(&str, &str)], says: &str) -> String {
    let mut text = std::fs::read_to_string(&place.file).unwrap();
    let before = gateway.log().len();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}: {text}");
        text = text.replace(from, to);
    }
    std::fs::write(&place.file, text).unwrap();
    gateway.signal("HUP");
    let began = Instant::now();
    loop {
        let log = gateway.log()[before..].to_owned();
        if log.contains(says) {
            return log;
        }
        assert!(began.elapsed() < PATIENCE, "{says}: {log}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const DONE: &str = "configuration reloaded";

fn stats(gateway: &Gateway) -> Value {
    gateway.admin().get("/queue/stats").unwrap().json().unwrap()
}

fn down() -> Fault {
    Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    }
}

#[test]
fn a_queue_is_added_and_one_that_is_empty_removed() {
    let cluster = cluster();
    let place = place(&[&cluster], "");
    let gateway = place.start();
    gateway.bulk(&body(10)).ok().unwrap();
    drained(&gateway, "c0");
    // Another name means another queue; the first one is empty.
    let log = reload(&gateway, &place, &[("name: q,", "name: other,")], DONE);
    assert!(log.contains("other added") && log.contains("q removed"), "{log}");
    let all = stats(&gateway);
    assert_eq!(
        (all.get("q"), &all["other"]["accepted"]),
        (None, &json!(0)),
        "{all:#}"
    );
    gateway.bulk(&body(20)).ok().unwrap();
    let began = Instant::now();
    while stats(&gateway)["other"]["groups"]["c0"]["indexed"] != 20 {
        assert!(began.elapsed() < PATIENCE, "{}", gateway.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    // With the old name, it is the old queue again, with its numbers.
    reload(&gateway, &place, &[("name: other,", "name: q,")], DONE);
    assert_eq!(queue(&gateway)["accepted"], json!(10));
    gateway.bulk(&body(5)).ok().unwrap();
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(15));
}

/// A start with another number of lanes leaves a queue with those that it was made with.
#[test]
fn a_queue_with_other_lanes_than_its_file_says_keeps_no_reload_from_its_other_changes() {
    let cluster = cluster();
    let place = place(&[&cluster], "");
    let mut gateway = place.start();
    gateway.bulk(&body(10)).ok().unwrap();
    drained(&gateway, "c0");
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    let text = std::fs::read_to_string(&place.file).unwrap();
    std::fs::write(&place.file, text.replace("lanes: 4", "lanes: 6")).unwrap();
    let gateway = place.start();
    reload(&gateway, &place, &[("min_free: 1mb}", "min_free: 2mb}")], DONE);
    let says = "the lanes of the queue `q` are fixed when it is made";
    let log = reload(&gateway, &place, &[("lanes: 6", "lanes: 5")], says);
    assert!(!log.contains(DONE), "{log}");
    // What is in force may be written down.
    reload(&gateway, &place, &[("lanes: 5", "lanes: 4")], DONE);
    gateway.bulk(&body(10)).ok().unwrap();
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(20));
}

#[test]
fn a_queue_that_holds_something_stays_and_lanes_are_fixed() {
    let cluster = cluster();
    let place = place(&[&cluster], "");
    let gateway = place.start();
    cluster.inject(Injection::bulk(down()).always());
    gateway.bulk(&body(10)).ok().unwrap();
    let file = std::fs::read_to_string(&place.file).unwrap();
    let refused = |changes: &[(&str, &str)], says: &str| {
        let log = reload(&gateway, &place, changes, says);
        assert!(!log.contains(DONE), "{log}");
        std::fs::write(&place.file, &file).unwrap();
    };
    refused(
        &[("name: q,", "name: other,")],
        "has 10 documents that are not delivered",
    );
    refused(
        &[("lanes: 4", "lanes: 5")],
        "the lanes of the queue `q` are fixed when it is made",
    );
    refused(
        &[("min_free: 1mb}", "min_free: 1mb}, idempotency: {enabled: true}")],
        "`idempotency` of the queue `q` needs a restart",
    );
    refused(
        &[(place.data().to_str().unwrap(), "/tmp/elsewhere")],
        "another `path.data` needs a restart",
    );
    cluster.behave();
    assert_eq!(
        drained(&gateway, "c0")["indexed"],
        json!(10),
        "nothing has changed"
    );
    // Dead letters hold the queue too.
    cluster.inject(Injection::bulk(Fault::Items {
        every: 1,
        status: 400,
        error: r#"{"type":"mapper_parsing_exception","reason":"no"}"#.to_owned(),
    }));
    gateway.bulk(&body(1)).ok().unwrap();
    drained(&gateway, "c0");
    refused(&[("name: q,", "name: other,")], "has 1 dead letters");
    assert_eq!(account(&queue(&gateway), "c0")["dead"], json!(1));
}

#[test]
fn limits_of_a_queue_change_at_once() {
    let cluster = cluster();
    let place = place(&[&cluster], ", max_size: 256kb, fsync: os");
    let gateway = place.start();
    cluster.inject(Injection::bulk(down()).always());
    let mut accepted = 0;
    while gateway.bulk(&body(500)).status == 200 {
        accepted += 500;
    }
    let syncs = queue(&gateway)["syncs"].as_u64().unwrap();
    reload(
        &gateway,
        &place,
        &[("256kb, fsync: os", "64mb, fsync: always")],
        DONE,
    );
    for _ in 0..5 {
        gateway.bulk(&body(500)).ok().unwrap();
        accepted += 500;
    }
    let now = queue(&gateway);
    assert!(now["syncs"].as_u64().unwrap() >= syncs + 5, "{now:#}");
    assert_eq!(account(&now, "c0")["pending"], json!(accepted));
    reload(
        &gateway,
        &place,
        &[("64mb, fsync: always", "256kb, fsync: always")],
        DONE,
    );
    assert_eq!(
        gateway.bulk(&body(500)).status,
        429,
        "less than there is: nothing more, and nothing gone"
    );
    cluster.behave();
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(accepted));
}

#[test]
fn how_documents_are_packed_and_what_waits_for_a_queue_change_at_once() {
    let cluster = cluster();
    let place = place(&[&cluster], ", compression: none, passing: now");
    let gateway = place.start();
    cluster.inject(Injection::bulk(down()).always());
    let grown = || {
        let before = queue(&gateway)["bytes"].as_u64().unwrap();
        gateway.bulk(&body(500)).ok().unwrap();
        queue(&gateway)["bytes"].as_u64().unwrap() - before
    };
    let write = || {
        let body = b"{\"index\":{\"_index\":\"logs\",\"_id\":\"one\"}}\n{\"n\":1}\n";
        let headers = [
            ("content-type", "application/x-ndjson"),
            ("accept", "application/yaml"),
        ];
        let answer = gateway.client().send("POST", "/_bulk", &headers, body).unwrap();
        answer.text().contains("has not been delivered yet")
    };
    let plain = grown();
    assert!(!write(), "past the queue");
    let was = "compression: none, passing: now";
    let now = "compression: zstd, passing: wait, passing_timeout: 100ms";
    let log = reload(&gateway, &place, &[(was, now)], DONE);
    let packed = grown();
    assert!(3 * packed < plain, "{packed} of {plain}: {log}");
    assert!(write(), "behind what is queued");
    reload(&gateway, &place, &[(now, was)], DONE);
    assert!(grown() > 3 * packed);
    assert!(!write());
    cluster.behave();
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(1500), "both are read");
}

#[test]
fn pipelines_are_added_changed_and_removed() {
    let (primary, backup) = (
        cluster(),
        FakeCluster::start(Spec::default().index("logs", 2).storing()).unwrap(),
    );
    let place = place(&[&primary, &backup], "");
    let text = std::fs::read_to_string(&place.file).unwrap();
    let second = "  - {name: p1, retry_delay_in_ms: 20, processor: [{bulk_indexing: {elasticsearch: c1}}]}\n";
    std::fs::write(&place.file, text.replace(second, "")).unwrap();
    let gateway = place.start();
    gateway.bulk(&body(50)).ok().unwrap();
    drained(&gateway, "c0");
    // A second cluster is added, from the beginning, while the first one goes on.
    let log = reload(
        &gateway,
        &place,
        &[("elasticsearch:\n", &format!("{second}elasticsearch:\n"))],
        DONE,
    );
    assert!(log.contains("p1 added"), "{log}");
    assert_eq!(drained(&gateway, "c1")["indexed"], json!(50));
    gateway.bulk(&body(70)).ok().unwrap();
    assert_eq!(drained(&gateway, "c1")["indexed"], json!(120));
    // A pipeline is changed under load: what was sent counts, and nothing is sent twice or left out.
    primary.inject(Injection::bulk(Fault::Delay(Duration::from_millis(100))).times(4));
    gateway.bulk(&body(200)).ok().unwrap();
    let changed = [(
        "name: p0, retry_delay_in_ms: 20",
        "name: p0, retry_delay_in_ms: 30",
    )];
    let log = reload(&gateway, &place, &changed, DONE);
    assert!(log.contains("p0 changed"), "{log}");
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(320));
    assert_eq!(primary.counts().docs, 320);
    // What was stopped by hand stays stopped, and a removed group keeps its place.
    let stop = gateway
        .admin()
        .send("POST", "/pipeline/p0/_stop", &[], &[])
        .unwrap();
    stop.ok().unwrap();
    reload(
        &gateway,
        &place,
        &[("retry_delay_in_ms: 30", "retry_delay_in_ms: 40")],
        DONE,
    );
    gateway.bulk(&body(10)).ok().unwrap();
    drained(&gateway, "c1");
    assert_eq!(account(&queue(&gateway), "c0")["pending"], json!(10));
    reload(&gateway, &place, &[(second, "")], DONE);
    gateway.bulk(&body(10)).ok().unwrap();
    gateway
        .admin()
        .send("POST", "/pipeline/p0/_start", &[], &[])
        .unwrap()
        .ok()
        .unwrap();
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(340));
    assert_eq!(account(&queue(&gateway), "c1")["pending"], json!(10));
    assert_eq!(backup.counts().docs, 330);
}

/// A batch that takes longer than a reload waits keeps the reload from being done, and nothing else.
#[test]
fn a_pipeline_goes_on_after_a_reload_that_it_was_too_slow_for() {
    let cluster = cluster();
    let place = place(&[&cluster], "");
    let gateway = place.start();
    gateway.bulk(&body(10)).ok().unwrap();
    drained(&gateway, "c0");
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_secs(13))));
    gateway.bulk(&body(40)).ok().unwrap();
    let change = |from: u32, to: u32| {
        let delay = |ms| format!("name: p0, retry_delay_in_ms: {ms}");
        (delay(from), delay(to))
    };
    let (from, to) = change(20, 30);
    reload(&gateway, &place, &[(&from, &to)], "did not stop");
    gateway.bulk(&body(20)).ok().unwrap();
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(70));
    assert!(gateway.log().contains("begins anew"), "{}", gateway.log());
    // The same change is taken over now.
    let (from, to) = change(30, 40);
    reload(&gateway, &place, &[(&from, &to)], DONE);
    gateway.bulk(&body(30)).ok().unwrap();
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(100));
}

/// Whoever asks once more while the batch is still under way gets the pipeline started, too.
#[test]
fn a_reload_that_is_asked_for_again_while_a_batch_is_slow_leaves_its_pipeline_running() {
    let cluster = cluster();
    let place = place(&[&cluster], "");
    let gateway = place.start();
    gateway.bulk(&body(10)).ok().unwrap();
    drained(&gateway, "c0");
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_secs(14))));
    gateway.bulk(&body(40)).ok().unwrap();
    let (first, second) = (
        "name: p0, retry_delay_in_ms: 20",
        "name: p0, retry_delay_in_ms: 30",
    );
    let (over, slowest) = (AtomicBool::default(), Mutex::new(Duration::ZERO));
    std::thread::scope(|scope| {
        let _ends = Ends(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let began = Instant::now();
                gateway.admin().get("/metrics").unwrap().ok().unwrap();
                let mut slowest = slowest.lock();
                *slowest = slowest.max(began.elapsed());
            }
        });
        reload(&gateway, &place, &[(first, second)], "did not stop");
        reload(&gateway, &place, &[], DONE);
    });
    let slowest = *slowest.lock();
    assert!(
        slowest < Duration::from_secs(5),
        "the admin port waits for no reload: {slowest:?}"
    );
    gateway.bulk(&body(20)).ok().unwrap();
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(70));
}

#[test]
fn a_reload_that_fails_for_another_reason_leaves_queues_as_they_are() {
    let cluster = cluster();
    let place = place(&[&cluster], "");
    let gateway = place.start();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let entry = "entry: [{name: e,";
    let two = format!("entry: [{{name: f, router: r, network: {{binding: '{address}'}}}}, {{name: e,");
    let log = reload(
        &gateway,
        &place,
        &[("name: q,", "name: other,"), (entry, &two)],
        &address,
    );
    assert!(!log.contains(DONE), "{log}");
    gateway.bulk(&body(10)).ok().unwrap();
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(10));
    assert!(stats(&gateway).get("other").is_none());
    // The other entry can be opened all the same, once the address is free.
    drop(taken);
    gateway.signal("HUP");
    let began = Instant::now();
    while stats(&gateway).get("other").is_none() {
        assert!(began.elapsed() < PATIENCE, "{}", gateway.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Tells others to end once this is dropped, also by a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Until the reload, the queue's pipeline keeps up with its clients, but there is hardly a moment at which
/// nothing is pending.
#[test]
fn a_queue_is_removed_under_load_and_nothing_stays_behind_in_it() {
    let cluster = cluster();
    let place = place(&[&cluster], "");
    let gateway = place.start();
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_millis(30))).always());
    let over = AtomicBool::default();
    // Without ids, so that no document waits for an earlier one.
    let one = "{\"create\":{\"_index\":\"logs\"}}\n{\"n\":1}\n";
    let (accepted, told_to_come_again) = (AtomicU64::default(), AtomicU64::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(2));
                    let answer = gateway.bulk(&one.repeat(5));
                    match answer.status {
                        200 => accepted.fetch_add(5, Ordering::Relaxed),
                        503 => {
                            assert_eq!(answer.header("retry-after"), Some("1"), "{answer:?}");
                            told_to_come_again.fetch_add(1, Ordering::Relaxed)
                        }
                        _ => panic!("{answer:?}"),
                    };
                }
            });
        }
        let ends = Ends(&over);
        for round in 0..4 {
            let change = [("name: q,", "name: other,"), ("name: other,", "name: q,")][round % 2];
            reload(&gateway, &place, &[change], DONE);
            std::thread::sleep(Duration::from_millis(100));
        }
        drop(ends);
    });
    assert_eq!(drained(&gateway, "c0")["pending"], json!(0));
    let first = queue(&gateway)["accepted"].as_u64().unwrap();
    reload(&gateway, &place, &[("name: q,", "name: other,")], DONE);
    let other = stats(&gateway)["other"].clone();
    assert_eq!(
        first + other["accepted"].as_u64().unwrap(),
        accepted.load(Ordering::Relaxed)
    );
    assert_eq!(cluster.counts().docs, accepted.load(Ordering::Relaxed));
    assert!(
        !gateway.log().contains("is gone from the file"),
        "{}",
        gateway.log()
    );
}

#[test]
fn a_reload_that_fails_leaves_no_consumer_group_that_nobody_delivers_for() {
    let (primary, backup) = (cluster(), cluster());
    let place = place(&[&primary, &backup], "");
    let text = std::fs::read_to_string(&place.file).unwrap();
    let second = "  - {name: p1, retry_delay_in_ms: 20, processor: [{bulk_indexing: {elasticsearch: c1}}]}\n";
    std::fs::write(&place.file, text.replace(second, "")).unwrap();
    let gateway = place.start();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let entry = "entry: [{name: e,";
    let two = format!("entry: [{{name: f, router: r, network: {{binding: '{address}'}}}}, {{name: e,");
    let with_second = format!("{second}elasticsearch:\n");
    let changes = [
        (entry, two.as_str()),
        ("elasticsearch:\n", with_second.as_str()),
        (
            "name: p0, retry_delay_in_ms: 20",
            "name: p0, retry_delay_in_ms: 30",
        ),
    ];
    let log = reload(&gateway, &place, &changes, &address);
    assert!(!log.contains(DONE), "{log}");
    gateway.bulk(&body(10)).ok().unwrap();
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(10));
    let groups = queue(&gateway)["groups"].clone();
    assert!(groups.get("c1").is_none(), "{groups:#}");
    // Once it can be had, it begins with all that is there.
    drop(taken);
    reload(&gateway, &place, &[], DONE);
    assert_eq!(drained(&gateway, "c1")["indexed"], json!(10));
}
