//! The operations of a topic, and what is appended to it and read from it.

use std::pin::Pin;
use std::sync::Arc;

use crate::{AppendError, Group, Head, HeadError, OpenError, ReadError, StartAt};

/// A topic that is used as a queue.
pub trait Topic: Send + Sync {
    /// The number of partitions.
    #[must_use]
    fn lanes(&self) -> u32;

    /// Whether a document's lane follows from its id alone. That is so unless the topic has messages whose
    /// lanes follow from index and shard, as in earlier versions: documents would then be in other lanes than
    /// before, and overtake each other.
    #[must_use]
    fn has_lanes_by_id(&self) -> bool;

    /// The name of the topic.
    #[must_use]
    fn name(&self) -> &str;

    /// The number of bytes that a part may have besides `params` bytes of parameters.
    #[must_use]
    fn part_bytes_max(&self, params: usize) -> usize;

    /// Appends the parts of a request; the parts of one lane keep their order. Never blocks. If one part is
    /// too large, none is appended.
    fn append(&self, kind: u8, params: &[u8], parts: Vec<Part>) -> Append;

    /// Appends like [`Topic::append`], and waits.
    ///
    /// # Errors
    /// The same as the append's.
    fn append_blocking(&self, kind: u8, params: &[u8], parts: Vec<Part>) -> Result<Receipt, AppendError>;

    /// Returns the consumer group of this name, which is `TOPIC.NAME` at the brokers. The group knows its
    /// progress when this returns.
    ///
    /// # Errors
    /// Fails if the brokers do not report the progress.
    fn group(&self, name: &str, start: StartAt) -> Result<Arc<dyn Group>, OpenError>;

    /// Returns the topic of this name beside this one, and creates it if it is missing. Such a topic keeps
    /// its messages until they are deleted explicitly. Blocks on the brokers.
    ///
    /// # Errors
    /// Fails if the topic cannot be created or used.
    fn side_topic(&self, name: &str) -> Result<Arc<dyn SideTopic>, OpenError>;

    /// Visits the messages of a lane, starting at an offset or at the oldest message that is there, until
    /// `each` returns `false` or there are no more. Blocks on the brokers.
    ///
    /// # Errors
    /// Fails if there is no such lane, or if the brokers do not answer.
    fn browse(&self, lane: u32, from: u64, each: &mut dyn FnMut(Browsed) -> bool) -> Result<(), ReadError>;

    /// What this process has put into the topic.
    #[must_use]
    fn status(&self) -> Status;

    /// How often the length of the topic and the progress of its groups have been looked up. What other
    /// processes have written is visible only in a look that begins afterwards.
    #[must_use]
    fn looks(&self) -> u64;

    /// Refuses further appends, and waits for those under way.
    fn close(&self);
}

/// A topic beside a queue's topic, with a partition for each lane. In it the owner of a lane keeps what the
/// next owner has to know.
pub trait SideTopic: Topic {
    /// Visits all records of these lanes, each lane's in order, up to a place that is known to hold a record.
    /// Blocks on the brokers.
    ///
    /// # Errors
    /// Fails if the brokers do not answer.
    fn read(&self, until: &[(u32, u64)], each: &mut dyn FnMut(u32, Browsed)) -> Result<(), ReadError>;

    /// Deletes the records before these places. Blocks on the brokers.
    ///
    /// # Errors
    /// Fails if the brokers do not delete them.
    fn delete_before(&self, places: &[(u32, u64)]) -> Result<(), ReadError>;
}

/// The outcome of an append, which can be awaited on any runtime. It is ready when no part of the request is
/// under way any more, so that nothing of a refused request can be stored after a request that was accepted
/// later. Dropping it does not undo the append.
pub type Append = Pin<Box<dyn Future<Output = Result<Receipt, AppendError>> + Send>>;

/// The part of a request for one lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The lane, which is the partition.
    pub lane: u32,
    /// The number of operations.
    pub documents: u32,
    /// The lines of the operations.
    pub bytes: Vec<u8>,
}

/// The places of a request's parts: partition and offset of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The places, in the order of the partitions.
    pub places: Vec<(u32, u64)>,
}

/// What a gateway has put into a topic since it opened the topic, and the state of the topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Documents in requests that were acknowledged as a whole.
    pub documents: u64,
    /// The number of such requests.
    pub records: u64,
    /// Bytes handed over and not yet acknowledged.
    pub waiting_bytes: u64,
    /// Messages that the topic holds, delivered or not, as of the last look.
    pub messages: u64,
    /// Why nothing is accepted any more, if that is so.
    pub poisoned: Option<String>,
}

/// A message that is read without being delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Browsed {
    /// The offset of the message.
    pub offset: u64,
    /// When it was written, ms since 1970.
    pub time_ms: u64,
    /// The head of the message, or why the message is not a gateway's.
    pub head: Result<Head, HeadError>,
    /// The parameters of the record.
    pub params: Vec<u8>,
    /// The lines of the part.
    pub lines: Vec<u8>,
}
