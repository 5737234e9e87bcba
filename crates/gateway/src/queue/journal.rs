//! Where a queue's records are: on this machine's disk, or in a Kafka topic. The differences between the two
//! end here: the code that accepts and delivers sees lanes, marks and commits.

mod pieces;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bulk::{Ask, Gather, Plan, RouteTable};
use futures_util::future::Either;
use log::{
    AppendError, Commit, ConsumerStatus, Full, LaneStatus, Log, Mark, Next, ReadError, Record, StartAt,
    Status,
};
use parking_lot::{Mutex, MutexGuard};

use tokio::sync::oneshot;
use wire::{Buffer, CHUNK_BYTES};

use crate::error::NotQueued;
use crate::queue::record::Params;
use pieces::{GroupGather, assert_gathered, cut};

/// Where the records of a queue are.
pub(crate) enum Journal {
    /// On this machine's disk.
    Disk(Log),
    /// In a Kafka topic.
    Kafka(TopicJournal),
}

/// A topic, and the consumer groups that this gateway takes part in.
pub(crate) struct TopicJournal {
    topic: Arc<dyn kafka::Topic>,
    groups: Mutex<Vec<(String, Arc<dyn kafka::Group>)>>,
}

/// A request on its way into a journal.
pub(crate) enum NewRecord {
    Disk(Record),
    Kafka {
        kind: u8,
        params: Vec<u8>,
        parts: Vec<kafka::Part>,
    },
}

/// An append to wait for.
#[must_use = "an append is acknowledged when this says so"]
pub(crate) enum Append {
    Disk(log::Append),
    Kafka(kafka::Append),
}

/// Why there is no consumer group of a name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoConsumer {
    #[error(transparent)]
    Disk(#[from] ReadError),
    #[error(transparent)]
    Kafka(#[from] kafka::OpenError),
}

/// The place of a request, as its client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Receipt {
    Disk(log::Receipt),
    Kafka(kafka::Receipt),
}

/// A consumer group.
pub(crate) enum Consumer {
    Disk(log::Consumer),
    Kafka(Arc<dyn kafka::Group>),
}

/// The reader of one lane.
pub(crate) enum LaneReader {
    Disk(log::LaneReader),
    Kafka(Box<dyn kafka::LaneReader>),
}

/// The figures of a consumer group that several gateways share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sharing {
    /// Messages that the group has yet to deliver, wherever they are.
    pub(crate) pending_messages: u64,
    /// Messages that Kafka deleted before they were delivered.
    pub(crate) lost_messages: u64,
    /// Lanes that are this gateway's now.
    pub(crate) lanes_held: u64,
}

// === impl NewRecord ===

impl NewRecord {
    /// Returns the memory that the entry's lines take.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            NewRecord::Disk(record) => record.payload_bytes(),
            NewRecord::Kafka { parts, .. } => parts.iter().map(|part| part.bytes.len()).sum(),
        }
    }
}

// === impl Journal ===

impl Journal {
    pub(crate) fn in_topic(topic: Arc<dyn kafka::Topic>) -> Self {
        Journal::Kafka(TopicJournal {
            topic,
            groups: Mutex::default(),
        })
    }

    pub(crate) fn lanes(&self) -> u32 {
        match self {
            Journal::Disk(log) => log.lanes(),
            Journal::Kafka(kafka) => kafka.topic.lanes(),
        }
    }

    /// Whether a document's lane follows from its id alone; otherwise it follows from the document's index
    /// and shard, as they are when the document is accepted.
    pub(crate) fn has_lanes_by_id(&self) -> bool {
        match self {
            Journal::Disk(_) => false,
            Journal::Kafka(kafka) => kafka.topic.has_lanes_by_id(),
        }
    }

    /// Returns the log on this machine's disk, if the journal is one.
    pub(crate) fn on_disk(&self) -> Option<&Log> {
        match self {
            Journal::Disk(log) => Some(log),
            Journal::Kafka(_) => None,
        }
    }

    /// Returns the name of the topic, if the journal is one.
    pub(crate) fn topic(&self) -> Option<&str> {
        match self {
            Journal::Disk(_) => None,
            Journal::Kafka(kafka) => Some(kafka.topic.name()),
        }
    }

    /// Returns the consumer group of this name, if the journal is a topic and has one.
    pub(crate) fn topic_group(&self, name: &str) -> Option<Arc<dyn kafka::Group>> {
        let Journal::Kafka(kafka) = self else { return None };
        let groups = kafka.groups();
        let found = groups.iter().find(|(known, _)| known == name);
        found.map(|(_, group)| Arc::clone(group))
    }

