//! Queues that are exported and imported: nothing is lost or doubled, whatever is killed in between.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use crate::gateway::Gateway;
use crate::home::{GatewayHome, account, drained, queue, wait};

fn tidegate(words: &[&str]) -> Command {
    let mut command = Command::new(crate::gateway::program());
    command.args(words);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat()).into_owned()
}

/// Runs the command, requires this status, and returns what it printed.
fn ran(words: &[&str], status: i32) -> String {
    let output = tidegate(words).output().unwrap();
    assert_eq!(output.status.code(), Some(status), "{words:?}: {}", said(&output));
    said(&output)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn storing() -> FakeCluster {
    FakeCluster::start(Spec::default().index("logs", 6).index("other", 2).storing()).unwrap()
}

/// Returns documents of a kilobyte each.
fn documents(of: std::ops::Range<u32>) -> String {
    let filler = "x".repeat(1000);
    let one = |id| {
        format!(
            "{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"n\":{id},\"filler\":\"{filler}\"}}\n"
        )
    };
    of.map(one).collect()
}

fn letters(gateway: &Gateway) -> Value {
    let listed = gateway
        .admin()
        .get("/dead_letters?queue=q&limit=100")
        .unwrap()
        .ok()
        .unwrap();
    listed.json().unwrap()["dead_letters"].clone()
}

/// Fills a gateway with a queue for two clusters: dead letters of the first one, and a backlog for both. The
/// gateway is then stopped. Returns the letters.
fn filled(place: &GatewayHome, clusters: [&FakeCluster; 2]) -> Value {
    let gateway = place.start();
    let unfit = Fault::Items {
        every: 1,
        status: 400,
        error: r#"{"type":"mapper_parsing_exception","reason":"failed to parse field [n]"}"#.to_owned(),
    };
    clusters[0].inject(Injection::bulk(unfit).always());
    gateway.bulk(&documents(0..20)).ok().unwrap();
    drained(&gateway, "c0");
    drained(&gateway, "c1");
    for cluster in clusters {
        cluster.behave();
        let away = Fault::Status {
            status: 503,
            body: "{}".to_owned(),
        };
        cluster.inject(Injection::bulk(away).always());
    }
    for part in 1..=6 {
        gateway
            .bulk(&documents(part * 1000..part * 1000 + 500))
            .ok()
            .unwrap();
    }
    let letters = letters(&gateway);
    assert_eq!(letters.as_array().unwrap().len(), 20);
    let mut gateway = gateway;
    gateway.signal("TERM");
    assert!(gateway.wait().success(), "{}", gateway.log());
    letters
}

/// Starts a command and kills it as soon as it writes a segment of the queue's log.
fn killed_while_writing(words: &[&str], below: &Path) {
    let mut child = tidegate(words).stdout(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    let begun = |file: &PathBuf| text(file).contains("/queue/") && text(file).ends_with(".segment.part");
    while !files(below).iter().any(begun) {
        assert!(child.try_wait().unwrap().is_none(), "{words:?} ended too early");
        assert!(began.elapsed() < Duration::from_secs(60), "{words:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => files(&path),
            false => vec![path],
        })
        .collect()
}

/// Checks that all documents of [`filled`] are delivered from here, to both clusters, and that the letters
/// are the same.
fn delivers_all(place: &GatewayHome, clusters: [&FakeCluster; 2], letters_before: &Value) {
    for cluster in clusters {
        cluster.behave();
    }
    let gateway = place.start();
    let first = drained(&gateway, "c0");
    let second = drained(&gateway, "c1");
    assert_eq!((&first["indexed"], &first["dead"]), (&json!(3000), &json!(20)));
    assert_eq!((&second["indexed"], &second["dead"]), (&json!(3020), &json!(0)));
    assert_eq!(&letters(&gateway), letters_before);
    assert_eq!(
        [clusters[0].docs("logs").len(), clusters[1].docs("logs").len()],
        [3000, 3020]
    );
    // Letters can be replayed in their new place.
    let replayed = gateway
        .admin()
        .send("POST", "/dead_letters/_replay?all=true", &[], b"");
    replayed.unwrap().ok().unwrap();
    wait(&gateway, "c0", |one| {
        one["pending"] == 0 && one["indexed"] == 3020
    });
    assert_eq!(clusters[0].docs("logs").len(), 3020);
}

#[test]
fn a_queue_is_moved_with_its_groups_and_letters_though_both_ends_are_killed_half_way() {
    let clusters = [storing(), storing()];
    let both = [&clusters[0], &clusters[1]];
    let (old, new) = (GatewayHome::before(&both, ""), GatewayHome::before(&both, ""));
    let letters = filled(&old, both);
    let export = old.folder().join("export");
    let file = text(&old.file);

    let slowly = [
        "queue",
        "export",
        "q",
        "--config",
        file,
        "--move",
        "--rate",
        "1mb",
        "--to",
        text(&export),
    ];
    killed_while_writing(&slowly, &export);
    assert!(!export.join("EXPORT").exists());
    let unfinished = ran(
        &["queues", "import", text(&export), "--config", text(&new.file)],
        1,
    );
    assert!(unfinished.contains("not finished"), "{unfinished}");
    let told = ran(
        &[
            "queues",
            "export",
            "q",
            "--json",
            "--config",
            file,
            "--move",
            "--to",
            text(&export),
        ],
        0,
    );
    let told: Value = serde_json::from_str(&told).unwrap();
    assert!(told["were_there"].as_u64().unwrap() > 0, "{told}");
    assert!(
        ran(
            &["queues", "export", "q", "--config", file, "--to", text(&export)],
            1
        )
        .contains("already")
    );
    let refused = ran(&["gateway", "--config", file], 3);
    assert!(refused.contains("to be delivered elsewhere"), "{refused}");

    // It was killed between its last two steps: the queue may still be delivered here.
    std::fs::remove_file(old.data().join("queue/q/MOVED")).unwrap();
    std::fs::write(export.join("EXPORTING"), "").unwrap();
    let unfinished = ran(
        &["queues", "import", text(&export), "--config", text(&new.file)],
        1,
    );
    assert!(unfinished.contains("not finished"), "{unfinished}");
    let again = [
        "queues",
        "export",
        "q",
        "--config",
        file,
        "--move",
        "--to",
        text(&export),
    ];
    ran(&again, 0);
    let refused = ran(&["gateway", "--config", file], 3);
    assert!(refused.contains("to be delivered elsewhere"), "{refused}");

    let slowly = [
        "queues",
        "import",
        text(&export),
        "--config",
        text(&new.file),
        "--rate",
        "1mb",
    ];
    killed_while_writing(&slowly, &new.data());
    let refused = ran(&["gateway", "--config", text(&new.file)], 3);
    assert!(refused.contains("its import is not finished"), "{refused}");
    let told = ran(
        &[
            "queues",
            "import",
            text(&export),
            "--json",
            "--config",
            text(&new.file),
        ],
        0,
    );
    let told: Value = serde_json::from_str(&told).unwrap();
    assert!(
        told["were_there"].as_u64().unwrap() > 0 && told["sound"] == true,
        "{told}"
    );
    let again = ran(
        &["queues", "import", text(&export), "--config", text(&new.file)],
        1,
    );
    assert!(again.contains("a queue q exists already"), "{again}");
    delivers_all(&new, both, &letters);
}

#[test]
fn a_damaged_export_is_refused_before_anything_of_it_is_written() {
    let clusters = [storing(), storing()];
    let both = [&clusters[0], &clusters[1]];
    let (old, new) = (GatewayHome::before(&both, ""), GatewayHome::before(&both, ""));
    filled(&old, both);
    let export = old.folder().join("export");
    ran(
        &[
            "queues",
            "export",
            "q",
            "--data",
            text(&old.data()),
            "--to",
            text(&export),
        ],
        0,
    );
    let refused = |file: &Path, bytes: &[u8]| {
        let before = std::fs::read(file).unwrap();
        std::fs::write(file, bytes).unwrap();
        let told = ran(
            &["queues", "import", text(&export), "--data", text(&new.data())],
            1,
        );
        assert!(files(&new.data()).is_empty(), "{told}");
        std::fs::write(file, before).unwrap();
        told
    };
    for file in files(&export) {
        let mut bytes = std::fs::read(&file).unwrap();
        if bytes.is_empty() {
            continue;
        }
        let cut = refused(&file, &bytes[..bytes.len() - 1]);
        bytes[0] ^= 1;
        for told in [cut, refused(&file, &bytes)] {
            assert!(told.contains("damaged") && told.contains(text(&file)), "{told}");
        }
    }
    let list = export.join("EXPORT");
    let other = std::fs::read_to_string(&list)
        .unwrap()
        .replace("\"format\": 1", "\"format\": 2");
    assert!(
        refused(&list, other.as_bytes()).contains("damaged"),
        "its checksum is another one"
    );
    let letters = export.join("queue/LOG");
    let kept = std::fs::read(&letters).unwrap();
    std::fs::remove_file(&letters).unwrap();
    let told = ran(
        &["queues", "import", text(&export), "--data", text(&new.data())],
        1,
    );
    assert!(
        told.contains("queue/LOG is missing") && files(&new.data()).is_empty(),
        "{told}"
    );
    std::fs::write(&letters, kept).unwrap();
    ran(
        &[
            "queues",
            "import",
            text(&export),
            "--data",
            text(&new.data()),
            "--as",
            "q2",
        ],
        0,
    );
    assert!(new.data().join("queue/q2/LOG").exists() && new.data().join("whereabouts/q2.jsonl").exists());
}

#[test]
fn what_cannot_be_exported_is_said() {
    let clusters = [storing(), storing()];
    let both = [&clusters[0], &clusters[1]];
    let place = GatewayHome::before(&both, "");
    let gateway = place.start();
    gateway.bulk(&documents(0..5)).ok().unwrap();
    drained(&gateway, "c0");
    let (file, export) = (text(&place.file), place.folder().join("export"));
    let running = ran(
        &["queues", "export", "q", "--config", file, "--to", text(&export)],
        3,
    );
    assert!(running.contains("stop it first") && !export.exists(), "{running}");
    assert_eq!(
        account(&queue(&gateway), "c0")["indexed"],
        json!(5),
        "it was not disturbed"
    );
    drop(gateway);
    assert!(
        ran(
            &[
                "queues",
                "export",
                "none",
                "--config",
                file,
                "--to",
                text(&export)
            ],
            1
        )
        .contains("no queue none")
    );
    std::fs::create_dir(&export).unwrap();
    std::fs::write(export.join("mine"), "").unwrap();
    let other = ran(
        &["queues", "export", "q", "--config", file, "--to", text(&export)],
        3,
    );
    assert!(other.contains("contains other files"), "{other}");
    ran(&["queues", "export", "q", "--to", text(&export)], 2);
}

/// Runs the commands of the drill in docs/operate.md, word for word except for names of hosts and folders.
#[test]
fn the_disaster_drill_of_the_documentation_loses_nothing() {
    let clusters = [storing(), storing()];
    let both = [&clusters[0], &clusters[1]];
    let (old, new) = (GatewayHome::before(&both, ""), GatewayHome::before(&both, ""));
    let letters = filled(&old, both);
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate.md")).unwrap();
    let (_, drill) = page.split_once("### A disaster drill\n").unwrap();
    let drill = drill.split_once("\n#").map_or(drill, |(drill, _)| drill);
    let commands = drill.lines().filter_map(|line| line.strip_prefix("    "));
    let (here, there) = (old.folder().join("backup"), new.folder().join("backup"));
    let mut hosts = [(&old, &here), (&new, &there)].into_iter();
    let mut host = hosts.next().unwrap();
    let mut ran_any = 0;
    for command in commands {
        if command.starts_with("rsync ") {
            let copied = Command::new("cp")
                .arg("-a")
                .args([&here, &there])
                .status()
                .unwrap();
            assert!(copied.success());
            host = hosts.next().unwrap();
        } else if command.starts_with("tidegate ") {
            let words = command.split('#').next().unwrap();
            let words = words
                .replace("/etc/tidegate/tidegate.yml", text(&host.0.file))
                .replace("/var/backups/q", text(host.1));
            let words: Vec<&str> = words.split_whitespace().skip(1).collect();
            ran(&words, 0);
            ran_any += 1;
        } else {
            assert!(command.starts_with("systemctl "), "{command}");
        }
    }
    assert!(ran_any >= 3, "{drill}");
    delivers_all(&new, both, &letters);
}
