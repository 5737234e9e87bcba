//! The state of asynchronous mode: durable records, how far each consumer group is, and the operations that
//! were parked or given up.
//!
//! [`Accept`] makes a bulk one record and answers once [`Journal`] has the record (on disk, or in a Kafka
//! topic). A [`Queue`] has a [`Group`] for each cluster that it is delivered to, with a cursor for each lane.
//! [`Whereabouts`] says where names lead, and so to which lanes; a `fence` keeps the order when a name moves.
//! Besides the records there are operations that wait for their index ([`parked`]) and operations that were
//! given up ([`dead_letters`]). `accounts` counts all of it, `standstill` says why something does not move,
//! and [`trace`] says where a document is.

mod accept;
mod accounts;
mod at_nodes;
pub(crate) mod broken_replay;
pub(crate) mod dead_letters;
mod entrance;
mod fence;
mod journal;
pub mod moving;
pub(crate) mod parked;
mod phase;
mod queues;
mod record;
pub(crate) mod sent_marks;
mod standstill;
pub(crate) mod trace;
mod unconfirmed_letters;
mod whereabouts;

pub(crate) use accept::{Accept, Queued};
pub(crate) use accounts::{Account, GroupAccount};
pub(crate) use fence::{Fences, Fronts};
pub(crate) use journal::{Consumer, Journal, LaneReader};
pub(crate) use phase::Phase;
pub(crate) use queues::{Group, LaneActivity, Queue, Queues};
#[cfg(test)]
pub(crate) use record::PARAMS_READ;
pub(crate) use record::{
    DELIVERED_TYPE, LED_TO_MAX, Params, Recorded, apart_from_span, delivered_headers, minted, written,
};
pub(crate) use standstill::of_group as waits_of;
pub(crate) use whereabouts::Whereabouts;