    /// Returns the topic itself, if the journal is one.
    pub(crate) fn in_kafka(&self) -> Option<&dyn kafka::Topic> {
        match self {
            Journal::Disk(_) => None,
            Journal::Kafka(kafka) => Some(&*kafka.topic),
        }
    }

    /// Makes an entry of a body that is planned by lanes. If the journal keeps the lines as they are,
    /// `lend` is asked for memory for so many bytes; otherwise the journal uses its own.
    ///
    /// # Errors
    ///
    /// If the body cannot be brought into a shape that the journal has room for.
    pub(crate) async fn entry(
        &self,
        (kind, params): (u8, &Params),
        plan: &Plan,
        body: &[u8],
        (ask, table): (&Ask<'_>, &RouteTable),
        lend: impl FnOnce(usize) -> Option<Buffer>,
        mut turn: impl AsyncFnMut(),
    ) -> Result<NewRecord, NotQueued> {
        let params = serde_json::to_vec(params).unwrap_or_default();
        match self {
            Journal::Disk(log) => {
                let mut record = log.record(kind, &params);
                let bytes: u64 = plan.parts.iter().map(|part| part.bytes).sum();
                let bytes = usize::try_from(bytes).unwrap_or_default();
                if record.is_plain()
                    && let Some(buffer) = lend(bytes)
                {
                    let (memory, take_back) = buffer.lend();
                    record.lend(memory, take_back);
                }
                record.reserve(bytes);
                for parts in plan.by_lane().chunk_by(|part, next| part.lane == next.lane) {
                    let (lane, docs) = (parts[0].lane, parts.iter().map(|part| part.docs).sum());
                    let mut group = GroupGather::new(parts);
                    let more = |out: &mut Vec<u8>, most| group.next(plan, body, out, most);
                    record.group_in_turns(lane, docs, more, &mut turn).await;
                    group.assert_whole();
                }
                Ok(NewRecord::Disk(record))
            }
            Journal::Kafka(kafka) => {
                let most = kafka.topic.part_bytes_max(params.len());
                let mut parts = Vec::with_capacity(plan.parts.len());
                for part in &plan.parts {
                    let mut bytes = Vec::with_capacity(usize::try_from(part.bytes).unwrap_or_default());
                    let mut gather = Gather::default();
                    while gather.next(plan, part, body, &mut bytes, CHUNK_BYTES) > 0 {
                        turn().await;
                    }
                    assert_gathered(part, bytes.len() as u64);
                    let whole = kafka::Part {
                        lane: part.lane,
                        documents: part.docs,
                        bytes,
                    };
                    cut(whole, most, ask, table, &mut parts)?;
                }
                Ok(NewRecord::Kafka { kind, params, parts })
            }
        }
    }

    /// Appends an entry that this journal made; the entry is durable when the append says so.
    pub(crate) fn append(&self, entry: NewRecord) -> Append {
        match (self, entry) {
            (Journal::Disk(log), NewRecord::Disk(record)) => Append::Disk(log.append_async(record)),
            (Journal::Kafka(kafka), NewRecord::Kafka { kind, params, parts }) => {
                Append::Kafka(kafka.topic.append(kind, &params, parts))
            }
            _ => unreachable!("an entry is appended to the journal that made it"),
        }
    }

    /// Appends as [`Journal::append`] does, and calls `then` as soon as the record is durable, even if the
    /// caller has gone. In Kafka `then` is not called: `idempotency`, which needs it, is for the disk.
    pub(crate) async fn append_and(
        &self,
        entry: NewRecord,
        then: impl FnOnce(&Result<log::Receipt, log::AppendError>) + Send + 'static,
    ) -> Result<Receipt, NotQueued> {
        match (self, entry) {
            (Journal::Disk(log), NewRecord::Disk(record)) => {
                let (settle, settled) = oneshot::channel();
                log.append(record, move |result| {
                    then(&result);
                    // The caller may be gone.
                    let _ = settle.send(result);
                });
                let settled = settled.await.unwrap_or(Err(log::AppendError::Closed));
                Ok(Receipt::Disk(settled?))
            }
            (_, entry) => self.append(entry).await,
        }
    }

    /// Appends as [`Journal::append`] does, and waits.
    pub(crate) fn append_blocking(&self, entry: NewRecord) -> Result<(), NotQueued> {
        match (self, entry) {
            (Journal::Disk(log), NewRecord::Disk(record)) => Ok(log.append_blocking(record).map(drop)?),
            (Journal::Kafka(kafka), NewRecord::Kafka { kind, params, parts }) => {
                Ok(kafka.topic.append_blocking(kind, &params, parts).map(drop)?)
            }
            _ => unreachable!("an entry is appended to the journal that made it"),
        }
    }

    /// Opens the consumer group of this name.
    ///
    /// # Errors
    ///
    /// If there is no such group; the error tells the operator why.
    pub(crate) fn consumer(&self, name: &str, start: StartAt) -> Result<Consumer, NoConsumer> {
        match self {
            Journal::Disk(log) => Ok(Consumer::Disk(log.consumer(name, start)?)),
            Journal::Kafka(kafka) => {
                // A pipeline that a reload changes goes on with the group that it had.
                if let Some((_, group)) = kafka.groups().iter().find(|(known, _)| known == name) {
                    return Ok(Consumer::Kafka(Arc::clone(group)));
                }
                let start = match start {
                    StartAt::Time(ms) => kafka::StartAt::Time(ms),
                    StartAt::Newest => kafka::StartAt::Newest,
                    StartAt::Oldest | StartAt::Position(_) => kafka::StartAt::Oldest,
                };
                let group = kafka.topic.group(name, start)?;
                kafka.groups().push((name.to_owned(), Arc::clone(&group)));
                Ok(Consumer::Kafka(group))
            }
        }
    }

    /// Returns the names of the consumer groups.
    pub(crate) fn consumers(&self) -> Vec<String> {
        match self {
            Journal::Disk(log) => log.consumers(),
            Journal::Kafka(kafka) => kafka.groups().iter().map(|(name, _)| name.clone()).collect(),
        }
    }

    /// Returns for each group, lane by lane, the place before which operations that became dead letters here
    /// count as dead.
    pub(crate) fn committed(&self) -> Vec<(String, Vec<u64>)> {
        match self {
            Journal::Disk(log) => {
                let groups = log.accounts().1.into_iter().map(|group| {
                    let positions = group.lanes.iter().map(|lane| lane.position).collect();
                    (group.name, positions)
                });
                groups.collect()
            }
            Journal::Kafka(kafka) => {
                let groups = kafka.groups();
                groups
                    .iter()
                    .map(|(name, group)| (name.clone(), group.claimed()))
                    .collect()
            }
        }
    }

    /// Makes the groups' commits durable.
    pub(crate) fn flush(&self) -> Result<(), ReadError> {
        match self {
            Journal::Disk(log) => {
                log.flush_consumers()?;
            }
            Journal::Kafka(kafka) => {
                let groups = kafka.groups().clone();
                for (_, group) in groups {
                    group.flush().map_err(unread)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the numbers of the journal and its groups. On disk they are of one instant. In Kafka, the
    /// accepted documents are those that this gateway has accepted since it started, and the other numbers
    /// are the group's, whichever gateway delivered.
    pub(crate) fn accounts(&self) -> (Status, Vec<ConsumerStatus>) {
        let (status, groups) = self.accounts_with_parked();
        (status, groups.into_iter().map(|(group, _)| group).collect())
    }

    /// Returns the same numbers, and for each group in Kafka how many documents are parked, whichever gateway
    /// parked them.
    pub(crate) fn accounts_with_parked(&self) -> (Status, Vec<(ConsumerStatus, Option<u64>)>) {
        match self {
            Journal::Disk(log) => {
                let (status, groups) = log.accounts();
                (status, groups.into_iter().map(|group| (group, None)).collect())
            }
            Journal::Kafka(kafka) => {
                let groups = kafka.groups();
                let groups = groups.iter().map(|(name, group)| {
                    let (status, parked) = group_status(name, &**group);
                    (status, Some(parked))
                });
                (self.status(), groups.collect())
            }
        }
    }

    /// Returns why a request of [`USUAL_BYTES`] would not be accepted now, if it would not.
    pub(crate) fn refuses(&self) -> Option<String> {
        match self {
            Journal::Disk(log) => log.admit(USUAL_BYTES).err().map(|error| error.to_string()),
            Journal::Kafka(kafka) => kafka.topic.status().poisoned,
        }
    }

    /// Returns the same reason in a word, one of [`REFUSALS`].
    pub(crate) fn refuses_for(&self) -> Option<&'static str> {
        match self {
            Journal::Disk(log) => log.admit(USUAL_BYTES).err().and_then(|error| match error {
                AppendError::Full(Full::Quota { .. }) => Some("max_size"),
                AppendError::Full(Full::Floor { .. } | Full::Disk) | AppendError::Io(_) => Some("disk"),
                AppendError::Full(Full::Waiting { .. }) => Some("busy"),
                AppendError::Poisoned(_) => Some("failed"),
                // The log is being stopped; or one record is too large or empty, which does not mean that the
                // queue refuses all.
                AppendError::Closed | AppendError::TooLarge { .. } | AppendError::Empty => None,
            }),
            Journal::Kafka(kafka) => kafka.topic.status().poisoned.map(|_| "failed"),
        }
    }

    pub(crate) fn status(&self) -> Status {
        match self {
            Journal::Disk(log) => log.status(),
            Journal::Kafka(kafka) => {
                let status = kafka.topic.status();
                Status {
                    documents: status.documents,
                    records: status.records,
                    waiting_bytes: status.waiting_bytes,
                    poisoned: status.poisoned,
                    ..Status::default()
                }
            }
        }
    }

    /// Returns how often the gateway has looked at the messages that other gateways have put there and
    /// delivered; `None` if there are no others.
    pub(crate) fn looks(&self) -> Option<u64> {
        match self {
            Journal::Disk(_) => None,
            Journal::Kafka(kafka) => Some(kafka.topic.looks()),
        }
    }

    pub(crate) fn close(&self) {
        match self {
            Journal::Disk(log) => log.close(),
            Journal::Kafka(kafka) => kafka.topic.close(),
        }
    }
}

/// Returns the status of a group, and how many documents are parked, which count neither as indexed nor as
/// dead.
fn group_status(name: &str, group: &dyn kafka::Group) -> (ConsumerStatus, u64) {
    let known = group.status();
    let parked: u64 = known.iter().map(|lane| lane.done.parked).sum();
    let lanes: Vec<LaneStatus> = known
        .into_iter()
        .map(|lane| LaneStatus {
            position: lane.done.offset,
            accepted: lane.done.documents + lane.fetched_documents,
            done: lane.done.documents,
            dead: lane.done.dead + lane.done.parked_dead,
            skipped: lane.done.skipped,
            pending_bytes: lane.fetched_bytes,
            ..LaneStatus::default()
        })
        .collect();
    let sum = |of: fn(&LaneStatus) -> u64| lanes.iter().map(of).sum::<u64>();
    let (dead, skipped) = (sum(|lane| lane.dead), sum(|lane| lane.skipped));
    let status = ConsumerStatus {
        name: name.to_owned(),
        indexed: sum(|lane| lane.done).saturating_sub(dead + skipped + parked),
        dead,
        skipped,
        pending: sum(|lane| lane.accepted - lane.done),
        pending_bytes: sum(|lane| lane.pending_bytes),
        lanes,
        ..ConsumerStatus::default()
    };
    (status, parked)
}

// === impl TopicJournal ===

impl TopicJournal {
    fn groups(&self) -> MutexGuard<'_, Vec<(String, Arc<dyn kafka::Group>)>> {
        self.groups.lock()
    }
}

// === impl Append ===

impl Future for Append {
    type Output = Result<Receipt, NotQueued>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Append::Disk(append) => Pin::new(append)
                .poll(context)
                .map(|result| Ok(Receipt::Disk(result?))),
            Append::Kafka(append) => Pin::new(append)
                .poll(context)
                .map(|result| Ok(Receipt::Kafka(result?))),
        }
    }
}

// === impl Receipt ===

impl fmt::Display for Receipt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Receipt::Disk(receipt) => write!(out, "position={}", receipt.position),
            Receipt::Kafka(receipt) => {
                out.write_str("partitions=")?;
                for (number, (lane, offset)) in receipt.places.iter().take(PLACES_TOLD).enumerate() {
                    let comma = if number > 0 { "," } else { "" };
                    write!(out, "{comma}{lane}:{offset}")?;
                }
                match receipt.places.len().saturating_sub(PLACES_TOLD) {
                    0 => Ok(()),
                    more => write!(out, ",+{more}"),
                }
            }
        }
    }
}

