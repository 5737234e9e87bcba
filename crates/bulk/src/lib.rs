//! The bulk format, sans-I/O: turns the bytes of a `_bulk` body into a plan by node, and the nodes' replies
//! into one reply.
//!
//! # The story of a body
//!
//! A client sends thousands of operations in one body. Each operation belongs to a shard, and each shard's
//! primary to a node; a node that receives an operation for another node's shard must forward it. So the body
//! is split: [`plan`] reads it once, finds for every operation the shard that the cluster itself would choose
//! (a [`RouteTable`] knows names, aliases, formulas and primaries), and returns [`Part`]s, each a list of
//! ranges of the body. [`Gather`] copies a part's bytes out while they are sent. Each node answers with items
//! in the order of its part; [`Reply::split`] finds the items and [`Merge`] interleaves them into the order
//! of the request, byte for byte as the nodes wrote them.
//!
//! # What is never guessed
//!
//! A request that the cluster would reject as a whole, or whose shards cannot be determined, gets
//! [`Verdict::Pass`]: it goes to one node untouched, and [`Why`] gives the reason. The fast reader of action
//! lines takes only lines that it fully understands, a slow reader decides about the rest, and tests hold the
//! two equal. A wrong shard never leads to wrong data (the node forwards the operation), and operations on
//! one document always stay in one part, in order.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use bulk::{
//!     Ask, Dialect, Flavour, Formula, Gather, IdMint, IndexRoute, Merge, NodeIx, Reply, RouteTable, Scratch,
//!     Verdict, Version,
//! };
//!
//! // The cluster: two nodes, and one index of two shards.
//! let mut table = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 2);
//! let formula = Formula::Classic { routing_num_shards: 1024 };
//! table.index(Arc::new(IndexRoute::new("logs", formula, [Some(NodeIx(0)), Some(NodeIx(1))])));
//! let table = table.build();
//!
//! let body = b"{\"index\":{\"_id\":\"1\"}}\n{}\n{\"delete\":{\"_id\":\"2\"}}\n\
//!     {\"create\":{\"_id\":\"3\"}}\n{}\n";
//! let ask = Ask { default_index: Some("logs"), ..Ask::default() };
//! let (mut ids, mut scratch) = (IdMint::new(42), Scratch::default());
//! let Verdict::Plan(plan) = bulk::plan(body, &ask, &table, &mut ids, &mut scratch) else { panic!("plain") };
//!
//! // Each part is sent to its node…
//! let mut answers = Vec::new();
//! for part in &plan.parts {
//!     let (mut gather, mut chunk) = (Gather::default(), Vec::new());
//!     while gather.next(&plan, part, body, &mut chunk, 256 << 10) > 0 {}
//!     assert_eq!(chunk.len() as u64, part.bytes);
//!     let items = vec!["{\"index\":{\"status\":201}}"; part.docs as usize].join(",");
//!     answers.push(format!("{{\"took\":3,\"errors\":false,\"items\":[{items}]}}"));
//! }
//! // …and the answers are merged into one.
//! let replies = answers.iter().zip(&plan.parts);
//! let replies = replies.map(|(text, part)| Reply::split(text.as_bytes(), part.docs));
//! let replies = replies.collect::<Result<_, _>>()?;
//! let mut merge = Merge::new(&plan, replies, 5, table.dialect())?;
//! let mut reply = Vec::new();
//! while merge.next(&mut reply, 256 << 10) > 0 {}
//! assert!(reply.starts_with(b"{\"took\":5,\"errors\":false,\"items\":[{\"index\""));
//! scratch.recycle(plan);
//! # Ok::<(), bulk::MergeError>(())
//! ```

mod acknowledge;
mod action;
mod ask;
mod boundaries;
mod condense;
mod dialect;
mod direct;
mod explain;
mod failed;
mod fingerprint;
mod gather;
mod ids;
mod items;
mod lanes;
mod merge;
mod models;
mod murmur;
mod names;
mod operations;
mod packed;
mod plan;
mod repeat;
mod route;
mod runs;
mod scan;
mod share;
mod single;
mod single_answer;
mod slow;
mod strict;
mod subject;
mod succeeded;
mod table;
mod together;
mod touches;
mod update;
mod walk;
mod whole;
mod why;
mod writes;

pub use acknowledge::{
    Minted, acknowledged_bytes, acknowledged_bytes_likely, answered_bytes_likely, plan_acknowledged,
    plan_acknowledged_in_turns,
};
pub use action::Op;
pub use ask::{Ask, Level, NullId};
pub use condense::{Condense, SAME_ERROR};
pub use dialect::{Dialect, Flavour, Version};
pub use direct::{Direct, Directing, Run, run_docs_max};
pub use explain::{DecidedBy, Explain, Explained, explain};
pub use failed::RawError;
pub use gather::Gather;
pub use ids::{ID_LENGTH, IdMint};
pub use items::{ItemFacts, MergeError, Reply};
pub use lanes::lanes_of;
pub use merge::{Merge, merge};
pub use murmur::hash;
pub use operations::{Operation, operations, plan_cut, runs};
pub use plan::{Destination, Part, Plan, Scratch, Verdict, plan, plan_in_turns};
pub use repeat::Repeat;
pub use route::{Formula, IndexRoute, NodeIx};
pub use share::Share;
pub use single::{NotALine, Single, SingleValue};
pub use single_answer::{SingleAnswer, Turned, single_answer};
pub use subject::{Subject, subject};
pub use succeeded::all_succeeded;
pub use table::{RouteTable, RouteTableBuilder, Target};
pub use touches::Touched;
pub use why::{Pass, Why};
pub use writes::{Ops, Writes};
