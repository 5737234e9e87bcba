//! A topic beside a queue's topic, with a partition for each lane. In it the owner of a lane keeps what the
//! next owner has to know.

use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};

use super::browse::read_until;
use super::config::base_config;
use super::group::Quiet;
use super::topic::{ASK_TIMEOUT, OpenTopic, wait};
use crate::{Browsed, OpenError, Options, ReadError, SideTopic, Topic};

impl OpenTopic {
    /// See [`Topic::aside`].
    pub(crate) fn open_beside(&self, name: &str) -> Result<Self, OpenError> {
        let ours = &self.inner.options;
        let bytes = self.inner.message_bytes_max().saturating_add(MORE_BYTES);
        let topic = OpenTopic::open_aside(&Options {
            topic: name.to_owned(),
            partitions: Some(self.lanes()),
            retention: Duration::MAX,
            message_bytes_max: Some(u32::try_from(bytes).unwrap_or(u32::MAX)),
            ..ours.clone()
        })?;
        if topic.inner.message_bytes_max() < self.inner.message_bytes_max() {
            return Err(OpenError::Topic {
                topic: name.to_owned(),
                why: format!(
                    "it takes messages of {} bytes, and {} has some of {} (`max.message.bytes`)",
                    topic.inner.message_bytes_max(),
                    self.name(),
                    self.inner.message_bytes_max()
                ),
            });
        }
        Ok(topic)
    }
}

impl SideTopic for OpenTopic {
    fn read(&self, until: &[(u32, u64)], each: &mut dyn FnMut(u32, Browsed)) -> Result<(), ReadError> {
        read_until(&self.inner.options, until, |_| Offset::Beginning, each)
    }

    fn delete_before(&self, places: &[(u32, u64)]) -> Result<(), ReadError> {
        let failed = |error: KafkaError| ReadError::Kafka(error.to_string());
        let admin: AdminClient<Quiet> = base_config(&self.inner.options)
            .create_with_context(Quiet::default())
            .map_err(failed)?;
        let mut list = TopicPartitionList::new();
        for (lane, offset) in places {
            let offset = i64::try_from(*offset).unwrap_or(i64::MAX);
            let added = list.add_partition_offset(self.name(), *lane as i32, Offset::Offset(offset));
            added.map_err(failed)?;
        }
        let asking = AdminOptions::new()
            .request_timeout(Some(ASK_TIMEOUT))
            .operation_timeout(Some(ASK_TIMEOUT));
        let done = wait(admin.delete_records(&list, &asking)).map_err(failed)?;
        done.elements()
            .iter()
            .try_for_each(|one| one.error())
            .map_err(failed)
    }
}

/// The bytes that a record may have besides the lines of the queue's message.
const MORE_BYTES: u64 = 1 << 20;