// === impl Consumer ===

impl Consumer {
    pub(crate) fn reader(&self, lane: u32) -> Result<LaneReader, ReadError> {
        match self {
            Consumer::Disk(consumer) => Ok(LaneReader::Disk(consumer.reader(lane)?)),
            Consumer::Kafka(group) => Ok(LaneReader::Kafka(group.reader(lane).map_err(unread)?)),
        }
    }

    /// Records that everything before these marks is done.
    pub(crate) fn commit(&self, commits: &[Commit]) -> Result<(), ReadError> {
        match self {
            Consumer::Disk(consumer) => consumer.commit(commits),
            Consumer::Kafka(group) => commits.iter().try_for_each(|commit| {
                let mark = commit.mark();
                group
                    .done(mark.lane, mark.position, commit.dead(), commit.skipped())
                    .map_err(unread)
            }),
        }
    }

    /// Waits until commits are durable.
    pub(crate) fn flush(&self) -> Result<(), ReadError> {
        match self {
            Consumer::Disk(consumer) => consumer.flush(),
            Consumer::Kafka(group) => group.flush().map_err(unread),
        }
    }

    pub(crate) fn status(&self) -> ConsumerStatus {
        match self {
            Consumer::Disk(consumer) => consumer.status(),
            Consumer::Kafka(group) => group_status("", &**group).0,
        }
    }

