//! Another program takes over in the same process, under load: no request fails, no document is lost or
//! doubled, and if the new program cannot take over, the old one stays.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use testkit::client::Client;

use crate::changes::Stream;
use crate::gateway::{Gateway, cluster, program};
use crate::home::{GatewayHome, drained};

/// The line that each program logs once it serves.
const BEGUN: &str = "\"admin API listening\"";

/// Makes a copy of the program, to be replaced.
fn own_program(place: &GatewayHome) -> PathBuf {
    let path = place.folder().join("tidegate");
    replace(&path, &std::fs::read(program()).unwrap());
    path
}

/// Replaces a file as package managers do: a new file gets the name of the old one.
fn replace(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::PermissionsExt as _;
    let beside = path.with_extension("new");
    std::fs::write(&beside, bytes).unwrap();
    std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(beside, path).unwrap();
}

fn start(place: &GatewayHome, program: &Path) -> Gateway {
    Gateway::start_by(Command::new(program), &["--config", place.file.to_str().unwrap()])
}

/// Waits until the process has started this many programs.
fn begun(gateway: &Gateway, programs: usize) {
    let began = Instant::now();
    while gateway.log().matches(BEGUN).count() < programs {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", gateway.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs `tidegate upgrade`. Returns its status and its output.
fn asked(gateway: &Gateway) -> (Option<i32>, String) {
    let output = Command::new(program())
        .args(["upgrade", "--admin", &format!("http://{}", gateway.admin)])
        .output()
        .unwrap();
    let told = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(told).unwrap())
}

/// Clients of different speeds, each with one kept connection. They record every answer that was not good,
/// and how many documents were accepted.
struct Load {
    stop: AtomicBool,
    accepted: AtomicUsize,
    failed: Mutex<Vec<String>>,
}

impl Load {
    fn new() -> Self {
        Self {
            stop: AtomicBool::default(),
            accepted: AtomicUsize::default(),
            failed: Mutex::default(),
        }
    }

    fn write(&self, address: &str, client: usize, pause: Duration) {
        let http = Client::new(&format!("http://{address}")).unwrap();
        for bulk in 0.. {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let body: String = (0..10)
                .map(|doc| {
                    format!(
                        "{{\"create\":{{\"_index\":\"logs\",\"_id\":\"{client}-{bulk}-{doc}\"}}}}\n{{\"n\":{doc}}}\n"
                    )
                })
                .collect();
            match http.post_ndjson("/_bulk", body.as_bytes()) {
                Ok(answer) if answer.status == 200 => {
                    self.accepted.fetch_add(10, Ordering::Relaxed);
                }
                Ok(answer) => self.failed.lock().push(answer.text()),
                Err(error) => self.failed.lock().push(format!("{error:#}")),
            }
            std::thread::sleep(pause);
        }
    }
}

#[test]
fn a_new_program_takes_over_under_load_and_no_request_fails() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let path = own_program(&place);
    let mut gateway = start(&place, &path);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    let address = gateway.address.to_string();
    let load = Load::new();
    std::thread::scope(|scope| {
        for (client, pause) in [0, 1, 5, 150].into_iter().enumerate() {
            let (load, address) = (&load, &address);
            scope.spawn(move || load.write(address, client, Duration::from_millis(pause)));
        }
        for upgrade in 1..4 {
            std::thread::sleep(Duration::from_millis(400));
            // The upgrade is requested in each possible way: with its signal, with the reload signal and a
            // new file under the old name, and with the command.
            match upgrade {
                1 => gateway.signal("USR2"),
                2 => {
                    replace(&path, &std::fs::read(program()).unwrap());
                    gateway.signal("HUP");
                }
                _ => {
                    let (status, told) = asked(&gateway);
                    assert_eq!(status, Some(0), "{told}");
                    assert!(told.contains("runs in the place of"), "{told}");
                }
            }
            begun(&gateway, upgrade + 1);
        }
        std::thread::sleep(Duration::from_millis(400));
        load.stop.store(true, Ordering::Relaxed);
    });
    let failed = load.failed.into_inner();
    assert_eq!(failed, Vec::<String>::new(), "{}", gateway.log());
    let accepted = load.accepted.into_inner();
    assert!(accepted > 500, "{accepted}");
    // The ports are the same, since the sockets are.
    let one = drained(&gateway, "c0");
    assert_eq!((&one["dead"], &one["lost"]), (&0.into(), &0.into()));
    assert_eq!(cluster.docs("logs").len(), accepted, "each is there, once");
    gateway.signal("TERM");
    assert!(gateway.wait().success());
}

