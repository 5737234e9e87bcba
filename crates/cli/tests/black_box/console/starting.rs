//! How a console is started: with TLS, with a file to register, and with a demo beside it.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::client::Client;
use testkit::fake::{FakeCluster, Spec};

use super::process::{Console, PASSWORD};
use crate::gateway::PATIENCE;

#[test]
fn by_tls_the_cookie_is_secure_and_clear_text_gets_nothing() {
    // Any certificate for 127.0.0.1 is enough; the fake cluster makes one.
    let maker = FakeCluster::start(Spec::default().tls()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("c.pem"), folder.path().join("k.pem"));
    std::fs::write(&certificate, maker.ca_pem().unwrap()).unwrap();
    std::fs::write(&key, maker.key_pem().unwrap()).unwrap();
    let console = Console::over_tls(&certificate, &key).set_up();
    assert!(
        console
            .link_url
            .as_ref()
            .unwrap()
            .starts_with("https://127.0.0.1:")
    );
    let login = console.post("/api/login", &json!({"name": "ada", "password": PASSWORD}));
    let cookie = login.header("set-cookie");
    assert!(
        cookie.starts_with("__Host-") && cookie.contains("; Secure") && cookie.contains("Path=/;"),
        "{cookie}"
    );
    assert_eq!(
        console.get("/api/registry").status,
        200,
        "the cookie is taken back"
    );

    let page = console.get("/");
    assert_eq!(page.status, 200);
    let other = FakeCluster::start(Spec::default().tls()).unwrap();
    let others = folder.path().join("other.pem");
    std::fs::write(&others, other.ca_pem().unwrap()).unwrap();
    let stranger = Client::trusting(&format!("https://{}", console.address()), &others).unwrap();
    assert!(
        stranger.get("/").is_err(),
        "a certificate that nobody vouches for"
    );
    let clear = Client::new(&format!("http://{}", console.address())).unwrap();
    let login = json!({"name": "ada", "password": PASSWORD});
    for told in [clear.get("/").unwrap(), clear.post("/api/login", &login).unwrap()] {
        assert_eq!((told.status, told.header("set-cookie")), (400, None));
        assert!(
            told.text().contains("should begin with https://"),
            "{}",
            told.text()
        );
    }
    // A connection without TLS does not harm the others.
    assert_eq!(console.get("/api/session").status, 200);
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_changed_certificate_is_used_without_a_restart_and_a_wrong_one_is_told_and_not_used() {
    let [old, new] = [(), ()].map(|()| FakeCluster::start(Spec::default().tls()).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key, first] = ["c.pem", "k.pem", "first.pem"].map(|name| folder.path().join(name));
    // A file is there as a whole or not at all.
    let write = |file: &Path, text: &str| {
        let draft = file.with_extension("new");
        std::fs::write(&draft, text).unwrap();
        std::fs::rename(&draft, file).unwrap();
    };
    for file in [&certificate, &first] {
        write(file, old.ca_pem().unwrap());
    }
    write(&key, old.key_pem().unwrap());
    let console = Console::over_tls(&certificate, &key);
    // A client that trusts just this certificate, with a connection of its own.
    let lets_in = |trusted: &Path| {
        let client = Client::trusting(&format!("https://{}", console.address()), trusted).unwrap();
        client.get("/").is_ok()
    };
    assert!(lets_in(&first));
    // The key of another certificate.
    write(&key, new.key_pem().unwrap());
    wait_until("the wrong key is told", || {
        console.log().contains("certificate not reloaded")
    });
    assert!(lets_in(&first), "the certificate of before stays");
    write(&certificate, new.ca_pem().unwrap());
    wait_until("the new certificate is used", || lets_in(&certificate));
    assert!(!lets_in(&first));
    let told = console.log().matches("certificate not reloaded").count();
    assert_eq!(told, 1, "{}", console.log());
}

#[test]
fn a_certificate_without_its_key_is_told_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("empty.pem");
    std::fs::write(&file, "no certificate").unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["console", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path())
        .arg("--tls-cert")
        .arg(&file)
        .arg("--tls-key")
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("TLS"), "{said}");
}

#[test]
fn a_file_is_registered_at_each_start_and_a_wrong_one_starts_nothing() {
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("registry.yml");
    let text = format!(
        "clusters: [{{name: one, endpoint: '{}', read_only: true}}]\n",
        cluster.urls()[0]
    );
    std::fs::write(&file, &text).unwrap();
    let console = Console::start(&["--register", file.to_str().unwrap()]).set_up();
    console.wait_for_row("one", |row| row["state"] == "ok");
    assert_eq!(console.clusters()[0]["read_only"], true);
    let audit = console.get("/api/audit").json;
    let entries = audit["entries"].as_array().unwrap();
    let registered = entries.iter().find(|entry| entry["what"] == "register cluster");
    assert_eq!(registered.unwrap()["user"], "(start)");

    std::fs::write(&file, "clusters:\n  - name: one\n    endpont: http://h:9200\n").unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["console", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path().join("other"))
        .arg("--register")
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("line 3, column 5") && said.contains("endpoint"),
        "{said}"
    );
}

#[test]
fn the_demo_is_a_living_page_and_leaves_nothing_behind() {
    let mut console = Console::demo().set_up();
    let written =
        |row: &Value| row["state"] == "ok" && row["docs_per_s"].as_f64().is_some_and(|rate| rate > 0.0);
    console.wait_for_row("demo", |row| written(row) && row["nodes"] == 3);
    console.wait_for_row("demo-gateway", written);
    let clusters = console.clusters();
    assert_eq!(
        clusters.len(),
        1,
        "the gateway's cluster is the one that is registered: {clusters:?}"
    );
    let cluster = clusters[0]["endpoints"][0].as_str().unwrap().to_owned();
    let temp = console.folder().to_owned();
    assert_eq!(
        std::fs::read_dir(&temp).unwrap().count(),
        1,
        "all of it is in one folder"
    );

    console.terminate();
    assert_eq!(std::fs::read_dir(&temp).unwrap().count(), 0);
    assert!(Client::new(&cluster).unwrap().get("/").is_err());
}
