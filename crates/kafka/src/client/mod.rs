//! The client, built on librdkafka.

mod append;
mod browse;
mod config;
mod doubt;
mod ends;
mod group;
mod hand_over;
mod lane;
mod late;
mod produce;
mod seek;
mod side_topic;
mod size_limit;
mod threads;
mod topic;
mod watch;

use std::sync::Arc;

use crate::{OpenError, Options, ReadError, Topic};

/// Finds the topic, or creates it. Blocks until the brokers have answered everything that has to be known.
///
/// # Errors
/// Fails if no broker answers within some seconds, or if the topic cannot be used.
pub fn open(options: &Options) -> Result<Arc<dyn Topic>, OpenError> {
    Ok(Arc::new(topic::OpenTopic::open(options)?))
}

impl From<rdkafka::error::KafkaError> for ReadError {
    fn from(error: rdkafka::error::KafkaError) -> Self {
        Self::Kafka(error.to_string())
    }
}