    /// Returns when the oldest document that is to be delivered was accepted, in ms since 1970. In Kafka this
    /// is not known: nobody looks while nothing delivers.
    pub(crate) fn oldest_pending_ms(&self) -> Result<Option<u64>, ReadError> {
        match self {
            Consumer::Disk(consumer) => consumer.oldest_pending_ms(),
            Consumer::Kafka(_) => Ok(None),
        }
    }

    /// Whether a lane's documents may be sent: only while no other gateway can have the lane.
    pub(crate) fn may_send(&self) -> bool {
        match self {
            Consumer::Disk(_) => true,
            Consumer::Kafka(group) => group.lease().is_some_and(|until| Instant::now() < until),
        }
    }

    /// Returns until when what the lanes hold may be sent; `None` if nothing bounds that.
    pub(crate) fn may_send_until(&self) -> Option<Instant> {
        match self {
            Consumer::Disk(_) => None,
            Consumer::Kafka(group) => Some(group.lease().unwrap_or_else(Instant::now)),
        }
    }

    /// Whether it is not known of some lane how much of what is claimed is committed ([`kafka::Group`]).
    pub(crate) fn is_in_doubt(&self) -> bool {
        matches!(self, Consumer::Kafka(group) if group.is_in_doubt())
    }

    /// Whether a lane has come, since this was last asked, of which nothing is committed that it has.
    pub(crate) fn went_back(&self) -> bool {
        match self {
            Consumer::Disk(_) => false,
            Consumer::Kafka(group) => group.went_back(),
        }
    }

