//! The filter `bulk_reshuffle`: what a request for documents is, and what is decided about it.
//!
//! [`Reshuffle`] (`filter`) reads a bulk and plans it. The bulk then goes one of three ways (`decide`): its
//! parts are sent to their nodes ([`crate::split`]), the whole bulk is queued ([`crate::queue`]), or it goes
//! on as it came. The rest of this folder serves that decision: `chosen_flows` and `named_in_body` (rules for
//! certain indices), `directed` (documents that may go to any shard), `single` (writes of one document), and
//! for asynchronous mode `introduce` (indices that do not exist yet), `passing`, `touched` and
//! `document_write` (writes that cannot be queued) and `queued_answer` (parameters that only shape an
//! answer). `packed` compresses answers.

mod chosen_flows;
mod decide;
pub(crate) mod directed;
mod document_write;
mod filter;
mod introduce;
mod lines;
pub(crate) mod named_in_body;
mod packed;
mod passing;
mod queued_answer;
pub(crate) mod single;
mod touched;

pub(crate) use chosen_flows::ChosenFlows;
pub(crate) use directed::Directory;
pub(crate) use filter::{Queueing, Reshuffle, Taken};
pub(crate) use queued_answer::whole;
