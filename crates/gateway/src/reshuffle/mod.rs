//! Plans bulks, and splits those of synchronous mode.
//!
//! [`Reshuffle`] (`plan`) has [`bulk`] plan a body: by node, or by lane if the bulk is for a queue, and then
//! together with the items of its answer. In synchronous mode it also has each part sent to its node
//! ([`crate::split`]), and makes one answer of the nodes' answers (`merge`). [`directed`] chooses shards for
//! documents that may go to any. What else is decided about a bulk is decided in [`crate::intake`].

pub(crate) mod directed;
mod merge;
mod plan;

pub(crate) use directed::Directory;
pub(crate) use merge::is_of_nodes;
pub(crate) use plan::{BulkRequest, Lanes, PlanBasis, Reshuffle};
