//! What the command line of `tidegate gateway` takes, refuses, and says.

use std::io::Write as _;
use std::process::{Command, Output};

use testkit::fake::{FakeCluster, Spec};

use crate::gateway::{Gateway, body};

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("gateway")
        .args(arguments)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn mistakes_are_told_in_the_words_of_the_command_line() {
    for (arguments, code, told) in [
        (
            &[][..],
            2,
            "give --config FILE or --cluster URL, or set TIDEGATE_CLUSTER",
        ),
        (&["-config", "/no/such.yml"], 1, "can't be read"),
        (
            &["--cluster", "http://a:1", "--listen", "8000"],
            2,
            "`8000` has no port; write it as `0.0.0.0:8000`",
        ),
        (
            &["--cluster", "http://a:1", "--listen", "es.example:8000"],
            2,
            "is not an address and port",
        ),
        (
            &["--config", "a.yml", "--cluster", "http://a:1"],
            2,
            "cannot be used with",
        ),
        (
            &["--config", "a.yml", "--listen", "127.0.0.1:1"],
            2,
            "cannot be used with",
        ),
        (&["--config", "/no/such.yml"], 1, "can't be read"),
        (
            &["--config", "a.yml", "--insecure"],
            2,
            "the file says these for each cluster",
        ),
        (&["--cluster", "nonsense"], 2, "--cluster: has no `http://`"),
        (
            &["--cluster", "https://a:1", "--ca", "/no/such.pem"],
            2,
            "--ca: `/no/such.pem`",
        ),
        (
            &["--cluster", "http://a:1", "--user", "u"],
            2,
            "TIDEGATE_PASSWORD",
        ),
        (
            &["--cluster", "http://a:1", "--password-file", "f"],
            2,
            "TIDEGATE_USER",
        ),
        (
            &["--cluster", "http://a:1", "--share-account"],
            2,
            "--share-account needs an account",
        ),
    ] {
        let (status, stderr) = run(arguments, &[]);
        assert_eq!(status, Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(told), "{arguments:?}: {stderr}");
    }
}

#[test]
fn an_account_in_the_environment_does_not_stand_in_the_way_of_a_file() {
    let (status, stderr) = run(
        &["--config", "/no/such.yml"],
        &[("TIDEGATE_USER", "u"), ("TIDEGATE_PASSWORD", "p")],
    );
    assert_eq!(status, Some(1));
    assert!(stderr.contains("can't be read"), "{stderr}");
}

#[test]
fn an_open_door_is_warned_of_in_words_that_fit_the_command_line() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 6).basic_auth("u", "p")).unwrap();
    let url = cluster.urls()[0].replace("http://", "http://u:p@");
    let gateway = Gateway::start(&[
        "--cluster",
        &url,
        "--share-account",
        "--listen",
        "0.0.0.0:0",
        "--admin",
        "127.0.0.1:0",
    ]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    let log = gateway.log();
    assert!(log.contains("ANYONE who reaches entry"), "{log}");
    assert!(
        log.contains("leave out `--share-account`") && !log.contains("anonymous: pass"),
        "{log}"
    );
    assert!(log.contains("\"key\":\"--share-account\""), "{log}");
    assert!(
        log.contains("tidegate starts") && log.contains(env!("CARGO_PKG_VERSION")),
        "{log}"
    );
    let own = testkit::client::Client::new(&format!("http://127.0.0.1:{}", gateway.address.port())).unwrap();
    own.post_ndjson("/_bulk", body(3).as_bytes())
        .unwrap()
        .ok()
        .unwrap();
}

#[test]
fn listeners_may_be_written_as_people_write_them_and_the_cluster_may_be_in_the_environment() {
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    for (listen, bound) in [
        (":0", "0.0.0.0:"),
        ("localhost:0", "127.0.0.1:"),
        ("*:0", "0.0.0.0:"),
    ] {
        let url = &cluster.urls()[0];
        let variables = [("TIDEGATE_CLUSTER", url.as_str())];
        let gateway = Gateway::start_with(&["-listen", listen, "-admin", "localhost:0"], &variables);
        gateway.wait_until("the topology is known", |status| status["state"] == "watching");
        assert!(
            gateway.address.to_string().starts_with(bound),
            "{listen}: {}",
            gateway.address
        );
    }
}

/// Runs `tidegate`; its status and what it complained of.
fn tidegate(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn what_cannot_be_reached_is_said_once_and_in_words() {
    for command in [
        &["queues", "list"][..],
        &["pipelines", "list"],
        &["dead-letters", "list"],
        &["switch", "list"],
    ] {
        let (status, said) = tidegate(&[command, &["--admin", "http://127.0.0.1:9"]].concat());
        assert_eq!(status, Some(3), "{command:?}: {said}");
        assert!(
            said.contains("no gateway answers at http://127.0.0.1:9"),
            "{said}"
        );
        assert!(said.matches("efused").count() <= 1, "{command:?}: {said}");
    }
}

#[test]
fn plain_http_where_tls_is_spoken_and_the_other_way_round_is_said_so() {
    let secure = FakeCluster::start(Spec::default().tls()).unwrap();
    // As servers that speak HTTP in clear answer to what is no HTTP.
    let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let plain_url = format!("https://{}", plain.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut socket in plain.incoming().map_while(Result::ok) {
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    for (url, told) in [
        (
            secure.urls()[0].replacen("https", "http", 1),
            "should begin with https://",
        ),
        (plain_url, "should the URL begin with http://"),
        (secure.urls()[0].clone(), "name the one that did"),
    ] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), body(1)).unwrap();
        let (status, said) = tidegate(&["explain", file.path().to_str().unwrap(), "--cluster", &url]);
        assert_eq!(status, Some(3), "{url}: {said}");
        assert!(said.contains(told), "{url}: {said}");
    }
}

#[test]
fn every_command_tells_its_version() {
    for command in [
        &["gateway"][..],
        &["explain"],
        &["check"],
        &["config", "show"],
        &["loadgen"],
        &["compare"],
        &["diff"],
        &["sink"],
        &["log", "check"],
        &["switch", "list"],
        &["dead-letters", "list"],
        &["pipelines", "list"],
        &["queues", "list"],
    ] {
        for flag in ["-V", "--version", "-version"] {
            let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
                .args(command)
                .arg(flag)
                .output()
                .unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(0), "{command:?} {flag}");
            assert!(
                said.trim_end().ends_with(env!("CARGO_PKG_VERSION")),
                "{command:?} {flag}: {said}"
            );
        }
    }
}
