//! The errors of this crate.

/// A topic that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No broker answered in time.
    #[error("no broker of {brokers} answers: {why}")]
    Away {
        /// The brokers that were asked.
        brokers: String,
        /// The message of the client library.
        why: String,
    },
    /// A broker answered, but either it refuses the gateway's account or the gateway does not trust the
    /// broker.
    #[error(
        "the brokers {brokers} are there and cannot be used (`sasl` and `tls` of the queue say how): {why}"
    )]
    Refused {
        /// The brokers that were asked.
        brokers: String,
        /// The message of the client library.
        why: String,
    },
    /// The topic cannot be created or asked about.
    #[error("topic {topic}: {why}")]
    Topic {
        /// The name of the topic.
        topic: String,
        /// The problem.
        why: String,
    },
    /// The topic has another number of partitions than the configuration says.
    #[error(
        "topic {topic} has {has} partitions and the configuration says {said}: which partition a document is in depends on it, so it cannot change; write `partitions: {has}`, or use another topic"
    )]
    Partitions {
        /// The name of the topic.
        topic: String,
        /// The number of partitions that the topic has.
        has: u32,
        /// The number of partitions in the configuration.
        said: u32,
    },
    /// This process cannot make what it needs to ask the brokers.
    #[error("the Kafka client cannot be made: {0}")]
    Client(String),
    /// This build has no client.
    #[error("this build of the gateway has no Kafka client: build it with the feature `kafka`")]
    NotBuilt,
}

impl OpenError {
    /// Whether the brokers have answered nothing about the topic that holds until somebody changes its
    /// settings, its rights or the configuration.
    pub fn says_nothing_of_the_topic(&self) -> bool {
        match self {
            OpenError::Away { .. } | OpenError::Refused { .. } | OpenError::Client(_) => true,
            OpenError::Topic { .. } | OpenError::Partitions { .. } | OpenError::NotBuilt => false,
        }
    }
}

/// Why a request was not accepted. Some of its parts may be in the topic all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Requests come faster than the brokers acknowledge them.
    #[error("{waiting} bytes wait for the brokers, at most {most} may")]
    Full {
        /// The bytes that wait.
        waiting: u64,
        /// The most bytes that may wait.
        most: u64,
    },
    /// One document, or the request's parameters, is larger than a message may be.
    #[error("{bytes} bytes, and the topic takes {}", at_most(*most))]
    TooLarge {
        /// The size.
        bytes: u64,
        /// The largest allowed size; 0 if only the brokers know it.
        most: u64,
    },
    /// Some parts of the request are in the topic, and are delivered. The other parts are not, or their fate
    /// is unknown.
    #[error("{stored} of its {parts} parts are in the topic and are delivered: {why}")]
    Partly {
        /// The number of parts that are acknowledged.
        stored: usize,
        /// The number of parts of the request.
        parts: usize,
        /// Why the other parts are not acknowledged.
        why: Box<AppendError>,
    },
    /// The brokers did not acknowledge the whole request in time.
    #[error("Kafka has not taken all of it: {0}")]
    Away(String),
    /// Nothing is accepted until the gateway is restarted.
    #[error("{0}")]
    Poisoned(String),
    /// The gateway is stopping.
    #[error("the topic is closed")]
    Closed,
}

impl AppendError {
    /// Whether nothing of what was refused is in the topic.
    #[cfg_attr(
        not(feature = "client"),
        expect(dead_code, reason = "only the client appends")
    )]
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Full { .. } | Self::TooLarge { .. } | Self::Closed => true,
            Self::Partly { .. } | Self::Away(_) | Self::Poisoned(_) => false,
        }
    }
}

fn at_most(most: u64) -> String {
    match most {
        0 => "smaller messages only".to_owned(),
        most => format!("messages of {most} at most"),
    }
}

/// Why this version does not know a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The message was not written by a gateway.
    #[error("it has no header `{}`", crate::Head::NAME)]
    Missing,
    /// The header is not UTF-8.
    #[error("its head is not text")]
    NoText,
    /// The header is not what a gateway writes.
    #[error("its head is {0:?}")]
    Odd(String),
    /// A newer gateway wrote the message.
    #[error("it was written by a newer version ({0})")]
    Newer(u32),
}

/// Why something cannot be read or committed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The message is not one of a gateway.
    #[error(
        "the message at {lane}:{offset} of topic {topic} is not one that this version knows to send ({why}); nothing of its partition is delivered until the group's offset is set past it"
    )]
    Foreign {
        /// The topic.
        topic: String,
        /// The partition.
        lane: u32,
        /// The offset.
        offset: u64,
        /// The problem with the message.
        why: String,
    },
    /// The brokers do not answer, or they refuse.
    #[error("{0}")]
    Kafka(String),
    /// A gateway takes part in the group.
    #[error("a gateway delivers for the consumer group {0}: stop its pipeline there first")]
    InUse(String),
    /// There is no such lane.
    #[error("there is no lane {0}")]
    NoLane(u32),
}