    /// Returns for each lane of a topic the messages that the group has yet to deliver, wherever they are.
    pub(crate) fn messages_pending(&self) -> Vec<u64> {
        match self {
            Consumer::Disk(_) => Vec::new(),
            Consumer::Kafka(group) => group.status().iter().map(|lane| lane.messages).collect(),
        }
    }

    /// Returns for each lane of a topic the documents that wait apart from the lane, wherever they are.
    pub(crate) fn parked_by_lane(&self) -> Vec<u64> {
        match self {
            Consumer::Disk(_) => Vec::new(),
            Consumer::Kafka(group) => group.status().iter().map(|lane| lane.done.parked).collect(),
        }
    }

    /// Returns the figures that other gateways share, if the group is in Kafka.
    pub(crate) fn sharing(&self) -> Option<Sharing> {
        let Consumer::Kafka(group) = self else { return None };
        let lanes = group.status();
        Some(Sharing {
            pending_messages: lanes.iter().map(|lane| lane.messages).sum(),
            lost_messages: lanes.iter().map(|lane| lane.done.lost_messages).sum(),
            lanes_held: lanes.iter().filter(|lane| lane.held).count() as u64,
        })
    }

    /// Returns which lanes are this gateway's now, and how many messages each has; `None` if all lanes are,
    /// and nobody counts.
    pub(crate) fn lanes_shared(&self) -> Option<Vec<(bool, u64)>> {
        let Consumer::Kafka(group) = self else { return None };
        let lanes = group.status().into_iter();
        Some(lanes.map(|lane| (lane.held, lane.messages)).collect())
    }
}

// === impl LaneReader ===

