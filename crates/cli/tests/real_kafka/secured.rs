//! Brokers that require TLS, an account, or a certificate.

use testkit::broker::ACCOUNT;

use super::fake_broker::{Certificates, FakeBroker};
use super::*;

/// Returns the queue's settings for the broker's listener that requires an account.
fn account(mechanism: &str, password: &str, tls: &str) -> String {
    let user = ACCOUNT.0;
    format!(
        ", partitions: 2, tls: {{enabled: true{tls}}}, sasl: {{mechanism: {mechanism}, username: {user}, password: {password}}}"
    )
}

fn trusting() -> String {
    format!(", ca_file: '{}'", broker().ca_file().display())
}

#[test]
fn a_queue_behind_tls_and_an_account_or_a_certificate_is_like_any_other_and_no_secret_shows() {
    let scram = broker().scram_address();
    let (certificate, key) = broker().certificate();
    let mutual = format!(
        ", partitions: 2, tls: {{enabled: true{}, cert_file: '{}', key_file: '{}'}}",
        trusting(),
        certificate.display(),
        key.display()
    );
    let ways = [
        (
            "scram-256",
            &scram,
            account("SCRAM-SHA-256", ACCOUNT.1, &trusting()),
        ),
        (
            "scram-512",
            &scram,
            account("SCRAM-SHA-512", ACCOUNT.1, &trusting()),
        ),
        (
            "plain",
            &scram,
            account("PLAIN", ACCOUNT.1, ", insecure_skip_verify: true"),
        ),
        ("mutual", &broker().mutual_address(), mutual),
    ];
    std::thread::scope(|scope| {
        for (topic, address, more) in ways {
            scope.spawn(move || {
                let cluster = cluster();
                let place = GatewayHome::at(&cluster, address, topic, &more);
                let gateway = place.start();
                gateway.bulk(&body(100)).ok().unwrap();
                wait(&gateway, |one| one["indexed"] == 100);
                assert_eq!(cluster.docs("logs").len(), 100);
                let shown = gateway.admin().get("/config").unwrap().ok().unwrap().text();
                assert!(shown.contains(topic), "{shown}");
                for text in [shown, gateway.log()] {
                    assert!(!text.contains(ACCOUNT.1), "{text}");
                }
            });
        }
    });
}

#[test]
fn with_a_wrong_password_or_a_certificate_of_nobodys_a_gateway_says_so_accepts_nothing_and_loses_nothing() {
    let cluster = cluster();
    cluster.inject(
        Injection::bulk(Fault::Status {
            status: 503,
            body: "{}".to_owned(),
        })
        .always(),
    );
    let place = |password: &str, tls: &str| {
        let more = account("SCRAM-SHA-512", password, tls);
        GatewayHome::at(&cluster, &broker().scram_address(), "secured", &more)
    };
    let right = place(ACCOUNT.1, &trusting());
    let mut gateway = right.start();
    gateway.bulk(&body(100)).ok().unwrap();
    gateway.signal("TERM");
    assert!(gateway.wait().success(), "{}", gateway.log());
    let [wrong, unknown] = std::thread::scope(|scope| {
        let both = [("wrong-password", trusting()), (ACCOUNT.1, String::new())];
        let place = &place;
        let both = both.map(|(password, tls)| scope.spawn(move || place(password, &tls).does_not_start()));
        both.map(|one| one.join().unwrap())
    });
    assert!(
        wrong.contains("cannot be used") && wrong.to_lowercase().contains("invalid credentials"),
        "{wrong}"
    );
    assert!(!wrong.contains("wrong-password"), "{wrong}");
    let unverified = format!(
        "cannot be used (`sasl` and `tls` of the queue say how): {}: ",
        broker().scram_address()
    );
    assert!(
        unknown.contains(&unverified) && is_unverified(&unknown),
        "{unknown}"
    );
    cluster.behave();
    let gateway = right.start();
    wait(&gateway, |one| one["indexed"] == 100);
    assert_eq!(cluster.docs("logs").len(), 100);
}

#[test]
fn without_authorities_of_its_own_a_queue_trusts_those_of_the_machine() {
    let cluster = cluster();
    let more = account("SCRAM-SHA-512", ACCOUNT.1, "");
    let place = GatewayHome::at(&cluster, &broker().scram_address(), "authorities", &more);
    let refused = place.does_not_start();
    assert!(is_unverified(&refused), "{refused}");
    let authorities = broker().ca_file();
    let gateway = place.start_with(&[("SSL_CERT_FILE", authorities.to_str().unwrap())]);
    gateway.bulk(&body(100)).ok().unwrap();
    wait(&gateway, |one| one["indexed"] == 100);
    assert_eq!(cluster.docs("logs").len(), 100);
}

/// Whether a broker's certificate was refused, and why.
fn is_unverified(told: &str) -> bool {
    told.contains("no authority that is trusted here has signed the certificate")
}

#[test]
fn a_broker_that_comes_back_with_an_expired_certificate_gets_nothing_and_the_log_says_why() {
    let (cluster, broker) = (cluster(), Broker::start().unwrap());
    let address = broker.mutual_address();
    let (certificate, key) = broker.certificate();
    let authorities = tempfile::NamedTempFile::new().unwrap();
    let both = [broker.ca_file(), Certificates::get().file("ca.pem")];
    let both = both.map(|file| std::fs::read(file).unwrap());
    std::fs::write(authorities.path(), both.concat()).unwrap();
    let more = format!(
        ", partitions: 2, tls: {{enabled: true, ca_file: '{}', cert_file: '{}', key_file: '{}'}}",
        authorities.path().display(),
        certificate.display(),
        key.display()
    );
    let place = GatewayHome::at(&cluster, &address, "expired", &more);
    let gateway = place.start();
    gateway.bulk(&body(100)).ok().unwrap();
    wait(&gateway, |one| one["indexed"] == 100);
    broker.kill().unwrap();
    let expired = FakeBroker::start_at(&address, "expired", "");
    let log = gateway.logged("the certificate has expired");
    assert!(
        log.contains(&format!("the brokers cannot be used: {address}: ")),
        "{log}"
    );
    assert_eq!(gateway.bulk(&body(1)).status, 503);
    assert!(!expired.told().contains("librdkafka"), "{}", expired.told());
    drop(expired);
    broker.start_again().unwrap();
    let began = Instant::now();
    while gateway.bulk(&body(100)).status != 200 {
        assert!(began.elapsed() < Duration::from_secs(90), "{}", gateway.log());
        std::thread::sleep(Duration::from_millis(200));
    }
    wait(&gateway, |one| one["pending"] == 0);
}
