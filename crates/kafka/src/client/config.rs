//! The configuration of all clients: the addresses of the brokers, the protocol, and the account.

use std::path::Path;

use rdkafka::ClientConfig;

use crate::{Options, Sasl, Tls};

/// Returns the configuration of every client.
pub(crate) fn base_config(options: &Options) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", options.brokers.join(","))
        .set("client.id", "tidegate")
        .set("log.connection.close", "false")
        .set("reconnect.backoff.max.ms", "2000")
        .set(
            "security.protocol",
            match (&options.tls, &options.sasl) {
                (None, None) => "plaintext",
                (Some(_), None) => "ssl",
                (None, Some(_)) => "sasl_plaintext",
                (Some(_), Some(_)) => "sasl_ssl",
            },
        );
    if let Some(tls) = &options.tls {
        add_tls(&mut config, tls);
    }
    if let Some(sasl) = &options.sasl {
        add_sasl(&mut config, sasl);
    }
    config
}

/// Returns the configuration of every consumer.
pub(crate) fn consumer_config(options: &Options) -> ClientConfig {
    let mut config = base_config(options);
    config
        .set("allow.auto.create.topics", "false")
        // A message of another producer's transaction stops its lane, as every message does that is not a
        // gateway's: it must not be passed over in silence, nor one that is open hold up what lies behind it.
        .set("isolation.level", "read_uncommitted")
        // Brokers answer with a whole message, however large it is.
        .set("receive.message.max.bytes", RECEIVED_BYTES_MAX);
    config
}

/// The largest answer of a broker: the largest message that a topic can be made for, and some.
const RECEIVED_BYTES_MAX: &str = "1100000000";

/// Adds the TLS settings, each explicitly, so that no default of the library can weaken them.
fn add_tls(config: &mut ClientConfig, tls: &Tls) {
    let (certificate, name) = match tls.verify {
        true => ("true", "https"),
        false => ("false", "none"),
    };
    config
        .set("enable.ssl.certificate.verification", certificate)
        .set("ssl.endpoint.identification.algorithm", name);
    let text = |path: &Path| path.to_string_lossy().into_owned();
    match (&tls.ca_file, machine_authorities()) {
        (Some(file), _) => config.set("ssl.ca.location", text(file)),
        (None, Some(place)) => config.set("ssl.ca.location", place),
        (None, None) => config,
    };
    if let Some((certificate, key)) = &tls.client_certificate {
        config
            .set("ssl.certificate.location", text(certificate))
            .set("ssl.key.location", text(key));
    }
}

/// Returns where the authorities of this machine are, if the TLS library itself does not know: a program with
/// a library of its own would look at the place that was fixed when that was compiled.
fn machine_authorities() -> Option<String> {
    if !cfg!(feature = "own-tls") {
        return None;
    }
    // The same variable as for OpenSSL, and for TLS to clusters.
    let named = std::env::var("SSL_CERT_FILE")
        .ok()
        .filter(|file| !file.is_empty());
    Some(named.unwrap_or_else(|| "probe".to_owned()))
}

fn add_sasl(config: &mut ClientConfig, sasl: &Sasl) {
    config
        .set("sasl.mechanism", sasl.mechanism)
        .set("sasl.username", &sasl.username)
        .set("sasl.password", sasl.password.expose());
}
