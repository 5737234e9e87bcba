//! `tls` and `sasl` of a queue in Kafka.

use settings::Secret;

use super::section;
use crate::runtime::SaslMechanism;

section! {
    /// TLS to Kafka's brokers.
    KafkaTlsFile {
        /// Use TLS. The gateway checks certificates, and that they belong to the host in `brokers`.
        enabled: bool = false,
        /// Accept any certificate; for tests only. Anyone on the network path can then read and change
        /// everything, with the account.
        insecure_skip_verify: bool = false,
        /// PEM file of the certificate authorities to trust instead of the system's.
        ca_file: Option<String> = None,
        /// PEM file of the certificate that the gateway presents.
        cert_file: Option<String> = None,
        /// PEM file of the private key.
        key_file: Option<String> = None,
    }
}

section! {
    /// The gateway's account at Kafka's brokers.
    #[schemars(extend("required" = ["username", "password"]))]
    SaslFile {
        /// How the account is proved.
        mechanism: SaslMechanism = SaslMechanism::ScramSha512,
        /// User name.
        username: String = String::new(),
        /// Password.
        password: Secret = Secret::default(),
    }
}
