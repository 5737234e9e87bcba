//! TLS of the admin port: who is let in, what is said to whom, and changes while the gateway runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use testkit::client::Client;
use testkit::fake::{FakeCluster, Spec};

use crate::gateway::{Gateway, PATIENCE, cluster, program, replace_text};

/// Certificates with their keys, each of which is its own authority.
pub(crate) struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    /// Makes a certificate and its key of each name.
    pub(crate) fn of(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let made = FakeCluster::start(Spec::default().tls()).unwrap();
            std::fs::write(folder.path().join(format!("{name}.pem")), made.ca_pem().unwrap()).unwrap();
            std::fs::write(folder.path().join(format!("{name}.key")), made.key_pem().unwrap()).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// Puts one certificate, or its key, in the place of another.
    fn replace(&self, name: &str, by: &str) {
        replace_text(&self.file(name), &std::fs::read_to_string(self.file(by)).unwrap());
    }
}

/// Writes a configuration whose admin port has these settings, and returns the file.
pub(crate) fn configured(certificates: &Certificates, cluster: &FakeCluster, admin: &str) -> PathBuf {
    let text = format!(
        "admin: {{binding: '127.0.0.1:0'{admin}}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{elasticsearch: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}'}}]
",
        cluster.urls()[0],
    );
    let file = certificates.file("tidegate.yml");
    replace_text(&file, &text);
    file
}

pub(crate) fn start(file: &Path) -> Gateway {
    Gateway::start(&["--config", file.to_str().unwrap()])
}

/// The settings of TLS with this certificate.
pub(crate) fn tls(certificates: &Certificates, name: &str, more: &str) -> String {
    let [certificate, key] = ["pem", "key"].map(|end| certificates.path(&format!("{name}.{end}")));
    format!(", tls: {{enabled: true, cert_file: '{certificate}', key_file: '{key}'{more}}}")
}

/// Runs a command against an admin port.
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(program())
        .args(arguments)
        .env_remove("TIDEGATE_ADMIN_CA")
        .env_remove("TIDEGATE_ADMIN_TOKEN")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat()).into_owned()
}

#[test]
fn commands_speak_tls_to_the_admin_port_and_say_what_is_missing_where_they_do_not() {
    let (cluster, certificates) = (cluster(), Certificates::of(&["port"]));
    let admin = tls(&certificates, "port", "") + ", token: open-sesame-9";
    let gateway = start(&configured(&certificates, &cluster, &admin));
    let (url, ca) = (
        format!("https://{}", gateway.admin),
        certificates.path("port.pem"),
    );
    let token = ("TIDEGATE_ADMIN_TOKEN", "open-sesame-9");
    let live = ["health", "--live", "--admin", &url];
    let asked = |more: &[&str], variables: &[(&str, &str)]| {
        let output = run(&[&live[..], more].concat(), variables);
        (output.status.code().unwrap(), said(&output))
    };
    // Nobody vouches for the certificate.
    let (status, told) = asked(&[], &[token]);
    assert_eq!(status, 3, "{told}");
    assert!(told.contains("--ca FILE, or TIDEGATE_ADMIN_CA"), "{told}");
    for (more, variables) in [
        (&["--ca", &*ca][..], vec![token]),
        (&[], vec![token, ("TIDEGATE_ADMIN_CA", &*ca)]),
        (&["--insecure"], vec![token]),
    ] {
        let (status, told) = asked(more, &variables);
        assert_eq!(status, 0, "{more:?}: {told}");
    }
    let capitals = url.replacen("https", "HTTPS", 1);
    for (trust, status) in [(&["--ca", &*ca][..], 0), (&[], 3)] {
        let output = run(
            &[&["health", "--live", "--admin", &capitals], trust].concat(),
            &[token],
        );
        assert_eq!(output.status.code(), Some(status), "{}", said(&output));
    }
    let (status, told) = asked(&["--ca", &ca], &[]);
    assert_eq!(status, 3, "{told}");
    assert!(told.contains("requires its token"), "{told}");
    for command in [
        &["queues", "list"][..],
        &["pipelines", "list"],
        &["heat", "--seconds", "1"],
        &["config", "revert"],
        &["switch", "list"],
    ] {
        let told = said(&run(
            &[command, &["--admin", &url, "--ca", &ca]].concat(),
            &[token],
        ));
        assert!(
            !told.contains("no gateway answers") && !told.contains("panicked"),
            "{command:?}: {told}"
        );
    }
    let missing = certificates.path("missing.pem");
    let (status, told) = asked(&["--ca", &missing], &[token]);
    assert!(status == 3 && told.contains("missing.pem"), "{told}");
    // Plain HTTP is answered in plain HTTP.
    let plain = url.replace("https", "http");
    let told = said(&run(&["health", "--admin", &plain], &[token]));
    assert!(
        told.contains("this port speaks TLS") && told.contains("https://"),
        "{told}"
    );
    gateway.logged("this port speaks TLS");
}

#[test]
fn tls_at_an_admin_port_without_it_is_told_to_both_sides() {
    let (cluster, certificates) = (cluster(), Certificates::of(&[]));
    let gateway = start(&configured(&certificates, &cluster, ""));
    let url = format!("https://{}", gateway.admin);
    let output = run(&["health", "--admin", &url, "--insecure"], &[]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        said(&output).contains("should the URL begin with http://?"),
        "{}",
        said(&output)
    );
    gateway.logged("a TLS handshake came to a port that speaks plain HTTP");
}

