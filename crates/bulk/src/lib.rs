//! The bulk format, sans-I/O: bytes of a `_bulk` body to a plan by node, node replies back to one reply.

mod action;
mod dialect;
mod explain;
mod failed;
mod gather;
mod ids;
mod items;
mod merge;
mod murmur;
mod plan;
mod route;
mod scan;
mod slow;
mod strict;
mod table;
mod update;
mod walk;
mod why;

pub use action::Op;
pub use dialect::{Dialect, Flavour, Version};
pub use explain::{DecidedBy, Explain, Explained, explain};
pub use failed::RawError;
pub use gather::Gather;
pub use ids::{ID_LENGTH, IdMint};
pub use items::{ItemFacts, MergeError, Reply};
pub use merge::{Merge, merge};
pub use murmur::hash;
pub use plan::{Ask, Destination, Level, NullId, Part, Pass, Plan, Scratch, Verdict, plan};
pub use route::{Formula, IndexRoute, NodeIx};
pub use table::{RouteTable, RouteTableBuilder, Target};
pub use why::Why;
