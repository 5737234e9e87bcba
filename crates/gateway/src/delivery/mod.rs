//! Delivers operations from a queue to a cluster: each lane's operations are sent until each of them is
//! indexed, parked or a dead letter.
//!
//! [`Deliveries`] starts a `thread` for each queue and cluster, which has a `Lane` for each lane of the queue
//! (lanes that Kafka assigns come and go: `handed_over`). A lane reads a `Batch` and makes an `attempt` at it
//! by today's topology, which puts a `Parcel` for each node into that node's `outlet`. There the lanes'
//! parcels gather and travel together, as many at a time as the `gate` lets through. Each answer becomes an
//! `outcome` for each operation. An operation that may have been executed before is looked for (`lookup`),
//! one that waits for its index is parked (`park`, `retry`), one that fails only because of others in a
//! pipeline is sent again apart (`shared_fate`), a refusal of a whole request is traced to what it concerns
//! (`refused_whole`), and so is one of an operation by itself that does not pass (`own_refusal`); a record
//! that makes the gateway panic is found (`suspect`, `failing`). [`Memory`] bounds the memory of lanes.

mod answer_pace;
mod asking;
mod attempt;
mod batch;
mod bisect;
mod bulk_answer;
mod deliveries;
mod doubt;
mod error_scope;
mod failing;
mod flights;
mod former_lanes;
mod gate;
mod handed_over;
mod item_outcome;
mod lane;
mod late;
mod lookup;
mod memory;
mod name_history;
mod note_names;
mod op_lines;
mod outcome;
mod outlet;
mod own_refusal;
mod parcel;
mod park;
mod parked_topic;
mod partial_refusal;
mod pauses;
mod readdressed;
mod refused_once;
mod refused_whole;
mod remembered;
mod resting;
mod retry;
mod same_document;
mod sent_as;
mod server_error;
mod shared_fate;
mod sources;
mod suspect;
mod taken_names;
mod thread;
mod unknown;
mod unsettled;
mod unwritten;
mod work;

pub(crate) use deliveries::Deliveries;
pub(crate) use memory::{Memory, Usage};
pub(crate) use unsettled::drop_unsettled;
