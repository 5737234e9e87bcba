//! The options of a topic.

use std::path::PathBuf;
use std::time::Duration;

use settings::Secret;

/// The place of a topic, and how it is created if it is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `host:port` of some brokers. The client learns the others from them.
    pub brokers: Vec<String>,
    /// The topic's name.
    pub topic: String,
    /// The number of partitions. `None`: those that the topic has, or 16 for a topic that is created.
    pub partitions: Option<u32>,
    /// The number of replicas of a topic that is created. `None`: the default of the brokers.
    pub replicas: Option<u16>,
    /// How long a topic that is created keeps messages, delivered or not. [`Duration::MAX`]: for ever.
    pub retention: Duration,
    /// The largest message in bytes, in a topic that is created. `None`: the default of the brokers.
    pub message_bytes_max: Option<u32>,
    /// The time after which a request that is not acknowledged is refused.
    pub ack_timeout: Duration,
    /// The time after which a gateway that the brokers have not heard of loses its lanes to others.
    pub session_timeout: Duration,
    /// TLS to the brokers. `None`: plain text.
    pub tls: Option<Tls>,
    /// The account at the brokers. `None`: no account.
    pub sasl: Option<Sasl>,
}

/// TLS to the brokers. Files are read when the topic is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Whether a broker's certificate and its name are checked.
    pub verify: bool,
    /// Authorities (PEM) that replace the system's.
    pub ca_file: Option<PathBuf>,
    /// Certificate and key (PEM) that are presented to brokers.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

/// An account at the brokers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sasl {
    /// The registered name of the mechanism that proves the account: `PLAIN` (RFC 4616) or `SCRAM-SHA-512`
    /// (RFC 5802).
    pub mechanism: &'static str,
    /// The user name.
    pub username: String,
    /// The password.
    pub password: Secret,
}

/// Where a new consumer group begins. A group that has committed something continues from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartAt {
    /// The oldest message that is still there.
    #[default]
    Oldest,
    /// The next message that comes.
    Newest,
    /// The first message of this time or later, ms since 1970.
    Time(u64),
    /// The message at this offset, or the next one that is there.
    Offset(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_never_prints() {
        let sasl = Sasl {
            mechanism: "SCRAM-SHA-256",
            username: "tidegate".to_owned(),
            password: Secret::new("hunter2"),
        };
        let printed = format!("{sasl:?}");
        assert!(
            printed.contains("tidegate") && !printed.contains("hunter2"),
            "{printed}"
        );
    }
}
