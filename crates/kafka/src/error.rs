//! What can go wrong.

/// A topic that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No broker answered in time.
    #[error("no broker of {brokers} answers: {why}")]
    Away {
        /// Those that were asked.
        brokers: String,
        /// What the client library says.
        why: String,
    },
    /// A broker answered, and either it does not know the gateway's account or the gateway does not trust it.
    #[error(
        "the brokers {brokers} are there and cannot be used (`sasl` and `tls` of the queue say how): {why}"
    )]
    Refused {
        /// Those that were asked.
        brokers: String,
        /// What the client library says.
        why: String,
    },
    /// The topic cannot be made, or asked about.
    #[error("topic {topic}: {why}")]
    Topic {
        /// Its name.
        topic: String,
        /// What is wrong.
        why: String,
    },
    /// It has another number of partitions than the configuration says.
    #[error(
        "topic {topic} has {has} partitions and the configuration says {said}: which partition a document is in depends on it, so it cannot change; write `partitions: {has}`, or use another topic"
    )]
    Partitions {
        /// Its name.
        topic: String,
        /// What it has.
        has: u32,
        /// What was asked for.
        said: u32,
    },
    /// This build has no client.
    #[error("this build of the gateway has no Kafka client: build it with the feature `kafka`")]
    NotBuilt,
}

/// A request that was not accepted. Some of its parts may be in the topic all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Requests come faster than the brokers acknowledge them.
    #[error("{waiting} bytes wait for the brokers, at most {most} may")]
    Full {
        /// Bytes waiting.
        waiting: u64,
        /// Bytes that may wait.
        most: u64,
    },
    /// One document, or the request's parameters, is larger than a message may be.
    #[error("{bytes} bytes, and the topic takes {}", at_most(*most))]
    TooLarge {
        /// How large it is.
        bytes: u64,
        /// How large it may be; 0 where only the brokers know.
        most: u64,
    },
    /// Some of its parts are in the topic, and are delivered; the others are not, or nobody knows.
    #[error("{stored} of its {parts} parts are in the topic and are delivered: {why}")]
    Partly {
        /// Parts that are acknowledged.
        stored: usize,
        /// Parts of the request.
        parts: usize,
        /// Why not all are.
        why: Box<AppendError>,
    },
    /// The brokers did not acknowledge all of it in time.
    #[error("Kafka has not taken all of it: {0}")]
    Away(String),
    /// Nothing is accepted any more until the gateway is started again.
    #[error("{0}")]
    Poisoned(String),
    /// The gateway is stopping.
    #[error("the topic is closed")]
    Closed,
}

fn at_most(most: u64) -> String {
    match most {
        0 => "smaller messages only".to_owned(),
        most => format!("messages of {most} at most"),
    }
}

/// Why a message is not one that this version knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// It was not written by a gateway.
    #[error("it has no header `{}`", crate::Head::NAME)]
    Missing,
    /// The header is not UTF-8.
    #[error("its head is no text")]
    NoText,
    /// The header is not what a gateway writes.
    #[error("its head is {0:?}")]
    Odd(String),
    /// A newer gateway wrote it.
    #[error("it was written by a newer version ({0})")]
    Newer(u32),
}

/// What cannot be read or committed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// What is there is not a message of ours.
    #[error(
        "the message at {lane}:{offset} of topic {topic} is not one that this version knows to send ({why}); nothing of its partition is delivered until the group's offset is set past it"
    )]
    Foreign {
        /// The topic.
        topic: String,
        /// The partition.
        lane: u32,
        /// Where.
        offset: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The brokers do not answer, or refuse.
    #[error("{0}")]
    Kafka(String),
    /// A gateway takes part in the group.
    #[error("a gateway delivers for the consumer group {0}: stop its pipeline there first")]
    InUse(String),
    /// There is no such lane.
    #[error("there is no lane {0}")]
    NoLane(u32),
}
