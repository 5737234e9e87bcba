//! A bulk's parts on their way to the nodes, and their answers on the way back.
//!
//! A `Sender` (`part`) has one part executed: it tries nodes in turn until the fate of each operation is
//! known. With `combine` parts of several clients for one node wait in a slot ([`crate::gather`]) and travel
//! as one request, a `Batch`. `reword` has errors worded anew that quote another client's lines.

mod combine;
mod part;
mod reword;

pub(crate) use combine::{Combiner, Families};
pub(crate) use part::{Answer, ItemError, Sender, Split};
