//! The filter `bulk_reshuffle`: what a request for documents is, and what is decided about it.
//!
//! [`Reshuffle`] (`sync`) reads a bulk and plans it. Then it goes one of three ways (`decide`): its parts to
//! their nodes ([`crate::split`]), the whole of it into a queue ([`crate::queue`]), or on as it came. The
//! rest of this folder is what the decision needs: `belongs` and `named_in_body` (rules for certain indices),
//! `directed` (documents that may go to any shard), `single` (writes of one document), and for asynchronous
//! mode `introduce` (indices that are not there yet), `passing`, `touched` and `document_write` (writes that
//! cannot be queued), `queued_answer` (parameters that only shape an answer). `packed` compresses answers.

mod belongs;
mod decide;
pub(crate) mod directed;
mod document_write;
mod introduce;
mod lines;
pub(crate) mod named_in_body;
mod packed;
mod passing;
mod queued_answer;
pub(crate) mod single;
mod sync;
mod touched;

pub(crate) use belongs::Belongs;
pub(crate) use directed::Directory;
pub(crate) use queued_answer::whole;
pub(crate) use sync::{Reshuffle, Step};
