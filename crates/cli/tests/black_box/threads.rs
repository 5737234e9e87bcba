//! No further thread is available, as under a container's limit on pids: what needs a thread is an error, and
//! the process goes on.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::gateway::{Gateway, body, cluster};
use crate::home::{GatewayHome, drained};

/// A user who runs nothing else on this machine: limits on threads are per user, and root has none.
const USER: u32 = 61_234;

/// Limits the threads of the user that a process runs as.
fn bound(gateway: &Gateway, threads: &str) {
    let pid = gateway.id().to_string();
    let done = Command::new("prlimit")
        .uid(USER)
        .gid(USER)
        .args(["--pid", &pid, &format!("--nproc={threads}")])
        .status();
    assert!(done.unwrap().success());
}

fn give(path: &Path) {
    chown(path, Some(USER), Some(USER)).unwrap();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path());
        }
    }
}

#[test]
fn no_request_ends_the_process_when_there_are_no_threads() {
    if std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() != 0) {
        eprintln!("skipped: only root can start it as somebody else");
        return;
    }
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    give(place.folder());
    let file = place.file.to_str().unwrap();
    let gateway = Gateway::start_as(&["--config", file], USER);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    bound(&gateway, "1:");
    gateway.bulk(&body(10)).ok().unwrap();
    drained(&gateway, "c0");

    let listed = gateway.admin().get("/dead_letters").unwrap();
    assert_eq!(listed.status, 503, "{}", listed.text());
    assert!(listed.text().contains("no thread"), "{}", listed.text());
    // A client's settings call that switches something.
    let settings = r#"{"index.direct_routing.enable": true}"#;
    let put = |settings: &str| {
        let headers = [("content-type", "application/json")];
        gateway
            .client()
            .send("PUT", "/logs/_settings", &headers, settings.as_bytes())
            .unwrap()
    };
    let switched = put(settings);
    assert_eq!(switched.status, 500, "{}", switched.text());
    assert!(switched.text().contains("no thread"), "{}", switched.text());
    for pipeline in ["stop", "start"] {
        // Stopping needs no thread, but starting does.
        gateway
            .admin()
            .send("POST", &format!("/pipeline/p0/_{pipeline}"), &[], b"")
            .unwrap();
    }

    gateway.bulk(&body(10)).ok().unwrap();
    bound(&gateway, "10000:");
    assert_eq!(gateway.admin().get("/dead_letters").unwrap().status, 200);
    assert_eq!(put(settings).status, 200);
}
