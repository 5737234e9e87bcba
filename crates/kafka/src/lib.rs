//! A queue in a Kafka topic, for gateways that outgrow one machine: what one gateway accepts, another may
//! deliver.
//!
//! # The story of a record
//!
//! A client's bulk request becomes one [`Part`] for each lane that it writes to, and a lane is a partition of
//! the topic. [`Topic::append`] hands all parts to an idempotent producer that waits for all in-sync
//! replicas, and succeeds once **every** part is acknowledged. If one part is not, the whole append fails:
//! the client is told that not all of its request was accepted and repeats the whole, so that a part may be
//! stored twice (at least once).
//!
//! A [`Group`] is a Kafka consumer group. There is one for each target cluster, shared by any number of
//! gateways. The broker gives each partition to one of them. [`Rebalance::Assigned`] names the lanes that
//! belong to this process, and [`Rebalance::Revoked`] announces that they are taken away: the broker hands
//! them on once the [`Handed`] that comes with it is dropped, which has to happen when nothing of these lanes
//! is under way. What was done by then is committed, with the generation of the group, so that a member that
//! the group has given up cannot commit. If it is not known whether that was taken, [`Rebalance::Decided`]
//! says when it is.
//!
//! A [`LaneReader`] reads the messages of one partition in order, starting at the committed offset.
//!
//! # No process sends for a lane of another
//!
//! A process that was stopped for a while (on a paused machine) does not know that its lanes belong to
//! another process by now. Therefore a lane sends only while the lease of the group is valid
//! ([`Group::lease`]). The broker does not give up a member before `session_timeout` has passed since it last
//! heard of the member, and every commit that the broker accepts is such a sign. The lease lasts three
//! quarters of the session, counted from *before* the last successful commit, and commits are frequent enough
//! to renew it.
//!
//! When a process is killed, it is not known exactly what it had sent beyond its last commit. Therefore a
//! lane sends at most [`SENT_AHEAD_MAX`] messages beyond the committed offset, and the next owner treats
//! these messages as sent.
//!
//! # A message
//!
//! The value consists of the unchanged lines of the part (newline-delimited JSON, as in a bulk body). The
//! headers `tidegate` (`1 KIND DOCUMENTS LANES`, in decimal, followed by ` id` if lanes follow from ids) and
//! `tidegate-params` describe the part ([`Head`]). There is no key: the gateway itself chooses the partition,
//! by the hash of the document's id or, in topics that earlier versions began, of index and shard
//! ([`Topic::has_lanes_by_id`]). All gateways must agree on the number of partitions; a message that was
//! written for another number stops its lane.
//!
//! # What is committed
//!
//! The commit of a lane is an offset, with running totals of the lane in its metadata (see [`Cursor`]): the
//! documents and bytes done, and how many of these documents are dead, skipped, parked or lost. So the
//! outcome of all documents before the committed offset is known exactly, whichever gateway delivered them
//! and however often a gateway was killed.
//!
//! # What is parked
//!
//! Operations that the owner of a lane parks are behind the committed offset, and the next owner has to know
//! them. They are kept in a separate topic beside the queue's topic ([`SideTopic`]), with a partition for
//! each lane.
//!
//! # Without librdkafka
//!
//! The client is `librdkafka`, compiled in by the feature `client`. Its operations are declared as traits
//! ([`Topic`], [`Group`] and the traits that these hand out), which only the module `client` implements. So a
//! build without the client still checks all code that uses a topic, and [`open`] reports what is missing.

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
    Group, Handed, LaneReader, LaneStatus, Message, Moved, Rebalance, Running, SENT_AHEAD_MAX, Tell,
};
pub use head::Head;
pub use options::{Options, Sasl, StartAt, Tls};
pub use topic::{Append, Browsed, Part, Receipt, SideTopic, Status, Topic};

#[cfg(feature = "client")]
pub use client::open;

/// Fails, since this build has no client and cannot open a topic.
///
/// # Errors
/// Always [`OpenError::NotBuilt`].
#[cfg(not(feature = "client"))]
pub fn open(_: &Options) -> Result<std::sync::Arc<dyn Topic>, OpenError> {
    Err(OpenError::NotBuilt)
}