#[test]
fn the_certificate_of_the_admin_port_and_its_tls_change_on_the_open_port() {
    let (cluster, certificates) = (cluster(), Certificates::of(&["old", "new"]));
    std::fs::copy(certificates.file("old.pem"), certificates.file("port.pem")).unwrap();
    std::fs::copy(certificates.file("old.key"), certificates.file("port.key")).unwrap();
    let file = configured(&certificates, &cluster, "");
    let gateway = start(&file);
    let address = gateway.admin;
    let plain = gateway.admin();
    plain.get("/health/live").unwrap().ok().unwrap();

    configured(&certificates, &cluster, &tls(&certificates, "port", ""));
    gateway.logged("changed: admin.tls");
    let refused = plain.get("/health/live");
    assert!(
        refused.as_ref().map_or(true, |answer| answer.status == 400),
        "{refused:?}"
    );
    let trusting =
        |name: &str| Client::trusting(&format!("https://{address}"), &certificates.file(name)).unwrap();
    let kept = trusting("old.pem");
    let metrics = kept.get("/metrics").unwrap().ok().unwrap().text();
    assert!(
        metrics.contains("tidegate_certificate_expiry_timestamp_seconds{of=\"admin\",name=\"admin\"}"),
        "{metrics}"
    );
    assert!(trusting("new.pem").get("/health/live").is_err());

    // A certificate that its key does not fit is not used.
    certificates.replace("port.pem", "new.pem");
    gateway.logged("certificate of the admin port not reloaded");
    trusting("old.pem").get("/health/live").unwrap().ok().unwrap();
    certificates.replace("port.key", "new.key");
    gateway.logged("certificate of the admin port reloaded");
    trusting("new.pem").get("/health/live").unwrap().ok().unwrap();
    assert!(trusting("old.pem").get("/health/live").is_err());
    // Connections of before go on.
    kept.get("/health/live").unwrap().ok().unwrap();

    let before = gateway.log().matches("changed: admin.tls").count();
    configured(&certificates, &cluster, "");
    let began = Instant::now();
    while gateway.log().matches("changed: admin.tls").count() == before {
        assert!(began.elapsed() < PATIENCE, "{}", gateway.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    Client::new(&format!("http://{address}"))
        .unwrap()
        .get("/health/live")
        .unwrap()
        .ok()
        .unwrap();
    assert!(kept.get("/health/live").is_err());
}

#[test]
fn an_admin_port_that_asks_for_client_certificates_lets_nobody_else_in() {
    let (cluster, certificates) = (cluster(), Certificates::of(&["port", "mine", "other"]));
    let asks = format!(", client_ca_file: '{}'", certificates.path("mine.pem"));
    let file = configured(&certificates, &cluster, &tls(&certificates, "port", &asks));
    let gateway = start(&file);
    let (url, ca) = (
        format!("https://{}", gateway.admin),
        certificates.path("port.pem"),
    );
    let asked = |name: Option<&str>| {
        let [certificate, key] =
            ["pem", "key"].map(|end| certificates.path(&format!("{}.{end}", name.unwrap_or_default())));
        let mut arguments = vec!["health", "--live", "--admin", &url, "--ca", &ca];
        if name.is_some() {
            arguments.extend(["--client-cert", &*certificate, "--client-key", &*key]);
        }
        let output = run(&arguments, &[]);
        (output.status.code().unwrap(), said(&output))
    };
    assert_eq!(asked(Some("mine")).0, 0, "{}", asked(Some("mine")).1);
    assert_eq!(asked(Some("other")).0, 3);
    let (status, told) = asked(None);
    assert!(status == 3 && told.contains("client certificate"), "{told}");
    let output = run(&["health", "--admin", &url, "--client-cert", &ca], &[]);
    assert!(
        said(&output).contains("--client-cert and --client-key go together"),
        "{}",
        said(&output)
    );
    let mixed = [certificates.path("mine.pem"), certificates.path("other.key")];
    let output = run(
        &[
            "health",
            "--admin",
            &url,
            "--client-cert",
            &mixed[0],
            "--client-key",
            &mixed[1],
        ],
        &[],
    );
    assert!(
        said(&output).contains("does not belong to the certificate"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_check_refuses_an_admin_port_in_clear_for_other_machines_and_finds_its_own_gateway() {
    let (cluster, certificates) = (cluster(), Certificates::of(&["port"]));
    let port = crate::gateway::free_address().port();
    let admin = |more: &str| format!("{}, binding: '0.0.0.0:{port}', token: open-sesame-9", more);
    let write = |more: &str| {
        let file = configured(&certificates, &cluster, &admin(more));
        let text = std::fs::read_to_string(&file).unwrap();
        replace_text(&file, &text.replacen("binding: '127.0.0.1:0', ", "", 1));
        file
    };
    let check = |file: &Path, more: &[&str]| run(&[&["check", file.to_str().unwrap()], more].concat(), &[]);
    let output = check(&write(""), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("tokens would travel in clear text"),
        "{}",
        said(&output)
    );
    assert_eq!(
        check(&write(", tls: {enabled: false}"), &[]).status.code(),
        Some(0)
    );
    let unreadable = format!(
        ", tls: {{enabled: true, cert_file: '{ca}', key_file: '{ca}'}}",
        ca = certificates.path("port.pem")
    );
    let output = check(&write(&unreadable), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("admin.tls: the admin port"),
        "{}",
        said(&output)
    );
    let file = write(&tls(&certificates, "port", ""));
    let gateway = start(&file);
    let output = check(&file, &["--online"]);
    assert!(
        said(&output).contains(&format!("0.0.0.0:{port} is held")),
        "{}",
        said(&output)
    );
    assert!(said(&output).contains("admin port"), "{}", said(&output));
    drop(gateway);
}
