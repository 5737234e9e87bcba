//! TLS on both sides, and a certificate that changes while the gateway runs.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use testkit::client::Client;
use testkit::fake::{FakeCluster, Spec};

use crate::gateway::{Gateway, PATIENCE, body};

fn tls_cluster() -> FakeCluster {
    FakeCluster::start(Spec::default().index("logs", 6).storing().tls()).unwrap()
}

/// Writes text to a file of this name and returns its path.
fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn tls_on_both_sides_and_a_new_certificate_is_shown_without_a_restart() {
    let (cluster, other) = (tls_cluster(), tls_cluster());
    let directory = tempfile::tempdir().unwrap();
    let old_ca = write(directory.path(), "old.pem", cluster.ca_pem().unwrap());
    let new_ca = write(directory.path(), "new.pem", other.ca_pem().unwrap());
    let certificate = write(directory.path(), "entry.pem", cluster.ca_pem().unwrap());
    let key = write(directory.path(), "entry.key", cluster.key_pem().unwrap());
    let text = format!(
        "admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}, tls: {{enabled: true, cert_file: '{}', key_file: '{}'}}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: c, mode: sync}}}}, {{elasticsearch: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}', tls: {{ca_file: '{}'}}}}]
",
        certificate.display(),
        key.display(),
        cluster.urls()[0],
        old_ca.display(),
    );
    let file = write(directory.path(), "tidegate.yml", &text);
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    let origin = format!("https://{}", gateway.address);
    let client = Client::trusting(&origin, &old_ca).unwrap();
    client
        .post_ndjson("/_bulk", body(300).as_bytes())
        .unwrap()
        .ok()
        .unwrap();
    assert_eq!((cluster.docs("logs").len(), cluster.counts().misrouted), (300, 0));
    let trusts_new = || {
        Client::trusting(&origin, &new_ca)
            .unwrap()
            .get("/_cluster/health")
            .is_ok()
    };
    assert!(!trusts_new());

    // The key is written first: for a moment the two don't match, and the old pair must stay in use.
    std::fs::write(&key, other.key_pem().unwrap()).unwrap();
    gateway.logged("certificate not reloaded");
    let again = Client::trusting(&origin, &old_ca).unwrap();
    again.get("/_cluster/health").unwrap().ok().unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    let complaints = gateway.log().matches("certificate not reloaded").count();
    assert_eq!(complaints, 1, "said once, not each time that it looks");
    std::fs::write(&certificate, other.ca_pem().unwrap()).unwrap();
    let began = Instant::now();
    while !trusts_new() {
        assert!(began.elapsed() < PATIENCE, "{}", gateway.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_cluster_whose_certificate_nobody_vouches_for_is_not_talked_to() {
    let cluster = tls_cluster();
    let gateway = Gateway::start(&[
        "--cluster",
        &cluster.urls()[0],
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
    ]);
    let answer = gateway.bulk(&body(5));
    assert_eq!(answer.status, 503);
    assert!(cluster.docs("logs").is_empty());
    let trusting = Gateway::with(&cluster, &["--insecure"]);
    trusting.bulk(&body(5)).ok().unwrap();
    assert_eq!(cluster.docs("logs").len(), 5);
}

#[test]
fn tls_is_switched_on_and_its_certificate_exchanged_on_the_same_address() {
    let (cluster, other) = (tls_cluster(), tls_cluster());
    let directory = tempfile::tempdir().unwrap();
    let old_ca = write(directory.path(), "old.pem", cluster.ca_pem().unwrap());
    let new_ca = write(directory.path(), "new.pem", other.ca_pem().unwrap());
    let certificate = write(directory.path(), "entry.pem", cluster.ca_pem().unwrap());
    let key = write(directory.path(), "entry.key", cluster.key_pem().unwrap());
    let text = |tls: &str| {
        format!(
            "admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}{tls}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{elasticsearch: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}', tls: {{ca_file: '{}'}}}}]
",
            cluster.urls()[0],
            old_ca.display(),
        )
    };
    let file = write(directory.path(), "tidegate.yml", &text(""));
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    let plain = gateway.client();
    plain.get("/_cluster/health").unwrap().ok().unwrap();

    let tls = format!(
        ", tls: {{enabled: true, hot_reload: false, cert_file: '{}', key_file: '{}'}}",
        certificate.display(),
        key.display()
    );
    write(directory.path(), "tidegate.yml", &text(&tls));
    let origin = format!("https://{}", gateway.address);
    let trusts = |ca: &Path| {
        let client = Client::trusting(&origin, ca).unwrap();
        client
            .get("/_cluster/health")
            .is_ok_and(|answer| answer.status == 200)
    };
    let wait_for = |ca: &Path| {
        let began = Instant::now();
        while !trusts(ca) {
            assert!(began.elapsed() < PATIENCE, "{}", gateway.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    wait_for(&old_ca);
    // Either its connection was closed, or it has a new one: neither is served without TLS.
    let again = plain.get("/_cluster/health");
    assert!(
        again.as_ref().map_or(true, |answer| answer.status == 400),
        "{again:?}"
    );

    std::fs::write(&certificate, other.ca_pem().unwrap()).unwrap();
    std::fs::write(&key, other.key_pem().unwrap()).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(trusts(&old_ca) && !trusts(&new_ca), "hot_reload is off");
    gateway.signal("HUP");
    wait_for(&new_ca);
}

#[test]
fn plain_http_at_a_tls_entry_and_tls_at_a_plain_one_are_told_to_both_sides() {
    let cluster = tls_cluster();
    let directory = tempfile::tempdir().unwrap();
    let ca = write(directory.path(), "ca.pem", cluster.ca_pem().unwrap());
    let key = write(directory.path(), "ca.key", cluster.key_pem().unwrap());
    let text = format!(
        "admin: {{binding: '127.0.0.1:0'}}
entry:
  - {{name: e, router: r, network: {{binding: '127.0.0.1:0'}}, tls: {{enabled: true, cert_file: '{ca}', key_file: '{key}'}}}}
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{elasticsearch: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{url}', tls: {{ca_file: '{ca}'}}}}]
",
        ca = ca.display(),
        key = key.display(),
        url = cluster.urls()[0],
    );
    let file = write(directory.path(), "tidegate.yml", &text);
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    let in_clear = Client::new(&format!("http://{}", gateway.address)).unwrap();
    let answer = in_clear.get("/_cluster/health").unwrap();
    let told = answer.text();
    assert_eq!(answer.status, 400, "{told}");
    assert!(
        told.contains("this port speaks TLS") && told.contains("https://"),
        "{told}"
    );
    gateway.logged("this port speaks TLS");
    // Clients with TLS are still served.
    let secure = Client::trusting(&format!("https://{}", gateway.address), &ca).unwrap();
    secure.get("/_cluster/health").unwrap().ok().unwrap();
    drop(gateway);

    let file = write(
        directory.path(),
        "plain.yml",
        &text.replace("tls: {enabled: true", "tls: {enabled: false"),
    );
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    let secure = Client::trusting(&format!("https://{}", gateway.address), &ca).unwrap();
    assert!(secure.get("/_cluster/health").is_err());
    gateway.logged("a TLS handshake came to a port that speaks plain HTTP");
}
