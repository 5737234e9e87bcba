//! The filter `bulk_reshuffle`: what a request for documents is, and which way it goes.
//!
//! [`Intake`] (`filter`) reads a bulk. `decide` then asks one room after another: [`crate::admission`] for
//! permission to queue the bulk, [`crate::reshuffle`] for its plan, and [`crate::queue`] to make it durable.
//! A bulk in synchronous mode only needs the plan: `reshuffle` has its parts sent, and merges the answers. A
//! bulk without a plan goes on as it came. The rest of this folder serves that decision: `chosen_flows` and
//! `named_in_body` (rules for certain indices), `single` (writes of one document), and for asynchronous mode
//! `introduce` (indices that do not exist yet), `passing`, `touched` and `document_write` (writes that cannot
//! be queued) and `queued_answer` (parameters that only shape an answer). `packed` compresses answers, and
//! `counted` counts what goes on whole.

mod chosen_flows;
mod counted;
mod decide;
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
pub(crate) use filter::{Intake, Queueing, Taken};
pub(crate) use queued_answer::whole;
