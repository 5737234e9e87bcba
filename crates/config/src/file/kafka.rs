//! `tls` and `sasl` of a queue in Kafka.

use settings::Secret;

use super::section;
use crate::runtime::SaslMechanism;

section! {
    /// TLS to Kafka's brokers.
    KafkaTlsFile {
        /// Speak TLS. Certificates are checked, and whether they are of the host that `brokers` names.
        enabled: bool = false,
        /// Take any certificate. Whoever sits on the way can then read and change everything, the account
        /// included; for trying things out.
        insecure_skip_verify: bool = false,
        /// Authorities (PEM) in place of the system's.
        ca_file: Option<String> = None,
        /// Certificate (PEM) that the gateway shows.
        cert_file: Option<String> = None,
        /// Its private key (PEM).
        key_file: Option<String> = None,
    }
}

section! {
    /// The gateway's account at Kafka's brokers.
    #[schemars(extend("required" = ["username", "password"]))]
    SaslFile {
        /// How it is proved.
        mechanism: SaslMechanism = SaslMechanism::ScramSha512,
        /// User name.
        username: String = String::new(),
        /// Password.
        password: Secret = Secret::default(),
    }
}
