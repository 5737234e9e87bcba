//! A queue in a Kafka topic, for gateways that outgrow one machine: what one accepts another may deliver.
//!
//! # The story of a record
//!
//! A client's bulk request becomes one [`Part`] for each lane that it writes to, and a lane is a partition of
//! the topic. [`Topic::append`] hands all of them to an idempotent producer that waits for all in-sync
//! replicas, and says so once **every** part is acknowledged. If one is not, none counts: the client is told
//! that nothing was accepted and repeats the whole, so that a part may be there twice (at least once).
//!
//! A [`Group`] is a Kafka consumer group: one for each target cluster, in as many gateways as there are. The
//! broker gives each partition to one of them. [`Change::Assigned`] says which lanes are this process's,
//! [`Change::Revoked`] that they go: the broker hands them on once whoever holds the [`Handed`] that comes
//! along has let go of it, which is when nothing of theirs is under way. What was done by then is committed,
//! with the generation of the group, so that a member that the group has given up cannot commit.
//!
//! A [`LaneReader`] reads the messages of one partition in order, from what is committed on.
//!
//! # Nobody sends for a lane that is another's
//!
//! A process that was stopped for a while (a paused machine) does not know that its lanes are another's by
//! now. So a lane sends only while the group's lease is valid ([`Group::lease`]): the broker does not give up
//! a member before `session_timeout` has passed since it last heard of it, and every commit that it takes is
//! that. The lease is three quarters of the session, counted from *before* the last commit that succeeded; a
//! commit is made often enough to keep it.
//!
//! # A message
//!
//! The value is the lines of the part as they are (newline-delimited JSON, as in a bulk body); the headers
//! `tidegate` (`1 KIND DOCUMENTS LANES`, in decimal) and `tidegate-params` say the rest
//! ([`head`](crate::Head)). There is no key: the partition is chosen here, by the hash of index and shard,
//! and so is the number of partitions that all gateways must agree on; a message that was written for another
//! number stops its lane.
//!
//! # What is committed
//!
//! An offset, and in its metadata running totals of the lane (see [`Cursor`]): documents and bytes done, and
//! of those the dead, the skipped, the parked and the lost. So what became of all documents before the
//! committed offset is told exactly, whoever delivered them and however often a gateway was killed.
//!
//! # What waits apart
//!
//! What the owner of a lane sets aside is behind the committed offset, and the next owner has to know it: it
//! is in a topic of its own beside the queue's ([`Aside`]), with a partition for each lane.
//!
//! # Without librdkafka
//!
//! The client is `librdkafka`, compiled in by the feature `client`. Without it the types are there, and
//! [`Topic::open`] says what is missing.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests sleep, lock and look at clocks as they like"
    )
)]

mod cursor;
mod error;
mod head;
mod options;

#[cfg(feature = "client")]
mod append;
#[cfg(feature = "client")]
mod aside;
#[cfg(feature = "client")]
mod browse;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod group;
#[cfg(feature = "client")]
mod hand_over;
#[cfg(feature = "client")]
mod lane;
#[cfg(feature = "client")]
mod lock;
#[cfg(feature = "client")]
mod produce;
#[cfg(feature = "client")]
mod seek;
#[cfg(feature = "client")]
mod threads;
#[cfg(feature = "client")]
mod topic;
#[cfg(feature = "client")]
mod watch;

#[cfg(not(feature = "client"))]
mod absent;

pub use cursor::Cursor;
pub use error::{AppendError, HeadError, OpenError, ReadError};
pub use head::Head;
pub use options::{Options, Sasl, StartAt, Tls};

#[cfg(feature = "client")]
pub use append::Append;
#[cfg(feature = "client")]
pub use aside::Aside;
#[cfg(feature = "client")]
pub use group::{Change, Group, Handed, LaneStatus, Running};
#[cfg(feature = "client")]
pub use lane::{LaneReader, Message};
#[cfg(feature = "client")]
pub use topic::Topic;

#[cfg(not(feature = "client"))]
pub use absent::{Append, Aside, Change, Group, Handed, LaneReader, LaneStatus, Message, Running, Topic};

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

/// How far a group was set elsewhere, summed over its lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Messages that are passed over.
    pub skipped_messages: u64,
    /// Messages that are gone back over.
    pub rewound_messages: u64,
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
