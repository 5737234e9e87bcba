//! `tidegate health`: what a container's health check reports.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use testkit::fake::FakeCluster;

use crate::gateway::{Gateway, PATIENCE, cluster};
use crate::home::GatewayHome;

fn health(admin: &str, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["health", "--admin", admin])
        .args(more)
        .env_remove("TIDEGATE_ADMIN_TOKEN")
        .output()
        .unwrap()
}

/// Asks until the command ends with this status.
fn until(admin: &str, status: i32) -> Output {
    let began = Instant::now();
    loop {
        let output = health(admin, &[]);
        if output.status.code() == Some(status) {
            return output;
        }
        assert!(began.elapsed() < PATIENCE, "{}", said(&output));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat()).into_owned()
}

#[test]
fn a_gateway_that_is_ready_one_that_is_not_and_one_that_is_away_are_told_apart() {
    let well = cluster();
    let gateway = Gateway::before(&well);
    let admin = format!("http://{}", gateway.admin);
    let output = until(&admin, 0);
    assert_eq!(said(&output).trim(), "ready");
    let output = health(&admin, &["--live", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    drop(well);
    // The nodes are found to be down one by one, and the cluster before or after them.
    gateway.wait_until("the cluster is away", |status| status["state"] == "unreachable");
    let output = until(&admin, 1);
    assert!(said(&output).contains("does not answer"), "{}", said(&output));
    assert_eq!(health(&admin, &["--live"]).status.code(), Some(0));
    drop(gateway);
    let output = health(&admin, &["--live"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
}

#[test]
fn the_token_is_asked_for_and_taken_from_a_file() {
    let cluster: FakeCluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let text = std::fs::read_to_string(&place.file).unwrap();
    let text = text.replace(
        "admin: {binding: '127.0.0.1:0'}",
        "admin: {binding: '127.0.0.1:0', token: open-sesame-9}",
    );
    std::fs::write(&place.file, text).unwrap();
    let gateway = Gateway::start(&["--config", place.file.to_str().unwrap()]);
    let admin = format!("http://{}", gateway.admin);
    let output = health(&admin, &["--live"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("token"), "{}", said(&output));
    let token = place.folder().join("token");
    std::fs::write(&token, "open-sesame-9\n").unwrap();
    let output = health(&admin, &["--live", "--token-file", token.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}
