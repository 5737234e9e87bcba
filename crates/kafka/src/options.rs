//! What is said of a topic.

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
    /// How long a topic that is made keeps messages, delivered or not.
    pub retention: Duration,
    /// Bytes of a message at most, in a topic that is made. None: as the brokers have it.
    pub message_bytes_max: Option<u32>,
    /// A request that is not acknowledged after this is refused.
    pub ack_timeout: Duration,
    /// A gateway that the brokers have not heard of for so long loses its lanes to others.
    pub session_timeout: Duration,
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
}
