//! What the command line of `tidegate gateway` accepts, refuses, and prints.

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
            "the file sets these for each cluster",
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

/// Runs `tidegate`. Returns its status and what it complained about.
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
        assert!(
            said.contains("nothing listens there") && !said.contains("os error"),
            "{command:?}: {said}"
        );
    }
}

#[test]
fn plain_http_where_tls_is_spoken_and_the_other_way_round_is_said_so() {
    let secure = FakeCluster::start(Spec::default().tls()).unwrap();
    // This is how servers with plain HTTP answer something that is not HTTP.
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

/// Makes a certificate with its key, and an authority, as files.
fn certificates(folder: &std::path::Path) {
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let one = FakeCluster::start(Spec::default().tls()).unwrap();
    let other = FakeCluster::start(Spec::default().tls()).unwrap();
    write("cert.pem", one.ca_pem().unwrap());
    write("cert.key", one.key_pem().unwrap());
    write("other.key", other.key_pem().unwrap());
}

#[test]
fn tls_files_that_cannot_be_used_are_told_by_check_and_at_the_start_with_the_file_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    for (entry, cluster, told) in [
        (
            "cert_file: cert.pem, key_file: other.key",
            "",
            "1:67: error: entry[0].tls: entry 'e': `cert.pem` and `other.key`: the private key does not belong to the certificate",
        ),
        (
            "cert_file: cert.key, key_file: cert.key",
            "",
            "entry 'e': `cert.key`: certificate: no certificate found; the file is to have a part that begins with `-----BEGIN CERTIFICATE-----`",
        ),
        (
            "cert_file: cert.pem, key_file: cert.pem",
            "",
            "entry 'e': `cert.pem`: private key: no private key found; the file is to have a part that begins with `-----BEGIN PRIVATE KEY-----`",
        ),
        (
            "cert_file: cert.pem, key_file: cert.key",
            ", tls.ca_file: cert.key",
            "error: elasticsearch[0]: TLS: cert.key: CA: no certificate found",
        ),
    ] {
        let file = folder.path().join("gateway.yml");
        let text = format!(
            "entry: [{{name: e, router: r, network.binding: '127.0.0.1:0', tls: {{enabled: true, {entry}}}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{elasticsearch: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: 'https://127.0.0.1:9'{cluster}}}]
"
        );
        std::fs::write(&file, text).unwrap();
        for command in [&["check"][..], &["gateway", "-config"]] {
            let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
                .args(command)
                .arg("gateway.yml")
                .current_dir(folder.path())
                .output()
                .unwrap();
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(said.contains(told), "{command:?} {entry}: {said}");
            assert_eq!(output.status.code(), Some(1), "{command:?} {entry}: {said}");
        }
    }
}

#[test]
fn an_authority_s_own_certificate_is_told_of_in_words_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=localhost",
        ])
        .args([
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:TRUE",
        ])
        .args(["-keyout", &path("ca.key"), "-out", &path("ca.pem")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    let text = format!(
        "entry: [{{name: e, router: r, network.binding: '127.0.0.1:0', tls: {{enabled: true, cert_file: '{}', key_file: '{}'}}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{elasticsearch: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}'}}]
admin.binding: 127.0.0.1:0
",
        path("ca.pem"),
        path("ca.key"),
        cluster.urls()[0]
    );
    std::fs::write(path("gateway.yml"), text).unwrap();
    let gateway = Gateway::start(&["--config", &path("gateway.yml")]);
    let url = format!("https://{}", gateway.address);
    std::fs::write(path("b.ndjson"), body(1)).unwrap();
    let load = format!("requests: [{{request: {{method: GET, url: '{url}/'}}}}]\n");
    std::fs::write(path("loadgen.yml"), load).unwrap();
    let ca = path("ca.pem");
    for (command, status) in [
        (
            vec!["explain", &path("b.ndjson"), "--cluster", &url, "--ca", &ca],
            3,
        ),
        (
            vec![
                "diff", "--left", &url, "--right", &url, "--index", "logs", "--ca", &ca,
            ],
            3,
        ),
        (
            vec![
                "compare",
                "--direct",
                &url,
                "--gateway",
                &url,
                "--index",
                "logs",
                "--ca",
                &ca,
            ],
            3,
        ),
        (
            vec!["loadgen", "-config", &path("loadgen.yml"), "-l", "1", "-ca", &ca],
            3,
        ),
    ] {
        let (code, said) = tidegate(&command);
        assert_eq!(code, Some(status), "{command:?}: {said}");
        assert!(
            said.contains("an authority's own (CA:TRUE), which no server may show")
                && !said.contains("CaUsed"),
            "{command:?}: {said}"
        );
    }
}

#[test]
fn a_folder_that_is_no_log_is_told_to_be_none() {
    for verb in ["check", "dump"] {
        let (status, said) = tidegate(&["log", verb, "/nosuch"]);
        assert_eq!(status, Some(3), "{verb}: {said}");
        assert_eq!(said.matches("nosuch").count(), 1, "{verb}: {said}");
    }
}

#[test]
fn a_file_that_cannot_be_used_is_1_with_every_command_that_takes_one() {
    for command in [
        &["check"][..],
        &["config", "show"],
        &["gateway", "-config"],
        &["loadgen", "-config"],
        &["explain", "--cluster", "http://127.0.0.1:9"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(command)
            .arg("/no/such")
            .output()
            .unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        assert!(said.contains("/no/such"), "{command:?}: {said}");
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
        &["init"],
        &["service", "install"],
        &["manual"],
        &["completions"],
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
