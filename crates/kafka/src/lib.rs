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
//! What a process that was killed had sent beyond its last commit nobody knows exactly. So a lane sends
//! [`SENT_AHEAD_MAX`] messages beyond that at most, and who has it next takes those for sent.
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
//! The client is `librdkafka`, compiled in by the feature `client`. What it can do is declared as traits
//! ([`Topic`], [`Group`] and those that they hand out), which only the module `client` implements. So a build
//! without it checks all code that uses a topic, and [`open`] says what is missing.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests sleep, lock and look at clocks as they like"
    )
)]

mod cursor;
mod error;
mod group;
mod head;
mod options;
mod topic;

#[cfg(feature = "client")]
mod client;

pub use cursor::Cursor;
pub use error::{AppendError, HeadError, OpenError, ReadError};
pub use group::{
    Change, Group, Handed, LaneReader, LaneStatus, Message, Moved, Running, SENT_AHEAD_MAX, Tell,
};
pub use head::Head;
pub use options::{Options, Sasl, StartAt, Tls};
pub use topic::{Append, Aside, Browsed, Part, Receipt, Status, Topic};

#[cfg(feature = "client")]
pub use client::open;

/// A topic cannot be opened in a build without the client.
///
/// # Errors
/// [`OpenError::NotBuilt`].
#[cfg(not(feature = "client"))]
pub fn open(_: &Options) -> Result<std::sync::Arc<dyn Topic>, OpenError> {
    Err(OpenError::NotBuilt)
}
