//! A topic beside a queue's, with a partition for each lane: what the owner of a lane keeps of it for the
//! next owner.

use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};

use crate::browse::read_until;
use crate::client::base_config;
use crate::group::Quiet;
use crate::topic::{ASK_TIMEOUT, Topic, wait};
use crate::{Append, Browsed, OpenError, Options, Part, ReadError};

/// A topic beside a queue's. Cheap to clone.
#[derive(Clone)]
pub struct Aside {
    topic: Topic,
}

impl Topic {
    /// The topic of this name beside this one, which is made if it is missing: it keeps what it has until
    /// somebody deletes it. Blocks on the brokers.
    ///
    /// # Errors
    /// If it cannot be made, or not be used.
    pub fn aside(&self, name: &str) -> Result<Aside, OpenError> {
        let ours = &self.inner.options;
        let bytes = self.inner.message_bytes_max.saturating_add(MORE_BYTES);
        let topic = Topic::open_aside(&Options {
            topic: name.to_owned(),
            partitions: Some(self.lanes()),
            retention: Duration::MAX,
            message_bytes_max: Some(u32::try_from(bytes).unwrap_or(u32::MAX)),
            ..ours.clone()
        })?;
        if topic.inner.message_bytes_max < self.inner.message_bytes_max {
            return Err(OpenError::Topic {
                topic: name.to_owned(),
                why: format!(
                    "it takes messages of {} bytes, and {} has some of {} (`max.message.bytes`)",
                    topic.inner.message_bytes_max,
                    self.name(),
                    self.inner.message_bytes_max
                ),
            });
        }
        Ok(Aside { topic })
    }
}

impl Aside {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.topic.name()
    }

    /// Bytes that a record may have, with so many bytes of parameters.
    #[must_use]
    pub fn record_bytes_max(&self, params: usize) -> usize {
        self.topic.part_bytes_max(params)
    }

    /// Appends a record for each part's lane. Never blocks.
    pub fn append(&self, kind: u8, params: &[u8], parts: Vec<Part>) -> Append {
        self.topic.append(kind, params, parts)
    }

    /// As [`Aside::append`], and waits.
    ///
    /// # Errors
    /// As the append says.
    pub fn append_blocking(
        &self,
        kind: u8,
        params: &[u8],
        parts: Vec<Part>,
    ) -> Result<crate::Receipt, crate::AppendError> {
        self.topic.append_blocking(kind, params, parts)
    }

    /// Visits all records of these lanes, each lane's in order and up to a place that is known to hold one.
    /// Blocks on the brokers.
    ///
    /// # Errors
    /// If they do not answer.
    pub fn read(&self, until: &[(u32, u64)], each: impl FnMut(u32, Browsed)) -> Result<(), ReadError> {
        read_until(&self.topic.inner.options, until, |_| Offset::Beginning, each)
    }

    /// Deletes what lies before these places. Blocks on the brokers.
    ///
    /// # Errors
    /// If they do not do it.
    pub fn delete_before(&self, places: &[(u32, u64)]) -> Result<(), ReadError> {
        let failed = |error: KafkaError| ReadError::Kafka(error.to_string());
        let admin: AdminClient<Quiet> = base_config(&self.topic.inner.options)
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

    /// Refuses more, and waits for what is under way.
    pub fn close(&self) {
        self.topic.close();
    }
}

/// What a record has beside the lines that a message of the queue had.
const MORE_BYTES: u64 = 1 << 20;