impl LaneReader {
    /// Resolves once there is something to read.
    pub(crate) fn ready(&self) -> impl Future<Output = ()> + Send + 'static {
        match self {
            LaneReader::Disk(reader) => Either::Left(reader.ready()),
            LaneReader::Kafka(reader) => Either::Right(reader.ready()),
        }
    }

    /// Returns the bytes of the next group, as they are when they are read, and its documents, if there is a
    /// group.
    pub(crate) fn peek(&mut self) -> Result<Option<(usize, usize)>, ReadError> {
        let next = match self {
            LaneReader::Disk(reader) => {
                let bytes = reader.peek_unpacked()?;
                bytes.map(|bytes| (bytes as usize, reader.peeked_documents()))
            }
            LaneReader::Kafka(reader) => reader.peek(),
        };
        Ok(next.map(|(bytes, documents)| (bytes, documents as usize)))
    }

    /// Returns how many bytes and documents are there to be read, if that is known.
    pub(crate) fn waiting(&self) -> Option<(usize, usize)> {
        match self {
            LaneReader::Disk(reader) => {
                let (bytes, documents) = reader.waiting();
                Some((bytes as usize, documents as usize))
            }
            LaneReader::Kafka(_) => None,
        }
    }

    /// Appends the next group's bytes to `out` and describes the group; `None` if all that is there was read.
    #[allow(clippy::should_implement_trait, reason = "it fills a buffer of the caller's")]
    pub(crate) fn next(&mut self, out: &mut Vec<u8>) -> Result<Option<Next>, ReadError> {
        let reader = match self {
            LaneReader::Disk(reader) => return reader.next(out),
            LaneReader::Kafka(reader) => reader,
        };
        let message = reader.next(out).map_err(unread)?;
        Ok(message.map(|message| {
            Next::Group(log::Group {
                position: message.offset,
                time_ms: message.time_ms,
                kind: message.head.kind,
                params: message.params,
                documents: message.head.documents,
                ordinal: 0,
                mark: mark_of(&**reader),
            })
        }))
    }

    /// Whether the group at a position may be in one batch with the group at `first`.
    pub(crate) fn goes_along(&self, first: u64, position: u64) -> bool {
        match self {
            LaneReader::Disk(_) => true,
            // No more than that is sent before the first is committed.
            LaneReader::Kafka(_) => position - first < kafka::SENT_AHEAD_MAX,
        }
    }

    /// Lets go of the reader's hold on the disk while there is nothing to read.
    pub(crate) fn rest(&mut self) {
        match self {
            LaneReader::Disk(reader) => reader.rest(),
            LaneReader::Kafka(_) => {}
        }
    }

    /// Returns the place of the reader.
    pub(crate) fn mark(&self) -> Mark {
        match self {
            LaneReader::Disk(reader) => reader.mark(),
            LaneReader::Kafka(reader) => mark_of(&**reader),
        }
    }

    /// Goes back to a mark of this lane.
    pub(crate) fn rewind(&mut self, to: Mark) {
        match self {
            LaneReader::Disk(reader) => reader.rewind(to),
            LaneReader::Kafka(reader) => reader.rewind(to.position),
        }
    }
}

/// Returns the place of a reader in Kafka. The group counts documents, as they are done.
fn mark_of(reader: &dyn kafka::LaneReader) -> Mark {
    Mark {
        lane: reader.lane(),
        position: reader.position(),
        ..Mark::default()
    }
}

fn unread(error: kafka::ReadError) -> ReadError {
    match error {
        kafka::ReadError::NoLane(lane) => ReadError::NoLane { lane, lanes: 0 },
        error => ReadError::Io {
            doing: "cannot go on in",
            path: "Kafka".into(),
            source: std::io::Error::other(error),
        },
    }
}

/// The most places of a request that its client is told: they stand in a header.
const PLACES_TOLD: usize = 16;

/// The bytes that a queue has to have room for to count as one that accepts requests.
const USUAL_BYTES: u64 = 64 << 10;

/// The reasons why a queue can accept nothing, each in a word.
pub(crate) const REFUSALS: [&str; 4] = ["max_size", "disk", "failed", "busy"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_where_its_request_is_and_no_longer_header_than_it_can_take() {
        let places = |count: u32| {
            let places = (0..count).map(|lane| (lane, 7)).collect();
            Receipt::Kafka(kafka::Receipt { places }).to_string()
        };
        assert_eq!(places(2), "partitions=0:7,1:7");
        assert!(places(20).ends_with("15:7,+4"), "{}", places(20));
    }
}