/// A signal that comes between two programs asks neither.
#[test]
fn signals_without_end_ask_for_one_upgrade_after_another() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let path = own_program(&place);
    let mut gateway = start(&place, &path);
    let began = Instant::now();
    while gateway.log().matches(BEGUN).count() < 5 {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", gateway.log());
        gateway.signal("USR2");
        gateway.signal("HUP");
        std::thread::sleep(Duration::from_millis(2));
    }
    gateway.bulk(&crate::gateway::body(10)).ok().unwrap();
    // The signal may come while one more program takes over: until that one listens to signals, they end it.
    gateway.signal("TERM");
    let ended = gateway.wait();
    assert!(ended.success() || ended.signal() == Some(15), "{ended}");
}

#[test]
fn a_program_that_is_not_fit_leaves_the_one_before() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let path = own_program(&place);
    let gateway = start(&place, &path);
    gateway.bulk(&crate::gateway::body(10)).ok().unwrap();

    // The new program fails its trial beside the old one, which does not even pause then.
    replace(&path, b"#!/bin/sh\necho 'of another machine' >&2\nexit 1\n");
    gateway.signal("HUP");
    let log = gateway.logged("no upgrade");
    assert!(log.contains("of another machine"), "{log}");
    let (status, told) = asked(&gateway);
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("of another machine"), "{told}");
    assert_eq!(log.matches("\"tidegate starts\"").count(), 1);
    gateway.bulk(&crate::gateway::body(20)).ok().unwrap();

    // The new program can use the configuration, but cannot read the queues, since it knows only another
    // format.
    let mut bytes = std::fs::read(program()).unwrap();
    let is_magic = |at: &usize| bytes[*at..].starts_with(b"TGLOG");
    let places: Vec<usize> = (0..bytes.len()).filter(is_magic).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at + 4] = b'X';
    }
    replace(&path, &bytes);
    let (status, told) = asked(&gateway);
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("was put back"), "{told}");
    begun(&gateway, 2);
    let log = gateway.log();
    assert!(log.contains("this program cannot take over"), "{log}");
    assert_eq!(log.matches("\"tidegate starts\"").count(), 3, "{log}");
    gateway.bulk(&crate::gateway::body(30)).ok().unwrap();
    assert_eq!(drained(&gateway, "c0")["indexed"], 60);
}

#[test]
fn a_stream_of_changes_ends_with_the_program_and_the_next_one_says_that_some_were_missed() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let mut stream = Stream::follow(gateway.admin);
    let (status, told) = asked(&gateway);
    assert_eq!(status, Some(0), "{told}");
    let end = stream.until(&json!({"kind": "end"}));
    assert_eq!(end["why"], "another program takes over; connect again");
    let target = format!("/changes?since={}", end["id"]);
    let (status, mut next) = Stream::ask(gateway.admin, &target, &[]);
    let missed = next.next().unwrap();
    assert_eq!(
        (status, &missed["kind"], &missed["reason"]),
        (200, &json!("missed"), &json!("restarted"))
    );
    assert!(missed["id"].as_u64() > end["id"].as_u64(), "{missed} after {end}");
}

/// The new program can use the configuration as it is written, and cannot be started with it: the program
/// before is put back with what was in force, and the file is refused as it would be by a reload.
#[test]
fn a_file_that_no_program_can_start_with_leaves_the_program_and_what_was_in_force() {
    let cluster = cluster();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for (says, instead) in [
        (
            "network: {binding: '127.0.0.1:0'}",
            format!("network: {{binding: '{address}'}}"),
        ),
        ("path.data: ", "path.data: /proc/nowhere".to_owned()),
    ] {
        let place = GatewayHome::before(&[&cluster], "");
        place.append("configs.auto_reload: false\n");
        let path = own_program(&place);
        let gateway = start(&place, &path);
        gateway.bulk(&crate::gateway::body(10)).ok().unwrap();
        place.replace(says, &instead);
        let (status, told) = asked(&gateway);
        assert_eq!(status, Some(1), "{told}{}", gateway.log());
        assert!(told.contains("was put back"), "{told}");
        begun(&gateway, 2);
        gateway.logged("with the configuration that was in force");
        // The signal for a reload does not try again what has failed.
        gateway.signal("HUP");
        gateway.logged("configuration not reloaded");
        assert_eq!(gateway.log().matches("\"tidegate starts\"").count(), 3);
        gateway.bulk(&crate::gateway::body(10)).ok().unwrap();
        assert_eq!(drained(&gateway, "c0")["indexed"], 20);
    }
}

/// A client that has sent a part of a head, or nothing of a handshake, holds up nobody.
#[test]
fn a_client_that_says_little_does_not_delay_the_end() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let mut gateway = start(&place, &own_program(&place));
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    let mut says_little = std::net::TcpStream::connect(gateway.address).unwrap();
    std::io::Write::write_all(&mut says_little, b"P").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}
