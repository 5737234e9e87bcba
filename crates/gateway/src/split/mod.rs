//! The way of a bulk's parts to the nodes, and of the answers back.
//!
//! A `Sender` (`part`) has one part executed: it tries one node after another until the fate of each
//! operation is known, which is the part's `PartAnswer`. With `combine`, parts of several clients for one
//! node wait in a slot ([`crate::gather`]) and travel as one request, whose `Members` each get their share of
//! the node's answer. Only requests of one `Family`, equal except for their documents, travel together.
//! `reword` replaces errors that quote another client's lines.

mod combine;
mod part;
mod reword;

pub(crate) use combine::{Combiner, Families};
pub(crate) use part::{ItemError, PartAnswer, Sender, Split};
