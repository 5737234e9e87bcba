//! What is said of a topic.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Where a topic is, and how it is made if it is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `host:port` of some brokers; the others are learnt from them.
    pub brokers: Vec<String>,
    /// The topic's name.
    pub topic: String,
    /// Partitions. None: those that the topic has, or 16 of one that is made.
    pub partitions: Option<u32>,
    /// Replicas of a topic that is made. None: as many as the brokers make by default.
    pub replicas: Option<u16>,
    /// How long a topic that is made keeps messages, delivered or not; [`Duration::MAX`]: for ever.
    pub retention: Duration,
    /// Bytes of a message at most, in a topic that is made. None: as the brokers have it.
    pub message_bytes_max: Option<u32>,
    /// A request that is not acknowledged after this is refused.
    pub ack_timeout: Duration,
    /// A gateway that the brokers have not heard of for so long loses its lanes to others.
    pub session_timeout: Duration,
    /// How brokers are spoken to over TLS; none: in plain text.
    pub tls: Option<Tls>,
    /// The account; none: there is none.
    pub sasl: Option<Sasl>,
}

/// TLS to the brokers. Files are read when the topic is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Whether a broker's certificate and its name are checked.
    pub verify: bool,
    /// Authorities (PEM) in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// Certificate and key (PEM) that brokers are shown.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

/// An account at the brokers. Its password never prints.
#[derive(Clone, PartialEq, Eq)]
pub struct Sasl {
    /// How it is proved: the name of a mechanism as it is registered, `PLAIN` (RFC 4616) or `SCRAM-SHA-512`
    /// (RFC 5802).
    pub mechanism: &'static str,
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
}

/// Where a consumer group that is new begins; one that has committed something goes on from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartAt {
    /// With the oldest message that is still there.
    #[default]
    Oldest,
    /// With the next message that comes.
    Newest,
    /// With the first message of this time or later, ms since 1970.
    Time(u64),
    /// With the message of this offset, or the next that is there.
    Offset(u64),
}

// === impl Sasl ===

impl fmt::Debug for Sasl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Sasl")
            .field("mechanism", &self.mechanism)
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_never_prints() {
        let sasl = Sasl {
            mechanism: "SCRAM-SHA-256",
            username: "tidegate".to_owned(),
            password: "hunter2".to_owned(),
        };
        let printed = format!("{sasl:?}");
        assert!(
            printed.contains("tidegate") && !printed.contains("hunter2"),
            "{printed}"
        );
    }
}
