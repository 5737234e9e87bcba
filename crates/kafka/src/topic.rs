//! What can be done with a topic, and what goes into it and comes out.

use std::pin::Pin;
use std::sync::Arc;

use crate::{AppendError, Group, Head, HeadError, OpenError, ReadError, StartAt};

/// A topic that is used as a queue.
pub trait Topic: Send + Sync {
    /// How many partitions it has.
    #[must_use]
    fn lanes(&self) -> u32;

    /// Whether a document's lane follows from its id alone. That is so unless there are messages whose lanes
    /// follow from index and shard, as they did in earlier versions: documents would be in other lanes than
    /// before, and overtake each other.
    #[must_use]
    fn has_lanes_by_id(&self) -> bool;

    /// Its name.
    #[must_use]
    fn name(&self) -> &str;

    /// Bytes that a part may have, with so many bytes of parameters.
    #[must_use]
    fn part_bytes_max(&self, params: usize) -> usize;

    /// Appends the parts of a request, those of one lane in their order. Never blocks. If one part is too
    /// large, none is appended.
    fn append(&self, kind: u8, params: &[u8], parts: Vec<Part>) -> Append;

    /// As [`Topic::append`], and waits.
    ///
    /// # Errors
    /// As the append says.
    fn append_blocking(&self, kind: u8, params: &[u8], parts: Vec<Part>) -> Result<Receipt, AppendError>;

    /// The consumer group of this name, `TOPIC.NAME` at the brokers. It knows how far it is.
    ///
    /// # Errors
    /// If the brokers do not say how far it is.
    fn group(&self, name: &str, start: StartAt) -> Result<Arc<dyn Group>, OpenError>;

    /// The topic of this name beside this one, which is made if it is missing: it keeps what it has until
    /// somebody deletes it. Blocks on the brokers.
    ///
    /// # Errors
    /// If it cannot be made, or not be used.
    fn aside(&self, name: &str) -> Result<Arc<dyn Aside>, OpenError>;

    /// Messages of a lane from an offset on, or from the oldest that is there, until `each` says `false`, or
    /// there is no more. Blocks on the brokers.
    ///
    /// # Errors
    /// If there is no such lane, or the brokers do not answer.
    fn browse(&self, lane: u32, from: u64, each: &mut dyn FnMut(Browsed) -> bool) -> Result<(), ReadError>;

    /// What this process has put there.
    #[must_use]
    fn status(&self) -> Status;

    /// How often somebody has looked how long the topic is and how far its groups are. What other processes
    /// have put there shows in a look that begins afterwards.
    #[must_use]
    fn looks(&self) -> u64;

    /// Refuses more, and waits for what is under way.
    fn close(&self);
}

/// A topic beside a queue's, with a partition for each lane: what the owner of a lane keeps of it for the
/// next owner.
pub trait Aside: Topic {
    /// Visits all records of these lanes, each lane's in order and up to a place that is known to hold one.
    /// Blocks on the brokers.
    ///
    /// # Errors
    /// If they do not answer.
    fn read(&self, until: &[(u32, u64)], each: &mut dyn FnMut(u32, Browsed)) -> Result<(), ReadError>;

    /// Deletes what lies before these places. Blocks on the brokers.
    ///
    /// # Errors
    /// If they do not do it.
    fn delete_before(&self, places: &[(u32, u64)]) -> Result<(), ReadError>;
}

/// The outcome of an append, to be awaited on any runtime. It comes when no part of the request is under way
/// any more, so that nothing of a request that was refused can be stored after one that was accepted later.
/// Dropping it doesn't undo the append.
pub type Append = Pin<Box<dyn Future<Output = Result<Receipt, AppendError>> + Send>>;

/// What a request has for one lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The lane, which is the partition.
    pub lane: u32,
    /// Operations in it.
    pub documents: u32,
    /// Their lines.
    pub bytes: Vec<u8>,
}

/// Where the parts of a request went: partition and offset of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// In the order of the partitions.
    pub places: Vec<(u32, u64)>,
}

/// What a gateway has put into a topic since it opened it, and how it is with the brokers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Documents of requests that were acknowledged as a whole.
    pub documents: u64,
    /// Such requests.
    pub records: u64,
    /// Bytes handed over and not yet acknowledged.
    pub waiting_bytes: u64,
    /// Messages that the topic holds, delivered or not, as of a moment ago.
    pub messages: u64,
    /// Why nothing is accepted any more, if so.
    pub poisoned: Option<String>,
}

/// A message that is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Browsed {
    /// Its offset.
    pub offset: u64,
    /// When it was written, ms since 1970.
    pub time_ms: u64,
    /// What it says of itself, or why it is not a gateway's.
    pub head: Result<Head, HeadError>,
    /// Its parameters.
    pub params: Vec<u8>,
    /// Its lines.
    pub lines: Vec<u8>,
}
