//! The way to the nodes. Every exchange with a node goes through [`Outbound`], which bounds what is in
//! flight, counts, and reports the health of the node to the cluster. [`lines`] holds a request's body where
//! it lies in the buffers of its clients. `proxy` is the filter `elasticsearch`, which streams any request to
//! a node and the answer back (`relay`).

mod credentials;
mod headers;
pub(crate) mod lines;
mod look;
mod outbound;
mod proxy;
pub(crate) mod quote;
mod refusal;
mod relay;
mod traced;
mod tries;
pub(crate) mod unquoted;

pub(crate) use credentials::{Fallback, IDENTITY, shows_identity};
pub(crate) use headers::strip_for_parts;
pub(crate) use look::{DocumentName, LookError, look};
pub(crate) use outbound::{Message, Outbound, Purpose, SendTimes};
pub(crate) use proxy::{Body, Proxy};
pub(crate) use refusal::is_unexecuted;
pub(crate) use traced::Traced;
pub(crate) use tries::Tries;
