//! Files of queues outlive the version that wrote them: `tests/queues` has a folder for each format that was
//! ever released, which is read and delivered. A newer format is refused with a clear message, and left as it
//! is.
//!
//! A version that changes the files on disk adds a folder and leaves the others: set `TIDEGATE_TEST_KEEP` to
//! the folder's path, and run the first test once.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use testkit::fake::{Behaviour, FakeCluster, Fault, Injection, Spec, Unfit};

use crate::gateway::{Gateway, body};
use crate::home::{GatewayHome, account, drained, queue, wait};

const UNFIT: &str = r#"{"type":"mapper_parsing_exception","reason":"no number"}"#;
const BLOCKED: &str = r#"{"type":"cluster_block_exception","reason":"index [blocked] blocked by: [FORBIDDEN/8/index write (api)];"}"#;
/// The longest possible time; documents parked in older files become dead letters.
const QUEUE: &str = ", parked_max_age: 8700h";

fn picky() -> FakeCluster {
    let behaviour = Behaviour {
        unfit: Some(Unfit {
            holds: "\"n\":\"".to_owned(),
            status: 400,
            error: UNFIT.to_owned(),
        }),
        ..Behaviour::default()
    };
    let spec = Spec {
        behaviour,
        ..Spec::default()
    };
    FakeCluster::start(spec.index("logs", 6).index("blocked", 6).storing()).unwrap()
}

fn some(name: &str, docs: usize) -> String {
    body(docs).replace("\"_id\":\"", &format!("\"_id\":\"{name}-"))
}

/// Makes every kind of file: 9 documents delivered, one dead, 5 parked, and 30 pending, a third with each
/// compression. A kill leaves the last ones.
fn make(folder: &Path) {
    let cluster = picky();
    let place = GatewayHome::before(&[&cluster], &format!("{QUEUE}, compression: none"));
    cluster.refuse_writes("blocked", Some((403, BLOCKED)));
    let gateway = place.start();
    let unfit = some("first", 10).replacen("\"n\":0}", "\"n\":\"x\"}", 1);
    gateway.bulk(&unfit).ok().unwrap();
    let parked = some("parked", 5).replace("\"_index\":\"logs\"", "\"_index\":\"blocked\"");
    gateway.bulk(&parked).ok().unwrap();
    wait(&gateway, "c0", |one| one["pending"] == 0 && one["parked"] == 5);
    let away = Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::bulk(away).always());
    let mut gateway: Option<Gateway> = Some(gateway);
    for packed in ["none", "lz4", "zstd"] {
        let mut before = gateway.take().unwrap();
        before.signal("TERM");
        assert!(before.wait().success());
        let text = std::fs::read_to_string(&place.file).unwrap();
        let now = text
            .split("compression: ")
            .nth(1)
            .unwrap()
            .split('}')
            .next()
            .unwrap();
        let text = text.replace(&format!("compression: {now}"), &format!("compression: {packed}"));
        std::fs::write(&place.file, text).unwrap();
        let started = place.start();
        started.bulk(&some(packed, 10)).ok().unwrap();
        gateway = Some(started);
    }
    let gateway = gateway.unwrap();
    let one = account(&queue(&gateway), "c0");
    assert_eq!((&one["pending"], &one["dead"]), (&json!(30), &json!(1)));
    gateway.signal("KILL");
    drop(gateway);
    copy(&place.data(), folder);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    let done = Command::new("cp")
        .args(["-r", "--sparse=always"])
        .arg(from)
        .arg(to)
        .status();
    assert!(done.unwrap().success());
}

/// A gateway with a copy of this data delivers everything that can be delivered.
fn read(data: &Path) {
    let cluster = picky();
    cluster.refuse_writes("blocked", Some((403, BLOCKED)));
    let place = GatewayHome::before(&[&cluster], QUEUE);
    copy(data, &place.data());
    let gateway = place.start();
    let one = wait(&gateway, "c0", |one| one["pending"] == 0);
    let number = |state: &str| one[state].as_u64().unwrap();
    let (parked, found) = (
        number("parked"),
        [
            number("indexed"),
            number("dead") + number("parked"),
            number("lost"),
        ],
    );
    assert_eq!(found, [39, 6, 0], "{}: {one}", data.display());
    let there = cluster.docs("logs");
    for packed in ["none", "lz4", "zstd"] {
        for n in 0..10 {
            assert!(
                there.contains_key(&format!("{packed}-{n}")),
                "{packed}-{n}: {:?}",
                there.keys()
            );
        }
    }
    let letters = gateway.admin().get("/dead_letters").unwrap().ok().unwrap().text();
    assert!(
        letters.contains("no number") && letters.contains("first-0"),
        "{letters}"
    );
    if parked == 0 {
        return;
    }
    assert_eq!(parked, 5);
    cluster.refuse_writes("blocked", None);
    let released = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "queues",
            "parked",
            "q",
            "--release",
            "--admin",
            &format!("http://{}", gateway.admin),
        ])
        .output()
        .unwrap();
    assert!(
        released.status.success(),
        "{}",
        String::from_utf8_lossy(&released.stderr)
    );
    assert_eq!(drained(&gateway, "c0")["indexed"], json!(44));
    assert_eq!(cluster.docs("blocked").len(), 5);
}

#[test]
fn files_that_this_version_writes_are_read_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    make(&data);
    if let Some(kept) = std::env::var_os("TIDEGATE_TEST_KEEP") {
        copy(&data, Path::new(&kept));
    }
    read(&data);
}

#[test]
fn files_of_every_version_before_are_read() {
    let kept: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/queues");
    let mut formats = 0;
    for format in std::fs::read_dir(kept).unwrap() {
        read(&format.unwrap().path());
        formats += 1;
    }
    assert!(formats > 0);
}

#[test]
fn files_of_the_next_version_are_refused_with_a_clear_word_and_left_as_they_are() {
    let cluster = picky();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    gateway.bulk(&body(10)).ok().unwrap();
    drained(&gateway, "c0");
    drop(gateway);
    let log = place.data().join("queue/q/LOG");
    let mut next = std::fs::read(&log).unwrap();
    assert_eq!(next[5], 1, "the present format");
    next[5] = 2;
    std::fs::write(&log, &next).unwrap();
    let list = || {
        let script = format!(
            "cd '{}' && find . -type f ! -name LOCK -exec sha256sum {{}} + | sort",
            place.data().display()
        );
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(output.status.success());
        output.stdout
    };
    let before = list();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["gateway", "--config", place.file.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(
        told.contains("newer version of Tidegate") && told.contains("queue/q/LOG"),
        "{told}"
    );
    assert_eq!(list(), before);
}
