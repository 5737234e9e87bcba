//! Which brokers a queue in Kafka trusts, and what is said of those that it refuses. The brokers speak no
//! more than TLS. `./dev dist --try` runs these tests with the program that is packed, which has a TLS
//! library of its own.

use std::process::{Command, Output, Stdio};

use crate::fake_broker::{Certificates, FakeBroker};
use crate::gateway::{cluster, program};

/// Returns the command of a gateway whose queue has these brokers, with the folder of its files.
fn gateway(brokers: &str, endpoint: &str) -> (Command, tempfile::TempDir) {
    let certificates = Certificates::get();
    let folder = tempfile::tempdir().unwrap();
    let authorities = ["ca.pem", "short_ca.pem"].map(|file| std::fs::read(certificates.file(file)).unwrap());
    let trusted = folder.path().join("trusted.pem");
    std::fs::write(&trusted, authorities.concat()).unwrap();
    let text = format!(
        "path.data: '{}'
admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow:
  - name: f
    filter:
      - bulk_reshuffle:
          elasticsearch: c
          queue: {{name: q, type: kafka, brokers: ['{brokers}'], topic: t, tls: {{enabled: true, ca_file: '{}'}}}}
      - elasticsearch: {{elasticsearch: c}}
pipeline: [{{name: p, processor: [{{bulk_indexing: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{endpoint}'}}]
",
        folder.path().join("data").display(),
        trusted.display(),
    );
    let file = folder.path().join("tidegate.yml");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(program());
    command.args(["gateway", "--config"]).arg(file);
    (command, folder)
}

/// Checks that no gateway starts before such a broker, that it gives the reason and the broker's name, and
/// that it has told the broker nothing.
fn is_refused(certificate: &str, options: &str, host: &str, why: &str) {
    let (cluster, broker) = (cluster(), FakeBroker::start(certificate, options));
    let address = broker.address.replace("127.0.0.1", host);
    let (mut command, _folder) = gateway(&address, &cluster.urls()[0]);
    let Output { status, stderr, .. } = command.output().unwrap();
    let said = String::from_utf8_lossy(&stderr);
    let case = format!("{certificate} {options}");
    let told = broker.told();
    assert!(!told.contains("librdkafka"), "{case}: {told}");
    assert_eq!(status.code(), Some(3), "{case}: {said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.contains(&format!("{address}: ")), "{case}: {said}");
    assert!(last.contains(why), "{case}: {said}");
}

/// Checks that a gateway speaks to such a broker.
fn is_trusted(certificate: &str, options: &str, host: &str) {
    let (cluster, broker) = (cluster(), FakeBroker::start(certificate, options));
    let address = broker.address.replace("127.0.0.1", host);
    let (mut command, _folder) = gateway(&address, &cluster.urls()[0]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut gateway = command.spawn().unwrap();
    broker.is_spoken_to();
    gateway.kill().unwrap();
    gateway.wait().unwrap();
}

/// Runs a check of all these cases at once: each takes seconds, and waits for most of them.
fn each<Case: Send + Copy>(cases: &[Case], check: impl Fn(Case) + Sync) {
    Certificates::get();
    std::thread::scope(|scope| {
        let check = &check;
        let threads: Vec<_> = cases
            .iter()
            .map(|case| {
                let case = *case;
                scope.spawn(move || check(case))
            })
            .collect();
        let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        assert!(outcomes.iter().all(Result::is_ok), "what failed is above");
    });
}

#[test]
fn a_broker_that_cannot_be_trusted_is_refused_by_name_with_the_reason_and_is_told_nothing() {
    let names = "is for another host name";
    let old = "have no cipher, or no kind of signature, in common";
    each(
        &[
            ("sha1", "", "127.0.0.1", "is signed with SHA-1"),
            ("sha1", "-tls1_2", "127.0.0.1", "is signed with SHA-1"),
            ("short", "", "127.0.0.1", "RSA key has 1024 bits"),
            ("short", "-tls1_2", "127.0.0.1", "RSA key has 1024 bits"),
            ("of_short_ca", "", "127.0.0.1", "fewer than 2048 bits"),
            ("elsewhere", "", "127.0.0.1", names),
            ("elsewhere", "-tls1_2", "localhost", names),
            ("expired", "", "127.0.0.1", "has expired"),
            ("unknown", "", "127.0.0.1", "no authority that is trusted here"),
            ("good", "-tls1_1", "127.0.0.1", "no version of TLS from 1.2 on"),
            ("good", "-tls1_2 -sigalgs RSA+SHA1", "127.0.0.1", old),
        ],
        |(certificate, options, host, why)| is_refused(certificate, options, host, why),
    );
}

#[test]
fn a_broker_with_a_good_certificate_is_spoken_to_by_its_name_and_by_its_address() {
    each(
        &[
            ("good", "", "127.0.0.1"),
            ("good", "", "localhost"),
            ("good", "-tls1_2", "127.0.0.1"),
            ("good", "-tls1_2", "localhost"),
            ("p521", "-tls1_3", "127.0.0.1"),
            ("ed25519", "-tls1_3", "127.0.0.1"),
            ("ed25519", "-tls1_2", "127.0.0.1"),
        ],
        |(certificate, options, host)| is_trusted(certificate, options, host),
    );
}

#[test]
fn old_ciphers_and_a_rare_curve_are_for_openssl_alone() {
    let is_packed = std::env::var_os("TIDEGATE_TEST_PROGRAM").is_some();
    each(
        &[
            ("good", "-tls1_2 -cipher DHE-RSA-AES128-GCM-SHA256"),
            ("p521", "-tls1_2"),
        ],
        |(certificate, options)| match is_packed {
            true => is_refused(certificate, options, "127.0.0.1", "in common"),
            false => is_trusted(certificate, options, "127.0.0.1"),
        },
    );
}
